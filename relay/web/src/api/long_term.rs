//! Ranges that are older than the relay's own history, read from the long-term storage of the site.

use super::Problem;
use crate::WebState;
use axum::http::StatusCode;
use nodeglass_api::metrics::{FieldSeries, base_series, gpu_series};
use nodeglass_api::{History, Series, Timestamp};
use nodeglass_protocol::field::ValueKind;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::range::{GpuRange, NodeRange, RangeHistory, RangeQuery, Summaries, Summary};
use nodeglass_protocol::trace::Trace;
use nodeglass_protocol::{Cell, Field, GpuField, GpuUuid, HostField, NodeName, Text};
use nodeglass_remote_write::promql::{PromQl, Rows, Selection, Steps};
use nodeglass_share::Viewer;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum number of values in a response.
pub(super) const MAX_VALUES: usize = 3_000_000;
/// Message for a request of more.
pub(super) const TOO_MANY_VALUES: &str =
    "too many values: choose a job or node, fewer metrics, or longer steps";
/// Longest range that the storage is asked for, in ms.
pub(super) const MAX_LONG_MS: u64 = 400 * 86_400_000;
/// Time limit for all queries of a range; shorter than a page waits.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum number of fields of a kind of row that a page gets.
const MAX_FIELDS: usize = 32;
/// Maximum number of steps, and the unit of their length in s.
const MAX_STEPS: u64 = 1_000;
const STEP_UNIT_S: u64 = 60;

/// A range of time in ms since 1970, with the wanted length of a step.
pub(super) struct LongRange {
    pub(super) from_ms: u64,
    pub(super) to_ms: u64,
    pub(super) step_ms: u64,
}

impl LongRange {
    fn steps(&self) -> Steps {
        let (from_s, to_s) = (self.from_ms / 1_000, self.to_ms.div_ceil(1_000));
        let shortest_s = to_s.saturating_sub(from_s).div_ceil(MAX_STEPS).max(self.step_ms / 1_000).max(1);
        let step_s = shortest_s.div_ceil(STEP_UNIT_S) * STEP_UNIT_S;
        let start_s = from_s / step_s * step_s;
        Steps { start_s, step_s, count: (to_s - start_s).div_ceil(step_s) as usize }
    }
}

/// The storage, and the cluster of this relay in it.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    server: PromQl,
    /// `None` if SLURM has not stated its name yet.
    cluster: Option<String>,
}

impl Storage {
    /// The storage, if there is one for this viewer: a share says nothing about the storage of a site.
    pub(crate) fn of(web: &WebState, viewer: &Viewer) -> Option<Self> {
        let server = web.long_term.clone().filter(|_| !viewer.is_restricted())?;
        Some(Self { server, cluster: web.cluster_label() })
    }

    fn selection(&self, topic: &Topic) -> Result<Selection, Problem> {
        let unknown = || {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "SLURM has not stated the name of its cluster yet")
        };
        Ok(Selection { cluster: self.cluster.clone().ok_or_else(unknown)?, rows: rows(topic) })
    }
}

/// Reads what a topic has in a range.
///
/// # Errors
/// [`Problem`] if the storage does not respond, or responds with something else than series.
pub(super) async fn read(
    storage: &Storage,
    topic: &Topic,
    range: &LongRange,
    (gpu_fields, host_fields): (&[GpuField], &[HostField]),
) -> Result<History, Problem> {
    let steps = range.steps();
    let series = series(storage, topic, steps, (gpu_fields, host_fields)).await?;
    Ok(History {
        start: Timestamp::from_millis(steps.start_s * 1_000),
        step_s: steps.step_s,
        steps: steps.count as u64,
        kept_since: None,
        series,
    })
}

/// Reads what a page queries, in slots of the relay's clock. The response to a failure is the sentence about it.
pub(crate) async fn range(storage: &Storage, query: &RangeQuery, wall_ahead_ms: i64) -> RangeHistory {
    let Some(slots) = Slots::of(query) else { return RangeHistory::default() };
    let (gpu_fields, host_fields) = (known(&query.gpu_fields), known(&query.host_fields));
    let read = series(storage, &query.topic, slots.steps(wall_ahead_ms), (&gpu_fields, &host_fields)).await;
    let (nodes, problem) = match read {
        Ok(series) => (nodes(&series, query, slots.first), None),
        Err(Problem { detail, .. }) => {
            (Vec::new(), Some(format!("The long-term storage cannot be read: {detail}").into()))
        }
    };
    RangeHistory { step_ms: slots.step_ms, begins_ms: None, nodes, problem }
}

/// The slots of a page's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slots {
    first: u64,
    count: u64,
    step_ms: u64,
}

impl Slots {
    /// Slots as long as requested, or longer ones; `None` if the range is empty or too long.
    fn of(query: &RangeQuery) -> Option<Self> {
        const UNIT_MS: u64 = STEP_UNIT_S * 1_000;
        let span_ms = query.to_ms.checked_sub(query.from_ms)?;
        if !(1..=MAX_LONG_MS).contains(&span_ms) {
            return None;
        }
        let shortest_ms = span_ms.div_ceil(Trace::CAPACITY as u64).max(query.step_ms.min(MAX_LONG_MS));
        let step_ms = shortest_ms.div_ceil(UNIT_MS) * UNIT_MS;
        let first = query.from_ms / step_ms;
        Some(Self { first, count: query.to_ms.div_ceil(step_ms) - first, step_ms })
    }

    fn steps(&self, wall_ahead_ms: i64) -> Steps {
        let start_ms = (self.first * self.step_ms).saturating_add_signed(wall_ahead_ms);
        Steps { start_s: start_ms / 1_000, step_s: self.step_ms / 1_000, count: self.count as usize }
    }
}

/// The fields of these names that have a history.
fn known<F: Field>(names: &[Text]) -> Vec<F> {
    let known = names.iter().take(MAX_FIELDS).filter_map(|name| F::from_name(name.as_str()));
    let mut fields: Vec<F> = known.filter(|field| F::HISTORY.contains(field)).collect();
    fields.sort();
    fields.dedup();
    fields
}

/// Sorts series by node and GPU, with the fields of each in the order of the query. Rows whose node no cluster can have
/// are left out.
fn nodes(series: &[Series], query: &RangeQuery, first: u64) -> Vec<NodeRange> {
    let mut rows: BTreeMap<(NodeName, Option<&str>), Vec<Summaries>> = BTreeMap::new();
    for one in series {
        let Ok(node) = NodeName::new(one.node.as_str()) else { continue };
        let names = if one.gpu.is_some() { &query.gpu_fields } else { &query.host_fields };
        let names = &names[..names.len().min(MAX_FIELDS)];
        let row =
            rows.entry((node, one.gpu.as_deref())).or_insert_with(|| vec![Summaries::default(); names.len()]);
        let points = match one.gpu {
            Some(_) => points::<GpuField>(one, first),
            None => points::<HostField>(one, first),
        };
        let wanted = row.iter_mut().zip(names).filter(|(_, name)| name.as_str() == one.metric);
        wanted.for_each(|(summaries, _)| summaries.extend(&points));
    }
    let mut nodes: Vec<NodeRange> = Vec::new();
    for ((node, gpu), fields) in rows {
        if nodes.last().is_none_or(|last| last.node != node) {
            nodes.push(NodeRange { node, gpus: Vec::new(), host: Vec::new() });
        }
        let Some(last) = nodes.last_mut() else { continue };
        match gpu {
            Some(uuid) => last.gpus.push(GpuRange { uuid: GpuUuid::new(uuid), fields }),
            None => last.host = fields,
        }
    }
    nodes
}

/// The values of a series by slot.
fn points<F: Field>(series: &Series, first: u64) -> Vec<(u64, Summary)> {
    let Some(field) = F::from_name(&series.metric) else { return Vec::new() };
    let cell = |value: u64| Cell::steps(u32::try_from(field.scale().steps(value)).unwrap_or(u32::MAX));
    let point = |(slot, step): (u64, usize)| {
        let value = |values: &[Option<u64>]| values.get(step).copied().flatten().map(cell);
        let mean = value(&series.mean)?;
        let or_mean = |values: &[Option<u64>]| value(values).unwrap_or(mean);
        Some((slot, Summary { mean, min: or_mean(&series.min), max: or_mean(&series.max) }))
    };
    (first..).zip(0..series.mean.len()).filter_map(point).collect()
}

/// Reads the series of some fields within the time limit.
async fn series(
    storage: &Storage,
    topic: &Topic,
    steps: Steps,
    (gpu_fields, host_fields): (&[GpuField], &[HostField]),
) -> Result<Vec<Series>, Problem> {
    let selection = storage.selection(topic)?;
    let mut reader = Reader { server: &storage.server, selection, steps, series: Vec::new() };
    let all = async {
        for field in gpu_fields {
            // PromQL has no bitwise operators: a mean of masks would be bits that were never set.
            if field.metric().kind != ValueKind::BitMask {
                reader.add(field.name(), gpu_series(*field)).await?;
            }
        }
        for field in host_fields {
            reader.add(field.name(), base_series(*field)).await?;
        }
        Ok(reader.series)
    };
    let late = || {
        let limit = TIMEOUT.as_secs();
        Problem::new(
            StatusCode::GATEWAY_TIMEOUT,
            format!("the long-term storage did not respond within {limit} s"),
        )
    };
    timeout(TIMEOUT, all).await.unwrap_or_else(|_| Err(late()))
}

fn rows(topic: &Topic) -> Rows {
    match topic {
        Topic::Job(id) => Rows::Job(id.0),
        Topic::Node(node) => Rows::Node(node.to_string()),
        _ => Rows::All,
    }
}

struct Reader<'a> {
    server: &'a PromQl,
    selection: Selection,
    steps: Steps,
    series: Vec<Series>,
}

impl Reader<'_> {
    async fn add(&mut self, metric: &str, names: Vec<FieldSeries>) -> Result<(), Problem> {
        for name in names {
            let read = self.server.read(&name, &self.selection, self.steps).await;
            let read =
                read.map_err(|error| Problem::new(StatusCode::BAD_GATEWAY, format!("failed to {error}")))?;
            self.series.extend(read.into_iter().map(|((node, uuid), values)| Series {
                node,
                gpu: Some(uuid).filter(|uuid| !uuid.is_empty()),
                metric: metric.to_owned(),
                mean: values.mean,
                min: values.min,
                max: values.max,
            }));
            if self.series.len().saturating_mul(self.steps.count * 3) > MAX_VALUES {
                return Err(Problem::bad_request(TOO_MANY_VALUES));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_cover_the_range_and_are_bounded() {
        let day_ms = 86_400_000;
        let range =
            LongRange { from_ms: 1_795_000_123_000, to_ms: 1_795_000_123_000 + 30 * day_ms, step_ms: 0 };
        let steps = range.steps();
        assert_eq!(steps.step_s, 2_640);
        assert!(steps.count as u64 <= MAX_STEPS + 1 && steps.start_s * 1_000 <= range.from_ms);
        assert!((steps.start_s + steps.step_s * steps.count as u64) * 1_000 >= range.to_ms);
        assert_eq!(LongRange { step_ms: 7_200_000, ..range }.steps().step_s, 7_200);
    }
    fn query(from_ms: u64, to_ms: u64, step_ms: u64) -> RangeQuery {
        let gpu_fields = [GpuField::Power.name(), "no_such", GpuField::Util.name()].map(Text::from).into();
        let host_fields = vec![HostField::MemUsed.name().into()];
        RangeQuery { topic: Topic::Overview, from_ms, to_ms, step_ms, gpu_fields, host_fields }
    }

    #[test]
    fn slots_are_those_of_the_page_where_they_can_be() {
        let slots = |from_ms, to_ms, step_ms| Slots::of(&query(from_ms, to_ms, step_ms));
        let day_ms = 86_400_000;
        let year = Slots { first: 1, count: 365, step_ms: day_ms };
        assert_eq!(slots(day_ms, 366 * day_ms, day_ms), Some(year));
        assert_eq!(year.steps(1_000_500), Steps { start_s: 87_400, step_s: 86_400, count: 365 });
        let short = slots(0, 30 * day_ms, 1_000).unwrap();
        assert!(short.step_ms == 4_320_000 && short.count <= Trace::CAPACITY as u64, "{short:?}");
        for (from_ms, to_ms) in [(5, 5), (6, 5), (0, MAX_LONG_MS + 1), (0, u64::MAX)] {
            assert_eq!(slots(from_ms, to_ms, 60_000), None, "{from_ms} {to_ms}");
        }
        for (from_ms, to_ms, step_ms) in [(u64::MAX - 9, u64::MAX, u64::MAX), (0, 1, u64::MAX)] {
            assert!(slots(from_ms, to_ms, step_ms).unwrap().count <= 2);
        }
    }

    #[test]
    fn series_become_rows_with_their_fields_in_the_order_of_the_query() {
        let one = |node: &str, gpu: Option<&str>, metric: &str, value: u64| Series {
            node: node.into(),
            gpu: gpu.map(str::to_owned),
            metric: metric.into(),
            mean: vec![None, Some(value)],
            min: vec![None, None],
            max: vec![None, Some(value + 20)],
        };
        let series = [
            one("n2", Some("GPU-b"), "util_pct", 40),
            one("n1", Some("GPU-a"), "power_w", 300),
            one("n1", Some("GPU-a"), "util_pct", 50),
            one("n1", None, "mem_used_bytes", 1 << 30),
            one("n1", None, "power_w", 1),
            one("no node", Some("GPU-c"), "util_pct", 7),
        ];
        let nodes = nodes(&series, &query(0, 1, 0), 10);
        let names: Vec<_> = nodes.iter().map(|node| node.node.as_str()).collect();
        assert_eq!(names, ["n1", "n2"]);
        let values = |summaries: &Summaries| {
            let all = summaries.since(0).filter_map(|(slot, one)| Some((slot, one?)));
            all.map(|(slot, one)| (slot, one.mean.value(), one.max.value())).collect::<Vec<_>>()
        };
        let gpu = &nodes[0].gpus[0];
        assert_eq!(values(&gpu.fields[0]), [(11, Some(300), Some(320))]);
        assert!(gpu.fields[1].is_empty() && gpu.fields.len() == 3);
        assert_eq!(values(&gpu.fields[2]), [(11, Some(50), Some(70))]);
        assert_eq!(values(&nodes[0].host[0]), [(11, Some(16), Some(16))], "in steps of 64 MiB");
        assert_eq!(values(&nodes[1].gpus[0].fields[2]), [(11, Some(40), Some(60))]);
    }
}

//! Steps shorter than the long-term history's, from the ring of the last ten minutes.

use super::accumulator::Accumulator;
use super::query::{self, MAX_FIELDS, MAX_GPU_FIELDS as MAX_TRACES, Span, TIER_MS, VisibleNode};
use nodeglass_protocol::field::ValueKind;
use nodeglass_protocol::history::{History, Traces};
use nodeglass_protocol::range::{GpuRange, NodeRange, RangeHistory, RangeQuery, Summaries};
use nodeglass_protocol::trace::Trace;
use nodeglass_protocol::{Field, GpuField, GpuUuid, HostField, NodeName, Text};
use std::borrow::Cow;

/// Age of the oldest sample in the ring, in ms.
const KEPT_MS: u64 = Trace::CAPACITY as u64 * Trace::STEP_MS;

/// Returns the step of a query that the ring can answer: its steps are shorter than the long-term history's, and it
/// begins within the last ten minutes.
fn step_ms(query: &RangeQuery, now_ms: u64) -> Option<u64> {
    let is_fine = (1..TIER_MS).contains(&query.step_ms);
    let is_recent = query.from_ms.min(query.to_ms).saturating_add(KEPT_MS) >= now_ms;
    (is_fine && is_recent).then(|| query.step_ms.next_multiple_of(Trace::STEP_MS))
}

/// The part of the ring that a query selects, detached from the fleet.
#[derive(Debug)]
pub struct RecentSource {
    step_ms: u64,
    nodes: Vec<RecentNode>,
    /// Whether some of the requested fields are not selected, as there are too many rows.
    leaves_out_fields: bool,
}

#[derive(Debug)]
struct RecentNode {
    name: NodeName,
    gpus: Vec<(GpuUuid, SelectedRow)>,
    host: SelectedRow,
}

/// The selected fields of a row, and when they are visible.
#[derive(Debug)]
struct SelectedRow {
    span: Span,
    traces: Vec<SelectedTrace>,
}

/// The trace of a selected field; `None` if it has none.
#[derive(Debug)]
struct SelectedTrace {
    trace: Option<Trace>,
    kind: ValueKind,
}

impl RecentSource {
    /// Selects the data of a query; `None` if only the long-term history can answer it. Each node comes with the
    /// visible part of its ring, whose GPUs are those of the node, in the same order.
    pub fn new<'a>(
        query: &RangeQuery,
        now_ms: u64,
        nodes: impl ExactSizeIterator<Item = (VisibleNode, Option<Cow<'a, History>>)>,
    ) -> Option<Self> {
        let step_ms = step_ms(query, now_ms)?;
        let range = Span { from_ms: query.from_ms.min(query.to_ms), to_ms: query.to_ms.max(query.from_ms) };
        let mut left = MAX_TRACES;
        let node = |(visible, history): (VisibleNode, Option<Cow<'a, History>>)| {
            let history = history.as_deref();
            let gpu = |(at, (uuid, span)): (usize, (GpuUuid, Span))| {
                let traces = history.and_then(|history| history.gpus.get(at));
                let traces = selected::<GpuField>(traces, &query.gpu_fields, &mut left);
                (uuid, SelectedRow { span: range.overlap(span), traces })
            };
            let gpus = visible.gpus.into_iter().enumerate().map(gpu).collect();
            let host = history.map(|history| &history.host).filter(|_| visible.host.is_some());
            let traces = selected::<HostField>(host, &query.host_fields, &mut left);
            let span = visible.host.map_or(range, |span| range.overlap(span));
            RecentNode { name: visible.name, gpus, host: SelectedRow { span, traces } }
        };
        let nodes: Vec<RecentNode> = nodes.map(node).collect();
        let is_short = |row: &SelectedRow, requested: &[Text]| row.traces.len() < requested.len();
        let leaves_out_fields = nodes.iter().any(|node| {
            node.gpus.iter().any(|(_, row)| is_short(row, &query.gpu_fields))
                || is_short(&node.host, &query.host_fields)
        });
        Some(Self { step_ms, nodes, leaves_out_fields })
    }

    /// Returns whether some of the requested fields are missing, because the query selects too many rows.
    pub fn leaves_out_fields(&self) -> bool {
        self.leaves_out_fields
    }

    /// The number of values that the response has if each slot has a minimum, a mean and a maximum.
    pub fn max_value_count(&self, query: &RangeQuery) -> usize {
        let fields = self.rows().map(|row| row.traces.len()).sum();
        query::max_value_count(query, self.step_ms, fields)
    }

    fn rows(&self) -> impl Iterator<Item = &SelectedRow> {
        self.nodes.iter().flat_map(|node| node.gpus.iter().map(|(_, row)| row).chain([&node.host]))
    }

    /// Reads the summaries.
    pub fn read(&self) -> RangeHistory {
        let fields = |row: &SelectedRow| -> Vec<Summaries> {
            row.traces.iter().map(|selected| self.summaries(row.span, selected)).collect()
        };
        let gpu = |(uuid, row): &(GpuUuid, SelectedRow)| GpuRange { uuid: uuid.clone(), fields: fields(row) };
        let node = |node: &RecentNode| NodeRange {
            node: node.name.clone(),
            gpus: node.gpus.iter().map(gpu).collect(),
            host: fields(&node.host),
        };
        RangeHistory {
            step_ms: self.step_ms,
            begins_ms: self.begins_ms(),
            nodes: self.nodes.iter().map(node).collect(),
            problem: None,
        }
    }

    fn begins_ms(&self) -> Option<u64> {
        let first = |row: &SelectedRow| {
            let traces = row.traces.iter().filter_map(|selected| selected.trace.as_ref());
            let first = traces.filter_map(|trace| trace.points().next().map(|(at_ms, _)| at_ms)).min();
            first.map(|at_ms| at_ms.max(row.span.from_ms))
        };
        self.rows().filter_map(first).min()
    }

    fn summaries(&self, span: Span, SelectedTrace { trace, kind }: &SelectedTrace) -> Summaries {
        let mut summaries = Summaries::default();
        let Some(trace) = trace else { return summaries };
        let mut current: Option<(u64, Accumulator)> = None;
        let points = trace.since(span.from_ms).take_while(|(at_ms, _)| *at_ms <= span.to_ms);
        for (at_ms, cell) in points {
            // A second that begins before the span may hold what the viewer may not see.
            let Some(cell) = cell.filter(|_| at_ms >= span.from_ms) else { continue };
            let slot = at_ms / self.step_ms;
            if let Some((known, accumulator)) = current.filter(|(known, _)| *known != slot) {
                accumulator.summary(*kind).into_iter().for_each(|summary| summaries.push(known, summary));
                current = None;
            }
            current.get_or_insert((slot, Accumulator::default())).1.add(cell, *kind);
        }
        if let Some((slot, accumulator)) = current {
            accumulator.summary(*kind).into_iter().for_each(|summary| summaries.push(slot, summary));
        }
        summaries
    }
}

/// The traces of the named fields, of which `left` are left.
fn selected<F: Field>(traces: Option<&Traces<F>>, names: &[Text], left: &mut usize) -> Vec<SelectedTrace> {
    let most = MAX_FIELDS.min(*left);
    *left -= names.len().min(most);
    let select = |name: &Text| {
        let field = F::from_name(name.as_str());
        SelectedTrace {
            trace: field.zip(traces).and_then(|(field, traces)| traces.get(field)).cloned(),
            kind: field.map_or(ValueKind::Gauge, |field| field.metric().kind),
        }
    };
    names.iter().take(most).map(select).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::Cell;
    use nodeglass_protocol::field::Row;
    use nodeglass_protocol::live::Topic;

    const NOW_MS: u64 = 10_000_000;

    fn query(age_ms: u64, step_ms: u64) -> RangeQuery {
        RangeQuery {
            topic: Topic::Overview,
            from_ms: NOW_MS - age_ms,
            to_ms: NOW_MS,
            step_ms,
            gpu_fields: vec![GpuField::Util.name().into()],
            host_fields: Vec::new(),
        }
    }

    /// A ring with a value each second of the last minute: the number of the second.
    fn source(query: &RangeQuery, visible: Span) -> Option<RecentSource> {
        let mut history = History::default();
        for age in (0..60).rev() {
            let mut row = Row::default();
            row.set(GpuField::Util, Cell::steps(60 - age));
            history.push(NOW_MS - u64::from(age) * 1_000, std::iter::once(&row), &Row::default(), 0);
        }
        let name = NodeName::new("n1").unwrap();
        let node = VisibleNode { name, gpus: vec![(GpuUuid::new("GPU-1"), visible)], host: None };
        RecentSource::new(query, NOW_MS, [(node, Some(Cow::Owned(history)))].into_iter())
    }

    fn values(range: &RangeHistory) -> Vec<u32> {
        let all = range.nodes[0].gpus[0].fields[0].since(0);
        all.filter_map(|(_, summary)| summary?.max.value()).collect()
    }

    #[test]
    fn only_short_steps_of_the_last_ten_minutes_come_from_the_ring() {
        for (age_ms, step_ms, expected) in [
            (60_000, 1_000, Some(1_000)),
            (600_000, 1_500, Some(2_000)),
            (600_001, 1_000, None),
            (60_000, 10_000, None),
            (60_000, 0, None),
        ] {
            let source = source(&query(age_ms, step_ms), Span::ALL);
            assert_eq!(source.map(|source| source.step_ms), expected, "{age_ms} {step_ms}");
        }
    }

    #[test]
    fn each_second_has_its_value_and_longer_steps_summarize_them() {
        let seconds = source(&query(4_000, 1_000), Span::ALL).unwrap().read();
        assert_eq!((values(&seconds), seconds.step_ms), (vec![56, 57, 58, 59, 60], 1_000));
        assert_eq!(seconds.begins_ms, Some(NOW_MS - 4_000));
        let pairs = source(&query(5_000, 2_000), Span::ALL).unwrap().read();
        assert_eq!(values(&pairs), [55, 57, 59, 60]);
    }

    #[test]
    fn fields_that_are_too_many_are_reported_and_values_are_counted() {
        let few = query(60_000, 1_000);
        let source = source(&few, Span::ALL).unwrap();
        // One field of the GPU, and none of the host.
        assert_eq!((source.leaves_out_fields(), source.max_value_count(&few)), (false, 61 * 3));
        let names = vec![Text::new(GpuField::Util.name()); MAX_FIELDS + 1];
        let many = RangeQuery { gpu_fields: names, ..few };
        assert!(self::source(&many, Span::ALL).unwrap().leaves_out_fields());
    }

    #[test]
    fn t09_a_guest_sees_no_second_before_the_shared_job() {
        let visible = Span { from_ms: NOW_MS - 1_500, to_ms: u64::MAX };
        assert_eq!(values(&source(&query(4_000, 1_000), visible).unwrap().read()), [59, 60]);
    }
}

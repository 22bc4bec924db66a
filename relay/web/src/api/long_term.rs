//! Ranges that are older than the relay's own history, read from the long-term storage of the site.

use super::Problem;
use axum::http::StatusCode;
use nodeglass_api::metrics::{FieldSeries, gpu_series, host_series};
use nodeglass_api::{History, Series, Timestamp};
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::{Field, GpuField, HostField};
use nodeglass_remote_write::promql::{PromQl, Rows, Steps};
use std::time::Duration;
use tokio::time::timeout;

/// Maximum number of values in a response.
pub(super) const MAX_VALUES: usize = 3_000_000;
/// Message for a request of more.
pub(super) const TOO_MANY_VALUES: &str =
    "too many values: choose a job or node, fewer metrics, or longer steps";
/// Time limit for all queries of a range.
const TIMEOUT: Duration = Duration::from_secs(20);
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

/// Reads what a topic has in a range.
///
/// # Errors
/// [`Problem`] if the storage does not respond, or responds with something else than series.
pub(super) async fn read(
    server: &PromQl,
    topic: &Topic,
    range: &LongRange,
    (gpu_fields, host_fields): (&[GpuField], &[HostField]),
) -> Result<History, Problem> {
    let mut reader = Reader { server, rows: rows(topic), steps: range.steps(), series: Vec::new() };
    let all = async {
        for field in gpu_fields {
            reader.add(field.name(), gpu_series(*field)).await?;
        }
        for field in host_fields {
            reader.add(field.name(), host_series(*field)).await?;
        }
        Ok(reader)
    };
    let late = || {
        let limit = TIMEOUT.as_secs();
        Problem::new(
            StatusCode::GATEWAY_TIMEOUT,
            format!("the long-term storage did not respond within {limit} s"),
        )
    };
    let Reader { steps, series, .. } = timeout(TIMEOUT, all).await.unwrap_or_else(|_| Err(late()))?;
    Ok(History {
        start: Timestamp::from_millis(steps.start_s * 1_000),
        step_s: steps.step_s,
        steps: steps.count as u64,
        kept_since: None,
        series,
    })
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
    rows: Rows,
    steps: Steps,
    series: Vec<Series>,
}

impl Reader<'_> {
    async fn add(&mut self, metric: &str, names: Vec<FieldSeries>) -> Result<(), Problem> {
        for name in names {
            let read = self.server.read(&name, &self.rows, self.steps).await;
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
}

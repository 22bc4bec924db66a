//! Ranges of the history over HTTP.

use super::caller::Caller;
use super::long_term::{self, LongRange, MAX_LONG_MS, MAX_VALUES, Storage, TOO_MANY_VALUES};
use super::{Problem, named_job, reply};
use crate::{WebState, reports};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use nodeglass_api::{History, JobSelector, Series, Timestamp};
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::range::RangeQuery;
use nodeglass_protocol::{Field, GpuField, HostField, NodeName, Text};
use nodeglass_share::Viewer;
use serde::Deserialize;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::timeout;
use utoipa::IntoParams;

/// Time limit for the selection in the event loop.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Length of a range without a start, in ms.
const DEFAULT_MS: u64 = 3_600_000;
/// Longest range, in ms: what is kept, in whole days.
const MAX_MS: u64 = RangeQuery::OWN_HISTORY_MS.next_multiple_of(86_400_000);
/// Maximum number of metrics of a kind.
const MAX_METRICS: usize = 16;
/// Largest number that counts as s since 1970; larger ones are ms.
const MAX_SECONDS: u64 = 100_000_000_000;

/// A range of the history.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct HistoryQuery {
    /// Id of a job, as `48461`, `48440_16` or `48511+0`: its GPUs. Without a job or node: all that the caller may see.
    #[param(value_type = Option<String>, example = "48440_16")]
    job: Option<JobSelector>,
    /// Name of a node: its GPUs and the host.
    #[param(value_type = Option<String>)]
    node: Option<NodeName>,
    /// Metrics of GPUs, separated by commas; `util_pct` by default.
    metric: Option<String>,
    /// Metrics of hosts, separated by commas; none by default.
    host_metric: Option<String>,
    /// Start: RFC 3339 in UTC (`…Z`), s or ms since 1970, or an age such as `90m`; an hour before the end by default.
    from: Option<String>,
    /// End: like `from`; now by default.
    to: Option<String>,
    /// Length of a step, such as `60s`, at least 10 s, or 1 s if the range begins within the last ten minutes. The steps are longer if the range would have too many of them, or if only longer ones are kept.
    step: Option<String>,
}

/// Minimum, mean and maximum of metrics over a range of time, on one grid of steps.
#[utoipa::path(get, path = "/api/v1/history", tag = "state", operation_id = "history", params(HistoryQuery),
    responses((status = 200, body = History), (status = 304, description = "Unchanged since `If-None-Match`")))]
pub async fn history(
    State(web): State<WebState>,
    caller: Caller,
    headers: HeaderMap,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Result<Response, Response> {
    let known = "job, node, metric, host_metric, from, to, step";
    let Query(query) = query.map_err(|error| Problem::query(&error, known))?;
    let wall_ahead_ms = web.about.clock.displayed_wall_ahead_ms();
    let now_ms = web.about.clock.displayed_wall_ms();
    let to_ms = query.to.as_deref().map_or(Ok(now_ms), |to| moment(to, now_ms))?.min(now_ms);
    let from_ms =
        query.from.as_deref().map_or(Ok(to_ms.saturating_sub(DEFAULT_MS)), |from| moment(from, now_ms))?;
    let gpu_fields = fields::<GpuField>(query.metric.as_deref().unwrap_or("util_pct"))?;
    let host_fields = fields::<HostField>(query.host_metric.as_deref().unwrap_or_default())?;
    let relay_ms = |wall_ms: u64| wall_ms.saturating_add_signed(wall_ahead_ms.saturating_neg());
    let step_ms = query.step.as_deref().map_or(Ok(0), step_ms)?;
    let (viewer, mut charge) = caller.begin(&web).await?;
    let long_term = Storage::of(&web, &viewer);
    let max_ms = if long_term.is_some() { MAX_LONG_MS } else { MAX_MS };
    if from_ms >= to_ms || to_ms - from_ms > max_ms {
        let days = max_ms / 86_400_000;
        let why = format!("the range must end after its start, and be at most {days} days long");
        return Err(Problem::bad_request(why).into());
    }
    let topic = named_job::topic(&web, &viewer, &mut charge, query.job, query.node).await?;
    let own = gpus_of_job(&web, &topic, &viewer).await?;
    if let Some(storage) = long_term.filter(|_| RangeQuery::needs_storage(from_ms, now_ms)) {
        let range = LongRange { from_ms, to_ms, step_ms };
        let mut history = long_term::read(&storage, &topic, &range, (&gpu_fields, &host_fields)).await?;
        history.series.retain(|series| is_of(series, &own));
        charge.restart();
        let body = reply::body(&history);
        charge.sends(body.len());
        return Ok(reply::json(&headers, body));
    }
    let query = RangeQuery {
        topic,
        from_ms: relay_ms(from_ms),
        to_ms: relay_ms(to_ms),
        step_ms,
        gpu_fields: gpu_fields.iter().map(|field| Text::new(field.name())).collect(),
        host_fields: host_fields.iter().map(|field| Text::new(field.name())).collect(),
    };
    let source = timeout(TIMEOUT, web.hub.range(viewer, query.clone())).await;
    let source = source.map_err(|_| Problem::late("the history"))?;
    let source = source.ok_or_else(|| Problem::not_found("there is no such job or node"))?;
    charge.restart();
    if source.leaves_out_fields() || source.max_value_count(&query) > MAX_VALUES {
        return Err(Problem::bad_request(TOO_MANY_VALUES).into());
    }
    let body = tokio::task::spawn_blocking(move || {
        let mut history = History::new(&source.read(), &query, (&gpu_fields, &host_fields), wall_ahead_ms);
        history.series.retain(|series| is_of(series, &own));
        reply::body(&history)
    });
    let body = body.await.map_err(|_| Problem::shutting_down())?;
    charge.sends(body.len());
    Ok(reply::json(&headers, body))
}

/// The GPUs of the job of a topic: its nodes may have others. `None` if they are not known, and of other topics.
async fn gpus_of_job(
    web: &WebState,
    topic: &Topic,
    viewer: &Viewer,
) -> Result<Option<HashSet<String>>, Problem> {
    let Topic::Job(id) = topic else { return Ok(None) };
    let report = reports::job(web, *id, viewer).await.map_err(|_| Problem::late("the history"))?;
    let uuids: HashSet<String> =
        report.into_iter().flat_map(|report| report.gpus).map(|gpu| gpu.uuid.to_string()).collect();
    Ok((!uuids.is_empty()).then_some(uuids))
}

fn is_of(series: &Series, own: &Option<HashSet<String>>) -> bool {
    own.as_ref().zip(series.gpu.as_ref()).is_none_or(|(own, gpu)| own.contains(gpu))
}

/// A time in ms since 1970: RFC 3339 in UTC, a number of s or ms, or an age.
fn moment(raw: &str, now_ms: u64) -> Result<u64, Problem> {
    // A `+` in a query is a space; no form of a time has one.
    if let Ok(number) = raw.parse::<u64>() {
        return Ok(if number < MAX_SECONDS { number * 1_000 } else { number });
    }
    if let Ok(at) = raw.parse::<Timestamp>() {
        return Ok(at.as_millis());
    }
    let age = humantime::parse_duration(raw.trim_start_matches('-')).map_err(|_| {
        Problem::bad_request(format!(
            "{:?} is not a time: expected UTC such as 2026-11-25T06:00:00Z, a number of seconds since 1970, or an age such as 90m",
            Text::new(raw).as_str()
        ))
    })?;
    Ok(now_ms.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)))
}

fn step_ms(raw: &str) -> Result<u64, Problem> {
    let parsed = raw.parse::<u64>().map(Duration::from_secs).or_else(|_| humantime::parse_duration(raw));
    let step = parsed.ok().filter(|step| *step <= Duration::from_millis(MAX_MS));
    let step =
        step.ok_or_else(|| Problem::bad_request("`step` must be a length such as 60s, at most 8 days"))?;
    Ok(u64::try_from(step.as_millis()).unwrap_or(u64::MAX))
}

/// The metrics of a list; each must have a history.
fn fields<F: Field>(list: &str) -> Result<Vec<F>, Problem> {
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    let field = |name: &str| {
        F::HISTORY.iter().copied().find(|field| field.name() == name).ok_or_else(|| {
            let known: Vec<_> = F::HISTORY.iter().map(|field| field.name()).collect();
            let name = Text::new(name);
            Problem::bad_request(format!(
                "no history is kept of the metric {:?} of a {}; available: {}",
                name.as_str(),
                F::ROW_KIND,
                known.join(", ")
            ))
        })
    };
    let mut fields = names.map(field).collect::<Result<Vec<F>, _>>()?;
    fields.sort();
    fields.dedup();
    if fields.len() > MAX_METRICS {
        return Err(Problem::bad_request(format!("at most {MAX_METRICS} metrics can be requested")));
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_a_number_or_an_age() {
        let now_ms = 1_795_586_845_000;
        assert_eq!(moment("2026-11-25T06:07:25Z", 0), Ok(now_ms));
        assert_eq!((moment("1795586845", 0), moment("1795586845000", 0)), (Ok(now_ms), Ok(now_ms)));
        assert_eq!(
            (moment("90m", now_ms), moment("-90m", now_ms)),
            (Ok(now_ms - 5_400_000), Ok(now_ms - 5_400_000))
        );
        for wrong in ["", "yesterday", "2026-11-25T07:07:25+01:00", "1e9", "-", "99999999999999999999"] {
            assert!(moment(wrong, now_ms).is_err(), "{wrong}");
        }
    }

    #[test]
    fn metrics_without_history_are_named_with_those_that_have_one() {
        assert_eq!(fields::<GpuField>("power_w, util_pct,power_w").unwrap().len(), 2);
        let error = fields::<GpuField>("serial").unwrap_err();
        assert!(error.detail.contains("\"serial\"") && error.detail.contains("util_pct"), "{}", error.detail);
        assert!(fields::<HostField>("util_pct").is_err());
        assert!(fields::<HostField>("").unwrap().is_empty());
    }

    #[test]
    fn a_step_is_a_duration_or_a_number_of_seconds() {
        assert_eq!((step_ms("60s"), step_ms("60"), step_ms("5m")), (Ok(60_000), Ok(60_000), Ok(300_000)));
        assert!(step_ms("soon").is_err() && step_ms("99999999999").is_err());
    }
}

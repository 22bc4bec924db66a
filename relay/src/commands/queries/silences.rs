//! `relay findings silence` and `relay findings silences`.

use super::Answer;
use hyper::Method;
use nodeglass_api::{Job, JobSelector, NotOneJob, Silence, SilenceChange, silenced_jobs};
use nodeglass_app::remote::Remote;
use nodeglass_config::{SilenceArgs, WhichRelay};
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::JobId;
use nodeglass_protocol::Text;
use nodeglass_protocol::finding::SilenceRequest;
use nodeglass_report::aligned;
use nodeglass_rules::text;

const SILENCES: &str = "/api/v1/silences";

/// Silences findings, or ends that.
///
/// # Errors
/// A complete sentence for the user.
pub async fn silence(args: SilenceArgs) -> anyhow::Result<Answer> {
    let relay = Remote::find(args.which.relay)?;
    let jobs = relay.jobs().await?;
    let job = match &args.job {
        Some(named) => match named_job(&jobs, named, args.end) {
            Ok(job) => Some(job),
            Err(error) => return Ok(Answer::not_met(error.to_string())),
        },
        None => None,
    };
    let for_s = if args.end { 0 } else { u32::try_from(args.time.as_secs()).unwrap_or(u32::MAX) };
    let request = SilenceRequest { kind: args.kind.map(|kind| kind.0), job, for_s };
    let change: SilenceChange = relay.json(Method::POST, SILENCES, serde_json::to_string(&request)?).await?;
    // A job's label is text of SLURM.
    let message = Text::new(&change.message);
    if change.is_changed {
        return Ok(Answer::text(format!("{message}\n")));
    }
    let silences: Vec<Silence> = relay.json(Method::GET, SILENCES, String::new()).await?;
    Ok(Answer::not_met(match silences.is_empty() {
        true => format!("{message}; no finding is silenced"),
        false => format!("{message}; these are silenced:\n{}", table(&silences, &jobs).trim_end()),
    }))
}

/// The job to silence: an array or a heterogeneous job by its own number. Only a silence that ends may be of a job
/// that is no longer there.
fn named_job(jobs: &[Job], named: &JobSelector, is_end: bool) -> Result<JobId, NotOneJob> {
    named.of_one_cluster(jobs)?;
    match named {
        JobSelector::Id(id) if is_end || !named.select(jobs).is_empty() => Ok(JobId(*id)),
        _ => Ok(JobId(named.one(jobs)?.id)),
    }
}

/// Lists what is silenced.
///
/// # Errors
/// A complete sentence for the user.
pub async fn list(which: &WhichRelay, json: bool) -> anyhow::Result<Answer> {
    let relay = Remote::find(which.relay)?;
    let silences: Vec<Silence> = relay.json(Method::GET, SILENCES, String::new()).await?;
    if json {
        return Answer::json(&silences);
    }
    if silences.is_empty() {
        return Ok(Answer { notice: Some("no findings are silenced".to_owned()), ..Answer::default() });
    }
    Ok(Answer::text(table(&silences, &relay.jobs().await?)))
}

fn table(silences: &[Silence], jobs: &[Job]) -> String {
    let now_ms = Clock::wall_ms();
    let row = |silence: &Silence| {
        let kind = silence.kind.map_or("all kinds", |kind| kind.name()).to_owned();
        let job = silence.job.map_or_else(|| "all jobs".to_owned(), |id| silenced_jobs(JobId(id), jobs));
        let left = text::span(remaining_s(silence.until.as_millis(), now_ms));
        vec![kind, job, format!("for another {left}")]
    };
    aligned(&silences.iter().map(row).collect::<Vec<_>>(), 3)
}

/// The time until then in s, at least 1: what is silenced still is.
pub fn remaining_s(until_ms: u64, now_ms: u64) -> u64 {
    until_ms.saturating_sub(now_ms).div_ceil(1_000).max(1)
}

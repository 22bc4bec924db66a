//! `relay findings silence` and `relay findings silences`.

use super::Answer;
use crate::api::{Job, JobSelector, NotOneJob};
use crate::app::{remote, remote::Remote};
use crate::clock::Clock;
use crate::config::{SilenceArgs, WhichRelay};
use crate::report::aligned;
use hyper::Method;
use nodeglass_protocol::JobId;
use nodeglass_protocol::finding::{Silence, SilenceRequest};
use nodeglass_rules::text;

const SILENCES: &str = "/api/v1/silences";

/// Silences findings, or ends that.
///
/// # Errors
/// A complete sentence for the user.
pub async fn silence(args: SilenceArgs) -> anyhow::Result<Answer> {
    let relay = Remote::find(args.which.relay)?;
    let job = match &args.job {
        Some(named) => match named_job(&relay.jobs().await?, named, args.end) {
            Ok(job) => Some(job),
            Err(error) => return Ok(Answer::not_met(error.to_string())),
        },
        None => None,
    };
    let for_s = if args.end { 0 } else { u32::try_from(args.time.as_secs()).unwrap_or(u32::MAX) };
    let request = SilenceRequest { kind: args.kind.map(|kind| kind.0), job, for_s };
    let answer = relay.request(Method::POST, SILENCES, serde_json::to_string(&request)?).await?;
    Ok(Answer::text(remote::lines(&answer)))
}

/// The job to silence: an array or a heterogeneous job by its own number. Only a silence that ends may be of a job
/// that is no longer there.
fn named_job(jobs: &[Job], named: &JobSelector, is_end: bool) -> Result<JobId, NotOneJob> {
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
    let mut silences: Vec<Silence> = relay.json(Method::GET, SILENCES, String::new()).await?;
    let now_ms = Clock::wall_ms();
    silences.retain(|silence| silence.until_ms > now_ms);
    if json {
        return Answer::json(&silences);
    }
    if silences.is_empty() {
        return Ok(Answer { notice: Some("nothing is silenced".to_owned()), ..Answer::default() });
    }
    let jobs: Vec<Job> = relay.jobs().await?;
    let jobs = jobs.as_slice();
    let row = |silence: &Silence| {
        let kind = silence.kind.map_or("all kinds", |kind| kind.name()).to_owned();
        let job = silence.job.map_or_else(|| "all jobs".to_owned(), |id| format!("job {}", label(jobs, id)));
        let left = text::span(silence.until_ms.saturating_sub(now_ms) / 1_000);
        vec![kind, job, format!("for another {left}")]
    };
    Ok(Answer::text(aligned(&silences.iter().map(row).collect::<Vec<_>>(), 3)))
}

/// The id of a job as SLURM prints it, as far as the job is listed.
fn label(jobs: &[Job], id: JobId) -> String {
    jobs.iter().find(|job| job.id == id.0).map_or_else(|| id.to_string(), |job| job.label.clone())
}

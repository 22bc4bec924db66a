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
    let jobs = match &args.job {
        Some(named) => named_jobs(&relay.jobs().await?, named, args.end)?.into_iter().map(Some).collect(),
        None => vec![None],
    };
    let for_s = if args.end { 0 } else { u32::try_from(args.time.as_secs()).unwrap_or(u32::MAX) };
    let mut out = String::new();
    for job in jobs {
        let request = SilenceRequest { kind: args.kind.map(|kind| kind.0), job, for_s };
        let answer = relay.request(Method::POST, SILENCES, serde_json::to_string(&request)?).await?;
        out.push_str(&remote::lines(&answer));
    }
    Ok(Answer::text(out))
}

/// The jobs to silence: of an array, all tasks that are in the list. Only a silence that ends may be of a job that is
/// no longer there.
fn named_jobs(jobs: &[Job], named: &JobSelector, is_end: bool) -> Result<Vec<JobId>, NotOneJob> {
    let listed: Vec<JobId> = named.select(jobs).into_iter().map(|job| JobId(job.id)).collect();
    match named {
        _ if !listed.is_empty() => Ok(listed),
        JobSelector::Id(id) if is_end => Ok(vec![JobId(*id)]),
        _ => Err(NotOneJob::None(*named)),
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

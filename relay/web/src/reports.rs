//! Reports for a viewer: of jobs that run or have ended, and of what all of the owner's jobs used.

use super::WebState;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::report::{MAX_DAYS, MAX_JOBS, Report, ReportAnswer, ReportQuery, Usage};
use nodeglass_report::NodeFaults;
use nodeglass_share::Viewer;
use std::time::Duration;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// Time limit for a query; the database may wait for a disk.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of running jobs that are added to a summary before they are stored.
const MAX_UNSTORED: usize = 256;

/// Answers a query of a page.
pub(super) async fn answer(web: &WebState, viewer: &Viewer, query: ReportQuery) -> ReportAnswer {
    let refused = |why: &str| ReportAnswer::Refused(why.into());
    let answer = match query {
        ReportQuery::Jobs(ids) => timeout(TIMEOUT, jobs(web, ids, viewer)).await.map(ReportAnswer::Jobs),
        ReportQuery::Usage { .. } | ReportQuery::Faults { .. } if viewer.is_guest() => {
            return refused("only the owner of this relay may see this");
        }
        ReportQuery::Usage { days } => usage(web, days).await.map(|usage| match usage {
            Some(usage) => ReportAnswer::Usage(Box::new(usage)),
            None => refused("the database of jobs cannot be read"),
        }),
        ReportQuery::Faults { node, days } => faults(web, days).await.map(|faults| match faults {
            Some(faults) => ReportAnswer::Faults(faults.list(Some(&node))),
            None => refused("the database of jobs cannot be read"),
        }),
    };
    answer.unwrap_or_else(|_| refused("the database of jobs does not respond; try again later"))
}

/// Returns the usage of the owner's jobs of the last days; `None` if it cannot be read.
///
/// # Errors
/// The database does not respond in time.
pub(super) async fn usage(web: &WebState, days: u32) -> Result<Option<Usage>, Elapsed> {
    let days = days.min(MAX_DAYS);
    timeout(TIMEOUT, async {
        let mut reports = web.store.reports(days, web.about.user.clone()).await?;
        reports.extend(unstored(web, &reports).await);
        let usage = nodeglass_report::usage(&reports, days);
        Some(Usage { incomplete: web.store.incomplete(), ..usage })
    })
    .await
}

/// Returns the visible report of a job.
///
/// # Errors
/// The database does not respond in time.
pub(super) async fn job(web: &WebState, id: JobId, viewer: &Viewer) -> Result<Option<Report>, Elapsed> {
    timeout(TIMEOUT, report_of(web, id, viewer)).await
}

/// Returns the findings about nodes during all jobs of the last days; `None` if they cannot be read.
///
/// # Errors
/// The database does not respond in time.
pub(super) async fn faults(web: &WebState, days: u32) -> Result<Option<NodeFaults>, Elapsed> {
    timeout(TIMEOUT, web.store.faults(days.min(MAX_DAYS))).await
}

/// The reports of the owner's running jobs that are not among the stored ones: a job is stored some time after its start.
async fn unstored(web: &WebState, stored: &[Report]) -> Vec<Report> {
    let Some((picture, _)) = web.hub.everything(Viewer::Owner).await else { return Vec::new() };
    let is_new = |job: &&Job| {
        job.is_active() && job.user == web.about.user && !stored.iter().any(|report| report.job == job.id)
    };
    let mut reports = Vec::new();
    for job in picture.jobs.iter().filter(is_new).take(MAX_UNSTORED) {
        let usage = web.hub.usage(job.id, Viewer::Owner).await;
        reports.extend(usage.and_then(|usage| usage.running).map(|record| record.report()));
    }
    reports
}

async fn jobs(web: &WebState, ids: Vec<JobId>, viewer: &Viewer) -> Vec<Report> {
    let mut reports = Vec::new();
    for id in ids.into_iter().take(MAX_JOBS) {
        reports.extend(report_of(web, id, viewer).await);
    }
    reports
}

async fn report_of(web: &WebState, id: JobId, viewer: &Viewer) -> Option<Report> {
    let usage = web.hub.usage(id, viewer.clone()).await?;
    let record = match usage.running {
        Some(record) => record,
        None => web.store.job(id).await?,
    };
    let (record, notes) = match usage.visible {
        Some(visible) => (record.for_guest(visible)?, usage.notes.into()),
        None => (record, web.store.report_notes(id, usage.notes).await),
    };
    Some(record.report_with(notes))
}

//! Reports for a viewer: of jobs that run or have ended, and of what all of the owner's jobs used.

use super::WebState;
use nodeglass_platform::local_time::LocalTime;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::report::{MAX_DAYS, MAX_JOBS, Report, ReportAnswer, ReportQuery, Usage};
use nodeglass_protocol::{JobId, Text};
use nodeglass_report::NodeFaults;
use nodeglass_share::Viewer;
use std::time::Duration;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// Time limit for a query; the database may wait for a disk.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Reason for refusing a guest.
const OWNER_ONLY: &str = "only the owner of this relay may see this";
/// Gap in the usage of a person: SLURM's accounting is read for the jobs of the relay's account alone.
const UNLISTED: &str = "jobs that ended while no relay ran are missing";

/// Maximum number of running jobs that are added to a summary before they are stored.
const MAX_UNSTORED: usize = 256;

/// Answers a query of a page.
pub(super) async fn answer(web: &WebState, viewer: &Viewer, query: ReportQuery) -> ReportAnswer {
    let refused = |why: &str| ReportAnswer::Refused(why.into());
    let answer = match query {
        ReportQuery::Jobs(ids) => timeout(TIMEOUT, jobs(web, ids, viewer)).await.map(ReportAnswer::Jobs),
        ReportQuery::Faults { .. } if viewer.is_restricted() => return refused(OWNER_ONLY),
        ReportQuery::Usage { days } => {
            let Some(user) = user(web, viewer) else { return refused(OWNER_ONLY) };
            usage(web, viewer, user, days).await.map(|usage| match usage {
                Some(usage) => ReportAnswer::Usage(Box::new(usage)),
                None => refused("the database of jobs cannot be read"),
            })
        }
        ReportQuery::Faults { node, days } => faults(web, days).await.map(|faults| match faults {
            Some(faults) => ReportAnswer::Faults(faults.list(Some(&node))),
            None => refused("the database of jobs cannot be read"),
        }),
    };
    answer.unwrap_or_else(|_| refused("the database of jobs does not respond; try again later"))
}

/// Returns the user whose usage a viewer may see: the owner sees their own, a person theirs, the holder of a share none.
pub(super) fn user<'a>(web: &'a WebState, viewer: &'a Viewer) -> Option<&'a Text> {
    match viewer {
        Viewer::Owner => Some(&web.about.user),
        Viewer::Restricted(visibility) => visibility.person(),
    }
}

/// Returns the usage of a user's jobs of the last days; `None` if it cannot be read. `viewer` is the owner or that person.
///
/// # Errors
/// The database does not respond in time.
pub(super) async fn usage(
    web: &WebState,
    viewer: &Viewer,
    user: &Text,
    days: u32,
) -> Result<Option<Usage>, Elapsed> {
    let days = days.min(MAX_DAYS);
    timeout(TIMEOUT, async {
        let mut reports = web.store.reports(days, user.clone()).await?;
        reports.extend(unstored(web, viewer, user, &reports).await);
        // The store and the list have selected them already.
        reports.retain(|report| report.user == *user);
        let usage =
            nodeglass_report::usage(&reports, days, |at_s| LocalTime::utc_offset_s(at_s.unsigned_abs()));
        let incomplete = match viewer {
            Viewer::Owner => web.store.incomplete(),
            Viewer::Restricted(_) => Some(UNLISTED.into()),
        };
        Some(Usage { incomplete, ..usage })
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

/// The reports of a user's running jobs that are not among the stored ones: a job is stored some time after its start.
async fn unstored(web: &WebState, viewer: &Viewer, user: &Text, stored: &[Report]) -> Vec<Report> {
    let Some(jobs) = web.hub.jobs(viewer.clone()).await else { return Vec::new() };
    let is_new = |job: &&Job| {
        job.is_active() && job.user == *user && !stored.iter().any(|report| report.job == job.id)
    };
    let mut reports = Vec::new();
    for job in jobs.iter().filter(is_new).take(MAX_UNSTORED) {
        let Some(usage) = web.hub.usage(job.id, viewer.clone()).await else { continue };
        let Some(record) = usage.running else { continue };
        let record = match usage.visible {
            Some(visible) => record.for_guest(visible),
            None => Some(record),
        };
        reports.extend(record.map(|record| record.report()));
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
    let Some(usage) = web.hub.usage(id, viewer.clone()).await else {
        return ended(web, id, viewer).await;
    };
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

/// The report of a job that is not listed any more, for a person: who ran it is in the stored row. Its
/// notes are not shown, as they may be those of another job of the same number.
async fn ended(web: &WebState, id: JobId, viewer: &Viewer) -> Option<Report> {
    let Viewer::Restricted(visibility) = viewer else { return None };
    let person = visibility.person()?;
    let record = match visibility.shows_all_ended_jobs() {
        true => web.store.job(id).await?,
        false => web.store.job_of(id, person.clone()).await?,
    };
    let visible = visibility.ended_job(&record.job)?;
    Some(record.for_guest(visible)?.report())
}

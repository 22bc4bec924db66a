//! A job that SLURM does not list, by its number or by the label of a task: what that means, and its report.

use crate::domain::route::{JobTab, Route};
use crate::state::page::Page;
use crate::view::reports::load::{Loading, load};
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::report::{ReportAnswer, ReportQuery};

/// The days of jobs in which the report of a label is searched.
const SEARCHED_DAYS: u32 = 365;

/// An unknown job.
#[component]
pub fn UnknownJob(
    /// Its number, or its label: `48440_10`.
    label: String,
    /// Its number, if the address has it.
    #[prop(optional_no_strip)]
    id: Option<JobId>,
) -> impl IntoView {
    let page = Page::from_context();
    let is_guest = untrack(|| page.share().is_some());
    let is_replay = untrack(|| page.replay().get().is_some());
    let why = match (is_guest, is_replay) {
        (_, true) => format!(
            "The recording does not list job {label} at this time. It may start later, or have ended before."
        ),
        (true, false) => format!("Job {label} is not shared with you, or has ended."),
        (false, false) => {
            format!("SLURM does not list job {label}. It may have ended long ago, or belong to someone else.")
        }
    };
    // A guest has the reports of the jobs that are listed, and no others.
    let report = match id {
        _ if is_guest => ().into_any(),
        Some(id) => report_link(&page, id),
        None => view! { <ReportOf label=label.clone()/> }.into_any(),
    };
    let home = page.href(&Route::AllJobs);
    view! {
        <div class="empty">
            <h1>{format!("Job {label}")}</h1>
            <p>{why}</p>
            <p>{report} <a class="link" href=home>"Go to all jobs"</a></p>
        </div>
    }
}

fn report_link(page: &Page, id: JobId) -> AnyView {
    view! { <a class="link" href=page.href(&Route::Job(id, JobTab::Report))>"Show its report"</a> " · " }
        .into_any()
}

/// The report of a label, whose number the summary of all jobs knows.
#[component]
fn ReportOf(label: String) -> impl IntoView {
    let page = Page::from_context();
    let usage = load(
        || ReportQuery::Usage { days: SEARCHED_DAYS },
        |answer| match answer {
            ReportAnswer::Usage(usage) => Some(*usage),
            _ => None,
        },
    );
    let found = Memo::new(move |_| match usage.get() {
        Loading::Ready(usage) => {
            Some(usage.jobs.iter().find(|job| job.label.as_str() == label).map(|job| job.job))
        }
        Loading::Failed(_) => Some(None),
        Loading::Pending => None,
    });
    move || match found.get()? {
        Some(id) => Some(report_link(&page, id)),
        None => Some("There is no report of it. ".into_any()),
    }
}

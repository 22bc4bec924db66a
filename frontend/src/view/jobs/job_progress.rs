//! Progress of a job's program by its log: in the head of its page, and in the job list.

use crate::describe::progress;
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::platform;
use crate::state::page::Page;
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::insight::{JobProgress, ProgressEnd};

/// The progress of a job: what is counted, a bar, and when it will be done; nothing where that is unknown.
#[component]
pub fn Progress(
    /// The job.
    id: JobId,
    /// Whether it is an entry of the job list, which has room for one time.
    #[prop(optional)]
    in_list: bool,
) -> impl IntoView {
    let page = Page::from_context();
    let overview = page.fleet.overview().clone();
    let known = Memo::new(move |_| {
        overview.insights().track();
        overview.read(|picture| picture.insight(id)?.progress.clone())
    });
    let is_known = Memo::new(move |_| known.with(Option::is_some));
    let count = move || known.with(|known| known.as_ref().map(progress::count));
    // How much of an epoch is done would look like how much of the program is.
    let share = Memo::new(move |_| known.with(|known| known.as_ref().and_then(JobProgress::ratio)));
    let when = end_view(page, id, known, in_list);
    let body = move || {
        view! {
            <div class="progress" class:progress--entry=in_list>
                <span class="progress__count num">{count}</span>
                {when.clone()}
                <Show when=move || share.get().is_some()>
                    <div class="progress__bar">
                        <i style:--share=move || text::share(share.get().unwrap_or_default())></i>
                    </div>
                </Show>
            </div>
        }
    };
    move || is_known.get().then(|| body().into_any())
}

/// When the program will be done, marked if that may exceed the time limit of the job; or when a part of it will be.
fn end_view(
    page: Page,
    id: JobId,
    known: Memo<Option<JobProgress>>,
    in_list: bool,
) -> impl Fn() -> Option<AnyView> + Clone {
    // Formatted to the minute, so that the memo rarely changes.
    let end = Memo::new(move |_| {
        let wall_ahead_ms = wall_ahead_ms(&page);
        let (end, part_end) = known.with(|known| known.as_ref().map(|known| (known.end, known.part_end)))?;
        let at = |at_ms: u64| {
            platform::format_time_or_date(at_ms.saturating_add_signed(wall_ahead_ms).cast_signed() / 1_000)
        };
        let text = |end: ProgressEnd| if in_list { at(end.latest_at_ms) } else { progress::end(end, at) };
        let severity =
            |end| page.job(id).map_or(Severity::Ok, |job| progress::severity(end, &job, wall_ahead_ms));
        // The end of a part says nothing about the time limit.
        end.map(|end| (text(end), Some(severity(end)))).or(part_end.map(|end| (text(end), None)))
    });
    move || {
        end.get().map(|(text, severity)| {
            let (class, about) = match severity {
                Some(Severity::Error) => ("num is-bad", "After the time limit of the job"),
                Some(Severity::Warning) => ("num is-warning", "May exceed the time limit of the job"),
                Some(_) => ("num", "Estimated from the progress in the job's log"),
                None => ("num", "The bar in the job's log may be a part of the run, such as an epoch"),
            };
            let mark = if severity.is_some_and(|severity| severity != Severity::Ok) { " ⚠" } else { "" };
            let before = match (severity, in_list) {
                (Some(_), true) => "≈ ",
                (Some(_), false) => "done ≈ ",
                (None, true) => "part ends ≈ ",
                (None, false) => "this part ends ≈ ",
            };
            view! { <span class="progress__end" title=about>{before} <span class=class>{text} {mark}</span></span> }.into_any()
        })
    }
}

/// Offset from the relay's clock to Unix time, in ms.
fn wall_ahead_ms(page: &Page) -> i64 {
    page.wall_ms().cast_signed() - page.now_ms().cast_signed()
}

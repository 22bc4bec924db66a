//! The tab with all details of a job: facts, related jobs, actions, and commands to copy.

use crate::describe::{commands as shell_commands, job};
use crate::domain::health;
use crate::domain::pending_action;
use crate::domain::route::{JobTab, Route};
use crate::platform;
use crate::state::page::Page;
use crate::view::widgets::actions::{AuditLog, offers};
use crate::view::widgets::copy::commands;
use crate::view::widgets::fact_list::fact_groups;
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::Job;

/// Maximum number of related jobs listed.
const SIBLINGS: usize = 60;

/// All details of a job.
#[component]
pub fn JobAbout(
    /// The job.
    id: JobId,
) -> impl IntoView {
    let page = Page::from_context();
    let about = move || {
        let known = page.job(id)?;
        let tunnel = page.fleet.welcome().map_or(String::new(), |welcome| welcome.tunnel.to_string());
        let tunnel = shell_commands::tunnel_to_port(&tunnel, &platform::port());
        let actions = pending_action::for_job(&known).into_iter().map(|action| ("", action)).collect();
        let siblings = page.jobs.with(|jobs| job::siblings(&known, jobs));
        let share = page.share();
        let mut entries = job::groups(&known, &platform::format_time_or_date);
        if share.as_ref().is_some_and(|terms| terms.hidden.paths) {
            entries.retain(|group| group.title != job::FILES);
        }
        let lines = if share.is_some() {
            shell_commands::for_guest(&known, &tunnel)
        } else {
            shell_commands::for_job(&known, &tunnel)
        };
        Some(
            view! {
                {offers(&page, actions)}
                <div class="facts-columns facts-columns--page">{fact_groups(entries)}</div>
                {family(&page, siblings)}
                <h2 class="caption"><b>"Commands"</b></h2>
                {commands(lines)}
            }
            .into_any(),
        )
    };
    view! { {move || about()} <AuditLog/> }
}

/// Links to the other members of the parent job.
fn family(page: &Page, siblings: Vec<Job>) -> AnyView {
    if siblings.is_empty() {
        return ().into_any();
    }
    let note = siblings.len().saturating_sub(SIBLINGS);
    let links = siblings.into_iter().take(SIBLINGS).map(|job| {
        let href = page.href(&Route::Job(job.id, JobTab::Nodes));
        view! { <a class="link num" href=href title=health::state_label(&job)>{job.label.to_string()}</a> }
    });
    view! {
        <h2 class="caption"><b>"Related tasks"</b></h2>
        <p class="siblings">{links.collect_view()} {(note > 0).then(|| format!("and {note} more"))}</p>
    }
    .into_any()
}

//! Everything SLURM says of a job, its relatives, what may be done with it, and commands ready to copy.

use super::actions::{Deeds, offers};
use super::copy::commands;
use super::fact_list::fact_groups;
use crate::browser;
use crate::health;
use crate::intent;
use crate::page::Page;
use crate::place::{Place, Tab};
use crate::tell::{commands as lines, job};
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::Job;

/// So many relatives are listed.
const SIBLINGS: usize = 60;

/// All about a job.
#[component]
pub fn JobAbout(
    /// The job.
    id: JobId,
) -> impl IntoView {
    let page = Page::here();
    let about = move || {
        let known = page.job(id)?;
        let tunnel = page.fleet.welcome().map_or(String::new(), |welcome| welcome.tunnel.to_string());
        let intents = intent::of_job(&known).into_iter().map(|intent| ("", intent)).collect();
        let siblings = page.jobs.with(|jobs| job::siblings(&known, jobs));
        let share = page.share();
        let mut told = job::groups(&known, &browser::time_of_day);
        if share.as_ref().is_some_and(|terms| terms.hides.paths) {
            told.retain(|group| group.title != job::FILES);
        }
        let lines =
            if share.is_some() { lines::for_guest(&known, &tunnel) } else { lines::of_job(&known, &tunnel) };
        Some(
            view! {
                {offers(&page, intents)}
                <div class="told-columns told-columns--page">{fact_groups(told)}</div>
                {family(&page, siblings)}
                <h2 class="caption"><b>"Commands"</b></h2>
                {commands(lines)}
            }
            .into_any(),
        )
    };
    view! { {move || about()} <Deeds/> }
}

/// Links to the other parts of a larger job.
fn family(page: &Page, siblings: Vec<Job>) -> AnyView {
    if siblings.is_empty() {
        return ().into_any();
    }
    let more = siblings.len().saturating_sub(SIBLINGS);
    let links = siblings.into_iter().take(SIBLINGS).map(|job| {
        let href = page.href(&Place::Job(job.id, Tab::Nodes));
        view! { <a class="link num" href=href title=health::state_word(&job.state)>{job.label.to_string()}</a> }
    });
    view! {
        <h2 class="caption"><b>"Parts of the same job"</b></h2>
        <p class="siblings">{links.collect_view()} {(more > 0).then(|| format!("and {more} more"))}</p>
    }
    .into_any()
}

//! The banner on a guest's page: whose page it is, what it shows, and when it ends.

use crate::describe::job::time_left;
use crate::describe::share::{SHORT_S, expiry_text, hidden_sentence, remaining_s, scope_text};
use crate::platform;
use crate::state::page::Page;
use leptos::prelude::*;
use nodeglass_protocol::share::{Scope, ShareTerms};

/// The banner; nothing for the owner.
#[component]
pub fn GuestBanner() -> impl IntoView {
    let page = Page::from_context();
    let terms = {
        let page = page.clone();
        Memo::new(move |_| page.share())
    };
    move || terms.get().map(|terms| banner(&page, terms))
}

fn banner(page: &Page, terms: ShareTerms) -> AnyView {
    let owner = page.owner();
    let only = if terms.scope == Scope::All { "" } else { " only" };
    let what = {
        let (jobs, scope) = (page.jobs, terms.scope.clone());
        Memo::new(move |_| jobs.with(|jobs| format!("{}{only}", scope_text(&scope, jobs))))
    };
    let hidden = hidden_sentence(&terms);
    let left = {
        let (page, terms) = (page.clone(), terms.clone());
        Memo::new(move |_| {
            let (now_ms, job_left) = (page.wall_s().unsigned_abs() * 1_000, job_left_s(&page, &terms));
            (
                expiry_text(&terms, now_ms, job_left, &platform::format_time_or_date),
                remaining_s(&terms, now_ms, job_left) < SHORT_S,
            )
        })
    };
    let mark = move || if left.get().1 { "◆" } else { "◇" };
    let sees = format!("{owner} sees that you are viewing.");
    view! {
        <section class="guest" class:guest--short=move || left.get().1 aria-label="This share">
            <details>
                <summary>
                    <span class="guest__mark" aria-hidden="true">{move || mark()}</span>
                    <b>"Shared by " {owner.clone()}</b>
                    <span>{what}</span>
                    <span>"read-only"</span>
                    <span class="num-prose">{move || left.get().0}</span>
                </summary>
                <p>{hidden} " " {sees}</p>
            </details>
        </section>
    }
    .into_any()
}

/// Returns how long the last of its jobs may still run, if each has a limit.
fn job_left_s(page: &Page, terms: &ShareTerms) -> Option<u64> {
    let Scope::Jobs(ids) = &terms.scope else { return None };
    let now_s = page.wall_s();
    let left: Option<Vec<u64>> = ids.iter().map(|id| time_left(&page.job(*id)?, now_s)).collect();
    left?.into_iter().max()
}

//! A guest's page says above everything whose it is, what it shows, and when it ends.

use crate::page::Page;
use crate::tell::job::time_left;
use crate::tell::share::{SHORT_S, ends_words, left_s, scope_words, unseen_sentence};
use leptos::prelude::*;
use nodeglass_protocol::share::{Scope, ShareTerms};

/// The banner; nothing for the owner.
#[component]
pub fn GuestBanner() -> impl IntoView {
    let page = Page::here();
    let terms = {
        let page = page.clone();
        Memo::new(move |_| page.share())
    };
    move || terms.get().map(|terms| banner(&page, terms))
}

fn banner(page: &Page, terms: ShareTerms) -> AnyView {
    let owner = page.owner();
    let only = if terms.scope == Scope::All { "" } else { " only" };
    let what = format!("{}{only}", scope_words(&terms.scope));
    let unseen = unseen_sentence(&terms);
    let label = (!terms.label.is_empty()).then(|| format!("“{}”. ", terms.label));
    let left = {
        let (page, terms) = (page.clone(), terms.clone());
        Memo::new(move |_| {
            let (now_ms, job_left) = (page.wall_s().unsigned_abs() * 1_000, job_left_s(&page, &terms));
            (ends_words(&terms, now_ms, job_left), left_s(&terms, now_ms, job_left) < SHORT_S)
        })
    };
    let mark = move || if left.get().1 { "◆" } else { "◇" };
    let sees = format!("{owner} sees that you look.");
    view! {
        <section class="guest" class:guest--short=move || left.get().1 aria-label="What is shared">
            <details>
                <summary>
                    <span class="guest__mark" aria-hidden="true">{move || mark()}</span>
                    <b>"Shared by " {owner.clone()}</b>
                    <span>{what}</span>
                    <span>"read-only"</span>
                    <span class="num-prose">{move || left.get().0}</span>
                </summary>
                <p>{label} {unseen} " " {sees}</p>
            </details>
        </section>
    }
    .into_any()
}

/// How long the last of its jobs may still run, where each has a limit.
fn job_left_s(page: &Page, terms: &ShareTerms) -> Option<u64> {
    let Scope::Jobs(ids) = &terms.scope else { return None };
    let now_s = page.wall_s();
    let left: Option<Vec<u64>> = ids.iter().map(|id| time_left(&page.job(*id)?, now_s)).collect();
    left?.into_iter().max()
}

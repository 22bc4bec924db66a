//! The foot tells the truth about the link: whether it lives, how fresh the nodes are, what the relay costs.

use super::actions;
use crate::browser;
use crate::feed::Link;
use crate::health::{Freshness, freshness};
use crate::page::Page;
use crate::text;
use leptos::prelude::*;
use nodeglass_protocol::ask::RetryTarget;
use nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
use nodeglass_protocol::picture::JobsHealth;

/// The foot.
#[component]
pub fn Foot() -> impl IntoView {
    let page = Page::here();
    view! {
        <footer class="foot">
            <LinkState/>
            <Nodes/>
            <Viewers/>
            <JobsAge/>
            <span class="spring"></span>
            <span class="hide-m">
                <kbd>"←"</kbd> " " <kbd>"→"</kbd> " node   " <kbd>"↑"</kbd> " " <kbd>"↓"</kbd> " job   "
                <kbd>"p"</kbd> " processes   " <kbd>"?"</kbd> " keys"
            </span>
            <Cost page/>
        </footer>
    }
}

/// The state of the link to the relay. Changes of it, and nothing else, are read aloud.
#[component]
fn LinkState() -> impl IntoView {
    let feed = Page::here().feed;
    let state = Memo::new(move |_| match feed.link() {
        Link::Live => ("foot__link is-live", "● live"),
        Link::Starting | Link::Connecting => ("foot__link", "○ connecting"),
        Link::NoKey => ("foot__link is-bad", "▲ no key"),
        Link::Lost(_) => ("foot__link is-bad", "▲ link lost, trying again"),
        Link::Stopped(_) => ("foot__link is-bad", "▲ stopped"),
    });
    view! { <span class=move || state.get().0 role="status" aria-live="polite">{move || state.get().1}</span> }
}

#[component]
fn Nodes() -> impl IntoView {
    let page = Page::here();
    let overview = page.fleet.overview().clone();
    let sentence = move || {
        let now_ms = page.now_ms();
        overview.nodes().track();
        overview.read(|picture| {
            let fresh =
                picture.nodes.iter().filter(|node| freshness(node, now_ms) == Freshness::Fresh).count();
            let newest = picture.nodes.iter().filter_map(|node| node.sampled_at_ms).max();
            let age = newest.map(|at| format!(", newest sample {}", text::age(now_ms.saturating_sub(at))));
            match picture.nodes.len() {
                0 => String::new(),
                all => format!(
                    "{fresh} of {} fresh{}",
                    text::count(all, "node", "nodes"),
                    age.unwrap_or_default()
                ),
            }
        })
    };
    view! { <span class="num-prose">{move || sentence()}</span> }
}

#[component]
fn Viewers() -> impl IntoView {
    let overview = Page::here().fleet.overview().clone();
    let sentence = move || {
        overview.relay().track();
        match overview.read(|picture| picture.relay.viewers) {
            0 | 1 => String::new(),
            viewers => format!("{} looking", text::count(viewers as usize, "tab", "tabs")),
        }
    };
    view! { <span class="hide-s">{move || sentence()}</span> }
}

/// A job list that is not of now says since when, and why.
#[component]
fn JobsAge() -> impl IntoView {
    let page = Page::here();
    let (overview, shown) = (page.fleet.overview().clone(), page.clone());
    let stale = Memo::new(move |_| {
        overview.relay().track();
        match overview.read(|picture| picture.relay.jobs.clone()) {
            JobsHealth::Stale { last_ms, why, retry_at_ms } => {
                let age = last_ms.map(|at| text::span(page.now_ms().saturating_sub(at) / 1_000));
                let age =
                    age.map_or("SLURM has not answered yet".to_owned(), |age| format!("job list {age} old"));
                Some((age, why.to_string(), next_try(retry_at_ms, page.now_ms())))
            }
            _ => None,
        }
    });
    move || {
        stale.get().map(|(age, why, next)| {
            let button = actions::retry(&shown, RetryTarget::Jobs, "Ask now");
            view! { <span class="foot__stale" title=why>"◆ " {age} ", " {next} " " {button}</span> }
        })
    }
}

/// When something is tried again, in words.
fn next_try(retry_at_ms: u64, now_ms: u64) -> String {
    match retry_at_ms.saturating_sub(now_ms).div_ceil(1_000) {
        0 => "trying now".to_owned(),
        wait => format!("next try in {}", text::span(wait)),
    }
}

/// What the relay cost so far.
#[component]
fn Cost(page: Page) -> impl IntoView {
    let overview = page.fleet.overview().clone();
    let sentence = move || {
        overview.relay().track();
        let cpu_ms = overview.read(|picture| picture.relay.cpu_ms);
        let up_s = page.fleet.relay_ms(browser::now_ms()).saturating_sub(CLOCK_STARTS_AT_MS) / 1_000;
        (cpu_ms > 0).then(|| format!("relay: {} CPU in {}", text::age(cpu_ms), text::span(up_s)))
    };
    view! { <span class="hide-s num-prose" title="CPU time the relay has used since it started">{move || sentence()}</span> }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_not_of_now_says_when_it_is_asked_for_again() {
        assert_eq!(next_try(90_000, 50_000), "next try in 40 s");
        assert_eq!([next_try(50_000, 50_000), next_try(1, 50_000)], ["trying now"; 2]);
    }
}

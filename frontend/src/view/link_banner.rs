//! A lost link is said at once, with what brings it back; what is on the page stays and ages.

use crate::browser;
use crate::feed::{Link, Parting};
use crate::page::Page;
use crate::text;
use leptos::prelude::*;

const TUNNEL: &str = "nodeglass-tunnel";
const RELOADED_FOR: &str = "nodeglass-reloaded-for";

/// What there is to say of the link, if anything.
#[component]
pub fn LinkBanner() -> impl IntoView {
    let page = Page::here();
    remember_tunnel(&page);
    let feed = page.feed.clone();
    let lost = Memo::new(move |_| match feed.link() {
        Link::Lost(parting) => Some(parting),
        _ => None,
    });
    let state = move || match lost.get() {
        Some(parting) => view! { <Lost parting/> }.into_any(),
        None => view! { <OtherBuild/> }.into_any(),
    };
    view! { <RemovedWorker/> {move || state()} }
}

/// Another program had this address before, and the browser went on asking it instead of the relay.
#[component]
fn RemovedWorker() -> impl IntoView {
    let removed = Page::here().removed_worker;
    move || {
        removed.get().then(|| {
            view! {
                <div class="notice notice--bad notice--link" role="alert">
                    <i class="dot dot--bad" aria-hidden="true"></i>
                    <div>
                        <b>"Another program had left code in this browser for this address."</b>
                        " "
                        <span>"It is removed. It may have read your link while no relay listened here: end the relay, start it anew, and use its new link, best through the tunnel to its socket."</span>
                    </div>
                </div>
            }.into_any()
        })
    }
}

/// The way back is needed when the relay can no longer be asked for it.
fn remember_tunnel(page: &Page) {
    let fleet = page.fleet.clone();
    Effect::new(move || {
        if let Some(welcome) = fleet.welcome() {
            browser::remember(browser::session(), TUNNEL, welcome.tunnel.as_str());
        }
    });
}

#[component]
fn Lost(parting: Parting) -> impl IntoView {
    let page = Page::here();
    let feed = page.feed.clone();
    let guest = untrack(|| page.share().is_some());
    let age = move || {
        page.second.track();
        let heard = page.feed.heard_at_ms();
        (heard > 0.0).then(|| {
            format!(" What you see is {} old.", text::span(((browser::now_ms() - heard) / 1_000.0) as u64))
        })
    };
    let tunnel = browser::recall(browser::session(), TUNNEL).filter(|tunnel| !tunnel.is_empty());
    let way = tunnel.map(|tunnel| {
        let copy = tunnel.clone();
        view! {
            <div class="notice__way">
                <span>"If the tunnel is down, on your own machine:"</span>
                <code class="command">{tunnel}</code>
                <button class="btn" on:click=move |_| browser::copy(&copy)>"Copy"</button>
            </div>
        }
    });
    view! {
        <div class="notice notice--bad notice--link">
            <i class="dot dot--bad" aria-hidden="true"></i>
            <div>
                <b>"The link to the relay is lost."</b> " " <span>{sentence(&parting, guest)} {move || age()}</span>
                {way}
            </div>
            <button class="btn" on:click=move |_| feed.hurry()>"Try now"</button>
        </div>
    }
}

fn sentence(parting: &Parting, guest: bool) -> &'static str {
    match parting {
        Parting::ShutDown if guest => {
            "Its owner ended the relay, and with it most likely this share. It is tried again by itself."
        }
        Parting::ShutDown => {
            "The relay was ended. Start it again on the login node; this page comes back by itself."
        }
        Parting::TooSlow => "This browser did not keep up and was let go; it comes back by itself.",
        Parting::Silent => "The relay fell silent. It is tried again by itself.",
        Parting::Garbled => "Something came that this page does not understand. It is tried again by itself.",
        _ => "It is tried again by itself.",
    }
}

/// A relay of another build has another page: it is loaded once by itself, and then offered.
#[component]
fn OtherBuild() -> impl IntoView {
    let fleet = Page::here().fleet;
    let other = Memo::new(move |_| {
        let mine = browser::meta("nodeglass-build")?;
        let build = fleet.welcome()?.build.to_string();
        (build != mine).then_some(build)
    });
    Effect::new(move || {
        let Some(build) = other.get() else { return };
        if browser::recall(browser::session(), RELOADED_FOR).as_ref() != Some(&build) {
            browser::remember(browser::session(), RELOADED_FOR, &build);
            browser::reload();
        }
    });
    move || {
        other.get().map(|_| {
            view! {
                <div class="notice notice--link">
                    <div><b>"The relay is of another build than this page."</b></div>
                    <button class="btn" on:click=|_| browser::reload()>"Load the page again"</button>
                </div>
            }
        })
    }
}

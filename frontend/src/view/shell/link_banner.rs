//! The banner about a lost connection, with what restores it. The page's content stays and becomes stale.

use crate::domain::text;
use crate::net::{DisconnectReason, LinkState};
use crate::platform;
use crate::state::page::Page;
use leptos::prelude::*;

const TUNNEL: &str = "nodeglass-tunnel";
const RELOADED_FOR: &str = "nodeglass-reloaded-for";

/// What there is to report about the connection, if anything.
#[component]
pub fn LinkBanner() -> impl IntoView {
    let page = Page::from_context();
    remember_tunnel(&page);
    let feed = page.feed.clone();
    let lost = Memo::new(move |_| match feed.link() {
        LinkState::Lost(reason) => Some(reason),
        _ => None,
    });
    let state = move || match lost.get() {
        Some(reason) => view! { <Lost reason/> }.into_any(),
        None => view! { <OtherBuild/> }.into_any(),
    };
    view! { <RemovedWorker/> {move || state()} }
}

/// Another program used this address before, and its service worker answered instead of the relay.
#[component]
fn RemovedWorker() -> impl IntoView {
    let removed = Page::from_context().removed_worker;
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

/// Stores the tunnel command, which is needed when the relay can no longer provide it.
fn remember_tunnel(page: &Page) {
    let fleet = page.fleet.clone();
    Effect::new(move || {
        if let Some(welcome) = fleet.welcome() {
            platform::store_item(platform::session(), TUNNEL, welcome.tunnel.as_str());
        }
    });
}

#[component]
fn Lost(reason: DisconnectReason) -> impl IntoView {
    let page = Page::from_context();
    let feed = page.feed.clone();
    let guest = untrack(|| page.share().is_some());
    let age = move || {
        page.second.track();
        let last_ms = page.feed.last_message_ms();
        (last_ms > 0.0).then(|| {
            format!(" What you see is {} old.", text::span(((platform::now_ms() - last_ms) / 1_000.0) as u64))
        })
    };
    let tunnel = platform::load_item(platform::session(), TUNNEL).filter(|tunnel| !tunnel.is_empty());
    let way = tunnel.map(|tunnel| {
        let copy = tunnel.clone();
        view! {
            <div class="notice__way">
                <span>"If the tunnel is down, on your own machine:"</span>
                <code class="command">{tunnel}</code>
                <button class="btn" on:click=move |_| platform::copy(&copy)>"Copy"</button>
            </div>
        }
    });
    view! {
        <div class="notice notice--bad notice--link">
            <i class="dot dot--bad" aria-hidden="true"></i>
            <div>
                <b>"The link to the relay is lost."</b> " " <span>{sentence(&reason, guest)} {move || age()}</span>
                {way}
            </div>
            <button class="btn" on:click=move |_| feed.reconnect_now()>"Try now"</button>
        </div>
    }
}

fn sentence(reason: &DisconnectReason, guest: bool) -> &'static str {
    match reason {
        DisconnectReason::ShutDown if guest => {
            "Its owner ended the relay, and with it most likely this share. It is tried again by itself."
        }
        DisconnectReason::ShutDown => {
            "The relay was ended. Start it again on the login node; this page comes back by itself."
        }
        DisconnectReason::TooSlow => "This browser did not keep up and was let go; it comes back by itself.",
        DisconnectReason::Silent => "The relay fell silent. It is tried again by itself.",
        DisconnectReason::Malformed => {
            "Something came that this page does not understand. It is tried again by itself."
        }
        _ => "It is tried again by itself.",
    }
}

/// A relay of another build has another page: it is loaded once automatically, and then offered.
#[component]
fn OtherBuild() -> impl IntoView {
    let fleet = Page::from_context().fleet;
    let other = Memo::new(move |_| {
        let own_build = platform::meta("nodeglass-build")?;
        let build = fleet.welcome()?.build.to_string();
        (build != own_build).then_some(build)
    });
    Effect::new(move || {
        let Some(build) = other.get() else { return };
        if platform::load_item(platform::session(), RELOADED_FOR).as_ref() != Some(&build) {
            platform::store_item(platform::session(), RELOADED_FOR, &build);
            platform::reload();
        }
    });
    move || {
        other.get().map(|_| {
            view! {
                <div class="notice notice--link">
                    <div><b>"The relay is of another build than this page."</b></div>
                    <button class="btn" on:click=|_| platform::reload()>"Load the page again"</button>
                </div>
            }
        })
    }
}

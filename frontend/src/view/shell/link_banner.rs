//! The banner about a lost connection, with what restores it. The last values stay, greyed.

use super::login::{OR_IMPOSTOR, Paste, out_of_date};
use crate::describe::commands::{ShellCommand, tunnel_to_port};
use crate::domain::text;
use crate::net::{DisconnectReason, LinkState};
use crate::platform;
use crate::state::page::Page;
use crate::view::widgets::copy::commands;
use leptos::prelude::*;

const TUNNEL: &str = "nodeglass-tunnel";
const RELOADED_FOR: &str = "nodeglass-reloaded-for";

/// The report about the connection, if any.
#[component]
pub fn LinkBanner() -> impl IntoView {
    let page = Page::from_context();
    remember_tunnel(&page);
    let feed = page.feed.clone();
    let link = Memo::new(move |_| match feed.link() {
        LinkState::Lost(reason) => Some((reason, true)),
        LinkState::Stopped(reason) => Some((reason, false)),
        _ => None,
    });
    let state = move || match link.get() {
        Some((reason, true)) => view! { <Lost reason/> }.into_any(),
        Some((_, false)) => view! { <OutOfDate/> }.into_any(),
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
                        <b>"Another program had left a service worker in this browser for this address."</b>
                        " "
                        <span>"It was removed. It may have read your link while no relay was listening: restart the relay and use its new link, preferably through the tunnel to its socket."</span>
                    </div>
                </div>
            }.into_any()
        })
    }
}

/// Stores the tunnel command, which is needed when the relay can no longer provide it.
fn remember_tunnel(page: &Page) {
    let fleet = page.fleet.clone();
    platform::effect(move || {
        if let Some(welcome) = fleet.welcome() {
            platform::store_item(platform::session(), TUNNEL, welcome.tunnel.as_str());
        }
    });
}

/// The age of what is shown, as a sentence; changes once a second.
fn data_age(page: &Page) -> impl Fn() -> Option<String> + use<> {
    let page = page.clone();
    move || {
        page.second.track();
        let last_ms = page.feed.last_message_ms();
        let age_s = ((platform::now_ms() - last_ms) / 1_000.0) as u64;
        (last_ms > 0.0).then(|| format!("Data is {} old.", text::span(age_s)))
    }
}

/// The connection is lost and retried.
#[component]
fn Lost(reason: DisconnectReason) -> impl IntoView {
    let page = Page::from_context();
    let (feed, age) = (page.feed.clone(), data_age(&page));
    let guest = untrack(|| page.share().is_some());
    let (head, advice) = sentences(&reason, guest);
    let tunnel = platform::load_item(platform::session(), TUNNEL).unwrap_or_default();
    let tunnel = tunnel_to_port(&tunnel, &platform::port());
    let lines = commands(ways(&reason, guest, tunnel));
    view! {
        <div class="notice notice--bad notice--link">
            <i class="dot dot--bad" aria-hidden="true"></i>
            <div>
                <b role="alert">{head}</b> " " <span class="num-prose">{advice} " " {move || age()}</span>
                {lines}
            </div>
            <button class="btn" on:click=move |_| feed.reconnect_now()>"Try now"</button>
        </div>
    }
}

/// Returns the headline and advice for a lost connection.
fn sentences(reason: &DisconnectReason, guest: bool) -> (&'static str, &'static str) {
    match reason {
        DisconnectReason::ShutDown if guest => {
            ("The owner stopped the relay.", "The share may have ended with it. Retrying.")
        }
        DisconnectReason::ShutDown => {
            ("The relay was stopped.", "Start it again on the login node and open the link that it prints.")
        }
        DisconnectReason::TooSlow => {
            ("Connection to the relay lost – retrying.", "This browser was too slow to receive all updates.")
        }
        DisconnectReason::Silent => ("The relay does not respond – retrying.", ""),
        DisconnectReason::Malformed => {
            ("Connection to the relay lost – retrying.", "The page received data that it cannot read.")
        }
        _ => ("Connection to the relay lost – retrying.", ""),
    }
}

/// Returns the commands that lead back: the tunnel, unless the relay said that it stopped, and for its owner
/// the new link.
fn ways(reason: &DisconnectReason, guest: bool, tunnel: String) -> Vec<ShellCommand> {
    let line = |purpose: &str, command: String| ShellCommand { purpose: purpose.to_owned(), command };
    let is_stopped = *reason == DisconnectReason::ShutDown;
    let tunnel = (!tunnel.is_empty() && !is_stopped).then(|| line("Tunnel down? On your machine:", tunnel));
    let purpose =
        if is_stopped { "Its link, on the login node:" } else { "Relay restarted? On the login node:" };
    let link = (!guest).then(|| line(purpose, "relay link".to_owned()));
    tunnel.into_iter().chain(link).collect()
}

/// The relay has another key than this page: most likely it was restarted.
#[component]
fn OutOfDate() -> impl IntoView {
    let page = Page::from_context();
    let (feed, age) = (page.feed.clone(), data_age(&page));
    let (head, rest) = out_of_date(&platform::authority());
    let link = ShellCommand {
        purpose: "Its new link, on the login node:".to_owned(),
        command: "relay link".to_owned(),
    };
    view! {
        <div class="notice notice--attention notice--link">
            <i class="dot dot--attention" aria-hidden="true"></i>
            <div>
                <b role="alert">{head}</b> " " <span class="num-prose">{rest} " " {move || age()}</span>
                {commands(vec![link])}
                <div class="notice__paste"><span>"Open it, or paste it here:"</span> <div><Paste autofocus=false/></div></div>
                <small>{OR_IMPOSTOR}</small>
            </div>
            <button class="btn" title="Look for the new link in other tabs" on:click=move |_| feed.reconnect_now()>"Try now"</button>
        </div>
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
    platform::effect(move || {
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
                    <div><b>"The relay was updated; this page is from another build."</b></div>
                    <button class="btn" on:click=|_| platform::reload()>"Reload the page"</button>
                </div>
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purposes(reason: DisconnectReason, guest: bool) -> Vec<String> {
        ways(&reason, guest, "ssh -L 8080:x:8080 login".to_owned())
            .into_iter()
            .map(|way| way.command)
            .collect()
    }

    #[test]
    fn a_stopped_relay_leads_to_its_link_and_a_lost_one_to_the_tunnel_first() {
        assert_eq!(purposes(DisconnectReason::ShutDown, false), ["relay link"]);
        assert_eq!(purposes(DisconnectReason::Broken, false), ["ssh -L 8080:x:8080 login", "relay link"]);
        assert_eq!(purposes(DisconnectReason::Broken, true), ["ssh -L 8080:x:8080 login"]);
        assert!(purposes(DisconnectReason::ShutDown, true).is_empty());
        assert!(ways(&DisconnectReason::Silent, true, String::new()).is_empty());
    }

    #[test]
    fn a_guest_is_not_asked_to_start_the_relay() {
        for guest in [false, true] {
            let (_, advice) = sentences(&DisconnectReason::ShutDown, guest);
            assert_eq!(advice.contains("Start it again"), !guest);
        }
    }
}

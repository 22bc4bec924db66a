//! The root component: starts the fleet, the feed and the clock, and shows the route in the URL.

mod kiosk;
mod notifications;

use crate::domain::route::{JobTab, Route};
use crate::fleet::FleetStore;
use crate::net::{self, LinkState};
use crate::platform::{self, Listener};
use crate::state::address::Address;
use crate::state::page::Page;
use crate::state::settings::Settings;
use crate::state::time::Time;
use crate::view::{Grids, Shell, keyboard};
use futures_channel::mpsc::unbounded;
use futures_util::StreamExt;
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::*;
use nodeglass_protocol::live::Mode;

/// Delay before the browser's cache is cleared, in ms, so that loading and drawing come first.
const CLEAR_CACHE_AFTER_MS: u32 = 2_000;

/// The whole page.
#[component]
pub fn App(
    /// Whether the page was opened by a link as the relay prints it.
    by_printed_link: bool,
) -> impl IntoView {
    let address = Address::listening();
    let fleet = FleetStore::default();
    fleet.show_detail(untrack(|| address.route()).topic());
    let feed = net::start(fleet.clone());
    let page = Page::new(fleet, feed, address, Settings::load());
    provide_context(page.clone());
    provide_context(Grids::default());
    subscribe_to_route(&page);
    show_only_machine(&page);
    show_only_job(&page);
    resolve_jobs(&page);
    keep_time(&page);
    kiosk::hide_controls(&page);
    kiosk::rotate(&page);
    share_time(&page);
    notifications::update_tab(&page);
    notifications::notify(&page);
    remove_service_workers(&page);
    clear_cache(&page, by_printed_link);
    view! { <Shell/> }
}

/// Provides the time range that graphs share, and handles keys.
fn share_time(page: &Page) {
    let time = Time::start(page);
    provide_context(time.clone());
    keyboard::listen(page, &time);
}

/// Unregisters service workers that another program left at the relay's address, and shows a notice.
fn remove_service_workers(page: &Page) {
    let removed = page.removed_worker;
    leptos::task::spawn_local(async move {
        if platform::remove_service_workers().await > 0 {
            removed.set(true);
        }
    });
}

/// Clears what another program left in the browser's cache for URLs that a user types or keeps. Runs once the
/// relay has proved its key, so nobody else receives the request. Below a path of another site the cache
/// belongs to that site, too, and stays.
fn clear_cache(page: &Page, by_printed_link: bool) {
    if !by_printed_link || !platform::base().is_empty() {
        return;
    }
    let feed = page.feed.clone();
    leptos::task::spawn_local(async move {
        loop {
            TimeoutFuture::new(CLEAR_CACHE_AFTER_MS).await;
            if untrack(|| feed.link()) == LinkState::Live {
                return platform::clear_cache().await;
            }
        }
    });
}

/// Selects the topic of the current route and subscribes to it.
fn subscribe_to_route(page: &Page) {
    let page = page.clone();
    platform::effect(move || {
        page.fleet.show_detail(page.route.get().topic());
        page.feed.subscribe(&page.fleet);
        page.drawer.set(false);
    });
}

/// Without SLURM there is no job list: a single machine becomes the page.
fn show_only_machine(page: &Page) {
    let page = page.clone();
    platform::effect(move || {
        let local = page.fleet.welcome().is_some_and(|welcome| welcome.mode == Mode::Local);
        let only = page.fleet.overview().nodes().with(|nodes| match nodes.as_slice() {
            [only] => Some(only.name().clone()),
            _ => None,
        });
        if let (true, Route::AllJobs, Some(name)) = (local, page.route.get(), only) {
            page.address.replace_route(Route::Node(name));
        }
    });
}

/// A guest with access to a single job is redirected to it.
fn show_only_job(page: &Page) {
    let page = page.clone();
    platform::effect(move || {
        if let (Some(id), Route::AllJobs) = (page.only_job(), page.route.get()) {
            page.address.replace_route(Route::Job(id, JobTab::Nodes));
        }
    });
}

/// Resolves the label of a job, or the number of an array, in the address once it is listed.
fn resolve_jobs(page: &Page) {
    let (address, jobs) = (page.address.clone(), page.jobs);
    platform::effect(move || {
        jobs.track();
        address.resolve();
    });
}

/// Longest time that may pass without a tick, in ms. It exceeds one second because frames usually cause the
/// tick.
const SECOND_MS: f64 = 1_100.0;

/// Ticks once a second while the page is visible, which updates everything that shows time.
fn keep_time(page: &Page) {
    let (fleet, seen) = (page.fleet.clone(), page.fleet.clone());
    let (wake_up, mut opened) = unbounded();
    leptos::task::spawn_local_scoped_with_cancellation(async move {
        loop {
            if platform::is_hidden() && opened.next().await.is_some() {
                continue;
            }
            let rest_ms = SECOND_MS - fleet.since_tick_ms(platform::now_ms());
            TimeoutFuture::new(rest_ms.clamp(50.0, SECOND_MS) as u32).await;
            if !platform::is_hidden() && fleet.since_tick_ms(platform::now_ms()) >= SECOND_MS {
                fleet.tick(platform::now_ms());
            }
        }
    });
    let seen = Listener::new(document(), "visibilitychange", move |_| {
        seen.tick(platform::now_ms());
        let _ = wake_up.unbounded_send(());
    });
    StoredValue::new_local(seen);
}

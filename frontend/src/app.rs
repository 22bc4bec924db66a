//! The app starts the fleet and the feed, keeps time, and shows the place the URL names.

use crate::address::Address;
use crate::browser::{self, Listener};
use crate::feed::{Feed, Link};
use crate::fleet::Fleet;
use crate::keyboard;
use crate::kiosk;
use crate::page::Page;
use crate::place::{Place, Tab};
use crate::settings::Settings;
use crate::time::Time;
use crate::view::Shell;
use crate::watch;
use futures_channel::mpsc::unbounded;
use futures_util::StreamExt;
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::*;
use nodeglass_protocol::live::Mode;

/// How long the page has to load and to draw before the browser's cache is cleared, in ms.
const CLEAR_CACHE_AFTER_MS: u32 = 2_000;

/// The whole page.
#[component]
pub fn App(
    /// Whether it was opened by a link as the relay prints it.
    by_printed_link: bool,
) -> impl IntoView {
    let address = Address::followed();
    let fleet = Fleet::default();
    fleet.look_at(untrack(|| address.place()).topic());
    let feed = Feed::start(fleet.clone());
    let page = Page::new(fleet, feed, address, Settings::recalled());
    provide_context(page.clone());
    follow_place(&page);
    show_only_machine(&page);
    show_only_job(&page);
    keep_time(&page);
    kiosk::dress(&page);
    kiosk::go_round(&page);
    share_time(&page);
    watch::name_tab(&page);
    watch::notify(&page);
    remove_service_workers(&page);
    clear_cache(&page, by_printed_link);
    view! { <Shell/> }
}

/// Provides the time that graphs share, and listens for keys.
fn share_time(page: &Page) {
    let time = Time::start(page);
    provide_context(time.clone());
    keyboard::hear(page, &time);
}

/// Unregisters service workers that another program left at the relay's address, and shows a notice.
fn remove_service_workers(page: &Page) {
    let removed = page.removed_worker;
    leptos::task::spawn_local(async move {
        if browser::remove_service_workers().await > 0 {
            removed.set(true);
        }
    });
}

/// Clears what another program left in the browser's cache for URLs that a user types or keeps, once the relay has
/// proved its key: nobody else is asked. Below a path of another site, the cache is that site's, too.
fn clear_cache(page: &Page, by_printed_link: bool) {
    if !by_printed_link || !browser::base().is_empty() {
        return;
    }
    let feed = page.feed.clone();
    leptos::task::spawn_local(async move {
        loop {
            TimeoutFuture::new(CLEAR_CACHE_AFTER_MS).await;
            if untrack(|| feed.link()) == Link::Live {
                return browser::clear_cache().await;
            }
        }
    });
}

/// Looks at what the place shows, and tells the relay.
fn follow_place(page: &Page) {
    let page = page.clone();
    Effect::new(move || {
        page.fleet.look_at(page.place.get().topic());
        page.feed.look(&page.fleet);
        page.drawer.set(false);
    });
}

/// Without SLURM there are no jobs to list: with one machine, it is the page.
fn show_only_machine(page: &Page) {
    let page = page.clone();
    Effect::new(move || {
        let local = page.fleet.welcome().is_some_and(|welcome| welcome.mode == Mode::Local);
        let only = page.fleet.overview().nodes().with(|nodes| match nodes.as_slice() {
            [only] => Some(only.name().clone()),
            _ => None,
        });
        if let (true, Place::AllJobs, Some(name)) = (local, page.place.get(), only) {
            page.address.become_place(Place::Node(name));
        }
    });
}

/// A guest who may look at one job is there at once.
fn show_only_job(page: &Page) {
    let page = page.clone();
    Effect::new(move || {
        if let (Some(id), Place::AllJobs) = (page.only_job(), page.place.get()) {
            page.address.become_place(Place::Job(id, Tab::Nodes));
        }
    });
}

/// A second may be so long before it passes without a frame, in ms: a little more than a second, for frames mostly come
/// with one.
const SECOND_MS: f64 = 1_100.0;

/// Renews what shows time once a second, and not at all while nobody looks.
fn keep_time(page: &Page) {
    let (fleet, seen) = (page.fleet.clone(), page.fleet.clone());
    let (eyes, mut opened) = unbounded();
    leptos::task::spawn_local_scoped_with_cancellation(async move {
        loop {
            if browser::is_hidden() && opened.next().await.is_some() {
                continue;
            }
            let rest_ms = SECOND_MS - fleet.since_beat_ms(browser::now_ms());
            TimeoutFuture::new(rest_ms.clamp(50.0, SECOND_MS) as u32).await;
            if !browser::is_hidden() && fleet.since_beat_ms(browser::now_ms()) >= SECOND_MS {
                fleet.beat(browser::now_ms());
            }
        }
    });
    let seen = Listener::new(document(), "visibilitychange", move |_| {
        seen.beat(browser::now_ms());
        let _ = eyes.unbounded_send(());
    });
    StoredValue::new_local(seen);
}

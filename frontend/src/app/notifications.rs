//! Updates the browser tab's title and icon, and shows the notifications that the user enabled.

use crate::domain::notices::{Notice, NoticeTracker};
use crate::domain::route::{JobTab, Route};
use crate::domain::tab_title::{self, TabTitle};
use crate::net::LinkState;
use crate::platform::{self, Listener, Permission};
use crate::state::page::Page;
use leptos::prelude::*;
use std::sync::Mutex;

/// Keeps the tab's title and icon up to date.
pub fn update_tab(page: &Page) {
    let (page, route) = (page.clone(), page.route);
    let tab = Memo::new(move |_| {
        let now_ms = page.now_ms();
        // As on the page, what is known stays with a connection that is over.
        match page.feed.link() {
            LinkState::Stopped(reason) if reason.keeps_picture() && page.fleet.welcome().is_some() => {}
            LinkState::Stopped(_) => return tab_title::for_login(),
            _ => {}
        }
        let has_link =
            matches!(page.feed.link(), LinkState::Live | LinkState::Starting | LinkState::Connecting);
        let overview = page.fleet.overview();
        overview.jobs().track();
        let entries = page.attention.entries().get();
        route.with(|route| {
            overview.read(|picture| tab_title::for_route(route, picture, &entries, has_link, now_ms))
        })
    });
    platform::effect(move || {
        let TabTitle { title, severity } = tab.get();
        platform::set_title(&title);
        platform::set_icon(&tab_title::icon(severity));
    });
}

/// Interval between checks for events, in ms.
const CHECK_MS: u32 = 2_000;
/// Interval between checks whether notifications are wanted, in ms: no longer than a hidden page stays
/// subscribed.
const IDLE_CHECK_MS: u32 = 4_000;

/// Notifies of events if the user enabled it and the page is hidden.
pub fn notify(page: &Page) {
    let page = page.clone();
    let tracker = Mutex::new(NoticeTracker::default());
    let check = move || {
        let Ok(mut tracker) = tracker.lock() else { return IDLE_CHECK_MS };
        let wanted =
            untrack(|| page.settings.notify()) && platform::notification_permission() == Permission::Granted;
        if page.fleet.set_notifying(wanted) {
            page.feed.subscribe(&page.fleet);
        }
        if !wanted {
            // Events before notifications were enabled are not reported later.
            *tracker = NoticeTracker::default();
            return IDLE_CHECK_MS;
        }
        let notices = page.fleet.overview().read(|picture| tracker.update(picture));
        if platform::is_hidden() {
            notices.into_iter().for_each(|notice| show(&page, &notice));
        }
        CHECK_MS
    };
    // Not driven by the page's tick, which stops while the page is hidden: that is when notifications matter.
    leptos::task::spawn_local_scoped_with_cancellation(async move {
        let mut wait_ms = CHECK_MS;
        loop {
            gloo_timers::future::TimeoutFuture::new(wait_ms).await;
            wait_ms = check();
        }
    });
}

fn show(page: &Page, notice: &Notice) {
    let Some(shown) = platform::notify(&notice.title, &notice.body, &notice.tag) else { return };
    let (address, job) = (page.address.clone(), notice.job);
    let listener = Listener::new(shown, "click", move |_| {
        platform::focus_window();
        if let Some(job) = job {
            address.navigate(Route::Job(job, JobTab::Nodes));
        }
    });
    // The listener stays as long as the notification may be clicked, of whose end the page is not informed.
    std::mem::forget(listener);
}

//! What happens is told where nobody looks: in the tab's title and icon, and in notifications that were asked for.

use crate::browser::{self, Listener, Permission};
use crate::feed::Link;
use crate::notices::{Notice, Watch};
use crate::page::Page;
use crate::place::{Place, Tab as JobTab};
use crate::tab::{self, Tab};
use leptos::prelude::*;
use std::sync::Mutex;

/// Keeps title and icon of the tab up to what the page knows.
pub fn name_tab(page: &Page) {
    let (page, place) = (page.clone(), page.place);
    let tab = Memo::new(move |_| {
        let now_ms = page.now_ms();
        if matches!(page.feed.link(), Link::Stopped(_)) {
            return tab::shut();
        }
        let has_link = matches!(page.feed.link(), Link::Live | Link::Starting | Link::Connecting);
        let overview = page.fleet.overview();
        overview.jobs().track();
        place.with(|place| overview.read(|picture| tab::of(place, picture, has_link, now_ms)))
    });
    Effect::new(move || {
        let Tab { title, shape } = tab.get();
        browser::set_title(&title);
        browser::set_icon(&tab::icon(shape));
    });
}

/// How often it is looked whether there is anything to tell, in ms.
const LOOK_MS: u32 = 2_000;
/// How often it is looked whether anybody wants to be told, in ms: no later than the page rests after it was seen last.
const REST_MS: u32 = 4_000;

/// Notifies of what happened, if the user wants it and does not look anyway.
pub fn notify(page: &Page) {
    let page = page.clone();
    let watch = Mutex::new(Watch::default());
    let tell = move || {
        let Ok(mut watch) = watch.lock() else { return REST_MS };
        let wanted = untrack(|| page.settings.notify()) && browser::may_notify() == Permission::Granted;
        if page.fleet.watch(wanted) {
            page.feed.look(&page.fleet);
        }
        if !wanted {
            // Who wants to be told later is told what is news then.
            *watch = Watch::default();
            return REST_MS;
        }
        let news = page.fleet.overview().read(|picture| watch.look(picture));
        if browser::is_hidden() {
            news.into_iter().for_each(|notice| show(&page, &notice));
        }
        LOOK_MS
    };
    // Not by the page's second, which stands still while nobody looks: that is when this is for.
    leptos::task::spawn_local_scoped_with_cancellation(async move {
        let mut rest_ms = LOOK_MS;
        loop {
            gloo_timers::future::TimeoutFuture::new(rest_ms).await;
            rest_ms = tell();
        }
    });
}

fn show(page: &Page, notice: &Notice) {
    let Some(shown) = browser::notify(&notice.title, &notice.body, &notice.about) else { return };
    let (address, job) = (page.address.clone(), notice.job);
    let listener = Listener::new(shown, "click", move |_| {
        browser::come_forward();
        if let Some(job) = job {
            address.go(Place::Job(job, JobTab::Nodes));
        }
    });
    // It may be clicked as long as it is shown, which nobody tells us.
    std::mem::forget(listener);
}

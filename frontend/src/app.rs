//! The app starts the fleet and the feed, keeps time, hears the keyboard, and shows the place the URL names.

use crate::address::Address;
use crate::browser::{self, Listener};
use crate::feed::Feed;
use crate::fleet::Fleet;
use crate::keys::Command;
use crate::kiosk;
use crate::lazy::effect;
use crate::markup::view;
use crate::page::Page;
use crate::place::{Place, Tab, neighbour};
use crate::query;
use crate::settings::Settings;
use crate::time::Time;
use crate::view::{Coming, Sharing, Shell, obey_graph_key};
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::*;
use nodeglass_protocol::live::Mode;
use wasm_bindgen::JsCast;
use web_sys::{HtmlElement, KeyboardEvent};

/// The whole page.
#[component]
pub fn App() -> impl IntoView {
    let address = Address::followed();
    let fleet = Fleet::default();
    fleet.look_at(untrack(|| address.place()).topic());
    let feed = Feed::start(fleet.clone());
    let page = Page::new(fleet, feed, address, Settings::recalled());
    provide_context(page.clone());
    let time = Time::start(&page);
    provide_context(time.clone());
    follow_place(&page);
    show_only_machine(&page);
    show_only_job(&page);
    keep_time(&page);
    later_begin(&page);
    kiosk::follow(&page);
    hear_keys(&page, &time);
    view! { <Shell/> }
}

/// What goes on where nobody looks begins when the second file is here.
fn later_begin(page: &Page) {
    let page = page.clone();
    effect(move || {
        if let Coming::Here(rest) = page.rest.get() {
            (rest.begin)(&page);
        }
    });
}

/// Looks at what the place shows, and tells the relay.
fn follow_place(page: &Page) {
    let page = page.clone();
    effect(move || {
        page.fleet.look_at(page.place.get().topic());
        page.feed.look(&page.fleet);
        page.drawer.set(false);
    });
}

/// Without SLURM there are no jobs to list: with one machine, it is the page.
fn show_only_machine(page: &Page) {
    let page = page.clone();
    effect(move || {
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
    effect(move || {
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
    leptos::task::spawn_local_scoped_with_cancellation(async move {
        loop {
            let rest_ms = SECOND_MS - fleet.since_beat_ms(browser::now_ms());
            TimeoutFuture::new(if browser::is_hidden() {
                1_000
            } else {
                rest_ms.clamp(50.0, SECOND_MS) as u32
            })
            .await;
            if !browser::is_hidden() && fleet.since_beat_ms(browser::now_ms()) >= SECOND_MS {
                fleet.beat(browser::now_ms());
            }
        }
    });
    let seen = Listener::new(document(), "visibilitychange", move |_| seen.beat(browser::now_ms()));
    StoredValue::new_local(seen);
}

fn hear_keys(page: &Page, time: &Time) {
    let (page, time) = (page.clone(), time.clone());
    let listener = Listener::new(document(), "keydown", move |event| {
        let Some(event) = event.dyn_ref::<KeyboardEvent>() else { return };
        // A sheet has keys of its own, also when nothing in it has the focus.
        if browser::top_sheet().is_some() {
            return;
        }
        let held = event.ctrl_key() || event.meta_key();
        if event.alt_key() || !held && is_typing(event) {
            return;
        }
        let key = event.key();
        if !held && obey_graph_key(&time, &key) {
            event.prevent_default();
            return;
        }
        let command = if held { Command::of_chord(&key) } else { Command::of_key(&key) };
        let Some(command) = command else { return };
        if held || matches!(command, Command::Job(_) | Command::Node(_) | Command::Filter) {
            event.prevent_default();
        }
        if let Some(place) = obey(&page, command) {
            event.prevent_default();
            page.address.go(place);
        }
    });
    StoredValue::new_local(listener);
}

fn is_typing(event: &KeyboardEvent) -> bool {
    let target = event.target().and_then(|target| target.dyn_into::<HtmlElement>().ok());
    target.is_some_and(|target| matches!(target.tag_name().as_str(), "INPUT" | "TEXTAREA" | "SELECT"))
}

/// Does what a key asks for, and says where to go, if anywhere.
pub fn obey(page: &Page, command: Command) -> Option<Place> {
    let place = page.place.get_untracked();
    match command {
        Command::Theme => page.settings.next_theme(),
        Command::Scheme => page.settings.next_scheme(),
        Command::Settings => page.settings_open.set(true),
        Command::Share if untrack(|| page.is_owner()) => page.sharing.set(Some(Sharing::Make)),
        Command::Share => {}
        Command::Palette => page.finder.set(true),
        Command::Filter => {
            page.grids.focus_filter();
        }
        Command::Sort(step) => page.grids.sort_next(step),
        Command::TurnSort => page.grids.turn_sort(),
        Command::Help => page.help.update(|open| *open = !*open),
        Command::Close => {
            page.help.set(false);
            page.drawer.set(false);
            page.intent.set(None);
            page.address.set_query(query::GPU, None);
            page.address.set_query(query::PROCESS, None);
        }
        Command::AllJobs => return Some(Place::AllJobs),
        Command::Overview => return place.job().map(|id| Place::Job(id, Tab::Nodes)),
        Command::Processes => {
            let id = place.job()?;
            let back = matches!(place, Place::Job(_, Tab::Processes));
            return Some(Place::Job(id, if back { Tab::Nodes } else { Tab::Processes }));
        }
        Command::Job(step) => return next_job(page, &place, step),
        Command::Node(step) => return next_node(page, &place, step),
    }
    None
}

/// The neighbour in the list at the left, which begins with the place of all jobs.
fn next_job(page: &Page, place: &Place, step: isize) -> Option<Place> {
    let listed = untrack(|| crate::view::listed(page));
    let all: Vec<Place> = std::iter::once(Place::AllJobs).chain(listed).collect();
    let here = place.job().map_or_else(|| place.clone(), |id| Place::Job(id, Tab::Nodes));
    neighbour(&all, Some(&here), step)
}

/// The neighbour among the tabs of a job, which begin with all its nodes.
fn next_node(page: &Page, place: &Place, step: isize) -> Option<Place> {
    let Place::Job(id, tab) = place else { return next_job(page, place, step) };
    let nodes = untrack(|| page.job(*id))?.nodes;
    let all: Vec<Tab> = std::iter::once(Tab::Nodes).chain(nodes.into_iter().map(Tab::Node)).collect();
    neighbour(&all, Some(tab), step).map(|tab| Place::Job(*id, tab))
}

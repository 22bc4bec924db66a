//! The keyboard is heard on the whole page, and what a key asks for is done.

use crate::browser::{self, Listener};
use crate::keys::Command;
use crate::page::Page;
use crate::place::{Place, Tab, neighbour};
use crate::query;
use crate::time::Time;
use crate::view::{Sharing, obey_graph_key};
use leptos::prelude::*;
use wasm_bindgen::JsCast;
use web_sys::{HtmlElement, KeyboardEvent};

/// Hears keys for as long as the page is there.
pub fn hear(page: &Page, time: &Time) {
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

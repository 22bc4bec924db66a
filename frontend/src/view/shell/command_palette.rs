//! The command palette: jumps to what it finds, or runs a command.

use super::keyboard::run_command;
use super::palette_entries::{
    PaletteEntry, SILENCE_S, Target, entries, entries_at_first, found_processes, processes_elsewhere,
    typed_pid,
};
use crate::domain::fuzzy_search::search;
use crate::platform;
use crate::state::page::Page;
use crate::view::jobs::silence::silence;
use crate::view::tables::grid::Grids;
use crate::view::widgets::sheet::Sheet;
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::*;
use nodeglass_protocol::request::{Request, Response};
use std::sync::Arc;
use wasm_bindgen::JsCast;
use web_sys::HtmlInputElement;

/// Maximum number of entries shown.
const MAX_ENTRIES: usize = 12;
/// Pause after the last digit of a PID before the relay is asked, in ms.
const PAUSE_MS: u32 = 150;

/// The command palette, while it is open.
#[component]
pub fn CommandPalette() -> impl IntoView {
    let open = Page::from_context().command_palette;
    move || open.get().then(|| view! { <Finder/> }.into_any())
}

/// The result of a search for a PID on all nodes.
#[derive(Clone, Debug, PartialEq)]
enum Search {
    /// None is typed, or the relay does not search for this viewer.
    None,
    /// The relay is asked.
    Pending,
    /// The processes.
    Found(Vec<PaletteEntry>),
}

/// Asks the relay for processes with the typed PID.
fn searched(page: &Page, typed: RwSignal<String>) -> RwSignal<Search> {
    let result = RwSignal::new(Search::None);
    let wanted = {
        let page = page.clone();
        Memo::new(move |_| typed_pid(&page, &typed.get()).filter(|_| page.is_owner()))
    };
    let page = page.clone();
    platform::effect(move || {
        let pid = wanted.get();
        let Some(number) = pid else { return result.set(Search::None) };
        result.set(Search::Pending);
        let page = page.clone();
        leptos::task::spawn_local(async move {
            // Not for each digit.
            TimeoutFuture::new(PAUSE_MS).await;
            if wanted.try_get_untracked() != Some(pid) {
                return;
            }
            let response = page.request(Request::FindProcesses { pid: number }).await;
            if wanted.try_get_untracked() == Some(pid) {
                result.try_set(match response {
                    Response::Processes(found) => Search::Found(found_processes(&found)),
                    _ => Search::None,
                });
            }
        });
    });
    result
}

/// Returns what matches the typed text, numbered.
fn found(
    page: &Page,
    typed: RwSignal<String>,
    searched: RwSignal<Search>,
) -> Memo<Vec<(usize, PaletteEntry)>> {
    let known = Memo::new({
        let page = page.clone();
        move |_| entries(&page)
    });
    let page = page.clone();
    Memo::new(move |_| {
        let typed = typed.get();
        let mut found = if typed.trim().is_empty() {
            entries_at_first(&page)
        } else {
            let mut all = known.get();
            match searched.get() {
                Search::None => all.extend(processes_elsewhere(&page, &typed)),
                Search::Pending => {}
                // Those of this page are listed already.
                Search::Found(found) => {
                    let is_new = |one: &PaletteEntry| !all.iter().any(|entry| entry.is_same_subject(one));
                    let found: Vec<_> = found.into_iter().filter(is_new).collect();
                    all.extend(found);
                }
            }
            search(&typed, all, |entry| (&entry.name, &entry.words))
        };
        found.truncate(MAX_ENTRIES);
        found.into_iter().enumerate().collect()
    })
}

/// Goes to an entry, or runs its command.
fn activate(page: &Page, grids: Grids, target: Target) {
    match target {
        Target::Route(route, query) => page.address.navigate_with(route, query),
        Target::Sheet(parameter, subject) => page.address.push_query(parameter, Some(subject)),
        Target::Silence(item) => silence(page.clone(), &item, SILENCE_S),
        Target::Command(command) => {
            if let Some(route) = run_command(page, grids, command) {
                page.address.navigate(route);
            }
        }
    }
}

#[component]
fn Finder() -> impl IntoView {
    let (page, grids) = (Page::from_context(), Grids::from_context());
    let open = page.command_palette;
    let (typed, selected) = (RwSignal::new(String::new()), RwSignal::new(0_usize));
    let searched = searched(&page, typed);
    let found = found(&page, typed, searched);
    // By position: an option that keeps its text may have another target after more input.
    let activate = move |at: usize| {
        if let Some((_, entry)) = found.get_untracked().get(at) {
            open.set(false);
            activate(&page, grids, entry.target.clone());
        }
    };
    let on_input = move |event: web_sys::Event| {
        let input = event.target().and_then(|target| target.dyn_into::<HtmlInputElement>().ok());
        typed.set(input.map(|input| input.value()).unwrap_or_default());
        selected.set(0);
    };
    let on_key = {
        let activate = activate.clone();
        move |event: web_sys::KeyboardEvent| {
            let last = found.with(Vec::len).saturating_sub(1);
            match event.key().as_str() {
                "ArrowDown" => selected.update(|at| *at = (*at + 1).min(last)),
                "ArrowUp" => selected.update(|at| *at = at.saturating_sub(1)),
                "Enter" => activate(selected.get_untracked()),
                _ => return,
            }
            event.prevent_default();
        }
    };
    let option = move |(at, entry): (usize, PaletteEntry)| {
        let activate = activate.clone();
        view! {
            <li role="option" id=format!("palette-{at}") aria-selected=move || (selected.get() == at).to_string()
                on:click=move |_| activate(at)>
                <span>{entry.name}</span> <small>{entry.hint}</small>
            </li>
        }
        .into_any()
    };
    let none = Memo::new(move |_| found.with(Vec::is_empty));
    let no_match =
        move || if searched.get() == Search::Pending { "Searching all nodes …" } else { "No matches" };
    view! {
        <Sheet class="ask palette" label="Find" close=Arc::new(move || open.set(false))>
            <input class="field" type="text" role="combobox" aria-label="Search findings, jobs, nodes, GPUs, ranks, PIDs, commands" autofocus
                placeholder="Search findings, jobs, nodes, GPUs, ranks, PIDs, commands" aria-expanded="true" aria-controls="palette-list" autocomplete="off" spellcheck="false"
                aria-activedescendant=move || (!none.get()).then(|| format!("palette-{}", selected.get()))
                on:input=on_input on:keydown=on_key/>
            <ul id="palette-list" role="listbox" aria-label="Matches">
                <For each=move || found.get() key=|(at, entry)| (*at, entry.name.clone(), entry.hint.clone()) children=option/>
            </ul>
            <p class="palette__none" role="status">{move || none.get().then(no_match)}</p>
        </Sheet>
    }
}

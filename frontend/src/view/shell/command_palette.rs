//! The command palette: jumps to what it finds, or runs a command.

use super::keyboard::run_command;
use super::palette_entries::{
    PaletteEntry, SILENCE_S, Target, entries, entries_at_first, processes_elsewhere,
};
use crate::domain::fuzzy_search::search;
use crate::state::page::Page;
use crate::view::jobs::silence::silence;
use crate::view::tables::grid::Grids;
use crate::view::widgets::sheet::Sheet;
use leptos::prelude::*;
use std::sync::Arc;
use wasm_bindgen::JsCast;
use web_sys::HtmlInputElement;

/// Maximum number of entries shown.
const MAX_ENTRIES: usize = 12;

/// The command palette, while it is open.
#[component]
pub fn CommandPalette() -> impl IntoView {
    let open = Page::from_context().command_palette;
    move || open.get().then(|| view! { <Search/> }.into_any())
}

/// Returns what matches the typed text, numbered.
fn found(page: &Page, typed: RwSignal<String>) -> Memo<Vec<(usize, PaletteEntry)>> {
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
            all.extend(processes_elsewhere(&page, &typed));
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
        Target::Silence(item) => silence(page.clone(), item.silences(SILENCE_S)),
        Target::Command(command) => {
            if let Some(route) = run_command(page, grids, command) {
                page.address.navigate(route);
            }
        }
    }
}

#[component]
fn Search() -> impl IntoView {
    let (page, grids) = (Page::from_context(), Grids::from_context());
    let open = page.command_palette;
    let (typed, selected) = (RwSignal::new(String::new()), RwSignal::new(0_usize));
    let found = found(&page, typed);
    let activate = move |target: Target| {
        open.set(false);
        activate(&page, grids, target);
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
                "Enter" => {
                    if let Some((_, entry)) = found.get_untracked().get(selected.get_untracked()) {
                        activate(entry.target.clone());
                    }
                }
                _ => return,
            }
            event.prevent_default();
        }
    };
    let option = move |(at, entry): (usize, PaletteEntry)| {
        let (activate, target) = (activate.clone(), entry.target);
        view! {
            <li role="option" id=format!("palette-{at}") aria-selected=move || (selected.get() == at).to_string()
                on:click=move |_| activate(target.clone())>
                <span>{entry.name}</span> <small>{entry.hint}</small>
            </li>
        }
        .into_any()
    };
    let none = Memo::new(move |_| found.with(Vec::is_empty));
    view! {
        <Sheet class="ask palette" label="Find" close=Arc::new(move || open.set(false))>
            <input class="field" type="text" role="combobox" aria-label="Search findings, jobs, nodes, GPUs, ranks, PIDs, commands" autofocus
                placeholder="Search findings, jobs, nodes, GPUs, ranks, PIDs, commands" aria-expanded="true" aria-controls="palette-list" autocomplete="off" spellcheck="false"
                aria-activedescendant=move || (!none.get()).then(|| format!("palette-{}", selected.get()))
                on:input=on_input on:keydown=on_key/>
            <ul id="palette-list" role="listbox" aria-label="Matches">
                <For each=move || found.get() key=|(at, entry)| (*at, entry.name.clone()) children=option/>
            </ul>
            <p class="palette__none" role="status">{move || none.get().then_some("No matches")}</p>
        </Sheet>
    }
}

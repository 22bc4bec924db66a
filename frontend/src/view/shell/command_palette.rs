//! The command palette: jumps to a job or node, or runs a command, by fuzzy search.

use super::keyboard::run_command;
use crate::domain::fuzzy_search::search;
use crate::domain::keys::{Command, bindings, keycap};
use crate::domain::query;
use crate::domain::route::{JobTab, Route};
use crate::fleet::TopicStore;
use crate::state::page::Page;
use crate::view::tables::grid::Grids;
use crate::view::widgets::sheet::Sheet;
use leptos::prelude::*;
use nodeglass_protocol::GpuUuid;
use std::sync::Arc;
use wasm_bindgen::JsCast;
use web_sys::HtmlInputElement;

/// Maximum number of entries shown.
const MAX_ENTRIES: usize = 12;

/// An entry of the palette.
#[derive(Clone, Debug, PartialEq)]
struct PaletteEntry {
    /// The text that is shown and searched.
    name: String,
    /// The hint beside it.
    hint: String,
    target: Target,
}

#[derive(Clone, Debug, PartialEq)]
enum Target {
    Route(Route),
    /// The sheet of a GPU on the current page.
    Gpu(GpuUuid),
    Command(Command),
}

/// The command palette, while it is open.
#[component]
pub fn CommandPalette() -> impl IntoView {
    let open = Page::from_context().command_palette;
    move || open.get().then(|| view! { <Search/> }.into_any())
}

#[component]
fn Search() -> impl IntoView {
    let (page, grids) = (Page::from_context(), Grids::from_context());
    let open = page.command_palette;
    let typed = RwSignal::new(String::new());
    let selected = RwSignal::new(0_usize);
    let found = Memo::new({
        let page = page.clone();
        move |_| {
            let mut found = search(&typed.get(), entries(&page), |entry| &entry.name);
            found.truncate(MAX_ENTRIES);
            found.into_iter().enumerate().collect::<Vec<_>>()
        }
    });
    let activate = {
        let page = page.clone();
        move |target: Target| {
            open.set(false);
            match target {
                Target::Route(route) => page.address.navigate(route),
                Target::Gpu(uuid) => page.address.push_query(query::GPU, Some(uuid.to_string())),
                Target::Command(command) => {
                    if let Some(route) = run_command(&page, grids, command) {
                        page.address.navigate(route);
                    }
                }
            }
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
            <input class="field" type="text" role="combobox" aria-label="Search jobs, nodes, ranks, commands" autofocus
                placeholder="Search jobs, nodes, ranks, commands" aria-expanded="true" aria-controls="palette-list" autocomplete="off" spellcheck="false"
                aria-activedescendant=move || (!none.get()).then(|| format!("palette-{}", selected.get()))
                on:input=on_input on:keydown=on_key/>
            <ul id="palette-list" role="listbox" aria-label="Matches">
                <For each=move || found.get() key=|(at, entry)| (*at, entry.name.clone()) children=option/>
            </ul>
            <p class="palette__none" role="status">{move || none.get().then_some("No matches")}</p>
        </Sheet>
    }
}

/// Returns every entry: jobs first, then their nodes, then commands, then the ranks on the current page.
fn entries(page: &Page) -> Vec<PaletteEntry> {
    let jobs = page.jobs.get();
    let job = |job: &nodeglass_protocol::job::Job| PaletteEntry {
        name: format!("{} {}", job.label, job.name),
        hint: format!("job, {}", crate::domain::health::state_label(&job.state)),
        target: Target::Route(Route::Job(job.id, JobTab::Nodes)),
    };
    let here = page.route.get().job();
    let tabs = here.into_iter().flat_map(|id| {
        let nodes = page.job(id).map(|job| job.nodes).unwrap_or_default();
        let route = |tab| Target::Route(Route::Job(id, tab));
        let node = nodes.into_iter().map(move |node| PaletteEntry {
            name: node.to_string(),
            hint: "node of this job".to_owned(),
            target: route(JobTab::Node(node)),
        });
        node.collect::<Vec<_>>()
    });
    let nodes = page.fleet.overview().nodes().get().into_iter().map(|cell| PaletteEntry {
        name: cell.name().to_string(),
        hint: "node".to_owned(),
        target: Target::Route(Route::Node(cell.name().clone())),
    });
    let ranks = page.fleet.detail().map(|store| ranks(&store)).unwrap_or_default();
    let walks = |command: &Command| matches!(command, Command::Job(_) | Command::Node(_) | Command::Close);
    let commands =
        bindings(page.is_owner()).filter(|binding| !walks(&binding.command)).map(|binding| PaletteEntry {
            name: binding.description.to_owned(),
            hint: format!("key {}", keycap(binding.keys[0])),
            target: Target::Command(binding.command),
        });
    let pages = [("my usage", Route::Usage), ("audit log: who viewed and what was done", Route::Audit)];
    let pages = pages.into_iter().filter(|_| page.is_owner()).map(|(name, route)| PaletteEntry {
        name: name.to_owned(),
        hint: "page".to_owned(),
        target: Target::Route(route),
    });
    jobs.iter().map(job).chain(tabs).chain(nodes).chain(commands).chain(pages).chain(ranks).collect()
}

/// Returns an entry for each rank of the processes of a topic.
fn ranks(store: &TopicStore) -> Vec<PaletteEntry> {
    let mut ranks: Vec<PaletteEntry> = Vec::new();
    untrack(|| {
        store.read(|picture| {
            for node in &picture.nodes {
                for process in &node.processes {
                    let Some(rank) = process.facts.rank else { continue };
                    let gpu = node.gpus.iter().find(|gpu| gpu.facts.uuid == process.facts.gpu);
                    let Some(gpu) = gpu else { continue };
                    let entry = PaletteEntry {
                        name: format!("rank {}", rank.global),
                        hint: format!("{} {}", node.name, gpu.facts.label()),
                        target: Target::Gpu(gpu.facts.uuid.clone()),
                    };
                    // A rank may have several processes on its GPU.
                    if ranks.last() != Some(&entry) {
                        ranks.push(entry);
                    }
                }
            }
        });
    });
    ranks
}

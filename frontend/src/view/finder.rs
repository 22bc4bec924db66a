//! The finder: a few letters lead to a job, a node or a command, without the mouse.

use super::sheet::Sheet;
use crate::finder::search;
use crate::keys::{Command, bindings, cap};
use crate::page::Page;
use crate::place::{Place, Tab};
use leptos::prelude::*;
use std::sync::Arc;
use wasm_bindgen::JsCast;
use web_sys::HtmlInputElement;

/// How many entries are shown.
const MOST: usize = 12;

/// Something that the finder leads to.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    /// What is read and searched.
    name: String,
    /// What is said beside it.
    hint: String,
    goal: Goal,
}

#[derive(Clone, Debug, PartialEq)]
enum Goal {
    Place(Place),
    Command(Command),
}

/// The finder, when it is asked for.
#[component]
pub fn Finder() -> impl IntoView {
    let open = Page::here().finder;
    move || open.get().then(|| view! { <Search/> }.into_any())
}

#[component]
fn Search() -> impl IntoView {
    let page = Page::here();
    let open = page.finder;
    let typed = RwSignal::new(String::new());
    let chosen = RwSignal::new(0_usize);
    let found = Memo::new({
        let page = page.clone();
        move |_| {
            let mut found = search(&typed.get(), entries(&page), |entry| &entry.name);
            found.truncate(MOST);
            found.into_iter().enumerate().collect::<Vec<_>>()
        }
    });
    let take = {
        let page = page.clone();
        move |goal: Goal| {
            open.set(false);
            match goal {
                Goal::Place(place) => page.address.go(place),
                Goal::Command(command) => {
                    if let Some(place) = crate::keyboard::obey(&page, command) {
                        page.address.go(place);
                    }
                }
            }
        }
    };
    let on_input = move |event: web_sys::Event| {
        let input = event.target().and_then(|target| target.dyn_into::<HtmlInputElement>().ok());
        typed.set(input.map(|input| input.value()).unwrap_or_default());
        chosen.set(0);
    };
    let on_key = {
        let take = take.clone();
        move |event: web_sys::KeyboardEvent| {
            let last = found.with(Vec::len).saturating_sub(1);
            match event.key().as_str() {
                "ArrowDown" => chosen.update(|at| *at = (*at + 1).min(last)),
                "ArrowUp" => chosen.update(|at| *at = at.saturating_sub(1)),
                "Enter" => {
                    if let Some((_, entry)) = found.get_untracked().get(chosen.get_untracked()) {
                        take(entry.goal.clone());
                    }
                }
                _ => return,
            }
            event.prevent_default();
        }
    };
    let option = move |(at, entry): (usize, Entry)| {
        let (take, goal) = (take.clone(), entry.goal);
        view! {
            <li role="option" id=format!("palette-{at}") aria-selected=move || (chosen.get() == at).to_string()
                on:click=move |_| take(goal.clone())>
                <span>{entry.name}</span> <small>{entry.hint}</small>
            </li>
        }
        .into_any()
    };
    let none = Memo::new(move |_| found.with(Vec::is_empty));
    view! {
        <Sheet class="ask palette" label="Palette" close=Arc::new(move || open.set(false))>
            <input class="field" type="text" role="combobox" aria-label="Job, node or command" autofocus
                placeholder="Job, node or command" aria-expanded="true" aria-controls="palette-list" autocomplete="off" spellcheck="false"
                aria-activedescendant=move || format!("palette-{}", chosen.get())
                on:input=on_input on:keydown=on_key/>
            <ul id="palette-list" role="listbox" aria-label="Found">
                <For each=move || found.get() key=|(at, entry)| (*at, entry.name.clone()) children=option/>
            </ul>
            <p class="palette__none" role="status">{move || none.get().then_some("Nothing is called that.")}</p>
        </Sheet>
    }
}

/// Everything that can be gone to or done here: jobs first, then their nodes, then commands.
fn entries(page: &Page) -> Vec<Entry> {
    let jobs = page.jobs.get();
    let job = |job: &nodeglass_protocol::job::Job| Entry {
        name: format!("{} {}", job.label, job.name),
        hint: format!("job, {}", crate::health::state_word(&job.state)),
        goal: Goal::Place(Place::Job(job.id, Tab::Nodes)),
    };
    let here = page.place.get().job();
    let tabs = here.into_iter().flat_map(|id| {
        let nodes = page.job(id).map(|job| job.nodes).unwrap_or_default();
        let place = |tab| Goal::Place(Place::Job(id, tab));
        let node = nodes.into_iter().map(move |node| Entry {
            name: node.to_string(),
            hint: "node of this job".to_owned(),
            goal: place(Tab::Node(node)),
        });
        node.collect::<Vec<_>>()
    });
    let nodes = page.fleet.overview().nodes().get().into_iter().map(|cell| Entry {
        name: cell.name().to_string(),
        hint: "node".to_owned(),
        goal: Goal::Place(Place::Node(cell.name().clone())),
    });
    let walks = |command: &Command| matches!(command, Command::Job(_) | Command::Node(_) | Command::Close);
    let commands =
        bindings(page.is_owner()).filter(|binding| !walks(&binding.command)).map(|binding| Entry {
            name: binding.what.to_owned(),
            hint: format!("key {}", cap(binding.keys[0])),
            goal: Goal::Command(binding.command),
        });
    jobs.iter().map(job).chain(tabs).chain(nodes).chain(commands).collect()
}

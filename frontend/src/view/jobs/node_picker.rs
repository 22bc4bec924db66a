//! The list of a large job's nodes: searchable, nodes that need attention first.

use crate::domain::health::Health;
use crate::domain::node_order::{ListedNode, matching};
use crate::domain::route::{JobTab, Route};
use crate::domain::severity::Severity;
use crate::platform;
use crate::state::page::Page;
use crate::view::widgets::dot::dot;
use crate::view::widgets::menu::Menu;
use leptos::html::Input;
use leptos::prelude::*;
use nodeglass_protocol::{JobId, NodeName};
use std::sync::Arc;
use wasm_bindgen::JsCast;
use web_sys::{Element, HtmlElement, KeyboardEvent};

/// Returns the current health of a node.
pub type NodeHealth = Arc<dyn Fn(&NodeName) -> Health + Send + Sync>;

/// A button that opens the list.
#[component]
pub fn NodePicker(
    /// The job.
    job: JobId,
    /// Its nodes.
    names: Memo<Vec<NodeName>>,
    /// The health of each.
    health: NodeHealth,
    /// Number of nodes that need attention and have no tab, and the worst severity of them.
    hidden_problems: Memo<(usize, Severity)>,
) -> impl IntoView {
    let open = RwSignal::new(false);
    let title = Signal::derive(move || match hidden_problems.get() {
        (0, _) => format!("{} nodes ▾", names.with(Vec::len)),
        (problems, worst) => format!("{} nodes · {problems} {} ▾", names.with(Vec::len), worst.symbol()),
    });
    let inside = Arc::new(move || view! { <List job names health=health.clone() open/> }.into_any());
    view! { <Menu title about="Find a node of this job" open inside/> }
}

/// The list, with its search. Its order stays as it was when the list was opened.
#[component]
fn List(job: JobId, names: Memo<Vec<NodeName>>, health: NodeHealth, open: RwSignal<bool>) -> impl IntoView {
    let page = Page::from_context();
    let input = NodeRef::<Input>::new();
    platform::effect(move || _ = input.get().map(|input| input.focus()));
    let listed = |name: NodeName| {
        let Health { severity, label } = health(&name);
        (name, severity, label)
    };
    let nodes: Arc<Vec<ListedNode>> = Arc::new(untrack(|| names.get().into_iter().map(listed).collect()));
    let typed = RwSignal::new(String::new());
    let route = move |name: &NodeName| Route::Job(job, JobTab::Node(name.clone()));
    let entries = {
        let (page, nodes) = (page.clone(), nodes.clone());
        move || {
            let entry = |node: ListedNode| {
                let href = page.href(&route(&node.0));
                entry(node, href, open)
            };
            let found = typed.with(|typed| matching(&nodes, typed));
            if found.is_empty() {
                return view! { <li class="palette__none" role="status">"No matches"</li> }.into_any();
            }
            found.into_iter().map(entry).collect::<Vec<AnyView>>().into_any()
        }
    };
    let handle_key = move |event: KeyboardEvent| {
        let focus = document().active_element();
        match event.key().as_str() {
            "Enter" if focus.is_some_and(|focus| focus.tag_name() == "INPUT") => {
                let found = typed.with_untracked(|typed| matching(&nodes, typed));
                if let Some((name, ..)) = found.first() {
                    open.set(false);
                    page.address.navigate(route(name));
                }
            }
            "ArrowDown" => focus_beside(&event, 1),
            "ArrowUp" => focus_beside(&event, -1),
            _ => return,
        }
        event.prevent_default();
    };
    view! {
        <div class="picker" on:keydown=handle_key>
            <input class="field picker__search" type="search" node_ref=input placeholder="Find a node"
                aria-label="Find a node by its name or state" autocomplete="off" spellcheck="false"
                on:input=move |event| typed.set(event_target_value(&event))/>
            <ul class="menu__list">{entries}</ul>
        </div>
    }
}

/// A node of the list.
fn entry((name, severity, label): ListedNode, href: String, open: RwSignal<bool>) -> AnyView {
    let shown = if severity == Severity::Ok { String::new() } else { label.clone() };
    view! {
        <li>
            <a class="menu__item picker__node" href=href on:click=move |_| open.set(false)>
                {dot(&Health { severity, label })} <b>{name.to_string()}</b> <small>{shown}</small>
            </a>
        </li>
    }
    .into_any()
}

/// Moves the focus to the entry `step` places from the focused one; from the search field, to the first.
fn focus_beside(event: &KeyboardEvent, step: isize) {
    let Some(list) = event.current_target().and_then(|list| list.dyn_into::<Element>().ok()) else { return };
    let links = platform::query_all(&list, "a");
    let focus = document().active_element();
    let here = links.iter().position(|link| Some(link) == focus.as_ref());
    let next = here.map_or(Some(0), |here| here.checked_add_signed(step));
    let link = next.and_then(|next| links.get(next)?.dyn_ref::<HtmlElement>());
    link.into_iter().for_each(|link| drop(link.focus()));
}

//! Machines that no listed job has, by the groups of the list of machines: in the list at the left.

use super::gpu_cells::Cells;
use crate::domain::health::Health;
use crate::domain::machine_groups::natural_order;
use crate::domain::route::Route;
use crate::domain::sorting;
use crate::fleet::NodeSignals;
use crate::state::page::{Page, node_health};
use crate::view::scope::{NodeScope, alone};
use crate::view::widgets::dot::Dot;
use leptos::prelude::*;
use nodeglass_protocol::NodeName;
use std::collections::{BTreeMap, HashSet};

/// The name of a group; `None` for the machines without one, which come first.
pub type GroupName = Option<String>;

/// Returns the machines, in the order in which they are listed: by group, then by name.
pub fn machines(page: &Page) -> Vec<NodeSignals> {
    groups(page).into_iter().flat_map(|(_, cells)| cells).collect()
}

/// Returns the groups and their machines. Subscribes to jobs, nodes and their groups.
pub fn groups(page: &Page) -> Vec<(GroupName, Vec<NodeSignals>)> {
    let store = page.fleet.overview();
    let taken: HashSet<NodeName> =
        page.jobs.with(|jobs| jobs.iter().flat_map(|job| job.nodes.iter().cloned()).collect());
    let mut groups: BTreeMap<GroupName, Vec<NodeSignals>> = BTreeMap::new();
    for cell in store.nodes().get().into_iter().filter(|cell| !taken.contains(cell.name())) {
        cell.head().track();
        let group = store.node(&cell, |node| node.head.group.as_ref().map(ToString::to_string)).flatten();
        groups.entry(group).or_default().push(cell);
    }
    for cells in groups.values_mut() {
        sorting::sort_by(cells, |a, b| natural_order(a.name().as_str(), b.name().as_str()));
    }
    groups.into_iter().collect()
}

/// Returns the heading of a group: its name, or what its machines are.
pub fn heading(page: &Page, group: &GroupName) -> String {
    match group {
        Some(name) => name.clone(),
        None if page.has_jobs() => "Other machines".to_owned(),
        None => "Machines".to_owned(),
    }
}

/// The machines in the list at the left.
#[component]
pub fn Machines() -> impl IntoView {
    let page = Page::from_context();
    let groups = Memo::new({
        let page = page.clone();
        move |_| groups(&page)
    });
    let names = Memo::new(move |_| {
        groups.with(|groups| groups.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>())
    });
    let group = move |name: GroupName| {
        let title = heading(&page, &name);
        let cells = Memo::new(move |_| of_group(groups, &name));
        view! {
            <h2>{title}</h2>
            <ul><For each=move || cells.get() key=|cell| cell.name().clone() children=move |cell| view! { <Machine cell/> }/></ul>
        }
    };
    view! { <For each=move || names.get() key=GroupName::clone children=group/> }
}

/// Returns the machines of a group.
pub fn of_group(groups: Memo<Vec<(GroupName, Vec<NodeSignals>)>>, name: &GroupName) -> Vec<NodeSignals> {
    groups.with(|groups| {
        let found = groups.iter().find(|(group, _)| group == name);
        found.map(|(_, cells)| cells.clone()).unwrap_or_default()
    })
}

/// One machine.
#[component]
fn Machine(cell: NodeSignals) -> impl IntoView {
    let page = Page::from_context();
    let scope = NodeScope {
        store: page.fleet.overview().clone(),
        nodes: alone(cell.clone()),
        job: None,
        is_whole_job: false,
    };
    let route = Route::Node(cell.name().clone());
    let (href, here, name) = (page.href(&route), page.route, cell.name().to_string());
    let health = {
        let store = scope.store.clone();
        Memo::new(move |_| {
            page.second.track();
            Health::clone(&node_health(&page, &store, &cell))
        })
    };
    view! {
        <li>
            <a class="job job--machine" href=href aria-current=move || (here.get() == route).then_some("page")>
                <Dot health/>
                <b class="job__name">{name}</b>
                <Cells scope/>
            </a>
        </li>
    }
    .into_any()
}

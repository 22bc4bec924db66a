//! The overview of machines by group, as of tools for a list of hosts: which are up, and which GPUs are free.

use super::gpu_cells::Cells;
use super::machines::{self, GroupName};
use crate::domain::machine_groups::{self, GpuUse, GroupTotals};
use crate::domain::route::Route;
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::domain::totals::Totals;
use crate::domain::{health, ownership};
use crate::fleet::NodeSignals;
use crate::state::page::Page;
use crate::view::scope::{NodeScope, alone};
use crate::view::severity_class::SeverityClass;
use leptos::prelude::*;

/// The groups of machines, each with its totals and a row per machine.
#[component]
pub fn MachineGroups() -> impl IntoView {
    let page = Page::from_context();
    let groups = Memo::new({
        let page = page.clone();
        move |_| machines::groups(&page)
    });
    let names = Memo::new(move |_| {
        groups.with(|groups| groups.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>())
    });
    let group = move |name: GroupName| {
        let title = machines::heading(&page, &name);
        // The page's own title says what a single group without a name is.
        let is_titled = name.is_some() || page.has_jobs();
        let cells = Memo::new(move |_| machines::of_group(groups, &name));
        view! { <Group title is_titled cells/> }
    };
    view! { <For each=move || names.get() key=GroupName::clone children=group/> }
}

/// One group.
#[component]
fn Group(title: String, is_titled: bool, cells: Memo<Vec<NodeSignals>>) -> impl IntoView {
    let page = Page::from_context();
    let totals = Memo::new(move |_| {
        page.second.track();
        let (store, now_ms) = (page.fleet.overview(), page.now_ms());
        let mut totals = GroupTotals::default();
        cells.with(|cells| {
            for cell in cells {
                let _ = store.node(cell, |node| totals.add(node, now_ms));
            }
        });
        totals
    });
    let label = title.clone();
    view! {
        <section class="machines" aria-label=label>
            <div class="machines__head">
                {is_titled.then(|| view! { <h2>{title}</h2> })}
                <span>{move || totals.with(GroupTotals::machines_text)}</span>
                <span class="machines__gpus">{move || totals.with(GroupTotals::gpus_text)}</span>
            </div>
            <ul><For each=move || cells.get() key=|cell| cell.name().clone() children=move |cell| view! { <Machine cell/> }/></ul>
        </section>
    }
    .into_any()
}

/// Content of a machine's row.
#[derive(Clone, PartialEq)]
struct Row {
    severity: Severity,
    state: String,
    gpus: GpuUse,
    count: usize,
    model: Option<String>,
    util_pct: Option<u64>,
    mem: Option<String>,
}

/// One machine.
#[component]
fn Machine(cell: NodeSignals) -> impl IntoView {
    let page = Page::from_context();
    let store = page.fleet.overview().clone();
    let scope =
        NodeScope { store: store.clone(), nodes: alone(cell.clone()), job: None, is_whole_job: false };
    let (href, name) = (page.href(&Route::Node(cell.name().clone())), cell.name().to_string());
    let row = Memo::new(move |_| {
        page.second.track();
        cell.head().track();
        store.node(&cell, |node| row(node, page.now_ms()))
    });
    let of = move |read: fn(&Row) -> String| row.with(|row| row.as_ref().map(read).unwrap_or_default());
    let class = move || row.with(|row| row.as_ref().map_or("dot", |row| row.severity.class()));
    let no_gpus = move || row.with(|row| row.as_ref().is_none_or(|row| row.count == 0));
    view! {
        <li>
            <a class="machine" class:machine--no-gpus=no_gpus href=href>
                <i class=class aria-hidden="true"></i>
                <b class="machine__name">{name}</b>
                <span class="machine__what">{move || of(gpu_summary)}</span>
                <span class="machine__cells c-cells"><Cells scope/></span>
                <span class="machine__use">{move || of(|row| row.gpus.sentence())}</span>
                <span class="machine__util num">{move || of(|row| row.util_pct.map(|util| format!("{util} %")).unwrap_or_default())}</span>
                <span class="machine__mem num">{move || of(|row| row.mem.clone().unwrap_or_default())}</span>
                <span class="machine__state">{move || of(|row| row.state.clone())}</span>
            </a>
        </li>
    }
    .into_any()
}

/// Returns the number and model of a machine's GPUs: `8 × H100`.
fn gpu_summary(row: &Row) -> String {
    match (&row.model, row.count) {
        (_, 0) => String::new(),
        (Some(model), count) => format!("{count} × {model}"),
        (None, count) => text::count(count, "GPU", "GPUs"),
    }
}

fn row(node: &nodeglass_protocol::picture::NodePicture, now_ms: u64) -> Row {
    let (severity, state) = machine_groups::state(node, now_ms);
    let is_current = health::freshness(node, now_ms) == health::Freshness::Fresh;
    let mut totals = Totals::default();
    let mut models: Vec<_> = Vec::new();
    for gpu in ownership::counting_gpus(node, None) {
        totals.add(gpu);
        models.extend(gpu.facts.name.value().map(|name| text::model(name.as_str()).to_owned()));
    }
    models.dedup();
    let mem = totals.mem.used.filter(|_| is_current).map(|used| {
        let (used, whole) = text::memory_parts(used, totals.mem.capacity);
        format!("{used} {whole}")
    });
    Row {
        severity,
        state,
        gpus: GpuUse::of(node, now_ms),
        count: totals.gpus,
        model: (models.len() == 1).then(|| models.swap_remove(0)),
        util_pct: totals.util_pct().filter(|_| is_current),
        mem,
    }
}

/// Problems of the relay itself: with its list of machines, what it stores, or its load.
#[component]
pub fn ListNotices() -> impl IntoView {
    let page = Page::from_context();
    let notices = Memo::new(move |_| {
        let overview = page.fleet.overview();
        overview.relay().track();
        overview.read(|picture| picture.relay.notices.iter().map(ToString::to_string).collect::<Vec<_>>())
    });
    let lines = move || notices.get().into_iter().map(|notice| view! { <p>{notice}</p> }).collect_view();
    let some = Memo::new(move |_| notices.with(|notices| !notices.is_empty()));
    move || {
        some.get().then(|| {
            view! {
                <div class="notice notice--attention notice--link" role="status">
                    <i class="dot dot--attention" aria-hidden="true"></i>
                    <div><b>"The relay reports:"</b> {move || lines()}</div>
                </div>
            }
            .into_any()
        })
    }
}

//! The sheet with all details of one GPU, which the URL names.

use crate::chart::Range;
use crate::describe::{Emphasis, Fact, FactGroup, finding, gpu, gpu_health, throttle as throttle_facts};
use crate::domain::attention::{self, Item};
use crate::domain::health::{Freshness, freshness};
use crate::domain::metric::GraphMetric;
use crate::domain::query::GPU;
use crate::domain::route::Route;
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::domain::throttle::{self, ThrottleSummary};
use crate::fleet::{GpuSignals, NodeSignals, TopicStore};
use crate::platform;
use crate::state::page::Page;
use crate::state::time::Time;
use crate::table::processes::gap_text;
use crate::view::charts::finding_marks::MarkedGpu;
use crate::view::charts::gpu_groups::gpu_groups;
use crate::view::charts::graph::{Graph, current_memo, plot_memo};
use crate::view::charts::summary::summary;
use crate::view::charts::time_bar::TimeBar;
use crate::view::scope::{NodeScope, alone};
use crate::view::widgets::capture::Stacks;
use crate::view::widgets::fact_list::fact_groups;
use crate::view::widgets::sheet::Sheet;
use crate::view::widgets::status_line::StatusLine;
use leptos::prelude::*;
use nodeglass_protocol::capture::FindingCapture;
use nodeglass_protocol::picture::{GpuHealth, GpuPicture, NodePicture};
use nodeglass_protocol::{GpuField, Row};
use std::sync::Arc;

/// A GPU, and where it was found.
type Found = (TopicStore, NodeSignals, GpuSignals);

/// The sheet of the GPU that the URL names, if any.
#[component]
pub fn GpuSheet() -> impl IntoView {
    let page = Page::from_context();
    let uuid = page.address.query(GPU);
    let is_open = Memo::new(move |_| uuid.get().is_some());
    move || is_open.get().then(|| open(&page, uuid))
}

fn open(page: &Page, uuid: Memo<Option<String>>) -> AnyView {
    let found = {
        let page = page.clone();
        Memo::new(move |_| find(&page, &uuid.get()?))
    };
    let address = page.address.clone();
    let close = Arc::new(move || address.set_query(GPU, None));
    let page = page.clone();
    let content = move || match found.get() {
        Some(found) => content(&page, found),
        None => view! { <p class="empty">"No data of this GPU here."</p> }.into_any(),
    };
    view! { <Sheet class="sheet" label="GPU" close>{move || content()}</Sheet> }.into_any()
}

/// Searches the full topic first, then the overview.
fn find(page: &Page, uuid: &str) -> Option<Found> {
    let stores = page.fleet.detail().into_iter().chain([page.fleet.overview().clone()]);
    stores.into_iter().find_map(|store| {
        let nodes = store.nodes().get();
        nodes.into_iter().find_map(|node| {
            let gpus = node.gpus().get();
            let gpu = gpus.into_iter().find(|gpu| gpu.uuid().as_str() == uuid)?;
            Some((store.clone(), node, gpu))
        })
    })
}

/// Removes the readings of a GPU that cannot be read any more: they are stale.
fn without_stale_readings(gpu: &GpuPicture) -> GpuPicture {
    let mut gpu = gpu.clone();
    if gpu.fault.is_some() {
        gpu.health = GpuHealth::default();
        gpu.row = Row::default();
    }
    gpu
}

/// Details of a GPU in the sheet.
#[derive(Clone, PartialEq)]
struct Details {
    status: (Severity, String),
    /// Advice on its findings.
    advice: Option<String>,
    /// The stacks of its job's processes, if they were captured.
    capture: Option<Arc<FindingCapture>>,
    groups: Vec<FactGroup>,
}

fn content(page: &Page, (store, node, gpu): Found) -> AnyView {
    let is_glance = Some(&store) == Some(page.fleet.overview());
    let (title, details) = (title(&store, &node, &gpu), watched_details(page, &store, &node, &gpu));
    let status = Signal::derive(move || {
        details
            .with(|details| details.as_ref().map(|details| details.status.clone()))
            .unwrap_or_else(|| (Severity::Pending, "No data yet".to_owned()))
    });
    let advice = Signal::derive(move || details.with(|details| details.as_ref()?.advice.clone()));
    let capture = Memo::new(move |_| details.with(|details| details.as_ref()?.capture.clone()));
    let groups = move || {
        fact_groups(
            details
                .with(|details| details.as_ref().map(|details| details.groups.clone()))
                .unwrap_or_default(),
        )
    };
    let note = is_glance.then(|| {
        let href = page.href(&Route::Node(node.name().clone()));
        view! {
            <p class="facts__note">
                "The overview has only a few readings. " <a class="link" href=format!("{href}?gpu={}", gpu.uuid())>"Open on its node"</a>
            </p>
        }
    });
    let charts = (!is_glance).then(|| charts(&store, &node, &gpu));
    view! {
        <h2 class="sheet__title">{title}</h2>
        <p class="sheet__where">{node.name().to_string()}</p>
        <StatusLine status advice/>
        <Stacks capture/>
        {note}
        {charts}
        <div class="facts-columns">{move || groups()}</div>
    }
    .into_any()
}

/// Names a GPU and its model.
fn title(store: &TopicStore, node: &NodeSignals, gpu: &GpuSignals) -> impl Fn() -> String + use<> {
    let (store, node, gpu) = (store.clone(), node.clone(), gpu.clone());
    move || {
        let gpu = store.gpu(&node, &gpu, without_stale_readings).unwrap_or_default();
        let name = gpu.facts.name.value().map(|name| text::model(name.as_str()).to_owned());
        format!("{} · {}", gpu.facts.label(), name.unwrap_or_else(|| "unknown model".to_owned()))
    }
}

/// Returns what is known of a GPU besides its readings, updated with its facts and health.
fn watched_details(
    page: &Page,
    store: &TopicStore,
    node: &NodeSignals,
    gpu: &GpuSignals,
) -> Memo<Option<Details>> {
    let (page, store, node, gpu) = (page.clone(), store.clone(), node.clone(), gpu.clone());
    Memo::new(move |_| {
        node.head().track();
        node.gpu_health().track();
        node.gpus().track();
        let gpu = store.gpu(&node, &gpu, without_stale_readings).unwrap_or_default();
        store.node(&node, |picture| details(&page, picture, &gpu))
    })
}

/// Graphs of the most important readings, over the time range of the page.
fn charts(store: &TopicStore, node: &NodeSignals, gpu: &GpuSignals) -> AnyView {
    let (page, time) = (Page::from_context(), Time::from_context());
    let scope =
        NodeScope { store: store.clone(), nodes: alone(node.clone()), job: None, is_whole_job: false };
    let uuid = gpu.uuid().clone();
    provide_context(MarkedGpu(uuid.clone()));
    let groups = Memo::new(move |_| {
        let mut groups = gpu_groups(&scope);
        groups.iter_mut().for_each(|group| group.gpus.retain(|gpu| *gpu.cell.uuid() == uuid));
        groups
    });
    let one = |(metric, hue): (GraphMetric, &'static str)| {
        let fixed = Memo::new(move |_| metric);
        let plot = plot_memo(&time, store, groups, fixed, 240);
        let current = current_memo(&time, store, groups, fixed);
        let label = summary(&page, &time, store, groups, fixed);
        view! { <Graph plot current metric=fixed label hue height=64/> }
    };
    let all = [
        (GraphMetric::UTIL, "--util-line"),
        (GraphMetric::MEMORY, "--mem"),
        (GraphMetric::POWER, "--power"),
        (GraphMetric::TEMP, "--temp"),
    ];
    view! {
        <div class="sheet__graphs">
            <TimeBar/>
            <div class="graphs">{all.map(one).collect_view()}</div>
        </div>
    }
    .into_any()
}

/// Returns what throttled its clocks in the last ten minutes, if that history is known.
fn throttling(
    node: &NodePicture,
    gpu: &GpuPicture,
    (from_ms, now_ms): (u64, u64),
) -> Option<Vec<ThrottleSummary>> {
    let index = node.gpus.iter().position(|one| one.facts.uuid == gpu.facts.uuid)?;
    let trace =
        node.history.as_ref().filter(|history| !history.is_summary)?.gpu(index, GpuField::Throttle)?;
    Some(throttle::summarize(trace, from_ms, now_ms))
}

/// Returns the worst finding that names the GPU.
fn finding_about(page: &Page, gpu: &GpuPicture) -> Option<Item> {
    page.attention.entries().with(|entries| attention::affecting_gpu(entries, &gpu.facts.uuid).cloned())
}

/// Returns the status, and all groups in order: errors first, identity last.
fn details(page: &Page, node: &NodePicture, gpu: &GpuPicture) -> Details {
    let now_ms = page.ended_ms.get().unwrap_or_else(|| page.now_ms());
    let from_ms = now_ms.saturating_sub(Range::RECENT_MS).max(page.started_ms.get().unwrap_or_default());
    let throttling = throttling(node, gpu, (from_ms, now_ms));
    let readings = gpu::groups(gpu);
    let health = [gpu_health::vgpus(gpu), Some(gpu_health::errors(gpu)), gpu_health::nvlinks(gpu)];
    let judged: Vec<FactGroup> = health.iter().flatten().chain(&readings).cloned().collect();
    let own = gpu::status(node, gpu, &judged, throttling.as_deref().unwrap_or_default(), now_ms);
    let own = aged_status(page, node, own);
    // What the GPU itself states may be worse.
    let found = finding_about(page, gpu).filter(|item| item.severity >= own.0);
    let stated = found.as_ref().map(|item| gpu_health::Stated {
        kind: item.kind,
        severity: item.severity,
        title: &item.title,
    });
    let time = |at_ms: u64| {
        let at_s = page.wall_s() - (page.now_ms().saturating_sub(at_ms) / 1_000).cast_signed();
        platform::format_time_or_date(at_s)
    };
    let events = gpu_health::events(node.head.events.iter(), gpu, stated, time);
    let throttling = throttling
        .map(|all| throttle_facts::group(&all, |at_ms| text::span(now_ms.saturating_sub(at_ms) / 1_000)));
    let groups = ordered_groups(page, node, gpu, Parts { events, throttling, readings, health });
    match found {
        Some(item) => Details {
            status: (item.severity, format!("{}, {}", item.title, finding::when(&item))),
            advice: Some(item.advice),
            capture: item.capture,
            groups,
        },
        None => Details { status: own, advice: None, capture: None, groups },
    }
}

/// Returns the status of a GPU without current readings: they are late, or its last ones.
fn aged_status(page: &Page, node: &NodePicture, status: (Severity, String)) -> (Severity, String) {
    match freshness(node, page.fleet.shown_ms()) {
        Freshness::Stale(age_ms) if status.0 < Severity::Error => (
            Severity::Warning,
            format!("No data for {}; these are the last readings", text::span(age_ms / 1_000)),
        ),
        Freshness::Last => {
            (Severity::Ended, format!("The job has ended; these are the last readings. {}", status.1))
        }
        _ => status,
    }
}

/// The groups of facts of a sheet, by what they are about.
struct Parts {
    events: Option<FactGroup>,
    throttling: Option<FactGroup>,
    readings: Vec<FactGroup>,
    health: [Option<FactGroup>; 3],
}

/// Returns the groups in order: errors first, identity last.
fn ordered_groups(page: &Page, node: &NodePicture, gpu: &GpuPicture, parts: Parts) -> Vec<FactGroup> {
    let job_name = |job| page.job_name(job);
    let around = gpu::GpuContext { node: node.head.facts.as_ref(), job_name: &job_name };
    let mut groups: Vec<FactGroup> = parts.events.into_iter().collect();
    // The status says why; the group explains it.
    let is_odd = |group: &FactGroup| group.facts.iter().any(|fact| fact.emphasis == Emphasis::Warning);
    let (first, beside_clocks) = match parts.throttling {
        Some(group) if is_odd(&group) => (Some(group), None),
        group => (None, group),
    };
    groups.extend(first);
    let mut rest = parts.readings;
    // Next to the clocks that it explains.
    rest.splice(5..5, beside_clocks);
    groups.extend(rest);
    groups.extend(parts.health.into_iter().flatten());
    if !gpu.gaps.is_empty() {
        let gaps = gpu
            .gaps
            .iter()
            .map(|gap| Fact::new("List", gap_text(gap)).with_emphasis_if(true, Emphasis::Warning));
        groups.push(FactGroup::new("Processes", gaps));
    }
    groups.push(gpu::owners(gpu, &around));
    groups.push(gpu::identity(gpu, &around));
    if gpu.fault.is_some() {
        // The status says once why there are no readings.
        groups.iter_mut().for_each(|group| group.facts.retain(|fact| fact.emphasis != Emphasis::Absent));
        groups.retain(|group| !group.facts.is_empty());
    }
    groups
}

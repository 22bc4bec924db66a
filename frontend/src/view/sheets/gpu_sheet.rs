//! The sheet with all details of one GPU, which the URL names.

use crate::describe::{Emphasis, Fact, FactGroup, gpu, gpu_health, throttle as throttle_facts};
use crate::domain::query::GPU;
use crate::domain::route::Route;
use crate::domain::text;
use crate::domain::throttle;
use crate::fleet::{GpuCell, NodeCell, TopicStore};
use crate::platform;
use crate::state::page::Page;
use crate::table::processes::gap_text;
use crate::view::charts::sparkline::Spark;
use crate::view::scope::gpu_series;
use crate::view::widgets::fact_list::fact_groups;
use crate::view::widgets::sheet::Sheet;
use leptos::prelude::*;
use nodeglass_protocol::GpuField;
use nodeglass_protocol::picture::{GpuHealth, GpuPicture, NodePicture};
use std::sync::Arc;

/// A GPU, and where it was found.
type Found = (TopicStore, NodeCell, GpuCell);

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
        None => view! { <p class="empty">"Nothing is known of this GPU here."</p> }.into_any(),
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

/// Removes health readings of a GPU that cannot be read any more: they are stale.
fn without_stale_health(gpu: &GpuPicture) -> GpuPicture {
    let mut gpu = gpu.clone();
    if gpu.fault.is_some() {
        gpu.health = GpuHealth::default();
    }
    gpu
}

fn content(page: &Page, (store, node, gpu): Found) -> AnyView {
    let is_glance = Some(&store) == Some(page.fleet.overview());
    let read = {
        let (store, node, gpu) = (store.clone(), node.clone(), gpu.clone());
        move || store.gpu(&node, &gpu, without_stale_health).unwrap_or_default()
    };
    let title = {
        let read = read.clone();
        move || {
            let gpu = read();
            let name = gpu.facts.name.value().map(|name| text::model(name.as_str()).to_owned());
            format!("GPU {} · {}", gpu.facts.index, name.unwrap_or_else(|| "model not told".to_owned()))
        }
    };
    let groups = {
        let (page, store, node) = (page.clone(), store.clone(), node.clone());
        move || {
            node.head().track();
            node.gpu_health().track();
            node.gpus().track();
            let gpu = read();
            let fact_groups_of = store.node(&node, |picture| fact_groups_of(&page, picture, &gpu));
            fact_groups(fact_groups_of.unwrap_or_default())
        }
    };
    let note = is_glance.then(|| {
        let href = page.href(&Route::Node(node.name().clone()));
        view! {
            <p class="told__note">
                "From afar only a few readings are told. " <a class="link" href=format!("{href}?gpu={}", gpu.uuid())>"Everything about it"</a>
            </p>
        }
    });
    let charts = (!is_glance).then(|| charts(page, &store, &node, &gpu));
    view! {
        <h2 class="sheet__title">{move || title()}</h2>
        <p class="sheet__where">{node.name().to_string()}</p>
        {note}
        {charts}
        <div class="told-columns">{move || groups()}</div>
    }
    .into_any()
}

/// Charts of the most important readings over ten minutes.
fn charts(page: &Page, store: &TopicStore, node: &NodeCell, gpu: &GpuCell) -> AnyView {
    let one = |(title, field, hue): (&'static str, GpuField, &'static str)| {
        let (page, store, node, gpu) = (page.clone(), store.clone(), node.clone(), gpu.clone());
        let series = Memo::new(move |_| gpu_series(&page, &store, &node, &gpu, field));
        view! { <div class="mini"><span>{title}</span><Spark series hue/></div> }
    };
    let all = [
        ("Utilisation", GpuField::Util, "stroke-util"),
        ("Memory", GpuField::MemUsed, "stroke-mem"),
        ("Power", GpuField::Power, "stroke-power"),
        ("Temperature", GpuField::Temp, "stroke-temp"),
    ];
    view! { <div class="minis" aria-hidden="true">{all.map(one).collect_view()}</div> }.into_any()
}

/// Describes what throttled its clocks in the last ten minutes, if that history is known.
fn throttle_group(node: &NodePicture, gpu: &GpuPicture, now_ms: u64) -> Option<FactGroup> {
    const TEN_MINUTES_MS: u64 = 600_000;
    let index = node.gpus.iter().position(|one| one.facts.uuid == gpu.facts.uuid)?;
    let trace =
        node.history.as_ref().filter(|history| !history.is_summary)?.gpu(index, GpuField::Throttle)?;
    let all = throttle::summarize(trace, now_ms.saturating_sub(TEN_MINUTES_MS), now_ms);
    Some(throttle_facts::group(&all, |at_ms| text::span(now_ms.saturating_sub(at_ms) / 1_000)))
}

/// Returns all groups in order: errors first, identity last.
fn fact_groups_of(page: &Page, node: &NodePicture, gpu: &GpuPicture) -> Vec<FactGroup> {
    let job_name = |job| page.job_name(job);
    let around = gpu::GpuContext { node: node.head.facts.as_ref(), job_name: &job_name };
    let now_ms = page.now_ms();
    let ago = |at_ms: u64| {
        let at_s = page.wall_s() - (now_ms.saturating_sub(at_ms) / 1_000).cast_signed();
        platform::time_of_day(at_s)
    };
    let fault = gpu.fault.as_ref().map(|why| {
        FactGroup::new(
            "It cannot be read",
            [Fact::new("Reason", why.as_str()).with_emphasis_if(true, Emphasis::Error)],
        )
    });
    let mut groups: Vec<FactGroup> = fault.into_iter().collect();
    groups.extend(gpu_health::events(node.head.events.iter(), gpu, ago));
    let mut rest = gpu::groups(gpu);
    // Next to the clocks that it explains.
    rest.splice(5..5, throttle_group(node, gpu, now_ms));
    groups.extend(rest);
    groups.push(gpu_health::errors(gpu));
    groups.extend(gpu_health::nvlinks(gpu));
    if !gpu.gaps.is_empty() {
        let gaps = gpu
            .gaps
            .iter()
            .map(|gap| Fact::new("List", gap_text(gap)).with_emphasis_if(true, Emphasis::Warning));
        groups.push(FactGroup::new("Processes", gaps));
    }
    groups.push(gpu::owners(gpu, &around));
    groups.push(gpu::identity(gpu, &around));
    groups
}

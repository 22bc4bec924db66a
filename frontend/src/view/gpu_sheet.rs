//! Everything that is known of one GPU, in a sheet that the URL names.

use super::chart::Spark;
use super::fact_list::fact_groups;
use super::scope::gpu_past;
use super::sheet::Sheet;
use crate::fleet::{GpuCell, NodeCell, Scene};
use crate::page::Page;
use crate::place::Place;
use crate::query::GPU;
use crate::table::processes::gap_words;
use crate::tell::{Fact, Group, Mood, gpu, held, wear};
use crate::throttle;
use crate::{browser, text};
use leptos::prelude::*;
use nodeglass_protocol::GpuField;
use nodeglass_protocol::picture::{GpuHealth, GpuPicture, NodePicture};
use std::sync::Arc;

/// A GPU, and where it was found.
type Found = (Scene, NodeCell, GpuCell);

/// The sheet of the GPU that the URL names, if it names one.
#[component]
pub fn GpuSheet() -> impl IntoView {
    let page = Page::here();
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

/// Looks where everything is known first, and then from afar.
fn find(page: &Page, uuid: &str) -> Option<Found> {
    let scenes = page.fleet.detail().into_iter().chain([page.fleet.overview().clone()]);
    scenes.into_iter().find_map(|scene| {
        let nodes = scene.nodes().get();
        nodes.into_iter().find_map(|node| {
            let gpus = node.gpus().get();
            let gpu = gpus.into_iter().find(|gpu| gpu.uuid().as_str() == uuid)?;
            Some((scene.clone(), node, gpu))
        })
    })
}

/// A GPU that cannot be read any more does not go on being well: what it said of its health is old.
fn as_it_is(gpu: &GpuPicture) -> GpuPicture {
    let mut gpu = gpu.clone();
    if gpu.fault.is_some() {
        gpu.health = GpuHealth::default();
    }
    gpu
}

fn content(page: &Page, (scene, node, gpu): Found) -> AnyView {
    let is_glance = Some(&scene) == Some(page.fleet.overview());
    let look = {
        let (scene, node, gpu) = (scene.clone(), node.clone(), gpu.clone());
        move || scene.gpu(&node, &gpu, as_it_is).unwrap_or_default()
    };
    let title = {
        let look = look.clone();
        move || {
            let gpu = look();
            let name = gpu.facts.name.value().map(|name| text::model(name.as_str()).to_owned());
            format!("GPU {} · {}", gpu.facts.index, name.unwrap_or_else(|| "model not told".to_owned()))
        }
    };
    let groups = {
        let (page, scene, node) = (page.clone(), scene.clone(), node.clone());
        move || {
            node.head().track();
            node.cards().track();
            node.gpus().track();
            let gpu = look();
            let told = scene.node(&node, |picture| told(&page, picture, &gpu));
            fact_groups(told.unwrap_or_default())
        }
    };
    let more = is_glance.then(|| {
        let href = page.href(&Place::Node(node.name().clone()));
        view! {
            <p class="told__note">
                "From afar only a few readings are told. " <a class="link" href=format!("{href}?gpu={}", gpu.uuid())>"Everything about it"</a>
            </p>
        }
    });
    let charts = (!is_glance).then(|| charts(page, &scene, &node, &gpu));
    view! {
        <h2 class="sheet__title">{move || title()}</h2>
        <p class="sheet__where">{node.name().to_string()}</p>
        {more}
        {charts}
        <div class="told-columns">{move || groups()}</div>
    }
    .into_any()
}

/// The last ten minutes of what matters most.
fn charts(page: &Page, scene: &Scene, node: &NodeCell, gpu: &GpuCell) -> AnyView {
    let one = |(title, field, hue): (&'static str, GpuField, &'static str)| {
        let (page, scene, node, gpu) = (page.clone(), scene.clone(), node.clone(), gpu.clone());
        let series = Memo::new(move |_| gpu_past(&page, &scene, &node, &gpu, field));
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

/// What lowered its clocks in the last ten minutes, where the past of that is known.
fn held_back(node: &NodePicture, gpu: &GpuPicture, now_ms: u64) -> Option<Group> {
    const TEN_MINUTES_MS: u64 = 600_000;
    let index = node.gpus.iter().position(|one| one.facts.uuid == gpu.facts.uuid)?;
    let trace = node.history.as_ref().filter(|past| !past.is_summary)?.gpu(index, GpuField::Throttle)?;
    let all = throttle::held(trace, now_ms.saturating_sub(TEN_MINUTES_MS), now_ms);
    Some(held::group(&all, |at_ms| text::span(now_ms.saturating_sub(at_ms) / 1_000)))
}

/// Everything in its order: what is wrong first, who it is last.
fn told(page: &Page, node: &NodePicture, gpu: &GpuPicture) -> Vec<Group> {
    let job_name = |job| page.job_name(job);
    let around = gpu::Around { node: node.head.facts.as_ref(), job_name: &job_name };
    let now_ms = page.now_ms();
    let ago = |at_ms: u64| {
        let at_s = page.wall_s() - (now_ms.saturating_sub(at_ms) / 1_000).cast_signed();
        browser::time_of_day(at_s)
    };
    let fault = gpu.fault.as_ref().map(|why| {
        Group::new("It cannot be read", [Fact::new("Reason", why.as_str()).if_so(true, Mood::Bad)])
    });
    let mut groups: Vec<Group> = fault.into_iter().collect();
    groups.extend(wear::events(node.head.events.iter(), gpu, ago));
    let mut rest = gpu::groups(gpu);
    // Beside the clocks that it explains.
    rest.splice(5..5, held_back(node, gpu, now_ms));
    groups.extend(rest);
    groups.push(wear::errors(gpu));
    groups.extend(wear::nvlinks(gpu));
    if !gpu.gaps.is_empty() {
        let gaps = gpu.gaps.iter().map(|gap| Fact::new("List", gap_words(gap)).if_so(true, Mood::Attention));
        groups.push(Group::new("Processes", gaps));
    }
    groups.push(gpu::owners(gpu, &around));
    groups.push(gpu::identity(gpu, &around));
    groups
}

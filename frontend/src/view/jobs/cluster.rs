//! The cluster by partition: nodes by state, free GPUs by type, and nodes that accept no jobs.

use crate::domain::{cluster, text};
use crate::state::page::Page;
use crate::view::widgets::meter::meter;
use leptos::prelude::*;
use nodeglass_protocol::cluster::{ClusterSummary, GpuCounts, PartitionSummary, UnavailableNode};

/// Age of the numbers in ms from which it is shown: nodes are usually queried once a minute.
const OLD_MS: u64 = 360_000;

/// The overview of the cluster; nothing if the relay has none.
#[component]
pub fn Cluster() -> impl IntoView {
    let page = Page::from_context();
    let summary = Memo::new({
        let store = page.fleet.overview().clone();
        move |_| {
            store.relay().track();
            store.read(|picture| picture.relay.cluster.clone())
        }
    });
    let is_known = Memo::new(move |_| summary.with(Option::is_some));
    let of_page = page.clone();
    let age = Memo::new(move |_| {
        let at_ms = summary.with(|summary| summary.as_ref().map(|summary| summary.at_ms))?;
        let age_ms = of_page.now_ms().saturating_sub(at_ms);
        (age_ms >= OLD_MS).then(|| format!(", {} ago", text::span(age_ms / 1_000)))
    });
    let partitions = Memo::new(move |_| {
        summary.with(|summary| summary.as_ref().map(|summary| summary.partitions.clone()).unwrap_or_default())
    });
    let rows = move || partitions.with(|partitions| partitions.iter().map(partition).collect_view());
    move || {
        is_known.get().then(|| {
            view! {
                <section class="cluster" aria-label="Cluster">
                    <div class="machines__head">
                        <h2>"Cluster"</h2>
                        <span>"free GPUs and nodes of each partition, as SLURM states them" {age}</span>
                    </div>
                    <ul>{rows}</ul>
                    <Unavailable summary/>
                </section>
            }
            .into_any()
        })
    }
}

/// One partition: its GPUs by type, and its nodes by state.
fn partition(partition: &PartitionSummary) -> impl IntoView + use<> {
    let gpus = match &partition.gpus {
        None => view! { <span class="absent">"GPUs unknown"</span> }.into_any(),
        Some(gpus) if gpus.is_empty() => view! { <span class="absent">"no GPUs"</span> }.into_any(),
        Some(gpus) => gpus.iter().map(kind).collect_view().into_any(),
    };
    view! {
        <li class="partition">
            <b class="partition__name" title=partition.name.to_string()>{partition.name.to_string()}</b>
            <div>{gpus}</div>
            <span class="partition__nodes">{cluster::nodes_text(&partition.nodes)}</span>
        </li>
    }
}

/// The GPUs of one type.
fn kind(gpus: &GpuCounts) -> impl IntoView + use<> {
    let name = gpus.kind.as_ref().map_or_else(|| "GPU".to_owned(), ToString::to_string);
    view! {
        <div class="partition__gpus" title=cluster::taken_text(gpus)>
            <span class="partition__kind">{name}</span>
            {meter("free GPUs", "hue-free", cluster::free_share(gpus))}
            <span class="num">{cluster::free_text(gpus)}</span>
        </div>
    }
}

/// Nodes that accept no jobs, folded.
#[component]
fn Unavailable(summary: Memo<Option<ClusterSummary>>) -> impl IntoView {
    let page = Page::from_context();
    let count = Memo::new(move |_| summary.with(|summary| cluster::unavailable_count(summary.as_ref()?)));
    let nodes = Memo::new(move |_| {
        summary
            .with(|summary| summary.as_ref().map(|summary| summary.unavailable.clone()).unwrap_or_default())
    });
    let omitted = Memo::new(move |_| {
        summary.with(|summary| summary.as_ref().map_or(0, |summary| summary.unavailable_omitted))
    });
    let row = move |node: &UnavailableNode| {
        let (name, node, page) = (node.name.to_string(), node.clone(), page.clone());
        let state = Memo::new(move |_| cluster::unavailable_text(&node, page.wall_s()));
        view! { <li><b>{name}</b> <span>{state}</span></li> }
    };
    let more =
        move || (omitted.get() > 0).then(|| format!("and {} more", text::grouped(u64::from(omitted.get()))));
    view! {
        <details class="cluster__unavailable" hidden=move || count.with(Option::is_none)>
            <summary>{count}</summary>
            <ul>{move || nodes.with(|nodes| nodes.iter().map(&row).collect_view())}</ul>
            <p>{more}</p>
        </details>
    }
}

//! All nodes of a job at a glance: a row each, and a heat map of every GPU.

use super::dot::Dot;
use super::heat::Heat;
use super::meter::Meter;
use super::scope::Scope;
use crate::fleet::NodeCell;
use crate::health::{self, Health, Shape};
use crate::lazy::{lazy, memo, rows, words};
use crate::page::Page;
use crate::place::{Place, Tab};
use crate::text;
use crate::totals::Totals;
use leptos::prelude::*;
use nodeglass_protocol::JobId;

/// With more nodes than this, rows are low, so that 64 nodes read at a glance.
const MOST_TALL_ROWS: usize = 16;

/// The nodes of a job.
#[component]
pub fn NodeList(
    /// The nodes and the job.
    scope: Scope,
    /// The job.
    job: JobId,
) -> impl IntoView {
    let nodes = scope.nodes;
    let dense = memo(move || nodes.with(|nodes| nodes.len() > MOST_TALL_ROWS));
    let list = rows(
        nodes,
        |node| node.name().to_string(),
        move |node| view! { <NodeRow scope=scope.only(node.clone()) node job dense/> }.into_any(),
    );
    view! {
        <div class="table-box">
            <table class="table nodes" class:nodes--dense=lazy(move || dense.get()) aria-label="Nodes of the job">
                <thead>
                    <tr>
                        <th class="nodes__name" scope="col">"Node"</th>
                        <th class="nodes__gpus right hide-s" scope="col">"GPUs"</th>
                        <th class="nodes__heat" scope="col">
                            "Every GPU, last 10 min" <span class="hide-m">" · a line each, brighter is busier"</span>
                        </th>
                        <th class="nodes__meter hide-m" scope="col">"Utilisation"</th>
                        <th class="nodes__pct right" scope="col">"%"</th>
                        <th class="nodes__gib right hide-s" scope="col">"Memory GiB"</th>
                        <th class="nodes__power right hide-s" scope="col">"Power W"</th>
                        <th class="nodes__temp right hide-m" scope="col"><abbr title="hottest GPU, °C">"°C"</abbr></th>
                        <th class="nodes__state hide-s" scope="col">"State"</th>
                    </tr>
                </thead>
                <tbody>{list}</tbody>
            </table>
        </div>
    }
}

/// The state of a node, renewed with its samples and with time.
pub fn health_of(page: &Page, scope: &Scope, node: &NodeCell) -> Memo<Health> {
    let (page, scene, node) = (page.clone(), scope.scene.clone(), node.clone());
    memo(move || {
        node.head().track();
        node.sampled().track();
        let now_ms = page.now_ms();
        let health = scene.node(&node, |node| health::of_node(node, now_ms));
        health.unwrap_or_else(|| Health { shape: Shape::Waiting, word: "not known".to_owned() })
    })
}

#[component]
fn NodeRow(scope: Scope, node: NodeCell, job: JobId, dense: Memo<bool>) -> impl IntoView {
    let page = Page::here();
    let health = health_of(&page, &scope, &node);
    let totals = memo({
        let (scope, page) = (scope.clone(), page.clone());
        move || scope.totals(&page)
    });
    let rows = memo({
        let (scope, page) = (scope.clone(), page.clone());
        move || scope.heat(&page)
    });
    let stale = page.is_stale(&scope.scene, &node);
    let name = node.name().to_string();
    let place = Place::Job(job, Tab::Node(node.name().clone()));
    let label = format!("utilisation of every GPU of {name} over the last ten minutes");
    view! {
        <tr class="is-link" class:is-stale=lazy(move || stale.get())>
            <th class="nodes__name" scope="row">
                <a href=page.href(&place)><Dot health/> {name}</a>
            </th>
            <td class="right num hide-s">{words(move || totals.get().gpus)}</td>
            <td class="nodes__heat"><Heat rows dense label=Signal::stored(label)/></td>
            <NodeFigures totals/>
            <td class="nodes__state hide-s">{words(move || health.get().word)}</td>
        </tr>
    }
}

#[component]
fn NodeFigures(totals: Memo<Totals>) -> impl IntoView {
    let settings = Page::here().settings;
    let util = move || totals.get().util_pct();
    view! {
        <td class="hide-m">
            <Meter
                share=Signal::derive(move || util().map(|util| util as f64 / 100.0))
                label="mean utilisation"
                hue=Signal::derive(move || settings.scheme().class(util()))
            />
        </td>
        <td class="right num">{words(move || text::or_absent(util().map(|util| util.to_string())))}</td>
        <td class="right num hide-s">
            {words(move || text::or_absent(totals.get().mem.used.map(text::gib)))}
            <span class="of">{words(move || totals.get().mem.whole.map(|whole| format!("/{}", text::whole_gib(whole))))}</span>
        </td>
        <td class="right num hide-s">
            {words(move || text::or_absent(totals.get().power.used.map(text::grouped)))}
            <span class="of">{words(move || totals.get().power.whole.map(|whole| format!("/{}", text::grouped(whole))))}</span>
        </td>
        <td class="right num hide-m">{words(move || text::or_absent(totals.get().hottest_c.map(|c| c.to_string())))}</td>
    }
}

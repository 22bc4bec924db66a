//! A node's timeline: each metric of its GPUs over the same range, and the throttle lanes.

use super::gpu_groups::NodeGroup;
use super::graph::{Graph, current_memo, plot_memo};
use super::graph_panel::GraphPanel;
use super::summary::summary;
use super::throttle_lanes::ThrottleLanes;
use super::time_bar::TimeBar;
use crate::domain::metric::GraphMetric;
use crate::platform;
use crate::state::time::{GpuRef, Time};
use crate::view::scope::NodeScope;
use leptos::html::Section;
use leptos::prelude::*;

/// The metrics, each with the CSS token of its colour.
const GRAPHS: [(GraphMetric, &str); 6] = [
    (GraphMetric::UTIL, "--util-line"),
    (GraphMetric::MEMORY, "--mem"),
    (GraphMetric::POWER, "--power"),
    (GraphMetric::TEMP, "--temp"),
    (GraphMetric::CLOCK, "--host"),
    (GraphMetric::SM_ACTIVE, "--util-line"),
];

/// The timeline of a scope's GPUs.
#[component]
pub fn TimeLine(
    /// The scope: one node.
    scope: NodeScope,
) -> impl IntoView {
    let GraphPanel { page, time, groups, export, .. } = GraphPanel::new(&scope, false);
    let graphs = GRAPHS.map(|(metric, hue)| {
        let fixed = Memo::new(move |_| metric);
        let plot = plot_memo(&time, &scope.store, groups, fixed, 240);
        let current = current_memo(&time, &scope.store, groups, fixed);
        let label = summary(&page, &time, &scope.store, groups, fixed);
        // A GPU without these counters has no such graph.
        let has_values = Memo::new(move |_| {
            plot.with(|plot| plot.lines.iter().any(|line| line.values.iter().any(Option::is_some)))
        });
        move || {
            (metric != GraphMetric::SM_ACTIVE || has_values.get())
                .then(|| view! { <Graph plot current metric=fixed label hue/> }.into_any())
        }
    });
    let panel = NodeRef::<Section>::new();
    show_pinned(&time, &scope, panel);
    let export = export.of(GRAPHS.iter().map(|(metric, _)| *metric));
    let none = Memo::new(move |_| groups.with(|groups| groups.iter().all(|group| group.gpus.is_empty())));
    view! {
        <section class="panel time-line" aria-label="Timeline" node_ref=panel hidden=none>
            <div class="panel__head">
                <h2>"Timeline"</h2>
                <span class="spring"></span>
                {export.menu()}
            </div>
            <TimeBar/>
            {chips(&time, groups)}
            <div class="graphs">{graphs}</div>
            <ThrottleLanes store=scope.store groups/>
        </section>
    }
}

/// Scrolls to the panel when it is created for a link to one of its GPUs: it lies below the first screen.
fn show_pinned(time: &Time, scope: &NodeScope, panel: NodeRef<Section>) {
    let pinned = untrack(|| time.pinned());
    let names_one = |gpu_ref: &GpuRef| {
        scope.nodes.with_untracked(|nodes| nodes.iter().any(|node| *node.name() == gpu_ref.node))
    };
    if pinned.as_ref().is_some_and(names_one) {
        panel.on_load(|panel| request_animation_frame(move || platform::scroll_to_top_of(&panel)));
    }
}

/// The GPUs by name: hovering highlights one, clicking pins it.
fn chips(time: &Time, groups: Memo<Vec<NodeGroup>>) -> AnyView {
    let time = time.clone();
    let chip = move |gpu_ref: GpuRef, label: String| {
        let (over, out, click, here) = (time.clone(), time.clone(), time.clone(), time.clone());
        let (pointed, chosen, known) = (gpu_ref.clone(), gpu_ref.clone(), gpu_ref);
        view! {
            <button
                class="chip"
                aria-pressed=move || if here.highlighted().as_ref() == Some(&known) { "true" } else { "false" }
                on:pointerenter=move |_| over.hover_gpu(Some(pointed.clone()))
                on:pointerleave=move |_| out.hover_gpu(None)
                on:click=move |_| click.toggle_pinned(Some(chosen.clone()))
            >
                {label}
            </button>
        }
    };
    let list = move || {
        groups.with(|groups| {
            let all = groups
                .iter()
                .flat_map(|group| group.gpus.iter().map(move |gpu| (group.gpu_ref(gpu), gpu.label.clone())));
            all.map(|(gpu_ref, label)| chip(gpu_ref, label)).collect_view()
        })
    };
    view! { <div class="chips" role="group" aria-label="GPUs of the graphs">{move || list()}</div> }
        .into_any()
}

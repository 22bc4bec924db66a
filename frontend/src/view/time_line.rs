//! A node's time line: each reading of its GPUs over the same time, and why their clocks were held down.

use super::export::Export;
use super::graph::{Graph, plot_of};
use super::lanes::Lanes;
use super::roll::{Group, roll};
use super::scope::Scope;
use super::summary::{metric_menu, summary};
use super::time_bar::TimeBar;
use crate::metric::Metric;
use crate::page::Page;
use crate::time::{Pick, Time};
use leptos::prelude::*;

/// What is drawn, and the token of its colour.
const GRAPHS: [(Metric, &str); 6] = [
    (Metric::Util, "--util-line"),
    (Metric::Memory, "--mem"),
    (Metric::Power, "--power"),
    (Metric::Temp, "--temp"),
    (Metric::Clock, "--host"),
    (Metric::SmActive, "--util-line"),
];

/// The time line of a scope's GPUs.
#[component]
pub fn TimeLine(
    /// The scope: one node.
    scope: Scope,
) -> impl IntoView {
    let (page, time) = (Page::here(), Time::here());
    let groups = Memo::new({
        let scope = scope.clone();
        move |_| roll(&scope)
    });
    let shown = {
        let time = time.clone();
        Memo::new(move |_| time.metric())
    };
    let export = Export::of(&page, &time, &scope.scene, groups, shown);
    let graphs = GRAPHS.map(|(metric, hue)| {
        let fixed = Memo::new(move |_| metric);
        let plot = plot_of(&time, &scope.scene, groups, fixed, 240);
        let label = summary(&page, &time, &scope.scene, groups, fixed);
        // A card that has no such counters has no graph of them.
        let told = Memo::new(move |_| {
            plot.with(|plot| plot.lines.iter().any(|line| line.values.iter().any(Option::is_some)))
        });
        move || {
            (metric != Metric::SmActive || told.get())
                .then(|| view! { <Graph plot metric=fixed label hue/> }.into_any())
        }
    });
    let none = Memo::new(move |_| groups.with(|groups| groups.iter().all(|group| group.gpus.is_empty())));
    view! {
        <section class="panel time-line" aria-label="Time line" hidden=move || none.get()>
            <div class="panel__head">
                <h2>"Time line"</h2>
                <span class="spring"></span>
                <small>"numbers of"</small>
                {metric_menu(&time)}
                {export.buttons()}
            </div>
            <TimeBar/>
            {chips(&time, groups)}
            <div class="graphs">{graphs}</div>
            <Lanes scene=scope.scene groups/>
        </section>
    }
}

/// The GPUs by name: pointed at they stand out, clicked on they keep to.
fn chips(time: &Time, groups: Memo<Vec<Group>>) -> AnyView {
    let time = time.clone();
    let chip = move |pick: Pick, label: String| {
        let (over, out, click, here) = (time.clone(), time.clone(), time.clone(), time.clone());
        let (pointed, chosen, known) = (pick.clone(), pick.clone(), pick);
        view! {
            <button
                class="chip"
                aria-pressed=move || if here.pick().as_ref() == Some(&known) { "true" } else { "false" }
                on:pointerenter=move |_| over.point_at_gpu(Some(pointed.clone()))
                on:pointerleave=move |_| out.point_at_gpu(None)
                on:click=move |_| click.choose(Some(chosen.clone()))
            >
                {label}
            </button>
        }
    };
    let list = move || {
        groups.with(|groups| {
            let all = groups
                .iter()
                .flat_map(|group| group.gpus.iter().map(move |gpu| (group.pick(gpu), gpu.label.clone())));
            all.map(|(pick, label)| chip(pick, label)).collect_view()
        })
    };
    view! { <div class="chips" role="group" aria-label="GPUs of the graphs">{move || list()}</div> }
        .into_any()
}

//! All GPUs of a job in one graph: their band, and the outliers.

use super::gpu_groups::{GpuEntry, NodeGroup, is_over};
use super::graph::{Graph, Plots, plot_memo};
use super::graph_panel::GraphPanel;
use super::plot::Plot;
use super::summary::summary;
use crate::domain::deviation::{Deviation, Found, Sentence, sentences};
use crate::fleet::TopicStore;
use crate::state::time::Time;
use crate::view::scope::Scope;
use leptos::prelude::*;

/// At most this many outliers have a sentence.
const MOST_SENTENCES: usize = 4;

/// All GPUs of a scope in one graph.
#[component]
pub fn Overlay(
    /// The scope.
    scope: Scope,
) -> impl IntoView {
    let GraphPanel { page, time, groups, metric, export } = GraphPanel::new(&scope, false);
    let plot = plot_memo(&time, &scope.store, groups, metric, 300);
    let label = summary(&page, &time, &scope.store, groups, metric);
    let verdict = {
        let (store, step) = (scope.store, page.step);
        Memo::new(move |_| {
            step.track();
            // The first values arrive between two steps.
            plot.track();
            groups.with(|groups| verdict(&store, groups))
        })
    };
    view! {
        <section class="panel overlay" aria-label="Rank comparison">
            <div class="panel__head">
                <h2>"Rank comparison" <small>{move || plot.with(subtitle)}</small></h2>
                <span class="spring"></span>
                {export.menu()}
            </div>
            {outlier_list(&time, groups, verdict)}
            <Graph plot metric label hue="--util-line" height=260/>
            {legend(plot)}
        </section>
    }
}

fn subtitle(plot: &Plot) -> String {
    match plot.lines.len() {
        0 => "no GPU yet".to_owned(),
        1 => "one GPU".to_owned(),
        many if plot.shows_every_line() => format!("{many} GPUs, a line each"),
        many => format!("median of {many} GPUs"),
    }
}

/// What the comparison of some GPUs shows.
#[derive(Clone, PartialEq)]
enum Verdict {
    /// A single GPU or none.
    Nothing,
    /// A sentence instead of outliers.
    None(&'static str),
    /// The outliers, and how many more there are.
    Outliers(Vec<Sentence>, usize),
}

/// Judges over all metrics, whichever is shown.
fn verdict(store: &TopicStore, groups: &[NodeGroup]) -> Verdict {
    let all = || groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)));
    if all().count() < 2 {
        return Verdict::Nothing;
    }
    let (deviations, has_peers) = store.comparison(|comparison| {
        let places = || all().map(|(group, gpu)| (group.node.position(), gpu.cell.position()));
        let deviations: Vec<_> =
            places().map(|(node, gpu)| comparison.deviation(node, gpu).cloned()).collect();
        (deviations, places().any(|(node, gpu)| comparison.has_peers(node, gpu)))
    });
    if !has_peers {
        return Verdict::None("Not compared: fewer than 4 GPUs of the same model.");
    }
    if deviations.iter().all(Option::is_none) {
        return Verdict::None("Nothing to compare: no data of the last minute, or the job idles.");
    }
    let outlier = |(at, ((group, gpu), deviation)): (usize, ((&NodeGroup, &GpuEntry), Option<Deviation>))| {
        let deviation = deviation.filter(|deviation| deviation.outlier.is_some())?;
        Some(Found {
            at,
            node: group.node.name().to_string(),
            gpu: gpu.label.clone(),
            ranks: group.ranks(store, gpu),
            on_node: group.gpus.len(),
            deviation,
        })
    };
    let found: Vec<Found> = all().zip(deviations).enumerate().filter_map(outlier).collect();
    if found.is_empty() {
        return Verdict::None(if is_over(store, groups) {
            "No outliers in the last minute of the job."
        } else {
            "No outliers in the last minute."
        });
    }
    let (sentences, more) = sentences(found, MOST_SENTENCES);
    Verdict::Outliers(sentences, more)
}

/// The outliers; a click shows the metric in which one deviates, and pins it.
fn outlier_list(time: &Time, groups: Memo<Vec<NodeGroup>>, verdict: Memo<Verdict>) -> AnyView {
    let time = time.clone();
    let line = move |sentence: Sentence| {
        let Sentence { at, metric, text } = sentence;
        let time = time.clone();
        let show = move |_| {
            let gpu_ref = groups.with_untracked(|groups| {
                let mut all = groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)));
                all.nth(at).map(|(group, gpu)| group.gpu_ref(gpu))
            });
            time.set_metric(metric);
            if untrack(|| time.highlighted()) != gpu_ref {
                time.toggle_pinned(gpu_ref);
            }
        };
        view! {
            <li><button class="outlier" title="Show this metric and highlight this GPU" on:click=show>
                <i class="dot dot--attention" aria-hidden="true"></i> {text}
            </button></li>
        }
    };
    let content = move || match verdict.get() {
        Verdict::Nothing => ().into_any(),
        Verdict::None(sentence) => view! { <p class="read-out">{sentence}</p> }.into_any(),
        Verdict::Outliers(sentences, more) => {
            let lines = sentences.into_iter().map(line.clone()).collect_view();
            let more =
                (more > 0).then(|| view! { <li class="read-out">{format!("and {more} more GPUs")}</li> });
            view! { <ul class="outliers">{lines} {more}</ul> }.into_any()
        }
    };
    view! { <div aria-live="polite">{move || content()}</div> }.into_any()
}

fn legend(plot: Plots) -> AnyView {
    let several = Memo::new(move |_| {
        plot.with(|plot| (plot.shows_every_line(), plot.band.is_some(), !plot.outliers.is_empty()))
    });
    let entries = move || {
        let (every, band, far) = several.get();
        view! {
            <span><i class="legend__line"></i> {if every { "a GPU" } else { "median" }}</span>
            {band.then(|| view! { <span><i class="legend__band"></i> "lowest to highest"</span> }.into_any())}
            {far.then(|| view! { <span><i class="legend__far"></i> "outlier"</span> }.into_any())}
            <span><i class="legend__pick"></i> "hovered (click to pin)"</span>
        }
    };
    view! { <p class="legend" aria-hidden="true">{move || entries()}</p> }.into_any()
}

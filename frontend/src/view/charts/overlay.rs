//! All GPUs of a job in one graph: their band, and the outliers.

use super::gpu_groups::NodeGroup;
use super::graph::{Graph, Plots, current_memo, plot_memo};
use super::graph_panel::GraphPanel;
use super::plot::Plot;
use super::summary::summary;
use crate::domain::deviation::{Deviation, Outlier};
use crate::fleet::TopicStore;
use crate::state::time::Time;
use crate::view::scope::NodeScope;
use leptos::prelude::*;

/// Maximum number of outliers with a sentence.
const MAX_SENTENCES: usize = 4;
/// Deviation below its peers, in %, from which on a GPU is not called alike, for any reason.
const APART_PERCENT: i32 = 20;

/// All GPUs of a scope in one graph.
#[component]
pub fn Overlay(
    /// The scope.
    scope: NodeScope,
) -> impl IntoView {
    let GraphPanel { page, time, groups, metric, export } = GraphPanel::new(&scope, false);
    let plot = plot_memo(&time, &scope.store, groups, metric, 300);
    let current = current_memo(&time, &scope.store, groups, metric);
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
            <Graph plot current metric label hue="--util-line" height=260/>
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

/// Result of comparing some GPUs.
#[derive(Clone, PartialEq)]
enum Verdict {
    /// A single GPU or none.
    Nothing,
    /// A sentence instead of outliers.
    None(&'static str),
    /// The positions of the outliers among all GPUs, and what is wrong with each.
    Outliers(Vec<(usize, Outlier)>),
}

/// Returns the relay's findings about these GPUs over all metrics, whichever is shown.
fn verdict(store: &TopicStore, groups: &[NodeGroup]) -> Verdict {
    let all = || groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)));
    if all().count() < 2 {
        return Verdict::Nothing;
    }
    store.comparison(|comparison| {
        let places = || all().map(|(group, gpu)| (group.node.position(), gpu.cell.position())).enumerate();
        let outlier = |(at, (node, gpu))| Some((at, comparison.outlier(node, gpu)?.clone()));
        let mut found: Vec<(usize, Outlier)> = places().filter_map(outlier).collect();
        // Several GPUs may be one finding.
        found.dedup_by(|next, one| next.1.title == one.1.title);
        if !found.is_empty() {
            return Verdict::Outliers(found);
        }
        Verdict::None(if !places().any(|(_, (node, gpu))| comparison.has_peers(node, gpu)) {
            "Not compared: fewer than 4 GPUs of the same model."
        } else if places().all(|(_, (node, gpu))| comparison.deviation(node, gpu).is_none()) {
            "Nothing to compare: the GPUs are hardly in use, or there is no data of the last two minutes."
        } else if places().any(|(_, (node, gpu))| {
            comparison.has_peers(node, gpu) && is_apart(comparison.deviation(node, gpu))
        }) {
            "No GPU is found to be slower than its peers, but their readings differ: they may have unequal work."
        } else {
            "No GPU is slower than its peers."
        })
    })
}

/// Returns whether a GPU that has peers is not in use, or reads far less than they do.
fn is_apart(deviation: Option<&Deviation>) -> bool {
    deviation.is_none_or(|deviation| deviation.percent <= -APART_PERCENT)
}

/// The outliers; a click shows the metric in which one deviates, and pins it.
fn outlier_list(time: &Time, groups: Memo<Vec<NodeGroup>>, verdict: Memo<Verdict>) -> AnyView {
    let time = time.clone();
    let line = move |(at, Outlier { metric, title, .. }): (usize, Outlier)| {
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
                <i class="dot dot--attention" aria-hidden="true"></i> {title}
            </button></li>
        }
    };
    let content = move || match verdict.get() {
        Verdict::Nothing => ().into_any(),
        Verdict::None(sentence) => view! { <p class="read-out">{sentence}</p> }.into_any(),
        Verdict::Outliers(mut found) => {
            let more = found.len().saturating_sub(MAX_SENTENCES);
            found.truncate(MAX_SENTENCES);
            let lines = found.into_iter().map(line.clone()).collect_view();
            let more = (more > 0).then(|| view! { <li class="read-out">{format!("and {more} more")}</li> });
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

//! All GPUs of a job in one graph: their band, and the outliers.

use super::export::Export;
use super::gpu_groups::gpu_groups;
use super::graph::{Graph, Plots, plot_memo};
use super::plot::Plot;
use super::summary::summary;
use crate::domain::metric::Metric;
use crate::state::page::Page;
use crate::state::time::Time;
use crate::view::scope::Scope;
use leptos::prelude::*;

/// All GPUs of a scope in one graph.
#[component]
pub fn Overlay(
    /// The scope.
    scope: Scope,
) -> impl IntoView {
    let (page, time) = (Page::from_context(), Time::from_context());
    let groups = Memo::new({
        let scope = scope.clone();
        move |_| gpu_groups(&scope)
    });
    let metric = {
        let time = time.clone();
        Memo::new(move |_| time.metric())
    };
    let plot = plot_memo(&time, &scope.store, groups, metric, 300);
    let label = summary(&page, &time, &scope.store, groups, metric);
    let export = Export::new(&page, &time, &scope.store, groups, metric);
    view! {
        <section class="panel overlay" aria-label="Ranks together">
            <div class="panel__head">
                <h2>"Ranks together" <small>{move || plot.with(what)}</small></h2>
                <span class="spring"></span>
                {export.buttons()}
            </div>
            <Graph plot metric label hue="--util-line" height=260/>
            {legend(plot)}
            <p class="read-out">{move || plot.with(|plot| outliers_text(plot, metric.get()))}</p>
        </section>
    }
}

fn what(plot: &Plot) -> String {
    match plot.lines.len() {
        0 => "no GPU yet".to_owned(),
        1 => "one GPU".to_owned(),
        many if plot.shows_every_line() => format!("{many} GPUs, a line each"),
        many => format!("median of {many} GPUs"),
    }
}

/// Names the outliers.
fn outliers_text(plot: &Plot, metric: Metric) -> String {
    if plot.outliers.is_empty() {
        return if plot.lines.len() > 2 {
            "Nobody left the others in the last minute shown.".to_owned()
        } else {
            String::new()
        };
    }
    let one = |(at, away): &(usize, f32)| {
        let side = if *away < 0.0 { "below" } else { "above" };
        let by = match metric {
            _ if metric.is_percent() || metric == Metric::THROTTLE => {
                format!("{} points", away.abs().round() as u32)
            }
            _ => metric.format(away.abs()),
        };
        format!("{} was {by} {side} the median", plot.lines[*at].name)
    };
    format!("In the last minute shown {}.", plot.outliers.iter().map(one).collect::<Vec<_>>().join("; "))
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
            {far.then(|| view! { <span><i class="legend__far"></i> "leaves the others"</span> }.into_any())}
            <span><i class="legend__pick"></i> "pointed at; click to keep"</span>
        }
    };
    view! { <p class="legend" aria-hidden="true">{move || entries()}</p> }.into_any()
}

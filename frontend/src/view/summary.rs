//! What a graph of many GPUs says in words: now, under the cursor, and what its colours mean.

use super::roll::{Entry, Group};
use crate::chart::band::spread;
use crate::fleet::Scene;
use crate::lazy::{Memo, lazy, memo, words};
use crate::markup::view;
use crate::metric::Metric;
use crate::page::Page;
use crate::text;
use crate::time::Time;
use leptos::prelude::*;

/// One sentence: what is pointed at, or the lowest, the median and the highest of now.
pub fn summary(
    page: &Page,
    time: &Time,
    scene: &Scene,
    groups: Memo<Vec<Group>>,
    metric: Memo<Metric>,
) -> Signal<String> {
    let (page, time, scene) = (page.clone(), time.clone(), scene.clone());
    // Several read it.
    let words = memo(move || {
        groups.with(|groups| {
            pointed(&time, &scene, groups, metric.get()).unwrap_or_else(|| {
                page.second.track();
                now(&scene, groups, metric.get())
            })
        })
    });
    words.into()
}

/// What was read of the GPU and at the moment that are pointed at.
fn pointed(time: &Time, scene: &Scene, groups: &[Group], metric: Metric) -> Option<String> {
    let at_ms = time.cursor()?;
    let pick = time.pick()?;
    let (group, gpu) = all(groups).find(|(group, gpu)| group.pick(gpu) == pick)?;
    let value = group.words_at(scene, gpu, metric, at_ms);
    Some(format!(
        "{} · {} · {} {value}",
        time.clock(at_ms),
        group.name(scene, gpu),
        metric.title().to_lowercase()
    ))
}

/// The lowest, the median and the highest of now.
fn now(scene: &Scene, groups: &[Group], metric: Metric) -> String {
    let told: Vec<(f32, &Group, &Entry)> =
        all(groups).filter_map(|(group, gpu)| Some((group.now(scene, gpu, metric)?, group, gpu))).collect();
    let mut values: Vec<f32> = told.iter().map(|(value, ..)| *value).collect();
    let Some((low, mid, high)) = spread(&mut values) else {
        return format!("{}: nothing is known now", metric.title());
    };
    if told.len() == 1 {
        return format!("{} now: {}", metric.title(), metric.words(low));
    }
    let who = |wanted: f32| {
        let found = told.iter().find(|(value, ..)| *value == wanted);
        found.map(|(_, group, gpu)| group.name(scene, gpu)).unwrap_or_default()
    };
    let silent = all(groups).count() - told.len();
    let silent = if silent > 0 { format!(" · {silent} tell nothing") } else { String::new() };
    format!(
        "{} of {} now: lowest {} ({}) · median {} · highest {}{silent}",
        metric.title(),
        text::count(told.len(), "GPU", "GPUs"),
        metric.words(low),
        who(low),
        metric.words(mid),
        metric.words(high),
    )
}

fn all(groups: &[Group]) -> impl Iterator<Item = (&Group, &Entry)> {
    groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)))
}

/// The menu of metrics.
pub fn metric_menu(time: &Time) -> AnyView {
    let (shown, time) = (time.clone(), time.clone());
    let options = Metric::ALL.map(|metric| {
        let shown = shown.clone();
        view! { <option value=metric.name() selected=lazy(move || shown.metric() == metric)>{metric.title()}</option> }
    });
    view! {
        <select
            class="btn"
            aria-label="What the graphs show"
            on:change=move |event| time.show(Metric::of_name(&event_target_value(&event)).unwrap_or_default())
        >
            {options}
        </select>
    }
    .into_any()
}

/// What the colours and patterns of a heat map mean.
pub fn legend(metric: Memo<Metric>) -> AnyView {
    let ends = move || {
        let (dark, bright) = metric.get().ends();
        format!("{dark} to {bright}")
    };
    view! {
        <p class="legend" aria-hidden="true">
            <span><i class="legend__ramp"></i> {words(ends)}</span>
            <span><i class="legend__gap"></i> "no data"</span>
            <span><i class="legend__failed"></i> "reading failed"</span>
            <span><i class="legend__lack"></i> "not offered by the card"</span>
        </p>
    }
    .into_any()
}

//! What a graph of many GPUs says in words: now, under the cursor, and what its colours mean.

use super::roll::{Entry, Group, is_over};
use super::scope::is_left_out;
use crate::chart::band::spread;
use crate::fleet::Scene;
use crate::metric::Metric;
use crate::page::Page;
use crate::text;
use crate::time::Time;
use leptos::prelude::*;

/// One sentence: what is pointed at, or the lowest, the median and the highest of now, or of the end of what is over.
pub fn summary(
    page: &Page,
    time: &Time,
    scene: &Scene,
    groups: Memo<Vec<Group>>,
    metric: Memo<Metric>,
) -> Signal<String> {
    let (page, time, scene) = (page.clone(), time.clone(), scene.clone());
    // Several read it.
    let words = Memo::new(move |_| {
        groups.with(|groups| {
            pointed(&time, &scene, groups, metric.get())
                .unwrap_or_else(|| now(&scene, groups, metric.get(), page.now_ms()))
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

/// The lowest, the median and the highest of now; of what is over, those of its end.
fn now(scene: &Scene, groups: &[Group], metric: Metric, now_ms: u64) -> String {
    let old = |group: &Group| scene.node(&group.node, |node| is_left_out(node, groups.len(), now_ms));
    let told: Vec<(f32, &Group, &Entry)> = groups
        .iter()
        .filter(|group| old(group) == Some(false))
        .flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)))
        .filter_map(|(group, gpu)| Some((group.now(scene, gpu, metric)?, group, gpu)))
        .collect();
    let values: Vec<f32> = told.iter().map(|(value, ..)| *value).collect();
    let when = if is_over(scene, groups) { "at the end" } else { "now" };
    let name = |at: usize| told[at].1.name(scene, told[at].2);
    said(metric, when, &values, name, all(groups).count() - told.len())
}

/// The sentence of what some GPUs told, and how many told nothing; `name` is asked for the position of the lowest.
fn said(
    metric: Metric,
    when: &str,
    told: &[f32],
    name: impl FnOnce(usize) -> String,
    silent: usize,
) -> String {
    let Some((low, mid, high)) = spread(&mut told.to_vec()) else {
        return format!("{}: nothing is known {when}", metric.title());
    };
    if told.len() == 1 {
        return format!("{} {when}: {}", metric.title(), metric.words(low));
    }
    let who = told.iter().position(|value| *value == low).map(name).unwrap_or_default();
    let silent = if silent > 0 { format!(" · {silent} tell nothing") } else { String::new() };
    format!(
        "{} of {} {when}: lowest {} ({who}) · median {} · highest {}{silent}",
        metric.title(),
        text::count(told.len(), "GPU", "GPUs"),
        metric.words(low),
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
        view! { <option value=metric.name() selected=move || shown.metric() == metric>{metric.title()}</option> }
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
            <span><i class="legend__ramp"></i> {move || ends()}</span>
            <span><i class="legend__gap"></i> "no data"</span>
            <span><i class="legend__failed"></i> "reading failed"</span>
            <span><i class="legend__lack"></i> "not offered by the card"</span>
        </p>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said_of(when: &str, told: &[f32], silent: usize) -> String {
        said(Metric::Util, when, told, |at| format!("n1 GPU {at}"), silent)
    }

    #[test]
    fn what_is_over_is_told_as_it_was_at_the_end_and_not_as_of_now() {
        assert_eq!(said_of("now", &[86.0], 0), "Utilisation now: 86 %");
        assert_eq!(said_of("at the end", &[86.0], 0), "Utilisation at the end: 86 %");
        assert_eq!(said_of("at the end", &[], 2), "Utilisation: nothing is known at the end");
    }

    #[test]
    fn the_lowest_of_many_is_named_and_who_tells_nothing_is_counted() {
        assert_eq!(
            said_of("now", &[97.0, 41.0, 99.0], 2),
            "Utilisation of 3 GPUs now: lowest 41 % (n1 GPU 1) · median 97 % · highest 99 % · 2 tell nothing"
        );
    }
}

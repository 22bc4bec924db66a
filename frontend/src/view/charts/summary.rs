//! Texts and legend for a graph of many GPUs: current values, values under the cursor, meaning of the
//! colours.

use super::gpu_groups::{GpuEntry, NodeGroup, is_over};
use crate::chart::band::spread;
use crate::domain::metric::Metric;
use crate::domain::text;
use crate::fleet::TopicStore;
use crate::state::page::Page;
use crate::state::time::Time;
use crate::view::scope::is_left_out;
use leptos::prelude::*;

/// Returns one sentence: the hovered value, or minimum, median and maximum now or at the end of an ended job.
pub fn summary(
    page: &Page,
    time: &Time,
    store: &TopicStore,
    groups: Memo<Vec<NodeGroup>>,
    metric: Memo<Metric>,
) -> Signal<String> {
    let (page, time, store) = (page.clone(), time.clone(), store.clone());
    // Memoised, because several readers use it.
    let text = Memo::new(move |_| {
        groups.with(|groups| {
            pointed(&time, &store, groups, metric.get())
                .unwrap_or_else(|| now(&store, groups, metric.get(), page.now_ms()))
        })
    });
    text.into()
}

/// Describes the hovered GPU at the cursor.
fn pointed(time: &Time, store: &TopicStore, groups: &[NodeGroup], metric: Metric) -> Option<String> {
    let at_ms = time.cursor()?;
    let gpu_ref = time.highlighted()?;
    let (group, gpu) = all(groups).find(|(group, gpu)| group.gpu_ref(gpu) == gpu_ref)?;
    let value = group.text_at(store, gpu, metric, at_ms);
    Some(format!(
        "{} · {} · {} {value}",
        time.clock(at_ms),
        group.name(store, gpu),
        metric.title().to_lowercase()
    ))
}

/// Describes minimum, median and maximum now; for an ended job, at its end.
fn now(store: &TopicStore, groups: &[NodeGroup], metric: Metric, now_ms: u64) -> String {
    let old = |group: &NodeGroup| store.node(&group.node, |node| is_left_out(node, groups.len(), now_ms));
    let current: Vec<(f32, &NodeGroup, &GpuEntry)> = groups
        .iter()
        .filter(|group| old(group) == Some(false))
        .flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)))
        .filter_map(|(group, gpu)| Some((group.now(store, gpu, metric)?, group, gpu)))
        .collect();
    let values: Vec<f32> = current.iter().map(|(value, ..)| *value).collect();
    let when = if is_over(store, groups) { "at the end" } else { "now" };
    let name = |at: usize| current[at].1.name(store, current[at].2);
    summary_text(metric, when, &values, name, all(groups).count() - values.len())
}

/// Describes the values of some GPUs, and how many have none; `name` receives the position of the lowest.
fn summary_text(
    metric: Metric,
    when: &str,
    values: &[f32],
    name: impl FnOnce(usize) -> String,
    silent: usize,
) -> String {
    let Some((low, mid, high)) = spread(&mut values.to_vec()) else {
        return format!("{}: nothing is known {when}", metric.title());
    };
    if values.len() == 1 {
        return format!("{} {when}: {}", metric.title(), metric.format(low));
    }
    let who = values.iter().position(|value| *value == low).map(name).unwrap_or_default();
    let silent = if silent > 0 { format!(" · {silent} tell nothing") } else { String::new() };
    format!(
        "{} of {} {when}: lowest {} ({who}) · median {} · highest {}{silent}",
        metric.title(),
        text::count(values.len(), "GPU", "GPUs"),
        metric.format(low),
        metric.format(mid),
        metric.format(high),
    )
}

fn all(groups: &[NodeGroup]) -> impl Iterator<Item = (&NodeGroup, &GpuEntry)> {
    groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)))
}

/// The menu of metrics.
pub fn metric_menu(time: &Time) -> AnyView {
    let (shown, time) = (time.clone(), time.clone());
    let options = Metric::all().map(|metric| {
        let shown = shown.clone();
        view! { <option value=metric.name().into_owned() selected=move || shown.metric() == metric>{metric.title()}</option> }
    });
    let options = options.collect_view();
    view! {
        <select
            class="btn"
            aria-label="What the graphs show"
            on:change=move |event| time.set_metric(Metric::from_name(&event_target_value(&event)).unwrap_or_default())
        >
            {options}
        </select>
    }
    .into_any()
}

/// The legend of a heat map's colours and patterns.
pub fn legend(metric: Memo<Metric>) -> AnyView {
    let ends = move || {
        let (dark, bright) = metric.get().scale_labels();
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

    fn summary_of(when: &str, values: &[f32], silent: usize) -> String {
        summary_text(Metric::UTIL, when, values, |at| format!("n1 GPU {at}"), silent)
    }

    #[test]
    fn an_ended_job_is_described_as_of_its_end_and_not_as_of_now() {
        assert_eq!(summary_of("now", &[86.0], 0), "Utilisation now: 86 %");
        assert_eq!(summary_of("at the end", &[86.0], 0), "Utilisation at the end: 86 %");
        assert_eq!(summary_of("at the end", &[], 2), "Utilisation: nothing is known at the end");
    }

    #[test]
    fn the_lowest_of_many_is_named_and_missing_ones_are_counted() {
        assert_eq!(
            summary_of("now", &[97.0, 41.0, 99.0], 2),
            "Utilisation of 3 GPUs now: lowest 41 % (n1 GPU 1) · median 97 % · highest 99 % · 2 tell nothing"
        );
    }
}

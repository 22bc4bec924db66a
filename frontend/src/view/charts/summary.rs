//! Texts and legend for a graph of many GPUs: current values, values under the cursor, meaning of the
//! colours.

use super::colour_map::ShownScale;
use super::gpu_groups::{GpuEntry, NodeGroup, is_over};
use crate::chart::band::spread;
use crate::domain::metric::GraphMetric;
use crate::domain::text;
use crate::fleet::TopicStore;
use crate::state::page::Page;
use crate::state::time::Time;
use crate::view::scope::NodeScope;
use crate::view::scope::is_left_out;
use leptos::prelude::*;

/// Returns one sentence: the hovered value, or minimum, median and maximum now, at the end of an ended job, or at the end
/// of an earlier time range.
pub fn summary(
    page: &Page,
    time: &Time,
    store: &TopicStore,
    groups: Memo<Vec<NodeGroup>>,
    metric: Memo<GraphMetric>,
) -> Signal<String> {
    let (page, time, store) = (page.clone(), time.clone(), store.clone());
    // Memoised, because several readers use it.
    let text = Memo::new(move |_| {
        groups.with(|groups| {
            let (metric, range) = (metric.get(), time.range());
            let overview = || match range.is_live() {
                true => now(&page, &store, groups, metric),
                false => {
                    // Its history may still be loading.
                    page.second.track();
                    at_end(&time, &store, groups, metric, range.end_ms(time.now_ms()))
                }
            };
            pointed(&time, &store, groups, metric).unwrap_or_else(overview)
        })
    });
    text.into()
}

/// Describes the hovered GPU at the cursor.
fn pointed(time: &Time, store: &TopicStore, groups: &[NodeGroup], metric: GraphMetric) -> Option<String> {
    let at_ms = time.cursor()?;
    let gpu_ref = time.highlighted()?;
    let (group, gpu) = all(groups).find(|(group, gpu)| group.gpu_ref(gpu) == gpu_ref)?;
    let value = group.text_at(store, gpu, metric, at_ms);
    Some(format!("{} · {} · {} {value}", time.clock(at_ms), group.name(store, gpu), metric.phrase()))
}

/// Describes minimum, median and maximum now; for an ended job, at its end; without a connection, when it was lost.
fn now(page: &Page, store: &TopicStore, groups: &[NodeGroup], metric: GraphMetric) -> String {
    let now_ms = page.now_ms();
    let old = |group: &NodeGroup| store.node(&group.node, |node| is_left_out(node, groups.len(), now_ms));
    let current = all(groups).filter(|(group, _)| old(group) == Some(false));
    let values = current.filter_map(|(group, gpu)| Some((group.now(store, gpu, metric)?, group, gpu)));
    let when = match (is_over(store, groups), page.feed.is_live()) {
        (true, _) => "at the end",
        (false, true) => "now",
        (false, false) => "when last updated",
    };
    described(store, groups, metric, when, values.collect())
}

/// Describes minimum, median and maximum at the end of a range that no longer follows the clock.
fn at_end(time: &Time, store: &TopicStore, groups: &[NodeGroup], metric: GraphMetric, end_ms: u64) -> String {
    let before_ms = end_ms.saturating_sub(1);
    let values = all(groups)
        .filter_map(|(group, gpu)| Some((group.value_at(store, gpu, metric, before_ms)?, group, gpu)));
    let when = format!("at {}", time.clock(end_ms));
    described(store, groups, metric, &when, values.collect())
}

fn described(
    store: &TopicStore,
    groups: &[NodeGroup],
    metric: GraphMetric,
    when: &str,
    known: Vec<(f32, &NodeGroup, &GpuEntry)>,
) -> String {
    let values: Vec<f32> = known.iter().map(|(value, ..)| *value).collect();
    let name = |at: usize| known[at].1.name(store, known[at].2);
    summary_text(metric, when, &values, name, all(groups).count() - values.len())
}

/// Describes the values of some GPUs, and how many have none; `name` receives the position of the lowest.
fn summary_text(
    metric: GraphMetric,
    when: &str,
    values: &[f32],
    name: impl FnOnce(usize) -> String,
    silent: usize,
) -> String {
    let Some((low, mid, high)) = spread(&mut values.to_vec()) else {
        return format!("{}: no data {when}", metric.title());
    };
    if values.len() == 1 {
        return format!("{} {when}: {}", metric.title(), metric.format(low));
    }
    let silent = if silent > 0 { format!(" · {silent} without data") } else { String::new() };
    if metric == GraphMetric::THROTTLE {
        let throttled = values.iter().filter(|level| metric.is_throttled(**level)).count();
        let who = values.iter().position(|level| metric.is_throttled(*level)).filter(|_| throttled == 1);
        let who = who.map(|at| format!(" ({})", name(at))).unwrap_or_default();
        return format!("Throttled {when}: {throttled} of {}{who}{silent}", gpus(values.len()));
    }
    // Of what is worse the higher it is, the highest is of interest.
    let is_worse_high = matches!(metric, GraphMetric::DEVIATION | GraphMetric::TEMP);
    let extreme = if is_worse_high { high } else { low };
    let who = values.iter().position(|value| *value == extreme).map(name).unwrap_or_default();
    let (of_low, of_high) = if is_worse_high {
        (String::new(), format!(" ({who})"))
    } else {
        (format!(" ({who})"), String::new())
    };
    format!(
        "{} of {} {when}: lowest {}{of_low} · median {} · highest {}{of_high}{silent}",
        metric.title(),
        gpus(values.len()),
        metric.format(low),
        metric.format(mid),
        metric.format(high),
    )
}

fn gpus(count: usize) -> String {
    text::count(count, "GPU", "GPUs")
}

fn all(groups: &[NodeGroup]) -> impl Iterator<Item = (&NodeGroup, &GpuEntry)> {
    groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)))
}

/// The menu of metrics.
pub fn metric_menu(time: &Time, scope: &NodeScope, shown: Memo<GraphMetric>) -> AnyView {
    let (time, scope) = (time.clone(), scope.clone());
    let vendors = Memo::new(move |_| scope.vendors());
    let options = GraphMetric::all().map(|metric| {
        view! { <option value=metric.name().into_owned() selected=move || shown.get() == metric>{move || metric.title_for(vendors.get())}</option> }
    });
    let options = options.collect_view();
    view! {
        <select
            class="btn"
            aria-label="What the graphs show"
            on:change=move |event| time.set_metric(GraphMetric::from_name(&event_target_value(&event)).unwrap_or_default())
        >
            {options}
        </select>
    }
    .into_any()
}

/// Buttons for the few metrics of the overview.
pub fn metric_buttons(time: &Time, shown: Memo<GraphMetric>) -> AnyView {
    let button = |metric: GraphMetric| {
        let time = time.clone();
        let is_shown = move || if shown.get() == metric { "true" } else { "false" };
        let title = if metric == GraphMetric::DEVIATION { "Deviation" } else { metric.title() };
        view! { <button aria-pressed=is_shown title=metric.title() on:click=move |_| time.set_metric(metric)>{title}</button> }
    };
    if GraphMetric::in_overview().count() < 2 {
        return ().into_any();
    }
    let buttons = GraphMetric::in_overview().map(button).collect_view();
    view! { <span class="segments" role="group" aria-label="Metric of the heat map">{buttons}</span> }
        .into_any()
}

/// The legend of a heat map's colours and patterns.
pub fn legend(shown: Memo<ShownScale>) -> AnyView {
    let ramp = move || match shown.get().metric {
        GraphMetric::DEVIATION | GraphMetric::THROTTLE => "legend__ramp legend__ramp--deviation",
        _ => "legend__ramp",
    };
    let not_offered = move || match shown.get().metric {
        GraphMetric::DEVIATION => "not compared",
        _ => "not supported",
    };
    view! {
        <p class="legend" aria-hidden="true">
            <span><i class=ramp></i> {move || scale_text(&shown.get())}</span>
            <span><i class="legend__gap"></i> "no data"</span>
            <span><i class="legend__failed"></i> "reading failed"</span>
            <span><i class="legend__lack"></i> {not_offered}</span>
        </p>
    }
    .into_any()
}

/// Names the ends of a colour scale: in words where it is the whole, else as values.
fn scale_text(shown: &ShownScale) -> String {
    let ShownScale { metric, scale, top } = *shown;
    let (dark, bright) = metric.scale_labels();
    if metric == GraphMetric::DEVIATION || (scale.low() <= 0.0 && scale.high() >= 1.0) {
        return format!("{dark} to {bright}");
    }
    let value = |share: f32| match top {
        Some(top) => metric.format(top * share),
        None => format!("{} %", (share * 100.0).round() as u32),
    };
    // What few GPUs have for a short time may lie outside of an adapted scale.
    let less = if scale.low() > 0.0 { "≤ " } else { "" };
    let more = if scale.high() < 1.0 { "≥ " } else { "" };
    let of = if top.is_some() { "" } else { " of each GPU's maximum" };
    format!("{less}{} to {more}{}{of}", value(scale.low()), value(scale.high()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::ColourScale;

    fn summary_of(when: &str, values: &[f32], silent: usize) -> String {
        summary_text(GraphMetric::UTIL, when, values, |at| format!("n1 GPU {at}"), silent)
    }

    #[test]
    fn an_ended_job_is_described_as_of_its_end_and_not_as_of_now() {
        assert_eq!(summary_of("now", &[86.0], 0), "Utilisation now: 86 %");
        assert_eq!(summary_of("at the end", &[86.0], 0), "Utilisation at the end: 86 %");
        assert_eq!(summary_of("at the end", &[], 2), "Utilisation: no data at the end");
    }

    #[test]
    fn the_lowest_of_many_is_named_and_missing_ones_are_counted() {
        assert_eq!(
            summary_of("now", &[97.0, 41.0, 99.0], 2),
            "Utilisation of 3 GPUs now: lowest 41 % (n1 GPU 1) · median 97 % · highest 99 % · 2 without data"
        );
    }

    #[test]
    fn of_throttled_gpus_the_number_is_given_and_a_single_one_named() {
        let throttled = |values: &[f32]| {
            summary_text(GraphMetric::THROTTLE, "now", values, |at| format!("n1 GPU {at}"), 0)
        };
        assert_eq!(throttled(&[0.0, 100.0, 50.0]), "Throttled now: 1 of 3 GPUs (n1 GPU 1)");
        assert_eq!(throttled(&[100.0, 100.0]), "Throttled now: 2 of 2 GPUs");
        assert_eq!(throttled(&[50.0, 0.0]), "Throttled now: 0 of 2 GPUs");
    }

    #[test]
    fn the_farthest_of_a_deviation_is_named() {
        assert_eq!(
            summary_text(GraphMetric::DEVIATION, "now", &[2.0, 45.0, 3.0], |at| format!("n1 GPU {at}"), 0),
            "Deviation from the job's median of 3 GPUs now: lowest 2 % · median 3 % · highest 45 % (n1 GPU 1)"
        );
    }

    #[test]
    fn the_ends_of_an_adapted_scale_are_values() {
        let text = |metric, scale, top| scale_text(&ShownScale { metric, scale, top });
        let part = ColourScale::WHOLE.adapted(vec![0.85, 0.95]);
        assert_eq!(text(GraphMetric::UTIL, ColourScale::WHOLE, Some(100.0)), "0 % idle to 100 % busy");
        assert_eq!(text(GraphMetric::UTIL, part, Some(100.0)), "≤ 80 % to 100 %");
        assert_eq!(text(GraphMetric::CLOCK, part, Some(1_980.0)), "≤ 1,584 MHz to 1,980 MHz");
        assert_eq!(text(GraphMetric::POWER, part, None), "≤ 80 % to 100 % of each GPU's maximum");
    }
}

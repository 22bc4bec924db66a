//! Throttle lanes: one lane per reason that shows when it applied, for which share of the time, and since
//! when.

use super::gpu_groups::{NodeGroup, history_revision};
use super::graph::loading_text;
use super::plot_area::Cursor;
use crate::chart::{Window, interval_path};
use crate::domain::metric::GraphMetric;
use crate::domain::text;
use crate::domain::throttle::{REASONS, Reason, ThrottleSummary};
use crate::fleet::TopicStore;
use crate::fleet::long_history::LongHistory;
use crate::state::time::Time;
use leptos::prelude::*;
use nodeglass_protocol::GpuField;
use nodeglass_rules::number;

/// A reason and the GPUs it applied to.
#[derive(Clone, PartialEq)]
struct Lane {
    reason: &'static Reason,
    /// Name and occurrences, for each GPU it applied to.
    gpus: Vec<(String, ThrottleSummary)>,
}

/// Throttling in a window.
#[derive(Clone, PartialEq)]
enum Throttling {
    /// The long-term history is on its way.
    Loading,
    /// The reading is missing.
    Unknown,
    /// The reasons that applied; empty if none did.
    Known(Vec<Lane>),
}

/// The lanes of some GPUs, or of the highlighted one.
#[component]
pub fn ThrottleLanes(store: TopicStore, groups: Memo<Vec<NodeGroup>>) -> impl IntoView {
    let time = Time::from_context();
    let window = time.window(Signal::stored(300));
    let throttle_lanes = {
        let time = time.clone();
        let history_revision = history_revision(&store, groups, || GraphMetric::THROTTLE);
        Memo::new(move |_| {
            // Read, not only tracked: a memo that nothing reads does not subscribe to its own sources.
            history_revision.get();
            groups.with(|groups| throttling(&time, &store, groups, &window.get()))
        })
    };
    let feed = time.page().feed.clone();
    let rows = move || {
        let window_now = window.get();
        let none = |text: &'static str| view! { <p class="read-out">{text}</p> }.into_any();
        let all = match throttle_lanes.get() {
            Throttling::Loading => return none(loading_text(feed.is_live())),
            Throttling::Unknown => return none("No data in this time"),
            Throttling::Known(all) if all.is_empty() => return none("No throttling in this time"),
            Throttling::Known(all) => all,
        };
        all.into_iter().map(|lane| row(&lane, &window_now, window, &time)).collect_view().into_any()
    };
    view! {
        <h3 class="caption"><b>"Throttle reasons"</b> " · idle and power cap are normal"</h3>
        <div class="lanes">{move || rows()}</div>
    }
}

fn throttling(time: &Time, store: &TopicStore, groups: &[NodeGroup], window: &Window) -> Throttling {
    let gpu_ref = time.highlighted();
    let gpus = groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)));
    let known = |gpu_ref: &crate::state::time::GpuRef| {
        groups.iter().any(|group| group.gpus.iter().any(|gpu| group.gpu_ref(gpu) == *gpu_ref))
    };
    let gpu_ref = gpu_ref.filter(known);
    let summaries: Vec<(String, Vec<ThrottleSummary>)> = gpus
        .filter(|(group, gpu)| gpu_ref.as_ref().is_none_or(|gpu_ref| group.gpu_ref(gpu) == *gpu_ref))
        .filter_map(|(group, gpu)| Some((gpu.label.clone(), group.throttling(store, gpu, window)?)))
        .collect();
    if summaries.is_empty() {
        let is_loaded = !window.is_long() || store.long_history().covers(GpuField::Throttle, window);
        return if is_loaded { Throttling::Unknown } else { Throttling::Loading };
    }
    let lane = |reason: &'static Reason| {
        let of = |(name, throttle): &(String, Vec<ThrottleSummary>)| {
            throttle
                .iter()
                .find(|throttle| throttle.reason == reason)
                .map(|throttle| (name.clone(), throttle.clone()))
        };
        Lane { reason, gpus: summaries.iter().filter_map(of).collect() }
    };
    Throttling::Known(REASONS.iter().map(lane).filter(|lane| !lane.gpus.is_empty()).collect())
}

fn row(one: &Lane, now: &Window, window: Memo<Window>, time: &Time) -> AnyView {
    let runs: Vec<(u64, u64)> =
        one.gpus.iter().flat_map(|(_, throttle)| throttle.runs.iter().copied()).collect();
    let severity = one.reason.severity();
    let class = if severity.needs_attention() { "lane lane--attention" } else { "lane" };
    view! {
        <div class=class title=one.reason.why>
            <span>{severity.symbol()} " " {one.reason.name}</span>
            <div class="lane__time">
                <svg viewBox="0 0 1000 1" preserveAspectRatio="none" aria-hidden="true"><path d=interval_path(&runs, now)></path></svg>
                <Cursor window/>
            </div>
            <span>{lane_text(one, now, time)}</span>
        </div>
    }
    .into_any()
}

/// Describes which GPUs, for which share of the time, and since when.
fn lane_text(lane: &Lane, window: &Window, time: &Time) -> String {
    let mean =
        lane.gpus.iter().map(|(_, throttle)| throttle.share).sum::<f32>() / lane.gpus.len().max(1) as f32;
    let share = format!("{} of the time", number::percent(f64::from(mean) * 100.0));
    let who = match lane.gpus.as_slice() {
        [(one, _)] => one.clone(),
        many if many.len() <= 3 => many.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
        many => format!("{} GPUs", many.len()),
    };
    let oldest =
        lane.gpus.iter().filter_map(|(_, throttle)| Some((throttle.since_ms?, throttle.or_longer))).min();
    let since = match oldest {
        Some((since_ms, or_longer)) if time.range().is_live() && !time.is_over() => {
            let more = if or_longer { "at least " } else { "" };
            format!(" · active for {more}{}", text::span(window.end_ms().saturating_sub(since_ms) / 1_000))
        }
        Some((since_ms, _)) => format!(" · since {}", time.clock(since_ms)),
        None if time.range().is_live() && !window.is_long() => " · inactive".to_owned(),
        // Whether it applies now is not part of a past range, nor of the long-term history.
        None => {
            let runs = lane.gpus.iter().flat_map(|(_, throttle)| &throttle.runs);
            // The end of a range that follows the clock is loaded with a delay.
            let slack_ms =
                if time.range().is_live() { 2 * window.step_ms() + LongHistory::MAX_AGE_MS } else { 0 };
            let last_ms = runs.map(|(_, end_ms)| *end_ms).max();
            let end_ms = last_ms.filter(|end_ms| end_ms + slack_ms < window.end_ms());
            end_ms.map_or_else(String::new, |end_ms| format!(" · until {}", time.clock(end_ms)))
        }
    };
    format!("{who} · {share}{since}")
}

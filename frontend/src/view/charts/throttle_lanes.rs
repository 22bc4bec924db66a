//! Throttle lanes: one lane per reason that shows when it applied, for which share of the time, and since
//! when.

use super::gpu_groups::{NodeGroup, history_revision};
use super::plot_area::Cursor;
use crate::chart::{Window, interval_path};
use crate::domain::metric::Metric;
use crate::domain::text;
use crate::domain::throttle::{REASONS, Reason, ThrottleSummary, summarize};
use crate::fleet::TopicStore;
use crate::state::time::Time;
use leptos::prelude::*;

/// A reason and the GPUs it applied to.
#[derive(Clone, PartialEq)]
struct Lane {
    reason: &'static Reason,
    /// Name and occurrences, for each GPU it applied to.
    gpus: Vec<(String, ThrottleSummary)>,
}

/// The lanes of some GPUs, or of the highlighted one.
#[component]
pub fn ThrottleLanes(store: TopicStore, groups: Memo<Vec<NodeGroup>>) -> impl IntoView {
    let time = Time::from_context();
    let window = time.window(Signal::stored(300));
    let throttle_lanes = {
        let time = time.clone();
        let history_revision = history_revision(&store, groups, || Metric::THROTTLE);
        Memo::new(move |_| {
            history_revision.track();
            groups.with(|groups| throttle_lanes(&time, &store, groups, &window.get()))
        })
    };
    let rows = move || {
        let (all, window_now) = (throttle_lanes.get(), window.get());
        if all.is_empty() {
            return view! { <p class="read-out">"No throttling in this time."</p> }.into_any();
        }
        all.into_iter().map(|lane| row(&lane, &window_now, window, &time)).collect_view().into_any()
    };
    view! {
        <h3 class="caption"><b>"Throttle reasons"</b> " · idle and power cap are normal"</h3>
        <div class="lanes">{move || rows()}</div>
    }
}

fn throttle_lanes(time: &Time, store: &TopicStore, groups: &[NodeGroup], window: &Window) -> Vec<Lane> {
    let gpu_ref = time.highlighted();
    let gpus = groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)));
    let known = |gpu_ref: &crate::state::time::GpuRef| {
        groups.iter().any(|group| group.gpus.iter().any(|gpu| group.gpu_ref(gpu) == *gpu_ref))
    };
    let gpu_ref = gpu_ref.filter(known);
    let summaries: Vec<(String, Vec<ThrottleSummary>)> = gpus
        .filter(|(group, gpu)| gpu_ref.as_ref().is_none_or(|gpu_ref| group.gpu_ref(gpu) == *gpu_ref))
        .filter_map(|(group, gpu)| {
            let throttle = if window.is_long() {
                group.long_throttling(store, gpu, window)
            } else {
                group.with_history(store, gpu, Metric::THROTTLE, |_, trace| {
                    summarize(trace, window.start_ms(), window.end_ms())
                })
            };
            Some((gpu.label.clone(), throttle?))
        })
        .collect();
    let lane = |reason: &'static Reason| {
        let of = |(name, throttle): &(String, Vec<ThrottleSummary>)| {
            throttle
                .iter()
                .find(|throttle| throttle.reason == reason)
                .map(|throttle| (name.clone(), throttle.clone()))
        };
        Lane { reason, gpus: summaries.iter().filter_map(of).collect() }
    };
    REASONS.iter().map(lane).filter(|lane| !lane.gpus.is_empty()).collect()
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
    let share = match (mean * 100.0).round() as u32 {
        0 => "below 1 % of the time".to_owned(),
        share => format!("{share} % of the time"),
    };
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
        None if time.range().is_live() => " · inactive".to_owned(),
        // Whether it applies now is not part of a past range.
        None => {
            let runs = lane.gpus.iter().flat_map(|(_, throttle)| &throttle.runs);
            let end_ms = runs.map(|(_, end_ms)| *end_ms).max().filter(|end_ms| *end_ms < window.end_ms());
            end_ms.map_or_else(String::new, |end_ms| format!(" · until {}", time.clock(end_ms)))
        }
    };
    format!("{who} · {share}{since}")
}

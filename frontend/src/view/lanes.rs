//! Why clocks were held down: a lane a reason, when it held, for how much of the time, and since when.

use super::roll::Group;
use super::stage::Cursor;
use crate::chart::{Window, lane};
use crate::fleet::Scene;
use crate::metric::Metric;
use crate::text;
use crate::throttle::{Held, REASONS, Reason, held};
use crate::time::Time;
use leptos::prelude::*;

/// A reason and the GPUs that it held.
#[derive(Clone, PartialEq)]
struct Lane {
    reason: &'static Reason,
    /// Of each GPU that it held: its name, and when.
    gpus: Vec<(String, Held)>,
}

/// The lanes of some GPUs, or of the one that stands out.
#[component]
pub fn Lanes(scene: Scene, groups: Memo<Vec<Group>>) -> impl IntoView {
    let time = Time::here();
    let window = time.window(Signal::stored(300));
    let lanes = {
        let time = time.clone();
        Memo::new(move |_| {
            groups.with(|groups| groups.iter().for_each(|group| group.node.past().track()));
            groups.with(|groups| lanes(&time, &scene, groups, &window.get()))
        })
    };
    let rows = move || {
        let (all, window_now) = (lanes.get(), window.get());
        if all.is_empty() {
            return view! { <p class="read-out">"No reason for lower clocks in this time."</p> }.into_any();
        }
        all.into_iter().map(|lane| row(&lane, &window_now, window, &time)).collect_view().into_any()
    };
    view! {
        <h3 class="caption"><b>"Why clocks are lower"</b> " · idle and the power limit are part of healthy work"</h3>
        <div class="lanes">{move || rows()}</div>
    }
}

fn lanes(time: &Time, scene: &Scene, groups: &[Group], window: &Window) -> Vec<Lane> {
    let pick = time.pick();
    let gpus = groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)));
    let known = |pick: &crate::time::Pick| {
        groups.iter().any(|group| group.gpus.iter().any(|gpu| group.pick(gpu) == *pick))
    };
    let pick = pick.filter(known);
    let told: Vec<(String, Vec<Held>)> = gpus
        .filter(|(group, gpu)| pick.as_ref().is_none_or(|pick| group.pick(gpu) == *pick))
        .filter_map(|(group, gpu)| {
            let held = group.past(scene, gpu, Metric::Throttle, |_, trace| {
                held(trace, window.start_ms(), window.end_ms())
            });
            Some((gpu.label.clone(), held?))
        })
        .collect();
    let lane = |reason: &'static Reason| {
        let of = |(name, held): &(String, Vec<Held>)| {
            held.iter().find(|held| held.reason == reason).map(|held| (name.clone(), held.clone()))
        };
        Lane { reason, gpus: told.iter().filter_map(of).collect() }
    };
    REASONS.iter().map(lane).filter(|lane| !lane.gpus.is_empty()).collect()
}

fn row(one: &Lane, now: &Window, window: Memo<Window>, time: &Time) -> AnyView {
    let runs: Vec<(u64, u64)> = one.gpus.iter().flat_map(|(_, held)| held.runs.iter().copied()).collect();
    let class = if one.reason.is_normal { "lane" } else { "lane lane--bad" };
    view! {
        <div class=class title=one.reason.why>
            <span>{if one.reason.is_normal { "" } else { "▲ " }} {one.reason.name}</span>
            <div class="lane__time">
                <svg viewBox="0 0 1000 1" preserveAspectRatio="none" aria-hidden="true"><path d=lane(&runs, now)></path></svg>
                <Cursor window/>
            </div>
            <span>{said(one, now, time)}</span>
        </div>
    }
    .into_any()
}

/// Who, for how much of the time, and since when.
fn said(lane: &Lane, window: &Window, time: &Time) -> String {
    let mean = lane.gpus.iter().map(|(_, held)| held.share).sum::<f32>() / lane.gpus.len().max(1) as f32;
    let share = match (mean * 100.0).round() as u32 {
        0 => "below 1 % of the time".to_owned(),
        share => format!("{share} % of the time"),
    };
    let who = match lane.gpus.as_slice() {
        [(one, _)] => one.clone(),
        many if many.len() <= 3 => many.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
        many => format!("{} GPUs", many.len()),
    };
    let oldest = lane.gpus.iter().filter_map(|(_, held)| Some((held.since_ms?, held.or_longer))).min();
    let since = match oldest {
        Some((since_ms, or_longer)) if time.range().is_live() => {
            let more = if or_longer { "at least " } else { "" };
            format!(
                " · holds now, for {more}{}",
                text::span(window.end_ms().saturating_sub(since_ms) / 1_000)
            )
        }
        Some((since_ms, _)) => format!(" · since {}", time.clock(since_ms)),
        None => " · not now".to_owned(),
    };
    format!("{who} · {share}{since}")
}

//! A graph draws the lines of some GPUs over time, and the one that is pointed at stands out.

use super::plot::Plot;
use super::plot_paint::paint;
use super::roll::{Group, pasts};
use super::stage::{Hands, Stage};
use super::time_bar::TimeAxis;
use crate::browser::Observer;
use crate::chart::value_ticks;
use crate::fleet::Scene;
use crate::metric::Metric;
use crate::text;
use crate::time::Time;
use leptos::html::Canvas;
use leptos::prelude::*;
use std::sync::Arc;

/// A plot that is made of the one before.
pub type Plots = Memo<Plot>;

/// The plot of some GPUs, which goes on when a step passes.
pub fn plot_of(
    time: &Time,
    scene: &Scene,
    groups: Memo<Vec<Group>>,
    metric: Memo<Metric>,
    most: usize,
) -> Plots {
    let (window, scene) = (time.window(Signal::stored(most)), scene.clone());
    let pasts = pasts(groups);
    Memo::new_owning(move |before| {
        groups.with(|groups| Plot::of(before, &scene, groups, metric.get(), window.get(), pasts.get()))
    })
}

/// Lines over time with their scale at the left.
#[component]
pub fn Graph(
    /// The lines.
    plot: Plots,
    /// What they are of.
    metric: Memo<Metric>,
    /// What they say, for who cannot see them.
    #[prop(into)]
    label: Signal<String>,
    /// The token of their colour.
    hue: &'static str,
    /// Height in pixels.
    #[prop(default = 96)]
    height: u32,
) -> impl IntoView {
    let (time, canvas) = (Time::here(), NodeRef::<Canvas>::new());
    let window = Memo::new(move |_| plot.with(|plot| plot.window));
    let size = RwSignal::new((0, 0));
    let sizes = StoredValue::new_local(None);
    Effect::new(move || {
        let Some(canvas) = canvas.get() else { return };
        let seen = canvas.clone();
        let measure = move || size.set((seen.client_width(), seen.client_height()));
        sizes.set_value(Observer::sizes(&canvas, measure));
    });
    let drawn = time.clone();
    Effect::new(move || {
        let (Some(canvas), size) = (canvas.get(), size.get()) else { return };
        drawn.follow_looks();
        let pick = drawn.pick();
        plot.with(|plot| paint(&canvas, size, plot, pick.as_ref(), hue));
    });
    let ticks = move || {
        let top = plot.with(|plot| plot.top);
        let tick = |tick: f32| {
            let bottom = format!("{}%", tick / top * 100.0);
            view! { <span class="graph__tick" style:bottom=bottom>{short(metric.get(), tick)}</span> }
        };
        value_ticks(top).into_iter().map(tick).collect_view()
    };
    view! {
        <div class="graph">
            <Title plot metric/>
            <div class="graph__ticks" aria-hidden="true">{move || ticks()}</div>
            <Stage label window hands=hands(&time, plot, height)>
                <canvas node_ref=canvas style:height=format!("{height}px")></canvas>
            </Stage>
            <TimeAxis/>
        </div>
    }
}

/// What is shown, and what was read where the cursor is, or of now.
#[component]
fn Title(plot: Plots, metric: Memo<Metric>) -> impl IntoView {
    let time = Time::here();
    let sentence = move || {
        let metric = metric.get();
        let (cursor, pick) = (time.cursor(), time.pick());
        plot.with(|plot| {
            let step = cursor.and_then(|at_ms| plot.window.step_of(at_ms));
            let (at, at_end) = step.map_or_else(|| plot.newest(), |step| (step, false));
            let told = |values: &[Option<f32>]| match values.get(at).copied().flatten() {
                Some(value) => metric.words(value),
                None => "no data".to_owned(),
            };
            let picked = pick.and_then(|pick| {
                plot.line_of(&pick).map(|(_, line)| format!("{} {}", line.name, told(&line.values)))
            });
            let all = match (&plot.band, plot.lines.as_slice()) {
                (Some(band), _) if band.mid.get(at).is_none_or(Option::is_none) => Some("no data".to_owned()),
                (Some(band), _) => {
                    Some(format!("median {}, {} to {}", told(&band.mid), told(&band.low), told(&band.high)))
                }
                (None, [one]) => Some(told(&one.values)),
                (None, [one, other]) => Some(format!("{} and {}", told(&one.values), told(&other.values))),
                (None, _) => None,
            };
            let said = [picked, all].into_iter().flatten().collect::<Vec<_>>().join(" · ");
            if at_end { format!("at the end: {said}") } else { said }
        })
    };
    view! {
        <div class="graph__title"><b>{move || metric.get().title()}</b> " " {move || sentence()}</div>
    }
}

/// A value of the scale, as short as it can be said.
fn short(metric: Metric, value: f32) -> String {
    match metric {
        Metric::Throttle => String::new(),
        Metric::Memory => format!("{} G", value.round() as u64),
        // There is no room for a unit; the title has it.
        Metric::Clock => text::grouped(value.round() as u64),
        _ => metric.words(value),
    }
}

fn hands(time: &Time, plot: Plots, height: u32) -> Hands {
    let (over, left, down, open) = (time.clone(), time.clone(), time.clone(), time.clone());
    Hands {
        over: Arc::new(move |step, y| {
            let share = 1.0 - (y as f32 / height as f32).clamp(0.0, 1.0);
            let pick = plot
                .with_untracked(|plot| plot.nearest(step, share * plot.top).map(|line| line.pick.clone()));
            over.point_at_gpu(pick);
        }),
        left: Arc::new(move || left.point_at_gpu(None)),
        down: Arc::new(move |by| {
            let pick = untrack(|| down.pick());
            let next = plot.with_untracked(|plot| {
                let here = pick.and_then(|pick| plot.line_of(&pick).map(|(at, _)| at));
                let last = plot.lines.len().saturating_sub(1);
                let at = here.map_or(0, |here| here.saturating_add_signed(by).min(last));
                plot.lines.get(at).map(|line| line.pick.clone())
            });
            down.point_at_gpu(next);
        }),
        open: Arc::new(move || open.choose(untrack(|| open.pick()))),
    }
}

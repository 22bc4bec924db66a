//! The time bar: the time range that the graphs show, and controls to change it.

use super::plot_area::apply_step;
use crate::chart::{Limit, Range, RangeStep, time_ticks};
use crate::domain::compared::{Compared, Part};
use crate::domain::route::Route;
use crate::domain::text;
use crate::platform;
use crate::state::page::Page;
use crate::state::time::Time;
use crate::view::widgets::menu::Menu;
use leptos::html::Div;
use leptos::prelude::*;
use nodeglass_protocol::replay::ReplayStatus;
use nodeglass_protocol::{GpuField, JobId};
use std::sync::Arc;

/// The time bar.
#[component]
pub fn TimeBar() -> impl IntoView {
    let (time, page) = (Time::from_context(), Page::from_context());
    let range = {
        let time = time.clone();
        Memo::new(move |_| time.range())
    };
    let chosen = {
        let time = time.clone();
        Memo::new(move |_| time.chosen_range())
    };
    let is_default = Memo::new(move |_| chosen.get() == Range::default());
    let sentence = range_sentence(&page, &time, range);
    let menu = {
        let (page, time, open) = (page.clone(), time.clone(), RwSignal::new(false));
        let limits = limits(&page, &time, range);
        let inside = Arc::new(move || menu_items(&page, &time, limits, open));
        view! { <Menu title="⋯" about="Add a note, step through time, or zoom" open inside/> }
    };
    view! {
        <div class="time-bar" class:time-bar--paused=move || !range.get().is_live()>
            <span class="time-bar__text" role="status" title=sentence>{sentence}</span>
            <span class="time-bar__back">
                {live_button(&page, &time, range)} {compare_button(&page, &time, range, is_default)} {reset_button(&time, is_default)}
            </span>
            <span class="time-bar__turns">
                <span class="segments" role="group" aria-label="Time range">{presets(&time, chosen)}</span>
                {menu}
            </span>
        </div>
        <div role="status">{storage_problem(&page)}</div>
    }
}

/// The sentence about a long-term storage that could not be read.
fn storage_problem(page: &Page) -> impl Fn() -> Option<AnyView> + use<> {
    let fleet = page.fleet.clone();
    let problem = Memo::new(move |_| {
        let store = fleet.detail().unwrap_or_else(|| fleet.overview().clone());
        store.long_history().problem()
    });
    move || problem.get().map(|text| view! { <p class="time-bar__problem">{text.to_string()}</p> }.into_any())
}

/// Returns which time the graphs show, updated once a second.
fn range_sentence(page: &Page, time: &Time, range: Memo<Range>) -> Memo<String> {
    let (time, page, replay) = (time.clone(), page.clone(), page.replay());
    Memo::new(move |_| {
        let (range, span) = (range.get(), text::exact_span(range.get().span_ms() / 1_000));
        page.second.track();
        let now_ms = time.now_ms();
        let (start_ms, end_ms) = (range.start_ms(now_ms), range.end_ms(now_ms));
        // The day matters once the range is not today's, and the time of day unless it is longer than a week.
        let most_s = range.span_ms().max(Range::WEEK_MS) / 1_000;
        let days_s = (now_ms.saturating_sub(start_ms) / 1_000).min(most_s);
        let (start, end) = (time.axis_text(start_ms, days_s), time.axis_text(end_ms, days_s));
        match (range.is_live(), time.is_over()) {
            (true, false) if !page.feed.is_live() => format!("Stopped at {end} · {span} until then"),
            (true, false) => format!("{} · last {span}", source_text(replay.get().as_ref())),
            (true, true) => format!("Ended · last {span}, {start}–{end}"),
            (false, true) => format!("Ended · {start}–{end}, {span}"),
            (false, false) => format!("Paused · {start}–{end}, {span}"),
        }
    })
}

/// The button back to the current time. Like [`reset_button`], it is always there, so that nothing moves when the range
/// changes.
fn live_button(page: &Page, time: &Time, range: Memo<Range>) -> AnyView {
    let (time, replay) = (time.clone(), page.replay());
    let is_live = Memo::new(move |_| range.get().is_live());
    let label = move || if replay.with(Option::is_some) { "Follow recording" } else { "Back to live" };
    view! {
        <button class="btn btn--primary" title="Follow the current time again" aria-disabled=move || is_live.get().to_string()
            tabindex=move || is_live.get().then_some("-1") on:click=move |_| time.zoom(|range, _| range.live())>{label}</button>
    }
    .into_any()
}

/// The button back to the last ten minutes.
fn reset_button(time: &Time, is_default: Memo<bool>) -> AnyView {
    let time = time.clone();
    view! {
        <button class="btn" title="Show the last 10 min: 0, or double-click" aria-disabled=move || is_default.get().to_string()
            tabindex=move || is_default.get().then_some("-1") on:click=move |_| time.zoom(|_, _| Range::default())>"Reset zoom"</button>
    }
    .into_any()
}

/// The button that compares the shown time of the job, if the page shows one.
fn compare_button(
    page: &Page,
    time: &Time,
    range: Memo<Range>,
    is_default: Memo<bool>,
) -> impl Fn() -> Option<AnyView> + use<> {
    let (page, time) = (page.clone(), time.clone());
    move || {
        let job = page.route.get().job()?;
        let (page, time) = (page.clone(), time.clone());
        let open = move |_| {
            if !is_default.get_untracked() {
                let part = shown_part(&page, &time, range, job);
                page.address.navigate(Route::Compare(vec![Compared { job, part }]));
            }
        };
        let button = view! {
            <button class="btn" title="Compare this time with another one, or with another job" aria-disabled=move || is_default.get().to_string()
                tabindex=move || is_default.get().then_some("-1") on:click=open>
                "Compare"
            </button>
        };
        Some(button.into_any())
    }
}

/// Returns the part of a job's run that the graphs show; does not subscribe.
fn shown_part(page: &Page, time: &Time, range: Memo<Range>, job: JobId) -> Option<Part> {
    let (range, now_ms) = (range.get_untracked(), time.now_ms());
    let [from_s, to_s] = [range.start_ms(now_ms), range.end_ms(now_ms)].map(|at_ms| time.wall_s(at_ms));
    let listed = page.jobs.with_untracked(|jobs| jobs.iter().find(|one| one.id == job).cloned());
    let run = listed.and_then(|job| Part::new(job.start?, job.ended.unwrap_or(to_s)));
    let shown = Part::new(from_s, to_s);
    shown.and_then(|shown| run.map_or(Some(shown), |run| shown.within(run)))
}

/// The buttons of the lengths that are possible.
fn presets(time: &Time, chosen: Memo<Range>) -> impl Fn() -> Vec<AnyView> + use<> {
    let time = time.clone();
    let longest_ms = {
        let time = time.clone();
        Memo::new(move |_| time.longest_ms())
    };
    move || {
        let possible = Range::PRESETS_MS.into_iter().filter(|span_ms| *span_ms <= longest_ms.get());
        possible.map(|span_ms| preset(&time, chosen, span_ms)).collect()
    }
}

/// The button that shows the last `span_ms`.
fn preset(time: &Time, chosen: Memo<Range>, span_ms: u64) -> AnyView {
    let (time, span) = (time.clone(), text::span(span_ms / 1_000));
    let is_chosen = move || chosen.get() == Range::last(span_ms);
    view! {
        <button
            title=format!("Show the last {span}")
            aria-pressed=move || if is_chosen() { "true" } else { "false" }
            on:click=move |_| time.zoom(|_, _| Range::last(span_ms))
        >
            {span.clone()}
        </button>
    }
    .into_any()
}

/// The items of the menu: what has a key as well, and is done less often than choosing a range.
fn menu_items(page: &Page, time: &Time, limits: Memo<[Option<String>; 4]>, open: RwSignal<bool>) -> AnyView {
    let note = page.may_note().then(|| {
        let page = page.clone();
        let draft = move |_| {
            open.set(false);
            page.draft_note(None);
        };
        view! {
            <button class="menu__item" title="At the newest time, or right-click in a graph" on:click=draft>
                "Add note" <kbd>"m"</kbd>
            </button>
        }
        .into_any()
    });
    let step = |index: usize| {
        let (time, (step, what, key)) = (time.clone(), STEPS[index]);
        let limit = move || limits.with(|limits| limits[index].clone());
        // A disabled button would lose the focus, and cannot be asked why. The menu stays open for further steps.
        view! {
            <button
                class="menu__item"
                title=limit
                aria-disabled=move || if limit().is_some() { "true" } else { "false" }
                on:click=move |_| if untrack(limit).is_none() { apply_step(&time, step) }
            >
                {what} <kbd>{key}</kbd>
            </button>
        }
        .into_any()
    };
    view! { {note} {[0, 1, 2, 3].map(step)} }.into_any()
}

/// Describes the source of the newest readings.
fn source_text(replay: Option<&ReplayStatus>) -> &'static str {
    match replay.map(|replay| replay.speed_pct) {
        None => "Live",
        Some(0) => "Recording, paused",
        Some(_) => "Recording",
    }
}

/// The steps: what they do, and their keys.
const STEPS: [(RangeStep, &str, &str); 4] = [
    (RangeStep::Earlier, "Earlier", "["),
    (RangeStep::Later, "Later", "]"),
    (RangeStep::Wider, "Zoom out", "-"),
    (RangeStep::Narrower, "Zoom in", "+"),
];

/// Returns why each of [`STEPS`] would change nothing, updated once a second.
fn limits(page: &Page, time: &Time, range: Memo<Range>) -> Memo<[Option<String>; 4]> {
    let (page, time) = (page.clone(), time.clone());
    let history_ms = {
        let page = page.clone();
        Memo::new(move |_| {
            page.second.track();
            history_ms(&page)
        })
    };
    Memo::new(move |_| {
        page.second.track();
        let (now_ms, is_over, range) = (time.now_ms(), time.is_over(), range.get());
        STEPS.map(|(step, ..)| {
            let longest_ms = time.longest_ms();
            // What the relay has itself does not limit what a storage has.
            let history_ms = history_ms.get().filter(|_| longest_ms <= Range::WEEK_MS);
            let limit = range.limit(step, now_ms, longest_ms, history_ms)?;
            Some(limit_text(limit, now_ms, is_over))
        })
    })
}

/// Returns when the known history of the page's nodes begins, in ms of the relay's clock; does not subscribe.
fn history_ms(page: &Page) -> Option<u64> {
    let store = untrack(|| page.fleet.detail()).unwrap_or_else(|| page.fleet.overview().clone());
    if let Some(begins_ms) = untrack(|| store.long_history().begins_ms()) {
        return Some(begins_ms);
    }
    let recent_ms = store.read(|picture| {
        let first = |node: &nodeglass_protocol::picture::NodePicture| {
            let trace = node.history.as_ref()?.gpu(0, GpuField::Util)?;
            trace.points().find(|(_, cell)| cell.is_some()).map(|(at_ms, _)| at_ms)
        };
        picture.nodes.iter().filter_map(first).min()
    });
    // A full recent history says nothing about what was before.
    recent_ms.filter(|begins_ms| begins_ms + Range::RECENT_MS > page.now_ms() + 2_000)
}

fn limit_text(limit: Limit, now_ms: u64, is_over: bool) -> String {
    match limit {
        Limit::Live if is_over => "The graphs end with the job".to_owned(),
        Limit::Live => "Already live".to_owned(),
        Limit::HistoryBegins(at_ms) => {
            let before = text::span(now_ms.saturating_sub(at_ms) / 1_000);
            format!("History began {before} {}", if is_over { "before the end" } else { "ago" })
        }
        Limit::Longest(longest_ms) => format!("The longest range is {}", text::span(longest_ms / 1_000)),
        Limit::Shortest => format!("The shortest range is {}", text::span(Range::SHORTEST_MS / 1_000)),
    }
}

/// Least distance of two labels of a time axis in CSS pixels: durations, and times of day.
const LABEL_PX: [f64; 2] = [84.0, 130.0];

/// Most labels besides the one at the end: more say nothing new.
const MAX_LABELS: usize = 6;

/// The time axis of a graph: relative while it follows the current time, by the clock otherwise, and dates beyond a week.
#[component]
pub fn TimeAxis() -> impl IntoView {
    let (time, axis) = (Time::from_context(), NodeRef::<Div>::new());
    let (room, resized) = (RwSignal::new(0.0), time.clone());
    platform::effect(move || {
        resized.width();
        axis.get().into_iter().for_each(|axis| room.set(platform::bounding_rect(&axis)[2]));
    });
    let ticks = move || {
        let range = time.range();
        let now_ms = time.now_ms();
        let span_s = range.span_ms() / 1_000;
        let most = ((room.get() / LABEL_PX[usize::from(!range.is_live())]) as usize).min(MAX_LABELS);
        let tick = |before: u64| {
            let left = format!("{}%", 100 - before * 100 / span_s);
            // Labels at both ends stay inside.
            let shift = match before {
                0 => "translateX(-100%)",
                before if before * 20 >= span_s * 19 => "none",
                _ => "translateX(-50%)",
            };
            let text = if range.is_live() {
                if before == 0 {
                    let is_over = time.is_over() || !time.page().feed.is_live();
                    if is_over { "end" } else { "now" }.to_owned()
                } else if range.span_ms() > Range::WEEK_MS {
                    time.axis_text(now_ms.saturating_sub(before * 1_000), span_s)
                } else {
                    format!("−{}", text::exact_span(before))
                }
            } else {
                time.axis_text(range.end_ms(now_ms).saturating_sub(before * 1_000), span_s)
            };
            view! { <span style:left=left style:transform=shift>{text}</span> }
        };
        time_ticks(span_s, most).into_iter().map(tick).collect_view()
    };
    view! { <div class="axis" aria-hidden="true" node_ref=axis>{move || ticks()}</div> }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_ticks_of_an_axis_have_the_same_text() {
        for span_s in [
            30, 45, 75, 90, 100, 179, 600, 1_000, 3_600, 5_000, 21_600, 100_000, 604_800, 2_592_000,
            31_622_400,
        ] {
            for most in [2, 3, 5, 8] {
                let mut texts: Vec<_> = time_ticks(span_s, most).into_iter().map(text::exact_span).collect();
                let all = texts.len();
                texts.dedup();
                assert_eq!(texts.len(), all, "{span_s} s with {most} labels: {texts:?}");
            }
        }
    }

    #[test]
    fn a_paused_recording_is_not_live() {
        let of = |speed_pct| source_text(Some(&ReplayStatus { speed_pct, ..ReplayStatus::default() }));
        assert_eq!([of(0), of(100), source_text(None)], ["Recording, paused", "Recording", "Live"]);
    }

    #[test]
    fn a_button_without_effect_says_why() {
        let text = |limit, is_over| limit_text(limit, 700_000, is_over);
        assert_eq!(text(Limit::HistoryBegins(662_000), false), "History began 38 s ago");
        assert_eq!(text(Limit::HistoryBegins(100_000), true), "History began 10 min before the end");
        assert_eq!(text(Limit::Longest(Range::WEEK_MS), false), "The longest range is 7 d");
        assert_ne!(text(Limit::Live, false), text(Limit::Live, true));
    }
}

//! The time bar: the time range that the graphs show, and controls to change it.

use super::plot_area::handle_key;
use crate::chart::time_ticks;
use crate::domain::text;
use crate::state::page::Page;
use crate::state::time::Time;
use leptos::prelude::*;

/// The time bar.
#[component]
pub fn TimeBar() -> impl IntoView {
    let (time, page) = (Time::from_context(), Page::from_context());
    let live = {
        let time = time.clone();
        Memo::new(move |_| time.range().is_live())
    };
    let sentence = {
        let time = time.clone();
        move || {
            let (range, now_ms) = (time.range(), page.now_ms());
            let span = text::span(range.span_ms() / 1_000);
            if range.is_live() && !page.feed.is_live() {
                return format!("Stopped at {} · {span} until then", time.clock(now_ms));
            }
            if range.is_live() {
                return format!("Live · last {span}");
            }
            let (start_ms, end_ms) = (range.start_ms(now_ms), range.end_ms(now_ms));
            let ago = text::span(now_ms.saturating_sub(end_ms) / 1_000);
            format!("Paused · {}–{}, {span} until {ago} ago", time.clock(start_ms), time.clock(end_ms))
        }
    };
    let back = {
        let time = time.clone();
        move || {
            let time = time.clone();
            (!live.get()).then(move || {
                view! { <button class="btn btn--primary" on:click=move |_| time.set_range(|range, _| range.live())>"Back to live"</button> }.into_any()
            })
        }
    };
    let turn = |key: &'static str, sign: &'static str, title: &'static str| {
        let time = time.clone();
        view! { <button class="btn" title=title aria-label=title on:click=move |_| { handle_key(&time, key); }>{sign}</button> }
    };
    view! {
        <div class="time-bar" class:time-bar--paused=move || !live.get()>
            <span role="status">{move || sentence()}</span>
            {move || back()}
            <span class="time-bar__turns">
                {turn("[", "‹", "earlier: [")}
                {turn("]", "›", "later: ]")}
                {turn("-", "−", "more time: -")}
                {turn("+", "+", "less time: +")}
                {turn("0", "10 min", "the last 10 min, live: 0")}
            </span>
        </div>
    }
}

/// The time axis of a graph: relative while it follows the current time, by the clock otherwise.
#[component]
pub fn TimeAxis(
    /// Maximum number of labels.
    #[prop(default = 5)]
    most: usize,
) -> impl IntoView {
    let time = Time::from_context();
    let ticks = move || {
        let range = time.range();
        let now_ms = time.now_ms();
        let span_s = range.span_ms() / 1_000;
        // A clock needs more space than a duration.
        let most = if range.is_live() { most } else { most.div_ceil(2) };
        let most = if time.width() > 760.0 { most } else { most.min(3) };
        let tick = |before: u64| {
            let left = format!("{}%", 100 - before * 100 / span_s);
            // Labels at both ends stay inside.
            let shift = match before {
                0 => "translateX(-100%)",
                before if before == span_s => "none",
                _ => "translateX(-50%)",
            };
            let text = if range.is_live() {
                if before == 0 { "now".to_owned() } else { format!("−{}", text::span(before)) }
            } else {
                time.clock(range.end_ms(now_ms).saturating_sub(before * 1_000))
            };
            view! { <span style:left=left style:transform=shift>{text}</span> }
        };
        time_ticks(span_s, most).into_iter().map(tick).collect_view()
    };
    view! { <div class="axis" aria-hidden="true">{move || ticks()}</div> }
}

//! Controls of a recording that is being played: pause, speed and position.

use crate::domain::playback::{SPEEDS_PCT, position_text, speed_text};
use crate::platform;
use crate::state::page::Page;
use crate::view::widgets::actions;
use leptos::prelude::*;
use nodeglass_protocol::replay::{REAL_TIME_PCT, ReplayCommand, ReplayStatus};
use nodeglass_protocol::request::{Request, Response};

/// The controls; nothing for a live cluster. A guest sees where the recording is.
#[component]
pub fn Transport() -> impl IntoView {
    let page = Page::from_context();
    let status = page.replay();
    let exists = Memo::new(move |_| status.with(Option::is_some));
    move || exists.get().then(|| controls(&page, status))
}

fn controls(page: &Page, status: Memo<Option<ReplayStatus>>) -> AnyView {
    let read = move || status.get().unwrap_or_default();
    // While the slider is dragged, it stays where the pointer is.
    let dragged = RwSignal::new(None::<u64>);
    // What plays again after a pause.
    let speed_pct = RwSignal::new(REAL_TIME_PCT);
    Effect::new(move || match read().speed_pct {
        0 => {}
        playing => speed_pct.set(playing),
    });
    let at_ms = {
        let page = page.clone();
        move || {
            let ReplayStatus { from_ms, to_ms, .. } = read();
            dragged.get().unwrap_or_else(|| page.now_ms()).clamp(from_ms, to_ms.max(from_ms))
        }
    };
    let position = {
        let (page, at_ms) = (page.clone(), at_ms.clone());
        move || {
            let ReplayStatus { from_ms, to_ms, .. } = read();
            let ahead_s = (at_ms().cast_signed() - page.now_ms().cast_signed()) / 1_000;
            let day = platform::clock_of_day(page.wall_s() + ahead_s);
            format!(
                "{day} · {}",
                position_text(at_ms().saturating_sub(from_ms), to_ms.saturating_sub(from_ms))
            )
        }
    };
    let cut_short = move || {
        read().is_cut_short.then(|| {
            view! { <span class="foot__stale" title="The rest of the file is damaged or incomplete">"◆ incomplete file"</span> }
        })
    };
    let is_owner = page.is_owner();
    let buttons = is_owner.then(|| {
        let (toggle, choose) = (page.clone(), page.clone());
        let is_paused = move || read().speed_pct == 0;
        let option = move |speed: u32| {
            view! { <option value=speed.to_string() selected=move || speed_pct.get() == speed>{speed_text(speed)}</option> }
        };
        view! {
            <button class="btn transport__play" aria-label=move || if is_paused() { "Play" } else { "Pause" }
                on:click=move |_| {
                    let speed = if is_paused() { speed_pct.get_untracked() } else { 0 };
                    send(toggle.clone(), ReplayCommand::Speed(speed));
                }>{move || if is_paused() { "▶\u{fe0e}" } else { "❚❚" }}</button>
            <select class="btn transport__speed" aria-label="Speed"
                on:change=move |event| {
                    let chosen = event_target_value(&event).parse().unwrap_or(REAL_TIME_PCT);
                    speed_pct.set(chosen);
                    if !is_paused() {
                        send(choose.clone(), ReplayCommand::Speed(chosen));
                    }
                }>{SPEEDS_PCT.map(option).collect_view()}</select>
        }
        .into_any()
    });
    let slider = {
        let page = page.clone();
        let value = at_ms.clone();
        view! {
            <input class="transport__slider" type="range" aria-label="Position" disabled=!is_owner
                min=move || read().from_ms.to_string() max=move || read().to_ms.to_string() step="1000"
                prop:value=move || value().to_string()
                on:input=move |event| dragged.set(event_target_value(&event).parse().ok())
                on:change=move |event| {
                    if let Ok(at_ms) = event_target_value(&event).parse() {
                        send_then(page.clone(), ReplayCommand::Seek(at_ms), move || dragged.set(None));
                    }
                }/>
        }
        .into_any()
    };
    view! {
        <span class="transport" role="group" aria-label="Recording">
            {buttons} {slider} <span class="num-prose">{move || position()}</span> {move || cut_short()}
        </span>
    }
    .into_any()
}

fn send(page: Page, command: ReplayCommand) {
    send_then(page, command, || {});
}

/// Sends a command, and shows why it was refused.
fn send_then(page: Page, command: ReplayCommand, done: impl FnOnce() + 'static) {
    leptos::task::spawn_local(async move {
        if let Response::Refused(why) = page.request(Request::Replay(command)).await {
            actions::show_toast(page, why.to_string(), false);
        }
        done();
    });
}

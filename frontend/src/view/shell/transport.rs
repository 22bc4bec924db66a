//! Controls of a recording that is being played: pause, speed and position.

use crate::domain::playback::{SPEEDS_PCT, is_at, position_text, speed_text};
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

/// A recording that is being played.
#[derive(Clone)]
struct Player {
    page: Page,
    status: Memo<Option<ReplayStatus>>,
    /// The place of the slider while it is dragged.
    dragged: RwSignal<Option<u64>>,
    /// The time to which the page goes.
    sought: RwSignal<Option<u64>>,
    /// The speed after a pause.
    speed_pct: RwSignal<u32>,
}

impl Player {
    fn status(&self) -> ReplayStatus {
        self.status.get().unwrap_or_default()
    }

    fn is_paused(&self) -> bool {
        self.status().speed_pct == 0
    }

    /// Returns the position, in ms of the relay's clock.
    fn at_ms(&self) -> u64 {
        let ReplayStatus { from_ms, to_ms, .. } = self.status();
        let chosen = self.dragged.get().or(self.sought.get());
        chosen.unwrap_or_else(|| self.page.now_ms()).clamp(from_ms, to_ms.max(from_ms))
    }

    /// Returns the position as a time of day, and as a part of the whole.
    fn position_text(&self) -> String {
        let (at_ms, ReplayStatus { from_ms, to_ms, .. }) = (self.at_ms(), self.status());
        let day = |at_ms: u64| {
            let ahead_s = (at_ms.cast_signed() - self.page.now_ms().cast_signed()) / 1_000;
            platform::format_time_s(self.page.wall_s() + ahead_s)
        };
        let position = position_text(at_ms.saturating_sub(from_ms), to_ms.saturating_sub(from_ms));
        match self.sought.get() {
            Some(_) => format!("going to {}, at {} · {position}", day(at_ms), day(self.status().at_ms)),
            None => format!("{} · {position}", day(at_ms)),
        }
    }

    /// The button that ends a seek: the relay stays where it was.
    fn cancel(&self) -> impl Fn() -> Option<AnyView> + use<> {
        let player = self.clone();
        move || {
            let player = player.clone();
            player.sought.with(Option::is_some).then(|| {
                let cancel = move |_| {
                    player.sought.set(None);
                    player.send(ReplayCommand::Speed(
                        player.status.get_untracked().unwrap_or_default().speed_pct,
                    ));
                };
                view! { <button class="btn btn--small" on:click=cancel>"Cancel"</button> }.into_any()
            })
        }
    }

    /// The button that pauses, and the choice of the speed.
    fn buttons(&self) -> AnyView {
        let (player, toggle, choose, speed_pct) = (self.clone(), self.clone(), self.clone(), self.speed_pct);
        let is_paused = Memo::new(move |_| player.is_paused());
        let option = move |speed: u32| {
            view! { <option value=speed.to_string() selected=move || speed_pct.get() == speed>{speed_text(speed)}</option> }
        };
        view! {
            <button class="btn transport__play" aria-label=move || if is_paused.get() { "Play" } else { "Pause" }
                on:click=move |_| {
                    let speed = if is_paused.get_untracked() { speed_pct.get_untracked() } else { 0 };
                    toggle.send(ReplayCommand::Speed(speed));
                }>{move || if is_paused.get() { "▶\u{fe0e}" } else { "❚❚" }}</button>
            <select class="btn transport__speed" aria-label="Speed"
                on:change=move |event| {
                    let chosen = event_target_value(&event).parse().unwrap_or(REAL_TIME_PCT);
                    speed_pct.set(chosen);
                    if !is_paused.get_untracked() {
                        choose.send(ReplayCommand::Speed(chosen));
                    }
                }>{SPEEDS_PCT.map(option).collect_view()}</select>
        }
        .into_any()
    }

    /// The slider for the position; a guest cannot move it.
    fn slider(&self, is_owner: bool) -> AnyView {
        let (first, last, value, seek, dragged) =
            (self.clone(), self.clone(), self.clone(), self.clone(), self.dragged);
        view! {
            <input class="transport__slider" type="range" aria-label="Position" disabled=!is_owner
                min=move || first.status().from_ms.to_string() max=move || last.status().to_ms.to_string() step="1000"
                prop:value=move || value.at_ms().to_string()
                on:input=move |event| dragged.set(event_target_value(&event).parse().ok())
                on:change=move |event| {
                    dragged.set(None);
                    if let Ok(at_ms) = event_target_value(&event).parse() {
                        seek.seek(at_ms);
                    }
                }/>
        }
        .into_any()
    }

    /// Goes to a time, which takes as long as it takes. Until its readings are here, what the page shows is of another time,
    /// and is dimmed.
    fn seek(&self, at_ms: u64) {
        self.sought.set(Some(at_ms));
        let (page, sought) = (self.page.clone(), self.sought);
        leptos::task::spawn_local(async move {
            let response = page.long_request(Request::Replay(ReplayCommand::Seek(at_ms))).await;
            // This page may have cancelled it, or gone elsewhere.
            if let Response::Refused(why) = response
                && sought.get_untracked() == Some(at_ms)
            {
                actions::show_toast(page, why.to_string(), false);
                sought.set(None);
            }
        });
    }

    /// Sends a command, and shows why it was refused.
    fn send(&self, command: ReplayCommand) {
        let page = self.page.clone();
        leptos::task::spawn_local(async move {
            if let Response::Refused(why) = page.request(Request::Replay(command)).await {
                actions::show_toast(page, why.to_string(), false);
            }
        });
    }
}

fn controls(page: &Page, status: Memo<Option<ReplayStatus>>) -> AnyView {
    let speed_pct = RwSignal::new(REAL_TIME_PCT);
    let sought = page.sought;
    let player = Player { page: page.clone(), status, dragged: RwSignal::new(None), sought, speed_pct };
    platform::effect(move || {
        let is_there =
            |at_ms| status.with(|status| status.as_ref().is_some_and(|status| is_at(status, at_ms)));
        if sought.get().is_some_and(is_there) {
            sought.set(None);
        }
    });
    platform::effect(move || {
        match status.with(|status| status.as_ref().map_or(0, |status| status.speed_pct)) {
            0 => {}
            playing => speed_pct.set(playing),
        }
    });
    let is_owner = page.is_owner();
    let (buttons, cancel) = (is_owner.then(|| player.buttons()), is_owner.then(|| player.cancel()));
    let slider = player.slider(is_owner);
    let cut_short = move || {
        status.with(|status| status.as_ref().is_some_and(|status| status.is_cut_short)).then(|| {
            view! { <span class="foot__stale" title="The rest of the file is damaged or incomplete">"◆ incomplete file"</span> }
        })
    };
    view! {
        <span class="transport" role="group" aria-label="Recording">
            {buttons} {slider} <span class="num-prose">{move || player.position_text()}</span> {cancel} {cut_short}
        </span>
    }
    .into_any()
}

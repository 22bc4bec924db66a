//! A stage is where a graph is drawn and pointed at: by mouse, by finger, by keys, all the same way.

use crate::chart::{Range, Window};
use crate::time::Time;
use leptos::prelude::*;
use std::sync::Arc;
use wasm_bindgen::JsCast;
use web_sys::{Element, KeyboardEvent, PointerEvent, WheelEvent};

/// What a graph does when it is pointed at; a graph without lines to tell apart does nothing.
#[derive(Clone)]
pub struct Hands {
    /// The pointer is over a step, so many pixels from the top.
    pub over: Arc<dyn Fn(usize, f64) + Send + Sync>,
    /// The pointer left.
    pub left: Arc<dyn Fn() + Send + Sync>,
    /// The keys go so many lines down.
    pub down: Arc<dyn Fn(isize) + Send + Sync>,
    /// What is pointed at is opened.
    pub open: Arc<dyn Fn() + Send + Sync>,
}

/// Fingers and buttons that are down, by their id and place.
#[derive(Clone, Default)]
struct Grip {
    down: Vec<(i32, f64)>,
    moved: bool,
}

/// Where a graph is drawn.
#[component]
pub fn Stage(
    /// What it shows, for who cannot see it.
    #[prop(into)]
    label: Signal<String>,
    /// The steps it shows.
    window: Memo<Window>,
    /// What it does when it is pointed at.
    hands: Hands,
    /// The canvas.
    children: Children,
) -> impl IntoView {
    let (time, grip) = (Time::here(), StoredValue::new(Grip::default()));
    let seen = {
        let (time, hands) = (time.clone(), hands.clone());
        move |event: &PointerEvent| {
            let step = ((share(event) * window.get_untracked().steps() as f64) as usize)
                .min(window.get_untracked().steps().saturating_sub(1));
            time.point_at(Some(window.get_untracked().at_ms(step)));
            (hands.over)(step, f64::from(event.offset_y()));
        }
    };
    let (pressing, moving, leaving, wheeling) = (seen.clone(), time.clone(), time.clone(), time.clone());
    let (left, opening, keys) = (hands.left.clone(), hands.open.clone(), hands);
    view! {
        <div
            class="stage"
            tabindex="0"
            role="img"
            aria-label=move || label.get()
            on:pointerdown=move |event: PointerEvent| {
                grip.update_value(|grip| {
                    grip.down.push((event.pointer_id(), f64::from(event.client_x())));
                    grip.moved = false;
                });
                pressing(&event);
            }
            on:pointermove=move |event: PointerEvent| {
                if !dragged(&moving, grip, &event) {
                    seen(&event);
                }
            }
            on:pointerup=move |event: PointerEvent| release(grip, &event)
            on:pointercancel=move |event: PointerEvent| release(grip, &event)
            on:pointerleave=move |event: PointerEvent| {
                release(grip, &event);
                leaving.point_at(None);
                left();
            }
            on:click=move |_| if !grip.with_value(|grip| grip.moved) { opening() }
            on:wheel=move |event: WheelEvent| wheel(&wheeling, &event)
            on:keydown=move |event: KeyboardEvent| {
                if press(&time, &window.get_untracked(), &keys, &event) {
                    event.prevent_default();
                    event.stop_propagation();
                }
            }
        >
            {children()}
            <Cursor window/>
        </div>
    }
}

/// The moment that is pointed at in any graph of the page.
#[component]
pub fn Cursor(
    /// The steps that are shown.
    window: Memo<Window>,
) -> impl IntoView {
    let time = Time::here();
    move || {
        let window = window.get();
        let step = time.cursor().and_then(|at_ms| window.step_of(at_ms))?;
        let left = format!("{}%", (step as f32 + 0.5) / window.steps() as f32 * 100.0);
        Some(view! { <i class="stage__cursor" style:left=left></i> }.into_any())
    }
}

/// Where between left and right an event is, 0 to 1.
fn share(event: &PointerEvent) -> f64 {
    (f64::from(event.offset_x()) / width_of(event)).clamp(0.0, 1.0)
}

fn width_of(event: &web_sys::Event) -> f64 {
    let element = event.current_target().and_then(|target| target.dyn_into::<Element>().ok());
    element.map_or(1.0, |element| f64::from(element.client_width()).max(1.0))
}

fn release(grip: StoredValue<Grip>, event: &PointerEvent) {
    grip.update_value(|grip| grip.down.retain(|(id, _)| *id != event.pointer_id()));
}

/// Whether a move was a drag of the mouse or a pinch of two fingers, and not a look.
fn dragged(time: &Time, grip: StoredValue<Grip>, event: &PointerEvent) -> bool {
    let (x, id) = (f64::from(event.client_x()), event.pointer_id());
    let before = grip.with_value(|grip| grip.down.clone());
    let Some((_, from)) = before.iter().find(|(known, _)| *known == id).copied() else { return false };
    if let Some((_, other)) = before.iter().find(|(known, _)| *known != id) {
        let (old, new) = ((from - other).abs().max(1.0), (x - other).abs().max(1.0));
        let at = share(event);
        time.look(|range, now_ms| range.zoomed(old / new, at, now_ms));
    } else if event.pointer_type() == "mouse" {
        if (x - from).abs() < 4.0 && !grip.with_value(|grip| grip.moved) {
            return false;
        }
        let share = (from - x) / width_of(event);
        time.look(|range, now_ms| range.panned(share, now_ms));
    } else {
        return false;
    }
    grip.update_value(|grip| {
        grip.moved = true;
        grip.down.iter_mut().filter(|(known, _)| *known == id).for_each(|(_, place)| *place = x);
    });
    true
}

/// A turn sideways pans. A turn up or down scrolls the page, but with Ctrl, as touch pads say a pinch, or once
/// the graph has been clicked on, it zooms.
fn wheel(time: &Time, event: &WheelEvent) {
    let stage = event.current_target().and_then(|target| target.dyn_into::<Element>().ok());
    let focused = stage.is_some_and(|stage| document().active_element().as_ref() == Some(&stage));
    let sideways = if event.shift_key() { event.delta_y() } else { event.delta_x() };
    if event.shift_key() || sideways.abs() > event.delta_y().abs() {
        time.look(|range, now_ms| range.panned((sideways / 600.0).clamp(-0.5, 0.5), now_ms));
    } else if event.ctrl_key() || focused {
        let at = (f64::from(event.offset_x()) / width_of(event)).clamp(0.0, 1.0);
        let factor = if event.delta_y() > 0.0 { 1.2 } else { 1.0 / 1.2 };
        time.look(|range, now_ms| range.zoomed(factor, at, now_ms));
    } else {
        return;
    }
    event.prevent_default();
}

/// Whether a key was for the graph: arrows move the cursor, Enter opens what it points at.
fn press(time: &Time, window: &Window, hands: &Hands, event: &KeyboardEvent) -> bool {
    if event.ctrl_key() || event.meta_key() || event.alt_key() {
        return false;
    }
    let far = if event.shift_key() { 10 } else { 1 };
    match event.key().as_str() {
        "ArrowLeft" => walk(time, window, hands, -far),
        "ArrowRight" => walk(time, window, hands, far),
        "ArrowUp" => (hands.down)(-1),
        "ArrowDown" => (hands.down)(1),
        "Home" => walk(time, window, hands, isize::MIN),
        "End" => walk(time, window, hands, isize::MAX),
        "Enter" => (hands.open)(),
        "Escape" if time.cursor.get_untracked().is_some() => {
            time.point_at(None);
            (hands.left)();
        }
        _ => return false,
    }
    true
}

/// Moves the cursor by some steps; the first press puts it at the right edge.
fn walk(time: &Time, window: &Window, hands: &Hands, by: isize) {
    let last = window.steps().saturating_sub(1);
    let here = time.cursor.get_untracked().and_then(|at_ms| window.step_of(at_ms));
    let step = here.map_or(last, |step| step.saturating_add_signed(by).min(last));
    time.point_at(Some(window.at_ms(step)));
    (hands.down)(0);
}

/// Zooms and pans by the keys that hold everywhere: `+`, `-`, `[`, `]`, `0`.
pub fn obey(time: &Time, key: &str) -> bool {
    let zoom = |factor: f64| {
        move |range: Range, now_ms: u64| range.zoomed(factor, if range.is_live() { 1.0 } else { 0.5 }, now_ms)
    };
    match key {
        "+" | "=" => time.look(zoom(0.5)),
        "-" => time.look(zoom(2.0)),
        "[" => time.look(|range, now_ms| range.panned(-0.25, now_ms)),
        "]" => time.look(|range, now_ms| range.panned(0.25, now_ms)),
        "0" => time.look(|_, _| Range::default()),
        _ => return false,
    }
    true
}

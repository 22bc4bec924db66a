//! The area of a graph: pointer, touch and keyboard input, the same for every graph.

use crate::chart::{Range, Window};
use crate::state::time::Time;
use leptos::prelude::*;
use std::sync::Arc;
use wasm_bindgen::JsCast;
use web_sys::{Element, KeyboardEvent, PointerEvent, WheelEvent};

/// Handlers of a graph's input. A graph without lines to distinguish does nothing.
#[derive(Clone)]
pub struct PlotHandlers {
    /// The pointer is over this step, at this distance from the top in pixels.
    pub over: Arc<dyn Fn(usize, f64) + Send + Sync>,
    /// The pointer left.
    pub left: Arc<dyn Fn() + Send + Sync>,
    /// Arrow keys move by this number of lines.
    pub down: Arc<dyn Fn(isize) + Send + Sync>,
    /// The highlighted item is opened.
    pub open: Arc<dyn Fn() + Send + Sync>,
}

/// Pointers that are down, by id and position.
#[derive(Clone, Default)]
struct ActivePointers {
    down: Vec<(i32, f64)>,
    moved: bool,
}

/// The area of a graph.
#[component]
pub fn PlotArea(
    /// The alternative text.
    #[prop(into)]
    label: Signal<String>,
    /// The steps.
    window: Memo<Window>,
    /// The handlers.
    handlers: PlotHandlers,
    /// The canvas.
    children: Children,
) -> impl IntoView {
    let (time, pointers) = (Time::from_context(), StoredValue::new(ActivePointers::default()));
    let pointed_step = {
        let (time, handlers) = (time.clone(), handlers.clone());
        move |event: &PointerEvent| {
            let step = ((share(event) * window.get_untracked().steps() as f64) as usize)
                .min(window.get_untracked().steps().saturating_sub(1));
            time.set_cursor(Some(window.get_untracked().at_ms(step)));
            (handlers.over)(step, f64::from(event.offset_y()));
        }
    };
    let (pressing, moving, leaving, wheeling) =
        (pointed_step.clone(), time.clone(), time.clone(), time.clone());
    let (left, opening, keys) = (handlers.left.clone(), handlers.open.clone(), handlers);
    view! {
        <div
            class="stage"
            tabindex="0"
            role="img"
            aria-label=move || label.get()
            on:pointerdown=move |event: PointerEvent| {
                pointers.update_value(|pointers| {
                    pointers.down.push((event.pointer_id(), f64::from(event.client_x())));
                    pointers.moved = false;
                });
                pressing(&event);
            }
            on:pointermove=move |event: PointerEvent| {
                if !dragged(&moving, pointers, &event) {
                    pointed_step(&event);
                }
            }
            on:pointerup=move |event: PointerEvent| release(pointers, &event)
            on:pointercancel=move |event: PointerEvent| release(pointers, &event)
            on:pointerleave=move |event: PointerEvent| {
                release(pointers, &event);
                leaving.set_cursor(None);
                left();
            }
            on:click=move |_| if !pointers.with_value(|pointers| pointers.moved) { opening() }
            on:wheel=move |event: WheelEvent| wheel(&wheeling, &event)
            on:keydown=move |event: KeyboardEvent| {
                if plot_key(&time, &window.get_untracked(), &keys, &event) {
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

/// The cursor line, shared by all graphs of the page.
#[component]
pub fn Cursor(
    /// The steps.
    window: Memo<Window>,
) -> impl IntoView {
    let time = Time::from_context();
    move || {
        let window = window.get();
        let step = time.cursor().and_then(|at_ms| window.step_at(at_ms))?;
        let left = format!("{}%", (step as f32 + 0.5) / window.steps() as f32 * 100.0);
        Some(view! { <i class="stage__cursor" style:left=left></i> }.into_any())
    }
}

/// Returns the horizontal position of an event in its element, 0 to 1.
fn share(event: &PointerEvent) -> f64 {
    (f64::from(event.offset_x()) / width_of(event)).clamp(0.0, 1.0)
}

fn width_of(event: &web_sys::Event) -> f64 {
    let element = event.current_target().and_then(|target| target.dyn_into::<Element>().ok());
    element.map_or(1.0, |element| f64::from(element.client_width()).max(1.0))
}

fn release(pointers: StoredValue<ActivePointers>, event: &PointerEvent) {
    pointers.update_value(|pointers| pointers.down.retain(|(id, _)| *id != event.pointer_id()));
}

/// Handles a drag of the mouse or a pinch of two fingers; returns whether the move was one.
fn dragged(time: &Time, pointers: StoredValue<ActivePointers>, event: &PointerEvent) -> bool {
    let (x, id) = (f64::from(event.client_x()), event.pointer_id());
    let before = pointers.with_value(|pointers| pointers.down.clone());
    let Some((_, from)) = before.iter().find(|(known, _)| *known == id).copied() else { return false };
    if let Some((_, other)) = before.iter().find(|(known, _)| *known != id) {
        let (old, new) = ((from - other).abs().max(1.0), (x - other).abs().max(1.0));
        let at = share(event);
        time.set_range(|range, now_ms| range.zoomed(old / new, at, now_ms));
    } else if event.pointer_type() == "mouse" {
        if (x - from).abs() < 4.0 && !pointers.with_value(|pointers| pointers.moved) {
            return false;
        }
        let share = (from - x) / width_of(event);
        time.set_range(|range, now_ms| range.panned(share, now_ms));
    } else {
        return false;
    }
    pointers.update_value(|pointers| {
        pointers.moved = true;
        pointers.down.iter_mut().filter(|(known, _)| *known == id).for_each(|(_, place)| *place = x);
    });
    true
}

/// Horizontal scrolling pans. Vertical scrolling scrolls the page, but zooms with Ctrl (as touch pads report
/// a pinch) or while the graph has the focus.
fn wheel(time: &Time, event: &WheelEvent) {
    let stage = event.current_target().and_then(|target| target.dyn_into::<Element>().ok());
    let focused = stage.is_some_and(|stage| document().active_element().as_ref() == Some(&stage));
    let sideways = if event.shift_key() { event.delta_y() } else { event.delta_x() };
    if event.shift_key() || sideways.abs() > event.delta_y().abs() {
        time.set_range(|range, now_ms| range.panned((sideways / 600.0).clamp(-0.5, 0.5), now_ms));
    } else if event.ctrl_key() || focused {
        let at = (f64::from(event.offset_x()) / width_of(event)).clamp(0.0, 1.0);
        let factor = if event.delta_y() > 0.0 { 1.2 } else { 1.0 / 1.2 };
        time.set_range(|range, now_ms| range.zoomed(factor, at, now_ms));
    } else {
        return;
    }
    event.prevent_default();
}

/// Handles a key of the graph: arrows move the cursor, Enter opens the highlighted item. Returns whether it
/// did.
fn plot_key(time: &Time, window: &Window, handlers: &PlotHandlers, event: &KeyboardEvent) -> bool {
    if event.ctrl_key() || event.meta_key() || event.alt_key() {
        return false;
    }
    let far = if event.shift_key() { 10 } else { 1 };
    match event.key().as_str() {
        "ArrowLeft" => walk(time, window, handlers, -far),
        "ArrowRight" => walk(time, window, handlers, far),
        "ArrowUp" => (handlers.down)(-1),
        "ArrowDown" => (handlers.down)(1),
        "Home" => walk(time, window, handlers, isize::MIN),
        "End" => walk(time, window, handlers, isize::MAX),
        "Enter" => (handlers.open)(),
        "Escape" if time.cursor.get_untracked().is_some() => {
            time.set_cursor(None);
            (handlers.left)();
        }
        _ => return false,
    }
    true
}

/// Moves the cursor by some steps; the first press places it at the right edge.
fn walk(time: &Time, window: &Window, handlers: &PlotHandlers, by: isize) {
    let last = window.steps().saturating_sub(1);
    let here = time.cursor.get_untracked().and_then(|at_ms| window.step_at(at_ms));
    let step = here.map_or(last, |step| step.saturating_add_signed(by).min(last));
    time.set_cursor(Some(window.at_ms(step)));
    (handlers.down)(0);
}

/// Handles the keys that zoom and pan every graph: `+`, `-`, `[`, `]`, `0`.
pub fn handle_key(time: &Time, key: &str) -> bool {
    let zoom = |factor: f64| {
        move |range: Range, now_ms: u64| range.zoomed(factor, if range.is_live() { 1.0 } else { 0.5 }, now_ms)
    };
    match key {
        "+" | "=" => time.set_range(zoom(0.5)),
        "-" => time.set_range(zoom(2.0)),
        "[" => time.set_range(|range, now_ms| range.panned(-0.25, now_ms)),
        "]" => time.set_range(|range, now_ms| range.panned(0.25, now_ms)),
        "0" => time.set_range(|_, _| Range::default()),
        _ => return false,
    }
    true
}

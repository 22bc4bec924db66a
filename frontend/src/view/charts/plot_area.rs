//! The area of a graph: pointer, touch and keyboard input, the same for every graph.

use super::finding_marks::{FindingMarks, sentences};
use super::named_gaps::{self, NamedGaps};
use super::note_marks::NoteMarks;
use super::tooltip::{Tooltip, TooltipText};
use crate::chart::{Range, RangeStep, Window, notes_near, shown_times};
use crate::describe::note::text_in_graph;
use crate::domain::text;
use crate::platform;
use crate::state::time::Time;
use leptos::prelude::*;
use nodeglass_protocol::note::Note;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use wasm_bindgen::JsCast;
use web_sys::{Element, KeyboardEvent, MouseEvent, PointerEvent, WheelEvent};

/// Handlers of a graph's input. A graph without lines to distinguish does nothing.
#[derive(Clone)]
pub struct PlotHandlers {
    /// The pointer is over this step, at this distance from the top, in an area of this height, in pixels.
    pub over: Arc<dyn Fn(usize, f64, f64) + Send + Sync>,
    /// Arrow keys move by this number of lines.
    pub down: Arc<dyn Fn(isize) + Send + Sync>,
    /// The first and the last step with a reading of the highlighted item.
    pub known: Arc<dyn Fn() -> Option<(usize, usize)> + Send + Sync>,
    /// The highlighted item is opened.
    pub open: Arc<dyn Fn() + Send + Sync>,
    /// Whether opening leaves the page, so that it waits for a second click while the graph is zoomed.
    pub leaves: bool,
    /// Describes the highlighted item at a moment, for the tooltip; `true` for touch, where a second tap opens.
    pub describe: Arc<dyn Fn(u64, bool) -> Option<TooltipText> + Send + Sync>,
}

/// Maximum number of notes in a tooltip.
const NOTES_SHOWN: usize = 2;

/// Effect of moving a pressed mouse button.
#[derive(Clone, Copy, PartialEq)]
enum Drag {
    /// Selects the span from this moment on.
    Select(u64),
    /// Pans.
    Pan,
}

/// Pointers that are down.
#[derive(Clone, Default)]
struct ActivePointers {
    /// Id and horizontal position of each.
    down: Vec<(i32, f64)>,
    drag: Option<Drag>,
    moved: bool,
    is_touch: bool,
    /// Whether the tooltip already showed what was touched.
    was_shown: bool,
    /// Number of clicks and double clicks so far.
    clicks: u32,
}

/// The area of one graph.
#[derive(Clone)]
struct Area {
    time: Time,
    window: Memo<Window>,
    handlers: PlotHandlers,
    /// Number among the graphs of the page.
    number: u32,
    pointers: StoredValue<ActivePointers>,
    /// The span that is being selected, in ms of the relay's clock.
    selected: RwSignal<Option<(u64, u64)>>,
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
    let area = Area::new(window, handlers);
    let on = |run: fn(&Area, &PointerEvent)| {
        let area = area.clone();
        move |event: PointerEvent| run(&area, &event)
    };
    let (press, drag, release) = (on(Area::press), on(Area::drag), on(Area::release));
    let (cancel, leave) = (on(Area::cancel), on(Area::leave));
    let (clicked, twice, wheeled, keyed, noted) =
        (area.clone(), area.clone(), area.clone(), area.clone(), area.clone());
    view! {
        <div
            class="stage"
            tabindex="0"
            role="img"
            aria-label=label
            on:pointerdown=press
            on:pointermove=drag
            on:pointerup=release
            on:pointercancel=cancel
            on:pointerleave=leave
            // A pressed middle button would begin to scroll.
            on:mousedown=move |event: MouseEvent| if event.button() == 1 { event.prevent_default() }
            on:click=move |_| clicked.click()
            on:dblclick=move |_| twice.reset()
            on:contextmenu=move |event: MouseEvent| noted.context_menu(&event)
            on:wheel=move |event: WheelEvent| wheel(&wheeled.time, &event)
            on:keydown=move |event: KeyboardEvent| {
                if keyed.key(&event) {
                    event.prevent_default();
                    event.stop_propagation();
                }
            }
        >
            {children()}
            {area.marks()}
        </div>
    }
}

impl Area {
    /// Creates the area of a graph, which takes its tooltip along when it is removed.
    fn new(window: Memo<Window>, handlers: PlotHandlers) -> Self {
        static GRAPHS: AtomicU32 = AtomicU32::new(0);
        let (time, number) = (Time::from_context(), GRAPHS.fetch_add(1, Relaxed));
        let left = time.clone();
        on_cleanup(move || {
            if untrack(|| left.tooltip(number)).is_some() {
                left.leave();
            }
        });
        let (pointers, selected) = (StoredValue::new(ActivePointers::default()), RwSignal::new(None));
        Self { time, window, handlers, number, pointers, selected }
    }

    /// Returns what lies over the canvas.
    fn marks(self) -> AnyView {
        let (window, selected, graph) = (self.window, self.selected, self.number);
        let text = Signal::derive(move || self.tooltip_text());
        view! {
            <NamedGaps window/>
            <FindingMarks window/>
            <NoteMarks window/>
            <Cursor window/>
            <Selection selected window/>
            <Tooltip graph text/>
        }
        .into_any()
    }

    /// Returns the moment under a pointer, in ms of the relay's clock.
    fn moment(&self, event: &PointerEvent) -> u64 {
        let window = self.window.get_untracked();
        window.start_ms() + (share(event) * (window.end_ms() - window.start_ms()) as f64) as u64
    }

    /// Moves cursor, highlight and tooltip to a pointer.
    fn point(&self, event: &PointerEvent) {
        let window = self.window.get_untracked();
        let step = ((share(event) * window.steps() as f64) as usize).min(window.steps().saturating_sub(1));
        self.time.set_cursor(Some(window.at_ms(step)));
        (self.handlers.over)(step, f64::from(event.offset_y()), height_of(event));
        let at = (f64::from(event.client_x()), f64::from(event.client_y()));
        self.time.show_tooltip(self.number, at, event.pointer_type() == "touch");
    }

    fn press(&self, event: &PointerEvent) {
        let is_touch = event.pointer_type() == "touch";
        let drag = match (is_touch, event.button(), event.shift_key()) {
            (true, ..) => None,
            (_, 0, false) => Some(Drag::Select(self.moment(event))),
            (_, 0, true) | (_, 1, _) => Some(Drag::Pan),
            // The other buttons are the browser's.
            _ => return,
        };
        if let Some(stage) = stage(event).filter(|_| drag.is_some()) {
            let _ = stage.set_pointer_capture(event.pointer_id());
        }
        let highlighted = || untrack(|| (self.time.tooltip(self.number).is_some(), self.time.highlighted()));
        let before = highlighted();
        self.point(event);
        self.pointers.update_value(|pointers| {
            pointers.down.push((event.pointer_id(), f64::from(event.client_x())));
            (pointers.drag, pointers.moved, pointers.is_touch) = (drag, false, is_touch);
            pointers.was_shown = before == highlighted();
        });
    }

    fn drag(&self, event: &PointerEvent) {
        if !dragged(self, event) {
            self.point(event);
        }
    }

    fn release(&self, event: &PointerEvent) {
        if let Some((from_ms, to_ms)) = self.selected.get_untracked() {
            let zoom = |time: &Time| time.zoom(|_, now_ms| Range::between(from_ms, to_ms, now_ms));
            self.time.with_pointer_over(zoom);
        }
        self.drop_pointer(event);
    }

    /// Forgets a pointer that is up, and what it selected.
    fn drop_pointer(&self, event: &PointerEvent) {
        if self.selected.get_untracked().is_some() {
            self.selected.set(None);
        }
        self.pointers.update_value(|pointers| {
            pointers.down.retain(|(id, _)| *id != event.pointer_id());
            pointers.drag = None;
        });
    }

    /// The browser took the pointer over, mostly to scroll.
    fn cancel(&self, event: &PointerEvent) {
        self.drop_pointer(event);
        self.time.leave();
    }

    fn leave(&self, event: &PointerEvent) {
        self.drop_pointer(event);
        // A finger that is lifted leaves too; what it touched stays shown.
        if event.pointer_type() != "touch" {
            self.time.leave();
        }
    }

    fn click(&self) {
        let pointers = self.pointers.get_value();
        if pointers.moved || (pointers.is_touch && !pointers.was_shown) {
            return;
        }
        let is_zoomed = untrack(|| self.time.chosen_range()) != Range::default();
        if !(self.handlers.leaves && is_zoomed) {
            return (self.handlers.open)();
        }
        // It may be the first of a double click.
        let area = self.clone();
        let open = move || {
            if area.pointers.try_get_value().is_some_and(|now| now.clicks == pointers.clicks) {
                (area.handlers.open)();
            }
        };
        set_timeout(open, Duration::from_millis(280));
    }

    /// A secondary click notes something at the moment under it; with Shift, and for guests, the browser's menu opens.
    fn context_menu(&self, event: &MouseEvent) {
        if event.shift_key() || !untrack(|| self.time.page().may_note()) {
            return;
        }
        event.prevent_default();
        let window = self.window.get_untracked();
        let share = (f64::from(event.offset_x()) / width_of(event)).clamp(0.0, 1.0);
        let at_ms = window.start_ms() + (share * (window.end_ms() - window.start_ms()) as f64) as u64;
        self.time.leave();
        self.time.page().draft_note(Some(at_ms));
    }

    fn reset(&self) {
        self.pointers.update_value(|pointers| pointers.clicks += 1);
        self.time.with_pointer_over(|time| time.zoom(|_, _| Range::default()));
    }

    /// Handles a key; returns whether it was one of the graph's.
    fn key(&self, event: &KeyboardEvent) -> bool {
        if event.key() == "Escape" && self.selected.get_untracked().is_some() {
            self.selected.set(None);
            self.pointers.update_value(|pointers| pointers.drag = None);
            return true;
        }
        let window = self.window.get_untracked();
        if !plot_key(&self.time, &window, &self.handlers, event) {
            return false;
        }
        let step = self.time.cursor.get_untracked().and_then(|at_ms| window.step_at(at_ms));
        if let Some((step, stage)) = step.zip(stage(event)) {
            let [left, top, width, height] = platform::bounding_rect(&stage);
            let x = left + (step as f64 + 0.5) / window.steps() as f64 * width;
            self.time.show_tooltip(self.number, (x, top + height), false);
        }
        true
    }

    /// Returns what the tooltip says: the selected span, or the highlighted item at the cursor.
    fn tooltip_text(&self) -> Option<TooltipText> {
        if let Some((from_ms, to_ms)) = self.selected.get() {
            let (from_ms, to_ms) = (from_ms.min(to_ms), from_ms.max(to_ms));
            let clock = |at_ms| self.time.clock(at_ms);
            return Some(TooltipText {
                value: text::duration((to_ms - from_ms) / 1_000),
                title: "zoom in".to_owned(),
                lines: vec![format!("{} – {}", clock(from_ms), clock(to_ms))],
                ..TooltipText::default()
            });
        }
        let at_ms = self.time.cursor()?;
        let mut text =
            (self.handlers.describe)(at_ms, self.pointers.with_value(|pointers| pointers.is_touch));
        if let Some(text) = &mut text {
            text.lines.extend(named_gaps::sentence(&self.time, at_ms));
        }
        let mut marks = self.notes_at(at_ms);
        marks.extend(sentences(&self.time, &self.window.get(), at_ms));
        if marks.is_empty() {
            return text;
        }
        // A mark is named before what the tooltip has no more room for.
        let mut text = text.unwrap_or_default();
        marks.append(&mut text.lines);
        Some(TooltipText { lines: marks, ..text })
    }

    /// Returns what the notes near a moment say: the first ones, and how many more there are.
    fn notes_at(&self, at_ms: u64) -> Vec<String> {
        let page = self.time.page();
        let near = page.note_times.with(|times| match times.is_empty() {
            true => 0..0,
            false => {
                let window = self.window.get();
                notes_near(&window, &shown_times(&window, times, page.ended_ms.get()), at_ms)
            }
        });
        let more = near.len().saturating_sub(NOTES_SHOWN);
        let shown = near.start..near.end - more;
        let mut lines = page.notes.with(|notes| {
            let said = |note: &Note| format!("✎ {}", text_in_graph(note, page.is_after_end(note)));
            notes.get(shown).unwrap_or_default().iter().map(said).collect::<Vec<_>>()
        });
        lines.extend((more > 0).then(|| format!("and {}", text::count(more, "more note", "more notes"))));
        lines
    }
}

/// The cursor line, shared by all graphs of the page. It is moved by a transform alone, which costs no layout.
#[component]
pub fn Cursor(
    /// The steps.
    window: Memo<Window>,
) -> impl IntoView {
    let time = Time::from_context();
    let share = Memo::new(move |_| {
        let window = window.get();
        let step = time.cursor().and_then(|at_ms| window.step_at(at_ms))?;
        Some((step as f64 + 0.5) / window.steps() as f64)
    });
    let transform = move || share.get().map(|share| format!("translateX({}%)", text::tenths(share * 100.0)));
    view! {
        <span class="stage__veil">
            <i class="stage__cursor" hidden=move || share.get().is_none() style:transform=transform></i>
        </span>
    }
}

/// The span that is being selected.
#[component]
fn Selection(selected: RwSignal<Option<(u64, u64)>>, window: Memo<Window>) -> impl IntoView {
    let shown = move || {
        let (one_ms, other_ms) = selected.get()?;
        let window = window.get();
        let (start_ms, end_ms) = (window.start_ms(), window.end_ms());
        let share = |at_ms: u64| {
            (at_ms.clamp(start_ms, end_ms) - start_ms) as f64 / (end_ms - start_ms).max(1) as f64
        };
        let (left, right) = (share(one_ms.min(other_ms)), share(one_ms.max(other_ms)));
        let transform =
            format!("translateX({}%) scaleX({})", text::tenths(left * 100.0), text::share(right - left));
        Some(
            view! { <span class="stage__veil"><i class="stage__span" style:transform=transform></i></span> }
                .into_any(),
        )
    };
    move || shown()
}

/// Returns the horizontal position of an event in its element, 0 to 1.
fn share(event: &PointerEvent) -> f64 {
    (f64::from(event.offset_x()) / width_of(event)).clamp(0.0, 1.0)
}

fn stage(event: &web_sys::Event) -> Option<Element> {
    event.current_target().and_then(|target| target.dyn_into().ok())
}

fn width_of(event: &web_sys::Event) -> f64 {
    stage(event).map_or(1.0, |element| f64::from(element.client_width()).max(1.0))
}

fn height_of(event: &web_sys::Event) -> f64 {
    stage(event).map_or(1.0, |element| f64::from(element.client_height()).max(1.0))
}

/// Handles a drag of the mouse or a pinch of two fingers; returns whether the move was one.
fn dragged(area: &Area, event: &PointerEvent) -> bool {
    let (x, id) = (f64::from(event.client_x()), event.pointer_id());
    let (time, pointers) = (&area.time, area.pointers);
    let ActivePointers { down, drag, moved, .. } = pointers.get_value();
    let Some((_, from)) = down.iter().find(|(known, _)| *known == id).copied() else { return false };
    if let Some((_, other)) = down.iter().find(|(known, _)| *known != id) {
        let (old, new) = ((from - other).abs().max(1.0), (x - other).abs().max(1.0));
        let at = share(event);
        time.set_range(|range, now_ms| range.zoomed(old / new, at, now_ms));
    } else {
        let Some(drag) = drag.filter(|_| moved || (x - from).abs() >= 4.0) else { return false };
        match drag {
            Drag::Select(from_ms) => {
                area.selected.set(Some((from_ms, area.moment(event))));
                area.point(event);
            }
            Drag::Pan => {
                let share = (from - x) / width_of(event);
                time.set_range(|range, now_ms| range.panned(share, now_ms));
            }
        }
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
            time.leave();
        }
        _ => return false,
    }
    true
}

/// Moves the cursor by some steps, or to the first or last reading; the first press places it at the last one.
fn walk(time: &Time, window: &Window, handlers: &PlotHandlers, by: isize) {
    (handlers.down)(0);
    let end = window.steps().saturating_sub(1);
    let (first, last) = (handlers.known)().unwrap_or((0, end));
    let here = time.cursor.get_untracked().and_then(|at_ms| window.step_at(at_ms));
    let step = match by {
        isize::MIN => first,
        isize::MAX => last,
        by => here.map_or(last, |step| step.saturating_add_signed(by).min(end)),
    };
    time.set_cursor(Some(window.at_ms(step)));
}

/// Applies a step of a button or key to the range of all graphs.
pub fn apply_step(time: &Time, step: RangeStep) {
    let zoom = |factor: f64| {
        move |range: Range, now_ms: u64| range.zoomed(factor, if range.is_live() { 1.0 } else { 0.5 }, now_ms)
    };
    match step {
        RangeStep::Narrower => time.set_range(zoom(0.5)),
        RangeStep::Wider => time.set_range(zoom(2.0)),
        RangeStep::Earlier => time.set_range(|range, now_ms| range.panned(-0.25, now_ms)),
        RangeStep::Later => time.set_range(|range, now_ms| range.panned(0.25, now_ms)),
    }
}

/// Handles the keys that zoom and pan every graph: `+`, `-`, `[`, `]`, `0`.
pub fn handle_key(time: &Time, key: &str) -> bool {
    let step = match key {
        "+" | "=" => Some(RangeStep::Narrower),
        "-" => Some(RangeStep::Wider),
        "[" => Some(RangeStep::Earlier),
        "]" => Some(RangeStep::Later),
        "0" => None,
        _ => return false,
    };
    time.with_pointer_over(|time| match step {
        Some(step) => apply_step(time, step),
        None => time.zoom(|_, _| Range::default()),
    });
    true
}

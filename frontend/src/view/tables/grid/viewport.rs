//! The part of a table that the page shows.

use super::source::RowEntry;
use crate::platform::{self, Listener, Observer, Visibility};
use crate::table::window::{Window, scroll_to_reveal, visible_part};
use leptos::html;
use leptos::prelude::*;
use web_sys::{Element, HtmlElement};

/// Height of a row in px, unless the style sheet says otherwise.
const ROW_PX: u32 = 26;
/// Distance from the viewport up to which rows count as visible, in px, as in the observer.
pub const MARGIN_PX: f64 = 120.0;

/// The visible part of a table.
#[derive(Clone, Copy)]
pub struct Viewport {
    /// The element around the table, which scrolls by itself only if the user chose more columns than fit.
    pub outer: NodeRef<html::Div>,
    /// Height of a row in px; rows are taller on narrow and touch screens.
    pub row_px: RwSignal<u32>,
    /// Whether any part of the table is visible.
    pub is_in_view: Memo<bool>,
    /// Begin and height of the visible part, in px; the last ones while the table is out of view.
    part: Memo<(u32, u32)>,
    scroll: RwSignal<u32>,
    visibility: RwSignal<Visibility>,
}

impl Viewport {
    /// Creates the viewport of a table, of which nothing has been measured.
    pub fn new() -> Self {
        let (scroll, visibility) = (RwSignal::new(0), RwSignal::new(Visibility::Part(0, 0)));
        let last = StoredValue::new((0, 0));
        let part = Memo::new(move |_| {
            match visibility.get() {
                Visibility::Hidden => {}
                Visibility::Part(from, height) => last.set_value((scroll.get() + from, height)),
                Visibility::Full => last.set_value((0, u32::MAX)),
            }
            last.get_value()
        });
        Self {
            outer: NodeRef::new(),
            row_px: RwSignal::new(row_height()),
            is_in_view: Memo::new(move |_| visibility.get() != Visibility::Hidden),
            part,
            scroll,
            visibility,
        }
    }

    /// Returns which rows are rendered.
    pub fn window(self, rows: Memo<Vec<RowEntry>>) -> Memo<Window> {
        Memo::new(move |_| {
            let (top, height) = self.part.get();
            Window::over(rows.with(Vec::len), top, height, self.row_px.get())
        })
    }

    /// Returns which rows are visible, or soon will be; empty while the table is out of view.
    pub fn in_view(self, rows: Memo<Vec<RowEntry>>) -> Memo<Window> {
        Memo::new(move |_| {
            let (top, height) = if self.is_in_view.get() { self.part.get() } else { (0, 0) };
            Window::in_view(rows.with(Vec::len), top, height, self.row_px.get())
        })
    }

    /// Observes which part of the table is visible, until the guards are dropped. The observer reports no change while a
    /// table that exceeds the viewport scrolls through it, so that the page's scrolling is observed as well.
    pub fn observe(self) -> Option<(Observer, Listener)> {
        let outer = self.outer.get_untracked()?;
        let observer = Observer::visibility(outer.as_ref(), move |part| match part {
            Visibility::Hidden => self.visibility.set(Visibility::Hidden),
            _ => self.read_visible_part(),
        });
        let on_scroll = move |_| self.read_visible_part();
        let guards = observer.zip(main(&outer).map(|main| Listener::new(main, "scroll", on_scroll)));
        if guards.is_none() {
            self.visibility.set(Visibility::Full);
        }
        guards
    }

    /// Reads which part of the table the page shows.
    fn read_visible_part(self) {
        let Some(outer) = self.outer.get_untracked() else { return };
        let Some(main) = main(&outer) else { return };
        let place = |element: &Element| {
            let [_, top, _, height] = platform::bounding_rect(element);
            (top, height)
        };
        let part = visible_part(place(&outer), place(&main), MARGIN_PX);
        let part = part.map_or(Visibility::Hidden, |(from, height)| Visibility::Part(from, height));
        if self.visibility.get_untracked() != part {
            self.visibility.set(part);
        }
    }

    /// Reads the scroll offset.
    pub fn on_scroll(self) {
        if let Some(outer) = self.outer.get_untracked() {
            let at = outer.scroll_top().max(0).cast_unsigned();
            if self.scroll.get_untracked() != at {
                self.scroll.set(at);
            }
        }
    }

    /// Reads the height of rows, the scroll offset, and the visible part.
    pub fn measure(self) {
        if self.row_px.get_untracked() != row_height() {
            self.row_px.set(row_height());
        }
        self.on_scroll();
        if self.is_in_view.get_untracked() {
            self.read_visible_part();
        }
    }

    /// Scrolls until a row is visible between the sticky head and footer: the table itself if it is wide, or the page.
    pub fn reveal(self, index: usize, is_wide: bool) {
        let Some(outer) = self.outer.get_untracked() else { return };
        let scroller = if is_wide { Some(outer.clone().into()) } else { main(&outer) };
        let Some(scroller) = scroller else { return };
        let height = |part: &str| {
            let part = outer.query_selector(part).ok().flatten();
            part.map_or(0, |part| platform::bounding_rect(&part)[3] as i32)
        };
        let (head, row) = (height("thead"), self.row_px.get_untracked().cast_signed());
        let inner_scroll = self.scroll.get_untracked().cast_signed();
        let first = platform::bounding_rect(&outer)[1] as i32 + head - inner_scroll;
        let top = first + index as i32 * row;
        let [_, view, _, view_height] = platform::bounding_rect(&scroller).map(|side| side as i32);
        let view = (view + head, view + view_height - height("tfoot"));
        if let Some(by) = scroll_to_reveal((top, top + row), view) {
            scroller.set_scroll_top(scroller.scroll_top() + by);
        }
    }
}

/// Returns the element that scrolls the page.
fn main(outer: &HtmlElement) -> Option<Element> {
    outer.closest("main").ok().flatten()
}

/// Returns the height of a row in px, as in the style sheet.
fn row_height() -> u32 {
    platform::media_token("--row").trim_end_matches("px").parse().unwrap_or(ROW_PX)
}

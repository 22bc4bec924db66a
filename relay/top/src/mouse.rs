//! Effects of the mouse. Pure: an event changes the view.

use super::keys::{self, Go};
use super::model::World;
use super::rows::processes::Sort;
use super::view::{Drawn, Overlay, View};
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

/// Rows of one notch of the wheel.
const NOTCH: isize = 3;

/// Handles an event: a click selects a row or sorts by a column, the wheel moves.
pub fn handle(view: &mut View, event: MouseEvent, world: Option<&World<'_>>) {
    let wheel = match event.kind {
        MouseEventKind::ScrollUp => Some(-NOTCH),
        MouseEventKind::ScrollDown => Some(NOTCH),
        _ => None,
    };
    match &mut view.overlay {
        Some(Overlay::Help { top } | Overlay::Detail { top, .. }) => {
            *top = top.saturating_add_signed(wheel.unwrap_or(0));
            return;
        }
        // A signal is confirmed by a key alone.
        Some(Overlay::Confirm { .. }) => return,
        None => {}
    }
    let at = |drawn: &&Drawn| (drawn.top..drawn.top + drawn.height).contains(&event.row);
    let (Some(world), Some(drawn)) = (world, view.drawn.iter().find(at).cloned()) else { return };
    let contents = view.contents(world);
    match (wheel, event.kind) {
        (Some(by), _) => {
            view.pane = drawn.pane;
            keys::go(view, &contents, Go::Rows(by));
        }
        (None, MouseEventKind::Down(MouseButton::Left)) => {
            view.pane = drawn.pane;
            let line = event.row - drawn.top;
            match drawn.rows.start + usize::from(line.saturating_sub(drawn.head)) {
                row if line >= drawn.head && drawn.rows.contains(&row) => {
                    keys::go(view, &contents, Go::To(row));
                }
                _ if line > 0 && line < drawn.head => sort(view, &drawn, event.column),
                _ => {}
            }
        }
        _ => {}
    }
}

/// Sorts processes by the column at `x`; the other way round if they already are.
fn sort(view: &mut View, drawn: &Drawn, x: u16) {
    let column = drawn.columns.iter().find(|(range, _)| range.contains(&x));
    let Some(sort) = column.and_then(|(_, key)| Sort::of_column(*key)) else { return };
    view.order.is_reversed = sort == view.order.sort && !view.order.is_reversed;
    view.order.sort = sort;
}

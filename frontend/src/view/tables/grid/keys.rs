//! Keyboard navigation within a table: arrow keys select a row, Enter opens it.

use super::state::Grid;
use crate::platform;
use leptos::prelude::*;
use web_sys::KeyboardEvent;

/// Number of rows per page.
const PAGE: usize = 20;

/// Handles a key, and stops its propagation if it has a meaning here.
pub fn handle_key(grid: &Grid, event: &KeyboardEvent) {
    if event.ctrl_key() || event.meta_key() || event.alt_key() || platform::is_control(event) {
        return;
    }
    let Some(last) = grid.rows.order.with_untracked(Vec::len).checked_sub(1) else { return };
    let here = grid.selection();
    match event.key().as_str() {
        "Enter" | " " => here.into_iter().for_each(|here| grid.open(here)),
        "Escape" if here.is_some() => grid.selected.set(None),
        key => match target(key, here, last) {
            Some(to) => grid.select(to),
            None => return,
        },
    }
    event.prevent_default();
    event.stop_propagation();
}

/// Returns the row that a key leads to.
fn target(key: &str, here: Option<usize>, last: usize) -> Option<usize> {
    let to = match (key, here) {
        ("ArrowDown" | "j" | "ArrowUp" | "k" | "PageDown" | "PageUp", None) | ("Home", _) => 0,
        ("ArrowDown" | "j", Some(here)) => here + 1,
        ("ArrowUp" | "k", Some(here)) => here.saturating_sub(1),
        ("PageDown", Some(here)) => here + PAGE,
        ("PageUp", Some(here)) => here.saturating_sub(PAGE),
        ("End", _) => last,
        _ => return None,
    };
    Some(to.min(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_start_at_the_top_and_stop_at_the_ends() {
        assert_eq!(target("ArrowDown", None, 9), Some(0));
        assert_eq!(target("ArrowDown", Some(9), 9), Some(9));
        assert_eq!(target("ArrowUp", Some(0), 9), Some(0));
        assert_eq!(target("PageDown", Some(3), 9), Some(9));
        assert_eq!((target("Home", Some(5), 9), target("End", None, 9)), (Some(0), Some(9)));
    }

    #[test]
    fn other_keys_are_left_to_the_page() {
        for key in ["/", "ArrowLeft", "p", "<", "Tab"] {
            assert_eq!(target(key, Some(1), 9), None, "{key}");
        }
    }
}

//! Within a table the arrow keys walk over its rows, and Enter opens one.

use super::state::Grid;
use crate::browser;
use leptos::prelude::*;
use web_sys::KeyboardEvent;

/// So many rows are a page.
const PAGE: usize = 20;

/// Obeys a key, and keeps it from the rest of the page if it means something here.
pub fn hear(grid: &Grid, event: &KeyboardEvent) {
    if event.ctrl_key() || event.meta_key() || event.alt_key() || browser::is_control(event) {
        return;
    }
    let Some(last) = grid.order.with_untracked(Vec::len).checked_sub(1) else { return };
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

/// The row that a key leads to.
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
    fn arrows_begin_at_the_top_and_stop_at_the_ends() {
        assert_eq!(target("ArrowDown", None, 9), Some(0));
        assert_eq!(target("ArrowDown", Some(9), 9), Some(9));
        assert_eq!(target("ArrowUp", Some(0), 9), Some(0));
        assert_eq!(target("PageDown", Some(3), 9), Some(9));
        assert_eq!((target("Home", Some(5), 9), target("End", None, 9)), (Some(0), Some(9)));
    }

    #[test]
    fn other_keys_are_the_pages() {
        for key in ["/", "ArrowLeft", "p", "<", "Tab"] {
            assert_eq!(target(key, Some(1), 9), None, "{key}");
        }
    }
}

//! The tables of the page: which of them a key applies to.

use super::state::Grid;
use crate::table::sort::Sort;
use leptos::prelude::*;
use wasm_bindgen::JsCast;
use web_sys::{HtmlElement, Node};

/// The menus of a table, in their order.
#[derive(Clone, Copy, Debug)]
pub enum TableMenu {
    /// The shown columns and their order.
    Columns,
    /// Copies and downloads.
    Export,
}

/// The tables of the page, for keys that apply to one of them.
#[derive(Clone, Copy)]
pub struct Grids(RwSignal<Vec<Grid>>);

impl Default for Grids {
    fn default() -> Self {
        Self(RwSignal::new(Vec::new()))
    }
}

impl Grids {
    /// Returns the tables of the calling view's page.
    pub fn from_context() -> Self {
        expect_context()
    }

    /// Registers a table for as long as the calling owner lives.
    pub fn add(self, grid: &Grid) {
        self.0.update_untracked(|grids| grids.push(grid.clone()));
        let (all, is_hovered) = (self.0, grid.rows.is_hovered);
        on_cleanup(move || {
            all.try_update_untracked(|grids| grids.retain(|grid| grid.rows.is_hovered != is_hovered));
        });
    }

    /// Returns the table that a key applies to: the focused one, or else the topmost.
    pub fn active(self) -> Option<Grid> {
        let focus = document().active_element();
        let has_focus = |grid: &&Grid| {
            let outer = grid.viewport.outer.get_untracked();
            outer
                .and_then(|outer| outer.parent_element())
                .is_some_and(|section| section.contains(focus.as_deref()))
        };
        let is_above = |one: &Grid, other: &Grid| {
            let elements = one.viewport.outer.get_untracked().zip(other.viewport.outer.get_untracked());
            elements.is_some_and(|(one, other)| {
                one.compare_document_position(&other) & Node::DOCUMENT_POSITION_FOLLOWING != 0
            })
        };
        let grids = self.0.get_untracked();
        let filled = || grids.iter().filter(|grid| !grid.rows.entries.with_untracked(Vec::is_empty));
        grids
            .iter()
            .find(has_focus)
            .or_else(|| filled().reduce(|first, grid| if is_above(grid, first) { grid } else { first }))
            .cloned()
    }

    /// Focuses the filter.
    pub fn focus_filter(self) -> bool {
        let input = self.active().and_then(|grid| grid.input.get_untracked());
        input.is_some_and(|input| input.focus().is_ok())
    }

    /// Opens a menu of the table, or closes it.
    pub fn open_menu(self, menu: TableMenu) {
        let outer = self.active().and_then(|grid| grid.viewport.outer.get_untracked());
        let Some(section) = outer.and_then(|outer| outer.parent_element()) else { return };
        let place = match menu {
            TableMenu::Columns => ".grid__tools .menu:nth-of-type(1) > .btn",
            TableMenu::Export => ".grid__tools .menu:nth-of-type(2) > .btn",
        };
        let button = section.query_selector(place).ok().flatten();
        if let Some(button) = button.and_then(|button| button.dyn_into::<HtmlElement>().ok()) {
            let _ = button.focus();
            button.click();
        }
    }

    /// Sorts by the column `step` further.
    pub fn sort_next(self, step: isize) {
        let Some(grid) = self.active() else { return };
        let sort = grid.rows.sort.get_untracked();
        let moved = grid.shown.with_untracked(|shown| Sort::next_column(sort, step, shown, &grid.columns));
        grid.sort_by(moved);
    }

    /// Reverses the order.
    pub fn reverse_sort(self) {
        if let Some(grid) = self.active() {
            grid.sort_by(grid.rows.sort.get_untracked().map(Sort::reversed));
        }
    }
}

//! A cell is drawn once and renews its text alone; where there is nothing, a dash says why.

use super::body::Line;
use super::source::Entry;
use super::state::Grid;
use crate::lazy::{Memo, effect, part, words};
use crate::markup::{Patch, View, view};
use crate::scheme::Scheme;
use crate::table::column::Sum;
use crate::table::{Column, Look, Unit, Value, processes, sum as sums};
use crate::view::meter::meter;
use leptos::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;

/// A cell of a row: the one at place `at` of those that are shown.
pub fn cell(grid: &Grid, entry: &Entry, line: &Line, at: usize, column: usize) -> (AnyView, Option<Written>) {
    let column = grid.columns[column];
    let role = (at == 0).then_some("rowheader");
    let class = class(&column);
    if matches!(column.look, Look::Own | Look::Picture) {
        let inside = grid.source.draw(entry, column.id);
        return (view! { <td class=class role=role>{inside}</td> }.into_any(), None);
    }
    let written = Written::new(grid, line, at, column);
    (view! { <td class=class role=role>{written.patch.clone()}</td> }.into_any(), Some(written))
}

/// A cell of the sums.
pub fn sum(grid: &Grid, line: &Line, at: usize, column: usize) -> (AnyView, Option<Written>) {
    let column = grid.columns[column];
    let title = Some(sums::word(column.sum)).filter(|word| !word.is_empty());
    let class = class(&column);
    let (inside, written) = match column.sum {
        Sum::None if at == 0 => {
            let sign = view! { <abbr title="all rows together, those of old values left out">"Σ"</abbr> };
            (sign.into_any(), None)
        }
        Sum::None => (().into_any(), None),
        _ => {
            let written = Written::new(grid, line, at, column);
            (written.patch.clone().into_any(), Some(written))
        }
    };
    (view! { <td class=class title=title>{inside}</td> }.into_any(), written)
}

fn class(column: &Column) -> String {
    let side = if column.is_right() { "right " } else { "" };
    format!("{side}c-{}", column.id)
}

/// What stands in a cell by its value alone. It follows nothing by itself: its row writes it when it is another value.
pub struct Written {
    at: usize,
    column: Column,
    patch: Patch,
}

impl Written {
    fn new(grid: &Grid, line: &Line, at: usize, column: Column) -> Self {
        let scheme = untrack(|| grid.scheme());
        Self { at, column, patch: Patch::new(drawn(line.value(at), &column, scheme)) }
    }
}

/// Writes the cells of a line whose values are no longer what they were.
pub fn keep_written(grid: &Grid, line: Memo<Arc<Line>>, cells: Vec<Written>) {
    let grid = grid.clone();
    let last = RefCell::new(untrack(|| (line.get(), grid.scheme())));
    effect(move || {
        let (now, scheme) = (line.get(), grid.scheme());
        let (before, by) = last.replace((now.clone(), scheme));
        for Written { at, column, patch } in &cells {
            let same_hue = by == scheme || !matches!(column.look, Look::Util);
            if !same_hue || before.value(*at) != now.value(*at) {
                patch.renew(drawn(now.value(*at), column, scheme));
            }
        }
    });
}

fn drawn(value: &Value, column: &Column, scheme: Scheme) -> View {
    let unit = column.unit;
    match column.look {
        Look::Command => command(value),
        Look::Util => bar(value, unit, scheme.class(value.as_number())),
        Look::Bar(hue) => bar(value, unit, hue),
        _ => figure(value, unit),
    }
}

fn bar(value: &Value, unit: Unit, hue: &'static str) -> View {
    view! { <span class="bar">{meter(value.share(unit), "share", hue)} {figure(value, unit)}</span> }
}

fn figure(value: &Value, unit: Unit) -> View {
    let (text, whole) = value.shown(unit);
    let class = match (value.why_absent(), unit.is_number()) {
        (Some(_), _) => "absent",
        (None, true) => "num",
        (None, false) => "said",
    };
    // Words may be longer than their column.
    let title =
        value.why_absent().map(ToOwned::to_owned).or_else(|| (!unit.is_number()).then(|| text.clone()));
    let whole = whole.map(|whole| format!("/{whole}")).unwrap_or_default();
    view! { <span class=class title=title>{text}<span class="of">{whole}</span></span> }
}

fn command(value: &Value) -> View {
    let whole = value.line(Unit::Words);
    let (program, rest) = match value {
        Value::Text(words) => processes::split(words),
        _ => (String::new(), whole.clone()),
    };
    let title = value.why_absent().map_or(whole, ToOwned::to_owned);
    view! { <span class="cmd" title=title><b>{program}</b>{rest}</span> }
}

/// A name that leads somewhere, for the first column of a table.
pub fn link(href: String, dot: AnyView, name: impl Fn() -> String + Send + 'static) -> AnyView {
    view! { <a class="grid__link" tabindex="-1" href=href>{dot} <span>{words(name)}</span></a> }.into_any()
}

/// A figure with a class of its own while something holds.
pub fn marked(
    value: impl Fn() -> Value + Send + 'static,
    unit: Unit,
    class: &'static str,
    holds: impl Fn() -> bool + Send + 'static,
) -> AnyView {
    part(move || {
        let class = if holds() { class } else { "" };
        view! { <span class=class>{figure(&value(), unit)}</span> }
    })
    .into_any()
}

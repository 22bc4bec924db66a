//! A cell is drawn once and renews its text alone; where there is nothing, a dash says why.

use super::body::Line;
use super::source::Entry;
use super::state::Grid;
use crate::lazy::{lazy, part, words};
use crate::page::Page;
use crate::table::column::Sum;
use crate::table::{Column, Look, Unit, Value, processes, sum as sums};
use crate::view::meter::Meter;
use leptos::prelude::*;

/// A cell of a row: the one at place `at` of those that are shown.
pub fn cell(grid: &Grid, entry: &Entry, line: Memo<Line>, at: usize, column: usize) -> AnyView {
    let column = grid.columns[column];
    let role = (at == 0).then_some("rowheader");
    let inside = match column.look {
        Look::Own | Look::Picture => grid.source.draw(entry, column.id),
        _ => drawn(line, at, column),
    };
    view! { <td class=class(&column) role=role>{inside}</td> }.into_any()
}

/// A cell of the sums.
pub fn sum(grid: &Grid, line: Memo<Line>, at: usize, column: usize) -> AnyView {
    let column = grid.columns[column];
    let inside = match column.sum {
        Sum::None if at == 0 => {
            view! { <abbr title="all rows together, those of old values left out">"Σ"</abbr> }.into_any()
        }
        Sum::None => ().into_any(),
        _ => drawn(line, at, column),
    };
    let title = Some(sums::word(column.sum)).filter(|word| !word.is_empty());
    view! { <td class=class(&column) title=title>{inside}</td> }.into_any()
}

fn class(column: &Column) -> String {
    let side = if column.is_right() { "right " } else { "" };
    format!("{side}c-{}", column.id)
}

/// What stands in a cell by its value alone.
fn drawn(line: Memo<Line>, at: usize, column: Column) -> AnyView {
    let value = move || line.with(|line| line.values.get(at).cloned().unwrap_or(Value::NONE));
    let unit = column.unit;
    match column.look {
        Look::Command => part(move || command(&value())).into_any(),
        Look::Util => {
            let settings = Page::here().settings;
            let percent = move || value().as_number();
            let hue = Signal::derive(move || settings.scheme().class(percent()));
            bar(value, unit, hue)
        }
        Look::Bar(hue) => bar(value, unit, Signal::stored(hue)),
        _ => part(move || figure(&value(), unit)).into_any(),
    }
}

fn bar(
    value: impl Fn() -> Value + Copy + Send + Sync + 'static,
    unit: Unit,
    hue: Signal<&'static str>,
) -> AnyView {
    let share = Signal::derive(move || value().share(unit));
    view! {
        <span class="bar">
            <Meter share label="share" hue/>
            {part(move || figure(&value(), unit))}
        </span>
    }
    .into_any()
}

fn figure(value: &Value, unit: Unit) -> AnyView {
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
    view! { <span class=class title=title>{text}<span class="of">{whole}</span></span> }.into_any()
}

fn command(value: &Value) -> AnyView {
    let whole = value.line(Unit::Words);
    let (program, rest) = match value {
        Value::Text(words) => processes::split(words),
        _ => (String::new(), whole.clone()),
    };
    let title = value.why_absent().map_or(whole, ToOwned::to_owned);
    view! { <span class="cmd" title=title><b>{program}</b>{rest}</span> }.into_any()
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
    view! { <span class=lazy(move || if holds() { class } else { "" })>{part(move || figure(&value(), unit))}</span> }.into_any()
}

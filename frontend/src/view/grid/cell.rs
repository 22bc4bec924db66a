//! A cell is drawn once and renews its text alone; where there is nothing, a dash says why.

use super::body::Line;
use super::source::{Entry, Own};
use super::state::Grid;
use crate::settings::Settings;
use crate::table::column::Sum;
use crate::table::{Column, Look, Unit, Value, processes, sum as sums};
use crate::view::meter::meter;
use leptos::prelude::*;

/// A cell of a row: the one at place `at` of those that are shown; and what updates it.
pub fn cell(grid: &Grid, entry: &Entry, line: &Line, at: usize, column: usize) -> (AnyView, Update) {
    let column = grid.columns[column];
    let role = (at == 0).then_some("rowheader");
    let class = class(&column);
    if matches!(column.look, Look::Own | Look::Picture) {
        let Own { view, write } = grid.source.draw(entry, column.id);
        return (view! { <td class=class role=role>{view}</td> }.into_any(), Update::Own(write));
    }
    let value = RwSignal::new(line.value(at).clone());
    let settings = grid.settings();
    let inside = move || value.with(|value| content(&column, value, settings));
    (view! { <td class=class role=role>{move || inside()}</td> }.into_any(), Update::Value(at, value))
}

/// A cell of the sums.
pub fn sum(grid: &Grid, sums: Memo<Line>, at: usize, column: usize) -> AnyView {
    let column = grid.columns[column];
    let title = Some(sums::word(column.sum)).filter(|word| !word.is_empty());
    let class = class(&column);
    let settings = grid.settings();
    let inside = move || match column.sum {
        Sum::None if at == 0 => {
            view! { <abbr title="all rows together, those of old values left out">"Σ"</abbr> }.into_any()
        }
        Sum::None => ().into_any(),
        _ => sums.with(|line| content(&column, line.value(at), settings)),
    };
    view! { <td class=class title=title>{move || inside()}</td> }.into_any()
}

fn class(column: &Column) -> String {
    let side = if column.is_right() { "right " } else { "" };
    let kind = if column.unit.is_number() { "figure " } else { "" };
    format!("{side}{kind}c-{}", column.id)
}

/// How a row updates a cell.
pub enum Update {
    /// By its place among the shown columns.
    Value(usize, RwSignal<Value>),
    /// In its table's own way; none where it updates itself or never changes.
    Own(Option<Box<dyn Fn()>>),
}

impl Update {
    /// Updates the cell, if it differs.
    pub fn run(&self, line: &Line) {
        match self {
            Self::Value(at, value) => {
                let now = line.value(*at);
                if value.with_untracked(|value| value != now) {
                    value.set(now.clone());
                }
            }
            Self::Own(update) => update.iter().for_each(|update| update()),
        }
    }
}

/// What stands in a cell by its value alone.
fn content(column: &Column, value: &Value, settings: Settings) -> AnyView {
    let hue = match column.look {
        Look::Command => return command(value),
        Look::Util => settings.scheme().class(value.as_number()),
        Look::Bar(hue) => hue,
        _ => return figure(value, column.unit),
    };
    view! { <span class="bar">{meter("share", hue, value.share(column.unit))} {figure(value, column.unit)}</span> }
        .into_any()
}

/// A number or words, or a dash that says why there is none.
pub fn figure(value: &Value, unit: Unit) -> AnyView {
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
    view! { <a class="grid__link" tabindex="-1" href=href>{dot} <span>{name}</span></a> }.into_any()
}

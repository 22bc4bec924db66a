//! A cell is drawn once and renews its text alone; where there is nothing, a dash says why.

use super::body::Line;
use super::source::{Entry, Own};
use super::state::Grid;
use crate::lazy::words;
use crate::markup::{Patch, Spot, View, view};
use crate::scheme::Scheme;
use crate::table::column::Sum;
use crate::table::{Column, Look, Unit, Value, processes, sum as sums};
use crate::view::meter::Meter;
use leptos::prelude::*;

/// A cell of a row: the one at place `at` of those that are shown.
pub fn cell(grid: &Grid, entry: &Entry, line: &Line, at: usize, column: usize) -> (AnyView, Option<Written>) {
    let column = grid.columns[column];
    let role = (at == 0).then_some("rowheader");
    let class = class(&column);
    if matches!(column.look, Look::Own | Look::Picture) {
        let Own { view, write } = grid.source.draw(entry, column.id);
        return (view! { <td class=class role=role>{view}</td> }.into_any(), write.map(Written::Own));
    }
    let written = Shown::new(grid, line, at, column);
    (
        view! { <td class=class role=role>{written.patch.clone()}</td> }.into_any(),
        Some(Written::Value(written)),
    )
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
            let written = Shown::new(grid, line, at, column);
            (written.patch.clone().into_any(), Some(Written::Value(written)))
        }
    };
    (view! { <td class=class title=title>{inside}</td> }.into_any(), written)
}

fn class(column: &Column) -> String {
    let side = if column.is_right() { "right " } else { "" };
    let kind = if column.unit.is_number() { "figure " } else { "" };
    format!("{side}{kind}c-{}", column.id)
}

/// A cell that its row writes. It follows nothing by itself.
pub enum Written {
    /// By its value alone.
    Value(Shown),
    /// In its table's own way.
    Own(Box<dyn Fn()>),
}

/// What stands in a cell by its value alone.
pub struct Shown {
    at: usize,
    column: Column,
    patch: Patch,
    spots: Option<Spots>,
}

/// The parts of a figure, which is written so often that it is written by hand.
#[derive(Clone, Default)]
struct Spots {
    figure: Spot,
    of: Spot,
    meter: Spot,
    bar: Spot,
}

impl Shown {
    fn new(grid: &Grid, line: &Line, at: usize, column: Column) -> Self {
        let scheme = untrack(|| grid.scheme());
        let value = line.value(at);
        let spots = Spots::default();
        let drawn = match hue(&column, value, scheme) {
            _ if matches!(column.look, Look::Command) => command(value),
            Some(hue) => {
                let meter = Meter::of(value.share(column.unit));
                let figure = Figure::of(value, column.unit).drawn(Some(&spots));
                view! { <span class="bar">{meter.drawn("share", hue, &spots.meter, &spots.bar)} {figure}</span> }
            }
            None => Figure::of(value, column.unit).drawn(Some(&spots)),
        };
        let spots = (!matches!(column.look, Look::Command)).then_some(spots);
        Self { at, column, patch: Patch::new(drawn), spots }
    }

    fn write(&self, before: &Value, by: Scheme, now: &Value, scheme: Scheme) {
        let (column, unit) = (&self.column, self.column.unit);
        let Some(spots) = &self.spots else {
            self.patch.renew(command(now));
            return;
        };
        Figure::of(now, unit).write(&Figure::of(before, unit), spots);
        let (was, hue) = (hue(column, before, by), hue(column, now, scheme));
        if let Some(hue) = hue {
            Meter::of(now.share(unit)).write(Meter::of(before.share(unit)), &spots.meter, &spots.bar);
            if was != Some(hue) {
                spots.bar.write("class", Some(hue));
            }
        }
    }
}

/// The hue of a cell's bar, if it has one.
fn hue(column: &Column, value: &Value, scheme: Scheme) -> Option<&'static str> {
    match column.look {
        Look::Util => Some(scheme.class(value.as_number())),
        Look::Bar(hue) => Some(hue),
        _ => None,
    }
}

/// Writes the cells of a line whose values are no longer what they were.
pub fn write(cells: &[Written], (before, by): (&Line, Scheme), (now, scheme): (&Line, Scheme)) {
    for cell in cells {
        match cell {
            Written::Value(shown) => {
                let (was, is) = (before.value(shown.at), now.value(shown.at));
                let same_hue = by == scheme || !matches!(shown.column.look, Look::Util);
                if !same_hue || was != is {
                    shown.write(was, by, is, scheme);
                }
            }
            Written::Own(write) => write(),
        }
    }
}

/// A figure as it is written: a number or words, or a dash that says why there is none.
struct Figure {
    class: &'static str,
    title: Option<String>,
    text: String,
    whole: String,
}

impl Figure {
    fn of(value: &Value, unit: Unit) -> Self {
        let (text, whole) = value.shown(unit);
        let class = match (value.why_absent(), unit.is_number()) {
            (Some(_), _) => "absent",
            (None, true) => "num",
            (None, false) => "said",
        };
        // Words may be longer than their column.
        let title =
            value.why_absent().map(ToOwned::to_owned).or_else(|| (!unit.is_number()).then(|| text.clone()));
        Self { class, title, text, whole: whole.map(|whole| format!("/{whole}")).unwrap_or_default() }
    }

    fn drawn(self, spots: Option<&Spots>) -> View {
        let Self { class, title, text, whole } = self;
        let Spots { figure, of, .. } = spots.cloned().unwrap_or_default();
        view! { <span node_ref=figure class=class title=title>{text}<span node_ref=of class="of">{whole}</span></span> }
    }

    fn write(&self, before: &Self, spots: &Spots) {
        if self.text != before.text {
            spots.figure.write_text(&self.text);
        }
        if self.whole != before.whole {
            spots.of.write_text(&self.whole);
        }
        if self.class != before.class {
            spots.figure.write("class", Some(self.class));
        }
        if self.title != before.title {
            spots.figure.write("title", self.title.as_deref());
        }
    }
}

/// A figure, or a dash that says why there is none.
pub fn figure(value: &Value, unit: Unit) -> View {
    Figure::of(value, unit).drawn(None)
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

//! Cells of a table: created once, then only their text is updated. A missing value is a dash with a reason.

use super::row_values::RowValues;
use super::source::{CustomCell, RowEntry};
use super::state::Grid;
use crate::state::settings::Settings;
use crate::table::column::Sum;
use crate::table::{CellStyle, CellUnit, Column, Value, processes, sum as sums};
use crate::view::widgets::meter::meter;
use leptos::prelude::*;

/// Creates the cell at position `at` of the shown columns, and what updates it. The first cell contains the row's
/// second line.
pub fn cell(
    grid: &Grid,
    entry: &RowEntry,
    line: &RowValues,
    (at, column): (usize, usize),
    second_line: RwSignal<Option<String>>,
) -> (AnyView, Update) {
    let column = grid.columns[column];
    let second_line =
        move || second_line.get().map(|text| view! { <small class="second-line">{text}</small> }.into_any());
    let second_line = (at == 0).then_some(second_line);
    let role = (at == 0).then_some("rowheader");
    let class = class(&column);
    if matches!(column.style, CellStyle::Custom | CellStyle::Graphic) {
        let CustomCell { view, write } = grid.source.custom_cell(entry, column.id);
        return (
            view! { <td class=class role=role>{view} {second_line}</td> }.into_any(),
            Update::Custom(write),
        );
    }
    let value = RwSignal::new(line.value(at).clone());
    let settings = grid.settings();
    let inside = move || value.with(|value| content(&column, value, settings));
    let view = view! { <td class=class role=role>{move || inside()} {second_line}</td> };
    (view.into_any(), Update::Value(at, value))
}

/// Creates a cell of the footer.
pub fn sum(grid: &Grid, sums: Memo<RowValues>, at: usize, column: usize) -> AnyView {
    let column = grid.columns[column];
    // A bar beside a longer figure is shorter than those above it, as if it stood for less.
    let shown = if column.sum == Sum::Total { Column { style: CellStyle::Plain, ..column } } else { column };
    let class = class(&shown);
    let settings = grid.settings();
    let aggregate = move |value: &Value| {
        let label = sums::label(column.sum);
        // The maximum of a sum has more digits than those above it, and a line of its own.
        let (value, label) = match (column.sum, value) {
            (Sum::Total, Value::Part(part, _)) => {
                let whole = value.shown(column.unit).1.unwrap_or_default();
                (Value::Number(*part), format!("{label} of {whole}"))
            }
            _ => (value.clone(), label.to_owned()),
        };
        view! { {content(&shown, &value, settings)} <small>{label}</small> }.into_any()
    };
    let inside = move || match column.sum {
        Sum::None if at == 0 => {
            view! { <abbr title="All rows together; rows with stale values are left out">"All"</abbr> }
                .into_any()
        }
        Sum::None => ().into_any(),
        _ => sums.with(|line| aggregate(line.value(at))),
    };
    view! { <td class=class>{move || inside()}</td> }.into_any()
}

fn class(column: &Column) -> String {
    let side = if column.is_right() { "right " } else { "" };
    let kind = if column.unit.is_number() { "figure " } else { "" };
    format!("{side}{kind}c-{}", column.id)
}

/// The way a row updates a cell.
pub enum Update {
    /// By its position among the shown columns.
    Value(usize, RwSignal<Value>),
    /// By its table; `None` if the cell updates itself or never changes.
    Custom(Option<Box<dyn Fn()>>),
}

impl Update {
    /// Updates the cell if its value changed.
    pub fn run(&self, line: &RowValues) {
        match self {
            Self::Value(at, value) => {
                let now = line.value(*at);
                if value.with_untracked(|value| value != now) {
                    value.set(now.clone());
                }
            }
            Self::Custom(update) => update.iter().for_each(|update| update()),
        }
    }
}

/// Renders a cell by its value alone.
fn content(column: &Column, value: &Value, settings: Settings) -> AnyView {
    let hue = match column.style {
        CellStyle::Command => return command(value),
        CellStyle::Util => settings.scheme().class(value.as_number()),
        CellStyle::Bar(hue) => hue,
        _ => return figure(value, column.unit),
    };
    view! { <span class="bar">{meter("share", hue, value.share(column.unit))} {figure(value, column.unit)}</span> }
        .into_any()
}

/// Renders a number or text, or a dash with the reason in a tooltip.
pub fn figure(value: &Value, unit: CellUnit) -> AnyView {
    let (text, whole) = value.shown(unit);
    let class = match (value.why_absent(), unit.is_number()) {
        (Some(_), _) => "absent",
        (None, true) => "num",
        (None, false) => "said",
    };
    // Text may be longer than its column.
    let title =
        value.why_absent().map(ToOwned::to_owned).or_else(|| (!unit.is_number()).then(|| text.clone()));
    let whole = whole.map(|whole| format!("/{whole}")).unwrap_or_default();
    view! { <span class=class title=title>{text}<span class="of">{whole}</span></span> }.into_any()
}

fn command(value: &Value) -> AnyView {
    let whole = value.line(CellUnit::Text);
    let (program, rest) = match value {
        Value::Text(text) => processes::split(text),
        _ => (String::new(), whole.clone()),
    };
    let title = value.why_absent().map_or(whole, ToOwned::to_owned);
    view! { <span class="cmd" title=title><b>{program}</b>{rest}</span> }.into_any()
}

/// Renders a linked name, for the first column of a table.
pub fn link(href: String, dot: AnyView, name: impl Fn() -> String + Send + 'static) -> AnyView {
    view! { <a class="grid__link" tabindex="-1" href=href>{dot} <span>{name}</span></a> }.into_any()
}

//! The rows of a table: filtered and in order, with some of them folded.

use super::source::{Folding, RowEntry, SharedSource};
use crate::domain::query;
use crate::state::page::Page;
use crate::table::Column;
use crate::table::filter::{Filter, FilterError};
use crate::table::sort::{Sort, ordered};
use leptos::prelude::*;
use std::sync::Arc;

/// The rows of a table, and what selects and orders them.
#[derive(Clone, Copy)]
pub struct Rows {
    /// All rows.
    pub entries: Memo<Vec<RowEntry>>,
    /// The text of the filter.
    pub filter_text: Memo<Option<String>>,
    /// Error of the filter, if any.
    pub error: Memo<Option<FilterError>>,
    /// The order.
    pub sort: Memo<Option<Sort>>,
    /// Whether the pointer is over the table: rows keep their place.
    pub is_hovered: RwSignal<bool>,
    /// Whether the order is held although readings may have changed it.
    pub is_held: Memo<bool>,
    /// The matching rows in order, also the folded ones.
    pub matching: Memo<Vec<RowEntry>>,
    /// The rows that are folded unless the user unfolded them; `None` if there are none.
    pub folding: Memo<Option<Folding>>,
    /// Whether the user unfolded them.
    pub is_unfolded: Memo<bool>,
    /// The matching rows that are not folded, in order.
    pub order: Memo<Vec<RowEntry>>,
}

impl Rows {
    /// Creates the rows of a source, with filter and order from the URL.
    pub fn new(
        page: &Page,
        source: &SharedSource,
        columns: &Arc<Vec<Column>>,
        is_in_view: Memo<bool>,
    ) -> Self {
        let (names, is_hovered) = (source.names(), RwSignal::new(false));
        let entries = Memo::new({
            let source = source.clone();
            move |_| source.entries()
        });
        let filter_text = page.address.query(names.filter);
        let (filter, error) = filter(filter_text, columns);
        let sort = Memo::new({
            let (text, columns) = (page.address.query(names.sort), columns.clone());
            move |_| text.with(|text| Sort::parse(text.as_deref()?, &columns))
        });
        let is_held =
            Memo::new(move |_| is_hovered.get() && (sort.get().is_some() || filter_text.get().is_some()));
        let matching = Memo::new({
            let (source, columns, step) = (source.clone(), columns.clone(), page.step);
            move |_| {
                let (sort, filter) = (sort.get(), filter.get());
                // An order or filter that depends on readings is re-evaluated now and then, but not under the
                // pointer or out of view.
                if (sort.is_some() || !filter.is_empty()) && !is_hovered.get() && is_in_view.get() {
                    step.track();
                }
                entries.with(|entries| in_order(&source, &columns, entries, &filter, sort))
            }
        });
        // A filter shows all that it finds.
        let folding = Memo::new({
            let source = source.clone();
            move |_| {
                matching.with(|rows| if filter_text.get().is_some() { None } else { source.folding(rows) })
            }
        });
        let is_unfolded = page.address.has_query(query::SHOWN);
        let order = Memo::new(move |_| match folding.get() {
            Some(folding) if !is_unfolded.get() => folding.shown,
            _ => matching.get(),
        });
        Self { entries, filter_text, error, sort, is_hovered, is_held, matching, folding, is_unfolded, order }
    }
}

fn in_order(
    source: &SharedSource,
    columns: &[Column],
    entries: &[RowEntry],
    filter: &Filter,
    sort: Option<Sort>,
) -> Vec<RowEntry> {
    if filter.is_empty() && sort.is_none() {
        return entries.to_vec();
    }
    let depths: Vec<u8> = entries.iter().map(|entry| entry.depth).collect();
    let keep = |row: usize| filter.passes(columns, &|column| source.value(&entries[row], column));
    let order = ordered(&depths, &keep, sort, &|row, column| source.value(&entries[row], column));
    order.into_iter().map(|row| entries[row].clone()).collect()
}

/// Returns the filter of a text, and its error; an invalid text keeps the last valid filter.
fn filter(
    filter_text: Memo<Option<String>>,
    columns: &Arc<Vec<Column>>,
) -> (Memo<Filter>, Memo<Option<FilterError>>) {
    let parsed = Memo::new({
        let columns = columns.clone();
        move |_| {
            filter_text
                .with(|filter_text| Filter::parse(filter_text.as_deref().unwrap_or_default(), &columns))
        }
    });
    let last = StoredValue::new(Filter::default());
    let filter = Memo::new(move |_| {
        parsed.with(|parsed| {
            parsed.as_ref().ok().cloned().into_iter().for_each(|filter| last.set_value(filter))
        });
        last.get_value()
    });
    (filter, Memo::new(move |_| parsed.with(|parsed| parsed.as_ref().err().cloned())))
}

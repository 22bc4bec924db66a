//! The head of a table: each column's title with its unit, and a button that sorts.

use super::state::Grid;
use crate::table::Column;
use crate::table::sort::Sort;
use leptos::prelude::*;

/// Explains the sign `‖`.
pub const HELD: &str =
    "Order held: rows keep their place while the pointer is over the table, and are sorted when it leaves.";

/// The columns' widths and titles.
#[component]
pub fn Head(
    /// The table.
    grid: Grid,
    /// Its shown columns.
    shown: Vec<usize>,
) -> impl IntoView {
    let widths = {
        let (grid, shown) = (grid.clone(), shown.clone());
        let last = shown.iter().rposition(|at| grid.column(*at).grows);
        // The last growing one takes the rest of rounding.
        let width = move |(at, width)| (Some(at) != last).then(|| format!("{width}px"));
        move || {
            let widths = grid.widths(&shown).into_iter().enumerate().map(width);
            widths.map(|width| view! { <col style:width=width/> }).collect_view()
        }
    };
    let titles = shown.iter().map(|at| title(&grid, *at)).collect_view();
    view! {
        <colgroup>{widths}</colgroup>
        <thead>
            <tr aria-rowindex="1">{titles}</tr>
        </thead>
    }
}

fn title(grid: &Grid, at: usize) -> AnyView {
    let column = grid.column(at);
    let class = format!("{}c-{}", if column.is_right() { "right " } else { "" }, column.id);
    if !column.has_value() {
        return view! { <th class=class scope="col" title=column.about>{column.title}</th> }.into_any();
    }
    let sort = grid.rows.sort;
    let here = move || sort.get().filter(|sort| sort.column == at);
    let held = grid.rows.is_held;
    let arrow = move || {
        here().map(|sort| match (sort.down, held.get()) {
            (true, false) => "↓",
            (false, false) => "↑",
            (true, true) => "↓‖",
            (false, true) => "↑‖",
        })
    };
    let order = move || here().map(|sort| if sort.down { "descending" } else { "ascending" });
    let grid = grid.clone();
    let click = move |_| grid.sort_by(Sort::after_click(sort.get_untracked(), at, &grid.columns));
    view! {
        <th class=class scope="col" aria-sort=order title=about(&column)>
            <button class="grid__sort" tabindex="-1" on:click=click>
                <span>{column.title} {unit(&column)}</span>
                <i aria-hidden="true" title=move || held.get().then_some(HELD)>{move || arrow()}</i>
            </button>
        </th>
    }
    .into_any()
}

fn about(column: &Column) -> String {
    format!("{} ({})", column.about, column.id)
}

/// Returns the unit, unless the title is the unit itself.
fn unit(column: &Column) -> Option<AnyView> {
    let unit = Some(column.unit.head()).filter(|unit| !unit.is_empty() && *unit != column.title);
    let unit = unit.filter(|_| !column.title.ends_with("°C"))?;
    Some(view! { <small>" " {unit}</small> }.into_any())
}

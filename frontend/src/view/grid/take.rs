//! What a table shows is taken along: onto the clipboard, or as a file.

use super::menu::Menu;
use super::state::Grid;
use crate::browser;
use crate::table::export::Form;
use leptos::prelude::*;
use std::sync::Arc;

/// The menu of forms.
#[component]
pub fn Take(
    /// The table.
    grid: Grid,
) -> impl IntoView {
    let open = RwSignal::new(false);
    let inside = Arc::new(move || inside(&grid, open));
    view! { <Menu title="Copy" about="take along what is shown" open inside/> }
}

fn inside(grid: &Grid, open: RwSignal<bool>) -> AnyView {
    let item = |title: &'static str, form: Form| {
        let grid = grid.clone();
        let take = move |_| {
            take(&grid, form);
            open.set(false);
        };
        view! { <button class="menu__item" on:click=take>{title}</button> }
    };
    view! {
        {item("Copy as text", Form::Text)}
        {item("Copy as Markdown", Form::Markdown)}
        {item("Download CSV", Form::Csv)}
        {item("Download JSON", Form::Json)}
    }
    .into_any()
}

fn take(grid: &Grid, form: Form) {
    let text = grid.taken(form);
    let name = |ending| format!("nodeglass-{}.{ending}", grid.names.id);
    match form {
        Form::Text | Form::Markdown => browser::copy(&text),
        Form::Csv => browser::save(&name("csv"), "text/csv", &text),
        Form::Json => browser::save(&name("json"), "application/json", &text),
    }
}

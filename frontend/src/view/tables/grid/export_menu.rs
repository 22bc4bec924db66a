//! The menu that copies a table to the clipboard or saves it as a file.

use super::state::Grid;
use crate::platform;
use crate::state::page::Page;
use crate::table::export::Form;
use crate::view::widgets::copy::copy;
use crate::view::widgets::menu::Menu;
use leptos::prelude::*;
use std::sync::Arc;

/// The export menu.
#[component]
pub fn ExportMenu(
    /// The table.
    grid: Grid,
) -> impl IntoView {
    let (page, open) = (Page::from_context(), RwSignal::new(false));
    let inside = Arc::new(move || inside(&page, &grid, open));
    view! { <Menu title="Copy" about="Copy or download this table" open inside/> }
}

fn inside(page: &Page, grid: &Grid, open: RwSignal<bool>) -> AnyView {
    let item = |title: &'static str, form: Form| {
        let (page, grid) = (page.clone(), grid.clone());
        let export = move |_| {
            export(&page, &grid, form);
            open.set(false);
        };
        view! { <button class="menu__item" on:click=export>{title}</button> }
    };
    view! {
        {item("Copy as text", Form::Text)}
        {item("Copy as Markdown", Form::Markdown)}
        {item("Download CSV", Form::Csv)}
        {item("Download JSON", Form::Json)}
    }
    .into_any()
}

fn export(page: &Page, grid: &Grid, form: Form) {
    let text = grid.export(form);
    let name = |ending| format!("nodeglass-{}.{ending}", grid.names.id);
    match form {
        Form::Text | Form::Markdown => copy(page, &text, || ()),
        Form::Csv => platform::save(&name("csv"), "text/csv", &text),
        Form::Json => platform::save(&name("json"), "application/json", &text),
    }
}

//! Keyboard shortcuts of the whole page.

use crate::domain::keys::Command;
use crate::domain::query;
use crate::domain::route::{JobTab, Route, neighbour};
use crate::platform::{self, Listener};
use crate::state::page::Page;
use crate::state::page::ShareSheetView;
use crate::state::time::Time;
use crate::view::charts::plot_area::handle_key as handle_graph_key;
use crate::view::jobs::job_list;
use crate::view::tables::grid::{Grids, TableMenu};
use leptos::prelude::*;
use wasm_bindgen::JsCast;
use web_sys::{HtmlElement, KeyboardEvent};

/// Handles keys for as long as the calling owner lives.
pub fn listen(page: &Page, time: &Time) {
    let (page, time, grids) = (page.clone(), time.clone(), Grids::from_context());
    let listener = Listener::new(document(), "keydown", move |event| {
        let Some(event) = event.dyn_ref::<KeyboardEvent>() else { return };
        // A sheet handles its keys itself, also when nothing in it has the focus.
        if let Some(sheet) = platform::top_sheet() {
            // Except that another problem may follow the GPU of the previous one.
            let is_next = matches!(Command::from_key(&event.key()), Some(Command::Next(_)));
            if !is_next || sheet.get_attribute("aria-label").as_deref() != Some("GPU") {
                return;
            }
        }
        let has_modifier = event.ctrl_key() || event.meta_key();
        if event.alt_key() || !has_modifier && is_text_input(event) {
            return;
        }
        let key = event.key();
        if !has_modifier && handle_graph_key(&time, &key) {
            event.prevent_default();
            return;
        }
        let command = if has_modifier { Command::from_chord(&key) } else { Command::from_key(&key) };
        let Some(command) = command else { return };
        if has_modifier
            || matches!(command, Command::Job(_) | Command::Node(_) | Command::Filter | Command::Note)
        {
            event.prevent_default();
        }
        if let Some(route) = run_command(&page, grids, command) {
            event.prevent_default();
            page.address.navigate(route);
            platform::on_next_frame(follow_with_focus);
        }
    });
    StoredValue::new_local(listener);
}

/// Moves the focus within the job list or the tabs to the current entry, so that both agree on what is chosen;
/// a focus elsewhere stays. Scrolls the current job into view.
fn follow_with_focus() {
    let focus = document().active_element();
    for list in [".jobs", ".tabs"] {
        let current = document().query_selector(&format!("{list} [aria-current]")).ok().flatten();
        let Some(current) = current else { continue };
        let is_here = focus.as_ref().is_some_and(|focus| focus.closest(list).ok().flatten().is_some());
        if let Some(current) = current.dyn_ref::<HtmlElement>().filter(|_| is_here) {
            let _ = current.focus();
        }
        platform::scroll_into_view(&current);
    }
}

/// Focuses the search of a log, if one is shown.
fn focus_log_search() {
    if let Some(field) = log_search() {
        let _ = field.focus();
    }
}

fn log_search() -> Option<HtmlElement> {
    document().query_selector(".logs__bar input").ok().flatten()?.dyn_into().ok()
}

fn is_text_input(event: &KeyboardEvent) -> bool {
    let target = event.target().and_then(|target| target.dyn_into::<HtmlElement>().ok());
    target.is_some_and(|target| matches!(target.tag_name().as_str(), "INPUT" | "TEXTAREA" | "SELECT"))
}

/// Runs a command; returns the route to navigate to, if any.
pub fn run_command(page: &Page, grids: Grids, command: Command) -> Option<Route> {
    let route = page.route.get_untracked();
    match command {
        Command::Theme => page.settings.next_theme(),
        Command::ColorScheme => page.settings.next_scheme(),
        Command::Settings => page.settings_open.set(true),
        Command::Share if untrack(|| page.is_owner()) => page.sharing.set(Some(ShareSheetView::Create)),
        Command::Share => {}
        // Graphs follow the pointer, so that this is the moment under it.
        Command::Note => page.draft_note(page.cursor.get_untracked()),
        Command::Palette => page.command_palette.set(true),
        Command::Filter => {
            if !grids.focus_filter() {
                focus_log_search();
            }
        }
        Command::Columns => grids.open_menu(TableMenu::Columns),
        Command::Copy => grids.open_menu(TableMenu::Export),
        Command::Sort(step) => grids.sort_next(step),
        Command::ReverseSort => grids.reverse_sort(),
        Command::Help => page.help.update(|open| *open = !*open),
        Command::Close => {
            page.help.set(false);
            page.drawer.set(false);
            page.pending_action.set(None);
            page.address.set_query(query::GPU, None);
            page.address.set_query(query::PROCESS, None);
        }
        Command::AllJobs => return Some(Route::AllJobs),
        // A log that is shown takes the step, and passes it on past its last error.
        Command::Next(by) if log_search().is_some() => page.log_step.set(Some(by)),
        Command::Next(by) => page.go_to_problem(by),
        Command::Overview => return route.job().map(|id| Route::Job(id, JobTab::Nodes)),
        Command::Processes => {
            let id = route.job()?;
            let back = matches!(route, Route::Job(_, JobTab::Processes));
            return Some(Route::Job(id, if back { JobTab::Nodes } else { JobTab::Processes }));
        }
        Command::Logs if untrack(|| page.shows_logs()) => {
            return route.job().map(|id| Route::Job(id, JobTab::Logs));
        }
        Command::Logs => {}
        Command::About => return route.job().map(|id| Route::Job(id, JobTab::About)),
        Command::Job(step) => return next_job(page, &route, step),
        Command::Node(step) => return next_node(page, &route, step),
    }
    None
}

/// Returns the neighbour in the job list, which starts with the route of all jobs.
fn next_job(page: &Page, route: &Route, step: isize) -> Option<Route> {
    let listed_routes = untrack(|| job_list::listed_routes(page));
    let all: Vec<Route> = std::iter::once(Route::AllJobs).chain(listed_routes).collect();
    let here = route.job().map_or_else(|| route.clone(), |id| Route::Job(id, JobTab::Nodes));
    neighbour(&all, Some(&here), step)
}

/// Returns the neighbour among a job's tabs, which start with all its nodes.
fn next_node(page: &Page, route: &Route, step: isize) -> Option<Route> {
    let Route::Job(id, tab) = route else { return next_job(page, route, step) };
    let nodes = untrack(|| page.job(*id))?.nodes;
    let all: Vec<JobTab> =
        std::iter::once(JobTab::Nodes).chain(nodes.into_iter().map(JobTab::Node)).collect();
    neighbour(&all, Some(tab), step).map(|tab| Route::Job(*id, tab))
}

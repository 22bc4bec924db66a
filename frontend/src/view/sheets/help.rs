//! The help: every keyboard shortcut, gestures on touch screens, and the symbols of states.

use crate::domain::keys::{FOCUS_BINDINGS, bindings, keycap};
use crate::platform;
use crate::state::page::Page;
use crate::view::widgets::sheet::Sheet;
use leptos::prelude::*;
use std::sync::Arc;

/// The help, while it is open.
#[component]
pub fn Help() -> impl IntoView {
    let page = Page::from_context();
    let open = page.help;
    let line = |keys: Vec<&'static str>, what: &'static str| {
        let keys = keys.into_iter().map(|key| view! { <kbd>{keycap(key)}</kbd> " " }).collect_view();
        view! { <dt>{keys}</dt> <dd>{what}</dd> }
    };
    let keys = move |is_owner: bool, shows_logs: bool| {
        let everywhere = bindings(is_owner, shows_logs);
        let everywhere =
            everywhere.map(|binding| line(binding.keys.to_vec(), binding.description)).collect_view();
        let palette = line(vec!["Ctrl", "K"], "search findings, jobs, nodes, GPUs, ranks, PIDs, commands");
        // The keys of a process are signals.
        let local = FOCUS_BINDINGS.iter().filter(|(title, _)| is_owner || !title.contains("process")).map(
            |(title, lines)| {
                let lines = lines.iter().map(|(keys, what)| line(keys.to_vec(), what)).collect_view();
                view! { <h2>{*title}</h2> <dl>{lines}</dl> }
            },
        );
        view! { <div class="help__keys"><h2>"Keyboard shortcuts"</h2> <dl>{everywhere} {palette}</dl> {local.collect_view()}</div> }
    };
    move || {
        let (is_owner, shows_logs) = untrack(|| (page.is_owner(), page.shows_logs()));
        open.get().then(|| {
            view! {
                <Sheet class="ask help" label="Help" close=Arc::new(move || open.set(false))>
                    {documents()}
                    {keys(is_owner, shows_logs)}
                    <div class="help__touch">
                        <h2>"Touch"</h2>
                        <dl>
                            <dt>"Tap a row"</dt> <dd>"open it"</dd>
                            <dt>"Tap a column's title"</dt> <dd>"sort by it"</dd>
                            <dt>"Tap a graph"</dt> <dd>"read its values"</dd>
                            <dt>"Pinch in a graph"</dt> <dd>"zoom in and out"</dd>
                        </dl>
                    </div>
                    <h2>"Symbols"</h2>
                    <dl class="help__shapes">
                        <dt><i class="dot dot--well"></i></dt> <dd>"live and healthy"</dd>
                        <dt><i class="dot dot--attention"></i></dt> <dd>"warning: slower or at risk, such as heat, idle GPUs or a late node"</dd>
                        <dt><i class="dot dot--bad"></i></dt> <dd>"error: no answer, a lost GPU, memory errors, a hung or failed job"</dd>
                        <dt><i class="dot dot--waiting"></i></dt> <dd>"pending, or without current data"</dd>
                        <dt><i class="dot dot--ended"></i></dt> <dd>"ended; shows its last values"</dd>
                    </dl>
                </Sheet>
            }.into_any()
        })
    }
}

/// The link to the documents, which release builds of the relay serve.
fn documents() -> Option<impl IntoView> {
    let address = platform::has_help().then(|| format!("{}/help/", platform::base()))?;
    Some(
        view! { <p class="help__documents"><a class="link" href=address target="_blank" rel="noopener">"Tutorials and documentation"</a></p> },
    )
}

//! Commands with a button that copies them and confirms it.

use crate::describe::commands::ShellCommand;
use crate::platform;
use crate::state::page::Page;
use crate::view::widgets::actions::show_toast;
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::*;

/// Time for which the confirmation stays, in ms.
const COPIED_MS: u32 = 1_600;
/// Reason for not copying.
const REFUSED: &str = "Nothing was copied: the browser refuses access to the clipboard.";

/// Copies a text, and calls `done`; a toast says if the browser refuses.
pub fn copy(page: &Page, text: &str, done: impl FnOnce() + 'static) {
    let (copied, page) = (platform::copy(text), page.clone());
    leptos::task::spawn_local(async move {
        match copied.await {
            true => done(),
            false => show_toast(page, REFUSED.to_owned(), false),
        }
    });
}

/// Commands, each with its purpose.
pub fn commands(lines: Vec<ShellCommand>) -> AnyView {
    let lines = lines.into_iter().map(|line| {
        view! {
            <div class="cmdline">
                <span class="cmdline__what">{line.purpose}</span>
                <code class="command">{line.command.clone()}</code>
                {copy_button(line.command)}
            </div>
        }
    });
    view! { <div class="cmdlines">{lines.collect_view()}</div> }.into_any()
}

/// A button that copies a text.
pub fn copy_button(text: String) -> AnyView {
    copy_button_of(move || text.clone(), "Copy", "✓ Copied")
}

/// A button that copies what `text` returns, with its label before and after.
pub fn copy_button_of(
    text: impl Fn() -> String + 'static,
    label: &'static str,
    done: &'static str,
) -> AnyView {
    let (page, copied) = (Page::from_context(), RwSignal::new(false));
    let copy = move |_| {
        copy(&page, &text(), move || {
            // The button may be gone by then.
            copied.try_set(true);
            leptos::task::spawn_local(async move {
                TimeoutFuture::new(COPIED_MS).await;
                copied.try_set(false);
            });
        });
    };
    view! {
        <button class="btn btn--small" on:click=copy aria-live="polite">
            {move || if copied.get() { done } else { label }}
        </button>
    }
    .into_any()
}

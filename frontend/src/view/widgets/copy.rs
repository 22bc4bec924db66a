//! Commands with a button that copies them and confirms it.

use crate::describe::commands::ShellCommand;
use crate::platform;
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::*;

/// Time for which the confirmation stays, in ms.
const COPIED_MS: u32 = 1_600;

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
    let copied = RwSignal::new(false);
    let copy = move |_| {
        platform::copy(&text());
        copied.set(true);
        leptos::task::spawn_local(async move {
            TimeoutFuture::new(COPIED_MS).await;
            // The button may be gone by then.
            copied.try_set(false);
        });
    };
    view! {
        <button class="btn btn--small" on:click=copy aria-live="polite">
            {move || if copied.get() { done } else { label }}
        </button>
    }
    .into_any()
}

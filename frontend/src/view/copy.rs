//! A command is copied with one click, and a small word says that it was.

use crate::browser;
use crate::tell::commands::Line;
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::*;

/// How long the word stays, in ms.
const SAID_MS: u32 = 1_600;

/// Commands, each with what it is for.
pub fn commands(lines: Vec<Line>) -> AnyView {
    let lines = lines.into_iter().map(|line| {
        view! {
            <div class="cmdline">
                <span class="cmdline__what">{line.what}</span>
                <code class="command">{line.command.clone()}</code>
                {copy_button(line.command)}
            </div>
        }
    });
    view! { <div class="cmdlines">{lines.collect_view()}</div> }.into_any()
}

/// A button that copies a text.
pub fn copy_button(text: String) -> AnyView {
    let copied = RwSignal::new(false);
    let copy = move |_| {
        browser::copy(&text);
        copied.set(true);
        leptos::task::spawn_local(async move {
            TimeoutFuture::new(SAID_MS).await;
            // The button may be gone by then.
            copied.try_set(false);
        });
    };
    view! {
        <button class="btn btn--small" on:click=copy aria-live="polite">
            {move || if copied.get() { "✓ copied" } else { "copy" }}
        </button>
    }
    .into_any()
}

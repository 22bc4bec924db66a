//! A small menu that opens under its button, and goes with Esc, a click elsewhere, or when it has done its work.

use leptos::prelude::*;
use std::sync::Arc;
use web_sys::KeyboardEvent;

/// A button with a menu.
#[component]
pub fn Menu(
    /// What stands on the button.
    title: &'static str,
    /// What it is for.
    about: &'static str,
    /// Whether it is open.
    open: RwSignal<bool>,
    /// What is in it.
    inside: Arc<dyn Fn() -> AnyView + Send + Sync>,
) -> impl IntoView {
    let hear = move |event: KeyboardEvent| {
        if event.key() == "Escape" && open.get_untracked() {
            open.set(false);
        }
        // Letters typed at a menu are no commands to the page.
        event.stop_propagation();
    };
    let body = move || {
        let inside = inside.clone();
        open.get().then(|| {
            view! {
                <div class="menu__veil" on:click=move |_| open.set(false)></div>
                <div class="menu__body">{inside()}</div>
            }
            .into_any()
        })
    };
    view! {
        <div class="menu" on:keydown=hear>
            <button
                class="btn"
                title=about
                aria-haspopup="true"
                aria-expanded=move || if open.get() { "true" } else { "false" }
                on:click=move |_| open.update(|open| *open = !*open)
            >
                {title}
            </button>
            {move || body()}
        </div>
    }
}

//! A menu that opens under its button, and closes with Esc, a click elsewhere, or a choice.

use leptos::prelude::*;
use std::sync::Arc;
use web_sys::KeyboardEvent;

/// A button with a menu.
#[component]
pub fn Menu(
    /// Label of the button.
    #[prop(into)]
    title: Signal<String>,
    /// Tooltip of the button.
    about: &'static str,
    /// Whether it is open.
    open: RwSignal<bool>,
    /// Its content.
    inside: Arc<dyn Fn() -> AnyView + Send + Sync>,
) -> impl IntoView {
    let handle_key = move |event: KeyboardEvent| {
        if event.key() == "Escape" && open.get_untracked() {
            open.set(false);
        }
        // Letters typed in a menu are not shortcuts of the page.
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
        <div class="menu" on:keydown=handle_key>
            <button
                class="btn"
                title=about
                aria-haspopup="true"
                aria-expanded=move || if open.get() { "true" } else { "false" }
                on:click=move |_| open.update(|open| *open = !*open)
            >
                {move || title.get()}
            </button>
            {move || body()}
        </div>
    }
}

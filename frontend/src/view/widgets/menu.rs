//! A menu that opens under its button, and closes with Esc, a click elsewhere, or a choice.

use super::focus;
use leptos::html::Button;
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
    let button = NodeRef::<Button>::new();
    return_focus(button, open);
    let handle_key = move |event: KeyboardEvent| {
        // Letters typed in an open menu are not shortcuts of the page; those typed on its button are.
        if !open.get_untracked() {
            return;
        }
        event.stop_propagation();
        if event.key() == "Escape" {
            open.set(false);
        }
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
                node_ref=button
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

/// Returns the focus to the button when the menu closes, if the focus is in the menu, or nowhere once the menu is gone.
fn return_focus(button: NodeRef<Button>, open: RwSignal<bool>) {
    Effect::watch(
        move || open.get(),
        move |is_open, _, _| {
            let menu = button.get_untracked().and_then(|button| button.parent_element());
            let focused = document().active_element();
            if !is_open && (focus::is_lost() || menu.is_some_and(|menu| menu.contains(focused.as_deref()))) {
                button.get_untracked().into_iter().for_each(|button| drop(button.focus()));
            }
        },
        false,
    );
}

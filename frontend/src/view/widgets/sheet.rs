//! A modal sheet: the browser keeps the focus in it, Esc closes it, and the focus returns.

use crate::platform::{self, Listener};
use leptos::html::Dialog;
use leptos::prelude::*;
use std::sync::Arc;
use wasm_bindgen::JsCast;

/// Called when the user closes the sheet.
pub type Close = Arc<dyn Fn() + Send + Sync>;

/// Called with the name of a pressed key.
pub type Keys = Arc<dyn Fn(&str) + Send + Sync>;

/// A modal sheet at the right, or the whole page on a phone.
#[component]
pub fn Sheet(
    /// Class of its form: `sheet` or `ask`.
    class: &'static str,
    /// Its accessible name.
    #[prop(into)]
    label: Signal<String>,
    /// Called when the user closes it.
    close: Close,
    /// Handles keys while it is open; the page's shortcuts are disabled.
    #[prop(optional_no_strip)]
    keys: Option<Keys>,
    /// Its content.
    children: Children,
) -> impl IntoView {
    let dialog = NodeRef::<Dialog>::new();
    show_modal(dialog);
    if let Some(keys) = keys {
        pass_keys(dialog, keys);
    }
    let (by_escape, by_click, by_button) = (close.clone(), close.clone(), close);
    let on_cancel = move |event: web_sys::Event| {
        event.prevent_default();
        by_escape();
    };
    let on_click = move |event: web_sys::MouseEvent| {
        if has_tag(&event, "DIALOG") {
            by_click();
        }
    };
    view! {
        <dialog
            class=class
            node_ref=dialog
            aria-label=label
            on:cancel=on_cancel
            on:click=on_click
        >
            <div class="sheet__in">
                <button class="btn sheet__close" on:click=move |_| by_button()>"Close " <kbd>"Esc"</kbd></button>
                {children()}
            </div>
        </dialog>
    }
}

/// Opens a dialog once it is there, and closes it before it is removed: only then does the browser return the focus.
fn show_modal(dialog: NodeRef<Dialog>) {
    platform::effect(move || {
        if let Some(dialog) = dialog.get()
            && !dialog.open()
        {
            let _ = dialog.show_modal();
        }
    });
    on_cleanup(move || {
        if let Some(dialog) = dialog.get_untracked() {
            dialog.close();
        }
    });
}

/// Passes the keys on that are pressed while a dialog is the topmost, except those typed in a field.
fn pass_keys(dialog: NodeRef<Dialog>, keys: Keys) {
    // On the document, which also receives keys when the focused element has disappeared, such as a button after its
    // answer. The page's own shortcuts leave an open sheet alone.
    StoredValue::new_local(Listener::new(document(), "keydown", move |event| {
        let Some(event) = event.dyn_ref::<web_sys::KeyboardEvent>() else { return };
        let own = dialog.get_untracked().map(web_sys::Element::from);
        let is_top = own.is_some() && platform::top_sheet() == own;
        if is_top && !has_tag(event, "INPUT") && !event.ctrl_key() && !event.meta_key() {
            keys(&event.key());
        }
    }));
}

/// Returns whether the target of an event is an element with this tag.
fn has_tag(event: &web_sys::Event, tag: &str) -> bool {
    let target = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    target.is_some_and(|target| target.tag_name() == tag)
}

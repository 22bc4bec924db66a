//! A sheet lies over the page: the browser keeps the focus in it, Esc closes it, and the focus goes back.

use crate::browser::{self, Listener};
use leptos::html::Dialog;
use leptos::prelude::*;
use std::sync::Arc;
use wasm_bindgen::JsCast;

/// What closing means; told when the user wishes it.
pub type Close = Arc<dyn Fn() + Send + Sync>;

/// What keys do; told their names.
pub type Keys = Arc<dyn Fn(&str) + Send + Sync>;

/// A sheet at the right, the whole page on a phone.
#[component]
pub fn Sheet(
    /// Class of its form: `sheet` or `ask`.
    class: &'static str,
    /// What it is, for a screen reader.
    #[prop(into)]
    label: Signal<String>,
    /// What closing means.
    close: Close,
    /// What keys do while it is open; the page's own keys are silent.
    #[prop(optional_no_strip)]
    keys: Option<Keys>,
    /// What is in it.
    children: Children,
) -> impl IntoView {
    let dialog = NodeRef::<Dialog>::new();
    Effect::new(move || {
        if let Some(dialog) = dialog.get()
            && !dialog.open()
        {
            let _ = dialog.show_modal();
        }
    });
    // Closed before it goes: only then does the browser give the focus back.
    on_cleanup(move || {
        if let Some(dialog) = dialog.get_untracked() {
            dialog.close();
        }
    });
    let (by_escape, by_click, by_button) = (close.clone(), close.clone(), close);
    let on_cancel = move |event: web_sys::Event| {
        event.prevent_default();
        by_escape();
    };
    let on_click = move |event: web_sys::MouseEvent| {
        let on_veil = event.target().is_some_and(|target| {
            target.dyn_into::<web_sys::Element>().is_ok_and(|target| target.tag_name() == "DIALOG")
        });
        if on_veil {
            by_click();
        }
    };
    let obey = move |event: &web_sys::KeyboardEvent| {
        let typing = event.target().is_some_and(|target| {
            target.dyn_into::<web_sys::Element>().is_ok_and(|target| target.tag_name() == "INPUT")
        });
        if let Some(keys) = keys.as_ref().filter(|_| !typing && !event.ctrl_key() && !event.meta_key()) {
            keys(&event.key());
        }
    };
    let on_keydown = {
        let obey = obey.clone();
        move |event: web_sys::KeyboardEvent| {
            event.stop_propagation();
            obey(&event);
        }
    };
    // What had the focus may go, as a button does that was answered: then keys reach the document only.
    StoredValue::new_local(Listener::new(document(), "keydown", move |event| {
        let Some(event) = event.dyn_ref::<web_sys::KeyboardEvent>() else { return };
        let own = dialog.get_untracked().map(web_sys::Element::from);
        if own.is_some() && browser::top_sheet() == own {
            obey(event);
        }
    }));
    view! {
        <dialog
            class=class
            node_ref=dialog
            aria-label=move || label.get()
            on:cancel=on_cancel
            on:click=on_click
            on:keydown=on_keydown
        >
            <div class="sheet__in">
                <button class="btn sheet__close" on:click=move |_| by_button()>"Close " <kbd>"Esc"</kbd></button>
                {children()}
            </div>
        </dialog>
    }
}

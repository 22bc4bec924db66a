//! Keeps the keyboard focus on the page: what had it may be gone after a key.

use crate::platform::{self, Listener};
use leptos::prelude::*;
use wasm_bindgen::JsCast;
use web_sys::{HtmlElement, KeyboardEvent};

/// Moves a focus that a key has left nowhere to the content, for as long as the calling owner lives. Otherwise the next Tab
/// would start at the top of the page.
pub fn keep() {
    let listener = Listener::new(document(), "keyup", move |event| {
        let is_tab = event.dyn_ref::<KeyboardEvent>().is_some_and(|event| event.key() == "Tab");
        if !is_tab {
            platform::on_next_frame(focus_content_if_lost);
        }
    });
    StoredValue::new_local(listener);
}

/// Moves the focus to the content if it is on an element within `selector` that is about to be removed.
pub fn keep_if_within(selector: &str) {
    let focus = document().active_element();
    if focus.is_some_and(|focus| focus.closest(selector).is_ok_and(|found| found.is_some())) {
        platform::on_next_frame(focus_content_if_lost);
    }
}

fn focus_content_if_lost() {
    if is_lost() {
        focus_content();
    }
}

/// Returns whether no element has the focus.
pub fn is_lost() -> bool {
    document().active_element().is_none_or(|focus| focus.tag_name() == "BODY")
}

/// Moves the focus to the content, past the bars and the list of jobs.
pub fn focus_content() {
    let main = document().get_element_by_id("main").and_then(|main| main.dyn_into::<HtmlElement>().ok());
    main.into_iter().for_each(|main| drop(main.focus()));
}

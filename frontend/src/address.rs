//! The address bar and the place are one: links, keys and the browser's own buttons all lead through here.
//!
//! A router crate would match routes to views; here every path is a [`Place`] and one view shows it, so
//! all that is left of a router is the history, which is not worth a tenth of the page.

use crate::browser::{self, Listener};
use crate::place::Place;
use leptos::prelude::*;
use std::sync::Arc;
use wasm_bindgen::JsCast;
use web_sys::{Element, MouseEvent};

/// The address. Clones are the same address.
#[derive(Clone)]
pub struct Address {
    place: RwSignal<Place>,
    base: Arc<str>,
}

impl Address {
    /// The address as it is now, followed for as long as the calling owner lives.
    pub fn followed() -> Self {
        let base: Arc<str> = browser::base().into();
        let address = Self { place: RwSignal::new(here(&base)), base };
        let (back, link) = (address.clone(), address.clone());
        StoredValue::new_local([
            Listener::new(window(), "popstate", move |_| back.place.set(here(&back.base))),
            Listener::new(document(), "click", move |event| link.follow(&event)),
        ]);
        address
    }

    /// Where it leads.
    pub fn place(&self) -> Place {
        self.place.get()
    }

    /// The link to a place.
    pub fn href(&self, place: &Place) -> String {
        format!("{}{}", self.base, place.path())
    }

    /// Goes to a place, and leaves a trace for the back button.
    pub fn go(&self, place: Place) {
        if self.place.with_untracked(|here| *here != place) {
            browser::push_address(&self.href(&place));
            self.place.set(place);
        }
    }

    /// Goes to a place that stands for this one.
    pub fn become_place(&self, place: Place) {
        browser::replace_address(&self.href(&place));
        self.place.set(place);
    }

    /// Follows a link to a place of this page; whatever else was clicked is the browser's.
    fn follow(&self, event: &web_sys::Event) {
        let Some(click) = event.dyn_ref::<MouseEvent>() else { return };
        if event.default_prevented() || click.button() != 0 || has_modifier(click) {
            return;
        }
        let target = event.target().and_then(|target| target.dyn_into::<Element>().ok());
        let link = target.and_then(|target| target.closest("a[href]").ok().flatten());
        let Some(href) = link.and_then(|link| link.get_attribute("href")) else { return };
        if let Some(path) = below(&href, &self.base) {
            event.prevent_default();
            self.go(Place::of_path(path));
        }
    }
}

/// The place that the address bar names.
fn here(base: &str) -> Place {
    let path = browser::path();
    below(&path, base).map_or(Place::Nowhere, Place::of_path)
}

/// Who holds a key wants another tab or a download.
fn has_modifier(click: &MouseEvent) -> bool {
    click.meta_key() || click.ctrl_key() || click.shift_key() || click.alt_key()
}

/// The part of a path below the relay's base path, if it is below it.
fn below<'a>(path: &'a str, base: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(base)?;
    (rest.starts_with('/') && !rest.starts_with("//")).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_the_base_are_ours_and_others_are_not() {
        assert_eq!(below("/job/1", ""), Some("/job/1"));
        assert_eq!(below("/node/lab/job/1", "/node/lab"), Some("/job/1"));
        assert_eq!(below("/node/laboratory", "/node/lab"), None);
        assert_eq!(below("//evil.example/", ""), None);
        assert_eq!(below("https://evil.example/", ""), None);
    }
}

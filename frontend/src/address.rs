//! The address bar, the place and the query are one: links, keys and the browser's own buttons all lead through here.
//!
//! A router crate would match routes to views; here every path is a [`Place`] and one view shows it, so
//! all that is left of a router is the history, which is not worth a tenth of the page.

use crate::browser::{self, Listener};
use crate::place::Place;
use crate::query::Query;
use leptos::prelude::*;
use std::sync::Arc;
use wasm_bindgen::JsCast;
use web_sys::{Element, MouseEvent};

/// The address. Clones are the same address.
#[derive(Clone)]
pub struct Address {
    place: RwSignal<Place>,
    query: RwSignal<Query>,
    base: Arc<str>,
}

impl Address {
    /// The address as it is now, followed for as long as the calling owner lives.
    pub fn followed() -> Self {
        let base: Arc<str> = browser::base().into();
        let address = Self {
            place: RwSignal::new(here(&base)),
            query: RwSignal::new(Query::parse(&browser::search())),
            base,
        };
        let (back, link) = (address.clone(), address.clone());
        StoredValue::new_local([
            Listener::new(window(), "popstate", move |_| back.read()),
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

    /// What the URL says of a name after `?`; wakes only those who read this name.
    pub fn query(&self, name: &'static str) -> Memo<Option<String>> {
        let query = self.query;
        Memo::new(move |_| query.with(|query| query.get(name).map(ToOwned::to_owned)))
    }

    /// Whether the URL names a switch after `?`.
    pub fn has_query(&self, name: &'static str) -> Memo<bool> {
        let query = self.query;
        Memo::new(move |_| query.with(|query| query.has(name)))
    }

    /// Says something else of a name, in the place of what the URL says now; `None` takes the name out.
    pub fn set_query(&self, name: &str, value: Option<String>) {
        self.change(name, value, browser::replace_address);
    }

    /// The same, with a trace for the back button: for what opens and closes.
    pub fn push_query(&self, name: &str, value: Option<String>) {
        self.change(name, value, browser::push_address);
    }

    /// Goes to a place, and leaves a trace for the back button.
    pub fn go(&self, place: Place) {
        let query = self.carried(&place);
        self.go_with(place, query);
    }

    /// Goes to a place that stands for this one.
    pub fn become_place(&self, place: Place) {
        let query = self.carried(&place);
        browser::replace_address(&format!("{}{}", self.href(&place), query.text()));
        self.show(place, query);
    }

    fn change(&self, name: &str, value: Option<String>, write: fn(&str)) {
        let mut query = self.query.get_untracked();
        query.set(name, value);
        if self.query.with_untracked(|known| *known != query) {
            write(&format!("{}{}", self.place.with_untracked(|place| self.href(place)), query.text()));
            self.query.set(query);
        }
    }

    fn go_with(&self, place: Place, query: Query) {
        let same = self.place.with_untracked(|here| *here == place)
            && self.query.with_untracked(|known| *known == query);
        if !same {
            browser::push_address(&format!("{}{}", self.href(&place), query.text()));
            self.show(place, query);
        }
    }

    /// What of the query still holds at another place.
    fn carried(&self, to: &Place) -> Query {
        self.place.with_untracked(|from| self.query.with_untracked(|query| query.carried(from, to)))
    }

    /// The query goes first: who looks at a place reads what was asked for there.
    fn show(&self, place: Place, query: Query) {
        self.query.set(query);
        if self.place.with_untracked(|here| *here != place) {
            self.place.set(place);
        }
    }

    /// Reads the address bar, after the browser's own buttons.
    fn read(&self) {
        self.show(here(&self.base), Query::parse(&browser::search()));
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
            match path.split_once('?') {
                Some((path, query)) => self.go_with(Place::of_path(path), Query::parse(query)),
                None => self.go(Place::of_path(path)),
            }
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

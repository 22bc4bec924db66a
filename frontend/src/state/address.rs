//! The page's address: the route and the query, kept in sync with the address bar and its history.
//!
//! A router crate would match paths to views. Here every path parses to a [`Route`] that one view shows, so
//! only the history remains, which does not justify the size of a router crate.

use crate::domain::query::Query;
use crate::domain::route::Route;
use crate::platform::{self, Listener};
use leptos::prelude::*;
use nodeglass_protocol::job::Job;
use std::sync::Arc;
use wasm_bindgen::JsCast;
use web_sys::{Element, MouseEvent};

/// The page's address. Clones share the same state.
#[derive(Clone)]
pub struct Address {
    route: RwSignal<Route>,
    query: RwSignal<Query>,
    base: Arc<str>,
    /// The jobs, which decide what the number of an array or of a task means.
    jobs: StoredValue<Option<Memo<Arc<Vec<Job>>>>>,
}

impl Address {
    /// Reads the current address and follows it for as long as the calling owner lives.
    pub fn listening() -> Self {
        let base: Arc<str> = platform::base().into();
        let address = Self {
            route: RwSignal::new(current_route(&base)),
            query: RwSignal::new(Query::parse(&platform::search())),
            base,
            jobs: StoredValue::default(),
        };
        let (back, link) = (address.clone(), address.clone());
        StoredValue::new_local([
            Listener::new(window(), "popstate", move |_| back.read()),
            Listener::new(document(), "click", move |event| link.follow(&event)),
        ]);
        address
    }

    /// Returns the current route.
    pub fn route(&self) -> Route {
        self.route.get()
    }

    /// Returns the link to a route.
    pub fn href(&self, route: &Route) -> String {
        let own = self.by_jobs(|jobs| route.unambiguous(jobs));
        format!("{}{}", self.base, own.as_ref().unwrap_or(route).path())
    }

    /// Resolves numbers and labels of jobs by this list from now on.
    pub fn set_jobs(&self, jobs: Memo<Arc<Vec<Job>>>) {
        self.jobs.set_value(Some(jobs));
    }

    /// Resolves what the address bar names, once it is listed.
    pub fn resolve(&self) {
        let shown = self.resolved(current_route(&self.base));
        if self.route.with_untracked(|route| route.topic() != shown.topic()) {
            self.replace_route(shown);
        }
    }

    /// Returns the route that the path of another one leads to.
    fn resolved(&self, route: Route) -> Route {
        self.by_jobs(|jobs| route.resolve(jobs)).unwrap_or(route)
    }

    fn by_jobs(&self, find: impl FnOnce(&[Job]) -> Option<Route>) -> Option<Route> {
        self.jobs.get_value()?.with_untracked(|jobs| find(jobs))
    }

    /// Returns the value of a query parameter; notifies only subscribers of that parameter.
    pub fn query(&self, name: &'static str) -> Memo<Option<String>> {
        let query = self.query;
        Memo::new(move |_| query.with(|query| query.get(name).map(ToOwned::to_owned)))
    }

    /// Returns whether a query parameter is present, with or without a value.
    pub fn has_query(&self, name: &'static str) -> Memo<bool> {
        let query = self.query;
        Memo::new(move |_| query.with(|query| query.has(name)))
    }

    /// Sets a query parameter and replaces the history entry; `None` removes it.
    pub fn set_query(&self, name: &str, value: Option<String>) {
        self.change(name, value, platform::replace_address);
    }

    /// Like [`Self::set_query`], but adds a history entry: for what opens and closes.
    pub fn push_query(&self, name: &str, value: Option<String>) {
        self.change(name, value, platform::push_address);
    }

    /// Navigates to a route and adds a history entry.
    pub fn navigate(&self, route: Route) {
        let query = self.retained(&route);
        self.navigate_with(route, query);
    }

    /// Navigates to a route in place of the current history entry.
    pub fn replace_route(&self, route: Route) {
        let query = self.retained(&route);
        platform::replace_address(&format!("{}{}", self.href(&route), query.text()));
        self.commit(route, query);
    }

    fn change(&self, name: &str, value: Option<String>, write: fn(&str)) {
        let mut query = self.query.get_untracked();
        query.set(name, value);
        if self.query.with_untracked(|known| *known != query) {
            write(&format!("{}{}", self.route.with_untracked(|route| self.href(route)), query.text()));
            self.query.set(query);
        }
    }

    /// Navigates to a route with a query and adds a history entry.
    pub fn navigate_with(&self, route: Route, query: Query) {
        let same = self.route.with_untracked(|current_route| *current_route == route)
            && self.query.with_untracked(|known| *known == query);
        if !same {
            platform::push_address(&format!("{}{}", self.href(&route), query.text()));
            self.commit(route, query);
        }
    }

    /// Returns the part of the query that applies to another route, too.
    fn retained(&self, to: &Route) -> Query {
        self.route.with_untracked(|from| self.query.with_untracked(|query| query.retained(from, to)))
    }

    /// Sets the query first: subscribers to the route read the query that belongs to it.
    fn commit(&self, route: Route, query: Query) {
        self.query.set(query);
        if self.route.with_untracked(|current_route| *current_route != route) {
            self.route.set(route);
        }
    }

    /// Reads the address bar after the browser's back or forward button was used.
    fn read(&self) {
        self.commit(self.resolved(current_route(&self.base)), Query::parse(&platform::search()));
    }

    /// Navigates to a clicked link of this page; leaves all other clicks to the browser.
    fn follow(&self, event: &web_sys::Event) {
        let Some(click) = event.dyn_ref::<MouseEvent>() else { return };
        if event.default_prevented() || click.button() != 0 || has_modifier(click) {
            return;
        }
        let target = event.target().and_then(|target| target.dyn_into::<Element>().ok());
        let link = target.and_then(|target| target.closest("a[href]:not([target])").ok().flatten());
        let Some(href) = link.and_then(|link| link.get_attribute("href")) else { return };
        if let Some(path) = path_below_base(&href, &self.base) {
            event.prevent_default();
            match path.split_once('?') {
                Some((path, query)) => {
                    self.navigate_with(self.resolved(Route::from_path(path)), Query::parse(query));
                }
                None => self.navigate(self.resolved(Route::from_path(path))),
            }
        }
    }
}

/// Returns the route in the address bar.
fn current_route(base: &str) -> Route {
    let path = platform::path();
    path_below_base(&path, base).map_or(Route::Nowhere, Route::from_path)
}

/// Returns whether a modifier key is pressed, which opens a new tab or starts a download.
fn has_modifier(click: &MouseEvent) -> bool {
    click.meta_key() || click.ctrl_key() || click.shift_key() || click.alt_key()
}

/// Returns the part of a path below the relay's base path, if it lies below it.
fn path_below_base<'a>(path: &'a str, base: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(base)?;
    (rest.starts_with('/') && !rest.starts_with("//")).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_the_base_are_handled() {
        assert_eq!(path_below_base("/job/1", ""), Some("/job/1"));
        assert_eq!(path_below_base("/node/lab/job/1", "/node/lab"), Some("/job/1"));
        assert_eq!(path_below_base("/node/laboratory", "/node/lab"), None);
        assert_eq!(path_below_base("//evil.example/", ""), None);
        assert_eq!(path_below_base("https://evil.example/", ""), None);
    }
}

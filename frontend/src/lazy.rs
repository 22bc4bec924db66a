//! Closures of views are boxed, so that what draws and renews them exists once per type of value.
//!
//! Each closure is a type of its own, and the machinery of a reactive text, attribute, list or memo is
//! made for each type. Unboxed, the page is nearly half as big again.

use leptos::prelude::*;
use std::sync::Arc;

/// A value that is made anew whenever what it reads changes.
pub type Lazy<T> = Box<dyn Fn() -> T + Send>;

/// An attribute that changes.
pub fn lazy<T>(make: impl Fn() -> T + Send + 'static) -> Lazy<T> {
    Box::new(make)
}

/// A text that changes.
pub fn words<W: Words>(make: impl Fn() -> W + Send + 'static) -> Lazy<String> {
    Box::new(move || make().words())
}

/// A part of a view that is another one from time to time.
pub fn part<V: IntoView + 'static>(make: impl Fn() -> V + Send + 'static) -> Lazy<AnyView> {
    Box::new(move || make().into_any())
}

/// A list that is drawn by the identity of its items.
pub fn rows<T: Clone + Send + Sync + 'static>(
    items: Memo<Vec<T>>,
    key: fn(&T) -> String,
    row: impl Fn(T) -> AnyView + Send + Sync + 'static,
) -> AnyView {
    let row = Arc::new(row);
    let item = move |item: T| {
        let row = row.clone();
        Item { key: key(&item), draw: Arc::new(move || row(item.clone())) }
    };
    list(Box::new(move || items.get().into_iter().map(&item).collect()))
}

#[derive(Clone)]
struct Item {
    key: String,
    draw: Arc<dyn Fn() -> AnyView + Send + Sync>,
}

fn list(items: Box<dyn Fn() -> Vec<Item> + Send + Sync>) -> AnyView {
    leptos::view! { <For each=items key=|item| item.key.clone() children=|item| (item.draw)()/> }.into_any()
}

/// A value that is worked out once for all who read it, and wakes them only when it is another one.
pub fn memo<T: PartialEq + Send + Sync + 'static>(make: impl Fn() -> T + Send + Sync + 'static) -> Memo<T> {
    boxed_memo(Box::new(make))
}

fn boxed_memo<T: PartialEq + Send + Sync + 'static>(make: Box<dyn Fn() -> T + Send + Sync>) -> Memo<T> {
    Memo::new(move |_| make())
}

/// Touches the world outside whenever what it reads changes.
pub fn effect(run: impl Fn() + 'static) {
    boxed_effect(Box::new(run));
}

fn boxed_effect(run: Box<dyn Fn()>) {
    Effect::new(move |_| run());
}

/// What can be a text.
pub trait Words: 'static {
    /// The text; what is not there is empty.
    fn words(self) -> String;
}

impl Words for String {
    fn words(self) -> String {
        self
    }
}

impl Words for &'static str {
    fn words(self) -> String {
        self.to_owned()
    }
}

impl Words for u32 {
    fn words(self) -> String {
        self.to_string()
    }
}

impl Words for usize {
    fn words(self) -> String {
        self.to_string()
    }
}

impl<W: Words> Words for Option<W> {
    fn words(self) -> String {
        self.map(W::words).unwrap_or_default()
    }
}

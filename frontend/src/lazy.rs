//! Closures of views are boxed, so that what draws and renews them exists once per type of value, and a memo's once.
//!
//! Each closure is a type of its own, and the machinery of a reactive text, attribute, list or memo is
//! made for each type. Unboxed, the page is nearly half as big again.

use leptos::prelude::*;
use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

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
    view! { <For each=items key=|item| item.key.clone() children=|item| (item.draw)()/> }.into_any()
}

/// A value that is worked out once for all who read it, and wakes them only when it is another one.
pub fn memo<T: PartialEq + Send + Sync + 'static>(make: impl Fn() -> T + Send + Sync + 'static) -> Memo<T> {
    let inner = erased_memo(Box::new(move || Erased { value: Arc::new(make()), is_same: is_same::<T> }));
    Memo { inner, of: PhantomData }
}

fn erased_memo(make: Box<dyn Fn() -> Erased + Send + Sync>) -> leptos::prelude::Memo<Erased> {
    leptos::prelude::Memo::new(move |_| make())
}

/// What [`memo`] makes. Leptos makes the machinery of a memo for each type of value; this one exists once.
pub struct Memo<T> {
    inner: leptos::prelude::Memo<Erased>,
    of: PhantomData<fn() -> T>,
}

/// A value whose type its memo knows.
#[derive(Clone)]
struct Erased {
    value: Arc<dyn Any + Send + Sync>,
    is_same: fn(&dyn Any, &dyn Any) -> bool,
}

impl PartialEq for Erased {
    fn eq(&self, other: &Self) -> bool {
        (self.is_same)(&*self.value, &*other.value)
    }
}

fn is_same<T: PartialEq + 'static>(one: &dyn Any, other: &dyn Any) -> bool {
    one.downcast_ref::<T>() == other.downcast_ref::<T>()
}

#[inline(never)]
fn read(inner: leptos::prelude::Memo<Erased>) -> Erased {
    inner.get()
}

#[inline(never)]
fn read_untracked(inner: leptos::prelude::Memo<Erased>) -> Erased {
    inner.get_untracked()
}

impl Erased {
    fn of<T: 'static>(&self) -> &T {
        self.value.downcast_ref().expect("a memo holds what it was made of")
    }
}

impl<T> Clone for Memo<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Memo<T> {}

impl<T: 'static> Memo<T> {
    /// The value; whoever reads it here is woken by the next one.
    pub fn get(&self) -> T
    where
        T: Clone,
    {
        self.with(T::clone)
    }

    /// The same without a copy.
    pub fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(read(self.inner).of())
    }

    /// The value; nobody is woken by another one.
    pub fn get_untracked(&self) -> T
    where
        T: Clone,
    {
        self.with_untracked(T::clone)
    }

    /// The same without a copy.
    pub fn with_untracked<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(read_untracked(self.inner).of())
    }

    /// Has the reader woken by the next value.
    pub fn track(&self) {
        self.inner.track();
    }
}

impl<T: Clone + Send + Sync + 'static> From<Memo<T>> for Signal<T> {
    fn from(memo: Memo<T>) -> Self {
        Self::derive(move || memo.get())
    }
}

/// Touches the world outside whenever what it reads changes.
pub fn effect(run: impl Fn() + 'static) {
    boxed_effect(Box::new(run));
}

fn boxed_effect(run: Box<dyn Fn()>) {
    Effect::new(move |_| run());
}

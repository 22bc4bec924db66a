//! A signal is a value beside a trigger: what wakes its readers exists once, whatever type the value has.
//!
//! Leptos makes all of it for each type of value, and the page has forty of them.

use leptos::prelude::*;
use std::any::Any;
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError, RwLock};

/// A value that wakes its readers. Clones are the same, and it is there as long as one of them.
pub struct ArcRwSignal<T> {
    trigger: ArcTrigger,
    value: Arc<RwLock<T>>,
}

impl<T> Clone for ArcRwSignal<T> {
    fn clone(&self) -> Self {
        Self { trigger: self.trigger.clone(), value: self.value.clone() }
    }
}

impl<T> ArcRwSignal<T> {
    /// A signal that begins with this value.
    pub fn new(value: T) -> Self {
        Self { trigger: ArcTrigger::new(), value: Arc::new(RwLock::new(value)) }
    }

    /// The value; whoever reads it here is woken by the next one.
    pub fn get(&self) -> T
    where
        T: Clone,
    {
        self.with(T::clone)
    }

    /// The same without a copy.
    pub fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        self.track();
        self.with_untracked(look)
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
        look(&self.value.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has the reader woken by the next value.
    pub fn track(&self) {
        self.trigger.track();
    }

    /// Puts another value in its place.
    pub fn set(&self, value: T) {
        self.update(|old| *old = value);
    }

    /// Changes the value.
    pub fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = self.update_untracked(change);
        self.trigger.notify();
        result
    }

    /// Changes the value and wakes nobody.
    pub fn update_untracked<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.value.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A value that wakes its readers, and goes with the owner under which it was made.
pub struct RwSignal<T> {
    kept: StoredValue<Kept>,
    of: PhantomData<fn() -> T>,
}

/// A signal whose type its handles know.
#[derive(Clone)]
struct Kept {
    trigger: ArcTrigger,
    value: Arc<dyn Any + Send + Sync>,
}

fn keep(kept: Kept) -> StoredValue<Kept> {
    StoredValue::new(kept)
}

#[inline(never)]
fn find(kept: StoredValue<Kept>) -> Option<Kept> {
    kept.try_get_value()
}

impl<T> Clone for RwSignal<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for RwSignal<T> {}

impl<T> PartialEq for RwSignal<T> {
    /// The same signal, whatever its value.
    fn eq(&self, other: &Self) -> bool {
        self.kept == other.kept
    }
}

impl<T: Send + Sync + 'static> From<ArcRwSignal<T>> for RwSignal<T> {
    fn from(signal: ArcRwSignal<T>) -> Self {
        Self { kept: keep(Kept { trigger: signal.trigger, value: signal.value }), of: PhantomData }
    }
}

impl<T: Send + Sync + 'static> RwSignal<T> {
    /// A signal that begins with this value.
    pub fn new(value: T) -> Self {
        ArcRwSignal::new(value).into()
    }

    fn found(self) -> Option<ArcRwSignal<T>> {
        let Kept { trigger, value } = find(self.kept)?;
        Some(ArcRwSignal { trigger, value: value.downcast().ok()? })
    }

    fn here(self) -> ArcRwSignal<T> {
        self.found().expect("a signal is there as long as the view that made it")
    }

    /// The value; whoever reads it here is woken by the next one.
    pub fn get(self) -> T
    where
        T: Clone,
    {
        self.here().get()
    }

    /// The same without a copy.
    pub fn with<R>(self, look: impl FnOnce(&T) -> R) -> R {
        self.here().with(look)
    }

    /// The value; nobody is woken by another one.
    pub fn get_untracked(self) -> T
    where
        T: Clone,
    {
        self.here().get_untracked()
    }

    /// The same without a copy.
    pub fn with_untracked<R>(self, look: impl FnOnce(&T) -> R) -> R {
        self.here().with_untracked(look)
    }

    /// Has the reader woken by the next value.
    pub fn track(self) {
        self.here().track();
    }

    /// Puts another value in its place.
    pub fn set(self, value: T) {
        self.here().set(value);
    }

    /// The same, where the view that made it may be gone by now.
    pub fn try_set(self, value: T) {
        if let Some(signal) = self.found() {
            signal.set(value);
        }
    }

    /// Changes the value.
    pub fn update<R>(self, change: impl FnOnce(&mut T) -> R) -> R {
        self.here().update(change)
    }

    /// The same, where the view that made it may be gone by now.
    pub fn try_update<R>(self, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        Some(self.found()?.update(change))
    }

    /// Changes the value and wakes nobody.
    pub fn update_untracked<R>(self, change: impl FnOnce(&mut T) -> R) -> R {
        self.here().update_untracked(change)
    }

    /// The same, where the view that made it may be gone by now.
    pub fn try_update_untracked<R>(self, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        Some(self.found()?.update_untracked(change))
    }
}

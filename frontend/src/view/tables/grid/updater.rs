//! Updates the rendered rows of a table from one effect.
//!
//! Rows that subscribe to their data one by one cost more to notify than to update: a frame of 1,000 GPUs
//! notifies hundreds of them, most of which do not change.

use leptos::prelude::*;
use send_wrapper::SendWrapper;
use std::rc::Rc;

type Update = Rc<dyn Fn()>;

/// The rows that one effect updates. Copies share the same rows.
#[derive(Clone, Copy)]
pub struct RowUpdater(StoredValue<Vec<Update>, LocalStorage>);

impl RowUpdater {
    /// Updates all rows whenever something changes that `track` reads.
    pub fn new(track: impl Fn() + 'static) -> Self {
        let rows = StoredValue::new_local(Vec::<Update>::new());
        Effect::new(move || {
            track();
            // Updating a row may add or remove others.
            let rows = rows.get_value();
            untrack(|| rows.iter().for_each(|update| update()));
        });
        Self(rows)
    }

    /// Adds a row until the current owner is disposed.
    pub fn add(self, update: impl Fn() + 'static) {
        let update: Update = Rc::new(update);
        self.0.update_value(|rows| rows.push(update.clone()));
        let update = SendWrapper::new(update);
        on_cleanup(move || {
            self.0.try_update_value(|rows| rows.retain(|row| !Rc::ptr_eq(row, &update)));
        });
    }
}

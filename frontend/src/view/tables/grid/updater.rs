//! Updates the rendered rows of a table from one effect.
//!
//! Rows that subscribe to their data one by one cost more to notify than to update: a frame of 1,000 GPUs
//! notifies hundreds of them, most of which do not change.

use crate::platform::{self, FrameQueue};
use leptos::prelude::*;
use send_wrapper::SendWrapper;
use std::rc::Rc;

/// Number of rows that are updated with new readings in one frame.
const ROWS_PER_FRAME: usize = 24;

type Update = Rc<dyn Fn()>;

/// Urgency of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// The user waits for it: all rows are updated at once.
    Interaction,
    /// New readings: rows are updated a few per frame.
    Readings,
}

/// The rows that one effect updates. Copies share the same rows.
#[derive(Clone, Copy)]
pub struct RowUpdater(StoredValue<Rows, LocalStorage>);

#[derive(Default)]
struct Rows {
    updates: Vec<Update>,
    /// The row that is updated next.
    next: usize,
    /// Number of rows that have yet to be updated.
    due: usize,
}

impl RowUpdater {
    /// Updates rows whenever something changes that `track` reads.
    pub fn new(frames: FrameQueue, track: impl Fn() -> Urgency + 'static) -> Self {
        let updater = Self(StoredValue::new_local(Rows::default()));
        platform::effect(move || match track() {
            Urgency::Interaction => {
                // Updating a row may add or remove others.
                let rows = updater.0.with_value(|rows| rows.updates.clone());
                updater.0.update_value(|rows| rows.due = 0);
                untrack(|| rows.iter().for_each(|update| update()));
            }
            Urgency::Readings => {
                let is_waiting = updater.0.try_update_value(|rows| {
                    let is_waiting = rows.due > 0;
                    rows.due = rows.updates.len();
                    is_waiting
                });
                if is_waiting == Some(false) {
                    updater.run(frames);
                }
            }
        });
        updater
    }

    /// Updates some rows now, and the others in later frames.
    fn run(self, frames: FrameQueue) {
        let chunk = self.0.try_update_value(|rows| {
            let (count, len) = (rows.due.min(ROWS_PER_FRAME), rows.updates.len());
            let chunk: Vec<Update> = (0..count)
                .filter_map(|at| rows.updates.get((rows.next + at) % len.max(1)).cloned())
                .collect();
            rows.next = (rows.next + count) % len.max(1);
            rows.due -= count;
            (chunk, rows.due > 0)
        });
        // The table may be gone by then.
        let Some((chunk, more)) = chunk else { return };
        untrack(|| chunk.iter().for_each(|update| update()));
        if more {
            frames.push(move || self.run(frames));
        }
    }

    /// Adds a row until the current owner is disposed.
    pub fn add(self, update: impl Fn() + 'static) {
        let update: Update = Rc::new(update);
        self.0.update_value(|rows| rows.updates.push(update.clone()));
        let update = SendWrapper::new(update);
        on_cleanup(move || {
            self.0.try_update_value(|rows| rows.updates.retain(|row| !Rc::ptr_eq(row, &update)));
        });
    }
}

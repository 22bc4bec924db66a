//! Number of items that were lost, which one thread counts and another reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of lost items. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct LossCount(Arc<AtomicU64>);

impl LossCount {
    /// Adds lost items.
    pub fn add(&self, items: usize) {
        self.0.fetch_add(items as u64, Ordering::Relaxed);
    }

    /// Returns the number so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

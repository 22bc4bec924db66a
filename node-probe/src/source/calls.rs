//! Tracks the current driver call of a worker thread for the watchdog: since when it runs, and for
//! which GPU.

use super::Inventory;
use crate::clock;
use nodeglass_protocol::probe::GpuFacts;
use nodeglass_protocol::{GpuUuid, Text};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// Bits of the packed state that hold the GPU; the rest is the time in ms.
const GPU_BITS: u32 = 16;

/// Shared by a worker thread, which marks each call before it makes it, and the watchdog.
///
/// A driver call cannot be cancelled. If it hangs, the watchdog knows its GPU, abandons the thread
/// and continues with the other GPUs on a replacement.
#[derive(Debug, Default)]
pub struct CallTracker {
    /// Start of the current call (`CLOCK_BOOTTIME` in ms, plus 1) and the GPU index plus 1, or 0
    /// for the driver as a whole; 0 while no call runs. Packed into one atomic word, so that both
    /// are consistent.
    running: AtomicU64,
    /// The source has responded at least once.
    opened: AtomicBool,
    /// The thread was replaced.
    abandoned: AtomicBool,
    /// The thread has ended.
    ended: AtomicBool,
    /// GPUs that must not be called, by NVML index, with the reason.
    avoided: Mutex<BTreeMap<u32, Text>>,
    /// `avoided` changed since the last inventory.
    stale: AtomicBool,
    /// The inventory of the previous thread.
    known: Option<Inventory>,
}

impl CallTracker {
    /// Creates the tracker of a replacement thread with the GPUs to avoid and the previous
    /// inventory.
    pub fn for_replacement(known: Option<Inventory>, avoided: BTreeMap<u32, Text>) -> Self {
        Self { known, avoided: Mutex::new(avoided), ..Self::default() }
    }

    /// Marks that the next call is for the driver as a whole.
    pub fn begin_driver_call(&self) {
        self.enter(0);
    }

    /// Marks that the next call is for the GPU with this NVML index.
    pub fn begin_gpu_call(&self, index: u32) {
        self.enter(u64::from(index).saturating_add(1).min((1 << GPU_BITS) - 1));
    }

    fn enter(&self, gpu: u64) {
        let now_ms = clock::mono_ns() / 1_000_000 + 1;
        self.running.store(now_ms << GPU_BITS | gpu, Ordering::Release);
    }

    /// Marks that the next call is for the same GPU, or for the driver, as the last one: each call
    /// has the watchdog's limit for itself.
    pub fn begin_next_call(&self) {
        match self.running.load(Ordering::Acquire) {
            0 => {}
            packed => self.enter(packed & ((1 << GPU_BITS) - 1)),
        }
    }

    /// Marks that no call runs.
    pub fn end_call(&self) {
        self.running.store(0, Ordering::Release);
    }

    /// Returns the duration of the current call, and its GPU if it is for a single one.
    pub fn running(&self) -> Option<(Duration, Option<u32>)> {
        let packed = self.running.load(Ordering::Acquire);
        let began_ms = (packed >> GPU_BITS).checked_sub(1)?;
        let gpu = (packed & ((1 << GPU_BITS) - 1)).checked_sub(1).and_then(|index| u32::try_from(index).ok());
        Some((Duration::from_millis((clock::mono_ns() / 1_000_000).saturating_sub(began_ms)), gpu))
    }

    /// Records that the source responded.
    pub fn set_opened(&self) {
        self.opened.store(true, Ordering::Release);
    }

    /// Returns whether the source has responded at least once.
    pub fn is_opened(&self) -> bool {
        self.opened.load(Ordering::Acquire)
    }

    /// Makes the thread end as soon as its call returns.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// Returns whether the thread was replaced.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Records that the thread has ended.
    pub fn set_ended(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Returns whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Returns the reason why a GPU must not be called, if so.
    pub fn avoided(&self, index: u32) -> Option<Text> {
        self.lock().get(&index).cloned()
    }

    /// Readmits a GPU and makes the inventory stale.
    pub fn readmit(&self, index: u32) {
        if self.lock().remove(&index).is_some() {
            self.stale.store(true, Ordering::Release);
        }
    }

    /// Returns whether the set of avoided GPUs changed since the last call.
    pub fn take_stale(&self) -> bool {
        self.stale.swap(false, Ordering::AcqRel)
    }

    /// Returns the inventory of the previous thread.
    pub fn known(&self) -> Option<&Inventory> {
        self.known.as_ref()
    }

    /// Returns the previous facts of a GPU or instance.
    pub fn known_facts(&self, uuid: &GpuUuid) -> Option<&GpuFacts> {
        self.known.as_ref()?.gpus.iter().find(|facts| facts.uuid == *uuid)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Text>> {
        self.avoided.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_call_is_known_with_its_gpu() {
        let calls = CallTracker::default();
        assert_eq!(calls.running(), None);
        calls.begin_gpu_call(7);
        assert_eq!(calls.running().map(|(_, gpu)| gpu), Some(Some(7)));
        calls.begin_driver_call();
        assert_eq!(calls.running().map(|(_, gpu)| gpu), Some(None));
        calls.end_call();
        assert_eq!(calls.running(), None);
        calls.begin_next_call();
        assert_eq!(calls.running(), None);
    }

    #[test]
    fn the_next_call_for_a_gpu_is_timed_by_itself() {
        let calls = CallTracker::default();
        calls.begin_gpu_call(7);
        let packed = calls.running.load(Ordering::Acquire);
        calls.running.store(packed - (2_000 << GPU_BITS), Ordering::Release);
        assert!(calls.running().is_some_and(|(call_duration, _)| call_duration >= Duration::from_secs(2)));
        calls.begin_next_call();
        let (call_duration, gpu) = calls.running().unwrap();
        assert!(call_duration < Duration::from_secs(2) && gpu == Some(7));
    }

    #[test]
    fn a_gpu_that_may_be_called_again_makes_the_inventory_stale_once() {
        let calls = CallTracker::for_replacement(None, BTreeMap::from([(3, "hangs".into())]));
        assert_eq!((calls.avoided(3), calls.avoided(2)), (Some("hangs".into()), None));
        assert!(!calls.take_stale());
        calls.readmit(2);
        assert!(!calls.take_stale());
        calls.readmit(3);
        assert_eq!((calls.avoided(3), calls.take_stale(), calls.take_stale()), (None, true, false));
    }
}

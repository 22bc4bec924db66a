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
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
    },
    time::Duration,
};

/// Bits of the packed state that hold the GPU; the rest is the time in ms.
const GPU_BITS: u32 = 16;

/// Duration of a call from which on it is checked whether its thread waits for a CPU.
const SEEN_AFTER: Duration = Duration::from_millis(500);

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
    /// The thread, by the kernel's id; 0 before it runs.
    thread: AtomicI32,
    /// Of the call that was last seen running for [`SEEN_AFTER`]: its packed state, and for how long the thread had waited for
    /// a CPU by then.
    waited: Mutex<(u64, Duration)>,
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

    /// Marks the calling thread as the one that makes the calls.
    pub fn set_thread(&self) {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
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

    /// Like [`Self::running`], without the time for which the thread waited for a CPU: on an overloaded node, a call takes
    /// seconds although the driver responds at once.
    pub fn blocked(&self) -> Option<(Duration, Option<u32>)> {
        let call = self.running.load(Ordering::Acquire);
        let (duration, gpu) = self.running()?;
        if duration < SEEN_AFTER {
            return Some((duration, gpu));
        }
        let waited = cpu_wait(self.thread.load(Ordering::Acquire)).unwrap_or_default();
        let mut seen = self.waited.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.0 != call {
            *seen = (call, waited);
        }
        Some((duration.saturating_sub(waited.saturating_sub(seen.1)), gpu))
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

/// Returns for how long a thread of this process has been runnable without a CPU
/// (`/proc/self/task/TID/schedstat`); `None` if the kernel does not state it.
fn cpu_wait(thread: i32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    Some(Duration::from_nanos(stat.split_whitespace().nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{hint, thread};

    #[test]
    fn the_time_in_which_a_thread_waits_for_a_cpu_is_no_hang() {
        let spin = || (0..50_000_000_u64).for_each(|step| _ = hint::black_box(step));
        // Returns for how long the call ran without being blocked.
        let waited = || {
            let calls = CallTracker::default();
            calls.set_thread();
            calls.begin_gpu_call(7);
            let began = calls.running.load(Ordering::Acquire) - (600 << GPU_BITS);
            calls.running.store(began, Ordering::Release);
            calls.blocked();
            spin();
            let (running, _) = calls.running().unwrap();
            let (blocked, gpu) = calls.blocked().unwrap();
            assert_eq!(gpu, Some(7));
            running.saturating_sub(blocked)
        };
        // More threads than CPUs.
        let count = thread::available_parallelism().map_or(4, |count| count.get() * 2);
        let longest = thread::scope(|scope| {
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(waited)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).max()
        });
        assert!(longest.is_some_and(|longest| longest >= Duration::from_millis(10)), "{longest:?}");
    }

    #[test]
    fn the_time_of_a_call_that_is_blocked_counts() {
        let calls = CallTracker::default();
        calls.set_thread();
        calls.begin_gpu_call(7);
        let began = calls.running.load(Ordering::Acquire) - (3_000 << GPU_BITS);
        calls.running.store(began, Ordering::Release);
        assert!(calls.blocked().is_some_and(|(blocked, _)| blocked >= Duration::from_secs(3)));
    }

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

//! Rate limit of captures.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Maximum number of captures within [`PERIOD`]: a node may run several jobs.
const MAX_CAPTURES: usize = 12;
const PERIOD: Duration = Duration::from_secs(600);

/// Lets one capture run at a time, and not many within ten minutes.
#[derive(Debug, Default)]
pub struct CaptureLimit {
    recent: Mutex<VecDeque<Instant>>,
    is_running: AtomicBool,
    /// Whether a py-spy could not be ended: it may wait for the process that it reads, and each further one with it.
    has_stopped_stacks: AtomicBool,
}

/// Permit of a running capture, released on drop.
#[derive(Debug)]
pub struct CapturePermit<'a>(&'a CaptureLimit);

impl CaptureLimit {
    /// Returns a permit, or why there is none.
    pub fn acquire(&self, now: Instant) -> Result<CapturePermit<'_>, &'static str> {
        if self.is_running.swap(true, Ordering::AcqRel) {
            return Err("another capture is running");
        }
        let permit = CapturePermit(self);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|at| now.saturating_duration_since(*at) < PERIOD);
        if recent.len() >= MAX_CAPTURES {
            return Err("processes were captured too often within ten minutes");
        }
        recent.push_back(now);
        Ok(permit)
    }

    /// Reads no further stacks.
    pub fn stop_stacks(&self) {
        self.has_stopped_stacks.store(true, Ordering::Release);
    }

    /// Returns why no stacks are read any more, if so.
    pub fn may_read_stacks(&self) -> Result<(), &'static str> {
        match self.has_stopped_stacks.load(Ordering::Acquire) {
            true => Err("no Python stacks, because an earlier py-spy did not end"),
            false => Ok(()),
        }
    }
}

impl Drop for CapturePermit<'_> {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_capture_runs_at_a_time_and_few_within_ten_minutes() {
        let (limit, start) = (CaptureLimit::default(), Instant::now());
        let first = limit.acquire(start).unwrap();
        assert_eq!(limit.acquire(start).unwrap_err(), "another capture is running");
        drop(first);
        for _ in 1..MAX_CAPTURES {
            drop(limit.acquire(start).unwrap());
        }
        assert!(limit.acquire(start + PERIOD - Duration::from_secs(1)).unwrap_err().contains("too often"));
        assert!(limit.acquire(start + PERIOD).is_ok());
    }
}

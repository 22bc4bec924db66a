//! The bounded queue of frames that a subscriber has not read yet.

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Maximum age of a queued delta; a subscriber that lags further gets snapshots instead.
const MAX_DELTA_AGE_MS: u64 = 4_000;
/// Maximum number of queued deltas: updates of a thousand nodes come in many frames.
const MAX_DELTAS: usize = 512;

/// Frames on their way to one subscriber.
#[derive(Debug, Default)]
pub struct Mailbox {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    frames: VecDeque<(Bytes, Kind)>,
    deltas: usize,
    /// Deltas dropped since the subscriber began to lag; while there are any, all are dropped.
    missed: u32,
    /// Whether the subscriber was notified that it lags.
    is_notified: bool,
    /// Whether more can be requested once the queue is empty.
    more: bool,
    closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Pushed at this time, in ms of the relay's clock.
    Delta(u64),
    Other,
}

impl Inner {
    fn take(&mut self) -> Option<Bytes> {
        let (frame, kind) = self.frames.pop_front()?;
        self.deltas -= usize::from(kind != Kind::Other);
        Some(frame)
    }

    /// Age of the oldest queued delta.
    fn age_ms(&self, now_ms: u64) -> u64 {
        let pushed = self.frames.iter().find_map(|(_, kind)| match kind {
            Kind::Delta(pushed_ms) => Some(*pushed_ms),
            Kind::Other => None,
        });
        pushed.map_or(0, |pushed_ms| now_ms.saturating_sub(pushed_ms))
    }
}

/// Input of a subscriber.
#[derive(Debug, PartialEq, Eq)]
pub enum Mail {
    /// A frame to send.
    Frame(Bytes),
    /// It lags and must request to catch up; no deltas are queued until then.
    Lagging,
    /// The queue is empty and pending history can be requested.
    More,
    /// The relay is shutting down.
    Closed,
}

impl Mailbox {
    /// Pushes a frame that must not be dropped (a snapshot, a notice).
    pub fn push(&self, frame: Bytes) {
        self.lock().frames.push_back((frame, Kind::Other));
        self.wake();
    }

    /// Pushes a delta without waking the subscriber, see [`Mailbox::wake`]. Returns whether it was
    /// dropped: a lagging subscriber misses all deltas until it has caught up.
    pub fn push_delta(&self, frame: Bytes, now_ms: u64) -> bool {
        let mut inner = self.lock();
        let dropped =
            inner.missed > 0 || inner.deltas >= MAX_DELTAS || inner.age_ms(now_ms) > MAX_DELTA_AGE_MS;
        if dropped {
            inner.missed = inner.missed.saturating_add(1);
        } else {
            inner.frames.push_back((frame, Kind::Delta(now_ms)));
            inner.deltas += 1;
        }
        dropped
    }

    /// Wakes the subscriber.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Signals that there is more to request: large data comes in parts, each after the previous one was
    /// read.
    pub fn signal_more(&self) {
        self.lock().more = true;
        self.wake();
    }

    /// Returns whether the subscriber lags.
    pub fn is_lagging(&self) -> bool {
        self.lock().missed > 0
    }

    /// Accepts deltas again; snapshots must follow at once. Returns how many were missed.
    pub fn catch_up(&self) -> u32 {
        let mut inner = self.lock();
        inner.is_notified = false;
        std::mem::take(&mut inner.missed)
    }

    /// Closes the mailbox; queued frames can still be read.
    pub fn close(&self) {
        self.lock().closed = true;
        self.wake();
    }

    /// Waits for the next mail. Cancel safe.
    pub async fn next(&self) -> Mail {
        loop {
            if let Some(mail) = self.pop() {
                return mail;
            }
            self.changed.notified().await;
        }
    }

    /// The next frame, if one is queued.
    pub fn try_next(&self) -> Option<Bytes> {
        self.lock().take()
    }

    fn pop(&self) -> Option<Mail> {
        let mut inner = self.lock();
        if let Some(frame) = inner.take() {
            return Some(Mail::Frame(frame));
        }
        if inner.missed > 0 && !inner.is_notified {
            inner.is_notified = true;
            return Some(Mail::Lagging);
        }
        if inner.missed == 0 && std::mem::take(&mut inner.more) {
            return Some(Mail::More);
        }
        inner.closed.then_some(Mail::Closed)
    }

    // Every change is a single step, so a panic cannot leave the queue inconsistent.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(byte: u8) -> Bytes {
        Bytes::copy_from_slice(&[byte])
    }

    #[tokio::test]
    async fn a_reading_subscriber_gets_every_frame_in_order() {
        let mailbox = Mailbox::default();
        for byte in 0..20 {
            assert!(!mailbox.push_delta(frame(byte), u64::from(byte) * 10_000));
            assert_eq!(mailbox.next().await, Mail::Frame(frame(byte)));
        }
    }

    #[tokio::test]
    async fn a_lagging_subscriber_misses_deltas_until_it_has_caught_up() {
        let mailbox = Mailbox::default();
        for second in 0..8 {
            mailbox.push_delta(frame(second), u64::from(second) * 1_000);
        }
        for second in 0..5 {
            assert_eq!(mailbox.next().await, Mail::Frame(frame(second)));
        }
        assert!(mailbox.is_lagging());
        assert_eq!(mailbox.next().await, Mail::Lagging);
        // A delta before the snapshot would not apply to what the subscriber has.
        assert!(mailbox.push_delta(frame(90), 8_000));
        assert_eq!(mailbox.try_next(), None);
        assert_eq!(mailbox.catch_up(), 4);
        mailbox.push(frame(91));
        assert!(!mailbox.push_delta(frame(92), 8_000));
        assert_eq!(mailbox.next().await, Mail::Frame(frame(91)));
        assert_eq!(mailbox.next().await, Mail::Frame(frame(92)));
    }

    #[tokio::test]
    async fn a_burst_is_no_lag_up_to_a_limit() {
        let mailbox = Mailbox::default();
        (0..MAX_DELTAS).for_each(|_| assert!(!mailbox.push_delta(frame(1), 7)));
        assert!(mailbox.push_delta(frame(2), 7));
    }

    #[tokio::test]
    async fn more_is_requested_once_everything_else_was_read() {
        let mailbox = Mailbox::default();
        mailbox.push(frame(1));
        mailbox.signal_more();
        mailbox.push_delta(frame(2), 0);
        assert_eq!(mailbox.next().await, Mail::Frame(frame(1)));
        assert_eq!(mailbox.next().await, Mail::Frame(frame(2)));
        assert_eq!(mailbox.next().await, Mail::More);
        mailbox.signal_more();
        mailbox.push_delta(frame(3), 0);
        mailbox.push_delta(frame(4), 60_000);
        assert_eq!(mailbox.next().await, Mail::Frame(frame(3)));
        // A lagging subscriber gets snapshots first, which queue the history again.
        assert_eq!(mailbox.next().await, Mail::Lagging);
        assert_eq!(mailbox.catch_up(), 1);
        assert_eq!(mailbox.next().await, Mail::More);
    }

    #[tokio::test]
    async fn queued_frames_are_read_before_the_end() {
        let mailbox = Mailbox::default();
        mailbox.push(frame(1));
        mailbox.close();
        assert_eq!(mailbox.next().await, Mail::Frame(frame(1)));
        assert_eq!(mailbox.next().await, Mail::Closed);
    }
}

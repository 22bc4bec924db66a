//! A mailbox holds the frames one subscriber has not read yet: a few, never a queue that grows.

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// How old a delta may become that waits for a subscriber; one that falls further behind gets snapshots instead.
const PATIENCE_MS: u64 = 4_000;
/// How many may wait whatever their age: those of a thousand nodes are told in many pieces.
const DEPTH: usize = 512;

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
    /// Deltas dropped since the subscriber fell behind; while there are any, all are.
    missed: u32,
    /// Whether the subscriber knows that it fell behind.
    noticed: bool,
    /// Whether there is more for the subscriber as soon as it has read what lies here.
    more: bool,
    closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Put at this time, in ms of the relay's clock.
    Delta(u64),
    Other,
}

impl Inner {
    fn take(&mut self) -> Option<Bytes> {
        let (frame, kind) = self.frames.pop_front()?;
        self.deltas -= usize::from(kind != Kind::Other);
        Some(frame)
    }

    /// How old the oldest delta is that waits.
    fn age_ms(&self, now_ms: u64) -> u64 {
        let put = self.frames.iter().find_map(|(_, kind)| match kind {
            Kind::Delta(put_ms) => Some(*put_ms),
            Kind::Other => None,
        });
        put.map_or(0, |put_ms| now_ms.saturating_sub(put_ms))
    }
}

/// What a subscriber finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Mail {
    /// A frame to send.
    Frame(Bytes),
    /// It was too slow and must ask to catch up; until then no delta comes.
    Behind,
    /// It has read everything, and can ask for what it is owed.
    More,
    /// The relay ends.
    Closed,
}

impl Mailbox {
    /// Puts a frame that must not be lost (a snapshot, a notice).
    pub fn put(&self, frame: Bytes) {
        self.lock().frames.push_back((frame, Kind::Other));
        self.ring();
    }

    /// Puts a delta, without waking the subscriber: see [`Mailbox::ring`]. One who does not read misses it, and every
    /// later one until he has caught up; returns whether it was dropped.
    pub fn put_delta(&self, frame: Bytes, now_ms: u64) -> bool {
        let mut inner = self.lock();
        let dropped = inner.missed > 0 || inner.deltas >= DEPTH || inner.age_ms(now_ms) > PATIENCE_MS;
        if dropped {
            inner.missed = inner.missed.saturating_add(1);
        } else {
            inner.frames.push_back((frame, Kind::Delta(now_ms)));
            inner.deltas += 1;
        }
        dropped
    }

    /// Wakes the subscriber.
    pub fn ring(&self) {
        self.changed.notify_one();
    }

    /// Says that there is more to ask for: what is large comes in pieces, each when the one before was read.
    pub fn owe(&self) {
        self.lock().more = true;
        self.ring();
    }

    /// Whether the subscriber fell behind and has not caught up.
    pub fn is_behind(&self) -> bool {
        self.lock().missed > 0
    }

    /// Lets deltas in again; snapshots must follow at once. Returns how many were missed.
    pub fn catch_up(&self) -> u32 {
        let mut inner = self.lock();
        inner.noticed = false;
        std::mem::take(&mut inner.missed)
    }

    /// Says that nothing comes any more; what is there can still be read.
    pub fn close(&self) {
        self.lock().closed = true;
        self.ring();
    }

    /// Waits for the next mail. Nothing is lost when the future is dropped.
    pub async fn next(&self) -> Mail {
        loop {
            if let Some(mail) = self.pop() {
                return mail;
            }
            self.changed.notified().await;
        }
    }

    /// The next frame, if one lies there.
    pub fn waiting(&self) -> Option<Bytes> {
        self.lock().take()
    }

    fn pop(&self) -> Option<Mail> {
        let mut inner = self.lock();
        if let Some(frame) = inner.take() {
            return Some(Mail::Frame(frame));
        }
        if inner.missed > 0 && !inner.noticed {
            inner.noticed = true;
            return Some(Mail::Behind);
        }
        if inner.missed == 0 && std::mem::take(&mut inner.more) {
            return Some(Mail::More);
        }
        inner.closed.then_some(Mail::Closed)
    }

    /// A panic while the lock was held cannot leave the queue half-changed: each change is one step.
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
    async fn a_viewer_that_reads_gets_every_frame_in_order() {
        let mailbox = Mailbox::default();
        for byte in 0..20 {
            assert!(!mailbox.put_delta(frame(byte), u64::from(byte) * 10_000));
            assert_eq!(mailbox.next().await, Mail::Frame(frame(byte)));
        }
    }

    #[tokio::test]
    async fn a_viewer_that_sleeps_misses_all_until_it_has_caught_up() {
        let mailbox = Mailbox::default();
        for second in 0..8 {
            mailbox.put_delta(frame(second), u64::from(second) * 1_000);
        }
        for second in 0..5 {
            assert_eq!(mailbox.next().await, Mail::Frame(frame(second)));
        }
        assert!(mailbox.is_behind());
        assert_eq!(mailbox.next().await, Mail::Behind);
        // What comes before the snapshots would not fit what the subscriber knows.
        assert!(mailbox.put_delta(frame(90), 8_000));
        assert_eq!(mailbox.waiting(), None);
        assert_eq!(mailbox.catch_up(), 4);
        mailbox.put(frame(91));
        assert!(!mailbox.put_delta(frame(92), 8_000));
        assert_eq!(mailbox.next().await, Mail::Frame(frame(91)));
        assert_eq!(mailbox.next().await, Mail::Frame(frame(92)));
    }

    #[tokio::test]
    async fn what_comes_in_one_moment_is_no_lag_until_it_is_very_much() {
        let mailbox = Mailbox::default();
        (0..DEPTH).for_each(|_| assert!(!mailbox.put_delta(frame(1), 7)));
        assert!(mailbox.put_delta(frame(2), 7));
    }

    #[tokio::test]
    async fn what_is_owed_is_asked_for_when_everything_else_was_read() {
        let mailbox = Mailbox::default();
        mailbox.put(frame(1));
        mailbox.owe();
        mailbox.put_delta(frame(2), 0);
        assert_eq!(mailbox.next().await, Mail::Frame(frame(1)));
        assert_eq!(mailbox.next().await, Mail::Frame(frame(2)));
        assert_eq!(mailbox.next().await, Mail::More);
        mailbox.owe();
        mailbox.put_delta(frame(3), 0);
        mailbox.put_delta(frame(4), 60_000);
        assert_eq!(mailbox.next().await, Mail::Frame(frame(3)));
        // Who fell behind gets snapshots first, and is owed anew.
        assert_eq!(mailbox.next().await, Mail::Behind);
        assert_eq!(mailbox.catch_up(), 1);
        assert_eq!(mailbox.next().await, Mail::More);
    }

    #[tokio::test]
    async fn what_is_there_is_read_before_the_end() {
        let mailbox = Mailbox::default();
        mailbox.put(frame(1));
        mailbox.close();
        assert_eq!(mailbox.next().await, Mail::Frame(frame(1)));
        assert_eq!(mailbox.next().await, Mail::Closed);
    }
}

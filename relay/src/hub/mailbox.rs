//! A mailbox holds the frames one viewer has not read yet: a few, never a queue that grows.

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// How many deltas of each topic may wait for a viewer; one that falls further behind gets snapshots instead.
const DEPTH: usize = 4;

/// Frames on their way to one viewer.
#[derive(Debug, Default)]
pub struct Mailbox {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    frames: VecDeque<(Bytes, Kind)>,
    deltas: usize,
    /// Deltas dropped since the viewer fell behind; while there are any, all are.
    missed: u32,
    /// Whether the viewer knows that it fell behind.
    noticed: bool,
    /// Whether there is more for the viewer as soon as it has read what lies here.
    more: bool,
    closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Delta,
    Other,
}

impl Inner {
    fn take(&mut self) -> Option<Bytes> {
        let (frame, kind) = self.frames.pop_front()?;
        self.deltas -= usize::from(kind == Kind::Delta);
        Some(frame)
    }
}

/// What a viewer finds.
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

    /// Puts a delta for one who looks at so many topics, without waking him: see [`Mailbox::ring`]. A viewer that is full
    /// misses it, and every later one until he has caught up; returns whether it was dropped.
    pub fn put_delta(&self, frame: Bytes, topics: usize) -> bool {
        let mut inner = self.lock();
        let dropped = inner.missed > 0 || inner.deltas >= DEPTH * topics;
        if dropped {
            inner.missed = inner.missed.saturating_add(1);
        } else {
            inner.frames.push_back((frame, Kind::Delta));
            inner.deltas += 1;
        }
        dropped
    }

    /// Wakes the viewer.
    pub fn ring(&self) {
        self.changed.notify_one();
    }

    /// Says that there is more to ask for: what is large comes in pieces, each when the one before was read.
    pub fn owe(&self) {
        self.lock().more = true;
        self.ring();
    }

    /// Whether the viewer fell behind and has not caught up.
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
            assert!(!mailbox.put_delta(frame(byte), 1));
            assert_eq!(mailbox.next().await, Mail::Frame(frame(byte)));
        }
    }

    #[tokio::test]
    async fn a_viewer_that_sleeps_misses_all_until_it_has_caught_up() {
        let mailbox = Mailbox::default();
        for byte in 0..DEPTH as u8 + 3 {
            mailbox.put_delta(frame(byte), 1);
        }
        for byte in 0..DEPTH as u8 {
            assert_eq!(mailbox.next().await, Mail::Frame(frame(byte)));
        }
        assert_eq!(mailbox.next().await, Mail::Behind);
        // What comes before the snapshots would not fit what the viewer knows.
        assert!(mailbox.put_delta(frame(90), 1));
        assert_eq!(mailbox.waiting(), None);
        assert_eq!(mailbox.catch_up(), 4);
        mailbox.put(frame(91));
        assert!(!mailbox.put_delta(frame(92), 1));
        assert_eq!(mailbox.next().await, Mail::Frame(frame(91)));
        assert_eq!(mailbox.next().await, Mail::Frame(frame(92)));
    }

    #[tokio::test]
    async fn whoever_looks_at_much_may_have_much_waiting_and_each_read_makes_room() {
        let mailbox = Mailbox::default();
        for byte in 0..8 * DEPTH as u8 {
            assert!(!mailbox.put_delta(frame(byte), 8));
        }
        for byte in 0..50 {
            mailbox.waiting().unwrap();
            assert!(!mailbox.put_delta(frame(byte), 8));
        }
        assert!(mailbox.put_delta(frame(0), 8));
    }

    #[tokio::test]
    async fn what_is_owed_is_asked_for_when_everything_else_was_read() {
        let mailbox = Mailbox::default();
        mailbox.put(frame(1));
        mailbox.owe();
        mailbox.put_delta(frame(2), 1);
        assert_eq!(mailbox.next().await, Mail::Frame(frame(1)));
        assert_eq!(mailbox.next().await, Mail::Frame(frame(2)));
        assert_eq!(mailbox.next().await, Mail::More);
        mailbox.owe();
        for byte in 0..=DEPTH as u8 {
            mailbox.put_delta(frame(byte), 1);
        }
        for byte in 0..DEPTH as u8 {
            assert_eq!(mailbox.next().await, Mail::Frame(frame(byte)));
        }
        // Who fell behind gets snapshots first, and is owed anew.
        assert!(mailbox.is_behind());
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

//! A mailbox holds the frames one viewer has not read yet: a few, never a queue that grows.

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// How many deltas may wait for a viewer; one that falls further behind gets a snapshot instead.
const DEPTH: usize = 4;

/// Frames on their way to one viewer.
#[derive(Debug, Default)]
pub struct Mailbox {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    frames: VecDeque<Bytes>,
    deltas: usize,
    missed: u32,
    closed: bool,
}

impl Inner {
    fn take(&mut self) -> Option<Bytes> {
        let frame = self.frames.pop_front()?;
        if self.frames.is_empty() {
            self.deltas = 0;
        }
        Some(frame)
    }
}

/// What a viewer finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Mail {
    /// A frame to send.
    Frame(Bytes),
    /// It was too slow: so many deltas were dropped, and it must ask for snapshots.
    Missed(u32),
    /// The relay ends.
    Closed,
}

impl Mailbox {
    /// Puts a frame that must not be lost (a snapshot, a notice).
    pub fn put(&self, frame: Bytes) {
        self.lock().frames.push_back(frame);
        self.changed.notify_one();
    }

    /// Puts a delta. A viewer that is full misses it, and every later one until it has read what it
    /// has; returns whether it was dropped.
    pub fn put_delta(&self, frame: Bytes) -> bool {
        let mut inner = self.lock();
        let dropped = inner.missed > 0 || inner.deltas >= DEPTH;
        if dropped {
            inner.missed = inner.missed.saturating_add(1);
        } else {
            inner.frames.push_back(frame);
            inner.deltas += 1;
        }
        drop(inner);
        self.changed.notify_one();
        dropped
    }

    /// Says that nothing comes any more; what is there can still be read.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
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
        if inner.missed > 0 {
            return Some(Mail::Missed(std::mem::take(&mut inner.missed)));
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
            assert!(!mailbox.put_delta(frame(byte)));
            assert_eq!(mailbox.next().await, Mail::Frame(frame(byte)));
        }
    }

    #[tokio::test]
    async fn a_viewer_that_sleeps_is_told_how_much_it_missed() {
        let mailbox = Mailbox::default();
        for byte in 0..DEPTH as u8 + 3 {
            mailbox.put_delta(frame(byte));
        }
        for byte in 0..DEPTH as u8 {
            assert_eq!(mailbox.next().await, Mail::Frame(frame(byte)));
        }
        assert_eq!(mailbox.next().await, Mail::Missed(3));
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

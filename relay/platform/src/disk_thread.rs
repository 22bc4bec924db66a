//! A thread that writes the items of other threads to a disk or a terminal, so the others never wait.

use crate::priority;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum time for which the end of the relay waits for an item to be written, because a file system may hang, and a
/// terminal be paused;
const END: Duration = Duration::from_secs(2);
/// and for all that are queued, which take longer than that on a busy machine.
const END_OF_ALL: Duration = Duration::from_secs(20);
/// Interval of checks whether the thread has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Handle to the thread. Dropping it lets the thread write what is queued, and waits for that: at most two seconds for each
/// item, and twenty for all.
#[derive(Debug)]
pub struct DiskThread<T> {
    queue: Option<SyncSender<T>>,
    taken: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

/// The queue, as the thread sees it.
#[derive(Debug)]
pub struct Items<T> {
    queue: Receiver<T>,
    taken: Arc<AtomicU64>,
}

impl<T> Items<T> {
    /// Takes the next item, and waits for it at most for a time.
    ///
    /// # Errors
    /// As of [`Receiver::recv_timeout`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.queue.recv_timeout(timeout).inspect(|_| self.count())
    }

    /// Takes all items until the queue is closed and empty.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        self.queue.iter().inspect(|_| self.count())
    }

    fn count(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reason for not passing on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The disk does not keep up.
    Full,
    /// The thread has ended.
    Ended,
}

impl<T: Send + 'static> DiskThread<T> {
    /// Starts a thread of low I/O priority that `run`s until the queue of at most `capacity` is closed and empty.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        name: &str,
        capacity: usize,
        run: impl FnOnce(Items<T>) + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, receiver) = sync_channel(capacity);
        let taken = Arc::<AtomicU64>::default();
        let items = Items { queue: receiver, taken: taken.clone() };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            priority::lower_io_of_this_thread();
            run(items);
        })?;
        Ok(Self { queue: Some(queue), taken, thread })
    }

    /// Passes something on.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn pass(&self, item: T) -> Result<(), Refused> {
        let queue = self.queue.as_ref().ok_or(Refused::Ended)?;
        queue.try_send(item).map_err(|error| match error {
            TrySendError::Full(_) => Refused::Full,
            TrySendError::Disconnected(_) => Refused::Ended,
        })
    }
}

impl<T> Drop for DiskThread<T> {
    fn drop(&mut self) {
        self.queue = None;
        let began = Instant::now();
        let (mut taken, mut took_at) = (self.taken.load(Ordering::Relaxed), began);
        while !self.thread.is_finished() && took_at.elapsed() < END && began.elapsed() < END_OF_ALL {
            thread::sleep(LOOK);
            let now = self.taken.load(Ordering::Relaxed);
            if now != taken {
                (taken, took_at) = (now, Instant::now());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn what_is_queued_is_written_before_the_end() {
        let (written, all) = channel();
        let thread = DiskThread::start("test", 4, move |items: Items<u32>| {
            items.iter().for_each(|item| written.send(item).unwrap());
        });
        let thread = thread.unwrap();
        (0..4).for_each(|item| thread.pass(item).unwrap());
        drop(thread);
        assert_eq!(all.iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_disk_that_is_slow_but_writes_is_waited_for() {
        let (written, all) = channel();
        let slow = move |items: Items<u32>| {
            for item in items.iter() {
                thread::sleep(END * 2 / 3);
                written.send(item).unwrap();
            }
        };
        let thread = DiskThread::start("test", 2, slow).unwrap();
        (0..2).for_each(|item| thread.pass(item).unwrap());
        drop(thread);
        assert_eq!(all.try_iter().collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn f25_a_disk_that_hangs_delays_the_end_by_two_seconds_at_most() {
        let (resume, hangs) = channel::<()>();
        let thread = DiskThread::start("test", 1, move |items: Items<u32>| {
            let _ = items.iter().next();
            let _ = hangs.recv();
        });
        let thread = thread.unwrap();
        thread.pass(0).unwrap();
        while thread.pass(1).is_err() {
            thread::sleep(LOOK);
        }
        assert_eq!(thread.pass(2), Err(Refused::Full));
        drop(thread);
        drop(resume);
    }
}

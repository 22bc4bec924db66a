//! A thread that writes the items of other threads to a disk or a terminal, so the others never wait.

use crate::priority;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum time for which the end of the relay waits for an item to be written: a file system may hang, and a terminal
/// be paused.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// Time limit for all queued items together, which take longer on a busy machine.
const MAX_WAIT_FOR_ALL: Duration = Duration::from_secs(20);
/// Interval of checks whether the thread has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Handle to the thread. Dropping it lets the thread write what is queued, and waits for that: at most two seconds for each
/// item or part of one, and twenty for all.
#[derive(Debug)]
pub struct DiskThread<T> {
    queue: Option<SyncSender<T>>,
    progress: Progress,
    thread: JoinHandle<()>,
}

/// The queue, as the thread sees it.
#[derive(Debug)]
pub struct Items<T> {
    queue: Receiver<T>,
    progress: Progress,
}

/// Shows the thread's progress to the end of the relay, which waits for one that writes.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Counts a part of an item that was written.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T> Items<T> {
    /// Takes the next item, and waits for it at most for a time.
    ///
    /// # Errors
    /// As of [`Receiver::recv_timeout`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.queue.recv_timeout(timeout).inspect(|_| self.progress.count())
    }

    /// Takes all items until the queue is closed and empty.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        self.queue.iter().inspect(|_| self.progress.count())
    }

    /// The progress, for items that take long.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
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
        let progress = Progress::default();
        let items = Items { queue: receiver, progress: progress.clone() };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            priority::lower_io_of_this_thread();
            run(items);
        })?;
        Ok(Self { queue: Some(queue), progress, thread })
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
        let (mut progress, mut advanced_at) = (self.progress.get(), began);
        while !self.thread.is_finished()
            && advanced_at.elapsed() < MAX_WAIT
            && began.elapsed() < MAX_WAIT_FOR_ALL
        {
            thread::sleep(CHECK_INTERVAL);
            let now = self.progress.get();
            if now != progress {
                (progress, advanced_at) = (now, Instant::now());
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
                thread::sleep(MAX_WAIT * 2 / 3);
                written.send(item).unwrap();
            }
        };
        let thread = DiskThread::start("test", 2, slow).unwrap();
        (0..2).for_each(|item| thread.pass(item).unwrap());
        drop(thread);
        assert_eq!(all.try_iter().collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn an_item_of_many_parts_is_waited_for_while_its_parts_are_written() {
        let (written, all) = channel();
        let slow = move |items: Items<u32>| {
            for item in items.iter() {
                for part in 0..2 {
                    thread::sleep(MAX_WAIT * 2 / 3);
                    items.progress().count();
                    written.send((item, part)).unwrap();
                }
            }
        };
        let thread = DiskThread::start("test", 1, slow).unwrap();
        thread.pass(0).unwrap();
        drop(thread);
        assert_eq!(all.try_iter().collect::<Vec<_>>(), [(0, 0), (0, 1)]);
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
            thread::sleep(CHECK_INTERVAL);
        }
        assert_eq!(thread.pass(2), Err(Refused::Full));
        drop(thread);
        drop(resume);
    }
}

//! A thread that writes the items of other threads to a disk or a terminal, so the others never wait.

use crate::priority;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum time for which the end of the relay waits for a disk, because a file system may hang, and a terminal be paused.
const END: Duration = Duration::from_secs(2);
/// Interval of checks whether the thread has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Handle to the thread. Dropping it lets the thread write what is queued, and waits for that at most two seconds.
#[derive(Debug)]
pub struct DiskThread<T> {
    queue: Option<SyncSender<T>>,
    thread: JoinHandle<()>,
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
    /// Starts a thread of low priority that `run`s until the queue of at most `capacity` is closed and empty.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        name: &str,
        capacity: usize,
        run: impl FnOnce(Receiver<T>) + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, receiver) = sync_channel(capacity);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            priority::lower_this_thread();
            run(receiver);
        })?;
        Ok(Self { queue: Some(queue), thread })
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
        while !self.thread.is_finished() && began.elapsed() < END {
            thread::sleep(LOOK);
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
        let thread = DiskThread::start("test", 4, move |items: Receiver<u32>| {
            items.iter().for_each(|item| written.send(item).unwrap());
        });
        let thread = thread.unwrap();
        (0..4).for_each(|item| thread.pass(item).unwrap());
        drop(thread);
        assert_eq!(all.iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn f25_a_disk_that_hangs_delays_the_end_by_two_seconds_at_most() {
        let (resume, hangs) = channel::<()>();
        let thread = DiskThread::start("test", 1, move |items: Receiver<u32>| {
            let _ = items.recv();
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

//! Serialises uploads: nodes often share a home directory, so that one upload serves them all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard, Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Concurrent uploads, once it is known that nodes have separate homes.
const AT_ONCE: usize = 8;
/// Maximum wait for a turn: the host before may hang.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Decides who may upload.
#[derive(Debug)]
pub struct Turns {
    one: Mutex<()>,
    few: Semaphore,
    /// An upload has succeeded.
    done: AtomicBool,
    /// A node lacked the probe although another node had received it: they do not share a home.
    apart: AtomicBool,
}

/// The permission to upload.
pub struct Turn<'a> {
    turns: &'a Turns,
    /// Whether another upload has succeeded meanwhile, perhaps into the same home.
    pub look_again: bool,
    _one: Option<MutexGuard<'a, ()>>,
    _few: Option<SemaphorePermit<'a>>,
}

impl Default for Turns {
    fn default() -> Self {
        let (done, apart) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { one: Mutex::new(()), few: Semaphore::new(AT_ONCE), done, apart }
    }
}

impl Turns {
    /// Waits for permission: one at a time until it is known that homes are not shared.
    pub async fn take(&self) -> Turn<'_> {
        let is_apart = self.apart.load(Ordering::Acquire);
        let (one, few) = if is_apart {
            (None, timeout(MAX_WAIT, self.few.acquire()).await.ok().and_then(Result::ok))
        } else {
            (timeout(MAX_WAIT, self.one.lock()).await.ok(), None)
        };
        Turn { turns: self, look_again: self.done.load(Ordering::Acquire), _one: one, _few: few }
    }
}

impl Turn<'_> {
    /// Records that the probe is missing although another node has it.
    pub fn found_nothing(&self) {
        self.turns.apart.store(true, Ordering::Release);
    }

    /// Records that the upload succeeded.
    pub fn succeeded(&self) {
        self.turns.done.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn uploads_wait_for_each_other_until_homes_are_known_to_be_apart() {
        let turns = Turns::default();
        let first = turns.take().await;
        assert!(!first.look_again);
        assert!(turns.take().now_or_never().is_none(), "it waits");
        first.succeeded();
        drop(first);
        let second = turns.take().await;
        assert!(second.look_again);
        second.found_nothing();
        // A held permission delays no other session.
        let others: Vec<_> = (0..AT_ONCE).map(|_| turns.take().now_or_never().unwrap()).collect();
        assert!(turns.take().now_or_never().is_none());
        drop((second, others));
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_hangs_in_its_upload_holds_up_the_others_for_a_moment_only() {
        let turns = Turns::default();
        let _hangs = turns.take().await;
        assert!(!turns.take().await.look_again);
    }
}

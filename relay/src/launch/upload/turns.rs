//! Uploads take turns: nodes often share one home, and what one of them put there the others need not put there again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard, Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Uploads at once, once it is known that nodes have homes of their own.
const AT_ONCE: usize = 8;
/// One that waited so long for its turn goes ahead: the host before it may hang.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who may upload now.
#[derive(Debug)]
pub struct Turns {
    one: Mutex<()>,
    few: Semaphore,
    /// Some upload has succeeded.
    done: AtomicBool,
    /// A node had no probe though another one got it before: they do not share a home.
    apart: AtomicBool,
}

/// The right to upload.
pub struct Turn<'a> {
    turns: &'a Turns,
    /// Whether another upload has succeeded since this one was found to be needed, perhaps into the same home.
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
    /// Waits until this one may upload: one at a time until it is known that homes are not shared.
    pub async fn take(&self) -> Turn<'_> {
        let is_apart = self.apart.load(Ordering::Acquire);
        let (one, few) = if is_apart {
            (None, timeout(PATIENCE, self.few.acquire()).await.ok().and_then(Result::ok))
        } else {
            (timeout(PATIENCE, self.one.lock()).await.ok(), None)
        };
        Turn { turns: self, look_again: self.done.load(Ordering::Acquire), _one: one, _few: few }
    }
}

impl Turn<'_> {
    /// The probe is not there though another node has it now.
    pub fn found_nothing(&self) {
        self.turns.apart.store(true, Ordering::Release);
    }

    /// The upload succeeded.
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
        // Its own turn keeps nobody from the others.
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

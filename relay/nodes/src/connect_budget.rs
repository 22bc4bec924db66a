//! Limits connection attempts over all nodes, so that nodes that fail add no load and delay no others.

use nodeglass_platform::token_bucket::TokenBucket;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

/// Maximum number of attempts at once: login nodes and sshds limit them.
const AT_ONCE: usize = 32;
/// Maximum number of them that follow a failure. An attempt on a node that does not respond takes seconds, so the rest is
/// kept free for nodes that have not failed.
pub(super) const RETRIES_AT_ONCE: usize = 24;
/// Retries that fail, per second: once as many have failed, further ones wait. Those that succeed are not limited, so all
/// nodes return soon after a fault that affected many.
pub(super) const FAILED_RETRIES_PER_S: f64 = 10.0;
/// Maximum number of attempts at once while a host limits logins: it may be a jump host of the whole site.
const THROTTLED_AT_ONCE: usize = 2;
/// Time since a host last limited logins after which the limits are as before.
pub(super) const THROTTLED_FOR: Duration = Duration::from_secs(30);

/// The attempts of all sessions. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ConnectBudget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    all: Arc<Semaphore>,
    retries: Arc<Semaphore>,
    throttled: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Overdrawn by retries that failed.
    failures: TokenBucket,
    throttled_until: Option<Instant>,
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A probe runs.
    Connected,
    /// It failed for another reason than a limit of logins.
    Failed,
    /// The host limits logins.
    Throttled,
}

/// The permit of an attempt, held until its outcome is known.
#[derive(Debug)]
pub(super) struct Attempt {
    budget: ConnectBudget,
    is_retry: bool,
    _permits: [Option<OwnedSemaphorePermit>; 3],
}

impl Default for ConnectBudget {
    fn default() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self(Arc::new(Shared {
            all: semaphore(AT_ONCE),
            retries: semaphore(RETRIES_AT_ONCE),
            throttled: semaphore(THROTTLED_AT_ONCE),
            state: Mutex::new(State {
                failures: TokenBucket::full(FAILED_RETRIES_PER_S, FAILED_RETRIES_PER_S, Instant::now()),
                throttled_until: None,
            }),
        }))
    }
}

impl ConnectBudget {
    /// Waits until an attempt may begin. `is_retry`: it follows a failure and nobody asked for it.
    pub(super) async fn acquire(&self, is_retry: bool) -> Attempt {
        let Shared { all, retries, throttled, .. } = &*self.0;
        let retry = if is_retry { acquire(retries).await } else { None };
        let throttled = if self.is_throttled() { acquire(throttled).await } else { None };
        while let Some(at) = self.overdrawn_until().filter(|_| is_retry) {
            sleep_until(at).await;
        }
        let permits = [retry, throttled, acquire(all).await];
        Attempt { budget: self.clone(), is_retry, _permits: permits }
    }

    /// Returns whether a host limited logins a short time ago.
    fn is_throttled(&self) -> bool {
        self.state().throttled_until.is_some_and(|until| Instant::now() < until)
    }

    /// The time at which the failed retries are paid off, if they are not.
    fn overdrawn_until(&self) -> Option<Instant> {
        let (now, mut state) = (Instant::now(), self.state());
        (state.failures.left(now) < 0.0).then(|| state.failures.available_at(0.0, now))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempt {
    /// Ends the attempt, which frees its place.
    pub(super) fn ended(self, outcome: Outcome) {
        let (now, mut state) = (Instant::now(), self.budget.state());
        if self.is_retry && outcome != Outcome::Connected {
            state.failures.take(1.0, now);
        }
        if outcome == Outcome::Throttled {
            state.throttled_until = Some(now + THROTTLED_FOR);
        }
    }
}

async fn acquire(semaphore: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    // It is never closed.
    Arc::clone(semaphore).acquire_owned().await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::{sleep, timeout};

    /// Nodes that are retried as soon as they fail.
    fn retry_forever(budget: &ConnectBudget, nodes: usize, takes: Duration) -> Arc<AtomicUsize> {
        let attempts = Arc::new(AtomicUsize::new(0));
        for _ in 0..nodes {
            let (budget, attempts) = (budget.clone(), Arc::clone(&attempts));
            tokio::spawn(async move {
                loop {
                    let attempt = budget.acquire(true).await;
                    attempts.fetch_add(1, Ordering::Relaxed);
                    sleep(takes).await;
                    attempt.ended(Outcome::Failed);
                }
            });
        }
        attempts
    }

    #[tokio::test(start_paused = true)]
    async fn f33_failed_retries_are_limited_in_rate_however_many_nodes_fail() {
        let budget = ConnectBudget::default();
        let attempts = retry_forever(&budget, 500, Duration::from_millis(1));
        sleep(Duration::from_secs(60)).await;
        let count = attempts.load(Ordering::Relaxed);
        let most = 60.0 * FAILED_RETRIES_PER_S + FAILED_RETRIES_PER_S + RETRIES_AT_ONCE as f64;
        assert!((550..=most as usize).contains(&count), "{count} attempts in a minute");
    }

    #[tokio::test(start_paused = true)]
    async fn f33_nodes_that_hang_leave_room_for_others_and_for_the_user() {
        let budget = ConnectBudget::default();
        retry_forever(&budget, 500, Duration::from_secs(8));
        sleep(Duration::from_secs(60)).await;
        let free = AT_ONCE - RETRIES_AT_ONCE;
        for _ in 0..100 {
            let attempts = (0..free).map(|_| budget.acquire(false));
            let began = Instant::now();
            let mut held = Vec::new();
            for attempt in attempts {
                held.push(attempt.await);
            }
            assert_eq!(began.elapsed(), Duration::ZERO, "places are free");
            assert!(timeout(Duration::from_millis(1), budget.acquire(false)).await.is_err(), "and not more");
            held.into_iter().for_each(|attempt| attempt.ended(Outcome::Failed));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn f33_after_the_fault_all_nodes_return_within_seconds() {
        let budget = ConnectBudget::default();
        let (is_healed, connected) = (Arc::new(tokio::sync::Notify::new()), Arc::new(AtomicUsize::new(0)));
        let healed = Arc::new(std::sync::atomic::AtomicBool::new(false));
        for _ in 0..500 {
            let (budget, is_healed) = (budget.clone(), Arc::clone(&is_healed));
            let (connected, healed) = (Arc::clone(&connected), Arc::clone(&healed));
            tokio::spawn(async move {
                loop {
                    let attempt = budget.acquire(true).await;
                    // A SYN is repeated after 4 s at most.
                    let is_reached = healed.load(Ordering::Relaxed)
                        || timeout(Duration::from_secs(8), is_healed.notified()).await.is_ok();
                    if is_reached {
                        sleep(Duration::from_millis(300)).await;
                        attempt.ended(Outcome::Connected);
                        connected.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                    attempt.ended(Outcome::Failed);
                    sleep(Duration::from_secs(4)).await;
                }
            });
        }
        sleep(Duration::from_secs(300)).await;
        healed.store(true, Ordering::Relaxed);
        is_healed.notify_waiters();
        sleep(Duration::from_secs(15)).await;
        assert_eq!(connected.load(Ordering::Relaxed), 500);
    }

    #[tokio::test(start_paused = true)]
    async fn f36_after_a_throttled_login_few_are_attempted_at_once_for_a_while() {
        let budget = ConnectBudget::default();
        budget.acquire(false).await.ended(Outcome::Throttled);
        let held = [budget.acquire(false).await, budget.acquire(false).await];
        let third = timeout(Duration::from_secs(20), budget.acquire(false)).await;
        assert!(third.is_err(), "two at once");
        drop(held);
        sleep(THROTTLED_FOR).await;
        let free = timeout(Duration::from_millis(1), async {
            let mut held = Vec::new();
            while held.len() < AT_ONCE {
                held.push(budget.acquire(false).await);
            }
        });
        free.await.expect("as before");
    }
}

//! Snapshots are what a viewer can make the relay compute; a guest gets so many, and a share of a core, a second.
//!
//! A message that asks for one waits for its turn, and a later `look` takes the place of an earlier one; changes go on
//! coming meanwhile. The owner, whose relay it is, never waits.

use nodeglass_protocol::live::{ClientMessage, MAX_TOPICS, Topic};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How many topics a guest may look at; the page needs two.
pub(super) const TOPICS_OF_GUEST: usize = 4;
/// How many snapshots of one guest's connection may be asked for at once, and how many more a second.
const BURST: f64 = 8.0;
const PER_S: f64 = 2.0;
/// How much of a core all connections of one user get as guests: this share of each second, and as much of it at once.
const SHARE_OF_CORE: f64 = 0.1;
const CORE_AT_ONCE_S: f64 = 0.5;
/// What it costs to send, in seconds a byte: some 200 MB/s, of which most is the kernel's.
const S_PER_BYTE: f64 = 5e-9;

/// Fills up evenly, to a limit; what is taken beyond that is owed.
#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
    per_s: f64,
    most: f64,
}

impl Bucket {
    fn full(most: f64, per_s: f64) -> Self {
        Self { left: most, at: Instant::now(), per_s, most }
    }

    fn take(&mut self, amount: f64, now: Instant) {
        self.fill(now);
        self.left -= amount;
    }

    /// When there will be at least this much.
    fn has_at(&mut self, amount: f64, now: Instant) -> Instant {
        self.fill(now);
        now + Duration::from_secs_f64(((amount - self.left) / self.per_s).max(0.0))
    }

    fn fill(&mut self, now: Instant) {
        let more = now.saturating_duration_since(self.at).as_secs_f64() * self.per_s;
        (self.left, self.at) = (self.most.min(self.left + more), now);
    }
}

/// What one user's connections may cost as guests, all together. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Budget(Arc<Mutex<Bucket>>);

impl Default for Budget {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Bucket::full(CORE_AT_ONCE_S, SHARE_OF_CORE))))
    }
}

impl Budget {
    /// Takes note of what something cost: time of a core, and bytes sent.
    pub(super) fn charge(&self, cost: Duration, bytes: usize) {
        self.bucket().take(cost.as_secs_f64() + bytes as f64 * S_PER_BYTE, Instant::now());
    }

    /// When the next thing may be asked for.
    pub(super) fn is_due_at(&self, now: Instant) -> Instant {
        self.bucket().has_at(0.0, now)
    }

    /// Whether nothing of it is spent.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.bucket().has_at(CORE_AT_ONCE_S, now) <= now
    }

    /// Whether somebody else holds it, too.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The messages of one connection that wait for their turn.
#[derive(Debug)]
pub(super) struct Pace {
    guest: Option<(Budget, Bucket)>,
    look: Option<Vec<Topic>>,
    resyncs: VecDeque<Topic>,
}

impl Pace {
    /// For the owner, who never waits, or for a guest with this budget.
    pub(super) fn new(guest: Option<Budget>) -> Self {
        let guest = guest.map(|budget| (budget, Bucket::full(BURST, PER_S)));
        Self { guest, look: None, resyncs: VecDeque::new() }
    }

    /// Takes in a `look`; it says more recently than any before what is wanted.
    pub(super) fn look(&mut self, mut topics: Vec<Topic>) {
        if self.guest.is_some() {
            topics.truncate(TOPICS_OF_GUEST);
        }
        self.resyncs.retain(|topic| topics.contains(topic));
        self.look = Some(topics);
    }

    /// Takes in a `resync`.
    pub(super) fn resync(&mut self, topic: Topic) {
        let most = if self.guest.is_some() { TOPICS_OF_GUEST } else { MAX_TOPICS };
        if !self.resyncs.contains(&topic) && self.resyncs.len() < most {
            self.resyncs.push_back(topic);
        }
    }

    /// When the next of them may be carried out; `None` if there is none.
    pub(super) fn due(&mut self) -> Option<Instant> {
        if self.look.is_none() && self.resyncs.is_empty() {
            return None;
        }
        let now = Instant::now();
        Some(match &mut self.guest {
            Some((budget, snapshots)) => budget.is_due_at(now).max(snapshots.has_at(1.0, now)),
            None => now,
        })
    }

    /// The next of them.
    pub(super) fn next(&mut self) -> Option<ClientMessage> {
        let look = self.look.take().map(ClientMessage::Look);
        let next = look.or_else(|| self.resyncs.pop_front().map(ClientMessage::Resync))?;
        if let Some((_, snapshots)) = &mut self.guest {
            snapshots.take(1.0, Instant::now());
        }
        Some(next)
    }

    /// Takes note of what something cost.
    pub(super) fn charge(&self, cost: Duration, bytes: usize) {
        if let Some((budget, _)) = &self.guest {
            budget.charge(cost, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use tokio::time::advance;

    /// How many messages are carried out within a time in which one is asked for every 10 ms.
    async fn carried_out(pace: &mut Pace, seconds: u64, cost: Duration) -> usize {
        let mut done = 0;
        for number in 0..seconds * 100 {
            pace.look(vec![Topic::Job(JobId(number as u32))]);
            if pace.due().is_some_and(|due| due <= Instant::now()) && pace.next().is_some() {
                pace.charge(cost, 0);
                done += 1;
            }
            advance(Duration::from_millis(10)).await;
        }
        done
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_gets_two_snapshots_a_second_and_the_owner_all() {
        let nothing = Duration::ZERO;
        let guests = carried_out(&mut Pace::new(Some(Budget::default())), 10, nothing).await;
        assert!((24..=30).contains(&guests), "{guests}");
        assert_eq!(carried_out(&mut Pace::new(None), 10, nothing).await, 1_000);
    }

    #[tokio::test(start_paused = true)]
    async fn all_connections_of_one_guest_share_a_tenth_of_a_core() {
        let (budget, cost) = (Budget::default(), Duration::from_millis(50));
        let mut paces: Vec<_> = (0..32).map(|_| Pace::new(Some(budget.clone()))).collect();
        let mut spent = Duration::ZERO;
        for _ in 0..1_000 {
            for pace in &mut paces {
                pace.look(vec![Topic::Overview]);
                if pace.due().is_some_and(|due| due <= Instant::now()) && pace.next().is_some() {
                    pace.charge(cost, 0);
                    spent += cost;
                }
            }
            advance(Duration::from_millis(10)).await;
        }
        assert!((1_000..=1_600).contains(&spent.as_millis()), "{spent:?} in 10 s");
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_count_as_well_and_the_last_wish_is_not_lost() {
        let mut pace = Pace::new(Some(Budget::default()));
        pace.charge(Duration::ZERO, 1_000_000_000);
        pace.look(vec![Topic::Job(JobId(1))]);
        pace.resync(Topic::Job(JobId(1)));
        pace.look((0..20).map(|id| Topic::Job(JobId(id + 1))).collect());
        let due = pace.due().expect("something waits");
        assert!(due > Instant::now() + Duration::from_secs(30));
        advance(due - Instant::now()).await;
        assert!(matches!(pace.next(), Some(ClientMessage::Look(topics)) if topics.len() == TOPICS_OF_GUEST));
        assert!(matches!(pace.next(), Some(ClientMessage::Resync(Topic::Job(JobId(1))))));
        assert!(pace.next().is_none() && pace.due().is_none());
    }
}

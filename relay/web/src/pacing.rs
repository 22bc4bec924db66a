//! Rate limit for snapshots, logs, long-term history and reports, the only costly things that a guest can request: a
//! number per second and a share of a core. Requests wait for their turn, and a later `subscribe` replaces an earlier one; deltas
//! continue meanwhile. The owner is not limited.

use nodeglass_platform::token_bucket::TokenBucket;
use nodeglass_protocol::live::{ClientMessage, MAX_TOPICS, Topic};
use nodeglass_protocol::range::RangeQuery;
use nodeglass_protocol::report::ReportQuery;
use nodeglass_protocol::request::LogRef;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// Maximum number of topics that a guest can subscribe to; the page needs two.
pub(super) const MAX_GUEST_TOPICS: usize = 4;
/// Maximum number of queries of a kind that wait: the graphs, a report and a comparison of a page query at the same time.
const MAX_QUERIES: usize = 4;
/// Burst and rate of snapshots per guest connection.
const BURST: f64 = 8.0;
const PER_S: f64 = 2.0;
/// Share of a core for all guest connections of one user, and its burst.
const CORE_SHARE: f64 = 0.1;
const CORE_BURST_S: f64 = 0.5;
/// Time limit for a request of the HTTP API to wait for another one.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);
/// Cost of sending, in seconds per byte: about 200 MB/s, mostly kernel time.
const S_PER_BYTE: f64 = 5e-9;

/// CPU budget of one user's guest connections. Clones share the same budget.
#[derive(Clone, Debug)]
pub(crate) struct CpuBudget(Arc<Mutex<TokenBucket>>, Arc<Semaphore>);

impl Default for CpuBudget {
    fn default() -> Self {
        let bucket = TokenBucket::full(CORE_BURST_S, CORE_SHARE, Instant::now());
        Self(Arc::new(Mutex::new(bucket)), Arc::new(Semaphore::new(1)))
    }
}

impl CpuBudget {
    /// Charges core time and bytes sent.
    pub(super) fn charge(&self, cost: Duration, bytes: usize) {
        self.bucket().take(cost.as_secs_f64() + bytes as f64 * S_PER_BYTE, Instant::now());
    }

    /// Waits until no other request of the HTTP API is being processed: what these cost is known once they end. `None` if
    /// that takes too long.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        timeout(TURN_TIMEOUT, self.1.clone().acquire_owned()).await.ok()?.ok()
    }

    /// When the next request may run.
    pub(super) fn next_at(&self, now: Instant) -> Instant {
        self.bucket().available_at(0.0, now)
    }

    /// Returns whether the budget is unused.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.bucket().available_at(CORE_BURST_S, now) <= now
    }

    /// Returns whether another connection holds it.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn bucket(&self) -> MutexGuard<'_, TokenBucket> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rate-limited requests of one connection.
#[derive(Debug)]
pub(super) struct RequestPacer {
    guest: Option<(CpuBudget, TokenBucket)>,
    topics: Option<Vec<Topic>>,
    logs: Option<Vec<LogRef>>,
    resyncs: VecDeque<Topic>,
    ranges: VecDeque<(u32, RangeQuery)>,
    reports: VecDeque<(u32, ReportQuery)>,
}

impl RequestPacer {
    /// For the owner, who is not limited, or for a guest with this budget.
    pub(super) fn new(guest: Option<CpuBudget>) -> Self {
        let guest = guest.map(|budget| (budget, TokenBucket::full(BURST, PER_S, Instant::now())));
        Self {
            guest,
            topics: None,
            logs: None,
            resyncs: VecDeque::new(),
            ranges: VecDeque::new(),
            reports: VecDeque::new(),
        }
    }

    /// Queues a `subscribe`, replacing any earlier one.
    pub(super) fn queue_topics(&mut self, mut topics: Vec<Topic>) {
        if self.guest.is_some() {
            topics.truncate(MAX_GUEST_TOPICS);
        }
        self.resyncs.retain(|topic| topics.contains(topic));
        self.topics = Some(topics);
    }

    /// Queues a `follow`, replacing any earlier one: each sends what the relay holds of the logs that were not followed before.
    pub(super) fn queue_logs(&mut self, logs: Vec<LogRef>) {
        self.logs = Some(logs);
    }

    /// Queues a `resync`.
    pub(super) fn queue_resync(&mut self, topic: Topic) {
        let most = if self.guest.is_some() { MAX_GUEST_TOPICS } else { MAX_TOPICS };
        if !self.resyncs.contains(&topic) && self.resyncs.len() < most {
            self.resyncs.push_back(topic);
        }
    }

    /// Queues a query for long-term history.
    pub(super) fn queue_range(&mut self, number: u32, query: RangeQuery) {
        queue(&mut self.ranges, (number, query));
    }

    /// Queues a query for reports.
    pub(super) fn queue_report(&mut self, number: u32, query: ReportQuery) {
        queue(&mut self.reports, (number, query));
    }

    /// When the next request may run; `None` if the queue is empty.
    pub(super) fn next_due(&mut self) -> Option<Instant> {
        let is_empty = self.topics.is_none() && self.logs.is_none() && self.resyncs.is_empty();
        if is_empty && self.ranges.is_empty() && self.reports.is_empty() {
            return None;
        }
        let now = Instant::now();
        Some(match &mut self.guest {
            Some((budget, snapshots)) => budget.next_at(now).max(snapshots.available_at(1.0, now)),
            None => now,
        })
    }

    /// Removes the next request.
    pub(super) fn next(&mut self) -> Option<ClientMessage> {
        let topics = self.topics.take().map(ClientMessage::Subscribe);
        let next = topics
            .or_else(|| self.logs.take().map(ClientMessage::Follow))
            .or_else(|| self.resyncs.pop_front().map(ClientMessage::Resync))
            .or_else(|| self.ranges.pop_front().map(|(number, query)| ClientMessage::Range { number, query }))
            .or_else(|| {
                self.reports.pop_front().map(|(number, query)| ClientMessage::Report { number, query })
            })?;
        if let Some((_, snapshots)) = &mut self.guest {
            snapshots.take(1.0, Instant::now());
        }
        Some(next)
    }

    /// Charges the cost of a request.
    pub(super) fn charge(&self, cost: Duration, bytes: usize) {
        if let Some((budget, _)) = &self.guest {
            budget.charge(cost, bytes);
        }
    }
}

/// Appends a query, instead of the oldest one if too many wait.
fn queue<T>(queries: &mut VecDeque<T>, query: T) {
    if queries.len() >= MAX_QUERIES {
        queries.pop_front();
    }
    queries.push_back(query);
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use tokio::time::advance;

    /// Number of requests that run while one is queued every 10 ms.
    async fn completed_requests(pacer: &mut RequestPacer, seconds: u64, cost: Duration) -> usize {
        let mut done = 0;
        for number in 0..seconds * 100 {
            pacer.queue_topics(vec![Topic::Job(JobId(number as u32))]);
            if pacer.next_due().is_some_and(|due| due <= Instant::now()) && pacer.next().is_some() {
                pacer.charge(cost, 0);
                done += 1;
            }
            advance(Duration::from_millis(10)).await;
        }
        done
    }

    #[tokio::test(start_paused = true)]
    async fn t20_one_request_of_a_user_is_processed_at_a_time() {
        let (budget, other) = (CpuBudget::default(), CpuBudget::default());
        let first = budget.turn().await;
        assert!(first.is_some() && other.turn().await.is_some());
        assert!(budget.clone().turn().await.is_none(), "beside the first one");
        drop(first);
        assert!(budget.turn().await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_gets_two_snapshots_a_second_and_the_owner_any_number() {
        let no_cost = Duration::ZERO;
        let completed =
            completed_requests(&mut RequestPacer::new(Some(CpuBudget::default())), 10, no_cost).await;
        assert!((24..=30).contains(&completed), "{completed}");
        assert_eq!(completed_requests(&mut RequestPacer::new(None), 10, no_cost).await, 1_000);
    }

    #[tokio::test(start_paused = true)]
    async fn logs_that_are_followed_again_and_again_are_limited() {
        let mut pacer = RequestPacer::new(Some(CpuBudget::default()));
        let mut done = 0;
        for _ in 0..1_000 {
            pacer.queue_logs(Vec::new());
            if pacer.next_due().is_some_and(|due| due <= Instant::now()) {
                assert!(matches!(pacer.next(), Some(ClientMessage::Follow(_))));
                done += 1;
            }
            advance(Duration::from_millis(10)).await;
        }
        assert!((24..=30).contains(&done), "{done}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_connections_of_a_guest_share_a_tenth_of_a_core() {
        let (budget, cost) = (CpuBudget::default(), Duration::from_millis(50));
        let mut pacers: Vec<_> = (0..32).map(|_| RequestPacer::new(Some(budget.clone()))).collect();
        let mut spent = Duration::ZERO;
        for _ in 0..1_000 {
            for pacer in &mut pacers {
                pacer.queue_topics(vec![Topic::Overview]);
                if pacer.next_due().is_some_and(|due| due <= Instant::now()) && pacer.next().is_some() {
                    pacer.charge(cost, 0);
                    spent += cost;
                }
            }
            advance(Duration::from_millis(10)).await;
        }
        assert!((1_000..=1_600).contains(&spent.as_millis()), "{spent:?} in 10 s");
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_charged_and_the_last_refill_is_stored() {
        let mut pacer = RequestPacer::new(Some(CpuBudget::default()));
        pacer.charge(Duration::ZERO, 1_000_000_000);
        pacer.queue_topics(vec![Topic::Job(JobId(1))]);
        pacer.queue_resync(Topic::Job(JobId(1)));
        pacer.queue_topics((0..20).map(|id| Topic::Job(JobId(id + 1))).collect());
        let due = pacer.next_due().expect("something waits");
        assert!(due > Instant::now() + Duration::from_secs(30));
        advance(due - Instant::now()).await;
        assert!(
            matches!(pacer.next(), Some(ClientMessage::Subscribe(topics)) if topics.len() == MAX_GUEST_TOPICS)
        );
        assert!(matches!(pacer.next(), Some(ClientMessage::Resync(Topic::Job(JobId(1))))));
        assert!(pacer.next().is_none() && pacer.next_due().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_queries_wait_in_their_order_and_the_oldest_of_more_is_dropped() {
        let mut pacer = RequestPacer::new(None);
        for number in 0..MAX_QUERIES as u32 + 2 {
            pacer.queue_report(number, ReportQuery::Jobs(vec![JobId(number)]));
        }
        let query = RangeQuery {
            topic: Topic::Overview,
            from_ms: 0,
            to_ms: 1,
            step_ms: 1,
            gpu_fields: Vec::new(),
            host_fields: Vec::new(),
        };
        pacer.queue_range(9, query);
        let mut order = Vec::new();
        while let Some(message) = pacer.next() {
            order.push(match message {
                ClientMessage::Range { number, .. } | ClientMessage::Report { number, .. } => number,
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(order, [9, 2, 3, 4, 5]);
    }
}

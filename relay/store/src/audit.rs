//! Records views and actions: callers append to a bounded queue and never wait; the store's thread writes it.

use super::Request;
use super::database::AuditChange;
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::audit::{AuditLog, View, ViewClient, ViewEnd, ViewerIdentity};
use nodeglass_protocol::request::AuditEntry;
use nodeglass_protocol::share::{Share, ShareId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Maximum number of changes that wait for the disk; the oldest is dropped first.
const MAX_WAITING: usize = 4_096;
/// Requests of one guest to the HTTP API that are less than this apart are one view.
const API_PAUSE_MS: u64 = 5 * 60_000;
/// Maximum number of such views at a time; the oldest ends first.
const MAX_API_VIEWS: usize = 256;
/// A connection of a guest that begins so soon after another one ended continues its view: a guest who connects again and
/// again displaces no records.
const PAGE_PAUSE_MS: u64 = 60_000;
/// Maximum number of ended views that may be continued.
const MAX_ENDED: usize = 256;
/// Interval of confirming open views, so that a killed relay leaves a time near their end.
const CONFIRM_EVERY_MS: u64 = 60_000;

/// Handle to the audit log. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditRecorder {
    queue: Arc<AuditQueue>,
    requests: SyncSender<Request>,
    is_on: bool,
}

/// A view that is open until this is dropped.
#[derive(Debug)]
pub struct OpenView {
    recorder: AuditRecorder,
    number: u64,
}

/// Changes that were not written yet, and the views that are open.
#[derive(Debug, Default)]
pub(super) struct AuditQueue {
    state: Mutex<State>,
    /// Whether the thread has yet to receive a wake-up, so that at most one is in its channel.
    is_woken: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<AuditChange>,
    /// Number of changes that were dropped since the last write, and since the start.
    dropped: u64,
    lost: u64,
    last: u64,
    open: BTreeMap<u64, Opened>,
    /// Views of connections that ended last.
    ended: VecDeque<Ended>,
    confirmed_ms: u64,
}

/// An open view.
#[derive(Debug)]
enum Opened {
    /// A connection.
    Page { share: ShareId, viewer: ViewerIdentity },
    /// Requests, the last one at this time.
    Api { share: Share, viewer: ViewerIdentity, last_ms: u64 },
}

/// A view whose connection ended at this time.
#[derive(Debug)]
struct Ended {
    number: u64,
    share: ShareId,
    viewer: ViewerIdentity,
    at_ms: u64,
}

impl AuditRecorder {
    pub(super) fn new(queue: Arc<AuditQueue>, requests: SyncSender<Request>) -> Self {
        Self { queue, requests, is_on: true }
    }

    /// Returns a handle that records no views or actions.
    #[must_use]
    pub fn off(self) -> Self {
        Self { is_on: false, ..self }
    }

    /// Records that a guest of a share views, until the result is dropped.
    pub fn view(&self, share: &Share, viewer: ViewerIdentity) -> Option<OpenView> {
        let number = self.is_on.then(|| self.queue.begin(share, viewer, Clock::wall_ms()))?;
        self.wake();
        Some(OpenView { recorder: self.clone(), number })
    }

    /// Records a request of a guest to the HTTP API.
    pub fn api_request(&self, share: &Share, viewer: ViewerIdentity) {
        if self.is_on && self.queue.api_request(share, viewer, Clock::wall_ms()) {
            self.wake();
        }
    }

    /// Records an action.
    pub fn action(&self, entry: AuditEntry) {
        if self.is_on {
            self.queue.push(AuditChange::Action(entry));
            self.wake();
        }
    }

    /// Returns the number of records that could not be stored.
    pub fn lost(&self) -> u64 {
        self.queue.state().lost
    }

    /// The records of the last days; `None` if they cannot be read.
    pub async fn read(&self, days: u32) -> Option<AuditLog> {
        let (reply, response) = oneshot::channel();
        let days = u64::from(days.min(AuditLog::MAX_DAYS));
        let since_ms = Clock::wall_ms().saturating_sub(days * 86_400_000);
        self.requests.try_send(Request::AuditLog { since_ms, reply }).ok()?;
        let log = response.await.ok()??;
        Some(AuditLog { is_recorded: self.is_on, ..log })
    }

    fn wake(&self) {
        let is_woken = self.queue.is_woken.swap(true, Ordering::AcqRel);
        // A full channel wakes the thread as well.
        if !is_woken && self.requests.try_send(Request::Audit).is_err() {
            self.queue.wake_received();
        }
    }
}

impl Drop for OpenView {
    fn drop(&mut self) {
        self.recorder.queue.end(self.number, Clock::wall_ms());
        self.recorder.wake();
    }
}

impl AuditQueue {
    fn begin(&self, share: &Share, viewer: ViewerIdentity, now_ms: u64) -> u64 {
        let mut state = self.state();
        if let Some(number) = state.continue_view(share, &viewer, now_ms) {
            return number;
        }
        let opened = Opened::Page { share: share.id.clone(), viewer: viewer.clone() };
        state.begin(opened, share, viewer, now_ms)
    }

    fn end(&self, number: u64, now_ms: u64) {
        let mut state = self.state();
        if let Some(Opened::Page { share, viewer }) = state.open.remove(&number) {
            state.push(AuditChange::End(number, now_ms));
            state.ended.push_back(Ended { number, share, viewer, at_ms: now_ms });
            let over = state.ended.len().saturating_sub(MAX_ENDED);
            state.ended.drain(..over);
        }
    }

    /// Returns whether this is a new view.
    fn api_request(&self, share: &Share, viewer: ViewerIdentity, now_ms: u64) -> bool {
        let mut state = self.state();
        state.end_api_views(now_ms);
        let known = state.open.values_mut().find_map(|opened| match opened {
            Opened::Api { share: of, viewer: by, last_ms } if of.id == share.id && *by == viewer => {
                Some(last_ms)
            }
            _ => None,
        });
        if let Some(last_ms) = known {
            *last_ms = now_ms;
            return false;
        }
        let is_api = |(number, opened): (&u64, &Opened)| match opened {
            Opened::Api { last_ms, .. } => Some((*number, *last_ms)),
            Opened::Page { .. } => None,
        };
        let open: Vec<_> = state.open.iter().filter_map(is_api).collect();
        if let Some((oldest, last_ms)) = open.first().filter(|_| open.len() >= MAX_API_VIEWS) {
            state.open.remove(oldest);
            state.push(AuditChange::End(*oldest, *last_ms));
        }
        let opened = Opened::Api { share: share.clone(), viewer: viewer.clone(), last_ms: now_ms };
        state.begin(opened, share, viewer, now_ms);
        true
    }

    fn push(&self, change: AuditChange) {
        self.state().push(change);
    }

    /// The thread has received a wake-up; the next change sends another.
    pub(super) fn wake_received(&self) {
        self.is_woken.store(false, Ordering::Release);
    }

    /// Takes what is to be written, among it the confirmation of open views when it is due.
    pub(super) fn take(&self, now_ms: u64) -> VecDeque<AuditChange> {
        let mut state = self.state();
        state.end_api_views(now_ms);
        let dropped = std::mem::take(&mut state.dropped);
        if dropped > 0 {
            tracing::error!(dropped, "the audit log lacks records, because they could not be stored in time");
        }
        let mut changes = std::mem::take(&mut state.waiting);
        changes.extend(state.confirmations(now_ms));
        changes
    }

    /// Returns what could not be written, to be taken again. Confirmations are made anew then, so that they never
    /// displace other changes.
    pub(super) fn put_back(&self, mut changes: VecDeque<AuditChange>) {
        let mut state = self.state();
        let count = changes.len();
        changes.retain(|change| !matches!(change, AuditChange::Seen(..)));
        if changes.len() < count {
            state.confirmed_ms = 0;
        }
        changes.append(&mut state.waiting);
        state.waiting = changes;
        state.bound();
    }

    /// Ends every view, as the relay stops.
    pub(super) fn end_all(&self, now_ms: u64) {
        let mut state = self.state();
        for (number, opened) in std::mem::take(&mut state.open) {
            let at_ms = match opened {
                Opened::Page { .. } => now_ms,
                Opened::Api { last_ms, .. } => last_ms,
            };
            state.push(AuditChange::End(number, at_ms));
        }
    }

    // Every change is a single step, so a panic elsewhere cannot leave the state inconsistent.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn begin(&mut self, opened: Opened, share: &Share, viewer: ViewerIdentity, now_ms: u64) -> u64 {
        let client = match opened {
            Opened::Page { .. } => ViewClient::Page,
            Opened::Api { .. } => ViewClient::Api,
        };
        let view = View {
            share: share.id.clone(),
            label: share.terms.label.clone(),
            scope: share.terms.scope.clone(),
            viewer,
            client,
            began_ms: now_ms,
            end: ViewEnd::Open,
        };
        self.last += 1;
        self.open.insert(self.last, opened);
        self.push(AuditChange::Begin(self.last, Box::new(view)));
        self.last
    }

    /// Continues a view of this guest that ended a moment ago, if there is one.
    fn continue_view(&mut self, share: &Share, viewer: &ViewerIdentity, now_ms: u64) -> Option<u64> {
        // The wall clock may have been set back.
        self.ended.retain(|ended| now_ms.abs_diff(ended.at_ms) < PAGE_PAUSE_MS);
        let at = self.ended.iter().position(|ended| ended.share == share.id && ended.viewer == *viewer)?;
        let Ended { number, share, viewer, .. } = self.ended.remove(at)?;
        let is_end = |change: &AuditChange| matches!(change, AuditChange::End(of, _) if *of == number);
        match self.waiting.iter().rposition(is_end) {
            Some(at) => drop(self.waiting.remove(at)),
            None => self.push(AuditChange::Seen(number, now_ms)),
        }
        self.open.insert(number, Opened::Page { share, viewer });
        Some(number)
    }

    fn push(&mut self, change: AuditChange) {
        self.waiting.push_back(change);
        self.bound();
    }

    fn bound(&mut self) {
        let over = self.waiting.len().saturating_sub(MAX_WAITING);
        self.waiting.drain(..over);
        self.dropped += over as u64;
        self.lost += over as u64;
    }

    fn end_api_views(&mut self, now_ms: u64) {
        let mut over = Vec::new();
        self.open.retain(|number, opened| match opened {
            Opened::Api { last_ms, .. } if last_ms.saturating_add(API_PAUSE_MS) <= now_ms => {
                over.push(AuditChange::End(*number, *last_ms));
                false
            }
            _ => true,
        });
        over.into_iter().for_each(|end| self.push(end));
    }

    /// The confirmation of every open view, if it is due.
    fn confirmations(&mut self, now_ms: u64) -> Vec<AuditChange> {
        // The wall clock may have been set back.
        let since_ms = now_ms.abs_diff(self.confirmed_ms);
        if self.open.is_empty() || since_ms < CONFIRM_EVERY_MS {
            return Vec::new();
        }
        self.confirmed_ms = now_ms;
        let seen = self.open.iter().map(|(number, opened)| match opened {
            Opened::Page { .. } => AuditChange::Seen(*number, now_ms),
            Opened::Api { last_ms, .. } => AuditChange::Seen(*number, *last_ms),
        });
        seen.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::share::{HiddenParts, Scope, ShareId, ShareTerms};

    fn share(id: &str) -> Share {
        let terms = ShareTerms {
            label: "for Bob".into(),
            scope: Scope::All,
            hidden: HiddenParts::default(),
            to: None,
            expires_ms: 0,
            ends_with_job: false,
        };
        Share { id: ShareId::new(id).unwrap(), created_ms: 0, terms }
    }

    fn viewer(user: &str) -> ViewerIdentity {
        ViewerIdentity { user: Some(user.into()), ..ViewerIdentity::default() }
    }

    /// Begin, confirmation and end of views, in short.
    fn changes(queue: &AuditQueue, now_ms: u64) -> Vec<String> {
        let short = |change: AuditChange| match change {
            AuditChange::Begin(number, view) => format!("begin {number} {:?}", view.client),
            AuditChange::Seen(number, at_ms) => format!("seen {number} at {at_ms}"),
            AuditChange::End(number, at_ms) => format!("end {number} at {at_ms}"),
            AuditChange::Action(entry) => entry.action.to_string(),
        };
        queue.take(now_ms).into_iter().map(short).collect()
    }

    #[test]
    fn open_views_are_confirmed_once_a_minute_until_they_end() {
        let queue = AuditQueue::default();
        let number = queue.begin(&share("a"), viewer("bob"), 100_000);
        assert_eq!(changes(&queue, 100_000), ["begin 1 Page", "seen 1 at 100000"]);
        assert!(changes(&queue, 159_999).is_empty());
        assert_eq!(changes(&queue, 160_000), ["seen 1 at 160000"]);
        queue.end(number, 170_000);
        queue.end(number, 180_000);
        assert_eq!(changes(&queue, 300_000), ["end 1 at 170000"]);
    }

    /// Otherwise 20,000 connections of a guest, made within minutes, would displace all other records of the share.
    #[test]
    fn a_guest_who_connects_again_and_again_makes_one_record() {
        let queue = AuditQueue::default();
        let number = queue.begin(&share("a"), viewer("mallory"), 1_000);
        assert_eq!(changes(&queue, 1_000)[..1], ["begin 1 Page"]);
        queue.end(number, 2_000);
        for at_ms in 0..30_000 {
            let number = queue.begin(&share("a"), viewer("mallory"), 3_000 + at_ms);
            queue.end(number, 3_000 + at_ms);
        }
        assert_eq!(changes(&queue, 40_000), ["end 1 at 32999"]);
        queue.begin(&share("a"), viewer("mallory"), 50_000);
        assert_eq!(changes(&queue, 50_000), ["seen 1 at 50000"]);
        // Other guests, other shares, further connections, and later ones are other views.
        assert_eq!(queue.begin(&share("a"), viewer("bob"), 50_000), 2);
        assert_eq!(queue.begin(&share("b"), viewer("mallory"), 50_000), 3);
        assert_eq!(queue.begin(&share("a"), viewer("mallory"), 50_000), 4);
        queue.end(1, 60_000);
        assert_eq!(queue.begin(&share("a"), viewer("mallory"), 60_000 + PAGE_PAUSE_MS), 5);
        for number in 0..2 * MAX_ENDED {
            let number = queue.begin(&share("a"), viewer(&format!("user{number}")), 200_000);
            queue.end(number, 200_000);
        }
        assert_eq!(queue.state().ended.len(), MAX_ENDED);
    }

    #[test]
    fn requests_in_short_sequence_are_one_view_of_each_guest() {
        let queue = AuditQueue::default();
        assert!(queue.api_request(&share("a"), viewer("bob"), 1_000));
        assert!(queue.api_request(&share("a"), viewer("carol"), 1_000));
        assert!(queue.api_request(&share("b"), viewer("bob"), 1_000));
        assert!(!queue.api_request(&share("a"), viewer("bob"), 200_000));
        assert_eq!(changes(&queue, 2_000)[..3], ["begin 1 Api", "begin 2 Api", "begin 3 Api"]);
        assert_eq!(changes(&queue, 301_000), ["end 2 at 1000", "end 3 at 1000", "seen 1 at 200000"]);
        assert_eq!(changes(&queue, 500_000), ["end 1 at 200000"]);
        assert!(queue.api_request(&share("a"), viewer("bob"), 501_000));
    }

    #[test]
    fn the_number_of_api_views_is_bounded() {
        let queue = AuditQueue::default();
        for user in 0..300 {
            queue.api_request(&share("a"), viewer(&format!("user{user}")), 1_000);
        }
        assert_eq!(queue.state().open.len(), MAX_API_VIEWS);
    }

    #[test]
    fn what_waits_is_bounded_and_written_in_order() {
        let queue = AuditQueue::default();
        let entry = |number: usize| {
            let action = number.to_string().into();
            AuditChange::Action(AuditEntry { wall_ms: 0, action, outcome: "".into(), succeeded: true })
        };
        (0..10).for_each(|number| queue.push(entry(number)));
        let taken = queue.take(0);
        (10..MAX_WAITING + 5).for_each(|number| queue.push(entry(number)));
        queue.put_back(taken);
        assert_eq!(queue.state().dropped, 5);
        let all = changes(&queue, 0);
        assert_eq!((all.len(), all[0].as_str(), all[5].as_str()), (MAX_WAITING, "5", "10"));
    }

    #[test]
    fn confirmations_displace_no_record_while_the_disk_fails() {
        let queue = AuditQueue::default();
        for user in 0..MAX_API_VIEWS {
            queue.api_request(&share("a"), viewer(&format!("user{user}")), 100_000);
        }
        // Every retry confirms the views.
        for turn in 1..40 {
            let now_ms = 100_000 + turn * CONFIRM_EVERY_MS;
            (0..MAX_API_VIEWS).for_each(|user| {
                queue.api_request(&share("a"), viewer(&format!("user{user}")), now_ms);
            });
            let taken = queue.take(now_ms);
            assert_eq!(taken.len(), 2 * MAX_API_VIEWS);
            queue.put_back(taken);
        }
        {
            let state = queue.state();
            assert_eq!((state.waiting.len(), state.dropped), (MAX_API_VIEWS, 0));
        }
        // They are repeated with the next turn, not a minute later.
        assert_eq!(queue.take(100_001 + 39 * CONFIRM_EVERY_MS).len(), 2 * MAX_API_VIEWS);
    }

    #[test]
    fn every_view_ends_with_the_relay() {
        let queue = AuditQueue::default();
        let number = queue.begin(&share("a"), viewer("bob"), 1_000);
        queue.api_request(&share("a"), viewer("bob"), 2_000);
        changes(&queue, 2_000);
        queue.end_all(9_000);
        queue.end(number, 9_999);
        assert_eq!(changes(&queue, 9_999), ["end 1 at 9000", "end 2 at 2000"]);
    }
}

//! The current attention list, updated with every assessment, for every view that shows it.

use crate::domain::attention::{self, Entry, Item, Tracker};
use crate::domain::route::{Route, around};
use crate::fleet::{FleetStore, Phase, TopicStore};
use crate::net::{Feed, LinkState};
use crate::platform;
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::Picture;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The list of what needs attention, shared by all views.
#[derive(Clone)]
pub struct Attention {
    feed: Feed,
    assessment: RwSignal<u64>,
    entries: Memo<Arc<Vec<Entry>>>,
    /// Items that ended within the last hour.
    resolved: Memo<Arc<Vec<Item>>>,
    /// Silenced items that are active.
    silenced: Memo<Arc<Vec<Item>>>,
    /// The keys of past items that the viewer dismissed, oldest first.
    dismissed: RwSignal<Vec<String>>,
    /// Number of items that would be listed had they not been dismissed.
    hidden: Memo<usize>,
    jobs: Memo<Vec<JobId>>,
    /// Whether the pointer or the focus is in the list, whose rows then keep their place.
    held: RwSignal<bool>,
    /// Whether the pointer is in the job list, whose entries then keep their section.
    jobs_held: RwSignal<bool>,
    /// The item that [`Self::next`] returned last, or that was opened since.
    visited: StoredValue<Option<String>>,
}

/// The sources of the items.
#[derive(Clone)]
struct Source {
    feed: Feed,
    store: TopicStore,
    assessment: RwSignal<u64>,
}

impl Source {
    /// Returns what `find` finds with each assessment. Without a connection, and while `held`, it stays as it was.
    fn items(
        &self,
        held: Option<RwSignal<bool>>,
        find: fn(&[Job], &Picture) -> Vec<Item>,
    ) -> Memo<Arc<Vec<Item>>> {
        let source = self.clone();
        Memo::new(move |known: Option<&Arc<Vec<Item>>>| {
            source.assessment.track();
            let is_held = held.is_some_and(|held| held.get());
            match known {
                Some(known) if is_held || !is_current(&source.feed, &source.store) => known.clone(),
                _ => Arc::new(source.store.read(|picture| find(&picture.jobs, picture))),
            }
        })
    }
}

/// Returns what needs attention, and what did a moment ago; while `held`, nothing changes its place.
fn found_entries(source: &Source, fleet: &FleetStore, held: RwSignal<bool>) -> Memo<Arc<Vec<Entry>>> {
    let (Source { feed, store, assessment }, tracker) = (source.clone(), Mutex::new(Tracker::default()));
    let (fleet, visits) = (fleet.clone(), Arc::new(Mutex::new(visits::Known::default())));
    record_visits(source, &fleet, visits.clone());
    Memo::new(move |_| {
        assessment.track();
        store.jobs().track();
        let mut tracker = lock(&tracker);
        if is_current(&feed, &store) {
            let now_ms = wall_ms(&fleet);
            let visits = lock(&visits).earlier(now_ms);
            let found = store.read(|picture| attention::with_failures(picture, visits, now_ms));
            tracker.update(found, held.get());
        }
        Arc::new(tracker.entries().to_vec())
    })
}

/// Stores until when the page is visible, for the next visit; nothing while a recording is played.
fn record_visits(source: &Source, fleet: &FleetStore, visits: Arc<Mutex<visits::Known>>) {
    let (Source { feed, store, assessment }, fleet) = (source.clone(), fleet.clone());
    platform::effect(move || {
        assessment.track();
        let is_live = is_current(&feed, &store) && store.read(|picture| picture.relay.replay.is_none());
        if is_live && !platform::is_hidden() {
            lock(&visits).record(wall_ms(&fleet));
        }
    });
}

/// Returns Unix time by the login node's clock, in ms.
fn wall_ms(fleet: &FleetStore) -> u64 {
    u64::try_from(fleet.wall_s(platform::now_ms())).unwrap_or_default() * 1_000
}

impl Attention {
    /// Starts to follow the overview; updated with `assessment`.
    pub fn new(fleet: &FleetStore, feed: &Feed, assessment: RwSignal<u64>) -> Self {
        let (held, jobs_held) = (RwSignal::new(false), RwSignal::new(false));
        let source = Source { feed: feed.clone(), store: fleet.overview().clone(), assessment };
        let all = found_entries(&source, fleet, held);
        let resolved = source.items(Some(held), attention::resolved);
        let silenced = source.items(None, attention::silenced);
        let dismissed = RwSignal::new(dismissal::load());
        let is_dismissed =
            move |entry: &Entry| entry.item.is_past && dismissed.with(|keys| keys.contains(&entry.item.key));
        let hidden =
            Memo::new(move |_| all.with(|all| all.iter().filter(|entry| is_dismissed(entry)).count()));
        let entries = Memo::new(move |_| {
            let all = all.get();
            if hidden.get() == 0 {
                return all;
            }
            Arc::new(all.iter().filter(|entry| !is_dismissed(entry)).cloned().collect())
        });
        let jobs = Memo::new(move |known: Option<&Vec<JobId>>| match known {
            Some(known) if jobs_held.get() => known.clone(),
            _ => entries.with(|entries| job_ids(entries)),
        });
        let visited = StoredValue::new(None);
        Self {
            feed: feed.clone(),
            assessment,
            entries,
            resolved,
            silenced,
            dismissed,
            hidden,
            jobs,
            held,
            jobs_held,
            visited,
        }
    }

    /// The items of the overview, worst first. Without a connection they stay as they were.
    pub fn entries(&self) -> Memo<Arc<Vec<Entry>>> {
        self.entries
    }

    /// Returns the items that ended within the last hour, latest first.
    pub fn resolved(&self) -> Memo<Arc<Vec<Item>>> {
        self.resolved
    }

    /// Returns silenced items that are active, worst first.
    pub fn silenced(&self) -> Memo<Arc<Vec<Item>>> {
        self.silenced
    }

    /// Returns the silenced items of one job.
    pub fn silenced_of(&self, id: JobId) -> Memo<Arc<Vec<Item>>> {
        let silenced = self.silenced;
        Memo::new(move |_| {
            let of_job = |item: &&Item| item.jobs.contains(&id);
            Arc::new(silenced.with(|items| items.iter().filter(of_job).cloned().collect()))
        })
    }

    /// Removes a past item from the list, in this browser.
    pub fn dismiss(&self, key: &str) {
        self.dismissed.update(|keys| dismissal::add(keys, key));
        self.dismissed.with_untracked(|keys| dismissal::store(keys));
    }

    /// Lists all dismissed items again.
    pub fn restore(&self) {
        self.dismissed.set(Vec::new());
        dismissal::store(&[]);
    }

    /// The number of items that are not listed because they were dismissed.
    pub fn dismissed(&self) -> Memo<usize> {
        self.hidden
    }

    /// Returns the items of one job by its own topic, or the overview's until that has arrived. The failure of a job
    /// is not among them.
    pub fn of_job(&self, store: &TopicStore, id: JobId, job: Memo<Option<Job>>) -> Memo<Arc<Vec<Entry>>> {
        let (this, store) = (self.clone(), store.clone());
        let tracker = Mutex::new(Tracker::default());
        Memo::new(move |_| {
            this.assessment.track();
            let mut tracker = lock(&tracker);
            if store.phase() != Phase::Ready {
                let known = this.entries.get_untracked();
                let own = attention::for_job(&known, id).filter(|entry| !entry.item.is_past).cloned();
                return Arc::new(own.collect());
            }
            if is_current(&this.feed, &store) {
                let mut found = job.with(|job| match job {
                    Some(job) => store.read(|picture| attention::all(std::slice::from_ref(job), picture)),
                    None => Vec::new(),
                });
                found.retain(|item| !item.is_past && item.jobs.contains(&id));
                tracker.update(found, this.held.get());
            }
            Arc::new(tracker.entries().to_vec())
        })
    }

    /// The jobs with an item, worst first.
    pub fn jobs(&self) -> Memo<Vec<JobId>> {
        self.jobs
    }

    /// Keeps the rows of the list in place while the pointer or the focus is in it.
    pub fn hold(&self, is_held: bool) {
        set(self.held, is_held);
    }

    /// Keeps the entries of the job list in their section while the pointer is in it.
    pub fn hold_jobs(&self, is_held: bool) {
        set(self.jobs_held, is_held);
    }

    /// Returns the item `by` places after the last returned one, from each end on to the other.
    pub fn next(&self, by: isize) -> Option<Item> {
        let entries = self.entries.get_untracked();
        let listed: Vec<&Item> =
            entries.iter().filter(|entry| !entry.is_resolved).map(|entry| &entry.item).collect();
        let visited = self.visited.get_value();
        let at = listed.iter().position(|item| Some(&item.key) == visited.as_ref());
        let item = (*listed.get(around(at, by, listed.len())?)?).clone();
        self.visit(&item.key);
        Some(item)
    }

    /// Continues [`Self::next`] after the item with this key, which the viewer has opened.
    pub fn visit(&self, key: &str) {
        self.visited.set_value(Some(key.to_owned()));
    }
}

/// Returns the link to where and when an item shows. `now_ms` is in ms since 1970.
pub fn href(item: &Item, now_ms: u64, href: impl Fn(&Route) -> String) -> String {
    format!("{}{}", href(&item.target.route), item.query(now_ms).text())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set(signal: RwSignal<bool>, value: bool) {
    if signal.get_untracked() != value {
        signal.set(value);
    }
}

/// Returns whether a topic's picture is current, so that what is not found there is over.
fn is_current(feed: &Feed, store: &TopicStore) -> bool {
    feed.link() == LinkState::Live && store.phase() == Phase::Ready
}

fn job_ids(entries: &[Entry]) -> Vec<JobId> {
    let mut ids = Vec::new();
    for id in entries.iter().filter(|entry| !entry.is_resolved).flat_map(|entry| &entry.item.jobs) {
        if !ids.contains(id) {
            ids.push(*id);
        }
    }
    ids
}

/// The visits of this browser in its storage.
mod visits {
    use crate::domain::attention::Visits;
    use crate::platform;

    const VISITS: &str = "nodeglass-visits";
    /// Time between two writes, in ms.
    const EVERY_MS: u64 = 60_000;

    /// The visits, once they were read, and when they were stored last.
    #[derive(Debug, Default)]
    pub struct Known {
        earlier: Option<Visits>,
        stored_ms: Option<u64>,
    }

    impl Known {
        /// Returns the visits before this one, as they were stored when it began; this one if it is the first.
        pub fn earlier(&mut self, now_ms: u64) -> Visits {
            let stored = || platform::load_item(platform::local(), VISITS);
            *self.earlier.get_or_insert_with(|| {
                stored().and_then(|text| Visits::parse(&text, now_ms)).unwrap_or(Visits::first(now_ms))
            })
        }

        /// Stores that the page is visible, unless it did so a moment ago.
        pub fn record(&mut self, now_ms: u64) {
            if self.stored_ms.is_none_or(|at_ms| now_ms >= at_ms.saturating_add(EVERY_MS)) {
                platform::store_item(platform::local(), VISITS, &self.earlier(now_ms).text(now_ms));
                self.stored_ms = Some(now_ms);
            }
        }
    }
}

/// Dismissed items in the browser's storage, one key a line.
mod dismissal {
    use crate::platform;

    const DISMISSED: &str = "nodeglass-dismissed";
    /// Maximum number of keys: the oldest are of jobs that are no longer listed.
    const MAX_KEYS: usize = 200;

    pub fn load() -> Vec<String> {
        let stored = platform::load_item(platform::local(), DISMISSED).unwrap_or_default();
        stored.lines().map(ToOwned::to_owned).collect()
    }

    pub fn store(keys: &[String]) {
        platform::store_item(platform::local(), DISMISSED, &keys.join("\n"));
    }

    pub fn add(keys: &mut Vec<String>, key: &str) {
        keys.retain(|known| known != key);
        keys.push(key.to_owned());
        keys.drain(..keys.len().saturating_sub(MAX_KEYS));
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn the_latest_dismissals_are_kept_once_each() {
            let mut keys: Vec<String> = Vec::new();
            (0..=super::MAX_KEYS).for_each(|number| super::add(&mut keys, &format!("ended/{number}")));
            super::add(&mut keys, "ended/7");
            assert_eq!((keys.len(), keys.first().unwrap().as_str()), (super::MAX_KEYS, "ended/1"));
            assert_eq!(keys.iter().filter(|key| *key == "ended/7").count(), 1);
        }
    }
}

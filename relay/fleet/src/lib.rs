//! The fleet: the state of all jobs and nodes, computed from events and the given time.
//!
//! [`Fleet::handle`], in `apply`, applies an event at `now` and records what changed in [`Changes`]; it knows no
//! socket, clock, thread or signal. Every `…_ms` is of the relay's clock unless its name says `wall`.

mod apply;
mod backfill;
mod bounds;
mod changes;
mod event;
mod joblist;
mod node;
mod notes;
mod ownership;
mod replay;
mod timeline;
mod unattributed;
mod visible_devices;

pub use changes::{Changes, NodeChanges};
pub use event::{Event, Host, Limit, RefusalCause, SessionEvent, StoredPart};
use joblist::JobList;
pub use node::ConnectionCounts;
use node::Node;
use nodeglass_findings::capture::CaptureOrder;
use nodeglass_findings::thresholds::Thresholds;
use nodeglass_findings::{Findings, Now};
use nodeglass_history::LongHistory;
use nodeglass_protocol::finding::{Finding, Silence};
use nodeglass_protocol::insight::JobInsight;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::note::{NoteId, NoteRequest};
use nodeglass_protocol::picture::{GpuPicture, JobsHealth, NodePicture, Owner, RelayStatus};
use nodeglass_protocol::probe::ProbeUsage;
use nodeglass_protocol::request::AuditEntry;
use nodeglass_protocol::share::Sharing;
use nodeglass_protocol::{JobId, NodeName, Text};
pub use nodeglass_report::Until;
use nodeglass_report::{Factors, JobRecord, JobReports};
use nodeglass_rules::ownership::{has_gpus_on, is_by_slurm};
use nodeglass_rules::run::ms_of;
pub use notes::{NoteChange, NoteError, Notes, sorted as sorted_notes};
use std::collections::{BTreeMap, BTreeSet};

/// The state of all jobs and nodes.
#[derive(Debug, Default)]
pub struct Fleet {
    jobs: JobList,
    hosts: BTreeMap<NodeName, Host>,
    nodes: BTreeMap<NodeName, Node>,
    status: RelayStatus,
    audit_log: Vec<AuditEntry>,
    sharing: Sharing,
    /// The user in whose jobs further probes may run; empty if in none.
    user: Text,
    history: LongHistory,
    /// Problems of the list of hosts.
    host_notices: Vec<Text>,
    /// Reasons why state that outlives the relay cannot be used.
    storage_problems: BTreeMap<StoredPart, Text>,
    /// Limits that the relay reached, and what it does about them.
    limits: BTreeMap<Limit, Text>,
    /// Whether what earlier relays stored is still being read, which takes more than a moment.
    is_restoring: bool,
    reports: JobReports,
    findings: Findings,
    /// Further conclusions about running jobs.
    insights: Vec<JobInsight>,
    notes: Notes,
    /// Unix time at which the relay's clock would read 0, in ms, by the last job list.
    wall_ahead_ms: i64,
    changes: Changes,
}

/// Settings of a fleet.
#[derive(Clone, Debug, Default)]
pub struct FleetSettings {
    /// Maximum memory of the long-term history, about, in bytes.
    pub history_budget: usize,
    /// Thresholds of the detectors.
    pub thresholds: Thresholds,
    /// Cost of GPU hours and energy, for the reports of jobs.
    pub factors: Factors,
}

/// The notice while the stored history is being read.
const RESTORING: &str = "the history of earlier relays is still being read; graphs of more than ten minutes show it \
                         as soon as it is complete";

/// Maximum number of audit entries; the oldest is dropped first.
const MAX_AUDIT_LOG: usize = 64;

impl Fleet {
    /// An empty fleet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets probes run in jobs of this user on nodes whose own probe cannot see their GPUs.
    pub fn use_jobs_of(&mut self, user: Text) {
        self.user = user;
    }

    /// An empty fleet whose long-term history takes at most about `budget` bytes of memory.
    pub fn with_history_budget(budget: usize) -> Self {
        Self { history: LongHistory::new(budget), ..Self::default() }
    }

    /// An empty fleet with these settings.
    pub fn with_settings(settings: FleetSettings) -> Self {
        let FleetSettings { history_budget, thresholds, factors } = settings;
        let mut fleet = Self::with_history_budget(history_budget);
        fleet.findings.set_thresholds(thresholds);
        fleet.reports.set_factors(factors);
        fleet
    }

    /// Silences of findings that have not expired.
    pub fn silences(&self) -> &[Silence] {
        self.findings.silences()
    }

    /// The long-term history of all nodes.
    pub fn history(&self) -> &LongHistory {
        &self.history
    }

    /// Returns the long-term history, to store it.
    pub fn history_mut(&mut self) -> &mut LongHistory {
        &mut self.history
    }

    /// States for the owner that the history which earlier relays stored is not complete yet.
    pub fn set_restoring(&mut self) {
        self.is_restoring = true;
        self.update_notices();
    }

    /// Enters the history that earlier relays stored, after it was read; `None` if it cannot be.
    pub fn restore_history(&mut self, restored: Option<LongHistory>, now_ms: u64) {
        if let Some(restored) = restored {
            self.history.merge_restored(restored, now_ms);
        }
        self.is_restoring = false;
        self.update_notices();
    }

    /// Returns the usage of a running job.
    pub fn job_record(&self, id: JobId, until: Until, now_ms: u64) -> Option<JobRecord> {
        self.reports.of(id, self.wall_s(now_ms), until)
    }

    /// Returns the usage of all running jobs up to now.
    pub fn running_records(&self, now_ms: u64) -> Vec<JobRecord> {
        self.reports.running(self.wall_s(now_ms))
    }

    /// Takes the usage of the jobs that ended since the last call.
    pub fn take_finished_records(&mut self) -> Vec<JobRecord> {
        self.reports.take_finished()
    }

    /// Lists jobs that an earlier relay saw end, with the last picture of their nodes, as long as SLURM lists no other
    /// run of them.
    pub fn restore_ended(&mut self, jobs: impl IntoIterator<Item = (Job, Vec<NodePicture>)>) {
        self.jobs.restore(jobs);
        self.notes.set_listed(self.jobs.list());
        self.reports.restore_ended(self.jobs.list().iter().map(|job| job.id));
    }

    /// Takes the jobs that have ended, or about whose end SLURM reported more, since the last call, with the last
    /// picture of their nodes.
    pub fn take_ended(&mut self) -> Vec<(Job, Vec<NodePicture>)> {
        self.jobs.take_updated()
    }

    /// Returns records that could not be stored, to be taken again.
    pub fn put_back_records(&mut self, records: Vec<JobRecord>) {
        self.reports.put_back(records);
    }

    /// Returns the number of records of ended jobs that were dropped because they were not taken.
    pub fn lost_records(&self) -> usize {
        self.reports.lost()
    }

    /// Returns the findings: active ones, the worst first, then those that ended within the last hour.
    pub fn findings(&self) -> &[Finding] {
        self.findings.list()
    }

    /// Returns further conclusions about running jobs, by id.
    pub fn insights(&self) -> &[JobInsight] {
        &self.insights
    }

    /// Returns the captures to request, because findings about jobs of `user` began.
    pub fn due_captures(&mut self, user: &str, now_ms: u64) -> Vec<CaptureOrder> {
        let nodes = &self.nodes;
        let node = |name: &NodeName| nodes.get(name).map(Node::picture);
        let now = Now { relay_ms: now_ms, wall_ahead_ms: self.wall_ahead_ms };
        self.findings.due_captures(user, self.jobs.list(), node, now)
    }

    /// All notes.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Returns the change that a request of the owner makes at `wall_ms`, in ms since 1970, to be applied as
    /// [`Event::Note`].
    ///
    /// # Errors
    /// [`NoteError`].
    pub fn requested_note(
        &self,
        request: NoteRequest,
        new_id: NoteId,
        wall_ms: u64,
    ) -> Result<NoteChange, NoteError> {
        let is_node = |name: &NodeName| self.nodes.contains_key(name);
        self.notes.requested(request, new_id, wall_ms, self.jobs.list(), is_node)
    }

    /// Selects the stored notes that are new, to be applied as [`Event::RestoredNotes`]. If they `lack_recent` changes
    /// of this relay, only notes that it does not know are new.
    pub fn new_notes(&self, stored: Vec<NoteChange>, lack_recent: bool) -> Vec<NoteChange> {
        self.notes.news(stored, lack_recent)
    }

    /// Takes the changes of notes since the last call, to be stored.
    pub fn take_note_changes(&mut self) -> Vec<NoteChange> {
        self.notes.take_unsaved()
    }

    /// Returns changes of notes that could not be stored, to be taken again.
    pub fn put_back_note_changes(&mut self, changes: Vec<NoteChange>) {
        self.notes.put_back(changes);
    }

    /// Converts ms of the relay's clock to Unix time in seconds.
    fn wall_s(&self, now_ms: u64) -> i64 {
        self.wall_ahead_ms.saturating_add(now_ms.cast_signed()).div_euclid(1_000)
    }

    /// Converts Unix time in seconds to ms of the relay's clock.
    pub fn relay_ms(&self, wall_s: i64) -> u64 {
        relay_ms(wall_s, self.wall_ahead_ms)
    }

    /// Watches hosts whether or not a job runs there.
    pub fn watch_hosts(&mut self, names: impl IntoIterator<Item = NodeName>) {
        self.hosts.extend(names.into_iter().map(|name| (name, Host::default())));
        self.findings.set_hosts(self.hosts.keys().cloned().collect());
        self.update_membership(0);
    }

    /// Returns the changes since the last call.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// Returns whether anything changed since [`Fleet::take_changes`].
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// All jobs, active first, ended last.
    pub fn jobs(&self) -> &[Job] {
        self.jobs.list()
    }

    /// The audit log, oldest first.
    pub fn audit_log(&self) -> &[AuditEntry] {
        &self.audit_log
    }

    /// Open shares and current visitors.
    pub fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    /// The relay's status.
    pub fn status(&self) -> &RelayStatus {
        &self.status
    }

    /// Returns the nodes that should have a probe: nodes of active jobs, and watched hosts.
    pub fn wanted(&self) -> BTreeSet<NodeName> {
        let of_jobs =
            self.jobs.list().iter().filter(|job| job.is_active()).flat_map(|job| job.nodes.iter().cloned());
        of_jobs.chain(self.hosts.keys().cloned()).collect()
    }

    /// The active jobs on each node.
    pub fn jobs_on_nodes(&self) -> BTreeMap<&NodeName, Vec<&Job>> {
        let mut on_nodes: BTreeMap<&NodeName, Vec<&Job>> = BTreeMap::new();
        for job in self.jobs.list().iter().filter(|job| job.is_active()) {
            job.nodes.iter().for_each(|node| on_nodes.entry(node).or_default().push(job));
        }
        on_nodes
    }

    /// The jobs on a node in which further probes should run.
    pub fn job_probes(&self, name: &NodeName) -> Vec<JobId> {
        self.nodes.get(name).map(|node| node.job_probes().collect()).unwrap_or_default()
    }

    /// Returns the resource usage of each connected probe, with its node, and with its job unless it is the node's
    /// own probe.
    pub fn probe_usages(&self) -> impl Iterator<Item = (&NodeName, Option<JobId>, ProbeUsage)> {
        let of_node = |(name, node): (_, &Node)| {
            node.probe_usages().map(move |(job, usage)| (name, job, usage)).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of_node)
    }

    /// Returns what the connections to each node lost, with its node, and with its job unless it is the node's own probe.
    pub fn connection_counts(&self) -> impl Iterator<Item = (&NodeName, Option<JobId>, ConnectionCounts)> {
        let of_node = |(name, node): (_, &Node)| {
            node.connection_counts().map(move |(job, counts)| (name, job, counts)).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of_node)
    }

    /// Returns whether a node is watched independent of jobs.
    pub fn is_watched_host(&self, name: &NodeName) -> bool {
        self.hosts.contains_key(name)
    }

    /// Identifies how a node is reached; changes with the list of hosts.
    pub fn target(&self, name: &NodeName) -> u64 {
        self.hosts.get(name).map_or(0, |host| host.target)
    }

    /// Returns the nodes of a topic, in its order; `None` if the topic does not exist, or no longer.
    ///
    /// An ended job has the last picture of its nodes.
    pub fn nodes_of(&self, topic: &Topic) -> Option<Vec<&NodePicture>> {
        match topic {
            Topic::Overview => Some(self.nodes.values().map(Node::picture).collect()),
            Topic::Node(name) => self.nodes.get(name).map(|node| vec![node.picture()]),
            Topic::Job(id) => {
                let job = self.jobs.get(*id)?;
                if matches!(job.state, JobState::Ended(_)) {
                    return Some(self.jobs.last_picture_of(*id).iter().collect());
                }
                Some(job.nodes.iter().filter_map(|name| self.nodes.get(name)).map(Node::picture).collect())
            }
        }
    }

    /// Returns the last picture of the nodes of a requeued job that waits.
    pub fn nodes_before_requeue(&self, id: JobId) -> &[NodePicture] {
        match self.jobs.get(id) {
            Some(job) if job.state == JobState::Pending => self.jobs.last_picture_of(id),
            _ => &[],
        }
    }

    /// The current state of a node.
    pub fn node(&self, name: &NodeName) -> Option<&NodePicture> {
        self.nodes.get(name).map(Node::picture)
    }

    /// Returns whether a job has the number of an earlier one, and was submitted after `wall_ms`, in ms since 1970.
    pub fn has_reused_number(&self, id: JobId, wall_ms: u64) -> bool {
        self.jobs.number_reused_at(id).is_some_and(|submitted| ms_of(submitted) > wall_ms)
    }

    /// Returns the time, in ms of the relay's clock, from which a job certainly had a node.
    pub fn on_node_since(&self, job: &Job, node: &NodeName) -> u64 {
        self.jobs.on_node_since(job, node).map_or(u64::MAX, |since| self.relay_ms(since))
    }

    /// Returns the time, in ms of the relay's clock, from which a GPU certainly belonged to `job`, one of its owners:
    /// the start of the job, or when it got the node, or, if SLURM states no GPU of the job on the node, the moment at
    /// which the job was first seen on this one.
    pub fn owned_since(&self, job: &Job, node: &NodeName, gpu: &GpuPicture) -> u64 {
        let started_ms = self.on_node_since(job, node);
        let is_by_slurm = |owner: &Owner| owner.job == job.id && is_by_slurm(owner.by);
        if has_gpus_on(job, node) || gpu.owners.iter().any(is_by_slurm) {
            return started_ms;
        }
        let used_since = self.nodes.get(node).and_then(|node| node.used_since(&gpu.facts.uuid, job.id));
        used_since.map_or(u64::MAX, |used_ms| used_ms.max(started_ms))
    }

    /// Returns whether a topic has live nodes, rather than the last picture of an ended job.
    pub fn is_live(&self, topic: &Topic) -> bool {
        let ended = |job: &Job| matches!(job.state, JobState::Ended(_));
        !matches!(topic, Topic::Job(id) if self.jobs.get(*id).is_some_and(ended))
    }

    /// Sets the time of day, in ms since 1970, as long as no list of jobs states it.
    pub fn set_time_of_day(&mut self, wall_ms: u64, now_ms: u64) {
        if !matches!(self.status.jobs, JobsHealth::Fresh { .. } | JobsHealth::Stale { last_ms: Some(_), .. })
        {
            self.wall_ahead_ms = wall_ms.cast_signed().saturating_sub(now_ms.cast_signed());
        }
    }
}

/// Converts s since 1970 to ms of the relay's clock.
fn relay_ms(wall_s: i64, wall_ahead_ms: i64) -> u64 {
    u64::try_from(wall_s.saturating_mul(1_000).saturating_sub(wall_ahead_ms)).unwrap_or(0)
}

#[cfg(any(test, feature = "test-support"))]
pub mod scene;
#[cfg(test)]
mod tests;

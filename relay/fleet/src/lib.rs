//! The fleet: the state of all jobs and nodes, computed from events and the given time.
//!
//! [`Fleet::handle`] applies an event at `now` and records what changed in [`Changes`]; it knows no
//! socket, clock, thread or signal. Every `…_ms` is of the relay's clock unless its name says `wall`.

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
pub use event::{Event, Host, NodeEvent, StoredPart};
use joblist::JobList;
use node::Node;
use nodeglass_findings::capture::CaptureOrder;
use nodeglass_findings::thresholds::Thresholds;
use nodeglass_findings::{Findings, Now};
use nodeglass_history::LongHistory;
use nodeglass_protocol::cluster::ClusterSummary;
use nodeglass_protocol::finding::Finding;
use nodeglass_protocol::insight::JobInsight;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::note::{MAX_PER_LINE, NoteId, NoteRequest};
use nodeglass_protocol::picture::{JobsHealth, NodePicture, RelayStatus};
use nodeglass_protocol::probe::{ProbeLine, ProbeUsage, SpoolNotes};
use nodeglass_protocol::request::AuditEntry;
use nodeglass_protocol::share::Sharing;
use nodeglass_protocol::{JobId, NodeName, Text};
use nodeglass_report::{Factors, JobRecord, JobReports};
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

    /// Thresholds of the detectors.
    pub fn thresholds(&self) -> &Thresholds {
        self.findings.thresholds()
    }

    /// Sets the thresholds of the detectors.
    pub fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.findings.set_thresholds(thresholds);
    }

    /// Sets what GPU hours and energy cost, for the reports of jobs.
    pub fn set_factors(&mut self, factors: Factors) {
        self.reports.set_factors(factors);
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
        self.settle_notices();
    }

    /// Enters the history that earlier relays stored, after it was read; `None` if it cannot be.
    pub fn restore_history(&mut self, restored: Option<LongHistory>, now_ms: u64) {
        if let Some(restored) = restored {
            self.history.merge_restored(restored, now_ms);
        }
        self.is_restoring = false;
        self.settle_notices();
    }

    /// Returns the usage of a running job up to now.
    pub fn job_record(&self, id: JobId, now_ms: u64) -> Option<JobRecord> {
        self.reports.of(id, self.wall_s(now_ms))
    }

    /// Returns the usage of all running jobs up to now.
    pub fn running_records(&self, now_ms: u64) -> Vec<JobRecord> {
        self.reports.running(self.wall_s(now_ms))
    }

    /// Takes what jobs used that ended since the last call.
    pub fn take_finished_records(&mut self) -> Vec<JobRecord> {
        self.reports.take_finished()
    }

    /// Lists jobs that an earlier relay saw end, with the last picture of their nodes, as long as SLURM lists no other
    /// run of them.
    pub fn restore_ended(&mut self, jobs: impl IntoIterator<Item = (Job, Vec<NodePicture>)>) {
        self.jobs.restore(jobs);
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

    /// Returns the findings: active ones, the worst first, then those that ended within the last hour.
    pub fn findings(&self) -> &[Finding] {
        self.findings.list()
    }

    /// Returns further conclusions about running jobs, by id.
    pub fn insights(&self) -> &[JobInsight] {
        &self.insights
    }

    /// Returns whose processes are to be captured, because a finding about a job of `user` began.
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

    /// The change that a request of the owner stands for at `wall_ms`, in ms since 1970, to be applied as
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

    /// Selects what is new of the notes as they are stored, to be applied as [`Event::RestoredNotes`]. If they
    /// `lack_recent` changes of this relay, only notes are new that it does not know.
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

    /// Watches hosts independent of jobs.
    pub fn watch_hosts(&mut self, names: impl IntoIterator<Item = NodeName>) {
        self.hosts.extend(names.into_iter().map(|name| (name, Host::default())));
        self.findings.set_hosts(self.hosts.keys().cloned().collect());
        self.settle_membership(0);
    }

    /// Applies an event that happened at `now_ms`.
    pub fn handle(&mut self, event: Event, now_ms: u64) {
        match event {
            Event::Jobs { jobs, wall_ahead_ms } => self.take_jobs(jobs, wall_ahead_ms, now_ms),
            Event::Audit(entry) => {
                self.audit_log.push(entry);
                let over = self.audit_log.len().saturating_sub(MAX_AUDIT_LOG);
                self.audit_log.drain(..over);
                self.changes.audit_log = true;
            }
            Event::Sharing(sharing) => {
                self.changes.sharing |= self.sharing != sharing;
                self.sharing = sharing;
            }
            Event::JobsFailed { why, retry_at_ms } => {
                let last_ms = match self.status.jobs {
                    JobsHealth::Fresh { at_ms } => Some(at_ms),
                    JobsHealth::Stale { last_ms, .. } => last_ms,
                    JobsHealth::NotYet | JobsHealth::NoSlurm => None,
                };
                self.set_status(RelayStatus {
                    jobs: JobsHealth::Stale { last_ms, reason: why, retry_at_ms },
                    ..self.status.clone()
                });
            }
            Event::NoSlurm => {
                self.set_status(RelayStatus { jobs: JobsHealth::NoSlurm, ..self.status.clone() });
            }
            Event::Hosts { hosts, notices } => {
                self.findings.set_hosts(hosts.keys().cloned().collect());
                self.hosts = hosts;
                self.settle_membership(now_ms);
                self.host_notices = notices;
                self.settle_notices();
            }
            Event::Node(name, event) => {
                self.count_xid(&name, &event);
                let lists = event.lists_processes();
                self.take_spool_notes(&name, &event, now_ms);
                self.update_node(&name, now_ms, |node, changes| node.handle(event, now_ms, changes));
                self.detect_applications(&name, lists);
            }
            Event::JobProbe(name, job, event) => {
                let lists = event.lists_processes();
                self.update_node(&name, now_ms, |node, changes| {
                    node.handle_of_job(job, event, now_ms, changes)
                });
                self.detect_applications(&name, lists);
            }
            Event::Stalled { ms } => self.nodes.values_mut().for_each(|node| node.excuse(ms, now_ms)),
            Event::Tick => {
                for (name, node) in &mut self.nodes {
                    let mut noted = NodeChanges::default();
                    node.tick(now_ms, &mut noted);
                    backfill::record(&mut self.history, &mut self.reports, &mut self.findings, node);
                    // Most nodes do not change, and each recorded change is checked by every topic.
                    if noted != NodeChanges::default() {
                        self.changes.node(name).add(noted);
                    }
                }
                self.history.tick(now_ms);
                let is_due = self.changes.jobs || self.changes.nodes.values().any(NodeChanges::may_be_fault);
                let (user, jobs) = (self.user.as_str(), self.jobs.list());
                let nodes = self.nodes.values().map(Node::picture);
                let now = Now { relay_ms: now_ms, wall_ahead_ms: self.wall_ahead_ms };
                if self.findings.evaluate(user, jobs, nodes, is_due, now) {
                    self.changes.findings = true;
                    self.reports.record_findings(self.findings.list());
                }
                self.settle_insights();
            }
            Event::Capture { key, capture } => {
                if self.findings.enter_capture(key.as_str(), *capture) {
                    self.changes.findings = true;
                    self.reports.record_findings(self.findings.list());
                }
            }
            Event::Storage(part, problem) => {
                self.storage_problems.remove(&part);
                self.storage_problems.extend(problem.map(|problem| (part, problem)));
                self.settle_notices();
            }
            Event::Silences(silences) => {
                self.findings.set_silences(silences);
                self.changes.findings = true;
            }
            Event::JobLogs(logs) => {
                self.findings.set_logs(logs);
                self.settle_insights();
            }
            Event::Restored(records) => {
                self.findings.restore(records.iter().flat_map(|record| &record.findings));
                self.reports.restore(records);
            }
            Event::Note(change) => self.changes.notes |= self.notes.apply(change, self.jobs.list()),
            Event::RestoredNotes(stored) => {
                for change in stored {
                    self.changes.notes |= self.notes.enter(change, self.jobs.list());
                }
            }
            Event::Cluster(summary) => {
                let cluster = Some(ClusterSummary { at_ms: now_ms, ..summary });
                self.set_status(RelayStatus { cluster, ..self.status.clone() });
            }
            Event::Launcher(launcher) => {
                self.set_status(RelayStatus { launcher: Some(launcher), ..self.status.clone() });
            }
            Event::Replay(replay) => {
                self.set_status(RelayStatus { replay: Some(replay), ..self.status.clone() });
            }
            Event::Status { viewers, cpu_ms, coalesced } => {
                self.set_status(RelayStatus { viewers, cpu_ms, coalesced, ..self.status.clone() });
            }
        }
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

    /// The current state of a node.
    pub fn node(&self, name: &NodeName) -> Option<&NodePicture> {
        self.nodes.get(name).map(Node::picture)
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

    fn take_jobs(&mut self, jobs: Vec<Job>, wall_ahead_ms: i64, now_ms: u64) {
        self.wall_ahead_ms = wall_ahead_ms;
        let wall_s = self.wall_s(now_ms);
        let nodes = &self.nodes;
        let picture_of = |job: &Job, name: &NodeName| {
            let ended_ms = job.ended.map_or(now_ms, |ended_s| relay_ms(ended_s, wall_ahead_ms).min(now_ms));
            nodes.get(name).map(|node| node.last_picture(job.id, ended_ms))
        };
        let changed = self.jobs.replace(jobs, wall_s, picture_of, &mut self.changes.switched);
        // Before nodes are dropped whose jobs have ended.
        let picture_of = |name: &NodeName| nodes.get(name).map(Node::picture);
        let ended_ms = |ended_s| relay_ms(ended_s, wall_ahead_ms);
        self.reports.set_jobs(self.jobs.list(), wall_s, ended_ms, picture_of);
        if changed {
            self.changes.jobs = true;
            self.settle_membership(now_ms);
            self.settle_insights();
        }
        self.set_status(RelayStatus { jobs: JobsHealth::Fresh { at_ms: now_ms }, ..self.status.clone() });
    }

    /// Updates a node, unless it is gone: a session that is being stopped may still emit events.
    fn update_node(
        &mut self,
        name: &NodeName,
        now_ms: u64,
        update: impl FnOnce(&mut Node, &mut NodeChanges),
    ) {
        if let Some(node) = self.nodes.get_mut(name) {
            let changes = self.changes.node(name);
            // What this update does not change need not be derived again, however many lines a node sends.
            let earlier = changes.take_members();
            let before_ms = node.picture().sampled_at_ms;
            update(node, changes);
            if node.picture().sampled_at_ms != before_ms {
                self.history.record(node.picture());
                self.reports.record(node.picture());
                self.findings.record(node.picture(), node.clock_ahead_ms());
            }
            backfill::record(&mut self.history, &mut self.reports, &mut self.findings, node);
            if changes.gpus || changes.processes || changes.job_devices {
                node.settle_job_probes(self.jobs.list(), self.user.as_str(), now_ms, changes);
                node.settle_owners(self.jobs.list(), changes);
            }
            changes.add(earlier);
        }
    }

    /// Adds the lines that jobs wrote on a node. Only those of jobs that run there: a node has no say about others.
    fn take_spool_notes(&mut self, name: &NodeName, event: &NodeEvent, now_ms: u64) {
        let Some(SpoolNotes { notes, .. }) = event.spool_notes() else { return };
        let Some(node) = self.nodes.get(name) else { return };
        let (jobs, mut errors) = (self.jobs.list(), BTreeMap::new());
        for line in notes.iter().take(MAX_PER_LINE) {
            if !jobs.iter().any(|job| job.id == line.job && job.nodes.contains(name)) {
                continue;
            }
            let at_ms = self.wall_ahead_ms.saturating_add(node.relay_ms(line.mono_ns, now_ms).cast_signed());
            let at_ms = u64::try_from(at_ms).unwrap_or(0);
            match self.notes.add_line(line.clone(), at_ms, jobs) {
                Ok(is_new) => self.changes.notes |= is_new,
                Err(error) => *errors.entry(error.to_string()).or_insert(0) += 1,
            }
        }
        if let Some(why) = notes::refused(&errors) {
            self.update_node(name, now_ms, |node, changes| node.note(why, changes));
        }
    }

    fn count_xid(&mut self, name: &NodeName, event: &NodeEvent) {
        if let NodeEvent::Line(line) = event
            && let ProbeLine::Event(event) = &**line
            && let (Some(gpu), Some(_)) = (&event.gpu, event.xid)
        {
            self.reports.count_xid(name, gpu);
        }
    }

    fn detect_applications(&mut self, name: &NodeName, lists_processes: bool) {
        if lists_processes && let Some(node) = self.nodes.get(name) {
            self.reports.detect(node.picture());
        }
    }

    /// Updates the set of nodes and the owners of their GPUs from the job list.
    fn settle_membership(&mut self, now_ms: u64) {
        let wanted = self.wanted();
        let before = self.nodes.len();
        self.nodes.retain(|name, _| wanted.contains(name));
        self.changes.membership |= self.nodes.len() != before;
        self.changes.nodes.retain(|name, _| wanted.contains(name));
        for name in wanted {
            if !self.nodes.contains_key(&name) {
                self.changes.node(&name).fresh = true;
                self.nodes.insert(name.clone(), Node::new(name));
                self.changes.membership = true;
            }
        }
        for (name, node) in &mut self.nodes {
            let changes = self.changes.node(name);
            node.settle_job_probes(self.jobs.list(), self.user.as_str(), now_ms, changes);
            node.settle_owners(self.jobs.list(), changes);
            let group = self.hosts.get(name).and_then(|host| host.group.as_ref());
            node.set_group(group, self.changes.node(name));
        }
    }

    /// Updates what is known of running jobs besides findings.
    fn settle_insights(&mut self) {
        let insights = self.findings.insights(self.jobs.list());
        self.changes.insights |= self.insights != insights;
        self.insights = insights;
    }

    fn settle_notices(&mut self) {
        let restoring = self.is_restoring.then(|| Text::new(RESTORING));
        let notices = self.host_notices.iter().chain(self.storage_problems.values()).chain(&restoring);
        let notices = notices.cloned().collect();
        self.set_status(RelayStatus { notices, ..self.status.clone() });
    }

    fn set_status(&mut self, status: RelayStatus) {
        self.changes.relay |= self.status != status;
        self.status = status;
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

//! How events change the fleet.

use super::joblist::MAX_ENDED;
use super::{
    Event, Fleet, Host, Limit, MAX_AUDIT_LOG, Node, NodeChanges, RESTORING, SessionEvent, StoredPart,
    backfill, notes, relay_ms,
};
use nodeglass_findings::Now;
use nodeglass_protocol::capture::FindingCapture;
use nodeglass_protocol::cluster::ClusterSummary;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::note::MAX_PER_LINE;
use nodeglass_protocol::picture::{JobsHealth, RelayStatus};
use nodeglass_protocol::probe::{ProbeLine, SpoolNotes};
use nodeglass_protocol::request::AuditEntry;
use nodeglass_protocol::share::Sharing;
use nodeglass_protocol::{JobId, NodeName, Text};
use nodeglass_rules::text::grouped;
use std::borrow::Cow;
use std::collections::BTreeMap;

impl Fleet {
    /// Applies an event that happened at `now_ms`.
    pub fn handle(&mut self, event: Event, now_ms: u64) {
        match event {
            Event::Jobs { jobs, wall_ahead_ms } => self.take_jobs(jobs, wall_ahead_ms, now_ms),
            Event::JobsFailed { why, retry_at_ms } => self.keep_jobs(why, retry_at_ms),
            Event::NoSlurm => self.update_status(|status| status.jobs = JobsHealth::NoSlurm),
            Event::Hosts { hosts, notices } => self.set_hosts(hosts, notices, now_ms),
            Event::Node(name, event) => {
                self.count_xid(&name, &event);
                self.take_spool_notes(&name, &event, now_ms);
                self.take_node_event(&name, None, event, now_ms);
            }
            Event::JobProbe(name, job, event) => self.take_node_event(&name, Some(job), event, now_ms),
            Event::Stalled { ms } => self.nodes.values_mut().for_each(|node| node.excuse(ms, now_ms)),
            Event::Tick => self.tick(now_ms),
            Event::Audit(entry) => self.add_audit(entry),
            Event::Sharing(sharing) => self.set_sharing(sharing),
            Event::Capture { key, capture } => self.enter_capture(key.as_str(), *capture),
            Event::Silences(silences) => {
                self.findings.set_silences(silences);
                self.changes.findings = true;
            }
            Event::JobLogs(logs) => {
                self.findings.set_logs(logs);
                self.update_insights();
            }
            Event::Restored(records) => {
                self.findings.restore(records.iter().flat_map(|record| &record.findings));
                self.reports.restore(records);
            }
            Event::Note(change) => self.changes.notes |= self.notes.apply(change),
            Event::RestoredNotes(stored) => {
                for change in stored {
                    self.changes.notes |= self.notes.enter(change);
                }
            }
            Event::Storage(part, problem) => self.set_storage(part, problem),
            Event::Limited(of, notice) => self.set_limit(of, notice),
            Event::Cluster(summary) => {
                let cluster = ClusterSummary { at_ms: now_ms, ..summary };
                self.update_status(|status| status.cluster = Some(cluster));
            }
            Event::Launcher(launcher) => self.update_status(|status| status.launcher = Some(launcher)),
            Event::Clusters(clusters) => self.update_status(|status| status.clusters = clusters),
            Event::Replay(replay) => self.update_status(|status| status.replay = Some(replay)),
            Event::Status { viewers, cpu_ms, coalesced } => self.update_status(|status| {
                *status = RelayStatus { viewers, cpu_ms, coalesced, ..std::mem::take(status) };
            }),
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
        let recorded: Cow<'_, [Job]> = match self.jobs.surplus() {
            [] => self.jobs.list().into(),
            surplus => [self.jobs.list(), surplus].concat().into(),
        };
        self.reports.set_jobs(&recorded, wall_s, ended_ms, picture_of);
        self.set_limit(Limit::EndedJobs, surplus_notice(self.jobs.surplus().len()));
        if changed {
            self.changes.jobs = true;
            self.notes.set_listed(self.jobs.list());
            self.update_membership(now_ms);
            self.update_insights();
        }
        self.update_status(|status| status.jobs = JobsHealth::Fresh { at_ms: now_ms });
    }

    /// Keeps the last list of jobs after a poll that failed.
    fn keep_jobs(&mut self, reason: Text, retry_at_ms: u64) {
        let last_ms = match self.status.jobs {
            JobsHealth::Fresh { at_ms } => Some(at_ms),
            JobsHealth::Stale { last_ms, .. } => last_ms,
            JobsHealth::NotYet | JobsHealth::NoSlurm => None,
        };
        self.update_status(|status| status.jobs = JobsHealth::Stale { last_ms, reason, retry_at_ms });
    }

    /// Applies an event of a node's probe, or of one within a job there.
    fn take_node_event(&mut self, name: &NodeName, job: Option<JobId>, event: SessionEvent, now_ms: u64) {
        let lists_processes = event.lists_processes();
        self.update_node(name, now_ms, |node, changes| match job {
            None => node.handle(event, now_ms, changes),
            Some(job) => node.handle_of_job(job, event, now_ms, changes),
        });
        if lists_processes && let Some(node) = self.nodes.get(name) {
            self.reports.detect(node.picture());
        }
    }

    /// Applies what follows from the time alone, and evaluates the findings.
    fn tick(&mut self, now_ms: u64) {
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
        let refusing = self.nodes.iter().filter(|(_, node)| node.refuses_login());
        self.findings.set_refused_logins(refusing.map(|(name, _)| name.clone()).collect());
        let (user, jobs) = (self.user.as_str(), self.jobs.list());
        let nodes = self.nodes.values().map(Node::picture);
        let now = Now { relay_ms: now_ms, wall_ahead_ms: self.wall_ahead_ms };
        if self.findings.evaluate(user, jobs, nodes, is_due, now) {
            self.findings_changed();
        }
        self.update_insights();
    }

    fn set_hosts(&mut self, hosts: BTreeMap<NodeName, Host>, notices: Vec<Text>, now_ms: u64) {
        self.findings.set_hosts(hosts.keys().cloned().collect());
        self.hosts = hosts;
        self.update_membership(now_ms);
        self.host_notices = notices;
        self.update_notices();
    }

    fn set_sharing(&mut self, sharing: Sharing) {
        self.changes.sharing |= self.sharing != sharing;
        self.sharing = sharing;
    }

    fn enter_capture(&mut self, key: &str, capture: FindingCapture) {
        if self.findings.enter_capture(key, capture) {
            self.findings_changed();
        }
    }

    fn findings_changed(&mut self) {
        self.changes.findings = true;
        self.reports.record_findings(self.findings.list());
    }

    fn add_audit(&mut self, entry: AuditEntry) {
        self.audit_log.push(entry);
        let over = self.audit_log.len().saturating_sub(MAX_AUDIT_LOG);
        self.audit_log.drain(..over);
        self.changes.audit_log = true;
    }

    fn set_storage(&mut self, part: StoredPart, problem: Option<Text>) {
        self.storage_problems.remove(&part);
        self.storage_problems.extend(problem.map(|problem| (part, problem)));
        self.update_notices();
    }

    fn set_limit(&mut self, of: Limit, notice: Option<Text>) {
        self.limits.remove(&of);
        self.limits.extend(notice.map(|notice| (of, notice)));
        self.update_notices();
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
                node.update_job_probes(self.jobs.list(), self.user.as_str(), now_ms, changes);
                node.update_owners(self.jobs.list(), changes);
            }
            changes.add(earlier);
        }
    }

    /// Adds the lines that jobs wrote on a node. Only those of jobs that run there: a node has no say about others.
    fn take_spool_notes(&mut self, name: &NodeName, event: &SessionEvent, now_ms: u64) {
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

    fn count_xid(&mut self, name: &NodeName, event: &SessionEvent) {
        if let SessionEvent::Line(line) = event
            && let ProbeLine::Event(event) = &**line
            && let (Some(gpu), Some(_)) = (&event.gpu, event.xid)
            && self.nodes.get(name).is_none_or(|node| !node.has_received(event))
        {
            self.reports.count_xid(name, gpu);
        }
    }

    /// Updates the set of nodes and the owners of their GPUs from the job list.
    pub(super) fn update_membership(&mut self, now_ms: u64) {
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
            node.update_job_probes(self.jobs.list(), self.user.as_str(), now_ms, changes);
            node.update_owners(self.jobs.list(), changes);
            let group = self.hosts.get(name).and_then(|host| host.group.as_ref());
            node.set_group(group, self.changes.node(name));
        }
    }

    /// Updates what is known of running jobs besides findings.
    fn update_insights(&mut self) {
        let insights = self.findings.insights(self.jobs.list());
        self.changes.insights |= self.insights != insights;
        self.insights = insights;
    }

    pub(super) fn update_notices(&mut self) {
        let restoring = self.is_restoring.then(|| Text::new(RESTORING));
        let notices = self.host_notices.iter().chain(self.storage_problems.values());
        let notices = notices.chain(self.limits.values()).chain(&restoring).cloned().collect();
        self.update_status(|status| status.notices = notices);
    }

    fn update_status(&mut self, update: impl FnOnce(&mut RelayStatus)) {
        let before = self.status.clone();
        update(&mut self.status);
        self.changes.relay |= self.status != before;
    }
}

/// States that ended jobs are not in the list, and how many.
fn surplus_notice(surplus: usize) -> Option<Text> {
    let (all, limit) = (grouped((MAX_ENDED + surplus) as u64), grouped(MAX_ENDED as u64));
    let notice = || format!("the newest {limit} of {all} ended jobs are listed; reports are kept of all");
    (surplus > 0).then(|| Text::new(notice()))
}

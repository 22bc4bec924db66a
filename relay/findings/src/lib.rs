//! Findings: what readings, processes and SLURM's facts mean for the jobs. Pure: time comes from the caller.
//!
//! [`Findings::record`] sums up samples in steps of ten seconds. With each new step, [`Findings::evaluate`] runs all
//! detectors on them, and so it does when a job, a link or a fault changed; the tracker confirms, keeps and resolves
//! what they see. A reading that is missing is never evidence: it neither confirms nor resolves anything.

pub mod capture;
mod detect;
mod held_rules;
mod input;
mod insight;
pub mod job_log;
mod now;
pub mod rule;
mod series;
pub mod silences;
pub mod thresholds;
mod tracker;

use capture::{CaptureOrder, Captures};
use detect::bottleneck;
use detect::jobs::TOO_SLOW;
use held_rules::HeldRules;
use input::DetectorInput;
use job_log::JobLogs;
use nodeglass_protocol::capture::FindingCapture;
use nodeglass_protocol::finding::{Finding, FindingKind, FindingSeverity, FindingTrait, Silence};
use nodeglass_protocol::insight::JobInsight;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::picture::{GpuPicture, HistorySample, NodePicture};
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_rules::run::ms_of;
pub use now::Now;
use series::NodeSeries;
use std::collections::{BTreeMap, BTreeSet};
use thresholds::Thresholds;
use tracker::{Detection, Detections, Tracker};

/// Delay after the end of a step before it is examined, in ms: samples of slow nodes arrive late.
const SETTLE_MS: u64 = 2_000;

/// Shortest time between two examinations, in ms: nodes that fail together do not fail in the same moment.
const SPACING_MS: u64 = 2_000;

/// The findings of a fleet.
#[derive(Debug, Default)]
pub struct Findings {
    series: BTreeMap<NodeName, NodeSeries>,
    logs: JobLogs,
    thresholds: Thresholds,
    held: HeldRules,
    silences: Vec<Silence>,
    /// The hosts that are watched whether or not a job runs there.
    hosts: BTreeSet<NodeName>,
    /// The nodes to which the user cannot log in, for a reason that is the same for all of them.
    refused_logins: BTreeSet<NodeName>,
    tracker: Tracker,
    captures: Captures,
    /// Number of the newest step that was examined.
    examined: u64,
    /// When it was, in ms of the relay's clock.
    examined_ms: u64,
    /// Whether something changed since then that need not be confirmed by readings.
    is_due: bool,
    list: Vec<Finding>,
    /// Jobs whose GPUs are busy computing, and the readings that show it.
    computing: BTreeMap<JobId, String>,
    /// The array or heterogeneous job of each job that is a part of one.
    wholes: BTreeMap<JobId, JobId>,
    /// Jobs that hung within the window of bottlenecks, and when that was last seen, in ms of the relay's clock.
    hung: BTreeMap<JobId, u64>,
}

impl Findings {
    /// Takes over what an earlier relay had found: what is found again keeps its start.
    pub fn restore<'a>(&mut self, earlier: impl Iterator<Item = &'a Finding>) {
        let active: Vec<&Finding> = earlier.filter(|finding| finding.is_active()).collect();
        self.tracker.restore(active.iter().copied());
        let hangs = active.iter().filter(|finding| finding.kind == FindingKind::CollectiveHang);
        self.hung.extend(hangs.flat_map(|finding| &finding.jobs).map(|job| (*job, 0)));
        self.captures.restore(active.into_iter());
    }

    /// Sets the thresholds of the detectors.
    pub fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.thresholds = thresholds;
        // Held rules are identified by the position of their rule.
        self.held.clear();
    }

    /// Replaces the hosts that are watched whether or not a job runs there.
    pub fn set_hosts(&mut self, hosts: BTreeSet<NodeName>) {
        self.hosts = hosts;
        self.is_due = true;
    }

    /// Replaces the nodes to which the user cannot log in, for a reason that is the same for all of them, such as a ticket
    /// that has expired.
    pub fn set_refused_logins(&mut self, nodes: BTreeSet<NodeName>) {
        self.refused_logins = nodes;
    }

    /// Silences that have not expired.
    pub fn silences(&self) -> &[Silence] {
        &self.silences
    }

    /// Replaces what is silenced; the list changes at once.
    pub fn set_silences(&mut self, silences: Vec<Silence>) {
        self.silences = silences;
        silences::mark(&mut self.list, &self.silences, &self.wholes);
    }

    /// Replaces what the logs of all jobs state.
    pub fn set_logs(&mut self, logs: JobLogs) {
        self.logs = logs;
        self.is_due = true;
    }

    /// Returns further conclusions about the running ones of these jobs, by id.
    pub fn insights(&self, jobs: &[Job]) -> Vec<JobInsight> {
        insight::of_jobs(&self.logs, &self.list, &self.computing, jobs)
    }

    /// Adds the newest sample of a node. `clock_ahead_ms` is the Unix time of the node's clock at which the relay's
    /// clock would read 0, in ms.
    pub fn record(&mut self, node: &NodePicture, clock_ahead_ms: Option<i64>) {
        let is_first = self.series.get(&node.name).is_none_or(|series| series.first_ms().is_none());
        self.held.record(&self.thresholds.rules, node, is_first);
        if !self.series.contains_key(&node.name) {
            self.series.insert(node.name.clone(), NodeSeries::default());
        }
        if let Some(series) = self.series.get_mut(&node.name) {
            series.record(node, clock_ahead_ms);
        }
    }

    /// Adds samples of a node that its probe kept while no relay read them, oldest first.
    pub fn backfill(&mut self, node: &NodePicture, samples: &[HistorySample]) {
        if let Some(series) = self.series.get_mut(&node.name) {
            series.backfill(node, samples);
            self.is_due = true;
        }
    }

    /// Examines the newest step if it was not examined yet, or at once if `is_due` because a job, a link or a fault
    /// changed. `user` runs the relay. Returns whether the list changed.
    pub fn evaluate<'a>(
        &mut self,
        user: &str,
        jobs: &[Job],
        nodes: impl Iterator<Item = &'a NodePicture>,
        is_due: bool,
        now: Now,
    ) -> bool {
        let now_ms = now.relay_ms;
        self.is_due |= is_due;
        let step = now_ms.saturating_sub(SETTLE_MS) / series::STEP_MS;
        let may_now = now_ms.saturating_sub(self.examined_ms) >= SPACING_MS;
        if step <= self.examined && !(self.is_due && may_now) {
            return false;
        }
        (self.examined, self.examined_ms, self.is_due) = (step, now_ms, false);
        let nodes: BTreeMap<&NodeName, &NodePicture> = nodes.map(|node| (&node.name, node)).collect();
        self.series.retain(|name, _| nodes.contains_key(name));
        self.held.retain(|name| nodes.contains_key(name));
        self.forget_earlier_jobs(jobs, &nodes, now);
        let mut input =
            DetectorInput::new(user, jobs, &nodes, &self.series, &self.logs, &self.thresholds, now);
        (input.hosts, input.hung, input.held) = (Some(&self.hosts), Some(&self.hung), Some(&self.held));
        (input.tracker, input.refused_logins) = (Some(&self.tracker), Some(&self.refused_logins));
        let mut detections = detect::all(&input);
        self.ignore_hangs(&mut detections, jobs, now_ms);
        detections.seen.retain(|seen| !self.thresholds.off.contains(&seen.kind));
        detections.seen.iter_mut().for_each(|seen| seen.job_started_ms = job_started_ms(seen, jobs));
        self.computing = std::mem::take(&mut detections.computing);
        let changed = self.tracker.update(detections, &self.thresholds, now);
        self.wholes = jobs.iter().filter_map(|job| Some((job.id, job.part_of.as_ref()?.job()))).collect();
        let silenced = self.silences.len();
        self.silences.retain(|silence| silence.until_ms > now.wall_ms());
        if changed || self.silences.len() != silenced {
            self.list = self.tracker.list();
            silences::mark(&mut self.list, &self.silences, &self.wholes);
            self.captures.attach(&mut self.list);
            return true;
        }
        false
    }

    /// Drops the readings of GPUs from before the start of the job that has them now: they are of another job.
    fn forget_earlier_jobs(&mut self, jobs: &[Job], nodes: &BTreeMap<&NodeName, &NodePicture>, now: Now) {
        for job in jobs.iter().filter(|job| job.is_active()) {
            let started_ms = match job.state {
                // What a suspended job does not do says nothing about it once it is resumed.
                JobState::Suspended => Some(now.relay_ms),
                _ => job.start.map(|start_s| now.to_relay_ms(start_s)),
            };
            let Some(started_ms) = started_ms else { continue };
            for name in &job.nodes {
                let (Some(node), Some(series)) = (nodes.get(name), self.series.get_mut(name)) else {
                    continue;
                };
                let is_own =
                    |gpu: &&GpuPicture| matches!(gpu.owners.as_slice(), [owner] if owner.job == job.id);
                for gpu in node.gpus.iter().filter(is_own) {
                    series.forget_gpu_before(&gpu.facts.uuid, started_ms);
                }
            }
        }
    }

    /// Drops what seems to limit jobs that hung not long ago: the minutes of a hang state nothing about their work.
    fn ignore_hangs(&mut self, detections: &mut Detections, jobs: &[Job], now_ms: u64) {
        let runs = |id: &JobId| jobs.iter().any(|job| job.id == *id && job.state == JobState::Running);
        let hangs = detections.seen.iter().filter(|seen| seen.kind == FindingKind::CollectiveHang);
        self.hung.extend(hangs.flat_map(|hang| &hang.jobs).map(|job| (*job, now_ms)));
        // Of an earlier relay's, the window begins with the first examination that knows the jobs.
        if !jobs.is_empty() {
            let is_restored = |last_ms: &&mut u64| **last_ms == 0;
            self.hung.values_mut().filter(is_restored).for_each(|last_ms| *last_ms = now_ms);
            self.hung.retain(|job, last_ms| *last_ms + bottleneck::WINDOW_MS > now_ms && runs(job));
        }
        let is_hung = |job: &JobId| self.hung.contains_key(job);
        detections
            .seen
            .retain(|seen| !bottleneck::KINDS.contains(&seen.kind) || !seen.jobs.iter().any(is_hung));
        detections.computing.retain(|job, _| !is_hung(job));
        for job in self.hung.keys() {
            detections.unknown(&bottleneck::KINDS, &job.to_string());
        }
    }

    /// Returns the captures to request, because findings about jobs of `user` began; see [`Captures::due`].
    pub fn due_captures<'a>(
        &mut self,
        user: &str,
        jobs: &[Job],
        node: impl Fn(&NodeName) -> Option<&'a NodePicture>,
        now: Now,
    ) -> Vec<CaptureOrder> {
        let orders = self.captures.due(&self.list, user, jobs, node, now);
        // A finding may share the capture of another one.
        self.captures.attach(&mut self.list);
        orders
    }

    /// Adds what was captured to its finding; returns whether the list changed.
    pub fn enter_capture(&mut self, key: &str, capture: FindingCapture) -> bool {
        self.captures.enter(key.to_owned(), capture);
        self.captures.attach(&mut self.list)
    }

    /// Returns active findings, the worst first, then those that ended within the last hour.
    pub fn list(&self) -> &[Finding] {
        &self.list
    }
}

/// Removes the statements of a finding that name nodes which its viewer may not see; `None` if its title does.
pub fn without_nodes(mut finding: Finding, hidden: &[NodeName]) -> Option<Finding> {
    let is_in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let names_hidden = |text: &str| {
        let mut words = text.split(|c| !is_in_name(c)).map(|word| word.trim_end_matches('.'));
        words.any(|word| hidden.iter().any(|node| node.as_str() == word))
    };
    finding.evidence.retain(|text| !names_hidden(text.as_str()));
    if names_hidden(finding.advice.as_str()) {
        finding.advice = finding.kind.advice().into();
    }
    let is_named = names_hidden(finding.title.as_str()) || names_hidden(finding.reason.as_str());
    (!is_named).then_some(finding)
}

/// Returns the part of a finding that a guest may see, without a capture: `None` if it names processes of others, follows a rule in the
/// owner's words, or is made from logs, whose lines may contain anything. The failure of a job stays, without its
/// evidence, which may also name jobs that it depends on.
pub fn for_guests(finding: Finding) -> Option<Finding> {
    let mut finding = finding.without_capture();
    // A time limit that is more than a reminder has the progress of the job in its title.
    let is_reminder = finding.severity == FindingSeverity::Info && finding.reason.as_str() != TOO_SLOW;
    let has_progress = finding.kind == FindingKind::TimeLimit && !is_reminder;
    if finding.kind.is(FindingTrait::PrivateEvidence) {
        finding.evidence.clear();
    }
    // That of a node which cannot be reached names keys, ports and other jobs.
    if finding.kind.is(FindingTrait::PrivateEvidence) && finding.kind.is(FindingTrait::OfNode) {
        finding.advice = finding.kind.advice().into();
    }
    (!finding.kind.is(FindingTrait::Private) && !has_progress).then_some(finding)
}

/// Returns when the only job of a detection started, in ms since 1970, if it is about what the job does.
fn job_started_ms(seen: &Detection, jobs: &[Job]) -> Option<u64> {
    let [id] = seen.jobs[..] else { return None };
    let job = jobs.iter().find(|job| job.id == id && job.is_active())?;
    job.start.filter(|_| seen.kind.is(FindingTrait::OfWork)).map(ms_of)
}

#[cfg(test)]
mod tests;

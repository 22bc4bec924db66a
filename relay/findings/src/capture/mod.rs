//! Evidence at the moment: when a job begins to hang or to idle, which of its processes are captured, and what their
//! captures say.
//!
//! Pure: [`Captures::due`] decides, `capturer.rs` asks the probes, [`summary`] groups what they answer, and
//! [`Captures::attach`] adds it to the findings.

mod frame;
mod group;

use super::now::Now;
pub use group::{NodeAnswer, summary};
use nodeglass_protocol::capture::{FindingCapture, MAX_PROCESSES};
use nodeglass_protocol::finding::{Finding, FindingKind, FindingTrait};
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::request::ProcessRef;
use nodeglass_protocol::{JobId, LongText, NodeName};
use nodeglass_rules::ownership;
use std::collections::{BTreeMap, BTreeSet};

/// A job is captured at most once in this time, in ms.
const SPACING_MS: u64 = 600_000;
/// A finding that is older is not at its beginning, in ms: an earlier relay found it.
const FRESH_MS: u64 = 120_000;
/// Maximum time by which a capture may be earlier than its finding, in ms. A recording replays captures at their own
/// times, but examines the readings at other ones.
const TOLERANCE_MS: u64 = 60_000;
/// Maximum number of nodes of which processes are captured at once.
const MAX_NODES: usize = 256;
/// Maximum number of captures that are kept; the oldest is dropped first.
const MAX_KEPT: usize = 64;

/// The processes to capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureOrder {
    /// The finding.
    pub key: String,
    /// The job.
    pub job: JobId,
    /// The nodes, with the processes there.
    pub nodes: Vec<(NodeName, Vec<Target>)>,
    /// Number of nodes that are left out because there are more.
    pub omitted_nodes: usize,
}

/// A process that is to be captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The process.
    pub process: ProcessRef,
    /// Its rank.
    pub rank: Option<u32>,
    /// Place of the process: `gpu-h05 GPU 3`.
    pub place: String,
}

/// Completed and requested captures.
#[derive(Debug, Default)]
pub struct Captures {
    /// By key of the finding.
    done: BTreeMap<String, FindingCapture>,
    /// The findings that were considered, with [`Finding::found_ms`].
    seen: BTreeMap<String, u64>,
    /// Findings that show the capture of another one, because their job was captured shortly before.
    shared: BTreeMap<String, String>,
    /// When each job was captured last, in ms of the relay's clock, and for which finding.
    jobs: BTreeMap<JobId, (u64, String)>,
}

impl Captures {
    /// Takes over what an earlier relay captured.
    pub fn restore<'a>(&mut self, earlier: impl Iterator<Item = &'a Finding>) {
        for finding in earlier {
            self.seen.insert(finding.key.to_string(), finding.found_ms);
            if let Some(capture) = &finding.capture {
                self.enter(finding.key.to_string(), (**capture).clone());
            }
        }
    }

    /// Returns whose processes are to be captured for the findings that began. Each finding is returned once, and only
    /// if it is about a job of `user`.
    pub fn due<'a>(
        &mut self,
        findings: &[Finding],
        user: &str,
        jobs: &[Job],
        node: impl Fn(&NodeName) -> Option<&'a NodePicture>,
        now: Now,
    ) -> Vec<CaptureOrder> {
        self.forget(findings, now.relay_ms);
        let mut orders = Vec::new();
        for finding in
            findings.iter().filter(|finding| finding.is_active() && finding.kind.is(FindingTrait::Captured))
        {
            let key = finding.key.as_str();
            let is_known = self.seen.insert(key.to_owned(), finding.found_ms) == Some(finding.found_ms);
            if is_known || now.wall_ms().saturating_sub(finding.found_ms) > FRESH_MS {
                continue;
            }
            let is_own = |job: &&Job| finding.jobs.contains(&job.id) && job.user.as_str() == user;
            let Some(job) = jobs.iter().filter(is_own).find(|job| job.state == JobState::Running) else {
                continue;
            };
            if let Some((_, other)) = self.jobs.get(&job.id) {
                self.shared.insert(key.to_owned(), other.clone());
                continue;
            }
            self.shared.remove(key);
            self.jobs.insert(job.id, (now.relay_ms, key.to_owned()));
            orders.push(order(key, job, &node));
        }
        orders
    }

    /// Enters a capture of a finding.
    pub fn enter(&mut self, key: String, capture: FindingCapture) {
        self.done.insert(key, capture);
        while self.done.len() > MAX_KEPT {
            let oldest =
                self.done.iter().min_by_key(|(_, capture)| capture.at_ms).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            self.done.remove(&oldest);
        }
    }

    /// Adds the captures to their findings; returns whether any was new to them.
    pub fn attach(&self, findings: &mut [Finding]) -> bool {
        let mut changed = false;
        for finding in findings {
            let capture = self.of(finding);
            if finding.capture.as_deref() != capture {
                finding.capture = capture.map(|capture| Box::new(capture.clone()));
                changed = true;
            }
            let advice = capture.filter(|_| finding.is_active()).and_then(|capture| advice(finding, capture));
            if let Some(advice) = advice {
                finding.advice = advice;
            }
        }
        changed
    }

    fn of(&self, finding: &Finding) -> Option<&FindingCapture> {
        let key = finding.key.as_str();
        let is_shared = self.shared.contains_key(key);
        // One that another finding shares is older, but not of an earlier occurrence.
        let earliest_ms = if is_shared { finding.since_ms } else { finding.found_ms };
        let is_of_this =
            |capture: &&FindingCapture| capture.at_ms.saturating_add(TOLERANCE_MS) >= earliest_ms;
        self.done.get(self.shared.get(key).map_or(key, String::as_str)).filter(is_of_this)
    }

    /// Drops what is not listed any more.
    fn forget(&mut self, findings: &[Finding], now_ms: u64) {
        self.jobs.retain(|_, (at_ms, _)| now_ms.saturating_sub(*at_ms) < SPACING_MS);
        if self.seen.is_empty() {
            return;
        }
        let listed: BTreeSet<&str> = findings.iter().map(|finding| finding.key.as_str()).collect();
        // What an earlier relay found is not listed until it was confirmed again.
        let is_listed = |key: &str| listed.contains(key) || self.done.contains_key(key);
        self.seen.retain(|key, _| is_listed(key));
        self.shared.retain(|key, _| listed.contains(key.as_str()));
    }
}

/// Returns the advice for a hang in which some ranks stand elsewhere than most.
fn advice(finding: &Finding, capture: &FindingCapture) -> Option<LongText> {
    let [most, .., odd] = capture.groups.as_slice() else { return None };
    (finding.kind == FindingKind::CollectiveHang && odd.count < most.count).then(|| {
        LongText::new(format!(
            "Find out what keeps {} from reaching the collective in which the other ranks wait; restart from the last checkpoint",
            odd.who()
        ))
    })
}

/// All processes of a job on its GPUs. On a node without any, the probe is to select some.
fn order<'a>(key: &str, job: &Job, node: impl Fn(&NodeName) -> Option<&'a NodePicture>) -> CaptureOrder {
    let known = job.nodes.iter().filter_map(node);
    let nodes: Vec<_> = known.map(|node| (node.name.clone(), targets(node, job))).collect();
    let omitted_nodes = nodes.len().saturating_sub(MAX_NODES);
    CaptureOrder {
        key: key.to_owned(),
        job: job.id,
        nodes: nodes.into_iter().take(MAX_NODES).collect(),
        omitted_nodes,
    }
}

/// The processes of a job on the GPUs of a node, each once.
fn targets(node: &NodePicture, job: &Job) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    for process in node.processes.iter().map(|process| &process.facts) {
        let gpu = node.gpus.iter().find(|gpu| gpu.facts.uuid == process.gpu);
        let is_of_job = match process.job {
            Some(of) => of == job.id,
            None => gpu.is_some_and(|gpu| ownership::belongs_to_job(node, gpu, Some(job.id))),
        };
        let is_own = process.user.value() == Some(&job.user);
        let Some(started_ms) = process.started_ms.value().filter(|_| is_of_job && is_own) else { continue };
        let process_ref = ProcessRef { pid: process.pid, started_ms: *started_ms };
        if targets.iter().any(|target| target.process == process_ref) || targets.len() >= MAX_PROCESSES {
            continue;
        }
        let place = gpu.map_or_else(
            || format!("{} pid {}", node.name, process.pid),
            |gpu| format!("{} {}", node.name, gpu.facts.label()),
        );
        targets.push(Target { process: process_ref, rank: process.rank.map(|rank| rank.global), place });
    }
    targets
}

#[cfg(test)]
mod tests;

//! Folds findings that say the same into one entry: a slow GPU and why its clock is lowered, repeated failures of a job, and
//! nodes that cannot be reached.

use crate::node_check::advice_on_nodes;
use crate::text::{self, some_of};
use nodeglass_protocol::finding::{self, Finding, FindingKind, FindingSeverity, FindingTrait, Waste};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::{GpuUuid, JobId, NodeName};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The end of the line of evidence that states which GPUs a slow one delays.
pub const MAY_WAIT: &str = "may wait for it";
/// Number of nodes that cannot be reached from which on they are one entry: then the network or the login is the likely cause.
const MIN_NODES: usize = 3;

/// Returns whether a finding is listed as needing attention while it lasts.
pub fn needs_attention(finding: &Finding) -> bool {
    finding.severity > FindingSeverity::Info && finding.silenced_until_ms.is_none()
}

/// Returns the worst of the findings that last, need attention, and are as `is_meant` says.
pub fn worst(findings: &[Finding], is_meant: impl Fn(&Finding) -> bool) -> Option<&Finding> {
    let listed = findings.iter().filter(|finding| finding.is_active() && needs_attention(finding));
    listed.filter(|finding| is_meant(finding)).max_by_key(|finding| finding.severity)
}

/// The start of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// In ms since 1970, by the login node's clock.
    pub at_ms: u64,
    /// Whether it may have begun earlier, before it could be seen.
    pub or_earlier: bool,
}

/// A listed finding, with the findings that it represents.
#[derive(Debug)]
pub struct Folded<'a> {
    /// The finding; of repeated failures, the latest.
    pub finding: &'a Finding,
    /// The findings that are not listed because of it; earlier failures are sorted latest first.
    pub others: Vec<&'a Finding>,
    /// Properties that repeated failures have in common.
    repeated: Option<Repeated<'a>>,
    /// The nodes of a finding that represents those of other nodes.
    nodes: Vec<&'a NodeName>,
}

/// Failures of jobs with the same name and owner for the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Repeated<'a> {
    name: &'a str,
    user: &'a str,
    reason: &'a str,
}

impl<'a> Folded<'a> {
    /// A finding that stands for itself.
    pub fn alone(finding: &'a Finding) -> Self {
        Self { finding, others: Vec::new(), repeated: None, nodes: Vec::new() }
    }

    /// Returns all findings of the entry, the listed one first.
    pub fn all(&self) -> impl Iterator<Item = &'a Finding> + '_ {
        [self.finding].into_iter().chain(self.others.iter().copied())
    }

    /// Returns the jobs of all findings of the entry, beginning with the jobs of the listed one.
    pub fn jobs(&self) -> Vec<JobId> {
        let mut jobs = Vec::new();
        for job in self.all().flat_map(|finding| &finding.jobs) {
            if !jobs.contains(job) {
                jobs.push(*job);
            }
        }
        jobs
    }

    /// Returns the nodes of the entry.
    pub fn nodes(&self) -> Vec<NodeName> {
        match self.nodes.is_empty() {
            true => self.finding.nodes.clone(),
            false => self.nodes.iter().copied().cloned().collect(),
        }
    }

    /// Returns a text about the first of several nodes as one about all of them: `83 nodes cannot be reached`.
    fn of_nodes(&self, text: &str) -> String {
        match self.nodes.first() {
            Some(first) => {
                let nodes = text::count(self.nodes.len(), "node", "nodes");
                let plural = text.replacen(" does not ", " do not ", 1).replacen(" refuses ", " refuse ", 1);
                plural.replacen(first.as_str(), &nodes, 1)
            }
            None => text.to_owned(),
        }
    }

    /// Returns what to do.
    pub fn advice(&self) -> String {
        advice_on_nodes(self.finding.advice.as_str(), &self.nodes)
    }

    /// Returns whether it stands for failures of several jobs, whose ids its evidence has.
    pub fn is_repeated(&self) -> bool {
        self.repeated.is_some()
    }

    /// Returns what is wrong and where: `train failed 3 times: out of memory` for repeated failures.
    pub fn title(&self) -> String {
        match self.repeated {
            Some(Repeated { name, .. }) => format!("{name} {}", self.reason()),
            None => self.of_nodes(self.finding.title.as_str()),
        }
    }

    /// Returns what is wrong in a few words: `failed 3 times: out of memory` for repeated failures.
    pub fn reason(&self) -> String {
        match self.repeated {
            Some(Repeated { reason, .. }) => failures(self.others.len() + 1, reason),
            None => self.of_nodes(self.finding.reason.as_str()),
        }
    }

    /// Returns the start: the latest start of repeated failures, else the earliest of the findings that state lost GPU
    /// time, so that it agrees with the hours lost since then, or of all if none does.
    pub fn since(&self) -> Since {
        let costs_nothing = |finding: &Finding| finding.wasted_gpus == 0 && finding.wasted_before.is_none();
        let first = match self.repeated {
            Some(_) => self.finding,
            None => {
                let earliest = self.all().min_by_key(|finding| (costs_nothing(finding), finding.since_ms));
                earliest.unwrap_or(self.finding)
            }
        };
        Since { at_ms: first.since_ms, or_earlier: first.or_earlier }
    }

    /// Returns when the last of its findings ended, in ms since 1970; `None` while one lasts.
    pub fn ended_ms(&self) -> Option<u64> {
        self.all().map(|finding| finding.ended_ms).collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Returns the GPUs that do no useful work because of all of its findings.
    pub fn waste(&self) -> Waste {
        let wastes = || self.all().map(Finding::waste);
        let since_ms = wastes().map(|waste| waste.since_ms).max().unwrap_or_default();
        Waste {
            gpus: wastes().map(|waste| waste.gpus).fold(0, u32::saturating_add),
            since_ms,
            before_gpu_ms: wastes().map(|waste| waste.gpu_ms(since_ms)).fold(0, u64::saturating_add),
        }
    }

    /// Returns the evidence of the finding, and the evidence of the represented findings that adds to it: the cost of
    /// slow GPUs to their job, or jobs that failed earlier. `label` is the id of a job as users write it.
    pub fn evidence(&self, label: impl Fn(JobId) -> String) -> Vec<String> {
        let own = self.finding.evidence.iter().map(ToString::to_string);
        if self.repeated.is_some() {
            return own.chain([self.earlier_failures(label)]).collect();
        }
        if !self.nodes.is_empty() {
            return [self.node_names()].into_iter().chain(own).collect();
        }
        let slow = self.others.iter().filter(|other| other.kind == FindingKind::Straggler);
        // The last line of a slow GPU is its cost, and names the GPUs that may wait: only the highest is kept.
        let worst = slow.min_by(|a, b| finding::order(a, b));
        match worst.and_then(|slow| slow.evidence.last()) {
            Some(cost) => own.filter(|line| !line.ends_with(MAY_WAIT)).chain([cost.to_string()]).collect(),
            None => own.collect(),
        }
    }

    /// `before: 48440_7, 48440_3 and 5 more`.
    fn earlier_failures(&self, label: impl Fn(JobId) -> String) -> String {
        let jobs = self.others.iter().filter_map(|other| other.jobs.first());
        format!("before: {}", some_of(jobs.map(|job| label(*job)), self.others.len()))
    }

    /// `on n1, n2, n3, n4 and 79 more`.
    fn node_names(&self) -> String {
        format!("on {}", some_of(self.nodes.iter().map(ToString::to_string), self.nodes.len()))
    }
}

/// Returns how often jobs failed for a [`Failed`](FindingKind::Failed) finding's reason: `failed 2 times: exit code 1`.
pub fn failures(times: usize, reason: &str) -> String {
    let times = text::count(times, "time", "times");
    match reason.strip_prefix("failed: ") {
        Some(reason) => format!("failed {times}: {reason}"),
        None if reason.starts_with("failed") => format!("{reason} {times}"),
        None => format!("failed {times}: {reason}"),
    }
}

/// The name and the owner of a job.
pub type NamedJob<'a> = (JobId, &'a str, &'a str);

/// Returns the names and owners of jobs, for [`fold`].
pub fn names(jobs: &[Job]) -> impl Iterator<Item = NamedJob<'_>> {
    jobs.iter().map(|job| (job.id, job.name.as_str(), job.user.as_str()))
}

/// Folds findings of one state, such as all that are active or all that are silenced. Failures of jobs that `jobs` lacks,
/// or that have no name, are not folded.
pub fn fold<'a>(findings: Vec<&'a Finding>, jobs: impl IntoIterator<Item = NamedJob<'a>>) -> Vec<Folded<'a>> {
    let (failed, rest): (Vec<_>, Vec<_>) =
        findings.into_iter().partition(|finding| finding.kind == FindingKind::Failed);
    let is_unreachable = |kind| matches!(kind, FindingKind::NodeUnreachable | FindingKind::LoginRefused);
    let (unreachable, rest): (Vec<_>, Vec<_>) =
        rest.into_iter().partition(|finding| is_unreachable(finding.kind));
    let mut folded = fold_clocks(rest);
    folded.extend(fold_nodes(unreachable));
    folded.extend(fold_failures(failed, jobs));
    folded
}

/// Folds findings that have ended, or those of the run of a job, by their start: of a slow GPU and what lowered its clock at
/// the same time, the former stands for both, however they ended.
pub fn fold_run<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Vec<Folded<'a>> {
    let overlaps = |one: &Finding, other: &Finding| {
        one.since_ms <= other.ended_ms.unwrap_or(u64::MAX)
            && other.since_ms <= one.ended_ms.unwrap_or(u64::MAX)
    };
    let is_slow = |finding: &&Finding| finding.kind == FindingKind::Straggler;
    let (slow, rest): (Vec<_>, Vec<_>) = findings.into_iter().partition(is_slow);
    let mut slow: Vec<Folded<'_>> = slow.into_iter().map(Folded::alone).collect();
    let mut listed = Vec::new();
    for finding in rest {
        let about = |one: &Folded<'_>| {
            finding.kind.is(FindingTrait::LowersClock)
                && overlaps(one.finding, finding)
                && is_stated_by(finding, std::slice::from_ref(one))
        };
        match slow.iter_mut().find(|one| about(one)) {
            Some(one) => one.others.push(finding),
            None => listed.push(Folded::alone(finding)),
        }
    }
    listed.extend(slow);
    listed.sort_by_key(|one| one.since().at_ms);
    listed
}

/// Folds nodes of the same jobs that cannot be reached in the same way, and all nodes to which the user cannot log in: these
/// have one cause.
fn fold_nodes(findings: Vec<&Finding>) -> Vec<Folded<'_>> {
    let mut listed = Vec::new();
    let mut groups: BTreeMap<_, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        match finding.nodes.as_slice() {
            [node] => {
                let of_any = finding.title.as_str().replacen(node.as_str(), "", 1);
                let jobs = (finding.kind != FindingKind::LoginRefused).then_some(&finding.jobs);
                groups.entry((jobs, of_any)).or_default().push(finding);
            }
            _ => listed.push(Folded::alone(finding)),
        }
    }
    for ((jobs, _), mut findings) in groups {
        findings.sort_by(|a, b| a.nodes.cmp(&b.nodes));
        let least = if jobs.is_some() { MIN_NODES } else { 2 };
        match findings.split_first() {
            Some((first, others)) if findings.len() >= least => {
                let nodes = findings.iter().flat_map(|finding| &finding.nodes).collect();
                listed.push(Folded { others: others.to_vec(), nodes, ..Folded::alone(first) });
            }
            _ => listed.extend(findings.into_iter().map(Folded::alone)),
        }
    }
    listed
}

/// Folds failures of the same job name, owner and reason: a job that is submitted again, and the tasks of an array.
fn fold_failures<'a>(
    findings: Vec<&'a Finding>,
    jobs: impl IntoIterator<Item = NamedJob<'a>>,
) -> Vec<Folded<'a>> {
    let named = jobs.into_iter().filter(|(_, name, _)| !name.is_empty());
    let jobs: BTreeMap<JobId, _> = named.map(|(id, name, user)| (id, (name, user))).collect();
    let mut listed = Vec::new();
    let mut groups: BTreeMap<Repeated<'a>, Vec<&'a Finding>> = BTreeMap::new();
    for finding in findings {
        match finding.jobs.first().and_then(|id| jobs.get(id)) {
            Some(&(name, user)) => {
                let reason = finding.reason.as_str();
                groups.entry(Repeated { name, user, reason }).or_default().push(finding);
            }
            None => listed.push(Folded::alone(finding)),
        }
    }
    for (of, mut findings) in groups {
        findings.sort_by_key(|finding| Reverse(finding.since_ms));
        if let Some((latest, others)) = findings.split_first() {
            let repeated = Some(of).filter(|_| !others.is_empty());
            listed.push(Folded { others: others.to_vec(), repeated, ..Folded::alone(latest) });
        }
    }
    listed
}

/// Folds slow GPUs and what lowers their clocks.
fn fold_clocks(findings: Vec<&Finding>) -> Vec<Folded<'_>> {
    let (slow, rest): (Vec<_>, Vec<_>) =
        findings.into_iter().partition(|finding| finding.kind == FindingKind::Straggler);
    let (causes, rest): (Vec<_>, Vec<_>) =
        rest.into_iter().partition(|finding| finding.kind.is(FindingTrait::LowersClock));
    let mut slow: Vec<Folded<'_>> = slow.into_iter().map(Folded::alone).collect();
    // The title of a slow GPU states its cause, and its evidence the temperature.
    let mut listed: Vec<Folded<'_>> = Vec::new();
    for cause in causes {
        if is_stated_by(cause, &slow) {
            let about = slow.iter_mut().filter(|one| shares_gpu(one.finding, cause));
            about.for_each(|one| one.others.push(cause));
        } else {
            listed.push(Folded::alone(cause));
        }
    }
    let mut alone = Vec::new();
    // A cause with further GPUs says more than that some of them are slow.
    for one in slow {
        let cause = listed.iter_mut().find(|cause| has_all_gpus(cause.finding, one.finding));
        match cause.filter(|_| one.others.is_empty()) {
            Some(cause) => cause.others.push(one.finding),
            None => alone.push(one),
        }
    }
    listed.into_iter().chain(alone).chain(rest.into_iter().map(Folded::alone)).collect()
}

/// Returns whether slow GPUs are all of those whose clock is lowered, in all jobs that this affects.
fn is_stated_by(cause: &Finding, slow: &[Folded<'_>]) -> bool {
    let slow = || slow.iter().map(|one| one.finding).filter(|one| one.severity >= cause.severity);
    let is_slow = |uuid: &GpuUuid| slow().any(|one| one.gpus.iter().any(|gpu| gpu.uuid == *uuid));
    let is_affected = |job: &JobId| slow().any(|one| one.jobs.contains(job) && shares_gpu(one, cause));
    !cause.gpus.is_empty()
        && cause.gpus.iter().all(|gpu| is_slow(&gpu.uuid))
        && cause.jobs.iter().all(is_affected)
}

fn shares_gpu(one: &Finding, other: &Finding) -> bool {
    one.gpus.iter().any(|gpu| other.gpus.iter().any(|known| known.uuid == gpu.uuid))
}

fn has_all_gpus(one: &Finding, other: &Finding) -> bool {
    other.gpus.iter().all(|gpu| one.gpus.iter().any(|known| known.uuid == gpu.uuid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_check::NodeCheck;
    use nodeglass_protocol::finding::FindingSeverity;
    use nodeglass_protocol::job::JobState;

    #[test]
    fn of_a_run_a_slow_gpu_and_its_heat_are_one_problem_with_one_start() {
        let gpu = |index: u32| {
            let node = NodeName::new("n1").unwrap();
            nodeglass_protocol::finding::FindingGpu::new(&node, &GpuUuid::new(format!("GPU-{index}")), None)
        };
        let found = |kind, index, since_ms, ended_ms| Finding {
            kind,
            severity: FindingSeverity::Warning,
            gpus: vec![gpu(index)],
            ended_ms: Some(ended_ms),
            ..failed(17, since_ms, "x")
        };
        let findings = [
            found(FindingKind::Thermal, 3, 1_000, 5_000),
            found(FindingKind::Straggler, 3, 2_000, 6_000),
            // Another GPU, and another time.
            found(FindingKind::Thermal, 4, 2_500, 5_000),
            found(FindingKind::Thermal, 3, 9_000, 9_500),
        ];
        let times = |findings: &[Finding]| -> Vec<_> {
            let folded = fold_run(findings);
            folded.iter().map(|one| (one.finding.kind, one.since().at_ms, one.ended_ms())).collect()
        };
        assert_eq!(
            times(&findings),
            [
                (FindingKind::Straggler, 1_000, Some(6_000)),
                (FindingKind::Thermal, 2_500, Some(5_000)),
                (FindingKind::Thermal, 9_000, Some(9_500)),
            ]
        );
        // The hours lost are of the time in which the others waited.
        let mut costly = findings;
        costly[1].wasted_gpus = 28;
        assert_eq!(times(&costly)[0], (FindingKind::Straggler, 2_000, Some(6_000)));
    }

    fn failed(job: u32, at_ms: u64, reason: &str) -> Finding {
        Finding {
            key: format!("failed/{job}/{at_ms}").as_str().into(),
            kind: FindingKind::Failed,
            severity: FindingSeverity::Error,
            confidence_pct: 95,
            jobs: vec![JobId(job)],
            nodes: Vec::new(),
            gpus: Vec::new(),
            title: "train ended".into(),
            reason: reason.into(),
            evidence: vec!["exit code 0:125".into()],
            advice: "".into(),
            since_ms: at_ms,
            or_earlier: false,
            found_ms: at_ms,
            ended_ms: None,
            silenced_until_ms: None,
            wasted_gpus: 0,
            capture: None,
            wasted_before: None,
        }
    }

    fn job(id: u32, name: &str, user: &str) -> Job {
        let state = JobState::Ended("OUT_OF_MEMORY".into());
        Job { name: name.into(), ..Job::new(JobId(id), user.into(), state) }
    }

    #[test]
    fn failures_of_one_job_name_for_one_reason_are_one_entry_with_the_latest_time() {
        let jobs = [job(1, "train", "a"), job(2, "train", "a"), job(3, "train", "b"), job(4, "eval", "a")];
        let found = [
            failed(1, 1_000, "out of memory"),
            failed(2, 2_000, "out of memory"),
            failed(2, 1_500, "node failed"),
            failed(3, 3_000, "out of memory"),
            failed(4, 4_000, "out of memory"),
        ];
        let folded = fold(found.iter().collect(), names(&jobs));
        assert_eq!(folded.len(), 4, "{folded:?}");
        let twice: Vec<_> = folded.iter().filter(|entry| !entry.others.is_empty()).collect();
        let [entry] = twice.as_slice() else { panic!("{twice:?}") };
        assert_eq!(entry.title(), "train failed 2 times: out of memory");
        assert_eq!((entry.since().at_ms, entry.jobs()), (2_000, vec![JobId(2), JobId(1)]));
        let label = |job: JobId| format!("{job}");
        assert_eq!(entry.evidence(label), ["exit code 0:125", "before: 1"]);
        let single = folded.iter().find(|entry| entry.finding.jobs == [JobId(4)]);
        assert_eq!(single.map(Folded::title).as_deref(), Some("train ended"), "its own text");
    }

    #[test]
    fn three_nodes_that_cannot_be_reached_are_one_entry_and_two_are_not() {
        let down = |node: &str, job: u32, at_ms| Finding {
            key: format!("unreachable/{node}").as_str().into(),
            kind: FindingKind::NodeUnreachable,
            nodes: vec![NodeName::new(node).unwrap()],
            title: format!("{node} cannot be reached").as_str().into(),
            evidence: vec![format!("no route to {node}").as_str().into()],
            ..failed(job, at_ms, &format!("{node} unreachable"))
        };
        let of_one_job: Vec<Finding> =
            (1..=6).rev().map(|at| down(&format!("n{at}"), 1, at * 1_000)).collect();
        let folded = fold(of_one_job.iter().collect(), []);
        let [entry] = folded.as_slice() else { panic!("{folded:?}") };
        assert_eq!(
            (entry.title().as_str(), entry.reason().as_str()),
            ("6 nodes cannot be reached", "6 nodes unreachable")
        );
        assert_eq!((entry.nodes().len(), entry.all().count(), entry.since().at_ms), (6, 6, 1_000));
        assert_eq!(entry.evidence(|job| job.to_string()), ["on n1, n2, n3, n4 and 2 more", "no route to n1"]);
        let advice = |text: &str| {
            let found = of_one_job.iter().map(|finding| Finding { advice: text.into(), ..finding.clone() });
            let found: Vec<Finding> = found.collect();
            fold(found.iter().collect(), [])[0].advice()
        };
        let check = |nodes: &[&NodeName]| NodeCheck::SlurmState.text(nodes) + "; the relay retries";
        let nodes = entry.nodes();
        assert_eq!(advice(&check(&[&nodes[0]])), check(&nodes.iter().collect::<Vec<_>>()));
        assert_eq!(advice("Report it"), "Report it");
        let silent: Vec<Finding> = ["n1", "n2", "n3"]
            .map(|node| Finding {
                title: format!("{node} does not respond").as_str().into(),
                ..down(node, 1, 1)
            })
            .to_vec();
        assert_eq!(fold(silent.iter().collect(), [])[0].title(), "3 nodes do not respond");
        let of_two_jobs = [down("n1", 1, 1), down("n2", 1, 1), down("n3", 2, 1)];
        let folded = fold(of_two_jobs.iter().collect(), []);
        assert_eq!(folded.len(), 3, "{folded:?}");
        assert!(folded.iter().any(|entry| entry.title() == "n2 cannot be reached"));
    }

    #[test]
    fn f32_nodes_that_refuse_the_login_and_those_not_tried_are_one_entry_for_all_jobs() {
        let refused = |node: &str, job: u32, why: &str| Finding {
            key: format!("login_refused/{node}").as_str().into(),
            kind: FindingKind::LoginRefused,
            nodes: vec![NodeName::new(node).unwrap()],
            title: format!("{node} cannot be logged in to").as_str().into(),
            evidence: vec![why.into()],
            ..failed(job, 1_000, &format!("{node} without login"))
        };
        let down = Finding { kind: FindingKind::NodeUnreachable, ..refused("n9", 2, "no route") };
        let found = [
            refused("n1", 1, "n1 did not accept your key"),
            refused("n2", 2, "n2 did not accept your key"),
            refused("n3", 3, "not tried, because 3 other nodes refused the login"),
            down,
        ];
        let folded = fold(found.iter().collect(), []);
        let [entry, other] = folded.as_slice() else { panic!("{folded:?}") };
        assert_eq!(
            (entry.title(), entry.reason()),
            ("3 nodes cannot be logged in to".into(), "3 nodes without login".into())
        );
        assert_eq!((entry.jobs(), entry.nodes().len()), (vec![JobId(1), JobId(2), JobId(3)], 3));
        assert_eq!(entry.evidence(|job| job.to_string()), ["on n1, n2, n3", "n1 did not accept your key"]);
        assert_eq!(other.finding.kind, FindingKind::NodeUnreachable, "it has a cause of its own");
        let two = fold(found[1..3].iter().collect(), []);
        assert_eq!(two.len(), 1, "{two:?}");
        assert_eq!(fold(found[..1].iter().collect(), [])[0].title(), "n1 cannot be logged in to");
    }

    #[test]
    fn failures_of_jobs_that_are_not_listed_stand_alone() {
        let found = [failed(1, 1_000, "out of memory"), failed(2, 2_000, "out of memory")];
        assert_eq!(fold(found.iter().collect(), []).len(), 2);
        let unnamed = [job(1, "", "a"), job(2, "", "a")];
        assert_eq!(fold(found.iter().collect(), names(&unnamed)).len(), 2);
    }

    #[test]
    fn a_reason_that_says_failed_says_it_once() {
        assert_eq!(failures(2, "failed: exit code 1"), "failed 2 times: exit code 1");
        assert_eq!(failures(3, "failed"), "failed 3 times");
        assert_eq!(failures(2, "time limit reached"), "failed 2 times: time limit reached");
        assert_eq!(failures(2, "failed to start"), "failed to start 2 times");
    }
}

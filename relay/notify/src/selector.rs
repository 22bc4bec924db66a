//! Selects new events. Pure.

use super::NotifyOn;
use super::notice::{JobSummary, Notice};
use nodeglass_protocol::finding::{Finding, FindingGpu, FindingKind, FindingSeverity, FindingTrait};
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::{JobId, Text};
use nodeglass_rules::job_events::{JobEvent, JobPhases};
use std::collections::{BTreeMap, BTreeSet};

/// The events to notify about.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    pub(super) on: Vec<NotifyOn>,
    pub(super) severity: FindingSeverity,
}

/// State at the last update.
#[derive(Debug)]
pub(super) struct NoticeSelector {
    selection: Selection,
    /// Findings of an earlier relay before this time, in ms since 1970, are not new.
    since_ms: u64,
    jobs: JobPhases,
    /// The jobs that an earlier relay saw end.
    ended_before: BTreeSet<JobId>,
    /// The active findings of the last update, by key.
    active: BTreeMap<Text, Known>,
}

/// State of an active finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It was sent, by this relay or an earlier one.
    Sent,
    /// It was silenced or not severe enough: it is sent when that changes.
    Withheld,
    /// The notice of the straggler that it causes stands for it.
    Covered,
}

impl NoticeSelector {
    pub(super) fn new(selection: Selection, since_ms: u64) -> Self {
        Self {
            selection,
            since_ms,
            jobs: JobPhases::default(),
            ended_before: BTreeSet::new(),
            active: BTreeMap::new(),
        }
    }

    pub(super) fn restore_ended(&mut self, jobs: &[Job]) {
        self.ended_before.extend(jobs.iter().filter(|job| !job.is_active()).map(|job| job.id));
    }

    /// Returns what is new.
    pub(super) fn update(&mut self, jobs: &[Job], findings: &[Finding]) -> Vec<Notice> {
        // Another run of it may fail again.
        jobs.iter().filter(|job| job.is_active()).for_each(|job| _ = self.ended_before.remove(&job.id));
        let mut notices = self.of_jobs(jobs);
        let of = |finding: &Finding| {
            let affected = jobs.iter().filter(|job| finding.jobs.contains(&job.id));
            affected.map(JobSummary::of).collect::<Vec<_>>()
        };
        let (mut found, mut resolved) = (Vec::new(), Vec::new());
        for finding in findings {
            if finding.is_active() {
                if self.is_new(finding) && self.wants(NotifyOn::Findings) {
                    found.push(finding);
                }
            } else if self.active.remove(&finding.key) == Some(Known::Sent)
                && finding.silenced_until_ms.is_none()
            {
                // The end of idleness is not news if its job ends or is completing.
                let goes_on = finding.jobs.is_empty()
                    || jobs
                        .iter()
                        .any(|job| job.state == JobState::Running && finding.jobs.contains(&job.id));
                if goes_on && !finding.kind.is_event() && self.wants(NotifyOn::Resolved) {
                    resolved.push(Notice::Resolved(Box::new(finding.clone()), of(finding)));
                }
            }
        }
        self.leave_out_causes(&mut found);
        self.release_causes(findings);
        for same in combined(found) {
            notices.push(match same.as_slice() {
                [only] => Notice::Found(Box::new((*only).clone()), of(only)),
                several => {
                    let is_affected = |job: &&Job| several.iter().any(|one| one.jobs.contains(&job.id));
                    let affected = jobs.iter().filter(is_affected).map(JobSummary::of).collect();
                    Notice::Several(several.iter().map(|one| (*one).clone()).collect(), affected)
                }
            });
        }
        notices.extend(resolved);
        self.active.retain(|key, _| findings.iter().any(|finding| finding.key == *key));
        notices
    }

    /// Returns whether notices of a kind were requested.
    fn wants(&self, what: NotifyOn) -> bool {
        self.selection.on.contains(&what)
    }

    /// The notices of jobs that started or ended.
    fn of_jobs(&mut self, jobs: &[Job]) -> Vec<Notice> {
        let mut notices = Vec::new();
        for (job, event) in self.jobs.update(jobs) {
            let what = match event {
                JobEvent::Started => NotifyOn::Starts,
                JobEvent::Ended => NotifyOn::Ends,
            };
            // How a job failed is a finding, which states what to do.
            let summary = JobSummary::of(job);
            let is_finding = summary.failure.is_some() && self.wants(NotifyOn::Findings);
            if self.wants(what) && !is_finding {
                notices.push(Notice::Job(summary, event));
            }
        }
        notices
    }

    /// Returns whether an active finding is to be sent, and remembers that it was.
    fn is_new(&mut self, finding: &Finding) -> bool {
        let is_withheld = finding.silenced_until_ms.is_some() || finding.severity < self.selection.severity;
        let before = self.active.get(&finding.key).copied();
        if before == Some(Known::Covered) {
            return false;
        }
        if is_withheld {
            self.active.entry(finding.key.clone()).or_insert(Known::Withheld);
            return false;
        }
        self.active.insert(finding.key.clone(), Known::Sent);
        match before {
            Some(Known::Sent | Known::Covered) => false,
            Some(Known::Withheld) => true,
            None => {
                let is_known = finding.kind.is_event()
                    && !finding.jobs.is_empty()
                    && finding.jobs.iter().all(|job| self.ended_before.contains(job));
                finding.found_ms >= self.since_ms && !is_known
            }
        }
    }

    /// Releases a covered cause once no straggler has its GPU any more: if the cause lasts, it is sent.
    fn release_causes(&mut self, findings: &[Finding]) {
        let is_slow = |gpu: &FindingGpu| {
            let stragglers =
                findings.iter().filter(|one| one.kind == FindingKind::Straggler && one.is_active());
            stragglers.flat_map(|straggler| &straggler.gpus).any(|slow| slow.uuid == gpu.uuid)
        };
        for cause in findings.iter().filter(|finding| finding.is_active()) {
            if let Some(known @ Known::Covered) = self.active.get_mut(&cause.key)
                && !cause.gpus.iter().any(is_slow)
            {
                *known = Known::Withheld;
            }
        }
    }

    /// Leaves out a cause that slows a GPU down if the resulting straggler is found at the same time: the notice of the
    /// straggler names the cause.
    fn leave_out_causes(&mut self, found: &mut Vec<&Finding>) {
        let stragglers: Vec<&Finding> =
            found.iter().copied().filter(|finding| finding.kind == FindingKind::Straggler).collect();
        let is_slow =
            |gpu| stragglers.iter().flat_map(|straggler| &straggler.gpus).any(|slow| slow.uuid == gpu);
        let is_covered = |finding: &Finding| {
            finding.kind.is(FindingTrait::LowersClock)
                && !finding.gpus.is_empty()
                && finding.gpus.iter().all(|gpu| is_slow(gpu.uuid.clone()))
        };
        for cause in found.extract_if(.., |finding| is_covered(finding)) {
            self.active.insert(cause.key.clone(), Known::Covered);
        }
    }
}

/// Combines findings that begin on several nodes at once, as when their switch fails; all others stay alone.
fn combined(found: Vec<&Finding>) -> Vec<Vec<&Finding>> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    for finding in found {
        let is_same = |group: &&mut Vec<&Finding>| group.iter().all(|other| other.kind == finding.kind);
        match groups.iter_mut().find(|group| finding.kind.is(FindingTrait::OfNode) && is_same(group)) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::super::notice::tests::job;
    use super::*;
    use nodeglass_api::fixtures::finding;
    use nodeglass_protocol::job::JobState;
    use nodeglass_protocol::{GpuUuid, NodeName};

    const ALL: [NotifyOn; 4] = [NotifyOn::Findings, NotifyOn::Resolved, NotifyOn::Starts, NotifyOn::Ends];

    fn selector(on: &[NotifyOn]) -> NoticeSelector {
        NoticeSelector::new(Selection { on: on.to_vec(), severity: FindingSeverity::Warning }, 70_000)
    }

    fn events(notices: Vec<Notice>) -> Vec<&'static str> {
        notices.iter().map(Notice::event).collect()
    }

    #[test]
    fn a_failure_that_an_earlier_relay_saw_is_not_sent_again() {
        let ended = |id| job(id, JobState::Ended("FAILED".into()));
        let failed = |id: u32| Finding {
            kind: FindingKind::Failed,
            jobs: vec![JobId(id)],
            found_ms: 80_000,
            ..finding(&format!("failed/{id}"))
        };
        let mut selector = selector(&[NotifyOn::Findings]);
        selector.restore_ended(&[ended(17)]);
        let list = [ended(17), ended(18)];
        let findings = [failed(17), failed(18)];
        assert_eq!(events(selector.update(&list, &findings)), ["finding"], "of the other job");
        // It is requeued, and fails again.
        selector.update(&[job(17, JobState::Running), ended(18)], &findings[1..]);
        assert_eq!(events(selector.update(&list, &findings)), ["finding"]);
    }

    #[test]
    fn a_finding_is_sent_when_it_is_listed_and_when_it_is_resolved() {
        let (mut selector, jobs) = (selector(&ALL), [job(17, JobState::Running)]);
        assert_eq!(events(selector.update(&jobs, &[finding("a")])), ["finding"]);
        let changed = Finding { title: "hotter".into(), since_ms: 50_000, ..finding("a") };
        assert!(selector.update(&jobs, &[changed]).is_empty(), "it is the same one");
        let over = Finding { ended_ms: Some(90_000), ..finding("a") };
        assert_eq!(events(selector.update(&jobs, std::slice::from_ref(&over))), ["finding_resolved"]);
        assert!(selector.update(&jobs, &[over]).is_empty());
        assert_eq!(events(selector.update(&jobs, &[finding("a")])), ["finding"], "it returned");
    }

    #[test]
    fn what_outlasts_its_silence_is_sent_although_an_earlier_relay_found_it() {
        let (mut selector, jobs) = (selector(&ALL), [job(17, JobState::Running)]);
        let earlier = Finding { found_ms: 10_000, ..finding("a") };
        let silenced = Finding { silenced_until_ms: Some(80_000), ..earlier.clone() };
        assert!(selector.update(&jobs, &[silenced]).is_empty());
        assert_eq!(events(selector.update(&jobs, std::slice::from_ref(&earlier))), ["finding"]);
        assert!(selector.update(&jobs, &[earlier]).is_empty());
    }

    #[test]
    fn what_an_earlier_relay_found_or_is_only_worth_knowing_is_not_sent() {
        let (mut selector, jobs) = (selector(&ALL), [job(17, JobState::Running)]);
        let earlier = Finding { found_ms: 69_000, ..finding("a") };
        let info = Finding { severity: FindingSeverity::Info, ..finding("b") };
        assert!(selector.update(&jobs, &[earlier.clone(), info]).is_empty());
        let over = Finding { ended_ms: Some(90_000), ..earlier };
        assert_eq!(events(selector.update(&jobs, &[over])), ["finding_resolved"], "its end is news");
    }

    #[test]
    fn what_becomes_more_severe_is_sent() {
        let (mut selector, jobs) = (selector(&ALL), [job(17, JobState::Running)]);
        let reminder =
            Finding { severity: FindingSeverity::Info, found_ms: 10_000, ..finding("time_limit/17") };
        let overdue = Finding { severity: FindingSeverity::Warning, ..reminder.clone() };
        assert!(selector.update(&jobs, std::slice::from_ref(&reminder)).is_empty());
        assert_eq!(events(selector.update(&jobs, std::slice::from_ref(&overdue))), ["finding"]);
        assert!(selector.update(&jobs, std::slice::from_ref(&reminder)).is_empty());
        assert!(selector.update(&jobs, &[overdue]).is_empty(), "it was sent");
        let over = Finding { ended_ms: Some(90_000), ..reminder };
        assert_eq!(events(selector.update(&jobs, &[over])), ["finding_resolved"]);
    }

    #[test]
    fn jobs_are_reported_once_and_a_failure_as_a_finding_alone() {
        let mut selector = selector(&ALL);
        assert!(selector.update(&[job(17, JobState::Pending)], &[]).is_empty());
        assert_eq!(events(selector.update(&[job(17, JobState::Running)], &[])), ["job_started"]);
        let completed = job(17, JobState::Ended("COMPLETED".into()));
        assert_eq!(events(selector.update(std::slice::from_ref(&completed), &[])), ["job_ended"]);
        let running = [completed.clone(), job(18, JobState::Running)];
        assert_eq!(events(selector.update(&running, &[])), ["job_started"]);
        let failed = Finding { kind: FindingKind::Failed, jobs: vec![JobId(18)], ..finding("failed/18") };
        let ended = [completed, job(18, JobState::Ended("TIMEOUT".into()))];
        assert_eq!(events(selector.update(&ended, &[failed])), ["finding"]);
    }

    #[test]
    fn a_straggler_stands_for_what_slows_it_down() {
        let (mut selector, jobs) = (selector(&ALL), [job(17, JobState::Running)]);
        let gpu = |uuid: &str| FindingGpu {
            node: NodeName::new("n1").unwrap(),
            uuid: GpuUuid::new(uuid),
            metric: None,
        };
        let hot = |key, uuid| Finding { gpus: vec![gpu(uuid)], ..finding(key) };
        let slow = Finding { kind: FindingKind::Straggler, ..hot("straggler", "GPU-1") };
        let (same, other) = (hot("thermal/1", "GPU-1"), hot("thermal/2", "GPU-2"));
        let found = selector.update(&jobs, &[same.clone(), slow.clone(), other.clone()]);
        let keys: Vec<&str> = found
            .iter()
            .map(|notice| match notice {
                Notice::Found(finding, _) => finding.key.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(keys, ["straggler", "thermal/2"]);
        assert!(selector.update(&jobs, &[same.clone(), slow.clone(), other.clone()]).is_empty());
        let over = Finding { ended_ms: Some(90_000), ..same };
        assert!(selector.update(&jobs, &[over, slow.clone(), other]).is_empty(), "it was not sent");
        let cool = Finding { ended_ms: Some(95_000), ..slow.clone() };
        assert_eq!(events(selector.update(&jobs, &[cool])), ["finding_resolved"]);
        let (slow, hot) = (Finding { found_ms: 99_000, ..slow }, hot("thermal/1", "GPU-1"));
        assert_eq!(events(selector.update(&jobs, &[slow.clone(), hot.clone()])), ["finding"]);
        let cool = Finding { ended_ms: Some(105_000), ..slow };
        let events = events(selector.update(&jobs, &[cool.clone(), hot.clone()]));
        assert_eq!(events, ["finding_resolved"]);
        let late = selector.update(&jobs, &[cool, hot]);
        assert!(
            matches!(late.as_slice(), [Notice::Found(finding, _)] if finding.key.as_str() == "thermal/1"),
            "it lasts"
        );
    }

    #[test]
    fn nodes_that_fail_together_are_one_notice() {
        let mut selector = selector(&ALL);
        let node = |key, kind| Finding { kind, jobs: Vec::new(), ..finding(key) };
        let found = [
            node("a", FindingKind::NodeUnreachable),
            node("b", FindingKind::DiskFull),
            node("c", FindingKind::NodeUnreachable),
            node("d", FindingKind::Thermal),
            node("e", FindingKind::Thermal),
        ];
        let notices = selector.update(&[], &found);
        assert_eq!(notices.len(), 4, "{notices:?}");
        assert!(matches!(&notices[0], Notice::Several(nodes, _) if nodes.len() == 2), "{notices:?}");
    }

    #[test]
    fn what_ends_with_its_job_is_not_reported_as_resolved() {
        let mut selector = selector(&ALL);
        selector.update(&[job(17, JobState::Running)], &[finding("a")]);
        let over = Finding { ended_ms: Some(90_000), ..finding("a") };
        let notices = selector.update(&[job(17, JobState::Ended("COMPLETED".into()))], &[over]);
        assert_eq!(events(notices), ["job_ended"]);
    }

    #[test]
    fn only_what_was_selected_is_sent() {
        let mut selector = selector(&[NotifyOn::Ends]);
        selector.update(&[job(17, JobState::Running)], &[]);
        let ended = [job(17, JobState::Ended("TIMEOUT".into()))];
        assert_eq!(events(selector.update(&ended, &[finding("a")])), ["job_ended"]);
    }
}

//! Which events are new. Pure.

use super::NotifyOn;
use super::notice::{JobSummary, Notice};
use nodeglass_protocol::Text;
use nodeglass_protocol::finding::{Finding, FindingSeverity};
use nodeglass_protocol::job::Job;
use nodeglass_rules::job_events::{JobEvent, JobPhases};
use std::collections::BTreeSet;

/// Which events are notices.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    pub(super) on: Vec<NotifyOn>,
    pub(super) severity: FindingSeverity,
}

/// What was known at the last update.
#[derive(Debug)]
pub(super) struct Tracker {
    selection: Selection,
    /// What an earlier relay had found before this time, in ms since 1970, is known.
    since_ms: u64,
    jobs: JobPhases,
    /// The keys of the active findings of the last update.
    active: BTreeSet<Text>,
    /// The keys of the silenced ones, which are not among them: each is new when it outlasts its silence.
    silenced: BTreeSet<Text>,
}

impl Tracker {
    pub(super) fn new(selection: Selection, since_ms: u64) -> Self {
        Self {
            selection,
            since_ms,
            jobs: JobPhases::default(),
            active: BTreeSet::new(),
            silenced: BTreeSet::new(),
        }
    }

    /// Returns what is new.
    pub(super) fn update(&mut self, jobs: &[Job], findings: &[Finding]) -> Vec<Notice> {
        let wants = |what| self.selection.on.contains(&what);
        let mut notices = Vec::new();
        for (job, event) in self.jobs.update(jobs) {
            let what = match event {
                JobEvent::Started => NotifyOn::Starts,
                JobEvent::Ended => NotifyOn::Ends,
            };
            // How a job failed is a finding, which states what to do.
            let summary = JobSummary::of(job);
            let is_finding = summary.failure.is_some() && wants(NotifyOn::Findings);
            if wants(what) && !is_finding {
                notices.push(Notice::Job(summary, event));
            }
        }
        let of = |finding: &Finding| {
            let affected = jobs.iter().filter(|job| finding.jobs.contains(&job.id));
            affected.map(JobSummary::of).collect::<Vec<_>>()
        };
        for finding in findings.iter().filter(|finding| finding.severity >= self.selection.severity) {
            if finding.is_active() {
                // A known one remains known; one that outlasts its silence is new.
                if finding.silenced_until_ms.is_some() {
                    self.silenced.insert(finding.key.clone());
                    continue;
                }
                let was_silenced = self.silenced.remove(&finding.key);
                let is_new = self.active.insert(finding.key.clone())
                    && (was_silenced || finding.found_ms >= self.since_ms);
                if is_new && wants(NotifyOn::Findings) {
                    notices.push(Notice::Found(Box::new(finding.clone()), of(finding)));
                }
            } else if self.active.remove(&finding.key) && finding.silenced_until_ms.is_none() {
                // That an ended job no longer idles is no news.
                let goes_on = finding.jobs.is_empty()
                    || jobs.iter().any(|job| job.is_active() && finding.jobs.contains(&job.id));
                if goes_on && !finding.kind.is_event() && wants(NotifyOn::Resolved) {
                    notices.push(Notice::Resolved(Box::new(finding.clone()), of(finding)));
                }
            }
        }
        let is_listed = |key: &Text| findings.iter().any(|finding| finding.key == *key);
        self.active.retain(is_listed);
        self.silenced.retain(is_listed);
        notices
    }
}

#[cfg(test)]
mod tests {
    use super::super::notice::tests::{finding, job};
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::finding::FindingKind;
    use nodeglass_protocol::job::JobState;

    const ALL: [NotifyOn; 4] = [NotifyOn::Findings, NotifyOn::Resolved, NotifyOn::Starts, NotifyOn::Ends];

    fn tracker(on: &[NotifyOn]) -> Tracker {
        Tracker::new(Selection { on: on.to_vec(), severity: FindingSeverity::Warning }, 70_000)
    }

    fn events(notices: Vec<Notice>) -> Vec<&'static str> {
        notices.iter().map(Notice::event).collect()
    }

    #[test]
    fn a_finding_is_sent_when_it_is_listed_and_when_it_is_resolved() {
        let (mut tracker, jobs) = (tracker(&ALL), [job(17, JobState::Running)]);
        assert_eq!(events(tracker.update(&jobs, &[finding("a")])), ["finding"]);
        let changed = Finding { title: "hotter".into(), since_ms: 50_000, ..finding("a") };
        assert!(tracker.update(&jobs, &[changed]).is_empty(), "it is the same one");
        let over = Finding { ended_ms: Some(90_000), ..finding("a") };
        assert_eq!(events(tracker.update(&jobs, std::slice::from_ref(&over))), ["finding_resolved"]);
        assert!(tracker.update(&jobs, &[over]).is_empty());
        assert_eq!(events(tracker.update(&jobs, &[finding("a")])), ["finding"], "it returned");
    }

    #[test]
    fn what_outlasts_its_silence_is_sent_although_an_earlier_relay_found_it() {
        let (mut tracker, jobs) = (tracker(&ALL), [job(17, JobState::Running)]);
        let earlier = Finding { found_ms: 10_000, ..finding("a") };
        let silenced = Finding { silenced_until_ms: Some(80_000), ..earlier.clone() };
        assert!(tracker.update(&jobs, &[silenced]).is_empty());
        assert_eq!(events(tracker.update(&jobs, std::slice::from_ref(&earlier))), ["finding"]);
        assert!(tracker.update(&jobs, &[earlier]).is_empty());
    }

    #[test]
    fn what_an_earlier_relay_found_or_is_only_worth_knowing_is_not_sent() {
        let (mut tracker, jobs) = (tracker(&ALL), [job(17, JobState::Running)]);
        let earlier = Finding { found_ms: 69_000, ..finding("a") };
        let info = Finding { severity: FindingSeverity::Info, ..finding("b") };
        assert!(tracker.update(&jobs, &[earlier.clone(), info]).is_empty());
        let over = Finding { ended_ms: Some(90_000), ..earlier };
        assert_eq!(events(tracker.update(&jobs, &[over])), ["finding_resolved"], "its end is news");
    }

    #[test]
    fn jobs_are_reported_once_and_a_failure_as_a_finding_alone() {
        let mut tracker = tracker(&ALL);
        assert!(tracker.update(&[job(17, JobState::Pending)], &[]).is_empty());
        assert_eq!(events(tracker.update(&[job(17, JobState::Running)], &[])), ["job_started"]);
        let completed = job(17, JobState::Ended("COMPLETED".into()));
        assert_eq!(events(tracker.update(std::slice::from_ref(&completed), &[])), ["job_ended"]);
        let running = [completed.clone(), job(18, JobState::Running)];
        assert_eq!(events(tracker.update(&running, &[])), ["job_started"]);
        let failed = Finding { kind: FindingKind::Failed, jobs: vec![JobId(18)], ..finding("failed/18") };
        let ended = [completed, job(18, JobState::Ended("TIMEOUT".into()))];
        assert_eq!(events(tracker.update(&ended, &[failed])), ["finding"]);
    }

    #[test]
    fn what_ends_with_its_job_is_not_reported_as_resolved() {
        let mut tracker = tracker(&ALL);
        tracker.update(&[job(17, JobState::Running)], &[finding("a")]);
        let over = Finding { ended_ms: Some(90_000), ..finding("a") };
        let notices = tracker.update(&[job(17, JobState::Ended("COMPLETED".into()))], &[over]);
        assert_eq!(events(notices), ["job_ended"]);
    }

    #[test]
    fn only_what_was_selected_is_sent() {
        let mut tracker = tracker(&[NotifyOn::Ends]);
        tracker.update(&[job(17, JobState::Running)], &[]);
        let ended = [job(17, JobState::Ended("TIMEOUT".into()))];
        assert_eq!(events(tracker.update(&ended, &[finding("a")])), ["job_ended"]);
    }
}

//! Detects events of jobs, and what newly needs attention, that deserve a notification, each reported once.

use crate::domain::attention::{self, Item};
use crate::domain::{job_names, outcome};
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::{JobId, NodeName, Picture};
use nodeglass_rules::job_events::{JobEvent, JobPhases};
use std::collections::BTreeSet;

/// An event to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// A later notice with the same tag replaces it.
    pub tag: String,
    /// The first line.
    pub title: String,
    /// The second line.
    pub body: String,
    /// The job to show when the notice is clicked.
    pub job: Option<JobId>,
}

/// The state of jobs at the last update, and what needed attention.
#[derive(Clone, Debug, Default)]
pub struct NoticeTracker {
    begun: bool,
    jobs: JobPhases,
    /// The keys of the findings that were listed, themselves or by another, and are still active.
    listed: BTreeSet<String>,
}

impl NoticeTracker {
    /// Compares the picture with the last one and returns the events; the first call returns none.
    pub fn update(&mut self, picture: &Picture) -> Vec<Notice> {
        let events = self.jobs.update(&picture.jobs);
        let items = attention::all(&picture.jobs, picture);
        let mut notices = Vec::new();
        if self.begun {
            notices.extend(events.into_iter().map(|(job, event)| job_notice(job, event)));
            // That a job ended is an event of the job already.
            let is_known = |item: &Item| self.listed.iter().any(|key| item.stands_for(key));
            let new = items.iter().filter(|item| !item.is_past && !is_known(item));
            notices.extend(new.map(|item| Notice {
                tag: item.key.clone(),
                title: format!("{}: {}", item.subject, item.reason),
                body: format!("{}. {}", item.title, item.evidence_or_advice()),
                job: item.jobs.first().copied(),
            }));
        }
        self.begun = true;
        // One that is silenced remains known.
        let is_active = |key: &String| {
            picture.findings.iter().any(|finding| finding.is_active() && finding.key.as_str() == key)
        };
        self.listed.retain(is_active);
        let keys = items.into_iter().flat_map(|item| item.sources).map(|source| source.key);
        self.listed.extend(keys);
        notices
    }
}

fn job_notice(job: &Job, event: JobEvent) -> Notice {
    let what = match event {
        JobEvent::Started => "started",
        JobEvent::Ended => "ended",
    };
    let body = match (&job.state, event) {
        (JobState::Ended(how), _) => outcome::failure(job).map_or_else(
            || how.as_str().to_ascii_lowercase().replace('_', " "),
            |failure| format!("{}. {}", failure.label, failure.why).trim_end().to_owned(),
        ),
        (_, JobEvent::Started) => {
            let nodes: Vec<_> = job.nodes.iter().map(NodeName::as_str).collect();
            format!("on {}", nodes.join(", "))
        }
        _ => String::new(),
    };
    Notice {
        tag: format!("job-{}", job.id),
        title: format!("{} {what}", job_names::with_label(job.name.as_str(), job.label.as_str())),
        body,
        job: Some(job.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::attention::tests::{finding, job};
    use nodeglass_protocol::finding::{Finding, FindingKind};

    fn update(tracker: &mut NoticeTracker, job: Job, findings: Vec<Finding>) -> Vec<Notice> {
        tracker.update(&Picture { jobs: vec![job], findings, ..Picture::default() })
    }

    fn titles(notices: Vec<Notice>) -> Vec<String> {
        notices.into_iter().map(|notice| notice.title).collect()
    }

    fn silent() -> Finding {
        Finding { reason: "n1 silent".into(), ..finding(FindingKind::NodeUnreachable, 1, "n1") }
    }

    #[test]
    fn a_page_that_was_just_opened_reports_nothing() {
        let mut tracker = NoticeTracker::default();
        assert!(update(&mut tracker, job(1, "n1"), vec![silent()]).is_empty());
        assert!(update(&mut tracker, job(1, "n1"), vec![silent()]).is_empty(), "that is known");
    }

    #[test]
    fn a_start_and_an_end_are_reported_once_each() {
        let mut tracker = NoticeTracker::default();
        let mut update = |state| {
            let job = Job { state, ..job(1, "n1") };
            update(&mut tracker, job, vec![])
        };
        assert!(update(JobState::Pending).is_empty());
        assert_eq!(titles(update(JobState::Running)), ["job-1 (1) started"]);
        assert!(update(JobState::Running).is_empty());
        let ended = update(JobState::Ended("TIMEOUT".into()));
        assert_eq!(ended[0].body, "time limit reached. SLURM ended it at its time limit (--time).");
        assert_eq!(titles(ended), ["job-1 (1) ended"]);
        assert!(update(JobState::Ended("TIMEOUT".into())).is_empty());
    }

    #[test]
    fn a_finding_is_reported_once_with_its_job() {
        let mut tracker = NoticeTracker::default();
        let mut update = |findings| update(&mut tracker, job(1, "n1"), findings);
        update(vec![]);
        let notices = update(vec![silent()]);
        assert_eq!((notices[0].title.as_str(), notices[0].job), ("job-1: n1 silent", Some(JobId(1))));
        assert!(notices[0].body.starts_with("node_unreachable title. "), "{}", notices[0].body);
        assert!(update(vec![Finding { title: "n1 is down".into(), ..silent() }]).is_empty(), "that is known");
        assert!(update(vec![]).is_empty(), "its end is no event");
        assert_eq!(update(vec![silent()]).len(), 1, "it returned");
    }

    #[test]
    fn that_a_hot_gpu_is_slow_is_not_reported_again() {
        let (mut tracker, hot) = (NoticeTracker::default(), finding(FindingKind::Thermal, 1, "n1"));
        let mut update = |findings| update(&mut tracker, job(1, "n1"), findings);
        update(vec![]);
        assert_eq!(update(vec![hot.clone()]).len(), 1);
        assert!(update(vec![hot.clone(), finding(FindingKind::Straggler, 1, "n1")]).is_empty());
        assert!(update(vec![hot]).is_empty());
    }
}

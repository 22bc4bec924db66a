//! Failures of jobs that the relay no longer lists as findings: they stay in the list until the viewer dismisses them.

use crate::domain::outcome;
use nodeglass_protocol::Picture;
use nodeglass_protocol::finding::{Finding, FindingKind};

/// Maximum age of a failure that is listed, in ms.
const KEPT_MS: u64 = 7 * 86_400_000;
/// Maximum age of a failure before the first visit that is listed, in ms: the relay lists those as well.
const BEFORE_FIRST_MS: u64 = 3_600_000;

/// The visits of this browser before the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visits {
    /// When the page was first visible, in ms since 1970 by the cluster's clock.
    pub first_ms: u64,
    /// When the page was last visible before the current visit, by the same clock.
    pub last_ms: u64,
}

impl Visits {
    /// The first visit, at a time in ms since 1970.
    pub fn first(now_ms: u64) -> Self {
        Self { first_ms: now_ms, last_ms: now_ms }
    }

    /// Parses [`Self::text`]; `None` unless it is before `now_ms`.
    pub fn parse(text: &str, now_ms: u64) -> Option<Self> {
        let (first, last) = text.split_once(' ')?;
        let visits = Self { first_ms: first.parse().ok()?, last_ms: last.parse().ok()? };
        (visits.first_ms <= visits.last_ms && visits.last_ms <= now_ms).then_some(visits)
    }

    /// The form in which it is stored, after a visit that lasts until `now_ms`.
    pub fn text(self, now_ms: u64) -> String {
        format!("{} {now_ms}", self.first_ms)
    }
}

/// Failures of jobs that the relay no longer lists.
#[derive(Debug, Default)]
pub struct Failures {
    /// Those since the last visit.
    pub new: Vec<Finding>,
    /// Those before it.
    pub seen: Vec<Finding>,
}

/// Returns the failures since the first visit that are at most a week old at `now_ms`.
pub fn unlisted(picture: &Picture, visits: Visits, now_ms: u64) -> Failures {
    let since_ms = visits.first_ms.saturating_sub(BEFORE_FIRST_MS).max(now_ms.saturating_sub(KEPT_MS));
    let listed = || picture.findings.iter().filter(|finding| finding.kind == FindingKind::Failed);
    let ended = picture.jobs.iter().filter_map(outcome::finding);
    let kept = ended.filter(|failed| failed.since_ms >= since_ms).filter_map(|failed| {
        match listed().find(|known| known.key == failed.key) {
            Some(known) if known.is_active() => None,
            // It has the last lines of the log.
            Some(known) => Some(Finding { ended_ms: None, ..known.clone() }),
            None => Some(failed),
        }
    });
    let wanted = kept.filter(|failed| failed.silenced_until_ms.is_none());
    let (new, seen) = wanted.partition(|failed| failed.since_ms >= visits.last_ms);
    Failures { new, seen }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{job, picture};
    use super::*;
    use nodeglass_protocol::job::{Job, JobState};

    const DAY_MS: u64 = 86_400_000;
    const NOW_MS: u64 = 100 * DAY_MS;

    fn failed(id: u32, at_ms: u64) -> Job {
        let state = JobState::Ended("OUT_OF_MEMORY".into());
        Job { state, ended: Some(at_ms.cast_signed() / 1_000), ..job(id, "n1") }
    }

    fn ids(jobs: Vec<Job>, findings: Vec<Finding>, visits: Visits) -> (Vec<u32>, Vec<u32>) {
        let picture = Picture { jobs, ..picture(findings) };
        let found = unlisted(&picture, visits, NOW_MS);
        let ids = |findings: &[Finding]| findings.iter().map(|finding| finding.jobs[0].0).collect();
        (ids(&found.new), ids(&found.seen))
    }

    #[test]
    fn failures_since_the_last_visit_are_new_and_earlier_ones_stay_for_a_week() {
        let visits = Visits { first_ms: NOW_MS - 30 * DAY_MS, last_ms: NOW_MS - DAY_MS / 2 };
        let at = |id: u32, hours: u64| failed(id, NOW_MS - hours * 3_600_000);
        let completed = Job { state: JobState::Ended("COMPLETED".into()), ..at(9, 2) };
        let jobs = vec![at(1, 2), at(2, 11), at(3, 20), at(4, 100), at(5, 169), completed];
        assert_eq!(ids(jobs.clone(), vec![], visits), (vec![1, 2], vec![3, 4]));
        assert_eq!(
            ids(jobs.clone(), vec![], Visits::first(NOW_MS)),
            (vec![], vec![]),
            "a new browser does not list what was before it"
        );
        let listed = outcome::finding(&jobs[0]).unwrap();
        assert_eq!(ids(jobs.clone(), vec![listed.clone()], visits).0, [2], "the relay lists it");
        let over = Finding { ended_ms: Some(NOW_MS), ..listed };
        assert_eq!(ids(jobs.clone(), vec![over.clone()], visits).0, [1, 2]);
        let silenced = Finding { silenced_until_ms: Some(NOW_MS), ..over };
        assert_eq!(ids(jobs, vec![silenced], visits).0, [2]);
    }

    #[test]
    fn visits_are_stored_and_a_wrong_text_is_no_visit() {
        let visits = Visits { first_ms: 5, last_ms: 7 };
        assert_eq!(Visits::parse(&visits.text(9), 9), Some(Visits { first_ms: 5, last_ms: 9 }));
        for text in ["", "5", "5 x", "7 5", "5 11", "-1 5", "99999999999999999999 5"] {
            assert_eq!(Visits::parse(text, 10), None, "{text}");
        }
    }
}

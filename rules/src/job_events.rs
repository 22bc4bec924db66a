//! Starts and ends of jobs, detected from one list to the next.

use nodeglass_protocol::JobId;
use nodeglass_protocol::job::{Job, JobState};
use std::collections::BTreeMap;

/// An event of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// It runs.
    Started,
    /// It has ended.
    Ended,
}

/// The phases of a job that are distinguished here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Running,
    Ended,
}

/// The phases of the jobs of the last list.
#[derive(Clone, Debug, Default)]
pub struct JobPhases {
    phases: Option<BTreeMap<JobId, Phase>>,
}

impl JobPhases {
    /// Compares a list with the last one and returns what happened; nothing for the first one.
    pub fn update<'a>(&mut self, jobs: &'a [Job]) -> Vec<(&'a Job, JobEvent)> {
        let phases: BTreeMap<_, _> = jobs.iter().map(|job| (job.id, phase(job))).collect();
        let Some(before) = self.phases.replace(phases) else { return Vec::new() };
        let event = |job: &Job| match (before.get(&job.id), phase(job)) {
            (Some(Phase::Waiting) | None, Phase::Running) => Some(JobEvent::Started),
            (Some(Phase::Waiting | Phase::Running), Phase::Ended) => Some(JobEvent::Ended),
            _ => None,
        };
        jobs.iter().filter_map(|job| Some((job, event(job)?))).collect()
    }
}

fn phase(job: &Job) -> Phase {
    match job.state {
        JobState::Pending | JobState::Configuring => Phase::Waiting,
        JobState::Ended(_) => Phase::Ended,
        _ => Phase::Running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_and_an_end_are_reported_once_each() {
        let mut phases = JobPhases::default();
        let mut update = |state| {
            let jobs = [Job::new(JobId(1), "alice".into(), state)];
            phases.update(&jobs).into_iter().map(|(_, event)| event).collect::<Vec<_>>()
        };
        assert!(update(JobState::Pending).is_empty(), "what was there at first is no event");
        assert_eq!(update(JobState::Running), [JobEvent::Started]);
        assert!(update(JobState::Completing).is_empty());
        assert_eq!(update(JobState::Ended("TIMEOUT".into())), [JobEvent::Ended]);
        assert!(update(JobState::Ended("TIMEOUT".into())).is_empty());
    }

    #[test]
    fn a_job_that_is_listed_while_it_runs_has_started() {
        let mut phases = JobPhases::default();
        phases.update(&[]);
        let jobs = [Job::new(JobId(1), "alice".into(), JobState::Running)];
        assert_eq!(phases.update(&jobs).len(), 1);
    }
}

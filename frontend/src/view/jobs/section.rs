//! The sections of the job list.

use nodeglass_protocol::JobId;
use nodeglass_protocol::job::{Job, JobState};

/// Most waiting jobs that are listed without being asked for.
const MAX_WAITING: usize = 4;

/// The section of the list that a job belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Something is wrong with it.
    Attention,
    /// It has nodes.
    Running,
    /// It is pending.
    Waiting,
    /// It has ended.
    Ended,
}

impl Section {
    /// Every section, from top to bottom.
    pub const ALL: [Self; 4] = [Self::Attention, Self::Running, Self::Waiting, Self::Ended];

    /// Returns its title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Attention => "Needs attention",
            Self::Running => "Running",
            Self::Waiting => "Waiting",
            Self::Ended => "Ended",
        }
    }

    /// Returns whether this many jobs are folded into a heading: ended ones, and waiting ones unless they are few.
    pub fn folds(self, jobs: usize) -> bool {
        match self {
            Self::Ended => true,
            Self::Waiting => jobs > MAX_WAITING,
            Self::Attention | Self::Running => false,
        }
    }

    /// Returns the section of a job, given the jobs that need attention.
    pub fn for_job(job: &Job, attention: &[JobId]) -> Self {
        match job.state {
            // What failed cannot be helped any more.
            JobState::Ended(_) => Self::Ended,
            _ if attention.contains(&job.id) => Self::Attention,
            JobState::Pending => Self::Waiting,
            _ => Self::Running,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_failed_is_among_those_that_ended() {
        let section = |state, attention: &[JobId]| {
            Section::for_job(&Job::new(JobId(7), "alice".into(), state), attention)
        };
        assert_eq!(section(JobState::Running, &[JobId(7)]), Section::Attention);
        assert_eq!(section(JobState::Running, &[JobId(8)]), Section::Running);
        assert_eq!(section(JobState::Ended("OUT_OF_MEMORY".into()), &[JobId(7)]), Section::Ended);
    }

    #[test]
    fn many_waiting_jobs_do_not_push_others_out_of_sight() {
        let folded = |jobs| Section::ALL.map(|section| section.folds(jobs));
        assert_eq!(folded(4), [false, false, false, true]);
        assert_eq!(folded(5), [false, false, true, true]);
    }
}

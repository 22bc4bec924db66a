//! The sections of the job list.

use nodeglass_protocol::JobId;
use nodeglass_protocol::job::{Job, JobState};

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
}

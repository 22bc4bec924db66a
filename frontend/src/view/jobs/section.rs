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
            _ if attention.contains(&job.id) => Self::Attention,
            JobState::Pending => Self::Waiting,
            JobState::Ended(_) => Self::Ended,
            _ => Self::Running,
        }
    }
}

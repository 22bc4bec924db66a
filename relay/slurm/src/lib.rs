//! SLURM as the source of jobs: runs its commands rarely and with time limits, and parses their output as
//! untrusted.
//!
//! [`Slurm`] performs one poll; [`PollSchedule`] decides when the next is due. Below them, [`command`] runs the
//! commands, and [`squeue`], [`scontrol`] and `sacct` parse their output. [`accounting`] decides when sacct is asked.

use async_trait::async_trait;
use nodeglass_protocol::{Text, cluster::ClusterSummary, job::Job};

pub mod accounting;
pub mod command;
mod gres;
mod job_control;
pub mod members;
pub mod nodes;
mod poll;
mod reason;
#[cfg(test)]
mod recorded_tests;
mod sacct;
pub mod scontrol;
pub mod selection;
pub mod squeue;

pub use job_control::{JobController, SlurmJobControl};
pub use nodeglass_hostlist::{HostlistError, expand};
pub use poll::{NoSlurm, PollReason, PollSchedule, PollTrigger, Slurm};
pub use reason::{explain, explanation};
pub use selection::{Owners, Selection};

/// A source of jobs: SLURM, or a scripted cluster.
#[async_trait]
pub trait JobSource: Send + 'static {
    /// Returns the user's current jobs: pending, running, suspended, completing. Jobs that have ended since the first
    /// list, or shortly before it, may follow with SLURM's state, for as long as SLURM remembers them.
    ///
    /// # Errors
    /// [`JobsError`] if there is no list; the caller keeps the last one and shows its age.
    async fn jobs(&mut self) -> Result<Vec<Job>, JobsError>;

    /// Number of requests to SLURM's controller that the last [`JobSource::jobs`] made.
    fn requests(&self) -> u32 {
        0
    }

    /// Returns whether a list costs nothing, so that a question need not wait for the minimum interval between polls.
    fn is_free(&self) -> bool {
        false
    }

    /// Returns whether it lists the jobs of more than one user.
    fn is_of_many(&self) -> bool {
        false
    }

    /// Returns the name of the cluster once it is known; empty if it has none.
    fn cluster_name(&self) -> Option<&str> {
        Some("")
    }

    /// Takes the nodes and GPUs of the cluster, if the last [`JobSource::jobs`] queried them.
    fn take_cluster(&mut self) -> Option<ClusterSummary> {
        None
    }
}

/// Error of reading the job list; a complete sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct JobsError {
    /// The problem and, if useful, a remedy.
    pub why: Text,
}

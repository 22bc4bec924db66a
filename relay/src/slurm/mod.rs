//! Jobs come from SLURM's own commands, asked rarely, with a time limit, and read as hostile bytes.

use async_trait::async_trait;
use nodeglass_protocol::{Text, job::Job};

/// Where the job list comes from: SLURM, or a script.
#[async_trait]
pub trait JobSource: Send + 'static {
    /// The user's jobs now: pending, running, suspended, completing.
    ///
    /// # Errors
    /// [`JobsError`] when there is no list to be had; the caller keeps the last one and shows its age.
    async fn jobs(&mut self) -> Result<Vec<Job>, JobsError>;
}

/// Why there is no job list; one sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct JobsError {
    /// What went wrong and, where it helps, what to do.
    pub why: Text,
}

//! Jobs come from SLURM's own commands, asked rarely, with a time limit, and read as hostile bytes.
//!
//! [`Slurm`] is one poll; [`Cadence`] says when the next one is due. Below them, [`query`] runs the
//! commands, [`squeue`] and [`scontrol`] read what they print.

use async_trait::async_trait;
use nodeglass_protocol::{Text, job::Job};

mod cadence;
mod details;
mod facts;
mod gres;
mod hostlist;
mod nudge;
mod orders;
pub mod query;
mod reason;
pub mod scontrol;
mod source;
pub mod squeue;

pub use cadence::Cadence;
pub use hostlist::{HostlistError, expand};
pub use nudge::{Nudge, Reason};
pub use orders::{JobOrders, SlurmOrders};
pub use reason::{explain, words};
pub use source::{NoSlurm, Slurm};

/// Where the job list comes from: SLURM, or a script.
#[async_trait]
pub trait JobSource: Send + 'static {
    /// The user's jobs now: pending, running, suspended, completing. A job that this source listed
    /// before may follow as ended, with SLURM's word for how, as long as SLURM remembers it.
    ///
    /// # Errors
    /// [`JobsError`] when there is no list to be had; the caller keeps the last one and shows its age.
    async fn jobs(&mut self) -> Result<Vec<Job>, JobsError>;

    /// How many requests the last [`JobSource::jobs`] made to SLURM's controller.
    fn requests(&self) -> u32 {
        0
    }
}

/// Why there is no job list; one sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct JobsError {
    /// What went wrong and, where it helps, what to do.
    pub why: Text,
}

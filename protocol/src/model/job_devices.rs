//! Devices of a node that a job may see, as the environments of its processes name them.

use crate::{GpuUuid, JobId};
use serde::{Deserialize, Serialize};

/// Maximum number of [`JobDevices`] of a node, and of devices of each kind in one.
pub const MAX_JOB_DEVICES: usize = 128;

/// The devices of one job on a node, from the environments of the user's own processes there. SLURM sets
/// these variables, but a job may change them: they are weaker than what SLURM states itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDevices {
    /// The job.
    pub job: JobId,
    /// GRES indices in `SLURM_STEP_GPUS`, or in `SLURM_JOB_GPUS` of the batch script, in ascending order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gres_indices: Vec<u32>,
    /// UUIDs in `CUDA_VISIBLE_DEVICES` or `NVIDIA_VISIBLE_DEVICES`, in ascending order: `GPU-…`, `MIG-…`, both
    /// possibly abbreviated, or `MIG-GPU-…/1/0` with the ids of GPU instance and compute instance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uuids: Vec<GpuUuid>,
}

impl JobDevices {
    /// Returns whether neither list has more than [`MAX_JOB_DEVICES`].
    pub fn is_bounded(&self) -> bool {
        self.gres_indices.len().max(self.uuids.len()) <= MAX_JOB_DEVICES
    }
}

//! GPUs of a node that a device cgroup denies to its probe.

use crate::JobId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The GPUs of a node that a probe may open, if it may not open all: under `ConstrainDevices=yes`, `pam_slurm_adopt`
/// and `srun` confine it to the GPUs of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The GPUs (`/proc/driver/nvidia/gpus`).
    pub gpus: Visible,
    /// Compute instances of GPUs in MIG mode (`/proc/driver/nvidia/capabilities`).
    #[serde(default)]
    pub instances: Visible,
    /// The job whose cgroup the probe runs in (`/proc/self/cgroup`), if it is one.
    #[serde(default)]
    pub job: Option<JobId>,
    /// Whether `pam_slurm_adopt` moved the probe's login there, rather than `srun`.
    #[serde(default)]
    pub is_adopted: bool,
}

/// Devices of one kind on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visible {
    /// All of them.
    pub devices: u32,
    /// Those that the probe may open.
    pub visible: u32,
}

impl Visible {
    /// Counts one more device.
    pub fn add(&mut self, is_visible: bool) {
        self.devices += 1;
        self.visible += u32::from(is_visible);
    }

    /// Returns whether some are denied.
    pub fn is_partial(self) -> bool {
        self.visible < self.devices
    }

    /// `2 of 8 GPUs`, if any is denied.
    fn part(self, one: &str, many: &str) -> Option<String> {
        let Self { devices, visible } = self;
        let noun = if devices == 1 { one } else { many };
        self.is_partial().then(|| format!("{visible} of {devices} {noun}"))
    }
}

impl Confinement {
    /// Returns whether any device is denied.
    pub fn is_partial(&self) -> bool {
        self.gpus.is_partial() || self.instances.is_partial()
    }

    /// `2 of 8 GPUs and 0 of 7 MIG instances visible`.
    pub fn extent(&self) -> String {
        let parts = [self.gpus.part("GPU", "GPUs"), self.instances.part("MIG instance", "MIG instances")];
        format!("{} visible", parts.into_iter().flatten().collect::<Vec<_>>().join(" and "))
    }
}

/// `2 of 8 GPUs visible: this probe was adopted into job 17`.
impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.extent())?;
        match self.job {
            Some(job) if self.is_adopted => write!(f, "this probe was adopted into job {job}"),
            Some(job) => write!(f, "this probe runs in a step of job {job}"),
            None => f.write_str("the device cgroup of this probe denies the others"),
        }
    }
}

//! AMD GPUs, as the kernel driver amdgpu describes them in sysfs.

mod device;
pub mod gpu_metrics;
mod kfd;
mod levels;
mod partition;
mod ras;

use super::drm::session::DrmSource;

/// The source of AMD GPUs.
pub type AmdSource = DrmSource<device::AmdDevice>;

//! Intel GPUs, as the kernel drivers i915 and Xe describe them in sysfs.

mod device;
mod gt;

use super::drm::session::DrmSource;

/// The source of Intel GPUs.
pub type IntelSource = DrmSource<device::IntelDevice>;

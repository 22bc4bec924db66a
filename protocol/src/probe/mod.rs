//! The probe wire: lines that a probe prints, and control lines that a relay sends.
//!
//! The probe writes NDJSON to stdout. Its first line starts with [`MAGIC`]; anything that a login
//! shell printed before is skipped. The relay writes NDJSON to the probe's stdin.

mod control;
pub mod delta;
mod line;

pub use crate::confinement::{Confinement, Visible};
pub use crate::field::catalogue::GpuSample;
pub use crate::gpu::{GpuFacts, GpuHealth, GpuPath};
pub use crate::host::{HostSample, JobCgroupUsage, JobReadings};
pub use crate::job_devices::{JobDevices, MAX_JOB_DEVICES};
pub use crate::process::{ProcessFacts, ProcessGap, ProcessKind, ProcessReadings};
pub use crate::source::{SourceState, SourceStatus, SourceVersions};
pub use control::Control;
pub use line::*;

/// Prefix of the probe's first line, which distinguishes it from a login banner.
pub const MAGIC: &str = "\u{1e}NODEGLASS1 ";
/// Maximum length of a line in either direction, in bytes.
pub const MAX_LINE: usize = 256 * 1024;
/// Maximum length of a line that is split into [`Piece`]s, in bytes, including its newline.
pub const MAX_WHOLE: usize = 4 * 1024 * 1024;
/// Maximum number of entries in a [`ProcessList`]: 512 ranks, each with a context on all of 8 GPUs.
pub const MAX_PROCESSES: usize = 4_096;
/// Maximum number of bytes before [`MAGIC`].
pub const MAX_NOISE: usize = 64 * 1024;
/// The probe exits if it receives no [`Control`] line for this long.
pub const PING_TIMEOUT_MS: u64 = 30_000;
/// Maximum age of a sample that a probe keeps for a relay that missed it, in ms.
pub const MAX_SAMPLE_AGE_MS: u64 = 600_000;
/// Maximum time between two lines, even while the driver hangs, of a probe that samples every
/// `interval_ms`.
///
/// A sample on schedule also serves as a heartbeat. Nodes without viewers sample slowly; a line
/// every 2 s would dominate their cost.
pub fn heartbeat_ms(interval_ms: u32) -> u64 {
    (u64::from(interval_ms) * 5 / 4).clamp(2_000, 6_000)
}

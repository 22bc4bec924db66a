//! Playing a recording: where it stands, and what a page may change about that.

use crate::JobId;
use serde::{Deserialize, Serialize};

/// Speed of the time in which it was recorded, in %.
pub const REAL_TIME_PCT: u32 = 100;
/// Maximum speed, in % of real time.
pub const MAX_SPEED_PCT: u32 = 60 * REAL_TIME_PCT;

/// The state of a relay that plays a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayStatus {
    /// Time of the first event, by the recording relay's clock, which the relay continues.
    pub from_ms: u64,
    /// Time of the last event.
    pub to_ms: u64,
    /// Time at the last change of the speed or position.
    pub at_ms: u64,
    /// Speed in % of real time; 0 while paused.
    pub speed_pct: u32,
    /// The job to which the recording was reduced.
    pub job: Option<JobId>,
    /// Whether the file ends in a damaged or incomplete part, which is left out.
    pub is_cut_short: bool,
}

/// Changes how a recording is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayCommand {
    /// Plays at this speed in % of real time; 0 pauses.
    Speed(u32),
    /// Continues at this time of the recording relay's clock, in ms.
    Seek(u64),
}

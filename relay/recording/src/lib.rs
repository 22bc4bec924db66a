//! Recordings: what the fleet was sent, in a file from which another relay shows the same.
//!
//! A recording is a [file of frames](nodeglass_platform::frame_file). The first frame is [`Info`], each further one a
//! compressed block of events with their times.

mod cut;
mod event;
mod player;
mod reader;
mod writer;

pub use cut::{CutError, CutSummary, cut, find_job};
use nodeglass_fleet::{Fleet, FleetSettings};
use nodeglass_platform::frame_file::Format;
use nodeglass_protocol::live::Mode;
use nodeglass_protocol::{JobId, Text};
pub use player::{Outputs, Player, PlayerControl};
pub use reader::{Reader, RecordingError};
use serde::{Deserialize, Serialize};
pub use writer::{Recorder, RecorderError, RecordingState};

/// The format of recordings.
const FORMAT: Format = Format { kind: *b"ngrc", name: "recording", version: 2 };
/// Maximum length of a block before compression, in bytes; one event alone may exceed the length at which a block
/// is written.
const MAX_BLOCK: usize = 64 << 20;

/// Origin of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// Version of the recording relay.
    pub version: Text,
    /// Login name of its user.
    pub user: Text,
    /// Its host.
    pub host: Text,
    /// Its cluster, if SLURM has a name for it.
    pub cluster: Option<Text>,
    /// The mode of the recording relay.
    pub mode: Mode,
    /// Its clock at the beginning, in ms.
    pub at_ms: u64,
    /// The time of day then, in ms since 1970.
    pub wall_ms: u64,
    /// Whether probes ran in each of the user's jobs on nodes that confine them.
    #[serde(default)]
    pub has_job_probes: bool,
    /// The job to which the recording was reduced, without what a share of the job hides.
    #[serde(default)]
    pub job: Option<JobId>,
}

impl Info {
    /// An empty fleet for the events of the recording.
    fn fleet(&self, settings: FleetSettings) -> Fleet {
        let mut fleet = Fleet::with_settings(settings);
        if self.has_job_probes {
            fleet.use_jobs_of(self.user.clone());
        }
        fleet
    }

    /// The time of day at a time of the recording relay's clock, in ms since 1970.
    pub fn wall_ms_at(&self, at_ms: u64) -> u64 {
        (self.wall_ms + at_ms).saturating_sub(self.at_ms)
    }
}

#[cfg(test)]
mod tests;

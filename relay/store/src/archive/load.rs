//! Restores a history from its segments.

use super::segment::{FORMAT, Kind, decode, segments};
use nodeglass_history::LongHistory;
use nodeglass_platform::frame_file::{End, FrameReader, OpenError};
use nodeglass_platform::regular_file;
use nodeglass_platform::state_dir::StateDir;
use std::cmp::Reverse;
use std::io::{self, BufReader};

/// Enters what is stored in a directory into a history. A segment that is damaged or of another version is left as it
/// is, and its readable part is used.
///
/// `now_ms` is this run's clock, `wall_ms` the time of day. Takes many seconds for a week of many nodes: not for the
/// event loop. A relay may store in the directory meanwhile.
pub fn load(dir: &StateDir, history: &mut LongHistory, now_ms: u64, wall_ms: u64) {
    let mut found = match segments(dir.path()) {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(dir = %dir.path().display(), %error, "the stored history cannot be read");
            return;
        }
    };
    // The longer steps first, of which the rest of the week follows that exceeds the memory budget.
    found.sort_by_key(|segment| (Reverse(segment.kind), segment.wall_ms));
    let wall_ahead_ms = wall_ms.saturating_sub(now_ms);
    for segment in found {
        let age_ms = wall_ms.saturating_sub(segment.wall_ms);
        let keep = segment.kind.keep() + segment.kind.length();
        if u128::from(age_ms) > keep.as_millis() {
            continue;
        }
        let file = segment.path.display();
        let opened = regular_file::open(&segment.path).map_err(OpenError::from);
        let mut reader = match opened.and_then(|file| FrameReader::open(BufReader::new(file), FORMAT)) {
            Ok(reader) => reader,
            // The relay that loads them deletes old ones meanwhile.
            Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                tracing::warn!(%file, %error, "a part of the stored history cannot be read");
                continue;
            }
        };
        loop {
            match reader.next_frame() {
                Ok(Some(payload)) => match decode(&payload, wall_ahead_ms) {
                    Some(excerpt) if Kind::of(excerpt.step_ms) == segment.kind => {
                        history.restore(&excerpt, now_ms);
                    }
                    _ => tracing::warn!(%file, "a part of the stored history is invalid"),
                },
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%file, %error, "a part of the stored history cannot be read");
                    break;
                }
            }
        }
        if reader.end() == Some(End::Damaged) {
            tracing::warn!(%file, "a part of the stored history is damaged; what precedes it is used");
        }
        history.trim_restored(now_ms);
    }
    history.complete_restored(now_ms);
}

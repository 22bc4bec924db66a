//! Stores when relays ran that stored the history of a host, so that the gaps between them have a name.
//!
//! The file `runs` is a [file of frames](nodeglass_platform::frame_file), each with one run and the time until which it is known
//! to have lasted. The last frame of a run counts.

use nodeglass_history::Span;
use nodeglass_platform::frame_file::{Format, FrameReader, OpenError, push_frame, write_header};
use nodeglass_platform::regular_file;
use nodeglass_platform::state_dir::StateDir;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FILE: &str = "runs";
const FORMAT: Format = Format { kind: *b"ngru", name: "list of runs", version: 1 };
/// Time for which a run is remembered after its end, in ms: as long as the history that it stored.
const KEEP_MS: u64 = 7 * 24 * 3_600_000;
/// Maximum number of runs that are remembered; the oldest are dropped first.
const MAX_RUNS: usize = 64;
/// A shorter time between two runs leaves no gap in the history, in ms.
const SHORTEST_MS: u64 = 10_000;
/// The file is rewritten when it exceeds this length in bytes, after about two days.
const MAX_BYTES: u64 = 64 << 10;

/// A run of a relay, in ms since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    begin_ms: u64,
    last_ms: u64,
}

/// The runs of a host, of which the last one is this run. Only the relay that holds the directory's lock writes them.
#[derive(Debug)]
pub(super) struct Runs {
    path: PathBuf,
    runs: Vec<Run>,
    file: Option<(File, u64)>,
}

impl Runs {
    /// Reads the earlier runs and begins this one at `wall_ms`. What cannot be read is forgotten; a file of another
    /// version is renamed.
    pub(super) fn begin(dir: &StateDir, wall_ms: u64) -> Self {
        let path = dir.path().join(FILE);
        let mut runs = read(&path).unwrap_or_else(|error| {
            tracing::warn!(file = %path.display(), %error, "the list of earlier runs cannot be read");
            if let OpenError::OtherVersion { found, .. } = error {
                let _ = std::fs::rename(&path, path.with_extension(format!("v{found}")));
            }
            Vec::new()
        });
        // A run that seems to last beyond now had another clock.
        runs.retain(|run| run.last_ms <= wall_ms && wall_ms - run.last_ms <= KEEP_MS);
        runs.drain(..runs.len().saturating_sub(MAX_RUNS - 1));
        runs.push(Run { begin_ms: wall_ms, last_ms: wall_ms });
        Self { path, runs, file: None }
    }

    /// The times between runs, in ms since 1970, oldest first.
    pub(super) fn downtimes(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut until_ms = self.runs.first().map_or(0, |run| run.last_ms);
        for run in self.runs.iter().skip(1) {
            if run.begin_ms.saturating_sub(until_ms) >= SHORTEST_MS {
                spans.push(Span { from_ms: until_ms, to_ms: run.begin_ms });
            }
            until_ms = until_ms.max(run.last_ms);
        }
        spans
    }

    /// Records that this run lasts at `wall_ms`.
    ///
    /// # Errors
    /// The file cannot be written; the next call begins it anew.
    pub(super) fn record(&mut self, wall_ms: u64) -> io::Result<()> {
        let Some(run) = self.runs.last_mut() else { return Ok(()) };
        run.last_ms = run.last_ms.max(wall_ms);
        let run = *run;
        let is_usable =
            |(file, length): &(File, u64)| *length < MAX_BYTES && regular_file::is_at(file, &self.path);
        let file = self.file.take().filter(is_usable);
        let (mut file, length) = file.map_or_else(|| self.rewrite(), Ok)?;
        let frame = frame(run)?;
        file.write_all(&frame)?;
        file.sync_data()?;
        self.file = Some((file, length + frame.len() as u64));
        Ok(())
    }

    /// Replaces the file by one with a frame for each run.
    fn rewrite(&self) -> io::Result<(File, u64)> {
        let mut bytes = Vec::new();
        write_header(&mut bytes, FORMAT)?;
        for run in &self.runs {
            bytes.extend(frame(*run)?);
        }
        let new = self.path.with_extension("new");
        // One may be left by a crash.
        let _ = std::fs::remove_file(&new);
        let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&bytes)?;
        file.sync_data()?;
        if let Err(error) = std::fs::rename(&new, &self.path) {
            let _ = std::fs::remove_file(&new);
            // A directory of that name, for one.
            return Err(io::Error::new(error.kind(), format!("failed to replace {FILE}: {error}")));
        }
        Ok((file, bytes.len() as u64))
    }
}

fn frame(run: Run) -> io::Result<Vec<u8>> {
    let payload = postcard::to_stdvec(&run).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    push_frame(&mut bytes, &payload);
    Ok(bytes)
}

/// Reads the runs in a file by their beginning; none if there is no file.
fn read(path: &Path) -> Result<Vec<Run>, OpenError> {
    let file = match regular_file::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    let mut reader = FrameReader::open(BufReader::new(file), FORMAT)?;
    let mut runs = BTreeMap::new();
    while let Some(payload) = reader.next_frame()? {
        if let Ok(run) = postcard::from_bytes::<Run>(&payload)
            && run.begin_ms <= run.last_ms
        {
            runs.insert(run.begin_ms, run);
            if runs.len() > 2 * MAX_RUNS {
                runs.pop_first();
            }
        }
    }
    Ok(runs.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_795_500_000_000;
    const HOUR_MS: u64 = 3_600_000;

    fn scratch() -> (tempfile::TempDir, StateDir) {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("history")).unwrap();
        (folder, dir)
    }

    /// A relay that runs from one time to another, in ms after `NOW_MS`.
    fn run(dir: &StateDir, from_ms: u64, to_ms: u64) {
        let mut runs = Runs::begin(dir, NOW_MS + from_ms);
        for at_ms in (from_ms..=to_ms).step_by(60_000) {
            runs.record(NOW_MS + at_ms).unwrap();
        }
    }

    fn downtimes(dir: &StateDir, at_ms: u64) -> Vec<(u64, u64)> {
        let spans = Runs::begin(dir, NOW_MS + at_ms).downtimes();
        spans.iter().map(|span| (span.from_ms - NOW_MS, span.to_ms - NOW_MS)).collect()
    }

    #[test]
    fn the_times_between_runs_are_downtimes() {
        let (_folder, dir) = scratch();
        assert_eq!(downtimes(&dir, 0), []);
        run(&dir, 0, HOUR_MS);
        run(&dir, 2 * HOUR_MS, 3 * HOUR_MS);
        // A restart that takes less than a step of the history.
        run(&dir, 3 * HOUR_MS + 5_000, 4 * HOUR_MS + 5_000);
        let found = downtimes(&dir, 5 * HOUR_MS);
        assert_eq!(found, [(HOUR_MS, 2 * HOUR_MS), (4 * HOUR_MS + 5_000, 5 * HOUR_MS)]);
    }

    #[test]
    fn a_file_cut_anywhere_yields_the_runs_before_the_cut() {
        let (_folder, dir) = scratch();
        run(&dir, 0, HOUR_MS);
        run(&dir, 2 * HOUR_MS, 2 * HOUR_MS);
        let whole = std::fs::read(dir.path().join(FILE)).unwrap();
        for length in 0..whole.len() {
            std::fs::write(dir.path().join(FILE), &whole[..length]).unwrap();
            let found = downtimes(&dir, 4 * HOUR_MS);
            let is_known = |(from_ms, _): &(u64, u64)| *from_ms <= 2 * HOUR_MS;
            assert!(found.len() <= 2 && found.iter().all(is_known), "{length}: {found:?}");
        }
    }

    #[test]
    fn old_runs_and_those_of_a_clock_ahead_are_forgotten() {
        let (_folder, dir) = scratch();
        run(&dir, 0, HOUR_MS);
        run(&dir, 200 * HOUR_MS, 201 * HOUR_MS);
        assert_eq!(downtimes(&dir, 202 * HOUR_MS), [(201 * HOUR_MS, 202 * HOUR_MS)]);
        // The clock was set back by a day.
        assert_eq!(downtimes(&dir, 178 * HOUR_MS), []);
    }

    #[test]
    fn a_long_run_and_many_short_ones_keep_the_file_small() {
        let (_folder, dir) = scratch();
        for start in 0..200 {
            run(&dir, start * 600_000, start * 600_000);
        }
        run(&dir, 200 * 600_000, 200 * 600_000 + 6_000 * 60_000);
        assert!(std::fs::metadata(dir.path().join(FILE)).unwrap().len() < MAX_BYTES + 64);
        assert_eq!(downtimes(&dir, 700 * HOUR_MS / 5).len(), MAX_RUNS - 1);
    }

    #[test]
    fn a_pipe_of_that_name_is_replaced_and_a_directory_is_reported_and_stays() {
        let (_folder, dir) = scratch();
        regular_file::make_pipe(&dir.path().join(FILE));
        run(&dir, 0, HOUR_MS);
        assert_eq!(downtimes(&dir, 2 * HOUR_MS), [(HOUR_MS, 2 * HOUR_MS)]);
        std::fs::remove_file(dir.path().join(FILE)).unwrap();
        std::fs::create_dir(dir.path().join(FILE)).unwrap();
        let error = Runs::begin(&dir, NOW_MS).record(NOW_MS).unwrap_err().to_string();
        assert!(error.starts_with("failed to replace runs: "), "{error}");
        assert!(dir.path().join(FILE).is_dir() && !dir.path().join("runs.new").exists());
    }

    #[test]
    fn a_list_of_another_version_is_renamed_and_kept() {
        let (_folder, dir) = scratch();
        run(&dir, 0, HOUR_MS);
        let mut newer = std::fs::read(dir.path().join(FILE)).unwrap();
        newer[4] = 99;
        std::fs::write(dir.path().join(FILE), &newer).unwrap();
        run(&dir, 0, HOUR_MS);
        assert_eq!(std::fs::read(dir.path().join("runs.v99")).unwrap(), newer);
        assert_eq!(downtimes(&dir, 2 * HOUR_MS), [(HOUR_MS, 2 * HOUR_MS)]);
    }

    #[test]
    fn another_file_of_that_name_is_replaced() {
        let (_folder, dir) = scratch();
        std::fs::write(dir.path().join(FILE), "not a list").unwrap();
        run(&dir, 0, HOUR_MS);
        assert_eq!(downtimes(&dir, 2 * HOUR_MS), [(HOUR_MS, 2 * HOUR_MS)]);
    }
}

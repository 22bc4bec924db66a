//! Stores the last picture of ended jobs, so that the next relay shows their graphs.
//!
//! Each job is a [file of frames](nodeglass_platform::frame_file) with a single one: JSON, compressed. JSON, because a later build
//! may know more fields.

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use nodeglass_platform::frame_file::{Format, FrameReader, MAX_PAYLOAD, push_frame, write_header};
use nodeglass_platform::regular_file;
use nodeglass_platform::state_dir::StateDir;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::NodePicture;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FORMAT: Format = Format { kind: *b"ngej", name: "picture of an ended job", version: 1 };
const PREFIX: &str = "job-";
const SUFFIX: &str = ".end";
/// Time for which a job is kept, in ms: as long as the history of its nodes.
const KEEP_MS: u64 = 7 * 24 * 3_600_000;
/// Maximum number of jobs; the oldest are deleted first.
const MAX_JOBS: usize = 200;
/// Maximum share of the space for the history that they take.
const SHARE: u64 = 8;
/// Maximum length of a picture before compression, in bytes.
const MAX_LENGTH: u64 = 256 << 20;

/// A job that has ended, with the last picture of its nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedJob {
    /// The job.
    pub job: Job,
    /// Its nodes, in its order.
    pub nodes: Vec<NodePicture>,
}

/// Content of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    /// The watched jobs or machines; a relay that watches others may not show the file.
    watches: String,
    /// Time of day minus the clock of that run, in ms.
    wall_ahead_ms: u64,
    #[serde(flatten)]
    ended: EndedJob,
}

/// A job as it is written.
#[derive(Debug)]
pub(super) struct PackedJob {
    job: Job,
    /// Content of its file.
    pub(super) bytes: Vec<u8>,
}

/// Returns a job as it is written.
///
/// # Errors
/// It is too large.
pub(super) fn pack(watches: &str, wall_ahead_ms: u64, ended: EndedJob) -> io::Result<PackedJob> {
    let job = ended.job.clone();
    let stored = Stored { watches: watches.to_owned(), wall_ahead_ms, ended };
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
    serde_json::to_writer(&mut packed, &stored)?;
    let payload = packed.finish()?;
    if payload.len() > MAX_PAYLOAD {
        return Err(io::Error::other("the picture of an ended job is too large to be stored"));
    }
    let mut bytes = Vec::with_capacity(payload.len() + 16);
    write_header(&mut bytes, FORMAT)?;
    push_frame(&mut bytes, &payload);
    Ok(PackedJob { job, bytes })
}

/// Writes a job, replacing what is stored of it.
pub(super) fn store(dir: &Path, PackedJob { job, bytes }: &PackedJob) -> io::Result<()> {
    remove_other_runs(dir, job)?;
    let path = dir.join(file_name(job));
    let new = path.with_extension("new");
    // One may be left by a crash.
    let _ = std::fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    std::fs::rename(&new, &path)
}

/// Reads the jobs that a relay with another clock stored of what this one `watches`, oldest first. What is damaged or
/// too old is left out.
pub(super) fn load(dir: &StateDir, watches: &str, wall_ms: u64, wall_ahead_ms: u64) -> Vec<EndedJob> {
    let files = files(dir.path()).unwrap_or_default();
    let read = |file: &StoredFile| {
        let stored = read(&file.path).inspect_err(|error| {
            tracing::warn!(file = %file.path.display(), %error, "the picture of an ended job cannot be read");
        });
        let Stored { watches: of, wall_ahead_ms: ahead_ms, mut ended } = stored.ok()?;
        let ended_ms = u64::try_from(ended.job.ended?).ok()?.checked_mul(1_000)?;
        if of != watches || ended_ms > wall_ms || wall_ms - ended_ms > KEEP_MS {
            return None;
        }
        let by_ms = i64::try_from(ahead_ms).ok()?.checked_sub(i64::try_from(wall_ahead_ms).ok()?)?;
        ended.nodes.iter_mut().for_each(|node| node.shift(by_ms));
        Some(ended)
    };
    let mut jobs: Vec<_> = files.iter().rev().filter_map(read).take(MAX_JOBS).collect();
    jobs.reverse();
    jobs
}

/// Deletes jobs that are too old at `wall_ms`, the oldest ones beyond the maximum number and beyond a share of the
/// space `cap`, and what a crash left half written.
pub(super) fn trim(dir: &Path, cap: u64, wall_ms: u64) {
    let mut bytes = 0_u64;
    for (at, file) in files(dir).unwrap_or_default().iter().rev().enumerate() {
        bytes = bytes.saturating_add(file.bytes);
        let is_old = file.ended_s.saturating_mul(1_000).saturating_add(KEEP_MS) < wall_ms;
        if is_old || at >= MAX_JOBS || bytes > cap / SHARE {
            // If it cannot be deleted now, the next call tries again.
            let _ = std::fs::remove_file(&file.path);
        }
    }
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(".new")) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The end of the job that ended last, in ms since 1970.
pub(super) fn newest_ms(dir: &Path) -> Option<u64> {
    files(dir).ok()?.last().map(|file| file.ended_s.saturating_mul(1_000))
}

/// Named by its end and its number.
fn file_name(job: &Job) -> String {
    format!("{PREFIX}{:015}-{}{SUFFIX}", job.ended.unwrap_or(0).max(0), job.id)
}

/// Deletes the pictures of earlier runs of a job, and those stored with another end: SLURM gives a requeued job the
/// same number.
fn remove_other_runs(dir: &Path, job: &Job) -> io::Result<()> {
    let name = file_name(job);
    for file in files(dir)?.iter().filter(|file| file.job == job.id) {
        if file.path.file_name().and_then(|name| name.to_str()) != Some(&name) {
            std::fs::remove_file(&file.path)?;
        }
    }
    Ok(())
}

/// A file of a job.
#[derive(Debug)]
struct StoredFile {
    /// End of the job, in s since 1970.
    ended_s: u64,
    job: JobId,
    path: PathBuf,
    bytes: u64,
}

/// The stored jobs, by their end.
fn files(dir: &Path) -> io::Result<Vec<StoredFile>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let parsed = name.to_str().and_then(|name| {
            let (ended_s, job) = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.split_once('-')?;
            Some((ended_s.parse().ok()?, job.parse().ok()?))
        });
        // Not through a symbolic link.
        let (Some((ended_s, job)), Ok(metadata)) = (parsed, entry.metadata()) else { continue };
        if metadata.is_file() {
            found.push(StoredFile { ended_s, job, path: entry.path(), bytes: metadata.len() });
        }
    }
    found.sort_by_key(|file| (file.ended_s, file.job));
    Ok(found)
}

fn read(path: &Path) -> io::Result<Stored> {
    let mut reader =
        FrameReader::open(BufReader::new(regular_file::open(path)?), FORMAT).map_err(io::Error::other)?;
    let payload = reader.next_frame()?.ok_or_else(|| io::Error::other("the file is damaged"))?;
    Ok(serde_json::from_reader(BufReader::new(ZlibDecoder::new(&*payload).take(MAX_LENGTH)))?)
}

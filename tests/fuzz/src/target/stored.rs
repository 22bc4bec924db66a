//! What a relay reads from disk: recordings that others made, segments of the history, and the database of jobs.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use nodeglass_fleet::Fleet;
use nodeglass_history::LongHistory;
use nodeglass_platform::frame_file::{Format, push_frame, write_header};
use nodeglass_platform::state_dir::StateDir;
use nodeglass_protocol::JobId;
use nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
use nodeglass_recording::Reader;
use nodeglass_report::{Chat, JobRecord};
use nodeglass_store::{Database, Origin, RelayRun, archive};
use std::fs;
use std::io::Write;
use std::path::Path;
use tempfile::TempDir;

const RECORDING: Format = Format { kind: *b"ngrc", name: "recording", version: 2 };
const SEGMENT: Format = Format { kind: *b"nghi", name: "history segment", version: 1 };
/// The time of day at the start, in ms since 1970.
const WALL_MS: u64 = 1_795_500_000_000;

/// A recording: a file as it is, or the origin and the events in lines of JSON, whose frame is then intact.
pub(crate) fn recording(bytes: &[u8]) {
    let (folder, _) = scratch();
    let path = folder.path().join("recording");
    let file = if bytes.starts_with(&RECORDING.kind) {
        bytes.to_vec()
    } else {
        let (info, events) = bytes.split_at(bytes.iter().position(|byte| *byte == b'\n').unwrap_or(0));
        file_of(RECORDING, &[info.to_vec(), packed(events)])
    };
    fs::write(&path, file).expect("a file can be written");
    let Ok(span) = Reader::span(&path) else { return };
    let (from_ms, to_ms) = (span.from_ms, span.to_ms);
    assert!(from_ms <= to_ms, "from {from_ms} to {to_ms}");
    let mut reader = Reader::open(&path).expect("it was opened before");
    let mut fleet = Fleet::with_history_budget(1 << 20);
    let mut newest_ms = from_ms;
    while let Ok(Some((at_ms, event))) = reader.next_event() {
        assert!(at_ms >= newest_ms, "{at_ms} after {newest_ms}");
        newest_ms = at_ms;
        fleet.handle(event, at_ms);
    }
}

/// A segment of the history, whose frame is intact: what is compressed in it.
pub(crate) fn history_segment(bytes: &[u8]) {
    let (_folder, dir) = scratch();
    let path = dir.path().join(format!("10s-{WALL_MS:015}.seg"));
    fs::write(path, file_of(SEGMENT, &[packed(bytes)])).expect("a file can be written");
    let mut history = LongHistory::new(16 << 20);
    archive::load(&dir, &mut history, CLOCK_STARTS_AT_MS, WALL_MS);
    assert!(history.len() <= 16 << 20, "{} bytes", history.len());
}

/// A row of the database: what is stored of a job.
pub(crate) fn job_record(bytes: &[u8]) {
    let Ok(record) = serde_json::from_slice::<JobRecord>(bytes) else { return };
    let report = record.report();
    let text = nodeglass_report::text(&report, None, &|at_s| at_s.to_string());
    assert!(!text.chars().any(|c| c != '\n' && super::names::is_hostile(c)), "{text:?}");
    for chat in [Chat::Slack, Chat::Mattermost] {
        let message = nodeglass_report::message(&report, chat, &|at_s| at_s.to_string());
        assert!(message.matches("```").count() == 2, "{message}");
        assert!(!message.contains(['<', '>']), "{message}");
    }
    serde_json::to_vec(&report).expect("a report becomes JSON");
}

/// The file of the database.
pub(crate) fn database(bytes: &[u8]) {
    let (_folder, dir) = scratch();
    let path = dir.private_file("jobs.db").expect("a file can be created");
    fs::write(path, bytes).expect("a file can be written");
    let origin = Origin { cluster: "juniper".into(), host: "login1".into() };
    let Ok((mut database, _)) = Database::open(&dir) else { return };
    let run = RelayRun::of_this_process("login1".into());
    // Each may fail; none may panic.
    let _ = database.unfinished(&origin).map(|records| database.save(&origin, &records));
    let _ = database.job(JobId(48_213));
    let _ = database.id_of("48213");
    let _ = database.reports_since(0, None);
    let _ = database.notes(&origin);
    let _ = database.notes_of(&origin, JobId(48_213));
    let _ = database.end_lost_views(&run, WALL_MS);
    let _ = database.audit_log(&run, 0, WALL_MS, 100);
}

fn scratch() -> (TempDir, StateDir) {
    // In memory, where a database is written in a tenth of the time.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.expect("a folder");
    let dir = StateDir::at(folder.path().join("state")).expect("a state directory");
    (folder, dir)
}

fn file_of(format: Format, payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    write_header(&mut file, format).expect("memory");
    payloads.iter().for_each(|payload| push_frame(&mut file, payload));
    file
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).expect("memory");
    packed.finish().expect("memory")
}

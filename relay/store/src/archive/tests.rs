//! Histories that are stored and restored by another run of the relay, whatever happened to the files.

use super::ended::{self, EndedJob};
use super::segment::{Kind, segments};
use super::{Archive, ArchiveError, SegmentWriter, load};
use nodeglass_history::{Excerpt, LongHistory, NodeExcerpt, Span, VisibleNode, field_names};
use nodeglass_platform::frame_file::HEADER;
use nodeglass_platform::state_dir::StateDir;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::{CLOCK_STARTS_AT_MS, Topic};
use nodeglass_protocol::picture::{History, NodePicture};
use nodeglass_protocol::range::{RangeQuery, Summaries, Summary};
use nodeglass_protocol::{Cell, Field, GpuField, GpuUuid, JobId, NodeName};
use std::fs;
use std::ops::Range;

const WALL_MS: u64 = 1_795_500_000_000;
const STEP_MS: u64 = 10_000;

fn name() -> NodeName {
    NodeName::new("n1").unwrap()
}

fn uuid() -> GpuUuid {
    GpuUuid::new("GPU-1")
}

fn value(slot: u64) -> u32 {
    (slot % 1_000) as u32
}

/// Every field of one GPU has a value that names its slot.
fn excerpt(slots: Range<u64>) -> Excerpt {
    let mut summaries = Summaries::default();
    slots.clone().for_each(|slot| summaries.push(slot, Summary::of(Cell::steps(value(slot)))));
    let fields = vec![summaries; field_names().0.len()];
    let node = NodeExcerpt { name: name(), host: Vec::new(), gpus: vec![(uuid(), fields)] };
    Excerpt { step_ms: STEP_MS, slots, nodes: vec![node] }
}

/// Stores slots in frames of six, by a relay that started at `wall_ms`.
fn store(dir: &StateDir, wall_ms: u64, slots: Range<u64>) {
    let mut writer = SegmentWriter::new(dir.clone(), 1 << 30, wall_ms - CLOCK_STARTS_AT_MS);
    slots.step_by(6).for_each(|slot| writer.store(excerpt(slot..slot + 6), wall_ms).unwrap());
}

/// The utilisation that a relay restores that starts at `wall_ms`, by slot of ten seconds.
fn restored(dir: &StateDir, wall_ms: u64) -> Vec<(u64, u32)> {
    let mut history = LongHistory::new(64 << 20);
    load(dir, &mut history, CLOCK_STARTS_AT_MS, wall_ms);
    let query = RangeQuery {
        topic: Topic::Overview,
        from_ms: CLOCK_STARTS_AT_MS - 5_400_000,
        to_ms: CLOCK_STARTS_AT_MS,
        step_ms: STEP_MS,
        gpu_fields: vec![GpuField::Util.name().into()],
        host_fields: Vec::new(),
    };
    let nodes = [VisibleNode { name: name(), gpus: vec![(uuid(), Span::ALL)], host: None }];
    let range = history.select(&query, &nodes).read();
    let field = range.nodes[0].gpus[0].fields.first();
    let values = field.into_iter().flat_map(|field| field.since(0));
    values.filter_map(|(slot, summary)| Some((slot, summary?.mean.value()?))).collect()
}

fn scratch() -> (tempfile::TempDir, StateDir) {
    let folder = tempfile::tempdir().unwrap();
    let dir = StateDir::at(folder.path().join("history")).unwrap();
    (folder, dir)
}

const FIRST: u64 = CLOCK_STARTS_AT_MS / STEP_MS;

#[test]
fn the_next_relay_finds_the_slots_at_their_time_of_day() {
    let (_folder, dir) = scratch();
    store(&dir, WALL_MS, FIRST..FIRST + 60);
    // It starts an hour later; its clock reads the same then.
    let slots = restored(&dir, WALL_MS + 3_600_000);
    let expected: Vec<_> = (0..60).map(|slot| (FIRST + slot - 360, value(FIRST + slot))).collect();
    assert_eq!(slots, expected);
    // A fraction of a slot later, they are in the nearest one.
    let slots = restored(&dir, WALL_MS + 3_600_000 + 4_000);
    assert_eq!(slots.first(), Some(&(FIRST - 360, value(FIRST))));
    assert!(restored(&dir, WALL_MS + 8 * 86_400_000).is_empty());
}

#[test]
fn a_segment_cut_at_any_byte_restores_its_complete_frames() {
    let (_folder, dir) = scratch();
    store(&dir, WALL_MS, FIRST..FIRST + 18);
    let path = segments(dir.path()).unwrap()[0].path.clone();
    let bytes = fs::read(&path).unwrap();
    let mut seen = Vec::new();
    for length in 0..=bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        let count = restored(&dir, WALL_MS + 3_600_000).len();
        assert!(count.is_multiple_of(6) && count <= 18 && seen.last().is_none_or(|before| *before <= count));
        seen.push(count);
    }
    assert_eq!(seen.last(), Some(&18));
    // A damaged byte costs that frame and what follows, and never the relay.
    for position in (HEADER..bytes.len()).step_by(5) {
        let mut damaged = bytes.clone();
        damaged[position] ^= 0x10;
        fs::write(&path, &damaged).unwrap();
        assert!(restored(&dir, WALL_MS + 3_600_000).len() < 18);
    }
}

#[test]
fn a_segment_of_another_version_is_left_alone() {
    let (_folder, dir) = scratch();
    store(&dir, WALL_MS, FIRST..FIRST + 6);
    let path = segments(dir.path()).unwrap()[0].path.clone();
    let mut bytes = fs::read(&path).unwrap();
    bytes[4] = 99;
    fs::write(&path, &bytes).unwrap();
    assert!(restored(&dir, WALL_MS + 3_600_000).is_empty());
    store(&dir, WALL_MS + 60_000, FIRST..FIRST + 6);
    assert_eq!(fs::read(&path).unwrap(), bytes);
    assert_eq!(restored(&dir, WALL_MS + 3_600_000).len(), 6);
}

#[test]
fn f24_an_excerpt_that_the_disk_refused_is_stored_with_the_next_one() {
    let (_folder, dir) = scratch();
    let mut writer = SegmentWriter::new(dir.clone(), 1 << 30, WALL_MS - CLOCK_STARTS_AT_MS);
    let moved = dir.path().with_extension("moved");
    fs::rename(dir.path(), &moved).unwrap();
    assert!(writer.store(excerpt(FIRST..FIRST + 6), WALL_MS).is_err());
    fs::rename(&moved, dir.path()).unwrap();
    writer.store(excerpt(FIRST + 6..FIRST + 12), WALL_MS).unwrap();
    assert_eq!(restored(&dir, WALL_MS + 3_600_000).len(), 12);
}

#[test]
fn f27_two_relays_do_not_store_in_one_directory() {
    let (_folder, dir) = scratch();
    let _first = Archive::open(dir.clone(), 1 << 30, || 0, "").unwrap();
    assert!(matches!(Archive::open(dir, 1 << 30, || 0, ""), Err(ArchiveError::Locked(_))));
}

#[test]
fn old_segments_and_those_beyond_the_cap_are_deleted_fine_ones_first() {
    let (_folder, dir) = scratch();
    let now_ms = nodeglass_platform::clock::Clock::wall_ms();
    let file = |kind: Kind, age_ms: u64| dir.path().join(kind.file_name(now_ms - age_ms));
    let hour_ms = 3_600_000;
    let (old, fine, coarse) =
        (file(Kind::Fine, 8 * hour_ms), file(Kind::Fine, 2 * hour_ms), file(Kind::Coarse, 30 * hour_ms));
    for path in [&old, &fine, &coarse] {
        fs::write(path, vec![0; 40_000]).unwrap();
    }
    drop(Archive::open(dir.clone(), 1 << 30, || 0, "").unwrap());
    assert!(!old.exists() && fine.exists() && coarse.exists());
    drop(Archive::open(dir.clone(), 60_000, || 0, "").unwrap());
    assert!(!fine.exists() && coarse.exists());
}

#[test]
fn f08_what_a_clock_ahead_makes_look_old_is_kept_until_it_could_be_set() {
    let (_folder, dir) = scratch();
    let day_ms = 86_400_000;
    let ahead_ms = nodeglass_platform::clock::Clock::wall_ms();
    for age_ms in [8 * day_ms, 8 * day_ms + 7_200_000] {
        store(&dir, ahead_ms - age_ms, 0..6);
    }
    store_ended(&dir, "", ended_job(1, ahead_ms - 8 * day_ms));
    let count = || {
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        names.filter(|name| name.ends_with(".seg") || name.ends_with(".end")).count()
    };
    let archive = Archive::open(dir.clone(), 1 << 30, || 0, "").unwrap();
    archive.store(excerpt(0..6));
    drop(archive);
    assert_eq!(count(), 4);
    // Nor by a second start.
    drop(Archive::open(dir.clone(), 1 << 30, || 0, "").unwrap());
    assert_eq!(count(), 4);
    // Of a clock that is right after all, it is deleted a day later.
    let mut writer = SegmentWriter::new(dir.clone(), 1 << 30, 0);
    fs::remove_file(segments(dir.path()).unwrap().last().unwrap().path.clone()).unwrap();
    writer.begin_aging(ahead_ms);
    writer.trim(ahead_ms + day_ms - 1);
    assert_eq!(count(), 3);
    writer.trim(ahead_ms + day_ms);
    assert!(segments(dir.path()).unwrap().is_empty());
}

#[test]
fn f08_slots_are_stored_at_their_time_by_a_clock_that_was_set_since_the_start() {
    let (_folder, dir) = scratch();
    let start_ms = nodeglass_platform::clock::Clock::wall_ms() - 7_200_000;
    let ahead_ms = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let clock = ahead_ms.clone();
    let set =
        |wall_ms: u64| ahead_ms.store(wall_ms - CLOCK_STARTS_AT_MS, std::sync::atomic::Ordering::Relaxed);
    // A day behind at the start.
    set(start_ms - 86_400_000);
    let wall_ahead_ms = move || clock.load(std::sync::atomic::Ordering::Relaxed);
    let archive = Archive::open(dir.clone(), 1 << 30, wall_ahead_ms, "").unwrap();
    set(start_ms);
    archive.store(excerpt(FIRST..FIRST + 6));
    drop(archive);
    let found = restored(&dir, start_ms + 60_000);
    assert_eq!(found, (FIRST..FIRST + 6).map(|slot| (slot - 6, value(slot))).collect::<Vec<_>>());
}

#[test]
fn the_cap_holds_within_the_hour_of_a_segment() {
    let (_folder, dir) = scratch();
    let cap = 100_000;
    let mut writer = SegmentWriter::new(dir.clone(), cap, WALL_MS - CLOCK_STARTS_AT_MS);
    let (mut written, mut wall_ms) = (0, WALL_MS);
    let stored = || segments(dir.path()).unwrap().iter().map(|segment| segment.bytes).sum::<u64>();
    for slot in (FIRST..).step_by(6) {
        let before = stored();
        wall_ms += 1;
        writer.store(excerpt(slot..slot + 6), wall_ms).unwrap();
        written += stored().saturating_sub(before);
        assert!(stored() < cap + cap / 4, "{} of {cap}", stored());
        if written > 5 * cap {
            break;
        }
    }
    assert!(wall_ms - WALL_MS < 3_600_000 && stored() > cap / 2, "{} of {cap}", stored());
}

#[tokio::test]
async fn f24_a_directory_that_cannot_be_written_is_reported_and_the_relay_lives_on() {
    let (_folder, dir) = scratch();
    let archive = Archive::open(dir.clone(), 1 << 30, || 0, "").unwrap();
    let mut state = archive.state();
    // The thread has begun, and looks after the directory again in a minute.
    while !dir.path().join("runs").exists() {
        std::thread::yield_now();
    }
    // A file in the way of the directory, as permissions do not stop root.
    fs::rename(dir.path(), dir.path().with_extension("moved")).unwrap();
    fs::write(dir.path(), []).unwrap();
    archive.store(excerpt(FIRST..FIRST + 6));
    state.changed().await.unwrap();
    assert!(state.borrow_and_update().is_err());
    fs::remove_file(dir.path()).unwrap();
    fs::rename(dir.path().with_extension("moved"), dir.path()).unwrap();
    archive.store(excerpt(FIRST + 6..FIRST + 12));
    state.changed().await.unwrap();
    assert!(state.borrow_and_update().is_ok());
}

#[test]
fn f24_a_directory_or_a_segment_that_a_user_deletes_is_created_again() {
    let (_folder, dir) = scratch();
    let wall_ms = nodeglass_platform::clock::Clock::wall_ms();
    let archive = Archive::open(dir.clone(), 1 << 30, move || wall_ms - CLOCK_STARTS_AT_MS, "").unwrap();
    let segment = || segments(dir.path()).ok().and_then(|found| found.into_iter().next());
    let stored = |slots| {
        archive.store(excerpt(slots));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while segment().is_none_or(|segment| segment.bytes <= HEADER as u64) {
            assert!(std::time::Instant::now() < deadline, "it is not stored");
            std::thread::yield_now();
        }
    };
    stored(FIRST..FIRST + 6);
    fs::remove_file(segment().unwrap().path).unwrap();
    stored(FIRST + 6..FIRST + 12);
    fs::remove_dir_all(dir.path()).unwrap();
    stored(FIRST + 12..FIRST + 18);
    assert!(
        matches!(Archive::open(dir.clone(), 1 << 30, || 0, ""), Err(ArchiveError::Locked(_))),
        "locked again"
    );
    drop(archive);
    assert_eq!(restored(&dir, wall_ms + 3_600_000).len(), 6, "what was deleted stays so");
}

/// A job that ended when the clock of its relay read an hour more than at its start.
fn ended_job(id: u32, wall_ms: u64) -> EndedJob {
    let ended_ms = CLOCK_STARTS_AT_MS + 3_600_000;
    let mut node = NodePicture::new(name());
    node.sampled_at_ms = Some(ended_ms);
    node.history = Some(History::default());
    node.sampled(ended_ms);
    let wall_s = i64::try_from((wall_ms + 3_600_000) / 1_000).unwrap();
    let state = JobState::Ended("COMPLETED".into());
    let job = Job::new(JobId(id), "alice".into(), state);
    // The later a job ended, the earlier it started.
    let start_s = wall_s - 600 - i64::from(1_000 - id) * 3_600;
    EndedJob { job: Job { start: Some(start_s), ended: Some(wall_s), ..job }, nodes: vec![node] }
}

fn store_ended(dir: &StateDir, watches: &str, ended: EndedJob) {
    ended::store(dir.path(), &ended::pack(watches, 0, ended).unwrap()).unwrap();
}

#[tokio::test]
async fn f24_an_ended_job_that_the_disk_refused_is_stored_with_the_next_excerpt() {
    let (_folder, dir) = scratch();
    let wall_ms = nodeglass_platform::clock::Clock::wall_ms();
    // In the way of the file, as of a full disk.
    let job = ended_job(7, wall_ms - 2 * 3_600_000);
    store_ended(&dir, "", job.clone());
    let path = ended_file(&dir, 7);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let archive = Archive::open(dir.clone(), 1 << 30, move || wall_ms - CLOCK_STARTS_AT_MS, "").unwrap();
    let mut state = archive.state();
    archive.store_jobs(vec![job.clone()]);
    state.changed().await.unwrap();
    assert!(state.borrow_and_update().is_err());
    fs::remove_dir(&path).unwrap();
    archive.store(excerpt(FIRST..FIRST + 6));
    state.changed().await.unwrap();
    assert!(state.borrow_and_update().is_ok() && archive.lost() == 0);
    drop(archive);
    let jobs = ended::load(&dir, "", wall_ms, wall_ms - CLOCK_STARTS_AT_MS);
    assert_eq!(jobs.iter().map(|ended| ended.job.id).collect::<Vec<_>>(), [job.job.id]);
}

#[test]
fn f24_more_jobs_that_end_together_than_the_queue_has_places_are_all_stored() {
    let (_folder, dir) = scratch();
    let wall_ms = nodeglass_platform::clock::Clock::wall_ms();
    let archive = Archive::open(dir.clone(), 1 << 30, move || wall_ms - CLOCK_STARTS_AT_MS, "").unwrap();
    archive.store_jobs((1..=50).map(|id| ended_job(id, wall_ms - 3_600_000)).collect());
    assert_eq!(archive.lost(), 0);
    drop(archive);
    assert!((1..=50).all(|id| ended_file(&dir, id).exists()));
}

#[test]
fn ended_jobs_are_shown_by_the_next_relay_that_watches_the_same() {
    let (_folder, dir) = scratch();
    let now_ms = nodeglass_platform::clock::Clock::wall_ms();
    // The relay before started three hours ago, this one now.
    let (first, second) = (now_ms - 3 * 3_600_000, now_ms);
    let archive = |wall_ms: u64, watches: &str| {
        Archive::open(dir.clone(), 1 << 30, move || wall_ms - CLOCK_STARTS_AT_MS, watches).unwrap()
    };
    let before = archive(first, "alice's jobs");
    before.store_jobs(vec![ended_job(7, first), ended_job(8, first)]);
    // SLURM reports its exit code later.
    let mut completed = ended_job(7, first);
    completed.job.exit = Some("0:0".into());
    before.store_jobs(vec![completed.clone()]);
    drop(before);
    assert_eq!(archive(second, "all jobs").take_jobs(), []);
    let jobs = archive(second, "alice's jobs").take_jobs();
    assert_eq!(jobs.iter().map(|ended| ended.job.id).collect::<Vec<_>>(), [JobId(7), JobId(8)]);
    assert_eq!(jobs[0].job, completed.job);
    // The same moment by this relay's clock.
    let at_ms = jobs[0].nodes[0].sampled_at_ms.unwrap();
    assert_eq!(at_ms, CLOCK_STARTS_AT_MS - 2 * 3_600_000);
    let history = jobs[0].nodes[0].history.as_ref().unwrap();
    let cpu = history.host.iter().next().unwrap().1;
    assert_eq!(cpu.points().last().unwrap().0, at_ms);
    // A week after its end, a job is forgotten.
    assert_eq!(ended::load(&dir, "alice's jobs", now_ms + 8 * 86_400_000, 0), []);
}

#[test]
fn a_damaged_ended_job_is_left_out_and_many_are_trimmed() {
    let (_folder, dir) = scratch();
    let now_ms = nodeglass_platform::clock::Clock::wall_ms();
    let began_ms = |id: u32| now_ms - 7_200_000 - u64::from(210 - id) * 60_000;
    for id in 0..210 {
        store_ended(&dir, "", ended_job(id, began_ms(id)));
    }
    fs::write(dir.path().join("job-000000000000007-7.new"), "of a crash").unwrap();
    let left = |dir: &StateDir| {
        ended::load(dir, "", now_ms, 0).iter().map(|ended| ended.job.id.0).collect::<Vec<_>>()
    };
    // Those of another selection of jobs take no place of others.
    store_ended(&dir, "all jobs", ended_job(999, began_ms(210)));
    assert_eq!(left(&dir), (10..210).collect::<Vec<_>>());
    fs::remove_file(ended_file(&dir, 999)).unwrap();
    ended::trim(dir.path(), 1 << 30, now_ms);
    assert_eq!((left(&dir), fs::read_dir(dir.path()).unwrap().count()), ((10..210).collect(), 200));
    for (at, id) in [10, 11, 12].into_iter().enumerate() {
        let path = ended_file(&dir, id);
        let bytes = fs::read(&path).unwrap();
        let damaged = [&bytes[..bytes.len() / 2], &bytes[..0], b"not a picture"][at];
        fs::write(&path, damaged).unwrap();
    }
    assert_eq!(left(&dir), (13..210).collect::<Vec<_>>());
    ended::trim(dir.path(), 1 << 30, now_ms + 8 * 86_400_000);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// The file of an ended job.
fn ended_file(dir: &StateDir, id: u32) -> std::path::PathBuf {
    let suffix = format!("-{id}.end");
    let mut paths = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    paths.find(|path| path.to_string_lossy().ends_with(&suffix)).unwrap()
}

#[test]
fn of_a_requeued_job_the_last_run_stays() {
    let (_folder, dir) = scratch();
    let now_ms = nodeglass_platform::clock::Clock::wall_ms();
    let (first, second) = (ended_job(7, now_ms - 9_000_000), ended_job(7, now_ms - 7_200_000));
    store_ended(&dir, "", first);
    store_ended(&dir, "", second.clone());
    let jobs = ended::load(&dir, "", now_ms, 0);
    assert_eq!(jobs.iter().map(|ended| &ended.job).collect::<Vec<_>>(), [&second.job]);
}

//! Recordings of a small fleet: what is written is what is played, whatever happens to the file.

use super::event::RecordedEvent;
use super::reader::Span;
use super::writer::Writer;
use super::*;
use nodeglass_fleet::scene::{self, health, hello, job, name, process, process_readings, sample, since};
use nodeglass_fleet::{Event, NoteChange, SessionEvent};
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::note::{Note, NoteId, NoteSource};
use nodeglass_protocol::picture::{GpuPicture, NodePicture};
use nodeglass_protocol::probe::GpuSample;
use nodeglass_protocol::probe::ProbeLine;
use nodeglass_protocol::replay::ReplayCommand;
use nodeglass_protocol::{GpuField, JobId};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

const BEGIN_MS: u64 = 700_000_000;
const WALL_AHEAD_MS: i64 = 1_699_300_000_000;

fn info() -> Info {
    Info {
        version: "1.0.0".into(),
        user: "alice".into(),
        host: "login1".into(),
        cluster: None,
        mode: Mode::Slurm,
        at_ms: BEGIN_MS,
        wall_ms: 1_700_000_000_000,
        has_job_probes: false,
        job: None,
    }
}

fn node_line(line: ProbeLine) -> Event {
    Event::Node(name("n1"), SessionEvent::Line(Box::new(line.into())))
}

/// A job on one node, for a number of seconds.
fn events(seconds: u64) -> Vec<(u64, Event)> {
    let mut all = vec![
        (0, Event::Jobs { jobs: vec![job(1, &[("n1", &[0, 1])])], wall_ahead_ms: WALL_AHEAD_MS }),
        (5, Event::Node(name("n1"), SessionEvent::Connecting { failures: 0 })),
        (40, node_line(hello("n1", &[0, 1]))),
        (50, node_line(health(&[(0, 0, 0), (1, 0, 0)]))),
        (60, node_line(process("n1", 0, 4_321, Some(1)))),
    ];
    for second in 1..=seconds {
        let utils = [second % 100, 40];
        let line = match second % 30 {
            1 => sample(second, &utils),
            _ => since(Some(second - 1), sample(second, &utils)),
        };
        all.push((second * 1_000, node_line(line)));
        all.push((second * 1_000 + 3, node_line(process_readings(second << 20))));
    }
    all.into_iter().map(|(after_ms, event)| (BEGIN_MS + after_ms, event)).collect()
}

fn record(path: &Path, events: &[(u64, Event)]) {
    let mut recorder = Recorder::create(path, &info()).unwrap();
    events.iter().for_each(|(at_ms, event)| recorder.record(*at_ms, event));
}

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.ngrc");
    (folder, path)
}

fn played(path: &Path) -> (Vec<(u64, Event)>, bool) {
    let mut reader = Reader::open(path).unwrap();
    let mut events = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        events.push(event);
    }
    (events, reader.is_cut_short())
}

/// The nodes of a fleet that handled these events.
fn nodes(events: &[(u64, Event)]) -> Vec<NodePicture> {
    let mut fleet = Fleet::new();
    events.iter().for_each(|(at_ms, event)| fleet.handle(event.clone(), *at_ms));
    fleet.nodes_of(&Topic::Overview).unwrap().into_iter().cloned().collect()
}

#[test]
fn a_replayed_fleet_equals_the_recorded_one() {
    let (_folder, path) = scratch();
    let events = events(70);
    record(&path, &events);
    let (replayed, is_cut_short) = played(&path);
    assert!(!is_cut_short);
    assert_eq!(nodes(&replayed), nodes(&events));
    assert!(nodes(&events)[0].gpus.len() == 2 && nodes(&events)[0].processes.len() == 1);
    let to_ms = BEGIN_MS + 70_003;
    assert_eq!(Reader::span(&path).unwrap(), Span { from_ms: BEGIN_MS, to_ms, lost_bytes: 0 });
}

#[test]
fn a_recording_never_overwrites_a_file_and_is_private() {
    use std::os::unix::fs::MetadataExt;
    let (_folder, path) = scratch();
    record(&path, &events(1));
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    let before = fs::read(&path).unwrap();
    let error = Recorder::create(&path, &info()).unwrap_err().to_string();
    assert!(error.contains("choose another name"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_truncated_recording_plays_up_to_its_last_complete_block() {
    let (_folder, path) = scratch();
    let all = events(40);
    record(&path, &all);
    let bytes = fs::read(&path).unwrap();
    for length in (0..bytes.len()).step_by(7) {
        fs::write(&path, &bytes[..length]).unwrap();
        match Reader::open(&path) {
            Ok(_) => {
                let (events, is_cut_short) = played(&path);
                assert!(events.len() <= all.len());
                assert!(is_cut_short || events.is_empty(), "cut at {length}");
            }
            Err(error) => assert!(error.to_string().contains("cannot be replayed"), "{error}"),
        }
    }
}

#[test]
fn a_modified_recording_never_panics_and_says_that_it_is_incomplete() {
    let (_folder, path) = scratch();
    record(&path, &events(20));
    let bytes = fs::read(&path).unwrap();
    for position in (8..bytes.len()).step_by(3) {
        let mut modified = bytes.clone();
        modified[position] ^= 0x41;
        fs::write(&path, &modified).unwrap();
        if let Ok(mut reader) = Reader::open(&path) {
            while reader.next_event().unwrap().is_some() {}
            assert!(reader.is_cut_short(), "byte {position}");
        }
    }
}

/// A recording of three blocks, each a second after the one before, and a frame that is no block.
fn ends_in(frame: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let (folder, path) = scratch();
    let mut writer = Writer::create(&path, &info()).unwrap();
    for second in 0..3 {
        writer.push(BEGIN_MS + second * 1_000, RecordedEvent::of(Event::NoSlurm).unwrap()).unwrap();
        writer.finish().unwrap();
    }
    let mut bytes = fs::read(&path).unwrap();
    nodeglass_platform::frame_file::push_frame(&mut bytes, frame);
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

#[test]
fn a_last_block_that_cannot_be_read_is_lost_and_no_other() {
    let (_folder, path) = ends_in(b"no block");
    let expected = Span { from_ms: BEGIN_MS, to_ms: BEGIN_MS + 2_000, lost_bytes: 16 };
    assert_eq!(Reader::span(&path).unwrap(), expected);
    // It is complete, but of a newer build.
    let (_folder, path) = ends_in(&packed(b"{\"news\":1}\n"));
    assert_eq!(Reader::span(&path).unwrap(), Span { lost_bytes: 0, ..expected });
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    let lost_bytes = 8 + packed(b"{\"news\":1}\n").len() as u64 - 3;
    assert_eq!(Reader::span(&path).unwrap(), Span { lost_bytes, ..expected });
}

fn packed(json: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(json).unwrap();
    packed.finish().unwrap()
}

#[test]
fn a_file_of_another_kind_is_refused_with_the_reason() {
    let (folder, path) = scratch();
    fs::write(&path, "no recording at all").unwrap();
    let error = Reader::open(&path).unwrap_err().to_string();
    assert!(error.contains("not a recording") && error.contains("run.ngrc"), "{error}");
    let error = Reader::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
}

#[test]
fn times_that_a_file_claims_stay_in_order_and_within_bounds() {
    let (_folder, path) = scratch();
    let tick = |at_ms| (at_ms, Event::NoSlurm);
    record(&path, &[tick(BEGIN_MS + 9_000), tick(BEGIN_MS), tick(u64::MAX)]);
    let (events, _) = played(&path);
    let times: Vec<_> = events.iter().map(|(at_ms, _)| *at_ms).collect();
    assert_eq!(times[..2], [BEGIN_MS + 9_000; 2]);
    assert!(times[2] < BEGIN_MS + 11 * 366 * 86_400_000);
}

/// Two users' jobs share a node: alice's job 1 has GPU 0, bob's job 2 has GPU 1.
fn shared_node() -> Vec<(u64, Event)> {
    let mut bobs = job(2, &[("n1", &[1])]);
    (bobs.user, bobs.name) = ("bob".into(), "secret-project".into());
    let mut alices = job(1, &[("n1", &[0])]);
    (alices.user, alices.name) = ("alice".into(), "train".into());
    alices.command = Some("/home/alice/train.sh --token=hunter2".into());
    let with = |mut line: ProbeLine, user: &str, args: &str| {
        if let ProbeLine::Processes(list) = &mut line {
            for process in &mut list.processes {
                process.facts.user = nodeglass_protocol::Reading::Value(user.into());
                process.facts.args = nodeglass_protocol::Reading::Value(args.into());
            }
        }
        line
    };
    let (mut own, others) = (
        with(process("n1", 0, 100, Some(1)), "alice", "python train.py --data /secret/path"),
        with(process("n1", 1, 98_765, Some(2)), "bob", "python leak.py"),
    );
    if let (ProbeLine::Processes(own), ProbeLine::Processes(others)) = (&mut own, others) {
        own.processes.splice(0..0, others.processes);
    }
    let mut all = vec![
        (0, Event::Jobs { jobs: vec![bobs.clone()], wall_ahead_ms: WALL_AHEAD_MS }),
        (40, node_line(hello("n1", &[0, 1]))),
        (50, node_line(health(&[(0, 0, 0), (1, 0, 0)]))),
        // Alice's job starts on a node whose probe runs for bob's.
        (15_000, Event::Jobs { jobs: vec![alices, bobs], wall_ahead_ms: WALL_AHEAD_MS }),
        (15_100, node_line(own)),
    ];
    all.extend((16..60).map(|second| (second * 1_000, node_line(sample(second, &[77, 33])))));
    all.push((60_000, Event::Node(name("n1"), SessionEvent::Noise("welcome, alice, to /home/alice".into()))));
    all.into_iter().map(|(after_ms, event)| (BEGIN_MS + after_ms, event)).collect()
}

#[test]
fn a_cut_has_the_job_alone_and_nothing_that_its_share_hides() {
    let (folder, path) = scratch();
    record(&path, &shared_node());
    let to = folder.path().join("cut.rec");
    let summary = cut(&path, &to, JobId(1)).unwrap();
    assert_eq!((summary.gpus, summary.job.name.as_str(), summary.length_ms), (1, "train", 44_000));
    assert_eq!(summary.bytes, to.metadata().unwrap().len());
    assert_eq!(summary.lost_bytes, 0);
    let (events, is_cut_short) = played(&to);
    assert!(!is_cut_short && Reader::open(&to).unwrap().info().job == Some(JobId(1)));
    let everything = format!("{events:?}");
    for hidden in ["bob", "secret", "leak", "hunter2", "/home/alice", "98765", "train.py"] {
        assert!(!everything.contains(hidden), "{hidden} is still there");
    }
    let shown = nodes(&events);
    assert_eq!((shown.len(), shown[0].gpus.len(), shown[0].processes.len()), (1, 1, 1));
    assert_eq!(shown[0].gpus[0].row.value(nodeglass_protocol::GpuField::Util), Some(77));
    assert_eq!(shown[0].processes[0].facts.pid, 100);
    let whole = path.metadata().unwrap().len();
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"damaged part").unwrap();
    let damaged = cut(&path, &folder.path().join("damaged.rec"), JobId(1)).unwrap();
    assert_eq!((damaged.lost_bytes, damaged.length_ms), (12, summary.length_ms));
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(whole).unwrap();
    let other = cut(&path, &folder.path().join("other.rec"), JobId(2)).unwrap();
    assert_eq!(other.gpus, 1);
}

#[test]
fn t09_a_cut_has_the_readings_of_a_gpu_only_while_it_is_the_jobs() {
    let (folder, path) = scratch();
    let wall_s = (BEGIN_MS.cast_signed() + WALL_AHEAD_MS) / 1_000;
    let mut bobs = job(2, &[("n1", &[0])]);
    bobs.user = "bob".into();
    let again = Job { start: Some(wall_s + 30), ..job(1, &[("n1", &[1])]) };
    let listed = |jobs| Event::Jobs { jobs, wall_ahead_ms: WALL_AHEAD_MS };
    let mut all = vec![
        (0, listed(vec![job(1, &[("n1", &[0])])])),
        (40, node_line(hello("n1", &[0, 1]))),
        (50, node_line(health(&[(0, 11, 0), (0, 22, 0)]))),
        // The job is requeued, and gets the other GPU.
        (30_500, listed(vec![again, bobs])),
    ];
    for second in 1..=60 {
        let mut line = sample(second, &[if second <= 30 { 77 } else { 55 }, 33]);
        if let ProbeLine::Sample(sample) = &mut line
            && second > 1
        {
            // The readings of this one do not change.
            sample.gpus[1] = GpuSample::default();
        }
        let before = (second > 1).then(|| second - 1);
        all.push((second * 1_000, node_line(since(before, line))));
    }
    all.sort_by_key(|(after_ms, _)| *after_ms);
    let all: Vec<_> = all.into_iter().map(|(after_ms, event)| (BEGIN_MS + after_ms, event)).collect();
    record(&path, &all);
    let to = folder.path().join("cut.rec");
    assert_eq!(cut(&path, &to, JobId(1)).unwrap().gpus, 2);
    let (events, _) = played(&to);
    let shown = |until_s: u64| {
        let until = events.partition_point(|(at_ms, _)| *at_ms <= BEGIN_MS + until_s * 1_000);
        let node = nodes(&events[..until]).remove(0);
        let readings =
            |gpu: &GpuPicture| (gpu.row.value(GpuField::Util), gpu.health.pcie_replays.value().copied());
        [readings(&node.gpus[0]), readings(&node.gpus[1])]
    };
    assert_eq!(shown(30), [(Some(77), Some(11)), (None, None)]);
    assert_eq!(shown(60), [(None, None), (Some(33), Some(22))]);
}

#[test]
fn t09_a_cut_has_no_job_of_another_user_with_the_same_number() {
    let (folder, path) = scratch();
    let mut all = events(10);
    let bobs = Job { user: "bob".into(), name: "secret".into(), ..job(1, &[("n1", &[0, 1])]) };
    let listed = Event::Jobs { jobs: vec![bobs], wall_ahead_ms: WALL_AHEAD_MS };
    all.push((BEGIN_MS + 10_500, listed));
    all.extend((11..=20).map(|second| (BEGIN_MS + second * 1_000, node_line(sample(second, &[99, 99])))));
    record(&path, &all);
    let to = folder.path().join("cut.rec");
    cut(&path, &to, JobId(1)).unwrap();
    let (events, _) = played(&to);
    let everything = format!("{events:?}");
    assert!(!everything.contains("bob") && !everything.contains("secret"), "{everything}");
    let last_ms =
        events.iter().filter(|(_, event)| matches!(event, Event::Node(..))).map(|(at_ms, _)| *at_ms).max();
    assert!(last_ms < Some(BEGIN_MS + 10_500), "{last_ms:?}");
}

#[test]
fn a_cut_has_the_samples_that_a_probe_kept_for_the_job() {
    let (folder, path) = scratch();
    let wall_s = (BEGIN_MS.cast_signed() + WALL_AHEAD_MS) / 1_000;
    let old = Job { start: Some(wall_s - 7_200), ..job(1, &[("n1", &[0])]) };
    let mut all = vec![
        (0, Event::Jobs { jobs: vec![old], wall_ahead_ms: WALL_AHEAD_MS }),
        (40, node_line(hello("n1", &[0]))),
    ];
    // Before the relay started, and while the link was interrupted.
    all.extend((1..=10).map(|second| (500, node_line(scene::replay(second, &[70])))));
    all.extend((11..=20).map(|second| ((second - 10) * 1_000, node_line(sample(second, &[80])))));
    all.push((21_000, Event::Node(name("n1"), SessionEvent::Connecting { failures: 0 })));
    all.push((30_000, node_line(hello("n1", &[0]))));
    all.extend((21..=30).map(|second| (30_500, node_line(scene::replay(second, &[90])))));
    all.push((31_000, node_line(sample(31, &[80]))));
    let all: Vec<_> = all.into_iter().map(|(after_ms, event)| (BEGIN_MS + after_ms, event)).collect();
    record(&path, &all);
    let to = folder.path().join("cut.rec");
    cut(&path, &to, JobId(1)).unwrap();
    let node = nodes(&played(&to).0).remove(0);
    let trace = node.history.as_ref().unwrap().gpu(0, GpuField::Util).unwrap();
    let values: Vec<u32> = trace.points().filter_map(|(_, cell)| cell?.value()).collect();
    let count = |of: u32| values.iter().filter(|value| **value == of).count();
    assert_eq!([count(70), count(90)], [10, 10]);
}

#[test]
fn t09_a_cut_ends_where_a_gpu_may_be_the_next_users() {
    let (folder, path) = scratch();
    let recorded = |answer: Option<Event>| {
        let mut all = events(20);
        let failed = Event::JobsFailed { why: "timeout".into(), retry_at_ms: BEGIN_MS };
        all.push((BEGIN_MS + 20_500, failed));
        // SLURM is silent. Another user's process appears on the GPU.
        let mut next = process("n1", 0, 98_765, Some(2));
        if let ProbeLine::Processes(list) = &mut next {
            let facts = &mut list.processes[0].facts;
            facts.user = nodeglass_protocol::Reading::Value("bob".into());
            let started_ms = BEGIN_MS + WALL_AHEAD_MS.cast_unsigned() + 30_000;
            facts.started_ms = nodeglass_protocol::Reading::Value(started_ms);
        }
        all.push((BEGIN_MS + 31_000, node_line(next)));
        all.extend((32..60).map(|second| (BEGIN_MS + second * 1_000, node_line(sample(second, &[99, 99])))));
        all.extend(answer.map(|answer| (BEGIN_MS + 60_000, answer)));
        let _ = std::fs::remove_file(&path);
        record(&path, &all);
        let to = folder.path().join("cut.rec");
        let _ = std::fs::remove_file(&to);
        cut(&path, &to, JobId(1)).unwrap();
        let of_node =
            |(at_ms, event): (u64, Event)| matches!(event, Event::Node(..)).then_some(at_ms - BEGIN_MS);
        played(&to).0.into_iter().filter_map(of_node).max().unwrap()
    };
    let listed = |state, ended| Event::Jobs {
        jobs: vec![Job { state, ended, ..job(1, &[("n1", &[0, 1])]) }],
        wall_ahead_ms: WALL_AHEAD_MS,
    };
    assert!(recorded(None) <= 31_000, "nothing confirms it");
    let wall_s = (BEGIN_MS.cast_signed() + WALL_AHEAD_MS) / 1_000;
    let ended = recorded(Some(listed(JobState::Ended("COMPLETED".into()), Some(wall_s + 10))));
    assert!(ended <= 10_000, "{ended}");
    assert_eq!(recorded(Some(listed(JobState::Running, None))), 59_000, "its own user's guest");
}

#[test]
fn a_cut_is_as_long_as_the_job_and_not_as_the_recording() {
    let (folder, path) = scratch();
    let listed = |after_s: u64, state: JobState| {
        let job = Job { state, ..job(1, &[("n1", &[0])]) };
        (BEGIN_MS + after_s * 1_000, Event::Jobs { jobs: vec![job], wall_ahead_ms: WALL_AHEAD_MS })
    };
    let failed = |after_s: u64| {
        let failed = Event::JobsFailed { why: "timeout".into(), retry_at_ms: BEGIN_MS };
        (BEGIN_MS + after_s * 1_000, failed)
    };
    let mut all = vec![failed(1), listed(10, JobState::Pending), listed(60, JobState::Running)];
    all.extend([failed(90), listed(120, JobState::Ended("COMPLETED".into())), failed(150)]);
    all.extend((3..20).map(|minute| listed(minute * 60, JobState::Ended("COMPLETED".into()))));
    record(&path, &all);
    let to = folder.path().join("cut.rec");
    assert_eq!(cut(&path, &to, JobId(1)).unwrap().length_ms, 60_000);
    let Span { from_ms, to_ms, .. } = Reader::span(&to).unwrap();
    assert_eq!((from_ms, to_ms), (BEGIN_MS + 60_000, BEGIN_MS + 120_000));
}

#[test]
fn a_job_that_is_not_in_a_recording_is_answered_with_those_that_are() {
    let (folder, path) = scratch();
    record(&path, &shared_node());
    let to = folder.path().join("cut.rec");
    let error = cut(&path, &to, JobId(7)).unwrap_err().to_string();
    assert_eq!(error, "job 7 does not run in this recording; it has 1 (train), 2 (secret-project)");
    assert!(!to.exists());
}

const WRITER_PATH: &str = "NODEGLASS_RECORDING_WRITER_PATH";

/// The child of the test below: writes block after block, and prints each once it is in the file.
#[test]
#[ignore = "it is run by other tests, as a child process"]
fn block_writer() {
    let path = PathBuf::from(std::env::var_os(WRITER_PATH).expect("started by the next test"));
    let mut writer = Writer::create(&path, &info()).unwrap();
    for (number, (at_ms, event)) in events(2_000).into_iter().enumerate() {
        writer.push(at_ms, RecordedEvent::of(event).unwrap()).unwrap();
        if number % 8 == 7 {
            writer.finish().unwrap();
            println!("written {}", number + 1);
        }
    }
}

#[test]
fn f13_what_was_written_survives_a_killed_relay() {
    let folder = tempfile::tempdir().unwrap();
    let expected = events(2_000);
    for kill in 0..200u64 {
        let path = folder.path().join(format!("{kill}.rec"));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture", "tests::block_writer"])
            .env(WRITER_PATH, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut text = String::new();
        while !text.contains("written") {
            assert!(output.read_line(&mut text).unwrap() > 0, "the writer ended by itself");
        }
        // Spread over the steps of a block, which takes less than a ms.
        thread::sleep(Duration::from_micros(kill * 7_919 % 3_000));
        child.kill().unwrap();
        child.wait().unwrap();
        output.read_to_string(&mut text).unwrap();
        // The last line may be incomplete.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let written = whole.lines().rev().find_map(|line| line.rsplit_once("written ")?.1.parse().ok());
        let written: usize = written.unwrap();
        let (found, _) = played(&path);
        assert!(found.len() >= written && found.len() <= expected.len(), "{} of {written}", found.len());
        let same = format!("{found:?}") == format!("{:?}", &expected[..found.len()]);
        assert!(same, "kill {kill} changed events");
        fs::remove_file(&path).unwrap();
    }
}

/// Notes of two jobs and of the cluster, by the owner, from an earlier run, and by the job itself.
#[test]
fn notes_are_played_and_a_cut_has_those_of_its_job_alone() {
    let (_folder, path) = scratch();
    let note = |id, job: Option<u32>, text: &str| Note {
        id: NoteId::from_bits(id),
        job: job.map(JobId),
        node: None,
        rank: None,
        at_ms: id,
        text: text.into(),
        source: NoteSource::Api,
    };
    let put = |id, job, text| NoteChange::Put(note(id, job, text));
    let stored = vec![put(1, Some(1), "restored"), put(2, Some(2), "secret"), put(3, None, "secret")];
    let mut all = vec![(BEGIN_MS, Event::RestoredNotes(stored))];
    all.extend(shared_node());
    let (at_ms, _) = all[all.len() - 1];
    all.push((at_ms, Event::Note(put(4, Some(1), "clicked"))));
    all.push((at_ms, Event::Note(put(5, Some(2), "secret"))));
    all.push((at_ms, Event::Note(NoteChange::Delete(NoteId::from_bits(5)))));
    all.push((at_ms, node_line(scene::notes(1, 1, &["written"]))));
    all.push((at_ms, node_line(scene::notes(2, 1, &["secret"]))));
    record(&path, &all);
    let texts = |events: Vec<(u64, Event)>| {
        let mut fleet = info().fleet(FleetSettings::default());
        events.into_iter().for_each(|(at_ms, event)| fleet.handle(event, at_ms));
        let mut texts: Vec<_> = fleet.notes().iter().map(|note| note.text.to_string()).collect();
        texts.sort();
        texts
    };
    let secrets = ["secret"; 3];
    let whole = texts(played(&path).0);
    assert_eq!(whole, [&["clicked", "restored"][..], &secrets, &["written"]].concat());
    assert_eq!(whole, texts(all));
    let out = path.with_file_name("cut.ngrc");
    cut(&path, &out, JobId(1)).unwrap();
    assert_eq!(texts(played(&out).0), ["clicked", "restored", "written"]);
    assert!(!String::from_utf8_lossy(&fs::read(&out).unwrap()).contains("secret"));
}

#[test]
fn t18_a_list_of_jobs_in_a_recording_names_a_bounded_number_of_nodes() {
    let (_folder, path) = scratch();
    let nodes = (0..40_000).map(|node| name(&format!("n{node}"))).collect();
    let jobs = vec![Job { nodes, ..job(1, &[]) }, job(2, &[("n1", &[]), ("other", &[])])];
    record(&path, &[(BEGIN_MS, Event::Jobs { jobs, wall_ahead_ms: WALL_AHEAD_MS })]);
    let Event::Jobs { jobs, .. } = &played(&path).0[0].1 else { panic!("a list of jobs") };
    assert_eq!((jobs[0].nodes.len(), jobs[1].nodes.len()), (16_384, 1));
}

#[test]
fn a_cut_has_no_note_of_an_earlier_job_with_its_number() {
    let (_folder, path) = scratch();
    let put = |id, at_ms, text: &str| {
        Event::Note(NoteChange::Put(Note {
            id: NoteId::from_bits(id),
            job: Some(JobId(1)),
            node: None,
            rank: None,
            at_ms,
            text: text.into(),
            source: NoteSource::Api,
        }))
    };
    let job = Job { submitted: Some(2_000), ..job(1, &[("n1", &[0])]) };
    let all = [
        (BEGIN_MS, put(1, 1_999_000, "secret")),
        (BEGIN_MS, put(2, 2_000_000, "own")),
        (BEGIN_MS + 10, Event::Jobs { jobs: vec![job], wall_ahead_ms: WALL_AHEAD_MS }),
        (BEGIN_MS + 20, put(3, 1_999_000, "secret")),
    ];
    record(&path, &all);
    let out = path.with_file_name("cut.ngrc");
    cut(&path, &out, JobId(1)).unwrap();
    let mut fleet = info().fleet(FleetSettings::default());
    played(&out).0.into_iter().for_each(|(at_ms, event)| fleet.handle(event, at_ms));
    let texts: Vec<_> = fleet.notes().iter().map(|note| note.text.as_str()).collect();
    assert_eq!(texts, ["own"]);
}

#[test]
fn a_cut_has_no_event_of_a_gpu_from_before_the_job() {
    let (_folder, path) = scratch();
    let event = |mono_s: u64, xid| {
        node_line(ProbeLine::Event(nodeglass_protocol::probe::Event {
            mono_ns: mono_s * 1_000_000_000,
            gpu: Some(scene::uuid("n1", 0)),
            xid: Some(xid),
            text: "Xid".into(),
        }))
    };
    let started_s = (WALL_AHEAD_MS + BEGIN_MS.cast_signed()) / 1_000;
    let job = Job { start: Some(started_s), ..job(1, &[("n1", &[0])]) };
    let mut all = vec![
        (BEGIN_MS, Event::Jobs { jobs: vec![job], wall_ahead_ms: WALL_AHEAD_MS }),
        (BEGIN_MS + 40, node_line(hello("n1", &[0]))),
    ];
    all.extend((1..=30).map(|second| (BEGIN_MS + second * 1_000, node_line(sample(100 + second, &[50])))));
    // The job started when the node's clock was at 100 s.
    all.push((BEGIN_MS + 30_100, event(90, 63)));
    all.push((BEGIN_MS + 30_200, event(120, 79)));
    record(&path, &all);
    let out = path.with_file_name("cut.ngrc");
    cut(&path, &out, JobId(1)).unwrap();
    let mut fleet = info().fleet(FleetSettings::default());
    played(&out).0.into_iter().for_each(|(at_ms, event)| fleet.handle(event, at_ms));
    let xids: Vec<_> = scene::node(&fleet, "n1").head.events.iter().filter_map(|event| event.xid).collect();
    assert_eq!(xids, [79]);
}

#[tokio::test]
async fn events_before_a_seek_reach_the_fleet_that_it_replaces() {
    use tokio::sync::mpsc;
    use tokio::time::timeout;
    let (_folder, path) = scratch();
    record(&path, &events(10));
    let mut settings = FleetSettings { history_budget: 1 << 20, ..Default::default() };
    settings.factors.co2_g_per_kwh = Some(380.0);
    let (player, control) = Player::open(&path, settings).unwrap();
    let (hub, mut requests, _departures) = nodeglass_live::Hub::channel();
    let (nodes, mut from_nodes) = mpsc::channel(8);
    let (to_fleet, mut to_fleet_rx) = mpsc::channel(8);
    let waiting = nodeglass_nodes::FromNode {
        node: name("n1"),
        job: None,
        at_ms: BEGIN_MS,
        event: SessionEvent::Line(Box::new(hello("n1", &[0]).into())),
    };
    nodes.send(waiting).await.unwrap();
    let playing = tokio::spawn(player.run(Outputs { nodes, events: to_fleet, hub }));
    let seek = tokio::spawn(async move { control.apply(ReplayCommand::Seek(BEGIN_MS + 5_000)).await });
    // The fleet is not replaced while an event waits,
    let early = timeout(Duration::from_millis(300), requests.recv()).await;
    assert!(early.is_err(), "{early:?}");
    // but once there is none.
    let drain = tokio::spawn(async move {
        loop {
            tokio::select! {
                Some(_) = from_nodes.recv() => {}
                Some(_) = to_fleet_rx.recv() => {}
                else => return,
            }
        }
    });
    match timeout(Duration::from_secs(30), requests.recv()).await.unwrap().unwrap() {
        nodeglass_live::HubRequest::Replace { fleet, done } => {
            // It is configured as the first one is.
            let records = fleet.running_records(BEGIN_MS + 5_000);
            assert_eq!((records.len(), records[0].factors.co2_g_per_kwh), (1, Some(380.0)));
            done.send(()).unwrap();
        }
        other => panic!("{other:?}"),
    }
    seek.await.unwrap().unwrap();
    playing.abort();
    drain.await.unwrap();
}

#[tokio::test]
async fn a_command_ends_a_seek_that_goes_on_and_is_performed() {
    use tokio::sync::mpsc;
    let (_folder, path) = scratch();
    record(&path, &events(3_000));
    let (player, control) = Player::open(&path, FleetSettings::default()).unwrap();
    let clock = player.clock();
    let (hub, mut requests, _departures) = nodeglass_live::Hub::channel();
    let ((nodes, mut from_nodes), (to_fleet, mut to_fleet_rx)) = (mpsc::channel(64), mpsc::channel(64));
    let playing = tokio::spawn(player.run(Outputs { nodes, events: to_fleet, hub }));
    let lines = tokio::spawn(async move { while from_nodes.recv().await.is_some() {} });
    let other_events = tokio::spawn(async move { while to_fleet_rx.recv().await.is_some() {} });
    let replaced = tokio::spawn(async move { requests.recv().await.is_some() });
    let seek = ReplayCommand::Seek(BEGIN_MS + 3_000_000);
    let (sought, paused) = tokio::join!(control.apply(seek), control.apply(ReplayCommand::Speed(0)));
    assert_eq!((sought.unwrap_err().as_str(), paused), ("another command ended the seek", Ok(())));
    assert!(clock.now_ms() < BEGIN_MS + 60_000, "it stays where it was: {}", clock.now_ms() - BEGIN_MS);
    assert!(!replaced.is_finished());
    [playing, lines, other_events].iter().for_each(tokio::task::JoinHandle::abort);
    replaced.abort();
}

/// A machine may be so busy that the event loop does not run for seconds.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_recording_waits_for_an_event_loop_that_does_not_run() {
    use tokio::sync::mpsc;
    use tokio::time::sleep;
    let (_folder, path) = scratch();
    record(&path, &events(10));
    let (player, _control) = Player::open(&path, FleetSettings::default()).unwrap();
    let (clock, end_ms) = (player.clock(), BEGIN_MS + 10_003);
    let (hub, _requests, _departures) = nodeglass_live::Hub::channel();
    let (nodes, mut from_nodes) = mpsc::channel(64);
    let (to_fleet, mut to_fleet_rx) = mpsc::channel(8);
    let playing = tokio::spawn(player.run(Outputs { nodes, events: to_fleet, hub }));
    let other_events = tokio::spawn(async move { while to_fleet_rx.recv().await.is_some() {} });
    sleep(Duration::from_secs(60)).await;
    let waits_at_ms = clock.now_ms() - BEGIN_MS;
    assert!((5..=1_600).contains(&waits_at_ms), "lines wait since the first ms, and it is {waits_at_ms}");
    let lines = tokio::spawn(async move { while from_nodes.recv().await.is_some() {} });
    // It takes the time that is left, and no more.
    sleep(Duration::from_millis(BEGIN_MS + 9_900 - clock.now_ms())).await;
    assert!((9_000..=9_950).contains(&(clock.now_ms() - BEGIN_MS)), "{}", clock.now_ms() - BEGIN_MS);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(clock.now_ms(), end_ms);
    [playing, other_events, lines].iter().for_each(tokio::task::JoinHandle::abort);
}

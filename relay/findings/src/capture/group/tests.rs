//! Captures of whole jobs, and of nodes that lie, become groups.

use super::*;
use nodeglass_protocol::capture::{Frame, Peer, ThreadCount};
use nodeglass_protocol::request::ProcessRef;

const C10D: &str = "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py";
const LOADER: &str = "/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py";

fn frame(function: &str, file: &str, line: u32) -> Frame {
    Frame { function: function.into(), file: file.into(), line }
}

fn target(rank: u32) -> Target {
    let process = ProcessRef { pid: 100 + rank, started_ms: 5 };
    Target { process, rank: Some(rank), place: format!("n{} GPU {}", rank / 8, rank % 8) }
}

fn process(rank: u32, stack: Reading<Vec<Frame>>) -> ProcessCapture {
    ProcessCapture {
        pid: 100 + rank,
        started_ms: 5,
        command: "python3".into(),
        state: ThreadState::Sleeping,
        wait_channel: Reading::Value("futex_wait_queue".into()),
        system_call: Reading::Value("futex".into()),
        stack,
        ..ProcessCapture::default()
    }
}

fn in_collective(line: u32) -> Reading<Vec<Frame>> {
    Reading::Value(vec![frame("all_reduce", C10D, 2_501), frame("train_step", "/p/train.py", line)])
}

/// The ranks of a node with eight GPUs.
fn answer(node: u32, capture: impl Fn(u32) -> ProcessCapture) -> NodeAnswer {
    let ranks = node * 8..node * 8 + 8;
    NodeAnswer {
        node: NodeName::new(format!("n{node}")).unwrap(),
        targets: ranks.clone().map(target).collect(),
        answer: Ok(Capture { processes: ranks.map(capture).collect(), omitted: 0 }),
    }
}

#[test]
fn the_rank_that_stands_elsewhere_is_named() {
    let loading = Reading::Value(vec![frame("__next__", LOADER, 701), frame("<module>", "/p/train.py", 52)]);
    let stack = |rank| if rank == 35 { loading.clone() } else { in_collective(88) };
    let answers: Vec<NodeAnswer> =
        (0..8).map(|node| answer(node, |rank| process(rank, stack(rank)))).collect();
    let found = summary(7, &answers);
    let lines: Vec<String> = found.lines().collect();
    assert_eq!(
        lines,
        [
            "63 ranks (0-34, 36-63) in all_reduce (torch/distributed/distributed_c10d.py:2501), called from train_step \
             (p/train.py:88)",
            "rank 35 (n4 GPU 3) in DataLoader.__next__ (torch/utils/data/dataloader.py:701), called from <module> \
             (p/train.py:52)",
        ]
    );
    assert_eq!((found.at_ms, found.others, found.missing, found.notes.len()), (7, 0, 0, 0));
    assert_eq!(found.groups[0].stack.len(), 2);
}

#[test]
fn collectives_that_are_called_from_different_lines_are_different_places() {
    let found =
        summary(0, &[answer(0, |rank| process(rank, in_collective(if rank == 2 { 91 } else { 88 })))]);
    assert_eq!(found.groups.iter().map(|group| group.count).collect::<Vec<_>>(), [7, 1]);
}

#[test]
fn a_loop_is_one_place_whatever_its_line() {
    let stack = |rank| Reading::Value(vec![frame("tokenize", "/p/data.py", 10 + rank % 2)]);
    let found = summary(0, &[answer(0, |rank| process(rank, stack(rank)))]);
    assert_eq!(found.lines().collect::<Vec<_>>(), ["8 ranks (0-7) in tokenize (p/data.py)"]);
}

#[test]
fn without_python_stacks_the_kernel_tells_where_a_process_waits() {
    let why = "py-spy is not on the PATH of the probe";
    let capture = |rank| {
        let mut process = process(rank, Reading::Failed(why.into()));
        if rank == 3 {
            process.state = ThreadState::Uninterruptible;
            process.wait_channel = Reading::Value("nfs_wait_bit_killable".into());
            process.system_call = Reading::Unsupported;
        }
        process
    };
    let found = summary(0, &[answer(0, capture)]);
    assert_eq!(
        found.lines().collect::<Vec<_>>(),
        [
            "7 ranks (0-2, 4-7) in futex_wait_queue (system call futex, sleeping)",
            "rank 3 (n0 GPU 3) in nfs_wait_bit_killable (in uninterruptible sleep)",
        ]
    );
    assert_eq!(found.notes, [Text::new(format!("n0: {why}"))]);
}

#[test]
fn what_is_not_known_is_counted_and_explained() {
    let mut answers =
        vec![answer(0, |rank| process(rank, in_collective(88))), answer(1, |_| unreachable_process())];
    answers[1].answer = Err("its probe did not respond within 30 s".into());
    if let Ok(capture) = &mut answers[0].answer {
        capture.processes[7].refused = Some("it belongs to another user".into());
        capture.processes.remove(0);
    }
    let found = summary(0, &answers);
    assert_eq!((found.groups[0].count, found.missing), (6, 10));
    assert_eq!(found.notes.len(), 2);
    assert!(found.notes.contains(&"n1: its probe did not respond within 30 s".into()), "{:?}", found.notes);
}

fn unreachable_process() -> ProcessCapture {
    ProcessCapture::default()
}

#[test]
fn a_node_answers_only_for_processes_that_it_was_asked_about_and_once_for_each() {
    let mut forged = answer(0, |rank| process(rank, in_collective(88)));
    if let Ok(capture) = &mut forged.answer {
        let strangers =
            (0..1_000).map(|pid| ProcessCapture { pid: 5_000 + pid, ..process(1, in_collective(1)) });
        let reused = ProcessCapture { started_ms: 6, ..process(2, in_collective(2)) };
        let again = capture.processes[0].clone();
        capture.processes.extend([again, reused].into_iter().chain(strangers));
    }
    let found = summary(0, &[forged]);
    assert_eq!((found.groups.len(), found.groups[0].count), (1, 8));
}

#[test]
fn what_a_hostile_node_sends_stays_bounded() {
    let noise = |rank: u32| {
        let text = format!("{rank}\u{202e}\x1b[31m{}", "x".repeat(10_000));
        ProcessCapture {
            command: Text::new(&text),
            threads: vec![ThreadCount { state: ThreadState::Running, count: u32::MAX }; 5_000],
            connections: Reading::Value(u32::MAX),
            peers: vec![Peer { address: Text::new(&text), count: 1 }; 5_000],
            files: vec![EvidenceFile { path: Text::new(&text), size_bytes: u64::MAX, modified_ms: 0 }; 500],
            ..process(rank, Reading::Value(vec![frame(&text, &text, u32::MAX); 10_000]))
        }
    };
    let answers: Vec<NodeAnswer> = (0..64).map(|node| answer(node, noise)).collect();
    let found = summary(0, &answers);
    assert_eq!((found.groups.len(), found.others), (MAX_GROUPS, 512 - number(MAX_GROUPS)));
    let bytes = serde_json::to_vec(&found).unwrap();
    assert!(bytes.len() < 64 << 10, "{} bytes", bytes.len());
    assert!(!String::from_utf8(bytes).unwrap().contains('\u{202e}'));
}

#[test]
fn processes_that_a_probe_selected_are_named_by_pid() {
    let mut answer = answer(0, |rank| ProcessCapture { rank: None, ..process(rank, Reading::NotYet) });
    answer.targets.clear();
    let found = summary(0, &[answer]);
    assert_eq!(found.groups[0].who(), "8 processes (n0 pid 100, n0 pid 101, n0 pid 102, …)");
}

#[test]
fn details_state_threads_and_connections() {
    let capture = |rank| ProcessCapture {
        threads: vec![
            ThreadCount { state: ThreadState::Sleeping, count: 95 },
            ThreadCount { state: ThreadState::Running, count: 2 },
        ],
        voluntary_switches: Reading::Value(81),
        involuntary_switches: Reading::Value(3),
        connections: Reading::Value(14),
        peers: vec![Peer { address: "10.0.0.7:29500".into(), count: 8 }],
        files: vec![EvidenceFile {
            path: "/tmp/nccl_trace_rank_0".into(),
            size_bytes: 3 << 20,
            modified_ms: 1,
        }],
        ..process(rank, Reading::NotYet)
    };
    let found = summary(0, &[answer(0, capture)]);
    let details: Vec<&str> = found.groups[0].details.iter().map(Text::as_str).collect();
    assert_eq!(
        details,
        [
            "python3 (pid 100 on n0): futex_wait_queue (system call futex, sleeping)",
            "97 threads: 95 sleeping, 2 running",
            "main thread: 81 voluntary and 3 involuntary context switches",
            "14 TCP connections: 8 to 10.0.0.7:29500",
        ]
    );
    assert_eq!(found.files, ["n0:/tmp/nccl_trace_rank_0 (3 MiB)".into()]);
}

//! Which findings cause a capture, and which show it.

use super::*;
use nodeglass_protocol::Text;
use nodeglass_protocol::finding::FindingSeverity;
use nodeglass_protocol::gpu::GpuFacts;
use nodeglass_protocol::picture::{GpuPicture, ProcessPicture};
use nodeglass_protocol::process::{ProcessFacts, ProcessKind, Rank};
use nodeglass_protocol::{GpuUuid, Reading, Row};

fn finding(kind: FindingKind, job: u32, found_ms: u64) -> Finding {
    Finding {
        key: Text::new(format!("{}/{job}", kind.name())),
        kind,
        severity: FindingSeverity::Error,
        confidence_pct: 95,
        jobs: vec![JobId(job)],
        nodes: Vec::new(),
        gpus: Vec::new(),
        title: "it hangs".into(),
        reason: Text::default(),
        evidence: Vec::new(),
        advice: "restart it".into(),
        since_ms: 0,
        or_earlier: false,
        found_ms,
        ended_ms: None,
        silenced_until_ms: None,
        wasted_gpus: 0,
        capture: None,
        wasted_before: None,
    }
}

fn job(id: u32, user: &str) -> Job {
    Job { nodes: vec![NodeName::new("n1").unwrap()], ..Job::new(JobId(id), user.into(), JobState::Running) }
}

/// A node with two GPUs: ranks 0 and 1 of job 1, another user's process, and one of job 2.
fn node() -> NodePicture {
    let mut node = NodePicture::new(NodeName::new("n1").unwrap());
    let uuids = [GpuUuid::new("GPU-0"), GpuUuid::new("GPU-1")];
    let gpu = |(index, uuid): (u32, &GpuUuid)| GpuPicture {
        facts: GpuFacts::new(uuid.clone(), index),
        ..GpuPicture::default()
    };
    node.gpus = (0..).zip(&uuids).map(gpu).collect();
    let process = |gpu: usize, pid, job, user: &str, rank: Option<u32>| {
        let kind = ProcessKind { compute: true, ..ProcessKind::default() };
        let facts = ProcessFacts {
            started_ms: Reading::Value(5),
            user: Reading::Value(user.into()),
            job: Some(JobId(job)),
            rank: rank.map(|global| Rank { global, local: None, world: None }),
            ..ProcessFacts::new(uuids[gpu].clone(), pid, kind)
        };
        ProcessPicture { facts, row: Row::default() }
    };
    node.processes = vec![
        process(0, 10, 1, "alice", Some(0)),
        process(1, 11, 1, "alice", Some(1)),
        // NCCL has a context on each GPU of the node.
        process(1, 10, 1, "alice", Some(0)),
        process(1, 12, 1, "bob", None),
        process(1, 13, 2, "alice", None),
    ];
    node
}

fn at(wall_ms: u64) -> Now {
    Now { relay_ms: wall_ms, wall_ahead_ms: 0 }
}

fn due(captures: &mut Captures, findings: &[Finding], jobs: &[Job], now_ms: u64) -> Vec<CaptureOrder> {
    let node = node();
    captures.due(findings, "alice", jobs, |name| Some(&node).filter(|node| node.name == *name), at(now_ms))
}

#[test]
fn the_processes_of_a_job_are_captured_once_when_it_begins_to_hang() {
    let (mut captures, jobs) = (Captures::default(), [job(1, "alice")]);
    let hang = [finding(FindingKind::CollectiveHang, 1, 1_000)];
    let orders = due(&mut captures, &hang, &jobs, 1_000);
    assert_eq!(orders.len(), 1);
    let (name, targets) = &orders[0].nodes[0];
    let target = |pid, rank, place: &str| Target {
        process: ProcessRef { pid, started_ms: 5 },
        rank: Some(rank),
        place: place.to_owned(),
    };
    assert_eq!((name.as_str(), targets), ("n1", &vec![target(10, 0, "n1 GPU 0"), target(11, 1, "n1 GPU 1")]));
    assert!(due(&mut captures, &hang, &jobs, 1_001).is_empty());
    assert!(due(&mut captures, &hang, &jobs, 10_000_000).is_empty(), "not again however long it lasts");
}

#[test]
fn other_users_jobs_other_kinds_old_and_ended_findings_are_not_captured() {
    let jobs = [job(1, "alice"), job(2, "bob")];
    let ended = Finding { ended_ms: Some(900), ..finding(FindingKind::CollectiveHang, 1, 800) };
    for (finding, now_ms) in [
        (finding(FindingKind::CollectiveHang, 2, 1_000), 1_000),
        (finding(FindingKind::CollectiveHang, 3, 1_000), 1_000),
        (finding(FindingKind::Thermal, 1, 1_000), 1_000),
        (finding(FindingKind::UnusedGpus, 1, 1_000), 1_000),
        (ended, 1_000),
        (finding(FindingKind::CollectiveHang, 1, 1_000), 1_001 + FRESH_MS),
    ] {
        assert!(
            due(&mut Captures::default(), std::slice::from_ref(&finding), &jobs, now_ms).is_empty(),
            "{finding:?}"
        );
    }
}

#[test]
fn a_job_is_captured_at_most_once_in_ten_minutes_and_its_findings_share_that() {
    let (mut captures, jobs) = (Captures::default(), [job(1, "alice")]);
    let mut findings = vec![finding(FindingKind::IdleGpus, 1, 1_000)];
    assert_eq!(due(&mut captures, &findings, &jobs, 1_000).len(), 1);
    findings.push(finding(FindingKind::CollectiveHang, 1, 60_000));
    assert!(due(&mut captures, &findings, &jobs, 60_000).is_empty());
    assert!(!captures.attach(&mut findings), "nothing was captured yet");
    captures.enter(findings[0].key.to_string(), FindingCapture { at_ms: 1_000, ..FindingCapture::default() });
    assert!(captures.attach(&mut findings));
    assert_eq!(findings.iter().filter(|finding| finding.capture.is_some()).count(), 2);
    let later = 1_000 + SPACING_MS;
    let again = [finding(FindingKind::CollectiveHang, 1, later)];
    assert_eq!(due(&mut captures, &again, &jobs, later).len(), 1);
}

#[test]
fn a_finding_that_returns_does_not_show_what_was_captured_the_last_time() {
    let (mut captures, jobs) = (Captures::default(), [job(1, "alice")]);
    let first = [finding(FindingKind::CollectiveHang, 1, 1_000)];
    due(&mut captures, &first, &jobs, 1_000);
    captures.enter(first[0].key.to_string(), FindingCapture { at_ms: 1_100, ..FindingCapture::default() });
    let mut again = [finding(FindingKind::CollectiveHang, 1, 5_000_000)];
    captures.attach(&mut again);
    assert_eq!(again[0].capture, None);
    assert_eq!(due(&mut captures, &again, &jobs, 5_000_000).len(), 1);
}

#[test]
fn what_an_earlier_relay_captured_stays_and_is_not_captured_again() {
    let (mut captures, jobs) = (Captures::default(), [job(1, "alice")]);
    let capture = FindingCapture { at_ms: 1_100, ..FindingCapture::default() };
    let earlier =
        Finding { capture: Some(Box::new(capture)), ..finding(FindingKind::CollectiveHang, 1, 1_000) };
    captures.restore([&earlier].into_iter());
    assert!(due(&mut captures, &[], &jobs, 20_000).is_empty());
    let mut found = [Finding { capture: None, ..earlier }];
    assert!(due(&mut captures, &found, &jobs, 30_000).is_empty());
    captures.attach(&mut found);
    assert_eq!(found[0].capture.as_ref().map(|capture| capture.at_ms), Some(1_100));
}

#[test]
fn the_number_of_kept_captures_is_bounded() {
    let mut captures = Captures::default();
    for number in 0..3 * MAX_KEPT as u64 {
        let capture = FindingCapture { at_ms: number, ..FindingCapture::default() };
        captures.enter(number.to_string(), capture);
    }
    assert_eq!(captures.done.len(), MAX_KEPT);
    assert!(captures.done.contains_key(&(3 * MAX_KEPT as u64 - 1).to_string()));
}

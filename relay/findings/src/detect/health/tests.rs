//! Tests of [`super`]: which readings are problems, and their texts.

use super::*;
use crate::job_log::JobLogs;
use crate::now::Now;
use crate::series::NodeSeries;
use crate::thresholds::Thresholds;
use crate::tracker::Detections;
use nodeglass_protocol::gpu::{NvLink, Virtualization};
use nodeglass_protocol::job::JobState;
use nodeglass_protocol::picture::{Evidence, History, Link, Owner};
use nodeglass_protocol::{Cell, JobId, NodeName, Reading};
use std::collections::BTreeSet;

const NOW_MS: u64 = 4_000_000;
const WALL_S: i64 = 1_000_000;

fn job(id: u32, node: &str) -> Job {
    let mut job = Job::new(JobId(id), "alice".into(), JobState::Running);
    job.nodes = vec![NodeName::new(node).unwrap()];
    job.start = Some(WALL_S - 3_600);
    job
}

fn node(name: &str, owners: &[u32]) -> NodePicture {
    let mut node = NodePicture::new(NodeName::new(name).unwrap());
    node.head.link = Link::Live;
    node.head.interval_ms = 1_000;
    node.sampled_at_ms = Some(NOW_MS);
    let gpu = |(index, job): (usize, &u32)| {
        let mut gpu = GpuPicture::default();
        gpu.facts.index = index as u32;
        gpu.facts.uuid = GpuUuid::new(format!("{name}-{index}"));
        gpu.owners = vec![Owner { job: JobId(*job), by: Evidence::GresIndex }];
        gpu
    };
    node.gpus = owners.iter().enumerate().map(gpu).collect();
    node
}

fn detect_all(jobs: &[Job], nodes: &[NodePicture]) -> Vec<Detection> {
    let nodes: BTreeMap<&NodeName, &NodePicture> = nodes.iter().map(|node| (&node.name, node)).collect();
    // The errors occurred while the nodes were read.
    let series = nodes.values().map(|node| {
        let mut series = NodeSeries::default();
        let mut before = (*node).clone();
        before.sampled_at_ms = Some(NOW_MS - 5_000);
        before.gpus.iter_mut().for_each(|gpu| gpu.row.set(GpuField::EccUncorrected, Cell::steps(0)));
        [&before, node]
            .into_iter()
            .filter(|node| node.sampled_at_ms.is_some())
            .for_each(|node| series.record(node, None));
        (node.name.clone(), series)
    });
    let series = series.collect();
    detect_with(jobs, &nodes, &series)
}

fn detect_with(
    jobs: &[Job],
    nodes: &BTreeMap<&NodeName, &NodePicture>,
    series: &BTreeMap<NodeName, NodeSeries>,
) -> Vec<Detection> {
    detect_listed(jobs, nodes, series, &BTreeSet::new())
}

/// What is detected where these machines are watched in any case.
fn detect_listed(
    jobs: &[Job],
    nodes: &BTreeMap<&NodeName, &NodePicture>,
    series: &BTreeMap<NodeName, NodeSeries>,
    listed: &BTreeSet<NodeName>,
) -> Vec<Detection> {
    let wall_ahead_ms = WALL_S * 1_000 - NOW_MS.cast_signed();
    let (logs, thresholds) = (JobLogs::new(), Thresholds::default());
    let now = Now { relay_ms: NOW_MS, wall_ahead_ms };
    let mut input = DetectorInput::new("alice", jobs, nodes, series, &logs, &thresholds, now);
    input.hosts = Some(listed);
    let mut found = Detections::default();
    detect(&input, &mut found);
    found.seen
}

fn keys(jobs: &[Job], nodes: &[NodePicture]) -> Vec<String> {
    let key = |detection: Detection| format!("{}/{}", detection.kind.name(), detection.subject);
    detect_all(jobs, nodes).into_iter().map(key).collect()
}

/// The only problem of job 1 on a node with two of its GPUs, the first of which is changed.
fn only(change: impl FnOnce(&mut GpuPicture)) -> Detection {
    let mut node = node("n1", &[1, 1]);
    change(&mut node.gpus[0]);
    let mut found = detect_all(&[Job { gpu_count: Some(2), ..job(1, "n1") }], &[node]);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn evidence(detection: &Detection) -> String {
    detection.evidence.join(" · ")
}

#[test]
fn a_hot_gpu_is_a_warning_with_its_clock_and_temperature() {
    let found = only(|gpu| {
        gpu.row.set(GpuField::Throttle, Cell::steps(0x40));
        gpu.row.set(GpuField::Temp, Cell::steps(87));
        gpu.row.set(GpuField::SmClock, Cell::steps(73));
        gpu.facts.sm_clock_max_mhz = Reading::Value(1_980);
    });
    assert_eq!((found.kind, found.severity), (FindingKind::Thermal, FindingSeverity::Warning));
    assert_eq!(found.title, "n1 GPU 0 is too hot: 1,095 of 1,980 MHz");
    assert_eq!(evidence(&found), "87 °C · 1 other GPU of the job may wait for it");
    assert_eq!(found.reason, "GPU 0 too hot");
    assert_eq!(found.gpus.len(), 1);
}

#[test]
fn a_power_brake_and_an_unnamed_slowdown_are_warnings() {
    for (bits, kind) in [(0x80, FindingKind::PowerBrake), (0x8, FindingKind::Slowdown)] {
        let found = only(|gpu| gpu.row.set(GpuField::Throttle, Cell::steps(bits)));
        assert_eq!((found.kind, found.severity), (kind, FindingSeverity::Warning));
    }
}

#[test]
fn uncorrected_errors_and_their_repair_are_one_error() {
    let found = only(|gpu| {
        gpu.row.set(GpuField::EccUncorrected, Cell::steps(1));
        gpu.health.remap_pending = Reading::Value(true);
    });
    assert_eq!((found.kind, found.severity), (FindingKind::MemoryErrors, FindingSeverity::Error));
    assert_eq!(found.title, "n1 GPU 0: 1 uncorrected memory error");
    assert_eq!(evidence(&found), "results since then may be wrong");
    assert_eq!(
        found.advice.as_deref(),
        Some(
            "Restart on another node from a checkpoint before the error, and report it to the administrators: the GPU needs a reset"
        )
    );
}

#[test]
fn errors_from_before_a_job_are_a_warning() {
    let mut node = node("n1", &[1]);
    node.gpus[0].row.set(GpuField::EccUncorrected, Cell::steps(3));
    let nodes = BTreeMap::from([(&node.name, &node)]);
    let found = detect_with(&[job(1, "n1")], &nodes, &BTreeMap::new());
    assert_eq!((found[0].kind, found[0].severity), (FindingKind::MemoryErrors, FindingSeverity::Warning));
    assert_eq!(evidence(&found[0]), "since the driver was loaded; none occurred during this job");
    assert_eq!(found[0].since, Some((NOW_MS, true)));
}

#[test]
fn repairs_of_memory_have_their_urgency() {
    let (warning, error) = (FindingSeverity::Warning, FindingSeverity::Error);
    let pending = only(|gpu| gpu.health.remap_pending = Reading::Value(true));
    assert_eq!((pending.reason.as_str(), pending.severity), ("GPU 0 row remap pending", warning));
    let failed = only(|gpu| gpu.health.remap_failed = Reading::Value(true));
    assert_eq!((failed.reason.as_str(), failed.severity), ("GPU 0 row remap failed", error));
    let retired = only(|gpu| gpu.health.retired_pending = Reading::Value(true));
    assert_eq!((retired.reason.as_str(), retired.severity), ("GPU 0 page retirement pending", warning));
}

#[test]
fn links_that_are_down_or_narrow_are_warnings() {
    let down = only(|gpu| {
        let link = |link, up| NvLink { link, up: Reading::Value(up), ..NvLink::default() };
        gpu.health.nvlinks = vec![link(3, true), link(4, false)];
    });
    assert_eq!(
        (down.title.as_str(), down.severity),
        ("n1 GPU 0: NVLink 4 is down", FindingSeverity::Warning)
    );
    let narrow = only(|gpu| {
        gpu.health.pcie_width = Reading::Value(8);
        gpu.facts.pcie_width_max = Reading::Value(16);
    });
    assert_eq!(narrow.title, "n1 GPU 0: PCIe link has 8 of 16 lanes");
}

#[test]
fn readings_that_are_not_there_are_not_problems() {
    let mut node = node("n1", &[1]);
    node.gpus[0].row.set(GpuField::EccUncorrected, Cell::UNSUPPORTED);
    node.gpus[0].health.pcie_width = Reading::Value(8);
    assert!(keys(&[job(1, "n1")], &[node]).is_empty());
}

#[test]
fn a_lost_gpu_marks_its_owner_and_nobody_else() {
    let mut shared = node("n1", &[1, 2]);
    shared.gpus[1].fault = Some("GPU is lost".into());
    let found = detect_all(&[job(1, "n1"), job(2, "n1")], std::slice::from_ref(&shared));
    assert_eq!((found.len(), found[0].subject.as_str()), (1, "2"));
    assert_eq!(found[0].title, "n1 GPU 1 cannot be read: GPU is lost");
    let found = detect_all(&[job(1, "n1")], std::slice::from_ref(&shared));
    let [lost] = found.as_slice() else { panic!("{found:?}") };
    // It is not job 1's problem, but that of its node.
    assert_eq!((lost.severity, lost.subject.as_str()), (FindingSeverity::Warning, "n1"));
    assert!(lost.jobs.is_empty() && evidence(lost) == "no listed job uses it", "{lost:?}");
    assert_eq!(keys(&[], &[shared]), ["gpu_lost/n1"], "without jobs every problem counts");
}

#[test]
fn a_lost_gpu_of_a_listed_machine_is_found_whether_or_not_a_job_has_it() {
    let mut node = node("n1", &[1, 1]);
    node.gpus[1].owners.clear();
    node.gpus[1].fault = Some("GPU is lost".into());
    let (nodes, listed) = (BTreeMap::from([(&node.name, &node)]), BTreeSet::from([node.name.clone()]));
    for jobs in [vec![], vec![job(1, "n1")], vec![job(2, "n2")]] {
        let found = detect_listed(&jobs, &nodes, &BTreeMap::new(), &listed);
        let [lost] = found.as_slice() else { panic!("{jobs:?}: {found:?}") };
        assert_eq!((lost.kind, lost.subject.as_str(), lost.jobs.len()), (FindingKind::GpuLost, "n1", 0));
    }
    // Of a node of a job, nothing else of it counts.
    node.head.events = with_xid(79, 60_000).head.events;
    node.head.events[0].gpu = Some(node.gpus[1].facts.uuid.clone());
    assert_eq!(keys(&[job(1, "n1")], &[node]), ["gpu_lost/n1"]);
}

#[test]
fn instances_of_a_lost_gpu_are_not_lost_again() {
    let mut node = node("n1", &[1, 1]);
    node.gpus[0].owners.clear();
    node.gpus[1].facts.mig_parent = Some(node.gpus[0].facts.uuid.clone());
    for gpu in &mut node.gpus {
        gpu.fault = Some("GPU is lost".into());
    }
    let found = detect_all(&[job(1, "n1")], &[node]);
    assert_eq!((found.len(), found[0].title.as_str()), (1, "n1 GPU 0 cannot be read: GPU is lost"));
}

#[test]
fn gpus_with_the_same_problem_are_one_finding() {
    let hot = |name| {
        let mut node = node(name, &[1, 1]);
        node.gpus.iter_mut().for_each(|gpu| gpu.row.set(GpuField::Throttle, Cell::steps(0x20)));
        node
    };
    let mut both = job(1, "n1");
    assert_eq!(detect_all(&[both.clone()], &[hot("n1")])[0].title, "2 GPUs on n1 are too hot");
    both.nodes.push("n2".parse().unwrap());
    let wide = detect_all(&[both], &[hot("n1"), hot("n2")]);
    assert_eq!((wide.len(), wide[0].title.as_str()), (1, "4 GPUs on 2 nodes are too hot"));
    assert_eq!((wide[0].nodes.len(), evidence(&wide[0]).contains("n2 GPU 1")), (2, true));
}

fn with_xid(number: u64, ago_ms: u64) -> NodePicture {
    let mut node = node("n1", &[1]);
    node.head.events = vec![GpuEvent {
        at_ms: NOW_MS - ago_ms,
        gpu: Some(GpuUuid::new("n1-0")),
        xid: Some(number),
        text: "Xid".into(),
    }];
    node
}

#[test]
fn a_recent_xid_is_listed_with_its_meaning() {
    let found = detect_all(&[job(1, "n1")], &[with_xid(31, 60_000)]);
    assert_eq!(
        found[0].title,
        "n1 GPU 0: Xid 31, GPU memory page fault: a kernel accessed an unmapped address"
    );
    assert_eq!(found[0].since, Some((NOW_MS - 60_000, false)));
    assert!(found[0].advice.as_ref().unwrap().contains("log"));
    assert!(keys(&[job(1, "n1")], &[with_xid(31, 3_700_000)]).is_empty(), "long ago");
    let later = Job { start: Some(WALL_S - 30), ..job(1, "n1") };
    assert!(keys(std::slice::from_ref(&later), &[with_xid(31, 60_000)]).is_empty(), "of an earlier job");
    assert_eq!(keys(&[later], &[with_xid(119, 60_000)]), ["xid/1/119"], "the GPU's own failure stays");
}

#[test]
fn a_repeated_xid_is_one_problem_with_its_count_and_latest_time() {
    let mut node = with_xid(31, 600_000);
    node.head.events.extend([with_xid(31, 120_000).head.events, with_xid(13, 90_000).head.events].concat());
    node.head.events.extend(with_xid(31, 60_000).head.events);
    let found = detect_all(&[job(1, "n1")], &[node]);
    let [other, repeated] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((other.subject.as_str(), other.evidence.len()), ("1/13", 0));
    assert_eq!(evidence(repeated), "3 times within 9 min");
    assert_eq!(repeated.since, Some((NOW_MS - 60_000, false)));
}

#[test]
fn an_xid_of_the_memory_joins_its_errors() {
    let mut node = with_xid(63, 60_000);
    node.gpus[0].row.set(GpuField::EccUncorrected, Cell::steps(2));
    let found = detect_all(&[job(1, "n1")], &[node]);
    assert_eq!((found.len(), found[0].title.as_str()), (1, "n1 GPU 0: 2 uncorrected memory errors (Xid 63)"));
    assert_eq!(found[0].since, Some((NOW_MS - 60_000, false)));
}

#[test]
fn an_xid_of_the_memory_before_a_job_is_a_warning_that_says_so() {
    let node = with_xid(48, 60_000);
    let found = |started_s| {
        let job = Job { start: Some(started_s), ..job(1, "n1") };
        detect_all(&[job], std::slice::from_ref(&node)).remove(0)
    };
    let during = found(WALL_S - 90);
    assert_eq!((during.severity, during.evidence.len()), (FindingSeverity::Error, 0));
    let before = found(WALL_S - 30);
    assert_eq!(
        (before.severity, evidence(&before).as_str()),
        (FindingSeverity::Warning, "it occurred before this job began")
    );
    assert_eq!(before.advice.as_deref(), Some("Report it to the administrators if it recurs"));
}

#[test]
fn an_uncorrected_error_during_a_job_stays_one_after_an_hour() {
    let mut node = with_xid(48, 3_700_000);
    node.gpus[0].row.set(GpuField::EccUncorrected, Cell::steps(2));
    let nodes = BTreeMap::from([(&node.name, &node)]);
    let found = |started_s| {
        let job = Job { start: Some(started_s), ..job(1, "n1") };
        detect_with(&[job], &nodes, &BTreeMap::new()).remove(0)
    };
    let during = found(WALL_S - 3_800);
    assert_eq!((during.severity, during.since), (FindingSeverity::Error, Some((NOW_MS - 3_700_000, false))));
    assert_eq!(evidence(&during), "results since then may be wrong");
    assert_eq!(found(WALL_S - 3_600).severity, FindingSeverity::Warning, "of an earlier job");
}

#[test]
fn the_number_of_repetitions_of_an_xid_does_not_fall_after_an_hour() {
    let mut node = with_xid(31, 3_900_000);
    for ago_ms in [3_650_000, 60_000] {
        node.head.events.extend(with_xid(31, ago_ms).head.events);
    }
    let job = Job { start: Some(WALL_S - 3_800), ..job(1, "n1") };
    let found = detect_all(&[job], &[node]);
    assert_eq!((found.len(), evidence(&found[0]).as_str()), (1, "2 times within 59 min"));
}

#[test]
fn outdated_throttling_is_not_listed_and_memory_errors_are() {
    let mut silent = node("n1", &[1]);
    silent.head.link = Link::Silent;
    silent.gpus[0].row.set(GpuField::Throttle, Cell::steps(0x40));
    silent.gpus[0].row.set(GpuField::EccUncorrected, Cell::steps(1));
    assert_eq!(keys(&[job(1, "n1")], &[silent]), ["memory_errors/1"]);
}

#[test]
fn throttling_starts_where_its_trace_does() {
    let mut node = node("n1", &[1]);
    node.history = Some(History::default());
    for (ago_ms, bits) in [(3_000, 0x0), (2_000, 0x20), (1_000, 0x60), (0, 0x40)] {
        node.gpus[0].row.set(GpuField::Throttle, Cell::steps(bits));
        node.sampled(NOW_MS - ago_ms);
    }
    assert_eq!(detect_all(&[job(1, "n1")], &[node])[0].since, Some((NOW_MS - 2_000, false)));
}

#[test]
fn memory_that_no_process_holds_is_listed() {
    let found = only(|gpu| gpu.row.set(GpuField::MemUnattributed, Cell::steps(9)));
    assert_eq!(found.title, "n1 GPU 0: 9.0 GiB not held by any visible process");
}

#[test]
fn a_vgpu_without_a_license_is_a_warning() {
    let found = only(|gpu| {
        gpu.facts.virtualization = Reading::Value(Virtualization::VgpuGuest);
        gpu.health.license.is_licensed = Reading::Value(false);
    });
    assert_eq!((found.kind, found.severity), (FindingKind::Unlicensed, FindingSeverity::Warning));
    assert_eq!(found.title, "n1 GPU 0 has no vGPU license");
}

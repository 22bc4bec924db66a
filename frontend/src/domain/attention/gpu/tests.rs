//! Tests of [`super`]: which readings become items, and their texts.

use super::*;
use crate::domain::attention::tests::{NOW, job, keys, node};
use crate::domain::attention::{Item, items};
use nodeglass_protocol::JobId;
use nodeglass_protocol::gpu::{NvLink, Virtualization};
use nodeglass_protocol::picture::{History, Link};
use nodeglass_protocol::{Cell, GpuUuid, Reading};

/// The only item of job 1 on a node with two of its GPUs, the first of which is changed.
fn only(change: impl FnOnce(&mut GpuPicture)) -> Item {
    let mut node = node("n1", &[1, 1]);
    change(&mut node.gpus[0]);
    let mut found = items(&[Job { gpu_count: Some(2), ..job(1, "n1") }], &[node], NOW);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn a_hot_gpu_is_a_warning_with_its_clock_and_temperature() {
    let item = only(|gpu| {
        gpu.row.set(GpuField::Throttle, Cell::steps(0x40));
        gpu.row.set(GpuField::Temp, Cell::steps(87));
        gpu.row.set(GpuField::SmClock, Cell::steps(73));
        gpu.facts.sm_clock_max_mhz = Reading::Value(1_980);
    });
    assert_eq!((item.key.as_str(), item.severity), ("thermal/1", Severity::Warning));
    assert_eq!(item.title, "n1 GPU 0 is too hot: 1,095 of 1,980 MHz");
    assert_eq!(item.detail, "87 °C · heat lowers the clock · 1 other GPU of the job may wait for it");
    assert_eq!(item.reason, "GPU 0 too hot");
    assert_eq!(item.target.gpu, Some(GpuUuid::new("n1-0")));
}

#[test]
fn a_power_brake_and_an_unnamed_slowdown_are_warnings() {
    for (bits, key) in [(0x80, "power_brake/1"), (0x8, "slowdown/1")] {
        let item = only(|gpu| gpu.row.set(GpuField::Throttle, Cell::steps(bits)));
        assert_eq!((item.key.as_str(), item.severity), (key, Severity::Warning));
    }
}

#[test]
fn uncorrected_errors_and_their_repair_are_one_error() {
    let item = only(|gpu| {
        gpu.row.set(GpuField::EccUncorrected, Cell::steps(1));
        gpu.health.remap_pending = Reading::Value(true);
    });
    assert_eq!((item.key.as_str(), item.severity), ("memory/1", Severity::Error));
    assert_eq!(item.title, "n1 GPU 0: 1 uncorrected memory error");
    assert_eq!(
        item.detail,
        "Results since then may be wrong · a row remap is pending: the GPU needs a reset"
    );
}

#[test]
fn repairs_of_memory_are_listed_by_urgency() {
    let pending = only(|gpu| gpu.health.remap_pending = Reading::Value(true));
    assert_eq!((pending.reason.as_str(), pending.severity), ("row remap pending", Severity::Warning));
    let failed = only(|gpu| gpu.health.remap_failed = Reading::Value(true));
    assert_eq!((failed.reason.as_str(), failed.severity), ("row remap failed", Severity::Error));
    let retired = only(|gpu| gpu.health.retired_pending = Reading::Value(true));
    assert_eq!((retired.reason.as_str(), retired.severity), ("page retirement pending", Severity::Warning));
}

#[test]
fn links_that_are_down_or_narrow_are_warnings() {
    let down = only(|gpu| {
        let link = |link, up| NvLink { link, up: Reading::Value(up), ..NvLink::default() };
        gpu.health.nvlinks = vec![link(3, true), link(4, false)];
    });
    assert_eq!((down.title.as_str(), down.severity), ("n1 GPU 0: NVLink 4 is down", Severity::Warning));
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
    let found = items(&[job(1, "n1"), job(2, "n1")], std::slice::from_ref(&shared), NOW);
    assert_eq!(found.iter().map(|item| item.key.as_str()).collect::<Vec<_>>(), ["lost/2"]);
    assert_eq!(found[0].title, "n1 GPU 1 cannot be read: GPU is lost");
    assert!(keys(&[job(1, "n1")], std::slice::from_ref(&shared)).is_empty(), "not job 1's problem");
    assert_eq!(keys(&[], &[shared]), ["lost/n1"], "without jobs every problem counts");
}

#[test]
fn instances_of_a_lost_gpu_are_not_lost_again() {
    let mut node = node("n1", &[1, 1]);
    node.gpus[0].owners.clear();
    node.gpus[1].facts.mig_parent = Some(node.gpus[0].facts.uuid.clone());
    for gpu in &mut node.gpus {
        gpu.fault = Some("GPU is lost".into());
    }
    let found = items(&[job(1, "n1")], &[node], NOW);
    assert_eq!((found.len(), found[0].title.as_str()), (1, "n1 GPU 0 cannot be read: GPU is lost"));
}

#[test]
fn gpus_with_the_same_problem_are_one_item() {
    let hot = |name| {
        let mut node = node(name, &[1, 1]);
        node.gpus.iter_mut().for_each(|gpu| gpu.row.set(GpuField::Throttle, Cell::steps(0x20)));
        node
    };
    let mut both = job(1, "n1");
    assert_eq!(items(&[both.clone()], &[hot("n1")], NOW)[0].title, "2 GPUs on n1 are too hot");
    both.nodes.push("n2".parse().unwrap());
    let wide = items(&[both], &[hot("n1"), hot("n2")], NOW);
    assert_eq!((wide.len(), wide[0].title.as_str()), (1, "4 GPUs on 2 nodes are too hot"));
    assert_eq!((&wide[0].target.route, &wide[0].target.gpu), (&Route::Job(JobId(1), JobTab::Nodes), &None));
}

fn with_xid(number: u64, ago_ms: u64) -> NodePicture {
    let mut node = node("n1", &[1]);
    node.head.events = vec![GpuEvent {
        at_ms: NOW.relay_ms - ago_ms,
        gpu: Some(GpuUuid::new("n1-0")),
        xid: Some(number),
        text: "Xid".into(),
    }];
    node
}

#[test]
fn a_recent_xid_is_listed_with_its_meaning() {
    let found = items(&[job(1, "n1")], &[with_xid(31, 60_000)], NOW);
    assert_eq!(found[0].title, "n1 GPU 0: Xid 31, a kernel accessed memory that is not mapped");
    assert_eq!(
        (found[0].severity, found[0].since.unwrap().at_ms),
        (Severity::Warning, NOW.relay_ms - 60_000)
    );
    assert!(found[0].detail.contains("log"));
    assert!(keys(&[job(1, "n1")], &[with_xid(31, 3_700_000)]).is_empty(), "long ago");
    let later = Job { start: Some(NOW.wall_s - 30), ..job(1, "n1") };
    assert!(keys(std::slice::from_ref(&later), &[with_xid(31, 60_000)]).is_empty(), "of an earlier job");
    assert_eq!(keys(&[later], &[with_xid(119, 60_000)]), ["xid-119/1"], "the GPU's own failure stays");
}

#[test]
fn an_xid_of_the_memory_joins_its_errors() {
    let mut node = with_xid(63, 60_000);
    node.gpus[0].row.set(GpuField::EccUncorrected, Cell::steps(2));
    let found = items(&[job(1, "n1")], &[node], NOW);
    assert_eq!((found.len(), found[0].title.as_str()), (1, "n1 GPU 0: 2 uncorrected memory errors (Xid 63)"));
    assert!(found[0].since.is_some());
}

#[test]
fn outdated_throttling_is_not_listed_and_memory_errors_are() {
    let mut silent = node("n1", &[1]);
    silent.head.link = Link::Silent;
    silent.gpus[0].row.set(GpuField::Throttle, Cell::steps(0x40));
    silent.gpus[0].row.set(GpuField::EccUncorrected, Cell::steps(1));
    assert_eq!(keys(&[job(1, "n1")], &[silent]), ["link/n1", "memory/1"]);
}

#[test]
fn throttling_starts_where_its_trace_does() {
    let mut node = node("n1", &[1]);
    node.history = Some(History::default());
    for (ago_ms, bits) in [(3_000, 0x0), (2_000, 0x20), (1_000, 0x60), (0, 0x40)] {
        node.gpus[0].row.set(GpuField::Throttle, Cell::steps(bits));
        node.sampled(NOW.relay_ms - ago_ms);
    }
    let found = items(&[job(1, "n1")], &[node], NOW);
    assert_eq!(found[0].since, Some(Since { at_ms: NOW.relay_ms - 2_000, or_earlier: false }));
}

#[test]
fn memory_that_no_process_holds_is_listed_where_processes_are_known() {
    let mut node = node("n1", &[1, 1]);
    node.gpus[0].row.set(GpuField::MemUsed, Cell::steps(9 * 16));
    node.history = Some(History { is_summary: true, ..History::default() });
    assert!(keys(&[job(1, "n1")], std::slice::from_ref(&node)).is_empty(), "a summary has no processes");
    node.gpus[0].row.set(GpuField::MemUnattributed, Cell::steps(9));
    let summarised = items(&[job(1, "n1")], std::slice::from_ref(&node), NOW);
    assert_eq!(summarised[0].title, "n1 GPU 0: 9.0 GiB in use by no visible process");
    node.history = Some(History::default());
    let found = items(&[job(1, "n1")], &[node], NOW);
    assert_eq!(found[0].title, "n1 GPU 0: 9.0 GiB in use by no visible process");
}

#[test]
fn a_vgpu_without_a_license_is_a_warning_with_its_consequence() {
    let item = only(|gpu| {
        gpu.facts.virtualization = Reading::Value(Virtualization::VgpuGuest);
        gpu.health.license.is_licensed = Reading::Value(false);
    });
    assert_eq!((item.key.as_str(), item.severity), ("unlicensed/1", Severity::Warning));
    assert_eq!(item.title, "n1 GPU 0 has no vGPU license");
    assert!(item.detail.contains("may disable CUDA"), "{}", item.detail);
}

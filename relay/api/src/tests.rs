//! Resources of a picture.

use super::*;
use nodeglass_protocol::job::{self, JobState};
use nodeglass_protocol::picture::{
    Evidence, GpuEvent, GpuFacts, GpuPicture, Link as NodeLink, NodePicture, Owner, ProcessFacts,
    ProcessPicture,
};
use nodeglass_protocol::process::{ProcessGap, ProcessKind};
use nodeglass_protocol::{Cell, Field, GpuField, GpuUuid, JobId, NodeName, Reading};

/// Job 17 has the first of two GPUs of a node, and a process on it.
pub(super) fn picture() -> Picture {
    let name = NodeName::new("n1").unwrap();
    let mut node = NodePicture::new(name.clone());
    node.head.link = NodeLink::Live;
    node.sampled_at_ms = Some(1_000);
    node.head.events =
        vec![GpuEvent { at_ms: 500, gpu: None, xid: Some(79), text: "fell off the bus".into() }];
    for index in 0..2 {
        let facts = GpuFacts { index, ..GpuFacts::new(GpuUuid::new(format!("GPU-{index}")), index) };
        let mut gpu = GpuPicture { facts, ..GpuPicture::default() };
        for (field, value) in [
            (GpuField::Util, 90 + u64::from(index)),
            (GpuField::Power, 300),
            (GpuField::Temp, 60),
            (GpuField::MemUsed, 0),
        ] {
            gpu.row.set(field, field.cell(&Reading::Value(value * field.metric().divisor)));
        }
        node.gpus.push(gpu);
    }
    node.gpus[0].owners = vec![Owner { job: JobId(17), by: Evidence::GresIndex }];
    let mut facts =
        ProcessFacts::new(GpuUuid::new("GPU-0"), 4711, ProcessKind { compute: true, ..Default::default() });
    facts.job = Some(JobId(17));
    facts.args = Reading::Failed("hidden: another user's process".into());
    node.processes.push(ProcessPicture { facts, row: Default::default() });
    let running =
        job::Job { nodes: vec![name], ..job::Job::new(JobId(17), "alice".into(), JobState::Running) };
    let left = job::Job::new(JobId(9), "alice".into(), JobState::Ended("".into()));
    Picture { jobs: vec![running, left], nodes: vec![node], ..Picture::default() }
}

#[test]
fn a_gpu_that_is_not_the_jobs_is_named_apart_and_in_no_sum() {
    let mut picture = picture();
    let mut second = picture.nodes[0].processes[0].clone();
    second.facts.gpu = GpuUuid::new("GPU-1");
    picture.nodes[0].processes.push(second);
    let snapshot = Snapshot::new(&picture, 0);
    let job = &snapshot.jobs[0];
    assert_eq!((&*job.gpus, &*job.foreign_gpus), (&["GPU-0".to_owned()][..], &["GPU-1".to_owned()][..]));
    assert_eq!((job.totals.gpus, job.totals.util_pct), (1, Some(90.0)));
}

#[test]
fn readings_from_before_a_node_fell_silent_are_in_no_sum() {
    let mut picture = picture();
    picture.nodes[0].head.link = NodeLink::Silent;
    let job = &Snapshot::new(&picture, 0).jobs[0];
    assert_eq!((&*job.gpus, &job.totals), (&["GPU-0".to_owned()][..], &JobTotals::default()));
}

#[test]
fn a_job_has_its_gpus_and_the_sums_over_them() {
    let snapshot = Snapshot::new(&picture(), 0);
    let [running, left] = snapshot.jobs.as_slice() else { panic!("two jobs") };
    assert_eq!((running.state.as_str(), &*running.gpus), ("RUNNING", &["GPU-0".to_owned()][..]));
    let totals = &running.totals;
    assert_eq!(
        (totals.gpus, totals.util_pct, totals.power_w, totals.temp_c),
        (1, Some(90.0), Some(300), Some(60))
    );
    // The size of its memory is not known, and nothing of a job without GPUs.
    assert_eq!(totals.mem_total_bytes, None);
    assert_eq!((left.state.as_str(), &left.totals), ("ENDED", &JobTotals::default()));
}

#[test]
fn a_gpu_is_free_if_it_is_readable_and_nobody_has_it() {
    let is_free = |change: fn(&mut Picture)| {
        let mut picture = picture();
        change(&mut picture);
        Snapshot::new(&picture, 0).gpus.iter().map(Gpu::is_free).collect::<Vec<_>>()
    };
    assert_eq!(is_free(|_| ()), [false, true]);
    assert_eq!(is_free(|picture| picture.nodes[0].head.link = NodeLink::Late), [false, false]);
    assert_eq!(is_free(|picture| picture.nodes[0].head.link = NodeLink::Silent), [false, false]);
    assert_eq!(
        is_free(|picture| picture.nodes[0].gpus[1].fault = Some("GPU is lost".into())),
        [false, false]
    );
    // Which GPUs the job has is unknown; then it has none; then it has ended. The first one has a process.
    assert_eq!(is_free(|picture| picture.nodes[0].gpus[0].owners.clear()), [false, false]);
    let without_gpus = |picture: &mut Picture| {
        picture.nodes[0].gpus[0].owners.clear();
        picture.nodes[0].head.without_gpus.push(JobId(17));
    };
    assert_eq!(is_free(without_gpus), [false, true]);
    let ended = |picture: &mut Picture| {
        picture.nodes[0].gpus[0].owners.clear();
        picture.jobs[0].state = JobState::Ended("COMPLETED".into());
    };
    assert_eq!(is_free(ended), [false, true]);
    let hold = |picture: &mut Picture| {
        let used = GpuField::MemUsed.cell(&Reading::Value(9 << 30));
        picture.nodes[0].gpus[1].row.set(GpuField::MemUsed, used);
    };
    assert_eq!(is_free(hold), [false, false]);
    assert_eq!(
        is_free(|picture| picture.nodes[0].gpus[1].facts.mig_mode = Reading::Value(true)),
        [false, false]
    );
    let forget = |picture: &mut Picture| picture.nodes[0].gpus[1].row.set(GpuField::MemUsed, Cell::FAILED);
    assert_eq!(is_free(forget), [false, false]);
}

#[test]
fn processes_that_could_not_be_read_are_unknown_and_not_none() {
    let second = |gap: ProcessGap| {
        let mut picture = picture();
        picture.nodes[0].gpus[1].gaps = vec![gap];
        let gpu = Snapshot::new(&picture, 0).gpus.remove(1);
        (gpu.processes, gpu.processes_absent, gpu.is_free())
    };
    assert_eq!(second(ProcessGap::Failed("timeout".into())), (None, Some(Absence::Failed), false));
    assert_eq!(second(ProcessGap::Unsupported), (None, Some(Absence::Unsupported), false));
    assert_eq!(second(ProcessGap::More(3)), (Some(3), None, false));
}

#[test]
fn times_are_of_the_login_nodes_clock_and_hidden_values_are_null() {
    let snapshot = Snapshot::new(&picture(), 1_795_586_845_000);
    assert_eq!(snapshot.gpus[0].sampled_at.unwrap().to_string(), "2026-11-25T06:07:26Z");
    assert_eq!(snapshot.nodes[0].events[0].at.to_string(), "2026-11-25T06:07:25.500Z");
    let process = &snapshot.processes[0];
    assert_eq!((process.pid, process.gpu_index, &process.args), (4711, Some(0), &None));
    assert_eq!(process.contexts, [ProcessContext::Compute]);
}

#[test]
fn resources_are_read_back_from_json() {
    let mut picture = picture();
    // Which GPUs its job has is unknown.
    picture.nodes[0].gpus[0].owners.clear();
    let snapshot = Snapshot::new(&picture, 0);
    let text = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
}

//! Tests of the fleet's rules.

use super::scene::*;
use super::*;
use nodeglass_protocol::finding::FindingKind;
use nodeglass_protocol::host::{JobCgroupUsage, JobReadings};
use nodeglass_protocol::job::GpuSet;
use nodeglass_protocol::picture::{Evidence, Link};
use nodeglass_protocol::probe::{Confinement, SourceState};
use nodeglass_protocol::probe::{
    GpuGap, GpuSample, ProbeLine, ProbeUsage, ProcessGap, ProcessList, ProcessListReadings, Sample,
};
use nodeglass_protocol::{GpuField, JobId, ProcessField, Reading, Text, Vendor};

fn one_node() -> Fleet {
    let mut fleet = Fleet::new();
    jobs(&mut fleet, vec![job(1, &[("n1", &[0, 1])])], 0);
    line(&mut fleet, "n1", hello("n1", &[0, 1]), 100);
    line(&mut fleet, "n1", sample(50, &[90, 80]), 1_000);
    fleet
}

fn owners(fleet: &Fleet, on: &str) -> Vec<Vec<(u32, Evidence)>> {
    let owned =
        |gpu: &nodeglass_protocol::picture::GpuPicture| gpu.owners.iter().map(|o| (o.job.0, o.by)).collect();
    node(fleet, on).gpus.iter().map(owned).collect()
}

#[test]
fn only_nodes_of_active_jobs_are_planned() {
    let mut fleet = Fleet::new();
    let mut waiting = job(2, &[("n2", &[])]);
    waiting.state = JobState::Pending;
    jobs(&mut fleet, vec![job(1, &[("n1", &[0])]), waiting], 0);
    assert_eq!(fleet.wanted().into_iter().collect::<Vec<_>>(), [name("n1")]);
}

#[test]
fn a_silent_node_is_shown_as_silent_not_idle() {
    let mut fleet = one_node();
    fleet.handle(Event::Tick, 3_900);
    assert_eq!(node(&fleet, "n1").head.link, Link::Live);
    fleet.handle(Event::Tick, 4_000);
    assert_eq!(node(&fleet, "n1").head.link, Link::Late);
    fleet.handle(Event::Tick, 16_000);
    let silent = node(&fleet, "n1");
    assert_eq!(silent.head.link, Link::Silent);
    assert_eq!(silent.gpus[0].row.value(GpuField::Util), Some(90));
    assert_eq!(silent.sampled_at_ms, Some(1_000));
}

#[test]
fn values_omitted_by_a_sparse_sample_are_unchanged() {
    let mut fleet = one_node();
    let warm = |second, before| {
        let ProbeLine::Sample(mut sample) = sample(second, &[]) else { unreachable!("it is one") };
        let temp_c = Reading::Value(61);
        sample.gpus = vec![GpuSample { temp_c, ..Default::default() }, GpuSample::default()];
        since(before, ProbeLine::Sample(sample))
    };
    let shown = |fleet: &Fleet| {
        let row = &node(fleet, "n1").gpus[0].row;
        (row.value(GpuField::Util), row.value(GpuField::Temp))
    };
    line(&mut fleet, "n1", warm(51, Some(50)), 2_000);
    assert_eq!(shown(&fleet), (Some(90), Some(61)));
    line(&mut fleet, "n1", warm(52, None), 3_000);
    assert_eq!(shown(&fleet), (None, Some(61)));
}

#[test]
fn a_fault_and_a_jobs_usage_last_until_a_sample_changes_them() {
    let mut fleet = one_node();
    let (fault, usage) = (
        Some(nodeglass_protocol::Text::new("GPU is lost")),
        JobCgroupUsage {
            job: JobId(1),
            now: JobReadings { cpu_pct: Reading::Value(790), ..Default::default() },
        },
    );
    let sparse = |seq, before, fault: &Option<_>, jobs: &[JobCgroupUsage]| {
        let gpus = vec![GpuSample { fault: fault.clone(), ..Default::default() }, GpuSample::default()];
        let sample = Sample { seq, gpus, jobs: jobs.to_vec(), ..Sample::default() };
        since(before, ProbeLine::Sample(Box::new(sample)))
    };
    let shown = |fleet: &mut Fleet| {
        let node = node(fleet, "n1");
        (node.gpus[0].fault.clone(), node.job_usage.len(), fleet.take_changes().nodes[&name("n1")].clone())
    };
    line(&mut fleet, "n1", sparse(51, Some(50), &fault, std::slice::from_ref(&usage)), 2_000);
    let (known, usages, changes) = shown(&mut fleet);
    assert!(known == fault && usages == 1 && changes.gpus && changes.job_usage);
    line(&mut fleet, "n1", sparse(52, Some(51), &None, &[]), 3_000);
    let (known, usages, changes) = shown(&mut fleet);
    assert!(known == fault && usages == 1 && !changes.gpus && !changes.job_usage);
    // As a whole the same is no news, and nothing is.
    line(&mut fleet, "n1", sparse(53, None, &fault, &[usage]), 4_000);
    let (known, usages, changes) = shown(&mut fleet);
    assert!(known == fault && usages == 1 && !changes.gpus && !changes.job_usage);
    line(&mut fleet, "n1", sparse(54, None, &None, &[]), 5_000);
    let (known, usages, changes) = shown(&mut fleet);
    assert!(known.is_none() && usages == 0 && changes.gpus && changes.job_usage);
}

#[test]
fn sparse_history_is_entered_from_its_first_complete_sample_on() {
    let mut fleet = one_node();
    let utils = |second, before, utils: &[u64]| since(before, replay(second, utils));
    line(&mut fleet, "n1", sample(60, &[99, 99]), 11_000);
    // The sample that 51 continues was lost; 53 omits values of 52.
    line(&mut fleet, "n1", utils(51, Some(50), &[11, 11]), 11_010);
    line(&mut fleet, "n1", utils(52, None, &[22, 22]), 11_020);
    line(&mut fleet, "n1", utils(53, Some(52), &[33]), 11_030);
    fleet.handle(Event::Tick, 11_500);
    let history = node(&fleet, "n1").history.as_ref().unwrap();
    let known = |gpu| -> Vec<_> {
        let points = history.gpu(gpu, GpuField::Util).unwrap().points();
        points.filter_map(|(_, cell)| cell?.value()).collect()
    };
    assert_eq!((known(0), known(1)), (vec![90, 22, 33, 99], vec![80, 22, 22, 99]));
}

#[test]
fn the_same_job_list_again_changes_nothing_but_its_age() {
    let mut fleet = one_node();
    fleet.take_changes();
    jobs(&mut fleet, vec![job(1, &[("n1", &[0, 1])])], 20_000);
    let changes = fleet.take_changes();
    assert!(changes.relay && !changes.jobs && !changes.membership);
}

#[test]
fn f09_when_slurm_is_silent_the_last_list_stays_with_its_age() {
    let mut fleet = one_node();
    fleet.handle(Event::JobsFailed { why: "squeue did not respond".into(), retry_at_ms: 40_000 }, 30_000);
    assert_eq!(fleet.jobs().len(), 1);
    assert!(matches!(fleet.status().jobs, JobsHealth::Stale { last_ms: Some(0), .. }));
    assert_eq!(fleet.wanted().len(), 1);
}

#[test]
fn f30_an_ended_job_keeps_its_last_picture_while_its_node_continues() {
    let mut fleet = one_node();
    jobs(&mut fleet, vec![job(1, &[("n1", &[0])]), job(2, &[("n1", &[1])])], 2_000);
    jobs(&mut fleet, vec![job(2, &[("n1", &[1])])], 3_000);
    line(&mut fleet, "n1", sample(54, &[1, 2]), 5_000);
    let ended = fleet.jobs().iter().find(|job| job.id == JobId(1)).unwrap();
    assert!(matches!(ended.state, JobState::Ended(_)));
    assert_eq!(ended.ended, Some(1_003));
    let last_picture = fleet.nodes_of(&Topic::Job(JobId(1))).unwrap();
    assert_eq!(last_picture[0].head.link, Link::Ended);
    assert_eq!(last_picture[0].gpus[0].row.value(GpuField::Util), Some(90));
    assert_eq!(node(&fleet, "n1").gpus[0].row.value(GpuField::Util), Some(1));
}

#[test]
fn f30_a_job_that_grows_or_shrinks_while_it_is_viewed_has_the_nodes_that_slurm_states() {
    let mut fleet = one_node();
    let of_job = |fleet: &Fleet| -> Vec<String> {
        let nodes = fleet.nodes_of(&Topic::Job(JobId(1))).unwrap();
        nodes.iter().map(|node| node.name.to_string()).collect()
    };
    jobs(&mut fleet, vec![job(1, &[("n1", &[0, 1]), ("n2", &[0])])], 2_000);
    assert_eq!((of_job(&fleet), fleet.wanted().len()), (vec!["n1".to_owned(), "n2".to_owned()], 2));
    // The node that stays keeps its readings.
    assert_eq!(node(&fleet, "n1").gpus[0].row.value(GpuField::Util), Some(90));
    jobs(&mut fleet, vec![job(1, &[("n2", &[0])])], 3_000);
    assert_eq!(
        (of_job(&fleet), fleet.wanted().into_iter().collect()),
        (vec!["n2".to_owned()], vec![name("n2")])
    );
}

#[test]
fn an_ended_job_is_shown_as_it_was_before_its_end_and_not_as_it_left_its_node() {
    let mut fleet = one_node();
    line(&mut fleet, "n1", process("n1", 0, 77, Some(1)), 1_000);
    (51..60).for_each(|second| line(&mut fleet, "n1", sample(second, &[95, 95]), (second - 49) * 1_000));
    // It ends at 10 s; SLURM reports that at 20 s, when its GPUs are idle and its process is gone.
    (60..70).for_each(|second| line(&mut fleet, "n1", sample(second, &[0, 0]), (second - 49) * 1_000));
    line(&mut fleet, "n1", ProbeLine::Processes(Default::default()), 20_000);
    let mut over = job(1, &[("n1", &[0, 1])]);
    (over.state, over.ended) = (JobState::Ended("COMPLETED".into()), Some(1_010));
    jobs(&mut fleet, vec![over], 20_000);
    let last_picture = fleet.nodes_of(&Topic::Job(JobId(1))).unwrap()[0];
    assert_eq!(last_picture.gpus[0].row.value(GpuField::Util), Some(95));
    assert_eq!(last_picture.sampled_at_ms, Some(8_000));
    let util = last_picture.history.as_ref().unwrap().gpu(0, GpuField::Util).unwrap();
    assert!(util.points().all(|(_, cell)| cell.and_then(|cell| cell.value()) >= Some(90)));
    assert_eq!(last_picture.processes[0].facts.pid, 77);
}

#[test]
fn a_process_list_with_gaps_marks_its_gpu_until_it_is_complete() {
    let mut fleet = one_node();
    let list = |gaps: Vec<ProcessGap>| {
        let ProbeLine::Processes(list) = process("n1", 1, 77, Some(1)) else { unreachable!("it is one") };
        let gaps = gaps.into_iter().map(|gap| GpuGap { gpu: uuid("n1", 1), gap }).collect();
        ProbeLine::Processes(ProcessList { gaps, ..list })
    };
    let failed = ProcessGap::Failed("unknown error".into());
    fleet.take_changes();
    line(&mut fleet, "n1", list(vec![failed.clone(), ProcessGap::More(3)]), 1_000);
    assert_eq!(node(&fleet, "n1").gpus[1].gaps, [failed, ProcessGap::More(3)]);
    assert!(node(&fleet, "n1").gpus[0].gaps.is_empty());
    assert!(fleet.take_changes().nodes[&name("n1")].gpus);
    line(&mut fleet, "n1", list(vec![ProcessGap::More(1); 99]), 2_000);
    assert!(node(&fleet, "n1").gpus[1].gaps.len() < 9, "a hostile node does not fill the page");
    line(&mut fleet, "n1", list(Vec::new()), 3_000);
    assert!(node(&fleet, "n1").gpus[1].gaps.is_empty());
}

#[test]
fn process_updates_of_another_list_are_ignored() {
    let mut fleet = one_node();
    let ProbeLine::Processes(list) = process("n1", 1, 77, Some(1)) else { unreachable!("it is one") };
    line(&mut fleet, "n1", ProbeLine::Processes(ProcessList { mono_ns: 5, ..list }), 1_000);
    let mut sparse = |list_ns| {
        let ProbeLine::ProcessReadings(readings) = process_readings(7 << 30) else {
            unreachable!("they are")
        };
        line(
            &mut fleet,
            "n1",
            ProbeLine::ProcessReadings(ProcessListReadings { list_ns, ..readings }),
            2_000,
        );
        line(&mut fleet, "n1", sample(52 + list_ns, &[1, 1]), 3_000);
        node(&fleet, "n1").processes[0].row.value(ProcessField::GpuMem)
    };
    assert_eq!((sparse(4), sparse(5)), (Some(1 << 30), Some(7 << 30)));
}

#[test]
fn f30_a_requeued_job_is_live_again() {
    let mut fleet = one_node();
    jobs(&mut fleet, vec![], 2_000);
    assert!(fleet.wanted().is_empty());
    jobs(&mut fleet, vec![job(1, &[("n1", &[0])])], 3_000);
    let nodes = fleet.nodes_of(&Topic::Job(JobId(1))).unwrap();
    assert_eq!(nodes[0].head.link, Link::Waiting);
}

#[test]
fn f30_a_requeued_job_that_waits_keeps_the_history_of_its_run() {
    let mut fleet = one_node();
    let waiting = || Job { state: JobState::Pending, nodes: Vec::new(), ..job(1, &[]) };
    jobs(&mut fleet, vec![waiting()], 2_000);
    assert!(fleet.nodes_of(&Topic::Job(JobId(1))).unwrap().is_empty(), "it has no nodes");
    assert_eq!(fleet.nodes_before_requeue(JobId(1)).len(), 1);
    assert_eq!(fleet.take_ended(), [], "it has not ended");
    jobs(&mut fleet, vec![waiting()], 3_000);
    assert_eq!(fleet.nodes_before_requeue(JobId(1)).len(), 1);
    jobs(&mut fleet, vec![job(1, &[("n1", &[0])])], 4_000);
    assert!(fleet.nodes_before_requeue(JobId(1)).is_empty(), "it runs again");
    jobs(&mut fleet, vec![waiting()], 5_000);
    let cancelled = Job { state: JobState::Ended("CANCELLED".into()), ended: Some(1_006), ..waiting() };
    jobs(&mut fleet, vec![cancelled], 6_000);
    assert_eq!(fleet.nodes_of(&Topic::Job(JobId(1))).unwrap().len(), 1, "it was cancelled while it waited");
}

#[test]
fn a_gres_index_is_a_minor_number_and_never_an_nvml_index() {
    let mut fleet = Fleet::new();
    jobs(&mut fleet, vec![job(1, &[("n1", &[3])]), job(2, &[("n1", &[0, 1, 2])])], 0);
    line(&mut fleet, "n1", hello("n1", &[3, 2, 1, 0]), 0);
    let by = Evidence::GresIndex;
    assert_eq!(owners(&fleet, "n1"), [vec![(1, by)], vec![(2, by)], vec![(2, by)], vec![(2, by)]]);
}

#[test]
fn a_gpu_is_assigned_by_its_processes_if_slurm_does_not_report_it() {
    let mut fleet = Fleet::new();
    let mut vague = job(1, &[("n1", &[])]);
    vague.gpus[0].set = GpuSet::Unknown;
    jobs(&mut fleet, vec![vague], 0);
    line(&mut fleet, "n1", hello("n1", &[0, 1]), 0);
    line(&mut fleet, "n1", process("n1", 1, 77, Some(1)), 0);
    assert_eq!(owners(&fleet, "n1"), [vec![], vec![(1, Evidence::Process)]]);
}

#[test]
fn a_job_that_has_as_many_gpus_as_the_node_has_them_all() {
    let mut fleet = Fleet::new();
    let mut counted = job(1, &[("n1", &[])]);
    counted.gpus[0].set = GpuSet::Count(2);
    jobs(&mut fleet, vec![counted], 0);
    line(&mut fleet, "n1", hello("n1", &[0, 1]), 0);
    assert_eq!(owners(&fleet, "n1"), [vec![(1, Evidence::WholeNode)], vec![(1, Evidence::WholeNode)]]);
}

#[test]
fn f28_a_gpu_of_a_job_that_the_driver_no_longer_lists_is_lost_until_it_is_listed_again() {
    let mut fleet = one_node();
    let faults = |fleet: &Fleet| {
        let gpus = &node(fleet, "n1").gpus;
        gpus.iter().map(|gpu| (gpu.facts.index, gpu.fault.is_some())).collect::<Vec<_>>()
    };
    let with = |change: fn(&mut nodeglass_protocol::probe::Hello)| match hello("n1", &[0]) {
        ProbeLine::Hello(mut hello) => {
            change(&mut hello);
            ProbeLine::Hello(hello)
        }
        other => other,
    };
    // A probe whose driver does not respond yet, or that sees one of the GPUs only.
    let opening = with(|hello| {
        hello.gpus.clear();
        hello.sources = vec![SourceState::absent(Vendor::Nvidia, "the driver does not respond")];
    });
    let confined = with(|hello| hello.confinement = Some(Confinement::default()));
    for (few, expected) in
        [(hello("n1", &[0]), vec![(0, false), (1, true)]), (opening, vec![]), (confined, vec![(0, false)])]
    {
        line(&mut fleet, "n1", hello("n1", &[0, 1]), 10_000);
        jobs(&mut fleet, vec![job(1, &[("n1", &[0, 1])])], 10_000);
        line(&mut fleet, "n1", sample(60, &[50, 60]), 11_000);
        line(&mut fleet, "n1", few, 12_000);
        assert_eq!(faults(&fleet), expected);
    }
    line(&mut fleet, "n1", hello("n1", &[0, 1]), 10_000);
    jobs(&mut fleet, vec![job(1, &[("n1", &[0, 1])])], 10_000);
    for _ in 0..2 {
        line(&mut fleet, "n1", hello("n1", &[0]), 12_000);
        line(&mut fleet, "n1", sample(61, &[50]), 13_000);
        assert_eq!(faults(&fleet), [(0, false), (1, true)]);
        assert_eq!(node(&fleet, "n1").gpus[1].row.value(GpuField::Util), None, "no value is old");
    }
    fleet.handle(Event::Tick, 30_000);
    let lost: Vec<_> =
        fleet.findings().iter().filter(|finding| finding.kind == FindingKind::GpuLost).collect();
    assert_eq!((lost.len(), &lost[0].jobs[..]), (1, &[JobId(1)][..]));
    line(&mut fleet, "n1", hello("n1", &[0, 1]), 31_000);
    line(&mut fleet, "n1", sample(80, &[50, 60]), 32_000);
    assert_eq!(faults(&fleet), [(0, false), (1, false)]);
    // Of no job.
    jobs(&mut fleet, vec![job(1, &[("n1", &[0])])], 33_000);
    line(&mut fleet, "n1", hello("n1", &[0]), 34_000);
    assert_eq!(faults(&fleet), [(0, false)]);
}

#[test]
fn f28_a_gpu_of_a_job_that_was_lost_before_the_relay_saw_it_is_stated() {
    let faulty = |fleet: &Fleet| {
        let gpus = node(fleet, "n1").gpus.iter().filter(|gpu| gpu.fault.is_some());
        gpus.map(|gpu| (gpu.facts.uuid.to_string(), gpu.facts.index)).collect::<Vec<_>>()
    };
    let processes = |on: Option<u32>| match process("n1", on.unwrap_or(0), 77, on.map(|_| 1)) {
        ProbeLine::Processes(list) => ProbeLine::Processes(ProcessList { mono_ns: 1, ..list }),
        other => other,
    };
    let seen = |minors: &[u32], indices: &[u32], list: ProbeLine| {
        let mut fleet = Fleet::new();
        line(&mut fleet, "n1", hello("n1", minors), 100);
        jobs(&mut fleet, vec![job(1, &[("n1", indices)])], 0);
        line(&mut fleet, "n1", hello("n1", minors), 100);
        assert_eq!(faulty(&fleet), [], "a process may contradict");
        line(&mut fleet, "n1", list, 200);
        fleet
    };
    let mut fleet = seen(&[1, 2, 3], &[0, 1], processes(Some(0)));
    assert_eq!(faulty(&fleet), [("LOST-0".to_owned(), 0)]);
    line(&mut fleet, "n1", sample(50, &[90, 80, 0]), 1_000);
    fleet.handle(Event::Tick, 30_000);
    let lost = fleet.findings().iter().find(|finding| finding.kind == FindingKind::GpuLost).unwrap();
    assert_eq!(lost.jobs, [JobId(1)]);
    // It stays with the next probe, and is replaced by the GPU itself.
    line(&mut fleet, "n1", hello("n1", &[1, 2, 3]), 31_000);
    assert_eq!(faulty(&fleet).len(), 1);
    line(&mut fleet, "n1", hello("n1", &[0, 1, 2, 3]), 32_000);
    assert_eq!((faulty(&fleet).len(), node(&fleet, "n1").gpus.len()), (0, 4));
    // Indices that are not minor numbers, or may not be.
    assert_eq!(faulty(&seen(&[1, 2, 3], &[0, 1], processes(Some(1)))), []);
    assert_eq!(faulty(&seen(&[1, 2, 3], &[0], processes(None))), []);
    assert_eq!(faulty(&seen(&[1, 2, 3], &[1, 2], processes(None))), []);
    // A driver that is reloaded while the GPU is gone.
    let mut fleet = seen(&[0, 1], &[0, 1], processes(Some(0)));
    line(&mut fleet, "n1", hello("n1", &[0]), 1_000);
    assert_eq!(faulty(&fleet), [("GPU-n1-1".to_owned(), 1)]);
    let ProbeLine::Hello(mut unloaded) = hello("n1", &[]) else { unreachable!("it is one") };
    unloaded.sources = vec![SourceState::absent(Vendor::Nvidia, "the NVIDIA driver is not loaded")];
    line(&mut fleet, "n1", ProbeLine::Hello(unloaded), 2_000);
    line(&mut fleet, "n1", hello("n1", &[0]), 3_000);
    assert_eq!(faulty(&fleet), [("GPU-n1-1".to_owned(), 1)]);
}

#[test]
fn backfilled_samples_whose_gpus_are_not_known_are_lost() {
    let mut fleet = Fleet::new();
    jobs(&mut fleet, vec![job(1, &[("n1", &[0])])], 0);
    let connect = |fleet: &mut Fleet, minors: &[u32], now_ms| {
        fleet.handle(Event::Node(name("n1"), SessionEvent::Connecting { failures: 0 }), now_ms);
        line(fleet, "n1", hello("n1", minors), now_ms);
    };
    connect(&mut fleet, &[0], 0);
    line(&mut fleet, "n1", sample(1, &[10]), 1_000);
    // The driver is still opening on the next probe.
    connect(&mut fleet, &[], 5_000);
    (2..5).for_each(|second| line(&mut fleet, "n1", replay(second, &[10]), 5_000));
    line(&mut fleet, "n1", sample(5, &[]), 5_000);
    line(&mut fleet, "n1", sample(35, &[]), 35_000);
    (6..35).for_each(|second| line(&mut fleet, "n1", replay(second, &[]), 35_000));
    fleet.handle(Event::Tick, 66_000);
    assert_eq!(fleet.connection_counts().map(|(_, _, counts)| counts.lost_samples).collect::<Vec<_>>(), [3]);
}

#[test]
fn missed_samples_fill_their_gap() {
    let mut fleet = one_node();
    line(&mut fleet, "n1", sample(60, &[50, 50]), 11_000);
    for second in 51..60 {
        line(&mut fleet, "n1", replay(second, &[70, 70]), 11_050);
    }
    fleet.handle(Event::Tick, 11_500);
    let history = node(&fleet, "n1").history.as_ref().unwrap();
    let util = history.gpu(0, GpuField::Util).unwrap();
    let values: Vec<_> =
        util.points().map(|(_, cell)| cell.and_then(nodeglass_protocol::Cell::value)).collect();
    assert_eq!(values, [vec![Some(90)], vec![Some(70); 9], vec![Some(50)]].concat());
    assert_eq!(node(&fleet, "n1").gpus[0].row.value(GpuField::Util), Some(50));
}

#[test]
fn a_shorter_interval_leaves_no_gap_before_its_first_sample() {
    let mut fleet = one_node();
    let sampled = |second: u64, interval_ms: u32| match sample(second, &[50, 50]) {
        ProbeLine::Sample(sample) => ProbeLine::Sample(Box::new(Sample { interval_ms, ..*sample })),
        other => other,
    };
    for (second, interval_ms) in [(11, 10_000), (20, 10_000), (29, 1_000), (30, 1_000), (36, 1_000)] {
        line(&mut fleet, "n1", sampled(second + 50, interval_ms), second * 1_000);
    }
    let trace = node(&fleet, "n1").history.as_ref().unwrap().gpu(0, GpuField::Util).unwrap();
    let gaps: Vec<u64> = trace.points().filter(|(_, cell)| cell.is_none()).map(|(at_ms, _)| at_ms).collect();
    assert_eq!(gaps, [31_000, 32_000, 33_000, 34_000, 35_000], "six seconds at an interval of one are a gap");
}

#[test]
fn a_new_link_fills_the_gap_that_the_old_one_left() {
    let mut fleet = one_node();
    line(&mut fleet, "n1", hello("n1", &[0, 1]), 21_500);
    line(&mut fleet, "n1", sample(71, &[50, 50]), 22_000);
    (51..71).for_each(|second| line(&mut fleet, "n1", replay(second, &[70, 70]), 22_050));
    // It is entered before anything that arrives later.
    line(&mut fleet, "n1", hello("n1", &[0, 1]), 22_100);
    let history = node(&fleet, "n1").history.as_ref().unwrap();
    let util = history.gpu(0, GpuField::Util).unwrap();
    let values: Vec<_> =
        util.points().map(|(_, cell)| cell.and_then(nodeglass_protocol::Cell::value)).collect();
    assert_eq!(values, [vec![Some(90)], vec![Some(70); 20], vec![Some(50)]].concat());
}

#[test]
fn history_that_arrives_before_the_first_live_sample_is_kept() {
    let mut fleet = Fleet::new();
    fleet.watch_hosts([name("n1")]);
    line(&mut fleet, "n1", hello("n1", &[0]), 600_000);
    (0..10).for_each(|second| line(&mut fleet, "n1", replay(100 + second, &[second]), 600_000));
    line(&mut fleet, "n1", sample(110, &[99]), 600_000);
    let history = node(&fleet, "n1").history.as_ref().unwrap();
    assert_eq!(history.gpu(0, GpuField::Util).unwrap().len(), 11);
}

#[test]
fn an_event_before_the_first_sample_has_the_time_that_the_sample_relates_to_the_relays_clock() {
    let mut fleet = Fleet::new();
    fleet.watch_hosts([name("n1")]);
    line(&mut fleet, "n1", hello("n1", &[0]), 600_000);
    let event = nodeglass_protocol::probe::Event {
        mono_ns: 90_000_000_000,
        gpu: Some(uuid("n1", 0)),
        xid: Some(31),
        text: "Xid".into(),
    };
    line(&mut fleet, "n1", ProbeLine::Event(event), 600_000);
    assert!(node(&fleet, "n1").head.events.is_empty(), "its time is not known");
    line(&mut fleet, "n1", sample(110, &[99]), 600_100);
    let events = &node(&fleet, "n1").head.events;
    assert_eq!(events.iter().map(|event| event.at_ms).collect::<Vec<_>>(), [600_100 - 20_000]);
}

#[test]
fn an_event_that_a_probe_sends_again_after_a_stall_is_recorded_once() {
    let mut fleet = one_node();
    let xid = || {
        ProbeLine::Event(nodeglass_protocol::probe::Event {
            mono_ns: 100_000_000_000,
            gpu: Some(uuid("n1", 0)),
            xid: Some(31),
            text: "Xid".into(),
        })
    };
    line(&mut fleet, "n1", xid(), 2_000);
    line(&mut fleet, "n1", hello("n1", &[0, 1]), 23_000);
    line(&mut fleet, "n1", xid(), 23_000);
    line(&mut fleet, "n1", sample(130, &[99, 99]), 23_600);
    assert_eq!(node(&fleet, "n1").head.events.len(), 1);
}

#[test]
fn a_gpu_keeps_its_history_when_its_index_changes() {
    let mut fleet = one_node();
    let ProbeLine::Hello(mut again) = hello("n1", &[0, 1]) else { unreachable!() };
    again.gpus.reverse();
    line(&mut fleet, "n1", ProbeLine::Hello(again), 2_000);
    let node = node(&fleet, "n1");
    assert_eq!(node.gpus[0].facts.uuid, uuid("n1", 1));
    assert_eq!(node.gpus[0].row.value(GpuField::Util), Some(80));
    let history = node.history.as_ref().unwrap();
    assert_eq!(history.gpu(0, GpuField::Util).unwrap().points().last().unwrap().1.unwrap().value(), Some(80));
}

#[test]
fn f35_a_stall_of_the_relay_makes_no_node_silent() {
    let mut fleet = one_node();
    let last_ms = node(&fleet, "n1").sampled_at_ms.unwrap();
    fleet.handle(Event::Stalled { ms: 60_000 }, last_ms + 60_000);
    fleet.handle(Event::Tick, last_ms + 60_000);
    assert_eq!(node(&fleet, "n1").head.link, Link::Live);
    fleet.handle(Event::Tick, last_ms + 60_000 + super::node::SILENT_MS);
    assert_eq!(node(&fleet, "n1").head.link, Link::Silent, "it does not send, either");
}

#[test]
fn f29_a_hung_nvml_is_reported_and_cleared() {
    let mut fleet = one_node();
    line(&mut fleet, "n1", heartbeat(Some(4_000)), 5_000);
    assert_eq!(node(&fleet, "n1").head.driver_stuck_ms, Some(4_000));
    assert_eq!(node(&fleet, "n1").head.link, Link::Live);
    line(&mut fleet, "n1", sample(60, &[1, 1]), 11_000);
    assert_eq!(node(&fleet, "n1").head.driver_stuck_ms, None);
}

#[test]
fn samples_of_the_host_alone_do_not_take_a_hung_nvml_back() {
    let mut fleet = one_node();
    let without_answer = |second, faults: [bool; 2]| {
        let ProbeLine::Sample(mut sample) = sample(second, &[1, 1]) else { unreachable!("it is one") };
        for (gpu, fault) in sample.gpus.iter_mut().zip(faults) {
            gpu.fault = fault.then(|| "the NVIDIA driver has not responded since 14:03:12 UTC".into());
        }
        ProbeLine::Sample(sample)
    };
    line(&mut fleet, "n1", heartbeat(Some(4_000)), 5_000);
    line(&mut fleet, "n1", without_answer(60, [true, true]), 6_000);
    assert_eq!(node(&fleet, "n1").head.driver_stuck_ms, Some(4_000));
    line(&mut fleet, "n1", heartbeat(Some(5_000)), 6_001);
    assert_eq!(node(&fleet, "n1").head.driver_stuck_ms, Some(5_000));
    line(&mut fleet, "n1", without_answer(61, [true, false]), 7_000);
    assert_eq!(node(&fleet, "n1").head.driver_stuck_ms, None);
    // Another probe starts without it, even if it has no GPU to show.
    line(&mut fleet, "n1", heartbeat(Some(6_000)), 8_000);
    line(&mut fleet, "n1", hello("n1", &[0, 1]), 9_000);
    assert_eq!(node(&fleet, "n1").head.driver_stuck_ms, None);
}

#[test]
fn a_machine_without_a_driver_is_a_host_with_a_sentence() {
    let mut fleet = Fleet::new();
    fleet.watch_hosts([name("n1")]);
    let ProbeLine::Hello(mut bare) = hello("n1", &[]) else { unreachable!() };
    bare.sources = vec![SourceState::absent(Vendor::Nvidia, "the NVIDIA driver is not loaded")];
    line(&mut fleet, "n1", ProbeLine::Hello(bare), 0);
    assert_eq!(node(&fleet, "n1").head.no_gpu.as_ref().unwrap().as_str(), "the NVIDIA driver is not loaded");
}

#[test]
fn a_node_outside_the_plan_is_ignored() {
    let mut fleet = one_node();
    line(&mut fleet, "stranger", sample(1, &[1]), 2_000);
    assert!(fleet.nodes_of(&Topic::Node(name("stranger"))).is_none());
}

fn listed(hosts: &[(&str, Option<&str>)]) -> Event {
    let host =
        |(node, group): &(&str, Option<&str>)| (name(node), Host { group: group.map(Text::from), target: 0 });
    Event::Hosts { hosts: hosts.iter().map(host).collect(), notices: vec!["hosts.txt:1: bad".into()] }
}

#[test]
fn a_new_list_of_hosts_adds_and_removes_nodes_and_keeps_the_others() {
    let mut fleet = Fleet::new();
    fleet.handle(listed(&[("n1", Some("a")), ("n2", None)]), 0);
    line(&mut fleet, "n1", hello("n1", &[0]), 100);
    line(&mut fleet, "n1", sample(50, &[90]), 1_000);
    fleet.take_changes();
    fleet.handle(listed(&[("n1", Some("b")), ("n3", None)]), 2_000);
    assert_eq!(fleet.wanted().into_iter().collect::<Vec<_>>(), [name("n1"), name("n3")]);
    let node = node(&fleet, "n1");
    assert!(node.sampled_at_ms.is_some() && node.history.as_ref().unwrap().gpus.len() == 1);
    assert_eq!(node.head.group, Some("b".into()));
    assert_eq!(fleet.status().notices.len(), 1);
}

#[test]
fn a_listed_host_with_a_job_is_one_node_and_stays_when_the_job_ends() {
    let mut fleet = one_node();
    fleet.handle(listed(&[("n1", Some("a")), ("n2", None)]), 2_000);
    assert_eq!(fleet.wanted().len(), 2);
    jobs(&mut fleet, Vec::new(), 3);
    assert_eq!(fleet.wanted().len(), 2, "idle machines are watched, too");
    assert!(node(&fleet, "n1").sampled_at_ms.is_some());
}

#[test]
fn a_note_of_a_job_has_the_time_of_the_login_node_whatever_the_nodes_clock_says() {
    let mut fleet = Fleet::new();
    jobs(&mut fleet, vec![job(17, &[("n1", &[0])])], 0);
    line(&mut fleet, "n1", hello("n1", &[0]), 1_000);
    line(&mut fleet, "n1", sample(500, &[1]), 10_000);
    // Two seconds before that sample, and read three seconds after it.
    line(&mut fleet, "n1", scene::notes(17, 498, &["epoch 1"]), 13_000);
    // A new probe sends it again.
    line(&mut fleet, "n1", hello("n1", &[0]), 60_000);
    line(&mut fleet, "n1", scene::notes(17, 555, &["epoch 1", "epoch 2"]), 61_000);
    let notes = fleet.notes().of_job(JobId(17), 0);
    let read: Vec<_> = notes.iter().map(|note| (note.at_ms, note.text.as_str())).collect();
    assert_eq!(
        read,
        [(1_008_000, "epoch 1"), (1_061_000, "epoch 2")],
        "the clock is unknown before a sample"
    );
    assert_eq!(fleet.take_note_changes().len(), 2);
}

#[test]
fn a_node_has_no_say_about_jobs_elsewhere_and_names_what_it_cannot_read_until_that_is_solved() {
    let mut fleet = Fleet::new();
    jobs(&mut fleet, vec![job(17, &[("n1", &[0])]), job(18, &[("n2", &[0])])], 0);
    line(&mut fleet, "n1", hello("n1", &[0]), 1_000);
    line(&mut fleet, "n1", scene::notes(18, 1, &["forged"]), 2_000);
    line(&mut fleet, "n1", scene::notes(99, 1, &["forged"]), 2_000);
    assert_eq!(fleet.notes().iter().count(), 0);
    let ProbeLine::Notes(mut notes) = scene::notes(17, 1, &[]) else { unreachable!() };
    let mut problems_after = |problems: &[&str], now_ms| {
        notes.problems = Some(problems.iter().copied().map(Text::new).collect());
        line(&mut fleet, "n1", ProbeLine::Notes(notes.clone()), now_ms);
        node(&fleet, "n1").head.notes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        problems_after(&["17 is no file", "18 is no file"], 3_000),
        ["17 is no file", "18 is no file"]
    );
    assert_eq!(problems_after(&["18 is no file"], 4_000), ["18 is no file"], "one is solved");
    assert_eq!(problems_after(&[], 5_000), [""; 0]);
}

#[test]
fn what_a_probe_uses_is_known_while_it_is_connected_and_is_no_change_for_pages() {
    let mut fleet = Fleet::new();
    jobs(&mut fleet, vec![job(1, &[("n1", &[0])])], 0);
    line(&mut fleet, "n1", hello("n1", &[0]), 0);
    line(&mut fleet, "n1", sample(1, &[10]), 1_000);
    fleet.take_changes();
    let usage = ProbeUsage { cpu_ms: 5_210, rss_bytes: 9 << 20 };
    line(&mut fleet, "n1", ProbeLine::Usage(usage), 1_100);
    assert!(!fleet.has_changes());
    let known = |fleet: &Fleet| {
        fleet.probe_usages().map(|(node, job, usage)| (node.clone(), job, usage)).collect::<Vec<_>>()
    };
    assert_eq!(known(&fleet), [(name("n1"), None, usage)]);
    fleet.handle(Event::Tick, 60_000);
    assert_eq!(known(&fleet), [], "a silent probe is not known to run");
    line(&mut fleet, "n1", sample(61, &[10]), 61_000);
    assert_eq!(known(&fleet).len(), 1);
    fleet.handle(Event::Node(name("n1"), SessionEvent::Connecting { failures: 1 }), 62_000);
    line(&mut fleet, "n1", hello("n1", &[0]), 63_000);
    assert_eq!(known(&fleet), [], "another probe starts at zero");
}

#[test]
fn f05_losses_of_a_node_are_counted_while_it_is_watched() {
    let mut fleet = Fleet::new();
    jobs(&mut fleet, vec![job(1, &[("n1", &[0])])], 0);
    let connect = |fleet: &mut Fleet, now_ms| {
        fleet.handle(Event::Node(name("n1"), SessionEvent::Connecting { failures: 0 }), now_ms);
        line(fleet, "n1", hello("n1", &[0]), now_ms);
    };
    connect(&mut fleet, 0);
    line(&mut fleet, "n1", sample(1, &[10]), 1_000);
    connect(&mut fleet, 5_000);
    line(&mut fleet, "n1", sample(5, &[10]), 5_000);
    line(&mut fleet, "n1", replay(3, &[10]), 5_000);
    let known = |fleet: &Fleet| {
        fleet.connection_counts().map(|(node, job, counts)| (node.clone(), job, counts)).collect::<Vec<_>>()
    };
    let counts = ConnectionCounts { attempts: 2, ..ConnectionCounts::default() };
    assert_eq!(known(&fleet), [(name("n1"), None, counts)]);
    line(&mut fleet, "n1", sample(6, &[10]), 35_000);
    fleet.handle(Event::Tick, 35_500);
    assert_eq!(known(&fleet)[0].2, ConnectionCounts { lost_samples: 2, ..counts });
    jobs(&mut fleet, vec![], 36_000);
    assert_eq!(known(&fleet), [], "series of nodes that are gone would grow without end");
}

#[test]
fn f32_refused_logins_are_one_entry_for_all_jobs_until_a_login_succeeds() {
    let mut fleet = Fleet::new();
    fleet.use_jobs_of("alice".into());
    jobs(&mut fleet, vec![job(1, &[("n1", &[0])]), job(2, &[("n2", &[0]), ("n3", &[0]), ("n4", &[0])])], 0);
    let refuse = |fleet: &mut Fleet, node: &str, cause, why: &str| {
        let refused = SessionEvent::Refused { cause, why: why.into(), advice: "load a key".into() };
        fleet.handle(Event::Node(name(node), refused), 20_000);
    };
    refuse(&mut fleet, "n1", RefusalCause::Login, "n1 did not accept your key");
    refuse(&mut fleet, "n2", RefusalCause::Login, "n2 did not accept your key");
    refuse(&mut fleet, "n3", RefusalCause::OtherNodes, "not tried, because 2 other nodes refused the login");
    refuse(&mut fleet, "n4", RefusalCause::Node, "the host key of n4 has changed");
    fleet.handle(Event::Tick, 21_000);
    let entries = |fleet: &Fleet| -> Vec<(String, usize)> {
        let active = fleet.findings().iter().filter(|finding| finding.is_active()).collect();
        let folded = nodeglass_rules::attention::fold(active, []);
        folded.iter().map(|entry| (entry.title(), entry.jobs().len())).collect()
    };
    let other = ("n4 refused the connection".to_owned(), 1);
    let mut found = entries(&fleet);
    found.sort();
    assert_eq!(found, [("3 nodes cannot be logged in to".to_owned(), 2), other.clone()]);
    for node in ["n1", "n2", "n3"] {
        fleet.handle(Event::Node(name(node), SessionEvent::Connecting { failures: 0 }), 30_000);
        line(&mut fleet, node, hello(node, &[0]), 30_000);
    }
    fleet.handle(Event::Tick, 33_000);
    assert_eq!(entries(&fleet), [other]);
}

#[test]
fn ended_jobs_beyond_the_list_are_recorded() {
    let mut fleet = Fleet::new();
    let task = |id| Job {
        start: Some(1_000),
        ended: Some(1_001),
        ..Job::new(JobId(id), "alice".into(), JobState::Ended("FAILED".into()))
    };
    jobs(&mut fleet, (1..=2_300).map(task).collect(), 0);
    assert_eq!(fleet.jobs().len(), 2_000);
    let notices = &fleet.status().notices;
    assert!(notices[0].as_str().contains("newest 2,000 of 2,300 ended jobs"), "{notices:?}");
    assert_eq!(fleet.take_finished_records().len(), 2_300);
    jobs(&mut fleet, (1..=2_300).map(task).collect(), 15_000);
    assert_eq!(fleet.take_finished_records().len(), 0, "once is enough");
    jobs(&mut fleet, Vec::new(), 30_000);
    assert_eq!((fleet.jobs().len(), fleet.status().notices.len()), (200, 0));
}

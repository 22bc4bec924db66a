//! Detectors on scripted readings; real telemetry and whole scenarios are in the tests of the system.

use super::*;
use crate::job_log::{LogChunk, LogPatterns, LogScanner, ReadTime};
use nodeglass_protocol::LongText;
use nodeglass_protocol::finding::{FindingKind, FindingSeverity};
use nodeglass_protocol::job::{JobState, Suspension, TimeLimit};
use nodeglass_protocol::picture::{Evidence, GpuPicture, Link, Owner, ProcessGap, ProcessPicture};
use nodeglass_protocol::process::{ProcessFacts, ProcessKind};
use nodeglass_protocol::{Cell, Field as _, GpuField, GpuUuid, HostField, JobId, ProcessField, Reading, Row};

mod document;
mod hangs;
mod mostly_idle;
mod nodes;
mod rules;
mod stragglers;

const START_MS: u64 = 10_000_000;
/// The time of day is 1000 s ahead of the relay's clock.
const WALL_AHEAD_MS: i64 = 1_000_000;

/// A job on nodes of eight GPUs, and what its readings are.
struct Script {
    findings: Findings,
    jobs: Vec<Job>,
    nodes: Vec<NodePicture>,
    now_ms: u64,
    clock_ahead_ms: i64,
    /// By how much the clock of the relay's machine is ahead of the right time.
    clock_error_ms: i64,
}

impl Script {
    fn new(nodes: usize, gpus: usize) -> Self {
        let mut job = Job::new(JobId(17), "alice".into(), JobState::Running);
        job.name = "train".into();
        job.start = Some(wall_s(START_MS));
        let node = |number: usize| {
            let mut node = NodePicture::new(NodeName::new(format!("n{number}")).unwrap());
            node.head.link = Link::Live;
            node.head.interval_ms = 1_000;
            node.gpus = (0..gpus).map(|index| gpu(number, index)).collect();
            node.processes = node.gpus.iter().map(process).collect();
            node
        };
        let nodes: Vec<_> = (1..=nodes).map(node).collect();
        job.nodes = nodes.iter().map(|node| node.name.clone()).collect();
        Self {
            findings: Findings::default(),
            jobs: vec![job],
            nodes,
            now_ms: START_MS,
            clock_ahead_ms: WALL_AHEAD_MS,
            clock_error_ms: 0,
        }
    }

    /// Lets seconds pass. `read` returns utilisation in %, power in W, SM clock in MHz and memory in GiB of a GPU,
    /// counted over all nodes, in a second since the start; `None` if its node does not respond.
    fn run(&mut self, seconds: u64, read: impl Fn(usize, u64) -> Option<(u64, u64, u64, f64)>) -> &mut Self {
        for _ in 0..seconds {
            self.now_ms += 1_000;
            let second = (self.now_ms - START_MS) / 1_000;
            let mut number = 0;
            for node in &mut self.nodes {
                let readings: Vec<_> = node
                    .gpus
                    .iter()
                    .map(|_| {
                        number += 1;
                        read(number - 1, second)
                    })
                    .collect();
                if readings.iter().any(Option::is_none) {
                    node.head.link = Link::Silent;
                    continue;
                }
                node.head.link = Link::Live;
                for (gpu, (util, power, clock, gib)) in
                    node.gpus.iter_mut().zip(readings.into_iter().flatten())
                {
                    set(gpu, GpuField::Util, util);
                    set(gpu, GpuField::Power, power);
                    set(gpu, GpuField::SmClock, clock);
                    set(gpu, GpuField::MemUsed, (gib * f64::from(1 << 30)) as u64);
                }
                node.sampled(self.now_ms);
                self.findings.record(node, Some(self.clock_ahead_ms));
            }
            let now = Now { relay_ms: self.now_ms, wall_ahead_ms: WALL_AHEAD_MS + self.clock_error_ms };
            self.findings.evaluate("alice", &self.jobs, self.nodes.iter(), false, now);
        }
        self
    }

    fn active(&self) -> Vec<FindingKind> {
        self.findings
            .list()
            .iter()
            .filter(|finding| finding.is_active())
            .map(|finding| finding.kind)
            .collect()
    }

    fn only(&self) -> &Finding {
        assert_eq!(self.findings.list().len(), 1, "{:#?}", self.findings.list());
        &self.findings.list()[0]
    }
}

fn wall_s(relay_ms: u64) -> i64 {
    (relay_ms.cast_signed() + WALL_AHEAD_MS) / 1_000
}

fn set(gpu: &mut GpuPicture, field: GpuField, value: u64) {
    let steps = u32::try_from(field.scale().steps(value)).unwrap();
    gpu.row.set(field, Cell::steps(steps));
}

fn gpu(node: usize, index: usize) -> GpuPicture {
    let mut gpu = GpuPicture::default();
    gpu.facts.uuid = GpuUuid::new(format!("GPU-{node}-{index}"));
    gpu.facts.index = index as u32;
    gpu.facts.name = Reading::Value("NVIDIA H100".into());
    gpu.owners = vec![Owner { job: JobId(17), by: Evidence::GresIndex }];
    set(&mut gpu, GpuField::PowerLimit, 700);
    set(&mut gpu, GpuField::MemTotal, 80 << 30);
    gpu
}

fn process(gpu: &GpuPicture) -> ProcessPicture {
    let facts = ProcessFacts::new(gpu.facts.uuid.clone(), 4_711, ProcessKind::default());
    ProcessPicture { facts, row: Row::default() }
}

/// A second of work, of waiting in a collective, and of nothing.
const WORK: Option<(u64, u64, u64, f64)> = Some((98, 640, 1_755, 60.0));
const WAIT: Option<(u64, u64, u64, f64)> = Some((100, 145, 1_980, 60.0));
const IDLE: Option<(u64, u64, u64, f64)> = Some((0, 120, 1_980, 60.0));

#[test]
fn a_job_that_works_needs_no_attention() {
    let mut script = Script::new(2, 8);
    // Checkpoints of 58 s, during which all ranks but one wait.
    script.run(3_600, |gpu, second| match second % 600 < 58 {
        true if gpu == 0 => Some((3, 142, 1_980, 60.0)),
        true => WAIT,
        false => WORK,
    });
    assert!(script.findings.list().is_empty(), "{:#?}", script.findings.list());
}

#[test]
fn what_a_suspended_job_does_not_do_is_no_finding() {
    let mut script = Script::new(1, 8);
    script.run(600, |_, _| WORK);
    script.jobs[0].state = JobState::Suspended;
    script.run(1_200, |_, _| IDLE);
    assert!(script.active().is_empty(), "{:?}", script.active());
    script.jobs[0].state = JobState::Running;
    script.run(60, |_, _| IDLE).run(300, |_, _| WORK);
    assert!(script.active().is_empty(), "{:?}", script.active());
}

#[test]
fn independent_runs_need_not_be_equal() {
    use nodeglass_protocol::process::Rank;
    let slow = |gpu: usize, _| if gpu == 3 { Some((98, 640, 1_500, 60.0)) } else { WORK };
    let found = |rank_and_pid: fn(u32) -> (u32, u32), with_contexts: bool| {
        let mut script = Script::new(1, 8);
        let processes = &mut script.nodes[0].processes;
        for (index, process) in (0..).zip(processes.iter_mut()) {
            let (rank, pid) = rank_and_pid(index);
            process.facts.rank = Some(Rank { global: rank, local: None, world: None });
            process.facts.pid = pid;
            process.row.set(ProcessField::GpuMem, Cell::steps(40_000));
        }
        if with_contexts {
            let contexts: Vec<_> = processes[1..].to_vec();
            processes.extend(contexts.into_iter().map(|mut process| {
                process.facts.gpu = GpuUuid::new("GPU-0-0");
                process.row.set(ProcessField::GpuMem, Cell::steps(500));
                process
            }));
        }
        script.run(300, slow).active()
    };
    let straggler = [FindingKind::Straggler];
    assert_eq!(found(|index| (index, index), false), straggler);
    assert_eq!(found(|index| (index, index), true), straggler, "all ranks have a context on GPU 0");
    assert_eq!(found(|index| (index / 4, index / 4), false), straggler, "a process uses four GPUs");
    assert!(found(|index| (0, index), false).is_empty(), "each is rank 0 of its own");
}

#[test]
fn a_model_that_is_loaded_is_no_leak() {
    let mut script = Script::new(1, 8);
    script.run(1_800, |_, second| Some((0, 120, 1_980, second as f64 * 0.04)));
    assert!(!script.active().contains(&FindingKind::GpuMemoryForecast), "{:?}", script.active());
}

#[test]
fn a_slow_clock_names_the_rank_that_all_others_wait_for() {
    let mut script = Script::new(2, 8);
    script.run(600, |_, _| WORK).run(150, |gpu, _| match gpu {
        11 => Some((98, 520, 1_380, 60.0)),
        _ => WORK,
    });
    assert_eq!(script.active(), [FindingKind::Straggler]);
    let slow = script.only();
    assert!(slow.title.as_str().starts_with("n2 GPU 3 runs 21 % slower than its peers"), "{}", slow.title);
    assert_eq!((slow.gpus.len(), slow.gpus[0].node.as_str()), (1, "n2"));
}

#[test]
fn halves_of_a_pipeline_are_no_stragglers() {
    let mut script = Script::new(2, 8);
    script.run(900, |gpu, _| if gpu < 8 { WORK } else { Some((75, 400, 1_980, 40.0)) });
    assert!(script.active().is_empty(), "{:#?}", script.findings.list());
}

#[test]
fn unused_gpus_are_named_and_pauses_are_not() {
    let mut script = Script::new(1, 8);
    script.run(600, |gpu, _| if gpu < 6 { WORK } else { IDLE });
    assert!(script.active().is_empty(), "ten minutes have not passed");
    script.run(60, |gpu, _| if gpu < 6 { WORK } else { IDLE });
    assert_eq!(script.active(), [FindingKind::UnusedGpus]);
    let unused = script.only();
    assert_eq!(unused.title.as_str(), "2 of 8 GPUs are idle while the others work: n1 GPU 6, n1 GPU 7");
    assert_eq!(unused.wasted_gpus, 2);

    let mut pausing = Script::new(1, 8);
    pausing.run(3_600, |_, second| if second % 600 < 300 { WORK } else { IDLE });
    assert!(pausing.active().is_empty(), "evaluations of five minutes: {:#?}", pausing.findings.list());
}

#[test]
fn work_that_ended_is_idle_since_then() {
    let mut script = Script::new(1, 8);
    script.run(1_800, |_, _| WORK).run(640, |_, _| IDLE);
    assert_eq!(script.active(), [FindingKind::IdleGpus]);
    let idle = script.only();
    let ended_ms = (START_MS + 1_800_000).saturating_add_signed(WALL_AHEAD_MS);
    assert!(idle.since_ms.abs_diff(ended_ms) <= 10_000, "{}", idle.since_ms);
}

#[test]
fn a_job_that_never_used_its_gpus_stays_unused() {
    let mut script = Script::new(1, 8);
    for _ in 0..30 {
        script.run(120, |_, _| IDLE);
        let kinds: Vec<_> = script.findings.list().iter().map(|finding| finding.kind).collect();
        assert!(kinds.iter().all(|kind| *kind == FindingKind::UnusedGpus), "{kinds:?}");
    }
    assert_eq!(script.active(), [FindingKind::UnusedGpus]);
}

#[test]
fn gpus_idle_until_it_is_certain_that_they_have_no_process() {
    let mut script = Script::new(1, 2);
    script.run(900, |_, _| WORK).run(700, |_, _| IDLE);
    assert_eq!(script.active(), [FindingKind::IdleGpus]);
    script.nodes[0].processes.clear();
    for _ in 0..20 {
        script.run(30, |_, _| IDLE);
        assert_eq!(script.active().len(), 1, "{:#?}", script.findings.list());
    }
    assert_eq!(script.active(), [FindingKind::NoProcess]);
}

#[test]
fn nothing_that_a_job_does_begins_before_it_once_the_clock_is_right_again() {
    let mut script = Script::new(1, 2);
    script.nodes[0].processes.clear();
    script.run(700, |_, _| IDLE);
    let kinds = script.active();
    assert_eq!(kinds.len(), 1, "{kinds:?}");
    script.clock_error_ms = -900_000;
    script.run(30, |_, _| IDLE);
    script.clock_error_ms = 0;
    script.run(60, |_, _| IDLE);
    assert_eq!(script.active(), kinds);
    let started_ms = START_MS.saturating_add_signed(WALL_AHEAD_MS);
    let active = script.findings.list().iter().find(|finding| finding.is_active()).unwrap();
    assert!(active.since_ms >= started_ms, "{} < {started_ms}", active.since_ms);
}

#[test]
fn a_leak_that_begins_later_is_forecast_in_time() {
    let mut script = Script::new(1, 1);
    let leak = |second: u64| 40.0 + second.saturating_sub(70 * 60) as f64 / 60.0;
    script.run(70 * 60, |_, second| Some((98, 640, 1_755, leak(second))));
    assert!(script.active().is_empty());
    script.run(20 * 60, |_, second| Some((98, 640, 1_755, leak(second))));
    assert_eq!(script.active(), [FindingKind::GpuMemoryForecast]);
    let rate = &script.only().evidence[0];
    assert!(rate.as_str().starts_with("has grown by 1.0 GiB a minute for 1"), "{rate}");
}

#[test]
fn memory_that_fills_again_up_to_where_it_was_is_no_leak() {
    let mut script = Script::new(1, 1);
    // Grows for 50 minutes, and is released.
    let tooth = |second: u64| 40.0 + 0.7 * (second % 3_000) as f64 / 60.0;
    script.run(3_000, |_, second| Some((98, 640, 1_755, tooth(second))));
    script.run(600, |_, second| Some((98, 640, 1_755, tooth(second))));
    for _ in 0..100 {
        script.run(60, |_, second| Some((98, 640, 1_755, tooth(second))));
        assert!(script.active().is_empty(), "{:#?}", script.findings.list());
    }
}

#[test]
fn gpus_without_a_process_are_reported_if_processes_can_be_listed() {
    let mut script = Script::new(1, 2);
    script.nodes[0].processes.clear();
    script.run(320, |_, _| IDLE);
    assert_eq!(script.active(), [FindingKind::NoProcess]);
    assert_eq!(script.only().title.as_str(), "No process on any of 2 GPUs");

    let mut unlisted = Script::new(1, 2);
    unlisted.nodes[0].processes.clear();
    unlisted.nodes[0].gpus[1].gaps = vec![ProcessGap::Unsupported];
    unlisted.run(400, |_, _| IDLE);
    assert!(unlisted.active().is_empty());
}

#[test]
fn missing_readings_are_no_evidence() {
    let mut script = Script::new(2, 8);
    script.run(600, |_, _| WORK).run(900, |gpu, _| if gpu < 8 { WAIT } else { None });
    assert_eq!(script.active(), [FindingKind::NodeUnreachable], "the other node may work");
    // What was found before the node became silent is neither forgotten nor resolved.
    let mut hung = Script::new(2, 8);
    hung.run(600, |_, _| WORK).run(150, |_, _| WAIT);
    hung.run(120, |gpu, _| if gpu < 8 { WAIT } else { None });
    assert!(hung.active().contains(&FindingKind::CollectiveHang));
}

#[test]
fn a_leak_is_forecast_and_an_allocator_is_not() {
    let leaking = |second: u64| 40.0 + second as f64 / 60.0 * 0.2;
    let mut script = Script::new(1, 8);
    script.run(2_400, |gpu, second| match gpu {
        2 => Some((98, 640, 1_755, leaking(second) - if second % 20 < 5 { 3.0 } else { 0.0 })),
        _ => WORK,
    });
    assert_eq!(script.active(), [FindingKind::GpuMemoryForecast]);
    let title = script.only().title.as_str().to_owned();
    // At 48 GiB after 40 minutes, 32 GiB are left for 0.2 GiB a minute.
    assert!(title.starts_with("n1 GPU 2 will run out of memory in about 2 h"), "{title}");

    let mut healthy = Script::new(1, 8);
    healthy.run(3_600, |gpu, second| {
        // A saw-tooth, a cache that fills, and leaps of an allocator.
        let gib = match gpu {
            0 => 40.0 + (second % 300) as f64 / 30.0,
            1 => 70.0 - 30.0 * (-(second as f64) / 400.0).exp(),
            2 => 40.0 + (second / 900) as f64 * 2.0,
            _ => 60.0,
        };
        Some((98, 640, 1_755, gib))
    });
    assert!(healthy.active().is_empty(), "{:#?}", healthy.findings.list());
}

#[test]
fn a_rank_is_named_by_its_cause() {
    let mut script = Script::new(1, 8);
    set(&mut script.nodes[0].gpus[5], GpuField::Throttle, 0x40);
    script.run(300, |gpu, _| if gpu == 5 { Some((98, 400, 1_200, 60.0)) } else { WORK });
    let list = script.findings.list();
    let slow = list.iter().find(|finding| finding.kind == FindingKind::Straggler).expect("it is slow");
    assert!(slow.title.as_str().ends_with("slower than its peers: too hot"), "{}", slow.title);
    assert!(list.iter().any(|finding| finding.kind == FindingKind::Thermal));
}

#[test]
fn a_rank_without_a_reason_of_its_own_is_compared_with_its_peers() {
    let mut script = Script::new(1, 8);
    set(&mut script.nodes[0].gpus[5], GpuField::PowerLimit, 450);
    script.run(300, |gpu, _| if gpu == 5 { Some((98, 400, 1_200, 60.0)) } else { WORK });
    let slow = script.only();
    assert!(slow.title.as_str().ends_with(": power limit 450 W instead of 700 W"), "{}", slow.title);
    assert_eq!(slow.confidence_pct, 95);
}

#[test]
fn a_pending_job_that_slurm_will_not_start_is_reported() {
    let mut script = Script::new(1, 1);
    let pending = |id, reason: &str| {
        let mut job = Job::new(JobId(id), "alice".into(), JobState::Pending);
        job.reason = Some(reason.into());
        job
    };
    script.jobs.extend([
        pending(1, "Priority"),
        pending(2, "DependencyNeverSatisfied"),
        pending(3, "Resources"),
        pending(4, "JobHeldUser"),
    ]);
    script.run(30, |_, _| WORK);
    assert_eq!(script.active(), [FindingKind::PendingForever]);
    assert_eq!(script.only().jobs, [JobId(2)]);
}

#[test]
fn a_time_limit_is_announced_and_a_failure_listed_for_an_hour() {
    let mut script = Script::new(1, 1);
    script.jobs[0].limit = TimeLimit::Seconds(7_200);
    script.run(6_400, |_, _| WORK);
    assert!(script.active().is_empty());
    script.run(200, |_, _| WORK);
    assert_eq!(script.active(), [FindingKind::TimeLimit]);
    let resumed = Suspension { at: wall_s(script.now_ms), ran_s: 3_600 };
    script.jobs[0].suspension = Some(resumed);
    script.run(200, |_, _| WORK);
    assert!(script.active().is_empty(), "the time for which it was suspended does not count");
    script.jobs[0].suspension = None;
    let ended_s = wall_s(script.now_ms);
    script.jobs[0].state = JobState::Ended("OUT_OF_MEMORY".into());
    script.jobs[0].ended = Some(ended_s);
    script.run(20, |_, _| IDLE);
    assert_eq!(script.active(), [FindingKind::Failed]);
    script.run(3_700, |_, _| IDLE);
    assert!(script.active().is_empty());
}

/// Lines are read at a time of the relay's clock.
fn read_at(relay_ms: u64) -> ReadTime {
    ReadTime { relay_ms, ..ReadTime::default() }
}

/// A job whose log has a line every ten seconds, and what is found after some time.
fn logging(limit_s: u64, seconds: u64, line: impl Fn(u64) -> String) -> Script {
    let mut script = Script::new(1, 2);
    script.jobs[0].limit = TimeLimit::Seconds(limit_s);
    let mut scanner = LogScanner::new(LogPatterns::new(&[]).into(), START_MS);
    for step in 1..=seconds / 10 {
        script.run(10, |_, _| Some((90, 500, 1_900, 40.0)));
        let line = line(step * 10);
        if !line.is_empty() {
            scanner.read(&[LongText::line(&line)], None, LogChunk::New, read_at(script.now_ms));
        }
        script.findings.set_logs([(JobId(17), scanner.state(script.now_ms))].into());
    }
    script.run(10, |_, _| Some((90, 500, 1_900, 40.0)));
    script
}

#[test]
fn a_message_in_the_log_is_found_unless_the_program_goes_on() {
    let script = logging(86_400, 120, |second| match second {
        60 => "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB".to_owned(),
        _ => String::new(),
    });
    let found = script.only();
    assert_eq!((found.kind, found.severity), (FindingKind::LogMessage, FindingSeverity::Error));
    assert_eq!(found.title.as_str(), "train: CUDA is out of memory");
    assert!(found.evidence[0].as_str().contains("Tried to allocate"), "{:?}", found.evidence);
    // A search for the largest batch runs out of memory, and goes on with a smaller one.
    let script = logging(86_400, 600, |second| match second {
        60 => "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB".to_owned(),
        _ => format!("step {second}/10000"),
    });
    assert!(script.active().is_empty(), "{:?}", script.findings.list());
}

#[test]
fn a_traceback_matters_only_at_the_end_of_the_log() {
    let trace = |second| if second == 60 { "Traceback (most recent call last):" } else { "" };
    assert_eq!(logging(86_400, 210, |second| trace(second).to_owned()).active(), [FindingKind::LogMessage]);
    let goes_on = logging(86_400, 120, |second| match trace(second) {
        "" => format!("served request {second}"),
        trace => trace.to_owned(),
    });
    assert!(goes_on.active().is_empty(), "{:?}", goes_on.findings.list());
}

#[test]
fn a_traceback_in_a_slow_log_that_goes_on_is_handled() {
    let script = logging(86_400, 900, |second| match second {
        300 => "Traceback (most recent call last):".to_owned(),
        _ if second % 120 == 0 => "epoch done, loss 2.1".to_owned(),
        _ => String::new(),
    });
    assert!(script.findings.list().is_empty(), "{:?}", script.findings.list());
}

#[test]
fn a_job_too_slow_for_its_time_limit_is_found_by_its_log() {
    // Ten steps in ten seconds: 10,000 steps take 10,000 s.
    let step = |second: u64| format!("step {second}/10000 | loss 2.1");
    assert!(logging(5_000, 300, step).active().is_empty(), "five minutes say little");
    let script = logging(5_000, 700, step);
    let found = script.only();
    assert_eq!((found.kind, found.severity), (FindingKind::TimeLimit, FindingSeverity::Warning));
    assert!(found.title.as_str().contains("7 % done"), "{}", found.title);
    // Its severity is lower if another job goes on.
    let remark = Finding { severity: FindingSeverity::Info, ..found.clone() };
    assert_eq!(for_guests(remark), None, "progress is in the log");
    assert!(logging(12_000, 700, step).active().is_empty(), "it is done in time");
    // A reminder shortly before the limit, unless the log shows that the job is done by then.
    assert_eq!(logging(1_000, 960, |_| String::new()).active(), [FindingKind::TimeLimit]);
    let in_time = logging(1_000, 960, |second| format!("step {second}/980"));
    assert!(in_time.active().is_empty(), "{:?}", in_time.findings.list());
}

#[test]
fn a_message_without_a_newline_at_the_end_of_the_log_is_found() {
    let mut scanner = LogScanner::new(LogPatterns::new(&[]).into(), START_MS);
    let end = LongText::line("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB");
    scanner.read(&[LongText::line("step 3")], Some(&end), LogChunk::New, read_at(START_MS));
    assert!(scanner.state(START_MS).messages.is_empty(), "it may not be complete");
    for reading in 1..=3 {
        let now_ms = START_MS + 10_000 * reading;
        scanner.read(&[], Some(&end), LogChunk::New, read_at(now_ms));
        let log = scanner.state(now_ms);
        let [message] = log.messages.as_slice() else { panic!("{log:?}") };
        assert_eq!((message.pattern.name.as_str(), message.count), ("cuda_out_of_memory", 1));
        assert_eq!(log.grown_ms, Some(START_MS), "nothing was written");
    }
}

#[test]
fn a_failed_job_is_explained_by_its_log() {
    let mut script = logging(86_400, 60, |second| match second {
        50 => "Traceback (most recent call last):".to_owned(),
        60 => "ValueError: no batch".to_owned(),
        _ => format!("step {second}"),
    });
    let job = &mut script.jobs[0];
    job.state = JobState::Ended("FAILED".into());
    job.ended = Some(wall_s(script.now_ms));
    script.run(20, |_, _| Some((0, 80, 1_900, 0.0)));
    let failed = script.findings.list().iter().find(|finding| finding.kind == FindingKind::Failed).unwrap();
    assert!(
        failed.evidence.iter().any(|line| line.as_str() == "ValueError: no batch"),
        "{:?}",
        failed.evidence
    );
}

#[test]
fn thresholds_move_and_turn_off_findings() {
    let idle = |change: &str, minutes: u64| {
        let mut script = Script::new(1, 2);
        let changes: Vec<_> = (!change.is_empty()).then(|| change.parse().unwrap()).into_iter().collect();
        script.findings.set_thresholds(Thresholds::new(&changes, &[]));
        script.run(minutes * 60, |_, _| Some((3, 80, 300, 1.0)));
        script.active()
    };
    assert_eq!(idle("", 12), [FindingKind::UnusedGpus]);
    assert!(idle("idle-pct=1", 12).is_empty());
    assert!(idle("idle-minutes=20", 12).is_empty());
    assert_eq!(idle("idle-minutes=20", 22), [FindingKind::UnusedGpus]);
    let forecast_minutes = |least: u32, minutes: u64| {
        let mut script = Script::new(1, 1);
        let change = format!("forecast-minutes={least}").parse().unwrap();
        script.findings.set_thresholds(Thresholds::new(&[change], &[]));
        script.run(minutes * 60, |_, second| Some((98, 640, 1_755, 20.0 + second as f64 / 60.0)));
        script.active()
    };
    // A third of them is skipped at the start of the job.
    assert!(forecast_minutes(3, 3).is_empty());
    assert_eq!(forecast_minutes(3, 6), [FindingKind::GpuMemoryForecast]);
    assert!(forecast_minutes(15, 19).is_empty());
    assert_eq!(forecast_minutes(15, 22), [FindingKind::GpuMemoryForecast]);
    let mut script = Script::new(1, 2);
    script.findings.set_thresholds(Thresholds::new(&[], &[FindingKind::UnusedGpus]));
    assert!(script.run(720, |_, _| Some((0, 80, 300, 1.0))).active().is_empty());
}

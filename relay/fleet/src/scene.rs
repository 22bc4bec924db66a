//! Test fixtures: jobs, hellos and samples.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its parts")]

use super::{Event, Fleet};
use crate::SessionEvent;
use nodeglass_findings::job_log::{JobLog, Progress};
use nodeglass_protocol::gpu::NvLink;
use nodeglass_protocol::job::{GpuSet, Job, JobState, NodeGpus, TimeLimit};
use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::probe::{
    GpuFacts, GpuHealth, GpuSample, HealthReport, Heartbeat, Hello, HostSample, ProbeLine, ProcessFacts,
    ProcessKind, ProcessList, ProcessListReadings, ProcessReadings, ProcessSample, Sample, SourceState,
    SourceVersions, SpoolNote, SpoolNotes,
};
use nodeglass_protocol::version::VersionRange;
use nodeglass_protocol::{GpuUuid, JobId, NodeName, Reading, Vendor};

/// A node name.
pub fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

/// The UUID of a GPU of a node.
pub fn uuid(node: &str, gpu: u32) -> GpuUuid {
    GpuUuid::new(format!("GPU-{node}-{gpu}"))
}

/// A running job with the given GRES indices on each node.
pub fn job(id: u32, nodes: &[(&str, &[u32])]) -> Job {
    Job {
        name: "train".into(),
        partition: "gpu".into(),
        submitted: Some(0),
        start: Some(0),
        limit: TimeLimit::Unlimited,
        nodes: nodes.iter().map(|(node, _)| name(node)).collect(),
        node_count: nodes.len() as u32,
        gpus: nodes
            .iter()
            .map(|(node, indices)| NodeGpus { node: name(node), set: GpuSet::Indices(indices.to_vec()) })
            .collect(),
        ..Job::new(JobId(id), "alice".into(), JobState::Running)
    }
}

/// Returns the log of a program in this one of ten steps.
pub fn log(done: f64) -> JobLog {
    let progress = Progress { label: "step".into(), done, total: Some(10.0), ..Progress::default() };
    JobLog { progress: Some(progress), ..JobLog::default() }
}

/// A hello whose GPU `i` has minor number `minors[i]`.
pub fn hello(node: &str, minors: &[u32]) -> ProbeLine {
    let gpus = (0..).zip(minors).map(|(index, minor)| GpuFacts {
        minor: Reading::Value(*minor),
        name: Reading::Value("A100".into()),
        vendor: Vendor::Nvidia,
        ..GpuFacts::new(uuid(node, index), index)
    });
    ProbeLine::Hello(Box::new(Hello {
        proto: VersionRange::only(1),
        build: "b".into(),
        stream: 1,
        host: node.into(),
        boot_id: "boot".into(),
        kernel: "6".into(),
        cpus: 8,
        mem_total_bytes: 1 << 36,
        user: "alice".into(),
        pid: 1,
        sources: vec![SourceState::ready(Vendor::Nvidia, SourceVersions::default())],
        gpus: gpus.collect(),
        topology: Vec::new(),
        cpu_model: "EPYC".into(),
        scratch: None,
        confinement: None,
    }))
}

/// A sample at `mono_s` seconds of the node's clock with these utilisations.
pub fn sample(mono_s: u64, utils: &[u64]) -> ProbeLine {
    ProbeLine::Sample(Box::new(Sample {
        seq: mono_s,
        mono_ns: mono_s * 1_000_000_000,
        interval_ms: 1_000,
        gpus: utils
            .iter()
            .map(|util| GpuSample {
                util_pct: Reading::Value(*util),
                power_mw: Reading::Value(*util * 4_000),
                ..Default::default()
            })
            .collect(),
        host: HostSample { cpu_pct: Reading::Value(7), ..Default::default() },
        ..Default::default()
    }))
}

/// Returns the sample, sent again after an outage.
pub fn replay(mono_s: u64, utils: &[u64]) -> ProbeLine {
    match sample(mono_s, utils) {
        ProbeLine::Sample(sample) => ProbeLine::Sample(Box::new(Sample { replay: true, ..*sample })),
        other => other,
    }
}

/// A sparse sample relative to `since`.
pub fn since(since: Option<u64>, line: ProbeLine) -> ProbeLine {
    match line {
        ProbeLine::Sample(sample) => ProbeLine::Sample(Box::new(Sample { since, ..*sample })),
        other => other,
    }
}

/// Lines of the spool file of a job, written at `mono_s` of the node's clock; the offset of each is its number.
pub fn notes(job: u32, mono_s: u64, lines: &[&str]) -> ProbeLine {
    let note = |(offset, text): (u64, &&str)| SpoolNote {
        job: JobId(job),
        suffix: "".into(),
        offset,
        mono_ns: mono_s * 1_000_000_000,
        text: (*text).into(),
    };
    ProbeLine::Notes(SpoolNotes { notes: (0..).zip(lines).map(note).collect(), problems: None })
}

/// A heartbeat, of a driver that has not responded for this time.
pub fn heartbeat(driver_stuck_ms: Option<u64>) -> ProbeLine {
    ProbeLine::Heartbeat(Heartbeat { mono_ns: 0, driver_stuck_ms })
}

/// One process of `job` on GPU `gpu`.
pub fn process(node: &str, gpu: u32, pid: u32, job: Option<u32>) -> ProbeLine {
    let kind = ProcessKind { compute: true, ..Default::default() };
    let facts = ProcessFacts {
        started_ms: Reading::Value(1),
        user: Reading::Value("alice".into()),
        command: Reading::Value("python".into()),
        job: job.map(JobId),
        ..ProcessFacts::new(uuid(node, gpu), pid, kind)
    };
    let now = ProcessReadings { gpu_mem_bytes: Reading::Value(1 << 30), ..Default::default() };
    ProbeLine::Processes(ProcessList { processes: vec![ProcessSample { facts, now }], ..Default::default() })
}

/// An update of the single process of the last list.
pub fn process_readings(gpu_mem_bytes: u64) -> ProbeLine {
    let now = ProcessReadings { gpu_mem_bytes: Reading::Value(gpu_mem_bytes), ..Default::default() };
    ProbeLine::ProcessReadings(ProcessListReadings { now: vec![now], ..Default::default() })
}

/// GPU health: for each the number of links, PCIe replays, and rate per link in MiB/s.
pub fn health(cards: &[(u32, u64, u64)]) -> ProbeLine {
    let link = |link, flow| NvLink {
        link,
        up: Reading::Value(true),
        rx_mib_s: Reading::Value(flow),
        tx_mib_s: Reading::Value(flow / 2 + u64::from(link)),
        ..NvLink::default()
    };
    let card = |(links, replays, flow): &(u32, u64, u64)| GpuHealth {
        pcie_replays: Reading::Value(*replays),
        nvlinks: (0..*links).map(|number| link(number, *flow)).collect(),
        ..GpuHealth::default()
    };
    ProbeLine::Health(HealthReport { gpus: cards.iter().map(card).collect() })
}

/// Applies a line of a node's probe.
pub fn line(fleet: &mut Fleet, node: &str, line: ProbeLine, now_ms: u64) {
    fleet.handle(Event::Node(name(node), SessionEvent::Line(Box::new(line.into()))), now_ms);
}

/// Applies a job list.
pub fn jobs(fleet: &mut Fleet, jobs: Vec<Job>, now_ms: u64) {
    fleet.handle(Event::Jobs { jobs, wall_ahead_ms: 1_000_000 }, now_ms);
}

/// A node that must exist.
pub fn node<'a>(fleet: &'a Fleet, wanted: &str) -> &'a NodePicture {
    fleet.nodes_of(&nodeglass_protocol::live::Topic::Node(name(wanted))).unwrap()[0]
}

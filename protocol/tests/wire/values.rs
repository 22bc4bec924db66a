//! The values of which the frozen messages consist.

use nodeglass_protocol::audit::{AuditLog, AuditRecord, View, ViewClient, ViewEnd, ViewerIdentity};
use nodeglass_protocol::capture::{
    CaptureGroup, EvidenceFile, FindingCapture, Frame, Peer, ProcessCapture, ThreadCount, ThreadState,
};
use nodeglass_protocol::cluster::{ClusterSummary, GpuCounts, NodeCounts, PartitionSummary, UnavailableNode};
use nodeglass_protocol::field::Row;
use nodeglass_protocol::finding::{Finding, FindingGpu, FindingKind, FindingSeverity, WastedBefore};
use nodeglass_protocol::gpu::{
    GpuFacts, GpuHealth, GpuPath, MigFacts, NvLink, Vgpu, VgpuLicense, Virtualization,
};
use nodeglass_protocol::handshake::{Exchange, LEN, Nonce};
use nodeglass_protocol::insight::{
    Bottleneck, BottleneckKind, EpochProgress, JobInsight, JobProgress, ProgressEnd,
};
use nodeglass_protocol::job::{GpuSet, Job, JobState, NodeGpus, Parent, Suspension, TimeLimit};
use nodeglass_protocol::live::HealthChange;
use nodeglass_protocol::note::{Note, NoteId, NoteSource};
use nodeglass_protocol::picture::{
    Evidence, GpuEvent, GpuPicture, History, JobUsagePicture, JobsHealth, LauncherStatus, Link, NodeFacts,
    NodeHead, NodePicture, Owner, ProcessPicture, RelayStatus,
};
use nodeglass_protocol::probe::{ProcessGap, SourceState, SourceVersions};
use nodeglass_protocol::process::{Container, ProcessFacts, ProcessKind, Rank, Runtime};
use nodeglass_protocol::replay::ReplayStatus;
use nodeglass_protocol::report::NodeFault;
use nodeglass_protocol::request::{AuditEntry, ProcessRef};
use nodeglass_protocol::share::{
    ClosedShare, HiddenParts, Scope, Share, ShareId, ShareLink, ShareTerms, Sharing, Visitor,
};
use nodeglass_protocol::{
    Cell, GpuField, GpuUuid, HostField, JobField, JobId, NodeName, ProcessField, Reading, Vendor,
};

pub fn node_name() -> NodeName {
    NodeName::new("gpu-01").unwrap()
}

pub fn uuid() -> GpuUuid {
    GpuUuid::new("GPU-5c1b1d3e")
}

pub fn exchange() -> Exchange<'static> {
    Exchange { client: Nonce([1; LEN]), server: Nonce([2; LEN]), authority: "127.0.0.1:8080" }
}

pub fn job() -> Job {
    Job {
        id: JobId(17),
        label: "3_0".into(),
        part_of: Some(Parent::Array { job: JobId(3), task: Some(0) }),
        name: "train | \u{202e}7b\n".into(),
        user: "alice".into(),
        account: Some("ml".into()),
        partition: "gpu".into(),
        qos: None,
        state: JobState::Running,
        reason: None,
        reason_text: Some("It waits.".into()),
        dependency: None,
        submitted: Some(1_700_000_000),
        start: Some(1_700_000_100),
        ended: None,
        limit: TimeLimit::Seconds(86_400),
        nodes: vec![node_name()],
        node_count: 1,
        cpus: Some(8),
        mem_bytes: Some(1 << 36),
        gpu_count: Some(2),
        gpus: vec![NodeGpus { node: node_name(), set: GpuSet::Indices(vec![0, 3]) }],
        batch_host: Some(node_name()),
        workdir: Some("/home/alice/run".into()),
        command: Some("train.sh".into()),
        stdout: Some("/home/alice/run/slurm-17.out".into()),
        stderr: None,
        exit: None,
        restarts: 1,
        suspension: Some(Suspension { at: 1_700_000_200, ran_s: 100 }),
    }
}

pub fn gpu() -> GpuPicture {
    let mut row = Row::default();
    row.set(GpuField::Util, Cell::steps(97));
    row.set(GpuField::Fan, Cell::UNSUPPORTED);
    row.set(GpuField::EccCorrected, Cell::FAILED);
    GpuPicture {
        facts: facts(),
        owners: vec![Owner { job: JobId(17), by: Evidence::GresIndex }],
        fault: Some("GPU is lost".into()),
        health: health(),
        row,
        gaps: vec![ProcessGap::Failed("GPU is lost".into()), ProcessGap::More(12)],
    }
}

pub fn sources() -> Vec<SourceState> {
    let versions = SourceVersions {
        driver: Reading::Value("550.54".into()),
        library: Reading::Value("12.550".into()),
        platform: Reading::NotYet,
    };
    vec![
        SourceState::ready(Vendor::Nvidia, versions),
        SourceState::absent(Vendor::Amd, "no AMD driver: not loaded"),
        SourceState::confined("1 of 4 GPUs visible: this probe was adopted into job 17".into()),
    ]
}

pub fn facts() -> GpuFacts {
    GpuFacts {
        vendor: Vendor::Nvidia,
        minor: Reading::Value(3),
        pci: Reading::Value("00000000:07:00.0".into()),
        name: Reading::Value("NVIDIA A100-SXM4-80GB".into()),
        sm_clock_max_mhz: Reading::Value(1_410),
        mem_clock_max_mhz: Reading::Unsupported,
        temp_slowdown_c: Reading::Failed("GPU is lost".into()),
        persistence: Reading::Value(true),
        unified_memory: true,
        mig: Some(MigFacts {
            gpu_instance: 7,
            compute_instance: 0,
            profile: Some("3g.40gb".into()),
            multiprocessors: Some(42),
        }),
        virtualization: Reading::Value(Virtualization::VgpuHost),
        ..GpuFacts::new(uuid(), 1)
    }
}

pub fn note() -> Note {
    Note {
        id: NoteId::from_bits(4_711),
        job: Some(JobId(17)),
        node: Some(node_name()),
        rank: Some(3),
        at_ms: 1_700_000_100_000,
        text: "epoch 3".into(),
        source: NoteSource::Job,
    }
}

pub fn finding() -> Finding {
    Finding {
        key: "straggler/17/GPU-0".into(),
        kind: FindingKind::Straggler,
        severity: FindingSeverity::Warning,
        confidence_pct: 95,
        jobs: vec![JobId(17)],
        nodes: vec![node_name()],
        gpus: vec![FindingGpu::new(&node_name(), &GpuUuid::new("GPU-0"), Some(GpuField::SmClock))],
        title: "Rank 3 (gpu-01 GPU 0) runs 21 % slower than its peers: too hot".into(),
        reason: "GPU 0 slower than its peers".into(),
        evidence: vec!["SM clock 1,380 MHz, median of the job 1,755 MHz".into()],
        advice: "Exclude the node".into(),
        since_ms: 1_700_000_100_000,
        or_earlier: true,
        found_ms: 1_700_000_220_000,
        ended_ms: Some(1_700_000_280_000),
        silenced_until_ms: Some(1_790_000_000_000),
        wasted_gpus: 1,
        capture: Some(Box::new(finding_capture())),
        wasted_before: Some(WastedBefore { gpu_ms: 90_000, until_ms: 1_700_000_190_000 }),
    }
}

pub fn insight() -> JobInsight {
    JobInsight {
        job: JobId(17),
        progress: Some(JobProgress {
            label: "epoch".into(),
            done: 3.0,
            total: Some(10.0),
            epoch: Some(EpochProgress { number: 4.0, done: 3.0, total: 12.0 }),
            rate_per_s: Some(0.5),
            advanced_at_ms: 5_000,
            end: Some(ProgressEnd { earliest_at_ms: 19_000, latest_at_ms: 21_000 }),
            part_end: Some(ProgressEnd { earliest_at_ms: 6_000, latest_at_ms: 7_000 }),
        }),
        bottleneck: Some(Bottleneck {
            kind: BottleneckKind::Communication,
            evidence: "SM activity 31 %".into(),
        }),
    }
}

pub fn finding_capture() -> FindingCapture {
    FindingCapture {
        at_ms: 1_700_000_221_000,
        groups: vec![CaptureGroup {
            count: 2,
            ranks: "0, 2".into(),
            places: vec!["gpu-01 GPU 0".into()],
            frame: "all_reduce (torch/distributed/distributed_c10d.py:2501)".into(),
            caller: "train_step (train.py:88)".into(),
            details: vec!["sleeping in futex_wait_queue (system call futex)".into()],
            stack: vec!["all_reduce (torch/distributed/distributed_c10d.py:2501)".into()],
        }],
        others: 0,
        missing: 1,
        notes: vec!["py-spy is not on the PATH of the probe on gpu-01".into()],
        files: vec!["gpu-01:/tmp/nccl_trace_rank_0, 1.2 MiB".into()],
    }
}

pub fn process_capture() -> ProcessCapture {
    ProcessCapture {
        pid: 41_822,
        started_ms: 1_700_000_000_120,
        refused: None,
        command: "python3".into(),
        args: Reading::Value("python3 train.py".into()),
        rank: Some(3),
        state: ThreadState::Sleeping,
        wait_channel: Reading::Value("futex_wait_queue".into()),
        system_call: Reading::Unsupported,
        voluntary_switches: Reading::Value(81),
        involuntary_switches: Reading::Value(3),
        threads: vec![ThreadCount { state: ThreadState::Sleeping, count: 97 }],
        connections: Reading::Value(14),
        peers: vec![Peer { address: "10.0.0.7:29500".into(), count: 8 }],
        stack: Reading::Value(vec![Frame {
            function: "all_reduce".into(),
            file: "/opt/torch/distributed/distributed_c10d.py".into(),
            line: 2_501,
        }]),
        files: vec![EvidenceFile {
            path: "/tmp/nccl_trace_rank_3".into(),
            size_bytes: 1_258_291,
            modified_ms: 1_700_000_220_000,
        }],
    }
}

pub fn health_changes() -> Vec<HealthChange> {
    let link = health().nvlinks.swap_remove(0);
    vec![HealthChange {
        gpu: 1,
        health: Some(Box::new(GpuHealth { nvlinks: Vec::new(), ..health() })),
        link_count: Some(18),
        links: vec![(3, link)],
        rates: vec![(4, Reading::Value(1_200), Reading::Unsupported)],
    }]
}

pub fn health() -> GpuHealth {
    let link = NvLink {
        link: 2,
        up: Reading::Value(true),
        version: Reading::Value(4),
        remote: Reading::Value("switch".into()),
        rx_mib_s: Reading::Value(11),
        tx_mib_s: Reading::Failed("Timeout".into()),
        errors: Reading::Value(0),
    };
    let license = VgpuLicense {
        is_licensed: Reading::Value(true),
        product: Reading::Value("NVIDIA Virtual Compute Server".into()),
        expires: Reading::Unsupported,
    };
    GpuHealth {
        remapped_uncorrected: Reading::Value(1),
        remap_pending: Reading::Value(true),
        pcie_gen: Reading::Unsupported,
        nvlinks: vec![link],
        vgpus: vec![vgpu()],
        license,
        ..GpuHealth::default()
    }
}

fn vgpu() -> Vgpu {
    Vgpu {
        vm: Reading::Value("vm-7".into()),
        profile: Reading::Value("GRID A100-10C".into()),
        mem_used_bytes: Reading::Value(1 << 30),
        mem_total_bytes: Reading::Unsupported,
        is_licensed: Reading::Value(false),
    }
}

pub fn process_facts() -> ProcessFacts {
    ProcessFacts {
        parent: Reading::Value(41_800),
        started_ms: Reading::Value(1_700_000_100_000),
        user: Reading::Value("alice".into()),
        command: Reading::Value("python".into()),
        args: Reading::Unsupported,
        job: Some(JobId(17)),
        step: Some("0".into()),
        rank: Some(Rank { global: 9, local: Some(1), world: Some(16) }),
        container: Some(Container { runtime: Runtime::Apptainer, name: Some("torch.sif".into()) }),
        ..ProcessFacts::new(uuid(), 41_822, ProcessKind { compute: true, graphics: false, mps: false })
    }
}

pub fn process() -> ProcessPicture {
    let mut row = Row::default();
    row.set(ProcessField::GpuMem, Cell::steps(70_200));
    ProcessPicture { facts: process_facts(), row }
}

pub fn usage() -> JobUsagePicture {
    let mut row = Row::default();
    row.set(JobField::MemUsed, Cell::steps(500));
    row.set(JobField::MemLimit, Cell::UNSUPPORTED);
    JobUsagePicture { job: JobId(17), row }
}

pub fn audit_entry() -> AuditEntry {
    AuditEntry {
        wall_ms: 1_700_000_000_000,
        action: "cancel job 17".into(),
        outcome: "cancelled".into(),
        succeeded: true,
    }
}

pub fn audit_log() -> AuditLog {
    let viewer =
        ViewerIdentity { user: Some("bob".into()), address: Some("10.0.0.8".into()), by_proxy: true };
    let view = |client, end| {
        AuditRecord::View(View {
            share: share_id(),
            label: "for Bob".into(),
            scope: Scope::Jobs(vec![JobId(17)]),
            viewer: viewer.clone(),
            client,
            began_ms: 1_700_000_100_000,
            end,
        })
    };
    let records = vec![
        view(ViewClient::Page, ViewEnd::Open),
        view(ViewClient::Api, ViewEnd::Ended { at_ms: 1_700_000_160_000 }),
        view(ViewClient::Page, ViewEnd::Unknown { seen_ms: 1_700_000_160_000 }),
        AuditRecord::Action(audit_entry()),
    ];
    AuditLog { is_recorded: true, records, omitted: 3 }
}

pub fn share_id() -> ShareId {
    ShareId::new("k3jq9x0a2b").unwrap()
}

pub fn share() -> Share {
    let terms = ShareTerms {
        label: "for Bob".into(),
        scope: Scope::Jobs(vec![JobId(17)]),
        hidden: HiddenParts::default(),
        to: None,
        expires_ms: 1_700_000_300_000,
        ends_with_job: true,
    };
    Share { id: share_id(), created_ms: 1_700_000_000_000, terms }
}

pub fn share_link() -> ShareLink {
    let link = Some("http://127.0.0.1:8080/#s=k3jq9x0a2b.KEY".into());
    ShareLink {
        share: share(),
        link,
        tunnel: "ssh -L 8080:127.0.0.1:8080 login2".into(),
        not_stored: Some("shares cannot be stored: the disk is full".into()),
    }
}

pub fn sharing() -> Sharing {
    let visitor = Visitor { share: Some(share_id()), user: Some("bob".into()), since_ms: 1_700_000_100_000 };
    let closed = vec![ClosedShare { share: share(), watches: "jobs of all users".into() }];
    Sharing { shares: vec![share()], visitors: vec![visitor], closed }
}

pub fn reference() -> ProcessRef {
    ProcessRef { pid: 41_822, started_ms: 1_700_000_100_000 }
}

/// A history with every kind of step: none, small ones, large ones, and a gap.
pub fn history() -> History {
    let mut history = History { is_summary: false, gpus: vec![Default::default()], host: Default::default() };
    let (mut gpu, mut host) = (Row::default(), Row::default());
    host.set(HostField::Cpu, Cell::steps(12));
    for (second, watts) in [(3_600, 70), (3_601, 70), (3_602, 71), (3_603, 400), (3_607, 60_000), (3_608, 1)]
    {
        gpu.set(GpuField::Power, Cell::steps(watts));
        history.push(second * 1_000, [&gpu].into_iter(), &host, 1_000);
    }
    history
}

pub fn node() -> NodePicture {
    let mut node = NodePicture {
        head: NodeHead {
            link: Link::Down { reason: "connection refused".into(), retry_at_ms: 9_000 },
            facts: Some(NodeFacts {
                host: "gpu-01".into(),
                kernel: "6.1.0".into(),
                sources: sources(),
                cpus: 64,
                cpu_model: "EPYC".into(),
                scratch: Some("/scratch".into()),
                topology: vec![
                    vec![GpuPath::Same, GpuPath::NvLink(12)],
                    vec![GpuPath::System, GpuPath::Same],
                ],
            }),
            no_gpu: None,
            driver_stuck_ms: Some(4_000),
            notes: vec!["a note".into()],
            events: vec![GpuEvent {
                at_ms: 4_000,
                gpu: Some(uuid()),
                xid: Some(79),
                text: "fell off the bus".into(),
            }],
            interval_ms: 1_000,
            without_gpus: vec![JobId(18), JobId(19)],
            group: Some("training".into()),
        },
        gpus: vec![gpu()],
        processes: vec![process()],
        job_usage: vec![usage()],
        cores: vec![0, 100],
        history: Some(history()),
        ..NodePicture::new(node_name())
    };
    node.host.set(HostField::Cpu, Cell::steps(38));
    node.sampled(5_000);
    node
}

pub fn status() -> RelayStatus {
    let reason = "squeue did not answer".into();
    let jobs = JobsHealth::Stale { last_ms: Some(4_000), reason, retry_at_ms: 24_000 };
    let reason = "gpu-01 is reached through gate, which the built-in SSH cannot do".into();
    let launcher = Some(LauncherStatus { name: "openssh".into(), reason: Some(reason) });
    RelayStatus {
        jobs,
        viewers: 2,
        cpu_ms: 41_000,
        coalesced: 3,
        launcher,
        notices: vec!["hosts.txt:3: bad".into()],
        cluster: Some(cluster()),
        replay: Some(ReplayStatus {
            from_ms: 691_200_000,
            to_ms: 691_260_000,
            at_ms: 691_230_500,
            speed_pct: 400,
            job: Some(JobId(17)),
            is_cut_short: true,
        }),
        clusters: vec!["hpc".into(), "ml".into()],
    }
}

pub fn cluster() -> ClusterSummary {
    let a100 = GpuCounts { kind: Some("a100".into()), total: 8, allocated: Some(3), unavailable: None };
    let nodes = NodeCounts { idle: 1, mixed: 2, allocated: 3, drained: 4, down: 5, other: 6 };
    let reason = Some("Xid 79".into());
    let drained = UnavailableNode {
        name: "gpu-02".into(),
        state: "idle+drain".into(),
        reason,
        since: Some(1_700_000_000),
    };
    ClusterSummary {
        at_ms: 4_500,
        partitions: vec![PartitionSummary { name: "gpu".into(), nodes, gpus: Some(vec![a100]) }],
        unavailable: vec![drained],
        unavailable_omitted: 7,
    }
}

pub fn node_fault() -> NodeFault {
    NodeFault {
        node: node_name(),
        gpu: Some(3),
        kind: FindingKind::Thermal,
        severity: FindingSeverity::Warning,
        title: "gpu-01 GPU 3 is too hot: 1,095 of 1,980 MHz".into(),
        times: 7,
        jobs: 3,
        first_ms: 1_700_000_100_000,
        last_ms: 1_700_900_000_000,
        lasted_s: 86_400,
        is_active: true,
    }
}

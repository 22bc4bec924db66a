//! Frozen bytes of each version: if one of these tests fails, the change is wrong, not the test.
//!
//! A new message gets a new file, written once with `NODEGLASS_FREEZE=1 cargo test -p nodeglass-protocol`;
//! existing files are never overwritten.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may end where it fails")]

use nodeglass_protocol::cluster::{ClusterSummary, GpuCounts, NodeCounts, PartitionSummary, UnavailableNode};
use nodeglass_protocol::field::{NamedCells, Row};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::gpu::{GpuFacts, GpuHealth, GpuPath, MigFacts, NvLink};
use nodeglass_protocol::handshake::{Exchange, Key, LEN, Nonce};
use nodeglass_protocol::host::{HostSample, JobReadings, JobUsage};
use nodeglass_protocol::job::{GpuSet, Job, JobState, NodeGpus, Parent, TimeLimit};
use nodeglass_protocol::live::codec::{Packer, RecordContext, SentRows};
use nodeglass_protocol::live::detail::DetailLevel;
use nodeglass_protocol::live::{
    Change, ClientMessage, CloseReason, Delta, HealthChange, Histories, KeyId, Mode, NodeReadings, Readings,
    Role, RowReadings, ServerMessage, Snapshot, SnapshotWriter, Topic, Welcome,
};
use nodeglass_protocol::picture::{
    Evidence, GpuEvent, GpuPicture, History, JobUsagePicture, JobsHealth, LauncherStatus, Link, NodeFacts,
    NodeHead, NodePicture, Owner, Picture, ProcessPicture, RelayStatus,
};
use nodeglass_protocol::probe::{
    Bye, Control, Event, GpuGap, GpuLinkRates, GpuSample, HealthReport, Heartbeat, Hello, LinkRates, Piece,
    ProbeLine, ProbeResponse, ProcessGap, ProcessList, ProcessListReadings, ProcessSample, Sample,
    SourceState, SourceVersions,
};
use nodeglass_protocol::process::{
    Container, ProcessDetail, ProcessFacts, ProcessKind, ProcessReadings, Rank, RelatedProcess, Runtime,
    Variable,
};
use nodeglass_protocol::range::{GpuRange, NodeRange, RangeHistory, RangeQuery, Summaries, Summary};
use nodeglass_protocol::request::{
    Audience, AuditEntry, JobAction, LogRef, LogStream, ProbeRequest, ProcessRef, Request, Response,
    RetryTarget, Signal, Tail,
};
use nodeglass_protocol::share::{
    HiddenParts, Scope, Share, ShareId, ShareLink, ShareRequest, ShareTerms, Sharing, Visitor,
};
use nodeglass_protocol::version::VersionRange;
use nodeglass_protocol::{
    Cell, GpuField, GpuUuid, HostField, JobField, JobId, NodeName, ProcessField, Reading, Vendor,
};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;
use std::path::PathBuf;

/// Compares the bytes of `message` with those of the file, and checks that they round-trip.
fn frozen<M: Serialize + DeserializeOwned + Debug>(name: &str, form: Form, message: &M) {
    let extension = if form == Form::Binary { "bin" } else { "json" };
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/frozen/v2").join(format!("{name}.{extension}"));
    let bytes = form.encode(message);
    if !path.exists() && std::env::var_os("NODEGLASS_FREEZE").is_some() {
        std::fs::write(&path, &bytes).unwrap();
    }
    let kept = std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; see the top of this file", path.display()));
    assert_eq!(kept, bytes, "{name}: {}", String::from_utf8_lossy(&bytes));
    let read: M = form.decode(&kept).unwrap();
    assert_eq!(form.encode(&read), kept, "{name} does not survive reading");
}

fn both<M: Serialize + DeserializeOwned + Debug>(name: &str, message: &M) {
    frozen(name, Form::Binary, message);
    frozen(name, Form::Json, message);
}

fn node_name() -> NodeName {
    NodeName::new("gpu-01").unwrap()
}

fn uuid() -> GpuUuid {
    GpuUuid::new("GPU-5c1b1d3e")
}

fn exchange() -> Exchange<'static> {
    Exchange { client: Nonce([1; LEN]), server: Nonce([2; LEN]), authority: "127.0.0.1:8080" }
}

fn job() -> Job {
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
    }
}

fn gpu() -> GpuPicture {
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

fn sources() -> Vec<SourceState> {
    let versions = SourceVersions {
        driver: Reading::Value("550.54".into()),
        library: Reading::Value("12.550".into()),
        platform: Reading::NotYet,
    };
    vec![
        SourceState::ready(Vendor::Nvidia, versions),
        SourceState::absent(Vendor::Amd, "no AMD driver: not loaded"),
    ]
}

fn facts() -> GpuFacts {
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
        ..GpuFacts::new(uuid(), 1)
    }
}

fn health_changes() -> Vec<HealthChange> {
    let link = health().nvlinks.swap_remove(0);
    vec![HealthChange {
        gpu: 1,
        health: Some(Box::new(GpuHealth { nvlinks: Vec::new(), ..health() })),
        link_count: Some(18),
        links: vec![(3, link)],
        rates: vec![(4, Reading::Value(1_200), Reading::Unsupported)],
    }]
}

fn health() -> GpuHealth {
    let link = NvLink {
        link: 2,
        up: Reading::Value(true),
        version: Reading::Value(4),
        remote: Reading::Value("switch".into()),
        rx_mib_s: Reading::Value(11),
        tx_mib_s: Reading::Failed("Timeout".into()),
        errors: Reading::Value(0),
    };
    GpuHealth {
        remapped_uncorrected: Reading::Value(1),
        remap_pending: Reading::Value(true),
        pcie_gen: Reading::Unsupported,
        nvlinks: vec![link],
        ..GpuHealth::default()
    }
}

fn process_facts() -> ProcessFacts {
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

fn process() -> ProcessPicture {
    let mut row = Row::default();
    row.set(ProcessField::GpuMem, Cell::steps(70_200));
    ProcessPicture { facts: process_facts(), row }
}

fn usage() -> JobUsagePicture {
    let mut row = Row::default();
    row.set(JobField::MemUsed, Cell::steps(500));
    row.set(JobField::MemLimit, Cell::UNSUPPORTED);
    JobUsagePicture { job: JobId(17), row }
}

fn audit_entry() -> AuditEntry {
    AuditEntry {
        wall_ms: 1_700_000_000_000,
        action: "cancel job 17".into(),
        outcome: "cancelled".into(),
        succeeded: true,
    }
}

fn share_id() -> ShareId {
    ShareId::new("k3jq9x0a2b").unwrap()
}

fn share() -> Share {
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

fn share_link() -> ShareLink {
    let link = Some("http://127.0.0.1:8080/#s=k3jq9x0a2b.KEY".into());
    ShareLink { share: share(), link, tunnel: "ssh -L 8080:127.0.0.1:8080 login2".into() }
}

fn sharing() -> Sharing {
    let visitor = Visitor { share: Some(share_id()), user: Some("bob".into()), since_ms: 1_700_000_100_000 };
    Sharing { shares: vec![share()], visitors: vec![visitor] }
}

fn reference() -> ProcessRef {
    ProcessRef { pid: 41_822, started_ms: 1_700_000_100_000 }
}

/// A history with every kind of step: none, small ones, large ones, and a gap.
fn history() -> History {
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

fn node() -> NodePicture {
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

fn status() -> RelayStatus {
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
    }
}

fn cluster() -> ClusterSummary {
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

#[test]
fn messages_of_the_page() {
    both(
        "hello",
        &ClientMessage::Hello { proto: VersionRange::only(2), key: KeyId::Owner, nonce: Nonce([1; LEN]) },
    );
    both(
        "hello-share",
        &ClientMessage::Hello {
            proto: VersionRange { min: 1, max: 2 },
            key: KeyId::Share(share_id()),
            nonce: Nonce([1; LEN]),
        },
    );
    both(
        "hello-tab",
        &ClientMessage::Hello {
            proto: VersionRange::only(2),
            key: KeyId::Tab(share_id()),
            nonce: Nonce([1; LEN]),
        },
    );
    both("proof", &ClientMessage::Proof { code: exchange().client_code(&Key::new([7; LEN])) });
    both(
        "subscribe",
        &ClientMessage::Subscribe(vec![Topic::Overview, Topic::Job(JobId(17)), Topic::Node(node_name())]),
    );
    both("resync", &ClientMessage::Resync(Topic::Job(JobId(17))));
    let requests = [
        Request::Process { node: node_name(), process: reference(), environment: false },
        Request::Signal { node: node_name(), process: reference(), signal: Signal::Interrupt },
        Request::Job { job: JobId(17), action: JobAction::Requeue },
        Request::Share(Box::new(ShareRequest {
            label: "for Bob".into(),
            scope: Scope::Nodes(vec![node_name()]),
            hidden: HiddenParts { logs: false, ..HiddenParts::default() },
            to: Some("bob".into()),
            lifetime_s: Some(3_600),
        })),
        Request::ShareLink(share_id()),
        Request::Revoke(share_id()),
        Request::Retry(RetryTarget::Node(node_name())),
        Request::Retry(RetryTarget::Jobs),
        Request::Retry(RetryTarget::Everything),
    ];
    both("requests", &requests.map(|request| ClientMessage::Request { number: 5, request }).to_vec());
    both("follow", &ClientMessage::Follow(vec![LogRef { job: JobId(17), stream: LogStream::Stderr }]));
    let query = RangeQuery {
        topic: Topic::Job(JobId(17)),
        from_ms: 691_200_000,
        to_ms: 694_800_000,
        step_ms: 10_000,
        gpu_fields: vec!["util_pct".into()],
        host_fields: vec!["cpu_pct".into()],
    };
    both("query-range", &ClientMessage::Range { number: 6, query });
}

#[test]
fn messages_of_the_relay() {
    let code = exchange().server_code(&Key::new([7; LEN]).verifier());
    both("challenge", &ServerMessage::Challenge { nonce: Nonce([2; LEN]), code });
    both(
        "welcome",
        &ServerMessage::Welcome(Box::new(Welcome {
            proto: 2,
            build: "0123456789abcdef".into(),
            epoch: 0xdead_beef,
            at_ms: 12_345,
            wall_ms: 1_700_000_200_000,
            user: "alice".into(),
            host: "login2".into(),
            cluster: Some("lab".into()),
            mode: Mode::Slurm,
            role: Role::Owner,
            may_act: true,
            tunnel: "ssh -L 8080:127.0.0.1:8080 alice@login2".into(),
            share: Some(Box::new(share().terms)),
        })),
    );
    let picture = Picture {
        at_ms: 5_010,
        relay: status(),
        jobs: vec![job()],
        audit_log: vec![audit_entry()],
        sharing: sharing(),
        nodes: vec![node()],
    };
    let snapshot = Snapshot { topic: Topic::Overview, number: 1, seq: 9, picture };
    let written = SnapshotWriter {
        topic: &snapshot.topic,
        number: snapshot.number,
        seq: snapshot.seq,
        picture: &snapshot.picture,
        count: snapshot.picture.nodes.len(),
        node: |place: usize| snapshot.picture.nodes[place].clone(),
    };
    let message = ServerMessage::Snapshot(Box::new(snapshot.clone()));
    for form in [Form::Binary, Form::Json] {
        assert_eq!(form.encode(&written), form.encode(&message), "{form:?}");
    }
    both("snapshot", &message);
    both("gone", &ServerMessage::Gone(Topic::Node(node_name())));
    both("lagged", &ServerMessage::Lagged { missed: 4 });
    let mut summaries = Summaries::default();
    let summary = Summary { mean: Cell::steps(40), min: Cell::steps(3), max: Cell::steps(99) };
    (69_120..69_124).for_each(|slot| summaries.push(slot, summary));
    let gpu = GpuRange { uuid: GpuUuid::new("GPU-0"), fields: vec![summaries.clone()] };
    let node_range = NodeRange { node: node_name(), gpus: vec![gpu], host: vec![summaries] };
    let range = RangeHistory { step_ms: 10_000, begins_ms: Some(691_200_000), nodes: vec![node_range] };
    both("range", &ServerMessage::Range { number: 6, range });
    both("histories", &ServerMessage::Histories(Histories { topic: 3, nodes: vec![(1, history())] }));
    for (name, close_reason) in [
        ("bye-refused", CloseReason::Refused),
        ("bye-version", CloseReason::Version { relay: VersionRange::only(2) }),
        ("bye-unreadable", CloseReason::Unreadable),
        ("bye-too-slow", CloseReason::TooSlow),
        ("bye-shutting-down", CloseReason::ShuttingDown),
        ("bye-not-the-owner", CloseReason::NotTheOwner { user: Some("carol".into()) }),
        ("bye-not-for-you", CloseReason::NotForYou { to: "bob".into() }),
        ("bye-revoked", CloseReason::Revoked),
        ("bye-expired", CloseReason::Expired),
        ("bye-not-by-proxy", CloseReason::NotByProxy { other_user: true }),
    ] {
        both(name, &ServerMessage::Bye(close_reason));
    }
}

#[test]
fn responses_of_the_relay() {
    let detail = ProcessDetail {
        ancestors: vec![RelatedProcess {
            pid: 1,
            parent: 0,
            user: "root".into(),
            command: "init".into(),
            state: 0,
        }],
        args: Reading::Value("python train.py".into()),
        environment: Reading::Value(vec![Variable { name: "RANK".into(), value: "0".into() }]),
        ..ProcessDetail::default()
    };
    let tail =
        Tail { end: 90, lines: vec!["epoch 1".into()], partial: Some("50 %".into()), ..Tail::default() };
    for (name, response) in [
        ("response-process", Response::Process(Box::new(detail))),
        ("response-done", Response::Done("done".into())),
        ("response-refused", Response::Refused("not yours".into())),
        ("response-tail", Response::Tail(tail.clone())),
        ("response-share", Response::Share(Box::new(share_link()))),
    ] {
        both(name, &ServerMessage::Response { number: 5, response });
    }
    let of = LogRef { job: JobId(17), stream: LogStream::Stdout };
    both("log", &ServerMessage::Log { of, tail });
}

/// The first messages are the same in every version, so that pages of other versions can read them.
#[test]
fn the_handshake_is_that_of_version_1() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/frozen/v1");
    for (form, extension) in [(Form::Binary, "bin"), (Form::Json, "json")] {
        let read = |name: &str| std::fs::read(folder.join(format!("{name}.{extension}"))).unwrap();
        for name in ["hello", "hello-share", "proof"] {
            let message: ClientMessage = form.decode(&read(name)).unwrap();
            assert_eq!(form.encode(&message), read(name), "{name}");
        }
        for name in ["challenge", "bye-version", "bye-refused"] {
            let message: ServerMessage = form.decode(&read(name)).unwrap();
            assert_eq!(form.encode(&message), read(name), "{name}");
        }
    }
}

#[test]
fn every_kind_of_change() {
    let changes = vec![
        Change::Relay(status()),
        Change::Jobs(vec![job()]),
        Change::Nodes(vec![node_name()]),
        Change::Head { node: 0, head: Box::new(node().head) },
        Change::Gpus { node: 0, gpus: vec![gpu()] },
        Change::Processes { node: 0, processes: vec![process()] },
        Change::AuditLog(vec![audit_entry()]),
        Change::Health { node: 0, changed: health_changes() },
        Change::JobUsage { node: 0, job_usage: vec![usage()] },
        Change::Cores { node: 0, cores: vec![7, 93] },
        Change::History { node: 0, history: node().history },
        Change::Sharing(sharing()),
    ];
    both("delta", &ServerMessage::Delta(Delta { topic: 1, seq: 10, elapsed_ms: 1_000, changes }));
    let rows = vec![
        RowReadings::Gpu {
            gpu: 0,
            cells: NamedCells(vec![(GpuField::Util, Cell::steps(97)), (GpuField::Fan, Cell::UNSUPPORTED)]),
        },
        RowReadings::Host { cells: NamedCells(vec![(HostField::Cpu, Cell::NOT_YET)]) },
        RowReadings::Process { process: 0, cells: NamedCells(vec![(ProcessField::GpuMem, Cell::FAILED)]) },
        RowReadings::JobUsage { usage: 0, cells: NamedCells(vec![(JobField::Cpu, Cell::steps(800))]) },
    ];
    let plain = Change::Readings(Readings::Plain(vec![NodeReadings { node: 0, age_ms: 3, rows }]));
    frozen(
        "delta-plain",
        Form::Json,
        &ServerMessage::Delta(Delta { topic: 1, seq: 11, elapsed_ms: 1_000, changes: vec![plain] }),
    );
}

/// The coding of cells is frozen as well, not only the surrounding message.
#[test]
fn cells_as_they_are_packed() {
    let before = Picture { at_ms: 80_000, nodes: vec![node(), node()], ..Picture::default() };
    let mut now = node();
    now.sampled_at_ms = now.sampled_at_ms.map(|at| at + 1_003);
    now.gpus[0].row.set(GpuField::Util, Cell::steps(3));
    now.gpus[0].row.set(GpuField::Power, Cell::steps(412));
    now.gpus[0].row.set(GpuField::Ofa, Cell::UNSUPPORTED);
    now.host.set(HostField::Uptime, Cell::steps(70_000));
    now.processes[0].row.set(ProcessField::Sm, Cell::FAILED);
    let mut packer = Packer::new(DetailLevel::Full);
    let context = RecordContext { node: 1, at_ms: 81_000, detail: DetailLevel::Full };
    packer.node(context, &mut SentRows::of(&before.nodes[1]), &now);
    let changes = vec![Change::Readings(Readings::Packed(packer.finish(2)))];
    let delta = Delta { topic: 1, seq: 11, elapsed_ms: 1_000, changes };
    let mut after = before.clone();
    after.apply(&delta, |_| ()).unwrap();
    now.history = after.nodes[1].history.clone();
    assert_eq!((&after.nodes[0], &after.nodes[1]), (&before.nodes[0], &now));
    frozen("delta-packed", Form::Binary, &ServerMessage::Delta(delta));
}

#[test]
fn every_state_of_a_link_and_a_job() {
    let links = [
        Link::Waiting,
        Link::Connecting { failures: 2 },
        Link::Live,
        Link::Late,
        Link::Silent,
        Link::Down { reason: "w".into(), retry_at_ms: 1 },
        Link::Refused { reason: "w".into(), advice: "a".into() },
        Link::Ended,
    ];
    both("links", &links.to_vec());
    let states = [
        JobState::Pending,
        JobState::Configuring,
        JobState::Running,
        JobState::Suspended,
        JobState::Completing,
        JobState::Ended("TIMEOUT".into()),
        JobState::Other("RESIZING".into()),
    ];
    both("job-states", &states.to_vec());
    both(
        "job-parts",
        &vec![
            (Parent::Het { job: JobId(4), offset: 1 }, TimeLimit::Unknown, GpuSet::Count(4)),
            (Parent::Array { job: JobId(4), task: None }, TimeLimit::Unlimited, GpuSet::Unknown),
        ],
    );
}

#[test]
fn lines_of_the_probe() {
    let hello = Hello {
        proto: VersionRange::only(2),
        build: "0123456789abcdef".into(),
        stream: 99,
        host: "gpu-01".into(),
        boot_id: "b".into(),
        kernel: "6.1.0".into(),
        cpus: 64,
        mem_total_bytes: 1 << 40,
        user: "alice".into(),
        pid: 1_234,
        sources: sources(),
        gpus: vec![facts()],
        topology: vec![vec![GpuPath::Same]],
        cpu_model: "EPYC".into(),
        scratch: None,
        confinement: None,
    };
    let sample = Sample {
        seq: 7,
        mono_ns: 123_000_000_000,
        wall_ms: 1_700_000_000_000,
        interval_ms: 1_000,
        replay: false,
        since: None,
        gpus: vec![GpuSample {
            fault: None,
            util_pct: Reading::Value(97),
            power_mw: Reading::Value(391_700),
            fan_pct: Reading::Unsupported,
            ecc_corrected: Reading::Failed("unknown error".into()),
            ..Default::default()
        }],
        host: HostSample { cpu_pct: Reading::Value(38), ..Default::default() },
        cores: vec![12, 100],
        jobs: vec![JobUsage {
            job: JobId(17),
            now: JobReadings { cpu_pct: Reading::Value(790), ..Default::default() },
        }],
    };
    let now = ProcessReadings { gpu_mem_bytes: Reading::Value(1 << 36), ..Default::default() };
    let process = ProcessSample { facts: process_facts(), now: now.clone() };
    let json = Form::Json;
    frozen("probe-hello", json, &ProbeLine::<Sample>::Hello(Box::new(hello)));
    let sparse = Sample { seq: 8, since: Some(7), cores: Vec::new(), jobs: Vec::new(), ..sample.clone() };
    frozen("probe-sample", json, &ProbeLine::<_>::Sample(Box::new(sample)));
    frozen("probe-sample-since", json, &ProbeLine::<_>::Sample(Box::new(sparse)));
    frozen(
        "probe-processes",
        json,
        &ProbeLine::<Sample>::Processes(ProcessList {
            mono_ns: 81_200_000_000,
            processes: vec![process],
            gaps: vec![
                GpuGap { gpu: uuid(), gap: ProcessGap::Failed("unknown error".into()) },
                GpuGap { gpu: uuid(), gap: ProcessGap::More(12) },
                GpuGap { gpu: uuid(), gap: ProcessGap::Unsupported },
            ],
        }),
    );
    frozen(
        "probe-process-readings",
        json,
        &ProbeLine::<Sample, _>::ProcessReadings(ProcessListReadings {
            list_ns: 81_200_000_000,
            sparse: true,
            now: vec![now],
        }),
    );
    frozen("probe-health", json, &ProbeLine::<Sample>::Health(HealthReport { gpus: vec![health()] }));
    let rates = LinkRates { gpus: vec![GpuLinkRates::of(&health())] };
    frozen("probe-link-rates", json, &ProbeLine::<Sample>::LinkRates(rates));
    let response = ProbeResponse { number: 3, response: Response::Done("SIGTERM sent to 41822".into()) };
    frozen("probe-response", json, &ProbeLine::<Sample>::Response(Box::new(response)));
    frozen(
        "probe-heartbeat",
        json,
        &ProbeLine::<Sample>::Heartbeat(Heartbeat { mono_ns: 5, driver_stuck_ms: Some(4_000) }),
    );
    frozen(
        "probe-event",
        json,
        &ProbeLine::<Sample>::Event(Event {
            mono_ns: 5,
            gpu: Some(uuid()),
            xid: Some(79),
            text: "GPU has fallen off the bus".into(),
        }),
    );
    let piece = Piece { line: 1, part: 0, parts: 2, text: "{\"processes\":".to_owned() };
    frozen("probe-piece", json, &ProbeLine::<Sample>::Piece(piece));
    frozen("probe-bye", json, &ProbeLine::<Sample>::Bye(Bye { reason: "stdin was closed".into() }));
}

#[test]
fn lines_of_the_relay() {
    frozen(
        "control",
        Form::Json,
        &vec![
            Control::Ping,
            Control::Interval { ms: 1_000, phase_ms: 0 },
            Control::Interval { ms: 1_000, phase_ms: 120 },
            Control::Backfill { stream: 99, after_seq: 7 },
            Control::Stop,
            Control::Request {
                number: 1,
                request: ProbeRequest::Process { process: reference(), environment: true },
            },
            Control::Request {
                number: 2,
                request: ProbeRequest::Signal { process: reference(), signal: Signal::Kill },
            },
            Control::Request {
                number: 3,
                request: ProbeRequest::Tail {
                    path: "/x/slurm-17.out".into(),
                    after: 9,
                    audience: Audience::Guest { since_s: 1_763_725_200 },
                },
            },
        ],
    );
}

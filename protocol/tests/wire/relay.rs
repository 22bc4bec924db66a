//! Messages of the relay to the page: snapshots, changes, responses.

use crate::values::{
    audit_entry, audit_log, exchange, finding, gpu, health_changes, history, insight, job, node, node_fault,
    node_name, note, process, process_facts, share, share_link, sharing, status, usage,
};
use crate::{both, frozen};
use nodeglass_protocol::field::NamedCells;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::handshake::{Key, LEN, Nonce};
use nodeglass_protocol::job::{GpuSet, JobState, Parent, TimeLimit};
use nodeglass_protocol::live::codec::{Packer, RecordContext, SentRows};
use nodeglass_protocol::live::detail::DetailLevel;
use nodeglass_protocol::live::{
    Change, CloseReason, Delta, Downtime, Histories, Mode, NodeReadings, Readings, Role, RowReadings,
    ServerMessage, Snapshot, SnapshotWriter, Topic, Welcome,
};
use nodeglass_protocol::note::{NoteId, SavedNote};
use nodeglass_protocol::picture::{Link, Picture};
use nodeglass_protocol::process::{ProcessDetail, RelatedProcess, Variable};
use nodeglass_protocol::range::{GpuRange, NodeRange, RangeHistory, Summaries, Summary};
use nodeglass_protocol::report::{
    Accounting, Advice, Cost, GpuReport, JobUsage, ProjectUsage, Report, ReportAnswer, Throttled, Totals,
    Usage, UsageSums, WeekUsage,
};
use nodeglass_protocol::request::{FoundProcess, LogRef, LogStream, Response, Tail};
use nodeglass_protocol::version::VersionRange;
use nodeglass_protocol::{Cell, GpuField, GpuUuid, HostField, JobField, JobId, ProcessField, Reading};

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
            downtimes: vec![Downtime { from_ms: 1_000, to_ms: 9_000 }],
            report_webhook: Some("https://chat.example.org/…".into()),
            utc_offset_min: -210,
            person: Some("bob".into()),
            history_days: 366,
        })),
    );
    let picture = Picture {
        at_ms: 5_010,
        relay: status(),
        jobs: vec![job()],
        audit_log: vec![audit_entry()],
        sharing: sharing(),
        nodes: vec![node()],
        notes: vec![note()],
        findings: vec![finding()],
        insights: vec![insight()],
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
    let range = RangeHistory {
        step_ms: 10_000,
        begins_ms: Some(691_200_000),
        nodes: vec![node_range],
        problem: Some("The long-term storage cannot be read: status 503.".into()),
    };
    both("range", &ServerMessage::Range { number: 6, range });
    let answers = [
        ReportAnswer::Jobs(vec![report()]),
        ReportAnswer::Usage(Box::new(usage_of_jobs())),
        ReportAnswer::Refused("only the owner of this relay may see this".into()),
        ReportAnswer::Faults(vec![node_fault()]),
    ];
    both("reports", &answers.map(|answer| ServerMessage::Report { number: 7, answer }).to_vec());
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
        ("bye-not-identified", CloseReason::NotIdentified),
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
        ("response-audit", Response::Audit(Box::new(audit_log()))),
        (
            "response-processes",
            Response::Processes(vec![FoundProcess { node: node_name(), facts: process_facts() }]),
        ),
        ("response-note", Response::Note(Box::new(SavedNote { note: note(), is_stored: true }))),
    ] {
        both(name, &ServerMessage::Response { number: 5, response });
    }
    let of = LogRef { job: JobId(17), stream: LogStream::Stdout };
    both("log", &ServerMessage::Log { of, tail });
}

#[test]
fn every_kind_of_change() {
    let changes = vec![
        Change::Relay(Box::new(status())),
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
        Change::Notes { removed: vec![NoteId::from_bits(8)], changed: vec![note()] },
        Change::Findings { removed: vec!["thermal/17".into()], changed: vec![finding()] },
        Change::Insights(vec![insight()]),
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

/// A report with one GPU, most of whose totals were never known.
fn report() -> Report {
    let throttled = Throttled { reason: "power cap".into(), seconds: 12.5 };
    let gpu = GpuReport {
        node: "gpu-01".parse().unwrap(),
        index: 3,
        uuid: GpuUuid::new("GPU-1"),
        model: Some("NVIDIA H100".into()),
        observed_s: 3_500.0,
        util_pct: Some(50.0),
        util_distribution_pct: Some([0.0, 0.0, 0.0, 0.0, 0.0, 100.0, 0.0, 0.0, 0.0, 0.0]),
        idle_s: Some(0.0),
        energy_kwh: Some(0.35),
        sm_clock_mhz: Some(1_755.0),
        mem_peak_bytes: Some(40 << 30),
        mem_total_bytes: Some(80 << 30),
        throttled: vec![throttled.clone()],
        xids: 1,
        ecc_uncorrected: Some(0),
        ecc_corrected: None,
        fault_s: 0.0,
    };
    let advice =
        Advice { text: "The job used at most 2.0 of 8 CPUs.".into(), sbatch: Some("#SBATCH -c 2".into()) };
    Report {
        job: JobId(17),
        label: "17".into(),
        name: "train".into(),
        user: "alice".into(),
        account: Some("lab".into()),
        partition: "gpu".into(),
        state: "COMPLETED".into(),
        exit: Some("0:0".into()),
        application: Some("PyTorch".into()),
        is_final: true,
        at_s: 1_700_003_600,
        start_s: Some(1_700_000_000),
        ended_s: Some(1_700_003_600),
        elapsed_s: 3_600,
        limit_s: None,
        nodes: vec!["gpu-01".parse().unwrap()],
        node_count: 1,
        observed_pct: 97.2,
        totals: Totals {
            gpus: 1,
            gpu_hours_allocated: 1.0,
            throttled: vec![throttled],
            cost: Some(Cost { amount: 1.2, currency: "EUR".into() }),
            co2_kg: Some(0.13),
            ..Totals::default()
        },
        accounting: Some(Accounting {
            state: "FAILED".into(),
            exit_code: 3,
            signal: Some(9),
            step_exit_code: None,
            max_rss_bytes: Some(214_480 << 10),
            ended_s: 1_700_003_600,
            elapsed_s: Some(3_600),
            reason: Some("NonZeroExitCode".into()),
        }),
        gpus: vec![gpu],
        advice: vec![advice],
        notes: vec![note()],
        lacks_notes: true,
        findings: vec![finding()],
    }
}

fn usage_of_jobs() -> Usage {
    let mut total = UsageSums::default();
    total.add(&report());
    let job = JobUsage {
        job: JobId(17),
        label: "17".into(),
        name: "train".into(),
        state: "COMPLETED".into(),
        is_final: true,
        start_s: Some(1_700_000_000),
        elapsed_s: 3_600,
        gpus: 1,
        gpu_hours_allocated: 1.0,
        gpu_hours_observed: 0.97,
        gpu_hours_used: 0.47,
        gpu_hours_unused: 0.5,
        gpu_hours_hung: 0.1,
        gpu_hours_slowed: 0.2,
        util_pct: Some(50.0),
        observed_pct: 97.2,
    };
    Usage {
        days: 30,
        weeks: vec![WeekUsage { monday_s: 1_699_833_600, sums: total.clone() }],
        projects: vec![ProjectUsage { project: "lab".into(), sums: total.clone() }],
        total,
        wasteful: vec![job.clone()],
        jobs: vec![job],
        incomplete: Some("sacct is not installed.".into()),
    }
}

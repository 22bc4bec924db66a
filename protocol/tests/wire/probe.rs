//! Lines between probe and relay.

use crate::frozen;
use crate::values::{facts, health, process_capture, process_facts, reference, sources, uuid};
use nodeglass_protocol::capture::{Capture, CaptureRequest, ProcessCapture, StackReader};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::gpu::GpuPath;
use nodeglass_protocol::host::{HostSample, JobCgroupUsage, JobReadings};
use nodeglass_protocol::probe::{
    Bye, Control, Event, GpuGap, GpuLinkRates, GpuSample, HealthReport, Heartbeat, Hello, JobDevices,
    LinkRates, Piece, ProbeLine, ProbeResponse, ProbeUsage, ProcessGap, ProcessList, ProcessListReadings,
    ProcessSample, Sample, SpoolNote, SpoolNotes,
};
use nodeglass_protocol::process::ProcessReadings;
use nodeglass_protocol::request::{Audience, ProbeRequest, Response, Signal};
use nodeglass_protocol::version::VersionRange;
use nodeglass_protocol::{GpuUuid, JobId, Reading};

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
        jobs: vec![JobCgroupUsage {
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
            ..ProcessList::default()
        }),
    );
    let instance = GpuUuid::new("MIG-4f2a7f0e-9c11-5c6e-a3f4-0d5e1d2b7a10");
    let job_devices = vec![
        JobDevices { job: JobId(17), gres_indices: vec![0, 3], uuids: Vec::new() },
        JobDevices { job: JobId(18), gres_indices: Vec::new(), uuids: vec![uuid(), instance] },
    ];
    let list = ProcessList { mono_ns: 81_200_000_000, job_devices, ..ProcessList::default() };
    frozen("probe-job-devices", json, &ProbeLine::<Sample>::Processes(list));
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
    let refused = Some("it belongs to another user".into());
    let other = ProcessCapture { pid: 7, refused, ..ProcessCapture::default() };
    let capture = Capture { processes: vec![process_capture(), other], omitted: 2 };
    let response = ProbeResponse { number: 4, response: Response::Capture(Box::new(capture)) };
    frozen("probe-capture", json, &ProbeLine::<Sample>::Response(Box::new(response)));
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
    let note = SpoolNote {
        job: JobId(17),
        suffix: "3".into(),
        offset: 120,
        mono_ns: 81_200_000_000,
        text: "epoch 3".into(),
    };
    let problems = Some(vec!["~/.nodeglass-notes/17.4 is a pipe, not a regular file".into()]);
    frozen("probe-notes", json, &ProbeLine::<Sample>::Notes(SpoolNotes { notes: vec![note], problems }));
    let usage = ProbeUsage { cpu_ms: 5_210, rss_bytes: 9_437_184 };
    frozen("probe-usage", json, &ProbeLine::<Sample>::Usage(usage));
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
            Control::Notes { jobs: vec![JobId(17), JobId(18)] },
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
            Control::Request {
                number: 4,
                request: ProbeRequest::Capture(CaptureRequest {
                    job: JobId(17),
                    processes: vec![reference()],
                    stacks: StackReader::At("/opt/py-spy".into()),
                }),
            },
            Control::Request {
                number: 5,
                request: ProbeRequest::Capture(CaptureRequest {
                    job: JobId(17),
                    processes: Vec::new(),
                    stacks: StackReader::Off,
                }),
            },
        ],
    );
}

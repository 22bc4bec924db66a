//! Findings that compare nodes, clocks, jobs and processes.

use super::*;
use nodeglass_protocol::gpu::NvLink;
use nodeglass_protocol::insight::BottleneckKind;
use nodeglass_protocol::picture::JobUsagePicture;
use nodeglass_protocol::{HostField, JobField, ProcessField};

const GIB: u64 = 1 << 30;

/// Lets a job work for some minutes with further readings of each GPU.
fn working(nodes: usize, minutes: u64, prepare: impl Fn(usize, &mut GpuPicture)) -> Script {
    let mut script = Script::new(nodes, 8);
    for node in &mut script.nodes {
        node.gpus.iter_mut().enumerate().for_each(|(number, gpu)| prepare(number, gpu));
    }
    script.run(minutes * 60, |_, _| Some((99, 330, 1_980, 60.0)));
    script
}

fn links(up: usize) -> Vec<NvLink> {
    let link = |link| NvLink {
        link,
        up: Reading::Value(true),
        version: Reading::Value(6),
        remote: Reading::Value("switch".into()),
        rx_mib_s: Reading::NotYet,
        tx_mib_s: Reading::NotYet,
        errors: Reading::Value(0),
    };
    (0..up as u32).map(link).collect()
}

/// Sets a reading of every node.
fn set_host(script: &mut Script, field: HostField, value: u64) {
    let steps = u32::try_from(field.scale().steps(value)).unwrap();
    script.nodes.iter_mut().for_each(|node| node.host.set(field, Cell::steps(steps)));
}

#[test]
fn communication_limits_a_job_whose_links_are_busy_and_sms_are_not() {
    let busy_links = |sm: u64, nvlink: u64| {
        working(1, 11, move |_, gpu| {
            gpu.health.nvlinks = links(18);
            set(gpu, GpuField::SmActive, sm);
            set(gpu, GpuField::TensorActive, 12);
            set(gpu, GpuField::NvlinkRx, nvlink);
        })
    };
    let found = busy_links(32, 180_000_000_000);
    let found = found.only();
    assert_eq!((found.kind, found.severity), (FindingKind::CommunicationBound, FindingSeverity::Info));
    assert!(
        found.title.as_str().contains("180 GB/s of NVLink for each GPU at SM activity 32 %"),
        "{}",
        found.title
    );
    assert!(busy_links(70, 180_000_000_000).active().is_empty(), "it computes as well");
    assert!(busy_links(32, 9_000_000_000).active().is_empty(), "its links carry little");
}

#[test]
fn a_hang_that_is_over_is_neither_communication_nor_little_work() {
    let mut script = Script::new(2, 8);
    set_host(&mut script, HostField::NetRx, 1_000_000);
    script.run(460, |_, _| Some((100, 148, 1_980, 60.0)));
    set_host(&mut script, HostField::NetRx, 18_000_000_000);
    for _ in 0..10 {
        script.run(30, |_, _| Some((99, 500, 1_980, 60.0)));
        let kinds = [FindingKind::CommunicationBound, FindingKind::LowEfficiency];
        let limits = script.active().into_iter().filter(|kind| kinds.contains(kind));
        assert_eq!(limits.collect::<Vec<_>>(), []);
    }
}

#[test]
fn what_limits_a_job_agrees_with_its_findings_and_is_computing_otherwise() {
    let limit = |script: &Script| {
        let [insight] = script.findings.insights(&script.jobs).try_into().ok()?;
        let JobInsight { bottleneck, .. } = insight;
        bottleneck.map(|bottleneck| (bottleneck.kind, bottleneck.evidence.to_string()))
    };
    let with_sms = |sm: u64| {
        working(2, 11, move |_, gpu| {
            set(gpu, GpuField::SmActive, sm);
            set(gpu, GpuField::TensorActive, 44);
        })
    };
    let computes = (BottleneckKind::Compute, "SM activity 81 % · tensor cores 44 %".to_owned());
    assert_eq!(limit(&with_sms(81)), Some(computes));
    assert_eq!(limit(&with_sms(12)).map(|(kind, _)| kind), Some(BottleneckKind::Latency));
    assert_eq!(limit(&with_sms(35)), None, "neither is clear");
    let by_power = |watts: u64| {
        let mut script = Script::new(1, 8);
        script.run(11 * 60, |_, _| Some((99, watts, 1_980, 60.0)));
        limit(&script)
    };
    let computes = (BottleneckKind::Compute, "utilisation 99 % · power 640 W".to_owned());
    assert_eq!(by_power(640), Some(computes));
    assert_eq!(by_power(300), None);
    let mut silent = with_sms(81);
    silent.run(60, |number, _| (number != 9).then_some((99, 640, 1_980, 60.0)));
    assert_eq!(limit(&silent), None, "a node does not respond");
}

#[test]
fn memory_bandwidth_limits_a_job_that_does_not_fill_the_tensor_cores() {
    let decoding = |dram: u64, tensor: u64| {
        working(1, 11, move |_, gpu| {
            set(gpu, GpuField::DramActive, dram);
            set(gpu, GpuField::TensorActive, tensor);
            set(gpu, GpuField::SmActive, 60);
        })
    };
    assert_eq!(decoding(84, 8).only().kind, FindingKind::MemoryBound);
    assert!(decoding(84, 45).active().is_empty());
    assert!(decoding(55, 8).active().is_empty());
}

#[test]
fn a_node_with_a_lower_power_limit_is_named() {
    let limited = |nodes: usize, watts: u64| {
        let mut script = Script::new(nodes, 8);
        for gpu in &mut script.nodes[0].gpus {
            set(gpu, GpuField::PowerLimit, watts);
        }
        script.run(120, |_, _| WORK);
        script
    };
    let script = limited(4, 500);
    let found = script.only();
    assert_eq!((found.kind, found.gpus.len()), (FindingKind::SlowerThanModel, 8));
    assert_eq!(found.title.as_str(), "H100 on n1: power limit 500 W is 29 % below other nodes' 700 W");
    assert!(limited(4, 680).active().is_empty());
    assert!(limited(3, 500).active().is_empty(), "two other nodes are too few");
}

#[test]
fn clocks_are_compared_under_load_and_below_the_power_limit() {
    let slow = |power: u64| {
        let mut script = Script::new(5, 8);
        script.run(700, move |gpu, _| Some((98, power, if gpu < 8 { 1_500 } else { 1_980 }, 60.0)));
        script.active()
    };
    assert_eq!(slow(400), [FindingKind::SlowerThanModel]);
    assert!(slow(690).is_empty(), "the limit lowers the clock");
}

fn usage(job: u32, used: u64, limit: u64) -> JobUsagePicture {
    let mut usage = JobUsagePicture { job: JobId(job), row: Row::default() };
    for (field, bytes) in [(JobField::MemUsed, used), (JobField::MemLimit, limit)] {
        usage.row.set(field, Cell::steps(u32::try_from(field.scale().steps(bytes)).unwrap()));
    }
    usage
}

#[test]
fn memory_of_a_job_that_grows_towards_its_limit_is_forecast() {
    let mut script = Script::new(1, 2);
    for minute in 0..25 {
        script.nodes[0].job_usage = vec![usage(17, 40 * GIB + minute * GIB / 2, 100 * GIB)];
        script.run(60, |_, _| WORK);
    }
    let found = script.only();
    assert_eq!(found.kind, FindingKind::JobMemoryForecast);
    // 48 GiB are left for half a GiB a minute.
    assert!(
        found.title.as_str().starts_with("train reaches its memory limit on n1 in about 1 h"),
        "{}",
        found.title
    );
    assert!(found.evidence.iter().any(|line| line.as_str().starts_with("between ")), "{:?}", found.evidence);

    let mut steady = Script::new(1, 2);
    for minute in 0..40 {
        let cached = 30 * GIB - 30 * GIB / (1 + minute);
        steady.nodes[0].job_usage = vec![usage(17, 40 * GIB + cached, 100 * GIB)];
        steady.run(60, |_, _| WORK);
    }
    assert!(steady.active().is_empty(), "a cache that fills: {:#?}", steady.findings.list());
}

#[test]
fn memory_of_a_node_is_forecast_where_no_limit_bounds_it() {
    let growing = |limit: Option<u64>| {
        let mut script = Script::new(1, 2);
        script.nodes[0].job_usage = limit.map(|limit| usage(17, 10 * GIB, limit)).into_iter().collect();
        set_host(&mut script, HostField::MemTotal, 512 * GIB);
        for minute in 0..25 {
            set_host(&mut script, HostField::MemUsed, (200 + 2 * minute) * GIB);
            script.run(60, |_, _| WORK);
        }
        script.active()
    };
    assert_eq!(growing(None), [FindingKind::HostMemory]);
    assert!(growing(Some(100 * GIB)).is_empty());
}

#[test]
fn a_wrong_clock_is_reported_once_it_lasts() {
    let mut script = Script::new(1, 2);
    script.clock_ahead_ms = WALL_AHEAD_MS - 42_000;
    script.run(50, |_, _| WORK);
    assert!(script.active().is_empty());
    script.run(60, |_, _| WORK);
    let found = script.only();
    assert_eq!((found.kind, found.severity), (FindingKind::ClockSkew, FindingSeverity::Warning));
    assert_eq!(found.title.as_str(), "The clock of n1 is 42 s behind the login node's");
    script.clock_ahead_ms = WALL_AHEAD_MS + 900;
    script.run(180, |_, _| WORK);
    assert!(script.active().is_empty());
}

/// A process on the first GPU beside the job's own.
fn beside(prepare: impl Fn(&mut ProcessFacts)) -> Script {
    let mut script = Script::new(1, 2);
    for own in &mut script.nodes[0].processes {
        own.facts.job = Some(JobId(17));
    }
    let mut other = process(&script.nodes[0].gpus[0]);
    other.facts.pid = 99;
    other.facts.kind.compute = true;
    (other.facts.user, other.facts.command) =
        (Reading::Value("alice".into()), Reading::Value("python3".into()));
    let bytes = ProcessField::GpuMem.scale().steps(3 * GIB);
    other.row.set(ProcessField::GpuMem, Cell::steps(u32::try_from(bytes).unwrap()));
    prepare(&mut other.facts);
    script.nodes[0].processes.push(other);
    script.run(150, |_, _| WORK);
    script
}

#[test]
fn processes_outside_of_the_job_are_named() {
    let title = |prepare: fn(&mut ProcessFacts)| {
        let script = beside(prepare);
        assert_eq!(script.active(), [FindingKind::OutsideJob]);
        script.only().title.to_string()
    };
    let left_over = title(|facts| facts.job = Some(JobId(3)));
    assert_eq!(left_over, "python3 (pid 99) left over from job 3 uses n1 GPU 0, allocated to train");
    let by_bob = title(|facts| facts.user = Reading::Value("bob".into()));
    assert_eq!(by_bob, "python3 (pid 99) of bob uses n1 GPU 0, allocated to train");
    assert_eq!(title(|_| {}), "python3 (pid 99) uses n1 GPU 0, allocated to train");
}

#[test]
fn a_process_of_no_job_on_a_gpu_that_no_job_has_is_named() {
    let on_free_gpu = |prepare: fn(&mut Script)| {
        let mut script = beside(|facts| facts.gpu = GpuUuid::new("GPU-1-1"));
        script.nodes[0]
            .processes
            .retain(|process| process.facts.pid == 99 || process.facts.gpu.as_str() == "GPU-1-0");
        script.nodes[0].gpus[1].owners.clear();
        prepare(&mut script);
        script.run(180, |_, _| WORK);
        script.findings.list().iter().find(|found| found.is_active()).cloned()
    };
    let found = on_free_gpu(|_| {}).expect("it is found");
    assert_eq!(found.title.as_str(), "python3 (pid 99) uses n1 GPU 1, which no job has");
    assert_eq!((found.kind, found.jobs), (FindingKind::OutsideJob, vec![JobId(17)]));
    let of_another_job = on_free_gpu(|script| script.nodes[0].processes[1].facts.job = Some(JobId(3)));
    assert_eq!(of_another_job, None, "another user's job has the GPU");
    fn of_bob(script: &mut Script) {
        script.nodes[0].processes[1].facts.user = Reading::Value("bob".into());
    }
    assert_eq!(on_free_gpu(of_bob), None, "jobs have no cgroups: it may be of bob's job");
    let with_cgroups = on_free_gpu(|script| {
        of_bob(script);
        let usage = JobUsagePicture { job: JobId(17), row: Row::default() };
        script.nodes[0].job_usage.push(usage);
    });
    assert!(with_cgroups.is_some(), "its cgroup would name bob's job");
}

#[test]
fn a_process_on_a_gpu_that_is_not_its_jobs_is_named() {
    let mut script = beside(|facts| (facts.job, facts.gpu) = (Some(JobId(17)), GpuUuid::new("GPU-1-1")));
    script.nodes[0]
        .processes
        .retain(|process| process.facts.gpu.as_str() == "GPU-1-0" || process.facts.pid == 99);
    script.nodes[0].gpus[1].owners.clear();
    script.run(180, |_, _| WORK);
    let found = script.only();
    assert_eq!((found.kind, &*found.jobs), (FindingKind::OutsideJob, &[JobId(17)][..]));
    assert_eq!(
        found.title.as_str(),
        "python3 (pid 99) of job 17 uses n1 GPU 1, which SLURM has not allocated to it"
    );
}

#[test]
fn processes_that_may_belong_there_are_not() {
    let is_quiet = |prepare: fn(&mut ProcessFacts)| beside(prepare).active().is_empty();
    assert!(is_quiet(|facts| facts.job = Some(JobId(17))));
    assert!(is_quiet(|facts| facts.user = Reading::Value("root".into())), "monitoring of the node");
    assert!(is_quiet(|facts| facts.user = Reading::NotYet), "its owner is not known");
    assert!(is_quiet(|facts| facts.command = Reading::Failed("no such process".into())), "another namespace");
    assert!(is_quiet(|facts| facts.kind.compute = false), "a display server");
}

#[test]
fn the_largest_and_the_smallest_readings_are_no_overflow() {
    for steps in [0, u32::MAX] {
        let mut script = Script::new(2, 8);
        for node in &mut script.nodes {
            HostField::ALL.iter().for_each(|field| node.host.set(*field, Cell::steps(steps)));
            for gpu in &mut node.gpus {
                GpuField::ALL.iter().for_each(|field| gpu.row.set(*field, Cell::steps(steps)));
            }
            let mut usage = JobUsagePicture { job: JobId(17), row: Row::default() };
            JobField::ALL.iter().for_each(|field| usage.row.set(*field, Cell::steps(steps)));
            node.job_usage = vec![usage];
        }
        script.clock_ahead_ms = if steps == 0 { i64::MIN } else { i64::MAX };
        for (util, clock) in [(100, 1_980), (0, 200)] {
            script.run(700, |_, _| Some((util, 400, clock, 3e6)));
        }
        assert!(script.findings.list().len() <= nodeglass_protocol::finding::MAX_FINDINGS);
    }
}

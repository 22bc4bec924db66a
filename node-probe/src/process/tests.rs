//! The process table resolves the processes of this machine and of synthetic ones.

use super::*;
use nodeglass_protocol::probe::{GpuGap, ProcessGap, ProcessKind};
use nodeglass_protocol::process::{ProcessState, Rank};
use nodeglass_protocol::{GpuUuid, JobId};
use std::fs;

const SECOND: u64 = 1_000_000_000;

fn gpu_process(pid: u32) -> GpuProcess {
    GpuProcess {
        gpu: GpuUuid::new("GPU-1"),
        pid,
        now: ProcessReadings { gpu_mem_bytes: Reading::Value(5 << 20), ..ProcessReadings::default() },
        kind: ProcessKind { compute: true, ..ProcessKind::default() },
    }
}

impl ProcessTable {
    /// A list without failures.
    fn look_at(&mut self, now_ns: u64, gpu_processes: Vec<GpuProcess>) -> Vec<ProcessSample> {
        self.update_at(now_ns, GpuProcessList { processes: gpu_processes, ..GpuProcessList::default() })
            .processes
    }
}

/// A list of which one of GPU-1 failed.
fn unread(gpu_processes: Vec<GpuProcess>, kind: ProcessKind) -> GpuProcessList {
    let gpus = [GpuUuid::new("GPU-0"), GpuUuid::new("GPU-1")].into();
    let mut gpu_process_list = GpuProcessList { gpus, processes: gpu_processes, ..GpuProcessList::default() };
    gpu_process_list.unread(vec![GpuUuid::new("GPU-1")], kind, "unknown error".into());
    gpu_process_list
}

const COMPUTE: ProcessKind = ProcessKind { compute: true, graphics: false, mps: false };
const GRAPHICS: ProcessKind = ProcessKind { compute: false, graphics: true, mps: false };

/// A synthetic `/proc` of own processes.
struct Proc(tempfile::TempDir);

impl Proc {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn stat(&self, pid: u32, name: &str, state: char, cpu_ticks: u64, started: u64, layout: u64) {
        fs::create_dir_all(self.0.path().join(pid.to_string())).unwrap();
        let mut fields = vec![0; 50];
        (fields[0], fields[10], fields[16], fields[18], fields[20]) = (1, cpu_ticks, 3, started, 2);
        fields[44] = layout;
        let fields: Vec<String> = fields.iter().map(u64::to_string).collect();
        self.file(pid, "stat", &format!("{pid} ({name}) {state} {}", fields.join(" ")));
        let uid = rustix::process::geteuid().as_raw();
        self.file(pid, "status", &format!("Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"));
    }

    fn file(&self, pid: u32, name: &str, text: &str) {
        fs::write(self.0.path().join(pid.to_string()).join(name), text).unwrap();
    }

    fn process_table(&self) -> ProcessTable {
        ProcessTable::of(self.0.path().into(), self.0.path().join("cgroups"), Some(1_000_000))
    }
}

#[test]
fn an_own_process_has_all_facts() {
    let own = std::process::id();
    let list = ProcessTable::new().look_at(SECOND, vec![gpu_process(own)]);
    let facts = &list[0].facts;
    assert!(facts.user.value().is_some() && facts.command.value().is_some());
    assert!(facts.args.value().unwrap().as_str().contains("node_probe"));
    assert!(*facts.started_ms.value().unwrap() > 1_500_000_000_000);
    assert_eq!(facts.parent, Reading::Value(std::os::unix::process::parent_id()));
    let cwd = std::env::current_dir().unwrap();
    assert_eq!(facts.cwd.value().unwrap().as_str(), cwd.to_str().unwrap());
    assert_eq!(list[0].now.cpu_pct, Reading::NotYet);
    assert!(*list[0].now.rss_bytes.value().unwrap() > 1 << 20);
    assert_eq!(list[0].now.state, Reading::Value(ProcessState::Alive as u64));
    assert_eq!(list[0].now.gpu_mem_bytes, Reading::Value(5 << 20));
}

#[test]
fn a_pid_of_another_namespace_is_unknown() {
    let list = ProcessTable::new().look_at(SECOND, vec![gpu_process(4_194_304)]);
    assert_eq!(list[0].facts.command, Reading::Failed(NO_SUCH_PROCESS.into()));
    assert_eq!(list[0].facts.user, Reading::NotYet);
    assert_eq!(list[0].now.state, Reading::NotYet);
}

#[test]
fn changed_readings_need_no_new_list_and_changed_facts_do() {
    let process_table = ProcessTable::new();
    let last = vec![process_table.sample(gpu_process(1))];
    let mut now = last.clone();
    now[0].now.gpu_mem_bytes = Reading::Value(7 << 20);
    assert!(!facts_changed(&last, &now));
    assert!(facts_changed(&last, &[]));
    now[0] = process_table.sample(gpu_process(2));
    assert!(facts_changed(&last, &now));
}

#[test]
fn cpu_usage_is_measured_since_the_last_sample() {
    let proc = Proc::new();
    let mut process_table = proc.process_table();
    let mut look = |second: u64, ticks: u64| {
        proc.stat(7, "python", 'S', ticks, 50, 1);
        process_table.look_at(second * SECOND, vec![gpu_process(7), gpu_process(7)])[1].now.cpu_pct.clone()
    };
    assert_eq!(look(10, 1_000), Reading::NotYet);
    assert_eq!(look(12, 1_500), Reading::Value(250));
    assert_eq!(look(14, 1_500), Reading::Value(0));
}

#[test]
fn a_process_of_another_uid_is_not_roots_although_its_folder_is() {
    let proc = Proc::new();
    proc.stat(7, "python", 'S', 1_000, 50, 1);
    proc.file(7, "cmdline", "python\0secret\0");
    let args = || {
        let mut process_table = proc.process_table();
        process_table.context.own_uid = 0;
        process_table.look_at(SECOND, vec![gpu_process(7)])[0].facts.args.clone()
    };
    proc.file(7, "status", "Uid:\t0\t0\t0\t0\n");
    // The folder is root's only if root runs this test.
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(args().value().is_some(), is_root);
    proc.file(7, "status", "Uid:\t2001\t2001\t0\t2001\n");
    assert_eq!(args(), Reading::Failed(OF_ANOTHER_USER.into()));
}

#[test]
fn a_reused_pid_is_another_process() {
    let proc = Proc::new();
    let mut process_table = proc.process_table();
    proc.stat(7, "python", 'S', 1_000, 50, 1);
    proc.file(7, "cgroup", "0::/system.slice/slurmstepd.scope/job_5/step_0\n");
    let first = process_table.look_at(SECOND, vec![gpu_process(7)]);
    assert_eq!(first[0].facts.job, Some(JobId(5)));
    proc.stat(7, "python", 'S', 9, 60, 1);
    proc.file(7, "cgroup", "0::/\n");
    let second = process_table.look_at(3 * SECOND, vec![gpu_process(7)]);
    assert_eq!((second[0].facts.job, &second[0].now.cpu_pct), (None, &Reading::NotYet));
    assert_eq!(second[0].facts.started_ms, Reading::Value(1_000_600));
    assert!(facts_changed(&first, &second));
}

#[test]
fn a_launcher_that_becomes_a_worker_of_the_same_name_gets_its_rank() {
    let proc = Proc::new();
    let mut process_table = proc.process_table();
    proc.stat(7, "python", 'S', 0, 50, 1);
    proc.file(7, "environ", "SLURM_PROCID=0\0SLURM_JOB_ID=9\0");
    let rank = |list: &[ProcessSample]| list[0].facts.rank.map(|rank| rank.global);
    assert_eq!(rank(&process_table.look_at(SECOND, vec![gpu_process(7)])), Some(0));
    proc.file(7, "environ", "SLURM_PROCID=0\0RANK=3\0LOCAL_RANK=1\0WORLD_SIZE=4\0");
    assert_eq!(rank(&process_table.look_at(2 * SECOND, vec![gpu_process(7)])), Some(0));
    proc.stat(7, "python", 'S', 0, 50, 2);
    let list = process_table.look_at(3 * SECOND, vec![gpu_process(7)]);
    assert_eq!(list[0].facts.rank, Some(Rank { global: 3, local: Some(1), world: Some(4) }));
    assert_eq!(list[0].facts.job, Some(JobId(9)));
}

#[test]
fn memory_of_processes_in_device_wait_is_read_later() {
    let proc = Proc::new();
    let mut process_table = proc.process_table();
    proc.stat(7, "python", 'D', 0, 50, 1);
    proc.file(7, "cmdline", "python\0train.py\0");
    let list = process_table.look_at(SECOND, vec![gpu_process(7)]);
    assert_eq!(list[0].facts.args, Reading::NotYet);
    assert_eq!(list[0].now.state, Reading::Value(ProcessState::Uninterruptible as u64));
    proc.stat(7, "python", 'S', 0, 50, 1);
    let list = process_table.look_at(2 * SECOND, vec![gpu_process(7)]);
    assert_eq!(list[0].facts.args, Reading::Value("python train.py".into()));
}

#[test]
fn a_sluid_job_is_found_by_an_own_process_in_its_cgroup() {
    let proc = Proc::new();
    let mut process_table = proc.process_table();
    let path = "system.slice/slurmstepd.scope/s5K1KKYAYG5D00";
    proc.stat(7, "python", 'S', 0, 50, 1);
    proc.file(7, "cgroup", &format!("0::/{path}/step_0/user/task_0\n"));
    let list = process_table.look_at(SECOND, vec![gpu_process(7)]);
    assert_eq!((list[0].facts.job, list[0].facts.step.clone()), (None, Some("0".into())));
    proc.stat(8, "bash", 'S', 0, 50, 1);
    proc.file(8, "environ", "SLURM_JOB_ID=31\0");
    fs::create_dir_all(proc.0.path().join("cgroups").join(path)).unwrap();
    fs::write(proc.0.path().join("cgroups").join(path).join("cgroup.procs"), "8\n").unwrap();
    let list = proc.process_table().look_at(SECOND, vec![gpu_process(7)]);
    assert_eq!(list[0].facts.job, Some(JobId(31)));
}

#[test]
fn processes_of_a_failed_list_remain_until_they_end() {
    let proc = Proc::new();
    let mut process_table = proc.process_table();
    for pid in [7, 8, 9] {
        proc.stat(pid, "python", 'S', 0, 50, 1);
    }
    let elsewhere = GpuProcess { gpu: GpuUuid::new("GPU-0"), ..gpu_process(9) };
    let all = vec![elsewhere.clone(), gpu_process(7), gpu_process(8), gpu_process(4_000_000)];
    process_table.look_at(SECOND, all);
    let pids = |list: &ProcessList| list.processes.iter().map(|one| one.facts.pid).collect::<Vec<_>>();
    let list = process_table.update_at(2 * SECOND, unread(vec![elsewhere.clone()], COMPUTE));
    // The end of a process of another pid namespace cannot be observed.
    assert_eq!(pids(&list), [9, 7, 8, 4_000_000]);
    assert_eq!(list.processes[1].now.gpu_mem_bytes, Reading::Failed("unknown error".into()));
    assert_eq!(list.processes[1].now.threads, Reading::Value(3));
    let gap = GpuGap { gpu: GpuUuid::new("GPU-1"), gap: ProcessGap::Failed("unknown error".into()) };
    assert_eq!(list.gaps, [gap]);
    // One process ends, and the pid of another is reused.
    fs::remove_dir_all(proc.0.path().join("7")).unwrap();
    proc.stat(8, "bash", 'S', 0, 60, 1);
    for second in 3..6 {
        let list = process_table.update_at(second * SECOND, unread(vec![elsewhere.clone()], COMPUTE));
        assert_eq!(pids(&list), [9, 4_000_000]);
    }
    let list = process_table.update_at(
        9 * SECOND,
        GpuProcessList { processes: vec![gpu_process(8)], ..GpuProcessList::default() },
    );
    assert_eq!((pids(&list), list.gaps.len()), (vec![8], 0));
}

#[test]
fn only_the_failed_list_keeps_old_entries() {
    let proc = Proc::new();
    let mut process_table = proc.process_table();
    for pid in [7, 8] {
        proc.stat(pid, "python", 'S', 0, 50, 1);
    }
    let both = GpuProcess { kind: COMPUTE.union(GRAPHICS), ..gpu_process(7) };
    process_table.look_at(SECOND, vec![both, GpuProcess { kind: GRAPHICS, ..gpu_process(8) }]);
    // Neither is in the graphics list any more; the compute list failed.
    let list = process_table.update_at(2 * SECOND, unread(Vec::new(), COMPUTE));
    assert_eq!(
        list.processes.iter().map(|one| (one.facts.pid, one.facts.kind)).collect::<Vec<_>>(),
        [(7, COMPUTE)]
    );
    // The compute list contains it; the graphics list, which contained it before, failed.
    process_table.look_at(3 * SECOND, vec![GpuProcess { kind: COMPUTE.union(GRAPHICS), ..gpu_process(7) }]);
    let list = process_table.update_at(4 * SECOND, unread(vec![gpu_process(7)], GRAPHICS));
    assert_eq!(list.processes[0].facts.kind, COMPUTE.union(GRAPHICS));
    assert_eq!(list.processes[0].now.gpu_mem_bytes, Reading::Value(5 << 20));
}

#[test]
fn restored_processes_respect_the_list_bound() {
    let mut process_table = Proc::new().process_table();
    let on = |gpu: &str, pids: std::ops::Range<u32>| -> Vec<GpuProcess> {
        pids.map(|pid| GpuProcess { gpu: GpuUuid::new(gpu), ..gpu_process(pid) }).collect()
    };
    process_table.look_at(SECOND, on("GPU-1", 0..MAX_PROCESSES as u32));
    let list = process_table.update_at(2 * SECOND, unread(on("GPU-0", 0..MAX_PROCESSES as u32), COMPUTE));
    assert_eq!(list.processes.len(), MAX_PROCESSES);
    let more: Vec<_> = list.gaps.iter().filter(|gap| matches!(gap.gap, ProcessGap::More(2_048))).collect();
    assert_eq!(more.len(), 2);
}

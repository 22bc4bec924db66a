//! Devices that the user's own jobs on this node may see, by the environments of their processes: job scripts and
//! tasks of steps, also before they use a GPU.

use super::info::ProcContext;
use super::stat::{self, Stat};
use crate::proc::devices::NamedDevices;
use crate::proc::environ::Environ;
use crate::proc::job::CgroupJob;
use nodeglass_protocol::probe::{JobDevices, MAX_JOB_DEVICES};
use nodeglass_protocol::process::ProcessState;
use nodeglass_protocol::{JobId, Text};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Interval of searches of `/proc`; the relay polls SLURM for jobs about as often.
const INTERVAL_NS: u64 = 10_000_000_000;
/// Maximum number of entries of `/proc` that a search examines.
const MAX_ENTRIES: usize = 65_536;
/// Maximum number of own processes that a search examines.
const MAX_OWN: usize = 4_096;
/// Maximum number of devices of all jobs together, which bounds the size of a line.
const MAX_ALL: usize = 1_024;

/// Searches the own processes for the devices that their jobs may see.
#[derive(Debug, Default)]
pub struct DeviceSearch {
    searched_ns: Option<u64>,
    /// The own processes of the last search, whose environments are not read again.
    known: HashMap<u32, OwnProcess>,
    found: Vec<JobDevices>,
}

/// Content of the environment of an own process.
#[derive(Debug)]
struct OwnProcess {
    started_ticks: u64,
    /// Name, and addresses of arguments and environment, which `exec` changes.
    program: (Vec<u8>, [u64; 2]),
    /// Its job and the devices of it that it names, if it does.
    devices: Option<(JobId, NamedDevices)>,
}

impl DeviceSearch {
    /// Returns the devices by job. `/proc` is searched every 10 s.
    pub fn devices(&mut self, now_ns: u64, context: &mut ProcContext) -> &[JobDevices] {
        if self.searched_ns.is_none_or(|at| now_ns.saturating_sub(at) >= INTERVAL_NS) {
            self.searched_ns = Some(now_ns);
            self.search(context);
        }
        &self.found
    }

    fn search(&mut self, context: &mut ProcContext) {
        let mut before = std::mem::take(&mut self.known);
        for pid in own_pids(&context.proc, context.own_uid) {
            let Some(stat) = Stat::of(&context.proc, pid) else { continue };
            let known = before.remove(&pid).filter(|known| known.is(&stat));
            // Reading the memory of a process in uninterruptible sleep could block; it is read later.
            let is_readable = stat.state != ProcessState::Uninterruptible;
            if let Some(process) = known.or_else(|| is_readable.then(|| OwnProcess::read(context, pid, stat)))
            {
                self.known.insert(pid, process);
            }
        }
        let named = self.known.values().filter_map(|process| process.devices.as_ref());
        self.found = by_job(named.map(|(job, devices)| (*job, devices)));
    }
}

impl OwnProcess {
    fn is(&self, stat: &Stat) -> bool {
        self.started_ticks == stat.started_ticks
            && self.program.0 == stat.comm
            && self.program.1 == stat.layout
    }

    fn read(context: &mut ProcContext, pid: u32, stat: Stat) -> Self {
        let folder = context.proc.join(pid.to_string());
        let devices = stat::runs_as(&folder, context.own_uid).then(|| devices(context, &folder)).flatten();
        Self { started_ticks: stat.started_ticks, program: (stat.comm, stat.layout), devices }
    }
}

/// The job of a process, and the devices that its environment names.
fn devices(context: &mut ProcContext, folder: &Path) -> Option<(JobId, NamedDevices)> {
    let cgroup = fs::read(folder.join("cgroup")).unwrap_or_default();
    let cgroup = String::from_utf8_lossy(&cgroup);
    let environ = Environ::read(folder);
    let of_cgroup = CgroupJob::of(&cgroup);
    let job = context.job_of_process(&of_cgroup, environ.job(), &cgroup)?;
    let step = of_cgroup.step.or_else(|| environ.step());
    let devices = NamedDevices::of(&environ, step.as_ref().map(Text::as_str));
    (!devices.is_empty()).then_some((job, devices))
}

/// Pids of the processes whose folder belongs to the user.
fn own_pids(proc: &Path, own_uid: u32) -> Vec<u32> {
    let entries = fs::read_dir(proc).into_iter().flatten().take(MAX_ENTRIES).flatten();
    let pids = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        (entry.metadata().ok()?.uid() == own_uid).then_some(pid)
    });
    pids.take(MAX_OWN).collect()
}

/// The union of what the processes of each job name.
fn by_job<'a>(named: impl Iterator<Item = (JobId, &'a NamedDevices)>) -> Vec<JobDevices> {
    let mut jobs: BTreeMap<JobId, NamedDevices> = BTreeMap::new();
    for (job, devices) in named {
        let all = jobs.entry(job).or_default();
        all.gres_indices.extend(&devices.gres_indices);
        all.uuids.extend(devices.uuids.iter().cloned());
    }
    let devices = jobs.into_iter().map(|(job, NamedDevices { gres_indices, uuids })| JobDevices {
        job,
        gres_indices: gres_indices.into_iter().collect(),
        uuids: uuids.into_iter().collect(),
    });
    let mut room = MAX_ALL;
    let fits = |devices: &JobDevices| {
        let count = devices.gres_indices.len() + devices.uuids.len();
        room.checked_sub(count).map(|left| room = left).is_some()
    };
    // More than a node has are wrong as a whole, rather than correct in part.
    devices.filter(JobDevices::is_bounded).filter(fits).take(MAX_JOB_DEVICES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const MIG: &str = "MIG-4f2a7f0e-9c11-5c6e-a3f4-0d5e1d2b7a10";
    const OTHER: &str = "MIG-91b3c2d4-0a1b-5e6f-8c7d-1234567890ab";
    const SECOND: u64 = 1_000_000_000;

    /// A synthetic `/proc`, whose folders are all own ones.
    struct Proc {
        root: tempfile::TempDir,
        search: DeviceSearch,
        context: ProcContext,
    }

    impl Proc {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let context = ProcContext {
                proc: root.path().into(),
                cgroups: root.path().join("cgroups"),
                own_uid: fs::metadata(root.path()).unwrap().uid(),
                boot_ms: None,
                jobs_by_sluid: HashMap::new(),
            };
            Self { root, search: DeviceSearch::default(), context }
        }

        fn folder(&self, pid: u32) -> PathBuf {
            self.root.path().join(pid.to_string())
        }

        fn process(&self, pid: u32, state: char, cgroup: &str, environ: &[&str]) {
            let folder = self.folder(pid);
            fs::create_dir_all(&folder).unwrap();
            let numbers = vec!["1"; 50].join(" ");
            fs::write(folder.join("stat"), format!("{pid} (python) {state} {numbers}")).unwrap();
            let uid = self.context.own_uid;
            fs::write(folder.join("status"), format!("Name:\tpython\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"))
                .unwrap();
            fs::write(folder.join("cgroup"), format!("0::/system.slice/slurmstepd.scope/{cgroup}\n"))
                .unwrap();
            fs::write(folder.join("environ"), environ.join("\0")).unwrap();
        }

        fn devices(&mut self, second: u64) -> Vec<(u32, Vec<u32>, Vec<String>)> {
            let found = self.search.devices(second * SECOND, &mut self.context);
            let uuids = |devices: &JobDevices| devices.uuids.iter().map(ToString::to_string).collect();
            found.iter().map(|one| (one.job.0, one.gres_indices.clone(), uuids(one))).collect()
        }
    }

    #[test]
    fn what_the_processes_of_a_job_may_see_is_joined() {
        let mut proc = Proc::new();
        let (first, second) =
            (format!("CUDA_VISIBLE_DEVICES={MIG}"), format!("CUDA_VISIBLE_DEVICES={OTHER}"));
        proc.process(7, 'S', "job_5/step_batch", &["SLURM_JOB_GPUS=0,1"]);
        proc.process(8, 'R', "job_5/step_0/user/task_0", &[&first, "SLURM_JOB_GPUS=3"]);
        proc.process(9, 'S', "job_5/step_0/user/task_1", &[&second]);
        proc.process(10, 'S', "job_6/step_0/user/task_0", &["SLURM_STEP_GPUS=2"]);
        proc.process(11, 'S', "job_7/step_0/user/task_0", &["PATH=/bin"]);
        proc.process(12, 'S', "../../user.slice", &[&first]);
        let (both, none) = (vec![MIG.to_owned(), OTHER.to_owned()], Vec::new());
        assert_eq!(proc.devices(1), [(5, vec![0, 1], both), (6, vec![2], none)]);
    }

    #[test]
    fn the_job_is_that_of_the_cgroup_else_that_of_the_environment() {
        let mut proc = Proc::new();
        // A heterogeneous component has the id of the first one in its environment.
        proc.process(7, 'S', "job_5/step_0", &["SLURM_JOB_ID=4", "SLURM_STEP_GPUS=0"]);
        proc.process(8, 'S', "", &["SLURM_JOB_ID=6", "SLURM_STEP_ID=0", "SLURM_STEP_GPUS=1"]);
        proc.process(9, 'S', "", &["SLURM_JOB_ID=7", "SLURM_STEP_ID=4294967291", "SLURM_JOB_GPUS=2"]);
        let found: Vec<_> = proc.devices(1).into_iter().map(|(job, indices, _)| (job, indices)).collect();
        assert_eq!(found, [(5, vec![0]), (6, vec![1]), (7, vec![2])]);
    }

    #[test]
    fn environments_of_other_users_are_not_read() {
        let mut proc = Proc::new();
        proc.process(7, 'S', "job_5/step_0", &["SLURM_STEP_GPUS=0"]);
        // Since it has changed its uid, its folder belongs to root.
        fs::write(proc.folder(7).join("status"), "Uid:\t0\t4711\t0\t0\n").unwrap();
        proc.process(8, 'S', "job_6/step_0", &["SLURM_STEP_GPUS=1"]);
        fs::remove_file(proc.folder(8).join("status")).unwrap();
        assert_eq!(proc.devices(1), []);
        proc.process(9, 'S', "job_7/step_0", &["SLURM_STEP_GPUS=2"]);
        proc.context.own_uid += 1;
        assert_eq!(proc.devices(20), []);
    }

    #[test]
    fn a_process_is_read_again_after_exec_and_once_it_is_not_stuck() {
        let mut proc = Proc::new();
        proc.process(7, 'D', "job_5/step_0", &["SLURM_STEP_GPUS=0"]);
        assert_eq!(proc.devices(1), []);
        proc.process(7, 'S', "job_5/step_0", &["SLURM_STEP_GPUS=0"]);
        assert_eq!(proc.devices(9), [], "the next search is due after ten seconds");
        assert_eq!(proc.devices(11), [(5, vec![0], Vec::new())]);
        fs::write(proc.folder(7).join("environ"), "SLURM_STEP_GPUS=1").unwrap();
        assert_eq!(proc.devices(21)[0].1, [0], "an unchanged program");
        let stat = fs::read_to_string(proc.folder(7).join("stat")).unwrap();
        fs::write(proc.folder(7).join("stat"), stat.replace("(python)", "(train)")).unwrap();
        assert_eq!(proc.devices(31)[0].1, [1]);
        fs::remove_dir_all(proc.folder(7)).unwrap();
        assert_eq!(proc.devices(41), [], "it has ended");
    }

    #[test]
    fn more_devices_than_a_node_has_are_left_out() {
        let list =
            |from: u32| (from..from + 100).map(|index| index.to_string()).collect::<Vec<_>>().join(",");
        let mut proc = Proc::new();
        for (pid, job, from) in [(7, 5, 0), (8, 5, 100), (9, 6, 0)] {
            let variable = format!("SLURM_STEP_GPUS={}", list(from));
            proc.process(pid, 'S', &format!("job_{job}/step_0"), &[&variable]);
        }
        assert_eq!(proc.devices(1).iter().map(|(job, ..)| *job).collect::<Vec<_>>(), [6]);
        for job in 10..40 {
            let variable = format!("SLURM_STEP_GPUS={}", list(0));
            proc.process(job, 'S', &format!("job_{job}/step_0"), &[&variable]);
        }
        assert_eq!(proc.devices(11).len(), MAX_ALL / 100);
    }
}

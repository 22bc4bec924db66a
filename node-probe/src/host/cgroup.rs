//! Finds the cgroups of SLURM jobs, of version 1 or 2, independent of site-specific names above
//! them.

use crate::proc::job;
use nodeglass_protocol::JobId;
use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
};

/// Controllers of version 1 in use, with the names under which they may be mounted.
const V1: [(&str, &[&str]); 3] = [
    ("cpuacct", &["cpuacct", "cpu,cpuacct", "cpuacct,cpu", "cpu"]),
    ("memory", &["memory"]),
    ("cpuset", &["cpuset"]),
];
/// Mount points of version 2 below `/sys/fs/cgroup`, alone or beside version 1.
const V2: [&str; 2] = ["", "unified"];
/// Maximum number of jobs, which bounds the size of a line.
const MAX_JOBS: usize = 256;

/// The cgroups of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobCgroups {
    /// Version 2.
    pub unified: Option<PathBuf>,
    /// Version 1, `cpuacct`.
    pub cpu: Option<PathBuf>,
    /// Version 1, `memory`.
    pub memory: Option<PathBuf>,
    /// Version 1, `cpuset`.
    pub cpuset: Option<PathBuf>,
}

/// Finds the jobs that have cgroups.
#[derive(Debug)]
pub struct CgroupFinder {
    cgroups: PathBuf,
    proc: PathBuf,
    sluids: HashMap<String, JobId>,
}

impl CgroupFinder {
    /// Searches below a mount point such as `/sys/fs/cgroup`.
    pub fn of(cgroups: PathBuf, proc: PathBuf) -> Self {
        Self { cgroups, proc, sluids: HashMap::new() }
    }

    /// Returns all jobs in ascending order.
    pub fn jobs(&mut self) -> BTreeMap<JobId, JobCgroups> {
        let mut jobs: BTreeMap<JobId, JobCgroups> = BTreeMap::new();
        let mut sluids = HashMap::new();
        for folder in self.unified() {
            let name = name(&folder);
            let sluid = job::is_sluid(&name);
            let number = if sluid { self.job_of(&name, &folder) } else { number(&name) };
            if let Some(number) = number {
                jobs.entry(number).or_default().unified = Some(folder);
                if sluid {
                    sluids.insert(name, number);
                }
            }
        }
        // Forget ended jobs.
        self.sluids = sluids;
        for (controller, mounts) in V1 {
            for folder in self.of_controller(mounts) {
                let Some(number) = number(&name(&folder)) else { continue };
                let folders = jobs.entry(number).or_default();
                let place = match controller {
                    "cpuacct" => &mut folders.cpu,
                    "memory" => &mut folders.memory,
                    _ => &mut folders.cpuset,
                };
                *place = Some(folder);
            }
        }
        // The newest jobs have the highest ids.
        while jobs.len() > MAX_JOBS {
            jobs.pop_first();
        }
        jobs
    }

    fn job_of(&self, sluid: &str, folder: &Path) -> Option<JobId> {
        self.sluids.get(sluid).copied().or_else(|| job::of_folder(&self.proc, folder))
    }

    /// Returns `system.slice/slurmstepd.scope/*`, also with a node name prefix.
    fn unified(&self) -> Vec<PathBuf> {
        let slices = V2.iter().map(|mount| self.cgroups.join(mount).join("system.slice"));
        let scopes = slices.flat_map(|slice| folders(&slice));
        scopes
            .filter(|scope| name(scope).ends_with("slurmstepd.scope"))
            .flat_map(|scope| folders(&scope))
            .collect()
    }

    /// Returns `slurm*/uid_*/job_*` of the first existing mount.
    fn of_controller(&self, mounts: &[&str]) -> Vec<PathBuf> {
        let mount = mounts.iter().map(|mount| self.cgroups.join(mount)).find(|mount| mount.is_dir());
        let tops = mount.into_iter().flat_map(|mount| folders(&mount));
        let slurms = tops.filter(|top| name(top).starts_with("slurm"));
        let users = slurms.flat_map(|slurm| folders(&slurm)).filter(|user| name(user).starts_with("uid_"));
        users.flat_map(|user| folders(&user)).collect()
    }
}

/// Parses 17 from `job_17`.
fn number(name: &str) -> Option<JobId> {
    name.strip_prefix("job_")?.parse().ok().map(JobId)
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the subfolders of a folder.
pub fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(root: &Path, folders: &[&str]) {
        folders.iter().for_each(|folder| fs::create_dir_all(root.join(folder)).unwrap());
    }

    #[test]
    fn jobs_of_both_cgroup_versions_are_found() {
        let root = tempfile::tempdir().unwrap();
        make(
            root.path(),
            &[
                "memory/slurm_gpu-01/uid_7/job_4/step_0",
                "memory/slurm/uid_7/job_5",
                "memory/user.slice/uid_7/job_6",
                "cpu,cpuacct/slurm_gpu-01/uid_7/job_4",
                "unified/system.slice/gpu-01_slurmstepd.scope/job_9/step_0",
                "system.slice/slurmstepd.scope/job_10",
                "system.slice/slurmstepd.scope/system",
                "system.slice/cron.service/job_11",
            ],
        );
        let jobs = CgroupFinder::of(root.path().into(), "/proc".into()).jobs();
        assert_eq!(jobs.keys().map(|job| job.0).collect::<Vec<_>>(), [4, 5, 9, 10]);
        let four = &jobs[&JobId(4)];
        assert_eq!(four.cpu, Some(root.path().join("cpu,cpuacct/slurm_gpu-01/uid_7/job_4")));
        assert!(four.memory.is_some() && four.cpuset.is_none() && four.unified.is_none());
        assert!(jobs[&JobId(9)].unified.is_some());
    }

    #[test]
    fn a_sluid_is_resolved_by_an_own_process() {
        let root = tempfile::tempdir().unwrap();
        let path = "cgroup/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0";
        make(root.path(), &[path, "proc/9"]);
        fs::write(root.path().join(path).join("cgroup.procs"), "9\n").unwrap();
        let mut finder = CgroupFinder::of(root.path().join("cgroup"), root.path().join("proc"));
        assert!(finder.jobs().is_empty());
        fs::write(root.path().join("proc/9/environ"), "SLURM_JOB_ID=31\0").unwrap();
        assert_eq!(finder.jobs().keys().next(), Some(&JobId(31)));
    }
}

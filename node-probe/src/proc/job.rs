//! Job and step of a process, from its SLURM cgroup or its environment.

use super::environ::Environ;
use nodeglass_protocol::{JobId, Text};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Maximum depth below a job's folder at which processes are searched: `step_0/user/task_0`.
const DEPTH: u32 = 4;

/// Job and step in a cgroup path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupJob {
    /// `job_123`.
    pub job: Option<JobId>,
    /// `step_0`, `step_batch`, …
    pub step: Option<Text>,
    /// The job's folder where SLURM 26.05 names it by SLUID, which does not contain the job id.
    pub sluid: Option<String>,
}

impl CgroupJob {
    /// Parses `/proc/PID/cgroup` of either version.
    pub fn of(cgroup: &str) -> Self {
        let mut cgroup_job = Self::default();
        let paths = cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        for (folder, below) in paths.filter_map(job_folder) {
            if let Some(number) = folder.strip_prefix("job_").and_then(|number| number.parse().ok()) {
                cgroup_job.job.get_or_insert(JobId(number));
            }
            if is_sluid(folder) {
                cgroup_job.sluid.get_or_insert_with(|| folder.to_owned());
            }
            let step = below.split('/').next().and_then(|step| step.strip_prefix("step_"));
            if let Some(step) = step.filter(|step| !step.is_empty()) {
                cgroup_job.step.get_or_insert_with(|| step.into());
            }
        }
        cgroup_job
    }
}

/// Returns the folder of a job and what is below it, if it is where only SLURM, as root, creates cgroups: in
/// `/system.slice/*slurmstepd.scope` or `/slurm*/uid_*`. Users name cgroups as they like below those that are delegated to
/// them, such as `/user.slice/…/user@1000.service`.
fn job_folder(path: &str) -> Option<(&str, &str)> {
    let (top, below) = path.strip_prefix('/')?.split_once('/')?;
    let (scope, below) = below.split_once('/')?;
    let is_slurms = top == "system.slice" && scope.ends_with("slurmstepd.scope")
        || top.starts_with("slurm") && scope.starts_with("uid_");
    is_slurms.then(|| below.split_once('/').unwrap_or((below, "")))
}

/// Matches `s5K1KKYAYG5D00`: an `s` and thirteen digits of Crockford's base 32.
pub fn is_sluid(name: &str) -> bool {
    name.len() == 14
        && name.starts_with('s')
        && name[1..].bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
}

/// Returns the job of a cgroup folder from the environment of any own process within it.
pub fn of_folder(proc: &Path, folder: &Path) -> Option<JobId> {
    let mut folders: Vec<(PathBuf, u32)> = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let pids = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        let mut jobs = pids.lines().filter_map(|pid| Environ::read(&proc.join(pid)).job());
        if let Some(job) = jobs.next() {
            return Some(job);
        }
        if depth < DEPTH {
            let below = fs::read_dir(&folder).into_iter().flatten().flatten();
            let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            folders.extend(below.map(|entry| (entry.path(), depth + 1)));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_versions_of_cgroups_name_job_and_step() {
        let v1 = "9:freezer:/slurm_gpu-node-01/uid_2001/job_2/step_extern\n0::/system.slice\n";
        let v2 = "0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n";
        let cgroup_job = CgroupJob { job: Some(JobId(2)), step: Some("extern".into()), sluid: None };
        assert_eq!(CgroupJob::of(v1), cgroup_job);
        let cgroup_job = CgroupJob { job: Some(JobId(123)), step: Some("0".into()), sluid: None };
        assert_eq!(CgroupJob::of(v2), cgroup_job);
    }

    #[test]
    fn a_sluid_contains_no_job_id() {
        let cgroup_job =
            CgroupJob::of("0::/system.slice/gpu-01_slurmstepd.scope/s5K1KKYAYG5D00/step_batch\n");
        assert_eq!(cgroup_job.sluid.as_deref(), Some("s5K1KKYAYG5D00"));
        assert_eq!((cgroup_job.job, cgroup_job.step), (None, Some("batch".into())));
    }

    #[test]
    fn cgroups_of_other_schedulers_are_no_slurm_jobs() {
        assert_eq!(CgroupJob::of("0::/user.slice/job_7/step_1\n"), CgroupJob::default());
    }

    #[test]
    fn t09_cgroups_that_users_may_name_are_no_jobs() {
        let delegated = "/user.slice/user-1000.slice/user@1000.service";
        let task = "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0";
        for path in [
            format!("{delegated}/slurm/job_101/step_0"),
            format!("{delegated}/slurm/uid_1000/job_101"),
            format!("{delegated}/system.slice/slurmstepd.scope/job_101/step_0"),
            format!("{delegated}/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0"),
            "/../slurm/uid_1000/job_101".to_owned(),
        ] {
            assert_eq!(CgroupJob::of(&format!("0::{path}\n")), CgroupJob::default(), "{path}");
        }
        let own = CgroupJob { job: Some(JobId(7)), step: Some("0".into()), sluid: None };
        assert_eq!(CgroupJob::of(&format!("0::{task}/slurm/uid_1000/job_101/step_1\n")), own);
    }

    #[test]
    fn a_cgroup_job_is_found_by_a_process_within() {
        let root = tempfile::tempdir().unwrap();
        let (proc, folder) = (root.path().join("proc"), root.path().join("s5K1KKYAYG5D00"));
        fs::create_dir_all(proc.join("9")).unwrap();
        fs::write(proc.join("9/environ"), "SLURM_JOB_ID=31\0").unwrap();
        fs::create_dir_all(folder.join("step_0/user/task_0")).unwrap();
        fs::write(folder.join("cgroup.procs"), "").unwrap();
        assert_eq!(of_folder(&proc, &folder), None);
        fs::write(folder.join("step_0/user/task_0/cgroup.procs"), "8\n9\n").unwrap();
        assert_eq!(of_folder(&proc, &folder), Some(JobId(31)));
    }

    proptest! {
        #[test]
        fn no_cgroup_is_too_strange(text in "([a-z0-9.]|[:/_\n]|slurm|job_|step_|task_|uid_|0::/){0,80}") {
            let _ = CgroupJob::of(&text);
        }
    }
}

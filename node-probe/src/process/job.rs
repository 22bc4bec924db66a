//! The job of a process, by the cgroup that SLURM put it in or by the environment it was given.

use nodeglass_protocol::JobId;
use std::{fs, path::Path};

/// The job of the process in a `/proc/PID` folder; the environment is read of our own processes only.
pub fn of(folder: &Path, own: bool) -> Option<JobId> {
    let cgroup = fs::read_to_string(folder.join("cgroup")).ok();
    cgroup.and_then(|text| in_cgroup(&text)).or_else(|| {
        // SLURM 26.05 names cgroups of version 2 by SLUID, which holds no number.
        own.then(|| fs::read(folder.join("environ")).ok())
            .flatten()
            .and_then(|environ| in_environment(&environ))
    })
}

/// `…/uid_1000/job_123/step_0…` in any line.
fn in_cgroup(text: &str) -> Option<JobId> {
    let parts = text.lines().filter(|line| line.contains("slurm")).flat_map(|line| line.split('/'));
    parts.filter_map(|part| part.strip_prefix("job_")).find_map(|number| number.parse().ok())
}

/// `SLURM_JOB_ID=123`.
fn in_environment(environ: &[u8]) -> Option<JobId> {
    let mut entries = environ.split(|byte| *byte == 0);
    let number = entries.find_map(|entry| entry.strip_prefix(b"SLURM_JOB_ID="))?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_cgroups_name_the_job() {
        let v1 = "9:freezer:/slurm_gpu-node-01/uid_2001/job_2/step_0\n0::/system.slice\n";
        let v2 = "0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n";
        assert_eq!(in_cgroup(v1), Some(JobId(2)));
        assert_eq!(in_cgroup(v2), Some(JobId(123)));
    }

    #[test]
    fn another_scheduler_s_folder_is_no_job_of_slurm() {
        assert_eq!(in_cgroup("0::/user.slice/job_7/x\n"), None);
        assert_eq!(in_cgroup("0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0\n"), None);
    }

    #[test]
    fn the_environment_names_the_job_and_nothing_else() {
        assert_eq!(in_environment(b"A=1\0SLURM_JOB_ID=77\0B=2\0"), Some(JobId(77)));
        assert_eq!(in_environment(b"XSLURM_JOB_ID=77\0SLURM_JOB_IDX=3\0"), None);
    }
}

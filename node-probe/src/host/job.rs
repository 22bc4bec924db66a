//! Resource usage and limits of SLURM jobs from their cgroups of either version.

use super::{
    cgroup::{CgroupFinder, JobCgroups, folders},
    file::{OpenFile, ReadError, reading},
};
use nodeglass_protocol::probe::{JobCgroupUsage, JobReadings};
use nodeglass_protocol::{JobId, Reading};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Interval of job discovery and of reading limits.
const FOUND_AGAIN_NS: u64 = 5_000_000_000;
/// Interval of memory queries, which sum statistics over all CPUs.
const MEMORY_EVERY_NS: u64 = 1_900_000_000;
/// Version 1 represents the absence of a limit by a number near this one.
const NO_LIMIT: u64 = 1 << 62;
/// Depth below a job at which version 1 counts OOM kills: `step_0/task_0`.
const DEPTH: u32 = 2;

/// The jobs of this node.
#[derive(Debug)]
pub struct Jobs {
    finder: CgroupFinder,
    found_ns: Option<u64>,
    jobs: BTreeMap<JobId, Job>,
    buffer: Vec<u8>,
}

/// A job with its open files.
#[derive(Debug)]
struct Job {
    folders: JobCgroups,
    cpu: OpenFile,
    memory: OpenFile,
    memory_stat: OpenFile,
    kills: Vec<OpenFile>,
    /// Time of the last CPU time reading in ns, and its value.
    cpu_last: Option<(u64, u64)>,
    memory_ns: Option<u64>,
    now: JobReadings,
}

impl Jobs {
    /// Creates the readers for cgroups below `cgroups`.
    pub fn of(cgroups: PathBuf, proc: PathBuf) -> Self {
        Self {
            finder: CgroupFinder::of(cgroups, proc),
            found_ns: None,
            jobs: BTreeMap::new(),
            buffer: Vec::new(),
        }
    }

    /// Reads all jobs, ordered by id.
    pub fn read(&mut self, now_ns: u64) -> Vec<JobCgroupUsage> {
        if self.found_ns.is_none_or(|at| now_ns.saturating_sub(at) >= FOUND_AGAIN_NS) {
            self.find();
            self.found_ns = Some(now_ns);
        }
        let buffer = &mut self.buffer;
        // The folder of an ended job disappears before the next discovery.
        self.jobs.retain(|_, job| job.read(now_ns, buffer));
        self.jobs.iter().map(|(job, known)| JobCgroupUsage { job: *job, now: known.now.clone() }).collect()
    }

    fn find(&mut self) {
        let mut before = std::mem::take(&mut self.jobs);
        for (number, folders) in self.finder.jobs() {
            let kept = before.remove(&number).filter(|job| job.folders == folders);
            let mut job = kept.unwrap_or_else(|| Job::open(folders));
            job.read_limits(&mut self.buffer);
            self.jobs.insert(number, job);
        }
    }
}

impl Job {
    fn open(folders: JobCgroups) -> Self {
        let open = |v1: &Option<PathBuf>, v1_name: &str, v2_name: &str| match (&folders.unified, v1) {
            (_, Some(folder)) => OpenFile::open(&folder.join(v1_name)),
            (Some(folder), None) => OpenFile::open(&folder.join(v2_name)),
            // The empty path is never found.
            (None, None) => OpenFile::open(Path::new("")),
        };
        Self {
            cpu: open(&folders.cpu, "cpuacct.usage", "cpu.stat"),
            memory: open(&folders.memory, "memory.usage_in_bytes", "memory.current"),
            memory_stat: open(&folders.memory, "memory.stat", "memory.stat"),
            kills: Vec::new(),
            cpu_last: None,
            memory_ns: None,
            now: JobReadings::default(),
            folders,
        }
    }

    /// Reads the changing values; returns whether the job still exists.
    fn read(&mut self, now_ns: u64, buffer: &mut Vec<u8>) -> bool {
        let used = match self.cpu_ns(buffer) {
            Err(ReadError::Failed(_)) if !self.is_there() => return false,
            used => used,
        };
        self.now.cpu_pct = match (used, self.cpu_last) {
            (Ok(used), Some((last_ns, last))) if now_ns > last_ns => {
                self.cpu_last = Some((now_ns, used));
                let (used, past) = (u128::from(used.saturating_sub(last)), u128::from(now_ns - last_ns));
                Reading::Value(u64::try_from((used * 100 + past / 2) / past).unwrap_or(u64::MAX))
            }
            (Ok(used), None) => {
                self.cpu_last = Some((now_ns, used));
                Reading::NotYet
            }
            (Ok(_), Some(_)) => return true,
            (Err(error), _) => reading(Err(error)),
        };
        if self.memory_ns.is_none_or(|at| now_ns.saturating_sub(at) >= MEMORY_EVERY_NS) {
            self.memory_ns = Some(now_ns);
            self.read_memory(buffer);
        }
        true
    }

    fn is_there(&self) -> bool {
        let JobCgroups { unified, cpu, memory, cpuset } = &self.folders;
        [unified, cpu, memory, cpuset].into_iter().flatten().any(|folder| folder.is_dir())
    }

    /// CPU time of the job in ns.
    fn cpu_ns(&self, buffer: &mut Vec<u8>) -> Result<u64, ReadError> {
        if self.folders.cpu.is_some() {
            return self.cpu.number(buffer);
        }
        let used = line(self.cpu.text(buffer)?, "usage_usec").ok_or(ReadError::Missing)?;
        Ok(used.saturating_mul(1_000))
    }

    fn read_memory(&mut self, buffer: &mut Vec<u8>) {
        let used = self.memory.number(buffer);
        let v1 = self.folders.memory.is_some();
        let (inactive, active, shmem) = if v1 {
            ("total_inactive_file", "total_active_file", "total_shmem")
        } else {
            ("inactive_file", "active_file", "shmem")
        };
        let stat = self.memory_stat.text(buffer);
        // Page cache is reclaimed before a job runs out of memory, also the part that is read again and again, such as
        // a data set in its second epoch. Without its size the remainder would be misleading.
        let cache = stat.clone().and_then(|stat| {
            let inactive = line(stat, inactive).ok_or(ReadError::Missing)?;
            Ok(inactive.saturating_add(line(stat, active).unwrap_or(0)))
        });
        self.now.mem_used_bytes = reading(used.and_then(|used| Ok(used.saturating_sub(cache?))));
        // Kernels before 4.12 do not report it in version 1.
        self.now.shmem_bytes = reading(stat.and_then(|stat| line(stat, shmem).ok_or(ReadError::Missing)));
        let mut kills = Err(ReadError::Missing);
        for file in &self.kills {
            if let Some(count) = file.text(buffer).ok().and_then(|text| line(text, "oom_kill")) {
                kills = Ok(kills.unwrap_or(0_u64).saturating_add(count));
            }
        }
        // Ended steps take their counts with them.
        self.now.oom_kills = match (reading(kills), &self.now.oom_kills) {
            (Reading::Value(now), Reading::Value(before)) => Reading::Value(now.max(*before)),
            (now, _) => now,
        };
    }

    /// Reads limits and finds the subfolders that count.
    fn read_limits(&mut self, buffer: &mut Vec<u8>) {
        self.now.cpu_limit_pct = reading(self.cpu_limit(buffer));
        self.now.mem_limit_bytes = reading(self.mem_limit(buffer));
        self.kills = match &self.folders {
            // Version 1 counts a kill in the folder of the process, version 2 also in all folders
            // above.
            JobCgroups { memory: Some(folder), .. } => below(folder, DEPTH)
                .iter()
                .map(|folder| OpenFile::open(&folder.join("memory.oom_control")))
                .collect(),
            JobCgroups { unified: Some(folder), .. } => vec![OpenFile::open(&folder.join("memory.events"))],
            JobCgroups { .. } => Vec::new(),
        };
    }

    /// Returns the CPU limit in % of one core: assigned CPUs, reduced by the quota.
    fn cpu_limit(&self, buffer: &mut Vec<u8>) -> Result<u64, ReadError> {
        let v1 =
            self.folders.cpuset.as_deref().map(|folder| (folder, ["cpuset.effective_cpus", "cpuset.cpus"]));
        let v2 =
            self.folders.unified.as_deref().map(|folder| (folder, ["cpuset.cpus.effective", "cpuset.cpus"]));
        let cpus = v1.or(v2).and_then(|(folder, names)| {
            let texts =
                names.iter().map(|name| OpenFile::open(&folder.join(name)).text(buffer).map(str::to_owned));
            texts.flatten().find_map(|text| count(text.trim()))
        });
        let quota = match &self.folders {
            JobCgroups { cpu: Some(folder), .. } => {
                let number =
                    |name: &str, buffer: &mut Vec<u8>| OpenFile::open(&folder.join(name)).number(buffer).ok();
                number("cpu.cfs_quota_us", buffer).zip(number("cpu.cfs_period_us", buffer))
            }
            JobCgroups { unified: Some(folder), .. } => {
                let file = OpenFile::open(&folder.join("cpu.max"));
                file.text(buffer)
                    .ok()
                    .and_then(|text| text.trim().split_once(' '))
                    .and_then(|(quota, period)| Some((quota.parse().ok()?, period.parse().ok()?)))
            }
            JobCgroups { .. } => None,
        };
        let quota =
            quota.filter(|(_, period)| *period > 0).map(|(quota, period)| quota.saturating_mul(100) / period);
        let cpus = cpus.map(|cpus| u64::from(cpus) * 100);
        cpus.into_iter().chain(quota).min().ok_or(ReadError::Missing)
    }

    fn mem_limit(&self, buffer: &mut Vec<u8>) -> Result<u64, ReadError> {
        let path = match &self.folders {
            JobCgroups { memory: Some(folder), .. } => folder.join("memory.limit_in_bytes"),
            JobCgroups { unified: Some(folder), .. } => folder.join("memory.max"),
            JobCgroups { .. } => return Err(ReadError::Missing),
        };
        match OpenFile::open(&path).text(buffer)?.trim() {
            "max" => Err(ReadError::Missing),
            bytes => match bytes.parse() {
                Ok(bytes) if bytes >= NO_LIMIT => Err(ReadError::Missing),
                Ok(bytes) => Ok(bytes),
                Err(_) => Err("not the number that it should be".into()),
            },
        }
    }
}

/// Returns the number after a word at the start of a line.
fn line(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Counts the CPUs of a list: `0-3,8,10-11` has seven.
pub fn count(list: &str) -> Option<u32> {
    list.split(',').try_fold(0_u32, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// Returns a folder and its subfolders.
fn below(folder: &Path, depth: u32) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    if depth > 0 {
        found.extend(folders(folder).iter().flat_map(|folder| below(folder, depth - 1)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    const SECOND: u64 = 1_000_000_000;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), text).unwrap();
        }
    }

    fn jobs(root: &Path) -> Jobs {
        Jobs::of(root.into(), "/proc".into())
    }

    #[test]
    fn cgroup_v2_yields_usage_and_limits() {
        let root = tempfile::tempdir().unwrap();
        let job = root.path().join("system.slice/slurmstepd.scope/job_7");
        write(
            &job,
            &[
                ("cpu.stat", "usage_usec 1000000\nuser_usec 5\n"),
                ("cpu.max", "max 100000\n"),
                ("cpuset.cpus.effective", "0-3,8\n"),
                ("memory.current", "5000\n"),
                ("memory.stat", "anon 9\nfile 1\nshmem 300\ninactive_file 600\nactive_file 400\n"),
                ("memory.max", "9000\n"),
                ("memory.events", "low 0\noom 2\noom_kill 1\noom_group_kill 0\n"),
            ],
        );
        let mut jobs = jobs(root.path());
        assert_eq!(jobs.read(SECOND)[0].now.cpu_pct, Reading::NotYet);
        write(&job, &[("cpu.stat", "usage_usec 4000000\nuser_usec 5\n")]);
        let expected = JobReadings {
            cpu_pct: Reading::Value(150),
            cpu_limit_pct: Reading::Value(500),
            mem_used_bytes: Reading::Value(4_000),
            mem_limit_bytes: Reading::Value(9_000),
            shmem_bytes: Reading::Value(300),
            oom_kills: Reading::Value(1),
        };
        assert_eq!(jobs.read(3 * SECOND), [JobCgroupUsage { job: JobId(7), now: expected }]);
        write(&job, &[("cpu.max", "250000 100000\n"), ("memory.max", "max\n")]);
        let now = &jobs.read(9 * SECOND)[0].now;
        assert_eq!((&now.cpu_limit_pct, &now.mem_limit_bytes), (&Reading::Value(250), &Reading::Unsupported));
    }

    #[test]
    fn cgroup_v1_yields_usage_and_limits() {
        let root = tempfile::tempdir().unwrap();
        let place = "slurm_gpu-01/uid_7/job_4";
        write(&root.path().join("cpuacct").join(place), &[("cpuacct.usage", "1000000000\n")]);
        write(&root.path().join("cpuset").join(place), &[("cpuset.cpus", "2-3\n")]);
        write(
            &root.path().join("memory").join(place),
            &[
                ("memory.usage_in_bytes", "5000\n"),
                (
                    "memory.stat",
                    "active_file 1\ntotal_shmem 40\ntotal_inactive_file 1500\ntotal_active_file 500\n",
                ),
                ("memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"),
                ("step_0/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
                ("step_0/task_0/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
            ],
        );
        let mut jobs = jobs(root.path());
        jobs.read(SECOND);
        write(&root.path().join("cpuacct").join(place), &[("cpuacct.usage", "1500000000\n")]);
        let expected = JobReadings {
            cpu_pct: Reading::Value(25),
            cpu_limit_pct: Reading::Value(200),
            mem_used_bytes: Reading::Value(3_000),
            mem_limit_bytes: Reading::Unsupported,
            shmem_bytes: Reading::Value(40),
            oom_kills: Reading::Value(3),
        };
        assert_eq!(jobs.read(3 * SECOND), [JobCgroupUsage { job: JobId(4), now: expected }]);
        fs::remove_dir_all(root.path().join("memory").join(place).join("step_0")).unwrap();
        assert_eq!(jobs.read(9 * SECOND)[0].now.oom_kills, Reading::Value(3));
    }

    #[test]
    fn an_unconstrained_resource_is_unsupported_and_not_zero() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("cpuset/slurm/uid_7/job_4")).unwrap();
        let now = &jobs(root.path()).read(SECOND)[0].now;
        for reading in
            [&now.cpu_pct, &now.mem_used_bytes, &now.mem_limit_bytes, &now.oom_kills, &now.shmem_bytes]
        {
            assert_eq!(*reading, Reading::Unsupported);
        }
    }

    #[test]
    fn an_ended_job_is_no_longer_reported() {
        let root = tempfile::tempdir().unwrap();
        let job = root.path().join("system.slice/slurmstepd.scope/job_7");
        write(&job, &[("cpu.stat", "usage_usec 1\n")]);
        let mut jobs = jobs(root.path());
        assert_eq!(jobs.read(SECOND).len(), 1);
        fs::remove_dir_all(&job).unwrap();
        assert!(jobs.read(7 * SECOND).is_empty());
    }

    #[test]
    fn ranges_of_cpus_are_counted() {
        assert_eq!(count("0-3,8,10-11"), Some(7));
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("3-0"), None);
        assert_eq!(count(""), None);
    }

    proptest! {
        #[test]
        fn arbitrary_files_never_panic(text in "\\PC{0,60}", name in prop::sample::select(vec![
            "cpu.stat", "cpu.max", "cpuset.cpus", "memory.current", "memory.stat", "memory.max", "memory.events",
        ])) {
            let root = tempfile::tempdir().unwrap();
            write(&root.path().join("system.slice/slurmstepd.scope/job_7"), &[(name, &text)]);
            prop_assert_eq!(jobs(root.path()).read(SECOND).len(), 1);
        }
    }
}

//! Facts of a process from `/proc` that rarely change: identity, command, user, job, rank,
//! container.

use super::{
    OF_ANOTHER_USER,
    container::ContainerHints,
    stat::{self, Stat},
    user,
};
use crate::proc;
use crate::proc::environ::Environ;
use crate::proc::job::{self, CgroupJob};
use nodeglass_protocol::probe::ProcessFacts;
use nodeglass_protocol::process::{Container, ProcessState, Rank};
use nodeglass_protocol::{JobId, Reading, Text};
use nodeglass_redact::mask;
use std::{collections::HashMap, fs, io, os::unix::fs::MetadataExt, path::PathBuf};

/// Maximum number of SLUIDs whose jobs are cached, far more than run at the same time.
const MAX_SLUIDS: usize = 1_024;

/// Context shared by all processes.
#[derive(Debug)]
pub struct ProcContext {
    /// `/proc`.
    pub proc: PathBuf,
    /// Mount point of cgroups.
    pub cgroups: PathBuf,
    /// The own uid, whose processes can be read in full.
    pub own_uid: u32,
    /// Boot time in ms since 1970.
    pub boot_ms: Option<u64>,
    /// Cache of the jobs of SLUIDs, at most [`MAX_SLUIDS`].
    pub jobs_by_sluid: HashMap<String, JobId>,
}

/// Facts that do not change during the lifetime of a process, except by `exec`.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessInfo {
    /// Start time in ticks since boot; with the pid, its identity.
    pub started_ticks: u64,
    started_ms: Reading<u64>,
    uid: Reading<u32>,
    own: bool,
    parent: u32,
    command: Reading<Text>,
    args: Reading<Text>,
    cwd: Reading<Text>,
    job: Option<JobId>,
    step: Option<Text>,
    rank: Option<Rank>,
    container: Option<Container>,
    /// Detects `exec`; `None` while the memory of the process could not be read.
    program: Option<(Vec<u8>, [u64; 2])>,
}

impl ProcessInfo {
    /// Reads all facts of a process.
    pub fn read(context: &mut ProcContext, pid: u32, stat: &Stat) -> Self {
        let folder = context.proc.join(pid.to_string());
        let uid = fs::metadata(&folder).map(|meta| meta.uid()).map_err(failed);
        // The folders of processes that have changed their uids belong to root as well.
        let runs_as_owner = || context.own_uid != 0 || stat::runs_as(&folder, 0);
        let own = uid.as_ref().is_ok_and(|uid| *uid == context.own_uid) && runs_as_owner();
        let not_ours = || if own { Reading::NotYet } else { Reading::Failed(OF_ANOTHER_USER.into()) };
        let started = context.boot_ms.map(|boot| stat::started_ms(boot, stat.started_ticks));
        let mut info = Self {
            started_ticks: stat.started_ticks,
            started_ms: started.map_or(Reading::Unsupported, Reading::Value),
            uid: uid.map_or_else(|why| Reading::Failed(why.into()), Reading::Value),
            own,
            parent: stat.parent,
            command: Reading::NotYet,
            args: not_ours(),
            cwd: not_ours(),
            job: None,
            step: None,
            rank: None,
            container: None,
            program: None,
        };
        info.refresh(context, pid, stat);
        info
    }

    /// Reads again what `exec` changes, because a launcher becomes the program that it launches.
    pub fn refresh(&mut self, context: &mut ProcContext, pid: u32, stat: &Stat) {
        self.parent = stat.parent;
        let program = Some((stat.comm.clone(), stat.layout));
        if self.program == program {
            return;
        }
        self.command = Reading::Value(Text::from_bytes(&stat.comm));
        let folder = context.proc.join(pid.to_string());
        let cgroup = fs::read(folder.join("cgroup")).unwrap_or_default();
        let cgroup = String::from_utf8_lossy(&cgroup);
        // Reading the memory of a process in uninterruptible sleep could block as well.
        let asleep = stat.state == ProcessState::Uninterruptible;
        let environ = (self.own && !asleep).then(|| Environ::read(&folder));
        if self.own && !asleep {
            self.args =
                reading(proc::read(&folder.join("cmdline")).map(|line| mask::command_line(&line).into()));
            self.cwd =
                reading(fs::read_link(folder.join("cwd")).map(|path| path.to_string_lossy().as_ref().into()));
        }
        self.assign(context, &cgroup, environ.as_ref());
        let hints = ContainerHints {
            proc: &context.proc,
            pid,
            parent: stat.parent,
            cgroup: &cgroup,
            environ: environ.as_ref(),
        };
        self.container = hints.container().or(self.container.take());
        self.program = if asleep { None } else { program };
    }

    /// Determines job, step and rank. Known values are kept, because a process that renames itself
    /// may overwrite its environment.
    fn assign(&mut self, context: &mut ProcContext, cgroup: &str, environ: Option<&Environ>) {
        let cgroup_job = CgroupJob::of(cgroup);
        let by_environ = environ.and_then(Environ::job);
        self.job = context.job_of_process(&cgroup_job, by_environ, cgroup).or(self.job);
        self.step = cgroup_job.step.or_else(|| environ.and_then(Environ::step)).or(self.step.take());
        let step = self.step.as_ref().map(Text::as_str);
        self.rank = environ.and_then(|environ| environ.rank(step)).or(self.rank);
    }

    /// Fills in the facts.
    pub fn to_facts(&self, empty: ProcessFacts) -> ProcessFacts {
        ProcessFacts {
            parent: Reading::Value(self.parent),
            started_ms: self.started_ms.clone(),
            // Looked up each time, because the name may become available later.
            user: self.uid.clone().map(user::name),
            command: self.command.clone(),
            args: self.args.clone(),
            cwd: self.cwd.clone(),
            job: self.job,
            step: self.step.clone(),
            rank: self.rank,
            container: self.container.clone(),
            ..empty
        }
    }
}

impl ProcContext {
    /// Returns the job of a process from its cgroup, else from its environment.
    pub fn job_of_process(
        &mut self,
        cgroup_job: &CgroupJob,
        by_environ: Option<JobId>,
        cgroup: &str,
    ) -> Option<JobId> {
        let Some(sluid) = &cgroup_job.sluid else { return cgroup_job.job.or(by_environ) };
        if let Some(job) = by_environ {
            self.cache(sluid, job);
        }
        cgroup_job.job.or(by_environ).or_else(|| self.job_of(sluid, cgroup))
    }

    /// Returns the job of a SLUID, from the cache or from an own process in the same cgroup.
    fn job_of(&mut self, sluid: &str, cgroup: &str) -> Option<JobId> {
        if let Some(job) = self.jobs_by_sluid.get(sluid) {
            return Some(*job);
        }
        let path =
            cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2)).find(|path| path.contains(sluid))?;
        let (above, _) = path.split_once(sluid)?;
        // Version 2 may be mounted beside version 1.
        let mounts = [self.cgroups.clone(), self.cgroups.join("unified")];
        let folders = mounts.map(|mount| mount.join(above.trim_start_matches('/')).join(sluid));
        let job = folders.iter().find_map(|folder| job::of_folder(&self.proc, folder))?;
        self.cache(sluid, job);
        Some(job)
    }

    fn cache(&mut self, sluid: &str, job: JobId) {
        // Most are of ended jobs by then; the others are looked up again.
        if self.jobs_by_sluid.len() >= MAX_SLUIDS && !self.jobs_by_sluid.contains_key(sluid) {
            self.jobs_by_sluid.clear();
        }
        self.jobs_by_sluid.insert(sluid.to_owned(), job);
    }
}

fn reading(result: io::Result<Text>) -> Reading<Text> {
    result.map_or_else(|error| Reading::Failed(failed(error).into()), Reading::Value)
}

fn failed(error: io::Error) -> Text {
    error.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_of_ended_sluids_do_not_accumulate() {
        let mut context = ProcContext {
            proc: PathBuf::new(),
            cgroups: PathBuf::new(),
            own_uid: 0,
            boot_ms: None,
            jobs_by_sluid: HashMap::new(),
        };
        let of = |number: u32| CgroupJob { sluid: Some(format!("s{number:013}")), ..CgroupJob::default() };
        for number in 0..10_000 {
            context.job_of_process(&of(number), Some(JobId(number)), "");
            assert_eq!(context.job_of_process(&of(number), None, ""), Some(JobId(number)));
        }
        assert!(context.jobs_by_sluid.len() <= MAX_SLUIDS);
    }
}

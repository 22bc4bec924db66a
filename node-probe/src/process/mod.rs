//! The processes on the GPUs get names: user, command, start and job, from `/proc`.

mod job;
mod mask;
mod passport;
mod user;

use crate::source::Occupant;
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::{ProcessFacts, ProcessSample};
use passport::Passport;
use std::{collections::HashMap, path::PathBuf};
use user::Users;

pub use user::look_up;

/// How a process is said to be whose pid means nothing here: another pid namespace, or just ended.
pub const NO_SUCH_PROCESS: &str = "no such process here";
/// Growth or shrinking of a process's memory that is worth a new list, in bytes.
const MEMORY_STEP: u64 = 1 << 20;

/// Everyone who was on a GPU at the last call, so that each is asked for a passport once.
#[derive(Debug)]
pub struct Roster {
    proc: PathBuf,
    own_uid: u32,
    boot_ms: Option<u64>,
    users: Users,
    known: HashMap<u32, Passport>,
}

impl Default for Roster {
    fn default() -> Self {
        Self::new()
    }
}

impl Roster {
    /// A roster of this machine's processes.
    pub fn new() -> Self {
        Self::of("/proc".into())
    }

    /// A roster of another `/proc`.
    fn of(proc: PathBuf) -> Self {
        let boot_ms = passport::boot_ms(&proc);
        let own_uid = rustix::process::geteuid().as_raw();
        Self { proc, own_uid, boot_ms, users: Users::default(), known: HashMap::new() }
    }

    /// Names everyone, and forgets who is gone.
    pub fn call(&mut self, occupants: Vec<Occupant>) -> Vec<ProcessSample> {
        let mut before = std::mem::take(&mut self.known);
        for occupant in &occupants {
            if self.known.contains_key(&occupant.pid) {
                continue;
            }
            // A pid is given again: only with the same start is it the same process.
            let started = passport::started_ticks(&self.proc, occupant.pid);
            let kept =
                before.remove(&occupant.pid).filter(|old| started.is_some() && old.started_ticks == started);
            let passport = match (kept, started) {
                (Some(passport), _) => passport.renewed(&self.proc, occupant.pid),
                (None, Some(ticks)) => self.issue(occupant.pid, ticks),
                (None, None) => continue,
            };
            self.known.insert(occupant.pid, passport);
        }
        occupants.into_iter().map(|occupant| self.sample(occupant)).collect()
    }

    fn issue(&mut self, pid: u32, ticks: u64) -> Passport {
        Passport::issue(&self.proc, pid, ticks, self.boot_ms, self.own_uid, &mut self.users)
    }

    fn sample(&self, occupant: Occupant) -> ProcessSample {
        let Occupant { gpu, pid, now, kind } = occupant;
        let blank = ProcessFacts::new(gpu, pid, kind);
        let facts = match self.known.get(&pid) {
            Some(passport) => ProcessFacts {
                started_ms: passport.started_ms.clone(),
                user: passport.user.clone(),
                command: passport.command.clone(),
                args: passport.args.clone(),
                job: passport.job,
                ..blank
            },
            None => ProcessFacts { command: Reading::Failed(NO_SUCH_PROCESS.into()), ..blank },
        };
        ProcessSample { facts, now }
    }
}

/// Whether a list differs from the one sent last by more than memory that breathes.
pub fn worth_sending(last: &[ProcessSample], now: &[ProcessSample]) -> bool {
    last.len() != now.len() || last.iter().zip(now).any(|(last, now)| differs(last, now))
}

fn differs(last: &ProcessSample, now: &ProcessSample) -> bool {
    let memory = (&last.now.gpu_mem_bytes, &now.now.gpu_mem_bytes);
    if let (Reading::Value(before), Reading::Value(after)) = memory {
        let mut same_memory = last.clone();
        same_memory.now.gpu_mem_bytes = now.now.gpu_mem_bytes.clone();
        return before.abs_diff(*after) > MEMORY_STEP || same_memory != *now;
    }
    last != now
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::GpuUuid;
    use nodeglass_protocol::probe::{ProcessKind, ProcessReadings};

    fn occupant(pid: u32) -> Occupant {
        Occupant {
            gpu: GpuUuid::new("GPU-1"),
            pid,
            now: ProcessReadings { gpu_mem_bytes: Reading::Value(5 << 20), ..ProcessReadings::default() },
            kind: ProcessKind { compute: true, ..ProcessKind::default() },
        }
    }

    #[test]
    fn our_own_process_has_a_user_a_command_and_arguments() {
        let own = std::process::id();
        let list = Roster::new().call(vec![occupant(own)]);
        assert!(list[0].facts.user.value().is_some() && list[0].facts.command.value().is_some());
        assert!(list[0].facts.args.value().unwrap().as_str().contains("node_probe"));
        assert!(*list[0].facts.started_ms.value().unwrap() > 1_500_000_000_000);
    }

    #[test]
    fn a_pid_of_another_namespace_is_said_to_be_none_here() {
        let list = Roster::new().call(vec![occupant(4_194_304)]);
        assert_eq!(list[0].facts.command, Reading::Failed(NO_SUCH_PROCESS.into()));
        assert_eq!(list[0].facts.user, Reading::NotYet);
    }

    #[test]
    fn memory_that_breathes_is_no_news_and_a_new_process_is() {
        let roster = Roster::new();
        let last = vec![roster.sample(occupant(1))];
        let mut now = last.clone();
        now[0].now.gpu_mem_bytes = Reading::Value((5 << 20) + 4096);
        assert!(!worth_sending(&last, &now));
        now[0].now.gpu_mem_bytes = Reading::Value(7 << 20);
        assert!(worth_sending(&last, &now));
        assert!(worth_sending(&last, &[]));
        now[0] = roster.sample(occupant(2));
        assert!(worth_sending(&last, &now));
    }
}

//! What `/proc` says once about a process: who, what, since when, and in which job.

use super::{job, mask, user::Users};
use nodeglass_protocol::{JobId, Reading, Text};
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The unit of start times in `/proc`, on every Linux that runs NVML: 1/100 s.
const TICK_MS: u64 = 10;

/// What does not change while a process lives, but for its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Passport {
    /// Ticks since boot (`/proc/PID/stat` field 22); `None` never, but compared with what may be.
    pub started_ticks: Option<u64>,
    /// The same in ms since 1970.
    pub started_ms: Reading<u64>,
    /// Login name.
    pub user: Reading<Text>,
    /// `/proc/PID/comm`.
    pub command: Reading<Text>,
    /// Masked command line of our own user's processes.
    pub args: Reading<Text>,
    /// SLURM job.
    pub job: Option<JobId>,
}

impl Passport {
    /// Reads everything about a process.
    pub fn issue(
        proc: &Path,
        pid: u32,
        ticks: u64,
        boot_ms: Option<u64>,
        own_uid: u32,
        users: &mut Users,
    ) -> Self {
        let folder = folder(proc, pid);
        let uid = fs::metadata(&folder).map(|meta| meta.uid()).map_err(failed);
        let own = uid.as_ref().is_ok_and(|uid| *uid == own_uid);
        Self {
            started_ticks: Some(ticks),
            started_ms: boot_ms.map_or(Reading::Unsupported, |boot| Reading::Value(boot + ticks * TICK_MS)),
            user: uid.map_or_else(Reading::Failed, |uid| Reading::Value(users.name(uid))),
            command: command(&folder),
            args: if own { args(&folder) } else { Reading::Unsupported },
            job: job::of(&folder, own),
        }
    }

    /// Reads again what `exec` changes: a launcher becomes the program that it launches.
    pub fn renewed(mut self, proc: &Path, pid: u32) -> Self {
        let folder = folder(proc, pid);
        let command = command(&folder);
        if command != self.command {
            self.command = command;
            if self.args != Reading::Unsupported {
                self.args = args(&folder);
            }
        }
        self
    }
}

/// When a process started, in ticks since boot; `None` if there is no such process here.
pub fn started_ticks(proc: &Path, pid: u32) -> Option<u64> {
    let stat = fs::read(folder(proc, pid).join("stat")).ok()?;
    // The name stands in parentheses and may hold any byte, so count from its end.
    let rest = &stat[stat.iter().rposition(|byte| *byte == b')')? + 1..];
    std::str::from_utf8(rest).ok()?.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// When the machine booted, in ms since 1970 (`btime` of `/proc/stat`).
pub fn boot_ms(proc: &Path) -> Option<u64> {
    let stat = fs::read_to_string(proc.join("stat")).ok()?;
    let seconds: u64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(seconds * 1_000)
}

fn folder(proc: &Path, pid: u32) -> PathBuf {
    proc.join(pid.to_string())
}

fn command(folder: &Path) -> Reading<Text> {
    fs::read(folder.join("comm"))
        .map_or_else(|error| Reading::Failed(failed(error)), |name| Reading::Value(Text::from_bytes(&name)))
}

fn args(folder: &Path) -> Reading<Text> {
    match fs::read(folder.join("cmdline")) {
        Ok(line) => Reading::Value(mask::command_line(&line)),
        Err(error) => Reading::Failed(failed(error)),
    }
}

fn failed(error: io::Error) -> Text {
    error.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_move_the_fields() {
        let proc = tempfile::tempdir().unwrap();
        let folder = proc.path().join("7");
        fs::create_dir(&folder).unwrap();
        let fields: Vec<String> = (3..=52).map(|n| n.to_string()).collect();
        fs::write(folder.join("stat"), format!("7 (a) b (c\n) {}", fields.join(" "))).unwrap();
        assert_eq!(started_ticks(proc.path(), 7), Some(22));
        assert_eq!(started_ticks(proc.path(), 8), None);
    }
}

//! Wait of a process, and the states of its threads.

use super::read_start;
use nodeglass_protocol::capture::{ThreadCount, ThreadState};
use nodeglass_protocol::{Reading, Text};
use std::{cmp::Reverse, collections::BTreeMap, fs, io, path::Path};

/// Maximum number of threads whose state is read.
const MAX_THREADS: usize = 4_096;
/// Maximum size of a file of `/proc` with one line or few.
const MAX_BYTES: u64 = 8 << 10;

/// System calls in which programs wait, and their numbers here.
#[cfg(target_arch = "x86_64")]
const CALLS: &[(u32, &str)] = &[
    (0, "read"),
    (1, "write"),
    (7, "poll"),
    (16, "ioctl"),
    (17, "pread64"),
    (18, "pwrite64"),
    (23, "select"),
    (24, "sched_yield"),
    (34, "pause"),
    (35, "nanosleep"),
    (42, "connect"),
    (43, "accept"),
    (44, "sendto"),
    (45, "recvfrom"),
    (46, "sendmsg"),
    (47, "recvmsg"),
    (61, "wait4"),
    (72, "fcntl"),
    (73, "flock"),
    (74, "fsync"),
    (75, "fdatasync"),
    (128, "rt_sigtimedwait"),
    (130, "rt_sigsuspend"),
    (202, "futex"),
    (230, "clock_nanosleep"),
    (232, "epoll_wait"),
    (247, "waitid"),
    (257, "openat"),
    (262, "newfstatat"),
    (270, "pselect6"),
    (271, "ppoll"),
    (281, "epoll_pwait"),
    (426, "io_uring_enter"),
];
#[cfg(target_arch = "aarch64")]
const CALLS: &[(u32, &str)] = &[
    (22, "epoll_pwait"),
    (25, "fcntl"),
    (29, "ioctl"),
    (32, "flock"),
    (56, "openat"),
    (63, "read"),
    (64, "write"),
    (67, "pread64"),
    (68, "pwrite64"),
    (72, "pselect6"),
    (73, "ppoll"),
    (79, "newfstatat"),
    (82, "fsync"),
    (83, "fdatasync"),
    (95, "waitid"),
    (98, "futex"),
    (101, "nanosleep"),
    (115, "clock_nanosleep"),
    (124, "sched_yield"),
    (133, "rt_sigsuspend"),
    (137, "rt_sigtimedwait"),
    (202, "accept"),
    (203, "connect"),
    (206, "sendto"),
    (207, "recvfrom"),
    (211, "sendmsg"),
    (212, "recvmsg"),
    (260, "wait4"),
    (426, "io_uring_enter"),
];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const CALLS: &[(u32, &str)] = &[];

/// State of the main thread in `/proc/PID/status`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Status {
    pub(super) state: ThreadState,
    pub(super) voluntary_switches: Reading<u64>,
    pub(super) involuntary_switches: Reading<u64>,
}

impl Status {
    pub(super) fn read(folder: &Path) -> Self {
        match read_start(&folder.join("status"), MAX_BYTES) {
            Ok(text) => Self::parse(&String::from_utf8_lossy(&text)),
            Err(_) => Self::default(),
        }
    }

    fn parse(text: &str) -> Self {
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let count = |name| {
            let count = value(name).and_then(|value| value.parse().ok());
            count.map_or(Reading::Unsupported, Reading::Value)
        };
        let letter = value("State:").and_then(|state| state.bytes().next());
        Self {
            state: letter.map(ThreadState::of_letter).unwrap_or_default(),
            voluntary_switches: count("voluntary_ctxt_switches:"),
            involuntary_switches: count("nonvoluntary_ctxt_switches:"),
        }
    }
}

/// The kernel function in which the main thread waits; `0` if it does not.
pub(super) fn wait_channel(folder: &Path) -> Reading<Text> {
    reading(read_start(&folder.join("wchan"), MAX_BYTES), |name| match name {
        "" | "0" => None,
        name => Some(name.into()),
    })
}

/// The system call in which the main thread is.
pub(super) fn system_call(folder: &Path) -> Reading<Text> {
    reading(read_start(&folder.join("syscall"), MAX_BYTES), |line| {
        let first = line.split_ascii_whitespace().next()?;
        match first {
            "running" => Some("running".into()),
            // It waits, but not in a system call: a page fault.
            "-1" => Some("none".into()),
            number => {
                let number: u32 = number.parse().ok()?;
                let known = CALLS.iter().find(|(call, _)| *call == number);
                Some(known.map_or_else(|| Text::new(number.to_string()), |(_, name)| (*name).into()))
            }
        }
    })
}

/// The number of threads in each state, most first.
pub(super) fn count(folder: &Path) -> Vec<ThreadCount> {
    let mut counts: BTreeMap<ThreadState, u32> = BTreeMap::new();
    for thread in fs::read_dir(folder.join("task")).into_iter().flatten().flatten().take(MAX_THREADS) {
        let stat = read_start(&thread.path().join("stat"), MAX_BYTES).unwrap_or_default();
        // A thread that ended meanwhile.
        let Some(letter) = state_of(&stat) else { continue };
        *counts.entry(ThreadState::of_letter(letter)).or_default() += 1;
    }
    let mut counts: Vec<ThreadCount> =
        counts.into_iter().map(|(state, count)| ThreadCount { state, count }).collect();
    counts.sort_by_key(|threads| Reverse(threads.count));
    counts
}

/// The letter after the name, which may contain any byte.
fn state_of(stat: &[u8]) -> Option<u8> {
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    stat[close + 1..].iter().copied().find(|byte| !byte.is_ascii_whitespace())
}

/// Converts a file; a file that this user may not read, or without a value, is unsupported.
fn reading(content: io::Result<Vec<u8>>, parse: impl FnOnce(&str) -> Option<Text>) -> Reading<Text> {
    match content {
        Ok(content) => {
            parse(String::from_utf8_lossy(&content).trim()).map_or(Reading::Unsupported, Reading::Value)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Reading::Unsupported,
        Err(error) => Reading::Failed(error.to_string().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn state_and_context_switches_are_those_of_status() {
        let text = "Name:\tpython3\nState:\tD (disk sleep)\nvoluntary_ctxt_switches:\t81\nnonvoluntary_ctxt_switches:\t3\n";
        let expected = Status {
            state: ThreadState::Uninterruptible,
            voluntary_switches: Reading::Value(81),
            involuntary_switches: Reading::Value(3),
        };
        assert_eq!(Status::parse(text), expected);
        assert_eq!(Status::parse("").voluntary_switches, Reading::Unsupported);
    }

    #[test]
    fn system_calls_have_names_and_a_running_thread_none() {
        let folder = tempfile::tempdir().unwrap();
        let call = |line: &str| {
            fs::write(folder.path().join("syscall"), line).unwrap();
            system_call(folder.path())
        };
        let (number, name) = CALLS.iter().find(|(_, name)| *name == "futex").unwrap();
        assert_eq!(call(&format!("{number} 0x7f00 0x80 0x0\n")), Reading::Value((*name).into()));
        assert_eq!(call("9999 0x1\n"), Reading::Value("9999".into()));
        assert_eq!(call("running\n"), Reading::Value("running".into()));
        assert_eq!(call("-1 0x7ffd 0x7f\n"), Reading::Value("none".into()));
        assert_eq!(call("\n"), Reading::Unsupported);
    }

    #[test]
    fn our_own_threads_are_counted() {
        let folder = Path::new("/proc/self");
        let total: u32 = count(folder).iter().map(|threads| threads.count).sum();
        assert!(total >= 1);
        assert_ne!(Status::read(folder).state, ThreadState::Unknown);
    }

    proptest! {
        #[test]
        fn no_file_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (state_of(&bytes), Status::parse(&String::from_utf8_lossy(&bytes)));
        }
    }
}

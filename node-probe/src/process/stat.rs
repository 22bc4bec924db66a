//! Parser of `/proc/PID/stat`, one read of which yields all changing values of a process, and of its uids.

use nodeglass_protocol::process::ProcessState;
use std::{fs, path::Path};

/// Unit of times in `/proc` on all supported systems: 1/100 s.
pub const TICK_MS: u64 = 10;

/// The fields in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Name (field 2, as in `/proc/PID/comm`), arbitrary bytes.
    pub comm: Vec<u8>,
    /// Field 3.
    pub state: ProcessState,
    /// Field 4.
    pub parent: u32,
    /// CPU time in user and kernel mode, in ticks (fields 14 and 15).
    pub cpu_ticks: u64,
    /// Field 20.
    pub threads: u64,
    /// Start time in ticks since boot (field 22).
    pub started_ticks: u64,
    /// Resident pages (field 24).
    pub rss_pages: u64,
    /// Addresses of arguments and environment (fields 48 and 50), which change on `exec`. Zero for
    /// other users' processes.
    pub layout: [u64; 2],
}

impl Stat {
    /// Reads the line of a process; `None` if the process does not exist.
    pub fn of(proc: &Path, pid: u32) -> Option<Self> {
        Self::parse(&fs::read(proc.join(pid.to_string()).join("stat")).ok()?)
    }

    fn parse(line: &[u8]) -> Option<Self> {
        // The name is in parentheses and may contain any byte, so fields are counted from its end.
        let open = line.iter().position(|byte| *byte == b'(')?;
        let close = line.iter().rposition(|byte| *byte == b')').filter(|close| *close > open)?;
        let fields: Vec<&str> =
            std::str::from_utf8(&line[close + 1..]).ok()?.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3).and_then(|word| word.parse::<u64>().ok());
        Some(Self {
            comm: line[open + 1..close].to_vec(),
            state: ProcessState::of_letter(*fields.first()?.as_bytes().first()?),
            parent: u32::try_from(number(4)?).ok()?,
            cpu_ticks: number(14)?.saturating_add(number(15)?),
            threads: number(20)?,
            started_ticks: number(22)?,
            rss_pages: number(24)?,
            // Kernels before 3.5 have fewer fields.
            layout: [48, 50].map(|field| number(field).unwrap_or(0)),
        })
    }
}

/// Returns whether all uids of a process are the user's. The folder of a process that has changed its uid belongs to root,
/// so that it does not tell root's processes from others.
pub fn runs_as(folder: &Path, own_uid: u32) -> bool {
    let status = fs::read(folder.join("status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let Some(uids) = status.lines().find_map(|line| line.strip_prefix("Uid:")) else { return false };
    uids.split_ascii_whitespace().all(|uid| uid.parse() == Ok(own_uid))
}

/// Boot time in ms since 1970 (`btime` of `/proc/stat`).
pub fn boot_ms(proc: &Path) -> Option<u64> {
    let stat = fs::read(proc.join("stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let seconds: u64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    seconds.checked_mul(1_000)
}

/// Start time in ms since 1970.
pub fn started_ms(boot_ms: u64, ticks: u64) -> u64 {
    boot_ms.saturating_add(ticks.saturating_mul(TICK_MS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(comm: &str) -> Vec<u8> {
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        format!("7 ({comm}) Z {}\n", fields.join(" ")).into_bytes()
    }

    #[test]
    fn names_with_parentheses_and_spaces_are_parsed() {
        let stat = Stat::parse(&line("a) b (c\n")).unwrap();
        assert_eq!(stat.comm, b"a) b (c\n");
        assert_eq!((stat.state, stat.parent, stat.cpu_ticks), (ProcessState::Zombie, 4, 29));
        assert_eq!((stat.threads, stat.started_ticks, stat.rss_pages), (20, 22, 24));
        assert_eq!(stat.layout, [48, 50]);
    }

    #[test]
    fn our_own_line_is_of_us() {
        let stat = Stat::of(Path::new("/proc"), std::process::id()).unwrap();
        assert_eq!(stat.parent, std::os::unix::process::parent_id());
        assert!(stat.threads > 0 && stat.rss_pages > 0 && stat.state == ProcessState::Alive);
        assert_eq!(Stat::of(Path::new("/proc"), 4_194_304), None);
    }

    proptest! {
        #[test]
        fn no_line_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200), comm in "(?s).{0,20}") {
            let _ = Stat::parse(&bytes);
            prop_assert!(Stat::parse(&line(&comm)).is_some());
        }
    }
}

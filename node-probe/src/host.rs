//! What the host does: CPU, load and memory, from three files that stay open.

use nodeglass_protocol::probe::HostSample;
use nodeglass_protocol::{Reading, Text};
use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

/// Enough for the first line of `/proc/stat` and for what is needed of the others.
const ROOM: usize = 2_048;

/// Reads the host.
#[derive(Debug)]
pub struct Host {
    stat: io::Result<File>,
    loadavg: io::Result<File>,
    meminfo: io::Result<File>,
    last: Option<CpuTimes>,
    buffer: [u8; ROOM],
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl Host {
    /// Opens the files of this machine.
    pub fn new() -> Self {
        Self::of(Path::new("/proc"))
    }

    fn of(proc: &Path) -> Self {
        let open = |name| File::open(proc.join(name));
        Self {
            stat: open("stat"),
            loadavg: open("loadavg"),
            meminfo: open("meminfo"),
            last: None,
            buffer: [0; ROOM],
        }
    }

    /// Reads now; the CPU share is that since the last call, and not yet known at the first.
    pub fn sample(&mut self) -> HostSample {
        let mut sample = HostSample::default();
        match text(&self.stat, &mut self.buffer).and_then(cpu_times) {
            Ok(now) => {
                sample.cpu_pct = self.last.map_or(Reading::NotYet, |last| now.busy_since(last));
                self.last = Some(now);
            }
            Err(why) => sample.cpu_pct = Reading::Failed(why),
        }
        sample.load1_centi = reading(text(&self.loadavg, &mut self.buffer).and_then(load1_centi));
        let memory = text(&self.meminfo, &mut self.buffer).and_then(memory);
        sample.mem_total_bytes = reading(memory.clone().map(|memory| memory.total));
        sample.mem_used_bytes = reading(memory.map(|memory| memory.used));
        sample
    }
}

fn reading(result: Result<u64, Text>) -> Reading<u64> {
    result.map_or_else(Reading::Failed, Reading::Value)
}

/// The beginning of a file.
fn text<'a>(file: &io::Result<File>, buffer: &'a mut [u8]) -> Result<&'a str, Text> {
    let failed = |error: &io::Error| Text::new(error.to_string());
    let length = file.as_ref().map_err(failed)?.read_at(buffer, 0).map_err(|error| failed(&error))?;
    let text = &buffer[..length];
    // The buffer may end within a character only if the file is not what it should be.
    std::str::from_utf8(text).map_err(|_| "not the text that it should be".into())
}

/// CPU time of all CPUs since boot, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuTimes {
    busy: u64,
    total: u64,
}

impl CpuTimes {
    /// Busy share since `last` in %; on some kernels `iowait` goes back, hence saturating.
    fn busy_since(self, last: Self) -> Reading<u64> {
        let (busy, total) = (self.busy.saturating_sub(last.busy), self.total.saturating_sub(last.total));
        match total {
            0 => Reading::NotYet,
            total => {
                Reading::Value((busy.saturating_mul(100) + total / 2) / total).map(|share| share.min(100))
            }
        }
    }
}

/// `cpu  user nice system idle iowait irq softirq steal guest guest_nice`; guest is within user.
fn cpu_times(stat: &str) -> Result<CpuTimes, Text> {
    let line = stat.lines().next().and_then(|line| line.strip_prefix("cpu ")).ok_or("no cpu line")?;
    let ticks: Vec<u64> = line.split_ascii_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    let idle = |at: usize| ticks.get(at).copied().unwrap_or(0);
    if ticks.len() < 4 {
        return Err("a short cpu line".into());
    }
    let total = ticks.iter().fold(0_u64, |sum, ticks| sum.saturating_add(*ticks));
    Ok(CpuTimes { busy: total.saturating_sub(idle(3)).saturating_sub(idle(4)), total })
}

/// `0.52 0.58 0.59 1/467 12345`.
fn load1_centi(loadavg: &str) -> Result<u64, Text> {
    let word = loadavg.split_ascii_whitespace().next().ok_or("an empty loadavg")?;
    let (whole, part) = word.split_once('.').ok_or("a load without a point")?;
    let number = |digits: &str| digits.parse::<u64>().map_err(|_| Text::new("a load that is no number"));
    Ok(number(whole)?.saturating_mul(100).saturating_add(number(part)?))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    total: u64,
    used: u64,
}

fn memory(meminfo: &str) -> Result<Memory, Text> {
    let total = kibibytes(meminfo, "MemTotal:").ok_or("no MemTotal")?;
    // Kernels before 3.14 have no MemAvailable.
    let available = kibibytes(meminfo, "MemAvailable:")
        .or_else(|| kibibytes(meminfo, "MemFree:"))
        .ok_or("no MemAvailable")?;
    Ok(Memory {
        total: total.saturating_mul(1_024),
        used: total.saturating_sub(available).saturating_mul(1_024),
    })
}

fn kibibytes(meminfo: &str, name: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// `MemTotal` in bytes, or 0 if it cannot be read.
pub fn mem_total_bytes() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    kibibytes(&meminfo, "MemTotal:").unwrap_or(0).saturating_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_share_is_that_since_the_last_sample() {
        let first = cpu_times("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1").unwrap();
        let second = cpu_times("cpu  150 0 125 750 125 0 0 0 0 0\n").unwrap();
        assert_eq!(second.busy_since(first), Reading::Value(50));
        assert_eq!(first.busy_since(first), Reading::NotYet);
    }

    #[test]
    fn load_and_memory_are_read() {
        assert_eq!(load1_centi("12.07 0.58 0.59 1/467 12345\n"), Ok(1_207));
        let meminfo = "MemTotal:       1000 kB\nMemFree:  100 kB\nMemAvailable:    600 kB\n";
        assert_eq!(memory(meminfo), Ok(Memory { total: 1_024_000, used: 409_600 }));
    }

    #[test]
    fn this_machine_can_be_read() {
        let mut host = Host::new();
        assert_eq!(host.sample().cpu_pct, Reading::NotYet);
        let sample = host.sample();
        assert!(*sample.mem_total_bytes.value().unwrap() > *sample.mem_used_bytes.value().unwrap());
        assert_eq!(*sample.mem_total_bytes.value().unwrap(), mem_total_bytes());
        assert!(sample.load1_centi.value().is_some());
    }

    #[test]
    fn a_file_that_is_missing_is_a_failure_and_not_zero() {
        let empty = tempfile::tempdir().unwrap();
        let sample = Host::of(empty.path()).sample();
        assert!(matches!(sample.mem_used_bytes, Reading::Failed(_)));
        assert!(matches!(sample.cpu_pct, Reading::Failed(_)));
    }

    proptest! {
        #[test]
        fn no_file_is_too_strange(text in ".{0,300}") {
            let _ = (cpu_times(&text), load1_centi(&text), memory(&text));
            let _ = cpu_times(&format!("cpu  {text}"));
        }

        #[test]
        fn a_share_is_at_most_a_hundred(a in 0u64..1 << 50, b in 0u64..1 << 50, c in 0u64..1 << 50, d in 0u64..1 << 50) {
            let (last, now) = (CpuTimes { busy: a, total: b }, CpuTimes { busy: c, total: d });
            prop_assert!(now.busy_since(last).value().is_none_or(|share| *share <= 100));
        }
    }
}

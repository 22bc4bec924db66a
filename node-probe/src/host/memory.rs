//! Parsers of memory, swap, load, pressure and uptime in `/proc`.

use super::file::ReadError;

/// Values of `/proc/meminfo` in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// `MemTotal`.
    pub total: u64,
    /// `MemTotal` − `MemAvailable`.
    pub used: u64,
    /// `SwapTotal`.
    pub swap_total: u64,
    /// `SwapTotal` − `SwapFree`.
    pub swap_used: u64,
}

impl Memory {
    /// Parses `/proc/meminfo`.
    ///
    /// # Errors
    /// If a line is missing.
    pub fn of(meminfo: &str) -> Result<Self, ReadError> {
        let total = kibibytes(meminfo, "MemTotal:").ok_or("no MemTotal")?;
        // Kernels before 3.14 have no MemAvailable.
        let available = kibibytes(meminfo, "MemAvailable:")
            .or_else(|| kibibytes(meminfo, "MemFree:"))
            .ok_or("no MemAvailable")?;
        // Kernels without swap omit its lines.
        let swap = kibibytes(meminfo, "SwapTotal:").unwrap_or(0);
        let swap_free = kibibytes(meminfo, "SwapFree:").unwrap_or(0);
        let bytes = |kibibytes: u64| kibibytes.saturating_mul(1_024);
        Ok(Self {
            total: bytes(total),
            used: bytes(total.saturating_sub(available)),
            swap_total: bytes(swap),
            swap_used: bytes(swap.saturating_sub(swap_free)),
        })
    }
}

/// Returns the value of a line of `/proc/meminfo`, in its unit.
fn kibibytes(meminfo: &str, name: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// Parses 52 from `0.52 0.58 0.59 1/467 12345`.
///
/// # Errors
/// If the number is missing.
pub fn load1_centi(loadavg: &str) -> Result<u64, ReadError> {
    let word = loadavg.split_ascii_whitespace().next().ok_or("an empty loadavg")?;
    centi(word).ok_or_else(|| "a load that is not a number".into())
}

/// Parses 12 % from `some avg10=12.34 avg60=…`, rounded.
///
/// # Errors
/// If the line is missing.
pub fn pressure_pct(pressure: &str) -> Result<u64, ReadError> {
    let some = pressure.lines().find_map(|line| line.strip_prefix("some "));
    let share =
        some.and_then(|some| some.split_ascii_whitespace().find_map(|word| word.strip_prefix("avg10=")));
    let centi = share.and_then(centi).ok_or("no share of the last 10 s")?;
    Ok(((centi + 50) / 100).min(100))
}

/// Parses 350735 from `350735.47 234388.90`.
///
/// # Errors
/// If the number is missing.
pub fn uptime_s(uptime: &str) -> Result<u64, ReadError> {
    let word = uptime.split_ascii_whitespace().next().ok_or("an empty uptime")?;
    centi(word).map(|centi| centi / 100).ok_or_else(|| "an uptime that is not a number".into())
}

/// Parses 1234 from `12.34`.
fn centi(word: &str) -> Option<u64> {
    let (whole, part) = word.split_once('.')?;
    let part: u64 = part.get(..2)?.parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(100)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_and_swap_are_read() {
        let meminfo = "MemTotal:       1000 kB\nMemFree:  100 kB\nMemAvailable:    600 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n";
        let memory = Memory { total: 1_024_000, used: 409_600, swap_total: 51_200, swap_used: 30_720 };
        assert_eq!(Memory::of(meminfo), Ok(memory));
        assert!(Memory::of("MemFree: 1 kB\n").is_err());
    }

    #[test]
    fn load_pressure_and_uptime_are_read() {
        assert_eq!(load1_centi("12.07 0.58 0.59 1/467 12345\n"), Ok(1_207));
        assert_eq!(uptime_s("350735.47 234388.90\n"), Ok(350_735));
        let pressure = "some avg10=12.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=99.00 avg60=0.00\n";
        assert_eq!(pressure_pct(pressure), Ok(13));
        assert!(pressure_pct("full avg10=99.00\n").is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_files_never_panic(text in "(?s).{0,300}") {
            let _ = (Memory::of(&text), load1_centi(&text), pressure_pct(&format!("some avg10={text}")), uptime_s(&text));
        }
    }
}

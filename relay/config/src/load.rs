//! Parses the limits that a relay sets for itself.

use super::value::{duration, size};
use std::time::Duration;

/// Limits of the memory of the relay, in bytes.
const MIN_MEMORY: usize = 64 << 20;
const MAX_MEMORY: usize = 64 << 30;

/// Parses CPU time in % of a core: `50%`, `150%` or a bare number.
pub(super) fn cpu_max(raw: &str) -> Result<u32, String> {
    let number = raw.strip_suffix('%').unwrap_or(raw).trim_end();
    let pct: u32 = number
        .parse()
        .map_err(|_| format!("{raw:?} is not a part of a core; use for example 50% or 200% (two cores)"))?;
    match pct {
        5..=10_000 => Ok(pct),
        _ => Err(format!("{raw} is out of range: between 5% of a core and 10000% (a hundred cores)")),
    }
}

/// Parses the memory of the relay in bytes: `500M`, `1G`; a bare number is in MB.
pub(super) fn memory_max(raw: &str) -> Result<usize, String> {
    match size(raw)? {
        bytes if (MIN_MEMORY..=MAX_MEMORY).contains(&bytes) => Ok(bytes),
        _ => Err(format!("{raw} is out of range: the relay takes between 64M and 64G")),
    }
}

/// Parses the time after which a relay that nobody uses exits.
pub(super) fn auto_exit(raw: &str) -> Result<Duration, String> {
    let after =
        duration(raw).ok_or_else(|| format!("{raw:?} is not a duration; use for example 30m or 12h"))?;
    match after.as_secs() {
        10..=2_592_000 => Ok(after),
        _ => Err(format!("{raw} is out of range: between 10s and 30d")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_units_and_a_range_that_is_stated() {
        assert_eq!((cpu_max("50%"), cpu_max("200 %"), cpu_max("50")), (Ok(50), Ok(200), Ok(50)));
        assert_eq!(memory_max("500M"), Ok(500 << 20));
        assert_eq!(auto_exit("12h"), Ok(Duration::from_secs(43_200)));
        for (result, why) in [
            (cpu_max("half").map(drop), "use for example 50%"),
            (cpu_max("1%").map(drop), "between 5% of a core"),
            (memory_max("32M").map(drop), "between 64M and 64G"),
            (memory_max("lots").map(drop), "use for example"),
            (auto_exit("5s").map(drop), "between 10s and 30d"),
            (auto_exit("never").map(drop), "is not a duration"),
        ] {
            assert!(result.clone().is_err_and(|error| error.contains(why)), "{result:?}");
        }
    }
}

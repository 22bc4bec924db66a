//! The GTs of an Intel GPU: each has clocks, idle times and throttle reasons of its own.
//!
//! i915 describes them in `cardN/gt/gtM`, before Linux 5.18 the only one in `cardN`; Xe in
//! `device/tileT/gtM`.

use crate::counter_rate::MIN_ELAPSED_NS;
use crate::source::drm::attribute::{Attribute, ReadError, Reader};
use crate::source::drm::card;
use nodeglass_protocol::Reading;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Maximum number of GTs.
const MAX_GTS: usize = 16;
/// Modulus of a 32-bit counter of ms.
const WRAP_MS: u64 = 1 << 32;
/// By how many ms an idle time may exceed the time between two readings.
const SLACK_MS: u64 = 1_000;

/// Bits of NVML's clock-event reasons, which the throttle mask of all vendors uses.
mod reason {
    pub const POWER: u64 = 0x4;
    pub const HARDWARE: u64 = 0x8;
    pub const THERMAL: u64 = 0x40;
}

/// Endings of the names of throttle reasons, and which reasons they are. `ratl` is a limit of the
/// running average of temperature, `pl…` are limits of power, `tdc` and `iccmax` ones of current.
const REASONS: [(&str, u64); 16] = [
    ("pl1", reason::POWER),
    ("pl2", reason::POWER),
    ("pl4", reason::POWER),
    ("psys_pl1", reason::POWER),
    ("psys_pl2", reason::POWER),
    ("psys_crit", reason::POWER),
    ("vr_tdc", reason::POWER),
    ("iccmax", reason::POWER),
    ("thermal", reason::THERMAL),
    ("soc_thermal", reason::THERMAL),
    ("soc_avg_thermal", reason::THERMAL),
    ("mem_thermal", reason::THERMAL),
    ("vr_thermal", reason::THERMAL),
    ("ratl", reason::THERMAL),
    ("vr_thermalert", reason::THERMAL),
    ("prochot", reason::HARDWARE),
];

/// One GT.
#[derive(Debug)]
pub struct Gt {
    act_freq: Attribute,
    idle_ms: Attribute,
    max_freq: Attribute,
    status: Attribute,
    reasons: Vec<(Attribute, u64)>,
    /// Idle time in ms and the time of its reading.
    last_idle: Option<(u64, u64)>,
}

impl Gt {
    /// Finds the GTs of a card.
    pub fn all(card_folder: &Path, device: &Path) -> Vec<Self> {
        let of_xe: Vec<_> =
            tiles(device).iter().flat_map(|tile| numbered(tile, "gt")).map(|gt| Self::of_xe(&gt)).collect();
        if !of_xe.is_empty() {
            return of_xe;
        }
        let of_i915 = numbered(&card_folder.join("gt"), "gt");
        if !of_i915.is_empty() {
            return of_i915.iter().map(|gt| Self::of_i915(gt)).collect();
        }
        let open = |name: &str| Attribute::open(&card_folder.join(name));
        let only = Self {
            act_freq: open("gt_act_freq_mhz"),
            idle_ms: open("power/rc6_residency_ms"),
            max_freq: open("gt_RP0_freq_mhz"),
            status: Attribute::missing(),
            reasons: Vec::new(),
            last_idle: None,
        };
        vec![only]
    }

    fn of_i915(folder: &Path) -> Self {
        let open = |name: &str| Attribute::open(&folder.join(name));
        Self {
            act_freq: open("rps_act_freq_mhz"),
            idle_ms: open("rc6_residency_ms"),
            max_freq: open("rps_RP0_freq_mhz"),
            status: open("throttle_reason_status"),
            reasons: reasons(|name| open(&format!("throttle_reason_{name}"))),
            last_idle: None,
        }
    }

    fn of_xe(folder: &Path) -> Self {
        let open = |name: &str| Attribute::open(&folder.join(name));
        Self {
            act_freq: open("freq0/act_freq"),
            idle_ms: open("gtidle/idle_residency_ms"),
            max_freq: open("freq0/rp0_freq"),
            status: open("freq0/throttle/status"),
            reasons: reasons(|name| open(&format!("freq0/throttle/reason_{name}"))),
            last_idle: None,
        }
    }

    /// Reads the current clock in MHz; 0 while it is powered down.
    pub fn clock(&self, reader: &mut Reader) -> Reading<u64> {
        reader.number(&self.act_freq)
    }

    /// Reads the highest clock in MHz.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn max_clock(&self) -> Result<u64, ReadError> {
        self.max_freq.number()
    }

    /// Returns the share of the time since the last reading in which it was powered up, in %.
    ///
    /// A GT that was never idle since the driver was loaded does not count: power-down states are switched
    /// off, or, in a virtual function, another driver's matter.
    pub fn busy(&mut self, reader: &mut Reader, mono_ns: u64) -> Reading<u64> {
        let now = match reader.number(&self.idle_ms) {
            Reading::Value(0) => Reading::Unsupported,
            reading => reading,
        };
        let now = match now {
            Reading::Value(now) => now,
            other => {
                self.last_idle = None;
                return other;
            }
        };
        let Some((last, last_ns)) = self.last_idle else {
            self.last_idle = Some((now, mono_ns));
            return Reading::NotYet;
        };
        let elapsed_ns = mono_ns.saturating_sub(last_ns);
        if elapsed_ns < MIN_ELAPSED_NS {
            return Reading::NotYet;
        }
        self.last_idle = Some((now, mono_ns));
        // i915 counts in 32 bits, which wrap around after 49 days. Anything else that goes back was reset.
        let idle_ms = match now.checked_sub(last) {
            Some(idle_ms) => idle_ms,
            None if last < WRAP_MS => match now + WRAP_MS - last {
                idle_ms if idle_ms <= elapsed_ns / 1_000_000 + SLACK_MS => idle_ms,
                _ => return Reading::NotYet,
            },
            None => return Reading::NotYet,
        };
        let idle_pct = u128::from(idle_ms) * 100_000_000 / u128::from(elapsed_ns);
        Reading::Value(100 - u64::try_from(idle_pct).unwrap_or(100).min(100))
    }

    /// Reads the reasons for lower clocks.
    pub fn throttle(&self, reader: &mut Reader) -> Reading<u64> {
        let status = reader.number(&self.status);
        let Reading::Value(status) = status else { return status };
        if status == 0 {
            return Reading::Value(0);
        }
        let applies = |attribute: &Attribute| attribute.number().is_ok_and(|flag| flag != 0);
        let known = self.reasons.iter().filter(|(attribute, _)| applies(attribute));
        let mask = known.fold(0, |mask, (_, reason)| mask | reason);
        Reading::Value(if mask == 0 { reason::HARDWARE } else { mask })
    }
}

fn reasons(open: impl Fn(&str) -> Attribute) -> Vec<(Attribute, u64)> {
    let all = REASONS.iter().map(|(name, reason)| (open(name), *reason));
    all.filter(|(attribute, _)| attribute.is_open()).collect()
}

/// Returns the folders of a device's tiles, which Xe provides.
pub fn tiles(device: &Path) -> Vec<PathBuf> {
    numbered(device, "tile")
}

/// Returns the folders with a prefix and a number, by number.
fn numbered(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(card::MAX_ENTRIES);
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut numbers: Vec<_> = names.filter_map(|name| card::number(&name, prefix)).collect();
    numbers.sort_unstable();
    numbers.into_iter().take(MAX_GTS).map(|number| folder.join(format!("{prefix}{number}"))).collect()
}

/// Returns the largest of several readings; without a value, the first reason.
pub fn largest(readings: impl Iterator<Item = Reading<u64>>) -> Reading<u64> {
    readings
        .reduce(|largest, next| match (&largest, &next) {
            (Reading::Value(a), Reading::Value(b)) => Reading::Value(*a.max(b)),
            (Reading::Value(_), _) => largest,
            (_, Reading::Value(_)) => next,
            _ => largest,
        })
        .unwrap_or(Reading::Unsupported)
}

/// Returns the largest busy share. The first GT computes; without its share, the shares of the others, which decode
/// video, say nothing.
pub fn busiest(shares: impl Iterator<Item = Reading<u64>>) -> Reading<u64> {
    let mut shares = shares.peekable();
    match shares.peek() {
        Some(Reading::Unsupported) => {
            shares.for_each(drop);
            Reading::Unsupported
        }
        _ => largest(shares),
    }
}

/// Adds the flags of several readings; without a value, the first reason.
pub fn union(readings: impl Iterator<Item = Reading<u64>>) -> Reading<u64> {
    readings
        .reduce(|all, next| match (&all, &next) {
            (Reading::Value(a), Reading::Value(b)) => Reading::Value(a | b),
            (Reading::Value(_), _) => all,
            (_, Reading::Value(_)) => next,
            _ => all,
        })
        .unwrap_or(Reading::Unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Returns the busy share after the idle counter went from one value to another within a second.
    fn busy(counts: [u64; 2]) -> [Reading<u64>; 2] {
        let device = tempfile::tempdir().unwrap();
        let folder = device.path().join("tile0/gt0/gtidle");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("idle_residency_ms");
        fs::write(&path, "1").unwrap();
        let mut gts = Gt::all(device.path(), device.path());
        let mut second = 0;
        counts.map(|count| {
            fs::write(&path, format!("{count}\n")).unwrap();
            second += 1;
            gts[0].busy(&mut Reader::default(), second * SECOND)
        })
    }

    #[test]
    fn an_idle_counter_wraps_around_or_was_reset() {
        let [first, second] = busy([5_000, 5_250]);
        assert_eq!((first, second), (Reading::NotYet, Reading::Value(75)));
        assert_eq!(busy([WRAP_MS - 200, 300])[1], Reading::Value(50));
        assert_eq!(busy([WRAP_MS + 9, 300])[1], Reading::NotYet);
        // After a reset, it is not idle for 49 days.
        assert_eq!(busy([500_000, 10])[1], Reading::NotYet);
    }

    #[test]
    fn video_alone_says_nothing_about_the_gpu() {
        let of = |shares: [Reading<u64>; 2]| busiest(shares.into_iter());
        assert_eq!(of([Reading::Unsupported, Reading::Value(0)]), Reading::Unsupported);
        assert_eq!(of([Reading::Value(70), Reading::Unsupported]), Reading::Value(70));
        assert_eq!(of([Reading::Value(7), Reading::Value(9)]), Reading::Value(9));
        assert_eq!(busiest(std::iter::empty()), Reading::Unsupported);
    }

    #[test]
    fn a_gt_that_was_never_idle_does_not_count() {
        assert_eq!(busy([0, 0]), [Reading::Unsupported, Reading::Unsupported]);
        assert_eq!(busy([7, 7])[1], Reading::Value(100));
    }
}

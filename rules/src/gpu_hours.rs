//! GPU hours of a job or of many: how many were observed, and what became of those. Shares are of the observed hours.

use crate::number::{percent, precise};
use nodeglass_protocol::report::{Totals, UsageSums};

/// Fewer hours than this are not mentioned as a part, as in the cost of a finding.
const MIN_HOURS: f64 = 0.05;
/// Hours of unknown utilisation are mentioned from this share of the observed ones: a GPU has none in its first moments.
const UNKNOWN_SHARE: f64 = 0.005;

/// Traffic, CPUs and memory of a job that are known for less of its run than this, in %, are stated with that share.
pub const USAGE_KNOWN_PCT: f64 = 95.0;

/// GPU hours of one job or the sum over many.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuHours {
    /// Allocated: GPUs × run time.
    pub allocated: f64,
    /// Part of them for which there are samples.
    pub observed: f64,
    /// Part of the observed ones: the integral of utilisation, without hangs.
    pub used: f64,
    /// Part of the used ones that findings state as lost to GPUs slower than their peers.
    pub slowed: f64,
    /// Part of the observed ones with a known utilisation that were not used.
    pub unused: f64,
    /// Part of the observed ones at 5 % utilisation or less.
    pub idle: f64,
    /// Part of the observed ones in collective hangs.
    pub hung: f64,
}

/// Reads the hours of sums that name them alike.
macro_rules! hours_of {
    ($($sums:ty),*) => {$(
        impl From<&$sums> for GpuHours {
            fn from(sums: &$sums) -> Self {
                Self {
                    allocated: sums.gpu_hours_allocated,
                    observed: sums.gpu_hours_observed,
                    used: sums.gpu_hours_used,
                    slowed: sums.gpu_hours_slowed,
                    unused: sums.gpu_hours_unused,
                    idle: sums.gpu_hours_idle,
                    hung: sums.gpu_hours_hung,
                }
            }
        }
    )*};
}

hours_of!(Totals, UsageSums);

impl GpuHours {
    /// Returns the observed hours without a utilisation, as those of MIG instances are: neither used nor unused.
    pub fn of_unknown_use(&self) -> f64 {
        (self.observed.min(self.allocated) - self.used - self.unused).max(0.0)
    }

    /// Returns the unused hours that are neither idle nor hung: the GPUs were busy, but not fully.
    pub fn partly_busy(&self) -> f64 {
        (self.unused - self.idle - self.hung).max(0.0)
    }

    /// Returns the allocated hours without an observation.
    pub fn unobserved(&self) -> f64 {
        (self.allocated - self.observed).max(0.0)
    }

    /// Returns the allocated hours of which neither use nor disuse is known.
    pub fn unknown(&self) -> f64 {
        self.unobserved() + self.of_unknown_use()
    }

    /// Returns the observed share of the allocated hours in %, at most 100; `None` if none were allocated.
    pub fn observed_pct(&self) -> Option<f64> {
        (self.allocated > 0.0).then(|| (100.0 * self.observed / self.allocated).min(100.0))
    }

    /// Returns a part of the observed hours as a share of them in %; `None` if none were observed.
    pub fn pct_of_observed(&self, hours: f64) -> Option<f64> {
        (self.observed > 0.0).then(|| (100.0 * hours / self.observed).min(100.0))
    }

    /// Returns how many hours were observed: `83.1 of 2,511 GPU hours were observed (3 %)`.
    pub fn coverage(&self) -> String {
        let pct = self.observed_pct().unwrap_or(0.0);
        // What the clocks of SLURM and of the relay differ by is not a gap.
        if pct >= 99.5 {
            return format!("{} GPU hours were observed", precise(self.allocated));
        }
        let [observed, allocated] = [self.observed, self.allocated].map(precise);
        format!("{observed} of {allocated} GPU hours were observed ({})", percent(pct))
    }

    /// Returns what became of the observed hours: `64.4 used (8.5 of them lost to slow GPUs), 18.7 unused (9.5 idle, 6.2
    /// lost to hangs, 3 partly busy)`, and how many had no utilisation; `None` if none were observed.
    pub fn spent(&self) -> Option<String> {
        if self.observed <= 0.0 {
            return None;
        }
        let parts = [(self.idle, "idle"), (self.hung, "lost to hangs"), (self.partly_busy(), "partly busy")];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(part, _)| *part >= MIN_HOURS)
            .map(|(part, what)| format!("{} {what}", precise(*part)))
            .collect();
        let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
        let unknown = self.of_unknown_use();
        let unknown = match unknown >= UNKNOWN_SHARE * self.observed {
            true => format!(", {} of unknown utilisation", precise(unknown)),
            false => String::new(),
        };
        let slowed = match self.slowed >= MIN_HOURS {
            true => format!(" ({} of them lost to slow GPUs)", precise(self.slowed)),
            false => String::new(),
        };
        let [used, unused] = [self.used, self.unused].map(precise);
        Some(format!("{used} used{slowed}, {unused} unused{parts}{unknown}"))
    }

    /// Returns both in one sentence without a full stop: `83.1 of 2,511 GPU hours were observed (3 %): 64.4 used, …`.
    pub fn sentence(&self) -> String {
        match self.spent() {
            Some(spent) => format!("{}: {spent}", self.coverage()),
            None => self.coverage(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_observed_is_neither_used_nor_unused() {
        let hours = GpuHours {
            allocated: 2_511.0,
            observed: 83.1,
            used: 64.4,
            unused: 18.7,
            idle: 9.5,
            hung: 6.2,
            ..GpuHours::default()
        };
        assert_eq!(
            hours.sentence(),
            "83.1 of 2,511 GPU hours were observed (3 %): 64.4 used, 18.7 unused (9.5 idle, 6.2 lost to hangs, 3 partly busy)"
        );
        assert!(hours.of_unknown_use() < 1e-9);
        assert_eq!(hours.pct_of_observed(hours.used).map(f64::round), Some(77.0));
        assert_eq!(hours.unobserved(), 2_511.0 - 83.1);
    }

    #[test]
    fn hours_of_unknown_utilisation_are_neither_used_nor_unused() {
        let (allocated, observed, used, unused, idle) = (5.0, 4.0, 1.0, 0.5, 0.5);
        let hours = GpuHours { allocated, observed, used, unused, idle, ..GpuHours::default() };
        assert_eq!((hours.of_unknown_use(), hours.partly_busy()), (2.5, 0.0));
        assert_eq!(
            hours.sentence(),
            "4 of 5 GPU hours were observed (80 %): 1 used, 0.5 unused (0.5 idle), 2.5 of unknown utilisation"
        );
    }

    #[test]
    fn hours_lost_to_slow_gpus_are_a_part_of_the_used_ones() {
        let hours =
            GpuHours { allocated: 30.0, observed: 30.0, used: 27.0, unused: 3.0, ..GpuHours::default() };
        let slowed = |slowed| GpuHours { slowed, ..hours }.spent().unwrap();
        assert_eq!(slowed(8.5), "27 used (8.5 of them lost to slow GPUs), 3 unused (3 partly busy)");
        assert_eq!(slowed(0.04), "27 used, 3 unused (3 partly busy)", "findings do not state it either");
    }

    #[test]
    fn hours_of_which_all_or_nothing_is_known_need_no_share_or_no_parts() {
        let all = GpuHours { allocated: 4.0, observed: 4.0, used: 4.0, ..GpuHours::default() };
        assert_eq!(all.sentence(), "4 GPU hours were observed: 4 used, 0 unused");
        let none = GpuHours { allocated: 12.0, ..GpuHours::default() };
        assert_eq!(none.sentence(), "0 of 12 GPU hours were observed (0 %)");
        assert_eq!((none.pct_of_observed(0.0), GpuHours::default().observed_pct()), (None, None));
    }
}

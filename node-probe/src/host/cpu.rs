//! CPU utilization from `/proc/stat`, in total and per CPU.

use super::file::ReadError;
use nodeglass_protocol::Reading;

/// CPU time since boot, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    busy: u64,
    total: u64,
}

/// Counters of the previous reading.
#[derive(Clone, Debug, Default)]
pub struct Cpus {
    all: Option<CpuTimes>,
    each: Vec<CpuTimes>,
}

impl Cpus {
    /// Returns the utilization since the previous reading in %: in total, and per CPU (empty if the
    /// set of CPUs changed).
    ///
    /// # Errors
    /// If the text is malformed.
    pub fn shares(&mut self, stat: &str) -> Result<(Reading<u64>, Vec<u8>), ReadError> {
        let mut lines = stat.lines();
        let all = lines.next().and_then(|line| line.strip_prefix("cpu ")).ok_or("no cpu line")?;
        let all = CpuTimes::of(all).ok_or("a short cpu line")?;
        let each: Vec<CpuTimes> = lines.map_while(of_one).collect();
        let share = self.all.map_or(Reading::NotYet, |last| all.busy_since(last));
        let cores = if each.len() == self.each.len() {
            let shares =
                each.iter().zip(&self.each).map(|(now, last)| now.busy_since(*last).value().copied());
            // If the counters did not advance between two readings, the utilization is unknown.
            shares.map(|share| share.and_then(|share| u8::try_from(share).ok())).collect::<Option<_>>()
        } else {
            None
        };
        (self.all, self.each) = (Some(all), each);
        Ok((share, cores.unwrap_or_default()))
    }
}

/// `cpu17 …`.
fn of_one(line: &str) -> Option<CpuTimes> {
    let (number, times) = line.strip_prefix("cpu")?.split_once(' ')?;
    number.parse::<u32>().ok()?;
    CpuTimes::of(times)
}

impl CpuTimes {
    /// Parses `user nice system idle iowait irq softirq steal guest guest_nice`; guest is included
    /// in user.
    fn of(fields: &str) -> Option<Self> {
        let mut ticks = [0_u64; 8];
        let mut count = 0;
        for (place, field) in ticks.iter_mut().zip(fields.split_ascii_whitespace()) {
            *place = field.parse().ok()?;
            count += 1;
        }
        let total = ticks.iter().fold(0_u64, |sum, ticks| sum.saturating_add(*ticks));
        (count >= 4).then(|| Self { busy: total.saturating_sub(ticks[3]).saturating_sub(ticks[4]), total })
    }

    /// Returns the utilization since `last` in %; saturating, because `iowait` decreases on some
    /// kernels.
    fn busy_since(self, last: Self) -> Reading<u64> {
        let (busy, total) = (self.busy.saturating_sub(last.busy), self.total.saturating_sub(last.total));
        match total {
            0 => Reading::NotYet,
            total => Reading::Value(((busy.saturating_mul(100) + total / 2) / total).min(100)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn utilization_is_since_the_previous_reading() {
        let mut cpus = Cpus::default();
        let first = "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 0 0 10 0 0 0 0\ncpu1 5 0 0 5 0\nintr 1\n";
        let second = "cpu  150 0 125 750 125 0 0 0 0 0\ncpu0 4 0 0 17 0 0 0 0\ncpu1 9 0 0 5 0\nintr 1\n";
        assert_eq!(cpus.shares(first), Ok((Reading::NotYet, vec![])));
        assert_eq!(cpus.shares(second), Ok((Reading::Value(50), vec![30, 100])));
        assert_eq!(cpus.shares(second), Ok((Reading::NotYet, vec![])));
    }

    #[test]
    fn an_offline_cpu_does_not_distort_utilization() {
        let mut cpus = Cpus::default();
        cpus.shares("cpu  9 0 0 9\ncpu0 1 0 0 1\ncpu1 1 0 0 1\n").unwrap();
        let (all, cores) = cpus.shares("cpu  19 0 0 19\ncpu0 9 0 0 9\nintr 0\n").unwrap();
        assert_eq!((all, cores), (Reading::Value(50), vec![]));
    }

    proptest! {
        #[test]
        fn arbitrary_files_never_panic(text in "(?s).{0,300}") {
            let mut cpus = Cpus::default();
            let _ = (cpus.shares(&text), cpus.shares(&format!("cpu  {text}")), cpus.shares(&format!("cpu 1 1 1 1\ncpu0 {text}")));
        }

        #[test]
        fn a_share_is_at_most_a_hundred(a: u64, b: u64, c: u64, d: u64) {
            let (last, now) = (CpuTimes { busy: a >> 8, total: b >> 8 }, CpuTimes { busy: c >> 8, total: d >> 8 });
            prop_assert!(now.busy_since(last).value().is_none_or(|share| *share <= 100));
        }
    }
}

//! Sums over GPUs say over how many they are, and what cannot be read is left out, not taken for zero.

use crate::text;
use nodeglass_protocol::picture::GpuPicture;
use nodeglass_protocol::{GpuField, HostField, Row};

/// What several GPUs come to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// How many GPUs there are.
    pub gpus: usize,
    /// How many of them are left out: what is known of them is old, or they cannot be read.
    pub old: usize,
    /// Whether they are those of the end of a job.
    pub at_end: bool,
    /// Sum of utilisations in % and how many there were.
    util: (u64, u64),
    /// Memory in use and in all, in bytes, of the GPUs that tell both.
    pub mem: Part,
    /// Power drawn in W and the limits, of the GPUs that tell both.
    pub power: Part,
    /// The hottest, in °C.
    pub hottest_c: Option<u64>,
}

/// A part and its whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// What is used; `None` while nobody told.
    pub used: Option<u64>,
    /// Of how much; `None` while nobody told.
    pub whole: Option<u64>,
}

impl Part {
    /// Adds a reading. A part without a whole, such as power without a limit, still counts.
    fn add(&mut self, used: Option<u64>, whole: Option<u64>) {
        let sum = |a: Option<u64>, b: Option<u64>| a.map_or(b, |a| Some(a + b.unwrap_or(0)));
        if used.is_some() {
            self.used = sum(self.used, used);
            self.whole = sum(self.whole, whole);
        }
    }
}

impl Totals {
    /// Adds a GPU; one that cannot be read counts as a GPU that is left out.
    pub fn add(&mut self, gpu: &GpuPicture) {
        if gpu.fault.is_some() {
            return self.leave_out();
        }
        self.gpus += 1;
        let value = |field| gpu.row.value(field);
        if let Some(util) = value(GpuField::Util) {
            self.util = (self.util.0 + util, self.util.1 + 1);
        }
        self.mem.add(value(GpuField::MemUsed), value(GpuField::MemTotal));
        self.power.add(value(GpuField::Power), value(GpuField::PowerLimit));
        self.hottest_c = self.hottest_c.max(value(GpuField::Temp));
    }

    /// Counts a GPU of which there are no values of now: they are too old, or it cannot be read.
    pub fn leave_out(&mut self) {
        self.gpus += 1;
        self.old += 1;
    }

    /// Of how many GPUs the sums are: `16`, or `12 of 16` when some are left out.
    pub fn counted(&self) -> String {
        match self.old {
            0 => text::grouped(self.gpus as u64),
            old => {
                format!("{} of {}", text::grouped((self.gpus - old) as u64), text::grouped(self.gpus as u64))
            }
        }
    }

    /// What the mean utilisation is called.
    pub fn util_title(&self) -> String {
        let when = if self.at_end { " at the end" } else { "" };
        match self.gpus {
            0 | 1 => format!("Utilisation{when}"),
            _ => format!("Utilisation{when}, mean of {}", self.counted()),
        }
    }

    /// Mean utilisation in %, of those that tell.
    pub fn util_pct(&self) -> Option<u64> {
        (self.util.1 > 0).then(|| (self.util.0 + self.util.1 / 2) / self.util.1)
    }
}

/// What several hosts come to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostTotals {
    cpu: (u64, u64),
    /// Memory in use and in all, in bytes.
    pub mem: Part,
}

impl HostTotals {
    /// Adds a host.
    pub fn add(&mut self, row: &Row<HostField>) {
        if let Some(cpu) = row.value(HostField::Cpu) {
            self.cpu = (self.cpu.0 + cpu, self.cpu.1 + 1);
        }
        self.mem.add(row.value(HostField::MemUsed), row.value(HostField::MemTotal));
    }

    /// Mean CPU use in %.
    pub fn cpu_pct(&self) -> Option<u64> {
        (self.cpu.1 > 0).then(|| (self.cpu.0 + self.cpu.1 / 2) / self.cpu.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::Cell;

    fn gpu(util: Option<u32>) -> GpuPicture {
        let mut gpu = GpuPicture::default();
        gpu.row.set(GpuField::Util, util.map_or(Cell::UNSUPPORTED, Cell::steps));
        gpu
    }

    fn totals(gpus: &[GpuPicture]) -> Totals {
        let mut totals = Totals::default();
        gpus.iter().for_each(|gpu| totals.add(gpu));
        totals
    }

    #[test]
    fn a_gpu_that_does_not_tell_does_not_lower_the_mean() {
        let totals = totals(&[gpu(Some(90)), gpu(None), gpu(Some(95))]);
        assert_eq!((totals.gpus, totals.util_pct()), (3, Some(93)));
    }

    #[test]
    fn old_values_are_left_out_and_said_to_be() {
        let mut totals = totals(&[gpu(Some(90))]);
        assert_eq!(totals.counted(), "1");
        totals.leave_out();
        assert_eq!((totals.util_pct(), totals.counted().as_str()), (Some(90), "1 of 2"));
    }

    #[test]
    fn sums_of_a_job_that_is_over_are_of_its_end() {
        let sums = |gpus: usize, at_end| Totals { gpus, at_end, ..Totals::default() }.util_title();
        assert_eq!([sums(1, false), sums(8, false)], ["Utilisation", "Utilisation, mean of 8"]);
        assert_eq!(
            [sums(1, true), sums(8, true)],
            ["Utilisation at the end", "Utilisation at the end, mean of 8"]
        );
    }

    #[test]
    fn nothing_told_is_nothing_and_not_zero() {
        let totals = totals(&[gpu(None)]);
        assert_eq!((totals.util_pct(), totals.mem.used, totals.power.whole), (None, None, None));
    }

    #[test]
    fn what_a_lost_gpu_said_last_is_left_out() {
        let lost = GpuPicture { fault: Some("GPU is lost".into()), ..gpu(Some(100)) };
        assert_eq!(totals(&[gpu(Some(10)), lost]).util_pct(), Some(10));
    }

    #[test]
    fn a_part_without_a_whole_has_no_share() {
        let mut part = Part::default();
        part.add(Some(300), None);
        assert_eq!((part.used, part.whole), (Some(300), None));
        part.add(Some(100), Some(400));
        assert_eq!((part.used, part.whole), (Some(400), Some(400)));
    }
}

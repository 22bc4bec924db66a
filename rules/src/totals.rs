//! Totals over GPUs and hosts, with the number of GPUs they cover. Missing values are left out, not taken as
//! zero.

use crate::text;
use nodeglass_protocol::picture::GpuPicture;
use nodeglass_protocol::{GpuField, HostField, Row};

/// Totals over several GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Number of GPUs.
    pub gpus: usize,
    /// Number of GPUs that are left out: their values are stale, or they cannot be read.
    pub excluded: usize,
    /// Whether the values are those at the end of a job.
    pub at_end: bool,
    /// Sum of utilisations in %, and their number.
    util: (u64, u64),
    /// Memory used and in total, in bytes.
    pub mem: Usage,
    /// Power and limits in W.
    pub power: Usage,
    /// The highest temperature, in °C.
    pub hottest_c: Option<u64>,
}

/// A used amount and its maximum, of those that report the amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The used amount; `None` if unknown.
    pub used: Option<u64>,
    /// The maximum; `None` if it is unknown for any of them, because the fraction would look too large.
    pub capacity: Option<u64>,
    /// Number of those that report the amount.
    pub reporting: usize,
}

impl Usage {
    /// Adds a reading and its maximum, either of which may be missing.
    fn add(&mut self, used: Option<u64>, capacity: Option<u64>) {
        let Some(used) = used else { return };
        let sum = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.saturating_add(b));
        self.capacity = if self.reporting == 0 { capacity } else { sum(self.capacity, capacity) };
        self.used = sum(self.used.or(Some(0)), Some(used));
        self.reporting += 1;
    }
}

impl Totals {
    /// Adds a GPU; an unreadable GPU counts as left out.
    pub fn add(&mut self, gpu: &GpuPicture) {
        if gpu.fault.is_some() {
            return self.leave_out(1);
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

    /// Counts GPUs without current values: they are stale, or cannot be read.
    pub fn leave_out(&mut self, count: usize) {
        self.gpus = self.gpus.saturating_add(count);
        self.excluded = self.excluded.saturating_add(count);
    }

    /// Returns how many GPUs the totals cover: `16`, or `12 of 16` if some are left out.
    pub fn counted(&self) -> String {
        fraction(self.gpus - self.excluded, self.gpus)
    }

    /// Returns how many of how many GPUs the totals cover, if some are left out and some are not.
    pub fn partial(&self) -> Option<(usize, usize)> {
        let counted = self.gpus - self.excluded;
        (self.excluded > 0 && counted > 0).then_some((counted, self.gpus))
    }

    /// Returns the title of the mean utilisation, which the vendor of the devices calls `name`.
    pub fn util_title(&self, name: &str) -> String {
        let when = if self.at_end { " at the end" } else { "" };
        match (self.gpus, self.util.1 as usize) {
            (0 | 1, _) | (_, 0) => format!("{name}{when}"),
            (all, count) => format!("{name}{when}, mean of {}", fraction(count, all)),
        }
    }

    /// Returns the title of one of its sums, with the number of GPUs that report it, unless all do:
    /// `Power, 5 of 9 GPUs`.
    pub fn usage_title(&self, name: &str, usage: Usage) -> String {
        match usage.reporting {
            0 => name.to_owned(),
            count if count == self.gpus => name.to_owned(),
            count => format!("{name}, {} GPUs", fraction(count, self.gpus)),
        }
    }

    /// Returns the mean utilisation in %, of the GPUs that report it.
    pub fn util_pct(&self) -> Option<u64> {
        (self.util.1 > 0).then(|| (self.util.0 + self.util.1 / 2) / self.util.1)
    }
}

/// A number of all: `5 of 9`, or `9`.
fn fraction(count: usize, all: usize) -> String {
    let [count, all] = [count, all].map(|number| text::grouped(number as u64));
    if count == all { all } else { format!("{count} of {all}") }
}

/// Totals over several hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostTotals {
    cpu: (u64, u64),
    /// Memory used and in total, in bytes.
    pub mem: Usage,
}

impl HostTotals {
    /// Adds a host.
    pub fn add(&mut self, row: &Row<HostField>) {
        if let Some(cpu) = row.value(HostField::Cpu) {
            self.cpu = (self.cpu.0 + cpu, self.cpu.1 + 1);
        }
        self.mem.add(row.value(HostField::MemUsed), row.value(HostField::MemTotal));
    }

    /// Returns the mean CPU use in %.
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
    fn a_gpu_without_a_reading_does_not_lower_the_mean() {
        let totals = totals(&[gpu(Some(90)), gpu(None), gpu(Some(95))]);
        assert_eq!((totals.gpus, totals.util_pct()), (3, Some(93)));
    }

    #[test]
    fn stale_values_are_left_out_and_counted() {
        let mut totals = totals(&[gpu(Some(90))]);
        assert_eq!(totals.counted(), "1");
        totals.leave_out(1);
        assert_eq!((totals.util_pct(), totals.counted().as_str()), (Some(90), "1 of 2"));
        assert_eq!(totals.partial(), Some((1, 2)));
        let none = Totals { gpus: 2, excluded: 2, ..Totals::default() };
        assert_eq!([none.partial(), super::Totals::default().partial()], [None, None]);
    }

    #[test]
    fn totals_of_an_ended_job_are_those_of_its_end() {
        let title = |gpus: usize, at_end| {
            let all = totals(&vec![gpu(Some(90)); gpus]);
            Totals { at_end, ..all }.util_title("Utilisation")
        };
        assert_eq!([title(1, false), title(8, false)], ["Utilisation", "Utilisation, mean of 8"]);
        assert_eq!(
            [title(1, true), title(8, true)],
            ["Utilisation at the end", "Utilisation at the end, mean of 8"]
        );
    }

    #[test]
    fn a_sum_states_how_many_gpus_it_covers_unless_it_is_all() {
        let mut drawing = gpu(Some(90));
        drawing.row.set(GpuField::Power, Cell::steps(300));
        let totals = totals(&[drawing.clone(), drawing, gpu(None)]);
        assert_eq!(totals.usage_title("Power", totals.power), "Power, 2 of 3 GPUs");
        assert_eq!(totals.usage_title("GPU memory", totals.mem), "GPU memory");
        assert_eq!(totals.util_title("Utilisation"), "Utilisation, mean of 2 of 3");
    }

    #[test]
    fn without_data_there_is_no_total_rather_than_zero() {
        let totals = totals(&[gpu(None)]);
        assert_eq!((totals.util_pct(), totals.mem.used, totals.power.capacity), (None, None, None));
    }

    #[test]
    fn the_last_values_of_a_lost_gpu_are_left_out() {
        let lost = GpuPicture { fault: Some("GPU is lost".into()), ..gpu(Some(100)) };
        assert_eq!(totals(&[gpu(Some(10)), lost]).util_pct(), Some(10));
    }

    #[test]
    fn an_amount_without_a_maximum_has_no_fraction() {
        let mut usage = Usage::default();
        usage.add(Some(300), None);
        assert_eq!((usage.used, usage.capacity), (Some(300), None));
        usage.add(Some(100), Some(400));
        assert_eq!(
            (usage.used, usage.capacity, usage.reporting),
            (Some(400), None, 2),
            "nor has a sum with one"
        );
        usage.add(None, Some(400));
        assert_eq!(usage.reporting, 2);
    }
}

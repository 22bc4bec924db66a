//! Machines without a listed job by group, and how many of their GPUs are busy.

use crate::domain::health;
use crate::domain::ownership;
use crate::domain::severity::Severity;
use crate::domain::text;
use nodeglass_protocol::GpuField;
use nodeglass_protocol::picture::{GpuPicture, Link, NodePicture};
use std::cmp::Ordering;

/// Memory that a driver and its persistence daemon use of an idle GPU, in bytes.
const IDLE_MEM_BYTES: u64 = 1 << 30;

/// Number of busy GPUs. A GPU is busy if a process runs on it or more memory is in use than an idle driver needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuUse {
    /// GPUs that are in use.
    pub busy: usize,
    /// GPUs that are not.
    pub free: usize,
    /// GPUs of machines without current values, and such as cannot be read.
    pub unknown: usize,
}

impl GpuUse {
    /// Counts the GPUs of a machine, partitioned ones once.
    pub fn of(node: &NodePicture, now_ms: u64) -> Self {
        let mut counts = Self::default();
        let is_current = health::freshness(node, now_ms) == health::Freshness::Fresh;
        for gpu in ownership::counting_gpus(node, None) {
            match is_busy(gpu).filter(|_| is_current) {
                Some(true) => counts.busy += 1,
                Some(false) => counts.free += 1,
                None => counts.unknown += 1,
            }
        }
        counts
    }

    /// Adds the GPUs of another machine.
    pub fn add(&mut self, other: Self) {
        self.busy += other.busy;
        self.free += other.free;
        self.unknown += other.unknown;
    }

    /// Returns the numbers in words: `3 busy, 5 free`; empty without GPUs.
    pub fn sentence(&self) -> String {
        let unknown = (self.unknown > 0).then(|| format!("{} unknown", self.unknown));
        let known = (self.busy + self.free > 0).then(|| format!("{} busy, {} free", self.busy, self.free));
        known.into_iter().chain(unknown).collect::<Vec<_>>().join(", ")
    }
}

/// Returns whether a GPU is in use; `None` if neither its utilisation nor its memory is known.
fn is_busy(gpu: &GpuPicture) -> Option<bool> {
    let value = |field| gpu.row.value(field).filter(|_| gpu.fault.is_none());
    let by_util = value(GpuField::Util).map(|util| util > 0);
    let by_mem = value(GpuField::MemUsed).map(|used| used > IDLE_MEM_BYTES);
    match (by_util, by_mem) {
        (None, None) => None,
        (util, mem) => Some(util == Some(true) || mem == Some(true)),
    }
}

/// Totals of a group of machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTotals {
    /// Number of machines.
    pub machines: usize,
    /// Number of unreachable ones.
    pub down: usize,
    /// Their GPUs.
    pub gpus: GpuUse,
}

impl GroupTotals {
    /// Adds a machine.
    pub fn add(&mut self, node: &NodePicture, now_ms: u64) {
        self.machines += 1;
        self.down += usize::from(is_down(node));
        self.gpus.add(GpuUse::of(node, now_ms));
    }

    /// Returns the number of machines in words: `12 machines, 2 down`.
    pub fn machines_text(&self) -> String {
        let machines = text::count(self.machines, "machine", "machines");
        if self.down > 0 { format!("{machines}, {} down", self.down) } else { machines }
    }

    /// Returns the number of GPUs in words: `GPUs: 3 busy, 5 free`; empty without any.
    pub fn gpus_text(&self) -> String {
        let gpus = self.gpus.sentence();
        if gpus.is_empty() { gpus } else { format!("GPUs: {gpus}") }
    }
}

fn is_down(node: &NodePicture) -> bool {
    let failed = matches!(node.head.link, Link::Down { .. } | Link::Refused { .. } | Link::Silent);
    failed || matches!(node.head.link, Link::Connecting { failures: 1.. })
}

/// Returns the state in a machine's row in few words, empty if there is no problem. The attention list states the
/// cause of an unreachable machine.
pub fn state(node: &NodePicture, now_ms: u64) -> (Severity, String) {
    let health = health::for_node(node, now_ms);
    let words = match &node.head.no_gpu {
        Some(why) if health.severity == Severity::Pending => why.to_string(),
        _ if health.severity == Severity::Ok => String::new(),
        _ => health.label,
    };
    (health.severity, words)
}

/// Orders names as people do: `gpu2` before `gpu10`.
pub fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let (x, y) = (a.chars().next(), b.chars().next());
        let (Some(x), Some(y)) = (x, y) else { return x.is_some().cmp(&y.is_some()) };
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let (number_a, rest_a) = split_number(a);
            let (number_b, rest_b) = split_number(b);
            (a, b) = (rest_a, rest_b);
            number_a.len().cmp(&number_b.len()).then_with(|| number_a.cmp(number_b))
        } else {
            (a, b) = (&a[x.len_utf8()..], &b[y.len_utf8()..]);
            x.cmp(&y)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Splits off the digits at the beginning, without leading zeros.
fn split_number(text: &str) -> (&str, &str) {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(end);
    (number.trim_start_matches('0'), rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::field::Field as _;
    use nodeglass_protocol::{Cell, NodeName};

    fn gpu(util: Option<u32>, mem_gib: u64) -> GpuPicture {
        let mut gpu = GpuPicture::default();
        if let Some(util) = util {
            gpu.row.set(GpuField::Util, Cell::steps(util));
        }
        gpu.row.set(
            GpuField::MemUsed,
            Cell::steps(GpuField::MemUsed.metric().scale.steps(mem_gib << 30) as u32),
        );
        gpu
    }

    fn machine(gpus: Vec<GpuPicture>, link: Link) -> NodePicture {
        let mut node = NodePicture::new(NodeName::new("gpu1").unwrap());
        node.head.link = link;
        node.sampled_at_ms = Some(10_000);
        node.gpus = gpus;
        node
    }

    #[test]
    fn a_gpu_is_free_only_if_nothing_runs_and_little_memory_is_in_use() {
        let mut lost = gpu(Some(0), 0);
        lost.fault = Some("lost".into());
        let gpus = vec![gpu(Some(0), 0), gpu(Some(3), 0), gpu(Some(0), 40), gpu(None, 40), lost];
        let counts = GpuUse::of(&machine(gpus, Link::Live), 10_500);
        assert_eq!(counts, GpuUse { busy: 3, free: 1, unknown: 1 });
        assert_eq!(counts.sentence(), "3 busy, 1 free, 1 unknown");
    }

    #[test]
    fn gpus_of_a_machine_that_is_down_are_neither_busy_nor_free() {
        let down = Link::Down { reason: "no route to host".into(), retry_at_ms: 0 };
        let node = machine(vec![gpu(Some(0), 0)], down);
        let mut totals = GroupTotals::default();
        totals.add(&node, 60_000);
        totals.add(&machine(vec![gpu(Some(0), 0)], Link::Live), 10_500);
        assert_eq!(totals.machines_text(), "2 machines, 1 down");
        assert_eq!(totals.gpus_text(), "GPUs: 0 busy, 1 free, 1 unknown");
        assert_eq!(state(&node, 60_000), (Severity::Error, "down".to_owned()));
    }

    #[test]
    fn numbers_in_names_are_compared_as_numbers() {
        let mut names = ["gpu10", "gpu2", "gpu02", "b", "gpu1", "gpu"];
        names.sort_by(|a, b| natural_order(a, b));
        assert_eq!(names, ["b", "gpu", "gpu1", "gpu2", "gpu02", "gpu10"]);
    }
}

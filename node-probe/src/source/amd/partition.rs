//! Partitions of Instinct GPUs: each is a device of its own for SLURM and ROCm, but only the board has
//! attributes.

use super::gpu_metrics::GpuMetrics;
use super::kfd::KfdGpu;
use crate::source::drm::attribute;
use crate::source::drm::card::{self, Card, Partition};
use crate::source::drm::facts;
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::GpuSample;
use std::path::Path;

/// Maximum number of partitions of a GPU; currently 8.
const MAX_PARTITIONS: u32 = 64;

/// Returns the entries of cards: one for each partition of a divided one.
pub fn entries(root: &Path, cards: Vec<Card>) -> Vec<Card> {
    let modes: Vec<_> = cards.iter().map(mode).collect();
    let divided = modes.iter().filter(|mode| mode.as_deref().is_some_and(|mode| mode != "SPX")).count();
    let others = card::partition_cards(root);
    // All GPUs of a machine have as many.
    let by_card = u32::try_from(divided).ok().and_then(|divided| others.checked_div(divided));
    let count = |card: &Card, mode: Option<String>| match mode.as_deref() {
        Some("DPX") => 2,
        Some("TPX") => 3,
        Some("QPX") => 4,
        Some("CPX") => match KfdGpu::of(root, card.pci.as_deref(), None).partitions() {
            0 | 1 => by_card.unwrap_or(0).saturating_add(1),
            listed => listed,
        },
        _ => 1,
    };
    let entries = |(card, mode): (Card, Option<String>)| match count(&card, mode) {
        count @ 2..=MAX_PARTITIONS => card.divided(count),
        _ => vec![card],
    };
    cards.into_iter().zip(modes).flat_map(entries).collect()
}

/// Reads the compute mode without waking the GPU, which cannot be suspended while it is divided.
fn mode(card: &Card) -> Option<String> {
    attribute::read_text(&card.device.join("current_compute_partition")).ok()
}

/// Converts the readings of a GPU to the readings of a partition. Its memory is its share, as the driver grants it;
/// readings of the board belong to the first partition.
pub fn sample(whole: GpuSample, part: Partition, metrics: &GpuMetrics, used: Option<u64>) -> GpuSample {
    let number = usize::try_from(part.number).unwrap_or(usize::MAX);
    let known = |value: Option<u64>| value.map_or(Reading::Unsupported, Reading::Value);
    let base = if part.number == 0 { whole.clone() } else { facts::unsupported_sample() };
    GpuSample {
        util_pct: known(metrics.partition_pct.get(number).copied().flatten()),
        mem_util_pct: Reading::Unsupported,
        mem_used_bytes: known(used),
        mem_total_bytes: whole.mem_total_bytes.map(|bytes| bytes / u64::from(part.count.max(1))),
        host_mem_used_bytes: Reading::Unsupported,
        ..base
    }
}

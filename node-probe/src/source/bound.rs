//! Size limits of process lists, fair to each GPU, with a count of omitted entries.

use nodeglass_protocol::GpuUuid;
use nodeglass_protocol::probe::{GpuGap, ProcessGap};

/// Returns the largest number of entries per GPU with which at most `most` remain in total; GPUs
/// with few entries keep all of them.
pub fn fair_cap(counts: impl Iterator<Item = usize>, most: usize) -> usize {
    let mut counts: Vec<_> = counts.collect();
    counts.sort_unstable();
    let (mut left, mut sharing) = (most, counts.len());
    for count in counts {
        if count.saturating_mul(sharing) > left {
            return left / sharing;
        }
        left -= count;
        sharing -= 1;
    }
    usize::MAX
}

/// Records that processes of a GPU are missing; reasons are deduplicated, counts are added up.
pub fn note(gaps: &mut Vec<GpuGap>, gpu: &GpuUuid, gap: ProcessGap) {
    for known in gaps.iter_mut().filter(|known| known.gpu == *gpu) {
        match (&mut known.gap, &gap) {
            (ProcessGap::More(known), ProcessGap::More(more)) => {
                *known = known.saturating_add(*more);
                return;
            }
            (known, gap) if known == gap => return,
            _ => {}
        }
    }
    gaps.push(GpuGap { gpu: gpu.clone(), gap });
}

/// Truncates a list that is ordered by GPU to `cap` entries per GPU, and records the number
/// removed.
pub fn cut<T>(entries: &mut Vec<T>, gaps: &mut Vec<GpuGap>, cap: usize, gpu: impl Fn(&T) -> &GpuUuid) {
    for of_one in entries.chunk_by(|a, b| gpu(a) == gpu(b)) {
        if let Some(more) = of_one.len().checked_sub(cap).filter(|more| *more > 0) {
            note(gaps, gpu(&of_one[0]), ProcessGap::More(u32::try_from(more).unwrap_or(u32::MAX)));
        }
    }
    let (mut last, mut count): (Option<GpuUuid>, _) = (None, 0);
    entries.retain(|entry| {
        if last.as_ref() != Some(gpu(entry)) {
            (last, count) = (Some(gpu(entry).clone()), 0);
        }
        count += 1;
        count <= cap
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_fair_cap_is_as_large_as_possible(counts in prop::collection::vec(0usize..50, 0..9), most in 0usize..200) {
            let with = |cap: usize| counts.iter().map(|count| (*count).min(cap)).sum::<usize>();
            let cap = fair_cap(counts.iter().copied(), most);
            prop_assert!(with(cap) <= most);
            prop_assert!(cap == usize::MAX || with(cap + 1) > most);
        }
    }

    #[test]
    fn omitted_entries_are_counted_by_gpu() {
        let uuid = GpuUuid::new;
        let mut entries: Vec<_> = (0..9).map(|at| (uuid(if at < 2 { "A" } else { "B" }), at)).collect();
        let mut gaps = vec![GpuGap { gpu: uuid("B"), gap: ProcessGap::More(1) }];
        cut(&mut entries, &mut gaps, 3, |(gpu, _)| gpu);
        assert_eq!(entries.iter().map(|(_, at)| *at).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(gaps, [GpuGap { gpu: uuid("B"), gap: ProcessGap::More(5) }]);
    }
}

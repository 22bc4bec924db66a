//! History of one GPU or host in all tiers.

use super::accumulator::Accumulator;
use super::tier::{TIERS, Tier, TierSpec};
use nodeglass_protocol::range::Summary;
use nodeglass_protocol::{Cell, Field, Row};
use std::collections::BTreeMap;
use std::iter;
use std::marker::PhantomData;

/// The cells of a row at one time, in the order of [`Field::HISTORY`].
#[derive(Clone, Debug)]
pub(super) struct Moment {
    /// Sample time, by the relay's clock.
    pub(super) at_ms: u64,
    /// The cells.
    pub(super) cells: Box<[Cell]>,
}

/// History of a row of fields `F`.
#[derive(Debug)]
pub(super) struct RowHistory<F> {
    tiers: [Tier; TIERS.len()],
    /// The slot of each tier that is not complete.
    current: [Current; TIERS.len()],
    /// Number and summaries of the last complete slot of the finest tier.
    last_slot: Option<u64>,
    last_summaries: Vec<Option<Summary>>,
    /// Reused by [`RowHistory::advance`].
    scratch: Vec<Option<Summary>>,
    fields: PhantomData<F>,
}

/// A slot that is not complete.
#[derive(Clone, Debug, Default)]
struct Current {
    slot: u64,
    /// By field; empty before the first sample.
    accumulators: Box<[Accumulator]>,
}

impl<F> Default for RowHistory<F> {
    fn default() -> Self {
        Self {
            tiers: Default::default(),
            current: Default::default(),
            last_slot: None,
            last_summaries: Vec::new(),
            scratch: Vec::new(),
            fields: PhantomData,
        }
    }
}

impl<F: Field> RowHistory<F> {
    /// Adds the cells at `at_ms`. Slots since the last sample repeat its slot if they span at most `hold_ms`.
    pub(super) fn record(&mut self, at_ms: u64, hold_ms: u64, row: &Row<F>) {
        if self.current[0].accumulators.is_empty() {
            let current =
                |tier: TierSpec| Current { slot: at_ms / tier.step_ms, accumulators: Self::accumulators() };
            self.current = TIERS.map(current);
            self.continue_restored();
        }
        self.advance(0, at_ms / TIERS[0].step_ms, hold_ms);
        for (accumulator, field) in self.current[0].accumulators.iter_mut().zip(F::HISTORY) {
            accumulator.add(row.get(*field), field.metric().kind);
        }
    }

    /// Enters samples that are earlier than the newest one, oldest first. Slots that are complete keep what
    /// they have.
    pub(super) fn backfill(&mut self, moments: impl Iterator<Item = Moment> + Clone) {
        if self.current[0].accumulators.is_empty() {
            return;
        }
        for (tier, spec) in TIERS.iter().enumerate() {
            let mut slots: BTreeMap<u64, Box<[Accumulator]>> = BTreeMap::new();
            // What is in the incomplete slot of the finer tier comes up with it.
            let until_ms = match tier.checked_sub(1) {
                Some(finer) => self.current[finer].slot * TIERS[finer].step_ms,
                None => u64::MAX,
            };
            for moment in moments.clone().take_while(|moment| moment.at_ms < until_ms) {
                let accumulators =
                    slots.entry(moment.at_ms / spec.step_ms).or_insert_with(Self::accumulators);
                for ((accumulator, cell), field) in accumulators.iter_mut().zip(&moment.cells).zip(F::HISTORY)
                {
                    accumulator.add(*cell, field.metric().kind);
                }
            }
            let (current, complete) = (&mut self.current[tier], &mut self.tiers[tier]);
            if let Some((newest, _)) = slots.range(..current.slot).next_back() {
                complete.begin(*newest, F::HISTORY.len());
            }
            for (position, field) in F::HISTORY.iter().enumerate() {
                let kind = field.metric().kind;
                if let Some(late) = slots.get(&current.slot) {
                    current.accumulators[position].merge(&late[position], kind);
                }
                let earlier = slots.range(..current.slot);
                let summaries: Vec<_> =
                    earlier.filter_map(|(slot, late)| Some((*slot, late[position].summary(kind)?))).collect();
                complete.backfill(position, &summaries);
            }
        }
    }

    /// Completes the slots before `slot`. Allocates nothing but the space that encoded slots need.
    fn advance(&mut self, tier: usize, slot: u64, hold_ms: u64) {
        let complete = self.current[tier].slot;
        if slot <= complete {
            return;
        }
        let mut summaries = std::mem::take(&mut self.scratch);
        summaries.clear();
        let accumulators = self.current[tier].accumulators.iter().zip(F::HISTORY);
        summaries.extend(accumulators.map(|(accumulator, field)| accumulator.summary(field.metric().kind)));
        if tier == 0 {
            self.hold(complete, hold_ms);
        }
        self.tiers[tier].push(complete, &summaries);
        if tier == 0 {
            self.last_slot = Some(complete);
            std::mem::swap(&mut self.last_summaries, &mut summaries);
        }
        self.scratch = summaries;
        if let Some(coarser) = TIERS.get(tier + 1) {
            self.advance(tier + 1, complete * TIERS[tier].step_ms / coarser.step_ms, hold_ms);
            let (finer, coarser) = self.current.split_at_mut(tier + 1);
            let pairs = coarser[0].accumulators.iter_mut().zip(&finer[tier].accumulators);
            for ((sum, part), field) in pairs.zip(F::HISTORY) {
                sum.merge(part, field.metric().kind);
            }
        }
        self.current[tier].slot = slot;
        self.current[tier].accumulators.fill(Accumulator::default());
    }

    /// Repeats the last complete slot up to `slot` if that is a matter of slow but regular sampling.
    fn hold(&mut self, slot: u64, hold_ms: u64) {
        let Some(last) = self.last_slot else { return };
        let missed = slot.saturating_sub(last + 1);
        if missed.saturating_mul(TIERS[0].step_ms) <= hold_ms {
            (last + 1..slot).for_each(|held| self.tiers[0].push(held, &self.last_summaries));
        }
    }

    /// Enters a row that was restored while this one recorded. Slots that both have keep what was restored; of a longer
    /// slot in which the relay was restarted, each has a part.
    pub(super) fn merge_restored(&mut self, restored: Self) {
        for (tier, restored) in restored.tiers.into_iter().enumerate() {
            let recorded = std::mem::replace(&mut self.tiers[tier], restored);
            let merged = &mut self.tiers[tier];
            let newest = merged.newest_slot().filter(|_| tier > 0);
            if let Some(slot) = newest.filter(|slot| *slot < self.current[tier].slot) {
                let (before, after) = (merged.slot(slot), recorded.slot(slot));
                let parts = before.iter().zip(after.iter().chain(iter::repeat(&None)));
                let sum = |((before, after), field): ((&Option<Summary>, &Option<Summary>), &F)| {
                    let (mut sum, kind) = (Accumulator::default(), field.metric().kind);
                    before.iter().chain(after).for_each(|part| sum.add_summary(part, kind));
                    sum.summary(kind)
                };
                let sums: Vec<_> = parts.zip(F::HISTORY).map(sum).collect();
                merged.push(slot, &sums);
            }
            merged.merge(&recorded);
        }
        self.continue_restored();
    }

    /// Adds what is restored of the slots that are not complete, so that their completion does not replace it.
    fn continue_restored(&mut self) {
        for (current, tier) in self.current.iter_mut().zip(&self.tiers).skip(1) {
            let pairs = current.accumulators.iter_mut().zip(tier.slot(current.slot)).zip(F::HISTORY);
            for ((sum, restored), field) in pairs {
                restored.iter().for_each(|part| sum.add_summary(part, field.metric().kind));
            }
        }
    }

    /// The slots of a tier that are not complete, oldest first, with their summaries by field.
    pub(super) fn incomplete(&self, tier: usize) -> BTreeMap<u64, Box<[Option<Summary>]>> {
        let mut slots: BTreeMap<u64, Box<[Accumulator]>> = BTreeMap::new();
        for (finer, current) in self.current.iter().enumerate().take(tier + 1).rev() {
            let slot = current.slot * TIERS[finer].step_ms / TIERS[tier].step_ms;
            let sums = slots.entry(slot).or_insert_with(Self::accumulators);
            for ((sum, part), field) in sums.iter_mut().zip(&current.accumulators).zip(F::HISTORY) {
                sum.merge(part, field.metric().kind);
            }
        }
        let summary = |(sum, field): (&Accumulator, &F)| sum.summary(field.metric().kind);
        let summaries = |sums: Box<[Accumulator]>| sums.iter().zip(F::HISTORY).map(summary).collect();
        slots.into_iter().map(|(slot, sums)| (slot, summaries(sums))).collect()
    }

    fn accumulators() -> Box<[Accumulator]> {
        vec![Accumulator::default(); F::HISTORY.len()].into()
    }

    /// The tiers, finest first.
    pub(super) fn tiers(&self) -> &[Tier; TIERS.len()] {
        &self.tiers
    }

    /// The tiers, finest first.
    pub(super) fn tiers_mut(&mut self) -> &mut [Tier; TIERS.len()] {
        &mut self.tiers
    }

    /// When the newest slot began, in ms of the relay's clock.
    pub(super) fn newest_ms(&self) -> u64 {
        self.current[0].slot * TIERS[0].step_ms
    }

    /// Memory in bytes, approximately.
    pub(super) fn len(&self) -> usize {
        let current = F::HISTORY.len() * size_of::<Accumulator>() * TIERS.len();
        size_of::<Self>() + current + self.tiers.iter().map(Tier::len).sum::<usize>()
    }
}

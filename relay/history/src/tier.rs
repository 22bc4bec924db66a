//! One tier of a row: chunks of summaries with the same step length, all but the newest one encoded.

use nodeglass_protocol::range::{Summaries, Summary};
use nodeglass_protocol::trace::Trace;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Number of slots in a chunk; chunks begin at multiples of it. Larger ones would compress little better, and
/// the newest one is not compact.
const CHUNK: u64 = 120;
const _: () = assert!(CHUNK <= Trace::CAPACITY as u64);

/// Step length and age of a tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct TierSpec {
    /// Length of a slot in ms.
    pub(super) step_ms: u64,
    /// Time for which a slot is kept, in ms.
    pub(super) keep_ms: u64,
}

const HOUR_MS: u64 = 3_600_000;

/// All tiers, finest first; each step is a multiple of the one before. The last tier repeats the second one for a
/// fast answer over a week, and outlives it when memory is scarce.
pub(super) const TIERS: [TierSpec; 3] = [
    TierSpec { step_ms: 10_000, keep_ms: 6 * HOUR_MS },
    TierSpec { step_ms: 60_000, keep_ms: 7 * 24 * HOUR_MS },
    TierSpec { step_ms: 600_000, keep_ms: 7 * 24 * HOUR_MS },
];

/// Summaries of the fields of a row.
#[derive(Debug, Default)]
pub(super) struct Tier {
    sealed: VecDeque<Chunk>,
    /// Number of the newest chunk.
    open_number: u64,
    /// Its first slot.
    open_first: u64,
    /// Summaries of the newest chunk, by field.
    open: Vec<Summaries>,
}

/// An encoded chunk. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    number: u64,
    /// Number of the first slot with a summary.
    first: u64,
    /// End of each field's summaries in `bytes`.
    ends: Arc<[u32]>,
    bytes: Arc<[u8]>,
}

/// A part of a tier that is read outside of the event loop.
#[derive(Debug, Default)]
pub(super) struct TierPart {
    chunks: Vec<Chunk>,
    /// The selected fields of the newest chunk, if it is covered.
    open: Vec<Summaries>,
    /// Positions of the selected fields.
    fields: Vec<Option<usize>>,
}

impl Chunk {
    fn encode(number: u64, first: u64, fields: &[Summaries]) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(fields.len()));
        for summaries in fields {
            bytes = summaries.encode(bytes);
            ends.push(bytes.len() as u32);
        }
        Self { number, first, ends: ends.into(), bytes: bytes.into() }
    }

    /// The summaries of a field; empty if there are none.
    fn field(&self, position: usize) -> Summaries {
        let begin = position.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        let bytes = self.ends.get(position).and_then(|end| self.bytes.get(begin..*end as usize));
        bytes.and_then(Summaries::decode).unwrap_or_default()
    }

    fn decode(&self) -> Vec<Summaries> {
        (0..self.ends.len()).map(|position| self.field(position)).collect()
    }

    fn len(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.ends) + self.bytes.len() + 4 * size_of::<usize>()
    }
}

impl Tier {
    /// Appends the summaries of a slot, by field; a slot before the newest chunk is ignored.
    pub(super) fn push(&mut self, slot: u64, summaries: &[Option<Summary>]) {
        let number = slot / CHUNK;
        if self.open.is_empty() || number > self.open_number {
            self.open_chunk(number, slot, summaries.len());
        }
        if number == self.open_number {
            for (field, summary) in self.open.iter_mut().zip(summaries) {
                if let Some(summary) = summary {
                    field.push(slot, *summary);
                }
            }
        }
    }

    /// Begins a chunk with its first slot; what was the newest one is encoded.
    fn open_chunk(&mut self, number: u64, slot: u64, fields: usize) {
        if !self.open.is_empty() {
            self.sealed.push_back(Chunk::encode(self.open_number, self.open_first, &self.open));
        }
        (self.open_number, self.open_first) = (number, slot);
        self.open.fill_with(Summaries::default);
        self.open.resize_with(fields, Summaries::default);
    }

    /// Prepares an empty tier for [`Tier::backfill`] up to a slot.
    pub(super) fn begin(&mut self, slot: u64, fields: usize) {
        if self.open.is_empty() {
            (self.open_number, self.open_first) = (slot / CHUNK, slot);
            self.open.resize_with(fields, Summaries::default);
        }
    }

    /// Enters the summaries of earlier slots of a field, in order; slots that have a summary keep it.
    pub(super) fn backfill(&mut self, field: usize, summaries: &[(u64, Summary)]) {
        for late in summaries.chunk_by(|one, other| one.0 / CHUNK == other.0 / CHUNK) {
            let (first, number) = (late[0].0, late[0].0 / CHUNK);
            if number == self.open_number
                && let Some(known) = self.open.get_mut(field)
            {
                fill_gaps(known, late);
                self.open_first = self.open_first.min(first);
            } else if let Some(chunk) = self.sealed.iter_mut().rfind(|chunk| chunk.number == number) {
                let mut fields = chunk.decode();
                if let Some(known) = fields.get_mut(field) {
                    fill_gaps(known, late);
                }
                *chunk = Chunk::encode(number, chunk.first.min(first), &fields);
            } else if number < self.open_number {
                let mut fields = vec![Summaries::default(); self.open.len()];
                fill_gaps(&mut fields[field], late);
                let at = self.sealed.partition_point(|chunk| chunk.number < number);
                self.sealed.insert(at, Chunk::encode(number, first, &fields));
            }
        }
    }

    /// Enters the summaries of slots, by field and in order; slots that have some keep them.
    pub(super) fn restore(&mut self, fields: &[Vec<(u64, Summary)>]) {
        let slots = || fields.iter().flatten().map(|(slot, _)| *slot);
        let (Some(oldest), Some(newest)) = (slots().min(), slots().max()) else { return };
        for number in oldest / CHUNK..=newest / CHUNK {
            let of_chunk = |field: &'_ Vec<(u64, Summary)>| {
                let from = field.partition_point(|(slot, _)| slot / CHUNK < number);
                from..field.partition_point(|(slot, _)| slot / CHUNK <= number)
            };
            let first = fields.iter().filter_map(|field| Some(field[of_chunk(field)].first()?.0)).min();
            let Some(first) = first else { continue };
            if self.open.is_empty() || number > self.open_number {
                self.open_chunk(number, first, fields.len());
            }
            for (position, field) in fields.iter().enumerate() {
                self.backfill(position, &field[of_chunk(field)]);
            }
        }
    }

    /// Enters what another tier of the same row has; slots that have summaries keep them.
    pub(super) fn merge(&mut self, other: &Self) {
        let known = |fields: Vec<Summaries>| fields.iter().map(known_slots).collect::<Vec<_>>();
        other.sealed.iter().for_each(|chunk| self.restore(&known(chunk.decode())));
        self.restore(&other.open.iter().map(known_slots).collect::<Vec<_>>());
    }

    /// The summaries of a slot, by field.
    pub(super) fn slot(&self, slot: u64) -> Vec<Option<Summary>> {
        let of_slot = |fields: &[Summaries]| {
            let summary = |field: &Summaries| field.since(slot).find(|(at, _)| *at == slot)?.1;
            fields.iter().map(summary).collect()
        };
        let number = slot / CHUNK;
        if number == self.open_number {
            return of_slot(&self.open);
        }
        let chunk = self.sealed.iter().rfind(|chunk| chunk.number == number);
        chunk.map(|chunk| of_slot(&chunk.decode())).unwrap_or_default()
    }

    /// Number of the newest slot with a summary.
    pub(super) fn newest_slot(&self) -> Option<u64> {
        let newest = |fields: &[Summaries]| {
            fields
                .iter()
                .filter_map(|field| field.since(0).filter(|(_, summary)| summary.is_some()).last())
                .map(|(slot, _)| slot)
                .max()
        };
        newest(&self.open).or_else(|| newest(&self.sealed.back()?.decode()))
    }

    /// Number of the oldest slot with a summary.
    pub(super) fn oldest_slot(&self) -> Option<u64> {
        let open = (!self.open.is_empty()).then_some(self.open_first);
        self.sealed.front().map(|chunk| chunk.first).or(open)
    }

    /// Drops chunks that end before a slot.
    pub(super) fn expire(&mut self, before: u64) {
        while self.sealed.front().is_some_and(|chunk| (chunk.number + 1) * CHUNK <= before) {
            self.sealed.pop_front();
        }
        if !self.open.is_empty() && (self.open_number + 1) * CHUNK <= before {
            *self = Self::default();
        }
    }

    /// Drops the oldest encoded chunk and returns its size in bytes.
    pub(super) fn drop_oldest(&mut self) -> Option<usize> {
        self.sealed.pop_front().map(|chunk| chunk.len())
    }

    /// Slot at which the oldest encoded chunk ends.
    pub(super) fn oldest_end(&self) -> Option<u64> {
        self.sealed.front().map(|chunk| (chunk.number + 1) * CHUNK)
    }

    /// Returns whether there is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.sealed.is_empty() && self.open.is_empty()
    }

    /// Memory in bytes, approximately.
    pub(super) fn len(&self) -> usize {
        let open = self.open.iter().map(Summaries::held_bytes);
        self.sealed.iter().map(Chunk::len).sum::<usize>() + open.sum::<usize>()
    }

    /// Selects the chunks that overlap some slots, and `fields` of the newest one.
    pub(super) fn part(&self, slots: Range<u64>, fields: &[Option<usize>]) -> TierPart {
        let numbers = slots.start / CHUNK..=slots.end / CHUNK;
        let chunks = self.sealed.iter().filter(|chunk| numbers.contains(&chunk.number));
        let is_open = numbers.contains(&self.open_number) && !self.open.is_empty();
        let open =
            |field: &Option<usize>| field.and_then(|at| self.open.get(at)).cloned().unwrap_or_default();
        let open = if is_open { fields.iter().map(open).collect() } else { Vec::new() };
        TierPart { chunks: chunks.cloned().collect(), open, fields: fields.to_vec() }
    }
}

impl TierPart {
    /// Visits the summaries of a selected field from a slot on, oldest first.
    pub(super) fn each(&self, selected: usize, from: u64, mut visit: impl FnMut(u64, Summary)) {
        let mut read = |summaries: &Summaries| {
            for (slot, summary) in summaries.since(from) {
                if let Some(summary) = summary {
                    visit(slot, summary);
                }
            }
        };
        if let Some(Some(field)) = self.fields.get(selected) {
            self.chunks.iter().for_each(|chunk| read(&chunk.field(*field)));
        }
        if let Some(open) = self.open.get(selected) {
            read(open);
        }
    }
}

/// The slots of a field that have a summary.
fn known_slots(field: &Summaries) -> Vec<(u64, Summary)> {
    field.since(0).filter_map(|(slot, summary)| Some((slot, summary?))).collect()
}

fn fill_gaps(known: &mut Summaries, late: &[(u64, Summary)]) {
    let Some((first, _)) = late.first() else { return };
    if known.newest_slot().is_none_or(|newest| newest < *first) {
        late.iter().for_each(|(slot, summary)| known.push(*slot, *summary));
        return;
    }
    let taken: BTreeSet<u64> =
        known.since(*first).filter_map(|(slot, summary)| summary.map(|_| slot)).collect();
    let late: Vec<_> = late.iter().filter(|(slot, _)| !taken.contains(slot)).copied().collect();
    known.extend(&late);
}

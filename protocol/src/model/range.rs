//! Long-term history of a topic's nodes on one time grid: minimum, mean and maximum of each slot.

use super::trace::{Trace, TracePoint};
use crate::live::Topic;
use crate::{Cell, GpuUuid, NodeName, Text};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;

/// Requests long-term history of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeQuery {
    /// The topic.
    pub topic: Topic,
    /// Start, in ms of the relay's clock.
    pub from_ms: u64,
    /// End, in ms of the relay's clock.
    pub to_ms: u64,
    /// Wanted length of a slot in ms; the response may have longer ones.
    pub step_ms: u64,
    /// Fields of GPUs by name; unknown ones are ignored.
    pub gpu_fields: Vec<Text>,
    /// Fields of hosts by name; unknown ones are ignored.
    pub host_fields: Vec<Text>,
}

impl RangeQuery {
    /// Age of its start in ms up to which the relay answers it from its own history: a week, whose first step may begin
    /// two hours earlier.
    pub const OWN_HISTORY_MS: u64 = (7 * 24 + 2) * 3_600_000;

    /// Returns whether a range from `from_ms` on is read from a long-term storage; `now_ms` by the relay's clock as well.
    pub fn needs_storage(from_ms: u64, now_ms: u64) -> bool {
        now_ms.saturating_sub(from_ms) > Self::OWN_HISTORY_MS
    }
}

/// Response to a [`RangeQuery`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RangeHistory {
    /// Length of a slot in ms.
    pub step_ms: u64,
    /// Beginning of the history that is kept of these nodes, in ms of the relay's clock.
    pub begins_ms: Option<u64>,
    /// The topic's nodes.
    pub nodes: Vec<NodeRange>,
    /// Reason for which the long-term storage could not be read, as a complete sentence; there are no nodes then.
    #[serde(default)]
    pub problem: Option<Text>,
}

/// Long-term history of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeRange {
    /// The node.
    pub node: NodeName,
    /// Its GPUs.
    pub gpus: Vec<GpuRange>,
    /// Summaries in the order of [`RangeQuery::host_fields`].
    pub host: Vec<Summaries>,
}

/// Long-term history of one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuRange {
    /// The GPU.
    pub uuid: GpuUuid,
    /// Summaries in the order of [`RangeQuery::gpu_fields`].
    pub fields: Vec<Summaries>,
}

/// Summary of a cell in one slot; all three values are equal if there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Mean of the values; of a bit mask, all bits that were set.
    pub mean: Cell,
    /// Lowest value; of a bit mask, the bits that were always set.
    pub min: Cell,
    /// Highest value; of a bit mask, all bits that were set.
    pub max: Cell,
}

/// Summaries of one cell over at most [`Trace::CAPACITY`] slots. The slots of the traces are as long as the
/// range says, instead of [`Trace::STEP_MS`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "AllTraces<'static>")]
pub struct Summaries {
    mean: Trace,
    /// Lowest and highest values. `None` while they equal the mean in all slots: a node that nobody watches has one
    /// sample per slot, and a relay holds three tiers of every field of each GPU.
    extremes: Option<Box<[Trace; 2]>>,
}

/// The form of summaries on the wire and on disk.
#[derive(Serialize, Deserialize)]
struct AllTraces<'a> {
    mean: Cow<'a, Trace>,
    min: Cow<'a, Trace>,
    max: Cow<'a, Trace>,
}

impl Summary {
    /// Every sample had this cell.
    pub const fn of(cell: Cell) -> Self {
        Self { mean: cell, min: cell, max: cell }
    }
}

impl Summaries {
    /// Appends the summary of a slot, or overwrites it; skipped slots are gaps.
    pub fn push(&mut self, slot: u64, summary: Summary) {
        let at_ms = slot.saturating_mul(Trace::STEP_MS);
        self.hold_extremes_of(&[(slot, summary)]);
        self.mean.push(at_ms, summary.mean, 0);
        if let Some([min, max]) = self.extremes.as_deref_mut() {
            min.push(at_ms, summary.min, 0);
            max.push(at_ms, summary.max, 0);
        }
    }

    /// Equivalent to [`Summaries::push`] of each, at about the cost of one out-of-order insertion.
    pub fn extend(&mut self, summaries: &[(u64, Summary)]) {
        let points = |cell: fn(&Summary) -> Cell| {
            summaries.iter().map(move |(slot, summary)| TracePoint {
                at_ms: slot.saturating_mul(Trace::STEP_MS),
                hold_ms: 0,
                cell: cell(summary),
            })
        };
        self.hold_extremes_of(summaries);
        self.mean.extend(points(|summary| summary.mean));
        if let Some([min, max]) = self.extremes.as_deref_mut() {
            min.extend(points(|summary| summary.min));
            max.extend(points(|summary| summary.max));
        }
    }

    /// Holds the extremes separately from now on if the extremes of a summary differ from its mean.
    fn hold_extremes_of(&mut self, summaries: &[(u64, Summary)]) {
        let differs = |summary: &Summary| summary.min != summary.mean || summary.max != summary.mean;
        if self.extremes.is_none() && summaries.iter().any(|(_, summary)| differs(summary)) {
            self.extremes = Some(Box::new([self.mean.clone(), self.mean.clone()]));
        }
    }

    fn extremes(&self) -> [&Trace; 2] {
        self.extremes.as_deref().map_or([&self.mean; 2], |[min, max]| [min, max])
    }

    /// Moves all slots later by a number of them, or earlier if it is negative; summaries that would begin before the
    /// clock does are dropped.
    pub fn shift(&mut self, slots: i64) {
        self.mean.shift(slots);
        self.extremes.as_deref_mut().into_iter().flatten().for_each(|trace| trace.shift(slots));
    }

    /// Number of the newest slot; `None` if there are no slots.
    pub fn newest_slot(&self) -> Option<u64> {
        self.mean.newest_slot()
    }

    /// Iterates over the slots from `slot` on, oldest first; `None` is a gap.
    pub fn since(&self, slot: u64) -> impl Iterator<Item = (u64, Option<Summary>)> + '_ {
        let at_ms = slot.saturating_mul(Trace::STEP_MS);
        let [min, max] = self.extremes();
        let rest = min.since(at_ms).zip(max.since(at_ms));
        self.mean.since(at_ms).zip(rest).map(|((at_ms, mean), ((_, min), (_, max)))| {
            let summary = mean.zip(min).zip(max).map(|((mean, min), max)| Summary { mean, min, max });
            (at_ms / Trace::STEP_MS, summary)
        })
    }

    /// Appends the binary encoding to `bytes`.
    pub fn encode(&self, bytes: Vec<u8>) -> Vec<u8> {
        postcard::to_extend(self, bytes).expect("a vector grows")
    }

    /// Decodes what [`Summaries::encode`] appended.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }

    /// Returns whether there are no slots.
    pub fn is_empty(&self) -> bool {
        self.mean.is_empty()
    }

    /// Approximate memory in bytes.
    pub fn held_bytes(&self) -> usize {
        let extremes = self.extremes.as_deref().into_iter().flatten();
        let extremes = extremes.map(|trace| size_of::<Trace>() + trace.encoded_len());
        size_of::<Self>() + self.mean.encoded_len() + extremes.sum::<usize>()
    }
}

impl PartialEq for Summaries {
    fn eq(&self, other: &Self) -> bool {
        self.mean == other.mean && self.extremes() == other.extremes()
    }
}

impl Eq for Summaries {}

impl From<AllTraces<'_>> for Summaries {
    fn from(AllTraces { mean, min, max }: AllTraces<'_>) -> Self {
        let extremes = (min != mean || max != mean).then(|| Box::new([min, max].map(Cow::into_owned)));
        Self { mean: mean.into_owned(), extremes }
    }
}

impl Serialize for Summaries {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [min, max] = self.extremes().map(Cow::Borrowed);
        AllTraces { mean: Cow::Borrowed(&self.mean), min, max }.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(mean: u32, min: u32, max: u32) -> Summary {
        Summary { mean: Cell::steps(mean), min: Cell::steps(min), max: Cell::steps(max) }
    }

    #[test]
    fn a_week_is_the_relays_own_even_if_its_first_step_begins_earlier() {
        let now_ms = 20 * 86_400_000;
        let needs_storage = |from_ms| RangeQuery::needs_storage(from_ms, now_ms);
        assert!(!needs_storage(now_ms - RangeQuery::OWN_HISTORY_MS) && !needs_storage(u64::MAX));
        assert!(needs_storage(now_ms - RangeQuery::OWN_HISTORY_MS - 1) && needs_storage(0));
    }

    #[test]
    fn slots_keep_their_numbers_and_gaps_stay_gaps() {
        let mut summaries = Summaries::default();
        summaries.push(1_000_000, summary(5, 1, 9));
        summaries.push(1_000_003, summary(6, 2, 8));
        summaries.push(1_000_004, summary(7, 7, 7));
        let slots: Vec<_> = summaries.since(1_000_001).collect();
        let expected = [None, None, Some(summary(6, 2, 8)), Some(summary(7, 7, 7))];
        assert_eq!(slots, (1_000_001..).zip(expected).collect::<Vec<_>>());
    }

    /// Segments on disk and frames have three traces.
    #[test]
    fn extremes_are_held_only_where_they_differ_and_encoded_always() {
        let mut summaries = Summaries::default();
        (3..6).for_each(|slot| summaries.push(slot, summary(7, 7, 7)));
        assert!(summaries.extremes.is_none());
        let mean = postcard::to_extend(&summaries.mean, Vec::new()).unwrap();
        assert_eq!(summaries.encode(Vec::new()), mean.repeat(3));
        let decoded = Summaries::decode(&summaries.encode(Vec::new())).unwrap();
        assert!(decoded.extremes.is_none() && decoded == summaries);
        summaries.push(6, summary(7, 1, 9));
        let slots: Vec<_> = summaries.since(0).filter_map(|(_, summary)| summary).collect();
        assert_eq!(slots, [summary(7, 7, 7), summary(7, 7, 7), summary(7, 7, 7), summary(7, 1, 9)]);
        assert_eq!(Summaries::decode(&summaries.encode(Vec::new())), Some(summaries.clone()));
        let json = serde_json::to_value(&summaries).unwrap();
        assert_eq!(serde_json::from_value::<Summaries>(json).unwrap(), summaries);
        summaries.shift(-1);
        assert_eq!(summaries.since(5).next(), Some((5, Some(summary(7, 1, 9)))));
    }

    #[test]
    fn late_summaries_are_entered_at_their_slot() {
        let (mut late, mut in_order) = (Summaries::default(), Summaries::default());
        let all: Vec<_> = (3..9).map(|slot| (slot, summary(slot as u32, 1, 9))).collect();
        all.iter().for_each(|(slot, summary)| in_order.push(*slot, *summary));
        late.push(3, all[0].1);
        late.push(8, all[5].1);
        late.extend(&all[1..5]);
        assert_eq!(late, in_order);
    }
}

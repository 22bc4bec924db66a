//! Answers queries for a range: selects the tier, and reads the encoded chunks outside of the event loop.

use super::LongHistory;
use super::accumulator::Accumulator;
use super::row::RowHistory;
use super::tier::{TIERS, TierPart};
use nodeglass_protocol::field::ValueKind;
use nodeglass_protocol::range::{GpuRange, NodeRange, RangeHistory, RangeQuery, Summaries, Summary};
use nodeglass_protocol::trace::Trace;
use nodeglass_protocol::{Field, GpuField, GpuUuid, HostField, NodeName, Text};

/// Possible step lengths of a response, in ms, beginning with the finest tier.
const STEPS_MS: [u64; 11] =
    [10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000];
/// Length of a slot of the finest tier, in ms.
pub(super) const TIER_MS: u64 = TIERS[0].step_ms;
/// Maximum number of fields of a kind of row in a query, and of fields of all its GPUs together.
pub(super) const MAX_FIELDS: usize = 32;
pub(super) const MAX_GPU_FIELDS: usize = 16 * 1024;

/// A node of a query, reduced to the parts that the viewer may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisibleNode {
    /// The node.
    pub name: NodeName,
    /// Its GPUs, and when each is visible.
    pub gpus: Vec<(GpuUuid, Span)>,
    /// When its host is visible, if at all.
    pub host: Option<Span>,
}

/// A span of time in ms of the relay's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First moment.
    pub from_ms: u64,
    /// Last moment.
    pub to_ms: u64,
}

impl Span {
    /// All of time.
    pub const ALL: Self = Self { from_ms: 0, to_ms: u64::MAX };
    /// No time at all.
    pub const NONE: Self = Self { from_ms: u64::MAX, to_ms: 0 };

    /// Returns whether a moment is in it.
    pub fn contains(self, at_ms: u64) -> bool {
        (self.from_ms..=self.to_ms).contains(&at_ms)
    }

    /// Ends with the last slot of a tier that is entirely in it: the next one may hold what the viewer may not see.
    fn whole(self, tier: usize) -> Self {
        let step_ms = TIERS[tier].step_ms;
        let end_ms = self.to_ms.saturating_add(1) / step_ms * step_ms;
        if self.to_ms == u64::MAX { self } else { Self { to_ms: end_ms.saturating_sub(1), ..self } }
    }

    pub(super) fn overlap(self, other: Self) -> Self {
        Self { from_ms: self.from_ms.max(other.from_ms), to_ms: self.to_ms.min(other.to_ms) }
    }
}

/// The data that a query selects, detached from the history.
#[derive(Debug)]
pub struct StoredSource {
    step_ms: u64,
    tier_ms: u64,
    begins_ms: Option<u64>,
    nodes: Vec<NodeSource>,
    /// Whether some of the requested fields are not selected, as there are too many rows.
    leaves_out_fields: bool,
}

#[derive(Debug)]
struct NodeSource {
    name: NodeName,
    gpus: Vec<(GpuUuid, RowSource)>,
    host: RowSource,
}

/// The selected fields of a row.
#[derive(Debug, Default)]
struct RowSource {
    span: Option<Span>,
    part: TierPart,
    /// Summaries of slots that are not complete, by selected field.
    incomplete: Vec<(u64, Vec<Option<Summary>>)>,
    kinds: Vec<ValueKind>,
}

impl LongHistory {
    /// Selects what a query asks for of some nodes; a field that has no history yields empty summaries.
    pub fn select(&self, query: &RangeQuery, nodes: &[VisibleNode]) -> StoredSource {
        let range = Span { from_ms: query.from_ms.min(query.to_ms), to_ms: query.to_ms.max(query.from_ms) };
        let begins_ms = (0..TIERS.len()).map(|tier| self.begins_ms(tier, nodes)).collect::<Vec<_>>();
        let (tier, step_ms) = tier_and_step(range, query.step_ms, &begins_ms);
        let gpus = nodes.iter().map(|node| node.gpus.len()).sum::<usize>().max(1);
        let gpu_fields = positions::<GpuField>(&query.gpu_fields, MAX_GPU_FIELDS / gpus);
        let host_fields = positions::<HostField>(&query.host_fields, MAX_GPU_FIELDS / nodes.len().max(1));
        let source = |visible: &VisibleNode| {
            let node = self.nodes.get(&visible.name);
            let gpu = |(uuid, visible): &(GpuUuid, Span)| {
                let row = node.and_then(|node| node.gpus.get(uuid));
                let selected =
                    row.map(|row| select_row(row, tier, range.overlap(visible.whole(tier)), &gpu_fields));
                (uuid.clone(), selected.unwrap_or_default())
            };
            let host = node.zip(visible.host).map(|(node, visible)| {
                select_row(&node.host, tier, range.overlap(visible.whole(tier)), &host_fields)
            });
            let host = host.unwrap_or_default();
            NodeSource { name: visible.name.clone(), gpus: visible.gpus.iter().map(gpu).collect(), host }
        };
        StoredSource {
            leaves_out_fields: gpu_fields.len() < query.gpu_fields.len()
                || host_fields.len() < query.host_fields.len(),
            step_ms,
            tier_ms: TIERS[tier].step_ms,
            begins_ms: begins_ms.into_iter().flatten().min(),
            nodes: nodes.iter().map(source).collect(),
        }
    }

    /// When a tier of some nodes begins, in ms of the relay's clock.
    fn begins_ms(&self, tier: usize, nodes: &[VisibleNode]) -> Option<u64> {
        let known = nodes.iter().filter_map(|visible| Some((visible, self.nodes.get(&visible.name)?)));
        let slots = known.flat_map(|(visible, node)| {
            let begins_ms = move |slot: u64, visible: Span| visible.from_ms.max(slot * TIERS[tier].step_ms);
            let host = visible
                .host
                .and_then(|visible| Some(begins_ms(node.host.tiers()[tier].oldest_slot()?, visible)));
            let gpus = visible.gpus.iter().filter_map(move |(uuid, visible)| {
                Some(begins_ms(node.gpus.get(uuid)?.tiers()[tier].oldest_slot()?, *visible))
            });
            gpus.chain(host)
        });
        slots.min()
    }
}

impl StoredSource {
    /// Returns whether some of the requested fields are missing, because the query selects too many rows.
    pub fn leaves_out_fields(&self) -> bool {
        self.leaves_out_fields
    }

    /// The number of values that the response has if each slot has a minimum, a mean and a maximum.
    pub fn max_value_count(&self, query: &RangeQuery) -> usize {
        let rows =
            self.nodes.iter().flat_map(|node| node.gpus.iter().map(|(_, row)| row).chain([&node.host]));
        max_value_count(query, self.step_ms, rows.map(|row| row.kinds.len()).sum())
    }
}

/// The number of values of some fields if each slot has a minimum, a mean and a maximum.
pub(super) fn max_value_count(query: &RangeQuery, step_ms: u64, fields: usize) -> usize {
    let step_ms = step_ms.max(1);
    let steps = (query.to_ms / step_ms).saturating_sub(query.from_ms / step_ms).saturating_add(1);
    fields.saturating_mul(usize::try_from(steps.saturating_mul(3)).unwrap_or(usize::MAX))
}

/// The positions of at most `most` named fields in [`Field::HISTORY`].
fn positions<F: Field>(names: &[Text], most: usize) -> Vec<Option<usize>> {
    let position = |name: &Text| {
        let field = F::from_name(name.as_str())?;
        F::HISTORY.iter().position(|known| *known == field)
    };
    names.iter().take(most.clamp(1, MAX_FIELDS)).map(position).collect()
}

fn select_row<F: Field>(row: &RowHistory<F>, tier: usize, span: Span, fields: &[Option<usize>]) -> RowSource {
    let step_ms = TIERS[tier].step_ms;
    let kind = |field: &Option<usize>| field.map_or(ValueKind::Gauge, |at| F::HISTORY[at].metric().kind);
    let selected = |summaries: &[Option<Summary>]| {
        fields.iter().map(|field| summaries.get((*field)?).copied().flatten()).collect()
    };
    RowSource {
        span: Some(span),
        part: row.tiers()[tier].part(span.from_ms / step_ms..span.to_ms / step_ms, fields),
        incomplete: row.incomplete(tier).iter().map(|(slot, all)| (*slot, selected(all))).collect(),
        kinds: fields.iter().map(kind).collect(),
    }
}

/// Chooses the tier of a response and the length of its slots: the wanted one, or a longer one if the range
/// would have too many slots or begins before finer steps are kept.
fn tier_and_step(range: Span, wanted_ms: u64, begins_ms: &[Option<u64>]) -> (usize, u64) {
    let shortest_ms = (range.to_ms - range.from_ms).div_ceil(Trace::CAPACITY as u64 - 1).max(wanted_ms);
    let fits = |step_ms: &&u64| **step_ms >= shortest_ms;
    let step_ms = STEPS_MS.iter().find(fits).copied().unwrap_or(STEPS_MS[STEPS_MS.len() - 1]);
    let divides = |tier: &usize| step_ms.is_multiple_of(TIERS[*tier].step_ms);
    let mut tier = (0..TIERS.len()).rev().find(divides).unwrap_or(0);
    while tier + 1 < TIERS.len() {
        let coarser = &TIERS[tier + 1];
        let lacks_beginning = match (begins_ms[tier], begins_ms[tier + 1]) {
            (Some(begins), Some(coarser_begins)) => {
                begins > range.from_ms.saturating_add(coarser.step_ms)
                    && coarser_begins + coarser.step_ms < begins
            }
            (begins, coarser_begins) => begins.is_none() && coarser_begins.is_some(),
        };
        if !lacks_beginning {
            break;
        }
        tier += 1;
    }
    (tier, step_ms.max(TIERS[tier].step_ms))
}

impl StoredSource {
    /// Reads the summaries. Takes up to about 0.1 s for 1,000 GPUs: not for the event loop.
    pub fn read(&self) -> RangeHistory {
        let gpu = |(uuid, row): &(GpuUuid, RowSource)| GpuRange { uuid: uuid.clone(), fields: self.row(row) };
        let node = |node: &NodeSource| NodeRange {
            node: node.name.clone(),
            gpus: node.gpus.iter().map(gpu).collect(),
            host: self.row(&node.host),
        };
        RangeHistory {
            step_ms: self.step_ms,
            begins_ms: self.begins_ms,
            nodes: self.nodes.iter().map(node).collect(),
            problem: None,
        }
    }

    fn row(&self, row: &RowSource) -> Vec<Summaries> {
        let field = |(selected, kind): (usize, &ValueKind)| self.field(row, selected, *kind);
        row.kinds.iter().enumerate().map(field).collect()
    }

    /// The summaries of a field in slots of the response.
    fn field(&self, row: &RowSource, selected: usize, kind: ValueKind) -> Summaries {
        let mut summaries = Summaries::default();
        let mut current: Option<(u64, Accumulator)> = None;
        let Some(span) = row.span else { return summaries };
        // A slot that begins before the span may hold what the viewer may not see.
        let first = span.from_ms.div_ceil(self.tier_ms);
        let mut visit = |slot: u64, summary: Summary| {
            if slot < first || slot * self.tier_ms > span.to_ms {
                return;
            }
            let longer = slot * self.tier_ms / self.step_ms;
            if let Some((known, accumulator)) = &current
                && *known != longer
            {
                if let Some(summary) = accumulator.summary(kind) {
                    summaries.push(*known, summary);
                }
                current = None;
            }
            current.get_or_insert((longer, Accumulator::default())).1.add_summary(&summary, kind);
        };
        row.part.each(selected, first, &mut visit);
        for (slot, fields) in &row.incomplete {
            if let Some(summary) = fields.get(selected).copied().flatten() {
                visit(*slot, summary);
            }
        }
        if let Some((slot, accumulator)) = current
            && let Some(summary) = accumulator.summary(kind)
        {
            summaries.push(slot, summary);
        }
        summaries
    }
}

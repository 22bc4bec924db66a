//! Entropy coding of changed cells: predictable flags cost a fraction of a bit, values are coded as
//! differences of display steps.
//!
//! Encoding and decoding are one function over a [`Coder`], so they cannot disagree. Symbols in
//! order:
//!
//! ```text
//! summary?                                    only the fields of a summary are coded
//! for each node of the picture:
//!   sampled?                                  context: whether the previous node was
//!     punctual?                               one interval after its last sample, or else now
//!       no: late                              by how many ms it was later (or earlier: negative)
//!     for each row (GPUs, host, processes, job usage):
//!       dirty?                                a cell changed; context: kind, whether the previous row was
//!         for each field:
//!           changed?                          context: kind, field, whether it did in the last dirty row
//!             step                            difference of the cell's codes; context: kind and field
//! ```

mod arithmetic;
mod sent;

pub use sent::SentRows;

use super::change::{NodeReadings, RowReadings};
use super::detail::DetailLevel;
use crate::field::{Cell, Field, ROW_WIDTH};
use crate::picture::{ApplyError, ChangedPart, NodePicture, Picture};
use crate::{GpuField, HostField, JobField, ProcessField};
use arithmetic::{BitModel, Coder, Decoder, Encoder, IntModel};
use sent::Rows;

/// Position and parameters of a node's record in a delta.
#[derive(Clone, Copy, Debug)]
pub struct RecordContext {
    /// Position of the node.
    pub node: u32,
    /// The delta's time by the relay's clock, in ms.
    pub at_ms: u64,
    /// Level of detail of the topic.
    pub detail: DetailLevel,
}

/// Encodes the nodes of one delta.
#[derive(Debug)]
pub struct Packer {
    coder: Encoder,
    model: Model,
    /// Position of the next node that can be encoded.
    next: u32,
}

impl Packer {
    /// Starts a delta of this level of detail.
    pub fn new(detail: DetailLevel) -> Self {
        let mut coder = Encoder::default();
        coder.code_bit(&mut BitModel::of(1 << 15), detail == DetailLevel::Summary);
        Self { coder, model: Model::new(), next: 0 }
    }

    /// Encodes one sampled node and updates `sent`, the viewers' state of its cells, to `now`.
    /// Nodes must be added in ascending order.
    ///
    /// Both must have the same GPUs and, where processes are included, the same processes; viewers
    /// must already know the node's head.
    pub fn node(&mut self, context: RecordContext, sent: &mut SentRows, now: &NodePicture) {
        self.skip_to(context.node);
        self.model.sampled(&mut self.coder, true);
        self.next = context.node + 1;
        let summary = context.detail == DetailLevel::Summary;
        let mut codec = Codec { coder: &mut self.coder, model: &mut self.model, summary };
        let due = due(context.at_ms, sent.sampled_at_ms, now.head.interval_ms);
        let sampled_at_ms = codec.node(due, sent, Some(now), &mut |_| ());
        sent.sampled_at_ms = Some(sampled_at_ms.expect("encoding a node cannot fail"));
    }

    /// Returns the encoded bytes for a picture with this many nodes.
    pub fn finish(mut self, nodes: usize) -> Vec<u8> {
        self.skip_to(u32::try_from(nodes).unwrap_or(u32::MAX));
        self.coder.finish()
    }

    fn skip_to(&mut self, node: u32) {
        (self.next..node).for_each(|_| _ = self.model.sampled(&mut self.coder, false));
        self.next = node;
    }
}

/// Returns the same changes as absolute values, for the JSON form; does not update `sent`.
pub fn plain(context: RecordContext, sent: &SentRows, now: &NodePicture) -> NodeReadings {
    let gpus = now.gpus.len();
    let rows = (0..now.row_count()).filter_map(|index| {
        let (new, old) = (now.row(index)?, sent.row(index)?);
        let mask = mask(old, new) & context.detail.mask(index, gpus);
        (mask != 0).then(|| RowReadings::of(index, now, mask, new))
    });
    let age_ms = context.at_ms.saturating_sub(now.sampled_at_ms.unwrap_or(context.at_ms));
    let age_ms = u32::try_from(age_ms).unwrap_or(u32::MAX);
    NodeReadings { node: context.node, age_ms, rows: rows.collect() }
}

/// Applies encoded nodes to a picture whose `at_ms` is already the delta's time.
pub(crate) fn apply(
    bytes: &[u8],
    picture: &mut Picture,
    changed: &mut impl FnMut(ChangedPart),
) -> Result<(), ApplyError> {
    let (mut coder, mut model, at_ms) = (Decoder::new(bytes), Model::new(), picture.at_ms);
    let summary = coder.code_bit(&mut BitModel::of(1 << 15), false);
    for (index, node) in picture.nodes.iter_mut().enumerate() {
        if model.sampled(&mut coder, false) {
            let mut touch = |row| changed(ChangedPart::Row(index, row));
            let mut codec = Codec { coder: &mut coder, model: &mut model, summary };
            let due = due(at_ms, node.sampled_at_ms, node.head.interval_ms);
            let sampled_at_ms = codec.node(due, node, None, &mut touch)?;
            node.sampled(sampled_at_ms);
            changed(ChangedPart::Sampled(index));
        }
    }
    // Remaining bytes refer to nodes that this picture does not have.
    if coder.is_at_end() { Ok(()) } else { Err(ApplyError::Unknown("a node")) }
}

/// Expected sample time of a node: an interval after its last sample, or now if there is none.
fn due(at_ms: u64, sampled_at_ms: Option<u64>, interval_ms: u32) -> u64 {
    sampled_at_ms.map_or(at_ms, |last| last.saturating_add(u64::from(interval_ms)))
}

/// Encodes or decodes one node.
struct Codec<'a, C> {
    coder: &'a mut C,
    model: &'a mut Model,
    summary: bool,
}

impl<C: Coder> Codec<'_, C> {
    /// Updates `known` to the coded state, which is `now` when encoding; returns the sample time.
    fn node(
        &mut self,
        due: u64,
        known: &mut impl Rows,
        now: Option<&NodePicture>,
        changed: &mut impl FnMut(usize),
    ) -> Result<u64, ApplyError> {
        let sampled_at_ms = self.time(due, now.and_then(|now| now.sampled_at_ms).unwrap_or(due))?;
        let (gpus, processes) = known.counts();
        let mut was_dirty = false;
        for index in 0.. {
            let kind = match index {
                i if i < gpus => Kind::Gpu,
                i if i == gpus => Kind::Host,
                i if i <= gpus + processes => Kind::Process,
                _ => Kind::JobUsage,
            };
            let Some(cells) = known.row_mut(index) else { break };
            let new = now.and_then(|now| now.row(index));
            was_dirty = self.row(kind, was_dirty, cells, new)?;
            if was_dirty {
                changed(index);
            }
        }
        Ok(sampled_at_ms)
    }

    fn time(&mut self, due: u64, sampled_at_ms: u64) -> Result<u64, ApplyError> {
        if self.coder.code_bit(&mut self.model.punctual, sampled_at_ms == due) {
            return Ok(due);
        }
        let late = sampled_at_ms.wrapping_sub(due) as i64;
        let late = self.model.late.code(self.coder, late).ok_or(ApplyError::Broken)?;
        due.checked_add_signed(late).ok_or(ApplyError::Broken)
    }

    fn row(
        &mut self,
        kind: Kind,
        was_dirty: bool,
        cells: &mut [Cell; ROW_WIDTH],
        new: Option<&[Cell; ROW_WIDTH]>,
    ) -> Result<bool, ApplyError> {
        let fields = kind.fields(self.summary);
        let differ = new.is_some_and(|new| {
            new != cells && fields.iter().any(|field| new[usize::from(*field)] != cells[usize::from(*field)])
        });
        if !self.coder.code_bit(&mut self.model.dirty[kind as usize][usize::from(was_dirty)], differ) {
            return Ok(false);
        }
        let columns = &mut self.model.columns[kind.first()..];
        for field in fields {
            let (cell, column) = (&mut cells[usize::from(*field)], &mut columns[usize::from(*field)]);
            let new = new.map_or(*cell, |new| new[usize::from(*field)]);
            column.changed_last =
                self.coder.code_bit(&mut column.changed[usize::from(column.changed_last)], new != *cell);
            if column.changed_last {
                let step = i64::from(new.code()) - i64::from(cell.code());
                let step = column.steps.code(self.coder, step).ok_or(ApplyError::Broken)?;
                let code = i64::from(cell.code()).checked_add(step).ok_or(ApplyError::Broken)?;
                *cell = Cell::from_code(u32::try_from(code).map_err(|_| ApplyError::Broken)?);
            }
        }
        Ok(true)
    }
}

/// Adaptive model; starts from the same state for every delta.
#[derive(Clone, Debug)]
struct Model {
    sampled: [BitModel; 2],
    was_sampled: bool,
    punctual: BitModel,
    late: IntModel,
    dirty: [[BitModel; 2]; 4],
    columns: [Column; COLUMNS],
}

/// One field of one kind of row.
#[derive(Clone, Copy, Debug)]
struct Column {
    changed: [BitModel; 2],
    changed_last: bool,
    steps: IntModel,
}

/// Number of fields of all kinds of rows.
const COLUMNS: usize =
    GpuField::ALL.len() + HostField::ALL.len() + ProcessField::ALL.len() + JobField::ALL.len();

/// Kinds of rows.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Gpu,
    Host,
    Process,
    JobUsage,
}

impl Model {
    fn new() -> Self {
        Self {
            sampled: [BitModel::of(1 << 13), BitModel::of(63 << 10)],
            was_sampled: true,
            punctual: BitModel::of(48 << 10),
            late: IntModel::INITIAL,
            dirty: [[BitModel::of(1 << 14), BitModel::of(1 << 15)]; 4],
            columns: [Column {
                changed: [BitModel::of(1 << 12), BitModel::of(1 << 15)],
                changed_last: false,
                steps: IntModel::INITIAL,
            }; COLUMNS],
        }
    }

    /// Codes whether the next node was sampled.
    fn sampled(&mut self, coder: &mut impl Coder, is_sampled: bool) -> bool {
        self.was_sampled = coder.code_bit(&mut self.sampled[usize::from(self.was_sampled)], is_sampled);
        self.was_sampled
    }
}

/// All positions of a row.
const POSITIONS: [u8; ROW_WIDTH] = {
    let mut positions = [0; ROW_WIDTH];
    let mut at = 0;
    while at < ROW_WIDTH {
        positions[at] = at as u8;
        at += 1;
    }
    positions
};

/// Positions of the GPU fields in a summary.
const GPU_SUMMARY: [u8; GpuField::SUMMARY.len()] = {
    let mut positions = [0; GpuField::SUMMARY.len()];
    let mut at = 0;
    while at < positions.len() {
        positions[at] = GpuField::SUMMARY[at] as u8;
        at += 1;
    }
    positions
};

/// Positions of the host fields in a summary.
const HOST_SUMMARY: [u8; HostField::SUMMARY.len()] = {
    let mut positions = [0; HostField::SUMMARY.len()];
    let mut at = 0;
    while at < positions.len() {
        positions[at] = HostField::SUMMARY[at] as u8;
        at += 1;
    }
    positions
};

impl Kind {
    /// Index in [`Model::columns`] of its first field.
    const fn first(self) -> usize {
        match self {
            Self::Gpu => 0,
            Self::Host => GpuField::ALL.len(),
            Self::Process => GpuField::ALL.len() + HostField::ALL.len(),
            Self::JobUsage => GpuField::ALL.len() + HostField::ALL.len() + ProcessField::ALL.len(),
        }
    }

    /// Positions of the coded fields.
    fn fields(self, summary: bool) -> &'static [u8] {
        match (self, summary) {
            (Self::Gpu, true) => &GPU_SUMMARY,
            (Self::Host, true) => &HOST_SUMMARY,
            (Self::Process | Self::JobUsage, true) => &[],
            (Self::Gpu, false) => &POSITIONS[..GpuField::ALL.len()],
            (Self::Host, false) => &POSITIONS[..HostField::ALL.len()],
            (Self::Process, false) => &POSITIONS[..ProcessField::ALL.len()],
            (Self::JobUsage, false) => &POSITIONS[..JobField::ALL.len()],
        }
    }
}

fn mask(old: &[Cell; ROW_WIDTH], new: &[Cell; ROW_WIDTH]) -> u64 {
    old.iter().zip(new).enumerate().fold(0, |mask, (bit, (old, new))| mask | u64::from(old != new) << bit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeName, picture::GpuPicture};

    fn node(gpus: usize) -> NodePicture {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        node.gpus = vec![GpuPicture::default(); gpus];
        node.sampled_at_ms = Some(10_000);
        node.head.interval_ms = 1_000;
        node
    }

    fn context(node: u32, at_ms: u64) -> RecordContext {
        RecordContext { node, at_ms, detail: DetailLevel::Full }
    }

    /// Applies `bytes` at `at_ms` to a picture of `nodes`.
    fn applied(bytes: &[u8], nodes: &[NodePicture], at_ms: u64) -> Result<Vec<NodePicture>, ApplyError> {
        let mut picture = Picture { nodes: nodes.to_vec(), at_ms, ..Picture::default() };
        apply(bytes, &mut picture, &mut |_| ())?;
        Ok(picture.nodes)
    }

    #[test]
    fn sixteen_unchanged_nodes_cost_five_bytes() {
        let mut packer = Packer::new(DetailLevel::Full);
        for index in 0..16 {
            let (mut sent, now) =
                (SentRows::of(&node(8)), NodePicture { sampled_at_ms: Some(11_000), ..node(8) });
            packer.node(context(index, 11_015), &mut sent, &now);
        }
        let bytes = packer.finish(16);
        assert!(bytes.len() <= 5, "{} bytes", bytes.len());
        let after = applied(&bytes, &vec![node(8); 16], 11_015).unwrap();
        assert!(after.iter().all(|node| node.sampled_at_ms == Some(11_000)));
    }

    #[test]
    fn changed_cells_are_applied_and_other_nodes_stay() {
        let known = [node(2), node(1), node(3)];
        let mut now = node(1);
        now.gpus[0].row.set(GpuField::Util, Cell::steps(87));
        now.gpus[0].row.set(GpuField::Ofa, Cell::FAILED);
        now.host.set(HostField::MemTotal, Cell::from_code(u32::MAX));
        now.sampled_at_ms = Some(10_700);
        let (mut sent, mut packer) = (SentRows::of(&known[1]), Packer::new(DetailLevel::Full));
        packer.node(context(1, 11_000), &mut sent, &now);
        assert_eq!(sent, SentRows::of(&now));
        let after = applied(&packer.finish(3), &known, 11_000).unwrap();
        assert_eq!(after, [node(2), now, node(3)]);
    }

    #[test]
    fn a_summary_carries_its_fields_and_no_others() {
        let (mut sent, mut now) = (SentRows::of(&node(1)), node(1));
        now.gpus[0].row.set(GpuField::SmActive, Cell::steps(50));
        now.gpus[0].row.set(GpuField::MemClock, Cell::steps(99));
        let mut packer = Packer::new(DetailLevel::Summary);
        packer.node(RecordContext { detail: DetailLevel::Summary, ..context(0, 10_000) }, &mut sent, &now);
        let after = applied(&packer.finish(1), &[node(1)], 10_000).unwrap();
        assert_eq!(after[0].gpus[0].row.get(GpuField::SmActive), Cell::steps(50));
        assert_eq!(after[0].gpus[0].row.get(GpuField::MemClock), Cell::NOT_YET);
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        for seed in 0u32..2_000 {
            let bytes: Vec<u8> =
                (0..seed % 23).map(|i| (seed.wrapping_mul(2_654_435_761).rotate_left(i)) as u8).collect();
            let _ = applied(&bytes, &[node(3), node(0)], 1_000);
        }
    }

    #[test]
    fn bytes_for_more_nodes_than_the_picture_has_are_refused() {
        let mut packer = Packer::new(DetailLevel::Full);
        for index in 0..9 {
            let (mut sent, mut now) = (SentRows::of(&node(8)), node(8));
            now.gpus[7].row.set(GpuField::Power, Cell::steps(300 + index));
            packer.node(context(index, 10_000), &mut sent, &now);
        }
        let bytes = packer.finish(9);
        assert_eq!(applied(&bytes, &[node(8)], 10_000), Err(ApplyError::Unknown("a node")));
    }
}

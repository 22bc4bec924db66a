//! Changed cells as few bytes as they can be: what was to be expected costs a part of a bit, values are differences of display steps.
//!
//! Both directions are one function over a [`Coder`], so that they cannot disagree. What is asked, in this order:
//!
//! ```text
//! glance?                                     only the fields of a glance are told
//! for each node of the picture:
//!   told?                                     it was sampled; chance by whether the one before was
//!     punctual?                               one interval after its last sample, or else now
//!       no: late                              by how many ms it was later (or earlier: negative)
//!     for each row (GPUs, host, processes, uses):
//!       dirty?                                a cell of it changed; by kind, and whether the row before was
//!         for each field:
//!           changed?                          by kind, field, and whether it did in the last dirty row
//!             step                            difference of the cell's codes; by kind and field
//! ```

mod coder;
mod sent;

pub use sent::SentRows;

use crate::Cell;
use crate::cell::{Field, ROW_WIDTH};
use crate::detail::Detail;
use crate::live::{NodeVitals, RowVitals};
use crate::picture::{ApplyError, NodePicture, Picture, Touched};
use crate::{GpuField, HostField, JobField, ProcessField};
use coder::{Chance, Coder, Decoder, Encoder, Steps};
use sent::Rows;

/// Where in a delta a node's record stands.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Position of the node.
    pub node: u32,
    /// The delta's moment by the relay's clock, in ms.
    pub at_ms: u64,
    /// How much of it is told.
    pub detail: Detail,
}

/// Packs the nodes of one delta.
#[derive(Debug)]
pub struct Packer {
    coder: Encoder,
    model: Model,
    /// Position of the next node that could be told.
    next: u32,
}

impl Packer {
    /// Begins a delta of this detail.
    pub fn new(detail: Detail) -> Self {
        let mut coder = Encoder::default();
        coder.bit(&mut Chance::of(1 << 15), detail == Detail::Glance);
        Self { coder, model: Model::new(), next: 0 }
    }

    /// Tells of one sampled node, and brings `sent` (what viewers know of its cells) up to `now`. Nodes come in ascending
    /// order.
    ///
    /// Both must have the same GPUs, and the same processes where those are told, and viewers must know its head.
    pub fn node(&mut self, place: Place, sent: &mut SentRows, now: &NodePicture) {
        self.skip_to(place.node);
        self.model.told(&mut self.coder, true);
        self.next = place.node + 1;
        let glance = place.detail == Detail::Glance;
        let mut pass = Pass { coder: &mut self.coder, model: &mut self.model, glance };
        let due = due(place.at_ms, sent.sampled_at_ms, now.head.interval_ms);
        let told = pass.node(due, sent, Some(now), &mut |_| ());
        sent.sampled_at_ms = Some(told.expect("what is written is not refused"));
    }

    /// The bytes, of a picture with so many nodes.
    pub fn finish(mut self, nodes: usize) -> Vec<u8> {
        self.skip_to(u32::try_from(nodes).unwrap_or(u32::MAX));
        self.coder.finish()
    }

    fn skip_to(&mut self, node: u32) {
        (self.next..node).for_each(|_| _ = self.model.told(&mut self.coder, false));
        self.next = node;
    }
}

/// The same in absolute values, for the JSON form; leaves `sent` alone.
pub fn plain(place: Place, sent: &SentRows, now: &NodePicture) -> NodeVitals {
    let gpus = now.gpus.len();
    let rows = (0..now.row_count()).filter_map(|index| {
        let (new, old) = (now.row(index)?, sent.row(index)?);
        let mask = mask(old, new) & place.detail.mask(index, gpus);
        (mask != 0).then(|| RowVitals::of(index, now, mask, new))
    });
    let age_ms = place.at_ms.saturating_sub(now.sampled_at_ms.unwrap_or(place.at_ms));
    let age_ms = u32::try_from(age_ms).unwrap_or(u32::MAX);
    NodeVitals { node: place.node, age_ms, rows: rows.collect() }
}

/// Applies packed nodes to a picture whose `at_ms` is already the delta's moment.
pub(crate) fn apply(
    bytes: &[u8],
    picture: &mut Picture,
    touched: &mut impl FnMut(Touched),
) -> Result<(), ApplyError> {
    let (mut coder, mut model, at_ms) = (Decoder::new(bytes), Model::new(), picture.at_ms);
    let glance = coder.bit(&mut Chance::of(1 << 15), false);
    for (index, node) in picture.nodes.iter_mut().enumerate() {
        if model.told(&mut coder, false) {
            let mut touch = |row| touched(Touched::Row(index, row));
            let mut pass = Pass { coder: &mut coder, model: &mut model, glance };
            let due = due(at_ms, node.sampled_at_ms, node.head.interval_ms);
            let sampled_at_ms = pass.node(due, node, None, &mut touch)?;
            node.sampled(sampled_at_ms);
            touched(Touched::Sampled(index));
        }
    }
    // What is left speaks of nodes that are not here.
    if coder.is_at_the_end() { Ok(()) } else { Err(ApplyError::Unknown("a node")) }
}

/// When a node is expected to have been sampled: an interval after its last sample, if there was one, or now.
fn due(at_ms: u64, sampled_at_ms: Option<u64>, interval_ms: u32) -> u64 {
    sampled_at_ms.map_or(at_ms, |last| last.saturating_add(u64::from(interval_ms)))
}

/// One node on its way into bytes or out of them.
struct Pass<'a, C> {
    coder: &'a mut C,
    model: &'a mut Model,
    glance: bool,
}

impl<C: Coder> Pass<'_, C> {
    /// Brings `known` up to what is told, which is `now` when bytes are written; returns when it was sampled.
    fn node(
        &mut self,
        due: u64,
        known: &mut impl Rows,
        now: Option<&NodePicture>,
        touched: &mut impl FnMut(usize),
    ) -> Result<u64, ApplyError> {
        let sampled_at_ms = self.time(due, now.and_then(|now| now.sampled_at_ms).unwrap_or(due))?;
        let (gpus, processes) = known.counts();
        let mut was_dirty = false;
        for index in 0.. {
            let kind = match index {
                i if i < gpus => Kind::Gpu,
                i if i == gpus => Kind::Host,
                i if i <= gpus + processes => Kind::Process,
                _ => Kind::Use,
            };
            let Some(cells) = known.row_mut(index) else { break };
            let new = now.and_then(|now| now.row(index));
            was_dirty = self.row(kind, was_dirty, cells, new)?;
            if was_dirty {
                touched(index);
            }
        }
        Ok(sampled_at_ms)
    }

    fn time(&mut self, due: u64, sampled_at_ms: u64) -> Result<u64, ApplyError> {
        if self.coder.bit(&mut self.model.punctual, sampled_at_ms == due) {
            return Ok(due);
        }
        let late = sampled_at_ms.wrapping_sub(due) as i64;
        let late = self.model.late.pass(self.coder, late).ok_or(ApplyError::Broken)?;
        due.checked_add_signed(late).ok_or(ApplyError::Broken)
    }

    fn row(
        &mut self,
        kind: Kind,
        was_dirty: bool,
        cells: &mut [Cell; ROW_WIDTH],
        new: Option<&[Cell; ROW_WIDTH]>,
    ) -> Result<bool, ApplyError> {
        let fields = kind.fields(self.glance);
        let differ = new.is_some_and(|new| {
            new != cells && fields.iter().any(|field| new[usize::from(*field)] != cells[usize::from(*field)])
        });
        if !self.coder.bit(&mut self.model.dirty[kind as usize][usize::from(was_dirty)], differ) {
            return Ok(false);
        }
        let columns = &mut self.model.columns[kind.first()..];
        for field in fields {
            let (cell, column) = (&mut cells[usize::from(*field)], &mut columns[usize::from(*field)]);
            let new = new.map_or(*cell, |new| new[usize::from(*field)]);
            column.did = self.coder.bit(&mut column.changed[usize::from(column.did)], new != *cell);
            if column.did {
                let step = i64::from(new.code()) - i64::from(cell.code());
                let step = column.steps.pass(self.coder, step).ok_or(ApplyError::Broken)?;
                let code = i64::from(cell.code()).checked_add(step).ok_or(ApplyError::Broken)?;
                *cell = Cell::from_code(u32::try_from(code).map_err(|_| ApplyError::Broken)?);
            }
        }
        Ok(true)
    }
}

/// What is learnt on the way through a delta, from the same beginning each time.
#[derive(Clone, Debug)]
struct Model {
    told: [Chance; 2],
    was_told: bool,
    punctual: Chance,
    late: Steps,
    dirty: [[Chance; 2]; 4],
    columns: [Column; COLUMNS],
}

/// One field of one kind of row.
#[derive(Clone, Copy, Debug)]
struct Column {
    changed: [Chance; 2],
    did: bool,
    steps: Steps,
}

/// The fields of all kinds of rows.
const COLUMNS: usize =
    GpuField::ALL.len() + HostField::ALL.len() + ProcessField::ALL.len() + JobField::ALL.len();

/// The kinds of rows.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Gpu,
    Host,
    Process,
    Use,
}

impl Model {
    fn new() -> Self {
        Self {
            told: [Chance::of(1 << 13), Chance::of(63 << 10)],
            was_told: true,
            punctual: Chance::of(48 << 10),
            late: Steps::UNKNOWN,
            dirty: [[Chance::of(1 << 14), Chance::of(1 << 15)]; 4],
            columns: [Column {
                changed: [Chance::of(1 << 12), Chance::of(1 << 15)],
                did: false,
                steps: Steps::UNKNOWN,
            }; COLUMNS],
        }
    }

    /// Passes through whether the next node is told.
    fn told(&mut self, coder: &mut impl Coder, is_told: bool) -> bool {
        self.was_told = coder.bit(&mut self.told[usize::from(self.was_told)], is_told);
        self.was_told
    }
}

/// The first so many positions of a row.
const POSITIONS: [u8; ROW_WIDTH] = {
    let mut positions = [0; ROW_WIDTH];
    let mut at = 0;
    while at < ROW_WIDTH {
        positions[at] = at as u8;
        at += 1;
    }
    positions
};

/// Positions of the fields that a glance tells of a GPU.
const GPU_GLANCE: [u8; Detail::GPU_GLANCE.len()] = {
    let mut positions = [0; Detail::GPU_GLANCE.len()];
    let mut at = 0;
    while at < positions.len() {
        positions[at] = Detail::GPU_GLANCE[at] as u8;
        at += 1;
    }
    positions
};

/// Positions of the fields that a glance tells of a host.
const HOST_GLANCE: [u8; Detail::HOST_GLANCE.len()] = {
    let mut positions = [0; Detail::HOST_GLANCE.len()];
    let mut at = 0;
    while at < positions.len() {
        positions[at] = Detail::HOST_GLANCE[at] as u8;
        at += 1;
    }
    positions
};

impl Kind {
    /// Where in [`Model::columns`] its fields begin.
    const fn first(self) -> usize {
        match self {
            Self::Gpu => 0,
            Self::Host => GpuField::ALL.len(),
            Self::Process => GpuField::ALL.len() + HostField::ALL.len(),
            Self::Use => GpuField::ALL.len() + HostField::ALL.len() + ProcessField::ALL.len(),
        }
    }

    /// Positions of the fields that are told.
    fn fields(self, glance: bool) -> &'static [u8] {
        match (self, glance) {
            (Self::Gpu, true) => &GPU_GLANCE,
            (Self::Host, true) => &HOST_GLANCE,
            (Self::Process | Self::Use, true) => &[],
            (Self::Gpu, false) => &POSITIONS[..GpuField::ALL.len()],
            (Self::Host, false) => &POSITIONS[..HostField::ALL.len()],
            (Self::Process, false) => &POSITIONS[..ProcessField::ALL.len()],
            (Self::Use, false) => &POSITIONS[..JobField::ALL.len()],
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

    fn place(node: u32, at_ms: u64) -> Place {
        Place { node, at_ms, detail: Detail::Full }
    }

    /// What a viewer of `nodes` makes of `bytes` at `at_ms`.
    fn applied(bytes: &[u8], nodes: &[NodePicture], at_ms: u64) -> Result<Vec<NodePicture>, ApplyError> {
        let mut picture = Picture { nodes: nodes.to_vec(), at_ms, ..Picture::default() };
        apply(bytes, &mut picture, &mut |_| ())?;
        Ok(picture.nodes)
    }

    #[test]
    fn sixteen_nodes_that_stand_still_cost_five_bytes() {
        let mut packer = Packer::new(Detail::Full);
        for index in 0..16 {
            let (mut sent, now) =
                (SentRows::of(&node(8)), NodePicture { sampled_at_ms: Some(11_000), ..node(8) });
            packer.node(place(index, 11_015), &mut sent, &now);
        }
        let bytes = packer.finish(16);
        assert!(bytes.len() <= 5, "{} bytes", bytes.len());
        let after = applied(&bytes, &vec![node(8); 16], 11_015).unwrap();
        assert!(after.iter().all(|node| node.sampled_at_ms == Some(11_000)));
    }

    #[test]
    fn what_is_told_arrives_and_what_is_not_stays() {
        let known = [node(2), node(1), node(3)];
        let mut now = node(1);
        now.gpus[0].row.set(GpuField::Util, Cell::steps(87));
        now.gpus[0].row.set(GpuField::Ofa, Cell::FAILED);
        now.host.set(HostField::MemTotal, Cell::from_code(u32::MAX));
        now.sampled_at_ms = Some(10_700);
        let (mut sent, mut packer) = (SentRows::of(&known[1]), Packer::new(Detail::Full));
        packer.node(place(1, 11_000), &mut sent, &now);
        assert_eq!(sent, SentRows::of(&now));
        let after = applied(&packer.finish(3), &known, 11_000).unwrap();
        assert_eq!(after, [node(2), now, node(3)]);
    }

    #[test]
    fn a_glance_tells_its_fields_and_no_others() {
        let (mut sent, mut now) = (SentRows::of(&node(1)), node(1));
        now.gpus[0].row.set(GpuField::SmActive, Cell::steps(50));
        now.gpus[0].row.set(GpuField::SmClock, Cell::steps(99));
        let mut packer = Packer::new(Detail::Glance);
        packer.node(Place { detail: Detail::Glance, ..place(0, 10_000) }, &mut sent, &now);
        let after = applied(&packer.finish(1), &[node(1)], 10_000).unwrap();
        assert_eq!(after[0].gpus[0].row.get(GpuField::SmActive), Cell::steps(50));
        assert_eq!(after[0].gpus[0].row.get(GpuField::SmClock), Cell::NOT_YET);
    }

    #[test]
    fn bytes_of_any_kind_never_panic() {
        for seed in 0u32..2_000 {
            let bytes: Vec<u8> =
                (0..seed % 23).map(|i| (seed.wrapping_mul(2_654_435_761).rotate_left(i)) as u8).collect();
            let _ = applied(&bytes, &[node(3), node(0)], 1_000);
        }
    }

    #[test]
    fn bytes_that_speak_of_more_nodes_are_refused() {
        let mut packer = Packer::new(Detail::Full);
        for index in 0..9 {
            let (mut sent, mut now) = (SentRows::of(&node(8)), node(8));
            now.gpus[7].row.set(GpuField::Power, Cell::steps(300 + index));
            packer.node(place(index, 10_000), &mut sent, &now);
        }
        let bytes = packer.finish(9);
        assert_eq!(applied(&bytes, &[node(8)], 10_000), Err(ApplyError::Unknown("a node")));
    }
}

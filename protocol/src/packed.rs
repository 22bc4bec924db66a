//! Changed cells as few bytes as they can be: positions are counted, values are differences of display steps.
//!
//! ```text
//! record  = skip:varint  age_ms:varint  dirty:⌈rows/8⌉ bytes  row*        one per sampled node, ascending
//! row     = mask:varint  step:zigzag*                                      one per bit set in `dirty`
//! ```
//!
//! `skip` counts the nodes left out since the last record; `dirty` has one bit per row (GPUs, host,
//! processes, uses; least significant first); `mask` one bit per field; each step is the difference of the
//! cell's codes. A node of eight GPUs that was sampled without any change costs four bytes.

use crate::Cell;
use crate::cell::ROW_WIDTH;
use crate::detail::Detail;
use crate::live::{NodeVitals, RowVitals};
use crate::picture::{ApplyError, NodePicture, Picture, Touched};

/// Where in a delta a node's record stands.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Position of the node in the record before, if there is one.
    pub last: Option<u32>,
    /// Position of the node.
    pub node: u32,
    /// Age of its sample at the delta's moment, in ms.
    pub age_ms: u32,
    /// How much of it is told.
    pub detail: Detail,
}

/// Appends the record of one sampled node, and brings `sent` (what viewers know of it) up to `now`.
///
/// Both must have the same GPUs, and the same processes where those are told.
pub fn pack(out: &mut Vec<u8>, place: Place, sent: &mut NodePicture, now: &NodePicture) {
    put(out, u64::from(place.node - place.last.map_or(0, |last| last + 1)));
    put(out, u64::from(place.age_ms));
    let (rows, gpus) = (sent.row_count(), sent.gpus.len());
    let dirty_at = out.len();
    out.resize(dirty_at + rows.div_ceil(8), 0);
    for index in 0..rows {
        let (Some(new), Some(old)) = (now.row(index), sent.row_mut(index)) else { break };
        let mask = mask(old, new) & place.detail.mask(index, gpus);
        if mask == 0 {
            continue;
        }
        out[dirty_at + index / 8] |= 1 << (index % 8);
        put(out, mask);
        for (_, (old, new)) in old.iter_mut().zip(new).enumerate().filter(|(field, _)| mask >> field & 1 == 1)
        {
            put(out, zigzag(i64::from(new.code()) - i64::from(old.code())));
            *old = *new;
        }
    }
}

/// The same as [`pack`] in absolute values, for the JSON form; leaves `sent` alone.
pub fn plain(place: Place, sent: &NodePicture, now: &NodePicture) -> NodeVitals {
    let gpus = sent.gpus.len();
    let rows = (0..sent.row_count()).filter_map(|index| {
        let (new, old) = (now.row(index)?, sent.row(index)?);
        let mask = mask(old, new) & place.detail.mask(index, gpus);
        (mask != 0).then(|| RowVitals::of(index, now, mask, new))
    });
    NodeVitals { node: place.node, age_ms: place.age_ms, rows: rows.collect() }
}

/// Applies packed records to a picture whose `at_ms` is already the delta's moment.
pub(crate) fn apply(
    bytes: &[u8],
    picture: &mut Picture,
    touched: &mut impl FnMut(Touched),
) -> Result<(), ApplyError> {
    let mut input = Input(bytes);
    let at_ms = picture.at_ms;
    let mut position = 0u64;
    while !input.0.is_empty() {
        position = position.checked_add(input.varint()?).ok_or(ApplyError::Broken)?;
        let age_ms = input.varint()?;
        let index = u32::try_from(position).map_err(|_| ApplyError::Unknown("a node"))?;
        let node = picture.node_mut(index)?;
        let dirty = input.take(node.row_count().div_ceil(8))?;
        for (byte, bits) in dirty.iter().enumerate() {
            for bit in (0..8).filter(|bit| bits >> bit & 1 == 1) {
                let row = byte * 8 + bit;
                unpack_row(&mut input, node.row_mut(row).ok_or(ApplyError::Unknown("a row"))?)?;
                touched(Touched::Row(index as usize, row));
            }
        }
        node.sampled(at_ms.saturating_sub(age_ms));
        touched(Touched::Sampled(index as usize));
        position += 1;
    }
    Ok(())
}

fn unpack_row(input: &mut Input<'_>, cells: &mut [Cell; ROW_WIDTH]) -> Result<(), ApplyError> {
    let mut mask = input.varint()?;
    if mask >> ROW_WIDTH != 0 {
        return Err(ApplyError::Unknown("a field"));
    }
    while mask != 0 {
        let cell = &mut cells[mask.trailing_zeros() as usize];
        let code = i64::from(cell.code()).checked_add(unzigzag(input.varint()?)).ok_or(ApplyError::Broken)?;
        *cell = Cell::from_code(u32::try_from(code).map_err(|_| ApplyError::Broken)?);
        mask &= mask - 1;
    }
    Ok(())
}

fn mask(old: &[Cell; ROW_WIDTH], new: &[Cell; ROW_WIDTH]) -> u64 {
    old.iter().zip(new).enumerate().fold(0, |mask, (bit, (old, new))| mask | u64::from(old != new) << bit)
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], ApplyError> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(ApplyError::Broken)?;
        self.0 = rest;
        Ok(head)
    }

    fn varint(&mut self) -> Result<u64, ApplyError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ApplyError::Broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GpuField, NodeName, picture::GpuPicture};

    fn node(gpus: usize) -> NodePicture {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        node.gpus = vec![GpuPicture::default(); gpus];
        node
    }

    fn place(node: u32, age_ms: u32) -> Place {
        Place { last: None, node, age_ms, detail: Detail::Full }
    }

    #[test]
    fn an_unchanged_node_of_eight_costs_four_bytes() {
        let (mut sent, now, mut out) = (node(8), node(8), Vec::new());
        pack(&mut out, place(0, 3), &mut sent, &now);
        assert_eq!(out, [0, 3, 0, 0]);
    }

    #[test]
    fn a_small_step_costs_a_mask_and_a_byte() {
        let (mut sent, mut now, mut out) = (node(1), node(1), Vec::new());
        sent.gpus[0].row.set(GpuField::Util, Cell::steps(90));
        now.gpus[0].row.set(GpuField::Util, Cell::steps(87));
        pack(&mut out, place(2, 0), &mut sent, &now);
        assert_eq!(out, [2, 0, 1, 1, 5]);
        assert_eq!(sent, now);
    }

    #[test]
    fn zigzag_is_its_own_way_back() {
        for value in [0, 1, -1, 63, -64, i64::from(u32::MAX), -i64::from(u32::MAX)] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }

    #[test]
    fn bytes_of_any_kind_never_panic() {
        let mut picture = Picture { nodes: vec![node(3)], ..Picture::default() };
        for seed in 0u32..2_000 {
            let bytes: Vec<u8> =
                (0..seed % 23).map(|i| (seed.wrapping_mul(2_654_435_761).rotate_left(i)) as u8).collect();
            let _ = apply(&bytes, &mut picture, &mut |_| ());
        }
    }
}

//! Recent history of a node: one trace for each field that the catalogue marks.

use super::trace::{Trace, TracePoint};
use crate::field::{Cell, Field, Row};
use crate::{GpuField, HostField};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// Recent history of a node's rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Whether only [`Field::SUMMARY_HISTORY`] is included.
    pub is_summary: bool,
    /// Traces of each GPU.
    pub gpus: Vec<Traces<GpuField>>,
    /// Traces of the host.
    pub host: Traces<HostField>,
}

/// Traces of a row, by field. In JSON an object, in binary a list of pairs of position and trace, so
/// that a viewer of another build ignores fields that it does not know.
#[derive(Clone, PartialEq)]
pub struct Traces<F>(Vec<(F, Trace)>);

/// Cells of a GPU at one time, in the order of [`Field::HISTORY`].
pub type GpuHistoryCells = [Cell; GpuField::HISTORY.len()];
/// Cells of a host at one time, in the order of [`Field::HISTORY`].
pub type HostHistoryCells = [Cell; HostField::HISTORY.len()];

/// The part of a sample that is kept in the history.
#[derive(Clone, Debug)]
pub struct HistorySample {
    /// Sample time, by the relay's clock.
    pub at_ms: u64,
    /// See [`super::picture::NodePicture::hold_ms`].
    pub hold_ms: u64,
    /// Cells of each GPU.
    pub gpus: Box<[GpuHistoryCells]>,
    /// Cells of the host.
    pub host: HostHistoryCells,
}

impl History {
    /// Adds the cells of a node at `at_ms`.
    pub fn push<'a>(
        &mut self,
        at_ms: u64,
        gpus: impl ExactSizeIterator<Item = &'a Row<GpuField>>,
        host: &Row<HostField>,
        hold_ms: u64,
    ) {
        self.gpus.resize_with(gpus.len(), Traces::default);
        let is_summary = self.is_summary;
        for (traces, row) in self.gpus.iter_mut().zip(gpus) {
            traces.push(at_ms, row, is_summary, hold_ms);
        }
        self.host.push(at_ms, host, is_summary, hold_ms);
    }

    /// Adds samples that may be older than the newest one; decodes each trace only once.
    pub fn extend(&mut self, samples: &[HistorySample]) {
        let gpus = samples.iter().map(|sample| sample.gpus.len()).max().unwrap_or(0);
        if gpus > self.gpus.len() {
            self.gpus.resize_with(gpus, Traces::default);
        }
        let point =
            |sample: &HistorySample, cell| TracePoint { at_ms: sample.at_ms, hold_ms: sample.hold_ms, cell };
        for (gpu, traces) in self.gpus.iter_mut().enumerate() {
            for (slot, field) in GpuField::HISTORY.iter().enumerate() {
                let known = samples.iter().filter_map(|sample| Some((sample, sample.gpus.get(gpu)?)));
                traces.entry(slot, *field).extend(known.map(|(sample, cells)| point(sample, cells[slot])));
            }
        }
        for (slot, field) in HostField::HISTORY.iter().enumerate() {
            let trace = self.host.entry(slot, *field);
            trace.extend(samples.iter().map(|sample| point(sample, sample.host[slot])));
        }
    }

    /// Selects the cells of a GPU that have a history.
    pub fn of_gpu(row: &Row<GpuField>) -> GpuHistoryCells {
        std::array::from_fn(|slot| row.get(GpuField::HISTORY[slot]))
    }

    /// The row of a GPU of which these cells are known.
    pub fn gpu_row(cells: &GpuHistoryCells) -> Row<GpuField> {
        row_of(GpuField::HISTORY, cells)
    }

    /// The row of a host of which these cells are known.
    pub fn host_row(cells: &HostHistoryCells) -> Row<HostField> {
        row_of(HostField::HISTORY, cells)
    }

    /// Selects the cells of a host that have a history.
    pub fn of_host(row: &Row<HostField>) -> HostHistoryCells {
        std::array::from_fn(|slot| row.get(HostField::HISTORY[slot]))
    }

    /// Returns the history of a summary.
    pub fn summary(&self) -> Self {
        let gpus = self.gpus.iter().map(Traces::summary).collect();
        Self { is_summary: true, gpus, host: self.host.summary() }
    }

    /// Approximate size of the binary encoding in bytes.
    pub fn encoded_len(&self) -> usize {
        self.gpus.iter().map(Traces::encoded_len).sum::<usize>() + self.host.encoded_len()
    }

    /// Moves all slots later by a number of them; see [`Trace::shift`].
    pub fn shift(&mut self, slots: i64) {
        self.gpus.iter_mut().for_each(|gpu| gpu.shift(slots));
        self.host.shift(slots);
    }

    /// Returns the trace of a GPU's field, if it has a history.
    pub fn gpu(&self, gpu: usize, field: GpuField) -> Option<&Trace> {
        self.gpus.get(gpu)?.get(field)
    }
}

impl<F: Field> Traces<F> {
    /// Returns the trace of a field, if there is one.
    pub fn get(&self, field: F) -> Option<&Trace> {
        self.0.iter().find(|(known, _)| *known == field).map(|(_, trace)| trace)
    }

    /// Iterates over all traces in field order.
    pub fn iter(&self) -> impl Iterator<Item = (F, &Trace)> {
        self.0.iter().map(|(field, trace)| (*field, trace))
    }

    /// Returns traces of the same times, with gaps before `from_ms` and after `to_ms`.
    pub fn within(&self, from_ms: u64, to_ms: u64) -> Self {
        Self(self.0.iter().map(|(field, trace)| (*field, trace.within(from_ms, to_ms))).collect())
    }

    /// Adds the cells of a row at `at_ms`.
    fn push(&mut self, at_ms: u64, row: &Row<F>, is_summary: bool, hold_ms: u64) {
        let fields = if is_summary { F::SUMMARY_HISTORY } else { F::HISTORY };
        for (slot, field) in fields.iter().enumerate() {
            self.entry(slot, *field).push(at_ms, row.get(*field), hold_ms);
        }
    }

    /// Mutably borrows the trace of a field, which is probably at position `slot`; creates it if
    /// there is none.
    pub fn entry(&mut self, slot: usize, field: F) -> &mut Trace {
        let at = match self.0.get(slot) {
            Some((known, _)) if *known == field => slot,
            _ => self.0.binary_search_by_key(&field, |(known, _)| *known).unwrap_or_else(|at| {
                self.0.insert(at, (field, Trace::default()));
                at
            }),
        };
        &mut self.0[at].1
    }

    /// Removes everything after a time, and returns the cells of that time.
    pub(super) fn rewind(&mut self, at_ms: u64) -> impl Iterator<Item = (F, Cell)> {
        self.0.iter_mut().filter_map(move |(field, trace)| Some((*field, trace.rewind(at_ms)?)))
    }

    fn shift(&mut self, slots: i64) {
        self.0.iter_mut().for_each(|(_, trace)| trace.shift(slots));
    }

    fn summary(&self) -> Self {
        let kept = self.0.iter().filter(|(field, _)| F::SUMMARY_HISTORY.contains(field));
        Self(kept.cloned().collect())
    }

    fn encoded_len(&self) -> usize {
        self.0.iter().map(|(_, trace)| trace.encoded_len() + 1).sum()
    }
}

impl<F> Default for Traces<F> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<F: Field> fmt::Debug for Traces<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(field, trace)| (field.name(), trace))).finish()
    }
}

impl<F: Field> Serialize for Traces<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_map(self.0.iter().map(|(field, trace)| (field.name(), trace)))
        } else {
            serializer.collect_seq(self.0.iter().map(|(field, trace)| (field.index() as u8, trace)))
        }
    }
}

impl<'de, F: Field> Deserialize<'de> for Traces<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_map(TracesVisitor(PhantomData))
        } else {
            deserializer.deserialize_seq(TracesVisitor(PhantomData))
        }
    }
}

/// Ignores fields of a newer build.
struct TracesVisitor<F>(PhantomData<F>);

impl<'de, F: Field> Visitor<'de> for TracesVisitor<F> {
    type Value = Traces<F>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("traces by field")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut traces = Traces::default();
        while let Some((name, trace)) = map.next_entry::<String, Trace>()? {
            if let Some(field) = F::from_name(&name) {
                *traces.entry(traces.0.len(), field) = trace;
            }
        }
        Ok(traces)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut traces = Traces::default();
        while let Some((index, trace)) = list.next_element::<(u8, Trace)>()? {
            if let Some(field) = F::ALL.get(usize::from(index)) {
                *traces.entry(traces.0.len(), *field) = trace;
            }
        }
        Ok(traces)
    }
}

fn row_of<F: Field>(fields: &[F], cells: &[Cell]) -> Row<F> {
    let mut row = Row::default();
    fields.iter().zip(cells).for_each(|(field, cell)| row.set(*field, *cell));
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(is_summary: bool) -> History {
        let mut history = History { is_summary, ..History::default() };
        let mut gpu = Row::default();
        for second in 0..3 {
            gpu.set(GpuField::Util, Cell::steps(second));
            gpu.set(GpuField::Power, Cell::steps(100 + second));
            history.push(u64::from(second) * 1_000, [&gpu].into_iter(), &Row::default(), 0);
        }
        history
    }

    #[test]
    fn exactly_the_fields_that_the_catalogue_marks_are_kept() {
        for (is_summary, fields) in [(false, GpuField::HISTORY), (true, GpuField::SUMMARY_HISTORY)] {
            let history = history(is_summary);
            let kept: Vec<_> =
                GpuField::ALL.iter().copied().filter(|field| history.gpu(0, *field).is_some()).collect();
            assert_eq!(kept, fields);
        }
        assert_eq!(history(false).summary(), history(true));
        assert!(GpuField::SUMMARY_HISTORY.contains(&GpuField::Util));
    }

    #[test]
    fn late_samples_fill_the_same_traces() {
        let mut late = History::default();
        let samples: Vec<_> = (0..3)
            .map(|second| {
                let mut gpu = Row::default();
                gpu.set(GpuField::Util, Cell::steps(second));
                gpu.set(GpuField::Power, Cell::steps(100 + second));
                HistorySample {
                    at_ms: u64::from(second) * 1_000,
                    hold_ms: 0,
                    gpus: Box::new([History::of_gpu(&gpu)]),
                    host: History::of_host(&Row::default()),
                }
            })
            .collect();
        late.extend(&samples);
        assert_eq!(late, history(false));
    }

    #[test]
    fn both_forms_round_trip_and_unknown_fields_are_ignored() {
        let history = history(false);
        let bytes = postcard::to_stdvec(&history).unwrap();
        assert_eq!(postcard::from_bytes::<History>(&bytes).unwrap(), history);
        let mut json = serde_json::to_value(&history).unwrap();
        json["gpus"][0]["of_a_newer_build"] = serde_json::json!({"newest": 1, "codes": [3]});
        assert_eq!(serde_json::from_value::<History>(json).unwrap(), history);
        let mut traces = vec![(200_u8, Trace::default())];
        traces.extend(history.gpus[0].0.iter().rev().map(|(field, trace)| (*field as u8, trace.clone())));
        let bytes = postcard::to_stdvec(&traces).unwrap();
        assert_eq!(postcard::from_bytes::<Traces<GpuField>>(&bytes).unwrap(), history.gpus[0]);
    }
}

//! Sparse encoding of probe lines: a line omits every reading that a page would display unchanged,
//! and parsing goes straight into cells.
//!
//! The probe serializes the difference of two samples ([`SampleDiff`]); the relay parses it into a
//! [`SampleDelta`]. No intermediate [`Reading`] is kept per field and no allocation is made per
//! GPU.

use super::line::{ProbeLine, ProcessListReadings, ProcessSample, Sample};
use crate::field::{Field, ReadingSet, Row};
use crate::host::{JobCgroupUsage, JobReadings};
use crate::{Cell, GpuField, HostField, JobField, JobId, ProcessField, Text};
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// One updated cell of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellDelta<F> {
    /// Position of the row in its list.
    pub row: u32,
    /// The field.
    pub field: F,
    /// The new value.
    pub cell: Cell,
}

/// Updated cells of one row or of a list of rows; in JSON an object of readings or a list of such
/// objects.
#[derive(Clone, Debug, PartialEq)]
pub struct RowsDelta<F> {
    /// Number of rows.
    pub rows: u32,
    /// Updated cells in the order of the line; the last one for a position wins.
    pub cells: Vec<CellDelta<F>>,
    /// Faults that began or ended, by row.
    pub faults: Vec<(u32, Option<Text>)>,
}

impl<F> Default for RowsDelta<F> {
    fn default() -> Self {
        Self { rows: 0, cells: Vec::new(), faults: Vec::new() }
    }
}

impl<F: Field> RowsDelta<F> {
    /// Applies the cells to a single row.
    pub fn apply(&self, row: &mut Row<F>) {
        self.cells.iter().for_each(|delta| row.set(delta.field, delta.cell));
    }

    /// Applies the cells to a list of rows, ignoring rows out of range; `row` borrows the row of an
    /// entry.
    pub fn apply_each<T>(&self, all: &mut [T], row: impl Fn(&mut T) -> &mut Row<F>) {
        for delta in &self.cells {
            if let Some(one) = all.get_mut(delta.row as usize) {
                row(one).set(delta.field, delta.cell);
            }
        }
    }

    /// Builds a full update from readings.
    fn full<'a, R: ReadingSet<Fields = F> + 'a>(all: impl IntoIterator<Item = &'a R>) -> Self {
        let mut rows = Self::default();
        for readings in all {
            let delta = |field: &F| CellDelta {
                row: rows.rows,
                field: *field,
                cell: field.cell(readings.reading(*field)),
            };
            let known = F::ALL.iter().map(delta).filter(|delta| delta.cell != Cell::NOT_YET);
            rows.cells.extend(known);
            rows.faults.extend(readings.fault().cloned().flatten().map(|fault| (rows.rows, Some(fault))));
            rows.rows += 1;
        }
        rows
    }
}

/// A parsed sample line.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct SampleDelta {
    /// [`Sample::seq`].
    pub seq: u64,
    /// [`Sample::mono_ns`].
    pub mono_ns: u64,
    /// [`Sample::wall_ms`]; 0 if absent.
    #[serde(default)]
    pub wall_ms: u64,
    /// [`Sample::interval_ms`].
    pub interval_ms: u32,
    /// [`Sample::replay`].
    #[serde(default)]
    pub replay: bool,
    /// [`Sample::since`].
    #[serde(default)]
    pub since: Option<u64>,
    /// The GPUs.
    #[serde(default)]
    pub gpus: RowsDelta<GpuField>,
    /// The host, as one row.
    #[serde(default)]
    pub host: RowsDelta<HostField>,
    /// [`Sample::cores`], if present.
    #[serde(default)]
    pub cores: Option<Vec<u8>>,
    /// [`Sample::jobs`], if present.
    #[serde(default)]
    pub jobs: Option<Vec<JobUsageDelta>>,
}

/// Updated resource usage of one job.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct JobUsageDelta {
    /// The job.
    pub job: JobId,
    /// Its usage, as one row.
    pub now: RowsDelta<JobField>,
}

/// Updated readings of the processes in the last list.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ProcessReadingsDelta {
    /// [`ProcessListReadings::list_ns`].
    #[serde(default)]
    pub list_ns: u64,
    /// [`ProcessListReadings::sparse`].
    #[serde(default)]
    pub sparse: bool,
    /// One row per entry of the list.
    pub now: RowsDelta<ProcessField>,
}

/// A probe line as parsed by the relay.
pub type ParsedLine = ProbeLine<SampleDelta, ProcessReadingsDelta>;

impl From<&Sample> for SampleDelta {
    fn from(sample: &Sample) -> Self {
        let job_delta =
            |usage: &JobCgroupUsage| JobUsageDelta { job: usage.job, now: RowsDelta::full([&usage.now]) };
        Self {
            seq: sample.seq,
            mono_ns: sample.mono_ns,
            wall_ms: sample.wall_ms,
            interval_ms: sample.interval_ms,
            replay: sample.replay,
            since: sample.since,
            gpus: RowsDelta::full(&sample.gpus),
            host: RowsDelta::full([&sample.host]),
            cores: (!sample.cores.is_empty()).then(|| sample.cores.clone()),
            jobs: (!sample.jobs.is_empty()).then(|| sample.jobs.iter().map(job_delta).collect()),
        }
    }
}

impl From<ProbeLine> for ParsedLine {
    fn from(line: ProbeLine) -> Self {
        match line {
            ProbeLine::Hello(hello) => Self::Hello(hello),
            ProbeLine::Sample(sample) => Self::Sample(Box::new(SampleDelta::from(&*sample))),
            ProbeLine::Processes(list) => Self::Processes(list),
            ProbeLine::ProcessReadings(readings) => {
                let ProcessListReadings { list_ns, sparse, now } = readings;
                Self::ProcessReadings(ProcessReadingsDelta { list_ns, sparse, now: RowsDelta::full(&now) })
            }
            ProbeLine::Health(report) => Self::Health(report),
            ProbeLine::LinkRates(rates) => Self::LinkRates(rates),
            ProbeLine::Heartbeat(heartbeat) => Self::Heartbeat(heartbeat),
            ProbeLine::Event(event) => Self::Event(event),
            ProbeLine::Response(response) => Self::Response(response),
            ProbeLine::Bye(bye) => Self::Bye(bye),
            ProbeLine::Piece(piece) => Self::Piece(piece),
            ProbeLine::Notes(notes) => Self::Notes(notes),
            ProbeLine::Usage(usage) => Self::Usage(usage),
        }
    }
}

/// Serializes the difference of two samples at display resolution.
#[derive(Debug)]
pub struct SampleDiff<'a> {
    /// The sample.
    pub now: &'a Sample,
    /// The previous sample that the receiver has parsed; has the same number of GPUs.
    pub before: &'a Sample,
}

impl Serialize for SampleDiff<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { now, before } = self;
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("seq", &now.seq)?;
        line.serialize_entry("mono_ns", &now.mono_ns)?;
        line.serialize_entry("wall_ms", &now.wall_ms)?;
        line.serialize_entry("interval_ms", &now.interval_ms)?;
        line.serialize_entry("since", &before.seq)?;
        if now.gpus != before.gpus {
            line.serialize_entry("gpus", &RowsDiff { now: &now.gpus, before: &before.gpus })?;
        }
        if now.host != before.host {
            line.serialize_entry("host", &RowDiff { now: &now.host, before: &before.host })?;
        }
        if now.cores != before.cores {
            line.serialize_entry("cores", &now.cores)?;
        }
        if now.jobs != before.jobs {
            line.serialize_entry("jobs", &JobUsageDiff { now: &now.jobs, before: &before.jobs })?;
        }
        line.end()
    }
}

/// Serializes process readings as the difference to the list they refer to, at display resolution.
#[derive(Debug)]
pub struct ProcessReadingsDiff<'a> {
    /// [`ProcessListReadings::list_ns`].
    pub list_ns: u64,
    /// The current readings.
    pub now: &'a [ProcessSample],
    /// The list, with the same number of entries.
    pub listed: &'a [ProcessSample],
}

impl Serialize for ProcessReadingsDiff<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries = self.now.iter().zip(self.listed);
        let rows: Vec<_> =
            entries.map(|(now, listed)| RowDiff { now: &now.now, before: &listed.now }).collect();
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("list_ns", &self.list_ns)?;
        line.serialize_entry("sparse", &true)?;
        line.serialize_entry("now", &rows)?;
        line.end()
    }
}

/// Diffs entries pairwise by position.
struct RowsDiff<'a, R> {
    now: &'a [R],
    before: &'a [R],
}

impl<R: ReadingSet> Serialize for RowsDiff<'_, R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.now.iter().zip(self.before).map(|(now, before)| RowDiff { now, before }))
    }
}

struct RowDiff<'a, R> {
    now: &'a R,
    before: &'a R,
}

impl<R: ReadingSet> Serialize for RowDiff<'_, R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_map(None)?;
        if let (Some(name), Some(fault)) = (R::Fields::FAULT, self.now.fault())
            && self.before.fault() != Some(fault)
        {
            row.serialize_entry(name, fault)?;
        }
        for field in R::Fields::ALL {
            let (now, before) = (self.now.reading(*field), self.before.reading(*field));
            if now != before && field.cell(now) != field.cell(before) {
                row.serialize_entry(field.metric().reading, now)?;
            }
        }
        row.end()
    }
}

/// Diffs jobs by id; a new job is diffed against empty readings.
struct JobUsageDiff<'a> {
    now: &'a [JobCgroupUsage],
    before: &'a [JobCgroupUsage],
}

impl Serialize for JobUsageDiff<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Usage<'a> {
            job: JobId,
            now: RowDiff<'a, JobReadings>,
        }
        let new = JobReadings::default();
        serializer.collect_seq(self.now.iter().map(|usage| {
            let known = self.before.iter().find(|before| before.job == usage.job);
            Usage {
                job: usage.job,
                now: RowDiff { now: &usage.now, before: known.map_or(&new, |known| &known.now) },
            }
        }))
    }
}

impl<'de, F: Field> Deserialize<'de> for RowsDelta<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RowsVisitor(PhantomData))
    }
}

/// Parses one row or a list of rows.
struct RowsVisitor<F>(PhantomData<F>);

impl<'de, F: Field> Visitor<'de> for RowsVisitor<F> {
    type Value = RowsDelta<F>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("readings by name, or a list of such")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let mut rows = RowsDelta::default();
        RowSeed(&mut rows).visit_map(map)?;
        Ok(rows)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut rows = RowsDelta::default();
        while list.next_element_seed(RowSeed(&mut rows))?.is_some() {}
        Ok(rows)
    }
}

/// Parses one row and appends it.
struct RowSeed<'a, F>(&'a mut RowsDelta<F>);

impl<'de, F: Field> DeserializeSeed<'de> for RowSeed<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: Field> Visitor<'de> for RowSeed<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("readings by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let rows = self.0;
        // Probes serialize readings in field order, so the search continues after the last match.
        let mut next = 0;
        while let Some(entry) = map.next_key_seed(NameSeed::<F>(next, PhantomData))? {
            match entry {
                EntryName::Reading(index) => {
                    let field = F::ALL[index];
                    let cell = field.cell(&map.next_value()?);
                    rows.cells.push(CellDelta { row: rows.rows, field, cell });
                    next = index + 1;
                }
                EntryName::Fault => rows.faults.push((rows.rows, map.next_value()?)),
                // Readings of a newer probe are skipped.
                EntryName::Unknown => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        rows.rows += 1;
        Ok(())
    }
}

/// Meaning of an entry's name.
enum EntryName {
    /// The reading of the field at this position.
    Reading(usize),
    Fault,
    Unknown,
}

/// Parses an entry's name, starting the search at the expected position.
struct NameSeed<F>(usize, PhantomData<F>);

impl<'de, F: Field> DeserializeSeed<'de> for NameSeed<F> {
    type Value = EntryName;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<EntryName, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<F: Field> Visitor<'_> for NameSeed<F> {
    type Value = EntryName;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a reading")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<EntryName, E> {
        let (before, behind) = F::ALL.split_at(self.0.min(F::ALL.len()));
        let at = |field: &F| field.metric().reading == name;
        let index = behind.iter().position(at).map(|index| before.len() + index);
        Ok(match index.or_else(|| before.iter().position(at)) {
            Some(index) => EntryName::Reading(index),
            None if F::FAULT == Some(name) => EntryName::Fault,
            None => EntryName::Unknown,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::Reading;
    use crate::host::HostSample;
    use crate::probe::GpuSample;
    use proptest::prelude::*;

    /// State of a node's rows in a relay.
    #[derive(Debug, Default, PartialEq)]
    struct Known {
        gpus: Vec<(Row<GpuField>, Option<Text>)>,
        host: Row<HostField>,
        cores: Vec<u8>,
        jobs: Vec<(JobId, Row<JobField>)>,
    }

    impl Known {
        fn of(sample: &Sample) -> Self {
            Self {
                gpus: sample.gpus.iter().map(|gpu| (gpu.row(), gpu.fault.clone())).collect(),
                host: sample.host.row(),
                cores: sample.cores.clone(),
                jobs: sample.jobs.iter().map(|usage| (usage.job, usage.now.row())).collect(),
            }
        }

        fn apply(&mut self, delta: SampleDelta) {
            if delta.since.is_none() {
                *self = Self { gpus: vec![Default::default(); delta.gpus.rows as usize], ..Self::default() };
            }
            delta.gpus.apply_each(&mut self.gpus, |(row, _)| row);
            delta.gpus.faults.into_iter().for_each(|(row, fault)| self.gpus[row as usize].1 = fault);
            delta.host.apply(&mut self.host);
            self.cores = delta.cores.unwrap_or(std::mem::take(&mut self.cores));
            if let Some(jobs) = delta.jobs {
                let before = std::mem::take(&mut self.jobs);
                for usage in jobs {
                    let known = before.iter().find(|(job, _)| *job == usage.job);
                    let mut row = known.map_or_else(Row::default, |(_, row)| row.clone());
                    usage.now.apply(&mut row);
                    self.jobs.push((usage.job, row));
                }
            }
        }
    }

    fn parsed(json: &str) -> SampleDelta {
        match serde_json::from_str::<ParsedLine>(json).unwrap() {
            ProbeLine::Sample(delta) => *delta,
            other => unreachable!("a sample became {other:?}"),
        }
    }

    fn reading() -> impl Strategy<Value = Reading<u64>> {
        prop_oneof![
            4 => (0u64..6).prop_map(|n| Reading::Value(n * 400_000_000)),
            2 => (0u64..6).prop_map(Reading::Value),
            1 => Just(Reading::NotYet),
            1 => Just(Reading::Unsupported),
            1 => "[a-b]{0,2}".prop_map(|why| Reading::Failed(why.into())),
        ]
    }

    prop_compose! {
        fn gpu()(readings in prop::collection::vec(reading(), GpuField::ALL.len()), fault in prop::option::of("[a-b]{1}")) -> GpuSample {
            let mut gpu = GpuSample { fault: fault.map(Text::from), ..GpuSample::default() };
            gpu.readings_mut().zip(readings).for_each(|(to, from)| *to = from);
            gpu
        }
    }

    prop_compose! {
        fn sample()(
            gpus in prop::collection::vec(gpu(), 2),
            host in prop::collection::vec(reading(), HostField::ALL.len()),
            cores in prop::collection::vec(0u8..3, 0..3),
            jobs in prop::collection::btree_map(1u32..4, reading(), 0..3),
        ) -> Sample {
            let mut sample = Sample { gpus, cores, ..Sample::default() };
            sample.host.readings_mut().zip(host).for_each(|(to, from)| *to = from);
            let usage = |(id, cpu_pct)| JobCgroupUsage { job: JobId(id), now: JobReadings { cpu_pct, ..Default::default() } };
            sample.jobs = jobs.into_iter().map(usage).collect();
            sample
        }
    }

    proptest! {
        #[test]
        fn applying_deltas_yields_the_same_state_as_full_samples(samples in prop::collection::vec(sample(), 1..6)) {
            let mut known = Known::default();
            let mut before: Option<Sample> = None;
            for (seq, sample) in samples.into_iter().enumerate() {
                let now = Sample { seq: seq as u64, ..sample };
                let whole = serde_json::to_string(&ProbeLine::<_>::Sample(Box::new(now.clone()))).unwrap();
                for delta in [parsed(&whole), SampleDelta::from(&now)] {
                    let mut all = Known::default();
                    all.apply(delta);
                    prop_assert_eq!(&all, &Known::of(&now));
                }
                let line = match &before {
                    Some(before) => {
                        let since = SampleDiff { now: &now, before };
                        serde_json::to_string(&ProbeLine::<_, ProcessListReadings>::Sample(Box::new(since))).unwrap()
                    }
                    None => whole,
                };
                known.apply(parsed(&line));
                prop_assert_eq!(&known, &Known::of(&now));
                before = Some(now);
            }
        }
    }

    #[test]
    fn changes_below_display_resolution_are_omitted() {
        let gpu = |power_mw, temp_c| GpuSample {
            power_mw: Reading::Value(power_mw),
            temp_c: Reading::Value(temp_c),
            ..GpuSample::default()
        };
        let sample = |seq, gpus| Sample { seq, gpus, ..Sample::default() };
        let before = sample(7, vec![gpu(391_400, 50), gpu(1, 1)]);
        let now = sample(8, vec![gpu(391_450, 51), gpu(1, 1)]);
        let since = SampleDiff { now: &now, before: &before };
        assert_eq!(
            serde_json::to_string(&ProbeLine::<_, ProcessListReadings>::Sample(Box::new(since))).unwrap(),
            r#"{"sample":{"seq":8,"mono_ns":0,"wall_ms":0,"interval_ms":0,"since":7,"gpus":[{"temp_c":51},{}]}}"#
        );
    }

    #[test]
    fn readings_parse_in_any_order_and_unknown_ones_are_skipped() {
        let delta = parsed(
            r#"{"sample":{"seq":1,"mono_ns":2,"interval_ms":3,"host":{"uptime_s":60,"later":[{}],"cpu_pct":4}}}"#,
        );
        let mut row =
            HostSample { cpu_pct: Reading::Value(4), uptime_s: Reading::Value(60), ..Default::default() }
                .row();
        assert_eq!(delta.host.cells.len(), 2);
        let before = row.clone();
        delta.host.apply(&mut row);
        assert_eq!(row, before);
    }
}

//! A line of wire one leaves out what a page would not show differently, and what it tells is read straight into cells.
//!
//! The printing side compares two samples ([`SampleSince`]), the hearing side gets [`ToldSample`]: no
//! reading of its own is made for any field, and nothing is allocated for a card.

use crate::cell::{Field, Row};
use crate::host::{JobReadings, JobUse};
use crate::probe::{ProbeLine, ProcessSample, ProcessVitals, Sample};
use crate::{Cell, GpuField, HostField, JobField, JobId, ProcessField, Reading, Text};
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// A field that a reading of a probe fills.
pub trait ReadField: Field {
    /// What the reading of each field is called in JSON, and how many of its unit are one of the field's; in
    /// the order of [`Field::ALL`].
    const READINGS: &'static [(&'static str, u64)];
    /// What the entry is called that says why there are no readings, if there is such an entry.
    const FAULT: Option<&'static str>;

    /// The cell of a reading.
    fn cell(self, reading: &Reading<u64>) -> Cell {
        match (reading, Self::READINGS[self.index()].1) {
            (Reading::Value(value), per @ 2..) => {
                Cell::of(self, &Reading::Value(value.saturating_add(per / 2) / per))
            }
            (reading, _) => Cell::of(self, reading),
        }
    }
}

/// A struct of readings, each of which fills one cell of a row.
pub trait Readings: Default {
    /// The fields of that row.
    type Fields: ReadField;

    /// The reading that fills a field.
    fn reading(&self, field: Self::Fields) -> &Reading<u64>;

    /// Why there are no readings, where that can be said.
    fn fault(&self) -> Option<&Option<Text>>;

    /// The row of these readings.
    fn row(&self) -> Row<Self::Fields> {
        let mut row = Row::default();
        for field in Self::Fields::ALL {
            row.set(*field, field.cell(self.reading(*field)));
        }
        row
    }
}

/// One cell of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told<F> {
    /// Position of the row in its list.
    pub row: u32,
    /// The field.
    pub field: F,
    /// What it is now.
    pub cell: Cell,
}

/// What a line tells of one row, or of a list of rows; in JSON an object of readings or a list of such.
#[derive(Clone, Debug, PartialEq)]
pub struct ToldRows<F> {
    /// How many rows there are.
    pub rows: u32,
    /// Their cells, in the order of the line: of two of the same place the later holds.
    pub cells: Vec<Told<F>>,
    /// Faults that began or ended, by row.
    pub faults: Vec<(u32, Option<Text>)>,
}

impl<F> Default for ToldRows<F> {
    fn default() -> Self {
        Self { rows: 0, cells: Vec::new(), faults: Vec::new() }
    }
}

impl<F: ReadField> ToldRows<F> {
    /// Enters the cells of a single row.
    pub fn enter(&self, row: &mut Row<F>) {
        self.cells.iter().for_each(|told| row.set(told.field, told.cell));
    }

    /// Enters the cells of those rows that are there; `row` finds the row of an entry.
    pub fn enter_each<T>(&self, all: &mut [T], row: impl Fn(&mut T) -> &mut Row<F>) {
        for told in &self.cells {
            if let Some(one) = all.get_mut(told.row as usize) {
                row(one).set(told.field, told.cell);
            }
        }
    }

    /// All that some readings tell.
    fn of<'a, R: Readings<Fields = F> + 'a>(all: impl IntoIterator<Item = &'a R>) -> Self {
        let mut rows = Self::default();
        for readings in all {
            let told = |field: &F| Told {
                row: rows.rows,
                field: *field,
                cell: field.cell(readings.reading(*field)),
            };
            let known = F::ALL.iter().map(told).filter(|told| told.cell != Cell::NOT_YET);
            rows.cells.extend(known);
            rows.faults.extend(readings.fault().cloned().flatten().map(|fault| (rows.rows, Some(fault))));
            rows.rows += 1;
        }
        rows
    }
}

/// A sample as a line tells it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ToldSample {
    /// [`Sample::seq`].
    pub seq: u64,
    /// [`Sample::mono_ns`].
    pub mono_ns: u64,
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
    pub gpus: ToldRows<GpuField>,
    /// The host, as one row.
    #[serde(default)]
    pub host: ToldRows<HostField>,
    /// [`Sample::cores`], if they are told.
    #[serde(default)]
    pub cores: Option<Vec<u8>>,
    /// [`Sample::jobs`], if they are told.
    #[serde(default)]
    pub jobs: Option<Vec<ToldUse>>,
}

/// What a line tells of a job's use.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ToldUse {
    /// The job.
    pub job: JobId,
    /// What it uses, as one row.
    pub now: ToldRows<JobField>,
}

/// What a line tells of the processes of the last list.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ToldVitals {
    /// [`ProcessVitals::list_ns`].
    #[serde(default)]
    pub list_ns: u64,
    /// [`ProcessVitals::sparse`].
    #[serde(default)]
    pub sparse: bool,
    /// One row for each entry of the list.
    pub now: ToldRows<ProcessField>,
}

/// A line as a relay hears it.
pub type HeardLine = ProbeLine<ToldSample, ToldVitals>;

impl From<&Sample> for ToldSample {
    fn from(sample: &Sample) -> Self {
        let told_use = |usage: &JobUse| ToldUse { job: usage.job, now: ToldRows::of([&usage.now]) };
        Self {
            seq: sample.seq,
            mono_ns: sample.mono_ns,
            interval_ms: sample.interval_ms,
            replay: sample.replay,
            since: sample.since,
            gpus: ToldRows::of(&sample.gpus),
            host: ToldRows::of([&sample.host]),
            cores: (!sample.cores.is_empty()).then(|| sample.cores.clone()),
            jobs: (!sample.jobs.is_empty()).then(|| sample.jobs.iter().map(told_use).collect()),
        }
    }
}

impl From<ProbeLine> for HeardLine {
    fn from(line: ProbeLine) -> Self {
        match line {
            ProbeLine::Hello(hello) => Self::Hello(hello),
            ProbeLine::Sample(sample) => Self::Sample(Box::new(ToldSample::from(&*sample))),
            ProbeLine::Processes(list) => Self::Processes(list),
            ProbeLine::ProcessVitals(vitals) => {
                let ProcessVitals { list_ns, sparse, now } = vitals;
                Self::ProcessVitals(ToldVitals { list_ns, sparse, now: ToldRows::of(&now) })
            }
            ProbeLine::Health(report) => Self::Health(report),
            ProbeLine::LinkRates(rates) => Self::LinkRates(rates),
            ProbeLine::Heartbeat(heartbeat) => Self::Heartbeat(heartbeat),
            ProbeLine::Event(event) => Self::Event(event),
            ProbeLine::Answer(answer) => Self::Answer(answer),
            ProbeLine::Bye(bye) => Self::Bye(bye),
            ProbeLine::Piece(piece) => Self::Piece(piece),
        }
    }
}

/// A sample of which a line tells what a page would show differently since the one before.
#[derive(Debug)]
pub struct SampleSince<'a> {
    /// The sample.
    pub now: &'a Sample,
    /// The one that whoever reads the line has read before; with as many GPUs.
    pub before: &'a Sample,
}

impl Serialize for SampleSince<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { now, before } = self;
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("seq", &now.seq)?;
        line.serialize_entry("mono_ns", &now.mono_ns)?;
        line.serialize_entry("wall_ms", &now.wall_ms)?;
        line.serialize_entry("interval_ms", &now.interval_ms)?;
        line.serialize_entry("since", &before.seq)?;
        if now.gpus != before.gpus {
            line.serialize_entry("gpus", &RowsSince { now: &now.gpus, before: &before.gpus })?;
        }
        if now.host != before.host {
            line.serialize_entry("host", &RowSince { now: &now.host, before: &before.host })?;
        }
        if now.cores != before.cores {
            line.serialize_entry("cores", &now.cores)?;
        }
        if now.jobs != before.jobs {
            line.serialize_entry("jobs", &UsesSince { now: &now.jobs, before: &before.jobs })?;
        }
        line.end()
    }
}

/// What processes do, of which a line tells what a page would show differently than it did of their list.
#[derive(Debug)]
pub struct VitalsSince<'a> {
    /// [`ProcessVitals::list_ns`].
    pub list_ns: u64,
    /// What they do.
    pub now: &'a [ProcessSample],
    /// The list, with as many entries.
    pub listed: &'a [ProcessSample],
}

impl Serialize for VitalsSince<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries = self.now.iter().zip(self.listed);
        let rows: Vec<_> =
            entries.map(|(now, listed)| RowSince { now: &now.now, before: &listed.now }).collect();
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("list_ns", &self.list_ns)?;
        line.serialize_entry("sparse", &true)?;
        line.serialize_entry("now", &rows)?;
        line.end()
    }
}

/// Each entry against the one at the same place.
struct RowsSince<'a, R> {
    now: &'a [R],
    before: &'a [R],
}

impl<R: Readings> Serialize for RowsSince<'_, R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.now.iter().zip(self.before).map(|(now, before)| RowSince { now, before }))
    }
}

struct RowSince<'a, R> {
    now: &'a R,
    before: &'a R,
}

impl<R: Readings> Serialize for RowSince<'_, R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_map(None)?;
        if let (Some(name), Some(fault)) = (R::Fields::FAULT, self.now.fault())
            && self.before.fault() != Some(fault)
        {
            row.serialize_entry(name, fault)?;
        }
        for (field, (name, _)) in R::Fields::ALL.iter().zip(R::Fields::READINGS) {
            let (now, before) = (self.now.reading(*field), self.before.reading(*field));
            if now != before && field.cell(now) != field.cell(before) {
                row.serialize_entry(name, now)?;
            }
        }
        row.end()
    }
}

/// Each job against itself; one that is new against nothing.
struct UsesSince<'a> {
    now: &'a [JobUse],
    before: &'a [JobUse],
}

impl Serialize for UsesSince<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Use<'a> {
            job: JobId,
            now: RowSince<'a, JobReadings>,
        }
        let new = JobReadings::default();
        serializer.collect_seq(self.now.iter().map(|usage| {
            let known = self.before.iter().find(|before| before.job == usage.job);
            Use {
                job: usage.job,
                now: RowSince { now: &usage.now, before: known.map_or(&new, |known| &known.now) },
            }
        }))
    }
}

impl<'de, F: ReadField> Deserialize<'de> for ToldRows<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RowsVisitor(PhantomData))
    }
}

/// Reads a row, or a list of rows.
struct RowsVisitor<F>(PhantomData<F>);

impl<'de, F: ReadField> Visitor<'de> for RowsVisitor<F> {
    type Value = ToldRows<F>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("readings by name, or a list of such")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let mut rows = ToldRows::default();
        RowSeed(&mut rows).visit_map(map)?;
        Ok(rows)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut rows = ToldRows::default();
        while list.next_element_seed(RowSeed(&mut rows))?.is_some() {}
        Ok(rows)
    }
}

/// Reads one more row.
struct RowSeed<'a, F>(&'a mut ToldRows<F>);

impl<'de, F: ReadField> DeserializeSeed<'de> for RowSeed<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: ReadField> Visitor<'de> for RowSeed<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("readings by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let rows = self.0;
        // Probes print readings in the order of their fields, so that each is looked for behind the last.
        let mut next = 0;
        while let Some(entry) = map.next_key_seed(EntrySeed::<F>(next, PhantomData))? {
            match entry {
                Entry::Reading(index) => {
                    let field = F::ALL[index];
                    let cell = field.cell(&map.next_value()?);
                    rows.cells.push(Told { row: rows.rows, field, cell });
                    next = index + 1;
                }
                Entry::Fault => rows.faults.push((rows.rows, map.next_value()?)),
                // A reading of a newer probe is no reason to lose the rest.
                Entry::Unknown => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        rows.rows += 1;
        Ok(())
    }
}

/// What the name of an entry means.
enum Entry {
    /// The reading of a field, by its position.
    Reading(usize),
    Fault,
    Unknown,
}

/// Reads the name of an entry that is likely to be at or behind a position.
struct EntrySeed<F>(usize, PhantomData<F>);

impl<'de, F: ReadField> DeserializeSeed<'de> for EntrySeed<F> {
    type Value = Entry;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Entry, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<F: ReadField> Visitor<'_> for EntrySeed<F> {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a reading")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Entry, E> {
        let (before, behind) = F::READINGS.split_at(self.0.min(F::READINGS.len()));
        let at = |(known, _): &(&str, u64)| *known == name;
        let index = behind.iter().position(at).map(|index| before.len() + index);
        Ok(match index.or_else(|| before.iter().position(at)) {
            Some(index) => Entry::Reading(index),
            None if F::FAULT == Some(name) => Entry::Fault,
            None => Entry::Unknown,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostSample;
    use crate::probe::GpuSample;
    use proptest::prelude::*;

    /// What a relay knows of a node's rows.
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

        fn hear(&mut self, told: ToldSample) {
            if told.since.is_none() {
                *self = Self { gpus: vec![Default::default(); told.gpus.rows as usize], ..Self::default() };
            }
            told.gpus.enter_each(&mut self.gpus, |(row, _)| row);
            told.gpus.faults.into_iter().for_each(|(row, fault)| self.gpus[row as usize].1 = fault);
            told.host.enter(&mut self.host);
            self.cores = told.cores.unwrap_or(std::mem::take(&mut self.cores));
            if let Some(jobs) = told.jobs {
                let before = std::mem::take(&mut self.jobs);
                for usage in jobs {
                    let known = before.iter().find(|(job, _)| *job == usage.job);
                    let mut row = known.map_or_else(Row::default, |(_, row)| row.clone());
                    usage.now.enter(&mut row);
                    self.jobs.push((usage.job, row));
                }
            }
        }
    }

    fn heard(json: &str) -> ToldSample {
        match serde_json::from_str::<HeardLine>(json).unwrap() {
            ProbeLine::Sample(told) => *told,
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
            let usage = |(id, cpu_pct)| JobUse { job: JobId(id), now: JobReadings { cpu_pct, ..Default::default() } };
            sample.jobs = jobs.into_iter().map(usage).collect();
            sample
        }
    }

    proptest! {
        #[test]
        fn whoever_hears_only_what_changed_knows_what_whoever_hears_everything_does(samples in prop::collection::vec(sample(), 1..6)) {
            let mut known = Known::default();
            let mut before: Option<Sample> = None;
            for (seq, sample) in samples.into_iter().enumerate() {
                let now = Sample { seq: seq as u64, ..sample };
                let whole = serde_json::to_string(&ProbeLine::<_>::Sample(Box::new(now.clone()))).unwrap();
                for told in [heard(&whole), ToldSample::from(&now)] {
                    let mut all = Known::default();
                    all.hear(told);
                    prop_assert_eq!(&all, &Known::of(&now));
                }
                let line = match &before {
                    Some(before) => {
                        let since = SampleSince { now: &now, before };
                        serde_json::to_string(&ProbeLine::<_, ProcessVitals>::Sample(Box::new(since))).unwrap()
                    }
                    None => whole,
                };
                known.hear(heard(&line));
                prop_assert_eq!(&known, &Known::of(&now));
                before = Some(now);
            }
        }
    }

    #[test]
    fn what_a_page_would_not_show_differently_is_left_out() {
        let gpu = |power_mw, temp_c| GpuSample {
            power_mw: Reading::Value(power_mw),
            temp_c: Reading::Value(temp_c),
            ..GpuSample::default()
        };
        let sample = |seq, gpus| Sample { seq, gpus, ..Sample::default() };
        let before = sample(7, vec![gpu(391_400, 50), gpu(1, 1)]);
        let now = sample(8, vec![gpu(391_450, 51), gpu(1, 1)]);
        let since = SampleSince { now: &now, before: &before };
        assert_eq!(
            serde_json::to_string(&ProbeLine::<_, ProcessVitals>::Sample(Box::new(since))).unwrap(),
            r#"{"sample":{"seq":8,"mono_ns":0,"wall_ms":0,"interval_ms":0,"since":7,"gpus":[{"temp_c":51},{}]}}"#
        );
    }

    #[test]
    fn every_field_has_a_reading() {
        fn names<F: ReadField>() {
            assert!(F::READINGS.iter().all(|(name, per)| !name.is_empty() && *per > 0), "{:?}", F::READINGS);
        }
        names::<GpuField>();
        names::<HostField>();
        names::<ProcessField>();
        names::<JobField>();
    }

    #[test]
    fn readings_come_in_any_order_and_unknown_ones_are_skipped() {
        let told = heard(
            r#"{"sample":{"seq":1,"mono_ns":2,"interval_ms":3,"host":{"uptime_s":60,"later":[{}],"cpu_pct":4}}}"#,
        );
        let mut row =
            HostSample { cpu_pct: Reading::Value(4), uptime_s: Reading::Value(60), ..Default::default() }
                .row();
        assert_eq!(told.host.cells.len(), 2);
        let before = row.clone();
        told.host.enter(&mut row);
        assert_eq!(row, before);
    }
}

//! Events in the form in which a recording keeps them: as JSON, with cells by position and code.

use nodeglass_fleet::{Event, Host, NoteChange, RefusalCause, SessionEvent};
use nodeglass_protocol::capture::FindingCapture;
use nodeglass_protocol::cluster::ClusterSummary;
use nodeglass_protocol::field::{Field, Row};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::LauncherStatus;
use nodeglass_protocol::probe::ProbeLine;
use nodeglass_protocol::probe::delta::{
    CellDelta, JobUsageDelta, ParsedLine, ProcessReadingsDelta, RowsDelta, SampleDelta,
};
use nodeglass_protocol::{Cell, GpuField, HostField, JobField, JobId, NodeName, ProcessField, Text};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

/// An event and its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Stamped {
    /// Time by the recording relay's clock.
    pub(super) at_ms: u64,
    /// The event.
    pub(super) event: RecordedEvent,
}

/// An event of the fleet. Those that concern viewers of the recording relay are not recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordedEvent {
    Jobs {
        jobs: Vec<Job>,
        wall_ahead_ms: i64,
    },
    JobsFailed {
        why: Text,
        retry_at_ms: u64,
    },
    NoSlurm,
    Hosts {
        hosts: BTreeMap<NodeName, Option<Text>>,
        notices: Vec<Text>,
    },
    Cluster(ClusterSummary),
    Clusters(Vec<Text>),
    Launcher(LauncherStatus),
    Node(NodeName, RecordedNodeEvent),
    JobProbe(NodeName, JobId, RecordedNodeEvent),
    /// [`Event::Note`] and [`Event::RestoredNotes`].
    Notes(Vec<NoteChange>),
    Capture {
        key: Text,
        capture: Box<FindingCapture>,
    },
}

/// [`SessionEvent`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordedNodeEvent {
    Connecting {
        failures: u32,
    },
    Line(Box<RecordedLine>),
    Lost {
        lines: u64,
        sample: Text,
    },
    Noise(Text),
    Down {
        why: Text,
        retry_at_ms: u64,
    },
    Refused {
        #[serde(default)]
        cause: RefusalCause,
        why: Text,
        advice: Text,
    },
    Ending,
}

pub(super) type RecordedLine = ProbeLine<RecordedSample, RecordedProcessReadings>;

/// [`SampleDelta`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordedSample {
    seq: u64,
    mono_ns: u64,
    interval_ms: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    replay: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    gpus: Rows<GpuField>,
    host: Rows<HostField>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cores: Option<Vec<u8>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jobs: Option<Vec<(JobId, Rows<JobField>)>>,
}

impl RecordedSample {
    /// Moves GPUs to new positions and drops those without one, readings of the host unless they are shown, and
    /// the usage of other jobs.
    pub(super) fn retain(&mut self, new: impl Fn(usize) -> Option<u32>, shows_host: bool, job: JobId) {
        self.gpus.retain(new);
        if !shows_host {
            self.host.cells.clear();
            self.host.faults.clear();
            self.cores = None;
        }
        if let Some(jobs) = &mut self.jobs {
            jobs.retain(|(of, _)| *of == job);
        }
    }

    /// Returns whether it is of the moment at which it was recorded, rather than one that a probe kept.
    pub(super) fn is_current(&self) -> bool {
        !self.replay
    }

    /// Removes the readings of the GPU at a position.
    pub(super) fn remove_gpu(&mut self, position: u32) {
        self.gpus.cells.retain(|(row, ..)| *row != position);
        self.gpus.faults.retain(|(row, _)| *row != position);
    }

    /// Replaces the readings of the GPU at a position by all that the probe reported, not only those that changed.
    pub(super) fn replace_gpu(&mut self, position: u32, row: &Row<GpuField>, fault: Option<Text>) {
        self.remove_gpu(position);
        // The relay determines it.
        let is_reported = |field: &&GpuField| **field != GpuField::MemUnattributed;
        let code = |field: &GpuField| (position, field.index(), row.get(*field).code());
        self.gpus.cells.extend(GpuField::ALL.iter().filter(is_reported).map(code));
        self.gpus.faults.push((position, fault));
    }
}

impl RecordedProcessReadings {
    /// Moves entries to new positions and drops those without one.
    pub(super) fn retain(&mut self, new: impl Fn(usize) -> Option<u32>) {
        self.now.retain(new);
    }
}

/// Maximum number of nodes of the jobs of a list.
const MAX_NODES: usize = 16_384;

/// Drops nodes that no cluster has: a small file may name millions.
fn bound_nodes(jobs: &mut [Job]) {
    let mut known = BTreeSet::new();
    for job in jobs {
        job.nodes
            .retain(|node| known.contains(node) || known.len() < MAX_NODES && known.insert(node.clone()));
        job.nodes.truncate(MAX_NODES);
    }
}

/// Maximum number of GPUs or processes of a node.
const MAX_ROWS: u32 = 4_096;

impl<F> Rows<F> {
    fn retain(&mut self, new: impl Fn(usize) -> Option<u32>) {
        let moved = |row: u32| new(row as usize);
        self.cells =
            self.cells.iter().filter_map(|(row, field, code)| Some((moved(*row)?, *field, *code))).collect();
        self.faults = self.faults.drain(..).filter_map(|(row, fault)| Some((moved(row)?, fault))).collect();
        // A file may state any number.
        self.rows = (0..self.rows.min(MAX_ROWS)).filter(|row| moved(*row).is_some()).count() as u32;
    }
}

/// [`ProcessReadingsDelta`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordedProcessReadings {
    list_ns: u64,
    sparse: bool,
    now: Rows<ProcessField>,
}

/// [`RowsDelta`]: row, position of the field and code of each cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
struct Rows<F> {
    rows: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cells: Vec<(u32, usize, u32)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    faults: Vec<(u32, Option<Text>)>,
    #[serde(skip)]
    fields: PhantomData<F>,
}

impl RecordedEvent {
    /// The form of an event; `None` if it is not recorded.
    pub(super) fn of(event: Event) -> Option<Self> {
        Some(match event {
            Event::Jobs { jobs, wall_ahead_ms } => Self::Jobs { jobs, wall_ahead_ms },
            Event::JobsFailed { why, retry_at_ms } => Self::JobsFailed { why, retry_at_ms },
            Event::NoSlurm => Self::NoSlurm,
            Event::Hosts { hosts, notices } => Self::Hosts {
                hosts: hosts.into_iter().map(|(name, host)| (name, host.group)).collect(),
                notices,
            },
            Event::Cluster(summary) => Self::Cluster(summary),
            Event::Clusters(names) => Self::Clusters(names),
            Event::Launcher(launcher) => Self::Launcher(launcher),
            Event::Node(node, event) => Self::Node(node, RecordedNodeEvent::of(event)?),
            Event::JobProbe(node, job, event) => Self::JobProbe(node, job, RecordedNodeEvent::of(event)?),
            Event::Note(change) => Self::Notes(vec![change]),
            Event::RestoredNotes(stored) => Self::Notes(stored),
            Event::Capture { key, capture } => Self::Capture { key, capture },
            Event::Audit(_)
            | Event::Sharing(_)
            | Event::Tick
            | Event::Stalled { .. }
            | Event::Restored(_)
            | Event::Storage(..)
            | Event::Limited(..)
            | Event::JobLogs(_)
            | Event::Silences(_)
            | Event::Replay(_)
            | Event::Status { .. } => {
                return None;
            }
        })
    }

    /// The event.
    pub(super) fn into_event(self) -> Event {
        match self {
            Self::Jobs { mut jobs, wall_ahead_ms } => {
                bound_nodes(&mut jobs);
                Event::Jobs { jobs, wall_ahead_ms }
            }
            Self::JobsFailed { why, retry_at_ms } => Event::JobsFailed { why, retry_at_ms },
            Self::NoSlurm => Event::NoSlurm,
            Self::Hosts { hosts, notices } => {
                let host = |(name, group)| (name, Host { group, ..Host::default() });
                Event::Hosts { hosts: hosts.into_iter().map(host).collect(), notices }
            }
            Self::Cluster(summary) => Event::Cluster(summary),
            Self::Clusters(names) => Event::Clusters(names),
            Self::Launcher(launcher) => Event::Launcher(launcher),
            Self::Node(node, event) => Event::Node(node, event.into_event()),
            Self::JobProbe(node, job, event) => Event::JobProbe(node, job, event.into_event()),
            Self::Notes(changes) => Event::RestoredNotes(changes),
            Self::Capture { key, capture } => Event::Capture { key, capture },
        }
    }
}

impl RecordedNodeEvent {
    fn of(event: SessionEvent) -> Option<Self> {
        Some(match event {
            SessionEvent::Connecting { failures } => Self::Connecting { failures },
            SessionEvent::Line(line) => Self::Line(Box::new(recorded(*line)?)),
            SessionEvent::Lost { lines, sample } => Self::Lost { lines, sample },
            SessionEvent::Noise(text) => Self::Noise(text),
            SessionEvent::Down { why, retry_at_ms } => Self::Down { why, retry_at_ms },
            SessionEvent::Refused { cause, why, advice } => Self::Refused { cause, why, advice },
            SessionEvent::Ending => Self::Ending,
        })
    }

    fn into_event(self) -> SessionEvent {
        match self {
            Self::Connecting { failures } => SessionEvent::Connecting { failures },
            Self::Line(line) => SessionEvent::Line(Box::new(line.map_into())),
            Self::Lost { lines, sample } => SessionEvent::Lost { lines, sample },
            Self::Noise(text) => SessionEvent::Noise(text),
            Self::Down { why, retry_at_ms } => SessionEvent::Down { why, retry_at_ms },
            Self::Refused { cause, why, advice } => SessionEvent::Refused { cause, why, advice },
            Self::Ending => SessionEvent::Ending,
        }
    }
}

/// The form of a line; `None` for responses to requests, which are somebody's alone.
fn recorded(line: ParsedLine) -> Option<RecordedLine> {
    let is_recorded = !matches!(line, ProbeLine::Response(_) | ProbeLine::Piece(_));
    is_recorded.then(|| line.map_into())
}

impl From<SampleDelta> for RecordedSample {
    fn from(sample: SampleDelta) -> Self {
        // Times are recorded by the relay's clock.
        let SampleDelta { seq, mono_ns, wall_ms: _, interval_ms, replay, since, gpus, host, cores, jobs } =
            sample;
        let jobs = jobs.map(|jobs| jobs.into_iter().map(|usage| (usage.job, usage.now.into())).collect());
        Self { seq, mono_ns, interval_ms, replay, since, gpus: gpus.into(), host: host.into(), cores, jobs }
    }
}

impl From<RecordedSample> for SampleDelta {
    fn from(sample: RecordedSample) -> Self {
        let RecordedSample { seq, mono_ns, interval_ms, replay, since, gpus, host, cores, jobs } = sample;
        let usage = |(job, now): (JobId, Rows<JobField>)| JobUsageDelta { job, now: now.into() };
        let jobs = jobs.map(|jobs| jobs.into_iter().map(usage).collect());
        let (gpus, host) = (gpus.into(), host.into());
        Self { seq, mono_ns, wall_ms: 0, interval_ms, replay, since, gpus, host, cores, jobs }
    }
}

impl From<ProcessReadingsDelta> for RecordedProcessReadings {
    fn from(readings: ProcessReadingsDelta) -> Self {
        Self { list_ns: readings.list_ns, sparse: readings.sparse, now: readings.now.into() }
    }
}

impl From<RecordedProcessReadings> for ProcessReadingsDelta {
    fn from(readings: RecordedProcessReadings) -> Self {
        Self { list_ns: readings.list_ns, sparse: readings.sparse, now: readings.now.into() }
    }
}

impl<F: Field> From<RowsDelta<F>> for Rows<F> {
    fn from(rows: RowsDelta<F>) -> Self {
        let code = |delta: &CellDelta<F>| (delta.row, delta.field.index(), delta.cell.code());
        let cells = rows.cells.iter().map(code).collect();
        Self { rows: rows.rows, cells, faults: rows.faults, fields: PhantomData }
    }
}

impl<F: Field> From<Rows<F>> for RowsDelta<F> {
    fn from(rows: Rows<F>) -> Self {
        // A field of a newer build is left out.
        let cell = |(row, field, code): (u32, usize, u32)| {
            Some(CellDelta { row, field: *F::ALL.get(field)?, cell: Cell::from_code(code) })
        };
        Self {
            rows: rows.rows,
            cells: rows.cells.into_iter().filter_map(cell).collect(),
            faults: rows.faults,
        }
    }
}

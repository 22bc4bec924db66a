//! Cuts one job out of a recording, without what a share of the job hides.

use super::event::{RecordedEvent, RecordedLine, RecordedNodeEvent, RecordedSample};
use super::writer::Writer;
use super::{Info, Reader, RecorderError, RecordingError};
use nodeglass_api::{JobSelector, NotOneJob};
use nodeglass_fleet::{Event, Fleet, FleetSettings, NoteChange};
use nodeglass_protocol::field::Row;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::picture::{GpuEvent, GpuPicture};
use nodeglass_protocol::probe::{HealthReport, Hello, LinkRates, MAX_SAMPLE_AGE_MS, ProbeLine, ProcessList};
use nodeglass_protocol::share::{HiddenParts, Scope, ShareTerms};
use nodeglass_protocol::{GpuUuid, JobId, NodeName, Text};
use nodeglass_rules::run::{Submission, is_before_submission, resumed_at};
use nodeglass_share::Visibility;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Ownership is read this often while a recording is searched for the GPUs of a job, in ms.
const OWNERS_INTERVAL_MS: u64 = 1_000;

/// Summary of a cut recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutSummary {
    /// The job as it was last listed, without its hidden parts.
    pub job: Job,
    /// Number of its GPUs.
    pub gpus: usize,
    /// Length of the new recording in ms: from the job's start to the last that is recorded of it.
    pub length_ms: u64,
    /// Size of the new file in bytes.
    pub bytes: u64,
    /// Length in bytes of the part at the end of the recording that is damaged or incomplete, and is left out.
    pub lost_bytes: u64,
}

/// Error of cutting out a job. Messages are complete sentences for the user.
#[derive(Debug, thiserror::Error)]
pub enum CutError {
    /// The recording cannot be read.
    #[error(transparent)]
    Read(#[from] RecordingError),
    /// The new file cannot be created.
    #[error(transparent)]
    Create(#[from] RecorderError),
    /// The new file cannot be written.
    #[error("failed to write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The job is not in the recording.
    #[error("job {job} does not run in this recording; {}", listed(known))]
    NoSuchJob {
        /// The job.
        job: JobId,
        /// The jobs that run in it.
        known: NamedJobs,
    },
    /// Its label is not in the recording, or means several jobs.
    #[error("{0} of this recording")]
    NotOneJob(NotOneJob),
}

fn listed(known: &[(JobId, Text)]) -> String {
    let jobs: Vec<_> = known.iter().map(|(_, job)| job.as_str()).collect();
    if jobs.is_empty() { "no job does".to_owned() } else { format!("it has {}", jobs.join(", ")) }
}

/// Jobs, as users write them, with their names.
type NamedJobs = Vec<(JobId, Text)>;

/// Identifies a probe: the node's own, or the one in a job there.
type ProbeKey = (NodeName, Option<JobId>);

/// Copies a job from a recording to a new one.
#[derive(Debug)]
struct Cut {
    job: JobId,
    visibility: Visibility,
    hidden: HiddenParts,
    /// Every GPU that was the job's at any time.
    gpus: GpusByNode,
    /// Until when its use of nodes is certain.
    certain: CertainUse,
    /// The recorded fleet, which knows who owns what.
    fleet: Fleet,
    probes: BTreeMap<ProbeKey, Probe>,
    /// Its notes, until it runs.
    early_notes: Vec<NoteChange>,
    /// Whether a list had the job as running: the new recording begins there.
    has_begun: bool,
    /// The last list of jobs that was copied.
    listed: Vec<Job>,
}

/// State of a probe.
#[derive(Debug, Default)]
struct Probe {
    /// Its first line.
    hello: Option<RecordedLine>,
    /// Its last health report, of all GPUs.
    health: Option<HealthReport>,
    /// Whether the first line has been copied.
    is_announced: bool,
    /// The UUIDs of its GPUs.
    uuids: Vec<GpuUuid>,
    /// New positions of its GPUs; those of GPUs that were the job's at any time.
    gpus: Vec<Option<u32>>,
    /// Whether each GPU was the job's at the last sample that was copied; `None` after a pause.
    owned: Vec<Option<bool>>,
    /// Whether the job got a GPU with that sample.
    gains_gpu: bool,
    /// New positions of the entries of its last list of processes.
    processes: Vec<Option<u32>>,
}

/// Cuts a job out of the recording `from` into the new file `to`.
///
/// # Errors
/// [`CutError`].
pub fn cut(from: &Path, to: &Path, job: JobId) -> Result<CutSummary, CutError> {
    let (gpus, certain, known) = gpus_of(from, job)?;
    if !known.iter().any(|(id, _)| *id == job) {
        return Err(CutError::NoSuchJob { job, known });
    }
    let mut reader = Reader::open(from)?;
    let info = reader.info().clone();
    let mut cut = Cut { certain, ..Cut::new(job, gpus, &info) };
    let failed = |source| CutError::Write { path: to.to_owned(), source };
    let mut writer = None;
    let (mut first_ms, mut last_ms, mut first) = (0, 0, None);
    while let Some((at_ms, event)) = reader.next_event().map_err(|error| RecordingError::new(from, error))? {
        let events = cut.events(of_one_job(event, job, &mut first), at_ms);
        for event in events {
            let writer = match &mut writer {
                Some(writer) => writer,
                None => {
                    first_ms = at_ms;
                    let wall_ms = info.wall_ms_at(at_ms);
                    let info = Info { job: Some(job), at_ms, wall_ms, ..info.clone() };
                    writer.insert(Writer::create(to, &info)?)
                }
            };
            last_ms = at_ms;
            writer.push(at_ms, event).map_err(failed)?;
        }
    }
    let shown = cut.fleet.jobs().iter().find(|listed| listed.id == job);
    let (Some(mut writer), Some(shown)) = (writer, shown.and_then(|job| cut.visibility.job(job))) else {
        return Err(CutError::NoSuchJob { job, known });
    };
    let bytes = writer.finish().map_err(failed)?;
    let gpus = cut.gpus.values().map(BTreeSet::len).sum();
    let length_ms = last_ms.saturating_sub(first_ms);
    let recorded = from.metadata().map_err(|error| RecordingError::new(from, error))?.len();
    Ok(CutSummary { job: shown, gpus, length_ms, bytes, lost_bytes: reader.lost_bytes(recorded) })
}

/// GPUs by node.
type GpusByNode = BTreeMap<NodeName, BTreeSet<GpuUuid>>;

/// The last moment for which it is certain that a job used a node, in ms of the relay's clock, by the start of the run. Later
/// readings may be another job's: SLURM's list was old, or the job had ended before the next one was read.
#[derive(Debug, Default)]
struct CertainUse(BTreeMap<(Option<i64>, NodeName), u64>);

impl CertainUse {
    /// Follows the job, as it is in the fleet's list.
    fn observe(&mut self, job: &Job, visibility: &Visibility, fleet: &Fleet, now_ms: u64) {
        if let Some(ended) = job.ended.filter(|_| !job.is_active()) {
            let ended_ms = fleet.relay_ms(ended);
            let of_run = self.0.iter_mut().filter(|((start, _), _)| *start == job.start);
            of_run.for_each(|(_, until_ms)| *until_ms = ended_ms.min(*until_ms));
        }
        for name in job.nodes.iter().filter(|_| job.is_active()) {
            let Some(node) = fleet.node(name) else { continue };
            let until = |gpu| Visibility::certain_until(fleet, node, gpu, &[job]);
            let owned = node.gpus.iter().filter(|gpu| gpu.is_owned_by(job.id));
            let host = visibility.shows_host(name, fleet).then(|| until(None));
            let until_ms = owned.map(|gpu| until(Some(&gpu.facts.uuid))).chain(host).fold(now_ms, u64::min);
            let known = self.0.entry((job.start, name.clone())).or_default();
            *known = until_ms.max(*known);
        }
    }

    fn includes(&self, job: &Job, node: &NodeName, at_ms: u64) -> bool {
        self.0.get(&(job.start, node.clone())).is_some_and(|until_ms| at_ms <= *until_ms)
    }
}

/// The raw id of the job that is named, among those that run in a recording.
///
/// # Errors
/// The recording cannot be read, or has no such job or several.
pub fn find_job(path: &Path, named: &JobSelector) -> Result<JobId, CutError> {
    let mut reader = Reader::open(path)?;
    let mut jobs = BTreeMap::new();
    while let Some((_, event)) = reader.next_event().map_err(|error| RecordingError::new(path, error))? {
        if let Event::Jobs { jobs: listed, .. } = event {
            for job in listed.into_iter().filter(Job::is_active) {
                jobs.entry(job.id).or_insert(job);
            }
        }
    }
    let jobs: Vec<Job> = jobs.into_values().collect();
    match (named.only(&jobs), named) {
        (Ok(job), _) => Ok(job.id),
        // The error states which jobs there are.
        (Err(NotOneJob::None(_)), JobSelector::Id(id)) => Ok(JobId(*id)),
        (Err(error), _) => Err(CutError::NotOneJob(error)),
    }
}

/// The GPUs of a job, until when its use of nodes is certain, and all jobs that run.
fn gpus_of(path: &Path, job: JobId) -> Result<(GpusByNode, CertainUse, NamedJobs), RecordingError> {
    let mut reader = Reader::open(path)?;
    let mut fleet = reader.info().fleet(FleetSettings::default());
    let mut gpus = GpusByNode::new();
    let mut certain = CertainUse::default();
    let visibility = visibility(job, reader.info());
    let mut known = BTreeMap::new();
    let (mut read_ms, mut last_ms, mut first) = (0, 0, None);
    loop {
        let next = reader.next_event().map_err(|error| RecordingError::new(path, error))?;
        let is_due =
            next.as_ref().is_none_or(|(at_ms, _)| at_ms.saturating_sub(read_ms) >= OWNERS_INTERVAL_MS);
        if is_due {
            let running = fleet.jobs().iter().filter(|job| job.is_active());
            known.extend(running.map(|job| (job.id, format!("{} ({})", job.label, job.name).into())));
            let of_job = fleet.jobs().iter().find(|listed| listed.id == job && listed.is_active());
            for name in of_job.into_iter().flat_map(|job| &job.nodes) {
                let Some(node) = fleet.node(name) else { continue };
                let owned = node.gpus.iter().filter(|gpu| gpu.is_owned_by(job));
                gpus.entry(name.clone()).or_default().extend(owned.map(|gpu| gpu.facts.uuid.clone()));
            }
            if let Some(job) = fleet.jobs().iter().find(|listed| listed.id == job) {
                certain.observe(job, &visibility, &fleet, last_ms);
            }
            drop(fleet.take_changes());
        }
        let Some((at_ms, event)) = next else { break };
        last_ms = at_ms;
        if is_due {
            read_ms = at_ms;
        }
        fleet.handle(of_one_job(event, job, &mut first), at_ms);
    }
    Ok((gpus, certain, known.into_iter().collect()))
}

/// Removes from a list of jobs another one with the number of the first that ran, which is kept in `first`.
fn of_one_job(mut event: Event, id: JobId, first: &mut Option<Job>) -> Event {
    if let Event::Jobs { jobs, .. } = &mut event {
        let mut is_own = |job: &Job| match first {
            Some(first) => !Submission::of(job).reuses_number_of(&Submission::of(first)),
            None if job.is_active() => {
                *first = Some(job.clone());
                true
            }
            None => true,
        };
        jobs.retain(|job| job.id != id || is_own(job));
    }
    event
}

/// Returns the visibility of a share of the job with the usual settings.
fn visibility(job: JobId, info: &Info) -> Visibility {
    let terms = ShareTerms {
        label: Text::default(),
        scope: Scope::Jobs(vec![job]),
        hidden: HiddenParts::default(),
        to: None,
        expires_ms: u64::MAX,
        ends_with_job: false,
    };
    Visibility::new(&terms, info.user.clone())
}

impl Cut {
    fn new(job: JobId, gpus: GpusByNode, info: &Info) -> Self {
        Self {
            job,
            visibility: visibility(job, info),
            hidden: HiddenParts::default(),
            gpus,
            certain: CertainUse::default(),
            fleet: info.fleet(FleetSettings::default()),
            probes: BTreeMap::new(),
            early_notes: Vec::new(),
            has_begun: false,
            listed: Vec::new(),
        }
    }

    /// The events of the new recording that an event becomes.
    fn events(&mut self, event: Event, at_ms: u64) -> Vec<RecordedEvent> {
        let recorded = RecordedEvent::of(event.clone());
        self.fleet.handle(event, at_ms);
        drop(self.fleet.take_changes());
        match recorded {
            Some(RecordedEvent::Jobs { jobs, wall_ahead_ms }) => self.jobs(&jobs, wall_ahead_ms),
            Some(RecordedEvent::Notes(mut changes)) => {
                // The id of another note says nothing.
                changes.retain(|change| self.is_own(change));
                if !self.has_begun {
                    self.early_notes.append(&mut changes);
                }
                if changes.is_empty() { Vec::new() } else { vec![RecordedEvent::Notes(changes)] }
            }
            Some(RecordedEvent::JobsFailed { .. }) if !self.is_active() => Vec::new(),
            Some(RecordedEvent::JobsFailed { retry_at_ms, .. }) => {
                let why = "SLURM does not respond to the relay".into();
                vec![RecordedEvent::JobsFailed { why, retry_at_ms }]
            }
            Some(RecordedEvent::Node(node, event)) => self.of_probe((node, None), event, at_ms),
            Some(RecordedEvent::JobProbe(node, job, event)) => self.of_probe((node, Some(job)), event, at_ms),
            Some(
                RecordedEvent::NoSlurm
                | RecordedEvent::Hosts { .. }
                | RecordedEvent::Capture { .. }
                | RecordedEvent::Cluster(_)
                | RecordedEvent::Clusters(_)
                | RecordedEvent::Launcher(_),
            )
            | None => Vec::new(),
        }
    }

    /// The job in a list of all jobs, once it runs, and the notes before.
    fn jobs(&mut self, jobs: &[Job], wall_ahead_ms: i64) -> Vec<RecordedEvent> {
        let shown: Vec<_> = jobs.iter().filter_map(|job| self.visibility.job(job)).collect();
        let is_active = self.is_active();
        self.has_begun |= is_active;
        // Lists that say nothing new of an ended job, or do not have it any more, would make the new recording as long as
        // the old one.
        if !self.has_begun || (!is_active && (shown.is_empty() || shown == self.listed)) {
            return Vec::new();
        }
        self.listed.clone_from(&shown);
        let mut notes = std::mem::take(&mut self.early_notes);
        notes.retain(|change| self.is_own(change));
        let notes = (!notes.is_empty()).then_some(RecordedEvent::Notes(notes));
        [Some(RecordedEvent::Jobs { jobs: shown, wall_ahead_ms }), notes].into_iter().flatten().collect()
    }

    /// Returns whether a change of the notes concerns the job, and not an earlier one with its number.
    fn is_own(&self, change: &NoteChange) -> bool {
        let (NoteChange::Put(note) | NoteChange::Add(note)) = change else { return true };
        let job = self.fleet.jobs().iter().find(|job| job.id == self.job);
        let is_earlier = job.is_some_and(|job| is_before_submission(note.at_ms, job));
        note.job == Some(self.job) && !is_earlier && !self.hidden.notes
    }

    /// Returns whether the job runs by the last list.
    fn is_active(&self) -> bool {
        self.fleet.jobs().iter().any(|job| job.id == self.job && job.is_active())
    }

    fn of_probe(&mut self, key: ProbeKey, event: RecordedNodeEvent, at_ms: u64) -> Vec<RecordedEvent> {
        let runs_here = self.fleet.jobs().iter().any(|job| {
            job.id == self.job
                && job.is_active()
                && job.nodes.contains(&key.0)
                && self.certain.includes(job, &key.0, at_ms)
        });
        let is_foreign = key.1.is_some_and(|job| job != self.job);
        let mut probe = self.probes.remove(&key).unwrap_or_default();
        let line = match event {
            RecordedNodeEvent::Line(line) => self
                .line(&mut probe, &key.0, *line, at_ms)
                .map(|line| RecordedNodeEvent::Line(Box::new(line))),
            RecordedNodeEvent::Connecting { failures } => Some(RecordedNodeEvent::Connecting { failures }),
            RecordedNodeEvent::Down { retry_at_ms, .. } => {
                Some(RecordedNodeEvent::Down { why: "the relay cannot reach this node".into(), retry_at_ms })
            }
            RecordedNodeEvent::Refused { cause, .. } => Some(RecordedNodeEvent::Refused {
                cause,
                why: "the relay may not enter this node".into(),
                advice: Text::default(),
            }),
            RecordedNodeEvent::Ending => Some(RecordedNodeEvent::Ending),
            // Output of login shells and programs.
            RecordedNodeEvent::Lost { .. } | RecordedNodeEvent::Noise(_) => None,
        };
        let mut events = Vec::new();
        if runs_here && !is_foreign {
            let mut before = Vec::new();
            // A probe that was started for an earlier job has said hello before.
            if !probe.is_announced {
                probe.is_announced = true;
                let is_hello = matches!(&line, Some(RecordedNodeEvent::Line(line)) if matches!(**line, ProbeLine::Hello(_)));
                before.extend(probe.hello.clone().filter(|_| !is_hello));
            }
            if std::mem::take(&mut probe.gains_gpu) {
                before.extend(probe.health.as_ref().map(|report| probe.owned_health(report)));
            }
            events.extend(before.into_iter().map(|line| RecordedNodeEvent::Line(Box::new(line))));
            events.extend(line);
        } else {
            probe.is_announced = false;
            probe.owned.fill(None);
        }
        let (node, job) = key.clone();
        self.probes.insert(key, probe);
        let of_node = |event| match job {
            None => RecordedEvent::Node(node.clone(), event),
            Some(job) => RecordedEvent::JobProbe(node.clone(), job, event),
        };
        events.into_iter().map(of_node).collect()
    }

    /// The line without GPUs and processes that are not the job's; `None` if nothing of it is.
    fn line(
        &self,
        probe: &mut Probe,
        node: &NodeName,
        line: RecordedLine,
        at_ms: u64,
    ) -> Option<RecordedLine> {
        Some(match line {
            ProbeLine::Hello(hello) => self.hello(probe, node, hello),
            ProbeLine::Sample(mut sample) => {
                self.sample(probe, node, &mut sample, at_ms);
                ProbeLine::Sample(sample)
            }
            ProbeLine::Processes(list) => ProbeLine::Processes(self.processes(probe, node, list)),
            ProbeLine::ProcessReadings(mut readings) => {
                readings.retain(|position| probe.processes.get(position).copied().flatten());
                ProbeLine::ProcessReadings(readings)
            }
            ProbeLine::Health(report) => {
                let health = probe.owned_health(&report);
                probe.health = Some(report);
                health
            }
            ProbeLine::LinkRates(rates) => ProbeLine::LinkRates(LinkRates { gpus: probe.owned(&rates.gpus) }),
            ProbeLine::Heartbeat(heartbeat) => ProbeLine::Heartbeat(heartbeat),
            ProbeLine::Event(mut event) => {
                let (uuid, node_picture) = (event.gpu.as_ref()?, self.fleet.node(node)?);
                let is_of = |gpu: &&GpuPicture| gpu.facts.uuid == *uuid && gpu.is_owned_by(self.job);
                let gpu = node_picture.gpus.iter().find(is_of)?;
                // A probe also reports what occurred before the relay's connection.
                let is_this = |known: &&GpuEvent| known.gpu.as_ref() == Some(uuid) && known.xid == event.xid;
                let known = node_picture.head.events.iter().rev().find(is_this)?;
                if known.at_ms < self.owned_since(node, gpu) {
                    return None;
                }
                if let Some(xid) = event.xid {
                    // The driver's text may name a process.
                    event.text = Text::new(format!("Xid {xid}"));
                }
                ProbeLine::Event(event)
            }
            ProbeLine::Notes(mut notes) => {
                notes.notes.retain(|note| note.job == self.job && !self.hidden.notes);
                // It names files.
                notes.problems = None;
                if notes.notes.is_empty() {
                    return None;
                }
                ProbeLine::Notes(notes)
            }
            // Guests of a relay do not see what its probes use either.
            ProbeLine::Usage(_) | ProbeLine::Bye(_) | ProbeLine::Response(_) | ProbeLine::Piece(_) => {
                return None;
            }
        })
    }

    /// Leaves the readings of GPUs while they are the job's.
    fn sample(&self, probe: &mut Probe, node: &NodeName, sample: &mut RecordedSample, at_ms: u64) {
        let job = self.fleet.jobs().iter().find(|job| job.id == self.job);
        // Others have the CPUs of a suspended job.
        let is_suspended = job.is_some_and(|job| job.state == JobState::Suspended);
        let resumed_ms = job.and_then(resumed_at).map_or(0, |resumed| self.fleet.relay_ms(resumed));
        let since_ms = job.map_or(u64::MAX, |job| self.fleet.on_node_since(job, node).max(resumed_ms));
        let is_later = sample.is_current() || since_ms.saturating_add(MAX_SAMPLE_AGE_MS) <= at_ms;
        let shows_host = self.visibility.shows_host(node, &self.fleet) && !is_suspended && is_later;
        sample.retain(|position| probe.gpus.get(position).copied().flatten(), shows_host, self.job);
        let gpus = self.fleet.node(node).map_or(&[][..], |picture| &picture.gpus);
        for (at, uuid) in probe.uuids.iter().enumerate() {
            let Some(position) = probe.gpus[at] else { continue };
            let is_own = |gpu: &&GpuPicture| gpu.facts.uuid == *uuid && gpu.is_owned_by(self.job);
            let owned = gpus.iter().find(is_own).filter(|_| !is_suspended);
            match (probe.owned[at], owned) {
                (Some(true), Some(_)) => continue,
                // A probe keeps samples for ten minutes, in which the GPU may have had another owner.
                (before, owned) if !sample.is_current() => {
                    let is_own = |gpu| self.owned_since(node, gpu).saturating_add(MAX_SAMPLE_AGE_MS) <= at_ms;
                    if before.is_some() || !owned.is_some_and(is_own) {
                        sample.remove_gpu(position);
                    }
                    continue;
                }
                (Some(false), None) => sample.remove_gpu(position),
                (_, Some(gpu)) => sample.replace_gpu(position, &gpu.row, gpu.fault.clone()),
                (_, None) => sample.replace_gpu(position, &Row::default(), None),
            }
            probe.owned[at] = Some(owned.is_some());
            probe.gains_gpu |= owned.is_some();
        }
    }

    /// Returns the time from which a GPU of the job is certainly its own, in ms of the relay's clock.
    fn owned_since(&self, node: &NodeName, gpu: &GpuPicture) -> u64 {
        let job = self.fleet.jobs().iter().find(|job| job.id == self.job);
        job.map_or(u64::MAX, |job| self.fleet.owned_since(job, node, gpu))
    }

    /// The hello with the job's GPUs only, which have new positions from now on.
    fn hello(&self, probe: &mut Probe, node: &NodeName, mut hello: Box<Hello>) -> RecordedLine {
        let owned = self.gpus.get(node);
        let is_owned = |uuid: &GpuUuid| owned.is_some_and(|owned| owned.contains(uuid));
        let mut next = 0..;
        let position = |uuid: &GpuUuid| is_owned(uuid).then(|| next.next()).flatten();
        probe.gpus = hello.gpus.iter().map(|gpu| &gpu.uuid).map(position).collect();
        // The owners of the GPUs are known from before if only the link was interrupted.
        let before = std::mem::take(&mut probe.uuids).into_iter().zip(std::mem::take(&mut probe.owned));
        let before: BTreeMap<GpuUuid, Option<bool>> = before.collect();
        probe.uuids = hello.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
        probe.owned = probe.uuids.iter().map(|uuid| before.get(uuid).copied().flatten()).collect();
        // Instances have no place in the matrix.
        let kept = |position: usize| probe.gpus.get(position).copied().flatten().is_some();
        hello.topology =
            positions(&hello.topology, kept).map(|row| positions(row, kept).copied().collect()).collect();
        hello.gpus.retain(|gpu| is_owned(&gpu.uuid));
        hello.scratch = hello.scratch.take().filter(|_| !self.hidden.paths);
        let hello = ProbeLine::Hello(hello);
        (probe.hello, probe.health) = (Some(hello.clone()), None);
        probe.processes.clear();
        hello
    }

    fn processes(&self, probe: &mut Probe, node: &NodeName, mut list: ProcessList) -> ProcessList {
        let jobs = self.fleet.jobs();
        let owned = self.gpus.get(node);
        let is_owned = |uuid: &GpuUuid| owned.is_some_and(|owned| owned.contains(uuid));
        let mut next = 0..;
        probe.processes.clear();
        list.processes.retain_mut(|process| {
            let is_kept = is_owned(&process.facts.gpu) && self.visibility.shows_process(&process.facts, jobs);
            probe.processes.push(is_kept.then(|| next.next()).flatten());
            self.visibility.mask_process(&mut process.facts, jobs);
            is_kept
        });
        list.gaps.retain(|gap| is_owned(&gap.gpu));
        list.job_devices.retain(|devices| devices.job == self.job);
        list
    }
}

impl Probe {
    /// The entries of GPUs that are the job's, which are empty for those that were or will be.
    fn owned<T: Clone + Default>(&self, all: &[T]) -> Vec<T> {
        let is_kept = |at: usize| self.gpus.get(at).copied().flatten().is_some();
        let entry = |(at, entry): (usize, &T)| match self.owned[at] {
            Some(true) => entry.clone(),
            Some(false) | None => T::default(),
        };
        all.iter().enumerate().filter(|(at, _)| is_kept(*at)).map(entry).collect()
    }

    fn owned_health(&self, report: &HealthReport) -> RecordedLine {
        ProbeLine::Health(HealthReport { gpus: self.owned(&report.gpus) })
    }
}

/// The entries at positions that are kept.
fn positions<T>(all: &[T], kept: impl Fn(usize) -> bool) -> impl Iterator<Item = &T> {
    all.iter().enumerate().filter(move |(position, _)| kept(*position)).map(|(_, entry)| entry)
}

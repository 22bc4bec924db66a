//! The state of one node: readings of its probe, their age, and the state of its link.

mod apply;
mod confined;
mod connection_counts;
mod merge;
mod missing;

use super::bounds;
use super::changes::NodeChanges;
use super::ownership;
use super::replay::Replay;
use super::timeline::Timeline;
use super::unattributed::Unattributed;
use crate::{RefusalCause, SessionEvent};
use apply::{apply_faults, apply_gaps, apply_job_usage};
use confined::Confined;
use connection_counts::ConnectionCounter;
pub use connection_counts::ConnectionCounts;
use nodeglass_protocol::field::{ReadingSet as _, Row};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::note::MAX_PROBLEMS;
use nodeglass_protocol::picture::{
    GpuEvent, GpuFacts, GpuPicture, History, HistorySample, Link, NodeFacts, NodePicture, ProcessPicture,
};
use nodeglass_protocol::probe::delta::{ParsedLine, ProcessReadingsDelta, RowsDelta, SampleDelta};
use nodeglass_protocol::probe::{
    Event, HealthReport, Hello, JobDevices, MAX_JOB_DEVICES, MAX_PROCESSES, ProbeLine, ProbeUsage,
    ProcessList, ProcessSample, SourceState,
};
use nodeglass_protocol::trace::Trace;
use nodeglass_protocol::{GpuField, GpuUuid, JobId, NodeName, ProcessField, Text, Vendor};
use nodeglass_rules::health::late_after_ms;
use nodeglass_rules::ownership::is_by_slurm;
use std::collections::{HashMap, HashSet, VecDeque};

/// A link without a line for this long is silent: its values are shown as stale.
pub const SILENT_MS: u64 = 15_000;
/// Maximum number of notes; the oldest is dropped first.
const MAX_NOTES: usize = 4;
/// Maximum number of GPU events; the oldest that was repeated is dropped first.
const MAX_EVENTS: usize = 32;
/// A job's last picture is of this long before its end: killing it takes a moment.
const LAST_MOMENT_MS: u64 = 2_000;
/// Fault of a GPU of a job that the driver no longer lists.
const NOT_LISTED: &str = "the driver no longer lists it";
/// Maximum number of departed processes kept for last pictures.
const MAX_DEPARTED: usize = 64;

/// One node.
#[derive(Debug)]
pub struct Node {
    picture: NodePicture,
    timeline: Timeline,
    /// Unix time of the node's clock at which the relay's clock would read 0, in ms.
    clock_ahead_ms: Option<i64>,
    last_line_ms: u64,
    replay: Replay,
    backfilled: bool,
    /// Events before the first sample: only that relates their times to the relay's clock.
    early_events: Vec<Event>,
    /// The newest events as they arrived: a probe sends what it keeps again after a connection was lost.
    received_events: VecDeque<Event>,
    /// Backfilled samples that the long-term history does not have yet.
    late_samples: Vec<HistorySample>,
    /// Processes that the last list no longer contains.
    departed: Vec<ProcessPicture>,
    /// Process readings since the last sample. They are entered with the next one: cells are published with samples,
    /// and a viewer that joins in between would have other cells than the deltas start from.
    process_readings: Option<Vec<Row<ProcessField>>>,
    /// Baseline that sparse process updates are relative to.
    listed: Vec<Row<ProcessField>>,
    /// The list that the baseline is of.
    list_ns: u64,
    unattributed: Unattributed,
    /// Devices that the processes of the user's jobs may see by their environments.
    job_devices: Vec<JobDevices>,
    /// The GPUs of the driver when it was last unloaded.
    unloaded: Vec<GpuFacts>,
    /// When a job was first seen on a GPU that it has according to its processes only.
    used_since: HashMap<(GpuUuid, JobId), u64>,
    /// Set while the probe sees the GPUs of one job only.
    confined: Option<Box<Confined>>,
    /// Parts of the spool files that are not read.
    spool_problems: Vec<Text>,
    /// Resource usage of the probe itself; not part of the picture, because pages do not show it.
    probe_usage: Option<ProbeUsage>,
    counter: ConnectionCounter,
    /// Extent of the cause of the last refusal.
    refusal: RefusalCause,
    /// An interval shorter than the picture's, if the last sample had one.
    shorter_ms: Option<u32>,
}

impl Node {
    /// A node without any state.
    pub fn new(name: NodeName) -> Self {
        let picture = NodePicture { history: Some(History::default()), ..NodePicture::new(name) };
        Self {
            picture,
            timeline: Timeline::default(),
            clock_ahead_ms: None,
            last_line_ms: 0,
            replay: Replay::default(),
            backfilled: false,
            early_events: Vec::new(),
            received_events: VecDeque::new(),
            late_samples: Vec::new(),
            departed: Vec::new(),
            process_readings: None,
            listed: Vec::new(),
            list_ns: 0,
            unattributed: Unattributed::default(),
            job_devices: Vec::new(),
            unloaded: Vec::new(),
            used_since: HashMap::new(),
            confined: None,
            spool_problems: Vec::new(),
            probe_usage: None,
            counter: ConnectionCounter::default(),
            refusal: RefusalCause::Node,
            shorter_ms: None,
        }
    }

    /// Creates the node of a probe in a job, without any history.
    fn without_history(name: NodeName) -> Self {
        let mut node = Self::new(name);
        node.picture.history = None;
        node
    }

    /// The current picture.
    pub fn picture(&self) -> &NodePicture {
        &self.picture
    }

    /// Unix time of the node's clock at which the relay's clock would read 0, in ms, by the newest sample.
    pub fn clock_ahead_ms(&self) -> Option<i64> {
        self.clock_ahead_ms
    }

    /// Returns whether the user cannot log in, there and on other nodes.
    pub fn refuses_login(&self) -> bool {
        matches!(self.picture.head.link, Link::Refused { .. }) && self.refusal != RefusalCause::Node
    }

    /// Takes the samples that were backfilled since the last call, oldest first.
    pub fn take_late_samples(&mut self) -> Vec<HistorySample> {
        std::mem::take(&mut self.late_samples)
    }

    /// Returns the picture of a job that ended at `ended_ms`, as it is stored: SLURM reports an end some seconds
    /// later, when the job's GPUs are idle already and its processes are gone.
    pub fn last_picture(&self, job: JobId, ended_ms: u64) -> NodePicture {
        let mut picture = self.picture.clone();
        picture.head.link = Link::Ended;
        picture.rewind(ended_ms.saturating_sub(LAST_MOMENT_MS));
        if !picture.processes.iter().any(|process| process.facts.job == Some(job)) {
            picture
                .processes
                .extend(self.departed.iter().filter(|process| process.facts.job == Some(job)).cloned());
        }
        picture
    }

    /// Applies an event of the node's session.
    pub fn handle(&mut self, event: SessionEvent, now_ms: u64, changes: &mut NodeChanges) {
        if event.ends_probe() {
            self.probe_usage = None;
        }
        self.counter.observe(&event, now_ms);
        match event {
            SessionEvent::Connecting { failures } => {
                // What the login printed is of the former connection.
                let notes = &mut self.picture.head.notes;
                let before = notes.len();
                notes.retain(|note| !note.as_str().starts_with(NOISE));
                changes.head |= notes.len() != before;
                self.set_link(Link::Connecting { failures }, changes);
            }
            SessionEvent::Down { why, retry_at_ms } => {
                self.set_link(Link::Down { reason: why, retry_at_ms }, changes)
            }
            SessionEvent::Refused { cause, why, advice } => {
                self.refusal = cause;
                self.set_link(Link::Refused { reason: why, advice }, changes)
            }
            SessionEvent::Ending => self.set_link(Link::Ended, changes),
            SessionEvent::Noise(text) => self.note(Text::new(format!("{NOISE}{text}")), changes),
            SessionEvent::Lost { lines, sample } => {
                self.picture.head.notes.retain(|note| !note.as_str().ends_with(LOST));
                // Short enough for the note to end as above.
                let begins: String = sample.as_str().chars().take(MAX_LOST_CHARS).collect();
                self.note(Text::new(format!("{lines} × {begins} {LOST}")), changes);
            }
            SessionEvent::Line(mut line) => {
                self.last_line_ms = now_ms;
                if let Some(excess) = bounds::truncate(&mut line) {
                    self.note(excess, changes);
                }
                self.apply_line(*line, now_ms, changes);
            }
        }
    }

    /// Enters backfilled samples into the history.
    fn enter_replay(&mut self, now_ms: u64) {
        if let Some(history) = &mut self.picture.history {
            let samples = self.replay.settle(history, &self.timeline, now_ms);
            self.backfilled |= !samples.is_empty();
            self.late_samples.extend(samples);
        }
    }

    /// Discards backfilled samples that are not entered yet: their GPUs are in another order.
    fn restart_replay(&mut self, now_ms: u64) {
        self.enter_replay(now_ms);
        self.replay = Replay::default();
    }

    /// Extends timeouts by a time in which no line could be read.
    pub fn excuse(&mut self, stalled_ms: u64, now_ms: u64) {
        self.last_line_ms = self.last_line_ms.saturating_add(stalled_ms).min(now_ms);
    }

    /// Checks timeouts.
    pub fn tick(&mut self, now_ms: u64, changes: &mut NodeChanges) {
        self.tick_job_probes(now_ms, changes);
        self.counter.tick(now_ms);
        self.enter_replay(now_ms);
        if std::mem::take(&mut self.backfilled) {
            changes.history = true;
        } else {
            self.replay.rest();
        }
        if !matches!(self.picture.head.link, Link::Live | Link::Late | Link::Silent) {
            return;
        }
        let age_ms = now_ms.saturating_sub(self.last_line_ms);
        let link = match age_ms {
            age if age >= SILENT_MS => Link::Silent,
            age if age >= late_after_ms(self.picture.head.interval_ms) => Link::Late,
            _ => Link::Live,
        };
        self.set_link(link, changes);
    }

    /// Updates the owners of the GPUs from the job list.
    pub fn update_owners(&mut self, jobs: &[Job], changes: &mut NodeChanges) {
        self.add_missing_gpus(jobs, changes);
        let node = &self.picture;
        let owners = ownership::owners(&self.view(), &node.gpus, &node.processes, jobs);
        let node = &mut self.picture;
        let without_gpus = ownership::without_gpus(&node.name, jobs);
        if node.head.without_gpus != without_gpus {
            node.head.without_gpus = without_gpus;
            changes.head = true;
        }
        // The newest readings are shown, so that the history has them as well.
        let seen_ms = Trace::slot_ms(node.sampled_at_ms.unwrap_or(self.last_line_ms));
        for (gpu, owners) in node.gpus.iter_mut().zip(owners) {
            changes.gpus |= gpu.owners != owners;
            for owner in &owners {
                // A job of which SLURM stated that it has the GPU had it before its processes alone show that.
                let since_ms = if is_by_slurm(owner.by) { 0 } else { seen_ms };
                let known = self.used_since.entry((gpu.facts.uuid.clone(), owner.job)).or_insert(since_ms);
                *known = since_ms.min(*known);
            }
            gpu.owners = owners;
        }
        if !self.used_since.is_empty() {
            let listed: HashSet<JobId> = jobs.iter().map(|job| job.id).collect();
            self.used_since.retain(|(_, job), _| listed.contains(job));
        }
    }

    /// Returns since when, in ms of the relay's clock, a job has been seen on a GPU that it has according to its processes only.
    pub fn used_since(&self, gpu: &GpuUuid, job: JobId) -> Option<u64> {
        self.used_since.get(&(gpu.clone(), job)).copied()
    }

    /// Sets the group of the list of hosts.
    pub fn set_group(&mut self, group: Option<&Text>, changes: &mut NodeChanges) {
        if self.picture.head.group.as_ref() != group {
            self.picture.head.group = group.cloned();
            changes.head = true;
        }
    }

    fn apply_line(&mut self, line: ParsedLine, now_ms: u64, changes: &mut NodeChanges) {
        let is_sample = matches!(line, ProbeLine::Sample(_));
        match &line {
            ProbeLine::Heartbeat(heartbeat) => self.set_stuck(heartbeat.driver_stuck_ms, changes),
            ProbeLine::Hello(_) => self.set_stuck(None, changes),
            _ => {}
        }
        self.set_link(Link::Live, changes);
        match line {
            ProbeLine::Hello(hello) => self.apply_hello(*hello, now_ms, changes),
            ProbeLine::Sample(sample) => self.apply_sample(*sample, now_ms, changes),
            ProbeLine::Processes(list) => self.apply_processes(list, changes),
            ProbeLine::ProcessReadings(readings) => self.apply_process_readings(&readings),
            ProbeLine::Health(report) => self.apply_health(report, changes),
            ProbeLine::LinkRates(rates) => {
                for (row, rates) in rates.gpus.into_iter().enumerate() {
                    if let Some(gpu) = self.own_gpu(row) {
                        changes.rates |= rates.apply(&mut gpu.health);
                    }
                }
            }
            // Answers go to their caller, and pieces have been reassembled before.
            ProbeLine::Heartbeat(_) | ProbeLine::Response(_) | ProbeLine::Piece(_) => {}
            ProbeLine::Usage(usage) => self.probe_usage = Some(usage),
            ProbeLine::Event(event) => self.apply_event(event, now_ms, changes),
            // The notes themselves are the fleet's.
            ProbeLine::Notes(notes) => {
                if let Some(problems) = notes.problems {
                    self.set_spool_problems(problems, changes);
                }
            }
            ProbeLine::Bye(bye) => self.note(Text::new(format!("the probe ended: {}", bye.reason)), changes),
        }
        // While the driver hangs, samples of the host continue, and each of their GPUs has a fault.
        let gpus = &self.picture.gpus;
        if is_sample && (gpus.is_empty() || gpus.iter().any(|gpu| gpu.fault.is_none())) {
            self.set_stuck(None, changes);
        }
    }

    /// Replaces the problems of the spool files.
    fn set_spool_problems(&mut self, mut problems: Vec<Text>, changes: &mut NodeChanges) {
        problems.truncate(MAX_PROBLEMS);
        if problems != self.spool_problems {
            self.picture.head.notes.retain(|note| !self.spool_problems.contains(note));
            changes.head = true;
            problems.iter().for_each(|problem| self.note(problem.clone(), changes));
            self.spool_problems = problems;
        }
    }

    fn set_stuck(&mut self, stuck_ms: Option<u64>, changes: &mut NodeChanges) {
        if self.picture.head.driver_stuck_ms != stuck_ms {
            self.picture.head.driver_stuck_ms = stuck_ms;
            changes.head = true;
        }
    }

    fn apply_hello(&mut self, hello: Hello, now_ms: u64, changes: &mut NodeChanges) {
        // Pending updates have the old order of GPUs, and the old clock.
        self.restart_replay(now_ms);
        let node = &mut self.picture;
        let no_gpu = hello.gpus.is_empty().then(|| no_gpu_reason(&hello.sources));
        node.head.facts = Some(NodeFacts {
            host: hello.host,
            kernel: hello.kernel,
            sources: hello.sources,
            cpus: hello.cpus,
            cpu_model: hello.cpu_model,
            scratch: hello.scratch,
            topology: hello.topology,
        });
        node.head.no_gpu = no_gpu;
        changes.head = true;
        self.set_confinement(hello.confinement);
        let gpus = self.with_job_gpus(hello.gpus);
        self.set_gpus(gpus);
        changes.gpus = true;
        changes.history = true;
        self.timeline = Timeline::default();
        self.early_events.clear();
        self.merge_job_probes(now_ms, changes);
    }

    /// Replaces the list of GPUs. One that its driver no longer lists although a job has it stays as one with a fault, after
    /// the others.
    fn set_gpus(&mut self, gpus: Vec<GpuFacts>) {
        let node = &mut self.picture;
        let vanished = node.gpus.len().saturating_sub(gpus.len());
        // Where cgroups hide GPUs, the jobs of the probe decide which it sees.
        let sees_all = self.confined.is_none() && !gpus.is_empty();
        let mut old = std::mem::take(&mut node.gpus);
        if gpus.is_empty() && !old.is_empty() {
            self.unloaded = old.iter().map(|gpu| gpu.facts.clone()).collect();
        }
        let mut old_history =
            node.history.as_mut().map(|history| std::mem::take(&mut history.gpus)).unwrap_or_default();
        old_history.resize_with(old.len(), Default::default);
        for facts in gpus {
            // A GPU keeps its row and history by UUID, wherever NVML lists it now.
            let known = old.iter().position(|gpu| gpu.facts.uuid == facts.uuid);
            let (mut gpu, history) = match known {
                Some(index) => (old.swap_remove(index), old_history.swap_remove(index)),
                None => Default::default(),
            };
            if gpu.fault.as_ref().is_some_and(|fault| fault.as_str() == NOT_LISTED) {
                gpu.fault = None;
            }
            gpu.facts = facts;
            node.gpus.push(gpu);
            if let Some(node_history) = &mut node.history {
                node_history.gpus.push(history);
            }
        }
        let sources = node.head.facts.iter().flat_map(|facts| &facts.sources);
        let ready: Vec<Vendor> =
            sources.filter(|source| source.versions().is_some()).map(|source| source.vendor).collect();
        // Instances vanish whenever MIG is reconfigured. A GPU that is listed with another UUID does not shorten the list.
        let is_lost = |gpu: &GpuPicture| {
            !gpu.owners.is_empty() && gpu.facts.mig_parent.is_none() && ready.contains(&gpu.facts.vendor)
        };
        let lost = old.into_iter().zip(old_history).filter(|(gpu, _)| sees_all && is_lost(gpu));
        for (gpu, history) in lost.take(vanished) {
            let (row, fault) = (Row::default(), Some(NOT_LISTED.into()));
            node.gpus.push(GpuPicture { row, fault, ..gpu });
            if let Some(node_history) = &mut node.history {
                node_history.gpus.push(history);
            }
        }
    }

    /// A GPU that the node's own probe reports.
    fn own_gpu(&mut self, row: usize) -> Option<&mut GpuPicture> {
        let position = self.own_position(row);
        self.picture.gpus.get_mut(position)
    }

    /// Refers a sample to the GPUs of the picture.
    fn locate(&self, gpus: &mut RowsDelta<GpuField>) {
        if self.confined.is_some() {
            let position = |row: u32| u32::try_from(self.own_position(row as usize)).unwrap_or(u32::MAX);
            gpus.cells.iter_mut().for_each(|cell| cell.row = position(cell.row));
            gpus.faults.iter_mut().for_each(|(row, _)| *row = position(*row));
        }
    }

    fn apply_sample(&mut self, mut sample: SampleDelta, now_ms: u64, changes: &mut NodeChanges) {
        self.locate(&mut sample.gpus);
        if sample.replay {
            if self.replay.add(&sample, self.picture.gpus.len()) && self.picture.history.is_some() {
                self.counter.recovered(sample.seq, now_ms);
            }
            return;
        }
        self.timeline.observe(sample.mono_ns, now_ms);
        self.enter_replay(now_ms);
        for event in std::mem::take(&mut self.early_events) {
            self.apply_event(event, now_ms, changes);
        }
        self.update_interval(sample.interval_ms, changes);
        let is_whole = sample.since.is_none();
        if is_whole {
            self.picture.host = Row::default();
        }
        let sampled: Vec<usize> = match is_whole {
            true => (0..sample.gpus.rows as usize).map(|row| self.own_position(row)).collect(),
            false => Vec::new(),
        };
        let node = &mut self.picture;
        for position in &sampled {
            if let Some(gpu) = node.gpus.get_mut(*position) {
                gpu.row = Row::default();
            }
        }
        changes.gpus |= apply_faults(&mut node.gpus, &sample.gpus, &sampled);
        sample.gpus.apply_each(&mut node.gpus, |gpu| &mut gpu.row);
        sample.host.apply(&mut node.host);
        let process_readings = self.process_readings.take().into_iter().flatten();
        node.processes.iter_mut().zip(process_readings).for_each(|(process, row)| process.row = row);
        self.enter_job_samples();
        let node = &mut self.picture;
        self.unattributed.take_sample(node, now_ms);
        if let Some(usages) = sample.jobs.or(is_whole.then(Vec::new)) {
            changes.job_usage |= apply_job_usage(&mut node.job_usage, &usages, is_whole);
        }
        if let Some(cores) = sample.cores.or(is_whole.then(Vec::new))
            && node.cores != cores
        {
            node.cores = cores;
            changes.cores = true;
        }
        let at_ms = self.timeline.relay_ms(sample.mono_ns, now_ms);
        let wall_ms = i64::try_from(sample.wall_ms).ok().filter(|wall_ms| *wall_ms > 0);
        self.clock_ahead_ms = wall_ms.map(|wall_ms| wall_ms.saturating_sub(at_ms.cast_signed()));
        node.sampled(at_ms);
        // Subscribers append one sample per delta; several at once (a link that caught up) would leave false gaps.
        changes.history |= changes.sampled;
        changes.sampled = true;
    }

    /// Enters the interval of a sample. A shorter one applies from the next sample on: the time up to this one was
    /// planned with the longer interval, and is not a gap.
    fn update_interval(&mut self, interval_ms: u32, changes: &mut NodeChanges) {
        let head = &mut self.picture.head;
        let is_longer = interval_ms > head.interval_ms || head.interval_ms == 0;
        if (is_longer || self.shorter_ms == Some(interval_ms)) && head.interval_ms != interval_ms {
            head.interval_ms = interval_ms;
            changes.head = true;
        }
        self.shorter_ms = (interval_ms < self.picture.head.interval_ms).then_some(interval_ms);
    }

    fn apply_processes(&mut self, list: ProcessList, changes: &mut NodeChanges) {
        let own: Vec<usize> = (0..self.picture.gpus.len()).map(|row| self.own_position(row)).collect();
        changes.gpus |= apply_gaps(&mut self.picture.gpus, &own, list.gaps);
        let mut job_devices = list.job_devices;
        job_devices.retain(JobDevices::is_bounded);
        job_devices.truncate(MAX_JOB_DEVICES);
        changes.job_devices |= self.job_devices != job_devices;
        self.job_devices = job_devices;
        let picture = |ProcessSample { facts, now }| ProcessPicture { facts, row: now.row() };
        // A genuine probe never lists more.
        let processes: Vec<_> = list.processes.into_iter().take(MAX_PROCESSES).map(picture).collect();
        self.list_ns = list.mono_ns;
        self.unattributed.take_list();
        let own_count = self.listed.len().min(self.picture.processes.len());
        self.listed = processes.iter().map(|process| process.row.clone()).collect();
        let same = |(old, new): (&ProcessPicture, &ProcessPicture)| old.facts == new.facts;
        let known = &self.picture.processes[..own_count];
        if known.len() == processes.len() && known.iter().zip(&processes).all(same) {
            self.process_readings = Some(self.listed.clone());
            return;
        }
        self.process_readings = None;
        let processes = self.with_job_processes(processes);
        self.set_processes(processes, changes);
    }

    /// Replaces the list of processes.
    fn set_processes(&mut self, processes: Vec<ProcessPicture>, changes: &mut NodeChanges) {
        changes.processes = true;
        let before = std::mem::take(&mut self.picture.processes);
        let identity = |process: &ProcessPicture| (process.facts.pid, process.facts.gpu.clone());
        let here: HashSet<_> = processes.iter().map(identity).collect();
        // The newest ones are kept for the job's last picture.
        let newly: Vec<_> = before.into_iter().filter(|old| !here.contains(&identity(old))).collect();
        let jobs: HashSet<_> = newly.iter().map(|new| new.facts.job).collect();
        self.departed.retain(|old| !jobs.contains(&old.facts.job));
        self.departed.extend(newly);
        let over = self.departed.len().saturating_sub(MAX_DEPARTED);
        self.departed.drain(..over);
        self.picture.processes = processes;
    }

    /// Applies an update of the last process list; ignores an update of another list, which was lost.
    fn apply_process_readings(&mut self, readings: &ProcessReadingsDelta) {
        let count = self.listed.len();
        if readings.list_ns != self.list_ns || count != readings.now.rows as usize {
            return;
        }
        let mut rows = if readings.sparse { self.listed.clone() } else { vec![Row::default(); count] };
        readings.now.apply_each(&mut rows, |row| row);
        self.process_readings = Some(rows);
    }

    fn apply_health(&mut self, report: HealthReport, changes: &mut NodeChanges) {
        for (row, mut health) in report.gpus.into_iter().enumerate() {
            let Some(gpu) = self.own_gpu(row) else { continue };
            if gpu.health != health {
                // A parsed list may have twice the capacity.
                health.nvlinks.shrink_to_fit();
                changes.was(&gpu.facts.uuid, std::mem::replace(&mut gpu.health, health));
            }
        }
    }

    /// Returns whether an event has arrived before.
    pub fn has_received(&self, event: &Event) -> bool {
        self.received_events.contains(event)
    }

    fn apply_event(&mut self, event: Event, now_ms: u64, changes: &mut NodeChanges) {
        if !self.timeline.is_known() {
            if self.early_events.len() < MAX_EVENTS {
                self.early_events.push(event);
            }
            return;
        }
        if self.has_received(&event) {
            return;
        }
        if self.received_events.len() == MAX_EVENTS {
            self.received_events.pop_front();
        }
        self.received_events.push_back(event.clone());
        let at_ms = self.timeline.relay_ms(event.mono_ns, now_ms);
        let events = &mut self.picture.head.events;
        events.push(GpuEvent { at_ms, gpu: event.gpu, xid: event.xid, text: event.text });
        if events.len() > MAX_EVENTS {
            // A kill logs an Xid per channel: these must not evict the Xid that explains them.
            let is_repeated = |at: &usize| {
                let event = &events[*at];
                events[at + 1..].iter().any(|later| later.gpu == event.gpu && later.xid == event.xid)
            };
            let oldest = (0..events.len()).find(is_repeated).unwrap_or(0);
            events.remove(oldest);
        }
        changes.head = true;
    }

    fn set_link(&mut self, link: Link, changes: &mut NodeChanges) {
        if self.picture.head.link != link {
            self.picture.head.link = link;
            changes.head = true;
        }
    }

    /// The relay's time of what happened at `mono_ns` of the node's clock.
    pub fn relay_ms(&self, mono_ns: u64, now_ms: u64) -> u64 {
        if self.timeline.is_known() { self.timeline.relay_ms(mono_ns, now_ms) } else { now_ms }
    }

    /// Adds a remark about the node, which is not a fault.
    pub(super) fn note(&mut self, note: Text, changes: &mut NodeChanges) {
        let notes = &mut self.picture.head.notes;
        if notes.last() == Some(&note) {
            return;
        }
        notes.push(note);
        if notes.len() > MAX_NOTES {
            notes.remove(0);
        }
        changes.head = true;
    }
}

/// Maximum number of characters that a note cites of a line, of up to four bytes each.
const MAX_LOST_CHARS: usize = 40;
/// Begin of a note about output before a probe's first line.
const NOISE: &str = "skipped before the probe's first line: ";
const LOST: &str = "(lines that could not be read were skipped)";

/// Returns why a node has no GPUs: its available drivers list none, or no driver is available.
fn no_gpu_reason(sources: &[SourceState]) -> Text {
    let ready: Vec<_> = sources.iter().filter(|source| source.versions().is_some()).collect();
    let reasons: Vec<String> = match ready.is_empty() {
        true => sources
            .iter()
            .filter_map(|source| source.absent_reason().or(source.confinement()))
            .map(Text::to_string)
            .collect(),
        false => {
            let empty =
                ready.iter().map(|source| format!("the {} driver lists no GPU", source.vendor.name()));
            let confined = sources.iter().filter_map(|source| source.confinement());
            empty.chain(confined.map(Text::to_string)).collect()
        }
    };
    reasons.join("; ").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::name;

    #[test]
    fn what_a_login_printed_is_not_stated_of_the_next_connection() {
        let (mut node, mut changes) = (Node::new(name("n1")), NodeChanges::default());
        let connecting = || SessionEvent::Connecting { failures: 0 };
        for event in [connecting(), SessionEvent::Noise("*** WELCOME".into())] {
            node.handle(event, 1_000, &mut changes);
        }
        assert_eq!(node.picture().head.notes.len(), 1);
        changes = NodeChanges::default();
        node.handle(connecting(), 2_000, &mut changes);
        assert!(node.picture().head.notes.is_empty() && changes.head);
    }

    #[test]
    fn f06_one_note_counts_lost_lines_however_long_they_are() {
        let (mut node, mut changes) = (Node::new(name("n1")), NodeChanges::default());
        for (lines, sample) in [(1, "x".repeat(300)), (2, "\u{fffd}".repeat(300)), (3, "y".to_owned())] {
            node.handle(SessionEvent::Lost { lines, sample: sample.into() }, 1_000, &mut changes);
            let notes = &node.picture().head.notes;
            let begin = format!("{lines} × ");
            assert!(notes.len() == 1 && notes[0].as_str().starts_with(&begin), "{notes:?}");
            assert!(notes[0].as_str().ends_with(LOST), "{notes:?}");
        }
    }
}

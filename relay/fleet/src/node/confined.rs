//! A node whose probe is confined to the GPUs of one job: probes in the user's other jobs there report the
//! others, and all of them form one picture, in which each GPU appears once.

use super::merge::{self, Provider};
use super::{ConnectionCounts, Node, SILENT_MS, no_gpu_reason};
use crate::ownership::AttributedNode;
use crate::{NodeChanges, SessionEvent};
use nodeglass_protocol::field::Row;
use nodeglass_protocol::job::{GpuSet, Job, JobState};
use nodeglass_protocol::picture::{GpuFacts, GpuPath, Link, ProcessGap, ProcessPicture, SourceState};
use nodeglass_protocol::probe::{Confinement, ProbeLine, ProbeUsage};
use nodeglass_protocol::{GpuUuid, JobId, Text};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of probes of jobs on a node; each costs a job step, and an `srun` beside the relay.
const MAX_JOB_PROBES: usize = 8;

/// State of a confined node, besides its picture.
#[derive(Debug)]
pub(super) struct Confined {
    /// The GPUs that the node's own probe sees.
    by: Confinement,
    /// Its sources and its topology.
    sources: Vec<SourceState>,
    topology: Vec<Vec<GpuPath>>,
    /// Its GPUs, and the position of each in the picture, if it has one there.
    gpus: Vec<GpuFacts>,
    own: Vec<Option<usize>>,
    /// The probe that reports each GPU of the picture.
    providers: Vec<Provider>,
    /// The probes of further jobs.
    probes: BTreeMap<JobId, Node>,
    /// Reasons why some of them have no current readings, once that has lasted longer than reporting the end of a job
    /// takes.
    faults: BTreeMap<JobId, Text>,
}

impl Confined {
    /// Merges the GPUs of the node's own probe and of the probes of jobs.
    fn merge(&mut self) -> Vec<GpuFacts> {
        // Of two jobs that share a GPU, the one whose probe is connected.
        let mut probes: Vec<_> = self.probes.iter().collect();
        probes.sort_by_key(|(_, probe)| !is_current(probe));
        let lists: Vec<_> = probes.iter().map(|(job, probe)| (**job, facts(probe))).collect();
        let (mut merged, providers) = merge::gpus(&self.gpus, &lists);
        merge::number(&mut merged);
        self.own = vec![None; self.gpus.len()];
        for (position, provider) in providers.iter().enumerate().filter(|(_, by)| by.job.is_none()) {
            self.own[provider.row] = Some(position);
        }
        self.providers = providers;
        merged
    }

    /// GPUs of the picture that a job's probe reports: position, probe, and position in its list.
    fn of_jobs(&self) -> impl Iterator<Item = (usize, &JobId, &Node, usize)> {
        self.providers.iter().enumerate().filter_map(|(position, Provider { job, row, .. })| {
            let (job, probe) = self.probes.get_key_value(job.as_ref()?)?;
            Some((position, job, probe, *row))
        })
    }

    /// The processes on GPUs that a job's probe reports, of the probes that are connected.
    fn processes(&self, gpus: &[GpuUuid]) -> Vec<ProcessPicture> {
        let mut found = Vec::new();
        for (job, probe) in &self.probes {
            let of_this = self.of_jobs().filter(|(_, of, ..)| *of == job);
            let provided: BTreeSet<_> = of_this.map(|(position, ..)| &gpus[position]).collect();
            let processes = probe.picture().processes.iter().filter(|_| !self.faults.contains_key(job));
            found.extend(processes.filter(|process| provided.contains(&process.facts.gpu)).cloned());
        }
        found
    }

    /// Returns the sources of all probes; a source that is available to any probe is available.
    fn sources(&self) -> Vec<SourceState> {
        let mut sources = self.sources.clone();
        let facts = self.probes.values().filter_map(|probe| probe.picture().head.facts.as_ref());
        for source in facts.flat_map(|facts| &facts.sources).filter(|source| source.versions().is_some()) {
            match sources.iter_mut().find(|known| known.vendor == source.vendor) {
                Some(known) if known.versions().is_some() => {}
                Some(known) => known.clone_from(source),
                None => sources.push(source.clone()),
            }
        }
        if self.probes.is_empty() {
            return sources;
        }
        // What the node's own probe states holds for itself, not for all probes together.
        sources.retain(|source| source.confinement().is_none());
        sources.extend(self.limits().map(|limits| SourceState::confined(limits.into())));
        sources
    }

    /// Updates the faults; returns whether any changed.
    fn update_faults(&mut self, now_ms: u64) -> bool {
        let known = |(job, probe): (&JobId, &Node)| {
            let before = self.faults.get(job).cloned();
            Some((*job, fault(*job, probe, before, now_ms)?))
        };
        let faults = self.probes.iter().filter_map(known).collect();
        let changed = self.faults != faults;
        self.faults = faults;
        changed
    }

    /// The paths between the GPUs of the picture.
    fn topology(&self) -> Vec<Vec<GpuPath>> {
        merge::topology(&self.providers, |job| match job {
            None => &self.topology,
            Some(job) => {
                let facts = self.probes.get(&job).and_then(|probe| probe.picture().head.facts.as_ref());
                facts.map_or(&[], |facts| &facts.topology)
            }
        })
    }

    /// Returns which GPUs remain invisible, and why.
    fn limits(&self) -> Option<String> {
        let mut all = self.by.clone();
        let gpus = self.providers.iter().filter(|provider| provider.gpu.is_some()).count();
        let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
        all.gpus.visible = count(gpus).min(all.gpus.devices);
        all.instances.visible = count(self.providers.len() - gpus).min(all.instances.devices);
        let seen_by = self.providers.iter().filter_map(|provider| provider.job.or(self.by.job));
        let jobs: Vec<_> = seen_by.collect::<BTreeSet<_>>().iter().map(ToString::to_string).collect();
        let of_jobs = match &*jobs {
            [] => String::new(),
            [job] => format!(": those of job {job}"),
            jobs => format!(": those of jobs {}", jobs.join(", ")),
        };
        let visible = all.is_partial().then(|| format!("{}{of_jobs}", all.extent()));
        let parts: Vec<_> = visible.into_iter().chain(self.faults.values().map(Text::to_string)).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// The GPUs that a probe reports.
fn facts(probe: &Node) -> Vec<&GpuFacts> {
    probe.picture().gpus.iter().map(|gpu| &gpu.facts).collect()
}

/// Returns whether the readings of a probe are as new as the readings of the node's own probe.
fn is_current(probe: &Node) -> bool {
    probe.picture().head.link == Link::Live
}

/// Returns why a probe has had no current readings for a while. A link may end with its job, which the next job list
/// shows.
fn fault(job: JobId, probe: &Node, before: Option<Text>, now_ms: u64) -> Option<Text> {
    let head = &probe.picture().head;
    match &head.link {
        Link::Live | Link::Late => head
            .driver_stuck_ms
            .map(|_| Text::new(format!("the driver does not respond to the probe of job {job}"))),
        Link::Silent => Some(Text::new(format!("the probe of job {job} is silent"))),
        Link::Down { reason, .. } | Link::Refused { reason, .. } => {
            let is_old = now_ms.saturating_sub(probe.last_line_ms) >= SILENT_MS;
            is_old.then(|| Text::new(format!("there is no probe in job {job}: {reason}")))
        }
        Link::Waiting | Link::Connecting { .. } | Link::Ended => before,
    }
}

impl Node {
    /// Records the confinement of a new probe of the node, whose sources and topology are known.
    pub(super) fn set_confinement(&mut self, by: Option<Confinement>) {
        let facts = self.picture.head.facts.as_ref();
        let before = self.confined.take();
        self.confined = by.zip(facts).map(|(by, facts)| {
            Box::new(Confined {
                by,
                sources: facts.sources.clone(),
                topology: facts.topology.clone(),
                gpus: Vec::new(),
                own: Vec::new(),
                providers: Vec::new(),
                faults: BTreeMap::new(),
                probes: before.map(|before| before.probes).unwrap_or_default(),
            })
        });
    }

    /// The position of a GPU that the node's own probe reports.
    pub(super) fn own_position(&self, row: usize) -> usize {
        match &self.confined {
            Some(confined) => confined.own.get(row).copied().flatten().unwrap_or(usize::MAX),
            None => row,
        }
    }

    /// Returns the state on which the attribution of GPUs depends, besides the picture.
    pub(super) fn view(&self) -> AttributedNode<'_> {
        let confined = self.confined.as_deref();
        let seen_by = |confined: &Confined| {
            confined.providers.iter().map(|provider| provider.job.or(confined.by.job)).collect()
        };
        AttributedNode {
            name: &self.picture.name,
            confinement: confined.map(|confined| &confined.by),
            seen_by: confined.map(seen_by).unwrap_or_default(),
            // The node's own probe finds the processes of all jobs.
            job_devices: &self.job_devices,
        }
    }

    /// The jobs in which a probe should run, besides the node's own.
    pub fn job_probes(&self) -> impl Iterator<Item = JobId> {
        self.confined.iter().flat_map(|confined| confined.probes.keys().copied())
    }

    /// Returns the resource usage of each connected probe on the node, with its job unless it is the node's own
    /// probe.
    pub fn probe_usages(&self) -> impl Iterator<Item = (Option<JobId>, ProbeUsage)> {
        let is_connected = |node: &Node| matches!(node.picture.head.link, Link::Live | Link::Late);
        self.probes()
            .filter(move |(_, probe)| is_connected(probe))
            .filter_map(|(job, probe)| Some((job, probe.probe_usage?)))
    }

    /// Returns what the connections of each probe on the node lost, with its job unless it is the node's own probe.
    pub fn connection_counts(&self) -> impl Iterator<Item = (Option<JobId>, ConnectionCounts)> {
        self.probes().map(|(job, probe)| (job, probe.counter.counts()))
    }

    /// The node's own probe, and those of jobs.
    fn probes(&self) -> impl Iterator<Item = (Option<JobId>, &Self)> {
        let of_jobs = self.confined.iter().flat_map(|confined| &confined.probes);
        std::iter::once((None, self)).chain(of_jobs.map(|(job, probe)| (Some(*job), probe)))
    }

    /// Decides in which of the user's jobs a probe runs: those with GPUs that the node's own probe does not see.
    pub fn update_job_probes(&mut self, jobs: &[Job], user: &str, now_ms: u64, changes: &mut NodeChanges) {
        if self.confined.is_none() {
            return;
        }
        let wanted = self.wanted_job_probes(jobs, user);
        let name = self.picture.name.clone();
        let Some(confined) = &mut self.confined else { return };
        if confined.probes.keys().eq(&wanted) {
            return;
        }
        confined.probes.retain(|job, _| wanted.contains(job));
        confined.faults.retain(|job, _| wanted.contains(job));
        for job in wanted {
            confined.probes.entry(job).or_insert_with(|| Node::without_history(name.clone()));
        }
        self.merge_job_probes(now_ms, changes);
        self.merge_job_processes(changes);
    }

    fn wanted_job_probes(&self, jobs: &[Job], user: &str) -> BTreeSet<JobId> {
        let Some(confined) = &self.confined else { return BTreeSet::new() };
        let name = &self.picture.name;
        let minors: Vec<u32> = confined.gpus.iter().filter_map(|gpu| gpu.minor.value().copied()).collect();
        let has_mig = confined.by.instances.devices > 0;
        let is_seen = |job: &Job| match job.gpus_on(name) {
            // On a node with MIG instances a GRES index counts instances.
            Some(GpuSet::Indices(indices)) if !has_mig => indices.iter().all(|index| minors.contains(index)),
            Some(GpuSet::Indices(indices)) => indices.is_empty(),
            Some(GpuSet::Count(count)) => *count == 0,
            Some(GpuSet::Unknown) | None => job.gpu_count == Some(0),
        };
        let is_own = |job: &&Job| {
            job.state == JobState::Running && job.user.as_str() == user && job.nodes.contains(name)
        };
        let others = jobs.iter().filter(is_own).filter(|job| confined.by.job != Some(job.id));
        let mut wanted: Vec<JobId> = others.filter(|job| !is_seen(job)).map(|job| job.id).collect();
        wanted.sort_unstable();
        wanted.into_iter().take(MAX_JOB_PROBES).collect()
    }

    /// Applies an event of the probe of a job.
    pub fn handle_of_job(&mut self, job: JobId, event: SessionEvent, now_ms: u64, changes: &mut NodeChanges) {
        let Some(probe) = self.confined.as_mut().and_then(|confined| confined.probes.get_mut(&job)) else {
            return;
        };
        let gpu_event = match &event {
            SessionEvent::Line(line) => match &**line {
                ProbeLine::Event(event) if event.gpu.is_some() => Some(event.clone()),
                _ => None,
            },
            _ => None,
        };
        let mut noted = NodeChanges::default();
        probe.handle(event, now_ms, &mut noted);
        if let Some(event) = gpu_event.filter(|event| self.is_of_job(job, event.gpu.as_ref())) {
            self.apply_event(event, now_ms, changes);
        }
        self.apply_job_changes(&noted, now_ms, changes);
    }

    /// Returns whether the GPU is reported by the probe of this job.
    fn is_of_job(&self, job: JobId, gpu: Option<&GpuUuid>) -> bool {
        let Some(confined) = &self.confined else { return false };
        confined.of_jobs().any(|(at, of, ..)| *of == job && Some(&self.picture.gpus[at].facts.uuid) == gpu)
    }

    fn apply_job_changes(&mut self, noted: &NodeChanges, now_ms: u64, changes: &mut NodeChanges) {
        let has_news = self.confined.as_mut().is_some_and(|confined| confined.update_faults(now_ms));
        if noted.gpus || noted.head || has_news {
            self.merge_job_probes(now_ms, changes);
        }
        if noted.processes || has_news {
            self.merge_job_processes(changes);
        }
        if !noted.were.is_empty() || noted.rates {
            self.merge_job_health(changes);
        }
    }

    /// Checks timeouts of the probes of jobs.
    pub(super) fn tick_job_probes(&mut self, now_ms: u64, changes: &mut NodeChanges) {
        let Some(confined) = &mut self.confined else { return };
        let mut noted = NodeChanges::default();
        confined.probes.values_mut().for_each(|probe| probe.tick(now_ms, &mut noted));
        self.apply_job_changes(&noted, now_ms, changes);
    }

    /// Returns the GPUs of a new probe of the node, and the GPUs that only probes of jobs see.
    pub(super) fn with_job_gpus(&mut self, own: Vec<GpuFacts>) -> Vec<GpuFacts> {
        match &mut self.confined {
            Some(confined) => {
                confined.gpus = own;
                confined.merge()
            }
            None => own,
        }
    }

    /// Merges what the probes of jobs see with what the node's own probe sees.
    pub(super) fn merge_job_probes(&mut self, now_ms: u64, changes: &mut NodeChanges) {
        let Some(confined) = &mut self.confined else { return };
        let merged = confined.merge();
        if !merged.iter().eq(self.picture.gpus.iter().map(|gpu| &gpu.facts)) {
            self.restart_replay(now_ms);
            // They have the old order of GPUs.
            self.late_samples.clear();
            self.set_gpus(merged);
            (changes.gpus, changes.history) = (true, true);
        }
        self.merge_job_faults(changes);
        self.merge_job_health(changes);
        self.merge_sources(changes);
    }

    fn merge_job_faults(&mut self, changes: &mut NodeChanges) {
        let Some(confined) = &self.confined else { return };
        for (position, job, probe, row) in confined.of_jobs() {
            let (gpu, from) = (&mut self.picture.gpus[position], &probe.picture().gpus[row]);
            let lost = confined.faults.get(job).cloned();
            let gaps = match &lost {
                Some(why) => vec![ProcessGap::Failed(why.clone())],
                None => from.gaps.clone(),
            };
            let fault = lost.or_else(|| from.fault.clone());
            changes.gpus |= gpu.fault != fault || gpu.gaps != gaps;
            (gpu.fault, gpu.gaps) = (fault, gaps);
        }
    }

    fn merge_job_health(&mut self, changes: &mut NodeChanges) {
        let Some(confined) = &self.confined else { return };
        for (position, _, probe, row) in confined.of_jobs() {
            let (gpu, from) = (&mut self.picture.gpus[position], &probe.picture().gpus[row]);
            if gpu.health != from.health {
                changes.was(&gpu.facts.uuid, std::mem::replace(&mut gpu.health, from.health.clone()));
            }
        }
    }

    fn merge_sources(&mut self, changes: &mut NodeChanges) {
        let (Some(confined), Some(facts)) = (&self.confined, &mut self.picture.head.facts) else { return };
        let (sources, topology) = (confined.sources(), confined.topology());
        let no_gpu = self.picture.gpus.is_empty().then(|| no_gpu_reason(&sources));
        if facts.sources != sources || facts.topology != topology || self.picture.head.no_gpu != no_gpu {
            (facts.sources, facts.topology, self.picture.head.no_gpu) = (sources, topology, no_gpu);
            changes.head = true;
        }
    }

    /// Enters the newest readings of the probes of jobs, with a sample of the node's own probe.
    pub(super) fn enter_job_samples(&mut self) {
        let Some(confined) = &self.confined else { return };
        for (position, _, probe, row) in confined.of_jobs() {
            let newest = &probe.picture().gpus[row].row;
            self.picture.gpus[position].row = if is_current(probe) { newest.clone() } else { Row::default() };
        }
        let gpus: Vec<_> = self.picture.gpus.iter().map(|gpu| gpu.facts.uuid.clone()).collect();
        let processes = confined.processes(&gpus);
        let of_jobs = self.picture.processes.iter_mut().skip(self.listed.len());
        for (process, newest) in of_jobs.zip(processes) {
            // The lists are equal, as every change is merged at once.
            if process.facts == newest.facts {
                process.row = newest.row;
            }
        }
    }

    /// Returns the processes of the node's own probe, followed by the processes of the probes of jobs.
    pub(super) fn with_job_processes(&self, mut own: Vec<ProcessPicture>) -> Vec<ProcessPicture> {
        if let Some(confined) = &self.confined {
            let gpus: Vec<_> = self.picture.gpus.iter().map(|gpu| gpu.facts.uuid.clone()).collect();
            own.extend(confined.processes(&gpus));
        }
        own
    }

    fn merge_job_processes(&mut self, changes: &mut NodeChanges) {
        let known = &self.picture.processes;
        let merged = self.with_job_processes(known[..self.listed.len().min(known.len())].to_vec());
        let facts = |processes: &[ProcessPicture]| {
            processes.iter().map(|process| process.facts.clone()).collect::<Vec<_>>()
        };
        if facts(&merged) != facts(known) {
            self.set_processes(merged, changes);
        }
    }
}

#[cfg(test)]
#[path = "confined_tests.rs"]
mod tests;

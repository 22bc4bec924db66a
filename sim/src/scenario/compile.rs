//! Compiles a scenario file into a consistent scenario.

use crate::scenario::error::{ScenarioError, ScenarioFault, line_of};
use crate::scenario::file::{EpisodeEntry, FaultEntry, FaultKind, JobEntry, NodeGroup, ScenarioFile};
use crate::scenario::interventions::Interventions;
use crate::scenario::mig_profile::Profile;
use crate::scenario::rng::Rng;
use crate::scenario::validate;
use crate::scenario::window::Window;
use crate::scenario::{
    ArrayScript, Assignment, Episode, Fault, GpuLocation, JobScript, NodeScript, Part, Scenario, Unit,
};
use nodeglass_protocol::process::Container;
use nodeglass_protocol::{JobId, NodeName, Text};
use std::collections::BTreeMap;
use toml::Spanned;

/// Maximum number of GPUs per node.
const MAX_GPUS: u32 = 64;
/// Maximum number of nodes per pattern.
const MAX_PATTERN_NODES: usize = 10_000;
/// Default interval of checkpoints.
const CHECKPOINT_MS: i64 = 240_000;
const MINUTE_MS: i64 = 60_000;

/// Parses and validates a file.
pub(crate) fn compile(text: &str) -> Result<Scenario, ScenarioError> {
    let file: ScenarioFile = toml::from_str(text).map_err(|error| syntax(text, &error))?;
    let cycle_ms = file.cycle.get_ref().ms;
    let compiler = Compiler { text, cycle_ms };
    if cycle_ms < MINUTE_MS {
        return Err(compiler.fault(&file.cycle, ScenarioFault::Cycle));
    }
    let mut scenario = Scenario {
        cluster: file.cluster.into(),
        controller: file.controller.map(Into::into),
        user: file.user.into(),
        rng: Rng::new(file.seed, file.still),
        nodes: Vec::new(),
        jobs: Vec::new(),
        by_name: BTreeMap::new(),
        interventions: Interventions::default(),
    };
    for group in &file.nodes {
        compiler.add_nodes(&mut scenario, group)?;
    }
    for entry in &file.faults {
        compiler.add_fault(&mut scenario, entry)?;
    }
    for entry in &file.jobs {
        compiler.add_job(&mut scenario, entry)?;
    }
    Ok(scenario)
}

fn syntax(text: &str, error: &toml::de::Error) -> ScenarioError {
    let line = error.span().map_or(1, |span| line_of(text, span.start));
    let message = error.message().replace('\n', ", ");
    ScenarioError { line, fault: ScenarioFault::Syntax(message) }
}

struct Compiler<'a> {
    text: &'a str,
    cycle_ms: i64,
}

impl Compiler<'_> {
    fn fault<T>(&self, at: &Spanned<T>, fault: ScenarioFault) -> ScenarioError {
        ScenarioError { line: line_of(self.text, at.span().start), fault }
    }

    fn add_nodes(&self, scenario: &mut Scenario, group: &NodeGroup) -> Result<(), ScenarioError> {
        let gpus = *group.gpus.get_ref();
        if gpus > MAX_GPUS {
            return Err(self.fault(&group.gpus, ScenarioFault::TooManyGpus(gpus)));
        }
        let slices: u32 = group.mig.iter().map(|profile| profile.get_ref().slices).sum();
        if let Some(first) = group.mig.first().filter(|_| slices > 7) {
            return Err(self.fault(first, ScenarioFault::TooManySlices(slices)));
        }
        let units = units(group);
        for name in self.names(&group.name)? {
            if scenario.by_name.insert(name.clone(), scenario.nodes.len()).is_some() {
                return Err(self.fault(&group.name, ScenarioFault::DuplicateNode(name)));
            }
            scenario.nodes.push(NodeScript {
                name,
                assignments: vec![Vec::new(); units.iter().filter(|unit| unit.gres_index.is_some()).count()],
                units: units.clone(),
                model: *group.model,
                cpus: group.cpus,
                mem_bytes: group.mem_gib << 30,
                driver: group.driver.as_str().into(),
                cuda: group.cuda.as_str().into(),
                kernel: group.kernel.as_str().into(),
                motd: group.motd.clone(),
                faults: Vec::new(),
            });
        }
        Ok(())
    }

    fn add_fault(&self, scenario: &mut Scenario, entry: &FaultEntry) -> Result<(), ScenarioError> {
        if entry.kind.takes_gpu() && entry.gpu.is_none() {
            return Err(self.fault(&entry.nodes, ScenarioFault::WhichGpu(entry.kind.name())));
        }
        if entry.kind == FaultKind::Xid && entry.xid.is_none() {
            return Err(self.fault(&entry.nodes, ScenarioFault::WhichXid));
        }
        let gpu = entry.gpu.unwrap_or(0);
        for node in self.known_nodes(scenario, &entry.nodes)? {
            if entry.gpu.is_some() {
                let has = scenario.nodes[node].gpus() as u32;
                self.known_gpu(scenario, &entry.nodes, node, gpu, has)?;
            }
            let lasts_ms = entry.lasts.map(|lasts| lasts.ms);
            let window = Window::new(entry.at.ms, lasts_ms, self.cycle_ms);
            let fault = Fault { kind: entry.kind, window, rejoin_ms: entry.rejoin.ms, gpu, xid: entry.xid };
            scenario.nodes[node].faults.push(fault);
        }
        Ok(())
    }

    fn add_job(&self, scenario: &mut Scenario, entry: &JobEntry) -> Result<(), ScenarioError> {
        let memory_pct = *entry.memory_pct.get_ref();
        if memory_pct > 100 {
            return Err(self.fault(&entry.memory_pct, ScenarioFault::Share(memory_pct)));
        }
        let job = self.job(scenario, entry)?;
        let checked = validate::times(&job).and_then(|()| validate::numbers(&scenario.jobs, &job));
        checked
            .and_then(|()| validate::gpus(scenario, &job))
            .map_err(|fault| self.fault(&entry.id, fault))?;
        let index = scenario.jobs.len();
        for (slot, location) in job.locations.iter().enumerate() {
            scenario.nodes[location.node].assignments[location.gpu as usize]
                .push(Assignment { job: index, slot });
        }
        scenario.jobs.push(job);
        Ok(())
    }

    /// The nodes of a job and its GPUs there, by rank.
    fn placement(
        &self,
        scenario: &Scenario,
        entry: &JobEntry,
    ) -> Result<(Vec<usize>, Vec<GpuLocation>), ScenarioError> {
        let nodes = match &entry.nodes {
            Some(pattern) => self.known_nodes(scenario, pattern)?,
            None => Vec::new(),
        };
        let mut locations = Vec::new();
        for &node in &nodes {
            let all = 0..scenario.nodes[node].assignments.len() as u32;
            for gpu in entry.gpus.clone().unwrap_or_else(|| all.collect()) {
                self.known_gres_index(scenario, &entry.id, node, gpu)?;
                locations.push(GpuLocation { node, gpu });
            }
        }
        Ok((nodes, locations))
    }

    fn job(&self, scenario: &Scenario, entry: &JobEntry) -> Result<JobScript, ScenarioError> {
        let (nodes, locations) = self.placement(scenario, entry)?;
        let episodes =
            entry.episodes.iter().map(|episode| self.episode(scenario, entry, &nodes, &locations, episode));
        let episodes = episodes.collect::<Result<_, _>>()?;
        let text = |raw: &Option<String>| raw.as_deref().map(Text::new);
        Ok(JobScript {
            id: *entry.id.get_ref(),
            name: entry.name.as_str().into(),
            user: text(&entry.user).unwrap_or_else(|| scenario.user.clone()),
            account: text(&entry.account),
            partition: entry.partition.as_str().into(),
            qos: text(&entry.qos),
            submitted_ms: entry.submitted.ms,
            start_ms: entry.start.map(|start| start.ms),
            end_ms: end_ms(entry, locations.len()),
            ends_as: match entry.end {
                None if entry.array.is_none() => "TIMEOUT".into(),
                _ => entry.ends_as.as_str().into(),
            },
            limit_ms: entry.limit.map(|limit| limit.ms),
            reason: text(&entry.reason),
            dependency: text(&entry.dependency),
            script: entry.script.clone(),
            every_ms: entry.every.map(|every| every.ms),
            cycle_ms: self.cycle_ms,
            asks_nodes: entry.node_count.unwrap_or(nodes.len().max(1) as u32),
            asks_gpus: entry.gpu_count.unwrap_or(locations.len() as u32),
            deaths: deaths(scenario, &nodes),
            nodes,
            locations,
            behaviour: entry.behaviour,
            checkpoint_ms: entry.checkpoint_every.map_or(CHECKPOINT_MS, |every| every.ms.max(MINUTE_MS)),
            memory_pct: *entry.memory_pct.get_ref(),
            command: entry.command.as_str().into(),
            args: text(&entry.args),
            container: entry
                .container
                .as_ref()
                .map(|of| Container { runtime: of.runtime, name: text(&of.name) }),
            array: entry.array.map(|array| ArrayScript { tasks: array.tasks, task_ms: array.task_time.ms }),
            het: entry.het.map(|het| (JobId(het.job), het.offset)),
            steps: entry.steps,
            message: entry.message.clone(),
            episodes,
        })
    }

    fn episode(
        &self,
        scenario: &Scenario,
        job: &JobEntry,
        job_nodes: &[usize],
        locations: &[GpuLocation],
        entry: &EpisodeEntry,
    ) -> Result<Episode, ScenarioError> {
        let nodes = match &entry.nodes {
            Some(pattern) => {
                let nodes = self.known_nodes(scenario, pattern)?;
                if let Some(stranger) = nodes.iter().find(|node| !job_nodes.contains(node)) {
                    let node = scenario.nodes[*stranger].name.clone();
                    let fault = ScenarioFault::NotOnNode { job: *job.id.get_ref(), node };
                    return Err(self.fault(pattern, fault));
                }
                nodes
            }
            None => job_nodes.to_vec(),
        };
        let at = Spanned::new(entry.nodes.as_ref().map_or(job.id.span(), Spanned::span), ());
        for &node in &nodes {
            for &gpu in entry.gpus.iter().flatten() {
                self.known_gres_index(scenario, &at, node, gpu)?;
            }
        }
        let takes_part = |location: &GpuLocation| {
            nodes.contains(&location.node)
                && entry.gpus.as_ref().is_none_or(|gpus| gpus.contains(&location.gpu))
        };
        Ok(Episode {
            behaviour: entry.behaviour,
            window: Window::new(entry.from.ms, entry.lasts.map(|lasts| lasts.ms), self.cycle_ms),
            slots: locations.iter().map(takes_part).collect(),
        })
    }

    fn names(&self, pattern: &Spanned<String>) -> Result<Vec<NodeName>, ScenarioError> {
        let raw = pattern.get_ref();
        let nodes = nodeglass_hostlist::expand(raw).ok();
        let nodes = nodes.filter(|nodes| (1..=MAX_PATTERN_NODES).contains(&nodes.len()));
        nodes.ok_or_else(|| self.fault(pattern, ScenarioFault::Pattern(raw.clone())))
    }

    fn known_nodes(
        &self,
        scenario: &Scenario,
        pattern: &Spanned<String>,
    ) -> Result<Vec<usize>, ScenarioError> {
        let known = |name: NodeName| {
            let index = scenario.by_name.get(&name).copied();
            index.ok_or_else(|| self.fault(pattern, ScenarioFault::UnknownNode(name)))
        };
        self.names(pattern)?.into_iter().map(known).collect()
    }

    fn known_gres_index<T>(
        &self,
        scenario: &Scenario,
        at: &Spanned<T>,
        node: usize,
        gpu: u32,
    ) -> Result<(), ScenarioError> {
        let has = scenario.nodes[node].assignments.len() as u32;
        self.known_gpu(scenario, at, node, gpu, has)
    }

    fn known_gpu<T>(
        &self,
        scenario: &Scenario,
        at: &Spanned<T>,
        node: usize,
        gpu: u32,
        has: u32,
    ) -> Result<(), ScenarioError> {
        if gpu < has {
            return Ok(());
        }
        let node = scenario.nodes[node].name.clone();
        Err(self.fault(at, ScenarioFault::NoSuchGpu { node, gpu, has }))
    }
}

/// Returns the GPUs of a node, each followed by its MIG instances.
fn units(group: &NodeGroup) -> Vec<Unit> {
    let (model, mut units, mut assignments) = (*group.model, Vec::new(), 0..);
    for gpu in 0..*group.gpus.get_ref() as usize {
        let gres_index = if group.mig.is_empty() { assignments.next() } else { None };
        units.push(Unit { gpu, gres_index, model, mig: None });
        for (profile, gpu_instance) in group.mig.iter().map(Spanned::get_ref).zip(1..) {
            let Profile { slices, mem_gb } = *profile;
            let mig = Some(Part { gpu_instance, slices, mem_gb });
            units.push(Unit { gpu, gres_index: assignments.next(), model: model.part(slices, mem_gb), mig });
        }
    }
    units
}

/// An array ends with its last task; another job at the end in the file or at its time limit.
fn end_ms(entry: &JobEntry, slots: usize) -> Option<i64> {
    let start_ms = entry.start?.ms;
    if let Some(array) = entry.array {
        let rounds = i64::from(array.tasks).saturating_add(slots as i64 - 1) / (slots as i64).max(1);
        return Some(start_ms + rounds.saturating_add(1).saturating_mul(array.task_time.ms));
    }
    entry.end.map(|end| end.ms).or_else(|| Some(start_ms + entry.limit?.ms))
}

fn deaths(scenario: &Scenario, nodes: &[usize]) -> Vec<(usize, Window)> {
    let of_node = |node: usize| {
        let faults = scenario.nodes[node].faults.iter().filter(|fault| fault.kind == FaultKind::Dies);
        faults.map(move |fault| (node, fault.window.longer_by(fault.rejoin_ms)))
    };
    nodes.iter().flat_map(|node| of_node(*node)).collect()
}

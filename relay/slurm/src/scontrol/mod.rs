//! Parses `scontrol show job -d` for the GPUs of a job per node; blocks that may be forged are ignored.
//!
//! scontrol's output has no delimiter of our choice, and a job's name or comment may contain whole lines.
//! Three rules keep them harmless: a block counts only if it names a selected user; a field that
//! occurs twice in a block, or a block that occurs twice, is ignored; and per-node lines count only where
//! SLURM itself prints them.

mod job_fields;
mod once;

use crate::squeue::job_state;
use crate::{Selection, gres};
use job_fields::JobFieldLines;
pub use job_fields::JobFields;
use nodeglass_hostlist::{self as hostlist, ExpansionBudget};
use nodeglass_protocol::{
    JobId, NodeName,
    job::{GpuSet, JobState, NodeGpus},
};
use once::Once;
use std::collections::HashMap;

/// scontrol's arguments for the details of one job, or of all jobs visible to this user. `--local` avoids
/// querying the other clusters of a federation.
pub fn job_args(id: Option<JobId>) -> Vec<String> {
    let id = id.map(|id| id.to_string());
    ["--local", "--details", "show", "job"].map(str::to_owned).into_iter().chain(id).collect()
}

/// Returns whether scontrol reports that a job has not ended; `None` if it does not state the job's state.
pub fn is_active(out: &[u8], id: JobId) -> Option<bool> {
    Some(!matches!(state(&String::from_utf8_lossy(out), id)?, JobState::Ended(_)))
}

/// Returns the array of a task that waits, as one that was requeued: squeue lists it with the pending rest of the array.
pub fn array_of_pending(out: &[u8], id: JobId) -> Option<JobId> {
    let text = String::from_utf8_lossy(out);
    let line = text.lines().find(|line| block_start(line) == Some(id))?;
    let array = line.split_whitespace().find_map(|word| word.strip_prefix("ArrayJobId="))?;
    (state(&text, id)? == JobState::Pending).then(|| array.parse().ok())?
}

/// Returns the partitions, or the account, of a job: what follows `key`.
pub fn word_after(out: &[u8], id: JobId, key: &str) -> Option<String> {
    let text = String::from_utf8_lossy(out);
    let mut lines = text.lines().skip_while(|line| block_start(line) != Some(id));
    lines.find_map(|line| line.split_whitespace().find_map(|word| word.strip_prefix(key))).map(str::to_owned)
}

fn state(text: &str, id: JobId) -> Option<JobState> {
    let block = text.lines().skip_while(|line| block_start(line) != Some(id));
    let state = block.map(str::trim).find_map(|line| line.strip_prefix("JobState="))?;
    Some(job_state(state.split_whitespace().next()?, true))
}

/// scontrol's arguments for the configuration.
pub fn config_args() -> Vec<String> {
    ["show", "config"].map(str::to_owned).into()
}

/// `ClusterName` in the printed configuration.
pub fn cluster_name(out: &[u8]) -> Option<String> {
    setting(out, &["ClusterName"])
}

/// The first controller in the printed configuration, which a failover does not change: `SlurmctldHost[0]` (up to 18.08
/// `ControlMachine`) with its port and the folder of its state, as `ctl:6817 (/var/spool/slurmctld)`. The host alone may be that of
/// another cluster: a short name, which is unique within a domain only, or one machine with two controllers.
pub fn controller(out: &[u8]) -> Option<String> {
    let mut controller = setting(out, &["SlurmctldHost[0]", "SlurmctldHost", "ControlMachine"])?;
    if let Some(port) = setting(out, &["SlurmctldPort"]) {
        controller = format!("{controller}:{port}");
    }
    if let Some(state) = setting(out, &["StateSaveLocation"]) {
        controller = format!("{controller} ({state})");
    }
    Some(controller)
}

/// The first setting of these names in the printed configuration.
fn setting(out: &[u8], names: &[&str]) -> Option<String> {
    let text = String::from_utf8_lossy(out);
    let value = text.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        names.contains(&name.trim()).then(|| value.trim().to_owned())
    })?;
    (!value.is_empty() && value != "(null)").then_some(value)
}

/// Details that scontrol adds to squeue's fields of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// The job's GPUs on each node.
    pub gpus: Vec<NodeGpus>,
    /// Total number of GPUs, if stated.
    pub gpu_count: Option<u32>,
    /// Further fields.
    pub facts: JobFields,
}

/// Parses the blocks of users who may have selected jobs; `None` marks an ambiguous block, or one that is cut off.
pub fn read(out: &[u8], selection: &Selection) -> HashMap<JobId, Option<Detail>> {
    let text = String::from_utf8_lossy(out);
    let mut found: HashMap<JobId, Option<Detail>> = HashMap::new();
    let mut block: Option<Block<'_>> = None;
    // The output contains other users' names and comments, which may contain whole blocks.
    let mut budget = ExpansionBudget::default();
    for line in text.lines() {
        if let Some(id) = block_start(line) {
            settle(&mut found, block.replace(Block::new(id)), selection, &mut budget);
        }
        if let Some(block) = &mut block {
            block.read(line);
        }
    }
    let last = block.as_ref().map(|block| block.id);
    settle(&mut found, block, selection, &mut budget);
    // All releases end each block with an empty line. One that is cut off may lack the GPUs.
    let cut_off = last.filter(|_| !text.ends_with("\n\n"));
    if let Some(detail) = cut_off.and_then(|id| found.get_mut(&id)) {
        *detail = None;
    }
    found
}

/// `JobId=17 …` at the beginning of a line.
fn block_start(line: &str) -> Option<JobId> {
    line.strip_prefix("JobId=")?.split_whitespace().next()?.parse().ok()
}

fn settle(
    found: &mut HashMap<JobId, Option<Detail>>,
    block: Option<Block<'_>>,
    selection: &Selection,
    budget: &mut ExpansionBudget,
) {
    let counts = |block: &Block<'_>| match block.user {
        Once::Is(uid) => selection.may_contain(uid),
        ref user => *user == Once::Twice,
    };
    let Some(block) = block.filter(counts) else { return };
    let id = block.id;
    let detail = block.detail(budget);
    found.entry(id).and_modify(|known| *known = None).or_insert(detail);
}

/// The relevant lines of one job.
struct Block<'a> {
    id: JobId,
    user: Once<u32>,
    job_gres: Once<&'a str>,
    tres: Once<&'a str>,
    /// The requested resources; the only list while it is pending.
    requested: Once<&'a str>,
    facts: JobFieldLines<'a>,
    sockets: Once<()>,
    /// `Nodes=` and `GRES=` of each per-node line.
    nodes: Vec<(&'a str, &'a str)>,
    /// Whether the next line may be a per-node line: they follow `Socks/Node=` and `JOB_GRES=`.
    expects_nodes: bool,
}

impl<'a> Block<'a> {
    fn new(id: JobId) -> Self {
        Self {
            id,
            user: Once::Never,
            job_gres: Once::Never,
            tres: Once::Never,
            requested: Once::Never,
            facts: JobFieldLines::default(),
            sockets: Once::Never,
            nodes: Vec::new(),
            expects_nodes: false,
        }
    }

    fn read(&mut self, line: &'a str) {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("UserId=") {
            // A rest that names no user still counts as an occurrence.
            self.user.set(user_id(rest).unwrap_or(u32::MAX));
        } else if let Some(gres) = line.strip_prefix("JOB_GRES=") {
            self.job_gres.set(gres);
        } else if let Some(tres) = line.strip_prefix("AllocTRES=").or_else(|| line.strip_prefix("TRES=")) {
            self.tres.set(tres);
        } else if let Some(tres) = line.strip_prefix("ReqTRES=") {
            self.requested.set(tres);
        } else if line.starts_with("Socks/Node=") {
            self.sockets.set(());
        } else if self.expects_nodes && line.starts_with("Nodes=") {
            self.nodes.extend(node_line(line));
            return;
        } else {
            self.facts.read(line);
        }
        self.expects_nodes = line.starts_with("JOB_GRES=") || line.starts_with("Socks/Node=");
    }

    fn detail(&self, budget: &mut ExpansionBudget) -> Option<Detail> {
        self.user.get()?;
        self.sockets.get()?;
        let (job_gres, tres) = (self.job_gres.get()?, self.tres.get()?);
        let tres = tres.filter(|tres| !tres.starts_with("(null)")).or(self.requested.get()?);
        let mut gpus: HashMap<NodeName, GpuSet> = HashMap::new();
        let mut order = Vec::new();
        for (nodes, text) in &self.nodes {
            let set = gres::gpus(text);
            for node in hostlist::expand_within(nodes, budget).ok()? {
                match gpus.remove(&node) {
                    Some(other) => gpus.insert(node, gres::both(other, set.clone())),
                    None => {
                        order.push(node.clone());
                        gpus.insert(node, set.clone())
                    }
                };
            }
        }
        let gpu_count = job_gres.and_then(gres::count).or_else(|| tres.and_then(gpus_in_tres));
        let gpus = order.into_iter().filter_map(|node| gpus.remove(&node).map(|set| NodeGpus { node, set }));
        let facts = self.facts.facts(tres);
        Some(Detail { gpus: doubt_empty_sets(gpus.collect(), gpu_count), gpu_count, facts })
    }
}

/// An empty `GRES=` means that the job has no GPU on the node only if the others add up to `JOB_GRES=`:
/// SLURM empties it as soon as a job is completing.
fn doubt_empty_sets(mut gpus: Vec<NodeGpus>, gpu_count: Option<u32>) -> Vec<NodeGpus> {
    let counts = gpus.iter().map(|node| match &node.set {
        GpuSet::Indices(list) => u32::try_from(list.len()).unwrap_or(u32::MAX),
        GpuSet::Count(count) => *count,
        GpuSet::Unknown => 0,
    });
    let counts = counts.fold(0, u32::saturating_add);
    if gpu_count.is_some_and(|count| count != counts) {
        for node in gpus.iter_mut().filter(|node| node.set == GpuSet::Indices(Vec::new())) {
            node.set = GpuSet::Unknown;
        }
    }
    gpus
}

/// The uid in `alice(2001) GroupId=…`.
fn user_id(rest: &str) -> Option<u32> {
    let user = rest.split(" GroupId=").next()?.trim();
    user.strip_suffix(')')?.rsplit_once('(')?.1.parse().ok()
}

/// `Nodes=` and `GRES=` (up to 18.08 `GRES_IDX=`) of a per-node line.
fn node_line(line: &str) -> Option<(&str, &str)> {
    let nodes = line.strip_prefix("Nodes=")?.split_whitespace().next()?;
    let value = |word: &'_ str| ["GRES=", "GRES_IDX="].iter().any(|name| word.starts_with(name));
    let gres = line.split_whitespace().find(|word| value(word))?;
    Some((nodes, gres.split_once('=')?.1))
}

/// `gres/gpu=4` in a list of TRES; typed entries beside it name the same cards again.
fn gpus_in_tres(tres: &str) -> Option<u32> {
    let list = || tres.split_whitespace().next().unwrap_or_default().split(',');
    let all = list().find_map(|item| item.strip_prefix("gres/gpu=")?.parse().ok());
    let typed = || {
        let typed =
            list().filter_map(|item| item.strip_prefix("gres/gpu:")?.split_once('=')?.1.parse::<u32>().ok());
        typed.reduce(u32::saturating_add)
    };
    all.or_else(typed)
}

#[cfg(test)]
mod tests;

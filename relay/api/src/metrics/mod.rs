//! Prometheus metrics of a snapshot, in the text format 0.0.4.
//!
//! NVIDIA GPUs have dcgm-exporter's names where the meaning is identical ([`dcgm`]); everything else has names of the
//! catalogue in base units. A reading without a value has no sample, and a node that is silent has none of its readings,
//! so that Prometheus marks the series as stale instead of repeating an old value.

mod dcgm;
mod exposition;
mod findings;
mod relay;
mod sink;

use super::gpu::{Health, PcieLink};
use super::{
    ChannelStatus, Gpu, Job, Losses, Node, ProbeStatus, Process, RemoteWriteStatus, Snapshot, Timestamp,
};
use exposition::Exposition;
use nodeglass_protocol::{Field, GpuField, HostField, JobField, ProcessField};
pub use sink::{Kind, Labels, Sink};
use std::collections::HashMap;
use std::io::{self, Write};

/// Content type of the response.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Parts of the metrics, selected like the collectors of node_exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collector {
    /// GPUs.
    Gpu,
    /// Hosts and their connections.
    Node,
    /// Jobs.
    Job,
    /// Findings.
    Finding,
    /// Processes.
    Process,
    /// The relay itself and its probes.
    Relay,
}

impl Collector {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Gpu, Self::Node, Self::Job, Self::Finding, Self::Process, Self::Relay];

    /// Its name in `collect[]`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Node => "node",
            Self::Job => "job",
            Self::Finding => "finding",
            Self::Process => "process",
            Self::Relay => "relay",
        }
    }

    /// The one with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|collector| collector.name() == name)
    }
}

/// State of the relay itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RelayMetrics {
    /// Version and build.
    pub version: String,
    /// Build id.
    pub build: String,
    /// The label `cluster` of every series; empty without a cluster.
    pub cluster: String,
    /// Connected pages.
    pub viewers: u32,
    /// CPU time used, in s.
    pub cpu_s: f64,
    /// Memory in RAM, in bytes.
    pub rss_bytes: Option<u64>,
    /// Frames that slow viewers missed.
    pub coalesced: u64,
    /// When SLURM last answered.
    pub slurm_at: Option<Timestamp>,
    /// When the relay started.
    pub started_at: Option<Timestamp>,
    /// Resource usage of each connected probe.
    pub probes: Vec<ProbeStatus>,
    /// Losses of connections and disks.
    pub losses: Losses,
    /// Delivery of notices, by channel.
    pub notifications: Vec<ChannelStatus>,
    /// Delivery of the metrics by remote write, if configured.
    pub remote_write: Option<RemoteWriteStatus>,
    /// Whether NATS is connected, if it is used.
    pub nats_connected: Option<bool>,
    /// Whether the relay holds leases of nodes over NATS, if it needs any.
    pub nats_leases: Option<bool>,
}

/// Writes the metrics of a snapshot and the relay, for the selected collectors, in chunks of 64 KiB.
///
/// # Errors
/// Writing to `out` failed.
pub fn write(
    snapshot: &Snapshot,
    relay: &RelayMetrics,
    collectors: &[Collector],
    out: &mut dyn Write,
) -> io::Result<()> {
    // Without it, jobs and nodes of two clusters in one database would be mixed.
    let cluster = Labels::new(&[("cluster", &relay.cluster)]);
    let mut out = Exposition::new(out, &cluster);
    each(snapshot, relay, collectors, &mut out);
    out.finish()
}

/// Passes each series of a snapshot and the relay, for the selected collectors, to `out`, which adds the cluster.
pub fn each(snapshot: &Snapshot, relay: &RelayMetrics, collectors: &[Collector], out: &mut dyn Sink) {
    let has = |collector| collectors.contains(&collector);
    let users: HashMap<u32, &str> = snapshot.jobs.iter().map(|job| (job.id, job.user.as_str())).collect();
    if has(Collector::Gpu) {
        gpus(out, snapshot, &users);
    }
    if has(Collector::Node) {
        nodes(out, &snapshot.nodes);
    }
    if has(Collector::Job) {
        jobs(out, snapshot, &users);
    }
    if has(Collector::Finding) {
        findings::write(out, snapshot, &users);
    }
    if has(Collector::Process) {
        processes(out, snapshot);
    }
    if has(Collector::Relay) {
        relay::write(out, snapshot, relay);
    }
}

/// A series of a field: its name, and the value that stands for one unit of the field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldSeries {
    /// Name of the family.
    pub name: String,
    /// Value of the series per unit of the field.
    pub per_unit: f64,
}

/// The series in which the values of a field of GPUs are.
pub fn gpu_series(field: GpuField) -> Vec<FieldSeries> {
    let dcgm =
        dcgm::of(field).map(|dcgm| FieldSeries { name: dcgm.name.to_owned(), per_unit: dcgm.value(1) });
    dcgm.into_iter().chain(base_series(field)).collect()
}

/// The series of nodeglass itself in which the values of a field are.
pub fn base_series<F: Field>(field: F) -> Vec<FieldSeries> {
    let metric = field.metric();
    vec![FieldSeries { name: metric.prometheus_name(F::ROW_KIND), per_unit: metric.prometheus_value(1) }]
}

/// A GPU whose readings are of this moment, with its labels.
struct LabelledGpu<'a> {
    gpu: &'a Gpu,
    labels: Labels,
    is_nvidia: bool,
}

fn gpus(out: &mut dyn Sink, snapshot: &Snapshot, users: &HashMap<u32, &str>) {
    let labelled =
        |gpu| LabelledGpu { gpu, labels: gpu_labels(gpu, users), is_nvidia: gpu.vendor == "nvidia" };
    let all: Vec<_> = snapshot.gpus.iter().map(labelled).collect();
    let current: Vec<_> = all.iter().filter(|gpu| gpu.gpu.connection.is_current()).collect();
    for field in GpuField::ALL {
        let dcgm = dcgm::of(*field);
        if let Some(dcgm) = dcgm {
            out.family(dcgm.name, &field.metric().prometheus_help(), Kind::Gauge);
            for one in current.iter().filter(|one| one.is_nvidia) {
                out.sample(&one.labels, one.gpu.readings.value(*field).map(|value| dcgm.value(value)));
            }
        }
        let rest = current.iter().filter(|one| dcgm.is_none() || !one.is_nvidia);
        family_of(out, *field);
        rest.for_each(|one| out.sample(&one.labels, base_value(*field, one.gpu.readings.value(*field))));
    }
    out.family("DCGM_FI_DEV_FB_FREE", "Device memory that is free, in MiB.", Kind::Gauge);
    for one in current.iter().filter(|one| one.is_nvidia) {
        out.sample(&one.labels, dcgm::free_mib(one.gpu));
    }
    health(out, &current);
    out.family("nodeglass_gpu_up", "Whether the GPU can be read.", Kind::Gauge);
    for one in &all {
        let is_up = one.gpu.connection.is_current() && one.gpu.fault.is_none();
        out.sample(&one.labels, Some(f64::from(u8::from(is_up))));
    }
    last_xids(out, snapshot, &current);
}

/// Health of GPUs: the rows of [`Health`] with a metric, and the NVLinks.
fn health(out: &mut dyn Sink, current: &[&LabelledGpu<'_>]) {
    let mut family = |name: &str, help: &str, kind, value: &dyn Fn(&Health) -> Option<u64>| {
        out.family(name, help, kind);
        for one in current {
            out.sample(&one.labels, value(&one.gpu.health).map(|value| value as f64));
        }
    };
    for metric in PcieLink::METRICS {
        family(metric.name, metric.help, metric.kind.into(), &|health| (metric.value)(&health.pcie));
    }
    for metric in Health::METRICS {
        family(metric.name, metric.help, metric.kind.into(), &metric.value);
    }
    let states = [("nodeglass_gpu_nvlinks_up", "up", true), ("nodeglass_gpu_nvlinks_down", "down", false)];
    for (name, state, is_up) in states {
        family(name, &format!("NVLinks that are {state}."), Kind::Gauge, &|health| health.nvlinks(is_up));
    }
}

/// The last Xid error of each GPU, as dcgm-exporter has it: 0 if there was none.
fn last_xids(out: &mut dyn Sink, snapshot: &Snapshot, current: &[&LabelledGpu<'_>]) {
    let events = snapshot.nodes.iter().flat_map(|node| &node.events);
    let last: HashMap<&str, u64> =
        events.filter_map(|event| Some((event.gpu.as_deref()?, event.xid?))).collect();
    out.family("DCGM_FI_DEV_XID_ERRORS", "Number of the last Xid error; 0 if there was none.", Kind::Gauge);
    for one in current.iter().filter(|one| one.is_nvidia) {
        out.sample(&one.labels, Some(last.get(one.gpu.uuid.as_str()).copied().unwrap_or(0) as f64));
    }
}

fn nodes<'a>(out: &mut dyn Sink, nodes: &'a [Node]) {
    let labelled = |node: &'a Node| (node, Labels::new(&[("node", &node.name)]).taken_at(current_time(node)));
    let all: Vec<(&'a Node, Labels)> = nodes.iter().map(labelled).collect();
    out.family("nodeglass_node_up", "Whether samples from the node are arriving.", Kind::Gauge);
    for (node, labels) in &all {
        out.sample(labels, Some(f64::from(u8::from(node.connection.is_current()))));
    }
    out.family("nodeglass_node_last_sample_timestamp_seconds", "Time of the newest sample.", Kind::Gauge);
    for (node, labels) in &all {
        out.sample(labels, node.sampled_at.map(seconds));
    }
    for field in HostField::ALL {
        family_of(out, *field);
        for (node, labels) in all.iter().filter(|(node, _)| node.connection.is_current()) {
            out.sample(labels, base_value(*field, node.readings.value(*field)));
        }
    }
}

fn jobs(out: &mut dyn Sink, snapshot: &Snapshot, users: &HashMap<u32, &str>) {
    let active: Vec<(&Job, Labels)> = snapshot
        .jobs
        .iter()
        .filter(|job| job.ended_at.is_none() && !job.has_ended())
        .map(|job| (job, Labels::new(&[("job", &job.id.to_string()), ("user", &job.user)])))
        .collect();
    out.family("nodeglass_job_info", "Jobs that run or wait, always 1.", Kind::Gauge);
    for (job, _) in &active {
        let labels = Labels::new(&[
            ("job", &job.id.to_string()),
            ("user", &job.user),
            ("label", &job.label),
            ("name", &job.name),
            ("account", job.account.as_deref().unwrap_or_default()),
            ("partition", &job.partition),
            ("state", &job.state),
        ]);
        out.sample(&labels, Some(1.0));
    }
    type Value = fn(&Job) -> Option<f64>;
    let families: [(&str, &str, Value); 7] = [
        ("nodeglass_job_gpus", "GPUs allocated or requested.", |job| job.gpu_count.map(f64::from)),
        ("nodeglass_job_nodes", "Nodes allocated or requested.", |job| Some(f64::from(job.node_count))),
        ("nodeglass_job_submit_timestamp_seconds", "Submit time.", |job| job.submitted_at.map(seconds)),
        ("nodeglass_job_start_timestamp_seconds", "Start time of a running job.", |job| {
            job.started_at.filter(|_| job.is_active).map(seconds)
        }),
        ("nodeglass_job_time_limit_seconds", "Time limit.", |job| job.time_limit_s.map(|s| s as f64)),
        (
            "nodeglass_job_progress_ratio",
            "Progress of the program according to its logs, from 0 to 1; of the current part if the progress bar covers only a part of the run.",
            |job| Some((job.progress.as_ref()?.pct? * 10.0).round() / 1_000.0),
        ),
        (
            "nodeglass_job_expected_end_timestamp_seconds",
            "Latest expected end of the program according to its logs.",
            |job| job.progress.as_ref()?.latest_end_at.map(seconds),
        ),
    ];
    for (name, help, value) in families {
        out.family(name, help, Kind::Gauge);
        active.iter().for_each(|(job, labels)| out.sample(labels, value(job)));
    }
    job_usages(out, &snapshot.nodes, users);
}

/// Usage of each job on each of its nodes.
fn job_usages(out: &mut dyn Sink, nodes: &[Node], users: &HashMap<u32, &str>) {
    let current = nodes.iter().filter(|node| node.connection.is_current());
    let usages: Vec<_> = current
        .flat_map(|node| node.jobs.iter().map(move |usage| (node, usage)))
        .map(|(node, usage)| {
            let user = users.get(&usage.job).copied().unwrap_or_default();
            let labels =
                [("job", usage.job.to_string()), ("user", user.to_owned()), ("node", node.name.clone())];
            let labels = labels.each_ref().map(|(name, value)| (*name, value.as_str()));
            (usage, Labels::new(&labels).taken_at(current_time(node)))
        })
        .collect();
    for field in JobField::ALL {
        family_of(out, *field);
        usages.iter().for_each(|(usage, labels)| {
            out.sample(labels, base_value(*field, usage.readings.value(*field)));
        });
    }
}

fn processes(out: &mut dyn Sink, snapshot: &Snapshot) {
    let current: HashMap<&str, bool> =
        snapshot.nodes.iter().map(|node| (node.name.as_str(), node.connection.is_current())).collect();
    let shown = snapshot.processes.iter().filter(|process| current.get(process.node.as_str()) == Some(&true));
    let all: Vec<(&Process, Labels)> = shown.map(|process| (process, process_labels(process))).collect();
    for field in ProcessField::ALL {
        family_of(out, *field);
        all.iter().for_each(|(process, labels)| {
            out.sample(labels, base_value(*field, process.readings.value(*field)));
        });
    }
}

/// The labels of a GPU. Several jobs share a GPU through shards or MPS; their ids are separated by commas.
fn gpu_labels(gpu: &Gpu, users: &HashMap<u32, &str>) -> Labels {
    let jobs: Vec<String> = gpu.jobs.iter().map(|job| job.job.to_string()).collect();
    let mut names: Vec<&str> = gpu.jobs.iter().filter_map(|job| users.get(&job.job).copied()).collect();
    names.dedup();
    let profile = gpu.mig.as_ref().and_then(|mig| mig.profile.as_deref());
    let index = gpu.index.to_string();
    let (jobs, names) = (jobs.join(","), names.join(","));
    let mut labels = vec![
        ("job", jobs.as_str()),
        ("user", &names),
        ("node", &gpu.node),
        ("gpu", &index),
        ("uuid", &gpu.uuid),
        ("model", gpu.name.as_deref().unwrap_or_default()),
    ];
    labels.extend(profile.map(|profile| ("mig_profile", profile)));
    Labels::new(&labels).taken_at(gpu.sampled_at.filter(|_| gpu.connection.is_current()))
}

/// When the readings of a node were taken, unless it is silent.
fn current_time(node: &Node) -> Option<Timestamp> {
    node.sampled_at.filter(|_| node.connection.is_current())
}

fn process_labels(process: &Process) -> Labels {
    let or_empty = |value: Option<u32>| value.map_or_else(String::new, |value| value.to_string());
    let (job, gpu, pid) = (or_empty(process.job), or_empty(process.gpu_index), process.pid.to_string());
    Labels::new(&[
        ("job", &job),
        ("user", process.user.as_deref().unwrap_or_default()),
        ("node", &process.node),
        ("gpu", &gpu),
        ("uuid", &process.gpu),
        ("pid", &pid),
        ("command", process.command.as_deref().unwrap_or_default()),
    ])
}

/// Starts the family of a metric of the catalogue.
fn family_of<F: Field>(out: &mut dyn Sink, field: F) {
    let metric = field.metric();
    out.family(&metric.prometheus_name(F::ROW_KIND), &metric.prometheus_help(), metric.kind.into());
}

fn base_value<F: Field>(field: F, value: Option<u64>) -> Option<f64> {
    value.map(|value| field.metric().prometheus_value(value))
}

fn seconds(at: Timestamp) -> f64 {
    at.as_millis() as f64 / 1e3
}

#[cfg(test)]
mod tests;

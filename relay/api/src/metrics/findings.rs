//! The findings, as one series by kind and place.

use super::super::{AffectedGpu, Finding, Snapshot};
use super::{Kind, Labels, Sink};
use std::collections::{BTreeMap, HashMap};

/// Maximum number of series of a finding: a finding about a thousand GPUs is described by fewer.
const MAX_SERIES: usize = 64;

/// Active findings: one series for each GPU that they concern, without GPUs for each node, and without nodes for each
/// job. Each label has a single value, so that rules can join and Alertmanager can group by it. Silenced ones have a
/// second series with the same labels: `nodeglass_finding unless nodeglass_finding_silenced`.
pub fn write(out: &mut dyn Sink, snapshot: &Snapshot, users: &HashMap<u32, &str>) {
    let owners: HashMap<&str, Vec<u32>> = snapshot
        .gpus
        .iter()
        .map(|gpu| (gpu.uuid.as_str(), gpu.jobs.iter().map(|job| job.job).collect()))
        .collect();
    let members: HashMap<u32, &[String]> =
        snapshot.jobs.iter().map(|job| (job.id, job.nodes.as_slice())).collect();
    let concerned = Concerned { owners, members };
    // Two findings of a kind may concern the same GPU; it is silenced if both are.
    let mut all: BTreeMap<(&str, &str, Option<u32>, &str, &str), bool> = BTreeMap::new();
    for finding in snapshot.findings.iter().filter(|finding| finding.is_active) {
        let is_silenced = finding.silenced_until.is_some();
        for (job, node, uuid) in concerned.series(finding).into_iter().take(MAX_SERIES) {
            let key = (finding.kind.name(), finding.severity.name(), job, node, uuid);
            all.entry(key).and_modify(|known| *known &= is_silenced).or_insert(is_silenced);
        }
    }
    let labels = |(kind, severity, job, node, uuid): &(&str, &str, Option<u32>, &str, &str)| {
        let user = job.and_then(|job| users.get(&job).copied()).unwrap_or_default();
        let job = job.map_or_else(String::new, |job| job.to_string());
        let labels = [
            ("kind", *kind),
            ("severity", severity),
            ("job", &job),
            ("user", user),
            ("node", node),
            ("uuid", uuid),
        ];
        Labels::new(&labels)
    };
    out.family(
        "nodeglass_finding",
        "An active finding by GPU, node or job; always 1. The API has its text.",
        Kind::Gauge,
    );
    all.keys().for_each(|key| out.sample(&labels(key), Some(1.0)));
    out.family("nodeglass_finding_silenced", "An active finding that is silenced; always 1.", Kind::Gauge);
    let silenced = all.iter().filter(|(_, is_silenced)| **is_silenced);
    silenced.for_each(|(key, _)| out.sample(&labels(key), Some(1.0)));
}

/// The GPUs and nodes of jobs.
struct Concerned<'a> {
    /// The jobs of a GPU.
    owners: HashMap<&'a str, Vec<u32>>,
    /// The nodes of a job.
    members: HashMap<u32, &'a [String]>,
}

impl Concerned<'_> {
    /// Job, node and UUID of each series of a finding.
    fn series<'f>(&self, finding: &'f Finding) -> Vec<(Option<u32>, &'f str, &'f str)> {
        let on_gpu = |job: &u32, uuid: &str| self.owners.get(uuid).is_some_and(|jobs| jobs.contains(job));
        let on_node = |job: &u32, node: &str| {
            self.members.get(job).is_some_and(|nodes| nodes.iter().any(|name| name == node))
        };
        if !finding.gpus.is_empty() {
            let of = |gpu: &'f AffectedGpu| {
                let jobs = jobs_at(finding, |job| on_gpu(job, &gpu.uuid));
                jobs.into_iter().map(|job| (job, gpu.node.as_str(), gpu.uuid.as_str()))
            };
            return finding.gpus.iter().flat_map(of).collect();
        }
        if !finding.nodes.is_empty() {
            let of = |node: &'f String| {
                let jobs = jobs_at(finding, |job| on_node(job, node));
                jobs.into_iter().map(|job| (job, node.as_str(), ""))
            };
            return finding.nodes.iter().flat_map(of).collect();
        }
        jobs_at(finding, |_| true).into_iter().map(|job| (job, "", "")).collect()
    }
}

/// The jobs of a finding at a place; `None` if it is of no job there.
fn jobs_at(finding: &Finding, is_there: impl Fn(&u32) -> bool) -> Vec<Option<u32>> {
    match finding.jobs.as_slice() {
        [] => vec![None],
        [only] => vec![Some(*only)],
        several => {
            let there: Vec<_> = several.iter().copied().filter(|job| is_there(job)).map(Some).collect();
            if there.is_empty() { vec![None] } else { there }
        }
    }
}

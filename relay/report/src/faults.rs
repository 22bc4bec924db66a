//! Faults of nodes and their GPUs across jobs: what was found, how often, since when and for how long.

use nodeglass_protocol::finding::{Finding, FindingKind, FindingSeverity};
use nodeglass_protocol::report::{NodeFault, Report};
use nodeglass_protocol::{GpuUuid, JobId, NodeName};
use nodeglass_rules::run::ms_of;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of faults; further ones are left out.
const MAX_FAULTS: usize = 2_000;

/// Collects the faults of nodes from reports of jobs.
#[derive(Debug, Default)]
pub struct NodeFaults(BTreeMap<(NodeName, Option<u32>, FindingKind), Collected>);

#[derive(Debug)]
struct Collected {
    fault: NodeFault,
    /// Starts of what was counted: several jobs of a node have the same finding.
    starts: BTreeSet<u64>,
    jobs: BTreeSet<JobId>,
}

impl NodeFaults {
    /// Adds what was found during a job.
    pub fn add(&mut self, report: &Report) {
        let is_fault = |finding: &&Finding| finding.kind.is_fault(finding.severity == FindingSeverity::Error);
        for finding in report.findings.iter().filter(is_fault) {
            for node in &finding.nodes {
                let here = finding.gpus.iter().filter(|gpu| gpu.node == *node);
                let index =
                    |uuid: &GpuUuid| report.gpus.iter().find(|gpu| gpu.uuid == *uuid).map(|gpu| gpu.index);
                let indices: BTreeSet<Option<u32>> = here.map(|gpu| index(&gpu.uuid)).collect();
                let indices = if indices.is_empty() { BTreeSet::from([None]) } else { indices };
                for gpu in indices {
                    self.enter(report, finding, node, gpu);
                }
            }
        }
    }

    fn enter(&mut self, report: &Report, finding: &Finding, node: &NodeName, gpu: Option<u32>) {
        let key = (node.clone(), gpu, finding.kind);
        if self.0.len() >= MAX_FAULTS && !self.0.contains_key(&key) {
            return;
        }
        let seen_ms = ms_of(report.at_s);
        let is_event = finding.kind.is_event();
        let last_ms = match finding.ended_ms {
            _ if is_event => finding.since_ms,
            ended_ms => ended_ms.unwrap_or(seen_ms).max(finding.since_ms),
        };
        let collected = self.0.entry(key).or_insert_with(|| Collected {
            fault: NodeFault {
                node: node.clone(),
                gpu,
                kind: finding.kind,
                severity: finding.severity,
                title: finding.title.clone(),
                times: 0,
                jobs: 0,
                first_ms: finding.since_ms,
                last_ms: 0,
                lasted_s: 0,
                is_active: false,
            },
            starts: BTreeSet::new(),
            jobs: BTreeSet::new(),
        });
        collected.jobs.insert(report.job);
        let is_new = collected.starts.insert(finding.since_ms);
        let fault = &mut collected.fault;
        fault.jobs = u32::try_from(collected.jobs.len()).unwrap_or(u32::MAX);
        fault.severity = fault.severity.max(finding.severity);
        fault.first_ms = fault.first_ms.min(finding.since_ms);
        fault.is_active |= finding.is_active() && !is_event && !report.is_final;
        if last_ms > fault.last_ms {
            (fault.last_ms, fault.title) = (last_ms, finding.title.clone());
        }
        if is_new {
            fault.times += 1;
            fault.lasted_s += (last_ms - finding.since_ms) / 1_000;
        }
    }

    /// Returns the faults, the worst first, then the latest; of one node, if it is given.
    pub fn list(self, node: Option<&NodeName>) -> Vec<NodeFault> {
        let faults = self.0.into_values().map(|collected| collected.fault);
        let mut faults: Vec<_> = faults.filter(|fault| node.is_none_or(|node| fault.node == *node)).collect();
        faults.sort_by_key(|fault| (Reverse(fault.severity), Reverse(fault.last_ms)));
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobRecord;
    use crate::totals::{GpuTotals, NodeTotals};
    use nodeglass_protocol::finding::FindingGpu;
    use nodeglass_protocol::job::{Job, JobState};
    use nodeglass_protocol::picture::GpuPicture;

    /// The report of a job on GPU 3 of a node with findings of a kind from and to, in s.
    fn report(job: u32, kind: FindingKind, found: &[(u64, Option<u64>)]) -> Report {
        let node: NodeName = "gpu-h05".parse().unwrap();
        let mut gpu = GpuPicture::default();
        (gpu.facts.index, gpu.facts.uuid) = (3, nodeglass_protocol::GpuUuid::new("GPU-3"));
        let mut record = JobRecord::of(Job::new(JobId(job), "alice".into(), JobState::Running), 9_000);
        record.nodes = vec![NodeTotals::new(node.clone())];
        record.nodes[0].gpus.push(GpuTotals::new(&gpu));
        let finding = |(from_s, to_s): &(u64, Option<u64>)| Finding {
            key: format!("{}/{job}", kind.name()).as_str().into(),
            kind,
            severity: FindingSeverity::Warning,
            confidence_pct: 95,
            jobs: vec![JobId(job)],
            nodes: vec![node.clone()],
            gpus: vec![FindingGpu::new(&node, &gpu.facts.uuid, None)],
            title: format!("{} from {from_s}", kind.name()).as_str().into(),
            reason: "".into(),
            evidence: Vec::new(),
            advice: "".into(),
            since_ms: from_s * 1_000,
            or_earlier: false,
            found_ms: from_s * 1_000,
            ended_ms: to_s.map(|to_s| to_s * 1_000),
            silenced_until_ms: None,
            wasted_gpus: 0,
            capture: None,
            wasted_before: None,
        };
        record.findings = found.iter().map(finding).collect();
        record.report()
    }

    #[test]
    fn a_gpu_that_is_hot_in_several_jobs_is_one_fault_since_the_first() {
        let mut faults = NodeFaults::default();
        faults.add(&report(1, FindingKind::Thermal, &[(100, Some(160)), (300, Some(400))]));
        faults.add(&report(2, FindingKind::Thermal, &[(8_000, None)]));
        // A job that shares the GPU has the same finding.
        faults.add(&report(3, FindingKind::Thermal, &[(8_000, None)]));
        let [fault] = faults.list(None).try_into().unwrap();
        assert_eq!((fault.node.as_str(), fault.gpu, fault.kind), ("gpu-h05", Some(3), FindingKind::Thermal));
        assert_eq!((fault.times, fault.jobs, fault.is_active), (3, 3, true));
        assert_eq!((fault.first_ms, fault.last_ms, fault.lasted_s), (100_000, 9_000_000, 1_160));
        assert_eq!(fault.title.as_str(), "thermal from 8000");
    }

    #[test]
    fn what_a_job_does_is_no_fault_of_its_node() {
        let mut faults = NodeFaults::default();
        faults.add(&report(1, FindingKind::IdleGpus, &[(100, Some(160))]));
        faults.add(&report(1, FindingKind::Xid, &[(100, Some(160))]));
        assert_eq!(faults.list(None), [], "an Xid of a program is a warning");
    }
}

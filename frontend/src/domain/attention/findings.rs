//! Items that the relay finds and the page cannot: they need more history than a page has, or SLURM's facts.

use super::{Cost, Item, Now, Since, Spark, Target, job_name};
use crate::domain::route::{JobTab, Route};
use crate::domain::severity::Severity;
use nodeglass_protocol::finding::{Finding, FindingKind, FindingSeverity};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::{Field as _, GpuField};

/// Keys of items about a lowered clock, which explain a slow GPU themselves.
const LOWERED_CLOCK: [&str; 3] = ["thermal/", "power_brake/", "slowdown/"];

/// Returns the items of active findings of these jobs, as far as the page does not find them itself; `own` are those
/// that it found.
pub fn from_findings(findings: &[Finding], jobs: &[Job], own: &[Item], now: Now) -> Vec<Item> {
    let is_shown = |finding: &&Finding| {
        finding.is_active()
            && is_of_relay(finding.kind)
            && finding.severity > FindingSeverity::Info
            && !(finding.kind == FindingKind::Straggler && explains(own, finding))
    };
    findings.iter().filter(is_shown).filter_map(|finding| item(finding, jobs, now)).collect()
}

/// Whether only the relay finds it.
fn is_of_relay(kind: FindingKind) -> bool {
    matches!(
        kind,
        FindingKind::NoProcess
            | FindingKind::Straggler
            | FindingKind::GpuMemoryForecast
            | FindingKind::JobMemoryForecast
            | FindingKind::HostMemory
            | FindingKind::Swapping
            | FindingKind::DiskFull
            | FindingKind::StuckProcess
            | FindingKind::PendingForever
    )
}

fn explains(own: &[Item], finding: &Finding) -> bool {
    own.iter().any(|item| {
        LOWERED_CLOCK.iter().any(|prefix| item.key.starts_with(prefix))
            && item.nodes.iter().any(|node| finding.nodes.contains(node))
    })
}

/// Returns the item of a finding; `None` if it concerns none of the jobs.
fn item(finding: &Finding, jobs: &[Job], now: Now) -> Option<Item> {
    let affected: Vec<&Job> = jobs.iter().filter(|job| finding.jobs.contains(&job.id)).collect();
    if affected.is_empty() && !jobs.is_empty() {
        return None;
    }
    let severity = match finding.severity {
        FindingSeverity::Error => Severity::Error,
        FindingSeverity::Warning => Severity::Warning,
        FindingSeverity::Info => Severity::Ok,
    };
    let (subject, route) = match (affected.as_slice(), finding.nodes.as_slice()) {
        ([job], [node]) => (job_name(job), Route::Job(job.id, JobTab::Node(node.clone()))),
        ([job], _) => (job_name(job), Route::Job(job.id, JobTab::Nodes)),
        (_, [node, ..]) => (node.to_string(), Route::Node(node.clone())),
        ([job, ..], []) => (job_name(job), Route::Job(job.id, JobTab::Nodes)),
        ([], []) => return None,
    };
    let ids = affected.iter().map(|job| job.id).collect();
    let mut item = Item::new(finding.key.to_string(), severity, ids, subject, route);
    item.title = finding.title.to_string();
    let evidence = finding.evidence.iter().map(ToString::to_string).collect::<Vec<_>>().join(" · ");
    item.detail = if evidence.is_empty() { finding.advice.to_string() } else { evidence };
    item.reason = finding.reason.to_string();
    let at_ms = now.relay_ms_at((finding.since_ms / 1_000).cast_signed());
    item.since = Some(Since { at_ms, or_earlier: finding.or_earlier });
    item.nodes.clone_from(&finding.nodes);
    let wasted = finding.wasted_gpus as usize;
    item.cost = (wasted > 0).then_some(Cost { gpus: wasted, label: "idle" });
    item.impact = wasted;
    if let [gpu] = finding.gpus.as_slice() {
        item.target = Target { gpu: Some(gpu.uuid.clone()), ..item.target };
    }
    item.spark = finding.gpus.first().and_then(|gpu| {
        let name = gpu.metric.as_ref()?;
        let field = GpuField::ALL.iter().find(|field| field.metric().name == name.as_str())?;
        Some(Spark { node: gpu.node.clone(), gpu: gpu.uuid.clone(), field: *field })
    });
    Some(item)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOW, job, node};
    use super::*;
    use nodeglass_protocol::finding::FindingGpu;
    use nodeglass_protocol::{GpuUuid, JobId, NodeName};

    fn straggler() -> Finding {
        let name = NodeName::new("n1").unwrap();
        Finding {
            key: "straggler/1/n1-3".into(),
            kind: FindingKind::Straggler,
            severity: FindingSeverity::Warning,
            confidence_pct: 95,
            jobs: vec![JobId(1)],
            nodes: vec![name.clone()],
            gpus: vec![FindingGpu::new(&name, &GpuUuid::new("n1-3"), Some(GpuField::SmClock))],
            title: "Rank 3 (n1 GPU 3) runs 21 % slower than its peers".into(),
            reason: "GPU 3 slower than its peers".into(),
            evidence: vec!["SM clock 1,380 MHz, median of the job 1,755 MHz".into()],
            advice: "Exclude the node".into(),
            since_ms: (NOW.wall_s - 60).unsigned_abs() * 1_000,
            or_earlier: false,
            found_ms: NOW.wall_s.unsigned_abs() * 1_000,
            ended_ms: None,
            wasted_gpus: 0,
        }
    }

    #[test]
    fn a_finding_of_the_relay_is_listed_with_its_gpu_and_graph() {
        let items = from_findings(&[straggler()], &[job(1, "n1")], &[], NOW);
        let [item] = items.as_slice() else { panic!("{items:?}") };
        assert_eq!((item.severity, item.since.unwrap().at_ms), (Severity::Warning, NOW.relay_ms - 60_000));
        assert_eq!(item.target.gpu, Some(GpuUuid::new("n1-3")));
        assert_eq!(item.spark.as_ref().map(|spark| spark.field), Some(GpuField::SmClock));
        assert!(item.detail.starts_with("SM clock 1,380 MHz"));
    }

    #[test]
    fn what_is_over_known_or_of_other_jobs_is_not_listed() {
        let list =
            |finding: Finding, own: &[Item]| from_findings(&[finding], &[job(1, "n1")], own, NOW).len();
        assert_eq!(list(Finding { ended_ms: Some(1), ..straggler() }, &[]), 0);
        assert_eq!(list(Finding { jobs: vec![JobId(2)], ..straggler() }, &[]), 0);
        assert_eq!(list(Finding { kind: FindingKind::Thermal, ..straggler() }, &[]), 0, "the page finds it");
        let mut hot = node("n1", &[1]);
        hot.gpus[0].row.set(GpuField::Throttle, nodeglass_protocol::Cell::steps(0x40));
        let own = super::super::items(&[job(1, "n1")], &[hot], NOW);
        assert_eq!(list(straggler(), &own), 0, "heat explains it");
    }
}

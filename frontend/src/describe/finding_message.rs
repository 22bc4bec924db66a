//! A finding as a message to a colleague or an administrator, who may not see the page.

use crate::domain::attention::Item;
use crate::domain::severity::Severity;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::finding::FindingKind;
use nodeglass_protocol::job::Job;

/// Most UUIDs that a message lists.
const MAX_UUIDS: usize = 8;

/// Returns whether a finding blames the hardware of its GPUs, which the support of a cluster identifies by UUID.
fn is_fault(item: &Item) -> bool {
    item.kind.is_fault(item.severity == Severity::Error)
}

/// Returns what, where, since when, the evidence, the advice and the link, one line each. `job` is the only job that it affects, `when`
/// and `cost` as the list has them.
pub fn message(item: &Item, job: Option<&Job>, when: &str, cost: Option<&str>, link: &str) -> String {
    let whose = match job {
        Some(job) => format!("Job {} ({}, user {})", job.label, item.subject, job.user),
        None => item.subject.clone(),
    };
    let nodes: Vec<&str> = item.nodes.iter().map(NodeName::as_str).collect();
    let faulty = if is_fault(item) { item.gpus.as_slice() } else { &[] };
    let uuids: Vec<&str> = faulty.iter().take(MAX_UUIDS).map(|uuid| uuid.as_str()).collect();
    let more = faulty.len() - uuids.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let mut lines = vec![format!("{whose}: {}", item.title)];
    let mut add = |label: &str, text: String| {
        if !text.is_empty() {
            lines.push(format!("{label}: {text}"));
        }
    };
    add("Nodes", nodes.join(", "));
    add("GPUs", format!("{}{more}", uuids.join(", ")));
    add("When", when.to_owned());
    add("Evidence", item.evidence.clone());
    add("Ranks", item.positions.join("; "));
    add("Cost", cost.unwrap_or_default().to_owned());
    add("Advice", item.advice.clone());
    add("Page", link.to_owned());
    lines.join("\n")
}

/// Returns the nodes whose hardware a finding blames, so that a new start of the job should avoid them.
pub fn blamed_nodes(item: &Item) -> &[NodeName] {
    let is_hardware = is_fault(item) || item.kind == FindingKind::DiskFull;
    if is_hardware { &item.nodes } else { &[] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::attention::all;
    use crate::domain::attention::tests::{finding, job, picture};
    use nodeglass_protocol::finding::{Finding, FindingSeverity};

    fn item(found: Finding) -> (Item, Job) {
        let job = Job { name: "train".into(), user: "alice".into(), ..job(17, "n1") };
        let mut items = all(std::slice::from_ref(&job), &picture(vec![found]));
        (items.remove(0), job)
    }

    #[test]
    fn a_message_states_what_where_since_when_with_evidence_and_link() {
        let found = finding(FindingKind::Thermal, 17, "n1");
        let (item, job) = item(Finding { evidence: vec!["87 °C".into()], ..found.clone() });
        let text =
            message(&item, Some(&job), "27 Nov, since 14:02", Some("1.6 GPU-h lost"), "http://relay/job/17");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("Job 17 (train, user alice): {}", found.title));
        assert!(lines.contains(&"Nodes: n1") && lines.contains(&"When: 27 Nov, since 14:02"), "{text}");
        assert!(lines.contains(&"Evidence: 87 °C") && lines.contains(&"Cost: 1.6 GPU-h lost"), "{text}");
        assert_eq!(lines.last(), Some(&"Page: http://relay/job/17"));
        assert!(!text.contains(": \n") && !text.ends_with(": "), "no empty line: {text}");
    }

    #[test]
    fn a_message_names_the_uuids_of_faulty_gpus_only() {
        let text = |kind| {
            let (item, job) = item(finding(kind, 17, "n1"));
            message(&item, Some(&job), "now", None, "")
        };
        assert!(text(FindingKind::Thermal).contains("GPUs: n1-0"), "{}", text(FindingKind::Thermal));
        assert!(
            !text(FindingKind::CollectiveHang).contains("GPUs:"),
            "{}",
            text(FindingKind::CollectiveHang)
        );
    }

    #[test]
    fn a_node_is_avoided_only_if_its_hardware_is_to_blame() {
        let blamed = |kind, severity| {
            let (item, _) = item(Finding { severity, ..finding(kind, 17, "n1") });
            blamed_nodes(&item).len()
        };
        assert_eq!(blamed(FindingKind::Thermal, FindingSeverity::Warning), 1);
        assert_eq!(blamed(FindingKind::IdleGpus, FindingSeverity::Error), 0);
        let xid = |severity| blamed(FindingKind::Xid, severity);
        assert_eq!((xid(FindingSeverity::Warning), xid(FindingSeverity::Error)), (0, 1));
    }
}

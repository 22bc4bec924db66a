//! The cluster by SLURM's facts, in words: nodes by state, free GPUs, nodes that accept no jobs.

use crate::domain::text;
use nodeglass_protocol::cluster::{ClusterSummary, GpuCounts, NodeCounts, UnavailableNode};

/// Nodes by state, without states that no node has: `3 idle · 1 drained`; a line breaks only between states.
pub fn nodes_text(nodes: &NodeCounts) -> String {
    let states = [
        (nodes.idle, "idle"),
        (nodes.mixed, "mixed"),
        (nodes.allocated, "allocated"),
        (nodes.drained, "drained"),
        (nodes.down, "down"),
        (nodes.other, "other"),
    ];
    let some = states.iter().filter(|(count, _)| *count > 0);
    let texts: Vec<_> =
        some.map(|(count, state)| format!("{}\u{a0}{state}", text::grouped(u64::from(*count)))).collect();
    texts.join(" · ")
}

/// Free GPUs of a type, of how many: `5 of 16 free`.
pub fn free_text(gpus: &GpuCounts) -> String {
    let count = |count: u32| text::grouped(u64::from(count));
    let free = gpus.free().map_or_else(|| "?".to_owned(), count);
    format!("{free} of {} free", count(gpus.total))
}

/// Returns the state of the other GPUs: `4 allocated, 7 on nodes that accept no jobs`.
pub fn taken_text(gpus: &GpuCounts) -> String {
    match (gpus.allocated, gpus.unavailable) {
        (Some(allocated), Some(0)) => format!("{allocated} allocated"),
        (Some(allocated), Some(unavailable)) => {
            format!("{allocated} allocated, {unavailable} on nodes that accept no jobs")
        }
        _ => "SLURM does not state how many are allocated".to_owned(),
    }
}

/// Fraction of a type's GPUs that is free, if known.
pub fn free_share(gpus: &GpuCounts) -> Option<f64> {
    gpus.free().filter(|_| gpus.total > 0).map(|free| f64::from(free) / f64::from(gpus.total))
}

/// State of a node, why, and for how long: `idle+drain · Xid 79 · 2 d 6 h`.
pub fn unavailable_text(node: &UnavailableNode, wall_s: i64) -> String {
    let since = node.since.and_then(|since| u64::try_from(wall_s.saturating_sub(since)).ok());
    let reason = node.reason.as_ref().map(ToString::to_string);
    [Some(node.state.to_string()), reason, since.map(text::span)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" · ")
}

/// Number of nodes that accept no jobs, listed or not: `3 nodes accept no jobs`.
pub fn unavailable_count(summary: &ClusterSummary) -> Option<String> {
    let count = summary.unavailable.len() + summary.unavailable_omitted as usize;
    (count > 0).then(|| text::count(count, "node accepts no jobs", "nodes accept no jobs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_counted_by_the_states_that_occur() {
        let nodes = NodeCounts { idle: 1_200, drained: 2, ..NodeCounts::default() };
        assert_eq!(nodes_text(&nodes), format!("{}\u{a0}idle · 2\u{a0}drained", text::grouped(1_200)));
    }

    #[test]
    fn an_unknown_number_of_free_gpus_is_no_zero() {
        let known = GpuCounts { kind: None, total: 16, allocated: Some(4), unavailable: Some(7) };
        assert_eq!(free_text(&known), "5 of 16 free");
        assert_eq!(taken_text(&known), "4 allocated, 7 on nodes that accept no jobs");
        let unknown = GpuCounts { allocated: None, ..known };
        assert_eq!((free_text(&unknown).as_str(), free_share(&unknown)), ("? of 16 free", None));
    }

    #[test]
    fn a_node_is_described_by_what_slurm_states() {
        let node = UnavailableNode {
            name: "g03".into(),
            state: "idle+drain".into(),
            reason: Some("Xid 79".into()),
            since: Some(1_000),
        };
        assert_eq!(unavailable_text(&node, 4_600), "idle+drain · Xid 79 · 1 h");
        let bare = UnavailableNode { reason: None, since: None, ..node };
        assert_eq!(unavailable_text(&bare, 4_600), "idle+drain");
        let summary =
            ClusterSummary { unavailable: vec![bare], unavailable_omitted: 2, ..ClusterSummary::default() };
        assert_eq!(unavailable_count(&summary).as_deref(), Some("3 nodes accept no jobs"));
    }
}

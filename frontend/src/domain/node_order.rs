//! Order of the nodes of a large job: nodes that need attention first.

use crate::domain::severity::Severity;
use crate::domain::sorting;
use nodeglass_protocol::NodeName;
use std::cmp::Reverse;

/// Maximum number of nodes of a job with a tab each.
const MAX_TABS: usize = 12;
/// Maximum number of nodes with a tab because they need attention, if there are more nodes.
const MAX_PROBLEMS: usize = 6;

/// Widths of the line of tabs, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TabRoom {
    /// The rest for nodes.
    pub for_nodes: f64,
    /// The tab of a node.
    pub tab: f64,
    /// The button that opens the list of all nodes.
    pub picker: f64,
}

impl TabRoom {
    /// Returns how many of `count` nodes have a tab. If not all have one, the others are found in the list.
    pub fn tabs(self, count: usize) -> usize {
        let fit = |room: f64| (room.max(0.0) / self.tab.max(1.0)) as usize;
        match count <= fit(self.for_nodes).min(MAX_TABS) {
            true => count,
            false => fit(self.for_nodes - self.picker).min(count.saturating_sub(1)),
        }
    }
}

/// The need for attention of a node: its severity, and its place in the attention list.
pub type TabRank = (Severity, usize);

/// Returns the nodes that have one of `most` tabs where not all have one: the most severe ones, and the current one, in
/// SLURM's order.
pub fn tabs(
    names: &[NodeName],
    rank: impl Fn(&NodeName) -> TabRank,
    current: Option<&NodeName>,
    most: usize,
) -> Vec<NodeName> {
    let most = most.saturating_sub(usize::from(current.is_some())).min(MAX_PROBLEMS);
    let ranks = names.iter().map(rank).enumerate();
    let mut problems: Vec<(usize, TabRank)> =
        ranks.filter(|(_, (severity, _))| severity.needs_attention()).collect();
    sorting::sort_by_key(&mut problems, |(_, (severity, place))| (Reverse(*severity), *place));
    problems.truncate(most);
    let is_shown = |at: &usize| problems.iter().any(|(shown, _)| shown == at) || current == Some(&names[*at]);
    (0..names.len()).filter(is_shown).map(|at| names[at].clone()).collect()
}

/// A node in the list: its name, severity, and state.
pub type ListedNode = (NodeName, Severity, String);

/// Returns the nodes whose name or state contains every word of `typed`: the most severe first, equal ones in
/// SLURM's order.
pub fn matching(nodes: &[ListedNode], typed: &str) -> Vec<ListedNode> {
    let typed = typed.to_lowercase();
    let matches = |(name, _, label): &&ListedNode| {
        let text = format!("{name} {label}").to_lowercase();
        typed.split_whitespace().all(|word| text.contains(word))
    };
    let found: Vec<&ListedNode> = nodes.iter().filter(matches).collect();
    let of = |wanted: fn(Severity) -> bool| found.iter().filter(move |node| wanted(node.1));
    // An item that only waits is not a problem.
    let errors = of(|severity| severity == Severity::Error);
    let warnings = of(|severity| severity == Severity::Warning);
    let others = of(|severity| severity < Severity::Warning);
    errors.chain(warnings).chain(others).map(|node| (*node).clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<NodeName> {
        (1..=64).map(|number| NodeName::new(format!("gpu-{number:03}")).unwrap()).collect()
    }

    fn severity(name: &NodeName) -> Severity {
        match name.as_str() {
            "gpu-017" => Severity::Warning,
            "gpu-040" => Severity::Error,
            "gpu-002" => Severity::Pending,
            _ => Severity::Ok,
        }
    }

    fn rank(name: &NodeName) -> TabRank {
        (severity(name), 0)
    }

    fn texts(names: Vec<NodeName>) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn nodes_with_problems_and_the_current_one_have_a_tab() {
        let current = NodeName::new("gpu-030").unwrap();
        assert_eq!(texts(tabs(&names(), rank, Some(&current), 9)), ["gpu-017", "gpu-030", "gpu-040"]);
        assert_eq!(texts(tabs(&names(), rank, None, 9)), ["gpu-017", "gpu-040"]);
    }

    #[test]
    fn of_many_problems_the_worst_have_a_tab() {
        let all = |name: &NodeName| (severity(name).max(Severity::Warning), 0);
        let shown = texts(tabs(&names(), all, None, 9));
        assert_eq!(shown, ["gpu-001", "gpu-002", "gpu-003", "gpu-004", "gpu-005", "gpu-040"]);
    }

    #[test]
    fn as_many_nodes_have_a_tab_as_there_is_room_for() {
        let current = NodeName::new("gpu-030").unwrap();
        assert_eq!(texts(tabs(&names(), rank, Some(&current), 2)), ["gpu-030", "gpu-040"]);
        let later =
            |name: &NodeName| (Severity::Warning, 64 - names().iter().position(|one| one == name).unwrap());
        assert_eq!(
            texts(tabs(&names(), later, None, 2)),
            ["gpu-063", "gpu-064"],
            "as the list of problems has them"
        );
        let tabs = |for_nodes, count| TabRoom { for_nodes, tab: 90.0, picker: 120.0 }.tabs(count);
        assert_eq!([tabs(720.0, 8), tabs(719.0, 8)], [8, 6], "the list needs room, too");
        assert_eq!([tabs(2_000.0, 12), tabs(2_000.0, 13)], [12, 12]);
        assert_eq!([tabs(0.0, 0), tabs(60.0, 1), tabs(-5.0, 64)], [0, 0, 0]);
    }

    #[test]
    fn the_list_starts_with_problems_and_is_searched_by_name_and_state() {
        let label = |name: &NodeName| if severity(name) == Severity::Error { "down" } else { "live" };
        let nodes: Vec<_> = names()
            .into_iter()
            .map(|name| (name.clone(), severity(&name), label(&name).to_owned()))
            .collect();
        let found = |typed| -> Vec<String> {
            matching(&nodes, typed).into_iter().map(|node| node.0.to_string()).collect()
        };
        assert_eq!(found("")[..3], ["gpu-040", "gpu-017", "gpu-001"]);
        assert_eq!(found("02 GPU")[..2], ["gpu-002", "gpu-020"]);
        assert_eq!(found("down"), ["gpu-040"]);
        assert!(found("nothing").is_empty());
    }
}

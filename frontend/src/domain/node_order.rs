//! Which nodes of a large job come first: those that need attention.

use crate::domain::severity::Severity;
use nodeglass_protocol::NodeName;

/// Up to this many nodes of a job have a tab each.
pub const MOST_TABS: usize = 12;
/// Of more nodes, up to this many have a tab because they need attention.
const MOST_PROBLEMS: usize = 6;

/// Returns the nodes of a large job that have a tab: the most severe ones, and the current one, in SLURM's order.
pub fn tabs(
    names: &[NodeName],
    severity: impl Fn(&NodeName) -> Severity,
    current: Option<&NodeName>,
) -> Vec<NodeName> {
    let severities: Vec<Severity> = names.iter().map(severity).collect();
    let of =
        |wanted: Severity| severities.iter().enumerate().filter(move |(_, severity)| **severity == wanted);
    let worst_first = of(Severity::Error).chain(of(Severity::Warning));
    let problems: Vec<usize> = worst_first.map(|(at, _)| at).take(MOST_PROBLEMS).collect();
    let is_shown = |at: &usize| problems.contains(at) || current == Some(&names[*at]);
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
    // What is only waiting is no problem.
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

    fn texts(names: Vec<NodeName>) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn nodes_with_problems_and_the_current_one_have_a_tab() {
        let current = NodeName::new("gpu-030").unwrap();
        assert_eq!(texts(tabs(&names(), severity, Some(&current))), ["gpu-017", "gpu-030", "gpu-040"]);
        assert_eq!(texts(tabs(&names(), severity, None)), ["gpu-017", "gpu-040"]);
    }

    #[test]
    fn of_many_problems_the_worst_have_a_tab() {
        let all = |name: &NodeName| severity(name).max(Severity::Warning);
        let shown = texts(tabs(&names(), all, None));
        assert_eq!(shown, ["gpu-001", "gpu-002", "gpu-003", "gpu-004", "gpu-005", "gpu-040"]);
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

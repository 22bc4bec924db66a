//! Checks that are advised when nodes cannot be reached: of one node, and rewritten for all nodes of an entry.

use crate::text::some_of;
use nodeglass_protocol::NodeName;

/// Maximum number of nodes that a command names.
const MAX_IN_COMMAND: usize = 32;

/// The first check. [`NodeCheck::text`] is the beginning of the advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeCheck {
    /// The state of a node of a job in SLURM.
    SlurmState,
    /// The name of a node of a job.
    Name,
    /// A name in a list of machines.
    Spelling,
    /// The machine of a list itself.
    Power,
    /// The SSH server. The port follows.
    Sshd,
}

impl NodeCheck {
    const ALL: [Self; 5] = [Self::SlurmState, Self::Name, Self::Spelling, Self::Power, Self::Sshd];

    /// Returns the check of these nodes.
    pub fn text(self, nodes: &[&NodeName]) -> String {
        let listed = some_of(nodes.iter().map(ToString::to_string), nodes.len());
        let in_command = |between: &str| {
            let names: Vec<_> = nodes.iter().take(MAX_IN_COMMAND).map(|name| name.as_str()).collect();
            names.join(between)
        };
        let number = |one: &'static str, several: &'static str| if nodes.len() == 1 { one } else { several };
        match self {
            Self::SlurmState => {
                let nodes = number("node is", "nodes are");
                format!("Check whether the {nodes} up (sinfo -R -n {})", in_command(","))
            }
            Self::Name => {
                let names = number("name", "names");
                format!(
                    "Check whether the relay's machine knows the {names} (getent hosts {})",
                    in_command(" ")
                )
            }
            Self::Spelling => {
                format!("Check the spelling of {listed} in the list of machines (--hosts, --host)")
            }
            Self::Power => {
                let (are, them) = (number("is", "are"), number("it", "them"));
                format!("Check whether {listed} {are} switched on, and whether the network reaches {them}")
            }
            Self::Sshd => format!("Check whether sshd runs on {listed}"),
        }
    }
}

/// Returns advice about the first of several nodes as advice about all of them.
pub fn advice_on_nodes(advice: &str, nodes: &[&NodeName]) -> String {
    let [first, _, ..] = nodes else { return advice.to_owned() };
    let rewritten = NodeCheck::ALL.iter().find_map(|check| {
        let rest = advice.strip_prefix(check.text(&[first]).as_str())?;
        Some(check.text(nodes) + rest)
    });
    rewritten.unwrap_or_else(|| advice.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_of_one_node_becomes_that_of_all() {
        let names: Vec<_> = (1..=6).map(|at| NodeName::new(format!("n{at}")).unwrap()).collect();
        let nodes: Vec<_> = names.iter().collect();
        let rewritten = NodeCheck::ALL
            .map(|check| advice_on_nodes(&(check.text(&nodes[..1]) + " at port 22; retry"), &nodes));
        assert_eq!(
            rewritten,
            [
                "Check whether the nodes are up (sinfo -R -n n1,n2,n3,n4,n5,n6) at port 22; retry",
                "Check whether the relay's machine knows the names (getent hosts n1 n2 n3 n4 n5 n6) at port 22; retry",
                "Check the spelling of n1, n2, n3, n4 and 2 more in the list of machines (--hosts, --host) at port 22; retry",
                "Check whether n1, n2, n3, n4 and 2 more are switched on, and whether the network reaches them at port 22; retry",
                "Check whether sshd runs on n1, n2, n3, n4 and 2 more at port 22; retry",
            ]
        );
        let other = "Report it to the administrators of n1";
        assert_eq!(
            (advice_on_nodes(other, &nodes).as_str(), advice_on_nodes(other, &[]).as_str()),
            (other, other)
        );
    }
}

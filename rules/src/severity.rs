//! Severity: how good or bad a state, a flag or a log line is, and how it looks everywhere on the page.

use nodeglass_protocol::finding::FindingSeverity;

/// A severity, best first.
///
/// Each has one symbol and one colour, so that the same problem looks the same in every table, tab, sheet and
/// chart. The symbol and a label carry the meaning; colour never does so alone.
///
/// | severity | symbol | colour | used for |
/// |---|---|---|---|
/// | [`Ok`](Self::Ok) | ● | green | live nodes, running jobs; remarks such as a power cap |
/// | [`Ended`](Self::Ended) | – | grey | jobs and nodes that ended as they should |
/// | [`Pending`](Self::Pending) | ○ | grey | pending jobs; nodes and jobs without current data |
/// | [`Warning`](Self::Warning) | ◆ | amber | work goes on, but slower or at risk: thermal slowdown, power brake, memory errors before the job, a pending remap, a link that is down or narrow, idle GPUs, an Xid of the program, a job that reached its time limit |
/// | [`Error`](Self::Error) | ▲ | red | work stands still or results may be wrong: uncorrected ECC errors during a job, a lost GPU, a hanging driver, a node that does not respond, a hung job, a failed job |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// ● normal.
    Ok,
    /// – ended.
    Ended,
    /// ○ nothing current is known.
    Pending,
    /// ◆ worth attention.
    Warning,
    /// ▲ someone should act.
    Error,
}

impl From<FindingSeverity> for Severity {
    fn from(severity: FindingSeverity) -> Self {
        match severity {
            FindingSeverity::Error => Self::Error,
            FindingSeverity::Warning => Self::Warning,
            FindingSeverity::Info => Self::Ok,
        }
    }
}

impl From<Severity> for FindingSeverity {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Error => Self::Error,
            Severity::Warning => Self::Warning,
            Severity::Ok | Severity::Ended | Severity::Pending => Self::Info,
        }
    }
}

impl Severity {
    /// Returns whether it belongs in the list of what needs attention.
    pub fn needs_attention(self) -> bool {
        self >= Self::Warning
    }

    /// Returns its symbol for text that cannot hold an element, such as a title; empty if it is normal.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Ok => "",
            Self::Ended => "–",
            Self::Pending => "○",
            Self::Warning => "◆",
            Self::Error => "▲",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_severity_has_its_own_symbol() {
        let all = [Severity::Ok, Severity::Ended, Severity::Pending, Severity::Warning, Severity::Error];
        assert!(all.is_sorted());
        let distinct = all.map(Severity::symbol).into_iter().collect::<std::collections::BTreeSet<_>>();
        assert_eq!(distinct.len(), all.len());
    }
}

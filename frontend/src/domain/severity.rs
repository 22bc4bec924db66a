//! Severity: how good or bad a state, a flag or a log line is.

/// A severity, best first. Each has a symbol of its own, so that colour is never the only carrier of meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// ● normal.
    Ok,
    /// – ended.
    Ended,
    /// ○ nothing known yet.
    Pending,
    /// ◆ worth attention.
    Warning,
    /// ▲ someone should act.
    Error,
}

impl Severity {
    /// Returns the CSS class of its symbol.
    pub fn class(self) -> &'static str {
        match self {
            Self::Ok => "dot dot--well",
            Self::Ended => "dot dot--ended",
            Self::Pending => "dot dot--waiting",
            Self::Warning => "dot dot--attention",
            Self::Error => "dot dot--bad",
        }
    }
}

//! Findings as sentences: since when, and what a graph says of one.

use crate::domain::attention::{Item, Since};
use crate::domain::severity::Severity;
use crate::platform;

/// Returns when something began, or from when to when it lasted: `since 14:02`, `since before 14:02`, `14:02 – 14:20`.
pub fn when(item: &Item) -> String {
    let at = |at_ms: u64| platform::time_of_day((at_ms / 1_000).cast_signed());
    when_at(item, at)
}

fn when_at(item: &Item, at: impl Fn(u64) -> String) -> String {
    let Since { at_ms, or_earlier } = item.since;
    let since = at(at_ms);
    match item.ended_ms {
        Some(ended_ms) => format!("{since} – {}", at(ended_ms)),
        None if item.kind.is_event() => format!("at {since}"),
        None if or_earlier => format!("since before {since}"),
        None => format!("since {since}"),
    }
}

/// Returns until when something is silenced, in ms since 1970: `until 14:30`.
pub fn silenced_until(until_ms: u64) -> String {
    format!("until {}", platform::time_of_day((until_ms / 1_000).cast_signed()))
}

/// Returns what a graph says of a finding: `▲ GPU 3 too hot, since 14:02`.
pub fn in_graph(item: &Item) -> String {
    in_graph_at(item, &when(item))
}

fn in_graph_at(item: &Item, when: &str) -> String {
    let reason = &item.reason;
    match (item.ended_ms, item.severity) {
        (Some(_), _) => format!("– {reason}, {when}, resolved"),
        (None, Severity::Error) => format!("▲ {reason}, {when}"),
        (None, _) => format!("◆ {reason}, {when}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::attention::all;
    use crate::domain::attention::tests::{finding, job, picture};
    use nodeglass_protocol::finding::{Finding, FindingKind};

    #[test]
    fn a_finding_is_named_with_its_time_and_one_that_is_over_is_resolved() {
        let items = all(&[job(1, "n1")], &picture(vec![finding(FindingKind::Thermal, 1, "n1")]));
        let said = |item: &Item| in_graph_at(item, &when_at(item, |at_ms| format!("{}", at_ms / 1_000)));
        assert_eq!(said(&items[0]), "◆ thermal reason, since 999940");
        let over = Item { ended_ms: Some(1_000_000_000), ..items[0].clone() };
        assert_eq!(said(&over), "– thermal reason, 999940 – 1000000, resolved");
        let error = Item { severity: Severity::Error, ..items[0].clone() };
        assert!(said(&error).starts_with('▲'));
        let Finding { since_ms, .. } = finding(FindingKind::Thermal, 1, "n1");
        let earlier = Item { since: Since { at_ms: since_ms, or_earlier: true }, ..items[0].clone() };
        assert!(said(&earlier).ends_with("since before 999940"));
    }
}

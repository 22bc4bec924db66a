//! Findings as sentences: since when, what a graph says of one, and what a silence covers.

use crate::domain::attention::{Item, Since};
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::platform;
use nodeglass_protocol::JobId;
use nodeglass_protocol::finding::{FindingKind, SilenceRequest};
use nodeglass_rules::attention::Folded;

/// Returns when something began, or from when to when it lasted: `since 14:02`, `since 14:02 or earlier`,
/// `14:02 – 14:20`.
pub fn when(item: &Item) -> String {
    let at = |at_ms: u64| platform::format_time_or_date((at_ms / 1_000).cast_signed());
    when_at(item, at)
}

fn when_at(item: &Item, at: impl Fn(u64) -> String) -> String {
    let Since { at_ms, or_earlier } = item.since;
    let since = at(at_ms);
    match item.ended_ms {
        Some(ended_ms) => format!("{since} – {}", at(ended_ms)),
        None => began_at(item.kind, &since, or_earlier, false),
    }
}

/// Returns when a finding began: `at 14:02` of an event, `since 14:02` of one that goes on, `from 14:02`, each perhaps
/// `or earlier`.
pub fn began(entry: &Folded<'_>) -> String {
    let Since { at_ms, or_earlier } = entry.since();
    let since = platform::format_time_or_date((at_ms / 1_000).cast_signed());
    began_at(entry.finding.kind, &since, or_earlier, entry.ended_ms().is_some())
}

fn began_at(kind: FindingKind, since: &str, or_earlier: bool, has_ended: bool) -> String {
    let from = if has_ended { "from" } else { "since" };
    match (kind.is_event(), or_earlier) {
        (true, _) => format!("at {since}"),
        (false, true) => format!("{from} {since} or earlier"),
        (false, false) => format!("{from} {since}"),
    }
}

/// Returns how long a finding lasted: `12 min`, `until now`; an event has no duration.
pub fn lasted(entry: &Folded<'_>) -> String {
    match entry.ended_ms() {
        _ if entry.finding.kind.is_event() => "–".to_owned(),
        Some(ended_ms) => text::span(ended_ms.saturating_sub(entry.since().at_ms) / 1_000),
        None => "until now".to_owned(),
    }
}

/// Returns until when something is silenced, in ms since 1970: `until 14:30`.
pub fn silenced_until(until_ms: u64) -> String {
    format!("until {}", platform::format_time_or_date((until_ms / 1_000).cast_signed()))
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

/// Returns what a silence of an item covers: `“GPU too hot” of llama3-8b-pretrain`, `“disk full” of all jobs`.
pub fn silence_scope(item: &Item) -> String {
    let mut kinds: Vec<&str> = item.sources.iter().map(|source| source.kind.label()).collect();
    kinds.dedup();
    let kinds: Vec<String> = kinds.into_iter().map(|kind| format!("“{kind}”")).collect();
    format!("{} of {}", kinds.join(" and "), silenced_jobs(item, item.only_job()))
}

/// Returns what a request silences or shows again: `“GPU too hot” of all jobs`, `every finding of job 17`.
pub fn request_scope(item: &Item, request: &SilenceRequest) -> String {
    let kind = request.kind.map_or_else(|| "every finding".to_owned(), |kind| format!("“{}”", kind.label()));
    format!("{kind} of {}", silenced_jobs(item, request.job))
}

/// Returns the name of a job if it is the item's job, or its number; or all jobs.
fn silenced_jobs(item: &Item, job: Option<JobId>) -> String {
    match job {
        None => "all jobs".to_owned(),
        Some(job) if item.jobs == [job] => item.subject.clone(),
        Some(job) => format!("job {job}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::attention::all;
    use crate::domain::attention::tests::{finding, job, picture};
    use nodeglass_protocol::finding::Finding;

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
        assert!(said(&earlier).ends_with("since 999940 or earlier"));
    }

    #[test]
    fn an_event_has_a_time_and_no_duration() {
        let event = Finding { or_earlier: true, ..finding(FindingKind::Xid, 1, "n1") };
        assert_eq!(
            (began_at(event.kind, "14:02", true, true).as_str(), lasted(&Folded::alone(&event)).as_str()),
            ("at 14:02", "–")
        );
        let hot = finding(FindingKind::Thermal, 1, "n1");
        assert_eq!(lasted(&Folded::alone(&hot)), "until now");
        let over = Finding { ended_ms: Some(hot.since_ms + 720_000), ..hot };
        assert_eq!(lasted(&Folded::alone(&over)), "12 min");
    }

    #[test]
    fn a_silence_names_the_kinds_and_the_jobs_that_it_covers() {
        let found = |jobs: Vec<JobId>| {
            let of = |kind| Finding { jobs: jobs.clone(), ..finding(kind, 1, "n1") };
            let found = picture(vec![of(FindingKind::Straggler), of(FindingKind::Thermal)]);
            all(&[job(1, "n1"), job(2, "n1")], &found).remove(0)
        };
        let one = found(vec![JobId(1)]);
        assert_eq!(silence_scope(&one), "“GPU slower than its peers” and “GPU too hot” of job-1");
        let several = found(vec![JobId(1), JobId(2)]);
        assert!(silence_scope(&several).ends_with("of all jobs"), "{}", silence_scope(&several));
        let request = |kind, job| SilenceRequest { kind, job, for_s: 0 };
        assert_eq!(
            request_scope(&one, &request(Some(FindingKind::Thermal), None)),
            "“GPU too hot” of all jobs"
        );
        assert_eq!(request_scope(&one, &request(None, Some(JobId(7)))), "every finding of job 7");
    }
}

//! The audit log as rows of text, and which of them a filter shows.

use crate::domain::text;
use nodeglass_protocol::audit::{AuditRecord, View, ViewClient, ViewEnd, ViewerIdentity};
use nodeglass_protocol::request::AuditEntry;
use nodeglass_protocol::share::ShareId;

/// The kind of the shown records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordKind {
    /// Both.
    #[default]
    All,
    /// Views of guests.
    Views,
    /// Actions.
    Actions,
}

impl RecordKind {
    /// All, in the order in which they are offered.
    pub const ALL: [Self; 3] = [Self::All, Self::Views, Self::Actions];

    /// Its name in the address.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Views => "views",
            Self::Actions => "actions",
        }
    }

    /// Its label.
    pub fn label(self) -> &'static str {
        match self {
            Self::All => "Views and actions",
            Self::Views => "Views",
            Self::Actions => "Actions",
        }
    }

    /// Returns the kind with this name in the address.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Filter of records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Their kind.
    pub kind: RecordKind,
    /// The share that was used; actions are then left out.
    pub share: Option<String>,
}

impl AuditFilter {
    /// Returns whether a record is shown.
    pub fn shows(&self, record: &AuditRecord) -> bool {
        match record {
            AuditRecord::View(view) => {
                let is_of_share = self.share.as_ref().is_none_or(|share| view.share.as_str() == share);
                self.kind != RecordKind::Actions && is_of_share
            }
            AuditRecord::Action(_) => self.kind != RecordKind::Views && self.share.is_none(),
        }
    }
}

/// A record as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// When it began, in s since 1970.
    pub at_s: i64,
    /// `View` or `Action`.
    pub kind: &'static str,
    /// The viewed scope or the action.
    pub what: String,
    /// The viewer; an action is always the owner's.
    pub who: String,
    /// The share that was used, by its label if it has one.
    pub share: String,
    /// Duration of a view, or outcome of an action.
    pub result: String,
    /// Whether it is something to look at: an action that failed.
    pub is_failure: bool,
}

/// Views of one guest with less time between them are one visit: a page that is loaded again begins a new view.
const VISIT_GAP_MS: u64 = 5 * 60_000;

/// Describes the records that the filter shows, given newest first; `now_ms` is in ms since 1970. Views of one visit
/// are one row, where the last of them is.
pub fn rows(records: &[AuditRecord], filter: &AuditFilter, now_ms: u64) -> Vec<AuditRow> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for record in records.iter().filter(|record| filter.shows(record)) {
        match record {
            AuditRecord::View(view) => {
                let of_visit = entries.iter_mut().rev().find_map(|entry| match entry {
                    Entry::Visit(visit) if visit.is_of_same(view) => Some(visit),
                    _ => None,
                });
                match of_visit.filter(|visit| visit.continues(view, now_ms)) {
                    Some(visit) => {
                        visit.began_ms = visit.began_ms.min(view.began_ms);
                        visit.views += 1;
                    }
                    None => {
                        entries.push(Entry::Visit(Visit { last: view, began_ms: view.began_ms, views: 1 }))
                    }
                }
            }
            AuditRecord::Action(entry) => entries.push(Entry::Action(entry)),
        }
    }
    let describe = |entry: &Entry<'_>| match entry {
        Entry::Visit(visit) => visit.describe(now_ms),
        Entry::Action(entry) => describe_action(entry),
    };
    entries.iter().map(describe).collect()
}

enum Entry<'a> {
    Visit(Visit<'a>),
    Action(&'a AuditEntry),
}

/// Views of one guest that follow each other closely.
struct Visit<'a> {
    /// The view that began last.
    last: &'a View,
    began_ms: u64,
    views: usize,
}

impl Visit<'_> {
    fn is_of_same(&self, view: &View) -> bool {
        let last = self.last;
        (&last.share, &last.viewer, &last.scope, last.client)
            == (&view.share, &view.viewer, &view.scope, view.client)
    }

    /// Returns whether an earlier view of the same guest belongs to the visit.
    fn continues(&self, earlier: &View, now_ms: u64) -> bool {
        end_ms(earlier, now_ms).saturating_add(VISIT_GAP_MS) >= self.began_ms
    }

    fn describe(&self, now_ms: u64) -> AuditRow {
        let view = self.last;
        let loads = match (self.views, view.client) {
            (1, _) => String::new(),
            (views, ViewClient::Page) => format!(" · {views} page loads"),
            (views, ViewClient::Api) => format!(" · {views} series of requests"),
        };
        AuditRow {
            at_s: seconds(self.began_ms),
            kind: "View",
            what: match view.client {
                ViewClient::Page => view.scope.to_string(),
                ViewClient::Api => format!("{}, over the HTTP API", view.scope),
            },
            who: viewer_text(&view.viewer),
            share: share_text(view),
            result: format!("{}{loads}", duration_text(self.began_ms, view, now_ms)),
            is_failure: false,
        }
    }
}

fn describe_action(entry: &AuditEntry) -> AuditRow {
    AuditRow {
        at_s: seconds(entry.wall_ms),
        kind: "Action",
        what: entry.action.to_string(),
        who: "you".to_owned(),
        share: String::new(),
        result: match entry.succeeded {
            true => format!("✓ {}", entry.outcome),
            false => format!("✗ {}", entry.outcome),
        },
        is_failure: !entry.succeeded,
    }
}

fn share_text(view: &View) -> String {
    match view.label.as_str() {
        "" => view.share.to_string(),
        label => format!("{label} ({})", view.share),
    }
}

/// When a view ended or was last known to be open, in ms since 1970.
fn end_ms(view: &View, now_ms: u64) -> u64 {
    match view.end {
        ViewEnd::Open => now_ms,
        ViewEnd::Ended { at_ms } => at_ms,
        ViewEnd::Unknown { seen_ms } => seen_ms,
    }
}

/// Returns the used shares, each with its text, the last used one first.
pub fn shares(records: &[AuditRecord]) -> Vec<(ShareId, String)> {
    let mut shares: Vec<(ShareId, String)> = Vec::new();
    for record in records {
        if let AuditRecord::View(view) = record
            && shares.iter().all(|(id, _)| *id != view.share)
        {
            shares.push((view.share.clone(), share_text(view)));
        }
    }
    shares
}

fn seconds(at_ms: u64) -> i64 {
    (at_ms / 1_000).cast_signed()
}

fn viewer_text(viewer: &ViewerIdentity) -> String {
    let ViewerIdentity { user, address, by_proxy } = viewer;
    let user = user.as_ref().map_or("an unknown user", |user| user.as_str());
    let address = address.as_ref().map_or_else(String::new, |address| format!(" at {address}"));
    let by = if *by_proxy { ", through a proxy" } else { "" };
    format!("{user}{address}{by}")
}

/// Returns the duration of a visit that ended with this view.
fn duration_text(began_ms: u64, view: &View, now_ms: u64) -> String {
    let span = text::span(end_ms(view, now_ms).saturating_sub(began_ms) / 1_000);
    match view.end {
        ViewEnd::Open => format!("◉ {span}, still open"),
        ViewEnd::Ended { .. } => span,
        ViewEnd::Unknown { .. } => format!("at least {span}; the relay was killed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::share::Scope;

    fn row(record: &AuditRecord, now_ms: u64) -> AuditRow {
        let [row] = &rows(std::slice::from_ref(record), &AuditFilter::default(), now_ms)[..] else {
            panic!()
        };
        row.clone()
    }

    fn view(share: &str, label: &str, end: ViewEnd) -> AuditRecord {
        AuditRecord::View(View {
            share: ShareId::new(share).unwrap(),
            label: label.into(),
            scope: Scope::Jobs(vec![JobId(17)]),
            viewer: ViewerIdentity { user: Some("bob".into()), address: None, by_proxy: false },
            client: ViewClient::Page,
            began_ms: 60_000,
            end,
        })
    }

    fn action() -> AuditRecord {
        let (action, outcome) = ("hold job 17".into(), "it runs".into());
        AuditRecord::Action(AuditEntry { wall_ms: 30_000, action, outcome, succeeded: false })
    }

    #[test]
    fn a_view_says_who_saw_what_and_for_how_long() {
        let open = row(&view("abc", "for Bob", ViewEnd::Open), 180_000);
        let texts = [open.what.as_str(), &open.who, &open.share, &open.result];
        assert_eq!(texts, ["job 17", "bob", "for Bob (abc)", "◉ 2 min, still open"]);
        let ended = row(&view("abc", "", ViewEnd::Ended { at_ms: 120_000 }), 0);
        assert_eq!((ended.share.as_str(), ended.result.as_str()), ("abc", "1 min"));
        let lost = row(&view("abc", "", ViewEnd::Unknown { seen_ms: 120_000 }), 0);
        assert_eq!(lost.result, "at least 1 min; the relay was killed");
        let stranger = ViewerIdentity { user: None, address: Some("10.0.0.8".into()), by_proxy: true };
        assert_eq!(viewer_text(&stranger), "an unknown user at 10.0.0.8, through a proxy");
    }

    #[test]
    fn a_page_that_is_loaded_again_within_minutes_continues_the_visit() {
        let at = |share: &str, began_s: u64, ended_s: Option<u64>| {
            let end = ended_s.map_or(ViewEnd::Open, |ended_s| ViewEnd::Ended { at_ms: ended_s * 1_000 });
            let AuditRecord::View(view) = view(share, "", end) else { unreachable!() };
            AuditRecord::View(View { began_ms: began_s * 1_000, ..view })
        };
        // Newest first, with an action and another guest in between.
        let records = [
            at("abc", 1_000, None),
            action(),
            at("xyz", 950, Some(960)),
            at("abc", 900, Some(990)),
            at("abc", 800, Some(810)),
            at("abc", 100, Some(200)),
        ];
        let rows = rows(&records, &AuditFilter::default(), 1_060_000);
        let shown: Vec<_> =
            rows.iter().map(|row| (row.at_s, row.share.as_str(), row.result.as_str())).collect();
        assert_eq!(
            shown,
            [
                (800, "abc", "◉ 4 min, still open · 3 page loads"),
                (30, "", "✗ it runs"),
                (950, "xyz", "10 s"),
                (100, "abc", "1 min"),
            ]
        );
    }

    #[test]
    fn a_failed_action_is_marked() {
        let row = row(&action(), 0);
        assert_eq!((row.result.as_str(), row.is_failure), ("✗ it runs", true));
    }

    #[test]
    fn records_are_filtered_by_kind_and_by_share() {
        let records = [view("abc", "", ViewEnd::Open), action(), view("xyz", "", ViewEnd::Open)];
        let shown = |kind, share: Option<&str>| {
            let filter = AuditFilter { kind, share: share.map(str::to_owned) };
            records.iter().map(|record| filter.shows(record)).collect::<Vec<_>>()
        };
        assert_eq!(shown(RecordKind::All, None), [true, true, true]);
        assert_eq!(shown(RecordKind::Views, None), [true, false, true]);
        assert_eq!(shown(RecordKind::Actions, None), [false, true, false]);
        assert_eq!(shown(RecordKind::All, Some("xyz")), [false, false, true]);
        assert_eq!(shares(&records).iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["abc", "xyz"]);
        for kind in RecordKind::ALL {
            assert_eq!(RecordKind::from_name(kind.name()), Some(kind));
        }
    }
}

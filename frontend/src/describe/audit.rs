//! The audit log as rows of text, and which of them a filter shows.

use crate::domain::text;
use nodeglass_protocol::audit::{AuditRecord, View, ViewClient, ViewEnd, ViewerIdentity};
use nodeglass_protocol::share::ShareId;

/// What kind of record is shown.
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

/// Which records are shown.
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
    /// What was viewed or done.
    pub what: String,
    /// Who viewed; an action is always the owner's.
    pub who: String,
    /// The share that was used, by its label if it has one.
    pub share: String,
    /// How long a view lasted, or how an action ended.
    pub result: String,
    /// Whether it is something to look at: an action that failed.
    pub is_failure: bool,
}

/// Describes a record; `now_ms` is in ms since 1970.
pub fn row(record: &AuditRecord, now_ms: u64) -> AuditRow {
    match record {
        AuditRecord::View(view) => AuditRow {
            at_s: seconds(view.began_ms),
            kind: "View",
            what: match view.client {
                ViewClient::Page => view.scope.to_string(),
                ViewClient::Api => format!("{}, by HTTP API", view.scope),
            },
            who: viewer_text(&view.viewer),
            share: match view.label.as_str() {
                "" => view.share.to_string(),
                label => format!("{label} ({})", view.share),
            },
            result: duration_text(view, now_ms),
            is_failure: false,
        },
        AuditRecord::Action(entry) => AuditRow {
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
        },
    }
}

/// Returns the shares that were used, each with its text, the one that was used last first.
pub fn shares(records: &[AuditRecord]) -> Vec<(ShareId, String)> {
    let mut shares: Vec<(ShareId, String)> = Vec::new();
    for record in records {
        if let AuditRecord::View(view) = record
            && shares.iter().all(|(id, _)| *id != view.share)
        {
            shares.push((view.share.clone(), row(record, 0).share));
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
    let by = if *by_proxy { ", by proxy" } else { "" };
    format!("{user}{address}{by}")
}

fn duration_text(view: &View, now_ms: u64) -> String {
    let until = |at_ms: u64| text::span(at_ms.saturating_sub(view.began_ms) / 1_000);
    match view.end {
        ViewEnd::Open => format!("◉ {}, still open", until(now_ms)),
        ViewEnd::Ended { at_ms } => until(at_ms),
        ViewEnd::Unknown { seen_ms } => format!("at least {}; the relay was killed", until(seen_ms)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::request::AuditEntry;
    use nodeglass_protocol::share::Scope;

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
        assert_eq!(viewer_text(&stranger), "an unknown user at 10.0.0.8, by proxy");
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

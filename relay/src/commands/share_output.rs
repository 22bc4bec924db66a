//! Output of `relay share`: aligned, with the link on a line of its own.

use crate::commands::named_job;
use nodeglass_api::{Listed, ShareList};
use nodeglass_platform::local_time::LocalTime;
use nodeglass_protocol::LongText;
use nodeglass_protocol::share::{HiddenParts, Share, ShareId, ShareLink, ShareTerms, Visitor};
use nodeglass_rules::text::{aligned, span};
use std::fmt::Write as _;

/// A created share, with what to hand on; `option` selects its relay in the command that revokes it.
pub(super) fn created(
    made: &ShareLink,
    jobs: &[impl Listed],
    option: &str,
    now_ms: u64,
    local: fn(u64) -> LocalTime,
) -> String {
    let (share, mut out) = (&made.share, String::from("\n"));
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "  {name:<8} {value}");
    };
    line("shared", &format!("{}, read-only", scope(&share.terms, jobs)));
    line("hidden", &hidden(share.terms.hidden));
    line("for", &audience(&share.terms));
    let zone = local(share.terms.expires_ms / 1_000);
    line("ends", &ends(&share.terms, now_ms, local, zone.zone()));
    if let Some(link) = &made.link {
        line("link", LongText::new(link).as_str());
    }
    if !made.tunnel.is_empty() {
        line("tunnel", &format!("{}   (on their laptop)", made.tunnel));
    }
    if let Some(why) = &made.not_stored {
        line("stored", &format!("not yet, and a restart of the relay before then ends it: {why}"));
    }
    line("revoke", &format!("relay share revoke {}{option}", share.id));
    out.push('\n');
    out
}

/// The open shares and their visitors, and those that are stored and closed.
pub(super) fn list(
    list: &ShareList,
    jobs: &[impl Listed],
    now_ms: u64,
    local: fn(u64) -> LocalTime,
) -> String {
    let closed = list.closed.iter().map(|closed| {
        let (id, scope) = (&closed.share.id, &closed.share.terms.scope);
        format!("closed here: {id} ({scope}), made while the relay watched {}\n", closed.watches)
    });
    open(&list.shares, &list.visitors, jobs, now_ms, local) + &closed.collect::<String>()
}

fn open(
    shares: &[Share],
    visitors: &[Visitor],
    jobs: &[impl Listed],
    now_ms: u64,
    local: fn(u64) -> LocalTime,
) -> String {
    if shares.is_empty() {
        return "no open shares\n".to_owned();
    }
    let mut rows = vec![["ID", "SHARES", "FOR", "ENDS", "HIDES", "VIEWERS", "LABEL"].map(str::to_owned)];
    rows.extend(shares.iter().map(|share| {
        let viewers = visitors.iter().filter(|visitor| visitor.share.as_ref() == Some(&share.id));
        [
            share.id.to_string(),
            scope(&share.terms, jobs),
            audience(&share.terms),
            ends(&share.terms, now_ms, local, ""),
            hidden(share.terms.hidden),
            viewers_text(viewers, now_ms),
            share.terms.label.to_string(),
        ]
    }));
    aligned(&rows, |_| false).into_iter().map(|line| line + "\n").collect()
}

/// The revoked shares.
pub(super) fn revoked(ids: &[ShareId]) -> String {
    match ids {
        [] => "no open shares\n".to_owned(),
        [id] => format!("revoked share {id}; its viewers were disconnected\n"),
        ids => format!("revoked {} shares; their viewers were disconnected\n", ids.len()),
    }
}

fn scope(terms: &ShareTerms, jobs: &[impl Listed]) -> String {
    terms.scope.describe(|id| named_job::label(jobs, id))
}

fn hidden(hidden: HiddenParts) -> String {
    let what = [
        (hidden.arguments, "arguments"),
        (hidden.paths, "paths"),
        (hidden.other_users, "users"),
        (hidden.logs, "logs"),
        (hidden.notes, "notes"),
    ];
    let hidden: Vec<_> = what.into_iter().filter_map(|(hidden, what)| hidden.then_some(what)).collect();
    if hidden.is_empty() { "-".to_owned() } else { hidden.join(", ") }
}

fn audience(terms: &ShareTerms) -> String {
    terms.to.as_ref().map_or_else(|| "anyone with the link".to_owned(), |to| format!("{to} only"))
}

/// When a share ends: clock time and time left.
fn ends(terms: &ShareTerms, now_ms: u64, local: fn(u64) -> LocalTime, zone: &str) -> String {
    let (now_s, end_s) = (now_ms / 1_000, terms.expires_ms / 1_000);
    let at = local(end_s).seen_from(&local(now_s));
    let gap = if zone.is_empty() { "" } else { " " };
    let left = span(end_s.saturating_sub(now_s));
    let with_job = terms.ends_with().map_or(String::new(), |job| format!(", or with {job}"));
    format!("{at}{gap}{zone} (in {left}){with_job}")
}

fn viewers_text<'a>(visitors: impl Iterator<Item = &'a Visitor>, now_ms: u64) -> String {
    let one = |visitor: &Visitor| {
        let user = visitor.user.as_ref().map_or("unknown user", |user| user.as_str());
        format!("{user} for {}", span(now_ms.saturating_sub(visitor.since_ms) / 1_000))
    };
    let visitors: Vec<_> = visitors.map(one).collect();
    if visitors.is_empty() { "-".to_owned() } else { visitors.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::job::{Job, JobState};
    use nodeglass_protocol::share::ClosedShare;
    use nodeglass_protocol::share::Scope;

    const NONE: [Job; 0] = [];

    fn share(scope: Scope) -> Share {
        let terms = ShareTerms {
            label: "for Bob".into(),
            scope,
            hidden: HiddenParts { logs: false, ..HiddenParts::default() },
            to: Some("bob".into()),
            expires_ms: 86_400_000,
            ends_with_job: true,
        };
        Share { id: ShareId::new("k3jq9x8a2b").unwrap(), created_ms: 0, terms }
    }

    #[test]
    fn a_created_share_is_printed_with_everything_its_holder_needs() {
        let link = Some("http://127.0.0.1:8080/#s=k3jq9x8a2b.KEY".to_owned());
        let tunnel = "ssh -L 8080:127.0.0.1:8080 login1".into();
        let printed = created(
            &ShareLink { share: share(Scope::Jobs(vec![JobId(17)])), link, tunnel, not_stored: None },
            &NONE,
            " --relay 7",
            60_000,
            LocalTime::utc,
        );
        assert_eq!(
            printed,
            "
  shared   job 17, read-only
  hidden   arguments, paths, users
  for      bob only
  ends     Fri 00:00 GMT (in 23 h 59 min), or with the job
  link     http://127.0.0.1:8080/#s=k3jq9x8a2b.KEY
  tunnel   ssh -L 8080:127.0.0.1:8080 login1   (on their laptop)
  revoke   relay share revoke k3jq9x8a2b --relay 7

"
        );
    }

    #[test]
    fn shares_are_printed_in_columns_with_their_visitors() {
        let share = share(Scope::Jobs(vec![JobId(1), JobId(2), JobId(3)]));
        let jobs = [Job { label: "40_7".into(), ..Job::new(JobId(2), "alice".into(), JobState::Running) }];
        let visitor = |user: Option<&str>, since_ms| Visitor {
            share: Some(share.id.clone()),
            user: user.map(Into::into),
            since_ms,
        };
        let visitors = vec![visitor(Some("bob"), 0), visitor(None, 59_000)];
        let closed = vec![ClosedShare { share: share.clone(), watches: "your jobs on hpc".into() }];
        let printed = list(
            &ShareList { shares: vec![share.clone()], visitors, closed },
            &jobs,
            180_000,
            LocalTime::utc,
        );
        assert_eq!(
            printed,
            "\
ID          SHARES           FOR       ENDS                                              HIDES                    VIEWERS                                LABEL
k3jq9x8a2b  jobs 1, 40_7, 3  bob only  Fri 00:00 (in 23 h 57 min), or with its last job  arguments, paths, users  bob for 3 min, unknown user for 2 min  for Bob
closed here: k3jq9x8a2b (jobs 1, 2, 3), made while the relay watched your jobs on hpc
"
        );
        assert_eq!(list(&ShareList::default(), &NONE, 0, LocalTime::utc), "no open shares\n");
    }
}

//! `relay audit`: who viewed through which share and which actions were performed, from the database.

use crate::commands::job_tables::or_empty;
use anyhow::Context as _;
use hyper::Method;
use nodeglass_app::addresses::here;
use nodeglass_app::remote::Remote;
use nodeglass_app::terminal;
use nodeglass_config::{AuditArgs, AuditFormat};
use nodeglass_platform::clock::Clock;
use nodeglass_platform::local_time::LocalTime;
use nodeglass_platform::state_dir::StateDir;
use nodeglass_protocol::audit::{AuditLog, AuditRecord, View, ViewClient, ViewEnd, ViewerIdentity};
use nodeglass_protocol::request::AuditEntry;
use nodeglass_rules::csv;
use nodeglass_rules::text::{aligned, span};
use nodeglass_store::{Database, RelayRun};

/// Executes the command; returns what to print.
///
/// # Errors
/// A complete sentence for the user.
pub async fn print(args: AuditArgs) -> anyhow::Result<String> {
    let dir = StateDir::open().context("the audit log cannot be read")?;
    let now_ms = Clock::wall_ms();
    let log = match Database::open_existing(&dir)? {
        Some(database) => {
            let since_ms = now_ms.saturating_sub(u64::from(args.days) * 86_400_000);
            let run = RelayRun::of_this_process(here().to_string());
            database.audit_log(&run, since_ms, now_ms, usize::MAX)?
        }
        None => AuditLog { is_recorded: true, ..AuditLog::default() },
    };
    // A relay of a simulated cluster or a recording has its log in memory only.
    let log = match &Remote::list()?[..] {
        [relay] if log.records.is_empty() => {
            relay.json(Method::GET, &format!("/api/v1/audit?days={}", args.days), String::new()).await?
        }
        _ => log,
    };
    Ok(match if args.json { AuditFormat::Json } else { args.format } {
        AuditFormat::Text => text(&log, now_ms, LocalTime::of),
        AuditFormat::Json => terminal::json(&log.records)?,
        AuditFormat::Csv => csv(&log),
    })
}

/// Views and actions, one a line.
fn text(log: &AuditLog, now_ms: u64, local: fn(u64) -> LocalTime) -> String {
    let now = local(now_ms / 1_000);
    let time = |at_ms: u64| local(at_ms / 1_000).seen_from(&now);
    let mut views =
        vec![["BEGAN", "LASTED", "VIEWER", "SHARE", "SHOWED", "WITH", "LABEL"].map(str::to_owned)];
    let mut actions = vec![["TIME", "ACTION", "RESULT"].map(str::to_owned)];
    for record in &log.records {
        match record {
            AuditRecord::View(view) => views.push([
                time(view.began_ms),
                lasted(view, now_ms),
                viewer(&view.viewer),
                view.share.to_string(),
                view.scope.to_string(),
                client(view.client).to_owned(),
                view.label.to_string(),
            ]),
            AuditRecord::Action(entry) => actions.push([
                time(entry.wall_ms),
                entry.action.to_string(),
                match entry.succeeded {
                    true => entry.outcome.to_string(),
                    false => format!("failed: {}", entry.outcome),
                },
            ]),
        }
    }
    let mut out = Vec::new();
    if views.len() > 1 {
        out.push(lines(aligned(&views, |_| false)));
    }
    if actions.len() > 1 {
        out.push(lines(aligned(&actions, |_| false)));
    }
    if out.is_empty() && !log.is_recorded {
        "the running relay keeps no audit log (--no-audit)\n".to_owned()
    } else if out.is_empty() {
        "no views and no actions in this time\n".to_owned()
    } else {
        out.join("\n")
    }
}

fn lines(rows: Vec<String>) -> String {
    rows.into_iter().map(|line| line + "\n").collect()
}

fn lasted(view: &View, now_ms: u64) -> String {
    let until = |at_ms: u64| span(at_ms.saturating_sub(view.began_ms) / 1_000);
    match view.end {
        ViewEnd::Open => format!("{}, still open", until(now_ms)),
        ViewEnd::Ended { at_ms } => until(at_ms),
        ViewEnd::Unknown { seen_ms } => format!("at least {}", until(seen_ms)),
    }
}

fn viewer(viewer: &ViewerIdentity) -> String {
    let ViewerIdentity { user, address, by_proxy } = viewer;
    let by = if *by_proxy { " (by proxy)" } else { "" };
    match (user, address) {
        (Some(user), Some(address)) => format!("{user} at {address}{by}"),
        (Some(one), None) | (None, Some(one)) => format!("{one}{by}"),
        (None, None) => format!("unknown{by}"),
    }
}

fn client(client: ViewClient) -> &'static str {
    match client {
        ViewClient::Page => "page",
        ViewClient::Api => "api",
    }
}

/// Views and actions as comma-separated values; empty if unknown.
fn csv(log: &AuditLog) -> String {
    let mut out =
        "kind,began_ms,end,end_ms,share,label,scope,user,address,by_proxy,client,action,outcome,succeeded\n"
            .to_owned();
    for record in &log.records {
        let cells: [String; 14] = match record {
            AuditRecord::View(View { share, label, scope, viewer, client: with, began_ms, end }) => {
                let (end, end_ms) = match end {
                    ViewEnd::Open => ("open", None),
                    ViewEnd::Ended { at_ms } => ("ended", Some(at_ms)),
                    ViewEnd::Unknown { seen_ms } => ("unknown", Some(seen_ms)),
                };
                let ViewerIdentity { user, address, by_proxy } = viewer;
                [
                    "view".to_owned(),
                    began_ms.to_string(),
                    end.to_owned(),
                    or_empty(end_ms),
                    share.to_string(),
                    csv::cell(label.as_str()),
                    csv::cell(&scope.to_string()),
                    or_empty(user.as_ref().map(|user| csv::cell(user.as_str()))),
                    or_empty(address.as_ref().map(|address| csv::cell(address.as_str()))),
                    by_proxy.to_string(),
                    client(*with).to_owned(),
                    String::new(),
                    String::new(),
                    String::new(),
                ]
            }
            AuditRecord::Action(AuditEntry { wall_ms, action, outcome, succeeded }) => {
                let mut cells = std::array::from_fn(|_| String::new());
                cells[0] = "action".to_owned();
                cells[1] = wall_ms.to_string();
                cells[11] = csv::cell(action.as_str());
                cells[12] = csv::cell(outcome.as_str());
                cells[13] = succeeded.to_string();
                cells
            }
        };
        out.push_str(&cells.join(","));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::share::{Scope, ShareId};

    fn log() -> AuditLog {
        let view = |user: Option<&str>, end| {
            AuditRecord::View(View {
                share: ShareId::new("abc").unwrap(),
                label: "=for Bob, rank 3".into(),
                scope: Scope::Jobs(vec![JobId(17)]),
                viewer: ViewerIdentity {
                    user: user.map(Into::into),
                    address: Some("10.0.0.8".into()),
                    by_proxy: user.is_some(),
                },
                client: ViewClient::Page,
                began_ms: 60_000,
                end,
            })
        };
        let entry = AuditEntry {
            wall_ms: 30_000,
            action: "hold job 17".into(),
            outcome: "it runs".into(),
            succeeded: false,
        };
        let records = vec![
            view(Some("bob"), ViewEnd::Open),
            view(None, ViewEnd::Ended { at_ms: 120_000 }),
            view(Some("bob"), ViewEnd::Unknown { seen_ms: 180_000 }),
            AuditRecord::Action(entry),
        ];
        AuditLog { is_recorded: true, records, omitted: 0 }
    }

    #[test]
    fn views_and_actions_are_two_tables() {
        let expected = "\
BEGAN  LASTED            VIEWER                      SHARE  SHOWED  WITH  LABEL
00:01  9 min, still open  bob at 10.0.0.8 (by proxy)  abc    job 17  page  =for Bob, rank 3
00:01  1 min             10.0.0.8                    abc    job 17  page  =for Bob, rank 3
00:01  at least 2 min    bob at 10.0.0.8 (by proxy)  abc    job 17  page  =for Bob, rank 3

TIME   ACTION       RESULT
00:00  hold job 17  failed: it runs
";
        let words = |text: &str| -> Vec<Vec<String>> {
            text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
        };
        assert_eq!(words(&text(&log(), 600_000, LocalTime::utc)), words(expected));
        let nothing = |is_recorded| text(&AuditLog { is_recorded, ..AuditLog::default() }, 0, LocalTime::utc);
        assert_eq!(nothing(true), "no views and no actions in this time\n");
        assert!(nothing(false).contains("--no-audit"));
    }

    #[test]
    fn values_are_quoted_and_unknown_ones_are_empty() {
        let csv = csv(&log());
        let lines: Vec<_> = csv.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "view,60000,open,,abc,\"'=for Bob, rank 3\",job 17,bob,10.0.0.8,true,page,,,",
                "view,60000,ended,120000,abc,\"'=for Bob, rank 3\",job 17,,10.0.0.8,false,page,,,",
                "view,60000,unknown,180000,abc,\"'=for Bob, rank 3\",job 17,bob,10.0.0.8,true,page,,,",
                "action,30000,,,,,,,,,,hold job 17,it runs,false",
            ]
        );
    }
}

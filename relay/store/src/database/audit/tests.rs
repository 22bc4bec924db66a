//! Views and actions across runs of the relay: open, ended, lost, and too many.

use super::*;
use nodeglass_platform::state_dir::StateDir;
use nodeglass_protocol::JobId;
use nodeglass_protocol::share::Scope;

const NOW_MS: u64 = 1_800_000_000_000;

fn run(host: &str, pid: u32, started_ms: u64) -> RelayRun {
    RelayRun { host: host.into(), pid, started_ms }
}

/// A process id that no process has: the kernel's limit is 2²².
const NO_PID: u32 = 4_200_000;

fn begin(number: u64, share: &str, at_ms: u64) -> AuditChange {
    let viewer =
        ViewerIdentity { user: Some("bob".into()), address: Some("10.0.0.8".into()), by_proxy: true };
    AuditChange::Begin(
        number,
        Box::new(View {
            share: ShareId::new(share).unwrap(),
            label: "for Bob".into(),
            scope: Scope::Jobs(vec![JobId(17)]),
            viewer,
            client: ViewClient::Page,
            began_ms: at_ms,
            end: ViewEnd::Open,
        }),
    )
}

fn action(what: &str, at_ms: u64) -> AuditChange {
    let (action, outcome) = (what.into(), "done".into());
    AuditChange::Action(AuditEntry { wall_ms: at_ms, action, outcome, succeeded: true })
}

fn read(database: &Database, run: &RelayRun, now_ms: u64) -> Vec<AuditRecord> {
    database.audit_log(run, 0, now_ms, AuditLog::MAX_RECORDS).unwrap().records
}

fn ends(database: &Database, run: &RelayRun, now_ms: u64) -> Vec<ViewEnd> {
    let end = |record| match record {
        AuditRecord::View(view) => Some(view.end),
        AuditRecord::Action(_) => None,
    };
    read(database, run, now_ms).into_iter().filter_map(end).collect()
}

#[test]
fn views_and_actions_are_read_newest_first_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
    let own = run("login1", std::process::id(), 1);
    let changes = [begin(1, "abc", NOW_MS), action("cancel job 17", NOW_MS + 1), begin(2, "xyz", NOW_MS + 2)];
    let mut database = Database::open(&dir).unwrap().0;
    database.audit(&own, &changes, NOW_MS).unwrap();
    database.audit(&own, &[AuditChange::End(1, NOW_MS + 9)], NOW_MS).unwrap();
    drop(database);
    let database = Database::open(&dir).unwrap().0;
    let records = read(&database, &own, NOW_MS);
    let [AuditChange::Begin(_, first), AuditChange::Action(entry), AuditChange::Begin(_, second)] = changes
    else {
        panic!("as above")
    };
    let ended = View { end: ViewEnd::Ended { at_ms: NOW_MS + 9 }, ..*first };
    let expected = [AuditRecord::View(*second), AuditRecord::Action(entry), AuditRecord::View(ended)];
    assert_eq!(records, expected);
    let limited = database.audit_log(&own, 0, NOW_MS, 2).unwrap();
    assert_eq!((limited.records.as_slice(), limited.omitted), (&expected[..2], 1));
    // What ended earlier is of other days.
    let newer = database.audit_log(&own, NOW_MS + 10, NOW_MS, 9).unwrap();
    assert_eq!(newer.records, expected[..1]);
}

#[test]
fn a_view_of_a_killed_relay_ends_when_it_was_last_seen() {
    let mut database = Database::in_memory().unwrap();
    let killed = run("login1", NO_PID, 1);
    let changes = [begin(1, "abc", NOW_MS), AuditChange::Seen(1, NOW_MS + 500)];
    database.audit(&killed, &changes, NOW_MS).unwrap();
    let next = run("login1", std::process::id(), 2);
    let unknown = [ViewEnd::Unknown { seen_ms: NOW_MS + 500 }];
    // Before the next start ends it for good, a reader sees the same.
    assert_eq!(ends(&database, &next, NOW_MS + 600), unknown);
    assert_eq!(ends(&database, &killed, NOW_MS + 600), [ViewEnd::Open]);
    database.end_lost_views(&next, NOW_MS + 600).unwrap();
    assert_eq!(ends(&database, &killed, NOW_MS + 600), unknown);
}

#[test]
fn a_view_that_another_relay_declared_lost_is_open_and_ends_as_its_own_relay_says() {
    let mut database = Database::in_memory().unwrap();
    // Its login node was suspended.
    let (paused, other) = (run("login1", NO_PID, 1), run("login2", std::process::id(), 2));
    database.audit(&paused, &[begin(1, "abc", NOW_MS), begin(2, "abc", NOW_MS)], NOW_MS).unwrap();
    let late_ms = NOW_MS + LOST_AFTER_MS + 1;
    database.end_lost_views(&other, late_ms).unwrap();
    assert_eq!(ends(&database, &other, late_ms), [ViewEnd::Unknown { seen_ms: NOW_MS }; 2]);
    database.audit(&paused, &[AuditChange::Seen(1, late_ms), AuditChange::Seen(2, late_ms)], NOW_MS).unwrap();
    assert_eq!(ends(&database, &other, late_ms), [ViewEnd::Open; 2]);
    database.end_lost_views(&other, late_ms + LOST_AFTER_MS + 1).unwrap();
    database.audit(&paused, &[AuditChange::End(1, late_ms + 5)], NOW_MS).unwrap();
    let (ended, lost) = (ViewEnd::Ended { at_ms: late_ms + 5 }, ViewEnd::Unknown { seen_ms: late_ms });
    let is_in = |end| ends(&database, &other, late_ms).contains(&end);
    assert!(is_in(ended) && is_in(lost));
}

#[test]
fn a_view_that_was_lost_long_ago_is_not_one_of_the_last_days() {
    let mut database = Database::in_memory().unwrap();
    let (killed, own) = (run("login1", NO_PID, 1), run("login1", std::process::id(), 2));
    database.audit(&killed, &[begin(1, "abc", NOW_MS)], NOW_MS).unwrap();
    database.audit(&own, &[begin(1, "abc", NOW_MS)], NOW_MS).unwrap();
    let recent = database.audit_log(&own, NOW_MS + 1, NOW_MS + 2, 9).unwrap().records;
    assert!(matches!(&recent[..], [AuditRecord::View(View { end: ViewEnd::Open, .. })]), "{recent:?}");
    assert_eq!(database.audit_log(&own, NOW_MS, NOW_MS + 2, 9).unwrap().records.len(), 2);
}

#[test]
fn a_process_with_the_number_of_a_killed_relay_is_not_that_relay() {
    let mut database = Database::in_memory().unwrap();
    let (killed, next) = (run("login1", std::process::id(), 1), run("login1", std::process::id(), 2));
    database.audit(&killed, &[begin(1, "abc", NOW_MS)], NOW_MS).unwrap();
    database.end_lost_views(&next, NOW_MS).unwrap();
    assert_eq!(ends(&database, &next, NOW_MS), [ViewEnd::Unknown { seen_ms: NOW_MS }]);
}

#[test]
fn views_of_a_relay_that_runs_elsewhere_go_on_while_it_confirms_them() {
    let mut database = Database::in_memory().unwrap();
    let (other, own) = (run("login2", NO_PID, 1), run("login1", std::process::id(), 2));
    // One on the same machine as well: the parent of this process runs.
    let beside = run("login1", std::os::unix::process::parent_id(), 1);
    for run in [&other, &beside] {
        database.audit(run, &[begin(1, "abc", NOW_MS)], NOW_MS).unwrap();
    }
    database.end_lost_views(&own, NOW_MS + LOST_AFTER_MS).unwrap();
    assert_eq!(ends(&database, &own, NOW_MS + LOST_AFTER_MS), [ViewEnd::Open, ViewEnd::Open]);
    database.end_lost_views(&own, NOW_MS + LOST_AFTER_MS + 1).unwrap();
    let unknown = ViewEnd::Unknown { seen_ms: NOW_MS };
    assert_eq!(ends(&database, &own, NOW_MS), [unknown, unknown]);
}

#[test]
fn a_guest_who_connects_again_and_again_displaces_no_view_of_others() {
    let mut database = Database::in_memory().unwrap();
    let own = run("login1", std::process::id(), 1);
    let mut of_carol = begin(2, "flood", NOW_MS + 1);
    if let AuditChange::Begin(_, view) = &mut of_carol {
        view.viewer = ViewerIdentity { user: Some("carol".into()), ..ViewerIdentity::default() };
    }
    database.audit(&own, &[begin(1, "victim", NOW_MS), of_carol], NOW_MS).unwrap();
    let max = u64::try_from(MAX_ROWS).unwrap();
    let flood: Vec<_> = (3..max + 100).map(|number| begin(number, "flood", NOW_MS + number)).collect();
    database.audit(&own, &flood, NOW_MS).unwrap();
    let log = database.audit_log(&own, 0, NOW_MS, usize::MAX).unwrap();
    assert_eq!(log.records.len(), usize::try_from(max).unwrap());
    let [.., AuditRecord::View(of_carol), AuditRecord::View(oldest)] = &log.records[..] else {
        panic!("views")
    };
    assert_eq!(oldest.share.as_str(), "victim");
    assert_eq!(of_carol.viewer.user, Some("carol".into()));
}

#[test]
fn a_view_that_ended_can_be_continued() {
    let mut database = Database::in_memory().unwrap();
    let own = run("login1", std::process::id(), 1);
    database.audit(&own, &[begin(1, "abc", NOW_MS), AuditChange::End(1, NOW_MS + 5)], NOW_MS).unwrap();
    assert_eq!(ends(&database, &own, NOW_MS), [ViewEnd::Ended { at_ms: NOW_MS + 5 }]);
    database.audit(&own, &[AuditChange::Seen(1, NOW_MS + 9)], NOW_MS).unwrap();
    assert_eq!(ends(&database, &own, NOW_MS), [ViewEnd::Open]);
    database.audit(&own, &[AuditChange::End(1, NOW_MS + 20)], NOW_MS).unwrap();
    assert_eq!(ends(&database, &own, NOW_MS), [ViewEnd::Ended { at_ms: NOW_MS + 20 }]);
}

#[test]
fn records_are_bounded_in_age_and_actions_in_number() {
    let mut database = Database::in_memory().unwrap();
    let own = run("login1", std::process::id(), 1);
    let old_ms = NOW_MS - MAX_AGE_MS - 1;
    let changes = [begin(1, "abc", old_ms), AuditChange::End(1, old_ms), action("old", old_ms)];
    database.audit(&own, &changes, old_ms).unwrap();
    assert_eq!(read(&database, &own, old_ms).len(), 2);
    let many: Vec<_> = (0..MAX_ROWS + 7).map(|number| action(&number.to_string(), NOW_MS)).collect();
    database.audit(&own, &many, NOW_MS).unwrap();
    let log = database.audit_log(&own, 0, NOW_MS, usize::MAX).unwrap();
    assert_eq!(log.records.len(), usize::try_from(MAX_ROWS).unwrap());
    assert!(matches!(log.records.last(), Some(AuditRecord::Action(entry)) if entry.action.as_str() == "7"));
}

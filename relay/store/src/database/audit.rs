//! The audit log in the database: views of guests and actions, bounded in number and age.

use super::{Database, StoreError, signed};
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::Text;
use nodeglass_protocol::audit::{AuditLog, AuditRecord, View, ViewClient, ViewEnd, ViewerIdentity};
use nodeglass_protocol::request::AuditEntry;
use nodeglass_protocol::share::ShareId;
use rusqlite::{Row, Transaction, params};
use std::path::Path;

/// The tables. Times are in ms since 1970.
pub(super) const SCHEMA: &str = "CREATE TABLE audit_views (
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    run_ms INTEGER NOT NULL,
    number INTEGER NOT NULL,
    share TEXT NOT NULL,
    label TEXT NOT NULL,
    scope TEXT NOT NULL,
    user TEXT,
    address TEXT,
    by_proxy INTEGER NOT NULL,
    is_api INTEGER NOT NULL,
    began_ms INTEGER NOT NULL,
    seen_ms INTEGER NOT NULL,
    end INTEGER NOT NULL,
    PRIMARY KEY (host, pid, run_ms, number)
) STRICT;
CREATE INDEX audit_views_by_begin ON audit_views (began_ms);
CREATE INDEX audit_views_open ON audit_views (end) WHERE end = 0;
CREATE TABLE audit_actions (
    at_ms INTEGER NOT NULL,
    action TEXT NOT NULL,
    outcome TEXT NOT NULL,
    succeeded INTEGER NOT NULL
) STRICT;
CREATE INDEX audit_actions_by_time ON audit_actions (at_ms);";

/// Values of the column `end`: `seen_ms` is when the view was last confirmed, ended, or the same for one whose
/// relay was killed.
const OPEN: i64 = 0;
const ENDED: i64 = 1;
const UNKNOWN: i64 = 2;

/// Maximum number of views, and of actions.
const MAX_ROWS: i64 = 20_000;
/// Records older than this are deleted.
const MAX_AGE_MS: u64 = AuditLog::MAX_DAYS as u64 * 86_400_000;
/// A view that is open and not confirmed for this long is of a relay that no longer runs; three times the interval
/// at which a relay confirms its views.
const LOST_AFTER_MS: u64 = 180_000;

/// One run of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayRun {
    /// Name of its machine.
    pub host: String,
    /// Its process id.
    pub pid: u32,
    /// Its start in ms since 1970.
    pub started_ms: u64,
}

impl RelayRun {
    /// This process, on a machine of this name.
    pub fn of_this_process(host: String) -> Self {
        Self { host, pid: std::process::id(), started_ms: Clock::wall_ms() }
    }

    /// Returns whether another run may still be running.
    fn may_live_beside(&self, host: &str, pid: u32) -> bool {
        // Of another machine, only the time of its last confirmation is known.
        host != self.host || (pid != self.pid && Path::new(&format!("/proc/{pid}")).exists())
    }
}

/// A change of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditChange {
    /// A view begins, with a number that is unique in its run.
    Begin(u64, Box<View>),
    /// A view is open at this time.
    Seen(u64, u64),
    /// A view ended at this time.
    End(u64, u64),
    /// An action was performed or refused.
    Action(AuditEntry),
}

impl Database {
    /// Applies changes of one run, all or none, and deletes what is too old or too much.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn audit<'a>(
        &mut self,
        run: &RelayRun,
        changes: impl IntoIterator<Item = &'a AuditChange>,
        now_ms: u64,
    ) -> Result<(), StoreError> {
        let transaction = self.connection.transaction()?;
        for change in changes {
            apply(&transaction, run, change)?;
        }
        prune(&transaction, now_ms)?;
        transaction.commit()?;
        Ok(())
    }

    /// Ends the views that killed relays left open, as seen from a run.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn end_lost_views(&mut self, run: &RelayRun, now_ms: u64) -> Result<(), StoreError> {
        let transaction = self.connection.transaction()?;
        let mut lost = Vec::new();
        {
            let mut query = transaction.prepare(
                "SELECT host, pid, run_ms, number, seen_ms FROM audit_views WHERE end = 0 AND NOT \
                 (host = ?1 AND pid = ?2 AND run_ms = ?3)",
            )?;
            let mut rows = query.query(params![run.host, run.pid, signed(run.started_ms)])?;
            while let Some(row) = rows.next()? {
                let key: (String, u32, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
                if is_lost(run, (&key.0, key.1), millis(row, 4)?, now_ms) {
                    lost.push(key);
                }
            }
        }
        for (host, pid, run_ms, number) in lost {
            transaction.execute(
                "UPDATE audit_views SET end = ?5 WHERE host = ?1 AND pid = ?2 AND run_ms = ?3 AND number = ?4",
                params![host, pid, run_ms, number, UNKNOWN],
            )?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// The records since a time, newest first, at most `limit`, as seen from a run.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn audit_log(
        &self,
        run: &RelayRun,
        since_ms: u64,
        now_ms: u64,
        limit: usize,
    ) -> Result<AuditLog, StoreError> {
        let mut records = Vec::new();
        // One that is open, or ended since then, counts even if it began earlier.
        let mut views = self.connection.prepare(
            "SELECT host, pid, run_ms, share, label, scope, user, address, by_proxy, is_api, began_ms, seen_ms, end \
             FROM audit_views WHERE seen_ms >= ?1 OR end = 0 ORDER BY began_ms DESC",
        )?;
        let read = |row: &Row<'_>| view(row, run, now_ms);
        for view in views.query_map([signed(since_ms)], read)? {
            // One that was left open may have been lost before that.
            let is_earlier =
                |view: &View| matches!(view.end, ViewEnd::Unknown { seen_ms } if seen_ms < since_ms);
            records.extend(view?.filter(|view| !is_earlier(view)).map(AuditRecord::View));
        }
        let mut actions = self.connection.prepare(
            "SELECT at_ms, action, outcome, succeeded FROM audit_actions WHERE at_ms >= ?1 ORDER BY rowid DESC",
        )?;
        for entry in actions.query_map([signed(since_ms)], action)? {
            records.push(AuditRecord::Action(entry?));
        }
        records.sort_by_key(|record| std::cmp::Reverse(record.at_ms()));
        let omitted = u32::try_from(records.len().saturating_sub(limit)).unwrap_or(u32::MAX);
        records.truncate(limit);
        Ok(AuditLog { is_recorded: true, records, omitted })
    }
}

fn apply(transaction: &Transaction<'_>, run: &RelayRun, change: &AuditChange) -> rusqlite::Result<()> {
    let RelayRun { host, pid, started_ms } = run;
    let set_end = |number: u64, at_ms: u64, end: i64| {
        // The wall clock may have been set back. A view that ended, or whose end another relay declared unknown, as this one
        // did not confirm it in time, is open again or ends as this run says.
        let mut update = transaction.prepare_cached(
            "UPDATE audit_views SET seen_ms = max(began_ms, ?5), end = ?6 \
             WHERE host = ?1 AND pid = ?2 AND run_ms = ?3 AND number = ?4",
        )?;
        update.execute(params![host, pid, signed(*started_ms), signed(number), signed(at_ms), end])?;
        Ok(())
    };
    match change {
        AuditChange::Begin(number, view) => {
            let View { share, label, scope, viewer, client, began_ms, .. } = &**view;
            let scope = serde_json::to_string(scope).unwrap_or_default();
            let mut insert = transaction.prepare_cached(
                "INSERT OR IGNORE INTO audit_views VALUES \
                 (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12, ?13)",
            )?;
            insert.execute(params![
                host,
                pid,
                signed(*started_ms),
                signed(*number),
                share.as_str(),
                label.as_str(),
                scope,
                viewer.user.as_ref().map(Text::as_str),
                viewer.address.as_ref().map(Text::as_str),
                viewer.by_proxy,
                *client == ViewClient::Api,
                signed(*began_ms),
                OPEN,
            ])?;
            Ok(())
        }
        AuditChange::Seen(number, at_ms) => set_end(*number, *at_ms, OPEN),
        AuditChange::End(number, at_ms) => set_end(*number, *at_ms, ENDED),
        AuditChange::Action(entry) => {
            let mut insert =
                transaction.prepare_cached("INSERT INTO audit_actions VALUES (?1, ?2, ?3, ?4)")?;
            let AuditEntry { wall_ms, action, outcome, succeeded } = entry;
            insert.execute(params![signed(*wall_ms), action.as_str(), outcome.as_str(), succeeded])?;
            Ok(())
        }
    }
}

/// Deletes rows that are too old or too many. Of the views, it deletes those of the guest of a share who has most: no guest
/// can displace the views of another, or of another share, by connecting again and again.
fn prune(transaction: &Transaction<'_>, now_ms: u64) -> rusqlite::Result<()> {
    let oldest = signed(now_ms.saturating_sub(MAX_AGE_MS));
    transaction.execute("DELETE FROM audit_views WHERE began_ms < ?1 AND end <> 0", [oldest])?;
    transaction.execute("DELETE FROM audit_actions WHERE at_ms < ?1", [oldest])?;
    let count = |table: &str| -> rusqlite::Result<i64> {
        transaction.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))
    };
    let over = count("audit_views")? - MAX_ROWS;
    if over > 0 {
        transaction.execute(
            "DELETE FROM audit_views WHERE rowid IN (SELECT rowid FROM audit_views \
             WHERE (share, ifnull(user, ''), ifnull(address, '')) = \
             (SELECT share, ifnull(user, ''), ifnull(address, '') FROM audit_views \
             GROUP BY 1, 2, 3 ORDER BY count(*) DESC LIMIT 1) ORDER BY began_ms LIMIT ?1)",
            [over],
        )?;
    }
    let over = count("audit_actions")? - MAX_ROWS;
    if over > 0 {
        transaction.execute(
            "DELETE FROM audit_actions WHERE rowid IN (SELECT rowid FROM audit_actions ORDER BY at_ms LIMIT ?1)",
            [over],
        )?;
    }
    Ok(())
}

/// Returns whether an open view of another run, last confirmed at `seen_ms`, is no longer open.
fn is_lost(run: &RelayRun, (host, pid): (&str, u32), seen_ms: u64, now_ms: u64) -> bool {
    seen_ms.saturating_add(LOST_AFTER_MS) < now_ms || !run.may_live_beside(host, pid)
}

/// Parses a row; `None`, with a message, if it is not one of this build.
fn view(row: &Row<'_>, run: &RelayRun, now_ms: u64) -> rusqlite::Result<Option<View>> {
    let (host, pid, run_ms): (String, u32, u64) = (row.get(0)?, row.get(1)?, millis(row, 2)?);
    let (share, scope): (String, String) = (row.get(3)?, row.get(5)?);
    let (Ok(share), Ok(scope)) = (ShareId::new(share), serde_json::from_str(&scope)) else {
        tracing::warn!("a stored view cannot be read");
        return Ok(None);
    };
    let text = |at: usize| -> rusqlite::Result<Option<Text>> {
        Ok(row.get::<_, Option<String>>(at)?.map(Text::new))
    };
    let seen_ms = millis(row, 11)?;
    let is_own = host == run.host && pid == run.pid && run_ms == run.started_ms;
    let end = match row.get(12)? {
        OPEN if is_own || !is_lost(run, (&host, pid), seen_ms, now_ms) => ViewEnd::Open,
        ENDED => ViewEnd::Ended { at_ms: seen_ms },
        _ => ViewEnd::Unknown { seen_ms },
    };
    Ok(Some(View {
        share,
        label: text(4)?.unwrap_or_default(),
        scope,
        viewer: ViewerIdentity { user: text(6)?, address: text(7)?, by_proxy: row.get(8)? },
        client: if row.get(9)? { ViewClient::Api } else { ViewClient::Page },
        began_ms: millis(row, 10)?,
        end,
    }))
}

fn action(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    Ok(AuditEntry {
        wall_ms: millis(row, 0)?,
        action: Text::new(row.get::<_, String>(1)?),
        outcome: Text::new(row.get::<_, String>(2)?),
        succeeded: row.get(3)?,
    })
}

fn millis(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(at)?).unwrap_or(0))
}

#[cfg(test)]
mod tests;

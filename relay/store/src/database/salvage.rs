//! Copies what can be read of a damaged database to a new one, table by table.

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, Transaction, params_from_iter};
use std::path::{Path, PathBuf};

/// The tables, and what they hold.
const TABLES: [(&str, &str); 4] = [
    ("jobs", "jobs"),
    ("notes", "notes"),
    ("audit_views", "views in the audit log"),
    ("audit_actions", "actions in the audit log"),
];
/// Maximum number of rows that are read of a table in an order: pages of a damaged file may refer to each other without end.
const MAX_ROWS: usize = 100_000;

/// A damaged database that was set aside, and what was copied of it.
#[derive(Debug)]
pub struct Damaged {
    /// The path that it has now.
    pub kept: PathBuf,
    /// Content of its incomplete tables, and the number of rows that were copied of each.
    incomplete: Vec<(&'static str, usize)>,
}

impl Damaged {
    /// Copies what can be read of a file to a new database.
    pub(super) fn copy(kept: PathBuf, new: &mut Connection) -> Self {
        let incomplete = TABLES.into_iter().filter_map(|(table, title)| {
            let copied = source(&kept).and_then(|source| copy_table(&source, new, table));
            match copied.unwrap_or_default() {
                Copied { is_whole: true, .. } => None,
                Copied { rows, .. } => Some((title, rows)),
            }
        });
        let incomplete = incomplete.collect();
        Self { kept, incomplete }
    }

    /// Returns what happened, a sentence for the user.
    pub fn text(&self) -> String {
        let name = self.kept.file_name().unwrap_or_default().to_string_lossy();
        let parts: Vec<_> =
            self.incomplete.iter().map(|(title, rows)| format!("{title} ({rows} copied)")).collect();
        let missing = match parts.as_slice() {
            // A damaged table may have lost rows that nothing refers to.
            [] => "no row is known to be missing".to_owned(),
            parts => format!("incomplete are {}", parts.join(", ")),
        };
        format!(
            "the database of jobs was damaged, and what could be read was copied to a new one: {missing}. The damaged \
             file is kept as {name} in the state directory"
        )
    }
}

/// Number of rows that were copied of a table, and whether these are all.
#[derive(Default)]
struct Copied {
    rows: usize,
    is_whole: bool,
}

/// Opens the damaged file, whose content is trusted as little as possible.
fn source(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let source = Connection::open_with_flags(path, flags)?;
    source.pragma_update(None, "trusted_schema", false)?;
    source.pragma_update(None, "cell_size_check", true)?;
    Ok(source)
}

/// Copies the rows before the damage, and from the end those after it; all or none.
fn copy_table(source: &Connection, new: &mut Connection, table: &str) -> rusqlite::Result<Copied> {
    let transaction = new.transaction()?;
    let mut copied = Copied { rows: 0, is_whole: true };
    if let Some(last) = copy_rows(source, &transaction, table, ("ASC", i64::MIN), &mut copied)? {
        copied.is_whole = false;
        copy_rows(source, &transaction, table, ("DESC", last), &mut copied)?;
    }
    transaction.commit()?;
    Ok(copied)
}

/// Copies rows in the order of their rowids, up to one that is `end` or less. If damage ends it, returns the last rowid.
fn copy_rows(
    source: &Connection,
    new: &Transaction<'_>,
    table: &str,
    (order, end): (&str, i64),
    copied: &mut Copied,
) -> rusqlite::Result<Option<i64>> {
    let columns = new.prepare(&format!("SELECT * FROM {table} LIMIT 0"))?.column_names().join(", ");
    let places = vec!["?"; columns.split(", ").count()].join(", ");
    let mut insert = new.prepare(&format!("INSERT OR IGNORE INTO {table} ({columns}) VALUES ({places})"))?;
    let mut query =
        source.prepare(&format!("SELECT rowid, {columns} FROM {table} ORDER BY rowid {order}"))?;
    let width = query.column_count();
    let (mut rows, mut last) = (query.query([])?, end);
    for _ in 0..MAX_ROWS {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(None),
            Err(_) => break,
        };
        let values = (0..width).map(|column| value(row, column)).collect::<Option<Vec<_>>>();
        let Some([Value::Integer(rowid), values @ ..]) = values.as_deref() else {
            copied.is_whole = false;
            continue;
        };
        if *rowid <= end {
            return Ok(None);
        }
        last = *rowid;
        match insert.execute(params_from_iter(values)) {
            Ok(rows) => (copied.rows, copied.is_whole) = (copied.rows + rows, copied.is_whole && rows > 0),
            // A value is damaged.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                copied.is_whole = false;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Some(last))
}

/// Returns a value of a row, unless it is text that is not UTF-8, from which [`Row::get`] panics.
fn value(row: &Row<'_>, column: usize) -> Option<Value> {
    match row.get_ref(column).ok()? {
        ValueRef::Text(text) => Some(Value::Text(str::from_utf8(text).ok()?.to_owned())),
        value => Some(value.into()),
    }
}

//! Opens a database: the pragmas that our durability depends on, and forward-only migrations.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, config::DbConfig};

use super::disk_health::{fault_of, probe_disk};
use crate::{Error, Result};

/// Every migration ever shipped, in order. Never edit one; add the next.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_foundation.sql"),
    include_str!("migrations/0002_people.sql"),
    include_str!("migrations/0003_a2a.sql"),
    include_str!("migrations/0004_peers.sql"),
    include_str!("migrations/0005_delegations.sql"),
    include_str!("migrations/0006_shown.sql"),
    include_str!("migrations/0007_token_rotation.sql"),
    include_str!("migrations/0008_artifact_events.sql"),
    include_str!("migrations/0009_callers.sql"),
    include_str!("migrations/0010_clock.sql"),
    include_str!("migrations/0011_channel_tools.sql"),
    include_str!("migrations/0012_sessions.sql"),
    include_str!("migrations/0013_removal.sql"),
    include_str!("migrations/0014_makers.sql"),
    include_str!("migrations/0015_issuers.sql"),
    include_str!("migrations/0016_conversation_agents.sql"),
    include_str!("migrations/0017_paired_by.sql"),
    include_str!("migrations/0018_used_approvals.sql"),
    include_str!("migrations/0019_private_until.sql"),
    include_str!("migrations/0020_payers_and_agents.sql"),
    include_str!("migrations/0021_on_limit.sql"),
    include_str!("migrations/0022_run_search.sql"),
    include_str!("migrations/0023_saved_views.sql"),
    include_str!("migrations/0024_notifications.sql"),
    include_str!("migrations/0025_nodes.sql"),
    include_str!("migrations/0026_shared_values.sql"),
    include_str!("migrations/0027_writer_changes.sql"),
    include_str!("migrations/0028_worktree_decisions.sql"),
    include_str!("migrations/0029_passkeys.sql"),
    include_str!("migrations/0030_authors.sql"),
];

/// The connection of the single writer. Migrates the schema.
#[allow(clippy::disallowed_methods, reason = "this is the one place that opens a database")]
pub(super) fn writer(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path).map_err(|error| explain(path, &error))?;
    // `synchronous=full` flushes the log at every commit. The page size and the checkpoint distance were measured.
    connection
        .execute_batch(
            "pragma page_size = 4096; pragma journal_mode = wal; pragma synchronous = full;
             pragma wal_autocheckpoint = 4000; pragma busy_timeout = 5000; pragma cache_size = -4096;
             pragma temp_store = memory;",
        )
        .map_err(|error| explain(path, &error))?;
    tune(&connection, 256).map_err(|error| explain(path, &error))?;
    migrate(&connection, path)?;
    Ok(connection)
}

/// A connection that can only read.
pub(super) fn reader(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| explain(path, &error))?;
    connection
        .execute_batch("pragma query_only = on; pragma busy_timeout = 5000; pragma cache_size = -4096;")
        .map_err(|error| explain(path, &error))?;
    tune(&connection, 128).map_err(|error| explain(path, &error))?;
    Ok(connection)
}

/// Makes query plans independent of bound values. Otherwise SQLite prepares a statement again whenever a value changes,
/// which costs more than running it.
fn tune(connection: &Connection, statements: usize) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(statements);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

fn migrate(connection: &Connection, path: &Path) -> Result<()> {
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let version = version as usize;
    if version > MIGRATIONS.len() {
        return Err(Error::Unusable {
            what: format!("the database {} was written by a newer version of attache", path.display()),
            hint: "Update this program, or restore the backup that you made before the update.",
        });
    }
    for (index, sql) in MIGRATIONS.iter().enumerate().skip(version) {
        connection
            .execute_batch(&format!("begin immediate;\n{sql}\n;pragma user_version = {};\ncommit;", index + 1))
            .map_err(|error| explain(path, &error))?;
    }
    Ok(())
}

/// The newest version of the schema.
pub(super) const fn version() -> usize {
    MIGRATIONS.len()
}

/// The complete schema as one text, in order of creation.
pub(super) fn schema(connection: &Connection) -> rusqlite::Result<String> {
    let mut statement = connection.prepare("select sql from sqlite_master where sql is not null order by rowid")?;
    let parts = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(parts.iter().map(|part| format!("{part};\n")).collect())
}

fn explain(path: &Path, error: &rusqlite::Error) -> Error {
    match fault_of(error) {
        Some(fault) => Error::Unwritable(probe_disk(fault, path)),
        None => Error::Internal(format!("cannot open the database {}: {error}", path.display())),
    }
}

/// Creates a database as version 1 did, with these rows.
#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "no version of this program makes such a database any more")]
pub(super) fn of_version_1(path: &Path, rows: &str) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(&format!("{}\n{rows}\npragma user_version = 1;", MIGRATIONS[0])).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `schema.sql` is the schema of a new database. If this fails, apply the new migration's effect to it: the text on
    /// the left is the schema that the migrations produce.
    #[test]
    fn the_checked_in_schema_is_the_sum_of_the_migrations() {
        let folder = tempfile::tempdir().unwrap();
        let made = schema(&writer(&folder.path().join("new.db")).unwrap()).unwrap();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.sql");
        assert_eq!(made, std::fs::read_to_string(path).unwrap());
    }

    #[test]
    fn a_database_from_a_newer_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("newer.db");
        writer(&path).unwrap().execute_batch("pragma user_version = 999").unwrap();
        let error = writer(&path).unwrap_err().to_string();
        assert!(error.contains("a newer version of attache"), "{error}");
    }
}

//! Copies a database that is in use: one complete file, as of one moment.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, config::DbConfig};

use super::disk_health::fault_of;
use crate::{Error, Result, StorageFault};

/// Copies the database while its hub keeps writing. `to` must not exist. The copy is verified before this returns.
#[allow(clippy::disallowed_methods, reason = "it opens the database beside its hub, and never writes to it")]
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    // SQLite gets the path as text: another path must not receive the copy.
    let target = to.to_str().ok_or_else(|| Error::Internal(format!("the path {} is not UTF-8", to.display())))?;
    let source =
        Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(|error| explain(from, &error))?;
    source.execute_batch("pragma busy_timeout = 10000;").map_err(|error| explain(from, &error))?;
    // Leave the write-ahead log alone: it belongs to the hub.
    source.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(|error| explain(from, &error))?;
    // A single read transaction, which blocks no one. Copying page by page would start over with every write.
    source.execute("vacuum into ?1", [target]).map_err(|error| explain(to, &error))?;
    let copy =
        Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(|error| explain(to, &error))?;
    let verdict: String =
        copy.query_row("pragma quick_check(1)", [], |row| row.get(0)).map_err(|error| explain(to, &error))?;
    if verdict == "ok" { Ok(()) } else { Err(Error::Unwritable(StorageFault::Damaged)) }
}

fn explain(path: &Path, error: &rusqlite::Error) -> Error {
    match fault_of(error) {
        Some(fault) if fault != StorageFault::Io => Error::Unwritable(fault),
        _ => Error::Internal(format!("{}: {error}", path.display())),
    }
}

//! Copies a database from SQLite to PostgreSQL or back, for `attache migrate`. Nothing is left behind by a copy that fails: on
//! PostgreSQL it is one transaction, and a file gets its name when it is complete.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use attache_os::private_file;
use attache_protocol::TenantId;
use rusqlite::types::{ToSql, Value};

use super::{
    connection::{Connection, PostgresConnection, Row},
    database::{Database, WriterLock},
    open, open_postgres, owner, rows, streams,
};
use crate::{Error, Result, StorageFault};

/// How many rows are fetched from a server at once.
const ROWS_PER_FETCH: usize = 250;
/// How many rows of the log are verified at once.
const ROWS_PER_CHECK: usize = 1000;
/// How far the search index has come. The copy has none: the hub makes it again, behind its writes.
const SEARCH_POSITION: &str = "run_search_upto";

/// How far a copy has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationProgress {
    pub copied: u64,
    pub total: u64,
}

/// The rows that were copied and verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationSummary {
    pub tables: usize,
    pub rows: u64,
    /// Rows whose place in the hash chain was verified.
    pub log_rows: u64,
}

/// A table that both databases have.
struct CopiedTable {
    name: String,
    columns: Vec<String>,
}

/// A database file that isn't complete yet. Removed unless it gets its name.
struct DraftFile(PathBuf);

/// Copies everything from one database to the other, which is empty. No hub may serve either of them.
pub(super) fn migrate(
    from: &Database,
    to: &Database,
    progress: &mut dyn FnMut(MigrationProgress),
) -> Result<MigrationSummary> {
    match (from, to) {
        (Database::File(path), Database::Postgres(_)) => {
            refuse_missing(path)?;
            // The file last: from then on, it must be closed as it was found.
            let (target, _) = to.own()?;
            let (source, ownership) = from.own()?;
            let summary = fill_server(&source, &target, progress);
            drop(source);
            ownership.end(true);
            summary
        }
        (Database::Postgres(_), Database::File(path)) => {
            refuse_existing(path)?;
            let (source, _) = from.own()?;
            let Connection::Postgres(server) = &source else { unreachable!("it is on a server") };
            let owner = owner::become_owner(path)?;
            let mark = || open_postgres::mark_moved(server, path);
            let summary = fill_file(&source, path, &mark, progress).inspect_err(|_| {
                // Nothing was moved, so the source isn't marked as moved.
                let _ = open_postgres::unmark_moved(server);
            });
            WriterLock::File(owner).end(true);
            summary
        }
        (Database::File(_), Database::File(_)) => Err(Error::Unusable {
            what: "both are files".to_owned(),
            hint: "To copy a hub's data folder, use: attache backup",
        }),
        (Database::Postgres(_), Database::Postgres(_)) => Err(Error::Unusable {
            what: "both are on PostgreSQL".to_owned(),
            hint: "To copy a database between servers, use: pg_dump",
        }),
    }
}

/// Copies the database of a hub that may be running to a new file, as of one moment.
pub(super) fn export(from: &Database, to: &Path) -> Result<()> {
    let source = from.reader()?;
    if let Connection::Postgres(server) = &source {
        open_postgres::require_newest(server)?;
        open_postgres::refuse_moved(server)?;
    }
    fill_file(&source, to, &|| Ok(()), &mut |_| {}).map(drop)
}

fn refuse_missing(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.len() > 0 => Ok(()),
        Ok(_) | Err(_) => Err(Error::Unusable {
            what: format!("there is no database at {}", path.display()),
            hint: "Pass the hub's data folder.",
        }),
    }
}

fn refuse_existing(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(_) => Err(Error::Unusable {
            what: format!("{} exists already", path.display()),
            hint: "Nothing was changed. Move it away, or choose another folder.",
        }),
        Err(_) => Ok(()),
    }
}

fn fill_server(
    source: &Connection,
    target: &Connection,
    progress: &mut dyn FnMut(MigrationProgress),
) -> Result<MigrationSummary> {
    let Connection::Postgres(server) = target else { unreachable!("the caller connected to a server") };
    let tables = tables(source)?;
    for table in &tables {
        if count(target, &table.name)? > 0 {
            return Err(Error::Unusable {
                what: "the database on the server isn't empty".to_owned(),
                hint: "Nothing was changed. Create a new one with: createdb --encoding=UTF8 --template=template0 NAME",
            });
        }
    }
    // Reading a large row takes as long as it takes.
    server.execute_batch("set idle_in_transaction_session_timeout = 0")?;
    target.begin()?;
    let copied = source
        .snapshot(|source| copy(source, target, &tables, progress))
        .and_then(|summary| continue_numbers(server).map(|()| summary));
    match copied {
        Ok(summary) => {
            target.commit()?;
            // Plans of the first queries depend on it, and nothing else does.
            let _ = server.execute_batch("analyze");
            Ok(summary)
        }
        Err(error) => {
            let _ = target.roll_back();
            Err(error)
        }
    }
}

/// `before_named` is called when the copy is verified, right before the file gets its name.
fn fill_file(
    source: &Connection,
    path: &Path,
    before_named: &dyn Fn() -> Result<()>,
    progress: &mut dyn FnMut(MigrationProgress),
) -> Result<MigrationSummary> {
    refuse_existing(path)?;
    if let Connection::Postgres(server) = source {
        // Writing a large row takes as long as it takes.
        server.execute_batch("set idle_in_transaction_session_timeout = 0")?;
    }
    let draft = DraftFile::beside(path)?;
    let summary = {
        let target = Connection::Sqlite(open::writer(&draft.0)?);
        let tables = tables(&target)?;
        if count(source, "tenants")? == 0 {
            return Err(Error::Unusable {
                what: "the database on the server is empty".to_owned(),
                hint: "Check the name of the database in the URL.",
            });
        }
        target.begin()?;
        let summary = source.snapshot(|source| copy(source, &target, &tables, progress))?;
        target.commit()?;
        let Connection::Sqlite(file) = &target else { unreachable!("it was opened as a file") };
        let verdict: String = file.query_row("pragma quick_check(1)", [], |row| row.get(0))?;
        if verdict != "ok" {
            return Err(Error::Unwritable(StorageFault::Damaged));
        }
        file.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))?;
        summary
    };
    before_named()?;
    draft.complete(path)?;
    Ok(summary)
}

/// Copies the tables in the target's open transaction, and verifies the copy.
fn copy(
    source: &Connection,
    target: &Connection,
    tables: &[CopiedTable],
    progress: &mut dyn FnMut(MigrationProgress),
) -> Result<MigrationSummary> {
    let mut counts = Vec::with_capacity(tables.len());
    for table in tables {
        counts.push(count(source, &table.name)?);
    }
    let total = counts.iter().sum();
    let mut copied = 0;
    for table in tables {
        copy_table(source, target, table, &mut || {
            copied += 1;
            progress(MigrationProgress { copied, total });
        })?;
    }
    target.execute("delete from meta where key = ?1", [SEARCH_POSITION])?;
    for (table, expected) in tables.iter().zip(counts) {
        let found = count(target, &table.name)?;
        if found != expected && table.name != "meta" {
            return Err(Error::Internal(format!("{found} of {expected} rows of {} were copied", table.name)));
        }
    }
    let log_rows = verify_logs(source, target)?;
    Ok(MigrationSummary { tables: tables.len(), rows: total, log_rows })
}

fn copy_table(
    source: &Connection,
    target: &Connection,
    CopiedTable { name, columns }: &CopiedTable,
    copied: &mut dyn FnMut(),
) -> Result<()> {
    let placeholders: Vec<String> = (1..=columns.len()).map(|number| format!("?{number}")).collect();
    let columns_text = columns.join(", ");
    let insert = format!("insert into {name} ({columns_text}) values ({})", placeholders.join(", "));
    let mut insert = target.prepare_cached(&insert)?;
    for_each_row(source, name, &columns_text, &mut |row| {
        let values = (0..columns.len()).map(|column| row.get::<Value>(column)).collect::<rusqlite::Result<Vec<_>>>()?;
        let values: Vec<&dyn ToSql> = values.iter().map(|value| value as &dyn ToSql).collect();
        insert.execute_later(&*values)?;
        copied();
        Ok(())
    })
}

fn for_each_row(
    source: &Connection,
    table: &str,
    columns: &str,
    visit: &mut dyn FnMut(&Row<'_>) -> Result<()>,
) -> Result<()> {
    let select = format!("select {columns} from {table}");
    let mut read = |sql: &str| -> Result<usize> {
        let mut statement = source.prepare(sql)?;
        let mut rows = statement.query(())?;
        let mut read = 0;
        while let Some(row) = rows.next()? {
            visit(&row)?;
            read += 1;
        }
        Ok(read)
    };
    match source {
        Connection::Sqlite(_) => read(&select).map(drop),
        // Without a cursor, all rows would be in memory at once.
        Connection::Postgres(server) => {
            source.prepare(&format!("declare copied_{table} no scroll cursor for {select}"))?.execute(())?;
            while read(&format!("fetch {ROWS_PER_FETCH} from copied_{table}"))? == ROWS_PER_FETCH {}
            Ok(server.execute_batch(&format!("close copied_{table}"))?)
        }
    }
}

/// The tables of a SQLite database and their stored columns, without those of the search index.
fn tables(connection: &Connection) -> Result<Vec<CopiedTable>> {
    let texts = |sql: &str| -> Result<Vec<String>> {
        Ok(connection.prepare(sql)?.query_map((), |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
    };
    texts("select name from sqlite_master where type = 'table' and name not like 'run_search%' order by rowid")?
        .into_iter()
        // Generated columns aren't listed.
        .map(|name| Ok(CopiedTable { columns: texts(&format!("select name from pragma_table_info('{name}')"))?, name }))
        .collect()
}

pub(super) fn count(connection: &Connection, table: &str) -> Result<u64> {
    let count: i64 = connection.prepare(&format!("select count(*) from {table}"))?.query_row((), |row| row.get(0))?;
    Ok(u64::try_from(count).unwrap_or_default())
}

/// The server numbers new rows after the copied ones.
fn continue_numbers(server: &PostgresConnection) -> Result<()> {
    Ok(server.execute_batch(
        "do $$ declare numbered record; begin
            for numbered in select table_name, column_name from information_schema.columns
                where table_schema = current_schema() and is_identity = 'YES'
            loop
                execute format('select setval(pg_get_serial_sequence(%L, %L), coalesce(max(%I), 0) + 1, false) from %I',
                    numbered.table_name, numbered.column_name, numbered.column_name, numbered.table_name);
            end loop;
         end $$",
    )?)
}

/// Follows the hash chain of each tenant's log through the copy, and compares its end with the original's. Returns how many rows
/// there are.
fn verify_logs(source: &Connection, target: &Connection) -> Result<u64> {
    let tenants: Vec<TenantId> = target
        .prepare("select id from tenants order by no")?
        .query_map((), |row| row.get(0).map(rows::tenant_id))?
        .collect::<rusqlite::Result<_>>()?;
    let broken = |seq: i64| Error::Internal(format!("the copy's log breaks its hash chain at row {seq}"));
    let mut verified = 0;
    for tenant in tenants {
        let first = streams::log(target, tenant, 0, 0)?;
        let (mut seq, mut hash) = (first.floor, first.floor_hash);
        while seq < first.head {
            let page = streams::log(target, tenant, seq, ROWS_PER_CHECK)?;
            if page.rows.is_empty() {
                return Err(broken(seq + 1));
            }
            for row in page.rows {
                if row.seq != seq + 1 || !row.follows(&hash) {
                    return Err(broken(row.seq));
                }
                seq = row.seq;
                hash = attache_protocol::digest::unhex(&row.hash).ok_or_else(|| broken(seq))?;
                verified += 1;
            }
        }
        let original = streams::log(source, tenant, 0, 0)?;
        if (original.head, original.head_hash) != (seq, hash) {
            return Err(broken(seq));
        }
    }
    Ok(verified)
}

// === impl DraftFile ===

impl DraftFile {
    /// Next to the future file, readable only by this user. Leftovers of an interrupted copy are removed.
    fn beside(path: &Path) -> Result<Self> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push("-incomplete");
        let draft = Self(path.with_file_name(name));
        draft.remove();
        // SQLite gives the files beside it the same mode.
        private_file::create(&draft.0, b"").map_err(|error| draft.failed(&error))?;
        Ok(draft)
    }

    fn complete(self, path: &Path) -> Result<()> {
        File::open(&self.0).and_then(|file| file.sync_all()).map_err(|error| self.failed(&error))?;
        fs::rename(&self.0, path).map_err(|error| self.failed(&error))?;
        // Not every file system can flush a folder.
        let _ = path.parent().map(File::open).transpose().map(|folder| folder.map(|folder| folder.sync_all()));
        Ok(())
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        match StorageFault::of_io(error) {
            Some(fault) => Error::Unwritable(fault),
            None => Error::Internal(format!("cannot write {}: {error}", self.0.display())),
        }
    }

    fn remove(&self) {
        for suffix in ["", "-wal", "-shm"] {
            let mut file = self.0.clone().into_os_string();
            file.push(suffix);
            let _ = fs::remove_file(file);
        }
    }
}

impl Drop for DraftFile {
    fn drop(&mut self) {
        self.remove();
    }
}

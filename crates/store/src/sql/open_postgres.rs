//! Opens a database on PostgreSQL: checks the server, and makes or migrates the schema.

use std::{
    cmp::Ordering,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::{
    connection::{PostgresConnection, PostgresServer},
    disk_health::fault_of,
    open,
};
use crate::{Error, Result, StorageFault};

/// The oldest server that is supported, as `server_version_num` says it.
const OLDEST_SERVER: i64 = 150_000;
/// Held by the node that migrates the schema.
const MIGRATION_LOCK: i64 = 0x6174_7461_6368_6502;
/// How long the server may take to notice that the hub that served the database has ended.
const HUB_LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const HUB_LOCK_INTERVAL: Duration = Duration::from_millis(50);
/// What to check when there is no connection.
const CONNECT_HINT: &str =
    "Check that PostgreSQL is running, and check the host, port, user, password and database in the URL.";
const NO_TLS_HINT: &str = "Turn on TLS on the server (ssl = on). If nobody else can read the network in between, add sslmode=disable to the URL.";
const MOVED_HINT: &str = "Start the hub on that file: leave out --database-url and ATTACHE_DATABASE_URL, and pass its folder with --data. To use this database anyway, without what was stored since, remove its table moved_database.";
/// The schema of version [`FIRST_VERSION`].
const SCHEMA: &str = include_str!("../../schema.postgres.sql");
/// The version with which PostgreSQL began. Versions count the migrations of both databases.
const FIRST_VERSION: usize = 24;
/// What came after [`FIRST_VERSION`], in order. Never edit one; add the next, with the number that it has for SQLite.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0025_nodes.postgres.sql"),
    include_str!("migrations/0026_shared_values.postgres.sql"),
    include_str!("migrations/0027_writer_changes.postgres.sql"),
    include_str!("migrations/0028_worktree_decisions.postgres.sql"),
    include_str!("migrations/0029_passkeys.postgres.sql"),
    include_str!("migrations/0030_authors.postgres.sql"),
];

pub(super) fn writer(server: &PostgresServer) -> Result<PostgresConnection> {
    let connection = connect(server)?;
    check(&connection)?;
    migrate(&connection)?;
    let deadline = Instant::now() + HUB_LOCK_TIMEOUT;
    while !connection.take_hub_lock(server.sharing)? {
        if Instant::now() >= deadline {
            return Err(Error::Unwritable(StorageFault::ServedElsewhere));
        }
        thread::sleep(HUB_LOCK_INTERVAL);
    }
    refuse_moved(&connection)?;
    connection.become_writer(server)?;
    Ok(connection)
}

/// From now on, no hub uses this database: it has moved to a file.
pub(super) fn mark_moved(connection: &PostgresConnection, to: &Path) -> Result<()> {
    let to = std::path::absolute(to).unwrap_or_else(|_| to.to_owned());
    let to = to.display().to_string().replace('\'', "''");
    Ok(connection.execute_batch(&format!(
        "begin; create table moved_database (place text not null); insert into moved_database values ('{to}'); commit"
    ))?)
}

pub(super) fn unmark_moved(connection: &PostgresConnection) -> Result<()> {
    Ok(connection.execute_batch("drop table if exists moved_database")?)
}

/// Two hubs, on the database and on its copy, would go different ways unnoticed.
pub(super) fn refuse_moved(connection: &PostgresConnection) -> Result<()> {
    let marks = "select count(*) from pg_tables where tablename = 'moved_database' and schemaname = current_schema()";
    if connection.number(marks)? == 0 {
        return Ok(());
    }
    let place = connection.text("select coalesce(max(place), 'a file') from moved_database")?;
    Err(Error::Unusable { what: format!("the database was moved to {place}"), hint: MOVED_HINT })
}

pub(super) fn connect(server: &PostgresServer) -> Result<PostgresConnection> {
    server.connect().map_err(|error| match fault_of(&error) {
        _ if error.to_string().contains("does not support TLS") => {
            Error::Unusable { what: format!("the database server has no TLS: {error}"), hint: NO_TLS_HINT }
        }
        Some(StorageFault::Unreachable) => Error::DatabaseUnreachable(error.to_string()),
        _ => Error::Unusable { what: format!("can't connect to the database: {error}"), hint: CONNECT_HINT },
    })
}

fn check(connection: &PostgresConnection) -> Result<()> {
    if connection.number("select current_setting('server_version_num')::bigint")? < OLDEST_SERVER {
        return Err(Error::Unusable {
            what: format!("the server is PostgreSQL {}", connection.text("show server_version")?),
            hint: "Use PostgreSQL 15 or newer.",
        });
    }
    if connection.text("show server_encoding")? != "UTF8" {
        return Err(Error::Unusable {
            what: "the database isn't in UTF-8".to_owned(),
            hint: "Create one with: createdb --encoding=UTF8 --template=template0 NAME",
        });
    }
    Ok(())
}

/// For readers, which don't migrate the schema.
pub(super) fn require_newest(connection: &PostgresConnection) -> Result<()> {
    let version = match connection.number("select count(*) from pg_tables where tablename = 'schema_version'")? {
        0 => 0,
        _ => connection.number("select coalesce((select version from schema_version), 0)")?,
    };
    match usize::try_from(version).unwrap_or(usize::MAX).cmp(&newest_version()) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(written_by_a_newer_version()),
        Ordering::Less => Err(Error::Unusable {
            what: "no hub of this version has used the database".to_owned(),
            hint: "Check the URL, and start this version's hub on it once.",
        }),
    }
}

fn written_by_a_newer_version() -> Error {
    Error::Unusable {
        what: "the database was written by a newer version of attache".to_owned(),
        hint: "Update this program, or restore the backup that you made before the update.",
    }
}

const fn newest_version() -> usize {
    FIRST_VERSION + MIGRATIONS.len()
}

/// One node migrates, the others wait for it.
fn migrate(connection: &PostgresConnection) -> Result<()> {
    let newest = newest_version();
    debug_assert_eq!(newest, open::version(), "both databases count the same migrations");
    connection.execute_batch(&format!("begin; select pg_advisory_xact_lock({MIGRATION_LOCK})"))?;
    connection.execute_batch("create table if not exists schema_version (version bigint not null)")?;
    let version = connection.number("select coalesce((select version from schema_version), 0)")?;
    let version = usize::try_from(version).unwrap_or(usize::MAX);
    if version > newest {
        connection.execute_batch("rollback")?;
        return Err(written_by_a_newer_version());
    }
    let mut sql = String::new();
    if version == 0 {
        sql += SCHEMA;
    }
    for migration in MIGRATIONS.iter().skip(version.saturating_sub(FIRST_VERSION)) {
        sql += migration;
    }
    if version < newest {
        sql += &format!("delete from schema_version; insert into schema_version (version) values ({newest});");
    }
    connection.execute_batch(&format!("{sql} commit"))?;
    Ok(())
}

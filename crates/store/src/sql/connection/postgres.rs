//! A connection to PostgreSQL, used by one thread at a time. Statements whose answer nobody needs are sent at once and
//! waited for together with the next one, so that a transaction costs few round trips.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::future::{join, join_all};
use rusqlite::{ffi, types::ToSql};
use tokio_postgres::{Client, error::SqlState};

use super::{
    ConcurrentWrites, Error, Result,
    dialect::{Translation, to_postgres},
    parts::{PostgresParts, cursor_of},
    recently_used::RecentlyUsed,
    tls::TlsConnector,
    values::Parameter,
};
use crate::sql::DatabaseSharing;

/// How many lists of changes are kept for writers that haven't read them, and how often older ones are removed.
const KEPT_CHANGES: i64 = 20_000;
const CHANGES_PER_REMOVAL: i64 = 1_000;
/// Where writers notify each other.
pub(in crate::sql) const NOTICES: &str = "attache";

/// How long the server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How many statements may be on their way before their answers are waited for.
const MAX_ON_THE_WAY: usize = 256;
/// How many statements the server keeps prepared for one connection.
const MAX_STATEMENTS: usize = 256;
/// Held by the one writer of all nodes that writes now. Any number works that nothing else uses in this database.
const WRITER_LOCK: i64 = 0x6174_7461_6368_6501;
/// Held by every hub for as long as it runs.
const HUB_LOCK: i64 = 0x6174_7461_6368_6503;

/// SQLite's code that stands for a connection that is broken or can't be made.
const CONNECTION_LOST: i32 = ffi::SQLITE_PROTOCOL;

type PgResult<T> = std::result::Result<T, tokio_postgres::Error>;
type OnTheWay = Pin<Box<dyn Future<Output = PgResult<u64>> + Send>>;

/// Where the database is and how to reach it.
#[derive(Clone)]
pub(in crate::sql) struct PostgresServer {
    pub(in crate::sql) sharing: DatabaseSharing,
    pub(in crate::sql) config: tokio_postgres::Config,
    pub(in crate::sql) tls: TlsConnector,
    /// The number of the writer on its newest connection, for telling its own notices from those of others.
    pub(in crate::sql) writer: Arc<AtomicI64>,
}

pub(in crate::sql) struct PostgresConnection {
    /// Drives the connection while its thread waits for an answer, and at no other time.
    runtime: tokio::runtime::Runtime,
    client: Arc<Client>,
    statements: RefCell<RecentlyUsed<PreparedStatement>>,
    on_the_way: RefCell<Vec<OnTheWay>>,
    total_changes: Cell<u64>,
    transaction: Cell<TransactionState>,
    sharing: DatabaseSharing,
    /// The number of this writer. 0 is none.
    writer: Cell<i64>,
    /// The newest list of changes that this writer has read or written. `None` if it has to read everything.
    known_changes: Cell<Option<i64>>,
    /// The list that the open transaction has written.
    new_changes: Cell<Option<i64>>,
}

pub(in crate::sql) struct PostgresStatement<'c> {
    connection: &'c PostgresConnection,
    prepared: PreparedStatement,
    /// The cursor that it declares, if its result is fetched part by part.
    cursor: Option<String>,
}

#[derive(Clone)]
struct PreparedStatement {
    statement: tokio_postgres::Statement,
    /// See [`Translation::values`].
    values: Arc<[usize]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransactionState {
    None,
    Open,
    /// A statement failed, and its caller knows. PostgreSQL refuses everything until the job is undone.
    Failed,
    /// A statement failed that was believed to succeed. Nothing of the transaction may be kept.
    Lost,
}

// === impl PostgresServer ===

impl PostgresServer {
    pub(in crate::sql) fn connect(&self) -> Result<PostgresConnection> {
        let unreachable = |why: String| failure(CONNECTION_LOST, why);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| unreachable(error.to_string()))?;
        let client = runtime.block_on(async {
            let connecting = tokio::time::timeout(CONNECT_TIMEOUT, self.config.connect(self.tls.clone()));
            let connected = connecting
                .await
                .map_err(|_| unreachable(format!("PostgreSQL did not answer within {CONNECT_TIMEOUT:?}")))?;
            let (client, connection) = connected.map_err(|error| of_postgres(&error))?;
            // It ends with the runtime. Its errors reach whoever waits for an answer.
            tokio::spawn(async move { drop(connection.await) });
            Ok::<_, Error>(client)
        })?;
        Ok(PostgresConnection {
            runtime,
            client: Arc::new(client),
            statements: RefCell::new(RecentlyUsed::new(MAX_STATEMENTS)),
            on_the_way: RefCell::default(),
            total_changes: Cell::new(0),
            transaction: Cell::new(TransactionState::None),
            sharing: self.sharing,
            writer: Cell::new(0),
            known_changes: Cell::new(None),
            new_changes: Cell::new(None),
        })
    }
}

// === impl PostgresConnection ===

impl PostgresConnection {
    /// Waits for `asked`, which is sent after everything that is on its way.
    fn wait<T>(&self, asked: impl Future<Output = PgResult<T>>) -> Result<T> {
        let before = self.on_the_way.take();
        let (before, answer) = self.runtime.block_on(join(join_all(before), asked));
        let lost = before.into_iter().find_map(|changed| self.arrived(changed).err());
        match (lost, answer) {
            (Some(lost), _) => Err(lost),
            (None, Ok(answer)) => Ok(answer),
            (None, Err(error)) => {
                if self.transaction.get() == TransactionState::Open {
                    self.transaction.set(TransactionState::Failed);
                }
                Err(of_postgres(&error))
            }
        }
    }

    /// Sends `asked`. The next one who waits gets its failure.
    fn send(&self, asked: impl Future<Output = PgResult<u64>> + Send + 'static) -> Result<()> {
        let mut asked: OnTheWay = Box::pin(asked);
        // The first poll makes the message and hands it to the connection.
        if let Poll::Ready(done) = asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return self.arrived(done);
        }
        self.on_the_way.borrow_mut().push(asked);
        if self.on_the_way.borrow().len() < MAX_ON_THE_WAY { Ok(()) } else { self.wait(async { Ok(()) }) }
    }

    fn arrived(&self, changed: PgResult<u64>) -> Result<()> {
        match changed {
            Ok(_) => Ok(()),
            Err(error) => {
                self.transaction.set(TransactionState::Lost);
                Err(of_postgres(&error))
            }
        }
    }

    /// Prepares a statement in SQLite's dialect, once per connection as long as it is used. The server forgets those that are
    /// dropped.
    pub(super) fn prepare(&self, sql: &str) -> Result<PostgresStatement<'_>> {
        let known = self.statements.borrow_mut().get(sql);
        let prepared = match known {
            Some(prepared) => prepared,
            None => {
                let Translation { sql: said, values } = to_postgres(sql);
                let statement = self.wait(self.client.prepare(&said)).map_err(|error| with_statement(error, &said))?;
                let prepared = PreparedStatement { statement, values: values.into() };
                self.statements.borrow_mut().put(sql, prepared.clone());
                prepared
            }
        };
        Ok(PostgresStatement { connection: self, prepared, cursor: None })
    }

    /// The same for a query with a large result, inside a transaction.
    pub(super) fn prepare_in_parts(&self, sql: &str) -> Result<PostgresStatement<'_>> {
        let cursor = cursor_of(sql);
        let statement = self.prepare(&format!("declare {cursor} no scroll cursor for {sql}"))?;
        Ok(PostgresStatement { cursor: Some(cursor), ..statement })
    }

    pub(in crate::sql) fn execute_batch(&self, sql: &str) -> Result<()> {
        self.wait(self.client.batch_execute(sql))
    }

    fn execute_batch_later(&self, sql: &'static str) -> Result<()> {
        let client = Arc::clone(&self.client);
        self.send(async move { client.batch_execute(sql).await.map(|()| 0) })
    }

    pub(super) fn begin(&self, how: &'static str) -> Result<()> {
        self.transaction.set(TransactionState::Open);
        self.execute_batch_later(how)
    }

    pub(super) fn commit(&self) -> Result<()> {
        if self.transaction.get() != TransactionState::Open {
            return Err(failure(ffi::SQLITE_ERROR, "a statement of the transaction failed".to_owned()));
        }
        // An error before the commit itself leaves nothing behind, which `Lost` says.
        self.wait(async { Ok(()) })?;
        self.execute_batch("commit")?;
        self.transaction.set(TransactionState::None);
        if let Some(new) = self.new_changes.take() {
            self.known_changes.set(Some(new));
        }
        Ok(())
    }

    pub(super) fn roll_back(&self) -> Result<()> {
        drop(self.on_the_way.take());
        self.new_changes.set(None);
        self.execute_batch("rollback")?;
        self.transaction.set(TransactionState::None);
        Ok(())
    }

    pub(super) fn savepoint(&self) -> Result<()> {
        self.execute_batch_later("savepoint job")
    }

    pub(super) fn release_savepoint(&self) -> Result<()> {
        self.execute_batch_later("release job")
    }

    pub(super) fn roll_back_to_savepoint(&self) -> Result<()> {
        // What is on its way belongs to this job or to earlier ones; of those, none may have failed.
        let _ = self.wait(async { Ok(()) });
        if self.transaction.get() == TransactionState::Lost {
            return Err(failure(ffi::SQLITE_ERROR, "a statement of the transaction failed".to_owned()));
        }
        self.transaction.set(TransactionState::Open);
        self.execute_batch("rollback to job")
    }

    pub(super) const fn has_other_writers(&self) -> bool {
        matches!(self.sharing, DatabaseSharing::WithOthers)
    }

    /// See [`super::Connection::take_turn`].
    pub(super) fn take_turn(&self) -> Result<ConcurrentWrites> {
        self.prepare("select pg_advisory_xact_lock(?1)")?.execute_later(&[&WRITER_LOCK])?;
        match self.sharing {
            DatabaseSharing::Alone => self.take_lonely_turn(),
            DatabaseSharing::WithOthers => self.changes_of_others(),
        }
    }

    /// Another writer can only have come in between while this connection didn't exist.
    fn take_lonely_turn(&self) -> Result<ConcurrentWrites> {
        let holder: i64 = self.number("select holder from writer_turn")?;
        if holder == self.writer.get() {
            return Ok(ConcurrentWrites::None);
        }
        self.prepare("update writer_turn set holder = ?1")?.execute_later(&[&self.writer.get()])?;
        Ok(ConcurrentWrites::Unknown)
    }

    fn changes_of_others(&self) -> Result<ConcurrentWrites> {
        let Some(known) = self.known_changes.get() else { return Ok(ConcurrentWrites::Unknown) };
        // The list that is known comes along: if it is gone, those after it may be, too.
        let rows = self
            .prepare(
                "select no, case when no > ?1 then changes else '' end from writer_changes where no >= ?1
                 order by no limit ?2",
            )?
            .query(&[&known, &(KEPT_CHANGES + 1)])?;
        let lists = rows.iter().map(super::Row::Postgres);
        let mut lists =
            lists.map(|row| Ok((row.get(0)?, row.get(1)?))).collect::<Result<Vec<(i64, String)>>>()?.into_iter();
        if lists.next().is_none_or(|(no, _)| no != known) {
            return Ok(ConcurrentWrites::Unknown);
        }
        let (numbers, changes): (Vec<i64>, Vec<String>) = lists.unzip();
        Ok(match numbers.last() {
            None => ConcurrentWrites::None,
            Some(_) if numbers.len() >= usize::try_from(KEPT_CHANGES).unwrap_or(usize::MAX) => {
                ConcurrentWrites::Unknown
            }
            Some(upto) => ConcurrentWrites::Listed { changes, upto: *upto },
        })
    }

    /// See [`super::Connection::caught_up`].
    pub(super) fn caught_up(&self, upto: Option<i64>) -> Result<()> {
        if !self.has_other_writers() {
            return Ok(());
        }
        let newest = match upto {
            Some(upto) => upto,
            None => match self.number("select coalesce(max(no), 0) from writer_changes")? {
                0 => self.add_changes("{}")?,
                newest => newest,
            },
        };
        self.known_changes.set(Some(newest));
        Ok(())
    }

    /// See [`super::Connection::tell_others`].
    pub(super) fn tell_others(&self, changes: Option<&str>, notices: &[String]) -> Result<()> {
        for notice in notices {
            self.prepare("select pg_notify(?1, ?2)")?
                .execute_later(&[&NOTICES, &format!("{} {notice}", self.writer.get())])?;
        }
        if let Some(changes) = changes {
            let no = self.add_changes(changes)?;
            self.new_changes.set(Some(no));
            if no % CHANGES_PER_REMOVAL == 0 {
                self.prepare("delete from writer_changes where no < ?1")?.execute_later(&[&(no - KEPT_CHANGES)])?;
            }
        }
        Ok(())
    }

    fn add_changes(&self, changes: &str) -> Result<i64> {
        let rows = self.prepare("insert into writer_changes (changes) values (?1) returning no")?.query(&[&changes])?;
        super::Row::Postgres(rows.first().ok_or(Error::QueryReturnedNoRows)?).get(0)
    }

    /// Takes the lock that is held until the connection ends, however that happens. False if another store wants to be
    /// alone, or this one does and isn't.
    pub(in crate::sql) fn take_hub_lock(&self, sharing: DatabaseSharing) -> Result<bool> {
        let lock = match sharing {
            DatabaseSharing::Alone => "select pg_try_advisory_lock(?1)",
            DatabaseSharing::WithOthers => "select pg_try_advisory_lock_shared(?1)",
        };
        let rows = self.prepare(lock)?.query(&[&HUB_LOCK])?;
        super::Row::Postgres(rows.first().ok_or(Error::QueryReturnedNoRows)?).get(0)
    }

    /// Becomes a writer, unlike every one before.
    pub(in crate::sql) fn become_writer(&self, server: &PostgresServer) -> Result<()> {
        // A writer that is paused in the middle of a transaction must not stop the others for longer than this.
        self.execute_batch("set idle_in_transaction_session_timeout = '3s'")?;
        self.writer.set(self.number("select nextval('writers')")?);
        server.writer.store(self.writer.get(), Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn is_standby(&self) -> Result<bool> {
        self.number("select pg_is_in_recovery()").map(|standby| standby != 0)
    }

    pub(in crate::sql) fn number(&self, sql: &str) -> Result<i64> {
        let rows = self.prepare(sql)?.query(&[])?;
        super::Row::Postgres(rows.first().ok_or(Error::QueryReturnedNoRows)?).get(0)
    }

    pub(in crate::sql) fn text(&self, sql: &str) -> Result<String> {
        let rows = self.prepare(sql)?.query(&[])?;
        super::Row::Postgres(rows.first().ok_or(Error::QueryReturnedNoRows)?).get(0)
    }

    /// Whether PostgreSQL refuses every further statement of the transaction.
    pub(super) fn is_aborted(&self) -> bool {
        matches!(self.transaction.get(), TransactionState::Failed | TransactionState::Lost)
    }

    /// Reads first what the server sent since the last statement, which may be its farewell.
    pub(super) fn is_lost(&self) -> bool {
        self.runtime.block_on(async {
            // The socket, the connection's task, and the end of the task each take a turn.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        });
        self.client.is_closed()
    }

    pub(super) const fn total_changes(&self) -> u64 {
        self.total_changes.get()
    }

    pub(super) fn is_autocommit(&self) -> bool {
        self.transaction.get() == TransactionState::None
    }
}

// === impl PostgresStatement ===

impl PostgresStatement<'_> {
    fn parameters(&self, values: &[&dyn ToSql]) -> Result<Vec<Parameter>> {
        let value = |index: &usize| values.get(*index).ok_or(Error::InvalidParameterCount(values.len(), index + 1));
        self.prepared.values.iter().map(|index| Parameter::of(*value(index)?)).collect()
    }

    pub(super) fn execute(&self, values: &[&dyn ToSql]) -> Result<usize> {
        let parameters = self.parameters(values)?;
        let changed =
            self.connection.wait(self.connection.client.execute_raw(&self.prepared.statement, &parameters))?;
        self.connection.total_changes.set(self.connection.total_changes.get() + changed);
        Ok(usize::try_from(changed).unwrap_or(usize::MAX))
    }

    /// The next query changes one row, which its result doesn't say.
    pub(super) fn changes_a_row(&self) {
        self.connection.total_changes.set(self.connection.total_changes.get() + 1);
    }

    pub(super) fn execute_later(&self, values: &[&dyn ToSql]) -> Result<()> {
        // Counted now, as a row: its answer comes while another job runs, which would seem to have changed something.
        self.changes_a_row();
        self.send(values)
    }

    fn send(&self, values: &[&dyn ToSql]) -> Result<()> {
        let parameters = self.parameters(values)?;
        let (client, statement) = (Arc::clone(&self.connection.client), self.prepared.statement.clone());
        self.connection.send(async move { client.execute_raw(&statement, &parameters).await })
    }

    /// The rows one after the other. `None` for a statement whose result comes whole.
    pub(super) fn parts(&self, values: &[&dyn ToSql]) -> Option<Result<PostgresParts<'_>>> {
        let cursor = self.cursor.as_deref()?;
        Some(PostgresParts::open(self.connection, cursor, || self.send(values)))
    }

    pub(super) fn query(&self, values: &[&dyn ToSql]) -> Result<Vec<tokio_postgres::Row>> {
        use futures_util::TryStreamExt as _;
        let parameters = self.parameters(values)?;
        let client = &self.connection.client;
        self.connection
            .wait(async { client.query_raw(&self.prepared.statement, &parameters).await?.try_collect().await })
    }
}

fn failure(code: i32, text: String) -> Error {
    Error::SqliteFailure(ffi::Error::new(code), Some(text))
}

/// SQLite's code for the same fault.
fn of_postgres(error: &tokio_postgres::Error) -> Error {
    let Some(said) = error.as_db_error() else {
        // Not the server but the way to it.
        return failure(CONNECTION_LOST, format!("PostgreSQL: {}", with_sources(error)));
    };
    let code = match said.code() {
        code if *code == SqlState::DISK_FULL => ffi::SQLITE_FULL,
        code if *code == SqlState::READ_ONLY_SQL_TRANSACTION => ffi::SQLITE_READONLY,
        code if *code == SqlState::DATA_CORRUPTED || *code == SqlState::INDEX_CORRUPTED => ffi::SQLITE_CORRUPT,
        // The server ends, or ended this connection.
        code if code.code().starts_with("57P") || code.code().starts_with("08") || code.code() == "25P03" => {
            CONNECTION_LOST
        }
        code if code.code().starts_with("23") => ffi::SQLITE_CONSTRAINT,
        _ => ffi::SQLITE_ERROR,
    };
    failure(code, format!("PostgreSQL: {} ({})", said.message(), said.code().code()))
}

fn with_sources(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |error| error.source())
        .fold(error.to_string(), |text, source| format!("{text}: {source}"))
}

fn with_statement(error: Error, sql: &str) -> Error {
    match error {
        Error::SqliteFailure(code, text) => {
            Error::SqliteFailure(code, Some(format!("{} in: {sql}", text.unwrap_or_default())))
        }
        error => error,
    }
}

//! The seam between our statements and the two databases that run them: SQLite in this process, PostgreSQL elsewhere.
//!
//! Every statement is written once, in the part of SQL that both speak, and with SQLite's placeholders (`?1`).
//! [`dialect`] says it to PostgreSQL. Values and columns convert with the traits of `rusqlite`, and its error codes stand
//! for the same faults of both.

mod dialect;
mod parts;
mod postgres;
mod recently_used;
mod tls;
mod values;

use std::borrow::Cow;

use rusqlite::types::{FromSql, FromSqlError, ToSql, Type, ValueRef};
pub(super) use rusqlite::{Error, Result};

use self::{parts::PostgresParts, postgres::PostgresStatement};
pub(super) use self::{
    postgres::{NOTICES, PostgresConnection, PostgresServer},
    tls::TlsConnector,
};

/// One connection to a database.
#[allow(clippy::large_enum_variant, reason = "there are a handful, and each lives as long as its thread")]
pub(super) enum Connection {
    Sqlite(rusqlite::Connection),
    Postgres(PostgresConnection),
}

/// A prepared statement.
pub(super) enum Statement<'c> {
    Sqlite(rusqlite::Statement<'c>),
    Cached(rusqlite::CachedStatement<'c>),
    Postgres(PostgresStatement<'c>),
}

/// A row of a result.
#[derive(Clone, Copy)]
pub(super) enum Row<'r> {
    Sqlite(&'r rusqlite::Row<'r>),
    Postgres(&'r tokio_postgres::Row),
}

/// Rows that are read one after the other.
pub(super) enum Rows<'s> {
    Sqlite(rusqlite::Rows<'s>),
    Postgres { rows: std::vec::IntoIter<tokio_postgres::Row>, current: Option<tokio_postgres::Row> },
    Parts { rows: PostgresParts<'s>, current: Option<tokio_postgres::Row> },
}

/// Rows that are converted as they are read.
pub(super) struct MappedRows<'s, F> {
    rows: Rows<'s>,
    map: F,
}

/// What other writers did between two transactions of one.
#[derive(Debug)]
pub(super) enum ConcurrentWrites {
    /// Nothing that changed what writers remember.
    None,
    /// One text per transaction, in order. The number of the last one is `upto`.
    Listed { changes: Vec<String>, upto: i64 },
    /// Perhaps more than is listed.
    Unknown,
}

/// The values of a statement's placeholders.
pub(super) trait Params {
    fn with<R>(&self, run: impl FnOnce(&[&dyn ToSql]) -> R) -> R;
}

/// No row is not a failure.
pub(super) trait OptionalExtension<T> {
    fn optional(self) -> Result<Option<T>>;
}

// === impl Connection ===

impl Connection {
    pub(super) fn prepare(&self, sql: &str) -> Result<Statement<'_>> {
        match self {
            Self::Sqlite(connection) => connection.prepare(sql).map(Statement::Sqlite),
            Self::Postgres(connection) => connection.prepare(sql).map(Statement::Postgres),
        }
    }

    /// The connection remembers the statement for the next time.
    pub(super) fn prepare_cached(&self, sql: &str) -> Result<Statement<'_>> {
        match self {
            Self::Sqlite(connection) => connection.prepare_cached(sql).map(Statement::Cached),
            Self::Postgres(connection) => connection.prepare(sql).map(Statement::Postgres),
        }
    }

    /// The same for a query whose rows can be large or many, and which is read until there is enough. Only inside a
    /// transaction; a query doesn't run twice at the same time.
    pub(super) fn prepare_in_parts(&self, sql: &str) -> Result<Statement<'_>> {
        match self {
            Self::Sqlite(connection) => connection.prepare_cached(sql).map(Statement::Cached),
            Self::Postgres(connection) => connection.prepare_in_parts(sql).map(Statement::Postgres),
        }
    }

    pub(super) fn execute(&self, sql: &str, params: impl Params) -> Result<usize> {
        self.prepare_cached(sql)?.execute(params)
    }

    pub(super) fn query_row<T>(
        &self,
        sql: &str,
        params: impl Params,
        map: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<T> {
        self.prepare_cached(sql)?.query_row(params, map)
    }

    /// Statements without values and results.
    pub(super) fn execute_batch(&self, sql: &str) -> Result<()> {
        match self {
            Self::Sqlite(connection) => connection.execute_batch(sql),
            Self::Postgres(connection) => connection.execute_batch(sql),
        }
    }

    /// Begins the writer's transaction.
    pub(super) fn begin(&self) -> Result<()> {
        match self {
            Self::Sqlite(connection) => connection.prepare_cached("begin immediate")?.execute([]).map(drop),
            Self::Postgres(connection) => connection.begin("begin"),
        }
    }

    pub(super) fn commit(&self) -> Result<()> {
        match self {
            Self::Sqlite(connection) => connection.prepare_cached("commit")?.execute([]).map(drop),
            Self::Postgres(connection) => connection.commit(),
        }
    }

    pub(super) fn roll_back(&self) -> Result<()> {
        match self {
            Self::Sqlite(connection) => connection.execute_batch("rollback"),
            Self::Postgres(connection) => connection.roll_back(),
        }
    }

    /// Marks a point that [`Self::roll_back_to_savepoint`] returns to.
    pub(super) fn savepoint(&self) -> Result<()> {
        match self {
            Self::Sqlite(connection) => connection.prepare_cached("savepoint job")?.execute([]).map(drop),
            Self::Postgres(connection) => connection.savepoint(),
        }
    }

    pub(super) fn release_savepoint(&self) -> Result<()> {
        match self {
            Self::Sqlite(connection) => connection.prepare_cached("release job")?.execute([]).map(drop),
            Self::Postgres(connection) => connection.release_savepoint(),
        }
    }

    pub(super) fn roll_back_to_savepoint(&self) -> Result<()> {
        match self {
            Self::Sqlite(connection) => connection.prepare_cached("rollback to job")?.execute([]).map(drop),
            Self::Postgres(connection) => connection.roll_back_to_savepoint(),
        }
    }

    /// The condition for rows of `run_search s` that a query matches: words with `AND`, `OR`, brackets and `*` at the end.
    pub(super) fn search_condition(&self, query: &str) -> String {
        match self {
            Self::Sqlite(_) => format!("s.run_search match {query}"),
            // Words are in lowercase.
            Self::Postgres(_) => format!(
                "array_to_tsvector(string_to_array(s.grams, ' '))
                    @@ cast(replace(replace(replace({query}, 'AND', '&'), 'OR', '|'), '*', ':*') as tsquery)"
            ),
        }
    }

    /// Whether other writers may write between this one's transactions.
    pub(super) const fn has_other_writers(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::Postgres(connection) => connection.has_other_writers(),
        }
    }

    /// What other writers did since this connection's last transaction. Called at the start of each, and waits for those
    /// of other writers to end.
    pub(super) fn take_turn(&self) -> Result<ConcurrentWrites> {
        match self {
            Self::Sqlite(_) => Ok(ConcurrentWrites::None),
            Self::Postgres(connection) => connection.take_turn(),
        }
    }

    /// The writer knows everything that was committed before this transaction: `upto` as [`ConcurrentWrites::Listed`] says
    /// it, or because it has read everything.
    pub(super) fn caught_up(&self, upto: Option<i64>) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(connection) => connection.caught_up(upto),
        }
    }

    /// Tells the other writers of this transaction: what it `changes` of what they remember, and what they shall wake.
    pub(super) fn tell_others(&self, changes: Option<&str>, notices: &[String]) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(connection) => connection.tell_others(changes, notices),
        }
    }

    /// Whether nothing can ever be written on this connection.
    pub(super) fn is_readonly(&self) -> Result<bool> {
        match self {
            Self::Sqlite(connection) => connection.is_readonly("main"),
            Self::Postgres(connection) => connection.is_standby(),
        }
    }

    /// Whether the database refuses the rest of the transaction because a statement failed.
    pub(super) fn is_aborted(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::Postgres(connection) => connection.is_aborted(),
        }
    }

    /// How many rows were changed on this connection.
    pub(super) fn total_changes(&self) -> u64 {
        match self {
            Self::Sqlite(connection) => connection.total_changes(),
            Self::Postgres(connection) => connection.total_changes(),
        }
    }

    /// Whether it has ended and must be opened again.
    pub(super) fn is_lost(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::Postgres(connection) => connection.is_lost(),
        }
    }

    /// Whether no transaction is open.
    pub(super) fn is_autocommit(&self) -> bool {
        match self {
            Self::Sqlite(connection) => connection.is_autocommit(),
            Self::Postgres(connection) => connection.is_autocommit(),
        }
    }

    /// Runs reads on one consistent view.
    pub(super) fn snapshot<T, E: From<Error>>(
        &self,
        read: impl FnOnce(&Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        match self {
            Self::Sqlite(connection) => {
                let _snapshot = connection.unchecked_transaction()?;
                read(self)
            }
            Self::Postgres(connection) => {
                connection.begin("begin isolation level repeatable read read only")?;
                let answer = read(self);
                connection.roll_back()?;
                answer
            }
        }
    }
}

// === impl Statement ===

impl Statement<'_> {
    /// Returns how many rows were changed.
    pub(super) fn execute(&mut self, params: impl Params) -> Result<usize> {
        params.with(|values| match self {
            Self::Sqlite(statement) => statement.execute(values),
            Self::Cached(statement) => statement.execute(values),
            Self::Postgres(statement) => statement.execute(values),
        })
    }

    /// Inserts a row, and returns the number that the database gave it: the statement ends with `returning`.
    pub(super) fn insert(&mut self, params: impl Params) -> Result<i64> {
        if let Self::Postgres(statement) = self {
            statement.changes_a_row();
        }
        self.query_row(params, |row| row.get(0))
    }

    /// Like [`Self::execute`] for a statement that can only fail if the database does: nobody waits for PostgreSQL's
    /// answer before the commit.
    pub(super) fn execute_later(&mut self, params: impl Params) -> Result<()> {
        params.with(|values| match self {
            Self::Sqlite(statement) => statement.execute(values).map(drop),
            Self::Cached(statement) => statement.execute(values).map(drop),
            Self::Postgres(statement) => statement.execute_later(values),
        })
    }

    /// The first row. [`Error::QueryReturnedNoRows`] if there is none.
    pub(super) fn query_row<T>(&mut self, params: impl Params, map: impl FnOnce(&Row<'_>) -> Result<T>) -> Result<T> {
        params.with(|values| match self {
            Self::Sqlite(statement) => statement.query_row(values, |row| map(&Row::Sqlite(row))),
            Self::Cached(statement) => statement.query_row(values, |row| map(&Row::Sqlite(row))),
            Self::Postgres(statement) => {
                let rows = statement.query(values)?;
                map(&Row::Postgres(rows.first().ok_or(Error::QueryReturnedNoRows)?))
            }
        })
    }

    pub(super) fn query(&mut self, params: impl Params) -> Result<Rows<'_>> {
        params.with(|values| {
            Ok(match self {
                Self::Sqlite(statement) => Rows::Sqlite(statement.query(values)?),
                Self::Cached(statement) => Rows::Sqlite(statement.query(values)?),
                Self::Postgres(statement) => match statement.parts(values) {
                    Some(rows) => Rows::Parts { rows: rows?, current: None },
                    None => Rows::Postgres { rows: statement.query(values)?.into_iter(), current: None },
                },
            })
        })
    }

    pub(super) fn query_map<T, F: FnMut(&Row<'_>) -> Result<T>>(
        &mut self,
        params: impl Params,
        map: F,
    ) -> Result<MappedRows<'_, F>> {
        Ok(MappedRows { rows: self.query(params)?, map })
    }

    /// Whether there is a row.
    pub(super) fn exists(&mut self, params: impl Params) -> Result<bool> {
        params.with(|values| match self {
            Self::Sqlite(statement) => statement.exists(values),
            Self::Cached(statement) => statement.exists(values),
            Self::Postgres(statement) => statement.query(values).map(|rows| !rows.is_empty()),
        })
    }
}

// === impl Row ===

impl Row<'_> {
    pub(super) fn get<T: FromSql>(&self, column: usize) -> Result<T> {
        let row = match self {
            Self::Sqlite(row) => return row.get(column),
            Self::Postgres(row) => row,
        };
        let value = values::column(row, column)?;
        let converted = match value {
            ValueRef::Text(text) => T::column_result(ValueRef::Text(&values::unescaped(text))),
            value => T::column_result(value),
        };
        converted.map_err(|error| conversion_failure(column, value.data_type(), error))
    }

    /// A text, without a copy where that is possible.
    pub(super) fn text(&self, column: usize) -> Result<Cow<'_, str>> {
        match self {
            Self::Sqlite(row) => Ok(row.get_ref(column)?.as_str()?.into()),
            Self::Postgres(_) => self.get::<String>(column).map(Cow::Owned),
        }
    }

    /// The last column.
    pub(super) fn last<T: FromSql>(&self) -> Result<T> {
        self.get(match self {
            Self::Sqlite(row) => row.as_ref().column_count() - 1,
            Self::Postgres(row) => row.len() - 1,
        })
    }
}

fn conversion_failure(column: usize, found: Type, error: FromSqlError) -> Error {
    match error {
        FromSqlError::InvalidType => Error::InvalidColumnType(column, column.to_string(), found),
        FromSqlError::OutOfRange(number) => Error::IntegralValueOutOfRange(column, number),
        error => Error::FromSqlConversionFailure(column, found, Box::new(error)),
    }
}

// === impl Rows ===

impl Rows<'_> {
    pub(super) fn next(&mut self) -> Result<Option<Row<'_>>> {
        match self {
            Self::Sqlite(rows) => Ok(rows.next()?.map(Row::Sqlite)),
            Self::Postgres { rows, current } => {
                *current = rows.next();
                Ok(current.as_ref().map(Row::Postgres))
            }
            Self::Parts { rows, current } => {
                *current = rows.next()?;
                Ok(current.as_ref().map(Row::Postgres))
            }
        }
    }
}

// === impl MappedRows ===

impl<T, F: FnMut(&Row<'_>) -> Result<T>> Iterator for MappedRows<'_, F> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.rows.next() {
            Ok(row) => row.map(|row| (self.map)(&row)),
            Err(error) => Some(Err(error)),
        }
    }
}

// === impl Params ===

impl Params for &[&dyn ToSql] {
    fn with<R>(&self, run: impl FnOnce(&[&dyn ToSql]) -> R) -> R {
        run(self)
    }
}

impl<T: ToSql, const N: usize> Params for [T; N] {
    fn with<R>(&self, run: impl FnOnce(&[&dyn ToSql]) -> R) -> R {
        run(&self.each_ref().map(|value| value as &dyn ToSql))
    }
}

/// For `[]`, whose element type nothing else says.
impl Params for () {
    fn with<R>(&self, run: impl FnOnce(&[&dyn ToSql]) -> R) -> R {
        run(&[])
    }
}

// === impl OptionalExtension ===

impl<T> OptionalExtension<T> for Result<T> {
    fn optional(self) -> Result<Option<T>> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(Error::QueryReturnedNoRows) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

//! A result of PostgreSQL that is fetched part by part, through a cursor of the transaction: what the reader doesn't get to
//! is never sent, and of a large result only a part is in memory.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use rusqlite::types::ToSql;

use super::{Result, postgres::PostgresConnection};

/// How many rows are fetched at first. A row can have some megabytes.
const FIRST: usize = 16;
/// A part aims at this many bytes, and has no more rows than [`MOST`].
const AIM: usize = 1 << 20;
const MOST: usize = 256;

/// Rows that are left, and those that were fetched.
pub(in crate::sql) struct PostgresParts<'c> {
    connection: &'c PostgresConnection,
    cursor: &'c str,
    rows: std::vec::IntoIter<tokio_postgres::Row>,
    /// How many to fetch next. None after the last part.
    next: Option<usize>,
}

/// The name of a query's cursor, so that statements that use it can be kept.
pub(super) fn cursor_of(sql: &str) -> String {
    let mut hasher = DefaultHasher::new();
    sql.hash(&mut hasher);
    format!("parts_{:016x}", hasher.finish())
}

// === impl PostgresParts ===

impl<'c> PostgresParts<'c> {
    /// Opens the cursor that `declare`, a statement of the connection, makes.
    pub(super) fn open(
        connection: &'c PostgresConnection,
        cursor: &'c str,
        declare: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        declare()?;
        Ok(Self { connection, cursor, rows: Vec::new().into_iter(), next: Some(FIRST) })
    }

    pub(super) fn next(&mut self) -> Result<Option<tokio_postgres::Row>> {
        if let Some(row) = self.rows.next() {
            return Ok(Some(row));
        }
        let Some(count) = self.next else { return Ok(None) };
        let none: &[&dyn ToSql] = &[];
        let fetched = self.connection.prepare(&format!("fetch forward {count} from {}", self.cursor))?.query(none)?;
        let bytes: usize = fetched.iter().map(tokio_postgres::Row::raw_size_bytes).sum();
        self.next = (fetched.len() == count).then(|| next_count(count, bytes));
        self.rows = fetched.into_iter();
        Ok(self.rows.next())
    }
}

impl Drop for PostgresParts<'_> {
    fn drop(&mut self) {
        // It ends with the transaction in any case. In one that has failed, nothing can be said any more.
        if !self.connection.is_aborted() && !self.connection.is_autocommit() {
            let closed = self.connection.prepare(&format!("close {}", self.cursor));
            let _ = closed.and_then(|statement| statement.execute_later(&[]));
        }
    }
}

/// A power of four, so that there are few statements.
const fn next_count(count: usize, bytes: usize) -> usize {
    let fitting = count.saturating_mul(AIM) / if bytes == 0 { 1 } else { bytes };
    let mut next = 1;
    while next * 4 <= fitting && next * 4 <= count * 4 && next < MOST {
        next *= 4;
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_until_they_have_the_size_that_is_wanted() {
        assert_eq!(next_count(4, 400), 16);
        assert_eq!(next_count(16, 1600), 64);
        assert_eq!(next_count(64, 6400), 256);
        assert_eq!(next_count(256, 25_600), 256);
        assert_eq!(next_count(4, 12 << 20), 1, "rows of three megabytes come one by one");
        assert_eq!(next_count(256, 64 << 20), 4);
        assert_eq!(next_count(4, 0), 16);
    }
}

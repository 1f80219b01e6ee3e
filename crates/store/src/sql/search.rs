//! The index by which runs are found: the grams of their texts (see [`crate::search`]), whose they are, and their cost.
//!
//! It is filled behind the writes: a run that is created, claimed and completed costs nothing for it. Runs above
//! [`indexed_upto`] are few and are read instead.

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use super::connection::{Connection, OptionalExtension as _};
use attache_protocol::{Actor, AgentId, Json, TenantId, Timestamp, UserId, wire::usage::ReportedUsage};
use rusqlite::params;

use super::{
    rows::{self, IdBytes},
    writer::WriteTransaction,
};
use crate::{
    Result,
    record::{RunFilter, RunRecord},
    search::{NameMatches, RequiredGrams, grams, required_grams, searchable_texts},
};

/// How many runs are indexed at once, and how much text of theirs, so that a write never waits for long.
const RUNS_PER_STEP: i64 = 256;
const BYTES_PER_STEP: usize = 128 << 10;

/// How far a creation time may lie before that of something created earlier.
const OUT_OF_ORDER: Duration = Duration::from_secs(60 * 60);

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    /// Indexes the next runs. Returns true if more are left.
    pub(super) fn index_runs(&self) -> Result<bool> {
        let from = indexed_upto(self.connection)?;
        let mut statement = self.connection.prepare_in_parts(&format!(
            "select {} from task_runs r cross join agent_accounts a on a.id = r.agent
             where r.id > ?1 order by r.id limit ?2",
            rows::RUN
        ))?;
        let mut rows = statement.query([from, RUNS_PER_STEP])?;
        let (mut upto, mut read, mut bytes) = (from, 0, 0);
        while let Some(row) = rows.next()? {
            upto = row.get(0)?;
            read += 1;
            // A row that can't be read isn't found either.
            if let Some(run) = rows::readable("task_runs", upto, rows::run(&row))? {
                let document = document(&run);
                bytes += document.len();
                self.connection
                    .prepare_cached("insert into run_search (rowid, grams) values (?1, ?2)")?
                    .execute(params![upto, document])?;
                if let Some(cost) = run.cost() {
                    self.connection
                        .prepare_cached(
                            "update task_runs set micro_usd = ?2 where id = ?1 and micro_usd is distinct from ?2",
                        )?
                        .execute(params![upto, stored_cost(cost)])?;
                }
            }
            if bytes >= BYTES_PER_STEP {
                break;
            }
        }
        if upto > from {
            self.set_number("run_search_upto", upto)?;
        }
        Ok(bytes >= BYTES_PER_STEP || read == RUNS_PER_STEP)
    }

    /// Removes a run from the index, if it is in there.
    pub(super) fn unindex_run(&self, row: i64) -> Result<()> {
        if row <= indexed_upto(self.connection)? {
            self.connection.prepare_cached("delete from run_search where rowid = ?1")?.execute([row])?;
        }
        Ok(())
    }
}

/// A run that isn't indexed yet.
pub(super) fn next_unindexed(connection: &Connection) -> Result<Option<i64>> {
    Ok(connection
        .prepare_cached("select id from task_runs where id > ?1 order by id limit 1")?
        .query_row([indexed_upto(connection)?], |row| row.get(0))
        .optional()?)
}

/// Runs up to this row are indexed.
pub(super) fn indexed_upto(connection: &Connection) -> Result<i64> {
    Ok(connection
        .prepare_cached("select value from meta where key = 'run_search_upto'")?
        .query_row((), |row| row.get(0))
        .optional()?
        .unwrap_or(0))
}

/// The cost that the usage tells of, as it is stored.
pub(super) fn cost_of(usage: Option<&Json>) -> Option<i64> {
    ReportedUsage::of(usage).micro_usd.map(stored_cost)
}

/// A cost as it is stored. What is too large to be stored is as much as can be.
pub(super) fn stored_cost(micro_usd: u64) -> i64 {
    i64::try_from(micro_usd).unwrap_or(i64::MAX)
}

/// The agents and people whose names contain the words, which are in lowercase.
pub(super) fn named(connection: &Connection, tenant: TenantId, words: &str) -> Result<NameMatches> {
    let tenant = IdBytes(tenant.uuid());
    let find = |table: &str| -> Result<Vec<[u8; 16]>> {
        let mut found = Vec::new();
        let mut statement = connection.prepare_cached(&format!("select id, name from {table} where tenant = ?1"))?;
        let mut rows = statement.query([&tenant])?;
        while let Some(row) = rows.next()? {
            let name: String = row.get(1)?;
            if name.to_lowercase().contains(words) {
                found.push(row.get(0)?);
            }
        }
        Ok(found)
    };
    let agents = find("agent_accounts")?.into_iter().map(rows::agent_id).collect();
    let users = find("users")?.into_iter().map(rows::user_id).collect();
    Ok(NameMatches { agents, users })
}

/// What the index is asked for a filter. `None` if it can't narrow this search.
pub(super) fn query(filter: &RunFilter, named: &NameMatches) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(agent) = filter.agent {
        parts.push(of_agent(agent));
    }
    if let Some(user) = filter.user {
        parts.push(of_user(user));
    }
    if let Some(words) = filter.text.as_deref() {
        let mut any = match required_grams(words) {
            RequiredGrams::All(grams) => vec![grams.iter().map(|gram| token(gram)).collect::<Vec<_>>().join(" AND ")],
            RequiredGrams::Prefix(prefix) if prefix.is_empty() => return None,
            RequiredGrams::Prefix(prefix) => vec![format!("{}*", token(&prefix))],
        };
        for agent in &named.agents {
            any.extend([of_agent(*agent), by_agent(*agent)]);
        }
        any.extend(named.users.iter().map(|user| of_user(*user)));
        parts.push(format!("({})", any.iter().map(|part| format!("({part})")).collect::<Vec<_>>().join(" OR ")));
    }
    (!parts.is_empty()).then(|| parts.join(" AND "))
}

/// The rows that may have been created in the period: at or after the first one, below the second.
pub(super) fn rows_of_period(
    connection: &Connection,
    since: Option<Timestamp>,
    before: Option<Timestamp>,
) -> Result<(i64, i64)> {
    let first = since.map(|since| first_row(connection, since.minus(OUT_OF_ORDER))).transpose()?;
    let end = before.map(|before| first_row(connection, before.plus(OUT_OF_ORDER))).transpose()?;
    Ok((first.unwrap_or(0), end.unwrap_or(i64::MAX)))
}

/// A row that was created at this time or later, and whose predecessor wasn't. Rows are nearly in order of creation, so
/// halving the range finds one.
fn first_row(connection: &Connection, at: Timestamp) -> Result<i64> {
    let mut statement = connection
        .prepare_cached("select id, created from task_runs not indexed where id >= ?1 order by id limit 1")?;
    let newest: Option<i64> =
        connection.prepare_cached("select max(id) from task_runs")?.query_row((), |row| row.get(0))?;
    let (mut low, mut high) = (0, newest.unwrap_or(0) + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let found = statement.query_row([middle], |row| Ok((row.get::<i64>(0)?, rows::time(row, 1)?))).optional()?;
        match found {
            Some((id, created)) if created < at => low = id + 1,
            Some(_) | None => high = middle,
        }
    }
    Ok(low)
}

/// What the index has of a run.
fn document(run: &RunRecord) -> String {
    let mut all = BTreeSet::new();
    for text in searchable_texts(run) {
        grams(&text, &mut all);
    }
    let mut document = of_agent(run.agent);
    if let Some(user) = run.user {
        document.extend([" ", &of_user(user)]);
    }
    if let Actor::Agent(agent) = run.caller {
        document.extend([" ", &by_agent(agent)]);
    }
    for gram in &all {
        document.push(' ');
        document.push_str(&token(gram));
    }
    document
}

/// A gram as a word for the index. Letters and digits alone, so no text of a run or a search is ever syntax.
fn token(gram: &str) -> String {
    gram.bytes().fold(String::from("g"), |mut token, byte| {
        let _ = write!(token, "{byte:02x}");
        token
    })
}

fn of_agent(agent: AgentId) -> String {
    format!("a{}", agent.uuid().simple())
}

fn by_agent(agent: AgentId) -> String {
    format!("c{}", agent.uuid().simple())
}

fn of_user(user: UserId) -> String {
    format!("u{}", user.uuid().simple())
}

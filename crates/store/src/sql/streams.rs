//! Reads the log and a run's own stream.

use super::connection::{Connection, OptionalExtension as _, Row};
use attache_protocol::{
    Json, RunId, TenantId, Timestamp, digest,
    log::{self, GENESIS},
    wire::event::Event,
};
use rusqlite::params;

use super::{
    log_keys::LogKeys,
    rows::{self, IdBytes, RunState},
};
use crate::{
    Error, MAX_PAGE_BYTES, Result, entry,
    output_search::{OutputSearch, SearchStep},
    record::{LogPage, OutlineScope, OutputMatches, RunEvents, RunOutline},
    run_outline::OutlineBuilder,
    weight::{self, PageWeight as _, PageWeightLimit},
};

pub(super) fn run_events(
    connection: &Connection,
    tenant: TenantId,
    run: RunId,
    after: i64,
    limit: usize,
) -> Result<RunEvents> {
    let (hot, ended, result) = connection
        .prepare_cached(&format!(
            "select {}, ended, result from task_runs where uid = ?1 and tenant = ?2",
            rows::RUN_STATE
        ))?
        .query_row([IdBytes(run.uuid()), IdBytes(tenant.uuid())], |row| {
            Ok((rows::run_state(row)?, rows::maybe_time(row, 10)?, rows::maybe_json(row, 11)?))
        })
        .optional()?
        .ok_or(Error::NotFound)?;
    let log = log_of(connection, hot.tenant)?;
    let floor = floor(connection, &hot, ended, log.floor)?;
    let after = after.max(floor);
    let mut events = chunks(connection, hot.row, after, limit)?;
    let mut scales = PageWeightLimit::new(MAX_PAGE_BYTES);
    for place in hot.life.0.iter().filter(|(run_seq, _)| *run_seq > after).take(limit) {
        let event = life_event(connection, &log, *place, result.as_ref())?;
        let fits = scales.takes(event.weight());
        events.push(event);
        // The rest already exceeds the size of a page.
        if !fits {
            break;
        }
    }
    events.sort_by_key(|event| event.seq);
    // If one of the two sources ended early, the other may continue beyond it: a stream must not have gaps.
    let whole = events.iter().zip(after.saturating_add(1)..).take_while(|(event, seq)| event.seq == *seq).count();
    events.truncate(whole.min(limit));
    events.truncate(weight::fitting(&events));
    Ok(RunEvents { events, floor, last_seq: hot.last_seq, status: hot.state.status() })
}

/// See [`crate::Store::run_outline`].
pub(super) fn run_outline(
    connection: &Connection,
    tenant: TenantId,
    run: RunId,
    upto: i64,
    shown: OutlineScope,
) -> Result<RunOutline> {
    let (hot, ended, result) = connection
        .prepare_cached(&format!(
            "select {}, ended, result from task_runs where uid = ?1 and tenant = ?2",
            rows::RUN_STATE
        ))?
        .query_row([IdBytes(run.uuid()), IdBytes(tenant.uuid())], |row| {
            Ok((rows::run_state(row)?, rows::maybe_time(row, 10)?, rows::maybe_json(row, 11)?))
        })
        .optional()?
        .ok_or(Error::NotFound)?;
    let log = log_of(connection, hot.tenant)?;
    let floor = floor(connection, &hot, ended, log.floor)?;
    let mut outline = OutlineBuilder::new(floor);
    let mut newest = connection.prepare_in_parts(
        "select seq, type, at, data from chunks where run = ?1 and seq between ?2 and ?3 order by seq desc",
    )?;
    let mut artifacts = connection.prepare_in_parts(
        "select seq, type, at, data from chunks indexed by chunks_artifacts
         where run = ?1 and seq between ?2 and ?3 and type = 'artifact.changed' order by seq desc",
    )?;
    if shown == OutlineScope::Everything {
        outline.newest(newest.query_map([hot.row, floor + 1, upto], event)?)?;
    }
    let before = outline.reached(upto);
    outline.take(artifacts.query_map([hot.row, floor + 1, before], event)?)?;
    let life = hot.life.0.iter().rev().filter(|(run_seq, _)| *run_seq > floor && *run_seq <= upto);
    outline.take(life.map(|place| life_event(connection, &log, *place, result.as_ref())))?;
    Ok(outline.done())
}

/// See [`crate::Store::output_matches`].
pub(super) fn output_matches(
    connection: &Connection,
    tenant: TenantId,
    run: RunId,
    words: &str,
    limit: usize,
) -> Result<OutputMatches> {
    let (hot, ended) = connection
        .prepare_cached(&format!("select {}, ended from task_runs where uid = ?1 and tenant = ?2", rows::RUN_STATE))?
        .query_row([IdBytes(run.uuid()), IdBytes(tenant.uuid())], |row| {
            Ok((rows::run_state(row)?, rows::maybe_time(row, 10)?))
        })
        .optional()?
        .ok_or(Error::NotFound)?;
    let log = log_of(connection, hot.tenant)?;
    let floor = floor(connection, &hot, ended, log.floor)?;
    let mut search = OutputSearch::new(words, limit);
    let mut statement =
        connection.prepare_in_parts("select seq, type, data from chunks where run = ?1 and seq > ?2 order by seq")?;
    let mut rows = statement.query([hot.row, floor])?;
    while let Some(row) = rows.next()? {
        // What can't be read has no words.
        let text = |column| row.text(column).unwrap_or_default();
        if search.take(row.get(0)?, &text(1), &text(2)) == SearchStep::Full {
            break;
        }
    }
    Ok(search.done())
}

fn life_event(
    connection: &Connection,
    log: &LogBounds,
    (run_seq, seq): (i64, i64),
    result: Option<&Json>,
) -> rusqlite::Result<Event> {
    let (kind, at, data): (String, i64, Json) = connection
        .prepare_cached("select type, at, data from log where key = ?1")?
        .query_row([log.keys.at(seq)], |row| Ok((row.get(0)?, row.get(1)?, rows::json(row, 2)?)))?;
    let data = match result {
        Some(result) if entry::shows_output(&kind) => entry::with_output(&data, result),
        _ => data,
    };
    Ok(Event { seq: run_seq, kind, at: Timestamp::from_millis(at), data })
}

/// Reads `seq, type, at, data`.
fn event(row: &Row<'_>) -> rusqlite::Result<Event> {
    Ok(Event { seq: row.get(0)?, kind: row.get(1)?, at: rows::time(row, 2)?, data: rows::json(row, 3)? })
}

/// Everything up to here may be gone: chunks by age, lifecycle events with the front of the log.
fn floor(connection: &Connection, hot: &RunState, ended: Option<Timestamp>, log_floor: i64) -> Result<i64> {
    let chunks_before: Option<i64> = connection
        .prepare_cached("select value from meta where key = 'chunks_before'")?
        .query_row((), |row| row.get(0))
        .optional()?;
    let old = ended.zip(chunks_before).is_some_and(|(ended, before)| ended.millis() < before);
    let by_age = if old { hot.last_seq - 1 } else { 0 };
    let by_log = hot.life.0.iter().filter(|(_, seq)| *seq <= log_floor).map(|(run_seq, _)| *run_seq).max();
    Ok(by_age.max(by_log.unwrap_or(0)))
}

/// As many as fit on a page, plus one.
fn chunks(connection: &Connection, row: i64, after: i64, limit: usize) -> Result<Vec<Event>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection
        .prepare_in_parts("select seq, type, at, data from chunks where run = ?1 and seq > ?2 order by seq limit ?3")?;
    let (mut events, mut scales) = (Vec::new(), PageWeightLimit::new(MAX_PAGE_BYTES));
    for chunk in statement.query_map(params![row, after, limit], event)? {
        let chunk = chunk?;
        let fits = scales.takes(chunk.weight());
        events.push(chunk);
        if !fits {
            break;
        }
    }
    Ok(events)
}

pub(super) fn log(connection: &Connection, tenant: TenantId, after: i64, limit: usize) -> Result<LogPage> {
    let LogBounds { keys, floor, floor_hash } = log_of(connection, tenant)?;
    let [_, last] = keys.all();
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(
        "select seq, at, actor, type, run, run_seq, data, hash from log where key > ?1 and key <= ?2
         order by key limit ?3",
    )?;
    let mut scales = PageWeightLimit::new(MAX_PAGE_BYTES);
    let rows = statement
        .query_map([keys.at(after), last, limit], |row| {
            Ok(log::LogRow {
                seq: row.get(0)?,
                at: rows::time(row, 1)?,
                actor: row.get(2)?,
                kind: row.get(3)?,
                run: row.get::<Option<_>>(4)?.map(rows::run_id),
                run_seq: row.get(5)?,
                data: rows::json(row, 6)?,
                withheld: false,
                data_digest: None,
                hash: digest::hex(&row.get::<[u8; 32]>(7)?),
            })
        })?
        .take_while(|row| row.as_ref().map_or(true, |row| scales.takes(row.weight())))
        .collect::<rusqlite::Result<_>>()?;
    let head = connection
        .prepare_cached("select seq, hash from log where key between ?1 and ?2 order by key desc limit 1")?
        .query_row(keys.all(), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let (head, head_hash) = head.unwrap_or((floor, floor_hash));
    Ok(LogPage { rows, head, head_hash, floor, floor_hash })
}

/// The position of a tenant's log in the table, and what retention left of it.
struct LogBounds {
    keys: LogKeys,
    floor: i64,
    floor_hash: [u8; 32],
}

fn log_of(connection: &Connection, tenant: TenantId) -> Result<LogBounds> {
    Ok(connection
        .prepare_cached("select no, log_floor, log_floor_hash from tenants where id = ?1")?
        .query_row([IdBytes(tenant.uuid())], |row| {
            Ok(LogBounds { keys: LogKeys::of(row.get(0)?), floor: row.get(1)?, floor_hash: row.get(2)? })
        })
        .optional()?
        .unwrap_or(LogBounds { keys: LogKeys::of(0), floor: 0, floor_hash: GENESIS }))
}

//! Runs as A2A lists them. There is no index for it, which every run would have to pay for: one agent's or one
//! conversation's runs are walked, and only those on the page are read completely.

use std::cmp::Reverse;

use super::connection::{Connection, Row};
use attache_protocol::{Actor, Json, TenantId, Timestamp, rules::run::RunStatus};
use rusqlite::ToSql;
use serde::Deserialize;

use super::{
    lists::{self, IndexQuery},
    rows::{self, IdBytes},
};
use crate::{
    Error, MAX_PAGE_BYTES, Result,
    record::{
        Pagination, RunFilter, RunRecord,
        task::{RunOwner, RunTaskState, TaskCursor, TaskFilter, TaskItem, TaskPage},
    },
    weight::{PageWeight as _, PageWeightLimit},
};

/// The part of a run's request that identifies its owner.
#[derive(Deserialize)]
struct CallerOfRequest {
    caller: Actor,
}

pub(super) fn tasks(
    connection: &Connection,
    tenant: TenantId,
    filter: &TaskFilter,
    page: &Pagination,
) -> Result<TaskPage> {
    let before = match &page.cursor {
        None => None,
        Some(cursor) => Some(cursor.parse::<TaskCursor>().map_err(|_| Error::NotFound)?),
    };
    let mut places = walk(connection, tenant, filter)?;
    let total = u64::try_from(places.len()).unwrap_or(u64::MAX);
    places.retain(|place| before.is_none_or(|before| *place < before));
    places.sort_unstable_by_key(|place| Reverse(*place));
    let limit = page.limit.max(1);
    let (mut items, mut scales) = (Vec::new(), PageWeightLimit::new(MAX_PAGE_BYTES));
    for place in &places {
        let item = TaskItem { run: record(connection, place.number)?, cursor: place.to_string() };
        if items.len() >= limit || !scales.takes(item.weight()) {
            break;
        }
        items.push(item);
    }
    let next = items.last().filter(|_| items.len() < places.len()).map(|item| item.cursor.clone());
    Ok(TaskPage { items, next, total })
}

/// The positions of all matching tasks.
fn walk(connection: &Connection, tenant: TenantId, filter: &TaskFilter) -> Result<Vec<TaskCursor>> {
    let (tenant, newest, agent) = (IdBytes(tenant.uuid()), i64::MAX, IdBytes(filter.agent.uuid()));
    let conversation = filter.conversation.map(|conversation| IdBytes(conversation.uuid()));
    let (user, caller) = match &filter.of {
        Some(RunOwner::User(user)) => (Some(IdBytes(user.uuid())), None),
        Some(RunOwner::Caller(caller)) => (None, Some(caller)),
        None => (None, None),
    };
    // `?3` is the limit of other lists.
    let mut values: Vec<&dyn ToSql> = vec![&tenant, &newest, &newest, &agent];
    let mut conditions = String::from(" and r.agent = ?4");
    if let Some(state) = filter.state {
        conditions += &format!(" and r.status = {}", rows::status_number(state.status()));
    }
    if let Some(conversation) = &conversation {
        values.push(conversation);
        let number = values.len();
        conditions += &format!(" and (r.conversation = ?{number} or (r.conversation is null and r.uid = ?{number}))");
    }
    if let Some(user) = &user {
        values.push(user);
        conditions += &format!(" and r.user = ?{}", values.len());
    }
    // Texts that aren't needed aren't read.
    let request = if caller.is_some() { "r.request" } else { "null" };
    let is_failure = filter.state.is_some_and(|state| state.status() == RunStatus::Failed);
    let result = if is_failure { "r.result" } else { "null" };
    let sources = RunFilter { agent: Some(filter.agent), conversation: filter.conversation, ..RunFilter::default() };
    let mut found = Vec::new();
    for source in lists::sources(connection, &sources, &IndexQuery::default())? {
        let mut values = values.clone();
        let condition = source.bind(&mut values);
        let sql = format!(
            "select r.id, r.ended, {request}, {result} from {}
             where r.tenant = ?1 and r.id < ?2{condition}{conditions}",
            source.tables
        );
        let mut statement = connection.prepare_in_parts(&sql)?;
        let mut rows = statement.query(&*values)?;
        while let Some(row) = rows.next()? {
            if let Some(caller) = caller
                && !is_of(&row, caller)?
            {
                continue;
            }
            let place = match rows::maybe_time(&row, 1)? {
                Some(ended) => ended_at(&row, ended, filter)?,
                None => live_at(&record(connection, row.get(0)?)?, row.get(0)?, filter),
            };
            found.extend(place.filter(|place| filter.after.is_none_or(|after| after <= place.at)));
        }
    }
    Ok(found)
}

fn is_of(row: &Row<'_>, caller: &Actor) -> Result<bool> {
    let asked: CallerOfRequest =
        serde_json::from_str(&row.get::<String>(2).map_err(|_| rows::corrupt(2, "not a text"))?)
            .map_err(|_| rows::corrupt(2, "not a request"))?;
    Ok(asked.caller == *caller)
}

/// The status of an ended run is its state, except that a failure may be a rejection.
fn ended_at(row: &Row<'_>, ended: Timestamp, filter: &TaskFilter) -> Result<Option<TaskCursor>> {
    let place = TaskCursor { at: ended, number: row.get(0)? };
    let matches = match filter.state {
        Some(state @ (RunTaskState::Rejected | RunTaskState::Failed)) => {
            let result: Option<Json> = rows::maybe_json(row, 3)?;
            RunTaskState::of(RunStatus::Failed, None, || result.as_ref()) == state
        }
        _ => true,
    };
    Ok(matches.then_some(place))
}

/// Live runs are few, and their state isn't in a column.
fn live_at(record: &RunRecord, number: i64, filter: &TaskFilter) -> Option<TaskCursor> {
    let matches = filter.state.is_none_or(|state| state == record.task_state());
    matches.then(|| TaskCursor { at: record.status_at(), number })
}

fn record(connection: &Connection, row: i64) -> Result<RunRecord> {
    Ok(connection
        .prepare_cached(&format!(
            "select {} from task_runs r cross join agent_accounts a on a.id = r.agent where r.id = ?1",
            rows::RUN
        ))?
        .query_row([row], rows::run)?)
}

//! Reads lists, a page at a time.

use super::connection::{Connection, OptionalExtension as _, Row};
use attache_protocol::{AgentId, ConversationId, TenantId, Timestamp, UserId, WorkspaceId, rules::run::RunStatus};
use rusqlite::{ToSql, params};

use super::{
    conversations, keys,
    rows::{self, IdBytes},
    search,
    writer::WriteTransaction,
};
use crate::{
    Error, MAX_PAGE_BYTES, Result,
    record::{
        AccountRecord, ArtifactRecord, ConversationRecord, KeyKind, KeyRecord, ListPage, LiveCounts, MessageRecord,
        Pagination, RunFilter, RunRecord, RuntimeRecord,
    },
    search::NameMatches,
    weight::{self, PageWeight, PageWeightLimit},
};

/// With more pending runs than this, walking the newest runs finds a page sooner than sorting the entire queue.
const LONG_QUEUE: i64 = 5000;
/// How many damaged rows a page may contain without hiding that more rows follow.
const SPARE: i64 = 16;

/// Collects the items of one page, each with its key, until it reaches its count or size.
struct PageBuilder<T> {
    items: Vec<(i64, T)>,
    limit: usize,
    scales: PageWeightLimit,
    /// There are items that didn't fit.
    more: bool,
}

// === impl PageBuilder ===

impl<T: PageWeight> PageBuilder<T> {
    const fn new(page: &Pagination) -> Self {
        Self { items: Vec::new(), limit: page.limit, scales: PageWeightLimit::new(MAX_PAGE_BYTES), more: false }
    }

    /// Whether the item fits.
    fn takes(&mut self, key: i64, item: T) -> bool {
        if self.items.len() >= self.limit || !self.scales.takes(item.weight()) {
            self.more = true;
            return false;
        }
        self.items.push((key, item));
        true
    }

    /// Whether all of them fit. Items that don't aren't read.
    fn takes_all(&mut self, rows: impl Iterator<Item = rusqlite::Result<(i64, T)>>) -> rusqlite::Result<bool> {
        for row in rows {
            let (key, item) = row?;
            if !self.takes(key, item) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn listed(self) -> ListPage<T> {
        let next = self.items.last().filter(|_| self.more).map(|(key, _)| key.to_string());
        ListPage { items: self.items.into_iter().map(|(_, item)| item).collect(), next }
    }
}

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    /// Running runs are few, and only the writer knows them, so they need no index.
    pub(super) fn running_runs(
        &self,
        tenant: TenantId,
        filter: &RunFilter,
        page: &Pagination,
    ) -> Result<ListPage<RunRecord>> {
        let before = before(page)?;
        let named = match &filter.text {
            Some(text) => search::named(self.connection, tenant, text)?,
            None => NameMatches::default(),
        };
        let mut found = PageBuilder::new(page);
        for row in self.cache.running().rev().filter(|row| *row < before) {
            let Some(record) = self.readable_record(row)? else { continue };
            if record.tenant == tenant
                && matches(filter, &record, &named)
                && !found.takes(row, filter.detail.of(record))
            {
                break;
            }
        }
        Ok(found.listed())
    }
}

fn matches(filter: &RunFilter, record: &RunRecord, named: &NameMatches) -> bool {
    filter.agent.is_none_or(|agent| record.agent == agent)
        && filter.conversation.is_none_or(|conversation| record.conversation == conversation)
        && filter.parent.is_none_or(|parent| record.spec.parent == Some(parent))
        && filter.user.is_none_or(|user| record.user == Some(user))
        && filter.since.is_none_or(|since| record.created_at >= since)
        && filter.before.is_none_or(|before| record.created_at < before)
        && filter.matches_content(record, named)
}

pub(super) fn runs(
    connection: &Connection,
    tenant: TenantId,
    filter: &RunFilter,
    page: &Pagination,
) -> Result<ListPage<RunRecord>> {
    let named = match &filter.text {
        Some(text) => search::named(connection, tenant, text)?,
        None => NameMatches::default(),
    };
    let agent = filter.agent.map(|agent| IdBytes(agent.uuid()));
    let conversation = filter.conversation.map(|conversation| IdBytes(conversation.uuid()));
    let parent = filter.parent.map(|parent| IdBytes(parent.uuid()));
    let user = filter.user.map(|user| IdBytes(user.uuid()));
    let tenant = IdBytes(tenant.uuid());
    // SQL can't say for sure whether a row has the text or the cost, so it can't say how many rows fill the page.
    let is_checked = filter.text.is_some() || filter.min_micro_usd.is_some();
    let limit = if is_checked { i64::MAX } else { one_more(page).saturating_add(SPARE) };
    let (first, end) = search::rows_of_period(connection, filter.since, filter.before)?;
    let before = before(page)?.min(end);
    let (since, until) = (filter.since.map(Timestamp::millis), filter.before.map(Timestamp::millis));
    let mut values: Vec<&dyn ToSql> = vec![&tenant, &before, &limit];
    let mut conditions = String::new();
    // Literals, and an index's own condition repeated, because a partial index is only used if its condition appears
    // literally.
    if let Some(status) = filter.status {
        conditions += &format!(" and r.status = {}", rows::status_number(status));
    }
    if matches!(filter.status, Some(RunStatus::Failed | RunStatus::Cancelled)) {
        conditions += " and r.status >= 3";
    }
    if let Some(agent) = &agent {
        values.push(agent);
        conditions += &format!(" and r.agent = ?{}", values.len());
    }
    if let Some(conversation) = &conversation {
        values.push(conversation);
        let number = values.len();
        conditions += &format!(" and (r.conversation = ?{number} or (r.conversation is null and r.uid = ?{number}))");
    }
    if let Some(parent) = &parent {
        values.push(parent);
        conditions += &format!(" and r.parent = ?{}", values.len());
    }
    if let Some(user) = &user {
        values.push(user);
        conditions += &format!(" and r.user = ?{}", values.len());
    }
    if since.is_some() {
        values.extend([&first as &dyn ToSql, &since]);
        let number = values.len();
        conditions += &format!(" and r.id >= ?{} and r.created >= ?{number}", number - 1);
    }
    if until.is_some() {
        values.push(&until);
        conditions += &format!(" and r.created < ?{}", values.len());
    }
    let cost = filter.min_micro_usd.map(search::stored_cost);
    let index = IndexQuery { words: search::query(filter, &named), cost, first };
    let mut found = PageBuilder::new(page);
    for source in sources(connection, filter, &index)? {
        let mut values = values.clone();
        let condition = source.bind(&mut values);
        let sql = format!(
            "select {} from {} cross join agent_accounts a on a.id = r.agent
             where r.tenant = ?1 and r.id < ?2{condition}{conditions} order by {} desc limit ?3",
            rows::RUN,
            source.tables,
            source.order
        );
        let mut statement = connection.prepare_in_parts(&sql)?;
        let rows = statement.query_map(&*values, |row| {
            let number = row.get(0)?;
            Ok((number, rows::readable("task_runs", number, rows::run(row))?))
        })?;
        let readable = rows.filter_map(|row| match row {
            Ok((number, run)) => {
                run.filter(|run| filter.matches_content(run, &named)).map(|run| Ok((number, filter.detail.of(run))))
            }
            Err(error) => Some(Err(error)),
        });
        if !found.takes_all(readable)? {
            break;
        }
    }
    Ok(found.listed())
}

/// What the search index is asked.
#[derive(Debug, Default)]
pub(super) struct IndexQuery {
    words: Option<String>,
    /// The least cost.
    cost: Option<i64>,
    /// No older row is wanted.
    first: i64,
}

/// These stand in a condition for the numbers of its source's own values. Rows as values, because a statement with other
/// text would be another one for the database.
const INDEX_VALUE: &str = "?value";
const LAST_INDEXED: &str = "?last";
const FIRST_WANTED: &str = "?first";

/// Where to find a page of newest runs without walking all of them.
pub(super) struct RunListSource {
    pub(super) tables: &'static str,
    condition: String,
    /// The key of the newest first, named so that its index provides the order.
    order: &'static str,
    /// The values that only this source's condition has, by what stands for them there.
    values: Vec<(&'static str, Box<dyn ToSql>)>,
}

fn own(name: &'static str, value: impl ToSql + 'static) -> (&'static str, Box<dyn ToSql>) {
    (name, Box::new(value))
}

// === impl RunListSource ===

impl RunListSource {
    /// The condition, with the numbers of its values, which follow the others.
    pub(super) fn bind<'s>(&'s self, values: &mut Vec<&'s dyn ToSql>) -> String {
        let mut condition = self.condition.clone();
        for (name, value) in &self.values {
            values.push(value);
            condition = condition.replace(name, &format!("?{}", values.len()));
        }
        condition
    }
}

/// The sources to search, newest runs first.
pub(super) fn sources(connection: &Connection, filter: &RunFilter, index: &IndexQuery) -> Result<Vec<RunListSource>> {
    let all = |tables| RunListSource { tables, condition: String::new(), order: "r.id", values: Vec::new() };
    if filter.conversation.is_some() || filter.parent.is_some() {
        return Ok(vec![all("task_runs r")]);
    }
    // Runs that aren't indexed yet are few, and newer than those that are.
    let above = |listed: i64| RunListSource {
        condition: format!(" and r.id > {LAST_INDEXED}"),
        values: vec![own(LAST_INDEXED, listed)],
        ..all("task_runs r not indexed")
    };
    if filter.status == Some(RunStatus::Pending) && !long_queue(connection)? {
        return Ok(vec![all("task_runs r indexed by task_runs_queue")]);
    }
    if let Some(words) = index.words.as_ref().filter(|_| filter.text.is_some() || filter.user.is_some()) {
        let listed = search::indexed_upto(connection)?;
        let old = RunListSource {
            tables: "run_search s cross join task_runs r on r.id = s.rowid",
            condition: format!(
                " and {} and s.rowid < ?2 and s.rowid <= {LAST_INDEXED} and s.rowid >= {FIRST_WANTED}",
                connection.search_condition(INDEX_VALUE)
            ),
            order: "s.rowid",
            values: vec![own(INDEX_VALUE, words.clone()), own(LAST_INDEXED, listed), own(FIRST_WANTED, index.first)],
        };
        return Ok(vec![above(listed), old]);
    }
    if let Some(cost) = index.cost {
        let listed = search::indexed_upto(connection)?;
        let old = RunListSource {
            condition: format!(
                " and r.id <= {LAST_INDEXED} and r.micro_usd is not null and r.micro_usd >= {INDEX_VALUE}"
            ),
            values: vec![own(LAST_INDEXED, listed), own(INDEX_VALUE, cost)],
            ..all("task_runs r indexed by task_runs_cost")
        };
        return Ok(vec![above(listed), old]);
    }
    Ok(match (filter.status, filter.agent) {
        (Some(RunStatus::Failed | RunStatus::Cancelled), _) => {
            vec![all("task_runs r indexed by task_runs_unsuccessful")]
        }
        (_, None) => vec![all("task_runs r not indexed")],
        (_, Some(_)) => {
            // The agent is `?4`. The sweep has indexed its runs up to here; the few newer ones are walked.
            let listed = agent_runs_upto(connection)?;
            let old = RunListSource {
                tables: "agent_runs o cross join task_runs r on r.id = o.run",
                condition: format!(
                    " and o.agent = ?4 and o.run < ?2 and o.run <= {LAST_INDEXED} and o.run >= {FIRST_WANTED}"
                ),
                order: "o.run",
                values: vec![own(LAST_INDEXED, listed), own(FIRST_WANTED, index.first)],
            };
            vec![above(listed), old]
        }
    })
}

pub(super) fn agent_runs_upto(connection: &Connection) -> Result<i64> {
    Ok(connection
        .prepare_cached("select value from meta where key = 'agent_runs_upto'")?
        .query_row((), |row| row.get(0))
        .optional()?
        .unwrap_or(0))
}

fn long_queue(connection: &Connection) -> Result<bool> {
    let count: i64 = connection
        .prepare_cached(
            "select count(*) from (select 1 from task_runs indexed by task_runs_queue where status = 0 limit ?1) as queue",
        )?
        .query_row([LONG_QUEUE + 1], |row| row.get(0))?;
    Ok(count > LONG_QUEUE)
}

/// Waiting items, besides the runs that the writer counts.
pub(super) fn live(connection: &Connection, tenant: TenantId, runs: LiveCounts) -> Result<LiveCounts> {
    let tenant = IdBytes(tenant.uuid());
    let oldest = |sql: &str| -> Result<(u64, Option<i64>)> {
        let found = connection.prepare_cached(sql)?.query_row([&tenant], |row| Ok((row.get::<i64>(0)?, row.get(1)?)));
        let (count, oldest) = found?;
        Ok((u64::try_from(count).unwrap_or_default(), oldest))
    };
    let oldest_pending: Option<i64> = connection
        .prepare_cached(
            "select created from task_runs indexed by task_runs_queue where status = 0 and until is not null and tenant = ?1 order by id limit 1",
        )?
        .query_row([&tenant], |row| row.get(0))
        .optional()?;
    let (permissions, oldest_permission) =
        oldest("select count(*), min(requested) from permission_requests where state = 'pending' and tenant = ?1")?;
    let (deliveries, oldest_delivery) =
        oldest("select count(*), min(created) from deliveries where state = 'pending' and tenant = ?1")?;
    let (devices, _) = oldest(
        "select count(*), null from agent_runtimes where state = 0 and online = 1 and kind = 0 and tenant = ?1",
    )?;
    let time = |millis: Option<i64>| millis.map(Timestamp::from_millis);
    Ok(LiveCounts {
        oldest_pending: time(oldest_pending),
        permissions,
        oldest_permission: time(oldest_permission),
        devices,
        deliveries,
        oldest_delivery: time(oldest_delivery),
        ..runs
    })
}

pub(super) fn accounts(
    connection: &Connection,
    tenant: TenantId,
    page: &Pagination,
) -> Result<ListPage<AccountRecord>> {
    let first = first_name(page)?;
    let items = connection
        .prepare_cached(&format!(
            "select {} where a.tenant = ?1 and a.name >= ?2 and a.archived is null order by a.name limit ?3",
            rows::ACCOUNT
        ))?
        .query_map(params![IdBytes(tenant.uuid()), first, one_more(page)], rows::account)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(paged_by_name(items, page.limit, |account| &account.name))
}

pub(super) fn runtimes(
    connection: &Connection,
    tenant: TenantId,
    agent: Option<AgentId>,
    page: &Pagination,
) -> Result<ListPage<RuntimeRecord>> {
    let agent = agent.map(|agent| IdBytes(agent.uuid()));
    newest(
        connection,
        "no",
        &format!("{} where tenant = ?1 and no < ?2 and (agent = ?4 or ?4 is null)", rows::RUNTIME),
        &[&IdBytes(tenant.uuid()), &before(page)?, &one_more(page), &agent],
        page,
        rows::runtime,
    )
}

pub(super) fn keys(
    connection: &Connection,
    tenant: TenantId,
    kind: KeyKind,
    user: Option<UserId>,
    page: &Pagination,
) -> Result<ListPage<KeyRecord>> {
    let (kind, user) = (keys::kind_number(kind), user.map(|user| IdBytes(user.uuid())));
    newest(
        connection,
        "no",
        &format!("{} where tenant = ?1 and no < ?2 and kind = ?5 and (user = ?4 or ?4 is null)", keys::KEY),
        &[&IdBytes(tenant.uuid()), &before(page)?, &one_more(page), &user, &kind],
        page,
        rows::key,
    )
}

pub(super) fn conversations(
    connection: &Connection,
    tenant: TenantId,
    page: &Pagination,
) -> Result<ListPage<ConversationRecord>> {
    newest(
        connection,
        "no",
        &format!("{} where tenant = ?1 and no < ?2", conversations::CONVERSATION),
        &[&IdBytes(tenant.uuid()), &before(page)?, &one_more(page)],
        page,
        rows::conversation,
    )
}

pub(super) fn artifacts(
    connection: &Connection,
    tenant: TenantId,
    workspace: WorkspaceId,
    page: &Pagination,
) -> Result<ListPage<ArtifactRecord>> {
    conversations::read_conversation(connection, tenant, workspace.conversation())?;
    newest(
        connection,
        "id",
        &format!("{} where tenant = ?1 and id < ?2 and workspace = ?4", conversations::ARTIFACT),
        &[&IdBytes(tenant.uuid()), &before(page)?, &one_more(page), &IdBytes(workspace.uuid())],
        page,
        rows::artifact,
    )
}

/// Oldest first.
pub(super) fn messages(
    connection: &Connection,
    tenant: TenantId,
    conversation: ConversationId,
    page: &Pagination,
) -> Result<ListPage<MessageRecord>> {
    conversations::read_conversation(connection, tenant, conversation)?;
    let after: i64 = match &page.cursor {
        None => 0,
        Some(cursor) => cursor.parse().map_err(|_| Error::NotFound)?,
    };
    let mut found = PageBuilder::new(page);
    let mut statement = connection.prepare_cached(
        "select uid, role, author, text, metadata, created, id from messages
         where conversation = ?1 and id > ?2 order by id limit ?3",
    )?;
    found.takes_all(statement.query_map(params![IdBytes(conversation.uuid()), after, one_more(page)], |row| {
        Ok((row.get(6)?, rows::message(row)?))
    })?)?;
    Ok(found.listed())
}

/// A page of `selection` (columns, table and condition), newest first by the integer key `number`. `?1` is the tenant,
/// `?2` the key to start below, `?3` the limit.
pub(super) fn newest<T: PageWeight>(
    connection: &Connection,
    number: &str,
    selection: &str,
    values: &[&dyn ToSql],
    page: &Pagination,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<ListPage<T>> {
    let (columns, rest) = selection.rsplit_once(" from ").expect("a selection has a table");
    let sql = format!("select {columns}, {number} from {rest} order by {number} desc limit ?3");
    let mut found = PageBuilder::new(page);
    let mut statement = connection.prepare_in_parts(&sql)?;
    found.takes_all(statement.query_map(values, |row| Ok((row.last()?, read(row)?)))?)?;
    Ok(found.listed())
}

/// Cuts a list ordered by name. Its cursors are names.
pub(super) fn paged_by_name<T: PageWeight>(mut items: Vec<T>, limit: usize, name: fn(&T) -> &str) -> ListPage<T> {
    let fitting = weight::fitting(&items).min(limit);
    let more = items.len() > fitting;
    items.truncate(fitting);
    let next = items.last().filter(|_| more).map(|item| format!("@{}", name(item)));
    ListPage { items, next }
}

/// The first name a page may show: in byte order, nothing comes between a name and the same name plus a zero byte.
pub(super) fn first_name(page: &Pagination) -> Result<String> {
    match &page.cursor {
        None => Ok(String::new()),
        Some(cursor) => Ok(format!("{}\0", cursor.strip_prefix('@').ok_or(Error::NotFound)?)),
    }
}

pub(super) fn before(page: &Pagination) -> Result<i64> {
    match &page.cursor {
        None => Ok(i64::MAX),
        Some(cursor) => cursor.parse().map_err(|_| Error::NotFound),
    }
}

pub(super) fn one_more(page: &Pagination) -> i64 {
    i64::try_from(page.limit).unwrap_or(i64::MAX - 1) + 1
}

//! Removes runs, conversations, artifacts, keys and grants, with all related data.

use std::{collections::BTreeMap, time::Duration};

use super::connection::{Connection, OptionalExtension as _};
use attache_protocol::{
    ConversationId, RunId, TenantId, Timestamp,
    rules::retention::{KEY_TTL, is_key_over},
};
use rusqlite::{ToSql, params};

use super::{
    cache,
    journal::LogStamp,
    rows::{self, IdBytes},
    writer::WriteTransaction,
};
use crate::{
    Error, Result, WakeHint, WriteContext, entry,
    error::InUseReason,
    record::{Class, RetentionLimits, RetentionResult, SpokenBy, retention::ITEMS_PER_TRANSACTION},
};

/// How far a creation time may lie before that of something created earlier.
const OUT_OF_ORDER: Duration = Duration::from_secs(60 * 60);

/// `task_runs r` is the parent of a live run.
const LIVE_CHILD: &str = "exists (select 1 from task_runs c where c.parent = r.uid and c.status <= 1)";

/// A grant for more than `task_runs r` and the conversation `?4` is in force at `?3`. Without `?4` the run's own
/// conversation goes with it, unless it has other runs.
const STANDING_GRANT: &str = "exists (select 1 from permission_requests p
     cross join permission_grants g on g.permission = p.id
     where p.run = r.uid and g.scope <> 'run' and g.revoked is null and (g.until is null or g.until > ?3)
        and (g.scope <> 'conversation' or g.conversation <> coalesce(?4, r.uid)
            or (?4 is null and exists (select 1 from task_runs o where o.conversation = r.uid))))";

/// No run or worker depends on `artifacts a`.
const LOOSE: &str = "not exists (select 1 from artifact_edges e where e.artifact = a.id)
     and not exists (select 1 from task_runs r where r.uid = a.workspace)
     and not exists (select 1 from task_runs r where r.conversation = a.workspace and r.status <= 1)";

/// The conversation `c` has no run, and nothing since `?1`.
const UNUSED: &str = "not exists (select 1 from task_runs r where r.conversation = c.id)
     and not exists (select 1 from messages m where m.conversation = c.id and m.created >= ?1)
     and not exists (select 1 from artifacts a where a.workspace = c.id and a.created >= ?1)";

/// What must be known about a run to remove it.
struct EndedRun {
    row: i64,
    id: RunId,
    tenant: TenantId,
    agent: [u8; 16],
    created: Timestamp,
    /// The conversation is the run's own.
    is_own: bool,
    key: Option<[u8; 16]>,
}

/// Finds old items of a class: `?1` is the cutoff, `?2` the time before which a key must have been used to be
/// forgotten, `?3` the current time, `?4` null. The second column is the creation time, the third whether it can be
/// removed.
fn query(class: Class) -> String {
    match class {
        Class::Runs => format!(
            "select r.id, r.created, r.status >= 2 and coalesce(r.ended < ?1, false) and (r.idempotency is null or r.created <= ?2)
                and not {LIVE_CHILD} and not {STANDING_GRANT}
             from task_runs r not indexed"
        ),
        Class::Messages => "select m.id, m.created, m.created < ?1 from messages m not indexed".to_owned(),
        Class::Conversations => {
            format!("select c.no, c.created, c.created < ?1 and {UNUSED} from conversations c not indexed")
        }
        Class::Artifacts => format!("select a.id, a.created, a.created < ?1 and {LOOSE} from artifacts a not indexed"),
        Class::Keys => "select k.no, k.created, coalesce(k.revoked < ?1, false) or coalesce(k.expires < ?1, false)
             from api_keys k not indexed"
            .to_owned(),
        Class::Grants => "select g.no, g.created, coalesce(g.revoked < ?1, false) or coalesce(g.until < ?1, false)
             from permission_grants g not indexed"
            .to_owned(),
    }
}

/// The column of a class's row number, as used in [`query`].
const fn number(class: Class) -> &'static str {
    match class {
        Class::Runs => "r.id",
        Class::Messages => "m.id",
        Class::Conversations => "c.no",
        Class::Artifacts => "a.id",
        Class::Keys => "k.no",
        Class::Grants => "g.no",
    }
}

/// The old rows of a class, in order of creation, plus one more than one call may remove. Rows are in order of
/// creation, so anything newer than the cutoff isn't read. Reading happens outside the writer's work.
pub(super) fn old(connection: &Connection, class: Class, retention: &RetentionLimits) -> Result<Vec<i64>> {
    let forgotten = forgotten_keys(cache::read_clock(connection)?);
    let none: Option<Vec<u8>> = None;
    let (before, at) = (retention.before(class).millis(), retention.at.millis());
    let all: [&dyn ToSql; 4] = [&before, &forgotten, &at, &none];
    let values = all[..parameters(class)].to_vec();
    let last = match class {
        Class::Runs | Class::Messages | Class::Artifacts => retention.before(class).plus(OUT_OF_ORDER),
        // A conversation that started as a run's own gets its row when that run is removed, long after its creation.
        // Keys and grants may end before they start.
        Class::Conversations | Class::Keys | Class::Grants => Timestamp::from_millis(i64::MAX),
    };
    let mut statement = connection.prepare_cached(&format!("{} order by {}", query(class), number(class)))?;
    let mut found = statement.query(&*values)?;
    let mut old = Vec::new();
    while let Some(row) = found.next()? {
        if rows::time(&row, 1)? >= last || old.len() > retention.max_rows {
            break;
        }
        if row.get(2)? {
            old.push(row.get(0)?);
        }
    }
    Ok(old)
}

const fn parameters(class: Class) -> usize {
    match class {
        Class::Runs => 4,
        Class::Messages | Class::Conversations | Class::Artifacts | Class::Keys | Class::Grants => 1,
    }
}

/// A key used at this time or earlier is forgotten.
fn forgotten_keys(clock: Option<Timestamp>) -> i64 {
    clock.map_or(i64::MIN, |clock| clock.minus(KEY_TTL).millis())
}

/// The blobs among these that no artifact has.
pub(super) fn unused_blobs(connection: &Connection, blobs: Vec<[u8; 32]>) -> Result<Vec<[u8; 32]>> {
    let mut statement = connection.prepare_cached("select exists (select 1 from artifacts where blake3 = ?1)")?;
    let mut unused = Vec::new();
    for blob in blobs {
        let is_used: bool = statement.query_row([blob], |row| row.get(0))?;
        if !is_used {
            unused.push(blob);
        }
    }
    Ok(unused)
}

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    /// Removes those of these rows that are still old and unused. Returns the content of removed artifacts.
    pub(super) fn remove_old(
        &mut self,
        class: Class,
        old: &[i64],
        retention: &RetentionLimits,
    ) -> Result<Vec<[u8; 32]>> {
        let (mut counts, mut blobs) = (BTreeMap::<TenantId, u64>::new(), Vec::new());
        if class == Class::Runs {
            // At start, runs are the source for usage that isn't summed up yet.
            self.write_usage()?;
        }
        for row in old {
            if let Some(tenant) = self.remove_if_old(class, *row, retention, &mut blobs)? {
                *counts.entry(tenant).or_default() += 1;
            }
        }
        if class == Class::Runs {
            self.after_removal()?;
        }
        for (tenant, count) in counts {
            let stamp = LogStamp { actor: WriteContext::SYSTEM, at: retention.at };
            self.log(tenant, stamp, &entry::removal::by_age(class, count), None)?;
        }
        Ok(blobs)
    }

    /// The tenant of the row, if it was removed: it may have come into use since it was found.
    fn remove_if_old(
        &mut self,
        class: Class,
        row: i64,
        retention: &RetentionLimits,
        blobs: &mut Vec<[u8; 32]>,
    ) -> Result<Option<TenantId>> {
        let forgotten = forgotten_keys(self.cache.clock());
        let none: Option<Vec<u8>> = None;
        let (before, at) = (retention.before(class).millis(), retention.at.millis());
        let all: [&dyn ToSql; 4] = [&before, &forgotten, &at, &none];
        let mut values: Vec<&dyn ToSql> = all[..parameters(class)].to_vec();
        values.push(&row);
        let sql = format!("{} where {} = ?{}", query(class), number(class), values.len());
        let is_old = self.connection.prepare_cached(&sql)?.query_row(&*values, |row| row.get(2)).optional()?;
        if !is_old.unwrap_or(false) {
            return Ok(None);
        }
        let (table, key) = match class {
            Class::Runs => ("task_runs", "id"),
            Class::Messages => ("messages", "id"),
            Class::Conversations => ("conversations", "no"),
            Class::Artifacts => ("artifacts", "id"),
            Class::Keys => ("api_keys", "no"),
            Class::Grants => ("permission_grants", "no"),
        };
        let tenant: [u8; 16] = self
            .connection
            .prepare_cached(&format!("select tenant from {table} where {key} = ?1"))?
            .query_row([row], |row| row.get(0))?;
        match class {
            Class::Runs => {
                let run = self.ended_run(row)?;
                self.remove_run(&run, blobs)?;
            }
            Class::Conversations => {
                let id: [u8; 16] = self
                    .connection
                    .prepare_cached("select id from conversations where no = ?1")?
                    .query_row([row], |row| row.get(0))?;
                self.remove_conversation(rows::conversation_id(id), blobs)?;
            }
            Class::Artifacts => self.remove_artifact(row, blobs)?,
            Class::Messages | Class::Keys | Class::Grants => {
                self.connection.prepare_cached(&format!("delete from {table} where {key} = ?1"))?.execute([row])?;
            }
        }
        Ok(Some(rows::tenant_id(tenant)))
    }

    pub(super) fn delete_run(&mut self, context: &WriteContext, run: RunId) -> Result<RetentionResult> {
        let hot = self.own_run(context.tenant, run)?;
        self.refuse_used("r.id = ?1", &hot.row, None, context.at)?;
        let mut retained = RetentionResult::default();
        self.write_usage()?;
        self.delete(context, hot.row, &mut retained.blobs)?;
        self.after_removal()?;
        Ok(retained.sorted())
    }

    pub(super) fn delete_conversation(
        &mut self,
        context: &WriteContext,
        id: ConversationId,
    ) -> Result<RetentionResult> {
        self.conversation(context.tenant, id)?;
        let of = "(r.conversation = ?1 or (r.uid = ?1 and r.conversation is null))";
        self.refuse_used(of, &IdBytes(id.uuid()), Some(id), context.at)?;
        let limit = i64::try_from(ITEMS_PER_TRANSACTION).unwrap_or(i64::MAX) + 1;
        // The run that owns the conversation goes last.
        let runs = self
            .connection
            .prepare_cached(
                "select id from (
                    select 0 as own, id from task_runs where conversation = ?1
                    union all select 1, id from task_runs where uid = ?1 and conversation is null) as own_or_joined
                 order by own, id limit ?2",
            )?
            .query_map(params![IdBytes(id.uuid()), limit], |row| row.get::<i64>(0))?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let mut retained = RetentionResult { more: runs.len() > ITEMS_PER_TRANSACTION, blobs: Vec::new() };
        self.write_usage()?;
        for row in runs.iter().take(ITEMS_PER_TRANSACTION) {
            self.delete(context, *row, &mut retained.blobs)?;
        }
        self.after_removal()?;
        if !retained.more {
            self.remove_conversation(id, &mut retained.blobs)?;
            self.log(context.tenant, context.stamp(), &entry::removal::conversation_deleted(id), None)?;
        }
        Ok(retained.sorted())
    }

    /// Refuses if one of the runs `r` can't be removed. `with` is the conversation that may go with it, if not its own.
    fn refuse_used(&self, of: &str, value: &dyn ToSql, with: Option<ConversationId>, at: Timestamp) -> Result<()> {
        let with = with.map(|conversation| IdBytes(conversation.uuid()));
        // In order of creation, so that the first run decides.
        let sql = format!(
            "select case when r.status <= 1 then 1 when {LIVE_CHILD} then 2 else 3 end from task_runs r
             where {of} and (r.status <= 1 or {LIVE_CHILD} or {STANDING_GRANT}) order by r.id limit 1"
        );
        let none: Option<i64> = None;
        let found = self
            .connection
            .prepare_cached(&sql)?
            .query_row(params![value, none, at.millis(), with], |row| row.get::<i64>(0))
            .optional()?;
        match found {
            None => Ok(()),
            Some(1) => Err(Error::InUse(InUseReason::Live)),
            Some(2) => Err(Error::InUse(InUseReason::LiveChild)),
            Some(_) => Err(Error::InUse(InUseReason::Grant)),
        }
    }

    /// Removes a run on request, even while its key is still remembered.
    fn delete(&mut self, context: &WriteContext, row: i64, blobs: &mut Vec<[u8; 32]>) -> Result<()> {
        let run = self.ended_run(row)?;
        if let Some(key) = run.key.filter(|_| !is_key_over(run.created, self.cache.clock())) {
            self.connection
                .prepare_cached(
                    "insert into deleted_keys (tenant, key, created) values (?1, ?2, ?3)
                     on conflict (tenant, key) do update set created = excluded.created",
                )?
                .execute(params![IdBytes(run.tenant.uuid()), key, run.created.millis()])?;
        }
        self.remove_run(&run, blobs)?;
        let entry = entry::removal::task_deleted(run.id, rows::agent_id(run.agent));
        self.log(context.tenant, context.stamp(), &entry, None)?;
        self.woken.push(WakeHint::Run(run.id));
        Ok(())
    }

    /// Whether the run created with this key was deleted.
    pub(super) fn is_deleted_key(&self, tenant: TenantId, key: [u8; 16]) -> Result<bool> {
        let created = self
            .connection
            .prepare_cached("select created from deleted_keys where tenant = ?1 and key = ?2")?
            .query_row(params![IdBytes(tenant.uuid()), key], |row| rows::time(row, 0))
            .optional()?;
        Ok(created.is_some_and(|created| !is_key_over(created, self.cache.clock())))
    }

    /// Forgets expired keys of deleted runs.
    pub(super) fn forget_deleted_keys(&self) -> Result<()> {
        let forgotten = forgotten_keys(self.cache.clock());
        self.connection.prepare_cached("delete from deleted_keys where created <= ?1")?.execute([forgotten])?;
        Ok(())
    }

    fn ended_run(&self, row: i64) -> Result<EndedRun> {
        Ok(self
            .connection
            .prepare_cached(
                "select id, uid, tenant, agent, created, conversation is null, substr(idempotency, 1, 16)
                 from task_runs where id = ?1",
            )?
            .query_row([row], |row| {
                Ok(EndedRun {
                    row: row.get(0)?,
                    id: rows::run_id(row.get(1)?),
                    tenant: rows::tenant_id(row.get(2)?),
                    agent: row.get(3)?,
                    created: rows::time(row, 4)?,
                    is_own: row.get(5)?,
                    key: row.get(6)?,
                })
            })?)
    }

    fn remove_run(&mut self, run: &EndedRun, blobs: &mut Vec<[u8; 32]>) -> Result<()> {
        let uid = || IdBytes(run.id.uuid());
        self.connection.prepare_cached("update task_runs set parent = null where parent = ?1")?.execute([uid()])?;
        // Its artifacts go with it, unless another run later named them as its own.
        let produced = self
            .connection
            .prepare_cached(
                "select distinct e.artifact from artifact_edges e where e.run = ?1 and e.no =
                    (select max(n.no) from artifact_edges n where n.artifact = e.artifact and n.kind = 0)",
            )?
            .query_map([uid()], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<i64>>>()?;
        for artifact in produced {
            self.remove_artifact(artifact, blobs)?;
        }
        if run.is_own {
            let is_shared: bool = self
                .connection
                .prepare_cached("select exists (select 1 from task_runs where conversation = ?1)")?
                .query_row([uid()], |row| row.get(0))?;
            if is_shared {
                let spoken_by = self.conversation(run.tenant, run.id.own_conversation())?.spoken_by;
                self.connection
                    .prepare_cached(
                        "insert into conversations (id, tenant, created, user)
                         select uid, tenant, created, user from task_runs where id = ?1",
                    )?
                    .execute([run.row])?;
                self.join_conversation(run.id.own_conversation(), rows::agent_id(run.agent), run.created)?;
                if spoken_by == SpokenBy::Others {
                    self.note_others(run.id.own_conversation())?;
                }
            } else {
                self.remove_conversation(run.id.own_conversation(), blobs)?;
            }
        }
        for table in ["chunks", "follows", "push_configs"] {
            self.connection.prepare_cached(&format!("delete from {table} where run = ?1"))?.execute([run.row])?;
        }
        for table in [
            "permission_requests",
            "asks",
            "inputs",
            "deliveries",
            "peer_tasks",
            "artifact_edges",
            "permission_grants",
            "worktree_decisions",
        ] {
            self.connection.prepare_cached(&format!("delete from {table} where run = ?1"))?.execute([uid()])?;
        }
        self.connection
            .prepare_cached("delete from agent_runs where agent = ?1 and run = ?2")?
            .execute(params![run.agent, run.row])?;
        self.unindex_run(run.row)?;
        self.connection.prepare_cached("delete from task_runs where id = ?1")?.execute([run.row])?;
        if let Some(key) = run.key {
            self.cache.forget_key(run.tenant, key, run.row, run.created);
        }
        Ok(())
    }

    /// With all related data. It need not have been created explicitly. If it was, it may get its id again, and agents
    /// remember it by that: who spoke in it isn't forgotten.
    fn remove_conversation(&self, id: ConversationId, blobs: &mut Vec<[u8; 32]>) -> Result<()> {
        let uid = || IdBytes(id.uuid());
        let artifacts = self
            .connection
            .prepare_cached("select id from artifacts where workspace = ?1")?
            .query_map([uid()], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<i64>>>()?;
        for artifact in artifacts {
            self.remove_artifact(artifact, blobs)?;
        }
        self.connection
            .prepare_cached(
                "delete from conversations_of_others where conversation = ?1
                    and not exists (select 1 from conversations c where c.id = ?1 and c.user is not null)",
            )?
            .execute([uid()])?;
        for row in [
            "messages where conversation",
            "permission_grants where conversation",
            "conversation_agents where conversation",
            "conversations where id",
        ] {
            self.connection.prepare_cached(&format!("delete from {row} = ?1"))?.execute([uid()])?;
        }
        Ok(())
    }

    fn remove_artifact(&self, row: i64, blobs: &mut Vec<[u8; 32]>) -> Result<()> {
        blobs.push(
            self.connection
                .prepare_cached("select blake3 from artifacts where id = ?1")?
                .query_row([row], |row| row.get(0))?,
        );
        self.connection.prepare_cached("delete from artifact_edges where artifact = ?1")?.execute([row])?;
        self.connection.prepare_cached("delete from artifacts where id = ?1")?.execute([row])?;
        Ok(())
    }

    /// The row id of the newest run is reused once it was removed, so it must not count as listed.
    fn after_removal(&self) -> Result<()> {
        self.connection
            .prepare_cached(
                "update meta set value = coalesce((select max(id) from task_runs), 0)
                 where key in ('agent_runs_upto', 'run_search_upto')
                    and value > coalesce((select max(id) from task_runs), 0)",
            )?
            .execute(())?;
        Ok(())
    }
}

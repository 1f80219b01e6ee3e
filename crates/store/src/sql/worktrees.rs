//! Decisions about the worktrees of runs.

use super::connection::{Connection, OptionalExtension as _, Row};
use async_trait::async_trait;
use attache_protocol::{
    Actor, AgentId, Json, RunId, RuntimeId, TenantId, Timestamp,
    wire::worktree::{WorktreeAction, WorktreeOutcome},
};
use rusqlite::params;

use super::{
    SqlStore,
    journal::LogStamp,
    rows::{self, IdBytes},
    writer::WriteTransaction,
};
use crate::{
    Error, Result, WakeHint, WorktreeStore, WriteContext, entry,
    record::worktree::{NewWorktreeDecision, WorktreeDecisionRecord},
};

/// The columns that [`decision`] reads, with their table.
const DECISION: &str = "w.run, w.tenant, w.agent, w.number, w.action, w.message, w.actor, w.decided, w.expires, \
     w.outcome, w.settled from worktree_decisions w";

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    fn decide_worktree(&mut self, context: &WriteContext, new: NewWorktreeDecision) -> Result<WorktreeDecisionRecord> {
        let agent = self
            .connection
            .prepare_cached("select agent from task_runs where uid = ?1 and tenant = ?2")?
            .query_row([IdBytes(new.run.uuid()), IdBytes(context.tenant.uuid())], |row| Ok(rows::agent_id(row.get(0)?)))
            .optional()?
            .ok_or(Error::NotFound)?;
        let before = read_decision(self.connection, new.run)?;
        if before.as_ref().is_some_and(|before| before.is_pending(context.at)) {
            return Err(Error::VersionChanged);
        }
        let new = new.into_record(before.as_ref(), (context.tenant, agent), (context.actor.clone(), context.at));
        self.connection
            .prepare_cached(
                "insert into worktree_decisions (run, tenant, agent, number, action, message, actor, decided, expires)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                 on conflict (run) do update set number = excluded.number, action = excluded.action,
                    message = excluded.message, actor = excluded.actor, decided = excluded.decided,
                    expires = excluded.expires, outcome = null, settled = null",
            )?
            .execute(params![
                IdBytes(new.run.uuid()),
                IdBytes(new.tenant.uuid()),
                IdBytes(new.agent.uuid()),
                new.number,
                new.action.as_str(),
                new.message,
                new.decided_by.to_string(),
                new.decided_at.millis(),
                new.expires_at.millis(),
            ])?;
        self.log(context.tenant, context.stamp(), &entry::worktree::decided(new.run, new.action), None)?;
        self.woken.push(WakeHint::Runtime(agent));
        Ok(new)
    }

    fn settle_worktree(
        &mut self,
        runtime: RuntimeId,
        run: RunId,
        number: i64,
        outcome: &WorktreeOutcome,
        at: Timestamp,
    ) -> Result<WorktreeDecisionRecord> {
        let agent = self
            .connection
            .prepare_cached("select agent from agent_runtimes where id = ?1")?
            .query_row([IdBytes(runtime.uuid())], |row| Ok(rows::agent_id(row.get(0)?)))
            .optional()?
            .ok_or(Error::NotFound)?;
        let known = read_decision(self.connection, run)?;
        let known = known.filter(|known| known.agent == agent && known.number == number).ok_or(Error::NotFound)?;
        if known.outcome.is_some() {
            return Ok(known);
        }
        self.connection
            .prepare_cached("update worktree_decisions set outcome = ?2, settled = ?3 where run = ?1")?
            .execute(params![IdBytes(run.uuid()), Json::of(outcome).get(), at.millis()])?;
        let actor = Actor::Runtime(runtime);
        let row = entry::worktree::settled(run, known.action, outcome.result);
        self.log(known.tenant, LogStamp { actor: &actor, at }, &row, None)?;
        Ok(WorktreeDecisionRecord { outcome: Some((outcome.clone(), at)), ..known })
    }
}

fn read_decision(connection: &Connection, run: RunId) -> Result<Option<WorktreeDecisionRecord>> {
    Ok(connection
        .prepare_cached(&format!("select {DECISION} where w.run = ?1"))?
        .query_row([IdBytes(run.uuid())], decision)
        .optional()?)
}

fn pending(connection: &Connection, agent: AgentId, at: Timestamp) -> Result<Vec<WorktreeDecisionRecord>> {
    let mut statement = connection.prepare_cached(&format!(
        "select {DECISION} where w.agent = ?1 and w.settled is null and w.expires > ?2 order by w.no"
    ))?;
    let found = statement.query_map(params![IdBytes(agent.uuid()), at.millis()], decision)?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

/// Reads [`DECISION`].
fn decision(row: &Row<'_>) -> rusqlite::Result<WorktreeDecisionRecord> {
    let action: String = row.get(4)?;
    let action = WorktreeAction::from_text(&action).ok_or_else(|| rows::corrupt(4, "an unknown action"))?;
    let outcome: Option<WorktreeOutcome> = match rows::maybe_json(row, 9)? {
        Some(outcome) => Some(outcome.parse().map_err(|_| rows::corrupt(9, "an unknown outcome of a decision"))?),
        None => None,
    };
    Ok(WorktreeDecisionRecord {
        run: rows::run_id(row.get(0)?),
        tenant: rows::tenant_id(row.get(1)?),
        agent: rows::agent_id(row.get(2)?),
        number: row.get(3)?,
        action,
        message: row.get(5)?,
        decided_by: rows::actor(row, 6)?,
        decided_at: rows::time(row, 7)?,
        expires_at: rows::time(row, 8)?,
        outcome: outcome.zip(rows::maybe_time(row, 10)?),
    })
}

// === impl SqlStore ===

#[async_trait]
impl WorktreeStore for SqlStore {
    async fn decide_worktree(
        &self,
        context: WriteContext,
        decision: NewWorktreeDecision,
    ) -> Result<WorktreeDecisionRecord> {
        self.write(move |transaction| transaction.decide_worktree(&context, decision)).await
    }

    async fn settle_worktree(
        &self,
        runtime: RuntimeId,
        run: RunId,
        number: i64,
        outcome: WorktreeOutcome,
        at: Timestamp,
    ) -> Result<WorktreeDecisionRecord> {
        self.write(move |transaction| transaction.settle_worktree(runtime, run, number, &outcome, at)).await
    }

    async fn worktree_decision(&self, tenant: TenantId, run: RunId) -> Result<Option<WorktreeDecisionRecord>> {
        let found = self.read(move |connection| read_decision(connection, run)).await?;
        Ok(found.filter(|found| found.tenant == tenant))
    }

    async fn pending_worktrees(&self, agent: AgentId, at: Timestamp) -> Result<Vec<WorktreeDecisionRecord>> {
        self.read(move |connection| pending(connection, agent, at)).await
    }
}

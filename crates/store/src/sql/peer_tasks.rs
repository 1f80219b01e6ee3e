//! The tasks that outside agents execute for runs.

use std::time::Duration;

use super::connection::{Connection, OptionalExtension as _, Row};
use attache_protocol::{
    AgentId, RunId, TenantId, Timestamp,
    rules::{
        recovery::Recovery,
        run::{RunCommand, WorkerRef},
    },
};
use rusqlite::params;

use super::{
    journal::LogStamp,
    rows::{self, IdBytes, RunState},
    writer::WriteTransaction,
};
use crate::{
    Error, Result,
    entry::{self, call},
    record::peer::{NewPeerTask, PeerTask, PeerTaskChange},
};

/// The columns that [`task`] reads, with their table.
const TASK: &str = "run, agent, epoch, url, message_id, peer_task_id, peer_context_id, native_status, recovery, sent, \
     updated, no from peer_tasks";

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    pub(super) fn begin_peer_task(
        &mut self,
        by: WorkerRef,
        run: RunId,
        new: NewPeerTask,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Result<PeerTask>> {
        let hot = self.workers_run(by, run)?;
        let renewed = match self.judge(&hot, &RunCommand::Progress { by, lease }, at) {
            Ok(renewed) => renewed,
            Err(error) => {
                let actor = entry::runtime_actor(by.runtime);
                return self.refuse(&hot, call::PEER_TASK, by, LogStamp { actor: &actor, at }, error);
            }
        };
        let hot = self.renew(&hot, renewed.state)?;
        if let Some(known) = read_task(self.connection, run)? {
            return Ok(Ok(known));
        }
        let NewPeerTask { url, message_id } = new;
        self.connection
            .prepare_cached(
                "insert into peer_tasks (run, agent, epoch, url, message_id, sent, updated)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?6)",
            )?
            .execute(params![
                IdBytes(run.uuid()),
                IdBytes(hot.agent.uuid()),
                hot.state.epoch,
                url,
                message_id,
                at.millis()
            ])?;
        Ok(Ok(PeerTask {
            run,
            agent: hot.agent,
            epoch: hot.state.epoch,
            url,
            message_id,
            peer_task_id: None,
            peer_context_id: None,
            native_status: None,
            recovery: None,
            sent_at: at,
            updated_at: at,
        }))
    }

    pub(super) fn link_peer_task(
        &mut self,
        by: WorkerRef,
        run: RunId,
        change: PeerTaskChange,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Result<PeerTask>> {
        let hot = self.workers_run(by, run)?;
        let actor = entry::runtime_actor(by.runtime);
        let stamp = LogStamp { actor: &actor, at };
        let renewed = match self.judge(&hot, &RunCommand::Progress { by, lease }, at) {
            Ok(renewed) => renewed,
            Err(error) => return self.refuse(&hot, call::PEER_TASK, by, stamp, error),
        };
        let before = read_task(self.connection, run)?.ok_or(Error::NotFound)?;
        let (task, told) = before.changed(change, at).ok_or(Error::PeerTaskDiffers)?;
        if task != before {
            self.put_peer_task(&task)?;
        }
        let renewed = RunState { state: renewed.state, ..hot.clone() };
        let after = match entry::peer::peer_task_changed(&task, told) {
            Some(entry) => self.append_for(renewed, stamp, &entry)?,
            None => renewed,
        };
        if after.state != hot.state || after.last_seq != hot.last_seq {
            self.put(&hot, &after, None)?;
        }
        Ok(Ok(task))
    }

    fn put_peer_task(&self, task: &PeerTask) -> Result<()> {
        self.connection
            .prepare_cached(
                "update peer_tasks set peer_task_id = ?2, peer_context_id = ?3, native_status = ?4, recovery = ?5,
                    updated = ?6
                 where run = ?1",
            )?
            .execute(params![
                IdBytes(task.run.uuid()),
                task.peer_task_id,
                task.peer_context_id,
                task.native_status,
                task.recovery.map(Recovery::as_str),
                task.updated_at.millis(),
            ])?;
        Ok(())
    }

    /// The writer knows the live runs without a search.
    pub(super) fn open_peer_tasks(&self, agent: AgentId) -> Result<Vec<PeerTask>> {
        let mut open = Vec::new();
        for hot in self.live_runs(agent)? {
            let found = self
                .connection
                .prepare_cached(&format!("select {TASK} where run = ?1"))?
                .query_row([IdBytes(hot.id.uuid())], |row| Ok((task(row)?, row.get::<i64>(11)?)))
                .optional()?;
            open.extend(found);
        }
        open.sort_by_key(|(_, no)| *no);
        Ok(open.into_iter().map(|(task, _)| task).collect())
    }
}

fn read_task(connection: &Connection, run: RunId) -> Result<Option<PeerTask>> {
    Ok(connection
        .prepare_cached(&format!("select {TASK} where run = ?1"))?
        .query_row([IdBytes(run.uuid())], task)
        .optional()?)
}

pub(super) fn of_run(connection: &Connection, tenant: TenantId, run: RunId) -> Result<Option<PeerTask>> {
    let known = connection
        .prepare_cached("select 1 from task_runs where uid = ?1 and tenant = ?2")?
        .exists([IdBytes(run.uuid()), IdBytes(tenant.uuid())])?;
    if known { read_task(connection, run) } else { Err(Error::NotFound) }
}

pub(super) fn by_id(connection: &Connection, agent: AgentId, id: &str) -> Result<Option<PeerTask>> {
    Ok(connection
        .prepare_cached(&format!("select {TASK} where agent = ?1 and peer_task_id = ?2 order by no desc limit 1"))?
        .query_row(params![IdBytes(agent.uuid()), id], task)
        .optional()?)
}

/// Reads [`TASK`].
fn task(row: &Row<'_>) -> rusqlite::Result<PeerTask> {
    let recovery = |text: String| Recovery::from_text(&text).ok_or_else(|| rows::corrupt(8, "an unknown recovery"));
    Ok(PeerTask {
        run: rows::run_id(row.get(0)?),
        agent: rows::agent_id(row.get(1)?),
        epoch: row.get(2)?,
        url: row.get(3)?,
        message_id: row.get(4)?,
        peer_task_id: row.get(5)?,
        peer_context_id: row.get(6)?,
        native_status: row.get(7)?,
        recovery: row.get::<Option<String>>(8)?.map(recovery).transpose()?,
        sent_at: rows::time(row, 9)?,
        updated_at: rows::time(row, 10)?,
    })
}

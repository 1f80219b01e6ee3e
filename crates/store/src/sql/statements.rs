//! The prepared statements of the hot writes: looking one up by its text costs as much as a small write.

use super::connection::{Connection, Statement};

use super::rows;

pub(super) struct Statements<'c> {
    pub(super) append_log: Statement<'c>,
    pub(super) insert_run: Statement<'c>,
    /// The run that an agent's next claim gets.
    pub(super) next_run: Statement<'c>,
    pub(super) update_run: Statement<'c>,
}

// === impl Statements ===

impl<'c> Statements<'c> {
    pub(super) fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        // The agent's name comes from the writer's memory.
        let run = rows::RUN.replace("a.name", "''");
        Ok(Self {
            append_log: connection.prepare(
                "insert into log (key, at, actor, type, run, run_seq, data, hash)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?,
            insert_run: connection.prepare(
                "insert into task_runs (uid, tenant, agent, status, priority, until, created, conversation, parent,
                    idempotency, state, request, user, payer)
                 values (?1, ?2, ?3, 0, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) returning id",
            )?,
            next_run: connection.prepare(&format!(
                "select {run} from task_runs r indexed by task_runs_queue
                 where r.agent = ?1 and r.status = 0 and r.until > ?2 order by r.priority desc, r.id limit 1"
            ))?,
            update_run: connection.prepare(
                "update task_runs set status = ?2, until = ?3, ended = ?4, state = ?5, result = ?6,
                    usage = coalesce(?7, usage), micro_usd = case when ?7 is null then micro_usd else ?8 end
                 where id = ?1",
            )?,
        })
    }
}

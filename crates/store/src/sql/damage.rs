//! Live runs whose rows can't be read: each is ended, so that it never blocks the others.

use super::connection::OptionalExtension as _;
use attache_protocol::{
    Timestamp,
    rules::run::{FailureCode, RunCommand},
};
use rusqlite::params;

use super::{
    journal::{LogStamp, TransitionWrites},
    rows::{self, RunState},
    writer::WriteTransaction,
};
use crate::{Result, WriteContext, entry, outcome, record::RunRecord};

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    /// A live run. `None` if its row is damaged; then it was ended.
    pub(super) fn live_at(&mut self, row: i64, at: Timestamp) -> Result<Option<RunState>> {
        let hot = self.readable_hot(row)?;
        if hot.is_none() {
            self.end_damaged(row, at)?;
        }
        Ok(hot)
    }

    /// A run as the rules see it. `None` if its row is damaged.
    pub(super) fn readable_hot(&self, row: i64) -> Result<Option<RunState>> {
        let read = self
            .connection
            .prepare_cached(&format!("select {} from task_runs where id = ?1", rows::RUN_STATE))?
            .query_row([row], rows::run_state);
        Ok(rows::readable("task_runs", row, read)?)
    }

    /// A run as callers see it. `None` if its row is damaged.
    pub(super) fn readable_record(&self, row: i64) -> Result<Option<RunRecord>> {
        let read = self
            .connection
            .prepare_cached(&format!(
                "select {} from task_runs r cross join agent_accounts a on a.id = r.agent where r.id = ?1",
                rows::RUN
            ))?
            .query_row([row], rows::run);
        Ok(rows::readable("task_runs", row, read)?)
    }

    /// Fails a live run that is partly unreadable. Logged like any failure if the rules can read it, else as
    /// `task.damaged {"task_run_id"}` in the tenant's log only.
    pub(super) fn end_damaged(&mut self, row: i64, at: Timestamp) -> Result<()> {
        tracing::error!(row, "a run that has not ended is damaged; marked as failed");
        let (stamp, result) = (LogStamp { actor: WriteContext::SYSTEM, at }, outcome::damaged());
        if let Some(hot) = self.readable_hot(row)? {
            // Whom to notify is stored with the questions.
            let hot = RunState { calls_back: false, ..hot };
            let halt = RunCommand::Halt { code: FailureCode::TaskFailed };
            let written = TransitionWrites { result: Some(&result), ..TransitionWrites::default() };
            return self.step(&hot, &halt, stamp, written).map(drop);
        }
        self.cache.forget_row(row);
        self.connection
            .prepare_cached("update task_runs set status = 3, until = null, ended = ?2, result = ?3 where id = ?1")?
            .execute(params![row, at.millis(), result.get()])?;
        let known = self
            .connection
            .prepare_cached("select uid, tenant from task_runs where id = ?1")?
            .query_row([row], |row| Ok((rows::run_id(row.get(0)?), rows::tenant_id(row.get(1)?))))
            .optional();
        if let Some(Some((run, tenant))) = rows::readable("task_runs", row, known)?
            && self.cache.head(tenant).is_some()
        {
            self.log(tenant, stamp, &entry::removal::task_damaged(run), None)?;
        }
        Ok(())
    }
}

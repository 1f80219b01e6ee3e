//! Grants: the standing answers that decisions leave behind.

use attache_protocol::{
    AgentId, GrantId, RunId, TenantId, Timestamp,
    rules::permission::{Grant, Reach, Scope, Subject, What},
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{
    lists,
    rows::{self, Key16},
    writer::Transaction,
};
use crate::{
    Context, Error, Result, entry,
    record::{
        Listed, Page,
        ask::{GrantRecord, Permission},
    },
};

/// The columns that [`grant`] reads, with their table.
const GRANT: &str = "id, agent, approved, scope, run, conversation, tool_pattern, subject, channel, until, permission, \
     created_by, created, revoked, (select ended from task_runs where uid = run) from permission_grants";

// === impl Transaction ===

impl Transaction<'_, '_> {
    /// Those of an agent that were not revoked and may concern the run, the oldest first: every grant is for one agent's work.
    pub(super) fn grants_of(&self, agent: AgentId, run: RunId) -> Result<Vec<Grant>> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {GRANT} where agent = ?1 and revoked is null and (run is null or run = ?2) order by no"
            ))?
            .query_map([Key16(agent.uuid()), Key16(run.uuid())], |row| grant(row).map(|record| record.grant))?
            .collect::<rusqlite::Result<_>>()?)
    }

    pub(super) fn insert_grant(&self, context: &Context, permission: &Permission, grant: &Grant) -> Result<()> {
        let (scope, run, conversation) = match grant.reach {
            Reach::Run(run) => (Scope::Run, Some(Key16(run.uuid())), None),
            Reach::Conversation { conversation, .. } => (Scope::Conversation, None, Some(Key16(conversation.uuid()))),
            Reach::Agent(_) => (Scope::Agent, None, None),
        };
        let (pattern, subject) = match &grant.what {
            What::Tools(pattern) => (Some(pattern), None),
            What::Subject(subject) => (None, Some(subject.0)),
        };
        self.connection
            .prepare_cached(
                "insert into permission_grants (id, tenant, agent, approved, scope, run, conversation, tool_pattern,
                    subject, channel, until, permission, created_by, created)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
            )?
            .execute(params![
                Key16(grant.id.uuid()),
                Key16(context.tenant.uuid()),
                Key16(permission.agent.uuid()),
                grant.approved,
                scope.as_str(),
                run,
                conversation,
                pattern,
                subject,
                grant.channel.map(|channel| Key16(channel.uuid())),
                grant.until.map(Timestamp::millis),
                Key16(permission.id.uuid()),
                context.actor,
                context.at.millis(),
            ])?;
        Ok(())
    }

    pub(super) fn revoke_grant(&mut self, context: &Context, id: GrantId) -> Result<GrantRecord> {
        let record = self.grant(context.tenant, id)?;
        if record.revoked_at.is_some() {
            return Ok(record);
        }
        self.connection
            .prepare_cached("update permission_grants set revoked = ?2 where id = ?1")?
            .execute(params![Key16(id.uuid()), context.at.millis()])?;
        self.log(context.tenant, context.stamp(), &entry::ask::grant_revoked(id), None)?;
        self.grant(context.tenant, id)
    }

    fn grant(&self, tenant: TenantId, id: GrantId) -> Result<GrantRecord> {
        self.connection
            .prepare_cached(&format!("select {GRANT} where id = ?1 and tenant = ?2"))?
            .query_row([Key16(id.uuid()), Key16(tenant.uuid())], grant)
            .optional()?
            .ok_or(Error::NotFound)
    }
}

pub(super) fn grants(connection: &Connection, tenant: TenantId, page: &Page) -> Result<Listed<GrantRecord>> {
    lists::newest(
        connection,
        "no",
        &format!("{GRANT} where tenant = ?1 and no < ?2"),
        &[&Key16(tenant.uuid()), &lists::before(page)?, &lists::one_more(page)],
        page,
        grant,
    )
}

/// Reads [`GRANT`].
fn grant(row: &Row<'_>) -> rusqlite::Result<GrantRecord> {
    let agent = rows::agent_id(row.get(1)?);
    let reach = match Scope::from_text(&row.get::<_, String>(3)?) {
        Some(Scope::Run) => Reach::Run(rows::run_id(row.get(4)?)),
        Some(Scope::Conversation) => Reach::Conversation { conversation: rows::conversation_id(row.get(5)?), agent },
        Some(Scope::Agent) => Reach::Agent(agent),
        Some(Scope::Once) | None => return Err(rows::corrupt(3, "an unknown scope of a grant")),
    };
    let what = match row.get::<_, Option<String>>(6)? {
        Some(pattern) => What::Tools(pattern),
        None => What::Subject(Subject(row.get(7)?)),
    };
    let revoked_at = rows::maybe_time(row, 13)?;
    Ok(GrantRecord {
        grant: Grant {
            id: rows::grant_id(row.get(0)?),
            approved: row.get(2)?,
            reach,
            what,
            channel: row.get::<_, Option<_>>(8)?.map(rows::channel_id),
            until: rows::maybe_time(row, 9)?,
            revoked: revoked_at.is_some(),
        },
        agent,
        permission: rows::permission_id(row.get(10)?),
        created_by: row.get(11)?,
        created_at: rows::time(row, 12)?,
        ended_at: rows::maybe_time(row, 14)?,
        revoked_at,
    })
}

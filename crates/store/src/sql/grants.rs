//! Standing grants, which result from decisions.

use super::connection::{Connection, OptionalExtension as _, Row};
use attache_protocol::{
    AgentId, GrantId, KeyId, RunId, TenantId, Timestamp, UserId,
    rules::permission::{DecisionScope, GrantPattern, GrantReach, PermissionSubject, StandingGrant},
};
use rusqlite::{ToSql, params};

use super::{
    keys, lists,
    rows::{self, IdBytes},
    writer::WriteTransaction,
};
use crate::{
    Error, Result, WriteContext, entry,
    record::{
        ListPage, Pagination,
        worker_request::{GrantMaker, GrantRecord, PermissionRecord},
    },
};

/// The columns that [`grant`] reads, with their table.
const GRANT: &str = "id, agent, approved, scope, run, conversation, tool_pattern, subject, channel, until, permission, \
     created_by, created, revoked, (select ended from task_runs where uid = run), user, key, in_person from permission_grants";

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    /// The grants of an agent that weren't revoked and may apply to the run, oldest first. Every grant is for one
    /// agent.
    pub(super) fn grants_of(&self, agent: AgentId, run: RunId) -> Result<Vec<StandingGrant>> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {GRANT} where agent = ?1 and revoked is null and (run is null or run = ?2) order by no"
            ))?
            .query_map([IdBytes(agent.uuid()), IdBytes(run.uuid())], |row| grant(row).map(|record| record.grant))?
            .collect::<rusqlite::Result<_>>()?)
    }

    pub(super) fn insert_grant(
        &self,
        context: &WriteContext,
        permission: &PermissionRecord,
        grant: &StandingGrant,
        maker: GrantMaker,
    ) -> Result<()> {
        let (scope, run, conversation) = match grant.reach {
            GrantReach::Run(run) => (DecisionScope::Run, Some(IdBytes(run.uuid())), None),
            GrantReach::Conversation { conversation, .. } => {
                (DecisionScope::Conversation, None, Some(IdBytes(conversation.uuid())))
            }
            GrantReach::Agent(_) => (DecisionScope::Agent, None, None),
        };
        let (pattern, subject) = match &grant.what {
            GrantPattern::Tools(pattern) => (Some(pattern), None),
            GrantPattern::Subject(subject) => (None, Some(subject.0)),
        };
        self.connection
            .prepare_cached(
                "insert into permission_grants (id, tenant, agent, approved, scope, run, conversation, tool_pattern,
                    subject, channel, until, permission, created_by, created, user, key, in_person)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
            )?
            .execute(params![
                IdBytes(grant.id.uuid()),
                IdBytes(context.tenant.uuid()),
                IdBytes(permission.agent.uuid()),
                grant.approved,
                scope.as_str(),
                run,
                conversation,
                pattern,
                subject,
                grant.channel.map(|channel| IdBytes(channel.uuid())),
                grant.until.map(Timestamp::millis),
                IdBytes(permission.id.uuid()),
                context.actor.to_string(),
                context.at.millis(),
                maker.user.map(|user| IdBytes(user.uuid())),
                maker.key.map(|key| IdBytes(key.uuid())),
                maker.in_person,
            ])?;
        Ok(())
    }

    /// Revokes the approvals that this user answers for, in order of creation.
    pub(super) fn revoke_grants_of_user(&mut self, context: &WriteContext, user: UserId) -> Result<()> {
        self.revoke_grants(context, "user = ?1", &[&IdBytes(user.uuid())]).map(drop)
    }

    /// The same for a key.
    pub(super) fn revoke_grants_of_key(&mut self, context: &WriteContext, key: KeyId) -> Result<()> {
        self.revoke_grants(context, "key = ?1", &[&IdBytes(key.uuid())]).map(drop)
    }

    /// Revokes the approvals for an agent that anyone but `owner` answers for, or that were given with a credential that
    /// someone else issued for the owner. Whether there were any.
    pub(super) fn revoke_grants_of_others(
        &mut self,
        context: &WriteContext,
        agent: AgentId,
        owner: Option<UserId>,
    ) -> Result<bool> {
        let owner = owner.map(|owner| IdBytes(owner.uuid()));
        let issued = keys::issued_by_others("permission_grants.key");
        let others = format!("agent = ?1 and (user is distinct from ?2 or ?2 is null or {issued})");
        self.revoke_grants(context, &others, &[&IdBytes(agent.uuid()), &owner])
    }

    /// Revokes every approval for an agent. Whether there were any.
    pub(super) fn revoke_grants_of_agent(&mut self, context: &WriteContext, agent: AgentId) -> Result<bool> {
        self.revoke_grants(context, "agent = ?1", &[&IdBytes(agent.uuid())])
    }

    fn revoke_grants(&mut self, context: &WriteContext, which: &str, values: &[&dyn ToSql]) -> Result<bool> {
        let sql =
            format!("select id from permission_grants where {which} and approved = 1 and revoked is null order by no");
        let found = self
            .connection
            .prepare_cached(&sql)?
            .query_map(values, |row| Ok(rows::grant_id(row.get(0)?)))?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for grant in &found {
            self.revoke_grant(context, *grant)?;
        }
        Ok(!found.is_empty())
    }

    pub(super) fn revoke_grant(&mut self, context: &WriteContext, id: GrantId) -> Result<GrantRecord> {
        let record = self.grant(context.tenant, id)?;
        if record.revoked_at.is_some() {
            return Ok(record);
        }
        self.connection
            .prepare_cached("update permission_grants set revoked = ?2 where id = ?1")?
            .execute(params![IdBytes(id.uuid()), context.at.millis()])?;
        self.log(context.tenant, context.stamp(), &entry::worker_request::grant_revoked(id), None)?;
        self.grant(context.tenant, id)
    }

    fn grant(&self, tenant: TenantId, id: GrantId) -> Result<GrantRecord> {
        self.connection
            .prepare_cached(&format!("select {GRANT} where id = ?1 and tenant = ?2"))?
            .query_row([IdBytes(id.uuid()), IdBytes(tenant.uuid())], grant)
            .optional()?
            .ok_or(Error::NotFound)
    }
}

pub(super) fn grants(connection: &Connection, tenant: TenantId, page: &Pagination) -> Result<ListPage<GrantRecord>> {
    lists::newest(
        connection,
        "no",
        &format!("{GRANT} where tenant = ?1 and no < ?2"),
        &[&IdBytes(tenant.uuid()), &lists::before(page)?, &lists::one_more(page)],
        page,
        grant,
    )
}

/// Reads [`GRANT`].
fn grant(row: &Row<'_>) -> rusqlite::Result<GrantRecord> {
    let agent = rows::agent_id(row.get(1)?);
    let reach = match DecisionScope::from_text(&row.get::<String>(3)?) {
        Some(DecisionScope::Run) => GrantReach::Run(rows::run_id(row.get(4)?)),
        Some(DecisionScope::Conversation) => {
            GrantReach::Conversation { conversation: rows::conversation_id(row.get(5)?), agent }
        }
        Some(DecisionScope::Agent) => GrantReach::Agent(agent),
        Some(DecisionScope::Once) | None => return Err(rows::corrupt(3, "an unknown scope of a grant")),
    };
    let what = match row.get::<Option<String>>(6)? {
        Some(pattern) => GrantPattern::Tools(pattern),
        None => GrantPattern::Subject(PermissionSubject(row.get(7)?)),
    };
    let revoked_at = rows::maybe_time(row, 13)?;
    let maker =
        GrantMaker { user: rows::maybe_user(row, 15)?, key: rows::maybe_key(row, 16)?, in_person: row.get(17)? };
    Ok(GrantRecord {
        grant: StandingGrant {
            id: rows::grant_id(row.get(0)?),
            approved: row.get(2)?,
            reach,
            what,
            channel: row.get::<Option<_>>(8)?.map(rows::channel_id),
            until: rows::maybe_time(row, 9)?,
            revoked: revoked_at.is_some(),
            giver: maker.giver(),
        },
        agent,
        permission: rows::permission_id(row.get(10)?),
        created_by: rows::actor(row, 11)?,
        created_at: rows::time(row, 12)?,
        maker,
        ended_at: rows::maybe_time(row, 14)?,
        revoked_at,
    })
}

//! Permission requests: request, decide once, expire and list.

use std::time::Duration;

use super::connection::{Connection, OptionalExtension as _, Row};
use attache_protocol::{
    Json, PermissionId, RunId, TenantId, Timestamp, UserId,
    rules::{
        permission::{
            self, ApprovalDecision, DecisionScope, DecisionSource, DecisionVerdict, OnTimeout, PermissionSubject,
            StandingGrant, decide,
        },
        run::{FailureCode, RunCommand, WaitReason, WorkerRef},
    },
};
use rusqlite::{ToSql, params};
use serde::{Deserialize, Serialize};

use super::{
    journal::{LogStamp, TransitionWrites},
    lists,
    rows::{self, IdBytes, RunState},
    writer::WriteTransaction,
};
use crate::{
    Error, Result, WakeHint, WriteContext,
    entry::{self, call},
    record::{
        ListPage, Pagination,
        channel::OutboxFrame,
        worker_request::{NewDecision, NewPermission, PermissionFilter, PermissionRecord, PermissionSettlement},
    },
    weight::has_room,
};

/// The columns that [`permission`] reads, with their tables.
const PERMISSION: &str = "p.id, p.run, p.agent, a.name, p.conversation, p.runtime, p.epoch, p.channel, p.tool, p.input, \
     p.cwd, p.paths, p.reason, p.risk, p.subject, p.request, p.requested, p.expires, p.on_timeout, p.state, p.decided, \
     p.decided_by, p.source, p.decided_via, p.decided_from, p.permission_grant, p.decision, p.diff, p.undisclosed, p.private_agent, p.used_by, \
     a.confirm_approvals \
     from permission_requests p cross join agent_accounts a on a.id = p.agent";

/// The effect of a settled permission on its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecisionEffect {
    /// It waits for one answer less.
    GoesOn,
    /// It never waited, or no longer waits.
    None,
}

/// A person's decision as stored in its column.
#[derive(Serialize, Deserialize)]
struct StoredDecision {
    approved: bool,
    scope: DecisionScope,
    tool_pattern: Option<String>,
    until: Option<Timestamp>,
    this_channel_only: bool,
    comment: Option<String>,
}

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    pub(super) fn request_permission(
        &mut self,
        by: WorkerRef,
        new: &NewPermission,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Result<PermissionRecord>> {
        let hot = self.workers_run(by, new.run)?;
        let actor = entry::runtime_actor(by.runtime);
        let stamp = LogStamp { actor: &actor, at };
        let asked = match self.judge(&hot, &RunCommand::Ask { by, what: WaitReason::Approval, lease }, at) {
            Ok(asked) => asked,
            Err(error) => return self.refuse(&hot, call::PERMISSION, by, stamp, error),
        };
        let renewed = self.judge(&hot, &RunCommand::Progress { by, lease }, at)?;
        if let Some(known) = self.find_repeated_permission(&hot, new)? {
            if known.subject != new.subject {
                return Err(Error::KeyReused);
            }
            self.renew(&hot, renewed.state)?;
            return Ok(Ok(known));
        }
        let requested = entry::worker_request::permission_requested(new);
        if !has_room(hot.log_bytes, requested.1.get().len()) {
            return Err(Error::LogFull);
        }
        let mut after = self.append_for(hot.clone(), stamp, &requested)?;
        if let Some(channel) = hot.channel {
            let forwarded = entry::channel::permission_forwarded(channel, new.id, hot.id);
            self.log_channel(channel, stamp, &forwarded)?;
        }
        self.insert_permission(&hot, by, new, at)?;
        let permission = read_permission(self.connection, hot.tenant, new.id)?;
        let grants = self.grants_of(hot.agent, hot.id)?;
        let answer = match permission::judge(&grants, permission.as_asked(new.speaker).with_plan(new.plan), at) {
            Some(grant) => {
                let decision = self.denial_behind(hot.tenant, grant, new.speaker)?;
                Some(PermissionSettlement::by_grant(grant, decision, at))
            }
            None => new.trusted.clone().map(|reason| PermissionSettlement::by_mode(reason, at)),
        };
        match answer {
            Some((state, settled)) => {
                after.state = renewed.state;
                let permission = PermissionRecord { state, settled: Some(settled), ..permission };
                let stamp = LogStamp { actor: WriteContext::SYSTEM, at };
                after = self.settle_permission(after, &permission, stamp, DecisionEffect::None)?;
            }
            None => {
                after = self.append_for(after, stamp, &entry::worker_request::approval_required(new.id))?;
                after = self.wait(after, asked, stamp)?;
                if let Some(url) = &new.notify {
                    self.notify(&hot, new.id, url, at)?;
                }
            }
        }
        self.put(&hot, &after, None)?;
        read_permission(self.connection, hot.tenant, new.id).map(Ok)
    }

    /// The comment of the denial that a grant repeats, so that the agent learns the reason every time, unless only someone
    /// else may speak to it.
    fn denial_behind(
        &self,
        tenant: TenantId,
        grant: &StandingGrant,
        speaker: Option<UserId>,
    ) -> Result<Option<ApprovalDecision>> {
        if grant.approved {
            return Ok(None);
        }
        let (made_by, maker): ([u8; 16], _) = self
            .connection
            .prepare_cached("select permission, user from permission_grants where id = ?1")?
            .query_row([IdBytes(grant.id.uuid())], |row| Ok((row.get(0)?, rows::maybe_user(row, 1)?)))?;
        if speaker.is_some() && speaker != maker {
            return Ok(None);
        }
        let made_by = read_permission(self.connection, tenant, rows::permission_id(made_by))?;
        Ok(made_by.settled.and_then(|settled| settled.decision))
    }

    fn insert_permission(&self, hot: &RunState, by: WorkerRef, new: &NewPermission, at: Timestamp) -> Result<()> {
        self.connection
            .prepare_cached(
                "insert into permission_requests (id, tenant, agent, run, epoch, state, expires, on_timeout, subject,
                    request, conversation, runtime, channel, requested, tool, input, cwd, paths, reason, risk, diff,
                    undisclosed, private_agent)
                 select ?1, r.tenant, r.agent, r.uid, ?2, ?3, ?4, ?5, ?6, ?7, coalesce(r.conversation, r.uid), ?8, ?9,
                    ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?18, ?19, ?20
                 from task_runs r where r.id = ?17",
            )?
            .execute(params![
                IdBytes(new.id.uuid()),
                hot.state.epoch,
                permission::PermissionState::Pending.as_str(),
                new.expires_at.map(Timestamp::millis),
                new.on_timeout.as_str(),
                new.subject.0,
                new.request,
                IdBytes(by.runtime.uuid()),
                new.channel.map(|channel| IdBytes(channel.uuid())),
                at.millis(),
                new.tool,
                new.input.get(),
                new.cwd,
                Json::of(&new.paths).get(),
                new.reason,
                new.risk,
                hot.row,
                new.diff,
                (!new.undisclosed.is_empty()).then(|| Json::of(&new.undisclosed).get().to_owned()),
                new.private_agent,
            ])?;
        Ok(())
    }

    /// An approval that has started no run yet.
    pub(super) fn unused_approval(&self, tenant: TenantId, id: PermissionId) -> Result<()> {
        match read_permission(self.connection, tenant, id)?.used_by {
            Some(_) => Err(Error::ApprovalUsed),
            None => Ok(()),
        }
    }

    pub(super) fn use_approval(&self, id: PermissionId, run: RunId) -> Result<()> {
        self.connection
            .prepare_cached("update permission_requests set used_by = ?2 where id = ?1")?
            .execute([IdBytes(id.uuid()), IdBytes(run.uuid())])?;
        Ok(())
    }

    /// The request of the same claim with the same question.
    fn find_repeated_permission(&self, hot: &RunState, new: &NewPermission) -> Result<Option<PermissionRecord>> {
        let same = match new.request {
            Some(_) => "p.request = ?3 and coalesce(?4, p.subject) is not null",
            None => "p.state = 'pending' and p.subject = ?4 and coalesce(?3, '') = ''",
        };
        let sql = format!("select {PERMISSION} where p.run = ?1 and p.epoch = ?2 and {same} order by p.no limit 1");
        Ok(self
            .connection
            .prepare_cached(&sql)?
            .query_row(params![IdBytes(hot.id.uuid()), hot.state.epoch, new.request, new.subject.0], permission)
            .optional()?)
    }

    pub(super) fn decide_permission(
        &mut self,
        context: &WriteContext,
        id: PermissionId,
        new: NewDecision,
    ) -> Result<Result<PermissionRecord>> {
        let permission = read_permission(self.connection, context.tenant, id)?;
        let before = permission.settled.as_ref().map(|settled| permission::PriorDecision {
            state: permission.state,
            by: &settled.by,
            decision: settled.decision.as_ref(),
        });
        let NewDecision { decision, grant, maker, via, from } = new;
        match decide(before, &context.actor, &decision) {
            DecisionVerdict::Settles => {}
            DecisionVerdict::Repeats => return Ok(Ok(permission)),
            DecisionVerdict::TooLate => {
                let late = entry::worker_request::permission_late(&permission, &decision);
                self.log(context.tenant, context.stamp(), &late, None)?;
                return Ok(Err(Error::AlreadyDecided(Box::new(permission))));
            }
        }
        let grant = StandingGrant::of(grant, &decision, maker.giver(), permission.as_asked(None));
        if let Some(grant) = &grant {
            self.insert_grant(context, &permission, grant, maker)?;
        }
        let settled = PermissionSettlement {
            at: context.at,
            by: context.actor.clone(),
            source: Some(DecisionSource::User),
            via: Some(via),
            from,
            grant: grant.map(|grant| grant.id),
            decision: Some(decision),
        };
        let approved = settled.decision.as_ref().is_some_and(|decision| decision.approved);
        let state = permission::PermissionState::decided(approved);
        let permission = PermissionRecord { state, settled: Some(settled), ..permission };
        let hot = self.run_state(permission.run)?;
        let after = self.settle_permission(hot.clone(), &permission, context.stamp(), DecisionEffect::GoesOn)?;
        self.put(&hot, &after, None)?;
        Ok(Ok(permission))
    }

    /// Stores how a pending permission was settled, with its rows and its frame. The run isn't stored yet.
    fn settle_permission(
        &mut self,
        hot: RunState,
        permission: &PermissionRecord,
        stamp: LogStamp<'_>,
        effect: DecisionEffect,
    ) -> Result<RunState> {
        let (id, run) = (permission.id, permission.run);
        self.update_permission(permission)?;
        let hot = self.append_for(hot, stamp, &entry::worker_request::permission_decided(permission))?;
        self.woken.push(WakeHint::Asked(run));
        let answer = permission.state.approved().filter(|_| permission.state != permission::PermissionState::Cancelled);
        let Some(approved) = answer else { return Ok(hot) };
        if let Some(channel) = hot.channel {
            self.log_channel(channel, stamp, &entry::channel::permission_returned(channel, id, run, approved))?;
            self.add_frame(channel, OutboxFrame::Permission { permission: id })?;
        }
        if effect == DecisionEffect::None {
            return Ok(hot);
        }
        let answered = self.judge(&hot, &RunCommand::Answer { what: WaitReason::Approval }, stamp.at)?;
        self.wait(hot, answered, stamp)
    }

    fn update_permission(&self, permission: &PermissionRecord) -> Result<()> {
        let settled = permission.settled.as_ref();
        let decision = settled.and_then(|settled| settled.decision.as_ref()).map(StoredDecision::of);
        self.connection
            .prepare_cached(
                "update permission_requests set state = ?2, decided = ?3, decided_by = ?4, source = ?5,
                    decided_via = ?6, decided_from = ?7, permission_grant = ?8, decision = ?9
                 where id = ?1",
            )?
            .execute(params![
                IdBytes(permission.id.uuid()),
                permission.state.as_str(),
                settled.map(|settled| settled.at.millis()),
                settled.map(|settled| settled.by.to_string()),
                settled.and_then(|settled| settled.source).map(DecisionSource::as_str),
                settled.and_then(|settled| settled.via.as_deref()),
                settled.and_then(|settled| settled.from.as_deref()),
                settled.and_then(|settled| settled.grant).map(|grant| IdBytes(grant.uuid())),
                decision.map(|decision| Json::of(&decision).get().to_owned()),
            ])?;
        Ok(())
    }

    /// The answers are no longer needed: the run is about to leave `running`. The run isn't stored yet.
    pub(super) fn cancel_questions(&mut self, hot: &RunState, at: Timestamp) -> Result<RunState> {
        let mut after = hot.clone();
        let waits = hot.state.claim().map(|claim| claim.waits).unwrap_or_default();
        if waits.approvals > 0 {
            let sql = format!("select {PERMISSION} where p.run = ?1 and p.state = 'pending' order by p.no");
            let pending = self
                .connection
                .prepare_cached(&sql)?
                .query_map([IdBytes(hot.id.uuid())], permission)?
                .collect::<rusqlite::Result<Vec<_>>>()?;
            for permission in pending {
                let state = permission::PermissionState::Cancelled;
                let permission = PermissionRecord { state, settled: Some(by_itself(at, None)), ..permission };
                let stamp = LogStamp { actor: WriteContext::SYSTEM, at };
                after = self.settle_permission(after, &permission, stamp, DecisionEffect::None)?;
            }
        }
        if waits.waiting().is_some() || hot.calls > 0 {
            self.cancel_worker_requests(hot.id)?;
            after.calls = 0;
        }
        Ok(after)
    }

    pub(super) fn expire_permissions(&mut self, at: Timestamp, runs: &mut Vec<RunId>) -> Result<()> {
        let stamp = LogStamp { actor: WriteContext::SYSTEM, at };
        let sql = format!(
            "select {} where p.state = 'pending' and p.expires is not null and p.expires <= ?1
                and p.on_timeout <> 'keep_waiting' order by p.no",
            PERMISSION
                .replace("permission_requests p", "permission_requests p indexed by permission_requests_expiring")
        );
        let due = self
            .connection
            .prepare_cached(&sql)?
            .query_map([at.millis()], permission)?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for permission in due {
            let hot = self.run_state(permission.run)?;
            // An earlier one may have ended the run and cancelled this one.
            if hot.state.epoch != permission.epoch || hot.state.claim().is_none() {
                continue;
            }
            let halts = permission.on_timeout == OnTimeout::DenyAndHalt;
            let settled = Some(by_itself(at, Some(DecisionSource::Timeout)));
            let permission = PermissionRecord { state: permission::PermissionState::Expired, settled, ..permission };
            let effect = if halts { DecisionEffect::None } else { DecisionEffect::GoesOn };
            let after = self.settle_permission(hot.clone(), &permission, stamp, effect)?;
            self.put(&hot, &after, None)?;
            if halts {
                let halt = RunCommand::Halt { code: FailureCode::PermissionDenied };
                self.step(&after, &halt, stamp, TransitionWrites::default())?;
                runs.push(after.id);
            }
        }
        Ok(())
    }
}

pub(super) fn read_permission(connection: &Connection, tenant: TenantId, id: PermissionId) -> Result<PermissionRecord> {
    connection
        .prepare_cached(&format!("select {PERMISSION} where p.id = ?1 and p.tenant = ?2"))?
        .query_row([IdBytes(id.uuid()), IdBytes(tenant.uuid())], permission)
        .optional()?
        .ok_or(Error::NotFound)
}

pub(super) fn permissions(
    connection: &Connection,
    tenant: TenantId,
    filter: &PermissionFilter,
    page: &Pagination,
) -> Result<ListPage<PermissionRecord>> {
    let run = filter.run.map(|run| IdBytes(run.uuid()));
    let agent = filter.agent.map(|agent| IdBytes(agent.uuid()));
    let tenant = IdBytes(tenant.uuid());
    let (before, limit) = (lists::before(page)?, lists::one_more(page));
    let mut values: Vec<&dyn ToSql> = vec![&tenant, &before, &limit];
    let mut conditions = String::new();
    // A literal, because a partial index is only used if its condition appears literally.
    if let Some(state) = filter.state {
        conditions += &format!(" and p.state = '{}'", state.as_str());
    }
    if let Some(run) = &run {
        values.push(run);
        conditions += &format!(" and p.run = ?{}", values.len());
    }
    if let Some(agent) = &agent {
        values.push(agent);
        conditions += &format!(" and p.agent = ?{}", values.len());
    }
    let selection = format!("{PERMISSION} where p.tenant = ?1 and p.no < ?2{conditions}");
    lists::newest(connection, "p.no", &selection, &values, page, permission)
}

pub(super) fn pending_permissions(connection: &Connection, tenant: TenantId) -> Result<u64> {
    let count: i64 = connection
        .prepare_cached("select count(*) from permission_requests where tenant = ?1 and state = 'pending'")?
        .query_row([IdBytes(tenant.uuid())], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// How a permission is settled without a decision.
fn by_itself(at: Timestamp, source: Option<DecisionSource>) -> PermissionSettlement {
    let by = WriteContext::SYSTEM.to_owned();
    PermissionSettlement { at, by, source, decision: None, via: None, from: None, grant: None }
}

/// Reads [`PERMISSION`].
fn permission(row: &Row<'_>) -> rusqlite::Result<PermissionRecord> {
    let state = permission::PermissionState::from_text(&row.get::<String>(19)?);
    let on_timeout = OnTimeout::from_text(&row.get::<String>(18)?);
    let paths = rows::json(row, 11)?.parse().map_err(|_| rows::corrupt(11, "paths are not texts"))?;
    Ok(PermissionRecord {
        id: rows::permission_id(row.get(0)?),
        run: rows::run_id(row.get(1)?),
        agent: rows::agent_id(row.get(2)?),
        agent_name: row.get(3)?,
        conversation: rows::conversation_id(row.get(4)?),
        runtime: rows::runtime_id(row.get(5)?),
        epoch: row.get(6)?,
        channel: row.get::<Option<_>>(7)?.map(rows::channel_id),
        tool: row.get(8)?,
        input: rows::json(row, 9)?,
        cwd: row.get(10)?,
        paths,
        reason: row.get(12)?,
        risk: row.get(13)?,
        diff: row.get(27)?,
        undisclosed: match rows::maybe_json(row, 28)? {
            Some(list) => list.parse().map_err(|_| rows::corrupt(28, "what is undisclosed is no list of texts"))?,
            None => Vec::new(),
        },
        private_agent: row.get(29)?,
        used_by: row.get::<Option<_>>(30)?.map(rows::run_id),
        confirm_approvals: rows::confirm_approvals(row, 31)?,
        subject: PermissionSubject(row.get(14)?),
        request: row.get(15)?,
        requested_at: rows::time(row, 16)?,
        expires_at: rows::maybe_time(row, 17)?,
        on_timeout: on_timeout.ok_or_else(|| rows::corrupt(18, "an unknown rule for time-outs"))?,
        state: state.ok_or_else(|| rows::corrupt(19, "an unknown state of a permission"))?,
        settled: settled(row)?,
    })
}

fn settled(row: &Row<'_>) -> rusqlite::Result<Option<PermissionSettlement>> {
    let Some(at) = rows::maybe_time(row, 20)? else { return Ok(None) };
    let source = match row.get::<Option<String>>(22)? {
        Some(text) => Some(DecisionSource::from_text(&text).ok_or_else(|| rows::corrupt(22, "an unknown source"))?),
        None => None,
    };
    let decision = match rows::maybe_json(row, 26)? {
        Some(json) => Some(json.parse::<StoredDecision>().map_err(|_| rows::corrupt(26, "not a decision"))?.into()),
        None => None,
    };
    Ok(Some(PermissionSettlement {
        at,
        by: rows::actor(row, 21)?,
        source,
        decision,
        via: row.get(23)?,
        from: row.get(24)?,
        grant: row.get::<Option<_>>(25)?.map(rows::grant_id),
    }))
}

// === impl StoredDecision ===

impl StoredDecision {
    fn of(decision: &ApprovalDecision) -> Self {
        let ApprovalDecision { approved, scope, tool_pattern, until, this_channel_only, comment } = decision.clone();
        Self { approved, scope, tool_pattern, until, this_channel_only, comment }
    }
}

impl From<StoredDecision> for ApprovalDecision {
    fn from(stored: StoredDecision) -> Self {
        let StoredDecision { approved, scope, tool_pattern, until, this_channel_only, comment } = stored;
        Self { approved, scope, tool_pattern, until, this_channel_only, comment }
    }
}

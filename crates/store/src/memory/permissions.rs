//! Permission requests, each decided once, and the grants that result from decisions.

use std::time::Duration;

use attache_protocol::{
    Actor, AgentId, GrantId, KeyId, PermissionId, RunId, TenantId, Timestamp, UserId,
    rules::{
        permission::{
            self, ApprovalDecision, DecisionSource, DecisionVerdict, GrantReach, OnTimeout, StandingGrant, decide,
        },
        run::{FailureCode, RunCommand, WaitReason, WorkerRef},
    },
    wire::account::ApprovalConfirmation,
};

use super::{
    page::{self, PageOrder},
    state::ModelState,
};
use crate::{
    Error, Result, WakeHint, WriteContext,
    entry::{self, call},
    record::{
        ListPage, Pagination,
        channel::OutboxFrame,
        delivery::DeliveryRecord,
        worker_request::{
            GrantMaker, GrantRecord, NewDecision, NewPermission, PermissionFilter, PermissionRecord,
            PermissionSettlement,
        },
    },
    weight::has_room,
};

/// The effect of a settled permission on its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelDecisionEffect {
    /// It waits for one answer less.
    GoesOn,
    /// It never waited.
    None,
}

// === impl ModelState ===

impl ModelState {
    pub(super) fn request_permission(
        &mut self,
        by: WorkerRef,
        new: NewPermission,
        lease: Duration,
        at: Timestamp,
    ) -> Result<PermissionRecord> {
        let place = self.work(by, new.run)?;
        let ask = RunCommand::Ask { by, what: WaitReason::Approval, lease };
        let asked = self.judge_worker(place, &ask, by, call::PERMISSION, at)?;
        let renewed = self.judge(place, &RunCommand::Progress { by, lease }, at)?;
        if let Some(known) = self.find_repeated_permission(place, &new) {
            if self.permissions[&known].1.subject != new.subject {
                return Err(Error::KeyReused);
            }
            self.runs[place].record.state = renewed.state;
            return Ok(self.shown_permission(known));
        }
        let (id, actor) = (new.id, entry::runtime_actor(by.runtime));
        let requested = entry::worker_request::permission_requested(&new);
        if !has_room(self.runs[place].log_bytes, requested.1.get().len()) {
            return Err(Error::LogFull);
        }
        self.append_for(place, at, &actor, requested);
        let record = &self.runs[place].record;
        let (tenant, run, channel) = (record.tenant, record.id, record.channel);
        let permission = PermissionRecord {
            id,
            run,
            agent: record.agent,
            agent_name: String::new(),
            conversation: record.conversation,
            runtime: by.runtime,
            epoch: record.state.epoch,
            channel: new.channel,
            tool: new.tool,
            input: new.input,
            cwd: new.cwd,
            paths: new.paths,
            reason: new.reason,
            risk: new.risk,
            diff: new.diff,
            undisclosed: new.undisclosed,
            private_agent: new.private_agent,
            confirm_approvals: ApprovalConfirmation::default(),
            used_by: None,
            subject: new.subject,
            request: new.request,
            requested_at: at,
            expires_at: new.expires_at,
            on_timeout: new.on_timeout,
            state: permission::PermissionState::Pending,
            settled: None,
        };
        if let Some(channel) = channel {
            self.append_to(channel, at, &actor, entry::channel::permission_forwarded(channel, id, run));
        }
        let grants = self.grants.values().filter(|(owner, _)| *owner == tenant).map(|(_, record)| &record.grant);
        let answer = match permission::judge(grants, permission.as_asked(new.speaker).with_plan(new.plan), at) {
            Some(grant) => {
                let decision = self.denial_behind(grant.id, new.speaker);
                Some(PermissionSettlement::by_grant(grant, decision, at))
            }
            None => new.trusted.map(|reason| PermissionSettlement::by_mode(reason, at)),
        };
        self.permissions.insert(id, (tenant, permission));
        match answer {
            Some((state, settled)) => {
                self.runs[place].record.state = renewed.state;
                self.settle_permission(id, state, settled, WriteContext::SYSTEM, ModelDecisionEffect::None);
            }
            None => {
                self.append_for(place, at, &actor, entry::worker_request::approval_required(id));
                self.wait(place, asked, &actor, at);
                if let Some(url) = new.notify {
                    self.deliver(DeliveryRecord::due(tenant, run, Some(id), url, at));
                }
            }
        }
        Ok(self.shown_permission(id))
    }

    /// The request of the same claim with the same question.
    fn find_repeated_permission(&self, place: usize, new: &NewPermission) -> Option<PermissionId> {
        let epoch = self.runs[place].record.state.epoch;
        let mut same_claim = self
            .permissions
            .values()
            .map(|(_, permission)| permission)
            .filter(|permission| permission.run == new.run && permission.epoch == epoch);
        let same = |known: &&PermissionRecord| match &new.request {
            Some(_) => known.request == new.request,
            None => known.state == permission::PermissionState::Pending && known.subject == new.subject,
        };
        same_claim.find(same).map(|known| known.id)
    }

    pub(super) fn decide_permission(
        &mut self,
        context: &WriteContext,
        id: PermissionId,
        new: NewDecision,
    ) -> Result<PermissionRecord> {
        let permission = self.permission(context.tenant, id)?;
        let before = permission.settled.as_ref().map(|settled| permission::PriorDecision {
            state: permission.state,
            by: &settled.by,
            decision: settled.decision.as_ref(),
        });
        let NewDecision { decision, grant, maker, via, from } = new;
        match decide(before, &context.actor, &decision) {
            DecisionVerdict::Settles => {}
            DecisionVerdict::Repeats => return Ok(permission),
            DecisionVerdict::TooLate => {
                let late = entry::worker_request::permission_late(&permission, &decision);
                self.append(context.tenant, context.at, &context.actor, late);
                return Err(Error::AlreadyDecided(Box::new(permission)));
            }
        }
        let grant = StandingGrant::of(grant, &decision, maker.giver(), permission.as_asked(None));
        let state = permission::PermissionState::decided(decision.approved);
        let settled = PermissionSettlement {
            at: context.at,
            by: context.actor.clone(),
            source: Some(DecisionSource::User),
            decision: Some(decision),
            via: Some(via),
            from,
            grant: grant.as_ref().map(|grant| grant.id),
        };
        if let Some(grant) = grant {
            let record = GrantRecord {
                agent: permission.agent,
                permission: id,
                created_by: context.actor.clone(),
                maker,
                created_at: context.at,
                ended_at: None,
                revoked_at: None,
                grant,
            };
            self.grants.insert(record.grant.id, (context.tenant, record));
        }
        self.settle_permission(id, state, settled, &context.actor, ModelDecisionEffect::GoesOn);
        Ok(self.shown_permission(id))
    }

    /// Settles a pending permission, with its rows and its frame.
    fn settle_permission(
        &mut self,
        id: PermissionId,
        state: permission::PermissionState,
        settled: PermissionSettlement,
        actor: &Actor,
        effect: ModelDecisionEffect,
    ) {
        let at = settled.at;
        let (_, permission) = self.permissions.get_mut(&id).expect("callers have found it");
        permission.state = state;
        permission.settled = Some(settled);
        let (run, row) = (permission.run, entry::worker_request::permission_decided(permission));
        let place = self.places[&run];
        self.append_for(place, at, actor, row);
        self.woken.push(WakeHint::Asked(run));
        let answer = state.approved().filter(|_| state != permission::PermissionState::Cancelled);
        let Some(approved) = answer else { return };
        if let Some(channel) = self.runs[place].record.channel {
            self.append_to(channel, at, actor, entry::channel::permission_returned(channel, id, run, approved));
            self.add_frame(channel, OutboxFrame::Permission { permission: id });
        }
        if effect == ModelDecisionEffect::GoesOn {
            let answered = self.judge(place, &RunCommand::Answer { what: WaitReason::Approval }, at);
            self.wait(place, answered.expect("a run that asks is running"), actor, at);
        }
    }

    /// The answers are no longer needed: the run is about to leave `running`.
    pub(super) fn cancel_questions(&mut self, place: usize, at: Timestamp) {
        let run = self.runs[place].record.id;
        for id in self.pending_permissions_of(|permission| permission.run == run) {
            let state = permission::PermissionState::Cancelled;
            self.settle_permission(id, state, by_itself(at, None), WriteContext::SYSTEM, ModelDecisionEffect::None);
        }
        self.cancel_worker_requests(run);
    }

    /// In order of creation.
    fn pending_permissions_of(&self, wanted: impl Fn(&PermissionRecord) -> bool) -> Vec<PermissionId> {
        let permissions = self.permissions.values().map(|(_, permission)| permission);
        let pending = permissions.filter(|permission| permission.state == permission::PermissionState::Pending);
        pending.filter(|permission| wanted(permission)).map(|permission| permission.id).collect()
    }

    pub(super) fn expire_permissions(&mut self, at: Timestamp, runs: &mut Vec<RunId>) {
        let due = self.pending_permissions_of(|permission| {
            let may_expire = permission.on_timeout != OnTimeout::KeepWaiting;
            may_expire && permission.expires_at.is_some_and(|expires_at| expires_at <= at)
        });
        for id in due {
            let (_, PermissionRecord { run, state, on_timeout, .. }) = &self.permissions[&id];
            let (run, on_timeout) = (*run, *on_timeout);
            // An earlier one may have ended the run.
            if *state != permission::PermissionState::Pending {
                continue;
            }
            let halts = on_timeout == OnTimeout::DenyAndHalt;
            let effect = if halts { ModelDecisionEffect::None } else { ModelDecisionEffect::GoesOn };
            let settled = by_itself(at, Some(DecisionSource::Timeout));
            self.settle_permission(id, permission::PermissionState::Expired, settled, WriteContext::SYSTEM, effect);
            if halts {
                let halt = RunCommand::Halt { code: FailureCode::PermissionDenied };
                self.by_rule(self.places[&run], &halt, WriteContext::SYSTEM, at);
                runs.push(run);
            }
        }
    }

    pub(super) fn permission(&self, tenant: TenantId, id: PermissionId) -> Result<PermissionRecord> {
        let known = self.permissions.get(&id).filter(|(owner, _)| *owner == tenant);
        known.map(|_| self.shown_permission(id)).ok_or(Error::NotFound)
    }

    pub(super) fn permissions(
        &self,
        tenant: TenantId,
        filter: &PermissionFilter,
        page: &Pagination,
    ) -> Result<ListPage<PermissionRecord>> {
        let wanted = |permission: &PermissionRecord| {
            filter.state.is_none_or(|state| state == permission.state)
                && filter.run.is_none_or(|run| run == permission.run)
                && filter.agent.is_none_or(|agent| agent == permission.agent)
        };
        let items = self.permissions.iter().rev();
        let items = items.filter(|(_, (owner, permission))| *owner == tenant && wanted(permission));
        let shown = items.map(|(place, (_, permission))| (place, self.shown_permission(permission.id)));
        page::cut(shown, PageOrder::Descending, page)
    }

    pub(super) fn pending_permissions(&self, tenant: TenantId) -> u64 {
        let pending = self
            .permissions
            .values()
            .filter(|(owner, permission)| *owner == tenant && permission.state == permission::PermissionState::Pending);
        u64::try_from(pending.count()).unwrap_or(u64::MAX)
    }

    pub(super) fn grants(&self, tenant: TenantId, page: &Pagination) -> Result<ListPage<GrantRecord>> {
        let items = self.grants.iter().rev().filter(|(_, (owner, _))| *owner == tenant);
        page::cut(items.map(|(place, (_, grant))| (place, self.shown_grant(grant))), PageOrder::Descending, page)
    }

    pub(super) fn revoke_grant(&mut self, context: &WriteContext, id: GrantId) -> Result<GrantRecord> {
        let known = self.grants.get_mut(&id).filter(|(owner, _)| *owner == context.tenant);
        let (_, record) = known.ok_or(Error::NotFound)?;
        let revoked_before = record.revoked_at.is_some();
        if !revoked_before {
            record.revoked_at = Some(context.at);
            record.grant.revoked = true;
        }
        let record = record.clone();
        if !revoked_before {
            self.append(context.tenant, context.at, &context.actor, entry::worker_request::grant_revoked(id));
        }
        Ok(self.shown_grant(&record))
    }

    /// Revokes the selected approvals of the tenant, in order of creation. Whether there were any.
    pub(super) fn revoke_grants(&mut self, context: &WriteContext, wanted: impl Fn(&GrantRecord) -> bool) -> bool {
        let standing = |record: &GrantRecord| record.grant.approved && record.revoked_at.is_none();
        let found = self.grants.values().filter(|(owner, _)| *owner == context.tenant).map(|(_, record)| record);
        let found = found.filter(|record| standing(record) && wanted(record)).map(|record| record.grant.id);
        let found: Vec<_> = found.collect();
        for grant in &found {
            self.revoke_grant(context, *grant).expect("it was just found");
        }
        !found.is_empty()
    }

    /// Revokes the approvals for an agent that anyone but `owner` answers for, or that were given with a credential that
    /// someone else issued for the owner.
    pub(super) fn revoke_grants_of_others(
        &mut self,
        context: &WriteContext,
        agent: AgentId,
        owner: Option<UserId>,
    ) -> bool {
        let is_owners =
            |maker: GrantMaker| owner.is_some() && maker.user == owner && self.has_only_keys_of(maker.key, owner);
        let of_agent = self.grants.values().map(|(_, record)| record).filter(|record| record.agent == agent);
        let others = of_agent.filter(|record| !is_owners(record.maker)).map(|record| record.grant.id);
        let others: Vec<GrantId> = others.collect();
        self.revoke_grants(context, |record| others.contains(&record.grant.id))
    }

    /// Whether the key, and every key it was issued or opened with, belongs to the user.
    pub(super) fn has_only_keys_of(&self, mut key: Option<KeyId>, user: Option<UserId>) -> bool {
        while let Some(stored) = key.and_then(|key| self.keys.get(&key)) {
            if stored.key.user != user {
                return false;
            }
            key = stored.key.opener();
        }
        true
    }

    /// The grant with the end of its run.
    fn shown_grant(&self, record: &GrantRecord) -> GrantRecord {
        let ended_at = match record.grant.reach {
            GrantReach::Run(run) => self.runs[self.places[&run]].record.ended_at,
            GrantReach::Conversation { .. } | GrantReach::Agent(_) => None,
        };
        GrantRecord { ended_at, ..record.clone() }
    }

    /// What was said with the denial that a grant stands for: the agent is told why, also the next time.
    fn denial_behind(&self, grant: GrantId, speaker: Option<UserId>) -> Option<ApprovalDecision> {
        let (_, record) = self.grants.get(&grant).filter(|(_, record)| !record.grant.approved)?;
        if speaker.is_some() && speaker != record.maker.user {
            return None;
        }
        let (_, made_by) = self.permissions.get(&record.permission)?;
        made_by.settled.as_ref()?.decision.clone()
    }

    /// The permission with its agent's name and setting of now.
    fn shown_permission(&self, id: PermissionId) -> PermissionRecord {
        let (_, permission) = &self.permissions[&id];
        let agent = &self.accounts[&permission.agent];
        let (agent_name, confirm_approvals) = (agent.name.clone(), agent.confirm_approvals);
        PermissionRecord { agent_name, confirm_approvals, ..permission.clone() }
    }
}

/// How a permission is settled without anybody's decision.
fn by_itself(at: Timestamp, source: Option<DecisionSource>) -> PermissionSettlement {
    let by = WriteContext::SYSTEM.to_owned();
    PermissionSettlement { at, by, source, decision: None, via: None, from: None, grant: None }
}

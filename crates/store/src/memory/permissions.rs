//! Permission requests, decided once, and the grants that decisions leave behind.

use std::time::Duration;

use attache_protocol::{
    GrantId, PermissionId, RunId, TenantId, Timestamp,
    rules::{
        permission::{self, Decision, Grant, OnTimeout, Reach, Source, Verdict, decide},
        run::{Command, FailureCode, Waiting, Worker},
    },
};

use super::{
    page::{self, Order},
    state::State,
};
use crate::{
    Context, Error, Result, Woken,
    entry::{self, call},
    record::{
        Listed, Page,
        ask::{GrantRecord, NewDecision, NewPermission, Permission, PermissionFilter, Settled},
        channel::Frame,
        delivery::Delivery,
    },
    weight::has_room,
};

/// What a settled permission means for its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// It waits for one answer less.
    GoesOn,
    /// It never waited.
    None,
}

// === impl State ===

impl State {
    pub(super) fn request_permission(
        &mut self,
        by: Worker,
        new: NewPermission,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Permission> {
        let place = self.work(by, new.run)?;
        let ask = Command::Ask { by, what: Waiting::Approval, lease };
        let asked = self.judge_worker(place, &ask, by, call::PERMISSION, at)?;
        let renewed = self.judge(place, &Command::Progress { by, lease }, at)?;
        if let Some(known) = self.asked_before(place, &new) {
            if self.permissions[&known].1.subject != new.subject {
                return Err(Error::KeyReused);
            }
            self.runs[place].record.state = renewed.state;
            return Ok(self.shown_permission(known));
        }
        let (id, actor) = (new.id, entry::runtime_actor(by.runtime));
        let requested = entry::ask::permission_requested(&new);
        if !has_room(self.runs[place].log_bytes, requested.1.get().len()) {
            return Err(Error::LogFull);
        }
        self.append_for(place, at, &actor, requested);
        let record = &self.runs[place].record;
        let (tenant, run, channel) = (record.tenant, record.id, record.channel);
        let permission = Permission {
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
            subject: new.subject,
            request: new.request,
            requested_at: at,
            expires_at: new.expires_at,
            on_timeout: new.on_timeout,
            state: permission::State::Pending,
            settled: None,
        };
        if let Some(channel) = channel {
            self.append_to(channel, at, &actor, entry::channel::permission_forwarded(channel, id, run));
        }
        let grants = self.grants.values().filter(|(owner, _)| *owner == tenant).map(|(_, record)| &record.grant);
        let answer = permission::judge(grants, permission.as_asked(), at).map(|grant| (grant.id, grant.approved));
        self.permissions.insert(id, (tenant, permission));
        match answer {
            Some((grant, approved)) => {
                self.runs[place].record.state = renewed.state;
                let settled = Settled {
                    at,
                    by: format!("grant:{grant}"),
                    source: Some(Source::Policy),
                    decision: self.denial_behind(grant),
                    via: None,
                    from: None,
                    grant: Some(grant),
                };
                let state = permission::State::decided(approved);
                self.settle_permission(id, state, settled, Context::SYSTEM, Effect::None);
            }
            None => {
                self.append_for(place, at, &actor, entry::ask::approval_required(id));
                self.wait(place, asked, &actor, at);
                if let Some(url) = new.notify {
                    self.deliver(Delivery::due(tenant, run, Some(id), url, at));
                }
            }
        }
        Ok(self.shown_permission(id))
    }

    /// The request of the same claim that is the same question.
    fn asked_before(&self, place: usize, new: &NewPermission) -> Option<PermissionId> {
        let epoch = self.runs[place].record.state.epoch;
        let mut same_claim = self
            .permissions
            .values()
            .map(|(_, permission)| permission)
            .filter(|permission| permission.run == new.run && permission.epoch == epoch);
        let same = |known: &&Permission| match &new.request {
            Some(_) => known.request == new.request,
            None => known.state == permission::State::Pending && known.subject == new.subject,
        };
        same_claim.find(same).map(|known| known.id)
    }

    pub(super) fn decide_permission(
        &mut self,
        context: &Context,
        id: PermissionId,
        new: NewDecision,
    ) -> Result<Permission> {
        let permission = self.permission(context.tenant, id)?;
        let before = permission.settled.as_ref().map(|settled| permission::Settled {
            state: permission.state,
            by: &settled.by,
            decision: settled.decision.as_ref(),
        });
        let NewDecision { decision, grant, via, from } = new;
        match decide(before, &context.actor, &decision) {
            Verdict::Settles => {}
            Verdict::Repeats => return Ok(permission),
            Verdict::TooLate => {
                let late = entry::ask::permission_late(&permission, &decision);
                self.append(context.tenant, context.at, &context.actor, late);
                return Err(Error::AlreadyDecided(Box::new(permission)));
            }
        }
        let grant = Grant::of(grant, &decision, permission.as_asked());
        let state = permission::State::decided(decision.approved);
        let settled = Settled {
            at: context.at,
            by: context.actor.clone(),
            source: Some(Source::User),
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
                created_at: context.at,
                ended_at: None,
                revoked_at: None,
                grant,
            };
            self.grants.insert(record.grant.id, (context.tenant, record));
        }
        self.settle_permission(id, state, settled, &context.actor, Effect::GoesOn);
        Ok(self.shown_permission(id))
    }

    /// Settles a pending permission, with its rows and its frame.
    fn settle_permission(
        &mut self,
        id: PermissionId,
        state: permission::State,
        settled: Settled,
        actor: &str,
        effect: Effect,
    ) {
        let at = settled.at;
        let (_, permission) = self.permissions.get_mut(&id).expect("callers have found it");
        permission.state = state;
        permission.settled = Some(settled);
        let (run, row) = (permission.run, entry::ask::permission_decided(permission));
        let place = self.places[&run];
        self.append_for(place, at, actor, row);
        self.woken.push(Woken::Asked(run));
        let answer = state.approved().filter(|_| state != permission::State::Cancelled);
        let Some(approved) = answer else { return };
        if let Some(channel) = self.runs[place].record.channel {
            self.append_to(channel, at, actor, entry::channel::permission_returned(channel, id, run, approved));
            self.tell(channel, Frame::Permission { permission: id });
        }
        if effect == Effect::GoesOn {
            let answered = self.judge(place, &Command::Answer { what: Waiting::Approval }, at);
            self.wait(place, answered.expect("a run that asks is running"), actor, at);
        }
    }

    /// Nobody needs the answers any more: the run is about to leave `running`.
    pub(super) fn cancel_questions(&mut self, place: usize, at: Timestamp) {
        let run = self.runs[place].record.id;
        for id in self.pending_permissions_of(|permission| permission.run == run) {
            let state = permission::State::Cancelled;
            self.settle_permission(id, state, by_itself(at, None), Context::SYSTEM, Effect::None);
        }
        self.cancel_asks(run);
    }

    /// In order of creation.
    fn pending_permissions_of(&self, wanted: impl Fn(&Permission) -> bool) -> Vec<PermissionId> {
        let permissions = self.permissions.values().map(|(_, permission)| permission);
        let pending = permissions.filter(|permission| permission.state == permission::State::Pending);
        pending.filter(|permission| wanted(permission)).map(|permission| permission.id).collect()
    }

    pub(super) fn expire_permissions(&mut self, at: Timestamp, runs: &mut Vec<RunId>) {
        let due = self.pending_permissions_of(|permission| {
            let may_expire = permission.on_timeout != OnTimeout::KeepWaiting;
            may_expire && permission.expires_at.is_some_and(|expires_at| expires_at <= at)
        });
        for id in due {
            let (_, Permission { run, state, on_timeout, .. }) = &self.permissions[&id];
            let (run, on_timeout) = (*run, *on_timeout);
            // An earlier one may have ended the run.
            if *state != permission::State::Pending {
                continue;
            }
            let halts = on_timeout == OnTimeout::DenyAndHalt;
            let effect = if halts { Effect::None } else { Effect::GoesOn };
            let settled = by_itself(at, Some(Source::Timeout));
            self.settle_permission(id, permission::State::Expired, settled, Context::SYSTEM, effect);
            if halts {
                let halt = Command::Halt { code: FailureCode::PermissionDenied };
                self.by_rule(self.places[&run], &halt, Context::SYSTEM, at);
                runs.push(run);
            }
        }
    }

    pub(super) fn permission(&self, tenant: TenantId, id: PermissionId) -> Result<Permission> {
        let known = self.permissions.get(&id).filter(|(owner, _)| *owner == tenant);
        known.map(|_| self.shown_permission(id)).ok_or(Error::NotFound)
    }

    pub(super) fn permissions(
        &self,
        tenant: TenantId,
        filter: &PermissionFilter,
        page: &Page,
    ) -> Result<Listed<Permission>> {
        let wanted = |permission: &Permission| {
            filter.state.is_none_or(|state| state == permission.state)
                && filter.run.is_none_or(|run| run == permission.run)
                && filter.agent.is_none_or(|agent| agent == permission.agent)
        };
        let items = self.permissions.iter().rev();
        let items = items.filter(|(_, (owner, permission))| *owner == tenant && wanted(permission));
        let shown = items.map(|(place, (_, permission))| (place, self.shown_permission(permission.id)));
        page::cut(shown, Order::Descending, page)
    }

    pub(super) fn pending_permissions(&self, tenant: TenantId) -> u64 {
        let pending = self
            .permissions
            .values()
            .filter(|(owner, permission)| *owner == tenant && permission.state == permission::State::Pending);
        u64::try_from(pending.count()).unwrap_or(u64::MAX)
    }

    pub(super) fn grants(&self, tenant: TenantId, page: &Page) -> Result<Listed<GrantRecord>> {
        let items = self.grants.iter().rev().filter(|(_, (owner, _))| *owner == tenant);
        page::cut(items.map(|(place, (_, grant))| (place, self.shown_grant(grant))), Order::Descending, page)
    }

    pub(super) fn revoke_grant(&mut self, context: &Context, id: GrantId) -> Result<GrantRecord> {
        let known = self.grants.get_mut(&id).filter(|(owner, _)| *owner == context.tenant);
        let (_, record) = known.ok_or(Error::NotFound)?;
        let revoked_before = record.revoked_at.is_some();
        if !revoked_before {
            record.revoked_at = Some(context.at);
            record.grant.revoked = true;
        }
        let record = record.clone();
        if !revoked_before {
            self.append(context.tenant, context.at, &context.actor, entry::ask::grant_revoked(id));
        }
        Ok(self.shown_grant(&record))
    }

    /// The grant with the end of its run.
    fn shown_grant(&self, record: &GrantRecord) -> GrantRecord {
        let ended_at = match record.grant.reach {
            Reach::Run(run) => self.runs[self.places[&run]].record.ended_at,
            Reach::Conversation { .. } | Reach::Agent(_) => None,
        };
        GrantRecord { ended_at, ..record.clone() }
    }

    /// What was said with the denial that a grant stands for: the agent is told why, also the next time.
    fn denial_behind(&self, grant: GrantId) -> Option<Decision> {
        let (_, record) = self.grants.get(&grant).filter(|(_, record)| !record.grant.approved)?;
        let (_, made_by) = self.permissions.get(&record.permission)?;
        made_by.settled.as_ref()?.decision.clone()
    }

    /// The permission with its agent's name of now.
    fn shown_permission(&self, id: PermissionId) -> Permission {
        let (_, permission) = &self.permissions[&id];
        Permission { agent_name: self.accounts[&permission.agent].name.clone(), ..permission.clone() }
    }
}

/// How a permission is settled without anybody's decision.
fn by_itself(at: Timestamp, source: Option<Source>) -> Settled {
    let by = Context::SYSTEM.to_owned();
    Settled { at, by, source, decision: None, via: None, from: None, grant: None }
}

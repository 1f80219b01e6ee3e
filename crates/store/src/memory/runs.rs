//! Runs for callers: create, cancel, read and list.

use attache_protocol::{
    Actor, RunId, TenantId, Timestamp,
    rules::{
        permission,
        quota::ReservationRequest,
        retention,
        run::{LifecycleEvent, RunCommand, RunLifecycle as Rules, RunPhase, RunStatus, RunTransition, apply},
    },
    wire::{delivery::DeliveryState, runtime::RuntimeState},
};

use super::{
    page::{self, PageOrder},
    state::{ModelRun, ModelState},
};
use crate::{
    Error, Result, WakeHint, WriteContext,
    entry::{self, LogEntry},
    outcome,
    record::{
        ListPage, LiveCounts, NewConversation, NewRun, Pagination, RunCreation, RunFilter, RunRecord, RuntimeKind,
        RuntimeRecord, SpokenBy, delivery::DeliveryRecord, join,
    },
    search::NameMatches,
};

// === impl ModelState ===

impl ModelState {
    pub(super) fn create_run(&mut self, context: &WriteContext, new: NewRun) -> Result<RunCreation> {
        let key = new.idempotency_key.map(|key| (context.tenant, key));
        if let Some(place) = key.and_then(|key| self.idempotency.get(&key).copied()) {
            let first = &self.runs[place];
            if !retention::is_key_over(first.record.created_at, self.clock) {
                if first.request_digest != new.request_digest {
                    return Err(Error::KeyReused);
                }
                if let Some(follow) = new.follow {
                    self.follow_again(context.tenant, self.runs[place].record.id, follow)?;
                }
                return Ok(RunCreation::Existing(self.shown(place)));
            }
        }
        if let Some(created) = key.and_then(|key| self.deleted_keys.get(&key))
            && !retention::is_key_over(*created, self.clock)
        {
            return Err(Error::RunDeleted);
        }
        let agent = self.living_agent(context.tenant, &new.agent)?.id;
        let (opens, user) = match new.conversation.map(|id| (id, self.conversation(context.tenant, id))) {
            Some((id, Err(Error::NotFound))) if new.opens_conversation => (Some(id), context.user),
            Some((_, found)) => (None, found?.user),
            None => (None, context.user),
        };
        if let Some(parent) = new.spec.parent {
            self.place(context.tenant, parent)?;
        }
        if let Some(follow) = &new.follow {
            self.able_to_follow(context.tenant, follow.channel)?;
        }
        if let Some(approval) = new.approval
            && self.permission(context.tenant, approval)?.used_by.is_some()
        {
            return Err(Error::ApprovalUsed);
        }
        let payer = new.payer.or(context.user);
        let request = ReservationRequest { budget: new.spec.budget, ..ReservationRequest::default() };
        let reservation = self.reserve(context, payer, agent, request)?;
        // No more checks after this.
        if let Some((_, approval)) = new.approval.and_then(|approval| self.permissions.get_mut(&approval)) {
            approval.used_by = Some(new.id);
        }
        if let Some(id) = opens {
            self.create_conversation(context, NewConversation { id, title: None, metadata: None, agent: None })?;
        }
        let place = self.runs.next_place();
        if let Some(key) = key {
            self.idempotency.insert(key, place);
        }
        self.places.insert(new.id, place);
        let conversation = new.conversation.unwrap_or(new.id.own_conversation());
        join(self.conversation_agents.entry(conversation).or_default(), agent, context.at);
        if SpokenBy::of(&new.spec, context.user, user) == SpokenBy::Others {
            self.conversations_of_others.insert(conversation);
        }
        let entry = entry::task_created(agent, &new.spec.task_type);
        let record = RunRecord {
            id: new.id,
            tenant: context.tenant,
            agent,
            agent_name: String::new(),
            conversation,
            spec: new.spec,
            caller: context.actor.clone(),
            user: context.user,
            payer,
            state: Rules::created(new.limits, context.at),
            channel: None,
            runtime: None,
            claimed_at: None,
            result: None,
            usage: None,
            created_at: context.at,
            ended_at: None,
            last_seq: 0,
        };
        self.runs.push(ModelRun {
            record,
            request_digest: new.request_digest,
            chunks: Vec::new(),
            log_floor: 0,
            claimed_seq: 0,
            report: None,
            reservation,
            refused: false,
            log_bytes: 0,
        });
        if let Some(follow) = new.follow {
            self.follow(new.id, follow);
        }
        self.append_for(place, context.at, &context.actor, entry);
        self.runs[place].log_bytes = 0;
        if let Some(config) = new.push {
            self.set_push_config(context, new.id, config)?;
        }
        self.woken.push(WakeHint::Queue(agent));
        Ok(RunCreation::New(self.shown(place)))
    }

    pub(super) fn cancel_run(&mut self, context: &WriteContext, run: RunId, reason: Option<&str>) -> Result<RunRecord> {
        let place = self.place(context.tenant, run)?;
        let transition = self.judge(place, &RunCommand::Cancel { outcome: outcome::NO_DIGEST }, context.at)?;
        self.cancel(place, transition, reason, context);
        Ok(self.shown(place))
    }

    /// Cancels a run, after the rules allowed it.
    pub(super) fn cancel(
        &mut self,
        place: usize,
        transition: RunTransition,
        reason: Option<&str>,
        context: &WriteContext,
    ) {
        if transition.event.is_some() {
            let worker = self.told_to_stop(place);
            self.runs[place].record.result = Some(outcome::cancelled(reason));
            self.settle(place, transition.state, entry::task_cancelled(reason), &context.actor, context.at);
            self.tell_to_stop(worker, place);
        }
    }

    pub(super) fn run(&self, tenant: TenantId, run: RunId) -> Result<RunRecord> {
        self.place(tenant, run).map(|place| self.shown(place))
    }

    pub(super) fn runs(&self, tenant: TenantId, filter: &RunFilter, page: &Pagination) -> Result<ListPage<RunRecord>> {
        let wanted = |record: &RunRecord| {
            record.tenant == tenant
                && filter.status.is_none_or(|status| status == record.state.status())
                && filter.agent.is_none_or(|agent| agent == record.agent)
                && filter.conversation.is_none_or(|conversation| conversation == record.conversation)
                && filter.parent.is_none_or(|parent| Some(parent) == record.spec.parent)
                && filter.user.is_none_or(|user| Some(user) == record.user)
                && filter.since.is_none_or(|since| record.created_at >= since)
                && filter.before.is_none_or(|before| record.created_at < before)
        };
        let named = filter.text.as_ref().map(|text| self.named(tenant, text)).unwrap_or_default();
        let mentions = |place: usize| filter.matches_content(&self.shown(place), &named);
        let places = self.runs.places().into_iter().rev();
        let places = places.filter(|place| wanted(&self.runs[*place].record) && mentions(*place));
        page::cut(places.map(|place| (place, filter.detail.of(self.shown(place)))), PageOrder::Descending, page)
    }

    /// Removed people and archived agents keep their names.
    fn named(&self, tenant: TenantId, text: &str) -> NameMatches {
        let has = |name: &str| name.to_lowercase().contains(text);
        let agents = self.accounts.values().filter(|account| account.tenant == tenant && has(&account.name));
        let users = self.users.values().filter(|user| user.tenant == tenant && has(&user.name));
        NameMatches { agents: agents.map(|account| account.id).collect(), users: users.map(|user| user.id).collect() }
    }

    pub(super) fn live(&self, tenant: TenantId) -> LiveCounts {
        let count = |status: RunStatus| {
            let runs = self.runs.iter().filter(|run| run.record.tenant == tenant);
            u64::try_from(runs.filter(|run| run.record.state.status() == status).count()).unwrap_or(u64::MAX)
        };
        let queued =
            |run: &&ModelRun| run.record.tenant == tenant && matches!(run.record.state.phase, RunPhase::Pending { .. });
        let asked: Vec<Timestamp> = self
            .permissions
            .values()
            .filter(|(of, asked)| *of == tenant && asked.state == permission::PermissionState::Pending)
            .map(|(_, asked)| asked.requested_at)
            .collect();
        let is_device = |runtime: &&RuntimeRecord| {
            runtime.tenant == tenant
                && runtime.kind == RuntimeKind::Device
                && runtime.state == RuntimeState::Active
                && runtime.online
        };
        let told: Vec<Timestamp> = self
            .deliveries
            .values()
            .filter(|delivery| delivery.tenant == tenant && delivery.state == DeliveryState::Pending)
            .map(|delivery| delivery.created_at)
            .collect();
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        LiveCounts {
            pending: count(RunStatus::Pending),
            running: count(RunStatus::Running),
            oldest_pending: self.runs.iter().find(queued).map(|run| run.record.created_at),
            permissions: number(asked.len()),
            oldest_permission: asked.into_iter().min(),
            devices: number(self.runtimes.values().filter(is_device).count()),
            deliveries: number(told.len()),
            oldest_delivery: told.into_iter().min(),
        }
    }

    pub(super) fn place(&self, tenant: TenantId, run: RunId) -> Result<usize> {
        let place = self.places.get(&run).copied();
        place.filter(|place| self.runs[*place].record.tenant == tenant).ok_or(Error::NotFound)
    }

    /// The run with its agent's current name.
    pub(super) fn shown(&self, place: usize) -> RunRecord {
        let record = self.runs[place].record.clone();
        RunRecord { agent_name: self.accounts[&record.agent].name.clone(), ..record }
    }

    /// The decision of the rules. Nothing is changed yet.
    pub(super) fn judge(&self, place: usize, command: &RunCommand, at: Timestamp) -> Result<RunTransition> {
        apply(&self.runs[place].record.state, command, at)
            .map_err(|refusal| Error::Refused { refusal, run: Box::new(self.shown(place)) })
    }

    /// Applies a change of phase, with its log row. Questions of an unclaimed run are cancelled.
    pub(super) fn settle(&mut self, place: usize, state: Rules, entry: LogEntry, actor: &Actor, at: Timestamp) {
        if state.claim().is_none() {
            self.cancel_questions(place, at);
        }
        let record = &mut self.runs[place].record;
        record.state = state;
        match &record.state.phase {
            RunPhase::Pending { .. } => self.woken.push(WakeHint::Queue(record.agent)),
            RunPhase::Deferred { .. } => {}
            RunPhase::Running(claim) => {
                record.runtime = Some(claim.runtime);
                record.claimed_at = Some(claim.claimed_at);
            }
            RunPhase::Ended { .. } => record.ended_at = Some(at),
        }
        self.append_for(place, at, actor, entry);
        let record = &self.runs[place].record;
        if let Some(callback) = record.spec.callback.clone().filter(|_| record.ended_at.is_some()) {
            self.deliver(DeliveryRecord::due(record.tenant, record.id, None, callback.url, at));
        }
    }

    /// Applies a loss or the passage of time. Returns whether anything happened.
    pub(super) fn by_rule(&mut self, place: usize, command: &RunCommand, actor: &Actor, at: Timestamp) -> bool {
        let Ok(RunTransition { state, event: Some(event) }) = self.judge(place, command, at) else {
            return false;
        };
        let entry = match event {
            LifecycleEvent::Requeued { reason } => entry::task_requeued(reason),
            LifecycleEvent::Waiting { waiting } => entry::task_waiting(waiting),
            LifecycleEvent::Failed { code } => {
                self.runs[place].record.result = Some(outcome::failed_by_rule(code));
                entry::task_failed(code)
            }
            LifecycleEvent::Claimed
            | LifecycleEvent::Deferred { .. }
            | LifecycleEvent::Completed
            | LifecycleEvent::Cancelled => {
                unreachable!("neither a loss nor time claims, defers, completes or cancels a run")
            }
        };
        let worker = self.told_to_stop(place);
        self.settle(place, state, entry, actor, at);
        self.tell_to_stop(worker, place);
        true
    }

    /// Applies a question or an answer, with its log row if the wait reason changes.
    pub(super) fn wait(&mut self, place: usize, transition: RunTransition, actor: &Actor, at: Timestamp) {
        self.runs[place].record.state = transition.state;
        if let Some(LifecycleEvent::Waiting { waiting }) = transition.event {
            self.append_for(place, at, actor, entry::task_waiting(waiting));
        }
    }
}

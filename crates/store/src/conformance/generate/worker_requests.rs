//! Steps around permissions, grants, input and tool calls.

use attache_protocol::{
    Json, PermissionId, Timestamp, WorkerRequestId,
    rules::{
        permission::{ApprovalDecision, DecisionScope, OnTimeout, PermissionState, PermissionSubject},
        permission_mode::PlanState,
        run::WorkerRef,
    },
    wire::input_request::WorkerRequestState,
};

use super::{HOUR, StepGenerator};
use crate::{
    ChannelStore as _, Store as _, WorkerRequestStore as _, WriteContext,
    conformance::{generator_state::LEASE, step::StoreStep},
    memory::MemoryStore,
    record::{
        Pagination,
        worker_request::{
            GrantMaker, InputTarget, NewDecision, NewInput, NewPermission, NewWorkerRequest, PermissionFilter,
            WorkerRequestKind,
        },
    },
};

/// Only a few, so that grants cover some requests and not others.
const TOOLS: [&str; 4] = ["bash", "fs.read", "fs.write", "日本"];
const PATTERNS: [&str; 5] = ["*", "fs.*", "bash", "*.write", ""];
const NAMES: [&str; 3] = ["first", "second", ""];

// === impl StepGenerator ===

impl StepGenerator {
    pub(super) async fn request_permission(&self, model: &MemoryStore) -> StoreStep {
        let (by, run) = self.worker(model).await;
        let channel = model.run(self.tenant, run).await.ok().and_then(|run| run.channel);
        let tool = self.draw.one_of(&TOOLS).unwrap_or_default().to_owned();
        let input = if self.draw.percent(85) { Json::empty_object() } else { self.draw.json() };
        let cwd = if self.draw.percent(90) { None } else { self.draw.maybe_text() };
        let paths = if self.draw.percent(85) { Vec::new() } else { vec![self.draw.text(), self.draw.text()] };
        let diff = cwd.as_ref().map(|folder| format!("+{folder}"));
        let undisclosed: Vec<String> = paths.iter().rev().map(|path| format!("{path}?")).collect();
        let plan = if input == Json::empty_object() { PlanState::Settled } else { PlanState::Open };
        let permission = NewPermission {
            notify: self.draw.percent(30).then(|| self.url()),
            id: self.draw.env.permission_id(),
            run,
            subject: PermissionSubject::of(&tool, &input, cwd.as_deref(), &paths)
                .showing(diff.as_deref(), &undisclosed),
            tool,
            input,
            cwd,
            paths,
            reason: self.draw.maybe_text(),
            risk: self.draw.maybe_text(),
            diff,
            undisclosed,
            private_agent: self.draw.percent(10),
            request: self.question_name(),
            channel: if self.draw.percent(85) { channel } else { None },
            expires_at: self.question_expiry(),
            on_timeout: self.draw.one_of(&OnTimeout::ALL).unwrap_or_default(),
            speaker: self.draw.percent(30).then(|| self.user()),
            trusted: self.draw.percent(15).then(|| self.draw.text()),
            plan,
        };
        StoreStep::RequestPermission { by, permission: Box::new(permission), lease: LEASE, at: self.at() }
    }

    /// Usually a pending one, sometimes an exact repetition of an earlier decision.
    pub(super) async fn decide_permission(&self, model: &MemoryStore) -> StoreStep {
        if self.draw.percent(12) && !self.known.decisions.is_empty() {
            let count = u64::try_from(self.known.decisions.len()).unwrap_or(1);
            let index = usize::try_from(self.draw.below(count)).unwrap_or(0);
            let (said, permission, decision) = self.known.decisions[index].clone();
            let context = WriteContext { actor: said.actor, ..self.context() };
            return StoreStep::DecidePermission(context, permission, decision);
        }
        let waiting = self.waiting(model).await;
        let permission = match self.draw.one_of(&waiting).filter(|_| self.draw.percent(80)) {
            Some(permission) => permission,
            None => self.permission(),
        };
        // Usually broad, so that later requests are covered.
        let scope =
            self.draw.one_of(&DecisionScope::ALL).filter(|_| self.draw.percent(50)).unwrap_or(DecisionScope::Agent);
        let decision = ApprovalDecision {
            approved: self.draw.percent(60),
            scope,
            tool_pattern: self.draw.percent(50).then(|| self.draw.one_of(&PATTERNS).unwrap_or("*").to_owned()),
            until: self.draw.percent(30).then(|| self.now().plus(self.millis(&[0, 5_000, 60_000, HOUR]))),
            this_channel_only: self.draw.percent(15),
            comment: self.draw.maybe_text(),
        };
        let (grant, via, from) = (self.draw.env.grant_id(), self.draw.text(), self.draw.maybe_text());
        let maker = GrantMaker {
            user: self.draw.percent(60).then(|| self.user()),
            key: self.draw.percent(60).then(|| self.draw.recent(&self.known.keys)).flatten(),
            // Derived from the time: another draw would change every following sequence.
            in_person: self.now().millis() % 3 != 0,
        };
        StoreStep::DecidePermission(self.context(), permission, NewDecision { decision, grant, maker, via, from })
    }

    async fn waiting(&self, model: &MemoryStore) -> Vec<PermissionId> {
        let filter = PermissionFilter { state: Some(PermissionState::Pending), ..PermissionFilter::default() };
        let listed = model.permissions(self.tenant, filter, Pagination { limit: 5, cursor: None }).await;
        listed.map(|listed| listed.items.iter().map(|waiting| waiting.id).collect()).unwrap_or_default()
    }

    fn permission(&self) -> PermissionId {
        let unknown = self.draw.env.permission_id();
        if self.draw.percent(5) { unknown } else { self.draw.recent(&self.known.permissions).unwrap_or(unknown) }
    }

    pub(super) fn revoke_grant(&self) -> StoreStep {
        let unknown = self.draw.env.grant_id();
        let known = self.draw.recent(&self.known.grants).filter(|_| !self.draw.percent(8));
        StoreStep::RevokeGrant(self.context(), known.unwrap_or(unknown))
    }

    pub(super) async fn ask(&self, model: &MemoryStore) -> StoreStep {
        let (by, run) = self.worker(model).await;
        let followed = model.follower(run).await.ok().flatten().is_some();
        let what = if self.draw.percent(if followed { 70 } else { 8 }) {
            let tool = self.draw.one_of(&TOOLS).unwrap_or_default().to_owned();
            WorkerRequestKind::Tool { tool, arguments: self.draw.json() }
        } else {
            let (prompt, parts) = (self.draw.text(), self.draw.maybe_json());
            match self.draw.percent(25) {
                true => WorkerRequestKind::Authorization { prompt, parts },
                false => WorkerRequestKind::Input { prompt, parts },
            }
        };
        let (id, request, expires_at) =
            (self.draw.env.worker_request_id(), self.question_name(), self.question_expiry());
        // Sometimes an exact repetition of an earlier question.
        let before = match self.known.asks.last() {
            Some(last) if self.draw.percent(20) => model.worker_request(self.tenant, *last).await.ok(),
            Some(_) | None => None,
        };
        let (run, what, request) = match before {
            Some(before) => (before.run, before.what, before.request),
            None => (run, what, request),
        };
        StoreStep::Ask { by, ask: NewWorkerRequest { id, run, what, request, expires_at }, lease: LEASE, at: self.at() }
    }

    /// Usually a pending question, by its asker.
    pub(super) async fn withdraw_ask(&self, model: &MemoryStore) -> StoreStep {
        let mut waiting = Vec::new();
        for ask in &self.known.asks {
            let asked = model.worker_request(self.tenant, *ask).await.ok();
            waiting.extend(asked.filter(|ask| ask.state == WorkerRequestState::Pending || self.draw.percent(10)));
        }
        let ((mut by, mut run), ask) = (self.worker(model).await, self.some_ask());
        let Some(asked) = waiting.pop().filter(|_| self.draw.percent(90)) else {
            return StoreStep::WithdrawAsk { by, run, ask, lease: LEASE, at: self.at() };
        };
        if let Ok(held) = model.run(self.tenant, asked.run).await
            && let Some(claim) = held.state.claim()
        {
            run = asked.run;
            by = WorkerRef { runtime: claim.runtime, epoch: self.draw.percent(90).then_some(held.state.epoch) };
        }
        StoreStep::WithdrawAsk { by, run, ask: asked.id, lease: LEASE, at: self.at() }
    }

    /// Usually a pending tool call, by the engine that was asked.
    pub(super) async fn answer_tool(&self, model: &MemoryStore) -> StoreStep {
        let mut waiting = Vec::new();
        for ask in &self.known.asks {
            let asked = model.worker_request(self.tenant, *ask).await.ok();
            let is_tool = asked.filter(|ask| matches!(ask.what, WorkerRequestKind::Tool { .. }));
            waiting.extend(is_tool.filter(|ask| ask.state == WorkerRequestState::Pending || self.draw.percent(10)));
        }
        let Some(ask) = waiting.pop().filter(|_| self.draw.percent(90)) else {
            return StoreStep::AnswerTool(self.context(), self.some_ask(), self.draw.json());
        };
        let context = match model.follower(ask.run).await {
            Ok(Some(follow)) => self.as_principal(model, follow.channel).await,
            Ok(None) | Err(_) => self.context(),
        };
        StoreStep::AnswerTool(context, ask.id, self.draw.json())
    }

    pub(super) async fn add_input(&self, model: &MemoryStore) -> StoreStep {
        let run = self.some_run(model).await.map_or_else(|| self.run(), |run| run.id);
        // Sometimes a used key, with the same or another request.
        let used = self.known.input_keys.last().filter(|_| self.draw.percent(25)).cloned();
        let (run, key, parts) = match used {
            Some((run, key, parts)) if self.draw.percent(60) => (run, Some(key), parts),
            Some((run, key, _)) => (run, Some(key), self.draw.json()),
            None => (run, self.draw.percent(40).then(|| self.draw.bytes()), self.draw.json()),
        };
        let message = self.draw.maybe_json();
        let open = model.open_worker_request(self.tenant, run).await.ok().flatten().map(|ask| ask.id);
        let target = match self.draw.below(5) {
            0 => open.map_or(InputTarget::OldestQuestion, InputTarget::Question),
            1 => InputTarget::Question(self.some_ask()),
            2 => InputTarget::Agent,
            _ => InputTarget::OldestQuestion,
        };
        let new = NewInput { id: self.draw.env.input_id(), run, parts, message, target, key };
        StoreStep::AddInput(self.context(), new)
    }

    pub(super) fn read_question(&self) -> StoreStep {
        match self.draw.below(5) {
            0 => StoreStep::Permission(self.tenant(), self.permission()),
            3 => StoreStep::OpenAsk(self.tenant(), self.run()),
            1 => StoreStep::PendingPermissions(self.tenant()),
            2 => StoreStep::Asked(self.tenant(), self.some_ask()),
            _ => {
                let (run, input) =
                    self.draw.recent(&self.known.inputs).unwrap_or_else(|| (self.run(), self.draw.env.input_id()));
                StoreStep::Input(if self.draw.percent(10) { self.run() } else { run }, input)
            }
        }
    }

    pub(super) fn permission_filter(&self) -> PermissionFilter {
        PermissionFilter {
            state: if self.draw.percent(50) { self.draw.one_of(&PermissionState::ALL) } else { None },
            run: self.draw.percent(25).then(|| self.run()),
            agent: self.draw.percent(25).then(|| self.agent()),
        }
    }

    fn some_ask(&self) -> WorkerRequestId {
        let unknown = self.draw.env.worker_request_id();
        if self.draw.percent(5) { unknown } else { self.draw.recent(&self.known.asks).unwrap_or(unknown) }
    }

    fn question_name(&self) -> Option<String> {
        self.draw.percent(40).then(|| self.draw.one_of(&NAMES).unwrap_or_default().to_owned())
    }

    /// Usually soon: claims don't live long here.
    fn question_expiry(&self) -> Option<Timestamp> {
        self.draw.percent(70).then(|| self.now().plus(self.millis(&[0, 2_000, 10_000, 25_000, HOUR])))
    }
}

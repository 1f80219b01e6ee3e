//! Steps around permissions, grants, input and tool calls.

use attache_protocol::{
    AskId, Json, PermissionId, Timestamp,
    rules::{
        permission::{Decision, OnTimeout, Scope, State, Subject},
        run::Worker,
    },
    wire::ask::AskState,
};

use super::{Generator, HOUR};
use crate::{
    Asks as _, Channels as _, Context, Store as _,
    conformance::{known::LEASE, step::Step},
    memory::Memory,
    record::{
        Page,
        ask::{AskWhat, NewAsk, NewDecision, NewInput, NewPermission, PermissionFilter},
    },
};

/// Few, so that grants cover some requests and not others.
const TOOLS: [&str; 4] = ["bash", "fs.read", "fs.write", "日本"];
const PATTERNS: [&str; 5] = ["*", "fs.*", "bash", "*.write", ""];
const NAMES: [&str; 3] = ["first", "second", ""];

// === impl Generator ===

impl Generator {
    pub(super) async fn request_permission(&self, model: &Memory) -> Step {
        let (by, run) = self.worker(model).await;
        let channel = model.run(self.tenant, run).await.ok().and_then(|run| run.channel);
        let tool = self.draw.one_of(&TOOLS).unwrap_or_default().to_owned();
        let input = if self.draw.percent(85) { Json::empty_object() } else { self.draw.json() };
        let cwd = if self.draw.percent(90) { None } else { self.draw.maybe_text() };
        let paths = if self.draw.percent(85) { Vec::new() } else { vec![self.draw.text(), self.draw.text()] };
        let diff = cwd.as_ref().map(|folder| format!("+{folder}"));
        let undisclosed: Vec<String> = paths.iter().rev().map(|path| format!("{path}?")).collect();
        let permission = NewPermission {
            notify: self.draw.percent(30).then(|| self.url()),
            id: self.draw.env.permission_id(),
            run,
            subject: Subject::of(&tool, &input, cwd.as_deref(), &paths).showing(diff.as_deref(), &undisclosed),
            tool,
            input,
            cwd,
            paths,
            reason: self.draw.maybe_text(),
            risk: self.draw.maybe_text(),
            diff,
            undisclosed,
            request: self.question_name(),
            channel: if self.draw.percent(85) { channel } else { None },
            expires_at: self.question_expiry(),
            on_timeout: self.draw.one_of(&OnTimeout::ALL).unwrap_or_default(),
        };
        Step::RequestPermission { by, permission: Box::new(permission), lease: LEASE, at: self.at() }
    }

    /// One that waits mostly; sometimes exactly what somebody said before.
    pub(super) async fn decide_permission(&self, model: &Memory) -> Step {
        if self.draw.percent(12) && !self.known.decisions.is_empty() {
            let count = u64::try_from(self.known.decisions.len()).unwrap_or(1);
            let index = usize::try_from(self.draw.below(count)).unwrap_or(0);
            let (said, permission, decision) = self.known.decisions[index].clone();
            let context = Context { actor: said.actor, ..self.context() };
            return Step::DecidePermission(context, permission, decision);
        }
        let waiting = self.waiting(model).await;
        let permission = match self.draw.one_of(&waiting).filter(|_| self.draw.percent(80)) {
            Some(permission) => permission,
            None => self.permission(),
        };
        // Far mostly, so that what comes later is covered.
        let scope = self.draw.one_of(&Scope::ALL).filter(|_| self.draw.percent(50)).unwrap_or(Scope::Agent);
        let decision = Decision {
            approved: self.draw.percent(60),
            scope,
            tool_pattern: self.draw.percent(50).then(|| self.draw.one_of(&PATTERNS).unwrap_or("*").to_owned()),
            until: self.draw.percent(30).then(|| self.now().plus(self.millis(&[0, 5_000, 60_000, HOUR]))),
            this_channel_only: self.draw.percent(15),
            comment: self.draw.maybe_text(),
        };
        let (grant, via, from) = (self.draw.env.grant_id(), self.draw.text(), self.draw.maybe_text());
        Step::DecidePermission(self.context(), permission, NewDecision { decision, grant, via, from })
    }

    async fn waiting(&self, model: &Memory) -> Vec<PermissionId> {
        let filter = PermissionFilter { state: Some(State::Pending), ..PermissionFilter::default() };
        let listed = model.permissions(self.tenant, filter, Page { limit: 5, cursor: None }).await;
        listed.map(|listed| listed.items.iter().map(|waiting| waiting.id).collect()).unwrap_or_default()
    }

    fn permission(&self) -> PermissionId {
        let unknown = self.draw.env.permission_id();
        if self.draw.percent(5) { unknown } else { self.draw.recent(&self.known.permissions).unwrap_or(unknown) }
    }

    pub(super) fn revoke_grant(&self) -> Step {
        let unknown = self.draw.env.grant_id();
        let known = self.draw.recent(&self.known.grants).filter(|_| !self.draw.percent(8));
        Step::RevokeGrant(self.context(), known.unwrap_or(unknown))
    }

    pub(super) async fn ask(&self, model: &Memory) -> Step {
        let (by, run) = self.worker(model).await;
        let followed = model.follower(run).await.ok().flatten().is_some();
        let what = if self.draw.percent(if followed { 70 } else { 8 }) {
            let tool = self.draw.one_of(&TOOLS).unwrap_or_default().to_owned();
            AskWhat::Tool { tool, arguments: self.draw.json() }
        } else {
            let (prompt, parts) = (self.draw.text(), self.draw.maybe_json());
            match self.draw.percent(25) {
                true => AskWhat::Authorization { prompt, parts },
                false => AskWhat::Input { prompt, parts },
            }
        };
        let (id, request, expires_at) = (self.draw.env.ask_id(), self.question_name(), self.question_expiry());
        // Sometimes exactly what was asked before.
        let before = match self.known.asks.last() {
            Some(last) if self.draw.percent(20) => model.asked(self.tenant, *last).await.ok(),
            Some(_) | None => None,
        };
        let (run, what, request) = match before {
            Some(before) => (before.run, before.what, before.request),
            None => (run, what, request),
        };
        Step::Ask { by, ask: NewAsk { id, run, what, request, expires_at }, lease: LEASE, at: self.at() }
    }

    /// A question that waits, by who asked it, mostly.
    pub(super) async fn withdraw_ask(&self, model: &Memory) -> Step {
        let mut waiting = Vec::new();
        for ask in &self.known.asks {
            let asked = model.asked(self.tenant, *ask).await.ok();
            waiting.extend(asked.filter(|ask| ask.state == AskState::Pending || self.draw.percent(10)));
        }
        let ((mut by, mut run), ask) = (self.worker(model).await, self.some_ask());
        let Some(asked) = waiting.pop().filter(|_| self.draw.percent(90)) else {
            return Step::WithdrawAsk { by, run, ask, lease: LEASE, at: self.at() };
        };
        if let Ok(held) = model.run(self.tenant, asked.run).await
            && let Some(claim) = held.state.claim()
        {
            run = asked.run;
            by = Worker { runtime: claim.runtime, epoch: self.draw.percent(90).then_some(held.state.epoch) };
        }
        Step::WithdrawAsk { by, run, ask: asked.id, lease: LEASE, at: self.at() }
    }

    /// A tool call that waits, by the engine that was asked, mostly.
    pub(super) async fn answer_tool(&self, model: &Memory) -> Step {
        let mut waiting = Vec::new();
        for ask in &self.known.asks {
            let asked = model.asked(self.tenant, *ask).await.ok();
            let is_tool = asked.filter(|ask| matches!(ask.what, AskWhat::Tool { .. }));
            waiting.extend(is_tool.filter(|ask| ask.state == AskState::Pending || self.draw.percent(10)));
        }
        let Some(ask) = waiting.pop().filter(|_| self.draw.percent(90)) else {
            return Step::AnswerTool(self.context(), self.some_ask(), self.draw.json());
        };
        let context = match model.follower(ask.run).await {
            Ok(Some(follow)) => self.as_principal(model, follow.channel).await,
            Ok(None) | Err(_) => self.context(),
        };
        Step::AnswerTool(context, ask.id, self.draw.json())
    }

    pub(super) async fn add_input(&self, model: &Memory) -> Step {
        let run = self.some_run(model).await.map_or_else(|| self.run(), |run| run.id);
        // Sometimes a key that was used before, with what it was used for or with something else.
        let used = self.known.input_keys.last().filter(|_| self.draw.percent(25)).cloned();
        let (run, key, parts) = match used {
            Some((run, key, parts)) if self.draw.percent(60) => (run, Some(key), parts),
            Some((run, key, _)) => (run, Some(key), self.draw.json()),
            None => (run, self.draw.percent(40).then(|| self.draw.bytes()), self.draw.json()),
        };
        let message = self.draw.maybe_json();
        let open = model.open_ask(self.tenant, run).await.ok().flatten().map(|ask| ask.id);
        let answers = match self.draw.below(4) {
            0 => open,
            1 => Some(self.some_ask()),
            _ => None,
        };
        let new = NewInput { id: self.draw.env.input_id(), run, parts, message, answers, key };
        Step::AddInput(self.context(), new)
    }

    pub(super) fn read_question(&self) -> Step {
        match self.draw.below(5) {
            0 => Step::Permission(self.tenant(), self.permission()),
            3 => Step::OpenAsk(self.tenant(), self.run()),
            1 => Step::PendingPermissions(self.tenant()),
            2 => Step::Asked(self.tenant(), self.some_ask()),
            _ => {
                let (run, input) =
                    self.draw.recent(&self.known.inputs).unwrap_or_else(|| (self.run(), self.draw.env.input_id()));
                Step::Input(if self.draw.percent(10) { self.run() } else { run }, input)
            }
        }
    }

    pub(super) fn permission_filter(&self) -> PermissionFilter {
        PermissionFilter {
            state: if self.draw.percent(50) { self.draw.one_of(&State::ALL) } else { None },
            run: self.draw.percent(25).then(|| self.run()),
            agent: self.draw.percent(25).then(|| self.agent()),
        }
    }

    fn some_ask(&self) -> AskId {
        let unknown = self.draw.env.ask_id();
        if self.draw.percent(5) { unknown } else { self.draw.recent(&self.known.asks).unwrap_or(unknown) }
    }

    fn question_name(&self) -> Option<String> {
        self.draw.percent(40).then(|| self.draw.one_of(&NAMES).unwrap_or_default().to_owned())
    }

    /// Soon mostly: claims do not live long here.
    fn question_expiry(&self) -> Option<Timestamp> {
        self.draw.percent(70).then(|| self.now().plus(self.millis(&[0, 2_000, 10_000, 25_000, HOUR])))
    }
}

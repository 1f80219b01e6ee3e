//! One run's conversation with an ACP agent, from `initialize` to the end of its turn.

use std::{path::Path, time::Duration};

use attache_protocol::Json;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    message::{
        AcpAgent, AcpCancel, AcpInitialize, AcpMcpServer, AcpOpenSession, AcpPermissionOption, AcpPermissionRequest,
        AcpPermissionResponse, AcpPrompt, AcpPromptBlock, AcpSession, AcpTurnEnd,
    },
    tool_calls::{self, AcpOpenToolCalls},
    update::AcpUpdate,
};
use crate::{
    DriverRun,
    attachment::{self, Attachment, PreparedTask},
    host::{
        ApprovalAnswer, HostExchange, HostLines, HostProcess, HostSetup, HostTurn, HostUsage, HostWriter, KeyedAnswer,
        TurnVerdict,
        budget::CostCertainty,
        limits,
        lines::HostLine,
        outage, prompt,
        rpc::{self, HostRpc, HostRpcMessage, RpcConversation, answer_to, started_within, understood},
    },
};

pub(super) struct AcpConversation {
    exchange: HostExchange<AcpQuestion>,
    rpc: HostRpc,
    turn: HostTurn,
    calls: AcpOpenToolCalls,
    /// Cost of the conversation before this run.
    cost_before: PriorCost,
    session: Option<String>,
    /// Request id of the running prompt.
    prompt: Option<u64>,
    phase: TurnPhase,
    stray: StrayLines,
}

/// The agent's task.
#[derive(Debug)]
pub(super) struct AcpTask {
    pub(super) system: Option<String>,
    pub(super) text: String,
    pub(super) attached: Vec<Attachment>,
}

/// A permission request and how to answer it.
#[derive(Debug)]
pub(super) struct AcpQuestion {
    id: Json,
    call: String,
    options: Vec<AcpPermissionOption>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnPhase {
    /// Updates replay earlier runs.
    Before,
    Working,
    /// The agent was told to stop. No more questions are asked.
    Halting,
}

/// Agents report the cost of the entire conversation. This is the part before the run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum PriorCost {
    /// The conversation starts with this run.
    Nothing,
    Known(f64),
    /// An earlier conversation continues and its cost so far is unknown.
    Unknown,
}

/// Lines that aren't messages: banners and misdirected library output.
#[derive(Debug, Default)]
struct StrayLines {
    first: Option<String>,
    count: usize,
}

/// Time limit for an agent to start and open a session. Some need most of a minute on a slow machine.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Time limit for a turn to end after it was cancelled.
const CANCEL_TIMEOUT: Duration = Duration::from_millis(700);

/// More consecutive non-message lines than this are not a banner.
const MAX_STRAY_LINES: usize = 1000;

const AUTH_REQUIRED: i64 = -32000;

// === impl AcpConversation ===

impl AcpConversation {
    pub(super) fn with(process: &mut HostProcess, turn: HostTurn) -> Self {
        Self {
            exchange: HostExchange::new(HostLines::of(process.stdout())),
            rpc: HostRpc::new(HostWriter::to(process.stdin())),
            turn,
            calls: AcpOpenToolCalls::default(),
            cost_before: PriorCost::Nothing,
            session: None,
            prompt: None,
            phase: TurnPhase::Before,
            stray: StrayLines::default(),
        }
    }

    /// Runs the task. Can be dropped at any await point; call [`Self::cancel_turn`] afterwards to stop the agent.
    pub(super) async fn converse(
        &mut self,
        setup: &HostSetup,
        job: &DriverRun,
        cwd: &Path,
        task: AcpTask,
    ) -> TurnVerdict {
        match self.work(setup, job, cwd, task).await {
            Ok(verdict) | Err(verdict) => verdict,
        }
    }

    async fn work(
        &mut self,
        setup: &HostSetup,
        job: &DriverRun,
        cwd: &Path,
        task: AcpTask,
    ) -> Result<TurnVerdict, TurnVerdict> {
        let (agent, session) = self.open(setup, job, cwd).await?;
        limits::still_harmless(setup, job)?;
        self.session = Some(session.clone());
        self.phase = TurnPhase::Working;
        self.turn.working();
        let given = attachment::prepare(job, &task.text, task.attached, |one| agent.takes(&one.kind()));
        let PreparedTask { task: text, native, placed } = given.map_err(|reply| TurnVerdict::of_failure(&reply))?;
        let text = prompt::whole(task.system.as_deref(), &text);
        let blocks =
            [AcpPromptBlock::text(&text)].into_iter().chain(native.iter().filter_map(AcpPromptBlock::of)).collect();
        let prompt = AcpPrompt { session_id: &session, prompt: blocks };
        let number = self.rpc.ask("session/prompt", &prompt).await;
        self.prompt = Some(number);
        let answer = answer_to(self, number).await?;
        drop(placed);
        self.prompt = None;
        let ended: AcpTurnEnd = understood(&answer.map_err(|error| failure(&error, &agent))?)?;
        let spent = ended.usage().is_some_and(|usage| self.turn.set_usage(usage));
        if spent {
            return Err(self.over_budget());
        }
        Ok(self.verdict(&ended.stop_reason))
    }

    /// Initializes the agent and opens a session.
    pub(super) async fn open(
        &mut self,
        setup: &HostSetup,
        job: &DriverRun,
        cwd: &Path,
    ) -> Result<(AcpAgent, String), TurnVerdict> {
        let agent = started_within(START_TIMEOUT, self.initialize()).await?;
        let session = started_within(START_TIMEOUT, self.open_session(&agent, setup, job, cwd)).await?;
        Ok((agent, session))
    }

    async fn initialize(&mut self) -> Result<AcpAgent, TurnVerdict> {
        let agent: AcpAgent = self.request("initialize", &AcpInitialize::this_client(), &AcpAgent::default()).await?;
        if agent.speaks_our_version() {
            return Ok(agent);
        }
        let version = agent.protocol_version.map_or_else(|| "none".to_owned(), |version| version.get().to_owned());
        Err(TurnVerdict::Unreadable {
            message: format!("it speaks version {version} of ACP, and this adapter speaks 1"),
        })
    }

    async fn open_session(
        &mut self,
        agent: &AcpAgent,
        setup: &HostSetup,
        job: &DriverRun,
        cwd: &Path,
    ) -> Result<String, TurnVerdict> {
        let tools = job.task.mcp.as_ref();
        if tools.is_some() && !agent.takes_http_tools() {
            self.turn.log("info", "the agent doesn't support MCP servers over HTTP, so it can't call other agents");
        }
        let tools = tools.filter(|_| agent.takes_http_tools());
        let servers = || tools.map(AcpMcpServer::of).into_iter().collect();
        let conversation = job.task.conversation_id;
        if agent.loads_sessions()
            && let Some(earlier) = setup.memory.recall(setup, conversation)
        {
            self.cost_before = PriorCost::Unknown;
            let load = AcpOpenSession { session_id: Some(&earlier), cwd, mcp_servers: servers() };
            let number = self.rpc.ask("session/load", &load).await;
            match answer_to(self, number).await? {
                Ok(_) => return Ok(earlier),
                Err(error) => {
                    self.turn.log("info", format!("the agent no longer has this conversation: {}", error.text()));
                    setup.memory.forget(setup, conversation);
                    self.cost_before = PriorCost::Nothing;
                }
            }
        }
        let open = AcpOpenSession { session_id: None, cwd, mcp_servers: servers() };
        let opened: AcpSession = self.request("session/new", &open, agent).await?;
        if agent.loads_sessions() {
            setup.memory.remember(setup, conversation, &opened.session_id);
        }
        Ok(opened.session_id)
    }

    async fn request<T: DeserializeOwned>(
        &mut self,
        method: &str,
        params: &impl Serialize,
        agent: &AcpAgent,
    ) -> Result<T, TurnVerdict> {
        let number = self.rpc.ask(method, params).await;
        let answer = answer_to(self, number).await?;
        understood(&answer.map_err(|error| failure(&error, agent))?)
    }

    fn update(&mut self, update: AcpUpdate) -> Result<(), TurnVerdict> {
        match update {
            AcpUpdate::Message(text) => self.turn.push_text(&text),
            AcpUpdate::Thought(text) => self.turn.push_thought(&text),
            AcpUpdate::Call(call) => {
                if let Some(call) = self.calls.take(*call) {
                    self.turn.tool(call);
                }
            }
            AcpUpdate::Plan(plan) => self.turn.note(plan),
            AcpUpdate::Usage(usage) => {
                let usage = self.cost_before.taken_off(usage);
                if self.turn.set_usage(usage) && self.phase == TurnPhase::Working {
                    return Err(self.over_budget());
                }
            }
            AcpUpdate::Other => {}
        }
        Ok(())
    }

    fn over_budget(&self) -> TurnVerdict {
        TurnVerdict::OverBudget { message: self.turn.exceeded().unwrap_or_default() }
    }

    async fn on_permission_request(&mut self, id: Json, params: &Json) {
        if self.phase == TurnPhase::Halting {
            return self.rpc.answer(&id, &AcpPermissionResponse::cancelled()).await;
        }
        let asked: AcpPermissionRequest = match params.parse() {
            Ok(asked) => asked,
            Err(error) => return self.rpc.refuse(&id, &rpc::Error::bad_params(error)).await,
        };
        let question = self.calls.question(&asked);
        let key = AcpQuestion { id, call: asked.tool_call.tool_call_id, options: asked.options };
        self.exchange.push(self.turn.ask(key, &question));
    }

    /// Tells the agent to stop and waits briefly for its turn to end.
    pub(super) async fn cancel_turn(&mut self) {
        self.phase = TurnPhase::Halting;
        let open = self.exchange.withdraw_all();
        let farewell = async {
            for question in open {
                self.rpc.answer(&question.id, &AcpPermissionResponse::cancelled()).await;
            }
            if let (Some(session), Some(number)) = (self.session.clone(), self.prompt) {
                self.rpc.notify("session/cancel", &AcpCancel { session_id: &session }).await;
                let _ = answer_to(self, number).await;
            }
        };
        let _ = tokio::time::timeout(CANCEL_TIMEOUT, farewell).await;
    }

    /// Closes the agent's standard input.
    pub(super) fn close(self) -> HostTurn {
        self.turn
    }

    fn verdict(&self, reason: &str) -> TurnVerdict {
        let failed = |message: &str| TurnVerdict::Failed { message: message.to_owned() };
        match reason {
            "end_turn" => TurnVerdict::Done { text: None },
            "refusal" => TurnVerdict::Refused { message: String::new() },
            "max_tokens" => failed("the model's answer reached the maximum length; split the task into smaller ones"),
            "max_turn_requests" => {
                failed("it reached the maximum number of model requests per turn; split the task into smaller ones")
            }
            // Some agents end the turn themselves after a denial.
            "cancelled" if self.turn.was_denied() => TurnVerdict::Done { text: None },
            "cancelled" => failed("it cancelled its own turn"),
            other => TurnVerdict::Unreadable { message: format!("its turn ended with `{other}`") },
        }
    }
}

impl RpcConversation for AcpConversation {
    type Question = AcpQuestion;

    fn exchange(&mut self) -> &mut HostExchange<AcpQuestion> {
        &mut self.exchange
    }

    fn read(&mut self, line: Option<HostLine>) -> Result<Option<HostRpcMessage>, TurnVerdict> {
        let unreadable = |message: String| Err(TurnVerdict::Unreadable { message });
        let line = match (line, self.stray.first.take()) {
            (Some(HostLine::Whole(line)), first) => {
                self.stray.first = first;
                line
            }
            (Some(HostLine::TooLong), _) => return unreadable("a message larger than 16 MiB".to_owned()),
            // An agent that can't start may print the reason before its first message.
            (None, Some(first)) if self.phase != TurnPhase::Before => return unreadable(first),
            (None, _) => return Err(TurnVerdict::Vanished),
        };
        if let Some(heard) = HostRpcMessage::read(&line) {
            self.stray = StrayLines::default();
            return Ok(Some(heard));
        }
        self.turn.log("debug", line.clone());
        self.stray.count += 1;
        if self.stray.count > MAX_STRAY_LINES {
            return unreadable(self.stray.first.take().unwrap_or(line));
        }
        self.stray.first.get_or_insert(line);
        Ok(None)
    }

    async fn on_request(&mut self, id: Json, method: String, params: Json) {
        match method.as_str() {
            "session/request_permission" => self.on_permission_request(id, &params).await,
            // Nothing else: whatever is inside walls can write to the agent's output, and we are outside.
            _ => self.rpc.refuse(&id, &rpc::Error::unknown(&method)).await,
        }
    }

    fn on_notification(&mut self, method: &str, params: &Json) -> Result<(), TurnVerdict> {
        if method != "session/update" {
            return Ok(());
        }
        match AcpUpdate::read(params) {
            update if self.phase != TurnPhase::Before => return self.update(update),
            AcpUpdate::Usage(HostUsage { cost_usd: Some(cost), .. }) => self.cost_before = PriorCost::Known(cost),
            _ => {}
        }
        Ok(())
    }

    async fn send_answer(&mut self, answered: KeyedAnswer<AcpQuestion>) {
        self.turn.answered(&answered);
        let KeyedAnswer { key: AcpQuestion { id, call, options }, answer, .. } = answered;
        if let ApprovalAnswer::Denied { .. } = answer {
            self.calls.denied(&call);
        }
        let (leave, remark) = tool_calls::choose(&options, &answer);
        if let Some(remark) = remark {
            self.turn.log("warning", remark);
        }
        self.rpc.answer(&id, &leave).await;
    }
}

// === impl PriorCost ===

impl PriorCost {
    /// The part of the total that belongs to this run.
    fn taken_off(self, usage: HostUsage) -> HostUsage {
        let cost_usd = match self {
            Self::Nothing => usage.cost_usd,
            // Rounded to the billionth, so the difference is as round as its operands.
            Self::Known(before) => usage.cost_usd.map(|cost| ((cost - before).max(0.0) * 1e9).round() / 1e9),
            Self::Unknown => None,
        };
        let cost_source = if cost_usd.is_some() { usage.cost_source } else { CostCertainty::Unknown };
        HostUsage { cost_usd, cost_source, ..usage }
    }
}

fn failure(error: &rpc::Error, agent: &AcpAgent) -> TurnVerdict {
    let text = error.text();
    if error.code == AUTH_REQUIRED {
        let ways = match agent.logins().as_slice() {
            [] => String::new(),
            ways => format!(" Login methods: {}.", ways.join("; ")),
        };
        let message = format!("{text}. Start it on this device, log in, and send the task again.{ways}");
        return TurnVerdict::SignIn { message };
    }
    // Some agents pass on the HTTP status of their model.
    match error.code {
        429 | 402 => TurnVerdict::UsageLimit { message: text, resets_at: None },
        401 | 403 => TurnVerdict::SignIn { message: text },
        500..=599 => TurnVerdict::ModelUnreachable { message: text },
        _ => outage::verdict(&text, text.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_of_earlier_runs_is_not_counted_again() {
        let total = HostUsage { tokens: Some(9), ..HostUsage::default() }.with_cost(3.0);
        let own = HostUsage { tokens: Some(9), ..HostUsage::default() }.with_cost(0.5);
        assert_eq!(PriorCost::Known(2.5).taken_off(total), own);
        assert_eq!(PriorCost::Nothing.taken_off(total), total);
        assert_eq!(PriorCost::Unknown.taken_off(total), HostUsage { tokens: Some(9), ..HostUsage::default() });
    }

    #[test]
    fn a_failure_includes_the_next_step() {
        let agent: AcpAgent =
            Json::from_text(r#"{"authMethods":[{"id":"l","name":"Log in with a browser"}]}"#).unwrap().parse().unwrap();
        let expected = "Authentication required. Start it on this device, log in, and send the task again. Login methods: \
                        Log in with a browser.";
        assert_eq!(
            failure(&rpc::Error::new(AUTH_REQUIRED, "Authentication required"), &agent),
            TurnVerdict::SignIn { message: expected.to_owned() }
        );
        let away = rpc::Error { data: Some(Json::of("fetch failed")), ..rpc::Error::new(-32603, "Internal error") };
        let expected = TurnVerdict::ModelUnreachable { message: "Internal error (fetch failed)".to_owned() };
        assert_eq!(failure(&away, &agent), expected);
        let other = rpc::Error::new(-32603, "Internal error");
        assert_eq!(failure(&other, &agent), TurnVerdict::Failed { message: "Internal error".to_owned() });
    }
}

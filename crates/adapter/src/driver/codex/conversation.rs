//! One run's conversation with Codex, from `initialize` to the end of its turn.

use std::{path::Path, time::Duration};

use attache_protocol::{InputId, Json, Timestamp};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    approval::{self, CodexApprovalRequest, CodexReplyForm, CodexSteps},
    item::{ItemPhase, tool_call},
    message::{
        CodexAccountRead, CodexApprovalPolicy, CodexDelta, CodexErrorEvent, CodexInitialize, CodexInitialized,
        CodexInput, CodexInterrupt, CodexItem, CodexItemEvent, CodexMcpServerStatus, CodexOpenThread,
        CodexRateLimitsEvent, CodexRawEvent, CodexStartTurn, CodexSteerTurn, CodexThreadOpened, CodexTokens,
        CodexTurnEnd, CodexTurnEvent, CodexTurnStarted, CodexUsageEvent,
    },
    settings,
    turn_result::{self, TurnActivity as Said},
};
use crate::{
    UnsolicitedInput,
    attachment::Attachment,
    host::{
        ApprovalAnswer, HostExchange, HostLines, HostProcess, HostTurn, HostWriter, KeyedAnswer, TurnVerdict,
        limits::AgreedLimits,
        lines::HostLine,
        outage,
        recent::{NOTES, RecentEntries},
        rpc::{self, HostRpc, HostRpcMessage, RpcConversation, answer_to, excerpt, started_within, step, understood},
        turn::ToolStatus,
    },
};

pub(super) struct CodexConversation<'a> {
    exchange: HostExchange<CodexQuestion>,
    rpc: HostRpc,
    turn: HostTurn,
    cwd: &'a Path,
    limits: &'a AgreedLimits,
    steps: CodexSteps,
    thread: Option<String>,
    /// Id of the current turn.
    at_work: Option<String>,
    ended: Option<CodexTurnEnd>,
    /// Id of the message being streamed.
    streamed: Option<String>,
    said: Said,
    /// Why commands can't run, as long as none has.
    trouble: Option<String>,
    /// When the account's usage limit resets.
    resets_at: Option<Timestamp>,
    /// Usage per thread: Codex may start sub-agents with threads of their own.
    threads: RecentEntries<CodexTokens>,
    /// Usage of threads that are no longer remembered.
    settled: CodexTokens,
    /// Usage of this thread before the run.
    before: CodexTokens,
    is_halting: bool,
    /// Messages of the caller that Codex hasn't accepted for its turn yet, by the number of the request.
    steering: Vec<(u64, CodexCallerMessage)>,
    /// Whether a turn was requested that Codex hasn't confirmed.
    is_starting: bool,
    /// Messages of the caller that came too late for the turn: they begin the next one.
    late: Vec<CodexCallerMessage>,
}

/// What the caller says while Codex works.
struct CodexCallerMessage {
    text: String,
    id: Option<InputId>,
}

/// Codex's request id and the form of its answer.
type CodexQuestion = (Json, CodexReplyForm);

/// Options for opening a thread. The configuration contains a secret, so this has no `Debug`.
pub(super) struct ThreadOptions<'a> {
    pub(super) cwd: &'a str,
    pub(super) instructions: Option<String>,
    pub(super) config: Json,
    pub(super) keeping: ThreadPersistence<'a>,
}

/// What Codex persists of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) enum ThreadPersistence<'a> {
    Nothing,
    New,
    /// Resumes this thread, or starts a new one.
    Resumed(&'a str),
    /// Resumes this thread, which a person chose.
    Chosen(&'a str),
}

/// A thread that was to be opened.
#[derive(Debug)]
pub(super) enum OpenedThread {
    Open(String),
    /// The chosen one can't be resumed.
    Lost {
        session: String,
        why: String,
    },
}

/// Time limit for Codex to start. It needs a second, more on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// More messages of the caller than this don't wait for Codex.
const MAX_STEERING: usize = 64;

/// Time limit for a turn to end after an interrupt.
const INTERRUPT_TIMEOUT: Duration = Duration::from_millis(700);

// === impl CodexConversation ===

impl<'a> CodexConversation<'a> {
    pub(super) fn with(process: &mut HostProcess, turn: HostTurn, cwd: &'a Path, limits: &'a AgreedLimits) -> Self {
        Self {
            exchange: HostExchange::new(HostLines::of(process.stdout())).with_caller(turn.caller()),
            rpc: HostRpc::new(HostWriter::to(process.stdin())),
            turn,
            cwd,
            limits,
            steps: CodexSteps::default(),
            thread: None,
            at_work: None,
            ended: None,
            streamed: None,
            said: Said::Nothing,
            trouble: None,
            resets_at: None,
            threads: RecentEntries::within(NOTES),
            settled: CodexTokens::default(),
            before: CodexTokens::default(),
            is_halting: false,
            steering: Vec::new(),
            is_starting: false,
            late: Vec::new(),
        }
    }

    pub(super) fn log(&self, level: &str, message: impl Into<String>) {
        self.turn.log(level, message);
    }

    /// Initializes Codex. Returns its home folder.
    pub(super) async fn initialize(&mut self) -> Result<Option<String>, TurnVerdict> {
        let home: CodexInitialized = self.request("initialize", &CodexInitialize::this_client()).await?;
        self.rpc.notify("initialized", &Json::empty_object()).await;
        let number = self.rpc.ask("account/read", &Json::empty_object()).await;
        // A version that doesn't know this request may still be logged in.
        let account = answer_to(self, number).await?.ok().and_then(|answer| answer.parse::<CodexAccountRead>().ok());
        match account {
            Some(CodexAccountRead { account: None, requires_openai_auth: true }) => Err(turn_result::not_logged_in("")),
            _ => Ok(home.codex_home),
        }
    }

    pub(super) async fn open(&mut self, opening: &ThreadOptions<'_>) -> Result<OpenedThread, TurnVerdict> {
        let is_confined = settings::is_confined(&self.limits.own);
        // Its own sandbox can't be built inside walls, which hold without it.
        let sandbox = if self.limits.walled.is_empty() { "workspace-write" } else { "danger-full-access" };
        let mut open = CodexOpenThread {
            thread_id: None,
            cwd: opening.cwd,
            approval_policy: if is_confined {
                CodexApprovalPolicy::WITHIN_LIMITS
            } else {
                CodexApprovalPolicy::Asking("untrusted")
            },
            approvals_reviewer: "user",
            sandbox: (!is_confined).then_some(sandbox),
            developer_instructions: opening.instructions.as_deref(),
            config: &opening.config,
            ephemeral: None,
            experimental_raw_events: None,
        };
        if let ThreadPersistence::Resumed(earlier) | ThreadPersistence::Chosen(earlier) = opening.keeping {
            open.thread_id = Some(earlier);
            let number = self.rpc.ask("thread/resume", &open).await;
            match started_within(START_TIMEOUT, answer_to(self, number)).await? {
                Ok(opened) => return self.opened(understood(&opened)?),
                Err(error) if matches!(opening.keeping, ThreadPersistence::Chosen(_)) => {
                    return Ok(OpenedThread::Lost { session: earlier.to_owned(), why: error.text() });
                }
                Err(error) => self.log("info", format!("Codex no longer has this conversation: {}", error.text())),
            }
        }
        open.thread_id = None;
        open.ephemeral = matches!(opening.keeping, ThreadPersistence::Nothing).then_some(true);
        open.experimental_raw_events = Some(true);
        let opened = self.request("thread/start", &open).await?;
        self.opened(opened)
    }

    fn opened(&mut self, opened: CodexThreadOpened) -> Result<OpenedThread, TurnVerdict> {
        let profile = opened.active_permission_profile.map(|profile| profile.id);
        if settings::is_confined(&self.limits.own) && profile.as_deref() != Some(settings::PROFILE) {
            let message = "it didn't accept the run's limits, so the task was not started".to_owned();
            return Err(TurnVerdict::Refused { message });
        }
        self.thread = Some(opened.thread.id.clone());
        Ok(OpenedThread::Open(opened.thread.id))
    }

    /// Runs the task.
    pub(super) async fn work(
        &mut self,
        thread: &str,
        task: &str,
        images: &[Attachment],
    ) -> Result<TurnVerdict, TurnVerdict> {
        self.turn.working();
        let images = images.iter().filter_map(|image| {
            Some(CodexInput::Image { url: format!("data:{};base64,{}", image.kind(), image.base64()?) })
        });
        let input = [CodexInput::Text { text: task }].into_iter().chain(images).collect();
        let mut verdict = self.take_turn(thread, input, Vec::new()).await?;
        while matches!(verdict, TurnVerdict::Done { .. }) && !self.late.is_empty() {
            let (texts, ids): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.late).into_iter().map(|late| (late.text, late.id)).unzip();
            self.turn.next_message();
            verdict = self.take_turn(thread, vec![CodexInput::Text { text: &texts.join("\n\n") }], ids).await?;
        }
        self.at_work = None;
        Ok(verdict)
    }

    /// `said` are the messages of the caller that the input consists of.
    async fn take_turn(
        &mut self,
        thread: &str,
        input: Vec<CodexInput<'_>>,
        said: Vec<Option<InputId>>,
    ) -> Result<TurnVerdict, TurnVerdict> {
        (self.ended, self.is_starting) = (None, true);
        let number = self.rpc.ask("turn/start", &CodexStartTurn { thread_id: thread, input }).await;
        match answer_to(self, number).await? {
            Ok(started) => self.at_work = Some(understood::<CodexTurnStarted>(&started)?.turn.id),
            Err(error) => return Err(failure(&error)),
        }
        self.is_starting = false;
        let caller = self.turn.caller();
        said.into_iter().for_each(|input| caller.took(input));
        for late in std::mem::take(&mut self.late) {
            self.steer(late).await;
        }
        while self.ended.is_none() || !self.steering.is_empty() {
            if let Some((number, result)) = step(self).await? {
                self.steered(number, result.is_ok());
            }
        }
        let said = if self.turn.was_denied() { Said::Something } else { self.said };
        let verdict = self.ended.as_ref().map_or(TurnVerdict::Vanished, |ended| turn_result::verdict(ended, said));
        Ok(match (verdict, self.trouble.take()) {
            (TurnVerdict::Done { .. }, Some(trouble)) => turn_result::without_sandbox(&trouble),
            (TurnVerdict::UsageLimit { message, .. }, _) => {
                TurnVerdict::UsageLimit { message, resets_at: self.resets_at }
            }
            (verdict, _) => verdict,
        })
    }

    /// Adds a message of the caller to the turn.
    async fn steer(&mut self, message: CodexCallerMessage) {
        match (self.thread.clone(), self.at_work.clone()) {
            (Some(thread), Some(turn))
                if self.ended.is_none() && !self.is_starting && self.steering.len() < MAX_STEERING =>
            {
                let input = vec![CodexInput::Text { text: &message.text }];
                let steer = CodexSteerTurn { thread_id: &thread, expected_turn_id: &turn, input };
                let number = self.rpc.ask("turn/steer", &steer).await;
                self.steering.push((number, message));
            }
            _ if self.late.len() < MAX_STEERING => self.late.push(message),
            _ => self.log("warning", "Codex hasn't got earlier messages yet; this one was not delivered"),
        }
    }

    /// A message that isn't accepted came after the end of the turn.
    fn steered(&mut self, number: u64, is_accepted: bool) {
        if let Some(at) = self.steering.iter().position(|(asked, _)| *asked == number) {
            let (_, message) = self.steering.remove(at);
            match is_accepted {
                true => self.turn.caller().took(message.id),
                false => self.late.push(message),
            }
        }
    }

    async fn request<T: DeserializeOwned>(&mut self, method: &str, params: &impl Serialize) -> Result<T, TurnVerdict> {
        let number = self.rpc.ask(method, params).await;
        understood(&started_within(START_TIMEOUT, answer_to(self, number)).await?.map_err(|error| failure(&error))?)
    }

    fn is_own(&self, thread: &str) -> bool {
        self.thread.as_deref() == Some(thread)
    }

    fn on_text_delta(&mut self, params: &Json) {
        let Ok(CodexDelta { thread_id, item_id, delta }) = params.parse() else { return };
        if !self.is_own(&thread_id) {
            return;
        }
        if self.streamed.as_ref() != Some(&item_id) {
            self.turn.next_message();
            self.streamed = Some(item_id);
        }
        self.said = Said::Something;
        self.turn.push_text(&delta);
    }

    fn item(&mut self, params: &Json, moment: ItemPhase) {
        let Ok(CodexItemEvent { thread_id, item }) = params.parse() else { return };
        self.steps.note(&item);
        if let Some(call) = tool_call(&item, moment) {
            self.said = Said::Something;
            match turn_result::sandbox_failure(&item) {
                Some(trouble) => self.trouble = Some(trouble.to_owned()),
                None if call.status == ToolStatus::Completed => self.trouble = None,
                None => {}
            }
            self.turn.tool(call);
        }
        if let (ItemPhase::Completed, CodexItem { id, text: Some(text), .. }) = (moment, &item)
            && item.kind == "agentMessage"
            && self.is_own(&thread_id)
            && self.streamed.as_ref() != Some(id)
        {
            self.said = Said::Something;
            self.turn.next_message();
            self.turn.push_text(text);
        }
    }

    fn on_usage(&mut self, params: &Json) -> Result<(), TurnVerdict> {
        let Ok(used) = params.parse::<CodexUsageEvent>() else { return Ok(()) };
        if self.at_work.is_none() {
            // Reported when an earlier thread is resumed.
            self.before = used.total();
            return Ok(());
        }
        let total = used.total();
        for forgotten in self.threads.insert(&used.thread_id, total, size_of::<CodexTokens>()) {
            self.settled = CodexTokens::sum([self.settled, forgotten]);
        }
        let all = CodexTokens::sum(self.threads.values().copied().chain([self.settled]));
        let spent = self.turn.set_usage(all.since(self.before));
        if spent && !self.is_halting {
            return Err(TurnVerdict::OverBudget { message: self.turn.exceeded().unwrap_or_default() });
        }
        Ok(())
    }

    /// Interrupts the turn and waits briefly for it to end.
    pub(super) async fn interrupt_turn(&mut self) {
        self.is_halting = true;
        // This withdraws all open questions; Codex drops them with the turn.
        self.exchange.withdraw_all();
        let farewell = async {
            if let (Some(thread), Some(turn)) = (self.thread.clone(), self.at_work.clone()) {
                self.rpc.ask("turn/interrupt", &CodexInterrupt { thread_id: &thread, turn_id: &turn }).await;
                while self.ended.is_none() && step(self).await.is_ok() {}
            }
        };
        let _ = tokio::time::timeout(INTERRUPT_TIMEOUT, farewell).await;
    }

    /// Closes Codex's standard input.
    pub(super) fn close(self) -> HostTurn {
        self.turn
    }
}

impl RpcConversation for CodexConversation<'_> {
    type Question = CodexQuestion;

    fn exchange(&mut self) -> &mut HostExchange<CodexQuestion> {
        &mut self.exchange
    }

    /// Codex prints only messages on its standard output.
    fn read(&mut self, line: Option<HostLine>) -> Result<Option<HostRpcMessage>, TurnVerdict> {
        let unreadable = |message: &str| Err(TurnVerdict::Unreadable { message: message.to_owned() });
        match line {
            None => Err(TurnVerdict::Vanished),
            Some(HostLine::TooLong) => unreadable("a message larger than 16 MiB"),
            Some(HostLine::Whole(line)) => match HostRpcMessage::read(&line) {
                None => unreadable(excerpt(&line)),
                message => Ok(message),
            },
        }
    }

    /// Unreadable notifications are ignored: newer versions of Codex send more.
    fn on_notification(&mut self, method: &str, params: &Json) -> Result<(), TurnVerdict> {
        match method {
            "item/agentMessage/delta" => self.on_text_delta(params),
            "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta" => {
                if let Ok(CodexDelta { thread_id, delta, .. }) = params.parse()
                    && self.is_own(&thread_id)
                {
                    self.turn.push_thought(&delta);
                }
            }
            "item/started" => self.item(params, ItemPhase::Started),
            "item/completed" => self.item(params, ItemPhase::Completed),
            "rawResponseItem/completed" => {
                if let Ok(CodexRawEvent { item }) = params.parse() {
                    self.steps.note_raw(item);
                }
            }
            "thread/tokenUsage/updated" => return self.on_usage(params),
            "error" => {
                if let Ok(CodexErrorEvent { error, will_retry: true }) = params.parse() {
                    let why = error.additional_details.unwrap_or_else(|| error.message.clone());
                    let (attempt, most) = turn_result::attempt(&error.message).unzip();
                    self.turn.retry(attempt.unwrap_or(1), most, &why);
                }
            }
            "account/rateLimits/updated" => {
                if let Ok(CodexRateLimitsEvent { rate_limits }) = params.parse() {
                    if let Some(warning) = rate_limits.warning() {
                        self.turn.note(warning);
                    }
                    self.resets_at = rate_limits.resets_at().or(self.resets_at);
                }
            }
            "mcpServer/startupStatus/updated" => {
                if let Ok(CodexMcpServerStatus { name, status, error: Some(error) }) = params.parse()
                    && status == "failed"
                {
                    self.log("warning", format!("MCP server `{name}` isn't available: {error}"));
                }
            }
            "turn/completed" => {
                // Otherwise it would wait for the next turn, and the end of this one would go unnoticed.
                let CodexTurnEvent { thread_id, turn } = understood(params)?;
                if self.is_own(&thread_id) {
                    self.ended = Some(turn);
                }
            }
            _ => {}
        }
        Ok(())
    }

    async fn on_request(&mut self, id: Json, method: String, params: Json) {
        if let Some((ids, asked)) = approval::user_input(&method, &params).filter(|_| !self.is_halting) {
            return self.exchange.push(self.turn.ask_to_choose((id, CodexReplyForm::UserInput(ids)), asked));
        }
        let Some(asked) = self.steps.approval_request(&method, &params, self.cwd, &self.limits.own) else {
            self.log("info", format!("Codex requested `{method}`, which isn't supported"));
            return self.rpc.refuse(&id, &rpc::Error::unknown(&method)).await;
        };
        let CodexApprovalRequest { question, form: manner, forbidden } = asked;
        if let Some(why) = forbidden {
            let step = question.step();
            self.log("warning", format!("denied: {step}: {why}"));
            self.turn.refused_by_host(format!("{step} ({why})"));
            return self.rpc.answer(&id, &manner.reply(&ApprovalAnswer::Denied { comment: None })).await;
        }
        if self.is_halting {
            return self.rpc.answer(&id, &manner.reply(&ApprovalAnswer::Stopped)).await;
        }
        self.exchange.push(self.turn.ask((id, manner), &question));
    }

    async fn on_unsolicited(&mut self, input: UnsolicitedInput) {
        if let Some(text) = self.turn.said_by_caller(&input.parts) {
            self.steer(CodexCallerMessage { text, id: input.id }).await;
        }
    }

    async fn send_answer(&mut self, answered: KeyedAnswer<CodexQuestion>) {
        self.turn.answered(&answered);
        let KeyedAnswer { key: (id, manner), answer, step } = answered;
        self.rpc.answer(&id, &manner.reply(&answer)).await;
        // Codex's reply format has no place for a comment.
        if let (ApprovalAnswer::Denied { comment: Some(comment) }, Some(thread), Some(turn)) =
            (answer, self.thread.clone(), self.at_work.clone())
        {
            let text = format!("Denied by the approver ({step}). Comment: {comment}");
            let input = vec![CodexInput::Text { text: &text }];
            self.rpc.ask("turn/steer", &CodexSteerTurn { thread_id: &thread, expected_turn_id: &turn, input }).await;
        }
    }
}

fn failure(error: &rpc::Error) -> TurnVerdict {
    let message = error.text();
    outage::verdict(&message, message.clone())
}

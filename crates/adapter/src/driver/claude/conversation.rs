//! The conversation with one Claude Code process, from the first line to the end of its turn.

use std::{
    borrow::Cow,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use attache_os::confined::ConfinedFolder;
use attache_protocol::{InputId, Json, Timestamp};
use tokio::time::Instant;

use super::{
    message::{
        self, ClaudeApiRetry, ClaudeAssistantMessage, ClaudeBlock, ClaudeDelta, ClaudeInit, ClaudeMessage,
        ClaudeRateLimit, ClaudeToolRequest, ClaudeToolResult, TokenTally,
    },
    permission::{self, ClaudePermissionResult, FileBefore},
    plan::{ClaudePlan, PlanStep},
    request::{self, ClaudeInputLine},
    turn_result::{ClaudeTurnResult, SIGN_IN},
};
use crate::{
    DriverRun, UnsolicitedInput,
    attachment::Attachment,
    host::{
        ApprovalAnswer, HostExchange, HostInput, HostLines, HostTurn, HostUsage, HostWriter, KeyedAnswer, TOOLS_SERVER,
        TurnVerdict,
        lines::HostLine as Heard,
        recent::{NOTES, RecentEntries},
        turn::{ToolCall, ToolStatus},
    },
};

pub(super) struct ClaudeConversation<'a> {
    turn: &'a mut HostTurn,
    job: &'a DriverRun,
    speaker: HostWriter,
    exchange: HostExchange<ClaudeQuestion>,
    /// Ids of the tool uses that people were asked about.
    asked: RecentEntries<()>,
    tally: TokenTally,
    /// Usage of the turns that have ended, as the program reported it.
    ended_turns: HostUsage,
    /// The tally when the last of them ended.
    tallied: (u64, u64),
    /// Whether the next complete text or thought was already streamed in pieces.
    has_streamed_text: bool,
    has_streamed_thought: bool,
    /// Names of the tools in use, by id.
    in_use: RecentEntries<String>,
    completed: u64,
    /// How many tool uses had completed when one failed.
    failed_after: RecentEntries<u64>,
    /// When the account's usage limit resets.
    resets_at: Option<Timestamp>,
    unreadable: Option<String>,
    session: String,
    is_session_lost: bool,
    plan: ClaudePlan,
    /// Messages of the caller that the model hasn't got yet: our id for the program, and the hub's.
    unheard: Vec<(String, Option<InputId>)>,
    /// How a turn ended after which such a message begins the next one, and until when it is waited for.
    next_turn: Option<(TurnVerdict, Instant)>,
}

/// The program's request id, and the input that people decide about.
type ClaudeQuestion = (String, Json);

/// Why the conversation ended.
enum ClaudeConversationEnd {
    /// The program said so, or it exited.
    ByHost(TurnVerdict),
    /// We ended it.
    ByUs(TurnVerdict),
}

/// How long the program gets to answer an interrupt.
const INTERRUPT_TIMEOUT: Duration = Duration::from_millis(700);

/// How long the program gets to begin another turn with a message that came too late for the last one.
const NEXT_TURN_TIMEOUT: Duration = Duration::from_secs(20);

/// More messages of the caller than this aren't passed on before the model got some.
const MAX_UNHEARD: usize = 64;

/// After this many authentication retries it isn't just a key being refreshed.
const MAX_AUTH_RETRIES: u64 = 3;

// === impl ClaudeConversation ===

impl<'a> ClaudeConversation<'a> {
    pub(super) fn begin(turn: &'a mut HostTurn, job: &'a DriverRun, speaker: HostWriter, lines: HostLines) -> Self {
        Self {
            turn,
            job,
            speaker,
            exchange: HostExchange::new(lines).with_caller(job.question_handle.clone()),
            asked: RecentEntries::within(NOTES),
            tally: TokenTally::default(),
            ended_turns: HostUsage::default(),
            tallied: (0, 0),
            has_streamed_text: false,
            has_streamed_thought: false,
            in_use: RecentEntries::within(NOTES),
            completed: 0,
            failed_after: RecentEntries::within(NOTES),
            resets_at: None,
            unreadable: None,
            session: String::new(),
            is_session_lost: false,
            plan: ClaudePlan::Settled,
            unheard: Vec::new(),
            next_turn: None,
        }
    }

    /// It must get its plan approved first. `folder` is where the program keeps plans.
    #[must_use]
    pub(super) fn planning(mut self, folder: Option<PathBuf>) -> Self {
        self.plan = ClaudePlan::open(folder);
        self
    }

    pub(super) async fn converse(&mut self, system: Option<&str>, task: &str, attached: &[Attachment]) -> TurnVerdict {
        self.speaker.write(&ClaudeInputLine::initialize(system)).await;
        self.speaker.write(&ClaudeInputLine::task(task, attached)).await;
        loop {
            let end = tokio::select! {
                biased;
                () = self.job.stop.cancelled() => Some(ClaudeConversationEnd::ByUs(TurnVerdict::Stopped)),
                input = self.exchange.next() => match input {
                    HostInput::Answer(answered) => {
                        self.answer(&answered).await;
                        None
                    }
                    HostInput::Unsolicited(input) => {
                        self.pass_on(&input).await;
                        None
                    }
                    HostInput::Line(Some(line)) => self.on_message(line).await,
                    HostInput::Line(None) => Some(ClaudeConversationEnd::ByHost(self.verdict_of_broken_stream())),
                },
                verdict = expired(self.next_turn.as_ref()) => {
                    self.turn.log("warning", "the last message came too late and did not reach the agent");
                    Some(ClaudeConversationEnd::ByHost(verdict))
                }
            };
            match end {
                None => {}
                Some(ClaudeConversationEnd::ByHost(verdict)) => return verdict,
                Some(ClaudeConversationEnd::ByUs(verdict)) => {
                    self.interrupt().await;
                    return verdict;
                }
            }
        }
    }

    /// Sends only the first line and waits for the answer.
    pub(super) async fn initialize(&mut self) -> TurnVerdict {
        self.speaker.write(&ClaudeInputLine::initialize(None)).await;
        loop {
            match self.exchange.lines.next().await {
                None => return self.verdict_of_broken_stream(),
                Some(Heard::TooLong) => {}
                Some(Heard::Whole(line)) => match message::read(&line) {
                    Ok(ClaudeMessage::Answer { error: None }) => return TurnVerdict::Done { text: None },
                    Ok(ClaudeMessage::Answer { error: Some(message) }) => return TurnVerdict::Failed { message },
                    Ok(ClaudeMessage::Ended(ending)) => return ending.verdict(),
                    Ok(_) | Err(_) => {}
                },
            }
        }
    }

    /// The session id, whether the session was lost, and the remaining output. Closes the program's input.
    pub(super) fn into_parts(self) -> (String, bool, HostLines) {
        (self.session, self.is_session_lost, self.exchange.lines)
    }

    /// Interrupts the program and reads its last messages, for their usage figures.
    async fn interrupt(&mut self) {
        let last_words = async {
            self.speaker.write(&ClaudeInputLine::interrupt()).await;
            while let Some(line) = self.exchange.lines.next().await {
                if let Heard::Whole(line) = line
                    && let Ok(ClaudeMessage::Ended(ending)) = message::read(&line)
                {
                    return Some(ending);
                }
            }
            None
        };
        if let Ok(Some(ending)) = tokio::time::timeout(INTERRUPT_TIMEOUT, last_words).await {
            self.session.clone_from(&ending.session_id);
            self.count_turn(&ending);
        }
    }

    async fn on_message(&mut self, line: Heard) -> Option<ClaudeConversationEnd> {
        let message = match &line {
            Heard::Whole(line) => message::read(line).map_err(|error| {
                let start = &line[..line.floor_char_boundary(200)];
                format!("`{start}` ({error})")
            }),
            Heard::TooLong => Err("a line that is too long".to_owned()),
        };
        match message {
            Err(message) if matches!(&line, Heard::Whole(line) if message::is_end(line)) => {
                return Some(ClaudeConversationEnd::ByHost(TurnVerdict::Unreadable { message }));
            }
            Err(what) => {
                self.turn.log("warning", format!("skipped an unreadable line: {what}"));
                self.unreadable.get_or_insert(what);
            }
            Ok(ClaudeMessage::Init(init)) => self.on_init(init),
            Ok(ClaudeMessage::Retry(retry)) => return self.retried(&retry),
            Ok(ClaudeMessage::Limit(limit)) => self.limited(&limit),
            Ok(ClaudeMessage::Delta { within, piece }) => return self.on_delta(within, piece),
            Ok(ClaudeMessage::Assistant(assistant)) => return self.on_assistant(assistant),
            Ok(ClaudeMessage::Results(results)) => results.into_iter().for_each(|result| self.tool_ended(result)),
            Ok(ClaudeMessage::Received { uuid }) => {
                if let Some(at) = self.unheard.iter().position(|(unheard, _)| *unheard == uuid) {
                    let (_, input) = self.unheard.remove(at);
                    self.job.question_handle.took(input);
                }
                self.next_turn = None;
            }
            Ok(ClaudeMessage::Ask { id, ask }) => self.ask(id, ask).await,
            Ok(ClaudeMessage::Unknown { id }) => self.speaker.write(&ClaudeInputLine::not_known(&id)).await,
            Ok(ClaudeMessage::Withdrawn { id }) => self.exchange.withdraw(|(open, _)| *open == id),
            Ok(ClaudeMessage::Answer { error: Some(message) }) => {
                return Some(ClaudeConversationEnd::ByUs(TurnVerdict::Failed { message }));
            }
            Ok(ClaudeMessage::Ended(ending)) => match self.ended(&ending) {
                verdict @ TurnVerdict::Done { .. } if !self.unheard.is_empty() => {
                    // Another turn would begin.
                    if let Some(end) = self.over_budget() {
                        return Some(end);
                    }
                    self.turn.next_message();
                    self.next_turn = Some((verdict, Instant::now() + NEXT_TURN_TIMEOUT));
                }
                verdict => return Some(ClaudeConversationEnd::ByHost(verdict)),
            },
            Ok(ClaudeMessage::Answer { error: None } | ClaudeMessage::Other) => {}
        }
        None
    }

    fn on_init(&mut self, init: ClaudeInit) {
        self.session = init.session_id;
        self.turn.working();
        for server in init.mcp_servers.iter().filter(|server| server.name == TOOLS_SERVER && server.status == "failed")
        {
            let name = &server.name;
            self.turn.log("warning", format!("can't reach MCP server `{name}`; the run continues without its tools"));
        }
        if init.tools.is_empty() {
            self.turn.log("info", "no tools are available to this run");
        }
    }

    fn retried(&mut self, retry: &ClaudeApiRetry) -> Option<ClaudeConversationEnd> {
        let why = match (retry.error_status, retry.error.as_str()) {
            (Some(status), "" | "unknown") => format!("HTTP {status}"),
            (Some(status), error) => format!("HTTP {status}, {error}"),
            (None, _) => "no answer".to_owned(),
        };
        self.turn.retry(retry.attempt, retry.max_retries, &why);
        // It would keep retrying for minutes, in vain.
        let shut_out = matches!(retry.error_status, Some(401 | 403)) && retry.attempt >= MAX_AUTH_RETRIES;
        shut_out.then(|| ClaudeConversationEnd::ByUs(TurnVerdict::SignIn { message: format!("{SIGN_IN} ({why})") }))
    }

    fn limited(&mut self, limit: &ClaudeRateLimit) {
        if let Some(warning) = limit.warning() {
            self.turn.note(warning);
        }
        if limit.status == "rejected" {
            self.resets_at = limit.resets_at().or(self.resets_at);
        }
    }

    fn on_delta(&mut self, within: Option<String>, piece: ClaudeDelta) -> Option<ClaudeConversationEnd> {
        match piece {
            ClaudeDelta::Begins { id, usage } => {
                self.tally.begins(within.as_deref(), id, usage);
                return self.counted();
            }
            ClaudeDelta::Used(usage) => {
                self.tally.goes_on(within.as_deref(), usage);
                return self.counted();
            }
            // Output of sub-agents is not the answer.
            _ if within.is_some() => {}
            ClaudeDelta::Text => self.turn.next_message(),
            ClaudeDelta::Said(text) => {
                self.has_streamed_text = true;
                self.turn.push_text(&text);
            }
            ClaudeDelta::Thought(thought) => {
                self.has_streamed_thought = true;
                self.turn.push_thought(&thought);
            }
            ClaudeDelta::Other => {}
        }
        None
    }

    fn on_assistant(&mut self, assistant: ClaudeAssistantMessage) -> Option<ClaudeConversationEnd> {
        let is_answer = assistant.within.is_none() && !assistant.is_error;
        for block in assistant.blocks {
            match block {
                ClaudeBlock::Text(text) if is_answer && !std::mem::take(&mut self.has_streamed_text) => {
                    self.turn.next_message();
                    self.turn.push_text(&text);
                }
                ClaudeBlock::Thought(thought) if is_answer && !std::mem::take(&mut self.has_streamed_thought) => {
                    self.turn.push_thought(&thought);
                }
                ClaudeBlock::Tool { id, name, input } => self.on_tool_start(id, name, input),
                ClaudeBlock::Text(_) | ClaudeBlock::Thought(_) | ClaudeBlock::Other => {}
            }
        }
        self.tally.count(&assistant.id, assistant.usage);
        self.counted()
    }

    fn counted(&mut self) -> Option<ClaudeConversationEnd> {
        let ((input, output), (input_before, output_before)) = (self.tally.total(), self.tallied);
        let turn = HostUsage::of_tokens(input.saturating_sub(input_before), output.saturating_sub(output_before));
        match self.turn.set_usage(self.ended_turns.plus(turn)) {
            true => self.over_budget(),
            false => None,
        }
    }

    /// A turn has ended. Later ones add to it.
    fn count_turn(&mut self, ending: &ClaudeTurnResult) {
        let used = ending.usage();
        if used.turn.is_known() {
            (self.ended_turns, self.tallied) = (self.ended_turns.plus(used.turn), self.tally.total());
        }
        let _over_or_not = self.turn.set_usage(self.ended_turns);
        let _over_or_not = self.turn.set_usage(used.total);
    }

    /// The end of the conversation, if the run's budget is used up.
    fn over_budget(&self) -> Option<ClaudeConversationEnd> {
        let message = self.turn.exceeded()?;
        Some(ClaudeConversationEnd::ByUs(TurnVerdict::OverBudget { message }))
    }

    fn on_tool_start(&mut self, id: String, name: String, input: Json) {
        self.in_use.insert(&id, name.clone(), name.len());
        let title = permission::title(&name, &input);
        self.turn.tool(ToolCall { id, name, status: ToolStatus::Started, title, input: Some(input), output: None });
    }

    fn tool_ended(&mut self, result: ClaudeToolResult) {
        let Some(name) = self.in_use.remove(&result.id) else { return };
        let status = if result.failed { ToolStatus::Failed } else { ToolStatus::Completed };
        if result.failed {
            self.failed_after.insert(&result.id, self.completed, 0);
        } else {
            self.completed += 1;
        }
        let output = Some(result.text);
        self.turn.tool(ToolCall { id: result.id, name, status, title: None, input: None, output });
    }

    async fn ask(&mut self, id: String, ask: ClaudeToolRequest) {
        self.asked.insert(&ask.tool_use_id, (), 0);
        if let Some(asked) = permission::questionnaire(&ask) {
            return self.exchange.push(self.turn.ask_to_choose((id, ask.input), asked));
        }
        match self.plan.step(&id, &ask, Path::exists) {
            PlanStep::Ask => {}
            PlanStep::Present(plan) => {
                return self.exchange.push(self.turn.ask_for_plan((id, ask.input), &plan));
            }
            PlanStep::Allow => {
                let allowed = ClaudePermissionResult::allowed(Cow::Borrowed(&ask.input));
                return self.speaker.write(&ClaudeInputLine::answer(&id, allowed)).await;
            }
            PlanStep::Deny(why) => {
                let denied = ClaudePermissionResult::denied(why.to_owned());
                return self.speaker.write(&ClaudeInputLine::answer(&id, denied)).await;
            }
        }
        let present = match permission::changes(&ask) {
            Some(path) => present(self.job.files(), path).await,
            None => FileBefore::Unknown,
        };
        let question = permission::question(&ask, &present);
        self.exchange.push(self.turn.ask((id, ask.input), &question));
    }

    async fn answer(&mut self, answered: &KeyedAnswer<ClaudeQuestion>) {
        self.turn.answered(answered);
        let (id, input) = &answered.key;
        let behavior = match self.plan.is_presented(id) {
            true => ClaudePermissionResult::of_plan(&answered.answer, input),
            false => ClaudePermissionResult::of(&answered.answer, input),
        };
        if self.plan.is_presented(id) && answered.answer == ApprovalAnswer::Allowed {
            self.plan.approve();
        }
        if let Some(behavior) = behavior {
            self.speaker.write(&ClaudeInputLine::answer(id, behavior)).await;
        }
    }

    /// The model gets it with the next result of a tool or, if there is none, as its next turn.
    async fn pass_on(&mut self, input: &UnsolicitedInput) {
        let Some(text) = self.turn.said_by_caller(&input.parts) else { return };
        if self.unheard.len() >= MAX_UNHEARD {
            return self.turn.log("warning", "the agent hasn't got earlier messages yet; this one was not delivered");
        }
        let uuid = self.job.env.uuid().to_string();
        self.speaker.write(&ClaudeInputLine::more(&request::escape_slash(text), &uuid)).await;
        self.unheard.push((uuid, input.id));
    }

    fn ended(&mut self, ending: &ClaudeTurnResult) -> TurnVerdict {
        self.session.clone_from(&ending.session_id);
        self.is_session_lost = ending.is_session_lost();
        self.count_turn(ending);
        for denial in &ending.permission_denials {
            // A denial by the program's own rules counts like one by people, unless it made progress afterwards.
            let got_on = self.failed_after.get(&denial.tool_use_id).is_some_and(|before| self.completed > *before);
            if !got_on && !self.asked.contains(&denial.tool_use_id) {
                let step = denial.tool_input.as_ref().and_then(|input| permission::title(&denial.tool_name, input));
                self.turn.refused_by_host(step.unwrap_or_else(|| denial.tool_name.clone()));
            }
        }
        match ending.verdict() {
            TurnVerdict::UsageLimit { message, .. } => TurnVerdict::UsageLimit { message, resets_at: self.resets_at },
            verdict => verdict,
        }
    }

    fn verdict_of_broken_stream(&mut self) -> TurnVerdict {
        self.unreadable.take().map_or(TurnVerdict::Vanished, |message| TurnVerdict::Unreadable { message })
    }
}

/// The verdict that stands, once no other turn has begun in time.
async fn expired(next_turn: Option<&(TurnVerdict, Instant)>) -> TurnVerdict {
    let Some((verdict, until)) = next_turn else { return std::future::pending().await };
    tokio::time::sleep_until(*until).await;
    verdict.clone()
}

/// Current content of a file inside the run's folder.
async fn present(files: io::Result<ConfinedFolder>, path: String) -> FileBefore {
    let read = tokio::task::spawn_blocking(move || files?.read(Path::new(&path)));
    match read.await {
        Ok(Ok(text)) => FileBefore::Text(text),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => FileBefore::Absent,
        Ok(Err(_)) | Err(_) => FileBefore::Unknown,
    }
}

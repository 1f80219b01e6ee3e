//! One run's talk with Codex: from the greeting to the end of its turn.
//!
//! Everything comes in over one pipe and is taken in its order. Nothing here waits for a person: their answers come in
//! beside Codex's messages.

use std::{collections::HashMap, path::Path, time::Duration};

use attache_protocol::{Json, Timestamp};
use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    approval::{Asked, Manner, Steps},
    ending::{self, Heard as Said},
    item::{Moment, tool_call},
    message::{
        AccountRead, ApprovalPolicy, Delta, ErrorEvent, Initialize, Initialized, Input, Interrupt, Item, ItemEvent,
        OpenThread, Opened, RateLimits, RawEvent, ServerStatus, StartTurn, Started, SteerTurn, Tokens, TurnEnd,
        TurnEvent, UsageEvent,
    },
    settings,
};
use crate::{
    Limit,
    attachment::Attachment,
    host::{
        Answer, Answered, Lines, Process, Speaker, Turn, Verdict,
        lines::Line,
        outage,
        rpc::{self, Heard, Rpc, excerpt, understood},
        turn::ToolStatus,
    },
};

#[derive(Debug)]
pub(super) struct Conversation<'a> {
    lines: Lines,
    rpc: Rpc,
    turn: Turn,
    cwd: &'a Path,
    limits: &'a [Limit],
    steps: Steps,
    /// What people are asked now.
    questions: FuturesUnordered<BoxFuture<'static, Answered<(Json, Manner)>>>,
    thread: Option<String>,
    /// Codex's name for the turn that it works on.
    at_work: Option<String>,
    ended: Option<TurnEnd>,
    /// The message that is being streamed.
    streamed: Option<String>,
    said: Said,
    /// Why commands cannot run, as long as none did.
    trouble: Option<String>,
    /// When its account may be used again.
    resets_at: Option<Timestamp>,
    /// What each thread has used: Codex may start helpers with threads of their own.
    threads: HashMap<String, Tokens>,
    /// What this thread had used before this run.
    before: Tokens,
    is_halting: bool,
}

/// What a thread is opened with. Its configuration holds a secret, and so it has no way to be printed.
pub(super) struct Opening<'a> {
    pub(super) cwd: &'a str,
    pub(super) instructions: Option<String>,
    pub(super) config: Json,
    pub(super) keeping: Keeping<'a>,
}

/// What Codex writes down about a thread.
#[derive(Debug, Clone, Copy)]
pub(super) enum Keeping<'a> {
    Nothing,
    /// It goes on with this thread, or begins one.
    Thread(Option<&'a str>),
}

/// How long Codex may take to start. It needs a second, and more on a busy machine.
const START: Duration = Duration::from_secs(60);

/// How long a turn may take to end after it was interrupted.
const FAREWELL: Duration = Duration::from_millis(700);

// === impl Conversation ===

impl<'a> Conversation<'a> {
    pub(super) fn with(process: &mut Process, turn: Turn, cwd: &'a Path, limits: &'a [Limit]) -> Self {
        Self {
            lines: Lines::of(process.stdout()),
            rpc: Rpc::new(Speaker::to(process.stdin())),
            turn,
            cwd,
            limits,
            steps: Steps::default(),
            questions: FuturesUnordered::new(),
            thread: None,
            at_work: None,
            ended: None,
            streamed: None,
            said: Said::Nothing,
            trouble: None,
            resets_at: None,
            threads: HashMap::new(),
            before: Tokens::default(),
            is_halting: false,
        }
    }

    pub(super) fn log(&self, level: &str, message: impl Into<String>) {
        self.turn.log(level, message);
    }

    /// The greeting; it tells where Codex keeps its things.
    pub(super) async fn greet(&mut self) -> Result<Option<String>, Verdict> {
        let home: Initialized = self.request("initialize", &Initialize::ours()).await?;
        self.rpc.tell("initialized", &Json::empty_object()).await;
        let number = self.rpc.ask("account/read", &Json::empty_object()).await;
        // One that does not know the question may still be logged in.
        let account = self.answer_to(number).await?.ok().and_then(|answer| answer.parse::<AccountRead>().ok());
        match account {
            Some(AccountRead { account: None, requires_openai_auth: true }) => Err(ending::not_logged_in("")),
            _ => Ok(home.codex_home),
        }
    }

    /// Opens a thread, and tells its name.
    pub(super) async fn open(&mut self, opening: &Opening<'_>) -> Result<String, Verdict> {
        let is_confined = settings::is_confined(self.limits);
        let mut open = OpenThread {
            thread_id: None,
            cwd: opening.cwd,
            approval_policy: if is_confined {
                ApprovalPolicy::WITHIN_LIMITS
            } else {
                ApprovalPolicy::Asking("untrusted")
            },
            approvals_reviewer: "user",
            sandbox: (!is_confined).then_some("workspace-write"),
            developer_instructions: opening.instructions.as_deref(),
            config: &opening.config,
            ephemeral: None,
            experimental_raw_events: None,
        };
        if let Keeping::Thread(Some(earlier)) = opening.keeping {
            open.thread_id = Some(earlier);
            let number = self.rpc.ask("thread/resume", &open).await;
            match self.in_time(number).await? {
                Ok(opened) => return self.opened(understood(&opened)?),
                Err(error) => self.log("info", format!("Codex has forgotten this conversation: {}", error.text())),
            }
        }
        open.thread_id = None;
        open.ephemeral = matches!(opening.keeping, Keeping::Nothing).then_some(true);
        open.experimental_raw_events = Some(true);
        let opened = self.request("thread/start", &open).await?;
        self.opened(opened)
    }

    fn opened(&mut self, opened: Opened) -> Result<String, Verdict> {
        let profile = opened.active_permission_profile.map(|profile| profile.id);
        if settings::is_confined(self.limits) && profile.as_deref() != Some(settings::PROFILE) {
            let message = "it did not take the limits of the run, so nothing was done".to_owned();
            return Err(Verdict::Refused { message });
        }
        self.thread = Some(opened.thread.id.clone());
        Ok(opened.thread.id)
    }

    /// Has Codex do the task.
    pub(super) async fn work(&mut self, thread: &str, task: &str, images: &[Attachment]) -> Result<Verdict, Verdict> {
        self.turn.working();
        let images = images.iter().filter_map(|image| {
            Some(Input::Image { url: format!("data:{};base64,{}", image.kind(), image.base64()?) })
        });
        let input = [Input::Text { text: task }].into_iter().chain(images).collect();
        let number = self.rpc.ask("turn/start", &StartTurn { thread_id: thread, input }).await;
        match self.answer_to(number).await? {
            Ok(started) => self.at_work = Some(understood::<Started>(&started)?.turn.id),
            Err(error) => return Err(failure(&error)),
        }
        while self.ended.is_none() {
            self.step().await?;
        }
        self.at_work = None;
        let said = if self.turn.was_denied() { Said::Something } else { self.said };
        let verdict = self.ended.as_ref().map_or(Verdict::Vanished, |ended| ending::verdict(ended, said));
        Ok(match (verdict, self.trouble.take()) {
            (Verdict::Done { .. }, Some(trouble)) => ending::without_sandbox(&trouble),
            (Verdict::UsageLimit { message, .. }, _) => Verdict::UsageLimit { message, resets_at: self.resets_at },
            (verdict, _) => verdict,
        })
    }

    async fn request<T: DeserializeOwned>(&mut self, method: &str, params: &impl Serialize) -> Result<T, Verdict> {
        let number = self.rpc.ask(method, params).await;
        understood(&self.in_time(number).await?.map_err(|error| failure(&error))?)
    }

    async fn in_time(&mut self, number: u64) -> Result<Result<Json, rpc::Error>, Verdict> {
        let late = || Verdict::Failed { message: format!("it did not start within {} seconds", START.as_secs()) };
        tokio::time::timeout(START, self.answer_to(number)).await.unwrap_or_else(|_| Err(late()))
    }

    /// Hears Codex out until it answers this.
    async fn answer_to(&mut self, wanted: u64) -> Result<Result<Json, rpc::Error>, Verdict> {
        loop {
            if let Some((_, result)) = self.step().await?.filter(|(id, _)| *id == wanted) {
                return Ok(result);
            }
        }
    }

    /// Takes what comes next: an answer of people, or a message of Codex. Its answers are handed on.
    async fn step(&mut self) -> Result<Option<(u64, Result<Json, rpc::Error>)>, Verdict> {
        tokio::select! {
            biased;
            Some(answered) = self.questions.next() => {
                self.pass_on(answered).await;
                Ok(None)
            }
            line = self.lines.next() => match read(line)? {
                Heard::Answered { id, result } => Ok(Some((id, result))),
                Heard::Asked { id, method, params } => {
                    self.asked(id, &method, &params).await;
                    Ok(None)
                }
                Heard::Told { method, params } => self.told(&method, &params).map(|()| None),
            },
        }
    }

    /// What cannot be read is not for us: a newer Codex tells more.
    fn told(&mut self, method: &str, params: &Json) -> Result<(), Verdict> {
        match method {
            "item/agentMessage/delta" => self.say(params),
            "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta" => {
                if let Ok(Delta { thread_id, delta, .. }) = params.parse()
                    && self.is_own(&thread_id)
                {
                    self.turn.think(&delta);
                }
            }
            "item/started" => self.item(params, Moment::Started),
            "item/completed" => self.item(params, Moment::Completed),
            "rawResponseItem/completed" => {
                if let Ok(RawEvent { item }) = params.parse() {
                    self.steps.note_raw(item);
                }
            }
            "thread/tokenUsage/updated" => return self.used(params),
            "error" => {
                if let Ok(ErrorEvent { error, will_retry: true }) = params.parse() {
                    let why = error.additional_details.unwrap_or_else(|| error.message.clone());
                    let (attempt, most) = ending::attempt(&error.message).unzip();
                    self.turn.retry(attempt.unwrap_or(1), most, &why);
                }
            }
            "account/rateLimits/updated" => {
                if let Ok(RateLimits { rate_limits }) = params.parse() {
                    if let Some(warning) = rate_limits.warning() {
                        self.turn.note(warning);
                    }
                    self.resets_at = rate_limits.resets_at().or(self.resets_at);
                }
            }
            "mcpServer/startupStatus/updated" => {
                if let Ok(ServerStatus { name, status, error: Some(error) }) = params.parse()
                    && status == "failed"
                {
                    self.log("warning", format!("the tools of `{name}` are not there: {error}"));
                }
            }
            "turn/completed" => {
                // Left alone it would wait for the next turn, and nobody would hear of this one's end.
                let TurnEvent { thread_id, turn } = understood(params)?;
                if self.is_own(&thread_id) {
                    self.ended = Some(turn);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn is_own(&self, thread: &str) -> bool {
        self.thread.as_deref() == Some(thread)
    }

    fn say(&mut self, params: &Json) {
        let Ok(Delta { thread_id, item_id, delta }) = params.parse() else { return };
        if !self.is_own(&thread_id) {
            return;
        }
        if self.streamed.as_ref() != Some(&item_id) {
            self.turn.next_message();
            self.streamed = Some(item_id);
        }
        self.said = Said::Something;
        self.turn.say(&delta);
    }

    fn item(&mut self, params: &Json, moment: Moment) {
        let Ok(ItemEvent { thread_id, item }) = params.parse() else { return };
        self.steps.note(&item);
        if let Some(call) = tool_call(&item, moment) {
            self.said = Said::Something;
            match ending::sandbox_trouble(&item) {
                Some(trouble) => self.trouble = Some(trouble.to_owned()),
                None if call.status == ToolStatus::Completed => self.trouble = None,
                None => {}
            }
            self.turn.tool(call);
        }
        if let (Moment::Completed, Item { id, text: Some(text), .. }) = (moment, &item)
            && item.kind == "agentMessage"
            && self.is_own(&thread_id)
            && self.streamed.as_ref() != Some(id)
        {
            self.said = Said::Something;
            self.turn.next_message();
            self.turn.say(text);
        }
    }

    fn used(&mut self, params: &Json) -> Result<(), Verdict> {
        let Ok(used) = params.parse::<UsageEvent>() else { return Ok(()) };
        if self.at_work.is_none() {
            // Told when an earlier thread is taken up.
            self.before = used.total();
            return Ok(());
        }
        let total = used.total();
        self.threads.insert(used.thread_id, total);
        let spent = self.turn.used(Tokens::used(self.threads.values().copied(), self.before));
        if spent && !self.is_halting {
            return Err(Verdict::OverBudget { message: self.turn.exceeded().unwrap_or_default() });
        }
        Ok(())
    }

    async fn asked(&mut self, id: Json, method: &str, params: &Json) {
        let Some(asked) = self.steps.asked(method, params, self.cwd, self.limits) else {
            self.log("info", format!("Codex asked for `{method}`, which is not offered here"));
            return self.rpc.refuse(&id, &rpc::Error::unknown(method)).await;
        };
        let Asked { question, manner, forbidden } = asked;
        if let Some(why) = forbidden {
            let step = question.step();
            self.log("warning", format!("not allowed: {step}: {why}"));
            self.turn.refused_by_host(format!("{step} ({why})"));
            return self.rpc.answer(&id, &manner.reply(&Answer::Denied { comment: None })).await;
        }
        if self.is_halting {
            return self.rpc.answer(&id, &manner.reply(&Answer::Stopped)).await;
        }
        self.questions.push(self.turn.ask((id, manner), &question));
    }

    /// People have answered.
    async fn pass_on(&mut self, answered: Answered<(Json, Manner)>) {
        self.turn.answered(&answered);
        let Answered { key: (id, manner), answer, step } = answered;
        self.rpc.answer(&id, &manner.reply(&answer)).await;
        // An answer of Codex's has no place for words.
        if let (Answer::Denied { comment: Some(comment) }, Some(thread), Some(turn)) =
            (answer, self.thread.clone(), self.at_work.clone())
        {
            let text = format!("The person who was asked does not allow this ({step}). They said: {comment}");
            let input = vec![Input::Text { text: &text }];
            self.rpc.ask("turn/steer", &SteerTurn { thread_id: &thread, expected_turn_id: &turn, input }).await;
        }
    }

    /// Interrupts the turn, and waits a little for its end.
    pub(super) async fn halt(&mut self) {
        self.is_halting = true;
        // What people were asked is withdrawn with this; Codex forgets its questions with the turn.
        self.questions = FuturesUnordered::new();
        let farewell = async {
            if let (Some(thread), Some(turn)) = (self.thread.clone(), self.at_work.clone()) {
                self.rpc.ask("turn/interrupt", &Interrupt { thread_id: &thread, turn_id: &turn }).await;
                while self.ended.is_none() && self.step().await.is_ok() {}
            }
        };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
    }

    /// Closes Codex's input.
    pub(super) fn close(self) -> Turn {
        self.turn
    }
}

/// Codex writes nothing but messages to its standard output.
fn read(line: Option<Line>) -> Result<Heard, Verdict> {
    match line {
        None => Err(Verdict::Vanished),
        Some(Line::TooLong) => Err(Verdict::Unreadable { message: "a message of many megabytes".to_owned() }),
        Some(Line::Whole(line)) => {
            Heard::read(&line).ok_or_else(|| Verdict::Unreadable { message: excerpt(&line).to_owned() })
        }
    }
}

fn failure(error: &rpc::Error) -> Verdict {
    let message = error.text();
    outage::verdict(&message, message.clone())
}

//! One run's talk with an agent: from the greeting to the end of its turn.
//!
//! Everything comes in over one pipe and is taken in its order. Nothing here waits for a person: their answers come in
//! beside the agent's messages.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use attache_protocol::Json;
use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    calls::{self, Calls},
    files,
    message::{
        Agent, AskedLeave, Block, Cancel, Choice, Ended, Initialize, Leave, McpServer, OpenSession, Opened, Prompt,
        WriteFile,
    },
    update::Update,
};
use crate::{
    Job,
    attachment::{self, Attachment, Given},
    host::{
        Answer, Answered, Lines, Process, Question, Setup, Speaker, Turn, Usage, Verdict,
        budget::Source,
        limits,
        lines::Line,
        outage,
        paths::Beneath,
        prompt,
        question::diff,
        rpc::{self, Heard, Rpc, understood},
    },
};

#[derive(Debug)]
pub(super) struct Conversation {
    lines: Lines,
    rpc: Rpc,
    turn: Turn,
    files: Arc<Beneath>,
    calls: Calls,
    /// What people are asked now.
    questions: FuturesUnordered<BoxFuture<'static, Answered<Asked>>>,
    /// The agent's ids of those questions, and the files of those that are about writing one.
    open: Vec<(Json, Option<PathBuf>)>,
    /// The files whose change people saw and allowed: the agent may have each written through us once.
    allowed: Vec<PathBuf>,
    /// What the conversation had cost before this run.
    cost_before: CostBefore,
    session: Option<String>,
    /// The number of the prompt that the agent works on.
    prompt: Option<u64>,
    mood: Mood,
    noise: Noise,
}

/// What the agent is to do.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) system: Option<String>,
    pub(super) text: String,
    pub(super) attached: Vec<Attachment>,
}

/// A question, in the agent's terms.
#[derive(Debug)]
enum Asked {
    /// It asked for leave.
    Leave { id: Json, call: String, options: Vec<Choice>, changes: Vec<PathBuf> },
    /// It had us write a file that nobody was asked about.
    Write { id: Json, write: WriteFile },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    /// What the agent tells is of earlier runs.
    Before,
    Working,
    /// The agent was told to stop; nobody is asked any more.
    Halting,
}

/// An agent tells what its whole conversation has cost.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CostBefore {
    /// It begins with this run.
    Nothing,
    Known(f64),
    /// An earlier conversation goes on, and nobody said what it had cost.
    Unknown,
}

/// Lines that are no messages: banners, and what a library prints to the wrong place.
#[derive(Debug, Default)]
struct Noise {
    first: Option<String>,
    count: usize,
}

/// How long an agent may take to start and to open a session. Some need most of a minute on a slow machine.
const START: Duration = Duration::from_secs(120);

/// How long a turn may take to end after it was cancelled.
const FAREWELL: Duration = Duration::from_millis(700);

/// So many lines in a row that are no messages are no banner.
const MOST_NOISE: usize = 1000;

const AUTH_REQUIRED: i64 = -32000;

// === impl Conversation ===

impl Conversation {
    pub(super) fn with(process: &mut Process, turn: Turn, files: Beneath) -> Self {
        Self {
            lines: Lines::of(process.stdout()),
            rpc: Rpc::new(Speaker::to(process.stdin())),
            turn,
            files: Arc::new(files),
            calls: Calls::default(),
            questions: FuturesUnordered::new(),
            open: Vec::new(),
            allowed: Vec::new(),
            cost_before: CostBefore::Nothing,
            session: None,
            prompt: None,
            mood: Mood::Before,
            noise: Noise::default(),
        }
    }

    /// Has the agent do the task. May be dropped at any await; [`Self::halt`] tells the agent then.
    pub(super) async fn talk(&mut self, setup: &Setup, job: &Job, cwd: &Path, task: Task) -> Verdict {
        match self.work(setup, job, cwd, task).await {
            Ok(verdict) | Err(verdict) => verdict,
        }
    }

    async fn work(&mut self, setup: &Setup, job: &Job, cwd: &Path, task: Task) -> Result<Verdict, Verdict> {
        let (agent, session) = self.open(setup, job, cwd).await?;
        limits::still_harmless(setup, job)?;
        self.session = Some(session.clone());
        self.mood = Mood::Working;
        self.turn.working();
        let given = attachment::give(job, &task.text, task.attached, |one| agent.takes(&one.kind()));
        let Given { task: text, native, placed } = given.map_err(|reply| Verdict::of_failure(&reply))?;
        let text = prompt::whole(task.system.as_deref(), &text);
        let blocks = [Block::text(&text)].into_iter().chain(native.iter().filter_map(Block::of)).collect();
        let prompt = Prompt { session_id: &session, prompt: blocks };
        let number = self.rpc.ask("session/prompt", &prompt).await;
        self.prompt = Some(number);
        let answer = self.answer_to(number).await?;
        drop(placed);
        self.prompt = None;
        let ended: Ended = understood(&answer.map_err(|error| failure(&error, &agent))?)?;
        let spent = ended.usage().is_some_and(|usage| self.turn.used(usage));
        if spent {
            return Err(self.over_budget());
        }
        Ok(self.verdict(&ended.stop_reason))
    }

    /// Greets the agent and opens a session.
    pub(super) async fn open(&mut self, setup: &Setup, job: &Job, cwd: &Path) -> Result<(Agent, String), Verdict> {
        let agent = self.in_time(async |it: &mut Self| it.greet().await).await?;
        let session = self.in_time(async |it: &mut Self| it.open_session(&agent, setup, job, cwd).await).await?;
        Ok((agent, session))
    }

    async fn in_time<T>(&mut self, step: impl AsyncFnOnce(&mut Self) -> Result<T, Verdict>) -> Result<T, Verdict> {
        let late = || Verdict::Failed { message: format!("it did not start within {} seconds", START.as_secs()) };
        tokio::time::timeout(START, step(self)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn greet(&mut self) -> Result<Agent, Verdict> {
        let agent: Agent = self.request("initialize", &Initialize::ours(), &Agent::default()).await?;
        if agent.speaks_our_version() {
            return Ok(agent);
        }
        let version = agent.protocol_version.map_or_else(|| "none".to_owned(), |version| version.get().to_owned());
        Err(Verdict::Unreadable { message: format!("it speaks version {version} of ACP, and this adapter speaks 1") })
    }

    async fn open_session(&mut self, agent: &Agent, setup: &Setup, job: &Job, cwd: &Path) -> Result<String, Verdict> {
        let tools = job.task.mcp.as_ref();
        if tools.is_some() && !agent.takes_http_tools() {
            self.turn.log("info", "the agent takes no tools over HTTP, so it cannot put other agents to work");
        }
        let tools = tools.filter(|_| agent.takes_http_tools());
        let servers = || tools.map(McpServer::of).into_iter().collect();
        let conversation = job.task.conversation_id;
        if agent.loads_sessions()
            && let Some(earlier) = setup.memory.recall(setup, conversation)
        {
            self.cost_before = CostBefore::Unknown;
            let load = OpenSession { session_id: Some(&earlier), cwd, mcp_servers: servers() };
            let number = self.rpc.ask("session/load", &load).await;
            match self.answer_to(number).await? {
                Ok(_) => return Ok(earlier),
                Err(error) => {
                    self.turn.log("info", format!("the agent has forgotten this conversation: {}", error.text()));
                    setup.memory.forget(setup, conversation);
                    self.cost_before = CostBefore::Nothing;
                }
            }
        }
        let open = OpenSession { session_id: None, cwd, mcp_servers: servers() };
        let opened: Opened = self.request("session/new", &open, agent).await?;
        if agent.loads_sessions() {
            setup.memory.note(setup, conversation, &opened.session_id);
        }
        Ok(opened.session_id)
    }

    async fn request<T: DeserializeOwned>(
        &mut self,
        method: &str,
        params: &impl Serialize,
        agent: &Agent,
    ) -> Result<T, Verdict> {
        let number = self.rpc.ask(method, params).await;
        let answer = self.answer_to(number).await?;
        understood(&answer.map_err(|error| failure(&error, agent))?)
    }

    /// Hears the agent out until it answers this.
    async fn answer_to(&mut self, wanted: u64) -> Result<Result<Json, rpc::Error>, Verdict> {
        loop {
            tokio::select! {
                biased;
                Some(answered) = self.questions.next() => self.pass_on(answered).await,
                line = self.lines.next() => match self.read(line)? {
                    Some(Heard::Answered { id, result }) if id == wanted => return Ok(result),
                    Some(heard) => self.hear(heard).await?,
                    None => {}
                },
            }
        }
    }

    /// The message of a line; none when it has none.
    fn read(&mut self, line: Option<Line>) -> Result<Option<Heard>, Verdict> {
        let unreadable = |message: String| Err(Verdict::Unreadable { message });
        let line = match (line, self.noise.first.take()) {
            (Some(Line::Whole(line)), first) => {
                self.noise.first = first;
                line
            }
            (Some(Line::TooLong), _) => return unreadable("a message of many megabytes".to_owned()),
            // Before its first message an agent that cannot start may print why.
            (None, Some(first)) if self.mood != Mood::Before => return unreadable(first),
            (None, _) => return Err(Verdict::Vanished),
        };
        if let Some(heard) = Heard::read(&line) {
            self.noise = Noise::default();
            return Ok(Some(heard));
        }
        self.turn.log("debug", line.clone());
        self.noise.count += 1;
        if self.noise.count > MOST_NOISE {
            return unreadable(self.noise.first.take().unwrap_or(line));
        }
        self.noise.first.get_or_insert(line);
        Ok(None)
    }

    async fn hear(&mut self, heard: Heard) -> Result<(), Verdict> {
        match heard {
            Heard::Told { method, params } if method == "session/update" => match Update::read(&params) {
                update if self.mood != Mood::Before => self.update(update),
                Update::Used(Usage { cost_usd: Some(cost), .. }) => {
                    self.cost_before = CostBefore::Known(cost);
                    Ok(())
                }
                _ => Ok(()),
            },
            Heard::Asked { id, method, params } if method == "session/request_permission" => {
                self.asked(id, &params).await;
                Ok(())
            }
            Heard::Asked { id, method, params } if method == files::WRITE => {
                match params.parse() {
                    Ok(write) => self.write(id, write).await,
                    Err(error) => self.rpc.refuse(&id, &rpc::Error::bad_params(error)).await,
                }
                Ok(())
            }
            Heard::Asked { id, method, params } => {
                match files::serve(&self.files, &method, &params).await {
                    Some(Ok(result)) => self.rpc.answer(&id, &result).await,
                    Some(Err(error)) => {
                        self.turn.log("info", format!("`{method}` was refused: {}", error.text()));
                        self.rpc.refuse(&id, &error).await;
                    }
                    None => self.rpc.refuse(&id, &rpc::Error::unknown(&method)).await,
                }
                Ok(())
            }
            Heard::Told { .. } | Heard::Answered { .. } => Ok(()),
        }
    }

    fn update(&mut self, update: Update) -> Result<(), Verdict> {
        match update {
            Update::Said(text) => self.turn.say(&text),
            Update::Thought(text) => self.turn.think(&text),
            Update::Call(call) => {
                if let Some(call) = self.calls.take(*call) {
                    self.turn.tool(call);
                }
            }
            Update::Plan(plan) => self.turn.note(plan),
            Update::Used(usage) => {
                let usage = self.cost_before.taken_off(usage);
                if self.turn.used(usage) && self.mood == Mood::Working {
                    return Err(self.over_budget());
                }
            }
            Update::Other => {}
        }
        Ok(())
    }

    fn over_budget(&self) -> Verdict {
        Verdict::OverBudget { message: self.turn.exceeded().unwrap_or_default() }
    }

    async fn asked(&mut self, id: Json, params: &Json) {
        if self.mood == Mood::Halting {
            return self.rpc.answer(&id, &Leave::cancelled()).await;
        }
        let asked: AskedLeave = match params.parse() {
            Ok(asked) => asked,
            Err(error) => return self.rpc.refuse(&id, &rpc::Error::bad_params(error)).await,
        };
        let (question, changes) = self.calls.question(&asked);
        let (call, options) = (asked.tool_call.tool_call_id, asked.options);
        let key = Asked::Leave { id: id.clone(), call, options, changes };
        self.open.push((id, None));
        self.questions.push(self.turn.ask(key, &question));
    }

    /// Writes a file for the agent. What nobody was asked about yet is asked about now, whatever was declared.
    async fn write(&mut self, id: Json, write: WriteFile) {
        if let Some(at) = self.allowed.iter().position(|path| *path == write.path) {
            self.allowed.swap_remove(at);
            return self.write_now(&id, write).await;
        }
        // What may not be written at all is refused with the reason.
        let Some(before) = files::before(self.files.clone(), write.path.clone()).await else {
            return self.write_now(&id, write).await;
        };
        if self.mood != Mood::Working {
            return self.rpc.refuse(&id, &files::not_allowed(&write.path)).await;
        }
        let path = write.path.display().to_string();
        let question = Question {
            input: Some(Json::of(&write)),
            paths: Some(vec![path.clone()]),
            diff: Some(diff(&path, &before, &write.content)),
            ..Question::about("write_text_file")
        };
        self.open.push((id.clone(), Some(write.path.clone())));
        self.questions.push(self.turn.ask(Asked::Write { id, write }, &question));
    }

    async fn write_now(&mut self, id: &Json, write: WriteFile) {
        match files::write(self.files.clone(), write).await {
            Ok(result) => self.rpc.answer(id, &result).await,
            Err(error) => {
                self.turn.log("info", format!("`{}` was refused: {}", files::WRITE, error.text()));
                self.rpc.refuse(id, &error).await;
            }
        }
    }

    /// People have answered: in the agent's own terms, and only for this once.
    async fn pass_on(&mut self, answered: Answered<Asked>) {
        self.turn.answered(&answered);
        let Answered { key, answer, .. } = answered;
        match key {
            Asked::Leave { id, call, options, changes } => {
                match answer {
                    Answer::Denied { .. } => self.calls.denied(&call),
                    Answer::Allowed => self.allowed.extend(changes),
                    Answer::Stopped => {}
                }
                let (leave, remark) = calls::choose(&options, &answer);
                if let Some(remark) = remark {
                    self.turn.log("warning", remark);
                }
                self.open.retain(|(open, _)| *open != id);
                self.rpc.answer(&id, &leave).await;
            }
            Asked::Write { id, write } => {
                self.open.retain(|(open, _)| *open != id);
                match answer {
                    Answer::Allowed => self.write_now(&id, write).await,
                    Answer::Denied { .. } | Answer::Stopped => {
                        self.rpc.refuse(&id, &files::not_allowed(&write.path)).await;
                    }
                }
            }
        }
    }

    /// Tells the agent to stop, and waits a little for the end of its turn.
    pub(super) async fn halt(&mut self) {
        self.mood = Mood::Halting;
        // What people were asked is withdrawn with this.
        self.questions = FuturesUnordered::new();
        let farewell = async {
            for (id, write) in std::mem::take(&mut self.open) {
                match write {
                    None => self.rpc.answer(&id, &Leave::cancelled()).await,
                    Some(path) => self.rpc.refuse(&id, &files::not_allowed(&path)).await,
                }
            }
            if let (Some(session), Some(number)) = (self.session.clone(), self.prompt) {
                self.rpc.tell("session/cancel", &Cancel { session_id: &session }).await;
                let _ = self.answer_to(number).await;
            }
        };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
    }

    /// Closes the agent's input.
    pub(super) fn close(self) -> Turn {
        self.turn
    }

    fn verdict(&self, reason: &str) -> Verdict {
        let failed = |message: &str| Verdict::Failed { message: message.to_owned() };
        match reason {
            "end_turn" => Verdict::Done { text: None },
            "refusal" => Verdict::Refused { message: String::new() },
            "max_tokens" => failed("the model's answer was cut off at its longest length; ask for less at once"),
            "max_turn_requests" => failed("it asked its model as often as it may in one turn; ask for less at once"),
            // Some agents end the turn themselves when people say no.
            "cancelled" if self.turn.was_denied() => Verdict::Done { text: None },
            "cancelled" => failed("it cancelled its turn, though nobody asked it to"),
            other => Verdict::Unreadable { message: format!("its turn ended with `{other}`") },
        }
    }
}

// === impl CostBefore ===

impl CostBefore {
    /// What of it is this run's own.
    fn taken_off(self, usage: Usage) -> Usage {
        let cost_usd = match self {
            Self::Nothing => usage.cost_usd,
            // To the billionth, so that the difference is as round as the two were.
            Self::Known(before) => usage.cost_usd.map(|cost| ((cost - before).max(0.0) * 1e9).round() / 1e9),
            Self::Unknown => None,
        };
        let cost_source = if cost_usd.is_some() { usage.cost_source } else { Source::Unknown };
        Usage { cost_usd, cost_source, ..usage }
    }
}

fn failure(error: &rpc::Error, agent: &Agent) -> Verdict {
    let text = error.text();
    if error.code == AUTH_REQUIRED {
        let ways = match agent.logins().as_slice() {
            [] => String::new(),
            ways => format!(" It offers: {}.", ways.join("; ")),
        };
        let message = format!("{text}. Start it by hand on this device, log in, and send the task again.{ways}");
        return Verdict::SignIn { message };
    }
    // Some agents hand on the status with which their model answered.
    match error.code {
        429 | 402 => Verdict::UsageLimit { message: text, resets_at: None },
        401 | 403 => Verdict::SignIn { message: text },
        500..=599 => Verdict::ModelUnreachable { message: text },
        _ => outage::verdict(&text, text.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_runs_of_a_conversation_are_not_paid_for_again() {
        let total = Usage { tokens: Some(9), ..Usage::default() }.with_cost(3.0);
        let own = Usage { tokens: Some(9), ..Usage::default() }.with_cost(0.5);
        assert_eq!(CostBefore::Known(2.5).taken_off(total), own);
        assert_eq!(CostBefore::Nothing.taken_off(total), total);
        assert_eq!(CostBefore::Unknown.taken_off(total), Usage { tokens: Some(9), ..Usage::default() });
    }

    #[test]
    fn a_failure_says_what_to_do() {
        let agent: Agent =
            Json::from_text(r#"{"authMethods":[{"id":"l","name":"Log in with a browser"}]}"#).unwrap().parse().unwrap();
        let expected = "Authentication required. Start it by hand on this device, log in, and send the task again. It offers: \
                        Log in with a browser.";
        assert_eq!(
            failure(&rpc::Error::new(AUTH_REQUIRED, "Authentication required"), &agent),
            Verdict::SignIn { message: expected.to_owned() }
        );
        let away = rpc::Error { data: Some(Json::of("fetch failed")), ..rpc::Error::new(-32603, "Internal error") };
        let expected = Verdict::ModelUnreachable { message: "Internal error (fetch failed)".to_owned() };
        assert_eq!(failure(&away, &agent), expected);
        let other = rpc::Error::new(-32603, "Internal error");
        assert_eq!(failure(&other, &agent), Verdict::Failed { message: "Internal error".to_owned() });
    }
}

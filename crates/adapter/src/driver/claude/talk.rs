//! The conversation with one process of Claude Code, from the first line to the end of its turn.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use attache_protocol::{Json, Timestamp};
use futures_util::{
    StreamExt as _,
    future::{AbortHandle, Abortable, BoxFuture},
    stream::FuturesUnordered,
};

use super::{
    ending::{Ending, SIGN_IN},
    message::{self, Ask, Assistant, Block, Init, Message, Piece, RateLimit, Retry, Tally, ToolResult},
    permission::{self, Behavior, Present},
    request::Line,
};
use crate::{
    Job,
    attachment::Attachment,
    host::{
        Answered, Lines, Speaker, TOOLS, Turn, Usage, Verdict,
        lines::Line as Heard,
        paths::Beneath,
        turn::{ToolCall, ToolStatus},
    },
};

pub(super) struct Talk<'a> {
    turn: &'a mut Turn,
    job: &'a Job,
    speaker: Speaker,
    lines: Lines,
    questions: FuturesUnordered<Abortable<BoxFuture<'static, Answered<String>>>>,
    /// What is asked about, by the program's name for the question, until it is answered.
    open: BTreeMap<String, (Json, AbortHandle)>,
    /// The uses of tools that people were asked about.
    asked: BTreeSet<String>,
    tally: Tally,
    /// Whether the text or thought that comes whole next was heard in pieces already.
    has_said: bool,
    has_thought: bool,
    /// Names of the tools in use.
    in_use: BTreeMap<String, String>,
    completed: u64,
    /// How much was completed when a use of a tool failed.
    failed_after: BTreeMap<String, u64>,
    /// When its account may be used again.
    resets_at: Option<Timestamp>,
    unreadable: Option<String>,
    session: String,
    has_forgotten: bool,
}

/// Why the talk is over.
enum End {
    /// The program said so, or is gone.
    Heard(Verdict),
    /// We have had enough.
    Ours(Verdict),
}

/// How long the program gets to answer an interrupt.
const INTERRUPTED: Duration = Duration::from_millis(700);

/// After so many attempts the model has not just renewed a key.
const CLOSED_DOORS: u64 = 3;

// === impl Talk ===

impl<'a> Talk<'a> {
    pub(super) fn begin(turn: &'a mut Turn, job: &'a Job, speaker: Speaker, lines: Lines) -> Self {
        Self {
            turn,
            job,
            speaker,
            lines,
            questions: FuturesUnordered::new(),
            open: BTreeMap::new(),
            asked: BTreeSet::new(),
            tally: Tally::default(),
            has_said: false,
            has_thought: false,
            in_use: BTreeMap::new(),
            completed: 0,
            failed_after: BTreeMap::new(),
            resets_at: None,
            unreadable: None,
            session: String::new(),
            has_forgotten: false,
        }
    }

    pub(super) async fn hold(&mut self, system: Option<&str>, task: &str, attached: &[Attachment]) -> Verdict {
        self.speaker.say(&Line::initialize(system)).await;
        self.speaker.say(&Line::task(task, attached)).await;
        loop {
            let end = tokio::select! {
                biased;
                () = self.job.stop.cancelled() => Some(End::Ours(Verdict::Stopped)),
                Some(answered) = self.questions.next() => {
                    if let Ok(answered) = answered {
                        self.answer(&answered).await;
                    }
                    None
                }
                line = self.lines.next() => match line {
                    Some(line) => self.hear(line).await,
                    None => Some(End::Heard(self.broken_off())),
                },
            };
            match end {
                None => {}
                Some(End::Heard(verdict)) => return verdict,
                Some(End::Ours(verdict)) => {
                    self.interrupt().await;
                    return verdict;
                }
            }
        }
    }

    /// Only the first line, and the answer to it.
    pub(super) async fn greet(&mut self) -> Verdict {
        self.speaker.say(&Line::initialize(None)).await;
        loop {
            match self.lines.next().await {
                None => return self.broken_off(),
                Some(Heard::TooLong) => {}
                Some(Heard::Whole(line)) => match message::read(&line) {
                    Ok(Message::Answer { error: None }) => return Verdict::Done { text: None },
                    Ok(Message::Answer { error: Some(message) }) => return Verdict::Failed { message },
                    Ok(Message::Ended(ending)) => return ending.verdict(),
                    Ok(_) | Err(_) => {}
                },
            }
        }
    }

    /// Its name for the conversation, whether that was lost, and what it may still say. Its input closes here.
    pub(super) fn over(self) -> (String, bool, Lines) {
        (self.session, self.has_forgotten, self.lines)
    }

    /// It is told to stop, and its last words are heard for what the run has used.
    async fn interrupt(&mut self) {
        let last_words = async {
            self.speaker.say(&Line::interrupt()).await;
            while let Some(line) = self.lines.next().await {
                if let Heard::Whole(line) = line
                    && let Ok(Message::Ended(ending)) = message::read(&line)
                {
                    return Some(ending);
                }
            }
            None
        };
        if let Ok(Some(ending)) = tokio::time::timeout(INTERRUPTED, last_words).await {
            self.session.clone_from(&ending.session_id);
            let _over_or_not = self.turn.used(ending.usage());
        }
    }

    async fn hear(&mut self, line: Heard) -> Option<End> {
        let message = match &line {
            Heard::Whole(line) => message::read(line).map_err(|error| {
                let start = &line[..line.floor_char_boundary(200)];
                format!("`{start}` ({error})")
            }),
            Heard::TooLong => Err("a line that is too long".to_owned()),
        };
        match message {
            Err(message) if matches!(&line, Heard::Whole(line) if message::is_end(line)) => {
                return Some(End::Heard(Verdict::Unreadable { message }));
            }
            Err(what) => {
                self.turn.log("warning", format!("a line was passed over that cannot be read: {what}"));
                self.unreadable.get_or_insert(what);
            }
            Ok(Message::Init(init)) => self.begun(init),
            Ok(Message::Retry(retry)) => return self.retried(&retry),
            Ok(Message::Limit(limit)) => self.limited(&limit),
            Ok(Message::Piece { within, piece }) => return self.piece(within, piece),
            Ok(Message::Assistant(assistant)) => return self.said(assistant),
            Ok(Message::Results(results)) => results.into_iter().for_each(|result| self.tool_ended(result)),
            Ok(Message::Ask { id, ask }) => self.ask(id, ask).await,
            Ok(Message::Unknown { id }) => self.speaker.say(&Line::not_known(&id)).await,
            Ok(Message::Withdrawn { id }) => {
                if let Some((_, question)) = self.open.remove(&id) {
                    question.abort();
                }
            }
            Ok(Message::Answer { error: Some(message) }) => return Some(End::Ours(Verdict::Failed { message })),
            Ok(Message::Ended(ending)) => return Some(End::Heard(self.ended(&ending))),
            Ok(Message::Answer { error: None } | Message::Other) => {}
        }
        None
    }

    fn begun(&mut self, init: Init) {
        self.session = init.session_id;
        self.turn.working();
        for server in init.mcp_servers.iter().filter(|server| server.name == TOOLS && server.status == "failed") {
            let name = &server.name;
            self.turn.log("warning", format!("the tools of `{name}` cannot be reached: the run goes on without them"));
        }
        if init.tools.is_empty() {
            self.turn.log("info", "no tools are left for this run");
        }
    }

    fn retried(&mut self, retry: &Retry) -> Option<End> {
        let why = match (retry.error_status, retry.error.as_str()) {
            (Some(status), "" | "unknown") => format!("HTTP {status}"),
            (Some(status), error) => format!("HTTP {status}, {error}"),
            (None, _) => "no answer".to_owned(),
        };
        self.turn.retry(retry.attempt, retry.max_retries, &why);
        // It would go on for minutes, in vain.
        let shut_out = matches!(retry.error_status, Some(401 | 403)) && retry.attempt >= CLOSED_DOORS;
        shut_out.then(|| End::Ours(Verdict::SignIn { message: format!("{SIGN_IN} ({why})") }))
    }

    fn limited(&mut self, limit: &RateLimit) {
        if let Some(warning) = limit.warning() {
            self.turn.note(warning);
        }
        if limit.status == "rejected" {
            self.resets_at = limit.resets_at().or(self.resets_at);
        }
    }

    fn piece(&mut self, within: Option<String>, piece: Piece) -> Option<End> {
        match piece {
            Piece::Begins { id, usage } => {
                self.tally.begins(within, id, usage);
                return self.counted();
            }
            Piece::Used(usage) => {
                self.tally.goes_on(&within, usage);
                return self.counted();
            }
            // What other agents say on the way is not the answer.
            _ if within.is_some() => {}
            Piece::Text => self.turn.next_message(),
            Piece::Said(text) => {
                self.has_said = true;
                self.turn.say(&text);
            }
            Piece::Thought(thought) => {
                self.has_thought = true;
                self.turn.think(&thought);
            }
            Piece::Other => {}
        }
        None
    }

    fn said(&mut self, assistant: Assistant) -> Option<End> {
        let is_answer = assistant.within.is_none() && !assistant.is_error;
        for block in assistant.blocks {
            match block {
                Block::Text(text) if is_answer && !std::mem::take(&mut self.has_said) => {
                    self.turn.next_message();
                    self.turn.say(&text);
                }
                Block::Thought(thought) if is_answer && !std::mem::take(&mut self.has_thought) => {
                    self.turn.think(&thought);
                }
                Block::Tool { id, name, input } => self.tool_begun(id, name, input),
                Block::Text(_) | Block::Thought(_) | Block::Other => {}
            }
        }
        self.tally.count(&assistant.id, assistant.usage);
        self.counted()
    }

    fn counted(&mut self) -> Option<End> {
        let (input, output) = self.tally.total();
        let usage = Usage::of_tokens(input, output);
        if !self.turn.used(usage) {
            return None;
        }
        let message = self.turn.budget().exceeded_by(&usage).unwrap_or_default();
        Some(End::Ours(Verdict::OverBudget { message }))
    }

    fn tool_begun(&mut self, id: String, name: String, input: Json) {
        self.in_use.insert(id.clone(), name.clone());
        let title = permission::title(&name, &input);
        self.turn.tool(ToolCall { id, name, status: ToolStatus::Started, title, input: Some(input), output: None });
    }

    fn tool_ended(&mut self, result: ToolResult) {
        let Some(name) = self.in_use.remove(&result.id) else { return };
        let status = if result.failed { ToolStatus::Failed } else { ToolStatus::Completed };
        if result.failed {
            self.failed_after.insert(result.id.clone(), self.completed);
        } else {
            self.completed += 1;
        }
        let output = Some(result.text);
        self.turn.tool(ToolCall { id: result.id, name, status, title: None, input: None, output });
    }

    async fn ask(&mut self, id: String, ask: Ask) {
        let present = match permission::changes(&ask) {
            Some(path) => present(&self.job.cwd, path).await,
            None => Present::Unknown,
        };
        let question = self.turn.ask(id.clone(), &permission::question(&ask, &present));
        let (handle, registration) = AbortHandle::new_pair();
        self.questions.push(Abortable::new(question, registration));
        self.open.insert(id, (ask.input, handle));
        self.asked.insert(ask.tool_use_id);
    }

    async fn answer(&mut self, answered: &Answered<String>) {
        let Some((input, _)) = self.open.remove(&answered.key) else { return };
        self.turn.answered(answered);
        if let Some(behavior) = Behavior::of(&answered.answer, &input) {
            self.speaker.say(&Line::answer(&answered.key, behavior)).await;
        }
    }

    fn ended(&mut self, ending: &Ending) -> Verdict {
        self.session.clone_from(&ending.session_id);
        self.has_forgotten = ending.has_forgotten();
        let _over_or_not = self.turn.used(ending.usage());
        for denial in &ending.permission_denials {
            // What it refused by its own rules counts like a no of people, unless it got on afterwards.
            let got_on = self.failed_after.get(&denial.tool_use_id).is_some_and(|before| self.completed > *before);
            if !got_on && !self.asked.contains(&denial.tool_use_id) {
                let step = denial.tool_input.as_ref().and_then(|input| permission::title(&denial.tool_name, input));
                self.turn.refused_by_host(step.unwrap_or_else(|| denial.tool_name.clone()));
            }
        }
        match ending.verdict() {
            Verdict::UsageLimit { message, .. } => Verdict::UsageLimit { message, resets_at: self.resets_at },
            verdict => verdict,
        }
    }

    fn broken_off(&mut self) -> Verdict {
        self.unreadable.take().map_or(Verdict::Vanished, |message| Verdict::Unreadable { message })
    }
}

/// What a file below the run's folder holds now.
async fn present(folder: &Path, path: String) -> Present {
    let folder = folder.to_owned();
    let read = tokio::task::spawn_blocking(move || Beneath::open(&folder)?.read(Path::new(&path)));
    match read.await {
        Ok(Ok(text)) => Present::Text(text),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => Present::Absent,
        Ok(Err(_)) | Err(_) => Present::Unknown,
    }
}

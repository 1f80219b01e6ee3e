//! Following a run to its end on a terminal or in a script: the answer on standard output, everything else beside it.

use std::{
    collections::HashSet,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use attache_client::HubClient;
use attache_protocol::{
    EventKind, Json, RunId, RuntimeId, WorkerRequestId,
    error::exit,
    rules::{permission::PermissionState, run::RunStatus},
    wire::{
        event::{ArtifactChange, Event},
        input_request::GiveInputRequest,
        output::OutputLocation,
        run::Run,
    },
};
use serde::Deserialize;
use tokio::time::{Instant, MissedTickBehavior};

use crate::{
    CommandContext, CommandFailure,
    context::HubArgs,
    device_silence::{CHECK_INTERVAL, DeviceSilence},
    output::{TextStyle, clean, time},
    process::TerminationSignals,
    queue_reason,
    run_questions::{self, RunQuestions, TerminalMessage, TerminalQuestion, TypedDecision},
    storage_watch,
    streamed_answer::StreamedAnswer,
    tool_calls::ShownToolCalls,
};

/// What is shown of a run's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowOutput {
    /// The answer on standard output, the rest as talk. A terminal sees it as it comes; whatever else reads it gets it
    /// once, at the end, because pieces may be lost on the way and the result is not.
    Answer,
    /// Every event as one JSON document per line.
    Events,
    /// Nothing; the caller prints the result.
    Nothing,
}

/// How following a run ended.
#[derive(Debug)]
pub(crate) enum FollowEnd {
    /// The run has ended; nothing more will happen to it.
    Run(Box<Run>),
    TimedOut,
    Interrupted,
}

pub(crate) struct RunFollower<'a> {
    context: &'a CommandContext,
    show: FollowOutput,
    waiting: StatusLine,
    /// The answer as far as it came.
    streamed: StreamedAnswer,
    /// The answer's beginning was not asked for.
    from_middle: bool,
    /// Standard output stands at the beginning of a line.
    fresh_line: bool,
    tools: ShownToolCalls,
    /// The artifacts that were told of.
    artifacts: HashSet<String>,
    questions: RunQuestions,
    /// The answer is written as it comes, whatever reads it.
    live: bool,
}

/// A line that is rewritten while nothing else happens, on terminals only.
#[derive(Debug)]
struct StatusLine {
    enabled: bool,
    shown: bool,
    since: Instant,
    what: String,
}

/// The members of events that people want to read.
#[derive(Debug, Default, Deserialize)]
struct FollowedEventData {
    text: Option<String>,
    message: Option<String>,
    percent: Option<f64>,
    level: Option<String>,
    reason: Option<String>,
}

/// That a device has it now, and which one for those who may see devices.
async fn started(hub: &HubClient, claimed: &Event) -> String {
    #[derive(Default, Deserialize)]
    struct ClaimedMembers {
        runtime_id: Option<RuntimeId>,
    }
    let runtime = match claimed.data.parse::<ClaimedMembers>().ok().and_then(|claimed| claimed.runtime_id) {
        Some(runtime) => hub.runtime(runtime).await.ok(),
        None => None,
    };
    match runtime.and_then(|runtime| runtime.device_name) {
        Some(device) => format!("Started on {device}."),
        None => "Started.".to_owned(),
    }
}

/// The hub went away and did not come back; the run is another matter.
fn hub_lost(error: attache_client::Error, run: RunId) -> CommandFailure {
    let failure = CommandFailure::from(error);
    if failure.exit != exit::UNREACHABLE {
        // Whoever reads only the first line must not start it a second time.
        let message = format!("run {run} goes on, but it cannot be followed: {}", failure.message);
        return CommandFailure { message, ..failure };
    }
    failure.hint(format!("The run is not lost: when the hub is back, go on with `attache watch {run}`."))
}

// === impl RunFollower ===

impl<'a> RunFollower<'a> {
    pub(crate) fn new(context: &'a CommandContext, show: FollowOutput) -> Self {
        let waiting = StatusLine {
            enabled: context.output.talk_in_color() && show == FollowOutput::Answer,
            shown: false,
            since: Instant::now(),
            what: "waiting".to_owned(),
        };
        let (gathered, tools, waits) = (StreamedAnswer::default(), ShownToolCalls::default(), RunQuestions::new());
        let live = context.output.terminal;
        let artifacts = HashSet::new();
        Self {
            context,
            show,
            waiting,
            streamed: gathered,
            from_middle: false,
            fresh_line: true,
            tools,
            artifacts,
            questions: waits,
            live,
        }
    }

    /// The commands that are suggested mean this hub.
    #[must_use]
    pub(crate) fn with_hub(mut self, args: &HubArgs) -> Self {
        self.questions.suffix = args.hub_options();
        self
    }

    /// A person at the terminal may type what the agent asks for, and allow or deny what it wants to do.
    #[must_use]
    pub(crate) fn typing(mut self) -> Self {
        let output = &self.context.output;
        self.questions.may_type =
            self.show == FollowOutput::Answer && output.talk_terminal && io::stdin().is_terminal();
        self
    }

    /// A pipe or a file gets the answer as it comes, too.
    #[must_use]
    pub(crate) fn streaming(mut self, wanted: bool) -> Self {
        self.live |= wanted;
        self
    }

    /// Shows events after `after` until the run has ended, the time is up, or a person interrupts.
    pub(crate) async fn follow(
        &mut self,
        hub: &HubClient,
        run: RunId,
        after: i64,
        limit: Option<Duration>,
    ) -> Result<FollowEnd, CommandFailure> {
        let mut signals = TerminationSignals::new()?;
        self.from_middle = after > 0;
        let mut events = hub.follow(run, after);
        let mut ticks = tokio::time::interval(Duration::from_millis(500));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = tokio::time::interval_at(Instant::now() + CHECK_INTERVAL, CHECK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silence = DeviceSilence::default();
        let deadline = limit.map(|limit| Instant::now() + limit);
        let timed_out = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(timed_out);
        let storage = storage_watch::watch(self.context, hub);
        tokio::pin!(storage);
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(event) => {
                        let event = event.map_err(|error| hub_lost(error, run))?;
                        if self.show == FollowOutput::Answer {
                            self.questions.load_names(hub, &event).await;
                        }
                        self.take(run, &event)?;
                        if event.kind == EventKind::TaskClaimed && self.show == FollowOutput::Answer {
                            let started = started(hub, &event).await;
                            self.print_status(TextStyle::Dim, &started)?;
                        }
                        if event.kind == EventKind::TaskRequeued && self.show == FollowOutput::Answer {
                            queue_reason::explain_new(self.context, hub, run).await;
                        }
                        self.show_question(hub).await?;
                    }
                    None => break,
                },
                () = &mut timed_out => {
                    self.close()?;
                    self.print_partial_answer()?;
                    return Ok(FollowEnd::TimedOut);
                }
                () = signals.next() => {
                    self.close()?;
                    self.print_partial_answer()?;
                    return Ok(FollowEnd::Interrupted);
                }
                line = self.questions.next_answer() => match line {
                    Some((question, text)) => {
                        self.answer_question(hub, run, question, text).await?;
                        self.show_question(hub).await?;
                    }
                    // Nobody types any more; the question can still be answered elsewhere.
                    None => {
                        for text in self.questions.suggest_commands(run) {
                            self.print_status(TextStyle::Busy, &text)?;
                        }
                    }
                },
                () = &mut storage => {}
                _ = ticks.tick() => self.waiting.draw(),
                _ = looks.tick(), if self.show == FollowOutput::Answer => {
                    if let Some(said) = silence.check(hub, run, self.context.now()).await {
                        self.print_status(TextStyle::Busy, &said)?;
                    }
                }
            }
        }
        self.close()?;
        let run = hub.run(run).await?;
        self.answer(hub, &run).await?;
        Ok(FollowEnd::Run(Box::new(run)))
    }

    fn take(&mut self, run: RunId, event: &Event) -> Result<(), CommandFailure> {
        let output = &self.context.output;
        match self.show {
            FollowOutput::Answer => {}
            FollowOutput::Events => {
                return output.line(serde_json::to_string(event).expect("our own types serialise to JSON"));
            }
            FollowOutput::Nothing => return Ok(()),
        }
        let data: FollowedEventData = event.data.parse().unwrap_or_default();
        match event.event_kind() {
            Some(EventKind::TaskChunk) => {
                let Some(text) = data.text else { return Ok(()) };
                self.streamed.push(&text);
                if self.live && !text.is_empty() {
                    self.waiting.clear();
                    output.raw(&text)?;
                    self.fresh_line = text.ends_with('\n');
                    // From here on the answer is on the screen, and a line that is rewritten would tear it.
                    self.waiting.enabled = false;
                }
            }
            Some(EventKind::TaskProgress) => {
                let percent = data.percent.map(|percent| format!("{percent:.0} % ")).unwrap_or_default();
                self.print_status(TextStyle::Dim, &format!("{percent}{}", data.message.unwrap_or_default()))?;
            }
            Some(EventKind::TaskThought) => self.print_status(TextStyle::Dim, &data.text.unwrap_or_default())?,
            // What a host prints for those who look for its mistakes; `--json` has it.
            Some(EventKind::TaskLog) if data.level.as_deref() == Some("debug") => {}
            Some(EventKind::TaskLog) => {
                let level = data.level.filter(|level| level != "info").map(|level| format!("{level}: "));
                let text = format!("{}{}", level.unwrap_or_default(), data.message.unwrap_or_default());
                self.print_status(TextStyle::Dim, text.trim_end())?;
            }
            Some(EventKind::TaskToolCall) => {
                if let Some((style, text)) = self.tools.take(&event.data) {
                    self.print_status(style, &text)?;
                }
            }
            Some(EventKind::ArtifactChanged) => {
                // One that comes piece by piece is told of once.
                if let Ok(change) = event.data.parse::<ArtifactChange>()
                    && self.artifacts.insert(change.artifact_id.clone())
                {
                    self.print_status(TextStyle::Dim, &format!("artifact {}: {}", change.title(), change.about()))?;
                }
            }
            Some(EventKind::TaskClaimed) => self.waiting.change("running"),
            Some(EventKind::TaskRequeued) => {
                self.print_status(TextStyle::Busy, &format!("back in the queue: {}", data.reason.unwrap_or_default()))?;
                self.waiting.change("waiting");
                // The next device begins anew.
                self.streamed.clear();
            }
            _ => {
                if let Some(TerminalMessage { style, text, line }) = self.questions.take(run, event) {
                    self.print_status(style, &text)?;
                    if let Some(line) = line {
                        self.waiting.change(line);
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts the next question on the screen, exactly as it is.
    async fn show_question(&mut self, hub: &HubClient) -> Result<(), CommandFailure> {
        let Some(question) = self.questions.next_question() else { return Ok(()) };
        let text = match &question {
            TerminalQuestion::Input { prompt, .. } => {
                format!("asks for input: {}\n  type your answer and press Enter:", clean::exact(prompt))
            }
            TerminalQuestion::Approval(id) => match hub.permission(*id).await {
                Ok(request) if request.state == PermissionState::Pending => run_questions::approval_text(&request),
                // It was decided in the same moment.
                Ok(_) => {
                    self.questions.answered(&question);
                    return Ok(());
                }
                Err(error) => format!("  it cannot be decided here: {error}"),
            },
        };
        self.waiting.clear();
        self.end_line()?;
        RunQuestions::forget_typed();
        self.context.output.say_styled(TextStyle::Busy, text);
        Ok(())
    }

    async fn answer_question(
        &mut self,
        hub: &HubClient,
        run: RunId,
        question: TerminalQuestion,
        text: String,
    ) -> Result<(), CommandFailure> {
        let id = match question {
            TerminalQuestion::Approval(id) => id,
            TerminalQuestion::Input { id, .. } => {
                self.questions.answered(&question);
                return self.send_answer(hub, run, id, text).await;
            }
        };
        let TypedDecision::Decided(decision) = TypedDecision::read(&text) else {
            return self.print_status(TextStyle::Busy, "  type a to allow it, d to deny it");
        };
        self.questions.answered(&question);
        match hub.decide(id, &decision).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let failure = CommandFailure::from(error);
                self.print_status(TextStyle::Bad, &format!("that was not taken: {failure}"))
            }
        }
    }

    /// Gives what was typed to the run: for the question that the person saw.
    async fn send_answer(
        &mut self,
        hub: &HubClient,
        run: RunId,
        input_request_id: Option<WorkerRequestId>,
        text: String,
    ) -> Result<(), CommandFailure> {
        let key = format!("input-{}", self.context.env.uuid());
        let request = GiveInputRequest { text: Some(text), parts: None, input_request_id, idempotency_key: Some(key) };
        match hub.give_input(run, &request).await {
            Ok(_) => Ok(()),
            // The run may have ended, or somebody else may have answered, in the same moment.
            Err(error) => self.print_status(TextStyle::Bad, &format!("that was not taken: {error}")),
        }
    }

    fn print_status(&mut self, style: TextStyle, text: &str) -> Result<(), CommandFailure> {
        if text.trim().is_empty() {
            return Ok(());
        }
        self.waiting.clear();
        self.end_line()?;
        self.context.output.say_styled(style, clean::lines(text));
        Ok(())
    }

    /// Talk and answer share a screen; talk begins on a line of its own there.
    fn end_line(&mut self) -> Result<(), CommandFailure> {
        if !self.fresh_line && self.context.output.terminal {
            self.context.output.raw("\n")?;
            self.fresh_line = true;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), CommandFailure> {
        self.waiting.clear();
        self.waiting.enabled = false;
        self.end_line()
    }

    /// The answer of a run that has ended: what its result says, or what came of it when there is none.
    async fn answer(&mut self, hub: &HubClient, run: &Run) -> Result<(), CommandFailure> {
        if self.show != FollowOutput::Answer {
            return Ok(());
        }
        let result = run.task_result.as_ref().filter(|_| run.status == RunStatus::Completed);
        let Some(result) = result else { return self.print_partial_answer() };
        if let Some(full) = OutputLocation::of(result) {
            return self.full(hub, result, &full).await;
        }
        match result.text_member("text") {
            Some(text) => self.print_full_answer(&text),
            None if self.streamed.is_empty() => self.context.output.line(result.get()),
            None => self.print_partial_answer(),
        }
    }

    /// An output of which the text is only a part: a pipe gets all of it, byte for byte; a terminal is told where it is.
    async fn full(&mut self, hub: &HubClient, result: &Json, full: &OutputLocation) -> Result<(), CommandFailure> {
        let text = result.text_member("text").unwrap_or_default();
        let (shown, all) = (time::size(text.len() as u64), time::size(full.bytes));
        match full.artifact_id {
            Some(artifact) if !self.live => {
                let mut download = hub.artifact(artifact).await?;
                let mut out = io::stdout().lock();
                while let Some(part) = download.chunk().await? {
                    out.write_all(&part)?;
                }
                Ok(out.flush()?)
            }
            Some(artifact) => {
                self.print_full_answer(&text)?;
                self.context.output.say_styled(
                    TextStyle::Busy,
                    format_args!(
                        "This is {shown} of {all}, as text. All of it: attache artifacts get {artifact} --output FILE"
                    ),
                );
                Ok(())
            }
            None => {
                self.print_full_answer(&text)?;
                let why = full.lost.as_deref().unwrap_or("it was not kept");
                Err(CommandFailure::new(
                    "output_cut",
                    exit::FAILED,
                    format!("the output was cut: {shown} of {all} are here"),
                )
                .hint(clean::line(why).into_owned()))
            }
        }
    }

    fn print_full_answer(&mut self, text: &str) -> Result<(), CommandFailure> {
        let output = &self.context.output;
        if !self.live {
            return output.raw(text);
        }
        // An agent that speaks several times answers with what it said last.
        let shown = self.streamed.contains_answer(text) || (self.from_middle && self.streamed.ends(text));
        if shown {
            return Ok(());
        }
        if !self.streamed.is_empty() {
            output.say_styled(TextStyle::Busy, "Parts of what you saw were lost on the way. The result is:");
        }
        output.raw(text)?;
        self.fresh_line = text.is_empty() || text.ends_with('\n');
        self.end_line()
    }

    /// What came of an answer that has no end. On a terminal it is there already.
    fn print_partial_answer(&mut self) -> Result<(), CommandFailure> {
        let output = &self.context.output;
        if self.show != FollowOutput::Answer || self.live {
            return Ok(());
        }
        let (kept, total) = self.streamed.take();
        if kept.len() < total {
            output.say(format_args!("The output was cut: {} of {total} bytes are shown.", kept.len()));
        }
        output.raw(&kept)
    }
}

impl Drop for RunFollower<'_> {
    fn drop(&mut self) {
        self.waiting.clear();
    }
}

/// Turns the end of a run into the end of the command.
pub(crate) fn verdict(run: &Run) -> Result<(), CommandFailure> {
    let detail = |name: &str| run.task_result.as_ref().and_then(|result| result.text_member(name));
    let show = format!("See it with: attache runs show {}", run.task_run_id);
    match run.status {
        RunStatus::Completed => Ok(()),
        RunStatus::Cancelled => {
            let reason = detail("reason").or_else(|| detail("error"));
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            Err(CommandFailure::new("cancelled", exit::FAILED, format!("the run was cancelled{reason}")).hint(show))
        }
        RunStatus::Failed | RunStatus::Pending | RunStatus::Running => {
            let error = detail("error").unwrap_or_else(|| "it did not say why".to_owned());
            let code = detail("code").map(|code| format!(" ({code})")).unwrap_or_default();
            Err(CommandFailure::new("task_failed", exit::FAILED, format!("the run failed{code}: {error}")).hint(show))
        }
    }
}

// === impl StatusLine ===

impl StatusLine {
    fn draw(&mut self) {
        let waited = self.since.elapsed();
        if self.enabled && waited >= Duration::from_millis(400) {
            let _ = write!(io::stderr().lock(), "\r\x1b[2K\x1b[2m{} … {}\x1b[0m", self.what, time::duration(waited));
            let _ = io::stderr().lock().flush();
            self.shown = true;
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr().lock(), "\r\x1b[2K");
        }
    }

    fn change(&mut self, what: &str) {
        self.clear();
        what.clone_into(&mut self.what);
        self.since = Instant::now();
    }
}

//! Follows a run until it finishes: prints the answer to standard output and everything else to standard error.

mod device_silence;
mod run_questions;
mod storage_watch;
mod streamed_answer;
mod tool_calls;

use std::{
    collections::HashSet,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use attache_client::{EventStream, HubClient};
use attache_protocol::{
    ArtifactId, EventKind, Json, RunId, RuntimeId, WorkerRequestId,
    env::Env,
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

use super::{
    failure::CommandFailure,
    output::{TerminalOutput, TextStyle, clean, time},
    queue_reason,
    signals::TerminationSignals,
};
use crate::text::ask as texts;
use device_silence::{CHECK_INTERVAL, DeviceSilence};
use run_questions::{RunQuestions, TerminalMessage, TerminalQuestion, TypedDecision};
use streamed_answer::StreamedAnswer;
use tool_calls::ShownToolCalls;

/// What to print while following a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowOutput {
    /// The answer on standard output, messages on standard error. A terminal shows the answer as it arrives. Pipes and
    /// files get it once, at the end, because streamed chunks can be lost but the result can't.
    Answer,
    /// Every event, one JSON document per line.
    Events,
    /// Nothing; the caller prints the result.
    Nothing,
}

/// Why following stopped.
#[derive(Debug)]
pub(crate) enum FollowEnd {
    /// The run finished.
    Run(Box<Run>),
    TimedOut,
    Interrupted,
}

pub(crate) struct RunFollower<'a> {
    output: TerminalOutput,
    env: &'a Env,
    show: FollowOutput,
    waiting: StatusLine,
    /// The answer received so far.
    streamed: StreamedAnswer,
    /// Following started in the middle of the answer.
    from_middle: bool,
    /// Standard output is at the start of a line.
    fresh_line: bool,
    tools: ShownToolCalls,
    /// Artifacts already announced.
    artifacts: HashSet<String>,
    questions: RunQuestions,
    /// Write the answer as it arrives.
    live: bool,
    /// Since before there was anything to follow.
    signals: Option<TerminationSignals>,
}

/// A status line that is redrawn while the run is waiting; terminals only.
#[derive(Debug)]
struct StatusLine {
    enabled: bool,
    shown: bool,
    since: Instant,
    what: String,
    /// What it said, and since when, before the connection was lost.
    before_loss: Option<(String, Instant)>,
}

/// A shorter interruption isn't worth a message.
const CONNECTION_LOST_AFTER: Duration = Duration::from_secs(3);

/// The members of event data that are printed.
#[derive(Debug, Default, Deserialize)]
struct FollowedEventData {
    text: Option<String>,
    message: Option<String>,
    percent: Option<f64>,
    level: Option<String>,
    reason: Option<String>,
}

/// "Started", with the device's name if the caller can see devices.
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
        Some(device) => texts::started_on(device),
        None => texts::started().to_owned(),
    }
}

/// The run that goes on in place of a failed one, at another agent.
fn continued_by(run: &Run) -> Option<RunId> {
    run.task_result.as_ref()?.text_member("continued_by")?.parse().ok()
}

/// The failure when the connection to the hub is lost. The run itself may continue.
fn hub_lost(error: attache_client::Error, run: RunId) -> CommandFailure {
    let failure = CommandFailure::from(error);
    if failure.exit == exit::NOT_FOUND {
        return failure;
    }
    if failure.exit != exit::UNREACHABLE {
        // Say first that the run continues, so that nobody starts it a second time.
        let message = texts::not_followed(run, &failure.message);
        return CommandFailure { message, ..failure };
    }
    failure.hint(texts::hub_lost(run))
}

// === impl RunFollower ===

impl<'a> RunFollower<'a> {
    pub(crate) fn new(output: TerminalOutput, env: &'a Env, show: FollowOutput) -> Self {
        let waiting = StatusLine {
            enabled: output.talk_in_color() && show == FollowOutput::Answer,
            shown: false,
            since: Instant::now(),
            what: texts::status_waiting().to_owned(),
            before_loss: None,
        };
        let (gathered, tools, waits) = (StreamedAnswer::default(), ShownToolCalls::default(), RunQuestions::new());
        let live = output.terminal;
        let artifacts = HashSet::new();
        Self {
            output,
            env,
            show,
            waiting,
            streamed: gathered,
            from_middle: false,
            fresh_line: true,
            tools,
            artifacts,
            questions: waits,
            live,
            signals: None,
        }
    }

    /// Obeys signals that have come since these were listened for.
    #[must_use]
    pub(crate) fn listening(mut self, signals: TerminationSignals) -> Self {
        self.signals = Some(signals);
        self
    }

    /// Adds this hub's options to suggested commands.
    #[must_use]
    pub(crate) fn with_hub(mut self, options: String) -> Self {
        self.questions.suffix = options;
        self
    }

    /// Lets a person at the terminal answer questions and decide approvals.
    #[must_use]
    pub(crate) fn typing(mut self) -> Self {
        let output = &self.output;
        self.questions.may_type =
            self.show == FollowOutput::Answer && output.talk_terminal && io::stdin().is_terminal();
        self
    }

    /// Streams the answer to pipes and files too.
    #[must_use]
    pub(crate) fn streaming(mut self, enabled: bool) -> Self {
        self.live |= enabled;
        self
    }

    /// Shows events after `after` until the run finishes, the time limit is reached or a person interrupts. If another
    /// run goes on in its place, that one is followed, and `run` names it afterwards.
    pub(crate) async fn follow(
        &mut self,
        hub: &HubClient,
        run: &mut RunId,
        mut after: i64,
        limit: Option<Duration>,
    ) -> Result<FollowEnd, CommandFailure> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut signals = self.signals.take().map_or_else(TerminationSignals::new, Ok)?;
        loop {
            let ended = self.follow_one(hub, (*run, after), deadline, &mut signals).await?;
            let FollowEnd::Run(done) = &ended else { return Ok(ended) };
            let Some(next) = continued_by(done) else { return Ok(ended) };
            if self.show == FollowOutput::Answer {
                let agent = clean::line(&done.agent_name).into_owned();
                self.print_status(TextStyle::Busy, &texts::fallback(agent, next))?;
                queue_reason::explain_new(&self.output, self.env, hub, next).await;
            }
            self.streamed.clear();
            (*run, after) = (next, 0);
        }
    }

    async fn follow_one(
        &mut self,
        hub: &HubClient,
        (run, after): (RunId, i64),
        deadline: Option<Instant>,
        signals: &mut TerminationSignals,
    ) -> Result<FollowEnd, CommandFailure> {
        self.from_middle = after > 0;
        let mut events = hub.follow(run, after);
        let mut ticks = tokio::time::interval(Duration::from_millis(500));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = tokio::time::interval_at(Instant::now() + CHECK_INTERVAL, CHECK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silence = DeviceSilence::default();
        let timed_out = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(timed_out);
        let storage = storage_watch::watch(self.output, hub);
        tokio::pin!(storage);
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(event) => {
                        let event = event.map_err(|error| hub_lost(error, run))?;
                        self.report_connection(&events)?;
                        if self.show == FollowOutput::Answer {
                            self.questions.load_details(hub, &event).await;
                        }
                        self.take(run, &event)?;
                        if event.kind == EventKind::TaskClaimed && self.show == FollowOutput::Answer {
                            let started = started(hub, &event).await;
                            self.print_status(TextStyle::Dim, &started)?;
                        }
                        let is_queued = event.kind == EventKind::TaskRequeued || event.kind == EventKind::TaskDeferred;
                        if is_queued && self.show == FollowOutput::Answer {
                            queue_reason::explain_new(&self.output, self.env, hub, run).await;
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
                    // Standard input closed; the questions can still be answered with other commands.
                    None => {
                        for text in self.questions.suggest_commands(run) {
                            self.print_status(TextStyle::Busy, &text)?;
                        }
                    }
                },
                () = &mut storage => {}
                _ = ticks.tick() => {
                    self.report_connection(&events)?;
                    self.waiting.draw();
                }
                _ = looks.tick(), if self.show == FollowOutput::Answer => {
                    if let Some(notice) = silence.check(hub, run, self.env.now()).await {
                        self.print_status(TextStyle::Busy, &notice)?;
                    }
                }
            }
        }
        self.close()?;
        let run = hub.run(run).await?;
        if continued_by(&run).is_none() {
            self.answer(hub, &run).await?;
        }
        Ok(FollowEnd::Run(Box::new(run)))
    }

    /// Says that the connection to the hub is lost, once it has been for a while, and that it is back.
    fn report_connection(&mut self, events: &EventStream) -> Result<(), CommandFailure> {
        if self.show != FollowOutput::Answer {
            return Ok(());
        }
        match (events.away_for(), self.waiting.before_loss.take()) {
            (Some(away), None) if away >= CONNECTION_LOST_AFTER => {
                self.print_status(TextStyle::Busy, &texts::connection_lost(time::duration(events.patience())))?;
                let before = (self.waiting.what.clone(), self.waiting.since);
                self.waiting.change(texts::status_disconnected());
                self.waiting.before_loss = Some(before);
            }
            (None, Some((what, since))) => {
                self.print_status(TextStyle::Dim, texts::connected_again())?;
                (self.waiting.what, self.waiting.since) = (what, since);
            }
            (_, before) => self.waiting.before_loss = before,
        }
        Ok(())
    }

    fn take(&mut self, run: RunId, event: &Event) -> Result<(), CommandFailure> {
        let output = &self.output;
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
                    // The answer is on the screen now; redrawing the status line would break it up.
                    self.waiting.enabled = false;
                }
            }
            Some(EventKind::TaskProgress) => {
                let percent = data.percent.map(|percent| format!("{percent:.0} % ")).unwrap_or_default();
                self.print_status(TextStyle::Dim, &format!("{percent}{}", data.message.unwrap_or_default()))?;
            }
            Some(EventKind::TaskThought) => self.print_status(TextStyle::Dim, &data.text.unwrap_or_default())?,
            // Debug output of a host is shown only with `--json`.
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
                // Announce an artifact once, even if it arrives in parts.
                if let Ok(change) = event.data.parse::<ArtifactChange>()
                    && self.artifacts.insert(change.artifact_id.clone())
                {
                    self.print_status(TextStyle::Dim, &texts::artifact(change.title(), change.about()))?;
                }
            }
            Some(EventKind::TaskClaimed) => self.waiting.change(texts::status_running()),
            Some(EventKind::TaskDeferred) => {
                self.waiting.change(texts::status_limit());
                // What follows is the answer of another attempt.
                self.streamed.clear();
            }
            Some(EventKind::TaskRequeued) => {
                self.print_status(TextStyle::Busy, &texts::requeued(data.reason.unwrap_or_default()))?;
                self.waiting.change(texts::status_waiting());
                // The next device starts over.
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

    /// Shows the next open question in full.
    async fn show_question(&mut self, hub: &HubClient) -> Result<(), CommandFailure> {
        let Some(question) = self.questions.next_question() else { return Ok(()) };
        let text = match &question {
            TerminalQuestion::Input { prompt, .. } => texts::asks_here(clean::exact(prompt)),
            TerminalQuestion::Approval(id) => match hub.permission(*id).await {
                Ok(request) if request.state == PermissionState::Pending => run_questions::approval_text(&request),
                // It was decided in the meantime.
                Ok(_) => {
                    self.questions.answered(&question);
                    return Ok(());
                }
                Err(error) => texts::undecidable(error),
            },
        };
        self.waiting.clear();
        self.end_line()?;
        RunQuestions::forget_typed();
        self.output.say_styled(TextStyle::Busy, text);
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
            return self.print_status(TextStyle::Busy, texts::type_decision());
        };
        self.questions.answered(&question);
        match hub.decide(id, &decision).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let failure = CommandFailure::from(error);
                self.print_status(TextStyle::Bad, &texts::decision_refused(failure))
            }
        }
    }

    /// Sends the typed text to the run as the answer to the question on the screen.
    async fn send_answer(
        &mut self,
        hub: &HubClient,
        run: RunId,
        input_request_id: Option<WorkerRequestId>,
        text: String,
    ) -> Result<(), CommandFailure> {
        let key = format!("input-{}", self.env.uuid());
        let idempotency_key = Some(key);
        let request =
            GiveInputRequest { text: Some(text), input_request_id, idempotency_key, ..GiveInputRequest::default() };
        match hub.give_input(run, &request).await {
            Ok(_) => Ok(()),
            // The run may have finished, or someone else may have answered, in the meantime.
            Err(error) => self.print_status(TextStyle::Bad, &texts::answer_refused(error)),
        }
    }

    fn print_status(&mut self, style: TextStyle, text: &str) -> Result<(), CommandFailure> {
        if text.trim().is_empty() {
            return Ok(());
        }
        self.waiting.clear();
        self.end_line()?;
        self.output.say_styled(style, clean::lines(text));
        Ok(())
    }

    /// Ends the current line of the answer on a terminal, so that messages start on a new line.
    fn end_line(&mut self) -> Result<(), CommandFailure> {
        if !self.fresh_line && self.output.terminal {
            self.output.raw("\n")?;
            self.fresh_line = true;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), CommandFailure> {
        self.waiting.clear();
        self.waiting.enabled = false;
        self.end_line()
    }

    /// Prints the answer of a finished run: its result, or the streamed text if there is none.
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
            None if self.streamed.is_empty() => self.output.line(result.get()),
            None => self.print_partial_answer(),
        }
    }

    /// Prints an output that is longer than the result's text. A pipe gets the complete output byte for byte; a
    /// terminal gets the text and the command that downloads the rest.
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
            Some(artifact) if !self.output.terminal => self.rest(hub, artifact).await,
            Some(artifact) => {
                self.print_full_answer(&text)?;
                let is_text = text.len() as u64 <= full.bytes;
                let complete =
                    if is_text { texts::excerpt_shown(shown, all, artifact) } else { texts::not_text(artifact) };
                self.output.say_styled(TextStyle::Busy, complete);
                Ok(())
            }
            None => {
                self.print_full_answer(&text)?;
                let why = full.lost.as_deref().unwrap_or(texts::rest_lost());
                Err(CommandFailure::new("output_cut", exit::FAILED, texts::cut(shown, all))
                    .hint(clean::line(why).into_owned()))
            }
        }
    }

    /// Writes what follows the streamed text in the complete output, if that begins with it.
    async fn rest(&mut self, hub: &HubClient, artifact: ArtifactId) -> Result<(), CommandFailure> {
        let streamed = self.streamed.whole().filter(|_| !self.from_middle).map(str::as_bytes);
        let mut left = streamed.map(<[u8]>::to_vec).unwrap_or_default();
        let mut is_same = streamed.is_some();
        let mut download = hub.artifact(artifact).await?;
        let mut out = io::stdout().lock();
        while is_same && let Some(part) = download.chunk().await? {
            let known = left.len().min(part.len());
            is_same = left[..known] == part[..known];
            left.drain(..known);
            if is_same {
                out.write_all(&part[known..])?;
            }
        }
        out.flush()?;
        if is_same && left.is_empty() {
            return Ok(());
        }
        Err(CommandFailure::new("output_cut", exit::FAILED, texts::streamed_differs())
            .hint(texts::streamed_differs_do(artifact)))
    }

    fn print_full_answer(&mut self, text: &str) -> Result<(), CommandFailure> {
        let output = &self.output;
        if !self.live {
            return output.raw(text);
        }
        // If an agent writes several messages, the last one is the answer.
        let shown = self.streamed.contains_answer(text) || (self.from_middle && self.streamed.ends(text));
        if shown {
            return Ok(());
        }
        if !self.streamed.is_empty() {
            output.say_styled(TextStyle::Busy, texts::parts_lost());
        }
        output.raw(text)?;
        self.fresh_line = text.is_empty() || text.ends_with('\n');
        self.end_line()
    }

    /// Prints an incomplete answer. A terminal already shows it.
    fn print_partial_answer(&mut self) -> Result<(), CommandFailure> {
        let output = &self.output;
        if self.show != FollowOutput::Answer || self.live {
            return Ok(());
        }
        let (kept, total) = self.streamed.take();
        if kept.len() < total {
            output.say(texts::partial(kept.len(), total));
        }
        output.raw(&kept)
    }
}

impl Drop for RunFollower<'_> {
    fn drop(&mut self) {
        self.waiting.clear();
    }
}

/// Says that files came with the answer: nothing else on a terminal shows them.
pub(crate) fn tell_files(output: &TerminalOutput, run: &Run) {
    let count = run.task_result.as_ref().map_or(0, OutputLocation::files);
    if count > 0 && !output.is_json() {
        output.say(texts::files_came(count as u64, run.task_run_id));
    }
}

/// Maps a finished run to the command's result.
pub(crate) fn verdict(run: &Run) -> Result<(), CommandFailure> {
    let detail = |name: &str| run.task_result.as_ref().and_then(|result| result.text_member(name));
    let show = texts::see_the_run(run.task_run_id);
    match run.status {
        RunStatus::Completed => Ok(()),
        RunStatus::Cancelled => {
            let reason = detail("reason").or_else(|| detail("error"));
            let message = reason.map_or_else(|| texts::was_cancelled().to_owned(), texts::was_cancelled_because);
            Err(CommandFailure::new("cancelled", exit::FAILED, message).hint(show))
        }
        RunStatus::Failed | RunStatus::Pending | RunStatus::Running => {
            let error = detail("error").unwrap_or_else(|| texts::no_reason().to_owned());
            let message = match detail("code") {
                Some(code) => texts::has_failed_with(code, error),
                None => texts::has_failed(error),
            };
            Err(CommandFailure::new("task_failed", exit::FAILED, message).hint(show))
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

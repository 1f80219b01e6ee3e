//! One run in a slot: its events, its outcome, and the ways to stop it.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use attache_protocol::{
    Json, RunId,
    env::Env,
    wire::adapter::{AdapterLogLine, AdapterProgress, AdapterText, ArtifactChange, TaskReply, event},
};
use futures_util::{FutureExt as _, Stream, stream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    Driver, DriverRun,
    event_log::{EventLog, MAX_LOG_BYTES, RecordedEvent},
    question::OpenQuestions,
    scratch::ScratchFolder,
};

/// How long a driver may take to return after being told to stop. Then it is dropped, which kills its processes.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A run, from its start until another one takes the slot.
#[derive(Debug)]
pub(crate) struct Execution {
    id: RunId,
    record: Mutex<EventLog>,
    /// Set before the `result` event is pushed, and never changed.
    outcome: OnceLock<TaskReply>,
    /// Notified whenever an event was pushed.
    moved: watch::Sender<()>,
    questions: OpenQuestions,
    reason: OnceLock<StopReason>,
    stop: CancellationToken,
    /// The latest usage total reported by the driver.
    usage: Mutex<Option<Json>>,
    /// The private folder of a run whose result refers to files in it. Removed when this is dropped.
    kept: Mutex<Option<ScratchFolder>>,
}

/// Why a run was stopped early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    Cancelled,
    Deadline,
    Shutdown,
}

/// Where a driver reports progress. Cheap to clone. Events after the result are ignored.
#[derive(Debug, Clone)]
pub struct EventSink(Arc<Execution>);

// === impl Execution ===

impl Execution {
    pub(crate) fn new(id: RunId) -> Self {
        Self {
            id,
            record: Mutex::new(EventLog::new(MAX_LOG_BYTES)),
            outcome: OnceLock::new(),
            moved: watch::Sender::new(()),
            questions: OpenQuestions::default(),
            reason: OnceLock::new(),
            stop: CancellationToken::new(),
            usage: Mutex::new(None),
            kept: Mutex::new(None),
        }
    }

    pub(crate) const fn id(&self) -> RunId {
        self.id
    }

    pub(crate) fn is_running(&self) -> bool {
        self.outcome.get().is_none()
    }

    /// A cancelled run that is requested again is a new attempt. Any other ended run is answered from memory.
    pub(crate) fn was_cancelled(&self) -> bool {
        self.outcome
            .get()
            .is_some_and(|reply| reply.error.as_ref().is_some_and(|error| error.code == StopReason::Cancelled.code()))
    }

    /// Asks the driver to stop. Only the first reason counts.
    pub(crate) fn stop(&self, reason: StopReason) {
        let _ = self.reason.set(reason);
        self.stop.cancel();
    }

    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Waits until the run has ended and its processes are gone.
    pub(crate) async fn outcome(&self) -> TaskReply {
        let mut moved = self.moved.subscribe();
        loop {
            if let Some(reply) = self.outcome.get() {
                return reply.clone();
            }
            // The sender lives in `self`, so waiting cannot fail.
            let _ = moved.changed().await;
        }
    }

    /// Live events after `seq`, ending with `result`.
    pub(crate) fn events(self: Arc<Self>, seq: u64) -> impl Stream<Item = Arc<RecordedEvent>> {
        let moved = self.moved.subscribe();
        let seq = self.record.lock().unwrap_or_else(PoisonError::into_inner).resume(seq);
        stream::unfold(Some((self, moved, seq)), async |state| {
            let (execution, mut moved, seq) = state?;
            loop {
                let (next, running) = execution.after(seq);
                match next {
                    Some(event) if event.name == event::RESULT => return Some((event, None)),
                    Some(event) => {
                        let seq = event.seq;
                        return Some((event, Some((execution, moved, seq))));
                    }
                    // The cursor is past the result, so nothing more follows.
                    None if !running => return None,
                    None => {
                        let _ = moved.changed().await;
                    }
                }
            }
        })
    }

    fn after(&self, seq: u64) -> (Option<Arc<RecordedEvent>>, bool) {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        (record.after(seq), self.is_running())
    }

    fn push(&self, name: &'static str, data: Json) {
        {
            let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.is_running() {
                return;
            }
            record.push(name, data);
        }
        self.moved.send_replace(());
    }

    /// Records a question and returns the seq of its event. `None` if the run has ended.
    pub(crate) fn push_question(&self, name: &'static str, data: Json) -> Option<u64> {
        let seq = {
            let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.is_running() {
                return None;
            }
            record.push_question(name, data)
        };
        self.moved.send_replace(());
        Some(seq)
    }

    /// The question of this event no longer needs an answer.
    pub(crate) fn close_question(&self, seq: u64) {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).close_question(seq);
    }

    pub(crate) const fn questions(&self) -> &OpenQuestions {
        &self.questions
    }

    pub(crate) fn finish(&self, reply: TaskReply) {
        {
            // Under the log's lock, so that nothing is recorded after the result.
            let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
            let data = Json::of(&reply);
            if self.outcome.set(reply).is_ok() {
                record.push(event::RESULT, data);
            }
        }
        self.moved.send_replace(());
    }

    /// Runs the driver until it ends, the deadline passes, or it is cancelled or shut down. The outcome isn't recorded yet.
    pub(crate) async fn drive(&self, driver: Arc<dyn Driver>, job: DriverRun, env: Env) -> TaskReply {
        let deadline = job.task.deadline.map(|at| at.since(env.now()));
        let takes_input = driver.accepts_unsolicited();
        let reply = match deadline {
            Some(Duration::ZERO) => {
                self.stop(StopReason::Deadline);
                TaskReply::failed(StopReason::Deadline.code(), StopReason::Deadline.message())
            }
            _ => self.watch(driver, job, deadline).await,
        };
        let mut reply = self.attribute_stop(reply);
        if takes_input {
            reply.inputs_taken = self.questions.taken();
        }
        let code = reply.error.as_ref().map_or("", |error| error.code.as_str());
        tracing::info!(run.id = %self.id, success = reply.success, code, "run ended");
        reply
    }

    async fn watch(&self, driver: Arc<dyn Driver>, job: DriverRun, deadline: Option<Duration>) -> TaskReply {
        // A driver that panics must not occupy the slot forever.
        let work = AssertUnwindSafe(async move { driver.run(job).await }).catch_unwind();
        tokio::pin!(work);
        let alarm = async {
            match deadline {
                Some(left) => self.questions.working(left).await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            ended = &mut work => Some(ended),
            () = alarm => { self.stop(StopReason::Deadline); None }
            () = self.stop.cancelled() => None,
        };
        let ended = match ended {
            Some(ended) => Ok(ended),
            None => tokio::time::timeout(STOP_TIMEOUT, work).await,
        };
        match ended {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => TaskReply::failed("host_crashed", "the adapter's driver panicked; its log has the details"),
            Err(_) => TaskReply::failed("host_crashed", "the driver didn't stop in time and was dropped"),
        }
    }

    /// A run that failed after being stopped failed because it was stopped. Usage is reported however it ended.
    pub(crate) fn attribute_stop(&self, mut reply: TaskReply) -> TaskReply {
        if reply.usage.is_none() {
            reply.usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        }
        if let (false, Some(reason)) = (reply.success, self.reason.get()) {
            reply.error = TaskReply::failed(reason.code(), reason.message()).error;
        }
        reply
    }
}

// === impl StopReason ===

impl StopReason {
    const fn code(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Deadline => "timed_out",
            Self::Shutdown => "host_crashed",
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::Cancelled => "the run was cancelled; every process it started on this device was stopped",
            Self::Deadline => "the run's deadline passed; every process it started on this device was stopped",
            Self::Shutdown => "the adapter was shut down during the run; start it and run the task again",
        }
    }
}

// === impl EventSink ===

impl EventSink {
    pub(crate) const fn of(execution: Arc<Execution>) -> Self {
        Self(execution)
    }

    /// Keeps the run's private folder until another run takes its place.
    pub(crate) fn keep_scratch(&self, scratch: ScratchFolder) {
        *self.0.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(scratch);
    }

    pub fn progress(&self, progress: &AdapterProgress) {
        if let Some(usage) = &progress.usage {
            *self.0.usage.lock().unwrap_or_else(PoisonError::into_inner) = Some(usage.clone());
        }
        self.0.push(event::PROGRESS, Json::of(progress));
    }

    /// A piece of the answer. Coalesce at the source, at most 4 KiB each.
    pub fn chunk(&self, text: impl Into<String>) {
        self.0.push(event::CHUNK, Json::of(&AdapterText { text: text.into() }));
    }

    pub fn thought(&self, text: impl Into<String>) {
        self.0.push(event::THOUGHT, Json::of(&AdapterText { text: text.into() }));
    }

    pub fn log(&self, level: impl Into<String>, message: impl Into<String>) {
        self.0.push(event::LOG, Json::of(&AdapterLogLine::new(level, message)));
    }

    /// What went over the network, or didn't.
    pub(crate) fn network(&self, level: &str, message: String) {
        let code = Some(AdapterLogLine::NETWORK.to_owned());
        self.0.push(event::LOG, Json::of(&AdapterLogLine { code, ..AdapterLogLine::new(level, message) }));
    }

    pub fn tool_call(&self, call: Json) {
        self.0.push(event::TOOL_CALL, call);
    }

    /// An artifact, complete or a piece of one.
    pub fn artifact(&self, change: &ArtifactChange) {
        self.0.push(event::ARTIFACT, Json::of(change));
    }
}

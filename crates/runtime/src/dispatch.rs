//! Hands one run to the adapter and returns its outcome, even if the connection breaks in between.

use std::{sync::Arc, time::Duration};

use attache_client::Backoff;
use attache_protocol::{
    Json, RunId,
    wire::{
        adapter::{AdapterLogLine, RunTask, TaskReply},
        awcp,
    },
};
use tokio::{task::JoinSet, time::timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    RuntimeNotice,
    adapter::{AdapterCallError, AdapterEvent, RunTaskResponse, member},
    artifacts::ArtifactUploader,
    attachments::Attachments,
    claim_watch::{self, ClaimSource},
    delegation_run,
    device::DeviceRuntime,
    ledger::{ExecutionOutcome, LedgerStep},
    progress::{
        ClaimContext, DeliveredProgress, PendingProgress, ProgressItem, ProgressReporter, ProgressSender, countable,
    },
    question_bridge,
    report::{self, OutcomeReport},
};

/// A run that is ready for the adapter.
#[derive(Debug)]
pub(crate) struct RunDispatch {
    pub(crate) task: RunTask,
    /// The caller, as the hub names it.
    pub(crate) caller: String,
    pub(crate) epoch: i64,
    pub(crate) mode: DispatchMode,
    pub(crate) source: ClaimSource,
    /// Reports of this claim are numbered from here on.
    pub(crate) reports: i64,
}

#[derive(Debug)]
pub(crate) enum DispatchMode {
    Start,
    /// The adapter is already executing it. Its events are replayed from the first one.
    Join,
    /// It ended with this reply while nothing listened. Its events are replayed.
    Replay(TaskReply),
}

/// Why a task has no reply.
#[derive(Debug)]
pub(crate) struct DispatchFailure {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// The state of a task after the connection to the adapter broke.
enum DisconnectedTask {
    Runs,
    Ended(TaskReply),
    Gone,
}

/// Receives the events of one run from the adapter.
pub(crate) struct AdapterEventListener {
    device: Arc<DeviceRuntime>,
    claimant: ClaimContext,
    known: DeliveredProgress,
    /// The newest event received.
    seen: u64,
    progress: ProgressSender,
    /// Questions that wait for answers. They end with the listener.
    questions: JoinSet<()>,
}

const UNREACHABLE: &str = "adapter_unreachable";
const INVALID: &str = "adapter_invalid_reply";

/// How often a silent adapter's health is checked before the run fails: about five seconds.
const MAX_HEALTH_ATTEMPTS: u32 = 6;
/// How long another task can occupy the adapter.
const MAX_BUSY_ATTEMPTS: u32 = 30;
const CANCEL_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a replay can take.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(30);
const ANSWER_DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// Executes a run to its end on this device, and reports it.
pub(crate) async fn execute(device: &Arc<DeviceRuntime>, job: RunDispatch, abort: &CancellationToken) {
    let (run, epoch) = (job.task.task_run_id, job.epoch);
    let claimant = ClaimContext {
        transport: device.transport.clone(),
        run,
        epoch,
        stop: device.claims.take(run, epoch).unwrap_or_default(),
        link: device.link.clone(),
        env: device.env.clone(),
    };
    let stop = claimant.stop.clone();
    let watcher = claim_watch::watch(claimant.clone(), job.source, device.inbox.clone());
    let watcher = AbortOnDropHandle::new(tokio::spawn(watcher));
    let is_delegation = job.task.task_type == awcp::TASK_TYPE;
    let ended = if is_delegation {
        // It has to unmount the folder, so it handles stopping itself.
        Box::pin(delegation_run::work(device, job, claimant, abort)).await
    } else {
        tokio::select! {
            outcome = Box::pin(work(device, job, claimant)) => Ok(outcome),
            reason = stop.requested() => Err(reason),
            () = device.link.denied() => Err("the hub no longer accepts this device".to_owned()),
            () = abort.cancelled() => {
                let reply = stop_task(device, run).await;
                let (usage, taken) = reply.map(|reply| (reply.usage, reply.inputs_taken)).unwrap_or_default();
                let message = "The runtime was stopped before the task finished.";
                let usage = usage.filter(countable);
                Ok((ExecutionOutcome::failed("runtime_stopped", message, usage.as_ref()).taking(taken), None))
            }
        }
    };
    drop(watcher);
    match ended {
        Ok((outcome, untold)) => {
            report::finish(device, OutcomeReport { run, epoch, outcome, pending_progress: untold }).await;
        }
        Err(reason) => {
            // A delegation has already stopped its agent. The adapter still knows the outcome.
            let usage = cancel(device, run).await;
            device.note(device.run_entry(LedgerStep::TaskStopped, run, epoch).because(&reason)).await;
            device.claims.give_up(run, epoch);
            device.link.notify(&RuntimeNotice::TaskStopped { run, reason });
            if let Some(usage) = usage {
                report::account(device, run, epoch, usage).await;
            }
        }
    }
}

/// Stops the run on this device, and returns its total usage if the agent reported it.
pub(crate) async fn cancel(device: &DeviceRuntime, run: RunId) -> Option<Json> {
    stop_task(device, run).await.and_then(|reply| reply.usage).filter(countable)
}

/// Stops the run on this device, and returns the adapter's last word on it.
async fn stop_task(device: &DeviceRuntime, run: RunId) -> Option<TaskReply> {
    match timeout(CANCEL_TIMEOUT, device.adapter.cancel(run)).await {
        Ok(Ok(reply)) => return reply,
        Ok(Err(trouble)) => tracing::warn!(run.id = %run, ?trouble, "failed to stop the task at the adapter"),
        Err(_) => tracing::warn!(run.id = %run, "the adapter did not stop the task in time"),
    }
    None
}

async fn work(
    device: &Arc<DeviceRuntime>,
    job: RunDispatch,
    claimant: ClaimContext,
) -> (ExecutionOutcome, Option<PendingProgress>) {
    let RunDispatch { mut task, mode, reports, .. } = job;
    let has_limits = [&task.sandbox, &task.default_sandbox].into_iter().flatten().any(|limits| limits.get() != "null");
    // After a restart, it isn't known any more what the device's owner wanted.
    let is_walled = has_limits || !matches!(mode, DispatchMode::Start);
    let others = is_walled.then(|| device.profiles.clone());
    let shelf = ArtifactUploader { others, ..device.artifact_uploader(task.workspace_id) };
    let known = match &mode {
        DispatchMode::Start => DeliveredProgress::default(),
        DispatchMode::Join | DispatchMode::Replay(_) => reported_counts(device, task.task_run_id).await,
    };
    let sent = !matches!(mode, DispatchMode::Start);
    let progress = ProgressReporter::start(claimant.clone(), reports);
    // Only the agent speaks in its run. The hub reports the claim and the device.
    if !sent && let Err(DispatchFailure { code, message }) = instruct(device, &mut task).await {
        return (ExecutionOutcome::failed(code, &message, None).taking(Some(Vec::new())), None);
    }
    let attachments = match sent {
        true => Attachments::default(),
        false => match Attachments::fetch(device.hub(), &task.input, &device.scratch, &device.env).await {
            Ok(attachments) => attachments,
            Err(message) => {
                return (ExecutionOutcome::failed("rejected", &message, None).taking(Some(Vec::new())), None);
            }
        },
    };
    task.files.clone_from(&attachments.files);
    let (run, has_ended, replays) = (claimant.run, CancellationToken::new(), !matches!(mode, DispatchMode::Start));
    let inputs = question_bridge::pass_on_input(device.clone(), run, progress.sender(), has_ended.clone());
    let inputs = AbortOnDropHandle::new(tokio::spawn(inputs));
    let mut listener = AdapterEventListener::new(device.clone(), claimant, known, progress.sender());
    let reply = match mode {
        DispatchMode::Replay(reply) => Ok(replay(device, task.task_run_id, reply, &mut listener).await),
        DispatchMode::Start | DispatchMode::Join => drive(device, &task, sent, &mut listener).await,
    };
    has_ended.cancel();
    let _ = timeout(ANSWER_DRAIN_TIMEOUT, inputs).await;
    drop(attachments);
    listener.drain_answers().await;
    // Once the run has ended, so that its worktree is there if it has one.
    let shelf = match device.worktrees.join(task.task_run_id.to_string()) {
        worktree if worktree.is_dir() => ArtifactUploader { cwd: worktree.canonicalize().ok(), ..shelf },
        _ => shelf,
    };
    // What an adapter accepted counts as delivered, unless it says better. Another process may have passed on some of it.
    let accepted = Some(device.inbox.close(run)).filter(|_| !replays);
    let taken = reply.as_ref().ok().and_then(|reply| reply.inputs_taken.clone()).or(accepted);
    let outcome = match reply {
        Ok(reply) => outcome(&shelf, reply).await,
        Err(DispatchFailure { code, message }) => ExecutionOutcome::failed(code, &message, None),
    };
    let outcome = outcome.taking(taken);
    let untold = progress.finish().await;
    (outcome, untold)
}

/// Replays the events from before the run ended, as far as the adapter remembers them.
async fn replay(
    device: &DeviceRuntime,
    run: RunId,
    reply: TaskReply,
    listener: &mut AdapterEventListener,
) -> TaskReply {
    let replayed = async {
        let mut session = device.adapter.events(run).await?;
        listener.listen(&mut session).await
    };
    match timeout(REPLAY_TIMEOUT, replayed).await {
        Ok(Ok(reply)) => reply,
        Ok(Err(_)) | Err(_) => {
            tracing::warn!(run.id = %run, "the adapter could not replay the output of the task");
            let line = AdapterLogLine {
                level: "warning".to_owned(),
                message: "the runtime restarted while the task ended; the end of its output may be missing here"
                    .to_owned(),
                code: None,
            };
            listener.progress.push(ProgressItem::Log(Json::of(&line)));
            reply
        }
    }
}

/// What the hub already has of the run. Waits until the hub can be reached.
async fn reported_counts(device: &DeviceRuntime, run: RunId) -> DeliveredProgress {
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(5));
    loop {
        match DeliveredProgress::read(device.hub(), run).await {
            Ok(known) => return known,
            Err(error) if error.is_passing() => tokio::time::sleep(backoff.next(&device.env)).await,
            Err(error) => {
                tracing::warn!(run.id = %run, %error, "failed to read what the hub has of the run; some events may appear twice");
                return DeliveredProgress::default();
            }
        }
    }
}

/// The device's instructions come before those of the agent and the conversation.
pub(crate) async fn instruct(device: &DeviceRuntime, task: &mut RunTask) -> Result<(), DispatchFailure> {
    let Some(path) = &device.instruction_file else { return Ok(()) };
    let local = tokio::fs::read_to_string(path).await.map_err(|error| DispatchFailure {
        code: "task_failed",
        message: format!("Can't read the device's instruction file {}: {error}.", path.display()),
    })?;
    task.instructions = Some(match task.instructions.take() {
        Some(instructions) => format!("{}\n\n{instructions}", local.trim_end()),
        None => local,
    });
    Ok(())
}

/// Talks to the adapter until there is a reply. A task is never sent twice unless the adapter says that it is executing
/// it, because agents are not idempotent.
pub(crate) async fn drive(
    device: &DeviceRuntime,
    task: &RunTask,
    mut sent: bool,
    listener: &mut AdapterEventListener,
) -> Result<TaskReply, DispatchFailure> {
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));
    let mut busy = 0;
    loop {
        let trouble = match device.adapter.run_task(task, listener.seen).await {
            Ok(mut session) => {
                sent = true;
                backoff.reset();
                match listener.listen(&mut session).await {
                    Ok(reply) => return Ok(reply),
                    Err(trouble) => trouble,
                }
            }
            Err(trouble) => trouble,
        };
        match trouble {
            AdapterCallError::NotSent(reason) if !sent => {
                if backoff.tries() + 1 >= MAX_HEALTH_ATTEMPTS {
                    return Err(unreachable(device, &reason));
                }
                wait_for_health(device, &mut backoff).await;
            }
            AdapterCallError::NotSent(reason) | AdapterCallError::Broken(reason) => {
                sent = true;
                match after_break(device, task.task_run_id).await {
                    DisconnectedTask::Runs => tokio::time::sleep(backoff.next(&device.env)).await,
                    DisconnectedTask::Ended(reply) => return Ok(reply),
                    DisconnectedTask::Gone => {
                        device.link.notify(&RuntimeNotice::AdapterAway { reason: reason.clone() });
                        let message = format!(
                            "The connection to the adapter broke during the task ({reason}), and the adapter no longer knows the task."
                        );
                        return Err(DispatchFailure { code: UNREACHABLE, message });
                    }
                }
            }
            AdapterCallError::Busy if busy < MAX_BUSY_ATTEMPTS => {
                busy += 1;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            AdapterCallError::Busy => {
                let message = "The adapter stayed busy with another task.".to_owned();
                return Err(DispatchFailure { code: UNREACHABLE, message });
            }
            AdapterCallError::Refused { status: 401 | 403, message } => {
                let message = format!(
                    "The adapter doesn't accept the runtime's secret ({message}). Pair the device again with --adapter-secret-file."
                );
                return Err(DispatchFailure { code: INVALID, message });
            }
            AdapterCallError::Failed(reply) => return Ok(reply),
            AdapterCallError::Refused { status: 502..=504, message } => return Err(unreachable(device, &message)),
            AdapterCallError::Refused { status, message } => {
                let message = format!("The adapter refused the task with status {status}: {message}");
                return Err(DispatchFailure { code: INVALID, message });
            }
            AdapterCallError::Invalid(reason) => {
                // It may still be working, and nothing listens any more.
                let usage = cancel(device, task.task_run_id).await;
                listener.progress.push_usage(usage);
                return Err(DispatchFailure {
                    code: INVALID,
                    message: format!("The adapter's reply is invalid: {reason}."),
                });
            }
        }
    }
}

// === impl AdapterEventListener ===

impl AdapterEventListener {
    pub(crate) fn new(
        device: Arc<DeviceRuntime>,
        claimant: ClaimContext,
        known: DeliveredProgress,
        progress: ProgressSender,
    ) -> Self {
        Self { device, claimant, known, seen: 0, progress, questions: JoinSet::new() }
    }

    /// The run has ended. Answers being delivered may arrive. Open questions need none any more.
    pub(crate) async fn drain_answers(mut self) {
        let brought = async { while self.questions.join_next().await.is_some() {} };
        let _ = timeout(ANSWER_DRAIN_TIMEOUT, brought).await;
    }

    async fn listen(&mut self, session: &mut RunTaskResponse) -> Result<TaskReply, AdapterCallError> {
        loop {
            // Answered questions are dropped.
            while self.questions.try_join_next().is_some() {}
            let happening = session.next().await?;
            match happening {
                AdapterEvent::Result(reply) => return Ok(reply),
                // An adapter that can't resume after the last event replays everything.
                AdapterEvent::Progress { seq, .. } | AdapterEvent::Question { seq, .. } if seq <= self.seen => {}
                AdapterEvent::Progress { seq, piece } => {
                    self.seen = seq;
                    if let Some(piece) = self.known.without(piece) {
                        self.progress.push(piece);
                    }
                }
                AdapterEvent::Question { seq, question } => {
                    self.seen = seq;
                    let (device, claimant, progress) =
                        (self.device.clone(), self.claimant.clone(), self.progress.clone());
                    self.questions.spawn(question_bridge::relay_question(device, claimant, progress, seq, question));
                }
            }
        }
    }
}

/// Checks the adapter's health until it answers or the next attempt is due.
async fn wait_for_health(device: &DeviceRuntime, backoff: &mut Backoff) {
    while backoff.tries() + 1 < MAX_HEALTH_ATTEMPTS {
        tokio::time::sleep(backoff.next(&device.env)).await;
        if device.adapter.health().await.is_ok() {
            return;
        }
    }
}

fn unreachable(device: &DeviceRuntime, reason: &str) -> DispatchFailure {
    device.link.notify(&RuntimeNotice::AdapterAway { reason: reason.to_owned() });
    DispatchFailure {
        code: UNREACHABLE,
        message: format!("Can't reach the adapter on the device ({reason}). Start it there, then try again."),
    }
}

/// Finds out whether the adapter still executes the run, or knows how it ended.
async fn after_break(device: &DeviceRuntime, run: RunId) -> DisconnectedTask {
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));
    while backoff.tries() + 1 < MAX_HEALTH_ATTEMPTS {
        match device.adapter.health().await {
            Ok(health) if health.executes(run) => return DisconnectedTask::Runs,
            Ok(_) => {
                return match device.adapter.cancel(run).await {
                    Ok(Some(reply)) => DisconnectedTask::Ended(reply),
                    Ok(None) | Err(_) => DisconnectedTask::Gone,
                };
            }
            Err(_) => tokio::time::sleep(backoff.next(&device.env)).await,
        }
    }
    DisconnectedTask::Gone
}

/// The outcome of a run, if an adapter that kept running across a restart remembers it.
pub(crate) async fn remembered(device: &DeviceRuntime, run: RunId) -> Option<TaskReply> {
    device.adapter.cancel(run).await.ok().flatten()
}

async fn outcome(shelf: &ArtifactUploader, reply: TaskReply) -> ExecutionOutcome {
    let TaskReply { success, output, error, usage, inputs_taken: _ } = reply;
    let usage = usage.or_else(|| member(output.as_ref()?, "usage"));
    // Invalid usage must not spoil the result.
    let usage = usage.filter(countable);
    match (success, output) {
        (true, Some(output)) => match shelf.upload_all(output).await {
            Ok(output) => ExecutionOutcome::completed(&output, usage.as_ref()),
            Err(message) => ExecutionOutcome::failed(INVALID, &message, usage.as_ref()),
        },
        (true, None) => ExecutionOutcome::failed(INVALID, "The adapter's reply has no `output`.", usage.as_ref()),
        (false, _) => {
            let resets_at = error.as_ref().and_then(|error| error.resets_at);
            let (code, message) = error.map(|error| (error.code, error.message)).unwrap_or_default();
            let code = if code.is_empty() { "task_failed" } else { &code };
            let message =
                if message.is_empty() { "The adapter reported a failure without a message." } else { &message };
            ExecutionOutcome::failed_until(code, message, resets_at, usage.as_ref())
        }
    }
}

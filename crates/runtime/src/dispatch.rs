//! Handing one run to the adapter and bringing its outcome back, whatever happens to the connection in between.

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
    Notice,
    adapter::{AdapterCallError, AdapterEvent, RunTaskResponse, member},
    artifacts::ArtifactUploader,
    attachments::Attachments,
    claim_watch::{self, ClaimSource},
    collaborator,
    device::DeviceRuntime,
    ledger::{ExecutionOutcome, LedgerStep},
    progress::{
        ClaimContext, PendingProgress, ProgressItem, ProgressReporter, ProgressSender, ReportedCounts, countable,
    },
    question_bridge,
    report::{self, OutcomeReport},
};

/// A run that is ready for the adapter.
#[derive(Debug)]
pub(crate) struct RunDispatch {
    pub(crate) task: RunTask,
    /// Who asked, as the hub says.
    pub(crate) caller: String,
    pub(crate) epoch: i64,
    pub(crate) mode: DispatchMode,
    pub(crate) source: ClaimSource,
    /// Reports of this claim are counted after this.
    pub(crate) reports: i64,
}

#[derive(Debug)]
pub(crate) enum DispatchMode {
    Start,
    /// The adapter executes it already; its events come again from the first.
    Join,
    /// It ended with this reply while nobody listened; its events are heard once more.
    Replay(TaskReply),
}

/// Why a task has no reply.
#[derive(Debug)]
pub(crate) struct DispatchFailure {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// What became of a task after the connection to the adapter broke.
enum DisconnectedTask {
    Runs,
    Ended(TaskReply),
    Gone,
}

/// Hears what the adapter says of one run.
pub(crate) struct AdapterListener {
    pub(crate) device: Arc<DeviceRuntime>,
    pub(crate) claimant: ClaimContext,
    pub(crate) known: ReportedCounts,
    /// The newest event that was heard.
    pub(crate) seen: u64,
    pub(crate) progress: ProgressSender,
    /// The questions that wait for their answers. They end with the listener.
    pub(crate) questions: JoinSet<()>,
}

const UNREACHABLE: &str = "adapter_unreachable";
const INVALID: &str = "adapter_invalid_reply";

/// How often a silent adapter is asked for its health before the run fails: about five seconds.
const MAX_HEALTH_ATTEMPTS: u32 = 6;
/// How long another task may occupy the adapter.
const MAX_BUSY_ATTEMPTS: u32 = 30;
const CANCEL_TIMEOUT: Duration = Duration::from_secs(15);
/// How long an adapter may take to tell everything again.
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
        // It has to unmount in the end, so it stops by itself.
        Box::pin(collaborator::delegation_run::work(device, job, claimant, abort)).await
    } else {
        tokio::select! {
            outcome = Box::pin(work(device, job, claimant)) => Ok(outcome),
            reason = stop.requested() => Err(reason),
            () = device.link.denied() => Err("the hub no longer accepts this device".to_owned()),
            () = abort.cancelled() => {
                let usage = cancel(device, run).await;
                let message = "The runtime was stopped before the task had finished.";
                Ok((ExecutionOutcome::failed("runtime_stopped", message, usage.as_ref()), None))
            }
        }
    };
    drop(watcher);
    match ended {
        Ok((outcome, untold)) => {
            report::finish(device, OutcomeReport { run, epoch, outcome, pending_progress: untold }).await
        }
        Err(reason) => {
            // A delegation has stopped its agent already; the adapter still knows how it ended.
            let usage = cancel(device, run).await;
            device.note(device.run_entry(LedgerStep::TaskStopped, run, epoch).because(&reason)).await;
            device.claims.give_up(run, epoch);
            device.link.notify(&Notice::TaskStopped { run, reason });
            if let Some(usage) = usage {
                report::account(device, run, epoch, usage).await;
            }
        }
    }
}

/// Stops the run on this device, and answers what it used in all where its agent told that.
pub(crate) async fn cancel(device: &DeviceRuntime, run: RunId) -> Option<Json> {
    match timeout(CANCEL_TIMEOUT, device.adapter.cancel(run)).await {
        Ok(Ok(reply)) => return reply.and_then(|reply| reply.usage).filter(countable),
        Ok(Err(trouble)) => tracing::warn!(run.id = %run, ?trouble, "the adapter could not be told to stop"),
        Err(_) => tracing::warn!(run.id = %run, "the adapter did not stop the task in time"),
    }
    None
}

async fn work(
    device: &Arc<DeviceRuntime>,
    job: RunDispatch,
    claimant: ClaimContext,
) -> (ExecutionOutcome, Option<PendingProgress>) {
    let RunDispatch { mut task, mode: way, reports, .. } = job;
    let shelf = device.artifact_uploader(task.workspace_id);
    let known = match &way {
        DispatchMode::Start => ReportedCounts::default(),
        DispatchMode::Join | DispatchMode::Replay(_) => reported_counts(device, task.task_run_id).await,
    };
    let sent = !matches!(way, DispatchMode::Start);
    let progress = ProgressReporter::start(claimant.clone(), reports);
    // Only the agent speaks in its run: that it was claimed, and by which device, is the hub's to say.
    if !sent && let Err(DispatchFailure { code, message }) = instruct(device, &mut task).await {
        return (ExecutionOutcome::failed(code, &message, None), None);
    }
    let attachments = match sent {
        true => Attachments::default(),
        false => match Attachments::fetch(device.hub(), &task.input, &device.scratch, &device.env).await {
            Ok(attachments) => attachments,
            Err(message) => return (ExecutionOutcome::failed("rejected", &message, None), None),
        },
    };
    task.files.clone_from(&attachments.files);
    let inputs = question_bridge::pass_on_input(device.clone(), claimant.run, progress.sender());
    let inputs = AbortOnDropHandle::new(tokio::spawn(inputs));
    let mut listener = AdapterListener {
        device: device.clone(),
        claimant,
        known,
        seen: 0,
        progress: progress.sender(),
        questions: JoinSet::new(),
    };
    let reply = match way {
        DispatchMode::Replay(reply) => Ok(replay(device, task.task_run_id, reply, &mut listener).await),
        DispatchMode::Start | DispatchMode::Join => drive(device, &task, sent, &mut listener).await,
    };
    drop(inputs);
    drop(attachments);
    listener.drain_answers().await;
    let outcome = match reply {
        Ok(reply) => outcome(&shelf, reply).await,
        Err(DispatchFailure { code, message }) => ExecutionOutcome::failed(code, &message, None),
    };
    let untold = progress.finish().await;
    (outcome, untold)
}

/// Hears what the adapter said before the run ended, as far as it remembers that.
async fn replay(device: &DeviceRuntime, run: RunId, reply: TaskReply, listener: &mut AdapterListener) -> TaskReply {
    let heard = async {
        let mut session = device.adapter.events(run).await?;
        listener.listen(&mut session).await
    };
    match timeout(REPLAY_TIMEOUT, heard).await {
        Ok(Ok(reply)) => reply,
        Ok(Err(_)) | Err(_) => {
            tracing::warn!(run.id = %run, "the adapter does not tell again what the task said before it ended");
            let line = AdapterLogLine {
                level: "warning".to_owned(),
                message: "the runtime was restarted while the task ended; the end of its output may be missing here"
                    .to_owned(),
                code: None,
            };
            listener.progress.push(ProgressItem::Log(Json::of(&line)));
            reply
        }
    }
}

/// What the hub has of the run already, once it can be asked.
async fn reported_counts(device: &DeviceRuntime, run: RunId) -> ReportedCounts {
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(5));
    loop {
        match ReportedCounts::read(device.hub(), run).await {
            Ok(known) => return known,
            Err(error) if error.is_passing() => tokio::time::sleep(backoff.next(&device.env)).await,
            Err(error) => {
                tracing::warn!(run.id = %run, %error, "what the hub knows of the run cannot be read; some events may appear twice");
                return ReportedCounts::default();
            }
        }
    }
}

/// The device's own instructions come before those of the agent and the conversation.
pub(crate) async fn instruct(device: &DeviceRuntime, task: &mut RunTask) -> Result<(), DispatchFailure> {
    let Some(path) = &device.instruction_file else { return Ok(()) };
    let local = tokio::fs::read_to_string(path).await.map_err(|error| DispatchFailure {
        code: "task_failed",
        message: format!("The device's instruction file {} cannot be read: {error}.", path.display()),
    })?;
    task.instructions = Some(match task.instructions.take() {
        Some(instructions) => format!("{}\n\n{instructions}", local.trim_end()),
        None => local,
    });
    Ok(())
}

/// Talks to the adapter until there is a reply. A task is never sent a second time unless the adapter says that it
/// executes it, for agents are not idempotent.
pub(crate) async fn drive(
    device: &DeviceRuntime,
    task: &RunTask,
    mut sent: bool,
    listener: &mut AdapterListener,
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
                        device.link.notify(&Notice::AdapterAway { reason: reason.clone() });
                        let message = format!(
                            "The connection to the adapter broke while it worked ({reason}), and it does not know the task any more."
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
                    "The adapter does not accept the runtime's secret ({message}). Pair the device again with --adapter-secret-file."
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
                // It may still be at work, and nobody listens any more.
                let usage = cancel(device, task.task_run_id).await;
                listener.progress.push_usage(usage);
                return Err(DispatchFailure {
                    code: INVALID,
                    message: format!("The adapter's reply cannot be used: {reason}."),
                });
            }
        }
    }
}

// === impl AdapterListener ===

impl AdapterListener {
    /// The run is over. An answer that is just being brought may arrive; whatever is still open needs none any more.
    pub(crate) async fn drain_answers(mut self) {
        let brought = async { while self.questions.join_next().await.is_some() {} };
        let _ = timeout(ANSWER_DRAIN_TIMEOUT, brought).await;
    }

    async fn listen(&mut self, session: &mut RunTaskResponse) -> Result<TaskReply, AdapterCallError> {
        loop {
            // Those that are answered need not be kept.
            while self.questions.try_join_next().is_some() {}
            let happening = session.next().await?;
            match happening {
                AdapterEvent::Result(reply) => return Ok(reply),
                // An adapter that cannot go on from the last event tells everything again.
                AdapterEvent::Progress { seq, .. } | AdapterEvent::Question { seq, .. } if seq <= self.seen => {}
                AdapterEvent::Progress { seq, piece } => {
                    self.seen = seq;
                    if let Some(piece) = self.known.without(piece) {
                        self.progress.push(piece);
                    }
                }
                AdapterEvent::Question { seq, asked } => {
                    self.seen = seq;
                    let (device, claimant, progress) =
                        (self.device.clone(), self.claimant.clone(), self.progress.clone());
                    self.questions.spawn(question_bridge::relay_question(device, claimant, progress, seq, asked));
                }
            }
        }
    }
}

/// Asks for the adapter's health until it answers or the next try is due.
async fn wait_for_health(device: &DeviceRuntime, backoff: &mut Backoff) {
    while backoff.tries() + 1 < MAX_HEALTH_ATTEMPTS {
        tokio::time::sleep(backoff.next(&device.env)).await;
        if device.adapter.health().await.is_ok() {
            return;
        }
    }
}

fn unreachable(device: &DeviceRuntime, reason: &str) -> DispatchFailure {
    device.link.notify(&Notice::AdapterAway { reason: reason.to_owned() });
    DispatchFailure {
        code: UNREACHABLE,
        message: format!("The adapter on the device cannot be reached ({reason}). Start it there, then try again."),
    }
}

/// Finds out whether the adapter still executes the run, or remembers how it ended.
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

/// How a run ended, if an adapter that was left alone during a restart remembers it.
pub(crate) async fn remembered(device: &DeviceRuntime, run: RunId) -> Option<TaskReply> {
    device.adapter.cancel(run).await.ok().flatten()
}

async fn outcome(shelf: &ArtifactUploader, reply: TaskReply) -> ExecutionOutcome {
    let TaskReply { success, output, error, usage } = reply;
    let usage = usage.or_else(|| member(output.as_ref()?, "usage"));
    // A strange account of the cost must not spoil the result.
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

//! A run of the type `awcp.delegation`: the conversation with the host, the mount, and the agent's work in it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use attache_delegation::collaborator::{BorrowedFolder, Collaborator, DelegatorMessageOutcome, LeaseEnd, WorkDone};
use attache_protocol::{
    Json,
    json::Members,
    wire::{
        adapter::{AdapterInputRequest, FileRef, FullOutput, RunTask, TaskReply},
        awcp::{AwcpError, AwcpErrorCode, AwcpMessage, TASK_TYPE},
        output::OutputLocation,
        part::Part,
        run::{ClaimedRun, OutputArtifact, OutputMessage, Sandbox},
    },
};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    adapter::member,
    artifacts::ArtifactUploader,
    device::DeviceRuntime,
    dispatch::{self, AdapterEventListener, DispatchFailure, RunDispatch},
    ledger::ExecutionOutcome,
    progress::{
        ClaimContext, DeliveredProgress, PendingProgress, ProgressItem, ProgressReporter, ProgressSender, countable,
    },
    question_bridge,
};

/// How a run ended: with an outcome to report, or because this device no longer holds it, with the reason.
pub(crate) type DelegationRunEnd = Result<(ExecutionOutcome, Option<PendingProgress>), String>;

/// One delegation in progress.
struct DelegationRun<'a> {
    device: &'a Arc<DeviceRuntime>,
    role: Collaborator,
    caller: String,
    claimant: ClaimContext,
    abort: &'a CancellationToken,
}

/// The result of the negotiation with the host.
enum NegotiationOutcome {
    Begin(Box<BorrowedFolder>),
    Over(Box<AwcpMessage>),
}

/// Why the result is no longer needed.
enum RunAbandonment {
    /// This device no longer holds the run.
    Lost(String),
    /// The runtime is shutting down.
    Aborted,
}

#[derive(Deserialize)]
struct DelegationInput {
    #[serde(default)]
    message: Option<OutputMessage>,
}

#[derive(Serialize)]
struct PromptInput<'a> {
    text: &'a str,
}

#[derive(Serialize)]
struct DelegationFailedOutput<'a> {
    error: &'a str,
    code: &'static str,
    message: OutputMessage,
}

/// How long to wait for START after ACCEPT, however long the lease is.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// How many invalid messages are answered by asking again.
const MAX_INVALID_MESSAGES: u32 = 3;
/// The host reports the end first, then cancels the run.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(3);
/// The name of the artifact that carries DONE.
const ARTIFACT: &str = "awcp";

/// Carries out the delegation from the first message to the outcome.
pub(crate) async fn work(
    device: &Arc<DeviceRuntime>,
    job: RunDispatch,
    claimant: ClaimContext,
    abort: &CancellationToken,
) -> DelegationRunEnd {
    let first = read_input(&job.task.input);
    let Some(role) = device.collaborator.clone() else {
        let text = "this agent doesn't accept folders";
        let id = first.as_ref().map(|message| message.delegation().to_owned()).unwrap_or_default();
        return Ok((refused(&AwcpError::new(&id, AwcpErrorCode::Declined, text), None), None));
    };
    let first = match first {
        Ok(first) => first,
        Err(error) => return Ok((refused(&AwcpError::new("", AwcpErrorCode::Declined, error), None), None)),
    };
    let work = DelegationRun { device, role, caller: job.caller.clone(), claimant, abort };
    let mut has_accepted = false;
    let negotiated = tokio::select! {
        negotiated = work.negotiate(first.clone(), &mut has_accepted) => negotiated,
        stopped = work.stopped() => {
            // Another run may work on the same delegation, and continues.
            if has_accepted {
                let text = "the remote's runtime stopped";
                work.role.give_up(&work.caller, AwcpError::new(first.delegation(), AwcpErrorCode::Cancelled, text));
            }
            return stopped.ended(first.delegation());
        }
    };
    match negotiated {
        Ok(NegotiationOutcome::Begin(folder)) => work.begin(folder, job).await,
        Ok(NegotiationOutcome::Over(last)) => Ok((work.outcome_with(*last, None, None).await?, None)),
        Err(reason) => Err(reason),
    }
}

/// The outcome of a delegation that was in progress when the runtime was stopped or killed.
pub(crate) fn outcome_after_restart(delegation: &str) -> ExecutionOutcome {
    let text = "the remote's runtime restarted during the work; the folder was unmounted";
    refused(&AwcpError::new(delegation, AwcpErrorCode::TaskFailed, text), None)
}

/// The id of the delegation that a run is about.
pub(crate) fn delegation_of(run: &ClaimedRun) -> Option<String> {
    let is_delegation = run.task_type == TASK_TYPE;
    is_delegation.then(|| read_input(&run.input).ok()).flatten().map(|message| message.delegation().to_owned())
}

fn read_input(input: &Json) -> Result<AwcpMessage, String> {
    if let Ok(DelegationInput { message: Some(OutputMessage { parts }) }) = input.parse() {
        return AwcpMessage::among(&parts).map_err(|error| error.to_string());
    }
    AwcpMessage::read(input).map_err(|error| error.to_string())
}

// === impl DelegationRun ===

impl DelegationRun<'_> {
    /// Answers messages until there is work to do or the delegation has ended. `has_accepted` tells the caller whether
    /// START is awaited.
    async fn negotiate(&self, first: AwcpMessage, has_accepted: &mut bool) -> Result<NegotiationOutcome, String> {
        let mut outcome = self.handle_message(first).await;
        let (mut round, mut mistakes) = (0, 0);
        let over = |last| Ok(NegotiationOutcome::Over(Box::new(last)));
        loop {
            let accept = match outcome {
                DelegatorMessageOutcome::Begin(folder) => return Ok(NegotiationOutcome::Begin(folder)),
                DelegatorMessageOutcome::Underway(mut pending) => return over(pending.final_message().await),
                DelegatorMessageOutcome::Reply(AwcpMessage::Accept(accept)) => accept,
                DelegatorMessageOutcome::Ended(last) | DelegatorMessageOutcome::Reply(last) => return over(last),
            };
            *has_accepted = true;
            let id = accept.delegation_id.clone();
            let accept = AwcpMessage::Accept(accept);
            outcome = loop {
                round += 1;
                let request = AdapterInputRequest {
                    id: Some(format!("awcp.{round}")),
                    prompt: "The delegation is accepted. Send START.".to_owned(),
                    parts: Some(Json::of(&[accept.part()])),
                };
                let answer = match timeout(START_TIMEOUT, question_bridge::ask_caller(&self.claimant, &request)).await {
                    Err(_) => {
                        let text = format!("START did not arrive within {} s of ACCEPT", START_TIMEOUT.as_secs());
                        let error = AwcpError::new(&id, AwcpErrorCode::StartExpired, text);
                        return over(self.role.give_up(&self.caller, error));
                    }
                    Ok(Ok(Some(parts))) => parts,
                    Ok(Ok(None)) => return Err("the run has ended at the hub".to_owned()),
                    Ok(Err(error)) => return Err(error.to_string()),
                };
                let read = answer.parse::<Vec<Part>>().map_err(|error| error.to_string());
                match read.and_then(|parts| AwcpMessage::among(&parts).map_err(|error| error.to_string())) {
                    Ok(message) if message.delegation() == id => break self.handle_message(message).await,
                    Ok(_) | Err(_) if mistakes < MAX_INVALID_MESSAGES => mistakes += 1,
                    Ok(_) | Err(_) => {
                        let text = "expected START for this delegation, but received something else";
                        let error = AwcpError::new(&id, AwcpErrorCode::Declined, text);
                        return over(self.role.give_up(&self.caller, error));
                    }
                }
            };
        }
    }

    /// Reads the policy and creates folders, so it runs on a blocking thread.
    async fn handle_message(&self, message: AwcpMessage) -> DelegatorMessageOutcome {
        let (role, caller, id) = (self.role.clone(), self.caller.clone(), message.delegation().to_owned());
        let walls = self.device.adapter.walls().await;
        let handled = tokio::task::spawn_blocking(move || role.handle_message(&message, &caller, &walls)).await;
        handled.unwrap_or_else(|error| {
            tracing::error!(%error, "failed to handle an AWCP message");
            DelegatorMessageOutcome::Reply(AwcpMessage::Error(AwcpError::new(
                &id,
                AwcpErrorCode::TaskFailed,
                "internal error at the remote; see its log",
            )))
        })
    }

    /// Waits for a reason to stop that doesn't come from the host.
    async fn stopped(&self) -> RunAbandonment {
        tokio::select! {
            reason = self.claimant.stop.requested() => RunAbandonment::Lost(reason),
            () = self.device.link.denied() => RunAbandonment::Lost("the hub no longer accepts this device".to_owned()),
            () = self.abort.cancelled() => RunAbandonment::Aborted,
        }
    }

    /// Mounts the folder and lets the agent work in it. However it ends, the agent's processes are stopped first, then
    /// the folder is unmounted, and only then is the end reported.
    async fn begin(&self, mut folder: Box<BorrowedFolder>, job: RunDispatch) -> DelegationRunEnd {
        let progress = ProgressReporter::start(self.claimant.clone(), job.reports);
        progress.push(note("Mounting the folder.".to_owned()));
        let mounted = tokio::select! {
            mounted = folder.mount() => mounted,
            stopped = self.stopped() => return self.abandon(*folder, stopped).await,
        };
        if let Err(error) = mounted {
            return Ok((self.fail(*folder, error, None).await?, progress.finish().await));
        }
        progress.push(note("Mounted the folder.".to_owned()));
        let mut task = task(job.task, &folder);
        if let Err(DispatchFailure { message, .. }) = dispatch::instruct(self.device, &mut task).await {
            let error = folder.error(AwcpErrorCode::TaskFailed, message);
            return Ok((self.fail(*folder, error, None).await?, progress.finish().await));
        }
        let (device, sender) = (self.device.clone(), progress.sender());
        let mut listener =
            AdapterEventListener::new(device, self.claimant.clone(), DeliveredProgress::default(), sender);
        enum AgentWorkEnd {
            Reply(Result<TaskReply, DispatchFailure>),
            Over(LeaseEnd),
            Stopped(RunAbandonment),
        }
        let (id, sender) = (folder.invite().delegation_id.clone(), progress.sender());
        let end = tokio::select! {
            reply = Box::pin(dispatch::drive(self.device, &task, false, &mut listener)) => AgentWorkEnd::Reply(reply),
            end = folder.ended() => AgentWorkEnd::Over(end),
            stopped = self.stopped() => AgentWorkEnd::Stopped(stopped),
            never = self.pass_on(&id, &sender) => match never {},
        };
        let outcome = match end {
            AgentWorkEnd::Reply(reply) => {
                listener.drain_answers().await;
                self.outcome(*folder, &task, reply).await?
            }
            AgentWorkEnd::Over(reason) => {
                progress.sender().push_usage(dispatch::cancel(self.device, task.task_run_id).await);
                let error = folder.error_of(&reason);
                self.fail(*folder, error, None).await?
            }
            AgentWorkEnd::Stopped(stopped) => {
                progress.sender().push_usage(dispatch::cancel(self.device, task.task_run_id).await);
                let (outcome, _) = self.abandon(*folder, stopped).await?;
                return Ok((outcome, progress.finish().await));
            }
        };
        Ok((outcome, progress.finish().await))
    }

    /// Ends the work, because its result is no longer needed.
    async fn abandon(&self, folder: BorrowedFolder, stopped: RunAbandonment) -> DelegationRunEnd {
        let (id, error) = (
            folder.invite().delegation_id.clone(),
            folder.error(AwcpErrorCode::Cancelled, "the remote was stopped before the work was done"),
        );
        folder.fail(error).await;
        stopped.ended(&id)
    }

    /// Relays what arrives while the agent works: AWCP messages to the collaborator, anything else to the agent.
    async fn pass_on(&self, id: &str, progress: &ProgressSender) -> std::convert::Infallible {
        loop {
            let input = self.device.inbox.input(self.claimant.run).await;
            let message = input.parts.parse::<Vec<Part>>().ok().and_then(|parts| AwcpMessage::among(&parts).ok());
            if let Some(message) = message {
                // An end reaches the work through `BorrowedFolder::ended`. A repeated START changes nothing. Messages
                // about other delegations are ignored.
                if message.delegation() == id {
                    drop(self.handle_message(message).await);
                }
                continue;
            }
            question_bridge::relay_unsolicited_input(self.device, self.claimant.run, input, progress).await;
        }
    }

    /// Turns the agent's reply into the outcome for the host. Files in the reply are uploaded while the folder is
    /// mounted.
    async fn outcome(
        &self,
        folder: BorrowedFolder,
        task: &RunTask,
        reply: Result<TaskReply, DispatchFailure>,
    ) -> Result<ExecutionOutcome, String> {
        let TaskReply { success, output, error, usage, inputs_taken: _ } = match reply {
            Ok(reply) => reply,
            Err(DispatchFailure { message, .. }) => TaskReply::failed("", message),
        };
        let usage = usage.or_else(|| member(output.as_ref()?, "usage")).filter(countable);
        let output = output.unwrap_or_else(Json::empty_object);
        if !success {
            let message = error.map(|error| error.message).filter(|message| !message.is_empty());
            let error =
                folder.error(AwcpErrorCode::TaskFailed, message.unwrap_or_else(|| "the agent failed".to_owned()));
            return self.fail(folder, error, usage.as_ref()).await;
        }
        let highlights = named_files(&output);
        let mount_point = PathBuf::from(folder.mount_point());
        let cwd = Some(mount_point.canonicalize().unwrap_or(mount_point));
        let uploader = ArtifactUploader { cwd, ..self.device.artifact_uploader(task.workspace_id) };
        let output = match uploader.upload_all(output).await {
            Ok(output) => output,
            Err(message) => {
                let error = folder.error(AwcpErrorCode::TaskFailed, message);
                return self.fail(folder, error, usage.as_ref()).await;
            }
        };
        let full_output = OutputLocation::of(&output)
            .map(|location| OutputLocation { task_run_id: Some(task.task_run_id), ..location });
        let final_summary = output.text_member("text").unwrap_or_default();
        let last = folder.done(WorkDone { final_summary, highlights, notes: None, full_output }).await;
        self.outcome_with(last, Some(&output), usage.as_ref()).await
    }

    /// Ends the delegation with an error.
    async fn fail(
        &self,
        folder: BorrowedFolder,
        error: AwcpError,
        usage: Option<&Json>,
    ) -> Result<ExecutionOutcome, String> {
        let last = folder.fail(error).await;
        self.outcome_with(last, None, usage).await
    }

    /// The final message as the outcome of the run.
    async fn outcome_with(
        &self,
        last: AwcpMessage,
        output: Option<&Json>,
        usage: Option<&Json>,
    ) -> Result<ExecutionOutcome, String> {
        match last {
            AwcpMessage::Done(done) => {
                let text = done.final_summary.clone();
                let output = done_output(output, &text, &AwcpMessage::Done(done));
                Ok(ExecutionOutcome::completed(&output, usage))
            }
            AwcpMessage::Error(error) => {
                // The host also cancels the run, which is the proper end.
                if error.code == AwcpErrorCode::Cancelled
                    && let Ok(reason) = timeout(CANCEL_TIMEOUT, self.claimant.stop.requested()).await
                {
                    return Err(reason);
                }
                Ok(refused(&error, usage))
            }
            other => Err(format!("{} does not end a delegation", other.kind())),
        }
    }
}

// === impl RunAbandonment ===

impl RunAbandonment {
    fn ended(self, delegation: &str) -> DelegationRunEnd {
        match self {
            Self::Lost(reason) => Err(reason),
            Self::Aborted => {
                let text = "the remote's runtime was stopped before the work was done";
                Ok((refused(&AwcpError::new(delegation, AwcpErrorCode::TaskFailed, text), None), None))
            }
        }
    }
}

/// The task for the agent: the host's prompt, in the host's folder. `BorrowedFolder::ended` watches the deadline, on
/// the monotonic clock.
fn task(task: RunTask, folder: &BorrowedFolder) -> RunTask {
    let path = folder.mount_point().display().to_string();
    RunTask {
        input: Json::of(&PromptInput { text: &folder.invite().task.prompt }),
        cwd: Some(path.clone()),
        workspace_root: Some(path),
        sandbox: Some(Json::of(&Sandbox::from(folder.sandbox()))),
        default_sandbox: None,
        // The folder belongs to someone else and disappears afterwards.
        worktrees: None,
        for_owner: false,
        host_session: None,
        parent_task_run_id: None,
        ..task
    }
}

fn note(message: String) -> ProgressItem {
    ProgressItem::Progress { message: Some(message), percent: None, usage: None }
}

/// The files that the agent's result names as worth looking at.
fn named_files(output: &Json) -> Vec<String> {
    let refs = member(output, "artifact_refs").and_then(|refs| refs.parse::<Vec<Json>>().ok()).unwrap_or_default();
    let full = member(output, "full_output").and_then(|full| full.parse::<FullOutput>().ok());
    // Captured output isn't a file in the folder.
    let printed = full.and_then(|full| full.artifact_index);
    let named = refs.iter().enumerate().filter(|(index, _)| Some(*index) != printed).map(|(_, entry)| entry);
    named.filter_map(|entry| entry.parse::<FileRef>().ok()).map(|file| file.path).collect()
}

/// The agent's output with DONE as one more artifact.
fn done_output(output: Option<&Json>, text: &str, done: &AwcpMessage) -> Json {
    let artifact = OutputArtifact { artifact_id: None, name: Some(ARTIFACT.to_owned()), parts: vec![done.part()] };
    let mut members =
        output.and_then(|output| output.parse::<Members>().ok()).map(|members| members.0).unwrap_or_default();
    if !members.iter().any(|(name, _)| name == "text") {
        members.insert(0, ("text".to_owned(), Json::of(text)));
    }
    let existing =
        members.iter().find(|(name, _)| name == "artifacts").and_then(|(_, value)| value.parse::<Vec<Json>>().ok());
    members.retain(|(name, _)| name != "artifacts");
    let mut artifacts = existing.unwrap_or_default();
    artifacts.push(Json::of(&artifact));
    members.push(("artifacts".to_owned(), Json::of(&artifacts)));
    Json::of(&Members(members))
}

/// ERROR as the failure of a run.
fn refused(error: &AwcpError, usage: Option<&Json>) -> ExecutionOutcome {
    let code = match error.code {
        AwcpErrorCode::Declined | AwcpErrorCode::DepMissing | AwcpErrorCode::MountpointDenied => "rejected",
        AwcpErrorCode::Expired | AwcpErrorCode::StartExpired => "expired",
        AwcpErrorCode::AuthFailed
        | AwcpErrorCode::MountFailed
        | AwcpErrorCode::TaskFailed
        | AwcpErrorCode::Cancelled => "task_failed",
    };
    let message = OutputMessage { parts: vec![AwcpMessage::Error(error.clone()).part()] };
    let output = Json::of(&DelegationFailedOutput { error: &error.message, code, message });
    ExecutionOutcome::failed_as(&output, usage)
}

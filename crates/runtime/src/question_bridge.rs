//! The question bridge: relays a question of the adapter to the hub, and the answer back to the process that waits for
//! it.
//!
//! A question has the same id everywhere, built from the claim and the adapter's own id. So it can be asked again over
//! another transport, by another process or after a restart: the hub still sees one question with one answer.

use std::{sync::Arc, time::Duration};

use attache_client::{Backoff, Error, channel::ChannelHandle};
use attache_protocol::{
    Json, RunId,
    rules::permission::PermissionState,
    wire::{
        adapter::{
            AdapterInputAnswer, AdapterInputRequest, AdapterLogLine, AdapterPermissionDecision,
            AdapterPermissionRequest,
        },
        envelope::{ApprovalResponse, RequireApproval, RequireInput},
        input_request::{CreateInputRequest, WorkerRequestState},
        permission::{CreatePermissionRequest, PermissionAnswer},
    },
};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::{
    RuntimeNotice,
    adapter::{AdapterCallError, AdapterQuestion},
    device::DeviceRuntime,
    hub_transport::is_disconnect,
    inbox::CallerInput,
    notice::{AnswerKind, QuestionNotice},
    progress::{ClaimContext, ProgressItem, ProgressSender},
};

/// The answer to a question.
enum RelayedAnswer {
    Permission(AdapterPermissionDecision),
    Input(InputParts),
    /// The answer is no longer needed: the run ended or lost its claim.
    Nothing,
}

#[derive(Deserialize)]
struct InputParts {
    parts: Json,
    #[serde(default)]
    message: Option<Json>,
}

/// How long one call waits for the answer over HTTP.
const ANSWER_WAIT_TIMEOUT: Duration = Duration::from_secs(20);
/// The length limit of an adapter's own id for a question. The rest is cut off.
const MAX_QUESTION_ID: usize = 128;
const INPUT_NOT_DELIVERED: &str =
    "the agent on this device doesn't accept input while it works; the input was not delivered";

/// Asks until there is an answer, and delivers it to the adapter. Dropping it leaves the question open.
pub(crate) async fn relay_question(
    device: Arc<DeviceRuntime>,
    claimant: ClaimContext,
    progress: ProgressSender,
    seq: u64,
    question: AdapterQuestion,
) {
    let run = claimant.run;
    let notice = match &question {
        AdapterQuestion::Permission(question) => QuestionNotice::Permission { tool: question.tool.clone() },
        AdapterQuestion::Input(question) => QuestionNotice::Input { prompt: question.prompt.clone() },
    };
    device.link.notify(&RuntimeNotice::Asked { run, question: notice });
    // The person who answers must first see what led to the question.
    progress.caught_up().await;
    let answer = match &question {
        AdapterQuestion::Permission(question) => permission(&claimant, question).await,
        AdapterQuestion::Input(question) => input(&claimant, seq, question).await,
    };
    let answer = match (answer, &question) {
        (Ok(answer), _) => answer,
        (Err(error), _) if crate::report::is_final(&error) => {
            return claimant.stop.set(error.to_string());
        }
        // The hub will never accept this question. Unanswered requests are denied, and the agent should know why.
        (Err(error), AdapterQuestion::Permission(_)) => {
            progress.push(warning(format!("the hub did not accept a question: {error}")));
            let comment = Some(format!("the request could not be sent: {error}"));
            RelayedAnswer::Permission(AdapterPermissionDecision { approved: false, scope: None, comment })
        }
        (Err(error), AdapterQuestion::Input(_)) => {
            return progress.push(warning(format!("the hub did not accept a question: {error}")));
        }
    };
    let notice = match (&answer, &question) {
        (RelayedAnswer::Permission(answer), _) if answer.approved => AnswerKind::Approved,
        (RelayedAnswer::Permission(_), _) => AnswerKind::Denied,
        (RelayedAnswer::Input(_), _) => AnswerKind::Input,
        (RelayedAnswer::Nothing, _) => return,
    };
    deliver(&device, &claimant, &question, answer).await;
    device.link.notify(&RuntimeNotice::Answered { run, answer: notice });
}

/// Asks the caller on the runtime's own behalf. `None` if the answer is no longer needed.
pub(crate) async fn ask_caller(claimant: &ClaimContext, request: &AdapterInputRequest) -> Result<Option<Json>, Error> {
    claimant.link.notify(&RuntimeNotice::Asked {
        run: claimant.run,
        question: QuestionNotice::Input { prompt: request.prompt.clone() },
    });
    match input(claimant, 0, request).await? {
        RelayedAnswer::Input(InputParts { parts, .. }) => {
            claimant.link.notify(&RuntimeNotice::Answered { run: claimant.run, answer: AnswerKind::Input });
            Ok(Some(parts))
        }
        RelayedAnswer::Permission(_) | RelayedAnswer::Nothing => Ok(None),
    }
}

async fn permission(claimant: &ClaimContext, request: &AdapterPermissionRequest) -> Result<RelayedAnswer, Error> {
    let name = name(claimant, "permission", &request.id);
    let AdapterPermissionRequest { tool, input, cwd, paths, reason, risk, diff, undisclosed, assured, .. } =
        request.clone();
    let (run, epoch) = (claimant.run, claimant.epoch);
    let frame = RequireApproval {
        task_run_id: run,
        epoch,
        tool: tool.clone(),
        input: input.clone(),
        cwd: cwd.clone(),
        paths: Some(paths.clone()),
        reason: reason.clone(),
        risk: risk.clone(),
        diff: diff.clone(),
        undisclosed: (!undisclosed.is_empty()).then(|| undisclosed.clone()),
        assured: (!assured.is_empty()).then(|| assured.clone()),
    };
    let call = CreatePermissionRequest {
        epoch: Some(epoch),
        tool,
        input,
        cwd,
        paths,
        reason,
        risk,
        diff,
        undisclosed,
        assured,
        request_id: Some(name.clone()),
    };
    let (hub, call) = (&claimant.transport.hub, &call);
    let by_http = move || async move {
        let mut answer = hub.request_permission(run, call).await?;
        while answer.state == PermissionState::Pending {
            answer = hub.permission_answer(run, answer.permission_request_id, ANSWER_WAIT_TIMEOUT).await?;
        }
        let PermissionAnswer { state, approved, scope, comment, .. } = answer;
        Ok(match state {
            PermissionState::Cancelled => RelayedAnswer::Nothing,
            _ => RelayedAnswer::Permission(AdapterPermissionDecision {
                approved: approved == Some(true),
                scope,
                comment,
            }),
        })
    };
    let by_channel = |payload: Json| {
        let ApprovalResponse { approved, scope, comment, .. } = payload.parse().map_err(malformed_answer)?;
        Ok(RelayedAnswer::Permission(AdapterPermissionDecision { approved, scope, comment }))
    };
    ask(claimant, &name, &frame.payload(), by_channel, by_http).await
}

async fn input(claimant: &ClaimContext, seq: u64, request: &AdapterInputRequest) -> Result<RelayedAnswer, Error> {
    let id = request.id.clone().unwrap_or_else(|| seq.to_string());
    let name = name(claimant, "input", &id);
    let AdapterInputRequest { prompt, parts, .. } = request.clone();
    let (run, epoch) = (claimant.run, claimant.epoch);
    let frame = RequireInput { task_run_id: run, epoch, prompt: prompt.clone(), parts: parts.clone() };
    let call = CreateInputRequest { epoch: Some(epoch), prompt, parts, request_id: Some(name.clone()) };
    let (hub, call) = (&claimant.transport.hub, &call);
    let by_http = move || async move {
        let mut answer = hub.request_input(run, call).await?;
        while answer.state == WorkerRequestState::Pending {
            answer = hub.input_answer(run, answer.input_request_id, ANSWER_WAIT_TIMEOUT).await?;
        }
        let message = answer.message;
        Ok(answer.parts.map_or(RelayedAnswer::Nothing, |parts| RelayedAnswer::Input(InputParts { parts, message })))
    };
    let by_channel = |payload: Json| payload.parse().map(RelayedAnswer::Input).map_err(malformed_answer);
    ask(claimant, &name, &frame.payload(), by_channel, by_http).await
}

/// Asks over the channel while it is open, otherwise over HTTP, and switches between them as needed. A question that
/// doesn't fit into a frame is sent over HTTP, where the hub can refuse it properly.
async fn ask<F: Future<Output = Result<RelayedAnswer, Error>>>(
    claimant: &ClaimContext,
    name: &str,
    frame: &Json,
    by_channel: impl Fn(Json) -> Result<RelayedAnswer, Error>,
    by_http: impl Fn() -> F,
) -> Result<RelayedAnswer, Error> {
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
    let channel = claimant.transport.channel_for(frame);
    loop {
        if let Some(channel) = channel.filter(|channel| channel.is_connected()) {
            match channel.request(Some(name.to_owned()), frame.clone()).await {
                Ok(payload) => return by_channel(payload),
                Err(error) if is_disconnect(&error) => {}
                Err(error) if error.is_passing() => {
                    tokio::time::sleep(backoff.next(&claimant.env)).await;
                    continue;
                }
                Err(error) => return Err(error),
            }
        }
        match unless_channel_opens(channel, by_http()).await {
            None => {}
            Some(Ok(answer)) => return Ok(answer),
            // The hub is away, so the question waits. Any other error is returned.
            Some(Err(error)) if error.is_passing() => {
                claimant.link.failed(&error);
                unless_channel_opens(channel, tokio::time::sleep(backoff.next(&claimant.env))).await;
            }
            Some(Err(error)) => return Err(error),
        }
    }
}

/// Waits for a call, or for the channel, which delivers the answer sooner. `None` if the channel opened.
async fn unless_channel_opens<T>(channel: Option<&ChannelHandle>, call: impl Future<Output = T>) -> Option<T> {
    let Some(channel) = channel else { return Some(call.await) };
    tokio::select! {
        done = call => Some(done),
        () = channel.connected() => None,
    }
}

/// Delivers the answer to the adapter, with retries. An adapter that refuses it doesn't need it any more.
async fn deliver(device: &DeviceRuntime, claimant: &ClaimContext, question: &AdapterQuestion, answer: RelayedAnswer) {
    let run = claimant.run;
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
    loop {
        let delivered = match (&answer, question) {
            (RelayedAnswer::Permission(answer), AdapterQuestion::Permission(question)) => {
                device.adapter.decide(run, &question.id, answer).await
            }
            (RelayedAnswer::Input(InputParts { parts, message }), AdapterQuestion::Input(question)) => {
                let (parts, message) = (parts.clone(), message.clone());
                device
                    .adapter
                    .send_input(run, &AdapterInputAnswer { id: question.id.clone(), parts, message, input_id: None })
                    .await
            }
            _ => return,
        };
        match delivered {
            Ok(()) => return,
            Err(AdapterCallError::NotSent(reason) | AdapterCallError::Broken(reason)) => {
                tracing::debug!(run.id = %run, reason, "failed to deliver an answer to the adapter; trying again");
                tokio::time::sleep(backoff.next(&claimant.env)).await;
            }
            Err(error) => return tracing::warn!(run.id = %run, ?error, "the adapter did not accept an answer"),
        }
    }
}

/// Relays unsolicited input from the caller until its run has ended. What is on its way to the adapter then gets there
/// first.
pub(crate) async fn pass_on_input(
    device: Arc<DeviceRuntime>,
    run: RunId,
    progress: ProgressSender,
    ended: CancellationToken,
) {
    while let Some(input) = ended.run_until_cancelled(device.inbox.input(run)).await {
        relay_unsolicited_input(&device, run, input, &progress).await;
    }
}

/// Delivers unsolicited input to the adapter. If the agent doesn't accept any, a log line tells the caller that it was
/// not delivered.
pub(crate) async fn relay_unsolicited_input(
    device: &DeviceRuntime,
    run: RunId,
    CallerInput { id: input_id, parts }: CallerInput,
    progress: &ProgressSender,
) {
    // Not repeated after a broken connection: the adapter may have received it already.
    match device.adapter.send_input(run, &AdapterInputAnswer { id: None, parts, message: None, input_id }).await {
        Ok(()) => device.inbox.accept(run, input_id),
        Err(AdapterCallError::Refused { status: 404, .. }) => {
            let line = AdapterLogLine {
                code: Some(AdapterLogLine::INPUT_UNHEARD.to_owned()),
                ..AdapterLogLine::new("warning", INPUT_NOT_DELIVERED)
            };
            progress.push(ProgressItem::Log(Json::of(&line)));
        }
        Err(error) => tracing::warn!(run.id = %run, ?error, "the adapter did not accept input"),
    }
}

/// The same for the same question of the same claim, whichever process asks it.
fn name(claimant: &ClaimContext, kind: &str, id: &str) -> String {
    format!("{kind}.{}.{}.{}", claimant.run, claimant.epoch, plain(id))
}

/// The adapter's own id, in characters that every transport accepts.
fn plain(id: &str) -> String {
    let mut plain = String::new();
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b':' => plain.push(char::from(byte)),
            other => plain.push_str(&format!("%{other:02x}")),
        }
    }
    plain.truncate(MAX_QUESTION_ID);
    plain
}

fn warning(message: String) -> ProgressItem {
    ProgressItem::Log(Json::of(&AdapterLogLine::new("warning", message)))
}

fn malformed_answer(error: serde_json::Error) -> Error {
    Error::BadReply { address: "the channel".to_owned(), reason: error.to_string() }
}

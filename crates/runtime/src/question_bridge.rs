//! The permission bridge: a question of the adapter goes to the hub, its answer back to the process that waits for it.
//!
//! The question has one name everywhere, made of the claim and the adapter's own name for it. So it may be asked again
//! over another way, by another process, after any restart: it is one question at the hub, with one answer.

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

use crate::{
    Notice,
    adapter::{AdapterCallError, AdapterQuestion},
    device::DeviceRuntime,
    hub_transport::is_disconnect,
    notice::{AnswerNotice, QuestionNotice},
    progress::{ClaimContext, ProgressItem, ProgressSender},
};

/// What came back.
enum QuestionAnswer {
    Permission(AdapterPermissionDecision),
    Input(InputParts),
    /// Nobody needs the answer any more: the run ended or lost its claim.
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
/// How long an adapter's own name for a question may be; the rest of a longer one does not count.
const MAX_QUESTION_ID: usize = 128;
const INPUT_NOT_DELIVERED: &str =
    "the agent of this device cannot be spoken to while it works; what was said did not reach it";

/// Asks until there is an answer, and brings it to the adapter. Dropping it leaves the question open.
pub(crate) async fn relay_question(
    device: Arc<DeviceRuntime>,
    claimant: ClaimContext,
    progress: ProgressSender,
    seq: u64,
    asked: AdapterQuestion,
) {
    let run = claimant.run;
    let question = match &asked {
        AdapterQuestion::Permission(asked) => QuestionNotice::Permission { tool: asked.tool.clone() },
        AdapterQuestion::Input(asked) => QuestionNotice::Input { prompt: asked.prompt.clone() },
    };
    device.link.notify(&Notice::Asked { run, question });
    // Whoever answers has read what led to the question.
    progress.caught_up().await;
    let given = match &asked {
        AdapterQuestion::Permission(asked) => permission(&claimant, asked).await,
        AdapterQuestion::Input(asked) => input(&claimant, seq, asked).await,
    };
    let given = match (given, &asked) {
        (Ok(given), _) => given,
        (Err(error), _) if crate::report::is_final(&error) => {
            return claimant.stop.set(error.to_string());
        }
        // The hub will never take this question. No answer means no, and the agent should know why.
        (Err(error), AdapterQuestion::Permission(_)) => {
            progress.push(warning(format!("the hub did not take a question: {error}")));
            let comment = Some(format!("nobody could be asked: {error}"));
            QuestionAnswer::Permission(AdapterPermissionDecision { approved: false, scope: None, comment })
        }
        (Err(error), AdapterQuestion::Input(_)) => {
            return progress.push(warning(format!("the hub did not take a question: {error}")));
        }
    };
    let answer = match (&given, &asked) {
        (QuestionAnswer::Permission(given), _) if given.approved => AnswerNotice::Approved,
        (QuestionAnswer::Permission(_), _) => AnswerNotice::Denied,
        (QuestionAnswer::Input(_), _) => AnswerNotice::Input,
        (QuestionAnswer::Nothing, _) => return,
    };
    deliver(&device, &claimant, &asked, given).await;
    device.link.notify(&Notice::Answered { run, answer });
}

/// Asks the caller on the runtime's own behalf. None when nobody needs the answer any more.
pub(crate) async fn ask_caller(claimant: &ClaimContext, asked: &AdapterInputRequest) -> Result<Option<Json>, Error> {
    claimant
        .link
        .notify(&Notice::Asked { run: claimant.run, question: QuestionNotice::Input { prompt: asked.prompt.clone() } });
    match input(claimant, 0, asked).await? {
        QuestionAnswer::Input(InputParts { parts, .. }) => {
            claimant.link.notify(&Notice::Answered { run: claimant.run, answer: AnswerNotice::Input });
            Ok(Some(parts))
        }
        QuestionAnswer::Permission(_) | QuestionAnswer::Nothing => Ok(None),
    }
}

async fn permission(claimant: &ClaimContext, asked: &AdapterPermissionRequest) -> Result<QuestionAnswer, Error> {
    let name = name(claimant, "permission", &asked.id);
    let AdapterPermissionRequest { tool, input, cwd, paths, reason, risk, diff, undisclosed, .. } = asked.clone();
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
            PermissionState::Cancelled => QuestionAnswer::Nothing,
            _ => QuestionAnswer::Permission(AdapterPermissionDecision {
                approved: approved == Some(true),
                scope,
                comment,
            }),
        })
    };
    let by_channel = |payload: Json| {
        let ApprovalResponse { approved, scope, comment, .. } = payload.parse().map_err(malformed_answer)?;
        Ok(QuestionAnswer::Permission(AdapterPermissionDecision { approved, scope, comment }))
    };
    ask(claimant, &name, &frame.payload(), by_channel, by_http).await
}

async fn input(claimant: &ClaimContext, seq: u64, asked: &AdapterInputRequest) -> Result<QuestionAnswer, Error> {
    let id = asked.id.clone().unwrap_or_else(|| seq.to_string());
    let name = name(claimant, "input", &id);
    let AdapterInputRequest { prompt, parts, .. } = asked.clone();
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
        Ok(answer.parts.map_or(QuestionAnswer::Nothing, |parts| QuestionAnswer::Input(InputParts { parts, message })))
    };
    let by_channel = |payload: Json| payload.parse().map(QuestionAnswer::Input).map_err(malformed_answer);
    ask(claimant, &name, &frame.payload(), by_channel, by_http).await
}

/// Asks over the channel while there is one, else over HTTP, and changes from one to the other as often as it takes.
/// What no frame can hold goes over HTTP, where the hub can say so.
async fn ask<F: Future<Output = Result<QuestionAnswer, Error>>>(
    claimant: &ClaimContext,
    name: &str,
    frame: &Json,
    by_channel: impl Fn(Json) -> Result<QuestionAnswer, Error>,
    by_http: impl Fn() -> F,
) -> Result<QuestionAnswer, Error> {
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
            Some(Ok(given)) => return Ok(given),
            // The hub is away: the question waits. Anything else that it says is for whoever asked.
            Some(Err(error)) if error.is_passing() => {
                claimant.link.failed(&error);
                unless_channel_opens(channel, tokio::time::sleep(backoff.next(&claimant.env))).await;
            }
            Some(Err(error)) => return Err(error),
        }
    }
}

/// Waits for a call, or for the channel, which brings the answer sooner; none when it is the channel.
async fn unless_channel_opens<T>(channel: Option<&ChannelHandle>, call: impl Future<Output = T>) -> Option<T> {
    let Some(channel) = channel else { return Some(call.await) };
    tokio::select! {
        done = call => Some(done),
        () = channel.connected() => None,
    }
}

/// Tells the adapter, as often as it takes. One that does not want the answer any more has its reasons.
async fn deliver(device: &DeviceRuntime, claimant: &ClaimContext, asked: &AdapterQuestion, given: QuestionAnswer) {
    let run = claimant.run;
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
    loop {
        let told = match (&given, asked) {
            (QuestionAnswer::Permission(given), AdapterQuestion::Permission(asked)) => {
                device.adapter.decide(run, &asked.id, given).await
            }
            (QuestionAnswer::Input(InputParts { parts, message }), AdapterQuestion::Input(asked)) => {
                let (parts, message) = (parts.clone(), message.clone());
                device.adapter.send_input(run, &AdapterInputAnswer { id: asked.id.clone(), parts, message }).await
            }
            _ => return,
        };
        match told {
            Ok(()) => return,
            Err(AdapterCallError::NotSent(reason) | AdapterCallError::Broken(reason)) => {
                tracing::debug!(run.id = %run, reason, "the adapter did not hear an answer and is told again");
                tokio::time::sleep(backoff.next(&claimant.env)).await;
            }
            Err(trouble) => return tracing::warn!(run.id = %run, ?trouble, "the adapter did not take an answer"),
        }
    }
}

/// Passes on what the caller says without being asked, until it is dropped.
pub(crate) async fn pass_on_input(device: Arc<DeviceRuntime>, run: RunId, progress: ProgressSender) {
    loop {
        let parts = device.inbox.input(run).await;
        relay_unsolicited_input(&device, run, parts, &progress).await;
    }
}

/// Tells the adapter what it did not ask for. An agent that hears nothing of the kind does not leave the caller in the
/// belief that it heard.
pub(crate) async fn relay_unsolicited_input(
    device: &DeviceRuntime,
    run: RunId,
    parts: Json,
    progress: &ProgressSender,
) {
    // Not repeated when the connection broke: the adapter may have heard it, and would hear it twice.
    match device.adapter.send_input(run, &AdapterInputAnswer { id: None, parts, message: None }).await {
        Ok(()) => {}
        Err(AdapterCallError::Refused { status: 404, .. }) => {
            let line = AdapterLogLine {
                code: Some(AdapterLogLine::INPUT_UNHEARD.to_owned()),
                ..AdapterLogLine::new("warning", INPUT_NOT_DELIVERED)
            };
            progress.push(ProgressItem::Log(Json::of(&line)));
        }
        Err(trouble) => tracing::warn!(run.id = %run, ?trouble, "the adapter did not take input"),
    }
}

/// The same for the same question of the same claim, whichever process asks it.
fn name(claimant: &ClaimContext, kind: &str, id: &str) -> String {
    format!("{kind}.{}.{}.{}", claimant.run, claimant.epoch, plain(id))
}

/// The adapter's own name in letters that every way takes.
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

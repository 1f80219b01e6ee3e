//! The permission bridge: a question of the adapter goes to the hub, its answer back to the process that waits for it.
//!
//! The question has one name everywhere, made of the claim and the adapter's own name for it. So it may be asked again
//! over another way, by another process, after any restart: it is one question at the hub, with one answer.

use std::{sync::Arc, time::Duration};

use attache_client::{Backoff, Error, channel::Channel};
use attache_protocol::{
    Json, RunId,
    rules::permission::State,
    wire::{
        adapter::{InputAsked, InputGiven, LogLine, PermissionAsked, PermissionGiven},
        ask::{AskInput, AskState},
        envelope::{Approved, RequireApproval, RequireInput},
        permission::{AskPermission, PermissionAnswer},
    },
};
use serde::Deserialize;

use crate::{
    Notice,
    adapter::{Asked, Trouble},
    device::Device,
    notice::{Answer, Question},
    progress::{Claimant, Piece, Teller},
    speak::is_broken,
};

/// What came back.
enum Given {
    Permission(PermissionGiven),
    Input(Parts),
    /// Nobody needs the answer any more: the run ended or lost its claim.
    Nothing,
}

#[derive(Deserialize)]
struct Parts {
    parts: Json,
    #[serde(default)]
    message: Option<Json>,
}

/// How long one call waits for the answer over HTTP.
const WAIT: Duration = Duration::from_secs(20);
/// How long an adapter's own name for a question may be; the rest of a longer one does not count.
const LONGEST_ID: usize = 128;
const UNHEARD: &str = "the agent of this device cannot be spoken to while it works; what was said did not reach it";

/// Asks until there is an answer, and brings it to the adapter. Dropping it leaves the question open.
pub(crate) async fn bridge(device: Arc<Device>, claimant: Claimant, progress: Teller, seq: u64, asked: Asked) {
    let run = claimant.run;
    let question = match &asked {
        Asked::Permission(asked) => Question::Permission { tool: asked.tool.clone() },
        Asked::Input(asked) => Question::Input { prompt: asked.prompt.clone() },
    };
    device.link.notify(&Notice::Asked { run, question });
    // Whoever answers has read what led to the question.
    progress.caught_up().await;
    let given = match &asked {
        Asked::Permission(asked) => permission(&claimant, asked).await,
        Asked::Input(asked) => input(&claimant, seq, asked).await,
    };
    let given = match (given, &asked) {
        (Ok(given), _) => given,
        (Err(error), _) if crate::report::is_final(&error) => {
            return claimant.stop.set(error.to_string());
        }
        // The hub will never take this question. No answer means no, and the agent should know why.
        (Err(error), Asked::Permission(_)) => {
            progress.push(warning(format!("the hub did not take a question: {error}")));
            let comment = Some(format!("nobody could be asked: {error}"));
            Given::Permission(PermissionGiven { approved: false, scope: None, comment })
        }
        (Err(error), Asked::Input(_)) => {
            return progress.push(warning(format!("the hub did not take a question: {error}")));
        }
    };
    let answer = match (&given, &asked) {
        (Given::Permission(given), _) if given.approved => Answer::Approved,
        (Given::Permission(_), _) => Answer::Denied,
        (Given::Input(_), _) => Answer::Input,
        (Given::Nothing, _) => return,
    };
    deliver(&device, &claimant, &asked, given).await;
    device.link.notify(&Notice::Answered { run, answer });
}

/// Asks the caller on the runtime's own behalf. None when nobody needs the answer any more.
pub(crate) async fn ask_caller(claimant: &Claimant, asked: &InputAsked) -> Result<Option<Json>, Error> {
    claimant
        .link
        .notify(&Notice::Asked { run: claimant.run, question: Question::Input { prompt: asked.prompt.clone() } });
    match input(claimant, 0, asked).await? {
        Given::Input(Parts { parts, .. }) => {
            claimant.link.notify(&Notice::Answered { run: claimant.run, answer: Answer::Input });
            Ok(Some(parts))
        }
        Given::Permission(_) | Given::Nothing => Ok(None),
    }
}

async fn permission(claimant: &Claimant, asked: &PermissionAsked) -> Result<Given, Error> {
    let name = name(claimant, "permission", &asked.id);
    let PermissionAsked { tool, input, cwd, paths, reason, risk, diff, undisclosed, .. } = asked.clone();
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
    let call = AskPermission {
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
    let (hub, call) = (&claimant.ways.hub, &call);
    let by_http = move || async move {
        let mut answer = hub.ask_permission(run, call).await?;
        while answer.state == State::Pending {
            answer = hub.permission_answer(run, answer.permission_request_id, WAIT).await?;
        }
        let PermissionAnswer { state, approved, scope, comment, .. } = answer;
        Ok(match state {
            State::Cancelled => Given::Nothing,
            _ => Given::Permission(PermissionGiven { approved: approved == Some(true), scope, comment }),
        })
    };
    let by_channel = |payload: Json| {
        let Approved { approved, scope, comment, .. } = payload.parse().map_err(strange)?;
        Ok(Given::Permission(PermissionGiven { approved, scope, comment }))
    };
    ask(claimant, &name, &frame.payload(), by_channel, by_http).await
}

async fn input(claimant: &Claimant, seq: u64, asked: &InputAsked) -> Result<Given, Error> {
    let id = asked.id.clone().unwrap_or_else(|| seq.to_string());
    let name = name(claimant, "input", &id);
    let InputAsked { prompt, parts, .. } = asked.clone();
    let (run, epoch) = (claimant.run, claimant.epoch);
    let frame = RequireInput { task_run_id: run, epoch, prompt: prompt.clone(), parts: parts.clone() };
    let call = AskInput { epoch: Some(epoch), prompt, parts, request_id: Some(name.clone()) };
    let (hub, call) = (&claimant.ways.hub, &call);
    let by_http = move || async move {
        let mut answer = hub.ask_input(run, call).await?;
        while answer.state == AskState::Pending {
            answer = hub.input_answer(run, answer.input_request_id, WAIT).await?;
        }
        let message = answer.message;
        Ok(answer.parts.map_or(Given::Nothing, |parts| Given::Input(Parts { parts, message })))
    };
    let by_channel = |payload: Json| payload.parse().map(Given::Input).map_err(strange);
    ask(claimant, &name, &frame.payload(), by_channel, by_http).await
}

/// Asks over the channel while there is one, else over HTTP, and changes from one to the other as often as it takes.
/// What no frame can hold goes over HTTP, where the hub can say so.
async fn ask<F: Future<Output = Result<Given, Error>>>(
    claimant: &Claimant,
    name: &str,
    frame: &Json,
    by_channel: impl Fn(Json) -> Result<Given, Error>,
    by_http: impl Fn() -> F,
) -> Result<Given, Error> {
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
    let channel = claimant.ways.channel_for(frame);
    loop {
        if let Some(channel) = channel.filter(|channel| channel.is_connected()) {
            match channel.request(Some(name.to_owned()), frame.clone()).await {
                Ok(payload) => return by_channel(payload),
                Err(error) if is_broken(&error) => {}
                Err(error) if error.is_passing() => {
                    tokio::time::sleep(backoff.next(&claimant.env)).await;
                    continue;
                }
                Err(error) => return Err(error),
            }
        }
        match sooner(channel, by_http()).await {
            None => {}
            Some(Ok(given)) => return Ok(given),
            // The hub is away: the question waits. Anything else that it says is for whoever asked.
            Some(Err(error)) if error.is_passing() => {
                claimant.link.failed(&error);
                sooner(channel, tokio::time::sleep(backoff.next(&claimant.env))).await;
            }
            Some(Err(error)) => return Err(error),
        }
    }
}

/// Waits for a call, or for the channel, which brings the answer sooner; none when it is the channel.
async fn sooner<T>(channel: Option<&Channel>, call: impl Future<Output = T>) -> Option<T> {
    let Some(channel) = channel else { return Some(call.await) };
    tokio::select! {
        done = call => Some(done),
        () = channel.connected() => None,
    }
}

/// Tells the adapter, as often as it takes. One that does not want the answer any more has its reasons.
async fn deliver(device: &Device, claimant: &Claimant, asked: &Asked, given: Given) {
    let run = claimant.run;
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
    loop {
        let told = match (&given, asked) {
            (Given::Permission(given), Asked::Permission(asked)) => device.adapter.decide(run, &asked.id, given).await,
            (Given::Input(Parts { parts, message }), Asked::Input(asked)) => {
                let (parts, message) = (parts.clone(), message.clone());
                device.adapter.give(run, &InputGiven { id: asked.id.clone(), parts, message }).await
            }
            _ => return,
        };
        match told {
            Ok(()) => return,
            Err(Trouble::NotSent(reason) | Trouble::Broken(reason)) => {
                tracing::debug!(run.id = %run, reason, "the adapter did not hear an answer and is told again");
                tokio::time::sleep(backoff.next(&claimant.env)).await;
            }
            Err(trouble) => return tracing::warn!(run.id = %run, ?trouble, "the adapter did not take an answer"),
        }
    }
}

/// Passes on what the caller says without being asked, until it is dropped.
pub(crate) async fn pass_on_input(device: Arc<Device>, run: RunId, progress: Teller) {
    loop {
        let parts = device.inbox.input(run).await;
        give_unasked(&device, run, parts, &progress).await;
    }
}

/// Tells the adapter what it did not ask for. An agent that hears nothing of the kind does not leave the caller in the
/// belief that it heard.
pub(crate) async fn give_unasked(device: &Device, run: RunId, parts: Json, progress: &Teller) {
    // Not repeated when the connection broke: the adapter may have heard it, and would hear it twice.
    match device.adapter.give(run, &InputGiven { id: None, parts, message: None }).await {
        Ok(()) => {}
        Err(Trouble::Refused { status: 404, .. }) => {
            let line = LogLine { code: Some(LogLine::INPUT_UNHEARD.to_owned()), ..LogLine::new("warning", UNHEARD) };
            progress.push(Piece::Log(Json::of(&line)));
        }
        Err(trouble) => tracing::warn!(run.id = %run, ?trouble, "the adapter did not take input"),
    }
}

/// The same for the same question of the same claim, whichever process asks it.
fn name(claimant: &Claimant, kind: &str, id: &str) -> String {
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
    plain.truncate(LONGEST_ID);
    plain
}

fn warning(message: String) -> Piece {
    Piece::Log(Json::of(&LogLine::new("warning", message)))
}

fn strange(error: serde_json::Error) -> Error {
    Error::BadReply { address: "the channel".to_owned(), reason: error.to_string() }
}

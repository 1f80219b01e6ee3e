//! An agent that does what a message tells it: the data of one of its parts is a list of steps.

use std::{sync::Arc, time::Duration};

use attache_hub::{
    Error,
    in_process::{Failure, InProcessAgent, Output, Work},
};
use attache_protocol::{
    Json, PermissionId,
    rules::{permission::State, run::FailureCode},
    wire::{
        a2a::{Content, Message, Part, Role, SendConfiguration, SendMessage},
        ask::{AskInput, AskState},
        permission::AskPermission,
        run::{CompleteRequest, ProgressRequest},
    },
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use tokio::sync::Semaphore;

#[derive(Debug, Clone)]
pub struct Obedient {
    /// What `hold` waits for.
    pub gate: Arc<Semaphore>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    Chunk(String),
    /// So many chunks of 60 kB, each with its number. Where the hub takes no more, what it says is the answer.
    Flood(usize),
    Thought(String),
    Log(String),
    Progress(String),
    ToolCall(Json),
    Artifact(Json),
    /// Asks the caller this.
    Ask(String),
    /// Asks people for these tools, all at a time.
    Permit(Vec<String>),
    /// Waits until the gate opens.
    Hold(IgnoredAny),
    Fail(String),
    Reject(String),
    /// Ends with exactly this output.
    Output(Json),
    /// Ends with the whole input of the run as details.
    Repeat(IgnoredAny),
}

#[derive(Deserialize)]
struct Input {
    message: Message,
}

#[derive(Deserialize)]
struct Told {
    steps: Vec<Step>,
}

const WAIT: Duration = Duration::from_secs(20);

// === impl Obedient ===

impl Default for Obedient {
    fn default() -> Self {
        Self { gate: Arc::new(Semaphore::new(0)) }
    }
}

impl InProcessAgent for Obedient {
    async fn work(&self, work: Work) -> Result<Output, Failure> {
        let input = work.claim().input.parse::<Input>().map_err(|error| Failure::new(error.to_string()))?;
        let steps = input.message.parts.iter().find_map(|part| match &part.content {
            Content::Data(data) => data.parse::<Told>().ok(),
            Content::Text(_) | Content::Raw(_) | Content::Url(_) => None,
        });
        let Some(Told { steps }) = steps else { return Ok(Output::text(format!("you said: {}", work.text()))) };
        let mut said = Vec::new();
        for step in steps {
            if let Some(output) = self.perform(&work, step, &mut said).await? {
                return Ok(output);
            }
        }
        Ok(Output::text(said.join(" ")))
    }

    fn concurrency(&self) -> usize {
        64
    }
}

impl Obedient {
    async fn perform(&self, work: &Work, step: Step, said: &mut Vec<String>) -> Result<Option<Output>, Failure> {
        let report = ProgressRequest::default();
        let report = match step {
            Step::Chunk(text) => ProgressRequest { chunk: Some(Json::of(&text)), ..report },
            Step::Flood(count) => {
                for number in 0..count {
                    let text = Json::of(&format!("{number} {}", "x".repeat(60_000)));
                    let report =
                        ProgressRequest { epoch: Some(work.claim().epoch), chunk: Some(text), ..report.clone() };
                    if let Err(full) = work.hub().progress(work.principal(), work.claim().task_run_id, report).await {
                        return Ok(Some(Output::text(full.message.to_string())));
                    }
                }
                return Ok(None);
            }
            Step::Thought(text) => ProgressRequest { thought: Some(Json::of(&text)), ..report },
            Step::Log(text) => ProgressRequest { log: Some(Json::of(&text)), ..report },
            Step::Progress(text) => ProgressRequest { message: Some(text), ..report },
            Step::ToolCall(call) => ProgressRequest { tool_call: Some(call), ..report },
            Step::Artifact(change) => ProgressRequest { artifact: Some(change), ..report },
            Step::Ask(prompt) => {
                said.push(ask(work, prompt).await?);
                return Ok(None);
            }
            Step::Permit(tools) => {
                said.extend(permit(work, &tools).await?);
                return Ok(None);
            }
            Step::Hold(_) => {
                self.gate.acquire().await.expect("the gate is never closed").forget();
                return Ok(None);
            }
            Step::Fail(error) => return Err(Failure::new(error)),
            Step::Reject(error) => return Err(Failure::new(error).code(FailureCode::Rejected)),
            Step::Output(output) => {
                let request = CompleteRequest { epoch: Some(work.claim().epoch), output, usage: None };
                work.hub().complete(work.principal(), work.claim().task_run_id, request).await?;
                return Ok(Some(Output::text("")));
            }
            Step::Repeat(_) => return Ok(Some(Output::text("").details(work.claim().input.clone()))),
        };
        let report = ProgressRequest { epoch: Some(work.claim().epoch), ..report };
        work.hub().progress(work.principal(), work.claim().task_run_id, report).await?;
        Ok(None)
    }
}

/// The text of the caller's answer.
async fn ask(work: &Work, prompt: String) -> Result<String, Error> {
    let (hub, by, run) = (work.hub(), work.principal(), work.claim().task_run_id);
    let request = AskInput { epoch: Some(work.claim().epoch), prompt, parts: None, request_id: None };
    let asked = hub.ask_input(by, run, request).await?;
    loop {
        let answer = hub.input_answer(by, run, asked.input_request_id, WAIT).await?;
        if answer.state == AskState::Pending && !hub.is_draining() {
            continue;
        }
        let parts: Vec<Part> = answer.parts.and_then(|parts| parts.parse().ok()).unwrap_or_default();
        let texts = parts.into_iter().filter_map(|part| match part.content {
            Content::Text(text) => Some(text),
            Content::Raw(_) | Content::Url(_) | Content::Data(_) => None,
        });
        return Ok(format!("answered {}", texts.collect::<Vec<_>>().join(" ")));
    }
}

/// What people decided, one after the other.
async fn permit(work: &Work, tools: &[String]) -> Result<Vec<String>, Error> {
    let (hub, by, run) = (work.hub(), work.principal(), work.claim().task_run_id);
    let mut asked: Vec<(&String, PermissionId)> = Vec::new();
    for tool in tools {
        let request = AskPermission {
            epoch: Some(work.claim().epoch),
            tool: tool.clone(),
            input: Json::from_text(r#"{"path":"/tmp/x","size":9007199254740993}"#).expect("this is JSON"),
            cwd: None,
            paths: Vec::new(),
            reason: Some("it was told so".to_owned()),
            risk: None,
            diff: None,
            undisclosed: Vec::new(),
            request_id: None,
        };
        asked.push((tool, hub.ask_permission(by, run, request, None).await?.permission_request_id));
    }
    let mut said = Vec::new();
    for (tool, permission) in asked {
        loop {
            let answer = hub.permission_answer(by, run, permission, WAIT).await?;
            if answer.state == State::Pending && !hub.is_draining() {
                continue;
            }
            let word = if answer.approved == Some(true) { "may" } else { "may not" };
            said.push(format!("{word} {tool}"));
            break;
        }
    }
    Ok(said)
}

/// A message of these parts.
pub fn message(id: &str, parts: Vec<Part>) -> Message {
    Message {
        message_id: id.to_owned(),
        role: Role::User,
        parts,
        context_id: None,
        task_id: None,
        metadata: None,
        extensions: Vec::new(),
        reference_task_ids: Vec::new(),
    }
}

/// A message with these steps. gRPC keeps no order of members, so they are in the one that it writes.
pub fn steps(id: &str, mut steps: Value) -> Message {
    steps.sort_all_objects();
    let data = Json::from_text(format!(r#"{{"steps":{steps}}}"#)).unwrap();
    message(id, vec![Part::new(Content::Data(data))])
}

pub fn request(message: Message) -> SendMessage {
    SendMessage { tenant: None, message, configuration: None, metadata: None }
}

/// The same, answered at once.
pub fn immediate(message: Message) -> SendMessage {
    let configuration = SendConfiguration { return_immediately: Some(true), ..SendConfiguration::default() };
    SendMessage { configuration: Some(configuration), ..request(message) }
}

//! An agent that does what a message tells it: the data of one of its parts is a list of steps.

use std::{sync::Arc, time::Duration};

use attache_a2a_wire::{A2aRole, Message, Part, PartContent, SendConfiguration, SendMessage};
use attache_hub::{
    Error,
    in_process::{AgentFailure, AgentOutput, InProcessAgent, InProcessRun},
};
use attache_protocol::{
    Json, PermissionId,
    rules::{permission::PermissionState, run::FailureCode},
    wire::{
        input_request::{CreateInputRequest, WorkerRequestState},
        permission::CreatePermissionRequest,
        run::{CompleteRequest, ProgressRequest},
    },
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use tokio::sync::Semaphore;

#[derive(Debug, Clone)]
pub struct ScriptedA2aAgent {
    /// What `hold` waits for.
    pub gate: Arc<Semaphore>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScriptStep {
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
struct ScriptInput {
    message: Message,
}

#[derive(Deserialize)]
struct ScriptCall {
    steps: Vec<ScriptStep>,
}

const WAIT: Duration = Duration::from_secs(20);

// === impl ScriptedA2aAgent ===

impl Default for ScriptedA2aAgent {
    fn default() -> Self {
        Self { gate: Arc::new(Semaphore::new(0)) }
    }
}

impl InProcessAgent for ScriptedA2aAgent {
    async fn work(&self, work: InProcessRun) -> Result<AgentOutput, AgentFailure> {
        let input = work.claim().input.parse::<ScriptInput>().map_err(|error| AgentFailure::new(error.to_string()))?;
        let steps = input.message.parts.iter().find_map(|part| match &part.content {
            PartContent::Data(data) => data.parse::<ScriptCall>().ok(),
            PartContent::Text(_) | PartContent::Raw(_) | PartContent::Url(_) => None,
        });
        let Some(ScriptCall { steps }) = steps else {
            return Ok(AgentOutput::text(format!("you said: {}", work.text())));
        };
        let mut said = Vec::new();
        for step in steps {
            if let Some(output) = self.perform(&work, step, &mut said).await? {
                return Ok(output);
            }
        }
        Ok(AgentOutput::text(said.join(" ")))
    }

    fn concurrency(&self) -> usize {
        64
    }
}

impl ScriptedA2aAgent {
    async fn perform(
        &self,
        work: &InProcessRun,
        step: ScriptStep,
        said: &mut Vec<String>,
    ) -> Result<Option<AgentOutput>, AgentFailure> {
        let report = ProgressRequest::default();
        let report = match step {
            ScriptStep::Chunk(text) => ProgressRequest { chunk: Some(Json::of(&text)), ..report },
            ScriptStep::Flood(count) => {
                for number in 0..count {
                    let text = Json::of(&format!("{number} {}", "x".repeat(60_000)));
                    let report =
                        ProgressRequest { epoch: Some(work.claim().epoch), chunk: Some(text), ..report.clone() };
                    if let Err(full) = work.hub().progress(work.principal(), work.claim().task_run_id, report).await {
                        return Ok(Some(AgentOutput::text(full.message.to_string())));
                    }
                }
                return Ok(None);
            }
            ScriptStep::Thought(text) => ProgressRequest { thought: Some(Json::of(&text)), ..report },
            ScriptStep::Log(text) => ProgressRequest { log: Some(Json::of(&text)), ..report },
            ScriptStep::Progress(text) => ProgressRequest { message: Some(text), ..report },
            ScriptStep::ToolCall(call) => ProgressRequest { tool_call: Some(call), ..report },
            ScriptStep::Artifact(change) => ProgressRequest { artifact: Some(change), ..report },
            ScriptStep::Ask(prompt) => {
                said.push(ask(work, prompt).await?);
                return Ok(None);
            }
            ScriptStep::Permit(tools) => {
                said.extend(permit(work, &tools).await?);
                return Ok(None);
            }
            ScriptStep::Hold(_) => {
                self.gate.acquire().await.expect("the gate is never closed").forget();
                return Ok(None);
            }
            ScriptStep::Fail(error) => return Err(AgentFailure::new(error)),
            ScriptStep::Reject(error) => return Err(AgentFailure::new(error).code(FailureCode::Rejected)),
            ScriptStep::Output(output) => {
                let request =
                    CompleteRequest { epoch: Some(work.claim().epoch), output, usage: None, inputs_taken: None };
                work.hub().complete(work.principal(), work.claim().task_run_id, request).await?;
                return Ok(Some(AgentOutput::text("")));
            }
            ScriptStep::Repeat(_) => return Ok(Some(AgentOutput::text("").details(work.claim().input.clone()))),
        };
        let report = ProgressRequest { epoch: Some(work.claim().epoch), ..report };
        work.hub().progress(work.principal(), work.claim().task_run_id, report).await?;
        Ok(None)
    }
}

/// The text of the caller's answer.
async fn ask(work: &InProcessRun, prompt: String) -> Result<String, Error> {
    let (hub, by, run) = (work.hub(), work.principal(), work.claim().task_run_id);
    let request = CreateInputRequest { epoch: Some(work.claim().epoch), prompt, parts: None, request_id: None };
    let asked = hub.request_input(by, run, request).await?;
    loop {
        let answer = hub.input_answer(by, run, asked.input_request_id, WAIT).await?;
        if answer.state == WorkerRequestState::Pending && !hub.is_draining() {
            continue;
        }
        let parts: Vec<Part> = answer.parts.and_then(|parts| parts.parse().ok()).unwrap_or_default();
        let texts = parts.into_iter().filter_map(|part| match part.content {
            PartContent::Text(text) => Some(text),
            PartContent::Raw(_) | PartContent::Url(_) | PartContent::Data(_) => None,
        });
        return Ok(format!("answered {}", texts.collect::<Vec<_>>().join(" ")));
    }
}

/// What people decided, one after the other.
async fn permit(work: &InProcessRun, tools: &[String]) -> Result<Vec<String>, Error> {
    let (hub, by, run) = (work.hub(), work.principal(), work.claim().task_run_id);
    let mut asked: Vec<(&String, PermissionId)> = Vec::new();
    for tool in tools {
        let request = CreatePermissionRequest {
            epoch: Some(work.claim().epoch),
            tool: tool.clone(),
            input: Json::from_text(r#"{"path":"/tmp/x","size":9007199254740993}"#).expect("this is JSON"),
            cwd: None,
            paths: Vec::new(),
            reason: Some("it was told so".to_owned()),
            risk: None,
            diff: None,
            undisclosed: Vec::new(),
            assured: Vec::new(),
            request_id: None,
        };
        asked.push((tool, hub.request_permission(by, run, request, None).await?.permission_request_id));
    }
    let mut said = Vec::new();
    for (tool, permission) in asked {
        loop {
            let answer = hub.permission_answer(by, run, permission, WAIT).await?;
            if answer.state == PermissionState::Pending && !hub.is_draining() {
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
        role: A2aRole::User,
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
    message(id, vec![Part::new(PartContent::Data(data))])
}

pub fn request(message: Message) -> SendMessage {
    SendMessage { tenant: None, message, configuration: None, metadata: None }
}

/// The same, answered at once.
pub fn immediate(message: Message) -> SendMessage {
    let configuration = SendConfiguration { return_immediately: Some(true), ..SendConfiguration::default() };
    SendMessage { configuration: Some(configuration), ..request(message) }
}

//! The result of the tools for calls: how a call stands, and what a model should do next.

use rmcp::model::{CallToolResult, ContentBlock};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;

use crate::{AgentCall, AgentCallState, CallerKind, FullOutput, PendingApproval, ToolError};

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CallToolOutput {
    /// The agent's answer, or what to do next.
    output: String,
    metadata: CallToolMetadata,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct CallToolMetadata {
    /// completed, running, input_required, approval_required, cancelled or failed; refused: nobody was asked.
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_url: Option<String>,
    /// What goes on with the call, or stops it.
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<String>,
    /// Of input_required: which question an answer is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    question_id: Option<String>,
    /// Of approval_required: which request a person decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval_id: Option<String>,
    /// Of failed and refused: a stable name of what went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// Of completed, when the output is not all of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    full_output: Option<FullOutput>,
}

/// Who was asked, and since when.
#[derive(Debug)]
pub(super) struct CallStart {
    pub(super) agent: Option<String>,
    pub(super) began: Instant,
}

/// More of what an agent said last is not worth its place.
const MAX_LAST_MESSAGE: usize = 200;

/// The result of a call, or of an attempt that reached nobody.
pub(super) fn report(asked: &CallStart, answered: Result<AgentCall, ToolError>) -> CallToolResult {
    let agent = asked.agent.as_deref().unwrap_or("the agent");
    let mut metadata = CallToolMetadata { agent_url: asked.agent.clone(), ..CallToolMetadata::default() };
    let AgentCall { call_id, state } = match answered {
        Ok(call) => call,
        Err(trouble) => {
            metadata.status = "refused".to_owned();
            metadata.code = Some(trouble.code.clone());
            let output = format!("Nobody was asked: {trouble}");
            return result(CallToolOutput { output, metadata });
        }
    };
    metadata.status = state.name().to_owned();
    let id = call_id.clone().unwrap_or_default();
    metadata.call_id = call_id;
    let output = match state {
        AgentCallState::Completed { summary, full_output: None, .. } => summary,
        AgentCallState::Completed { summary, full_output: Some(full), .. } => {
            let text = format!("{}\n\n[{}]", summary.trim_end(), full.note(summary.len()));
            metadata.full_output = Some(full);
            text
        }
        AgentCallState::Running { last } => {
            let last = last.map(|last| format!(" Last heard: {}", quoted(&last))).unwrap_or_default();
            format!(
                "Still running after {} s.{last}\n\nNext: call remote_agent with only call_id \"{id}\" to go on waiting, or \
                 remote_cancel to stop it. It goes on by itself meanwhile.",
                asked.began.elapsed().as_secs()
            )
        }
        AgentCallState::InputRequired { question_id, question } => {
            let text = format!(
                "The agent asks: {question}\n\nNext: call remote_agent with call_id \"{id}\", question_id \
                 \"{question_id}\" and your answer. If you do not know the answer, ask your user."
            );
            metadata.question_id = Some(question_id);
            text
        }
        AgentCallState::ApprovalRequired(approval) => {
            let text = waiting(agent, &id, &approval);
            metadata.approval_id = approval.id;
            text
        }
        AgentCallState::Cancelled => "The call was cancelled. What was done until then stays done.".to_owned(),
        AgentCallState::Failed(trouble) => {
            metadata.code = Some(trouble.code.clone());
            format!("{agent} failed: {trouble}")
        }
    };
    result(CallToolOutput { output, metadata })
}

fn waiting(agent: &str, call: &str, approval: &PendingApproval) -> String {
    let id = approval.id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default();
    let what = format!("A person must approve this before {agent} goes on{id}: {}", approval.what);
    let next = match approval.caller {
        CallerKind::User => format!(
            "Next: tell your user what is waited for; they decide in the console under Approvals, or with `attache \
             approvals`. Do not poll: call remote_agent with only call_id \"{call}\" once they say that it is decided."
        ),
        CallerKind::Run => format!(
            "Next: the people who decide see the request. Call remote_agent with only call_id \"{call}\" to go on waiting; \
             if you can do without it, say in your answer what was not done."
        ),
    };
    format!("{what}\n\n{next}")
}

fn quoted(text: &str) -> String {
    let line: String = text.trim().chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
    match line.char_indices().nth(MAX_LAST_MESSAGE) {
        Some((end, _)) => format!("\"{} …\"", &line[..end]),
        None => format!("\"{line}\""),
    }
}

fn result(output: CallToolOutput) -> CallToolResult {
    let CallToolMetadata { status, call_id, .. } = &output.metadata;
    let call = call_id.as_ref().map(|id| format!(", call_id {id}")).unwrap_or_default();
    let text = format!("{}\n\n({status}{call})", output.output.trim_end());
    let content = vec![ContentBlock::text(text)];
    let failed = matches!(status.as_str(), "failed" | "refused");
    let mut result = if failed { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = Some(serde_json::json!(output));
    result
}

//! The result of the call tools: the state of the call and what the model should do next.

use rmcp::model::{CallToolResult, ContentBlock};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;

use crate::{
    AgentCall, AgentCallState, AgentQuestion, CallerKind, FullOutput, PendingApproval, ToolError,
    elicitation::UnansweredForm,
};

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CallToolOutput {
    /// The agent's answer, or the state of the call and what to do next.
    output: String,
    metadata: CallToolMetadata,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct CallToolMetadata {
    /// completed, running, input_required, approval_required, cancelled, failed (the agent failed) or refused (the
    /// request itself failed).
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_url: Option<String>,
    /// Identifies the call in later remote_agent and remote_cancel calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<String>,
    /// With input_required: the question to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    question_id: Option<String>,
    /// With approval_required: the approval request that a person has to decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval_id: Option<String>,
    /// With failed and refused: a stable error code.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// With completed, if output is only a part of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    full_output: Option<FullOutput>,
}

/// The agent that was called, and when.
#[derive(Debug)]
pub(super) struct CallStart {
    pub(super) agent: Option<String>,
    pub(super) began: Instant,
    /// What the user did with the form of the question that is open.
    pub(super) form: Option<UnansweredForm>,
}

/// Longer messages are truncated.
const MAX_LAST_MESSAGE: usize = 200;

/// Builds the tool result for a call, or for a request that failed.
pub(super) fn report(start: &CallStart, answered: Result<AgentCall, ToolError>) -> CallToolResult {
    let agent = start.agent.as_deref().unwrap_or("the agent");
    let mut metadata = CallToolMetadata { agent_url: start.agent.clone(), ..CallToolMetadata::default() };
    let AgentCall { call_id, state } = match answered {
        Ok(call) => call,
        Err(trouble) => {
            metadata.status = "refused".to_owned();
            metadata.code = Some(trouble.code.clone());
            let output = format!("Request failed: {trouble}");
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
            let last = last.map(|last| format!(" Last message: {}", quoted(&last))).unwrap_or_default();
            format!(
                "Still running after {} s.{last}\n\nNext: call remote_agent with only call_id \"{id}\" to keep \
                 waiting, or remote_cancel to stop it. The call continues in the meantime.",
                start.began.elapsed().as_secs()
            )
        }
        AgentCallState::InputRequired(AgentQuestion { id: question_id, text: question, .. }) => {
            let text = format!("Question from the agent: {question}\n\n{}", next_step(&id, &question_id, start.form));
            metadata.question_id = Some(question_id);
            text
        }
        AgentCallState::ApprovalRequired(approval) => {
            let text = waiting(agent, &id, &approval);
            metadata.approval_id = approval.id;
            text
        }
        AgentCallState::Cancelled => "The call was cancelled. Work that was already done is not undone.".to_owned(),
        AgentCallState::Failed(trouble) => {
            metadata.code = Some(trouble.code.clone());
            format!("{agent} failed: {trouble}")
        }
    };
    result(CallToolOutput { output, metadata })
}

/// What the model does about a question, and what its user has done.
fn next_step(call: &str, question: &str, form: Option<UnansweredForm>) -> String {
    let answer = format!("call remote_agent with call_id \"{call}\", question_id \"{question}\" and");
    match form {
        None => format!("Next: {answer} your answer. If you don't know the answer, ask your user."),
        Some(UnansweredForm::Open) => format!(
            "Your user sees this question in a form and hasn't answered yet; their answer goes to the agent. Next: call \
             remote_agent with only call_id \"{call}\" to keep waiting."
        ),
        Some(UnansweredForm::Declined) => format!(
            "Your user saw this question in a form and declined to answer it. Next: ask them how to go on. To answer it, \
             {answer} the answer; to stop the call, use remote_cancel."
        ),
        Some(UnansweredForm::Cancelled) => format!(
            "Your user saw this question in a form and closed it without an answer. Next: ask them. To answer it, \
             {answer} the answer."
        ),
        Some(UnansweredForm::Unusable) => format!(
            "Your user saw this question in a form, which came back without a usable answer. Next: ask them. To answer \
             it, {answer} the answer."
        ),
    }
}

fn waiting(agent: &str, call: &str, approval: &PendingApproval) -> String {
    let id = approval.id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default();
    let what = format!("A person must approve this before {agent} can continue{id}: {}", approval.what);
    let next = match approval.caller {
        CallerKind::User => format!(
            "Next: tell your user what is waiting for approval. They can decide in the console under Inbox, or \
             with `attache approvals`. Do not poll: call remote_agent with only call_id \"{call}\" after they tell you \
             that they have decided."
        ),
        CallerKind::Run => format!(
            "Next: the people who can approve it already see the request. Call remote_agent with only call_id \
             \"{call}\" to keep waiting. If you continue without it, state in your answer what was not done."
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

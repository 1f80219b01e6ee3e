//! `remote_agent`: sends a task to an agent, keeps waiting for an earlier call, or answers its question.

use std::time::Duration;

use attache_protocol::{Code, Json};
use rmcp::{
    RoleServer,
    model::{CallToolResponse, CallToolResult, InputRequiredResult, JsonObject},
    service::RequestContext,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};

use super::call::{CallStart, report};
use crate::{
    AgentCall, AgentCallAnswer, AgentCallRef, AgentCallState, AgentQuestion, AgentTask, AnswerContent, McpToolServer,
    RemoteAgentRequest, ToolError,
    elicitation::{
        Elicitation, ElicitationMethod, FormAnswerer, FormOutcome, FormRetry, FormState, MAX_ROUNDS, QuestionForm,
        QuestionRef, UnansweredForm, has_user,
    },
};

pub(crate) const DESCRIPTION: &str = "Sends a task to another agent and waits for its answer. The agent sees only what \
    you write here, so include all goals, constraints and file names. Each call does one of three things. To start a \
    new task, provide agent_url and task. To keep waiting for a call with status `running` or `approval_required`, \
    provide only call_id. To answer a question of a call with status `input_required`, provide call_id, question_id \
    and answer.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoteAgentArguments {
    /// New task: complete instructions. The agent doesn't see this conversation
    task: Option<String>,
    /// New task: the agent's name or URL, as returned by list_agents
    agent_url: Option<String>,
    /// New task, only if agent_url is the URL of a hub: the name or skill of the agent to use
    agent_type: Option<String>,
    /// New task: additional facts for the agent, as a JSON object
    context: Option<JsonObject>,
    /// Wait or answer: the call_id from an earlier result
    call_id: Option<String>,
    /// Answer: the question_id from the result that contains the question
    question_id: Option<String>,
    /// Answer: your answer to the question. If you don't know the answer, ask your user first
    answer: Option<String>,
}

/// Extra time for starting a call, so that its id is known when the wait times out.
const START_GRACE: Duration = Duration::from_secs(5);

pub(crate) async fn run(
    server: &McpToolServer,
    arguments: RemoteAgentArguments,
    retry: Option<FormRetry>,
    context: &RequestContext<RoleServer>,
) -> CallToolResponse {
    let ask = match RemoteAgentRequest::try_from(arguments) {
        Ok(ask) => ask,
        Err(trouble) => return refused(&trouble).into(),
    };
    let agent = match &retry {
        Some(retry) => retry.state.agent_url.clone(),
        None => ask.agent().map(str::to_owned),
    };
    let mut start = CallStart { agent, began: Instant::now(), form: None };
    let (say, said) = watch::channel(String::new());
    let turn =
        Turn { server, context, agent: start.agent.clone(), deadline: start.began + server.options().answer_timeout };
    let ended = tokio::select! {
        ended = server.progress_notifier(context).notify_while(turn.run(ask, retry, &say), said) => ended,
        // The client no longer waits for the result. The call continues.
        () = context.ct.cancelled() => TurnEnd::Call(Ok(AgentCall { call_id: None, state: AgentCallState::Running { last: None } }), None),
    };
    match ended {
        TurnEnd::Call(answered, form) => {
            start.form = form;
            report(&start, answered).into()
        }
        TurnEnd::Form(form) => form.into(),
    }
}

/// One call of the tool.
struct Turn<'a> {
    server: &'a McpToolServer,
    context: &'a RequestContext<RoleServer>,
    /// The agent that the caller named, if any.
    agent: Option<String>,
    deadline: Instant,
}

enum TurnEnd {
    Call(Result<AgentCall, ToolError>, Option<UnansweredForm>),
    /// The client asks its user and calls the tool again.
    Form(InputRequiredResult),
}

/// Which form a question needs.
enum NextForm {
    /// None: the model deals with the state of the call.
    No(Option<UnansweredForm>),
    Result(InputRequiredResult),
    /// The user has it in front of them.
    Open(watch::Receiver<Option<FormOutcome>>),
}

// === impl Turn ===

impl Turn<'_> {
    /// Waits for the call and, where the client can ask its user, for their answers.
    async fn run(&self, ask: RemoteAgentRequest, retry: Option<FormRetry>, say: &watch::Sender<String>) -> TurnEnd {
        let mut round = 0;
        let mut answered = match retry {
            None => self.ask(ask, say).await,
            Some(retry) => {
                round = retry.state.round;
                match self.resume(&retry, say).await {
                    Ok(answered) => answered,
                    Err(end) => return end,
                }
            }
        };
        loop {
            let call = match &answered {
                Ok(call) if round < MAX_ROUNDS => call,
                Ok(_) | Err(_) => return TurnEnd::Call(answered, None),
            };
            let mut form = match self.form(call, round).await {
                NextForm::No(unanswered) => return TurnEnd::Call(answered, unanswered),
                NextForm::Result(form) => return TurnEnd::Form(form),
                NextForm::Open(form) => form,
            };
            round += 1;
            let _ = say.send("waiting for your answer".to_owned());
            let outcome = timeout_at(self.deadline, form.wait_for(Option::is_some)).await;
            let outcome = outcome.map(|outcome| outcome.ok().and_then(|outcome| outcome.clone()));
            match outcome {
                Err(_) => return TurnEnd::Call(answered, Some(UnansweredForm::Open)),
                Ok(None | Some(FormOutcome::Failed)) => return TurnEnd::Call(answered, None),
                Ok(Some(FormOutcome::Unanswered(unanswered))) => {
                    self.remember(call, unanswered);
                    return TurnEnd::Call(answered, Some(unanswered));
                }
                Ok(Some(FormOutcome::Answered(after))) => answered = self.go_on(call, after, say).await,
            }
        }
    }

    async fn ask(&self, ask: RemoteAgentRequest, say: &watch::Sender<String>) -> Result<AgentCall, ToolError> {
        let is_waiting = matches!(ask, RemoteAgentRequest::Wait(_));
        let wait = self.deadline.saturating_duration_since(Instant::now());
        let answer = self.server.agents().ask(self.server.caller(self.context), ask, wait, say);
        timeout(wait + START_GRACE, answer).await.unwrap_or_else(|_| {
            let hint = if is_waiting {
                "Call again with the same call_id."
            } else {
                "It may have received the task anyway. If you send it again later, say that it may be a duplicate."
            };
            Err(ToolError::new("timed_out", "the agent did not answer in time", hint))
        })
    }

    /// After the user dealt with a form: gives their answer, if the question is still open.
    async fn resume(
        &self,
        retry: &FormRetry,
        say: &watch::Sender<String>,
    ) -> Result<Result<AgentCall, ToolError>, TurnEnd> {
        let agents = self.server.agents();
        let seen = agents.ask(self.server.caller(self.context), retry.look(), Duration::ZERO, say).await;
        let Ok(call) = &seen else { return Ok(seen) };
        let is_open = question(call).is_some_and(|(open, _)| open == retry.state.question);
        if !is_open {
            let after = seen.clone();
            return Ok(self.go_on(call, after, say).await);
        }
        let form = Elicitation::of(self.context).zip(question(call));
        let form = form.and_then(|(elicitation, (_, question))| QuestionForm::of(question, elicitation.dialect));
        match form.map_or(Err(UnansweredForm::Unusable), |form| retry.answer(&form)) {
            Ok(answer) => Ok(self.ask(answer, say).await),
            Err(unanswered) => {
                self.remember(call, unanswered);
                Err(TurnEnd::Call(seen, Some(unanswered)))
            }
        }
    }

    /// Waits on, if the call does nothing else.
    async fn go_on(
        &self,
        call: &AgentCall,
        after: Result<AgentCall, ToolError>,
        say: &watch::Sender<String>,
    ) -> Result<AgentCall, ToolError> {
        let is_running = match &after {
            Ok(after) => matches!(after.state, AgentCallState::Running { .. }),
            // Somebody else answered first.
            Err(trouble) => trouble.code == Code::NotWaiting.as_str(),
        };
        match &call.call_id {
            Some(call_id) if is_running => {
                let call = AgentCallRef { call_id: call_id.clone(), agent_url: self.agent.clone() };
                self.ask(RemoteAgentRequest::Wait(call), say).await
            }
            _ => after,
        }
    }

    /// The form for what the call waits for.
    async fn form(&self, call: &AgentCall, round: usize) -> NextForm {
        let asked = question(call).filter(|(_, question)| has_user(question.caller));
        let Some(((question, asked), elicitation)) = asked.zip(Elicitation::of(self.context)) else {
            return NextForm::No(None);
        };
        let session = self.server.session();
        if let Some(open) = session.forms().find(&question) {
            return NextForm::Open(open);
        }
        if self.server.refused_forms().contains(&question) {
            return NextForm::No(None);
        }
        let form = QuestionForm::of(asked, elicitation.dialect);
        let Some((form, params)) = form.and_then(|form| form.request(self.agent.as_deref()).map(|asks| (form, asks)))
        else {
            return NextForm::No(None);
        };
        match elicitation.way {
            ElicitationMethod::Result => {
                let state = FormState { question, agent_url: self.agent.clone(), round: round + 1 };
                state.ask(params).map_or(NextForm::No(None), NextForm::Result)
            }
            ElicitationMethod::Request => {
                let answerer = FormAnswerer {
                    agents: self.server.agents_handle(),
                    caller: self.context.extensions.get().cloned(),
                    agent_url: self.agent.clone(),
                };
                let peer = &self.context.peer;
                let opened = session.forms().open(question, form, params, peer, answerer, session.background()).await;
                opened.map_or(NextForm::No(None), NextForm::Open)
            }
        }
    }

    fn remember(&self, call: &AgentCall, unanswered: UnansweredForm) {
        if let Some((question, _)) = question(call).filter(|_| unanswered.is_final()) {
            self.server.refused_forms().add(question);
        }
    }
}

/// The question that the call waits for.
fn question(call: &AgentCall) -> Option<(QuestionRef, &AgentQuestion)> {
    let call_id = call.call_id.clone()?;
    match &call.state {
        AgentCallState::InputRequired(question) if !question.id.is_empty() => {
            Some((QuestionRef { call_id, question_id: question.id.clone() }, question))
        }
        AgentCallState::InputRequired(_)
        | AgentCallState::Completed { .. }
        | AgentCallState::Running { .. }
        | AgentCallState::ApprovalRequired(_)
        | AgentCallState::Cancelled
        | AgentCallState::Failed(_) => None,
    }
}

/// The result for a request that could not be sent.
pub(crate) fn refused(trouble: &ToolError) -> CallToolResult {
    report(&CallStart { agent: None, began: Instant::now(), form: None }, Err(trouble.clone()))
}

// === impl RemoteAgentRequest ===

impl RemoteAgentRequest {
    /// The agent that the caller named, if any.
    fn agent(&self) -> Option<&str> {
        match self {
            Self::Task(task) => Some(&task.agent_url),
            Self::Wait(call) | Self::Answer(AgentCallAnswer { call, .. }) => call.agent_url.as_deref(),
        }
    }
}

impl TryFrom<RemoteAgentArguments> for RemoteAgentRequest {
    type Error = ToolError;

    fn try_from(arguments: RemoteAgentArguments) -> Result<Self, ToolError> {
        let RemoteAgentArguments { task, agent_url, agent_type, context, call_id, question_id, answer } = arguments;
        let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        let (task, agent_url, call_id) = (given(task), given(agent_url), given(call_id));
        match (task, call_id, given(question_id), given(answer)) {
            (Some(task), None, None, None) => {
                let agent_url = agent_url.ok_or_else(|| {
                    ToolError::invalid("a new task needs agent_url", "Call list_agents to see the available agents.")
                })?;
                let context = context.map(|context| Json::of(&context));
                Ok(Self::Task(AgentTask { task, agent_url, agent_type, context }))
            }
            (None, Some(call_id), None, None) => Ok(Self::Wait(AgentCallRef { call_id, agent_url })),
            (None, Some(call_id), Some(question_id), Some(answer)) => {
                let answer = AnswerContent::Text(answer);
                Ok(Self::Answer(AgentCallAnswer { call: AgentCallRef { call_id, agent_url }, question_id, answer }))
            }
            (None, Some(_), _, _) => Err(ToolError::invalid(
                "an answer needs call_id, question_id and answer together",
                "question_id is in the result that contains the question. To wait, provide only call_id.",
            )),
            (Some(_), Some(_), _, _) => Err(ToolError::invalid(
                "task starts a new call, and call_id continues an earlier one: provide only one of them",
                "Provide only call_id to wait, or call_id, question_id and answer to answer a question.",
            )),
            (None | Some(_), None, _, _) => Err(ToolError::invalid(
                "neither task nor call_id was provided",
                "Provide agent_url and task to start a call, or call_id to continue one.",
            )),
        }
    }
}

//! Elicitation: the client asks its user a question of an agent in a form, and the agent gets the answer without the model in
//! between. Questions only: approvals are never decided here, because a model may control the client.
//!
//! Until 2025-11-25, the server sends `elicitation/create` while the tool waits ([`OpenForms`]). Since 2026-07-28, the result of
//! the tool asks, and the client calls the tool again with what the user entered ([`FormState`]).

mod form;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::http::request::Parts;
use rmcp::{
    RoleServer,
    model::{
        CallToolRequestParams, ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
        InputRequest, InputRequiredResult, ProtocolVersion, ServerRequest,
    },
    service::{Peer, PeerRequestOptions, RequestContext},
};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use self::form::QuestionForm;
use crate::{
    AgentBackend, AgentCall, AgentCallAnswer, AgentCallRef, AnswerContent, CallerKind, RemoteAgentRequest, ToolCaller,
    ToolError,
};

/// How the client's user is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elicitation {
    pub(crate) dialect: FormDialect,
    pub(crate) way: ElicitationMethod,
}

/// What a form can have, besides texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FormDialect {
    /// 2025-06-18: a choice of one option.
    SingleChoice,
    /// Since 2025-11-25: also of several, with titles.
    MultipleChoice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElicitationMethod {
    /// With a request of the server, while the tool waits.
    Request,
    /// With the result of the tool. The client then calls it again.
    Result,
}

/// Why a question went back to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnansweredForm {
    Declined,
    Cancelled,
    /// Empty, or not what the form offered.
    Unusable,
    /// The user hasn't decided yet.
    Open,
}

/// What became of a form.
#[derive(Debug, Clone)]
pub(crate) enum FormOutcome {
    Unanswered(UnansweredForm),
    /// The client can't ask, although it said so.
    Failed,
    /// The answer was given to the agent.
    Answered(Result<AgentCall, ToolError>),
}

/// One question of one call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct QuestionRef {
    pub(crate) call_id: String,
    pub(crate) question_id: String,
}

/// What the client brings back with a filled-in form, as `requestState`. It names the question and grants nothing: whoever
/// changes it can answer only what they could answer without a form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FormState {
    #[serde(flatten)]
    pub(crate) question: QuestionRef,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent_url: Option<String>,
    /// How many forms this tool call has shown.
    pub(crate) round: usize,
}

/// A tool call with a form that the client's user has dealt with.
#[derive(Debug)]
pub(crate) struct FormRetry {
    pub(crate) state: FormState,
    /// `None` if the client sent nothing that can be read.
    pub(crate) result: Option<ElicitResult>,
}

/// Questions that users didn't want to answer in a form. They aren't asked again.
#[derive(Clone, Default)]
pub struct RefusedForms(Arc<Mutex<VecDeque<QuestionRef>>>);

/// The forms of one session that its user hasn't dealt with.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenForms(Arc<Mutex<BTreeMap<QuestionRef, watch::Receiver<Option<FormOutcome>>>>>);

/// Who answers for the user.
pub(crate) struct FormAnswerer {
    pub(crate) agents: Arc<dyn AgentBackend>,
    pub(crate) caller: Option<Parts>,
    pub(crate) agent_url: Option<String>,
}

/// How many questions one tool call asks. Clients give up after ten.
pub(crate) const MAX_ROUNDS: usize = 8;
/// The key of the only form in a result.
const FORM: &str = "question";
/// Forms that a session has open at once.
const MAX_OPEN: usize = 16;
const MAX_REFUSED: usize = 1000;
/// How long a form stays open. The tool returns earlier.
const FORM_TIMEOUT: Duration = Duration::from_secs(1800);
/// How long to wait for what the agent says to an answer, before the tool waits as usual.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

// === impl Elicitation ===

impl Elicitation {
    /// `None` if the client didn't say that it can show forms.
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Option<Self> {
        let capability = context.client_capabilities()?.elicitation?;
        // Before there were other modes, the capability was empty.
        let shows_forms = capability.form.is_some() || capability.url.is_none();
        let version = context.protocol_version()?;
        let since = |first: &ProtocolVersion| version.as_str() >= first.as_str();
        if !shows_forms || !since(&ProtocolVersion::V_2025_06_18) {
            return None;
        }
        let dialect = match since(&ProtocolVersion::V_2025_11_25) {
            true => FormDialect::MultipleChoice,
            false => FormDialect::SingleChoice,
        };
        let way = match since(&ProtocolVersion::V_2026_07_28) {
            true => ElicitationMethod::Result,
            false => ElicitationMethod::Request,
        };
        Some(Self { dialect, way })
    }
}

// === impl FormState ===

impl FormState {
    /// The result that asks.
    pub(crate) fn ask(&self, params: ElicitRequestParams) -> Option<InputRequiredResult> {
        let form = InputRequest::Elicitation(ElicitRequest::new(params));
        let state = serde_json::to_string(self).ok()?;
        Some(InputRequiredResult::new(Some([(FORM.to_owned(), form)].into()), Some(state)))
    }

    fn call(&self) -> AgentCallRef {
        AgentCallRef { call_id: self.question.call_id.clone(), agent_url: self.agent_url.clone() }
    }
}

// === impl FormRetry ===

impl FormRetry {
    /// `Ok(None)` if the tool is called for the first time.
    pub(crate) fn of(request: &CallToolRequestParams) -> Result<Option<Self>, ToolError> {
        let Some(state) = &request.request_state else { return Ok(None) };
        let state = serde_json::from_str(state).map_err(|_| {
            ToolError::invalid(
                "requestState is not one that this server sent",
                "Call the tool again without it, or call remote_agent with only the call_id.",
            )
        })?;
        let result = request.input_responses.as_ref().and_then(|responses| responses.get(FORM));
        let result = result.and_then(|result| serde_json::from_value(result.clone()).ok());
        Ok(Some(Self { state, result }))
    }

    /// Looks at the call without waiting.
    pub(crate) fn look(&self) -> RemoteAgentRequest {
        RemoteAgentRequest::Wait(self.state.call())
    }

    /// The answer to the question, which is open.
    pub(crate) fn answer(&self, form: &QuestionForm) -> Result<RemoteAgentRequest, UnansweredForm> {
        let answer = match &self.result {
            Some(result) => read(form, result)?,
            None => return Err(UnansweredForm::Unusable),
        };
        Ok(self.state.question.answer(answer, self.state.agent_url.clone()))
    }
}

fn read(form: &QuestionForm, result: &ElicitResult) -> Result<AnswerContent, UnansweredForm> {
    match &result.action {
        ElicitationAction::Accept => {
            result.content.as_ref().and_then(|content| form.answer(content)).ok_or(UnansweredForm::Unusable)
        }
        ElicitationAction::Decline => Err(UnansweredForm::Declined),
        _ => Err(UnansweredForm::Cancelled),
    }
}

// === impl QuestionRef ===

impl QuestionRef {
    fn answer(&self, answer: AnswerContent, agent_url: Option<String>) -> RemoteAgentRequest {
        RemoteAgentRequest::Answer(AgentCallAnswer {
            call: AgentCallRef { call_id: self.call_id.clone(), agent_url },
            question_id: self.question_id.clone(),
            answer,
        })
    }
}

// === impl UnansweredForm ===

impl UnansweredForm {
    /// Whether the user is not asked again.
    pub(crate) const fn is_final(self) -> bool {
        match self {
            Self::Declined | Self::Cancelled => true,
            Self::Unusable | Self::Open => false,
        }
    }
}

// === impl RefusedForms ===

impl RefusedForms {
    pub(crate) fn contains(&self, question: &QuestionRef) -> bool {
        lock(&self.0).contains(question)
    }

    pub(crate) fn add(&self, question: QuestionRef) {
        let mut refused = lock(&self.0);
        if refused.len() >= MAX_REFUSED {
            refused.pop_front();
        }
        refused.push_back(question);
    }
}

impl fmt::Debug for RefusedForms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusedForms").finish_non_exhaustive()
    }
}

// === impl OpenForms ===

impl OpenForms {
    /// The form that the user has in front of them.
    pub(crate) fn find(&self, question: &QuestionRef) -> Option<watch::Receiver<Option<FormOutcome>>> {
        lock(&self.0).get(question).cloned()
    }

    /// Asks the client to show a form. A task waits for the user, however long the tool waits, and gives the answer to the
    /// agent. `None` if it can't be asked.
    pub(crate) async fn open(
        &self,
        question: QuestionRef,
        form: QuestionForm,
        params: ElicitRequestParams,
        peer: &Peer<RoleServer>,
        answerer: FormAnswerer,
        (tasks, stop): (&TaskTracker, CancellationToken),
    ) -> Option<watch::Receiver<Option<FormOutcome>>> {
        if lock(&self.0).len() >= MAX_OPEN {
            return None;
        }
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(params));
        // Sent from here, so that it belongs to the tool call that waits.
        let sent = peer.send_request_with_option(request, PeerRequestOptions::with_timeout(FORM_TIMEOUT)).await;
        let sent = sent.inspect_err(|error| tracing::debug!(%error, "the client can't be asked")).ok()?;
        let (decide, outcome) = watch::channel(None);
        lock(&self.0).insert(question.clone(), outcome.clone());
        let open = self.0.clone();
        tasks.spawn(async move {
            let outcome = tokio::select! {
                decided = sent.await_response() => match decided {
                    Ok(ClientResult::ElicitResult(result)) => answerer.decide(&question, &form, &result).await,
                    Ok(_) => FormOutcome::Failed,
                    Err(error) => {
                        tracing::debug!(%error, "the client didn't show a form");
                        FormOutcome::Failed
                    }
                },
                () = stop.cancelled() => FormOutcome::Failed,
            };
            lock(&open).remove(&question);
            decide.send_replace(Some(outcome));
        });
        Some(outcome)
    }
}

// === impl FormAnswerer ===

impl FormAnswerer {
    async fn decide(&self, question: &QuestionRef, form: &QuestionForm, result: &ElicitResult) -> FormOutcome {
        let answer = match read(form, result) {
            Ok(answer) => question.answer(answer, self.agent_url.clone()),
            Err(unanswered) => return FormOutcome::Unanswered(unanswered),
        };
        let said = watch::channel(String::new()).0;
        FormOutcome::Answered(self.agents.ask(ToolCaller(self.caller.as_ref()), answer, ANSWER_TIMEOUT, &said).await)
    }
}

/// Whether a person may be at the other end.
pub(crate) const fn has_user(caller: CallerKind) -> bool {
    match caller {
        CallerKind::User => true,
        CallerKind::Run => false,
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Fake backends for delegations and agents.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use attache_mcp::{
    AgentBackend, AgentCall, AgentCallAnswer, AgentCallRef, AgentCallState, AgentQuestion, AgentTask, AnswerContent,
    CallerKind, DelegationBackend, ListedAgent, PendingApproval, RemoteAgentRequest, ToolCaller, ToolError,
};
use attache_protocol::{
    DelegationId,
    env::Env,
    rules::delegation::{DelegationStatus, LeaseTerms},
    wire::{
        awcp::{AccessMode, AwcpErrorCode},
        delegation::{
            ChangedPath, DelegateRequest, Delegation, DelegationFailure, DelegationOutcome, DiffStat, FileChangeKind,
            FolderChanges, StagedCopyStatus,
        },
        questionnaire::{OptionQuestion, QuestionAnswer, QuestionOption, Questionnaire},
    },
};
use tokio::sync::{Notify, watch};

/// A delegation backend that the test controls.
#[derive(Clone, Default)]
pub struct FakeDaemon(Arc<FakeDaemonState>);

#[derive(Default)]
struct FakeDaemonState {
    state: Mutex<BTreeMap<DelegationId, Delegation>>,
    asked: Mutex<Vec<DelegateRequest>>,
    moved: Notify,
    made: Notify,
    refusal: Mutex<Option<ToolError>>,
}

impl FakeDaemon {
    pub fn refuse(&self, trouble: ToolError) {
        *self.0.refusal.lock().unwrap() = Some(trouble);
    }

    pub fn asked(&self) -> Vec<DelegateRequest> {
        self.0.asked.lock().unwrap().clone()
    }

    pub fn all(&self) -> Vec<Delegation> {
        self.0.state.lock().unwrap().values().cloned().collect()
    }

    /// Waits until `count` delegations were created.
    pub async fn made(&self, count: usize) -> Vec<Delegation> {
        loop {
            let made = self.0.made.notified();
            let all = self.all();
            if all.len() >= count {
                return all;
            }
            made.await;
        }
    }

    pub fn change(&self, id: DelegationId, change: impl FnOnce(&mut Delegation)) {
        let mut state = self.0.state.lock().unwrap();
        let delegation = state.get_mut(&id).unwrap();
        change(delegation);
        delegation.revision += 1;
        self.0.moved.notify_waiters();
    }

    pub fn say(&self, id: DelegationId, progress: &str) {
        self.change(id, |delegation| {
            delegation.status = DelegationStatus::Running;
            delegation.progress = Some(progress.to_owned());
        });
    }

    /// Its changes wait in a copy.
    pub fn stage(&self, id: DelegationId, unapplied: u64) {
        let status = StagedCopyStatus { unapplied, ..StagedCopyStatus::default() };
        self.change(id, |delegation| delegation.staged = Some(status));
    }

    pub fn complete(&self, id: DelegationId, summary: &str) {
        self.change(id, |delegation| {
            delegation.status = DelegationStatus::Completed;
            delegation.ended_at = Some("2026-11-15T12:00:00.000Z".parse().unwrap());
            delegation.result = Some(DelegationOutcome {
                final_summary: Some(summary.to_owned()),
                highlights: vec!["src/main.rs".to_owned()],
                notes: None,
                full_output: None,
                error: None,
            });
            let changed = |path: &str, change| ChangedPath {
                path: path.to_owned(),
                change,
                added: Some(2),
                removed: Some(1),
                also_changed_here: false,
                run_by: None,
            };
            delegation.changes = Some(FolderChanges {
                changed_paths: vec![
                    changed("src/main.rs", FileChangeKind::Modified),
                    changed("new.txt", FileChangeKind::Added),
                ],
                diff_stat: DiffStat { files_changed: 2, insertions: 4, deletions: 2 },
                truncated: false,
            });
        });
    }

    pub fn fail(&self, id: DelegationId, code: AwcpErrorCode, message: &str, hint: &str) {
        self.change(id, |delegation| {
            delegation.status = DelegationStatus::Error;
            let error = DelegationFailure { code, message: message.to_owned(), hint: hint.to_owned() };
            delegation.result = Some(DelegationOutcome {
                final_summary: None,
                highlights: vec![],
                notes: None,
                full_output: None,
                error: Some(error),
            });
        });
    }

    fn cancel_one(&self, id: DelegationId) -> Delegation {
        self.change(id, |delegation| {
            if !delegation.status.has_ended() {
                delegation.status = DelegationStatus::Cancelled;
            }
        });
        self.0.state.lock().unwrap()[&id].clone()
    }

    fn find(&self, id: DelegationId) -> Result<Delegation, ToolError> {
        let found = self.0.state.lock().unwrap().get(&id).cloned();
        found.ok_or_else(|| ToolError::new("not_found", "there is no such delegation", "Check the delegation_id."))
    }
}

#[async_trait]
impl DelegationBackend for FakeDaemon {
    async fn delegate(&self, request: DelegateRequest) -> Result<Delegation, ToolError> {
        if let Some(trouble) = self.0.refusal.lock().unwrap().clone() {
            return Err(trouble);
        }
        let terms = LeaseTerms {
            access_mode: request.access_mode.unwrap_or(AccessMode::Rw),
            ttl: Duration::from_secs(request.ttl_seconds.unwrap_or(3600)),
        };
        let (id, at) = (DelegationId::from_uuid(Env::system().uuid()), "2026-11-15T11:00:00.000Z".parse().unwrap());
        let delegation = Delegation::of(&request, terms, id, at);
        self.0.asked.lock().unwrap().push(request);
        self.0.state.lock().unwrap().insert(delegation.delegation_id, delegation.clone());
        self.0.made.notify_waiters();
        Ok(delegation)
    }

    async fn get(&self, id: DelegationId, after: Option<u64>, wait: Duration) -> Result<Delegation, ToolError> {
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            let moved = self.0.moved.notified();
            let now = self.find(id)?;
            if after.is_none_or(|after| now.revision > after) {
                return Ok(now);
            }
            if tokio::time::timeout_at(deadline, moved).await.is_err() {
                return Ok(now);
            }
        }
    }

    async fn cancel(&self, id: DelegationId) -> Result<Delegation, ToolError> {
        self.find(id)?;
        Ok(self.cancel_one(id))
    }

    async fn cancel_session(&self, session: &str) -> Result<Vec<Delegation>, ToolError> {
        let open = self.all().into_iter().filter(|one| !one.status.has_ended());
        let own = open.filter(|one| one.session_id.as_deref() == Some(session));
        Ok(own.map(|one| self.cancel_one(one.delegation_id)).collect())
    }

    async fn diff(&self, id: DelegationId) -> Result<String, ToolError> {
        self.find(id).map(|_| "--- a/new.txt\n+++ b/new.txt\n".to_owned())
    }

    async fn log(&self, id: DelegationId) -> Result<String, ToolError> {
        self.find(id).map(|_| "== audit.jsonl\n{}\n".to_owned())
    }
}

/// Agents: `echo` repeats its task, `slow` never finishes, `shy` asks a question, `chooser` offers options, `curious` asks
/// again and again, `busy` is called by a run, `careful` waits for approval.
#[derive(Clone, Default)]
pub struct FakeAgents {
    pub asked: Arc<Mutex<Vec<RemoteAgentRequest>>>,
    /// Notified when the client has seen the message of `slow`, which only then starts to wait.
    pub heard: Arc<Notify>,
    /// The question that is open.
    pub open: Arc<Mutex<Option<AgentQuestion>>>,
}

impl FakeAgents {
    fn ask_caller(&self, question: AgentQuestion) -> AgentCallState {
        *self.open.lock().unwrap() = Some(question.clone());
        AgentCallState::InputRequired(question)
    }
}

fn question(id: &str, text: &str) -> AgentQuestion {
    AgentQuestion { id: id.to_owned(), text: text.to_owned(), questionnaire: None, caller: CallerKind::User }
}

fn which_database() -> Questionnaire {
    let option = |label: &str| QuestionOption { label: label.to_owned(), description: None };
    let options = vec![option("PostgreSQL"), option("SQLite")];
    let question = OptionQuestion { question: "Which?".to_owned(), header: None, options, multi_select: false };
    Questionnaire { questions: vec![question] }
}

#[async_trait]
impl AgentBackend for FakeAgents {
    async fn list(&self, _: ToolCaller<'_>) -> Result<Vec<ListedAgent>, ToolError> {
        Ok(vec![ListedAgent {
            name: "echo".to_owned(),
            agent_url: "http://127.0.0.1:7800/a2a/echo".to_owned(),
            description: Some("Repeats".to_owned()),
            status: "online".to_owned(),
            skills: vec!["repeating".to_owned()],
            host: Some("claude_cli on vm".to_owned()),
            asks_before_risky_steps: Some(true),
            takes_folders: Some(false),
        }])
    }

    async fn ask(
        &self,
        _: ToolCaller<'_>,
        ask: RemoteAgentRequest,
        wait: Duration,
        said: &watch::Sender<String>,
    ) -> Result<AgentCall, ToolError> {
        self.asked.lock().unwrap().push(ask.clone());
        let call_id = Some("a2a-1".to_owned());
        let is_open = self.open.lock().unwrap().clone();
        let state = match ask {
            RemoteAgentRequest::Wait(_) if is_open.is_some() => AgentCallState::InputRequired(is_open.unwrap()),
            RemoteAgentRequest::Wait(AgentCallRef { call_id, .. }) => {
                AgentCallState::Completed { summary: format!("done with {call_id}"), duration: None, full_output: None }
            }
            RemoteAgentRequest::Answer(AgentCallAnswer { answer, question_id, .. }) => {
                let answered = self.open.lock().unwrap().take_if(|open| open.id == question_id);
                let Some(answered) = answered else {
                    return Err(ToolError::new("not_waiting", "that question is no longer open", "Wait."));
                };
                let number = answered.id.strip_prefix("more_").and_then(|number| number.parse::<u32>().ok());
                match (number, answer) {
                    (Some(number), _) => self.ask_caller(question(&format!("more_{}", number + 1), "And?")),
                    (None, AnswerContent::Text(text)) => {
                        let summary = format!("heard {text}");
                        AgentCallState::Completed { summary, duration: None, full_output: None }
                    }
                    (None, AnswerContent::Questionnaire(answers)) => {
                        let words: Vec<_> = answers.iter().map(QuestionAnswer::in_words).collect();
                        let summary = format!("chosen {}", words.join("; "));
                        AgentCallState::Completed { summary, duration: None, full_output: None }
                    }
                }
            }
            RemoteAgentRequest::Task(AgentTask { task, agent_url, .. }) => match agent_url.as_str() {
                "echo" => AgentCallState::Completed {
                    summary: task,
                    duration: Some(Duration::from_millis(7)),
                    full_output: None,
                },
                "slow" => {
                    said.send("thinking".to_owned()).unwrap();
                    self.heard.notified().await;
                    tokio::time::sleep(wait).await;
                    AgentCallState::Running { last: Some("npm test".to_owned()) }
                }
                "shy" => self.ask_caller(question("ask_1", "Delete production?")),
                "chooser" => {
                    let questionnaire = Some(which_database());
                    self.ask_caller(AgentQuestion { questionnaire, ..question("ask_2", "Which?") })
                }
                "curious" => self.ask_caller(question("more_1", "And?")),
                "busy" => self.ask_caller(AgentQuestion { caller: CallerKind::Run, ..question("ask_3", "Now?") }),
                "careful" => AgentCallState::ApprovalRequired(PendingApproval {
                    id: Some("prm_1".to_owned()),
                    what: "Bash: touch x".to_owned(),
                    caller: CallerKind::User,
                }),
                "broken" => AgentCallState::Failed(ToolError::new("task_failed", "it fell over", "Try again.")),
                other => return Err(ToolError::new("not_found", format!("nobody is at {other}"), "Check agent_url.")),
            },
        };
        Ok(AgentCall { call_id, state })
    }

    async fn cancel(&self, _: ToolCaller<'_>, call: AgentCallRef) -> Result<AgentCall, ToolError> {
        Ok(AgentCall { call_id: Some(call.call_id), state: AgentCallState::Cancelled })
    }
}

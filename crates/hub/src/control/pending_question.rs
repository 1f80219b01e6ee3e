//! What runs wait for: a short description of the step to approve or of the question, and the questions that people can
//! answer.

use attache_protocol::{
    Code, Json, RunId, Timestamp, WorkerRequestId,
    json::Members,
    rules::{
        permission::PermissionState,
        run::{RunStatus, WaitReason},
    },
    wire::{
        account::Callers,
        awcp,
        questionnaire::Questionnaire,
        run::{PendingQuestion, Run},
    },
};
use attache_store::record::{
    AgentRef, Pagination, RunDetail, RunFilter, RunRecord,
    worker_request::{PermissionFilter, PermissionRecord, WorkerRequestKind, WorkerRequestRecord},
};

use crate::{
    Handle, Principal, Result, check,
    error::about,
    identity::{Action, RoleColumn},
};

/// The most informative members of a step's input. The first one present is shown.
const TELLING: [&str; 9] = ["command", "cmd", "script", "task", "plan", "file_path", "path", "url", "answer"];
const MAX_WORDS: usize = 500;
const MAX_PENDING: usize = 20;
/// How many running runs are read to find those that wait.
const MAX_RUNNING: usize = 2000;

/// The oldest question of a run that its caller, or a person in the caller's place, answers. Text from the agent is
/// untrusted: show it inert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnansweredQuestion {
    pub run: Run,
    pub id: WorkerRequestId,
    pub prompt: String,
    pub parts: Option<Json>,
    pub asked_at: Timestamp,
    pub expires_at: Option<Timestamp>,
}

impl Handle {
    /// The oldest pending approval, else the oldest question.
    pub(super) async fn pending_question(&self, by: &Principal, run: &RunRecord) -> Result<Option<PendingQuestion>> {
        let waits = run.state.claim().is_some_and(|claim| claim.waits.waiting().is_some());
        if run.state.status() != RunStatus::Running || !waits {
            return Ok(None);
        }
        let filter = PermissionFilter { state: Some(PermissionState::Pending), run: Some(run.id), agent: None };
        let page = Pagination { limit: MAX_PENDING, cursor: None };
        let pending = self.store().permissions(run.tenant, filter, page).await.map_err(about("permission request"))?;
        if let Some(oldest) = pending.items.last() {
            // A caller without a credential learns only that a person was asked, not what. So does everyone but the owner
            // of a private agent, which may have become private after the run began.
            let is_shown = by.column() != RoleColumn::Anonymous && !self.is_kept_from(by, oldest).await?;
            let what = if is_shown { step(oldest) } else { oldest.tool.clone() };
            let (kind, id) = (WaitReason::Approval, oldest.id.to_string());
            return Ok(Some(PendingQuestion { kind, id, what, questionnaire: None }));
        }
        let Some(ask) = self.store().open_worker_request(run.tenant, run.id).await.map_err(about("run"))? else {
            return Ok(None);
        };
        let Some(kind) = ask.what.waiting() else { return Ok(None) };
        let (what, questionnaire) = match ask.what {
            WorkerRequestKind::Input { prompt, parts } => (prompt, parts.as_ref().and_then(Questionnaire::from_parts)),
            WorkerRequestKind::Authorization { prompt, .. } => (prompt, None),
            WorkerRequestKind::Tool { tool, .. } => (tool, None),
        };
        Ok(Some(PendingQuestion { kind, id: ask.id.to_string(), what, questionnaire }))
    }

    /// Whether the step is for somebody else alone.
    async fn is_kept_from(&self, by: &Principal, asked: &PermissionRecord) -> Result<bool> {
        if by.role().is_some() || asked.private_agent {
            return Ok(!self.sees_permission(&mut self.caller_access(by).await?, by, asked).await?);
        }
        let account = self.store().account(by.tenant, AgentRef::Id(asked.agent)).await.map_err(about("agent"))?;
        let is_own = by.agent() == Some(account.id) || (account.owner.is_some() && by.user == account.owner);
        Ok(account.callers == Callers::Owner && !is_own)
    }

    /// Whether whoever started the run may see the step that it asks a person for.
    pub(crate) async fn creator_sees(&self, run: &RunRecord, asked: &PermissionRecord) -> Result<bool> {
        match self.creator_of(run).await {
            Ok(by) => self.sees_permission(&mut self.caller_access(&by).await?, &by, asked).await,
            // Their credential has ended, or it is an agent's.
            Err(error) if error.code == Code::Unauthenticated => {
                let account =
                    self.store().account(run.tenant, AgentRef::Id(asked.agent)).await.map_err(about("agent"))?;
                Ok(account.callers == Callers::Everyone && !asked.private_agent)
            }
            Err(error) => Err(error),
        }
    }

    /// The open questions of all runs that the caller may see, newest first. Those of delegations are between the
    /// delegator and the device.
    pub async fn open_questions(&self, by: &Principal) -> Result<Vec<UnansweredQuestion>> {
        let permit = by.may(Action::SeeRuns)?;
        let filter = RunFilter { status: Some(RunStatus::Running), detail: RunDetail::Excerpt, ..RunFilter::default() };
        let mut running = check::all_pages("run", |page| self.store().runs(by.tenant, filter.clone(), page));
        let (mut reach, mut questions, mut looked_at) = (self.caller_access(by).await?, Vec::new(), 0);
        while let Some(run) = running.next().await? {
            looked_at += 1;
            if looked_at > MAX_RUNNING {
                break;
            }
            let asks = run.state.waiting().is_some() && run.spec.task_type != awcp::TASK_TYPE;
            if !asks || !reach.run(&permit, &run).await? {
                continue;
            }
            if let Some(ask) = self.store().open_worker_request(by.tenant, run.id).await.map_err(about("run"))? {
                questions.extend(self.show_question(run, ask).await?);
            }
        }
        questions.sort_by_key(|question| std::cmp::Reverse(question.asked_at));
        Ok(questions)
    }

    /// The open question of one run.
    pub async fn open_question(&self, by: &Principal, run: RunId) -> Result<Option<UnansweredQuestion>> {
        let run = self.visible_run(by, run).await?;
        let ask = self.store().open_worker_request(by.tenant, run.id).await.map_err(about("run"))?;
        match ask {
            Some(ask) => self.show_question(run, ask).await,
            None => Ok(None),
        }
    }

    async fn show_question(&self, run: RunRecord, ask: WorkerRequestRecord) -> Result<Option<UnansweredQuestion>> {
        let (WorkerRequestKind::Input { prompt, parts } | WorkerRequestKind::Authorization { prompt, parts }) =
            ask.what
        else {
            return Ok(None);
        };
        let run = self.show_run(run).await?;
        let WorkerRequestRecord { id, asked_at, expires_at, .. } = ask;
        Ok(Some(UnansweredQuestion { run, id, prompt, parts, asked_at, expires_at }))
    }
}

/// `Bash: touch x`
fn step(asked: &PermissionRecord) -> String {
    let words = asked.input.parse::<Members>().ok().and_then(|members| {
        TELLING
            .iter()
            .find_map(|name| members.find(name))
            .map(|value| value.parse().unwrap_or_else(|_| value.get().to_owned()))
    });
    let words = words.unwrap_or_else(|| asked.input.get().to_owned());
    match words.char_indices().nth(MAX_WORDS) {
        Some((end, _)) => format!("{}: {} …", asked.tool, &words[..end]),
        None => format!("{}: {words}", asked.tool),
    }
}

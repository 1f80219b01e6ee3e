//! A short description of what a run waits for: the step to approve, or the question.

use attache_protocol::{
    json::Members,
    rules::{
        permission::PermissionState,
        run::{RunStatus, WaitReason},
    },
    wire::run::PendingQuestion,
};
use attache_store::record::{
    Pagination, RunRecord,
    worker_request::{PermissionFilter, PermissionRecord, WorkerRequestKind},
};

use crate::{Handle, Principal, Result, error::about, identity::RoleColumn};

/// The most informative members of a step's input. The first one present is shown.
const TELLING: [&str; 8] = ["command", "cmd", "script", "task", "file_path", "path", "url", "answer"];
const MAX_WORDS: usize = 500;
const MAX_PENDING: usize = 20;

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
            // if it is a call to a private agent.
            let is_shown = by.column() != RoleColumn::Anonymous
                && (!oldest.private_agent
                    || self.sees_permission(&mut self.caller_access(by).await?, by, oldest).await?);
            let what = if is_shown { step(oldest) } else { oldest.tool.clone() };
            return Ok(Some(PendingQuestion { kind: WaitReason::Approval, id: oldest.id.to_string(), what }));
        }
        let Some(ask) = self.store().open_worker_request(run.tenant, run.id).await.map_err(about("run"))? else {
            return Ok(None);
        };
        let Some(kind) = ask.what.waiting() else { return Ok(None) };
        let what = match ask.what {
            WorkerRequestKind::Input { prompt, .. } | WorkerRequestKind::Authorization { prompt, .. } => prompt,
            WorkerRequestKind::Tool { tool, .. } => tool,
        };
        Ok(Some(PendingQuestion { kind, id: ask.id.to_string(), what }))
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

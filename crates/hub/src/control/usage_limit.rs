//! What becomes of a run when the model account of its agent reaches a usage limit: it waits for the reset, goes on with
//! the agent that its caller named for this case, or fails.

use std::time::Duration;

use attache_protocol::{
    AgentId, Json, RunId, Timestamp,
    digest::half,
    rules::{
        quota::QuotaBudget,
        run::{FailureCode, RunLimits},
    },
    wire::{account::OnLimit, awcp, run::CreateRunRequest, usage::ReportedUsage},
};
use attache_store::{
    Error as StoreError, WriteContext,
    record::{AgentRef, ConversationRecord, NewRun, RunCreation, RunRecord, RunResult, RunSpec},
};
use serde::Deserialize;

use crate::{
    Error, Handle, Principal, Result, check,
    control::create_run::{RunTerms, WHAT},
    error::about,
    identity::{Action, Permit, RoleColumn},
};

/// The longest that a run waits for limits, from its creation: a little more than a weekly limit takes.
const MAX_WAIT: Duration = Duration::from_secs(8 * 24 * 60 * 60);
/// When it tries again if the agent doesn't know when its limit resets.
const UNKNOWN_RESET: Duration = Duration::from_secs(30 * 60);
/// Clocks differ, and so do the seconds that providers leave out.
const MARGIN: Duration = Duration::from_secs(15);
/// The member of a failure that names the run that continues the task. Only the hub writes it.
pub(super) const CONTINUED_BY: &str = "continued_by";

/// What an agent reported about the limit.
#[derive(Default, Deserialize)]
struct LimitReport {
    #[serde(default)]
    resets_at: Option<Timestamp>,
}

// === impl Handle ===

impl Handle {
    /// The fallback of a new run. The caller must be allowed to send it the same task.
    pub(super) async fn fallback_of(
        &self,
        permit: &Permit<'_>,
        request: &CreateRunRequest,
        new: Option<&ConversationRecord>,
    ) -> Result<Option<AgentId>> {
        let Some(name) = &request.fallback_agent_id else { return Ok(None) };
        let by = permit.by();
        if matches!(by.column(), RoleColumn::AgentKey | RoleColumn::Run | RoleColumn::Anonymous) {
            return Err(Error::forbidden("Only people and their own keys can name a fallback agent."));
        }
        if request.task_type.as_deref() == Some(awcp::TASK_TYPE) {
            return Err(Error::invalid("fallback_agent_id", "can't be used with a delegated folder"));
        }
        let find = |agent: AgentRef| self.store().account(by.tenant, agent);
        let fallback = find(check::agent_ref("fallback_agent_id", name)?).await.map_err(about("fallback agent"))?;
        if fallback.archived_at.is_some() {
            return Err(Error::not_found("fallback agent"));
        }
        let target = find(check::agent_ref("agent_id", &request.agent_id)?).await.map_err(about(WHAT))?;
        if fallback.id == target.id {
            return Err(Error::invalid("fallback_agent_id", "must be an agent other than the one that gets the task"));
        }
        let same = CreateRunRequest { agent_id: fallback.id.to_string(), ..request.clone() };
        self.origin_of(permit, &same, new).await?;
        Ok(Some(fallback.id))
    }

    /// The outcome of a run whose worker reports a usage limit.
    pub(super) async fn met_limit(
        &self,
        by: &Principal,
        run: RunId,
        epoch: Option<i64>,
        result: Json,
        usage: Option<&Json>,
    ) -> Result<RunResult> {
        let failed = |result| Ok(RunResult::Failed { code: FailureCode::UsageLimit, result });
        let worker = by.may(Action::Work)?.worker(epoch)?;
        // Whoever doesn't hold the run is refused when it reports.
        let Ok(record) = self.store().run(by.tenant, run).await else { return failed(result) };
        let is_held = record.state.claim().is_some_and(|claim| claim.runtime == worker.runtime)
            && epoch.is_none_or(|epoch| epoch == record.state.epoch);
        if !is_held {
            return failed(result);
        }
        let account = self.store().account(by.tenant, AgentRef::Id(record.agent)).await.map_err(about("agent"))?;
        match account.on_limit {
            OnLimit::Wait => {
                let LimitReport { resets_at } = result.parse().unwrap_or_default();
                match retry_at(resets_at, record.created_at, self.now()) {
                    Some(until) => Ok(RunResult::Deferred { until }),
                    None => failed(result),
                }
            }
            OnLimit::Fallback => match self.fall_back(&record, usage).await? {
                Some(next) => failed(with_continuation(&result, next)?),
                None => failed(result),
            },
            OnLimit::Fail => failed(result),
        }
    }

    /// Gives the task to the run's fallback agent. `None` if there is none, or the run's caller couldn't send it the task any
    /// more. A repeated report finds the run that the first one created.
    async fn fall_back(&self, run: &RunRecord, usage: Option<&Json>) -> Result<Option<RunId>> {
        let Some(fallback) = run.spec.fallback else { return Ok(None) };
        let RunTerms { origin, mode } = match self.terms_of_continuation(run, fallback).await {
            Ok(terms) => terms,
            Err(error) if error.code.http_status() >= 500 => return Err(error),
            Err(error) => {
                tracing::debug!(run.id = %run.id, %error, "the fallback agent can't continue the task");
                return Ok(None);
            }
        };
        // What the caller didn't choose is the agent's.
        let usual = self.options().run_timeout;
        let firsts =
            self.store().account(run.tenant, AgentRef::Id(run.agent)).await.map_err(about("agent"))?.run_timeout;
        let timeout = match run.state.limits.timeout {
            chosen if chosen != firsts.unwrap_or(usual) => chosen,
            _ => origin.timeout().unwrap_or(usual),
        };
        let key = half(blake3::hash(format!("continues:{}", run.id).as_bytes()));
        let new = NewRun {
            id: self.env().run_id(),
            agent: AgentRef::Id(fallback),
            conversation: Some(run.conversation),
            opens_conversation: false,
            spec: RunSpec {
                budget: what_is_left(run.spec.budget, usage.or(run.usage.as_ref())),
                // A folder of one agent's device means nothing to another.
                workspace_root: None,
                sandbox: origin.sandbox(run.spec.sandbox),
                permission_mode: mode,
                fallback: None,
                continues: Some(run.id),
                ..run.spec.clone()
            },
            limits: RunLimits { timeout, ..run.state.limits },
            payer: origin.payer(),
            push: None,
            follow: None,
            approval: None,
            idempotency_key: Some(key),
            request_digest: key,
        };
        let context = WriteContext { tenant: run.tenant, actor: run.caller.clone(), user: run.user, at: self.now() };
        match self.store().create_run(context, new).await {
            Ok(RunCreation::New(next)) => {
                self.metrics().runs_created.add(1);
                Ok(Some(next.id))
            }
            Ok(RunCreation::Existing(next)) => Ok(Some(next.id)),
            Err(
                StoreError::NotFound
                | StoreError::AgentArchived
                | StoreError::QuotaExceeded { .. }
                | StoreError::RunDeleted,
            ) => Ok(None),
            Err(error) => Err(Error::from_store("fallback agent", error)),
        }
    }
}

impl Handle {
    /// The same as for a new run of the same caller. The rights of both can have changed since the first one was created,
    /// and its mode was chosen for another agent: it can only make this one stricter.
    async fn terms_of_continuation(&self, run: &RunRecord, fallback: AgentId) -> Result<RunTerms> {
        let by = self.creator_of(run).await?;
        let request = CreateRunRequest {
            agent_id: fallback.to_string(),
            conversation_id: Some(run.conversation),
            parent_task_run_id: run.spec.parent,
            worktree: run.spec.worktree,
            ..CreateRunRequest::default()
        };
        self.run_terms(&by.may(Action::CreateRun)?, &request, None, run.spec.permission_mode).await
    }
}

/// When a run that met a limit goes back to the queue. `None` if that is too late.
fn retry_at(resets_at: Option<Timestamp>, created_at: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let at = match resets_at.filter(|at| *at > now) {
        Some(at) => at.plus(MARGIN),
        None => now.plus(UNKNOWN_RESET),
    };
    (at <= created_at.plus(MAX_WAIT)).then_some(at)
}

fn what_is_left(budget: QuotaBudget, usage: Option<&Json>) -> QuotaBudget {
    let spent = ReportedUsage::spend(usage);
    QuotaBudget {
        tokens: budget.tokens.map(|tokens| tokens.saturating_sub(spent.tokens)),
        micro_usd: budget.micro_usd.map(|micro_usd| micro_usd.saturating_sub(spent.micro_usd)),
    }
}

/// The failure, with the run that continues in its place.
fn with_continuation(result: &Json, next: RunId) -> Result<Json> {
    let members = result.get().trim_end().strip_suffix('}').unwrap_or_default();
    Json::from_text(format!(r#"{members},"{CONTINUED_BY}":"{next}"}}"#)).map_err(|error| Error::internal(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_waits_for_the_reset_but_not_forever() {
        let at = |seconds: u64| Timestamp::from_millis(0).plus(Duration::from_secs(seconds));
        let day = 24 * 60 * 60;
        assert_eq!(retry_at(Some(at(5_000)), at(0), at(1_000)), Some(at(5_015)));
        // Unknown, or said to be over already.
        assert_eq!(retry_at(None, at(0), at(1_000)), Some(at(2_800)));
        assert_eq!(retry_at(Some(at(999)), at(0), at(1_000)), Some(at(2_800)));
        assert_eq!(retry_at(Some(at(7 * day)), at(0), at(1_000)), Some(at(7 * day + 15)));
        assert_eq!(retry_at(Some(at(9 * day)), at(0), at(1_000)), None);
        assert_eq!(retry_at(None, at(0), at(8 * day)), None);
    }

    #[test]
    fn a_failure_names_the_run_that_goes_on() {
        let next = RunId::from_uuid(uuid::Uuid::from_u128(7));
        let result = Json::from_text(r#"{"error":"}","code":"usage_limit","x":{}}"#).unwrap();
        assert_eq!(
            with_continuation(&result, next).unwrap().get(),
            format!(r#"{{"error":"}}","code":"usage_limit","x":{{}},"continued_by":"{next}"}}"#)
        );
    }
}

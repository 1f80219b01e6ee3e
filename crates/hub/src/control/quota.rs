//! Quotas: daily limits for users and agents, and the errors when they are exceeded.

use std::time::Duration;

use attache_protocol::{
    Code, Json, UserId,
    rules::quota::{self, ExceededLimit, QuotaLimits, QuotaMeasure, Spend, UtcDay, micro_usd, usd},
    wire::usage::{Budget, Quota, QuotaList, SetQuotaRequest, UsageAmounts},
};
use attache_store::record::{
    AgentRef,
    quota::{QuotaRecord, QuotaTarget},
    user::UserRef,
};

use crate::{Error, Handle, Principal, Result, check, error::about, identity::Action};

const WHAT: &str = "user, agent or quota";
/// When to retry if the quota is reserved by other runs, since some may be released by then.
const RESERVED_RETRY_INTERVAL: Duration = Duration::from_secs(60);

impl Handle {
    /// Includes today's usage.
    pub async fn quotas(&self, by: &Principal) -> Result<QuotaList> {
        by.may_all(Action::SeeQuotas)?;
        let found = self.store().quotas(by.tenant, self.now()).await.map_err(about("tenant"))?;
        let mut quotas = Vec::with_capacity(found.len());
        for quota in found {
            quotas.push(self.shown_quota(by, quota).await?);
        }
        Ok(QuotaList { quotas, next_cursor: None })
    }

    /// Sets the limits of a target. Without any limit its quota is removed, and the result is `None`.
    pub async fn set_quota(&self, by: &Principal, request: SetQuotaRequest) -> Result<Option<Quota>> {
        by.may_all(Action::SetQuota)?;
        let limits = QuotaLimits {
            calls: request.calls,
            tokens: request.tokens,
            micro_usd: request.cost_usd.as_ref().map(|cost| dollars("cost_usd", cost)).transpose()?,
        };
        let target = QuotaTarget {
            user: match &request.user {
                Some(user) => Some(self.user_named(by, user).await?),
                None => None,
            },
            agent: match &request.agent {
                Some(agent) => {
                    let agent = check::agent_ref("agent", agent)?;
                    Some(self.store().account(by.tenant, agent).await.map_err(about(WHAT))?.id)
                }
                None => None,
            },
        };
        if limits == QuotaLimits::default() {
            self.store().remove_quota(self.context(by), target).await.map_err(about(WHAT))?;
            return Ok(None);
        }
        let quota = self.store().set_quota(self.context(by), target, limits).await.map_err(about(WHAT))?;
        self.shown_quota(by, quota).await.map(Some)
    }

    /// An id may also name a removed user, so that their quota can be removed and their usage read.
    pub(crate) async fn user_named(&self, by: &Principal, user: &str) -> Result<UserId> {
        let user = check::user_ref("user", user)?;
        self.store().user(by.tenant, user).await.map(|user| user.id).map_err(about(WHAT))
    }

    /// The error for an exceeded quota, with the next step.
    pub(crate) async fn quota_exceeded(
        &self,
        by: &Principal,
        target: QuotaTarget,
        exceeded: ExceededLimit,
        wanted: quota::QuotaBudget,
    ) -> Error {
        let whose = match self.target_names(by, target).await {
            Ok((None, None)) => "the whole hub".to_owned(),
            Ok((Some(user), None)) => format!("the user `{user}`"),
            Ok((None, Some(agent))) => format!("the agent `{agent}`"),
            Ok((Some(user), Some(agent))) => format!("the user `{user}` with the agent `{agent}`"),
            Err(_) => "a user or agent".to_owned(),
        };
        let ExceededLimit { measure, line, limit, spent, held, resets_at } = exceeded;
        let left = limit.saturating_sub(spent).saturating_sub(held);
        let message = match line {
            Some(_) => format!(
                "The daily quota of {whose} {}: {} of {} used, {} reserved by runs in progress.{}",
                if left == 0 { "is used up" } else { "has too little left" },
                amount(measure, spent),
                amount_with_unit(measure, limit),
                amount(measure, held),
                if left == 0 {
                    String::new()
                } else {
                    format!(" A `budget` of {} would fit.", amount_with_unit(measure, left))
                },
            ),
            None => format!("The run's own budget of {} is used up.", amount_with_unit(measure, limit)),
        };
        let wanted = match measure {
            QuotaMeasure::Calls => None,
            QuotaMeasure::Tokens => wanted.tokens,
            QuotaMeasure::Cost => wanted.micro_usd,
        };
        let fits_later = line.is_some() && spent.saturating_add(wanted.unwrap_or(1)) <= limit;
        let (when, wait) = match fits_later {
            true => ("Runs release unused reservations when they end".to_owned(), RESERVED_RETRY_INTERVAL),
            false => (format!("The quota resets at {resets_at}"), resets_at.since(self.now())),
        };
        let hint = format!("{when}. An owner can raise it: `attache quotas set`.");
        Error::new(Code::QuotaExceeded, message).hint(hint).retry_after(wait)
    }

    /// The names of the user and of the agent.
    async fn target_names(&self, by: &Principal, target: QuotaTarget) -> Result<(Option<String>, Option<String>)> {
        let user = match target.user {
            Some(user) => Some(self.store().user(by.tenant, UserRef::Id(user)).await.map_err(about("user"))?.name),
            None => None,
        };
        let agent = match target.agent {
            Some(agent) => {
                let account = self.store().account(by.tenant, AgentRef::Id(agent)).await;
                Some(account.map_err(about("agent"))?.name)
            }
            None => None,
        };
        Ok((user, agent))
    }

    async fn shown_quota(&self, by: &Principal, quota: QuotaRecord) -> Result<Quota> {
        let QuotaRecord { target, limits, account } = quota;
        let (user_name, agent_name) = self.target_names(by, target).await?;
        Ok(Quota {
            user_id: target.user,
            user_name,
            agent_id: target.agent,
            agent_name,
            calls: limits.calls,
            tokens: limits.tokens,
            cost_usd: limits.micro_usd.map(cost),
            spent: amounts(account.spent),
            held: amounts(account.held),
            resets_at: UtcDay::of(self.now()).max(account.day).ends_at(),
        })
    }
}

/// A run's budget as set by its caller.
pub(crate) fn budget(given: Option<&Budget>) -> Result<quota::QuotaBudget> {
    let Some(given) = given else { return Ok(quota::QuotaBudget::default()) };
    let micro_usd = given.cost_usd.as_ref().map(|cost| dollars("budget.cost_usd", cost)).transpose()?;
    Ok(quota::QuotaBudget { tokens: given.tokens, micro_usd })
}

fn dollars(field: &str, given: &Json) -> Result<u64> {
    micro_usd(given.get()).ok_or_else(|| Error::invalid(field, "must be a non-negative number of dollars"))
}

/// Millionths of a dollar, written as dollars in JSON.
pub(crate) fn cost(micro_usd: u64) -> Json {
    Json::from_text(usd(micro_usd)).expect("dollars are written as JSON writes numbers")
}

fn amounts(spend: Spend) -> UsageAmounts {
    UsageAmounts { calls: spend.calls, tokens: spend.tokens, cost_usd: cost(spend.micro_usd) }
}

fn amount(measure: QuotaMeasure, amount: u64) -> String {
    match measure {
        QuotaMeasure::Calls | QuotaMeasure::Tokens => amount.to_string(),
        QuotaMeasure::Cost => format!("${}", usd(amount)),
    }
}

fn amount_with_unit(measure: QuotaMeasure, limit: u64) -> String {
    match measure {
        QuotaMeasure::Calls | QuotaMeasure::Tokens => format!("{limit} {}", measure.as_str()),
        QuotaMeasure::Cost => format!("${}", usd(limit)),
    }
}

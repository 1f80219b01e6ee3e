//! Usage of runs: by day, user and agent, and per call.

use std::collections::HashMap;

use attache_protocol::{
    Actor, AgentId, Code, Timestamp, UserId,
    rules::quota::UtcDay,
    wire::{
        call::CallId,
        usage::{CostSource, ReportedUsage, UsageRecord, UsageRecordList, UsageReport, UsageRow},
    },
};
use attache_store::record::{AgentRef, Pagination, RunDetail, RunFilter, RunRecord, quota::DailyUsage, user::UserRef};

use crate::{
    Error, Handle, Principal, Result,
    control::{PageRequest, quota::cost},
    error::{about, about_list},
    identity::Action,
};

const DEFAULT_DAYS: i64 = 30;
const MAX_DAYS: i64 = 400;
/// How many pages of runs are read to fill one page of records. After that, the response says where to continue.
const MAX_LOOKS: usize = 25;

/// First and last day, as `2026-11-15`, both included. Default: the last thirty days.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageQuery {
    pub from: Option<String>,
    pub to: Option<String>,
}

/// Filters for usage records. All given members must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordQuery {
    /// By id or name.
    pub agent: Option<String>,
    pub user: Option<String>,
    /// The day of the call, as `2026-11-15`.
    pub day: Option<String>,
    pub page: PageRequest,
}

impl Handle {
    pub async fn usage(&self, by: &Principal, query: UsageQuery) -> Result<UsageReport> {
        let permit = by.may(Action::SeeUsage)?;
        let today = UtcDay::of(self.now());
        let last = query.to.as_deref().map_or(Ok(today), |text| day("to", text))?;
        let first = query.from.as_deref().map_or(Ok(UtcDay(last.0 - DEFAULT_DAYS + 1)), |text| day("from", text))?;
        if first > last || last.0 - first.0 >= MAX_DAYS {
            return Err(Error::invalid("from", "must be before `to`, by at most 400 days"));
        }
        let used = self.store().usage(by.tenant, first, last).await.map_err(about("tenant"))?;
        let mut names = UsageNames::default();
        let mut rows = Vec::with_capacity(used.len());
        for row in used.into_iter().filter(|row| permit.covers_user(row.user)) {
            rows.push(self.usage_row(by, row, &mut names).await?);
        }
        Ok(UsageReport { from: day_text(first), to: day_text(last), rows })
    }

    /// One record per ended call, newest first.
    pub async fn usage_records(&self, by: &Principal, query: RecordQuery) -> Result<UsageRecordList> {
        let permit = by.may(Action::SeeUsage)?;
        let mut page = query.page.page()?;
        let wanted = page.limit;
        let day = query.day.as_deref().map(|text| day("day", text)).transpose()?;
        let agent = match &query.agent {
            Some(agent) => Some(self.resolve_agent(by, agent).await?),
            None => None,
        };
        let mut user = match &query.user {
            Some(user) => match self.user_named(by, user).await {
                Ok(user) if permit.covers_user(Some(user)) => Some(user),
                Err(error) if permit.covers_others() || error.code != Code::NotFound => return Err(error),
                // Don't reveal whether other users exist.
                Ok(_) | Err(_) => return Ok(UsageRecordList { usage_records: Vec::new(), next_cursor: None }),
            },
            None => None,
        };
        if !permit.covers_others() {
            user = by.user;
        }
        let is_wanted = |run: &RunRecord| {
            let in_time = day.is_none_or(|day| UtcDay::of(run.created_at) == day);
            in_time && run.state.status().is_terminal() && permit.covers_user(run.user)
        };
        let filter = RunFilter { agent, user, detail: RunDetail::Excerpt, ..RunFilter::default() };
        let (mut usage_records, mut seen) = (Vec::new(), self.private_work(by));
        let _turn = self.long_read(by).await;
        for _ in 0..MAX_LOOKS {
            let failed = about_list("run", &page);
            let asked = Pagination { limit: wanted - usage_records.len(), cursor: page.cursor.take() };
            let listed = self.store().runs(by.tenant, filter.clone(), asked).await.map_err(failed)?;
            let is_past = |run: &RunRecord| day.is_some_and(|day| UtcDay::of(run.created_at) < day);
            let is_over = listed.items.last().is_some_and(is_past);
            for run in listed.items.iter().filter(|run| is_wanted(run)) {
                usage_records.push(record(run, seen.sees_run(run).await?));
            }
            page.cursor = listed.next.filter(|_| !is_over);
            if page.cursor.is_none() || usage_records.len() >= wanted {
                break;
            }
        }
        Ok(UsageRecordList { usage_records, next_cursor: page.cursor })
    }

    async fn usage_row(&self, by: &Principal, row: DailyUsage, names: &mut UsageNames) -> Result<UsageRow> {
        let user_name = match row.user {
            Some(user) => Some(names.user(self, by, user).await?),
            None => None,
        };
        Ok(UsageRow {
            day: day_text(row.day),
            user_id: row.user,
            user_name,
            agent_id: row.agent,
            agent_name: names.agent(self, by, row.agent).await?,
            calls: row.calls,
            failed: row.failed,
            tokens: row.tokens,
            cost_usd: cost(row.micro_usd),
            reported: row.reported,
            estimated: row.estimated,
            unknown: row.unknown,
            duration_ms: row.duration_ms,
        })
    }
}

/// What a private run cost is no secret, but how to find it is.
fn record(run: &RunRecord, is_seen: bool) -> UsageRecord {
    let used = run.usage.as_ref().and_then(|usage| ReportedUsage::read(usage).ok()).unwrap_or(ReportedUsage::NOTHING);
    let ended = run.ended_at.unwrap_or(run.created_at);
    UsageRecord {
        call_id: is_seen.then(|| CallId::of(run.id)),
        caller: run.user.filter(|_| !is_seen).map_or_else(|| run.caller.clone(), Actor::User).to_string(),
        callee: run.agent_name.clone(),
        tokens: used.tokens,
        cost: used.micro_usd.map(cost),
        cost_source: if used.micro_usd.is_some() { used.source } else { CostSource::Unknown },
        duration_ms: u64::try_from(ended.since(run.created_at).as_millis()).unwrap_or(u64::MAX),
    }
}

/// `2026-11-15`.
fn day_text(day: UtcDay) -> String {
    let text = day.begins_at().to_string();
    text.split_once('T').map_or(text.clone(), |(day, _)| day.to_owned())
}

fn day(field: &str, text: &str) -> Result<UtcDay> {
    let at: std::result::Result<Timestamp, _> = format!("{text}T00:00:00.000Z").parse();
    let parsed = at.ok().map(UtcDay::of).filter(|day| day_text(*day) == text);
    parsed.ok_or_else(|| Error::invalid(field, "must be a day, like 2026-11-15"))
}

/// Names looked up for this response.
#[derive(Debug, Default)]
struct UsageNames {
    users: HashMap<UserId, String>,
    agents: HashMap<AgentId, String>,
}

// === impl UsageNames ===

impl UsageNames {
    async fn user(&mut self, hub: &Handle, by: &Principal, user: UserId) -> Result<String> {
        if let Some(name) = self.users.get(&user) {
            return Ok(name.clone());
        }
        let name = hub.store().user(by.tenant, UserRef::Id(user)).await.map_err(about("user"))?.name;
        self.users.insert(user, name.clone());
        Ok(name)
    }

    async fn agent(&mut self, hub: &Handle, by: &Principal, agent: AgentId) -> Result<String> {
        if let Some(name) = self.agents.get(&agent) {
            return Ok(name.clone());
        }
        let name = hub.store().account(by.tenant, AgentRef::Id(agent)).await.map_err(about("agent"))?.name;
        self.agents.insert(agent, name.clone());
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_one_format() {
        assert_eq!(day("from", "2026-11-15").map(day_text), Ok("2026-11-15".to_owned()));
        assert_eq!(day("from", "1970-01-01"), Ok(UtcDay(0)));
        for bad in ["", "2026-11-31", "2026-1-5", "today", "2026-11-15T00:00:00Z", "+2026-11-15"] {
            assert!(day("from", bad).is_err(), "{bad}");
        }
    }
}

//! The sidebar of a run: details, usage and deliveries.

use std::time::Duration;

use attache_hub::{
    control::{DeliveryQuery, PageRequest},
    identity::{AccessVerdict, Action},
};
use attache_protocol::{
    Json,
    wire::{
        run::Run,
        usage::{CostSource, ReportedUsage},
    },
};

use crate::{
    page::person_name,
    problem::PageResult,
    session::BrowserSession,
    text::Text,
    view::{
        amount::{count, money},
        delivery,
        escape_stripper::plain,
        fact::Fact,
        html::{Markup, PageLink},
        recovery,
        time::duration,
    },
};

/// The number of deliveries shown here. The deliveries page has all of them.
const MAX_DELIVERIES: usize = 5;

/// The details that the page doesn't show elsewhere.
pub(crate) async fn facts(session: &BrowserSession, run: &Run) -> PageResult<Vec<Fact>> {
    let t = session.t;
    let mut facts = vec![Fact::code(t.run, &run.task_run_id.to_string())];
    if let Some(remote) = recovery::sign(run, t) {
        let sign = format!(
            "<span class=\"st {0}\"><svg class=\"m {0}\" aria-hidden=\"true\"><use href=\"#{1}\"/></svg><span>{2}</span></span>",
            remote.class,
            remote.icon,
            Markup::text(remote.word)
        );
        facts.push(Fact::markup(t.fact_recovery, Markup::trusted(sign)));
    }
    if let Some(user) = run.user_id {
        facts.push(Fact::text(t.fact_user, &person_name(session, user).await?));
    }
    let conversation = format!("/conversations/{}", run.conversation_id);
    facts.push(Fact::markup(t.conversation, Markup::of(PageLink(&conversation, t.fact_conversation_open))));
    if let Some(parent) = run.parent_task_run_id {
        facts.push(Fact::markup(t.fact_parent, Markup::id_link("runs", &parent.to_string())));
    }
    if let Some(first) = run.continues {
        facts.push(Fact::markup(t.fact_continues, Markup::id_link("runs", &first.to_string())));
    }
    facts.push(Fact::text(t.fact_attempt, &t.fact_attempt_of(run.attempt, run.max_attempts)));
    if run.priority != 0 {
        facts.push(Fact::text(t.fact_priority, &run.priority.to_string()));
    }
    let limit = Duration::from_millis(run.timeout_ms);
    facts.push(Fact::text(t.fact_timeout, &duration(limit, t)));
    if let Some(at) = run.expires_at {
        facts.push(Fact::when(t.fact_expires, at));
    }
    if let Some(at) = run.deferred_until {
        facts.push(Fact::when(t.fact_deferred, at));
    }
    if let Some(at) = run.lease_expires_at {
        facts.push(Fact::when(t.fact_lease, at));
    }
    if let Some(usage) = &run.usage {
        facts.extend(used(usage, t));
    }
    if let Some(trace) = &run.trace_id {
        facts.push(Fact::code(t.fact_trace, trace));
    }
    Ok(facts)
}

/// The newest deliveries about this run.
pub(crate) async fn recent_deliveries(
    session: &BrowserSession,
    run: &Run,
) -> PageResult<Vec<delivery::DeliveryListRow>> {
    if session.principal.verdict(Action::SeeDeliveries) == AccessVerdict::No {
        return Ok(Vec::new());
    }
    let page = PageRequest { limit: Some(MAX_DELIVERIES), cursor: None };
    let query = DeliveryQuery { state: None, run: Some(run.task_run_id), page };
    let list = session.hub.deliveries(&session.principal, query).await?;
    Ok(list.deliveries.iter().map(|one| delivery::DeliveryListRow::new(one, session.t)).collect())
}

/// The reported usage: known members as text, anything else as raw JSON.
fn used(usage: &Json, t: &'static Text) -> Vec<Fact> {
    let counted = ReportedUsage::read(usage).unwrap_or(ReportedUsage::NOTHING);
    let mut facts = Vec::new();
    let source = match counted.source {
        CostSource::Reported => t.cost_reported,
        CostSource::Estimated => t.cost_estimated,
        CostSource::Unknown => t.cost_unknown,
    };
    if let Some(tokens) = counted.tokens {
        facts.push(Fact::text(t.tokens, &t.amount_source(count(tokens), source)));
    }
    if let Some(cost) = counted.micro_usd {
        facts.push(Fact::text(t.cost, &t.amount_source(money(cost), source)));
    }
    let known = ["tokens", "cost_usd", "source", "cost_source"];
    let says_more = match usage.parse::<serde_json::Value>() {
        Ok(serde_json::Value::Object(members)) => members.keys().any(|member| !known.contains(&member.as_str())),
        Ok(_) | Err(_) => true,
    };
    if says_more || facts.is_empty() {
        facts.push(Fact::code(t.usage, &plain(usage.get())));
    }
    facts
}

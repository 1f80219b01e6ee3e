//! What stands beside a run's log: its facts, what it used, and which webhooks were told.

use std::time::Duration;

use attache_hub::{
    control::{DeliveryQuery, PageRequest},
    identity::{Action, Verdict},
};
use attache_protocol::{
    Json,
    wire::{
        run::Run,
        usage::{CostSource, Used},
    },
};

use crate::{
    Console,
    page::person_name,
    problem::Result,
    session::Session,
    text::{Text, fill},
    view::{
        amount::{count, money},
        caller::short,
        delivery,
        fact::Fact,
        html::{Blank, Markup},
        plain::plain,
        recovery,
        time::{When, duration},
    },
};

/// So many deliveries are shown here; their own page has all of them.
const TOLD: usize = 5;

/// Everything about the run that its page does not show elsewhere.
pub(crate) async fn facts(console: &Console, session: &Session, run: &Run) -> Result<Vec<Fact>> {
    let t = session.t;
    let mut facts = vec![Fact::code(t.fact_run, &run.task_run_id.to_string())];
    if let Some(remote) = recovery::sign(run, t) {
        let sign = format!(
            "<span class=\"st {0}\"><svg class=\"m {0}\" aria-hidden=\"true\"><use href=\"#{1}\"/></svg><span>{2}</span></span>",
            remote.class,
            remote.icon,
            Markup::text(remote.word)
        );
        facts.push(Fact::markup(t.fact_recovery, Markup::own(sign)));
    }
    if let Some(user) = run.user_id {
        facts.push(Fact::text(t.office.fact_user, &person_name(console, session, user).await?));
    }
    if run.conversation_id != run.task_run_id.own_conversation() {
        facts.push(Fact::code(t.fact_conversation, &short(&run.conversation_id.to_string())));
    }
    if let Some(parent) = run.parent_task_run_id {
        let (href, text) = (format!("/runs/{parent}"), short(&parent.to_string()));
        facts.push(Fact::markup(t.fact_parent, Markup::sentence("{run}", &[("run", Blank::Link(&href, &text))])));
    }
    let attempts = [("n", &*run.attempt.to_string()), ("max", &*run.max_attempts.to_string())];
    facts.push(Fact::text(t.fact_attempt, &fill(t.fact_attempt_of, &attempts)));
    if run.priority != 0 {
        facts.push(Fact::text(t.fact_priority, &run.priority.to_string()));
    }
    let limit = Duration::from_millis(run.timeout_ms);
    facts.push(Fact::text(t.fact_timeout, &duration(limit, t)));
    let when = |at| Markup::sentence("{at}", &[("at", Blank::When(When::relative(at)))]);
    if let Some(at) = run.expires_at {
        facts.push(Fact::markup(t.fact_expires, when(at)));
    }
    if let Some(at) = run.lease_expires_at {
        facts.push(Fact::markup(t.fact_lease, when(at)));
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
pub(crate) async fn told(console: &Console, session: &Session, run: &Run) -> Result<Vec<delivery::Row>> {
    if session.principal.verdict(Action::SeeDeliveries) == Verdict::No {
        return Ok(Vec::new());
    }
    let page = PageRequest { limit: Some(TOLD), cursor: None };
    let query = DeliveryQuery { state: None, run: Some(run.task_run_id), page };
    let list = console.hub.deliveries(&session.principal, query).await?;
    Ok(list.deliveries.iter().map(|one| delivery::Row::new(one, session.t)).collect())
}

/// What the run says that it used: what can be counted in words, anything else as it came.
fn used(usage: &Json, t: &'static Text) -> Vec<Fact> {
    let counted = Used::read(usage).unwrap_or(Used::NOTHING);
    let mut facts = Vec::new();
    let source = match counted.source {
        CostSource::Reported => t.office.cost_reported,
        CostSource::Estimated => t.office.cost_estimated,
        CostSource::Unknown => t.office.cost_unknown,
    };
    if let Some(tokens) = counted.tokens {
        facts.push(Fact::text(t.office.fact_tokens, &format!("{}, {source}", count(tokens))));
    }
    if let Some(cost) = counted.micro_usd {
        facts.push(Fact::text(t.office.fact_cost, &format!("{}, {source}", money(cost))));
    }
    let known = ["tokens", "cost_usd", "source", "cost_source"];
    let says_more = match usage.parse::<serde_json::Value>() {
        Ok(serde_json::Value::Object(members)) => members.keys().any(|member| !known.contains(&member.as_str())),
        Ok(_) | Err(_) => true,
    };
    if says_more || facts.is_empty() {
        facts.push(Fact::code(t.fact_usage, &plain(usage.get())));
    }
    facts
}

//! The form that sets a quota, and the button that removes one.

use attache_protocol::{
    Json,
    rules::quota::{micro_usd, usd},
    wire::usage::{Quota, SetQuotaRequest},
};
use axum::{
    extract::State,
    http::{StatusCode, Uri},
};

use crate::{
    Console,
    form::{Fields, Posted},
    page::{
        go,
        usage::{self, Asked},
    },
    problem::{Refusal, Result},
    text::{Office, fill},
    view::person::{Choice, People},
};

/// The form as it stands on the page.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    pub(crate) users: Vec<Choice>,
    pub(crate) agents: Vec<Choice>,
    pub(crate) calls: String,
    pub(crate) tokens: String,
    pub(crate) cost: String,
}

/// What somebody typed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent {
    pub(crate) user: String,
    pub(crate) agent: String,
    pub(crate) calls: String,
    pub(crate) tokens: String,
    pub(crate) cost: String,
}

pub(crate) async fn set(State(console): State<Console>, uri: Uri, posted: Posted) -> Result {
    let Posted { session, fields } = posted;
    let refused = match request(&fields, &session.t.office) {
        Ok(request) => match console.hub.set_quota(&session.principal, request).await {
            Ok(_) => return Ok(go("/usage?said=quota#quotas")),
            Err(error) => error.try_into()?,
        },
        Err(message) => Refusal { status: StatusCode::BAD_REQUEST, message },
    };
    usage::page(&console, &session, &uri, &Asked::default(), Some((refused, Sent::from(&fields)))).await
}

pub(crate) async fn remove(State(console): State<Console>, posted: Posted) -> Result {
    let Posted { session, fields } = posted;
    let request =
        SetQuotaRequest { user: fields.given("user"), agent: fields.given("agent"), ..SetQuotaRequest::default() };
    console.hub.set_quota(&session.principal, request).await?;
    Ok(go("/usage?said=removed#quotas"))
}

/// The limits that were typed; without any this would remove the quota, which has a button of its own.
fn request(fields: &Fields, o: &'static Office) -> std::result::Result<SetQuotaRequest, String> {
    let wrong = |text: &str| fill(o.quota_number, &[("value", text)]);
    let number = |name| match fields.given(name) {
        None => Ok(None),
        Some(text) => text.replace(['\u{202f}', ' ', ','], "").parse().map(Some).map_err(|_| wrong(&text)),
    };
    let (calls, tokens): (Option<u64>, Option<u64>) = (number("calls")?, number("tokens")?);
    let cost_usd = match fields.given("cost") {
        None => None,
        Some(text) => {
            let micro = micro_usd(text.trim_start_matches('$').trim()).ok_or_else(|| wrong(&text))?;
            Some(Json::from_text(usd(micro)).map_err(|_| wrong(&text))?)
        }
    };
    if calls.is_none() && tokens.is_none() && cost_usd.is_none() {
        return Err(o.quota_needs.to_owned());
    }
    Ok(SetQuotaRequest { user: fields.given("user"), agent: fields.given("agent"), calls, tokens, cost_usd })
}

// === impl Form ===

impl Form {
    pub(crate) fn new(people: &People, agents: Vec<(String, String)>, sent: Sent, o: &'static Office) -> Self {
        let none = Choice { value: String::new(), label: o.quota_any_agent.to_owned(), chosen: sent.agent.is_empty() };
        let agents = agents.into_iter().map(|(value, label)| Choice { chosen: value == sent.agent, value, label });
        Self {
            users: people.choices(o.quota_anybody, &sent.user),
            agents: std::iter::once(none).chain(agents).collect(),
            calls: sent.calls,
            tokens: sent.tokens,
            cost: sent.cost,
        }
    }
}

// === impl Sent ===

impl Sent {
    /// The limits of a quota that somebody wants to change.
    pub(crate) fn of(quota: &Quota) -> Self {
        let text = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
        Self {
            user: quota.user_id.map(|id| id.to_string()).unwrap_or_default(),
            agent: quota.agent_id.map(|id| id.to_string()).unwrap_or_default(),
            calls: text(quota.calls),
            tokens: text(quota.tokens),
            cost: quota.cost_usd.as_ref().map(|cost| cost.get().to_owned()).unwrap_or_default(),
        }
    }
}

impl From<&Fields> for Sent {
    fn from(fields: &Fields) -> Self {
        let text = |name| fields.get(name).to_owned();
        Self {
            user: text("user"),
            agent: text("agent"),
            calls: text("calls"),
            tokens: text("tokens"),
            cost: text("cost"),
        }
    }
}

//! Setting and removing quotas.

use attache_protocol::{
    Json,
    rules::quota::{micro_usd, usd},
    wire::usage::{Quota, SetQuotaRequest},
};
use axum::http::StatusCode;

use crate::{
    form::{FormFields, SubmittedForm},
    page::{
        redirect_after_form,
        usage::{self, UsagePageQuery},
    },
    problem::{FormRefusal, PageResult},
    text::Text,
    view::person::{FormChoice, VisiblePeople},
};

/// The quota form as the page shows it.
#[derive(Debug, Clone)]
pub(crate) struct QuotaForm {
    pub(crate) users: Vec<FormChoice>,
    pub(crate) agents: Vec<FormChoice>,
    pub(crate) calls: String,
    pub(crate) tokens: String,
    pub(crate) cost: String,
}

/// The submitted limits.
#[derive(Debug, Clone, Default)]
pub(crate) struct QuotaFormInput {
    pub(crate) user: String,
    pub(crate) agent: String,
    pub(crate) calls: String,
    pub(crate) tokens: String,
    pub(crate) cost: String,
}

pub(crate) async fn set(posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let refused = match request(&fields, session.t) {
        Ok(request) => match session.hub.set_quota(&session.principal, request).await {
            Ok(_) => return Ok(redirect_after_form("/usage?said=quota#quotas")),
            Err(error) => FormRefusal::new(error, session.t)?,
        },
        Err(message) => FormRefusal { status: StatusCode::BAD_REQUEST, message },
    };
    usage::page(&session, &UsagePageQuery::default(), Some((refused, QuotaFormInput::from(&fields)))).await
}

pub(crate) async fn remove(posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let request = SetQuotaRequest {
        user: fields.non_empty("user"),
        agent: fields.non_empty("agent"),
        ..SetQuotaRequest::default()
    };
    session.hub.set_quota(&session.principal, request).await?;
    Ok(redirect_after_form("/usage?said=removed#quotas"))
}

/// Parses the limits. At least one is required: without any, this would remove the quota, which has its own button.
fn request(fields: &FormFields, t: &'static Text) -> std::result::Result<SetQuotaRequest, String> {
    let wrong = |text: &str| t.quota_number(text);
    let number = |name| match fields.non_empty(name) {
        None => Ok(None),
        Some(text) => text.replace(['\u{202f}', ' ', ','], "").parse().map(Some).map_err(|_| wrong(&text)),
    };
    let (calls, tokens): (Option<u64>, Option<u64>) = (number("calls")?, number("tokens")?);
    let cost_usd = match fields.non_empty("cost") {
        None => None,
        Some(text) => {
            let micro = micro_usd(text.trim_start_matches('$').trim()).ok_or_else(|| wrong(&text))?;
            Some(Json::from_text(usd(micro)).map_err(|_| wrong(&text))?)
        }
    };
    if calls.is_none() && tokens.is_none() && cost_usd.is_none() {
        return Err(t.quota_needs.to_owned());
    }
    Ok(SetQuotaRequest { user: fields.non_empty("user"), agent: fields.non_empty("agent"), calls, tokens, cost_usd })
}

// === impl QuotaForm ===

impl QuotaForm {
    pub(crate) fn new(
        people: &VisiblePeople,
        agents: Vec<(String, String)>,
        sent: QuotaFormInput,
        t: &'static Text,
    ) -> Self {
        let none =
            FormChoice { value: String::new(), label: t.quota_any_agent.to_owned(), chosen: sent.agent.is_empty() };
        let agents = agents.into_iter().map(|(value, label)| FormChoice { chosen: value == sent.agent, value, label });
        Self {
            users: people.choices(t.quota_anybody, &sent.user),
            agents: std::iter::once(none).chain(agents).collect(),
            calls: sent.calls,
            tokens: sent.tokens,
            cost: sent.cost,
        }
    }
}

// === impl QuotaFormInput ===

impl QuotaFormInput {
    /// Prefills the form with the limits of an existing quota.
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

impl From<&FormFields> for QuotaFormInput {
    fn from(fields: &FormFields) -> Self {
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

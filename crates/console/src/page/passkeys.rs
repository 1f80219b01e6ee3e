//! The viewer's own passkeys, and what a browser needs to use one.

use askama::Template;
use attache_hub::{Error, control::Passkey, identity::NewCredential};
use attache_protocol::PasskeyId;
use axum::{
    Json,
    body::Body,
    extract::Path,
    http::{HeaderMap, Response, StatusCode},
    response::IntoResponse as _,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    form::{self, FormFields, SubmittedForm},
    layout::PageLayout,
    page::{html_as, people::password, redirect_after_form},
    problem::{FormRefusal, PageError, PageResult},
    session::BrowserSession,
    text::Text,
    view::html::Markup,
};

#[derive(Template)]
#[template(path = "passkeys.html")]
struct PasskeysPage {
    t: &'static Text,
    shell: PageLayout,
    passkeys: Vec<PasskeyListRow>,
    /// As submitted.
    name: String,
    has_password: bool,
    problem: Option<String>,
}

struct PasskeyListRow {
    id: String,
    name: String,
    note: Markup,
}

/// Why the hub refused, for a script.
#[derive(Serialize)]
struct OptionsRefusal {
    message: String,
}

pub(crate) async fn list(session: BrowserSession) -> PageResult {
    page(&session, &FormFields::default(), None).await
}

/// The options for a new passkey.
pub(crate) async fn options(headers: HeaderMap, posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let (by, origin) = (&session.principal, form::origin(&headers)?);
    let made = session.hub.passkey_creation(by, &origin, password(&fields, "current_password")).await;
    answer(made, session.t)
}

pub(crate) async fn add(posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let made: NewCredential = from_browser(&fields)?;
    match session.hub.add_passkey(&session.principal, fields.get("name").trim(), made).await {
        Ok(_) => Ok(redirect_after_form("/passkeys?said=passkey_added")),
        Err(error) => {
            let refusal = FormRefusal::new(error, session.t)?;
            page(&session, &fields, Some(refusal)).await
        }
    }
}

pub(crate) async fn remove(Path(id): Path<String>, posted: SubmittedForm) -> PageResult {
    let id: PasskeyId = id.parse().map_err(|_| PageError::NoSuchPath)?;
    posted.session.hub.remove_passkey(&posted.session.principal, id).await?;
    Ok(redirect_after_form("/passkeys?said=passkey_removed"))
}

/// What the script put into the form.
pub(crate) fn from_browser<T: DeserializeOwned>(fields: &FormFields) -> PageResult<T> {
    serde_json::from_str(fields.get("passkey")).map_err(|_| PageError::Form)
}

/// Options for the script, or why there are none.
pub(crate) fn answer(options: Result<impl Serialize, Error>, t: &'static Text) -> PageResult {
    let refusal = match options {
        Ok(options) => return Ok(Json(options).into_response()),
        Err(error) => FormRefusal::new(error, t)?,
    };
    Ok::<Response<Body>, _>((refusal.status, Json(OptionsRefusal { message: refusal.message })).into_response())
}

async fn page(session: &BrowserSession, sent: &FormFields, refusal: Option<FormRefusal>) -> PageResult {
    let (hub, by, t) = (&session.hub, &session.principal, session.t);
    let mut shell = PageLayout::new(session).await?;
    "/passkeys".clone_into(&mut shell.here);
    let passkeys = hub.passkeys(by).await?;
    let has_password = by.user.is_some() && hub.user(by, "me").await?.has_password;
    let (status, problem) = refusal.map_or((StatusCode::OK, None), |refusal| (refusal.status, Some(refusal.message)));
    html_as(
        status,
        &PasskeysPage {
            t,
            passkeys: passkeys.into_iter().map(|passkey| PasskeyListRow::new(passkey, t)).collect(),
            name: sent.get("name").to_owned(),
            has_password,
            problem,
            shell,
        },
    )
}

// === impl PasskeyListRow ===

impl PasskeyListRow {
    fn new(passkey: Passkey, t: &'static Text) -> Self {
        let note = match passkey.last_used_at {
            Some(used) => t.passkey_used(passkey.created_at, used),
            None => t.passkey_unused(passkey.created_at),
        };
        Self { id: passkey.id.to_string(), name: passkey.name, note }
    }
}

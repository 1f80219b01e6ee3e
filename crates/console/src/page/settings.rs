//! API keys, appearance, and the facts about this hub.

use askama::Template;
use attache_hub::control::PageRequest;
use attache_protocol::{
    KeyId,
    wire::key::{CreateKeyRequest, Key, Role},
};
use axum::{
    extract::{Path, State},
    http::{HeaderValue, Uri, header},
};

use crate::{
    Console,
    form::Posted,
    options::Cookies,
    page::{go, html},
    problem::{Fault, Result},
    session::Session,
    shell::{Place, Shell, Theme, durability},
    text::{Text, fill},
    view::{
        caller::short,
        fact::Fact,
        html::{Blank, Markup},
        time::When,
    },
};

#[derive(Debug)]
struct KeyLine {
    id: String,
    short: String,
    name: String,
    role: &'static str,
    note: Markup,
    gone: bool,
}

#[derive(Debug)]
struct RoleChoice {
    value: &'static str,
    label: &'static str,
    chosen: bool,
}

#[derive(Template)]
#[template(path = "settings.html")]
struct Page {
    t: &'static Text,
    shell: Shell,
    signed_in: String,
    problem: Option<String>,
    /// A new key, on the one page that shows it.
    secret: Option<String>,
    secret_title: String,
    keys: Vec<KeyLine>,
    roles: Vec<RoleChoice>,
    facts: Vec<Fact>,
}

/// What the form before this page brought.
#[derive(Default)]
struct Outcome {
    problem: Option<String>,
    created: Option<(String, String)>,
}

pub(crate) async fn show(State(console): State<Console>, session: Session, uri: Uri) -> Result {
    page(&console, &session, &uri, Outcome::default()).await
}

pub(crate) async fn create_key(State(console): State<Console>, uri: Uri, posted: Posted) -> Result {
    let Posted { session, fields } = posted;
    let request = CreateKeyRequest {
        user: None,
        scopes: None,
        name: fields.get("name").trim().to_owned(),
        role: Role::from_text(fields.get("role")),
        expires_at: None,
    };
    match console.hub.create_key(&session.principal, request).await {
        Ok(made) => {
            let outcome = Outcome { created: Some((made.key.name, made.api_key)), ..Outcome::default() };
            page(&console, &session, &uri, outcome).await
        }
        Err(error) if error.code.http_status() == 400 => {
            let outcome = Outcome { problem: Some(error.message.into_owned()), ..Outcome::default() };
            page(&console, &session, &uri, outcome).await
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn revoke_key(State(console): State<Console>, Path(key): Path<String>, posted: Posted) -> Result {
    let key: KeyId = key.parse().map_err(|_| Fault::NoSuchPath)?;
    console.hub.revoke_key(&posted.session.principal, key).await?;
    Ok(go("/settings?said=revoked"))
}

pub(crate) async fn choose_theme(State(console): State<Console>, posted: Posted) -> Result {
    let theme = Theme::from_text(posted.fields.get("theme"));
    let mut response = go("/settings?said=saved");
    let secure = match console.options.cookies {
        Cookies::Secure => "; Secure",
        Cookies::Plain => "",
    };
    let cookie = format!("theme={}; Path=/; Max-Age=31536000; SameSite=Strict{secure}", theme.as_str());
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

async fn page(console: &Console, session: &Session, uri: &Uri, outcome: Outcome) -> Result {
    let (hub, by, t) = (&console.hub, &session.principal, session.t);
    let mut shell = Shell::new(console, session, Place::Settings, uri).await?;
    "/settings".clone_into(&mut shell.here);
    let keys = if shell.may.keys {
        hub.keys(by, PageRequest { limit: Some(100), cursor: None }).await?.api_keys
    } else {
        Vec::new()
    };
    let own = by.role().unwrap_or(Role::Viewer);
    let health = hub.health();
    let facts = vec![
        Fact::text(t.fact_version, &health.version),
        Fact::text(t.fact_store, &health.store),
        Fact::text(t.fact_durability, &durability(&health.durability, t)),
        Fact::code(t.fact_address, &hub.origin()),
    ];
    let (secret_title, secret) = match outcome.created {
        Some((name, secret)) => (fill(t.key_created, &[("name", &name)]), Some(secret)),
        None => (String::new(), None),
    };
    html(&Page {
        t,
        signed_in: fill(t.signed_in, &[("role", own.as_str())]),
        problem: outcome.problem,
        secret,
        secret_title,
        keys: keys.iter().map(|key| KeyLine::new(key, t)).collect(),
        roles: roles(own, t),
        facts,
        shell,
    })
}

/// The roles that this person may give: none above their own.
fn roles(own: Role, t: &'static Text) -> Vec<RoleChoice> {
    Role::ALL
        .into_iter()
        .filter(|role| *role <= own)
        .map(|role| RoleChoice { value: role.as_str(), label: label(role, t), chosen: role == Role::Operator })
        .collect()
}

const fn label(role: Role, t: &'static Text) -> &'static str {
    match role {
        Role::Viewer => t.role_viewer,
        Role::Operator => t.role_operator,
        Role::Admin => t.role_admin,
        Role::Owner => t.role_owner,
    }
}

// === impl KeyLine ===

impl KeyLine {
    fn new(key: &Key, t: &Text) -> Self {
        let at = |at| Blank::When(When::relative(at));
        let note = match (key.revoked_at, key.expires_at) {
            (Some(revoked), _) => Markup::sentence(t.key_revoked, &[("at", at(revoked))]),
            (None, Some(until)) => Markup::sentence(t.key_until, &[("at", at(key.created_at)), ("until", at(until))]),
            (None, None) => Markup::sentence(t.key_since, &[("at", at(key.created_at))]),
        };
        Self {
            id: key.key_id.to_string(),
            short: short(&key.key_id.to_string()),
            name: key.name.clone(),
            role: key.role.as_str(),
            note,
            gone: key.revoked_at.is_some(),
        }
    }
}

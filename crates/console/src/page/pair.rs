//! A device shows a code: a person looks at who it is, and confirms or rejects it.

use std::net::{IpAddr, Ipv4Addr};

use askama::Template;
use attache_hub::surface::Peer;
use attache_protocol::{
    Code,
    pairing::PairingCode,
    wire::{account::AccountRequest, pairing::PairingDecision},
};
use axum::{
    extract::{FromRequestParts, Query, State},
    http::{StatusCode, Uri, request::Parts},
    response::IntoResponse as _,
};
use serde::Deserialize;

use crate::{
    Console,
    form::Posted,
    page::{agents, go, html, manages},
    problem::Result,
    session::Session,
    shell::{Place, Shell},
    text::{Text, fill},
    view::{agent::Choice, host, time::When},
};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    code: String,
}

/// The address that the browser has, against which wrong codes are counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct From(IpAddr);

/// A device that waits to be confirmed.
struct Device {
    title: String,
    name: String,
    address: String,
    host: String,
    expires: When,
    code: String,
}

#[derive(Template)]
#[template(path = "pair.html")]
struct Page {
    t: &'static Text,
    shell: Shell,
    device: Option<Device>,
    agents: Vec<Choice>,
    new_name: String,
    problem: Option<String>,
    command: String,
}

/// What a person has filled in already.
#[derive(Debug, Default)]
struct Draft {
    code: String,
    agent: String,
    new_name: String,
}

// === impl From ===

impl<S: Sync> FromRequestParts<S> for From {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> std::result::Result<Self, Self::Rejection> {
        let peer = parts.extensions.get::<Peer>().map(|Peer(peer)| peer.ip());
        Ok(Self(peer.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))))
    }
}

/// With the device's own link the code is in the address; otherwise there is a form to type it in.
pub(crate) async fn show(
    State(console): State<Console>,
    session: Session,
    from: From,
    Query(asked): Query<Asked>,
    uri: Uri,
) -> Result {
    let draft = Draft { code: asked.code, ..Draft::default() };
    page(&console, &session, from, &uri, draft, None).await
}

/// The form sends the code in its body, so that we make no address that holds one.
pub(crate) async fn look(State(console): State<Console>, from: From, uri: Uri, posted: Posted) -> Result {
    let draft = Draft { code: posted.fields.get("code").trim().to_owned(), ..Draft::default() };
    page(&console, &posted.session, from, &uri, draft, None).await
}

pub(crate) async fn decide(State(console): State<Console>, from: From, uri: Uri, posted: Posted) -> Result {
    let Posted { session, fields } = posted;
    let by = &session.principal;
    let code = fields.get("code").to_owned();
    if fields.get("decision") != "confirm" {
        return match console.hub.decide_pairing(by, from.0, &code, PairingDecision { agent_id: None }).await {
            Ok(()) => Ok(go("/agents?said=rejected")),
            Err(error) => failed(&console, &session, from, &uri, Draft::default(), error).await,
        };
    }
    let draft =
        Draft { code, agent: fields.get("agent").to_owned(), new_name: fields.get("new_name").trim().to_owned() };
    let agent = match (draft.agent.is_empty(), draft.new_name.is_empty()) {
        (false, true) => draft.agent.clone(),
        (true, false) => {
            // A code that is not good must not leave an agent behind.
            console.hub.pairing_request(by, from.0, &draft.code).await?;
            let request = AccountRequest { name: Some(draft.new_name.clone()), ..AccountRequest::default() };
            match console.hub.create_account(by, request).await {
                Ok(account) => account.agent_id.to_string(),
                Err(error) => return failed(&console, &session, from, &uri, draft, error).await,
            }
        }
        _ => {
            let problem = Some(session.t.pair_choose.to_owned());
            return page(&console, &session, from, &uri, draft, problem).await;
        }
    };
    let decision = PairingDecision { agent_id: Some(agent.clone()) };
    match console.hub.decide_pairing(by, from.0, &draft.code, decision).await {
        Ok(()) => Ok(go(&format!("/agents/{agent}?said=confirmed"))),
        Err(error) => failed(&console, &session, from, &uri, draft, error).await,
    }
}

async fn failed(
    console: &Console,
    session: &Session,
    from: From,
    uri: &Uri,
    draft: Draft,
    error: attache_hub::Error,
) -> Result {
    match error.code.http_status() {
        400 | 404 | 409 | 429 => page(console, session, from, uri, draft, Some(error.message.into_owned())).await,
        _ => Err(error.into()),
    }
}

async fn page(
    console: &Console,
    session: &Session,
    from: From,
    uri: &Uri,
    draft: Draft,
    problem: Option<String>,
) -> Result {
    let t = session.t;
    let mut shell = Shell::new(console, session, Place::Agents, uri).await?;
    "/pair".clone_into(&mut shell.here);
    let mut problem = problem;
    let mut status = if problem.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    let mut device = None;
    if !draft.code.is_empty() && shell.may.manage {
        match console.hub.pairing_request(&session.principal, from.0, &draft.code).await {
            Ok(found) => {
                let name = found.device_name.unwrap_or_else(|| t.unknown_device.to_owned());
                device = Some(Device {
                    title: fill(t.device_wants, &[("device", &name)]),
                    name,
                    address: found.address,
                    host: host::name(&found.labels).unwrap_or_else(|| t.no_host.to_owned()),
                    expires: When::clock(found.expires_at),
                    code: PairingCode::parse(&draft.code).map(|code| code.shown()).unwrap_or_default(),
                });
            }
            Err(error) if error.code == Code::PairingFailed => {
                status = StatusCode::NOT_FOUND;
                problem.get_or_insert_with(|| t.pair_bad_code.to_owned());
            }
            Err(error) if error.code == Code::TooManyRequests => {
                status = StatusCode::TOO_MANY_REQUESTS;
                problem = Some(format!("{} {}", error.message, error.code.hint()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let accounts = agents(console, session).await?;
    let page = Page {
        t,
        device,
        agents: accounts
            .iter()
            .filter(|account| manages(session, account))
            .map(|account| Choice::home(account, &draft.agent, t))
            .collect(),
        new_name: draft.new_name,
        problem,
        command: format!("attache runtime pair {}", address(console)),
        shell,
    };
    Ok((status, html(&page)?).into_response())
}

/// How a device is told where the hub is, from as far away as it can be reached.
pub(crate) fn address(console: &Console) -> String {
    let options = console.hub.options();
    let origin = options.reachable_origin().unwrap_or_else(|| console.hub.origin());
    let pin = options.needed_pin().map(|pin| format!(" --pin {pin}")).unwrap_or_default();
    format!("--api-base {origin}{pin}")
}

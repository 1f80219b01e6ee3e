//! Pairing with a code that a device shows: a person reviews the device, then confirms or rejects it.

use std::net::{IpAddr, Ipv4Addr};

use askama::Template;
use attache_hub::{Handle, surface::PeerAddress};
use attache_protocol::{
    Code,
    pairing::PairingCode,
    wire::{account::AccountRequest, pairing::PairingDecision},
};
use axum::{
    extract::{FromRequestParts, Query},
    http::{StatusCode, request::Parts},
    response::IntoResponse as _,
};
use serde::Deserialize;

use crate::{
    form::SubmittedForm,
    layout::PageLayout,
    page::{agents, html, manages, redirect_after_form},
    problem::{PageResult, message},
    session::BrowserSession,
    text::Text,
    view::{agent::AgentChoice, host, html::Markup, time::TimeElement},
};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PairPageQuery {
    code: String,
}

/// The browser's address, for counting wrong codes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BrowserAddress(IpAddr);

/// A device waiting for confirmation.
struct PairingDevice {
    title: String,
    name: String,
    address: String,
    host: String,
    expires: TimeElement,
    code: String,
    only_if: Markup,
}

#[derive(Template)]
#[template(path = "pair.html")]
struct PairPage {
    t: &'static Text,
    shell: PageLayout,
    device: Option<PairingDevice>,
    agents: Vec<AgentChoice>,
    new_name: String,
    problem: Option<String>,
    command: String,
}

/// The form fields filled in so far.
#[derive(Debug, Default)]
struct PairFormDraft {
    code: String,
    agent: String,
    new_name: String,
}

// === impl BrowserAddress ===

impl<S: Sync> FromRequestParts<S> for BrowserAddress {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> std::result::Result<Self, Self::Rejection> {
        let peer = parts.extensions.get::<PeerAddress>().map(|PeerAddress(peer)| peer.ip());
        Ok(Self(peer.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))))
    }
}

/// A device's own link carries the code in the URL. Otherwise, the page shows a form for it.
pub(crate) async fn show(
    session: BrowserSession,
    from: BrowserAddress,
    Query(asked): Query<PairPageQuery>,
) -> PageResult {
    let draft = PairFormDraft { code: asked.code, ..PairFormDraft::default() };
    page(&session, from, draft, None).await
}

/// The form posts the code, so that it never appears in a URL of ours.
pub(crate) async fn look_up(from: BrowserAddress, posted: SubmittedForm) -> PageResult {
    let draft = PairFormDraft { code: posted.fields.get("code").trim().to_owned(), ..PairFormDraft::default() };
    page(&posted.session, from, draft, None).await
}

pub(crate) async fn decide(from: BrowserAddress, posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let by = &session.principal;
    let code = fields.get("code").to_owned();
    if fields.get("decision") != "confirm" {
        return match session.hub.decide_pairing(by, from.0, &code, PairingDecision { agent_id: None }).await {
            Ok(()) => Ok(redirect_after_form("/agents?said=rejected")),
            Err(error) => failed(&session, from, PairFormDraft::default(), error).await,
        };
    }
    let draft = PairFormDraft {
        code,
        agent: fields.get("agent").to_owned(),
        new_name: fields.get("new_name").trim().to_owned(),
    };
    let agent = match (draft.agent.is_empty(), draft.new_name.is_empty()) {
        (false, true) => draft.agent.clone(),
        (true, false) => {
            // An invalid code must not leave a new agent behind.
            session.hub.pairing_request(by, from.0, &draft.code).await?;
            let request = AccountRequest { name: Some(draft.new_name.clone()), ..AccountRequest::default() };
            match session.hub.create_account(by, request).await {
                Ok(account) => account.agent_id.to_string(),
                Err(error) => return failed(&session, from, draft, error).await,
            }
        }
        _ => {
            let problem = Some(session.t.pair_choose.to_owned());
            return page(&session, from, draft, problem).await;
        }
    };
    let decision = PairingDecision { agent_id: Some(agent.clone()) };
    match session.hub.decide_pairing(by, from.0, &draft.code, decision).await {
        Ok(()) => Ok(redirect_after_form(&format!("/agents/{agent}?said=confirmed"))),
        Err(error) => failed(&session, from, draft, error).await,
    }
}

async fn failed(
    session: &BrowserSession,
    from: BrowserAddress,
    draft: PairFormDraft,
    error: attache_hub::Error,
) -> PageResult {
    match error.code.http_status() {
        400 | 404 | 409 | 429 => page(session, from, draft, Some(message(&error, session.t).into_owned())).await,
        _ => Err(error.into()),
    }
}

async fn page(
    session: &BrowserSession,
    from: BrowserAddress,
    draft: PairFormDraft,
    problem: Option<String>,
) -> PageResult {
    let t = session.t;
    let mut shell = PageLayout::new(session).await?;
    "/pair".clone_into(&mut shell.here);
    let mut problem = problem;
    let mut status = if problem.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    let mut device = None;
    if !draft.code.is_empty() && shell.may.manage {
        match session.hub.pairing_request(&session.principal, from.0, &draft.code).await {
            Ok(found) => {
                let name = found.device_name.unwrap_or_else(|| t.unknown_device.to_owned());
                let code = PairingCode::parse(&draft.code).map(|code| code.shown()).unwrap_or_default();
                device = Some(PairingDevice {
                    title: t.device_wants(&name),
                    name,
                    address: found.address,
                    host: host::name(&found.labels, t).unwrap_or_else(|| t.no_host.to_owned()),
                    expires: TimeElement::clock(found.expires_at),
                    only_if: t.confirm_only_if(Markup::trusted(format!("<b class=\"mono nowrap\">{code}</b>"))),
                    code,
                });
            }
            Err(error) if error.code == Code::PairingFailed => {
                status = StatusCode::NOT_FOUND;
                problem.get_or_insert_with(|| t.pair_bad_code.to_owned());
            }
            Err(error) if error.code == Code::TooManyRequests => {
                status = StatusCode::TOO_MANY_REQUESTS;
                problem = Some(t.login_too_often.to_owned());
            }
            Err(error) => return Err(error.into()),
        }
    }
    let accounts = agents(session).await?;
    let page = PairPage {
        t,
        device,
        agents: accounts
            .iter()
            .filter(|account| manages(session, account))
            .map(|account| AgentChoice::home(account, &draft.agent, t))
            .collect(),
        new_name: draft.new_name,
        problem,
        command: format!("attache runtime pair {}", address(&session.hub)),
        shell,
    };
    Ok((status, html(&page)?).into_response())
}

/// The options that tell a device how to reach this hub: its address and, if needed, its pin.
pub(crate) fn address(hub: &Handle) -> String {
    let options = hub.options();
    let origin = options.reachable_origin().unwrap_or_else(|| hub.origin());
    let pin = options.needed_pin().map(|pin| format!(" --pin {pin}")).unwrap_or_default();
    format!("--api-base {origin}{pin}")
}

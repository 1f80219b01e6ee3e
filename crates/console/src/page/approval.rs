//! One permission request: its own page, and the decision on it.

use std::time::Duration;

use askama::Template;
use attache_hub::{control, surface::Peer};
use attache_protocol::{
    Code, PermissionId,
    rules::permission::Scope,
    wire::permission::{DecisionRequest, PermissionRequest},
};
use axum::{
    Extension,
    extract::{Path, State},
    http::Uri,
};

use crate::{
    Console,
    form::{Fields, Posted},
    page::{Viewer, approvals, go, html},
    problem::{Fault, Result},
    session::Session,
    shell::{Place, Shell},
    text::Text,
    view::{
        asked::Block,
        caller,
        html::{Blank, Markup},
        permission::{Card, verdict},
        time::When,
    },
};

#[derive(Template)]
#[template(path = "approval.html")]
struct Page {
    t: &'static Text,
    shell: Shell,
    short: String,
    card: Card,
    late: Option<Markup>,
    problem: Option<String>,
    /// Where a decision leads.
    back: &'static str,
}

/// What the form before this page brought.
#[derive(Debug, Default)]
struct Outcome {
    /// Somebody else was first.
    late: Option<Markup>,
    problem: Option<String>,
}

pub(crate) async fn show(
    State(console): State<Console>,
    session: Session,
    Path(permission): Path<String>,
    uri: Uri,
) -> Result {
    let id: PermissionId = permission.parse().map_err(|_| Fault::NoSuchPath)?;
    let request = console.hub.permission(&session.principal, id).await?;
    page(&console, &session, &uri, &request, Outcome::default()).await
}

pub(crate) async fn decide(
    State(console): State<Console>,
    Path(permission): Path<String>,
    peer: Option<Extension<Peer>>,
    uri: Uri,
    posted: Posted,
) -> Result {
    let id: PermissionId = permission.parse().map_err(|_| Fault::NoSuchPath)?;
    let Posted { session, fields } = posted;
    let decision = decision(&fields, &console)?;
    let said = if decision.approved { "allowed" } else { "denied" };
    let from = peer.map(|Extension(Peer(address))| address.ip().to_string());
    let place = control::Place { via: "console", from };
    match console.hub.decide(&session.principal, id, decision, place).await {
        Ok(decided) => Ok(match fields.get("back") {
            "run" => go(&format!("/runs/{}", decided.task_run_id)),
            "approval" => go(&format!("/approvals/{id}?said={said}")),
            _ => go(&format!("/approvals?said={said}")),
        }),
        Err(error) if error.code == Code::AlreadyDecided => {
            let request = match error.permission.clone() {
                Some(request) => *request,
                None => console.hub.permission(&session.principal, id).await?,
            };
            let outcome = Outcome { late: Some(late(&request, &console, &session).await?), problem: None };
            page(&console, &session, &uri, &request, outcome).await
        }
        Err(error) if error.code == Code::InvalidRequest => {
            let request = console.hub.permission(&session.principal, id).await?;
            let outcome = Outcome { late: None, problem: Some(error.message.into_owned()) };
            page(&console, &session, &uri, &request, outcome).await
        }
        Err(error) => Err(error.into()),
    }
}

/// What the buttons and fields say. The plain buttons take the comment and leave the other choices alone.
fn decision(fields: &Fields, console: &Console) -> Result<DecisionRequest> {
    let (approved, scope, chosen) = match fields.get("answer") {
        "allow_once" => (true, Scope::Once, false),
        "allow_run" => (true, Scope::Run, false),
        "deny" => (false, Scope::Once, false),
        "allow_as" => (true, Scope::from_text(fields.get("scope")).ok_or(Fault::Form)?, true),
        "deny_as" => (false, Scope::from_text(fields.get("scope")).ok_or(Fault::Form)?, true),
        _ => return Err(Fault::Form),
    };
    let until = match fields.given("until").filter(|_| chosen) {
        Some(seconds) => {
            let seconds: u32 = seconds.parse().map_err(|_| Fault::Form)?;
            Some(console.hub.now().plus(Duration::from_secs(seconds.into())))
        }
        None => None,
    };
    Ok(DecisionRequest {
        approved,
        scope,
        tool_pattern: fields.given("tool_pattern").filter(|_| chosen),
        until,
        this_channel_only: chosen && fields.get("this_channel_only") == "true",
        comment: fields.given("comment"),
    })
}

/// Who was first, and when.
async fn late(request: &PermissionRequest, console: &Console, session: &Session) -> Result<Markup> {
    let viewer = Viewer::naming(console, session, request.decided_by.clone()).await?;
    let verdict = verdict(request, viewer.scene());
    let at = When::relative(request.decided_at.unwrap_or(request.requested_at));
    let blanks = [("verdict", Blank::Markup(&verdict)), ("at", Blank::When(at))];
    Ok(Markup::sentence(session.t.lost_race, &blanks))
}

async fn page(
    console: &Console,
    session: &Session,
    uri: &Uri,
    request: &PermissionRequest,
    outcome: Outcome,
) -> Result {
    let shell = Shell::new(console, session, Place::Approvals, uri).await?;
    let mut cards = approvals::cards(console, session, std::slice::from_ref(request)).await?;
    let card = cards.pop().ok_or(Fault::NoSuchPath)?;
    html(&Page {
        t: session.t,
        short: caller::short(&card.id),
        card,
        late: outcome.late,
        problem: outcome.problem,
        back: "approval",
        shell,
    })
}

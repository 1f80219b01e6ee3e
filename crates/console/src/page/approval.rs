//! The page of one permission request, and deciding it.

use std::time::Duration;

use askama::Template;
use attache_hub::{control, surface::PeerAddress};
use attache_protocol::{
    Code, PermissionId, Timestamp,
    rules::permission::DecisionScope,
    wire::permission::{DecisionRequest, PermissionRequest},
};
use axum::{Extension, extract::Path, http::HeaderMap};

use crate::{
    form::{self, FormFields, SubmittedForm},
    layout::PageLayout,
    page::{PageViewer, html, inbox, passkeys, redirect_after_form},
    problem::{PageError, PageResult, message},
    session::BrowserSession,
    text::Text,
    view::{
        actor,
        html::Markup,
        permission::{ApprovalCard, quick_reasons, verdict},
        tool_input::ToolInputBlock,
    },
};

#[derive(Template)]
#[template(path = "approval.html")]
struct ApprovalPage {
    t: &'static Text,
    shell: PageLayout,
    short: String,
    card: ApprovalCard,
    late: Option<Markup>,
    problem: Option<String>,
    /// The path to return to after a decision.
    back: &'static str,
}

/// The outcome of a submitted form.
#[derive(Debug, Default)]
struct ApprovalFormOutcome {
    /// Someone else decided first.
    late: Option<Markup>,
    problem: Option<String>,
}

pub(crate) async fn show(session: BrowserSession, Path(permission): Path<String>) -> PageResult {
    let id: PermissionId = permission.parse().map_err(|_| PageError::NoSuchPath)?;
    let request = session.hub.permission(&session.principal, id).await?;
    page(&session, &request, ApprovalFormOutcome::default()).await
}

pub(crate) async fn decide(
    Path(permission): Path<String>,
    peer: Option<Extension<PeerAddress>>,
    posted: SubmittedForm,
) -> PageResult {
    let id: PermissionId = permission.parse().map_err(|_| PageError::NoSuchPath)?;
    let SubmittedForm { session, fields } = posted;
    let from = peer.map(|Extension(PeerAddress(address))| address.ip().to_string());
    let decided = match fields.non_empty("passkey") {
        // What was signed says which decision it is.
        Some(_) => {
            let signed = passkeys::from_browser(&fields)?;
            session.hub.decide_with_passkey(&session.principal, id, signed, from).await
        }
        None => {
            let decision = decision(&fields, session.hub.now(), session.t)?;
            let place = control::DecisionOrigin { via: "console", from };
            session.hub.decide(&session.principal, id, decision, place).await
        }
    };
    let said = match &decided {
        Ok(decided) if decided.approved == Some(false) => "denied",
        Ok(_) | Err(_) => "allowed",
    };
    match decided {
        Ok(decided) => Ok(match fields.get("back") {
            "conversation" => {
                let run = session.hub.run(&session.principal, decided.task_run_id).await?;
                redirect_after_form(&format!("/conversations/{}", run.conversation_id))
            }
            "run" => redirect_after_form(&format!("/runs/{}", decided.task_run_id)),
            "approval" => redirect_after_form(&format!("/approvals/{id}?said={said}")),
            _ => redirect_after_form(&format!("/inbox?said={said}")),
        }),
        Err(error) if error.code == Code::AlreadyDecided => {
            let request = match error.permission.clone() {
                Some(request) => *request,
                None => session.hub.permission(&session.principal, id).await?,
            };
            let outcome = ApprovalFormOutcome { late: Some(already_decided(&request, &session).await?), problem: None };
            page(&session, &request, outcome).await
        }
        Err(error) if matches!(error.code, Code::InvalidRequest | Code::PasskeyRequired | Code::PasskeyRefused) => {
            let request = session.hub.permission(&session.principal, id).await?;
            let outcome = ApprovalFormOutcome { late: None, problem: Some(message(&error, session.t).into_owned()) };
            page(&session, &request, outcome).await
        }
        Err(error) => Err(error.into()),
    }
}

/// The options for confirming the approval that the form says.
pub(crate) async fn passkey_options(
    Path(permission): Path<String>,
    headers: HeaderMap,
    posted: SubmittedForm,
) -> PageResult {
    let id: PermissionId = permission.parse().map_err(|_| PageError::NoSuchPath)?;
    let SubmittedForm { session, fields } = posted;
    let (by, origin) = (&session.principal, form::origin(&headers)?);
    let decision = decision(&fields, session.hub.now(), session.t)?;
    passkeys::answer(session.hub.approval_confirmation(by, id, decision, &origin).await, session.t)
}

/// Reads the decision from the form. The main buttons use the comment and ignore the other options. A quick reason denies;
/// what was typed is sent with it.
fn decision(fields: &FormFields, now: Timestamp, t: &'static Text) -> PageResult<DecisionRequest> {
    let reason = match fields.non_empty("because") {
        Some(key) => Some(quick_reasons(t).into_iter().find(|reason| reason.key == key).ok_or(PageError::Form)?),
        None => None,
    };
    let answer = if reason.is_some() { "deny" } else { fields.get("answer") };
    let (approved, scope, chosen) = match answer {
        "allow_once" => (true, DecisionScope::Once, false),
        "allow_run" => (true, DecisionScope::Run, false),
        "deny" => (false, DecisionScope::Once, false),
        "allow_as" => (true, DecisionScope::from_text(fields.get("scope")).ok_or(PageError::Form)?, true),
        "deny_as" => (false, DecisionScope::from_text(fields.get("scope")).ok_or(PageError::Form)?, true),
        _ => return Err(PageError::Form),
    };
    let until = match fields.non_empty("until").filter(|_| chosen) {
        Some(seconds) => {
            let seconds: u32 = seconds.parse().map_err(|_| PageError::Form)?;
            Some(now.plus(Duration::from_secs(seconds.into())))
        }
        None => None,
    };
    Ok(DecisionRequest {
        approved,
        scope,
        tool_pattern: fields.non_empty("tool_pattern").filter(|_| chosen),
        until,
        this_channel_only: chosen && fields.get("this_channel_only") == "true",
        comment: match (reason, fields.non_empty("comment")) {
            (Some(reason), Some(comment)) => Some(format!("{} {comment}", reason.comment)),
            (Some(reason), None) => Some(reason.comment.to_owned()),
            (None, comment) => comment,
        },
    })
}

/// Who decided first, and when.
async fn already_decided(request: &PermissionRequest, session: &BrowserSession) -> PageResult<Markup> {
    let viewer = PageViewer::naming(session, request.decided_by.clone()).await?;
    let verdict = verdict(request, viewer.view_context());
    Ok(session.t.lost_race(verdict, request.decided_at.unwrap_or(request.requested_at)))
}

async fn page(session: &BrowserSession, request: &PermissionRequest, outcome: ApprovalFormOutcome) -> PageResult {
    let shell = PageLayout::new(session).await?;
    let mut cards = inbox::cards(session, std::slice::from_ref(request)).await?;
    let card = cards.pop().ok_or(PageError::NoSuchPath)?;
    html(&ApprovalPage {
        t: session.t,
        short: actor::short(&card.id),
        card,
        late: outcome.late,
        problem: outcome.problem,
        back: "approval",
        shell,
    })
}

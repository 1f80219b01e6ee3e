//! The page of one agent: devices, instructions, runs and the pairing dialog.

use std::collections::HashMap;

use askama::Template;
use attache_hub::{
    control::{ChannelQuery, PageRequest, RunQuery},
    identity::{AccessVerdict, Action},
};
use attache_protocol::{
    Code, RuntimeId, Timestamp,
    rules::permission_mode::PermissionMode,
    wire::{
        account::{Account, AccountRequest, ApprovalConfirmation, Callers, OnLimit},
        permission::ApprovalPolicy,
    },
};
use axum::{
    extract::{Path, Query},
    http::StatusCode,
    response::IntoResponse as _,
};
use serde::Deserialize;

use crate::{
    form::SubmittedForm,
    layout::PageLayout,
    page::{
        PageViewer, host_sessions, html, manages, may_call, pair, people, person_name, redirect_after_form, run_new,
        runs,
    },
    problem::{PageError, PageResult, message},
    session::BrowserSession,
    text::Text,
    view::{
        agent::{AgentDevice, AgentTile},
        channel,
        exact::exact_line,
        host,
        host_session::HostSessionRow,
        html::Markup,
        person,
        run::{RunListRow, device_name},
        time::TimeElement,
        time_limit::{TimeLimitChoice, limits},
    },
};

#[derive(Template)]
#[template(path = "agent.html")]
struct AgentPage {
    t: &'static Text,
    shell: PageLayout,
    card: AgentTile,
    instructions: String,
    owner: String,
    /// Possible owners. Empty if the viewer can't change the owner.
    owners: Vec<person::FormChoice>,
    webhook: Option<Markup>,
    /// The steps that need no approval.
    trusted: Vec<Markup>,
    /// Only its owner may call it.
    owners_alone: bool,
    limits: Vec<TimeLimitChoice>,
    on_limit: Vec<OnLimitChoice>,
    /// Approvals of its requests need a passkey.
    needs_passkey: bool,
    /// The viewer may change that, if they act in person.
    confirms: bool,
    rows: Vec<RunListRow>,
    /// Sessions of its device that no conversation continues. Only for its owner.
    terminal: Vec<HostSessionRow>,
    runtimes: Vec<AgentDevice>,
    /// The newest channel of the agent.
    channel: Option<channel::ChannelListRow>,
    problem: Option<String>,
    dialog: Option<PairingDialog>,
}

/// A new pairing code. It is shown only once.
struct PairingDialog {
    title: String,
    code_left: String,
    code_right: String,
    command: String,
    /// The expiry of the code. A script counts down.
    expiry: Markup,
    /// Only a device paired after this time completes the dialog.
    since: i64,
}

#[derive(Template)]
#[template(path = "paired.html")]
struct PairedFragment {
    t: &'static Text,
    csrf: String,
    nonce: String,
    heading: String,
    agent_id: String,
    joined: Markup,
    suggestion: &'static str,
}

/// One reaction to a usage limit.
#[derive(Debug)]
struct OnLimitChoice {
    value: &'static str,
    label: &'static str,
    chosen: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PairedQuery {
    since: i64,
}

pub(crate) async fn show(session: BrowserSession, Path(agent): Path<String>) -> PageResult {
    let account = session.hub.account(&session.principal, &agent).await?;
    page(&session, account, None, None).await
}

pub(crate) async fn update(Path(agent): Path<String>, posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let known = session.hub.account(&session.principal, &agent).await?;
    // Don't send an unchanged owner.
    let owner = known.owner_id.map(|id| id.to_string()).unwrap_or_default();
    let (description, instructions) =
        (fields.get("description").trim().to_owned(), fields.get("instructions").replace("\r\n", "\n"));
    let request = AccountRequest {
        owner: fields.sent("owner").filter(|given| *given != owner).map(str::to_owned),
        description: Some(description.clone()),
        instructions: Some(instructions.clone()),
        callers: fields.sent("callers").and_then(Callers::from_text),
        on_limit: fields.sent("on_limit").and_then(OnLimit::from_text),
        confirm_approvals: fields.sent("confirm_approvals").and_then(ApprovalConfirmation::from_text),
        run_timeout_ms: match fields.sent("timeout") {
            Some(_) => Some(run_new::timeout(&fields)?.unwrap_or_default()),
            None => None,
        },
        ..AccountRequest::default()
    };
    match session.hub.update_account(&session.principal, &agent, request).await {
        Ok(account) => {
            let is_opened = known.callers == Callers::Owner && account.callers == Callers::Everyone;
            let said = if is_opened { "shared" } else { "saved" };
            Ok(redirect_after_form(&format!("/agents/{}?said={said}", account.agent_id)))
        }
        Err(error) if matches!(error.code.http_status(), 400 | 409) || error.code == Code::PasskeyRequired => {
            let typed = Account { description: Some(description), instructions: Some(instructions), ..known };
            page(&session, typed, Some(message(&error, session.t).into_owned()), None).await
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn archive(Path(agent): Path<String>, posted: SubmittedForm) -> PageResult {
    let account = posted.session.hub.archive_account(&posted.session.principal, &agent).await?;
    Ok(redirect_after_form(&format!("/agents/{}?said=archived", account.agent_id)))
}

pub(crate) async fn revoke_runtime(Path(runtime): Path<String>, posted: SubmittedForm) -> PageResult {
    let runtime: RuntimeId = runtime.parse().map_err(|_| PageError::NoSuchPath)?;
    let runtime = posted.session.hub.revoke_runtime(&posted.session.principal, runtime).await?;
    Ok(redirect_after_form(&format!("/agents/{}?said=revoked", runtime.agent_id)))
}

/// Creates a pairing code and shows it in this response only. No URL shows it again.
pub(crate) async fn make_code(Path(agent): Path<String>, posted: SubmittedForm) -> PageResult {
    let session = posted.session;
    let t = session.t;
    let account = session.hub.account(&session.principal, &agent).await?;
    let since = session.hub.now();
    let made = session.hub.create_pairing_code(&session.principal, &account.agent_id.to_string()).await?;
    let (left, right) = made.pairing_code.split_once('-').unwrap_or((&made.pairing_code, ""));
    let dialog = PairingDialog {
        title: t.pair_title(&account.name),
        code_left: left.to_owned(),
        code_right: right.to_owned(),
        command: format!("attache runtime pair {} {}", made.pairing_code, pair::address(&session.hub)),
        expiry: t.pair_waiting(Markup::trusted(format!(
            "<b class=\"nowrap\" data-until=\"{}\" data-left=\"{}\" data-over=\"{}\">{}</b>",
            made.expires_at,
            t.pair_left,
            t.pair_over,
            t.pair_until(TimeElement::clock(made.expires_at)),
        ))),
        since: since.millis(),
    };
    page(&session, account, None, Some(dialog)).await
}

/// The last step of the dialog once a device has been paired. Empty before that.
pub(crate) async fn paired(
    session: BrowserSession,
    Path(agent): Path<String>,
    Query(asked): Query<PairedQuery>,
) -> PageResult {
    let t = session.t;
    let account = session.hub.account(&session.principal, &agent).await?;
    let since = Timestamp::from_millis(asked.since);
    let Some(runtime) = account.runtime.as_ref().filter(|runtime| runtime.attached_at >= since) else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let page = PageRequest { limit: Some(2), cursor: None };
    let devices = session.hub.runtimes(&session.principal, Some(&account.agent_id.to_string()), page).await?;
    let replaced = devices.agent_runtimes.iter().any(|other| other.ended_at.is_some_and(|ended| ended >= since));
    let device = device_name(runtime, t);
    let host = host::name(&runtime.labels, t).unwrap_or_else(|| t.no_host.to_owned());
    html(&PairedFragment {
        t,
        csrf: session.csrf.clone(),
        nonce: format!("console-{}", session.hub.env().uuid().simple()),
        heading: t.paired_title(&account.name),
        agent_id: account.agent_id.to_string(),
        joined: match replaced {
            true => t.joined_replaced(&device, &account.name, &host),
            false => t.joined(&device, &account.name, &host),
        },
        suggestion: if host::runs_scripts(&runtime.labels) { t.first_run_shell } else { t.first_run_text },
    })
}

/// The steps of an agent that need no approval.
fn trusted(policy: Option<&ApprovalPolicy>, t: &Text) -> Vec<Markup> {
    let Some(policy) = policy else { return Vec::new() };
    let mode = match policy.mode.unwrap_or_default() {
        PermissionMode::PlanFirst => Some(Markup::text(t.permissions_plan)),
        PermissionMode::Ask => None,
        PermissionMode::AcceptEdits => Some(Markup::text(t.permissions_edits)),
        PermissionMode::AcceptWalled => Some(Markup::text(t.permissions_walled)),
    };
    mode.into_iter().chain(policy.trusted_commands.iter().map(|command| exact_line(command))).collect()
}

async fn page(
    session: &BrowserSession,
    account: Account,
    problem: Option<String>,
    dialog: Option<PairingDialog>,
) -> PageResult {
    let (hub, by, t) = (&session.hub, &session.principal, session.t);
    let mut shell = PageLayout::new(session).await?;
    let id = account.agent_id.to_string();
    shell.here = format!("/agents/{id}");
    let devices = hub.runtimes(by, Some(&id), PageRequest { limit: Some(10), cursor: None }).await?.agent_runtimes;
    let query = RunQuery { agent_id: Some(id), limit: Some(8), ..RunQuery::default() };
    let recent = hub.runs(by, query).await?.task_runs;
    let rows = runs::views(session, &recent).await?;
    let terminal = match shell.may.operate {
        true => host_sessions::begun_in_terminal(session, std::slice::from_ref(&account)).await?,
        false => Vec::new(),
    };
    let query = ChannelQuery { connected: None, agent: Some(account.agent_id.to_string()) };
    let newest = hub.channels(by, query, PageRequest { limit: Some(1), cursor: None }).await?;
    let names = HashMap::from([(account.agent_id, account.name.clone())]);
    let viewer = PageViewer::new(session);
    let owner = match account.owner_id {
        Some(owner) => person_name(session, owner).await?,
        None => t.owner_of_all.to_owned(),
    };
    let owners = if by.verdict(Action::GiveAgent) == AccessVerdict::Yes {
        let chosen = account.owner_id.map(|id| id.to_string()).unwrap_or_default();
        people::people(session).await?.choices(t.owner_of_all, &chosen)
    } else {
        Vec::new()
    };
    let webhook = account.approvals.as_ref().and_then(|policy| policy.webhook_url.as_deref()).map(exact_line);
    html(&AgentPage {
        t,
        owner,
        owners,
        webhook,
        trusted: trusted(account.approvals.as_ref(), t),
        owners_alone: account.callers == Callers::Owner,
        limits: limits(account.run_timeout_ms, t),
        on_limit: on_limit_choices(account.on_limit, t),
        needs_passkey: account.confirm_approvals == ApprovalConfirmation::Passkey,
        confirms: account.owner_id == by.user,
        channel: newest.channels.first().map(|newest| channel::ChannelListRow::new(newest, &names, t)),
        card: AgentTile {
            managed: manages(session, &account),
            callable: may_call(session, &account),
            ..AgentTile::new(&account, None, viewer.view_context())
        },
        instructions: account.instructions.unwrap_or_default(),
        rows,
        terminal,
        runtimes: devices.iter().map(|runtime| AgentDevice::new(runtime, t)).collect(),
        problem,
        dialog,
        shell,
    })
}

fn on_limit_choices(chosen: OnLimit, t: &'static Text) -> Vec<OnLimitChoice> {
    let label = |choice| match choice {
        OnLimit::Wait => t.on_limit_wait,
        OnLimit::Fallback => t.on_limit_fallback,
        OnLimit::Fail => t.on_limit_fail,
    };
    let choice =
        |choice: OnLimit| OnLimitChoice { value: choice.as_str(), label: label(choice), chosen: choice == chosen };
    OnLimit::ALL.iter().copied().map(choice).collect()
}

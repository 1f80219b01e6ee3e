//! `attache approvals`: approval requests, decisions and standing grants.

use std::{fs, time::Duration};

use attache_client::{HubClient, PageQuery, PermissionFilter};
use attache_protocol::{
    PermissionId, Timestamp,
    rules::permission::{DecisionScope, OnceReason, PermissionState},
    wire::{
        call::CallId,
        permission::{DecisionRequest, PermissionRequest},
    },
};
use clap::Subcommand;
use serde::{Deserialize, Serialize};

use super::page::{self, PageArgs};
use crate::{
    env::{
        amount,
        context::{CommandContext, HubArgs},
        home,
        ids::IdArg,
    },
    text::{approvals as texts, errors, terms},
    ui::{
        failure::CommandFailure,
        names::DisplayNames,
        output::{TextCell, TextStyle, TextTable, clean, time},
        tool_input,
    },
};

/// Review and decide approval requests from agents
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache approvals                          list pending requests
  attache approvals show prm_…               see exactly what a request asks for
  attache approvals approve prm_…            allow it once
  attache approvals approve prm_… --scope agent --tool-pattern \"Read*\" --until 7d
  attache approvals deny prm_… --comment \"move it instead\"
  attache approvals grants                   list standing grants
  attache approvals grants revoke gnt_…

A request can only be decided once. If someone else decided it first, the command exits with 1 and shows their decision.",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    filter: ApprovalListArgs,
    #[command(subcommand)]
    command: Option<ApprovalsCommand>,
}

#[derive(Debug, Subcommand)]
enum ApprovalsCommand {
    /// List pending requests, newest first (default)
    List(ApprovalListArgs),
    /// Show exactly what a request asks for, and its decision
    Show {
        /// Request id, a unique part of it, or `last`
        #[arg(value_parser = IdArg::of_permission)]
        request: IdArg,
    },
    /// Approve a request
    Approve(DecisionArgs),
    /// Deny a request
    Deny(DecisionArgs),
    /// List or revoke standing grants
    Grants(GrantsArgs),
}

#[derive(Debug, Default, clap::Args)]
struct ApprovalListArgs {
    /// Only requests in this state; `all` for every state
    #[arg(long, value_parser = parse_state, value_name = "pending|approved|denied|expired|cancelled|all")]
    state: Option<ApprovalStateArg>,
    /// Only requests of this run (`run_…` or `a2a-…`)
    #[arg(long, value_name = "RUN")]
    run: Option<CallId>,
    /// Only requests of this agent (name or id)
    #[arg(long)]
    agent: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ApprovalStateArg {
    All,
    One(PermissionState),
}

#[derive(Debug, clap::Args)]
struct DecisionArgs {
    /// Request id, a unique part of it, or `last` for the one you last viewed with `show`
    #[arg(value_parser = IdArg::of_permission)]
    request: IdArg,
    /// What the decision applies to
    #[arg(long, default_value = "once", value_parser = parse_scope, value_name = "once|run|conversation|agent")]
    scope: DecisionScope,
    /// Apply to every tool whose name matches, whatever its input (`*` matches anything); not for scope `once`
    #[arg(long, value_name = "PATTERN")]
    tool_pattern: Option<String>,
    /// When the grant expires: `30m`, `8h`, `7d` or `2027-01-31T12:00:00Z`; not for scope `once`
    #[arg(long, value_name = "TIME", value_parser = parse_until)]
    until: Option<GrantExpiryArg>,
    /// Apply only to requests over the same channel; not for scope `once`
    #[arg(long)]
    this_channel_only: bool,
    /// Comment for the agent and the log
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GrantExpiryArg {
    After(Duration),
    At(Timestamp),
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
struct GrantsArgs {
    #[command(flatten)]
    page: PageArgs,
    #[command(subcommand)]
    command: Option<GrantsCommand>,
}

#[derive(Debug, Subcommand)]
enum GrantsCommand {
    /// List current and past grants (default)
    List(PageArgs),
    /// Revoke a grant, so that matching requests need approval again
    Revoke {
        /// Grant id, a unique part of it, or `last`
        #[arg(value_parser = IdArg::of_grant)]
        grant: IdArg,
    },
}

/// The request that a person saw last, on this machine. `last` means this one when it is decided, whatever was asked since.
#[derive(Serialize, Deserialize)]
struct LastSeenApproval {
    api_base: String,
    permission_request_id: PermissionId,
}

/// How many pending requests a refusal names.
const MAX_NAMED: u32 = 5;

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    match args.command.unwrap_or(ApprovalsCommand::List(args.filter)) {
        ApprovalsCommand::List(filter) => list(&context, &hub, filter).await,
        ApprovalsCommand::Show { request } => show(&context, &hub, request.permission(&hub).await?).await,
        ApprovalsCommand::Approve(answer) => decide(&context, &hub, answer, ApprovalVerdict::Yes).await,
        ApprovalsCommand::Deny(answer) => decide(&context, &hub, answer, ApprovalVerdict::No).await,
        ApprovalsCommand::Grants(GrantsArgs { page, command }) => match command.unwrap_or(GrantsCommand::List(page)) {
            GrantsCommand::List(page) => grants(&context, &hub, &page).await,
            GrantsCommand::Revoke { grant } => {
                let grant = grant.grant(&hub).await?;
                hub.revoke_grant(grant).await?;
                context.output.say(texts::revoked(grant));
                Ok(())
            }
        },
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ApprovalVerdict {
    Yes,
    No,
}

async fn list(context: &CommandContext, hub: &HubClient, filter: ApprovalListArgs) -> Result<(), CommandFailure> {
    let (output, now) = (&context.output, context.now());
    let state = match filter.state.unwrap_or(ApprovalStateArg::One(PermissionState::Pending)) {
        ApprovalStateArg::All => None,
        ApprovalStateArg::One(state) => Some(state),
    };
    let query =
        PermissionFilter { state, run: filter.run.map(CallId::run), agent: filter.agent, page: filter.page.page() };
    let list = hub.permissions(&query).await?;
    if output.is_json() {
        return output.json(&list);
    }
    if list.permission_requests.is_empty() {
        let words = match state {
            Some(PermissionState::Pending) => texts::none_pending(),
            _ => texts::none_found(),
        };
        output.say(words);
        return Ok(());
    }
    let mut table = TextTable::new(&[
        terms::id(),
        terms::state(),
        terms::agent(),
        terms::asked(),
        terms::expires(),
        terms::risk(),
        terms::tool(),
        terms::what(),
    ]);
    for request in &list.permission_requests {
        table.row([
            TextCell::plain(request.permission_request_id.to_string()),
            tool_input::state_cell(request.state),
            TextCell::plain(&request.agent_name),
            TextCell::plain(time::relative(request.requested_at, now)),
            TextCell::plain(match request.state {
                PermissionState::Pending => time::relative_or(request.expires_at, now, terms::never()),
                _ => "–".to_owned(),
            }),
            TextCell::plain(clean::exact_line(request.risk.as_deref().unwrap_or("–"))),
            TextCell::plain(clean::exact_line(&request.tool)),
            TextCell::plain(clean::exact_line(&tool_input::request_summary(request))),
        ]);
    }
    output.table(&table)?;
    page::more(context, list.next_cursor.as_deref());
    if state == Some(PermissionState::Pending) {
        output.say(texts::how_to_decide());
    }
    Ok(())
}

async fn show(context: &CommandContext, hub: &HubClient, request: PermissionId) -> Result<(), CommandFailure> {
    let output = &context.output;
    let request = hub.permission(request).await?;
    if output.is_json() {
        output.json(&request)?;
    } else {
        print(context, hub, &request).await?;
    }
    remember_shown(context, hub, request.permission_request_id);
    Ok(())
}

async fn print(context: &CommandContext, hub: &HubClient, request: &PermissionRequest) -> Result<(), CommandFailure> {
    let output = &context.output;
    let ids = [Some(request.runtime_id.to_string()), request.decided_by.clone()];
    let names = DisplayNames::of(hub, ids.into_iter().flatten()).await;
    output.table(&tool_input::facts(request, &names, context.now()))?;
    for (name, text) in tool_input::sections(request) {
        let heading = output.paint(TextStyle::Dim, &clean::exact_line(&name));
        output.line(format_args!("\n{heading}\n{}", clean::exact(&text)))?;
    }
    if let Some(diff) = &request.diff {
        output.line(format_args!("\n{}", output.paint(TextStyle::Dim, texts::proposed())))?;
        for line in diff.trim_end_matches('\n').split('\n') {
            output.line(output.paint(tool_input::diff_style(line), &clean::exact_line(line)))?;
        }
    }
    if request.state == PermissionState::Pending {
        let id = request.permission_request_id;
        output.say(texts::allow_or_deny(id));
        if let Some(reason) = request.once {
            output.say(texts::only_once(once_reason(reason)));
        }
    }
    Ok(())
}

fn once_reason(reason: OnceReason) -> &'static str {
    match reason {
        OnceReason::HiddenInput => texts::once_hidden(),
        OnceReason::PrivateAgent => texts::once_private(),
        OnceReason::Plan => texts::once_plan(),
    }
}

async fn decide(
    context: &CommandContext,
    hub: &HubClient,
    answer: DecisionArgs,
    verdict: ApprovalVerdict,
) -> Result<(), CommandFailure> {
    let id = match answer.request.is_last() {
        true => last_shown(context, hub).await?,
        false => answer.request.permission(hub).await?,
    };
    let request = DecisionRequest {
        approved: verdict == ApprovalVerdict::Yes,
        scope: answer.scope,
        tool_pattern: answer.tool_pattern,
        until: answer.until.map(|until| match until {
            GrantExpiryArg::After(wait) => context.now().plus(wait),
            GrantExpiryArg::At(at) => at,
        }),
        this_channel_only: answer.this_channel_only,
        comment: answer.comment,
    };
    let decided = hub.decide(id, &request).await;
    let decided = match decided {
        Ok(decided) => decided,
        Err(error) => return Err(already_decided(context, hub, error).await),
    };
    if context.output.is_json() {
        return context.output.json(&decided);
    }
    let scope = tool_input::scope(answer.scope);
    let (agent, tool) = (clean::line(&decided.agent_name), clean::exact_line(&decided.tool));
    let subject = tool_input::request_summary(&decided);
    let what = match (&request.tool_pattern, answer.scope) {
        (Some(pattern), _) => texts::every_tool(clean::exact_line(pattern)),
        (None, DecisionScope::Once) => texts::one_use(tool, clean::exact_line(&subject)),
        (None, _) => texts::exact_tool(tool, clean::exact_line(&subject)),
    };
    let (style, text) = match (request.approved, request.until) {
        (true, None) => (TextStyle::Good, texts::allowed(scope, agent, what)),
        (true, Some(until)) => (TextStyle::Good, texts::allowed_until(scope, agent, what, until)),
        (false, None) => (TextStyle::Bad, texts::denied(scope, agent, what)),
        (false, Some(until)) => (TextStyle::Bad, texts::denied_until(scope, agent, what, until)),
    };
    context.output.say_styled(style, text);
    if let Some(grant) = decided.grant_id {
        context.output.say(texts::saved_grant(grant));
    }
    Ok(())
}

/// Without a home there is no `last`.
fn remember_shown(context: &CommandContext, hub: &HubClient, request: PermissionId) {
    let shown = LastSeenApproval { api_base: hub.address().api_base(), permission_request_id: request };
    let text = serde_json::to_vec(&shown).expect("our own types serialise to JSON");
    let Ok(file) = context.home().map(|home| home.shown_approval()) else { return };
    if let Err(error) = home::write_private(&file, &text) {
        tracing::debug!(%error, "failed to record which request was shown");
        // Otherwise `last` would be one that was shown before.
        let _ = fs::remove_file(&file);
    }
}

/// Refused unless a request of this hub was shown: which one is the newest may have changed since the person looked.
async fn last_shown(context: &CommandContext, hub: &HubClient) -> Result<PermissionId, CommandFailure> {
    let shown = context.home().ok().and_then(|home| fs::read(home.shown_approval()).ok());
    let shown = shown.and_then(|text| serde_json::from_slice::<LastSeenApproval>(&text).ok());
    if let Some(shown) = shown.filter(|shown| shown.api_base == hub.address().api_base()) {
        return Ok(shown.permission_request_id);
    }
    let page = PageQuery { limit: Some(MAX_NAMED), cursor: None };
    let state = Some(PermissionState::Pending);
    let pending = hub.permissions(&PermissionFilter { state, page, ..PermissionFilter::default() }).await?;
    let line = |request: &PermissionRequest| {
        let (agent, tool) = (clean::line(&request.agent_name), clean::exact_line(&request.tool));
        let subject = tool_input::request_summary(request);
        texts::pending_line(request.permission_request_id, agent, tool, clean::exact_line(&subject))
    };
    let hint = match &*pending.permission_requests {
        [] => texts::none_pending().to_owned(),
        requests => texts::show_first(requests.iter().map(line).collect::<Vec<_>>().join("\n")),
    };
    Err(CommandFailure::usage(texts::none_shown()).hint(hint))
}

/// If someone else decided first, the failure names them and their decision.
async fn already_decided(context: &CommandContext, hub: &HubClient, error: attache_client::Error) -> CommandFailure {
    let Some(decided) = error.decided() else { return error.into() };
    let names = DisplayNames::of(hub, decided.permission_request.decided_by.iter()).await;
    let message = texts::already_decided(tool_input::verdict(&decided.permission_request, &names, context.now()));
    let failure = CommandFailure::from(error);
    CommandFailure { message, ..failure }
}

async fn grants(context: &CommandContext, hub: &HubClient, page: &PageArgs) -> Result<(), CommandFailure> {
    let (output, now) = (&context.output, context.now());
    let list = hub.grants(&page.page()).await?;
    if output.is_json() {
        return output.json(&list);
    }
    if list.permission_grants.is_empty() {
        output.say(texts::no_grants());
        return Ok(());
    }
    let agents = list.permission_grants.iter().map(|grant| grant.agent_id.to_string());
    let names =
        DisplayNames::of(hub, agents.chain(list.permission_grants.iter().map(|grant| grant.created_by.clone()))).await;
    let mut table = TextTable::new(&[
        terms::id(),
        terms::state(),
        terms::answer(),
        terms::agent(),
        terms::reach(),
        terms::ends(),
        terms::by(),
        terms::what(),
    ]);
    for grant in &list.permission_grants {
        let (state, style) = match (grant.revoked_at, grant.ends_at()) {
            (Some(_), _) => (texts::grant_revoked(), TextStyle::Dim),
            // The end time of a run comes from the hub's clock, which may be ahead of this machine's.
            (None, Some(end)) if grant.ended_at.is_some() || end <= now => (texts::grant_ended(), TextStyle::Dim),
            (None, _) => (texts::grant_stands(), TextStyle::Good),
        };
        let ends_at = match (grant.revoked_at, grant.ends_at()) {
            (Some(revoked), Some(end)) => Some(revoked.min(end)),
            (revoked, end) => revoked.or(end),
        };
        let reach = match (grant.task_run_id, grant.conversation_id) {
            (Some(run), _) => format!(" {run}"),
            (None, Some(conversation)) => format!(" {conversation}"),
            (None, None) => String::new(),
        };
        let reach = format!("{}{reach}", grant.scope.as_str());
        let reach = match grant.channel_id {
            Some(channel) => texts::over_channel(reach, channel),
            None => reach,
        };
        table.row([
            TextCell::plain(grant.grant_id.to_string()),
            TextCell::styled(state, style),
            TextCell::plain(if grant.approved { texts::allow() } else { texts::deny() }),
            TextCell::plain(names.get(grant.agent_id)),
            TextCell::plain(reach),
            TextCell::plain(time::relative_or(
                ends_at,
                now,
                if grant.scope == DecisionScope::Run { texts::when_run_ends() } else { terms::never() },
            )),
            TextCell::plain(names.get(&grant.created_by)),
            TextCell::plain(match &grant.tool_pattern {
                Some(pattern) => clean::exact_line(pattern).into_owned(),
                None => allowed(hub, grant.permission_request_id).await,
            }),
        ]);
    }
    output.table(&table)?;
    page::more(context, list.next_cursor.as_deref());
    Ok(())
}

/// The tool and command that the decision was about.
async fn allowed(hub: &HubClient, request: PermissionId) -> String {
    match hub.permission(request).await {
        Ok(request) => {
            let (tool, brief) = (clean::exact_line(&request.tool).into_owned(), tool_input::request_summary(&request));
            texts::exactly(tool, clean::exact_line(&brief))
        }
        // Retention may have removed the request.
        Err(_) => texts::exactly_request(request),
    }
}

fn parse_state(text: &str) -> Result<ApprovalStateArg, String> {
    match text {
        "all" => Ok(ApprovalStateArg::All),
        _ => PermissionState::from_text(text)
            .map(ApprovalStateArg::One)
            .ok_or_else(|| errors::state_expected().to_owned()),
    }
}

fn parse_scope(text: &str) -> Result<DecisionScope, String> {
    DecisionScope::from_text(text).ok_or_else(|| errors::scope_expected().to_owned())
}

fn parse_until(text: &str) -> Result<GrantExpiryArg, String> {
    if let Ok(at) = text.parse() {
        return Ok(GrantExpiryArg::At(at));
    }
    amount::duration(text).map(GrantExpiryArg::After).map_err(|_| errors::until_expected().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_a_duration_or_a_timestamp() {
        let after = |seconds| Ok(GrantExpiryArg::After(Duration::from_secs(seconds)));
        assert_eq!(parse_until("30m"), after(1_800));
        assert_eq!(parse_until("7d"), after(604_800));
        let moment = "2027-01-31T12:00:00Z";
        assert_eq!(parse_until(moment), Ok(GrantExpiryArg::At(moment.parse().unwrap())));
        for wrong in ["", "d", "-1h", "0s", "7 d", "soon", "7é", "99999999999d"] {
            assert!(parse_until(wrong).is_err(), "{wrong}");
        }
    }
}

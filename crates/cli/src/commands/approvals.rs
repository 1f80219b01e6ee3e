//! `attache approvals`: approval requests, decisions and standing grants.

use std::time::Duration;

use attache_client::{HubClient, PermissionFilter};
use attache_protocol::{
    PermissionId, Timestamp,
    rules::permission::{DecisionScope, OnceReason, PermissionState},
    wire::{call::CallId, permission::DecisionRequest},
};
use clap::Subcommand;

use super::page::{self, PageArgs};
use crate::{
    env::{
        amount,
        context::{CommandContext, HubArgs},
        ids::IdArg,
    },
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
    /// Request id, a unique part of it, or `last`
    #[arg(value_parser = IdArg::of_permission)]
    request: IdArg,
    /// How far the decision reaches
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
                context.output.say(format_args!("Revoked {grant}. Matching requests need approval again."));
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
            Some(PermissionState::Pending) => {
                "No pending approvals. See past decisions: attache approvals list --state all"
            }
            _ => "No requests found.",
        };
        output.say(words);
        return Ok(());
    }
    let mut table = TextTable::new(&["ID", "STATE", "AGENT", "ASKED", "EXPIRES", "RISK", "TOOL", "WHAT"]);
    for request in &list.permission_requests {
        table.row([
            TextCell::plain(request.permission_request_id.to_string()),
            tool_input::state_cell(request.state),
            TextCell::plain(&request.agent_name),
            TextCell::plain(time::relative(request.requested_at, now)),
            TextCell::plain(match request.state {
                PermissionState::Pending => time::relative_or(request.expires_at, now, "never"),
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
        output.say(
            "Details: attache approvals show ID. Decide: attache approvals approve ID, or attache approvals deny ID",
        );
    }
    Ok(())
}

async fn show(context: &CommandContext, hub: &HubClient, request: PermissionId) -> Result<(), CommandFailure> {
    let output = &context.output;
    let request = hub.permission(request).await?;
    if output.is_json() {
        return output.json(&request);
    }
    let ids = [Some(request.runtime_id.to_string()), request.decided_by.clone()];
    let names = DisplayNames::of(hub, ids.into_iter().flatten()).await;
    output.table(&tool_input::facts(&request, &names, context.now()))?;
    for (name, text) in tool_input::sections(&request) {
        let heading = output.paint(TextStyle::Dim, &clean::exact_line(&name));
        output.line(format_args!("\n{heading}\n{}", clean::exact(&text)))?;
    }
    if let Some(diff) = &request.diff {
        output.line(format_args!("\n{}", output.paint(TextStyle::Dim, "proposed changes")))?;
        for line in diff.trim_end_matches('\n').split('\n') {
            output.line(output.paint(tool_input::diff_style(line), &clean::exact_line(line)))?;
        }
    }
    if request.state == PermissionState::Pending {
        let id = request.permission_request_id;
        output.say(format_args!("\nAllow it: attache approvals approve {id}\nDeny it:  attache approvals deny {id}"));
        if let Some(reason) = request.once {
            output.say(format_args!("Only scope `once` is possible: {}.", once_reason(reason)));
        }
    }
    Ok(())
}

const fn once_reason(reason: OnceReason) -> &'static str {
    match reason {
        OnceReason::HiddenInput => "the agent doesn't disclose the tool's input",
        OnceReason::PrivateAgent => "a private agent acts with its owner's rights",
        OnceReason::Plan => "every plan is decided by itself",
    }
}

async fn decide(
    context: &CommandContext,
    hub: &HubClient,
    answer: DecisionArgs,
    verdict: ApprovalVerdict,
) -> Result<(), CommandFailure> {
    let id = answer.request.permission(hub).await?;
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
    let (style, word) = if request.approved { (TextStyle::Good, "Allowed") } else { (TextStyle::Bad, "Denied") };
    let scope = tool_input::scope(answer.scope);
    let tool = clean::exact_line(&decided.tool).into_owned();
    let what = match (&request.tool_pattern, answer.scope) {
        (Some(pattern), _) => format!("every tool that matches `{}`", clean::exact_line(pattern)),
        (None, DecisionScope::Once) => tool,
        (None, _) => format!("{tool} with exactly this input"),
    };
    let until = request.until.map(|until| format!(" until {until}")).unwrap_or_default();
    context.output.say_styled(
        style,
        format_args!(
            "{word} {scope}: {} {} use {what}{until}.",
            clean::line(&decided.agent_name),
            if request.approved { "can" } else { "can't" }
        ),
    );
    if let Some(grant) = decided.grant_id {
        context
            .output
            .say(format_args!("Saved as grant {grant}. To revoke it: attache approvals grants revoke {grant}"));
    }
    Ok(())
}

/// If someone else decided first, the failure names them and their decision.
async fn already_decided(context: &CommandContext, hub: &HubClient, error: attache_client::Error) -> CommandFailure {
    let Some(decided) = error.decided() else { return error.into() };
    let names = DisplayNames::of(hub, decided.permission_request.decided_by.iter()).await;
    let message =
        format!("already decided: {}", tool_input::verdict(&decided.permission_request, &names, context.now()));
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
        output.say(
            "No grants. To create one, approve a request with a wider scope: attache approvals approve ID --scope run",
        );
        return Ok(());
    }
    let agents = list.permission_grants.iter().map(|grant| grant.agent_id.to_string());
    let names =
        DisplayNames::of(hub, agents.chain(list.permission_grants.iter().map(|grant| grant.created_by.clone()))).await;
    let mut table = TextTable::new(&["ID", "STATE", "ANSWER", "AGENT", "REACH", "ENDS", "BY", "WHAT"]);
    for grant in &list.permission_grants {
        let (state, style) = match (grant.revoked_at, grant.ends_at()) {
            (Some(_), _) => ("revoked", TextStyle::Dim),
            // The end time of a run comes from the hub's clock, which may be ahead of this machine's.
            (None, Some(end)) if grant.ended_at.is_some() || end <= now => ("ended", TextStyle::Dim),
            (None, _) => ("stands", TextStyle::Good),
        };
        let reach = match (grant.task_run_id, grant.conversation_id) {
            (Some(run), _) => format!(" {run}"),
            (None, Some(conversation)) => format!(" {conversation}"),
            (None, None) => String::new(),
        };
        let channel = grant.channel_id.map(|channel| format!(" over {channel}")).unwrap_or_default();
        table.row([
            TextCell::plain(grant.grant_id.to_string()),
            TextCell::styled(state, style),
            TextCell::plain(if grant.approved { "allow" } else { "deny" }),
            TextCell::plain(names.get(grant.agent_id)),
            TextCell::plain(format!("{}{reach}{channel}", grant.scope.as_str())),
            TextCell::plain(time::relative_or(
                grant.ends_at(),
                now,
                if grant.scope == DecisionScope::Run { "when the run ends" } else { "never" },
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
            format!("exactly {tool}: {}", clean::exact_line(&brief))
        }
        // Retention may have removed the request.
        Err(_) => format!("exactly {request}"),
    }
}

fn parse_state(text: &str) -> Result<ApprovalStateArg, String> {
    match text {
        "all" => Ok(ApprovalStateArg::All),
        _ => PermissionState::from_text(text)
            .map(ApprovalStateArg::One)
            .ok_or_else(|| "expected one of pending, approved, denied, expired, cancelled, all".to_owned()),
    }
}

fn parse_scope(text: &str) -> Result<DecisionScope, String> {
    DecisionScope::from_text(text).ok_or_else(|| "expected one of once, run, conversation, agent".to_owned())
}

fn parse_until(text: &str) -> Result<GrantExpiryArg, String> {
    if let Ok(at) = text.parse() {
        return Ok(GrantExpiryArg::At(at));
    }
    amount::duration(text)
        .map(GrantExpiryArg::After)
        .map_err(|_| "expected a time such as 30m, 8h, 7d or 2027-01-31T12:00:00Z".to_owned())
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

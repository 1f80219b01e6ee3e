//! `attache quotas`: manages daily quotas.

use attache_client::HubClient;
use attache_protocol::{
    Json,
    wire::usage::{Quota, SetQuotaRequest, UsageAmounts},
};
use clap::Subcommand;

use crate::{
    env::{
        amount,
        context::{CommandContext, HubArgs},
    },
    text::people,
    ui::{
        failure::CommandFailure,
        output::{TextCell, TextTable, time},
    },
};

/// Manage daily quotas
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache quotas                                        list quotas and today's usage
  attache quotas set --user ann --cost 5                limit ann's calls to five dollars a day
  attache quotas set --agent builder --calls 100 --tokens 1000000
  attache quotas set --agent builder --calls none       remove the limit on calls; keep the limit on tokens
  attache quotas set --calls 10000                      limit the entire hub
  attache quotas remove --user ann

Quotas reset at midnight UTC. Limits that you don't pass stay unchanged.",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(subcommand)]
    command: Option<QuotasCommand>,
}

#[derive(Debug, Subcommand)]
enum QuotasCommand {
    /// List quotas (default)
    List,
    /// Set limits for a user, an agent, a user with an agent, or the entire hub
    Set {
        #[command(flatten)]
        target: QuotaTargetArgs,
        #[command(flatten)]
        limits: QuotaLimitArgs,
    },
    /// Remove a quota
    Remove {
        #[command(flatten)]
        target: QuotaTargetArgs,
    },
}

#[derive(Debug, Clone, clap::Args)]
struct QuotaTargetArgs {
    /// User name or id
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Agent name or id
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct QuotaLimitArgs {
    /// Maximum calls per day; `none` removes the limit
    #[arg(long, value_name = "N", value_parser = count)]
    calls: Option<QuotaLimitArg<u64>>,
    /// Maximum tokens per day; `none` removes the limit
    #[arg(long, value_name = "N", value_parser = count)]
    tokens: Option<QuotaLimitArg<u64>>,
    /// Maximum cost per day in US dollars; `none` removes the limit
    #[arg(long, value_name = "USD", value_parser = dollars)]
    cost: Option<QuotaLimitArg<Json>>,
}

/// A new value for one limit. Limits that aren't passed stay unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
enum QuotaLimitArg<T> {
    None,
    At(T),
}

const NONE: &str = "none";

fn count(text: &str) -> Result<QuotaLimitArg<u64>, String> {
    match text {
        NONE => Ok(QuotaLimitArg::None),
        digits => digits.parse().map(QuotaLimitArg::At).map_err(|_| "expected a whole number or none".to_owned()),
    }
}

fn dollars(text: &str) -> Result<QuotaLimitArg<Json>, String> {
    match text {
        NONE => Ok(QuotaLimitArg::None),
        number => amount::dollars(number).map(QuotaLimitArg::At).map_err(|what| format!("{what} or none")),
    }
}

fn changed<T>(named: Option<QuotaLimitArg<T>>, before: Option<T>) -> Option<T> {
    match named {
        None => before,
        Some(QuotaLimitArg::None) => None,
        Some(QuotaLimitArg::At(limit)) => Some(limit),
    }
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    match args.command.unwrap_or(QuotasCommand::List) {
        QuotasCommand::List => list(&context, &hub).await,
        QuotasCommand::Set { target, limits } => {
            // The hub replaces all limits of a quota together, so merge with the current ones.
            let before = hub.quotas().await?.quotas.into_iter().find(|quota| target.is(quota));
            let (calls, tokens, cost) =
                before.map_or((None, None, None), |quota| (quota.calls, quota.tokens, quota.cost_usd));
            let request = SetQuotaRequest {
                user: target.user,
                agent: target.agent,
                calls: changed(limits.calls, calls),
                tokens: changed(limits.tokens, tokens),
                cost_usd: changed(limits.cost, cost),
            };
            let names_user = request.user.is_some();
            let quota = hub.set_quota(&request).await.map_err(|error| unknown(error.into(), names_user))?;
            if context.output.is_json() {
                return context.output.json(&quota);
            }
            match quota {
                Some(quota) => context.output.say(people::quota_set(subject(&quota))),
                None => context.output.say(people::quota_emptied()),
            }
            Ok(())
        }
        QuotasCommand::Remove { target } => {
            let request = SetQuotaRequest { user: target.user, agent: target.agent, ..SetQuotaRequest::default() };
            let names_user = request.user.is_some();
            hub.set_quota(&request).await.map_err(|error| unknown(error.into(), names_user))?;
            let whose: Vec<String> = request.user.into_iter().chain(request.agent).collect();
            context.output.done("removed", whose.join(" "), people::quota_removed())
        }
    }
}

/// Picks the hint for "not found": if a user was named, the user name is the likely mistake.
fn unknown(failure: CommandFailure, names_user: bool) -> CommandFailure {
    if names_user { failure.with_user_hint() } else { failure }
}

// === impl QuotaTargetArgs ===

impl QuotaTargetArgs {
    fn is(&self, quota: &Quota) -> bool {
        let is = |given: Option<&str>, id: Option<String>, name: Option<&str>| match given {
            None => id.is_none(),
            Some(given) => name == Some(given) || id.as_deref() == Some(given),
        };
        is(self.user.as_deref(), quota.user_id.map(|id| id.to_string()), quota.user_name.as_deref())
            && is(self.agent.as_deref(), quota.agent_id.map(|id| id.to_string()), quota.agent_name.as_deref())
    }
}

async fn list(context: &CommandContext, hub: &HubClient) -> Result<(), CommandFailure> {
    let output = &context.output;
    let list = hub.quotas().await?;
    if output.is_json() {
        return output.json(&list);
    }
    let mut table =
        TextTable::new(&[people::limited(), people::calls(), people::tokens(), people::cost(), people::resets()]);
    for quota in &list.quotas {
        let cost =
            quota.cost_usd.as_ref().map(|limit| (quota.spent.cost_usd.get(), quota.held.cost_usd.get(), limit.get()));
        table.row([
            TextCell::strong(subject(quota)),
            TextCell::plain(of(quota.calls, quota, |amounts| amounts.calls)),
            TextCell::plain(of(quota.tokens, quota, |amounts| amounts.tokens)),
            TextCell::plain(cost.map_or_else(
                || "–".to_owned(),
                |(spent, held, limit)| {
                    people::quota_spent(format_args!("${spent}"), format_args!("${held}"), format_args!("${limit}"))
                },
            )),
            TextCell::plain(time::relative(quota.resets_at, context.now())),
        ]);
    }
    output.table(&table)?;
    if list.quotas.is_empty() {
        output.say(people::no_quotas());
    }
    Ok(())
}

fn subject(quota: &Quota) -> String {
    match (&quota.user_name, &quota.agent_name) {
        (None, None) => people::quota_everything().to_owned(),
        (Some(user), None) => people::quota_user(user),
        (None, Some(agent)) => people::quota_agent(agent),
        (Some(user), Some(agent)) => people::quota_both(user, agent),
    }
}

fn of(limit: Option<u64>, quota: &Quota, amount: impl Fn(&UsageAmounts) -> u64) -> String {
    match limit {
        Some(limit) => people::quota_spent(amount(&quota.spent), amount(&quota.held), limit),
        None => "–".to_owned(),
    }
}

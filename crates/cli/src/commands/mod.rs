//! The command line: one file per command, with its arguments, examples and implementation.

mod adapter;
mod agents;
mod approvals;
mod artifacts;
mod ask;
mod audit;
mod backup;
mod bench;
mod channels;
mod complete;
mod completions;
mod context;
mod conversations;
mod daemon;
mod delegate;
mod delegations;
mod deliveries;
mod doctor;
mod groups;
mod hub;
mod keys;
mod login;
mod man;
mod mcp;
mod migrate;
mod mount_guard;
mod notifications;
mod page;
mod quotas;
mod rules;
mod runs;
mod runtime;
mod runtimes;
mod sandbox;
mod service;
mod sessions;
mod tokens;
mod up;
mod update;
mod usage;
mod users;
mod watch;
mod worktrees;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::{
    env::{context::CommandContext, executor::ProcessKind},
    text::{self, Language},
    ui::failure::CommandFailure,
};

/// Put agents on any machine to work, and see, approve, stop and account for what they do.
#[derive(Debug, Parser)]
#[command(
    name = "attache",
    version,
    after_help = "Examples:
  attache up                          start everything on this machine
  attache ask local \"uname -a\"        give the built-in shell agent a task
  attache runtime pair --api-base URL pair this device with a remote hub

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 denied, 5 unreachable, 6 partial, 124 timed out.",
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    /// Print JSON with a stable schema
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Language of messages and help [default: $ATTACHE_LANG, or that of the locale]
    #[arg(long, global = true, value_name = "en|zh", value_enum, hide_possible_values = true)]
    pub(crate) lang: Option<Language>,
    #[command(subcommand)]
    pub(crate) command: AttacheCommand,
}

/// Every `attache` command. To add one, add a variant here and a file in this folder.
#[derive(Debug, Subcommand)]
pub(crate) enum AttacheCommand {
    Up(up::Args),
    Hub(hub::Args),
    Runtime(runtime::Args),
    Adapter(adapter::Args),
    Ask(ask::Args),
    Watch(watch::Args),
    Agents(agents::Args),
    Runtimes(runtimes::Args),
    Runs(runs::Args),
    Approvals(approvals::Args),
    Channels(channels::Args),
    Conversations(conversations::Args),
    Context(context::Args),
    Delegate(delegate::Args),
    Delegations(delegations::Args),
    Daemon(daemon::Args),
    Mcp(mcp::Args),
    Artifacts(artifacts::Args),
    Worktrees(worktrees::Args),
    Deliveries(deliveries::Args),
    Notifications(notifications::Args),
    Users(users::Args),
    Keys(keys::Args),
    Sessions(sessions::Args),
    Tokens(tokens::Args),
    Service(service::Args),
    Update(update::Args),
    Backup(backup::Args),
    Migrate(migrate::Args),
    Audit(audit::Args),
    Rules(rules::Args),
    Quotas(quotas::Args),
    Usage(usage::Args),
    Login(login::Args),
    Doctor(doctor::Args),
    Sandbox(sandbox::Args),
    Bench(bench::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Complete(complete::Args),
    #[command(hide = true)]
    Man(man::Args),
    #[command(hide = true)]
    MountGuard(mount_guard::Args),
}

pub(crate) use sandbox::inside_walls;

/// The command line with its grouped help.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command();
    groups::grouped(if text::is_chinese() { text::help::localized(command) } else { command })
}

// === impl AttacheCommand ===

impl AttacheCommand {
    pub(crate) const fn process_kind(&self) -> ProcessKind {
        match self {
            Self::Adapter(args) if args.is_supervised() => ProcessKind::Child,
            Self::Up(_) | Self::Hub(_) | Self::Adapter(_) | Self::Daemon(_) => ProcessKind::Server,
            Self::Runtime(args) => args.process_kind(),
            Self::Mcp(args) => args.process_kind(),
            Self::Bench(_) => ProcessKind::Bench,
            Self::Ask(_)
            | Self::Watch(_)
            | Self::Agents(_)
            | Self::Runtimes(_)
            | Self::Runs(_)
            | Self::Approvals(_)
            | Self::Channels(_)
            | Self::Conversations(_)
            | Self::Context(_)
            | Self::Delegate(_)
            | Self::Delegations(_)
            | Self::Artifacts(_)
            | Self::Worktrees(_)
            | Self::Deliveries(_)
            | Self::Notifications(_)
            | Self::Users(_)
            | Self::Keys(_)
            | Self::Sessions(_)
            | Self::Tokens(_)
            | Self::Audit(_)
            | Self::Service(_)
            | Self::Update(_)
            | Self::Backup(_)
            | Self::Migrate(_)
            | Self::Rules(_)
            | Self::Quotas(_)
            | Self::Usage(_)
            | Self::Login(_)
            | Self::Doctor(_)
            | Self::Sandbox(_)
            | Self::Completions(_)
            | Self::Complete(_)
            | Self::Man(_)
            | Self::MountGuard(_) => ProcessKind::Client,
        }
    }

    /// Whether programs read what the command says: a runtime, a model's client, a log file, a shell.
    pub(crate) fn is_read_by_programs(&self) -> bool {
        let generates = matches!(self, Self::Completions(_) | Self::Complete(_) | Self::Man(_) | Self::MountGuard(_));
        generates || matches!(self, Self::Mcp(_) | Self::Daemon(_)) || self.process_kind() == ProcessKind::Child
    }

    pub(crate) async fn run(self, context: CommandContext) -> Result<(), CommandFailure> {
        match self {
            Self::Up(args) => Box::pin(up::run(context, args)).await,
            Self::Hub(args) => Box::pin(hub::run(context, args)).await,
            Self::Runtime(args) => Box::pin(runtime::run(context, args)).await,
            Self::Adapter(args) => Box::pin(adapter::run(context, args)).await,
            Self::Ask(args) => Box::pin(ask::run(context, args)).await,
            Self::Watch(args) => Box::pin(watch::run(context, args)).await,
            Self::Agents(args) => Box::pin(agents::run(context, args)).await,
            Self::Runtimes(args) => Box::pin(runtimes::run(context, args)).await,
            Self::Runs(args) => Box::pin(runs::run(context, args)).await,
            Self::Approvals(args) => Box::pin(approvals::run(context, args)).await,
            Self::Channels(args) => Box::pin(channels::run(context, args)).await,
            Self::Conversations(args) => Box::pin(conversations::run(context, args)).await,
            Self::Context(args) => context::run(&context, args),
            Self::Delegate(args) => Box::pin(delegate::run(context, args)).await,
            Self::Delegations(args) => Box::pin(delegations::run(context, args)).await,
            Self::Daemon(args) => Box::pin(daemon::run(context, args)).await,
            Self::Mcp(args) => Box::pin(mcp::run(context, args)).await,
            Self::Artifacts(args) => Box::pin(artifacts::run(context, args)).await,
            Self::Worktrees(args) => Box::pin(worktrees::run(&context, args)).await,
            Self::Deliveries(args) => Box::pin(deliveries::run(context, args)).await,
            Self::Notifications(args) => Box::pin(notifications::run(context, args)).await,
            Self::Users(args) => Box::pin(users::run(context, args)).await,
            Self::Tokens(args) => Box::pin(tokens::run(context, args)).await,
            Self::Keys(args) => Box::pin(keys::run(context, args)).await,
            Self::Sessions(args) => Box::pin(sessions::run(context, args)).await,
            Self::Audit(args) => Box::pin(audit::run(context, args)).await,
            Self::Service(args) => service::run(&context, args),
            Self::Update(args) => Box::pin(update::run(context, args)).await,
            Self::Backup(args) => Box::pin(backup::run(context, args)).await,
            Self::Migrate(args) => Box::pin(migrate::run(context, args)).await,
            Self::Rules(args) => Box::pin(rules::run(context, args)).await,
            Self::Quotas(args) => Box::pin(quotas::run(context, args)).await,
            Self::Usage(args) => Box::pin(usage::run(context, args)).await,
            Self::Bench(args) => Box::pin(bench::run(context, args)).await,
            Self::Login(args) => Box::pin(login::run(context, args)).await,
            Self::Doctor(args) => Box::pin(doctor::run(context, args)).await,
            Self::Sandbox(args) => Box::pin(sandbox::run(context, args)).await,
            Self::Completions(args) => completions::run(&context, &args, Cli::command()),
            Self::Complete(args) => Box::pin(complete::run(context, args, Cli::command())).await,
            Self::Man(args) => man::run(&context, &args, Cli::command()),
            Self::MountGuard(args) => mount_guard::run(&context, &args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options that every command or every list has, which the document describes once and not by name.
    const COMMON: &[&str] =
        &["help", "version", "json", "lang", "hub", "context", "key-file", "pin", "limit", "cursor"];

    /// The options of a command and everything below it that docs/cli.md doesn't name.
    fn unnamed(command: &clap::Command, path: &str, document: &str, missing: &mut Vec<String>) {
        for option in command.get_arguments().filter(|option| !option.is_hide_set() && !option.is_global_set()) {
            let Some(long) = option.get_long().filter(|long| !COMMON.contains(long)) else { continue };
            if !document.contains(&format!("--{long}")) {
                missing.push(format!("{path} --{long}"));
            }
        }
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            unnamed(sub, &format!("{path} {}", sub.get_name()), document, missing);
        }
    }

    #[test]
    fn the_document_names_every_command_and_option() {
        let document = include_str!("../../../../docs/cli.md");
        let (command, mut missing) = (Cli::command(), Vec::new());
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            if !document.contains(&format!("`{}", sub.get_name()))
                && !document.contains(&format!("attache {}", sub.get_name()))
            {
                missing.push(sub.get_name().to_owned());
            }
        }
        unnamed(&command, "attache", document, &mut missing);
        assert_eq!(missing, Vec::<String>::new());
    }
}

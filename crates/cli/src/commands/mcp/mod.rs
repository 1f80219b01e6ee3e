//! `attache mcp`: the tools for models, for MCP clients on this machine.

mod clients;
mod install;
mod jsonc;
mod serve;
mod toml_text;

use std::{net::SocketAddr, path::PathBuf};

use clap::Subcommand;

use super::ProcessKind;
use crate::{CommandContext, CommandFailure, context::HubArgs};

/// Serve tools over MCP, or install them in a client such as Claude Code
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache mcp install --for claude,codex          enter it into the configuration of these clients
  attache mcp install --for cursor --print        only show what would be written
  attache mcp                                     over standard input and output, as clients start it
  attache mcp --http 127.0.0.1:7801               over HTTP; the secret is in $A2A_HOME/mcp/127.0.0.1_7801

Tools: delegate, delegate_output, delegate_cancel lend folders of this machine (policy.toml says which, and to whom);
remote_agent and list_agents ask agents of the hub and elsewhere. docs/mcp.md has the whole story.")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<McpCommand>,
    #[command(flatten)]
    serve: McpServeArgs,
}

#[derive(Debug, Subcommand)]
enum McpCommand {
    Install(install::Args),
    Uninstall(install::UninstallArgs),
}

#[derive(Debug, clap::Args)]
struct McpServeArgs {
    /// Listen here instead of using standard input and output; port 0 picks a free one
    #[arg(long, value_name = "ADDR")]
    http: Option<SocketAddr>,
    /// How long a tool waits before it answers `running`: shorter than the client waits for a tool
    #[arg(long, value_name = "SECONDS", default_value = "50", value_parser = clap::value_parser!(u64).range(1..=3600))]
    wait: u64,
    /// The key for agents at an origin, as https://agents.example.org=FILE; may be repeated. It is sent nowhere else
    #[arg(long, value_name = "ORIGIN=FILE")]
    peer_key: Vec<String>,
    /// Write {"url":…,"secret_file":…} to this file once it listens
    #[arg(long, value_name = "FILE", requires = "http")]
    ready_file: Option<PathBuf>,
    #[command(flatten)]
    hub: HubArgs,
}

// === impl Args ===

impl Args {
    pub(super) const fn process_kind(&self) -> ProcessKind {
        match (&self.what, self.serve.http) {
            (None, Some(_)) => ProcessKind::Server,
            // One client, and what goes to standard error is shown to a person.
            (Some(_), _) | (None, None) => ProcessKind::Client,
        }
    }
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    match args.what {
        None => serve::run(context, args.serve).await,
        Some(McpCommand::Install(install)) => install::install(&context, &install, &args.serve.hub),
        Some(McpCommand::Uninstall(args)) => install::uninstall(&context, &args),
    }
}

//! `attache mcp`: the tools for models, for MCP clients on this machine.

mod clients;
mod install;
mod jsonc;
mod serve;
mod tables;

use std::{net::SocketAddr, path::PathBuf};

use clap::Subcommand;

use super::Weight;
use crate::{Context, Failure, context::HubArgs};

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
    what: Option<What>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Debug, Subcommand)]
enum What {
    Install(install::Args),
    Uninstall(install::Undo),
}

#[derive(Debug, clap::Args)]
struct Serve {
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
    pub(super) const fn weight(&self) -> Weight {
        match (&self.what, self.serve.http) {
            (None, Some(_)) => Weight::Server,
            // One client, and what goes to standard error is shown to a person.
            (Some(_), _) | (None, None) => Weight::Client,
        }
    }
}

pub(super) async fn run(context: Context, args: Args) -> Result<(), Failure> {
    match args.what {
        None => serve::run(context, args.serve).await,
        Some(What::Install(install)) => install::install(&context, &install, &args.serve.hub),
        Some(What::Uninstall(args)) => install::uninstall(&context, &args),
    }
}

//! `attache mcp`: serves MCP tools to clients on this machine.

mod clients;
mod install;
mod jsonc;
mod serve;
mod server_entry;
mod toml_text;

use clap::Subcommand;

use crate::{
    env::{context::CommandContext, executor::ProcessKind},
    ui::failure::CommandFailure,
};

/// Serve tools over MCP, or install them in a client such as Claude Code
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache mcp install --for claude,codex          add this server to these clients
  attache mcp install --for cursor --print        print the changes without writing them
  attache mcp                                     serve over standard input and output, as clients do
  attache mcp --http 127.0.0.1:7801               serve over HTTP; the secret is in $A2A_HOME/mcp/127.0.0.1_7801

Tools: delegate, delegate_output and delegate_cancel delegate folders of this machine (policy.toml lists the allowed folders
and trusted peers); remote_agent and list_agents call agents of the hub and elsewhere. See docs/mcp.md.")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<McpCommand>,
    #[command(flatten)]
    serve: serve::McpServeArgs,
}

#[derive(Debug, Subcommand)]
enum McpCommand {
    Install(install::Args),
    Uninstall(install::UninstallArgs),
}

// === impl Args ===

impl Args {
    pub(super) const fn process_kind(&self) -> ProcessKind {
        match (&self.what, self.serve.http) {
            (None, Some(_)) => ProcessKind::Server,
            // It serves one client, which may show standard error to a person.
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

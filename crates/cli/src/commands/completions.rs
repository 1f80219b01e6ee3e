//! `attache completions`: what a shell needs to complete our commands.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::Cli;
use crate::{Context, Failure};

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache completions bash > ~/.local/share/bash-completion/completions/attache
  attache completions zsh > \"${fpath[1]}/_attache\"
  attache completions fish > ~/.config/fish/completions/attache.fish")]
pub(crate) struct Args {
    shell: Shell,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "attache", &mut script);
    context.output.line(String::from_utf8_lossy(&script).trim_end())
}

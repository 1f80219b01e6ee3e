//! `attache mount-guard`: owns the mount of a borrowed folder. Started by runtimes, not by people.

use attache_delegation::collaborator::run_guard;

use crate::{env::context::CommandContext, ui::failure::CommandFailure};

/// Own the mount of a borrowed folder and unmount it when standard input closes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs in the main thread, which lives as long as the process: sshfs is set up to exit when this thread does.
pub(super) fn run(_context: &CommandContext, _args: &Args) -> Result<(), CommandFailure> {
    let input = std::io::BufReader::new(std::io::stdin());
    match run_guard(input, std::io::stdout()) {
        0 => Ok(()),
        code => Err(CommandFailure::quiet(code)),
    }
}

//! `attache mount-guard`: the process that owns a lent folder's mount. Runtimes start it; it is not for people.

use attache_runtime::collaborator::run_guard;

use crate::{CommandContext, CommandFailure};

/// Own the mount of a lent folder, and unmount it when the standard input ends
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// In the first thread of the process, which lives as long as the process does: sshfs is told to end with it.
pub(super) fn run(_context: &CommandContext, _args: &Args) -> Result<(), CommandFailure> {
    let input = std::io::BufReader::new(std::io::stdin());
    match run_guard(input, std::io::stdout()) {
        0 => Ok(()),
        code => Err(CommandFailure::quiet(code)),
    }
}

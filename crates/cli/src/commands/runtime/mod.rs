//! `attache runtime`: pairs this device with agents and runs their tasks.

mod pair;
mod profiles;
mod set;
mod start;
pub(super) mod status;
mod unpair;

use clap::Subcommand;

use crate::{
    env::{context::CommandContext, executor::ProcessKind},
    ui::failure::CommandFailure,
};

/// Pair this device with an agent and run its tasks
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache runtime pair K7QM-2XHD --api-base https://hub.example.org    redeem a code from the console
  attache runtime pair --api-base https://hub.example.org              show a code to confirm in the console
  attache runtime start                                                stay connected and run tasks
  attache runtime status
  attache runtime set --api-base https://hub.example.org               the hub has moved")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: RuntimeCommand,
}

#[derive(Debug, Subcommand)]
enum RuntimeCommand {
    Pair(Box<pair::Args>),
    Start(start::Args),
    Status(status::Args),
    Profiles(profiles::Args),
    Set(set::Args),
    Unpair(unpair::Args),
}

// === impl Args ===

impl Args {
    pub(super) const fn process_kind(&self) -> ProcessKind {
        match &self.command {
            RuntimeCommand::Start(_) => ProcessKind::Server,
            RuntimeCommand::Pair(args) if args.stays() => ProcessKind::Server,
            RuntimeCommand::Pair(_)
            | RuntimeCommand::Status(_)
            | RuntimeCommand::Profiles(_)
            | RuntimeCommand::Set(_)
            | RuntimeCommand::Unpair(_) => ProcessKind::Client,
        }
    }
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let done = match args.command {
        RuntimeCommand::Pair(args) => Box::pin(pair::run(context, *args)).await,
        RuntimeCommand::Start(args) => Box::pin(start::run(context, args)).await,
        RuntimeCommand::Status(args) => Box::pin(status::run(context, args)).await,
        RuntimeCommand::Profiles(args) => profiles::run(&context, &args),
        RuntimeCommand::Set(args) => set::run(&context, args),
        RuntimeCommand::Unpair(args) => unpair::run(&context, &args),
    };
    // Runtime commands use --api-base instead of --hub.
    done.map_err(|failure| CommandFailure { hint: failure.hint.replace("--hub", "--api-base"), ..failure })
}

//! `attache runtime`: this device's connection to its agents.

mod pair;
mod profiles;
mod set;
mod start;
pub(super) mod status;
mod unpair;

use clap::Subcommand;

use super::Weight;
use crate::{Context, Failure};

/// Pair this device with an agent and run its tasks
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache runtime pair K7QM-2XHD --api-base https://hub.example.org    redeem a code from the console
  attache runtime pair --api-base https://hub.example.org              show a code to confirm in the console
  attache runtime start                                                stay connected and run tasks
  attache runtime status
  attache runtime set --api-base https://hub.example.org               its hub has moved")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Runtime,
}

#[derive(Debug, Subcommand)]
enum Runtime {
    Pair(Box<pair::Args>),
    Start(start::Args),
    Status(status::Args),
    Profiles(profiles::Args),
    Set(set::Args),
    Unpair(unpair::Args),
}

// === impl Args ===

impl Args {
    pub(super) const fn weight(&self) -> Weight {
        match &self.command {
            Runtime::Start(_) => Weight::Server,
            Runtime::Pair(args) if args.stays() => Weight::Server,
            Runtime::Pair(_) | Runtime::Status(_) | Runtime::Profiles(_) | Runtime::Set(_) | Runtime::Unpair(_) => {
                Weight::Client
            }
        }
    }
}

pub(super) async fn run(context: Context, args: Args) -> Result<(), Failure> {
    let done = match args.command {
        Runtime::Pair(args) => Box::pin(pair::run(context, *args)).await,
        Runtime::Start(args) => Box::pin(start::run(context, args)).await,
        Runtime::Status(args) => Box::pin(status::run(context, args)).await,
        Runtime::Profiles(args) => profiles::run(&context, &args),
        Runtime::Set(args) => set::run(&context, args),
        Runtime::Unpair(args) => unpair::run(&context, &args),
    };
    // A device names its hub with another option than people do.
    done.map_err(|failure| Failure { hint: failure.hint.replace("--hub", "--api-base"), ..failure })
}

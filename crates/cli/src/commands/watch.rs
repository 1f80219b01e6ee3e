//! `attache watch`: follow a run that exists.

use attache_protocol::error::exit;

use crate::{
    CommandContext, CommandFailure,
    context::HubArgs,
    follow::{self, FollowEnd, FollowOutput, RunFollower},
    ids::IdArg,
};

/// Follow a run to its end
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache watch run_…                 the answer
  attache watch last                  of the newest run
  attache watch run_… --json          every event, one JSON document per line
  attache watch run_… --after 12      go on after event 12

A terminal shows the answer as it comes; a pipe or a file gets the whole of it once, at the end. Exits with
0 when the run completed and 1 when it failed or was cancelled. Ctrl-C stops watching, not the run.")]
pub(crate) struct Args {
    /// `run_…`, a part of it, or `last`; a call's `a2a-…` as well
    #[arg(value_parser = IdArg::of_run)]
    run: IdArg,
    /// Start after this event
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: i64,
    #[command(flatten)]
    hub: HubArgs,
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    let show = if context.output.is_json() { FollowOutput::Events } else { FollowOutput::Answer };
    let id = args.run.run(&hub).await?;
    let mut follower = RunFollower::new(&context, show).with_hub(&args.hub).typing();
    match follower.follow(&hub, id, args.after, None).await? {
        FollowEnd::Run(run) => follow::verdict(&run),
        FollowEnd::TimedOut | FollowEnd::Interrupted => {
            drop(follower);
            if !context.output.is_json() {
                context.output.say(format_args!("{id} goes on. Stop it with: attache runs cancel {id}"));
            }
            Err(CommandFailure::quiet(exit::FAILED))
        }
    }
}

//! `attache watch`: follows an existing run.

use attache_protocol::error::exit;

use crate::{
    env::{
        context::{CommandContext, HubArgs},
        ids::IdArg,
    },
    ui::{
        failure::CommandFailure,
        follow::{self, FollowEnd, FollowOutput, RunFollower},
    },
};

/// Follow a run until it finishes
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache watch run_…                 show the answer
  attache watch last                  follow the newest run
  attache watch run_… --json          print every event, one JSON document per line
  attache watch run_… --after 12      start after event 12

A terminal shows the answer as it arrives; a pipe or a file gets the complete answer at the end. Exits with 0 if the run
completed and 1 if it failed or was cancelled. Ctrl-C stops watching, but not the run.")]
pub(crate) struct Args {
    /// Run id (`run_…`), a unique part of it, `last`, or a call id (`a2a-…`)
    #[arg(value_parser = IdArg::of_run)]
    run: IdArg,
    /// Start after this event number
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: i64,
    #[command(flatten)]
    hub: HubArgs,
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    let show = if context.output.is_json() { FollowOutput::Events } else { FollowOutput::Answer };
    let mut id = args.run.run(&hub).await?;
    let mut follower = RunFollower::new(context.output, &context.env, show).with_hub(args.hub.hub_options()).typing();
    match follower.follow(&hub, &mut id, args.after, None).await? {
        FollowEnd::Run(run) => {
            follow::tell_files(&context.output, &run);
            follow::verdict(&run)
        }
        FollowEnd::TimedOut | FollowEnd::Interrupted => {
            drop(follower);
            if !context.output.is_json() {
                context.output.say(format_args!("{id} is still running. To stop it: attache runs cancel {id}"));
            }
            Err(CommandFailure::quiet(exit::FAILED))
        }
    }
}

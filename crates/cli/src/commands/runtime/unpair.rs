//! `attache runtime unpair`: removes a pairing from this device.

use attache_runtime::profile::Profiles;

use super::status;
use crate::{env::context::CommandContext, ui::failure::CommandFailure};

/// Remove a pairing from this device
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache runtime unpair
  attache runtime unpair --profile agt_…/rtm_…

The agent and its history stay on the hub. To revoke the device's token there: attache runtimes revoke rtm_…")]
pub(super) struct Args {
    /// Pairing to remove [default: the active one]
    #[arg(long, value_name = "AGENT/RUNTIME")]
    profile: Option<String>,
}

pub(super) fn run(context: &CommandContext, args: &Args) -> Result<(), CommandFailure> {
    let home = context.home()?;
    let profiles = Profiles::at(home.path(), context.env.clone());
    let (key, agent, runtime) = {
        let set = profiles.load()?;
        let profile = set.select(args.profile.as_deref())?;
        (profile.key(), profile.agent_id, profile.runtime_id)
    };
    if status::is_running(home.path(), agent) {
        return Err(CommandFailure::failed(format!("a runtime of {agent} is running on this device"))
            .hint("Stop it first (Ctrl-C in its terminal), then unpair."));
    }
    profiles.update(|set| set.remove(&key))?;
    let text = format!("Removed {key}. To revoke its token on the hub: attache runtimes revoke {runtime}");
    context.output.done("removed", key, text)
}

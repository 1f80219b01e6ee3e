//! `attache runtime profiles`: lists this device's pairings and selects the active one.

use attache_runtime::profile::Profiles;
use serde::Serialize;

use super::status::{self, ActiveProfile, ProfileOutput};
use crate::{
    env::context::CommandContext,
    ui::{
        failure::CommandFailure,
        output::{TextCell, TextStyle, TextTable, time},
    },
};

/// List the pairings of this device, or choose the active one
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache runtime profiles
  attache runtime profiles --use agt_…/rtm_…")]
pub(super) struct Args {
    /// Make this the active profile
    #[arg(long = "use", value_name = "AGENT/RUNTIME")]
    choose: Option<String>,
}

#[derive(Serialize)]
struct ProfileListOutput {
    active_profile: Option<String>,
    profiles: Vec<ProfileOutput>,
}

pub(super) fn run(context: &CommandContext, args: &Args) -> Result<(), CommandFailure> {
    let (output, home) = (&context.output, context.home()?);
    let profiles = Profiles::at(home.path(), context.env.clone());
    if let Some(key) = &args.choose {
        profiles.load()?.select(Some(key))?;
        profiles.update(|set| set.active_profile = Some(key.clone()))?;
    }
    let set = profiles.load()?;
    let active = set.active_profile.as_deref();
    if output.is_json() {
        let views = set
            .profiles
            .values()
            .map(|profile| ProfileOutput::of(profile, ActiveProfile::of(active, profile)))
            .collect();
        return output.json(&ProfileListOutput { active_profile: set.active_profile.clone(), profiles: views });
    }
    if set.profiles.is_empty() {
        output.say(
            "This device isn't paired. Create a code for the agent in the console, then: attache runtime pair CODE",
        );
        return Ok(());
    }
    let mut table = TextTable::new(&["", "AGENT", "PROFILE", "RUNTIME", "LAST HEARTBEAT", "EXECUTOR", "HUB"]);
    for profile in set.profiles.values() {
        let running = status::is_running(home.path(), profile.agent_id);
        table.row([
            TextCell::strong(if ActiveProfile::of(active, profile) == ActiveProfile::Yes { "*" } else { " " }),
            TextCell::strong(status::agent_name(profile)),
            TextCell::plain(profile.key()),
            if running { TextCell::styled("running", TextStyle::Good) } else { TextCell::plain("stopped") },
            TextCell::plain(time::relative_or(profile.last_heartbeat_at, context.now(), "never")),
            TextCell::plain(status::executor(&profile.local_executor)),
            TextCell::plain(&profile.api_base),
        ]);
    }
    output.table(&table)
}

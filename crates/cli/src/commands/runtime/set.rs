//! `attache runtime set`: changes the hub address, pin, device name, folder, sandbox or sessions of a pairing, without pairing again.

use std::path::PathBuf;

use attache_client::HubAddress;
use attache_protocol::{
    KeyPin,
    wire::{host_session::KeptSessions, runtime::WalledRuns},
};
use attache_runtime::profile::Profiles;

use super::{pair::absolute, status};
use crate::{
    env::{context::CommandContext, home, hosts, walls},
    ui::failure::CommandFailure,
};

/// Change a pairing's hub address, certificate pin, device name, folder, sandbox or sessions
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache runtime set --api-base https://hub.example.org       the hub has moved
  attache runtime set --pin sha256:…                           the hub has a new self-signed certificate
  attache runtime set --device-name workbench --profile agt_…/rtm_…
  attache runtime set --sandbox all                            your own runs also see only their folder

Restart a running runtime to apply the changes.")]
pub(super) struct Args {
    /// New hub URL, with or without /api/v1
    #[arg(long, value_name = "URL")]
    api_base: Option<String>,
    /// Certificate pin, if the hub uses a self-signed certificate; `none` removes it
    #[arg(long, value_name = "sha256:…|none", value_parser = parse_pin)]
    pin: Option<PinChangeArg>,
    /// Display name of this device; sent to the hub at the next pairing
    #[arg(long, value_name = "NAME")]
    device_name: Option<String>,
    /// Folder in which tasks start
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Whose runs see only their folder even if they ask for no limits, if this machine can
    /// enforce it (`attache sandbox`): nobody's, everyone's but yours, or everyone's [default:
    /// others]
    #[arg(long, value_name = WalledRuns::CHOICES, value_parser = walls::walled_runs)]
    sandbox: Option<WalledRuns>,
    /// Whose conversations continue the host's session from one task to the next: yours,
    /// everyone's, or none; with `off`, you also can't continue this device's terminal sessions
    /// [default: own]
    #[arg(long, value_name = KeptSessions::CHOICES, value_parser = hosts::kept_sessions)]
    keep_sessions: Option<KeptSessions>,
    /// Pairing to change [default: the active one]
    #[arg(long, value_name = "AGENT/RUNTIME")]
    profile: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PinChangeArg {
    Forget,
    To(KeyPin),
}

fn parse_pin(text: &str) -> Result<PinChangeArg, String> {
    match text {
        "none" => Ok(PinChangeArg::Forget),
        _ => {
            text.parse().map(PinChangeArg::To).map_err(|error: attache_protocol::pin::PinParseError| error.to_string())
        }
    }
}

pub(super) fn run(context: &CommandContext, args: Args) -> Result<(), CommandFailure> {
    let changes = [args.api_base.is_some(), args.pin.is_some(), args.device_name.is_some(), args.cwd.is_some()];
    if !changes.contains(&true) && args.sandbox.is_none() && args.keep_sessions.is_none() {
        return Err(CommandFailure::usage("nothing to change")
            .hint("Pass at least one option; see attache runtime set --help."));
    }
    let own = context.home()?;
    if let Some(folder) = &args.cwd {
        home::refuse_own_folder(&context.config, None, folder)?;
        walls::refuse_planted_link(context, folder)?;
    }
    let cwd = args.cwd.as_deref().map(absolute).transpose()?;
    let profiles = Profiles::at(own.path(), context.env.clone());
    let key = profiles.load()?.select(args.profile.as_deref())?.key();
    let address = args.api_base.as_deref().map(HubAddress::parse).transpose()?;
    let changed = profiles.update(|set| {
        let profile = set.profiles.get_mut(&key)?;
        if let Some(address) = &address {
            // Pins apply to TLS only: drop the old one if the new address has no TLS.
            profile.pin = profile.pin.filter(|_| address.is_encrypted());
            profile.api_base = address.api_base();
        }
        match args.pin {
            Some(PinChangeArg::Forget) => profile.pin = None,
            Some(PinChangeArg::To(pin)) => profile.pin = Some(pin),
            None => {}
        }
        profile.device_name = args.device_name.or_else(|| profile.device_name.clone());
        profile.local_executor.cwd = cwd.or_else(|| profile.local_executor.cwd.clone());
        profile.local_executor.keep_sessions = args.keep_sessions.or(profile.local_executor.keep_sessions);
        profile.sandbox = args.sandbox.unwrap_or(profile.sandbox);
        Some(profile.clone())
    })?;
    let Some(profile) = changed else {
        return Err(CommandFailure::failed("the pairing was removed in the meantime"));
    };
    let output = &context.output;
    if output.is_json() {
        return output.json(&status::ProfileOutput::of(&profile, status::ActiveProfile::Yes));
    }
    output.say(format_args!("Updated {key}. Its hub is {}.", profile.api_base));
    if status::is_running(own.path(), profile.agent_id) {
        output.say("Restart its runtime to apply the changes.");
    }
    Ok(())
}

//! The role that takes lent folders, as the CLI sets it up: policy and audit below `$AWCP_HOME`, this binary as the guard.

use std::sync::Arc;

use attache_protocol::{KeyPin, error::exit};
use attache_runtime::{
    awcp_policy::CollaboratorSection as Rules,
    collaborator::{
        Collaborator, CollaboratorAuditFile, CollaboratorPolicyFile, GuardCommand, HubTunnelDialer, MountPoint,
        Options, SlotScheduler, missing,
    },
};

use crate::{CommandContext, CommandFailure, daemon_access, home, output::TextStyle};

/// Whether a person said on the command line that folders are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CollaboratorOptIn {
    Take,
    /// As policy.toml says, which is nothing unless a person wrote it.
    AsPolicySays,
}

/// How it stands with taking folders on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CollaboratorReadiness {
    Off,
    /// With where folders are mounted.
    Ready(String),
    /// What is wrong, and the fix, for each.
    Unready(Vec<(String, String)>),
}

/// How many folders are worked in at a time.
const MAX_FOLDERS: usize = 8;

/// For a runtime whose hub is at `api_base`.
pub(crate) fn collaborator(
    context: &CommandContext,
    api_base: &str,
    pin: Option<KeyPin>,
    wish: CollaboratorOptIn,
) -> Result<Collaborator, CommandFailure> {
    let (home, file) = (context.config.awcp_home()?, daemon_access::policy(context)?);
    let rules = match (file.read(), wish) {
        (Ok(policy), _) => policy.collaborator,
        // Whoever wants to lend something is declined until it is mended.
        (Err(error), CollaboratorOptIn::AsPolicySays) => {
            context.output.say_styled(TextStyle::Busy, format_args!("{error} Until then no folders are taken."));
            Rules::default()
        }
        (Err(error), CollaboratorOptIn::Take) => return Err(CommandFailure::usage(error.to_string())),
    };
    if rules.enabled || wish == CollaboratorOptIn::Take {
        home::private_folder(&home).map_err(|error| CommandFailure::file("use the folder", &home, &error))?;
        let roots = rules.roots(&home, context.config.user_home.as_deref());
        // Said now, to the person who can mend it, and not to whoever lends a folder.
        drop(MountPoint::reserve(&roots, "start", &context.env).map_err(|error| {
            CommandFailure::new("policy_invalid", exit::USAGE, format!("folders cannot be taken: {error}"))
                .hint(format!("Correct `mount_roots` in {}, or take no folders.", file.path().display()))
        })?);
    }
    let policy = CollaboratorPolicyFile::new(file, home.clone());
    let policy = if wish == CollaboratorOptIn::Take { policy.enabled() } else { policy };
    let program = std::env::current_exe().map_err(|error| {
        CommandFailure::failed(format!("cannot find the program that is running: {error}"))
            .hint("Start it by its full path.")
    })?;
    Ok(Collaborator::new(Options {
        policy: Arc::new(policy),
        audit: Arc::new(CollaboratorAuditFile::at(&home)),
        scheduler: Arc::new(SlotScheduler::new(MAX_FOLDERS)),
        tunnels: Arc::new(HubTunnelDialer::of(api_base, &rules.tunnel_hosts, pin)),
        guard: GuardCommand { program, args: vec!["mount-guard".into()] },
        env: context.env.clone(),
    }))
}

/// For `doctor`.
pub(crate) fn readiness(context: &CommandContext) -> Result<CollaboratorReadiness, CommandFailure> {
    let (home, file) = (context.config.awcp_home()?, daemon_access::policy(context)?);
    let rules = file.read().map_err(|error| CommandFailure::usage(error.to_string()))?.collaborator;
    if !rules.enabled {
        return Ok(CollaboratorReadiness::Off);
    }
    let mut wrong: Vec<(String, String)> =
        missing().iter().map(|missing| (missing.to_string(), missing.fix())).collect();
    let roots = rules.roots(&home, context.config.user_home.as_deref());
    match MountPoint::reserve(&roots, "doctor", &context.env) {
        Ok(place) if wrong.is_empty() => {
            return Ok(CollaboratorReadiness::Ready(
                place.mount_point().parent().unwrap_or(&home).display().to_string(),
            ));
        }
        Ok(_) => {}
        Err(error) => wrong.push((error.to_string(), format!("Correct `mount_roots` in {}.", file.path().display()))),
    }
    Ok(CollaboratorReadiness::Unready(wrong))
}

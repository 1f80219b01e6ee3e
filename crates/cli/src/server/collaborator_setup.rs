//! Sets up the collaborator role, which works in borrowed folders: policy and audit in `$AWCP_HOME`, this binary as
//! mount guard.

use std::sync::Arc;

use attache_delegation::{
    awcp_policy::CollaboratorSection as Rules,
    collaborator::{
        Collaborator, CollaboratorAuditFile, CollaboratorPolicyFile, DirectDialGuard, GuardCommand, HubTunnelDialer,
        MountPoint, Options, SlotScheduler, missing,
    },
};
use attache_protocol::{KeyPin, error::exit, wire::awcp::TransportChoice};

use crate::{
    env::{context::CommandContext, home},
    server::daemon_access,
    ui::{failure::CommandFailure, output::TextStyle},
};

/// Whether the command line turns on borrowing folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CollaboratorOptIn {
    Take,
    /// policy.toml decides; off by default.
    AsPolicySays,
}

/// Whether this machine can borrow folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CollaboratorReadiness {
    Off,
    /// Ready; holds the folder where borrowed folders are mounted.
    Ready(String),
    /// Nothing can be mounted, and folders are copied to this one: why, and the fix.
    Copies {
        place: String,
        wrong: Vec<(String, String)>,
    },
    /// The problems, each with its fix.
    Unready(Vec<(String, String)>),
}

/// Maximum number of folders borrowed at a time.
const MAX_FOLDERS: usize = 8;

/// Sets up the role for a runtime whose hub is at `api_base`.
pub(crate) fn collaborator(
    context: &CommandContext,
    api_base: &str,
    pin: Option<KeyPin>,
    wish: CollaboratorOptIn,
) -> Result<Collaborator, CommandFailure> {
    let (home, file) = (context.config.awcp_home()?, daemon_access::policy(context)?);
    let rules = match (file.read(), wish) {
        (Ok(policy), _) => policy.collaborator,
        // Decline all delegations until the policy is fixed.
        (Err(error), CollaboratorOptIn::AsPolicySays) => {
            context.output.say_styled(
                TextStyle::Busy,
                format_args!("{error} Delegated folders are declined until this is fixed."),
            );
            Rules::default()
        }
        (Err(error), CollaboratorOptIn::Take) => return Err(CommandFailure::usage(error.to_string())),
    };
    if rules.enabled || wish == CollaboratorOptIn::Take {
        home::private_folder(&home).map_err(|error| CommandFailure::file("use the folder", &home, &error))?;
        let roots = rules.roots(&home, context.config.user_home.as_deref());
        // Report it now, to the person who can fix it, not later to a delegator.
        drop(MountPoint::reserve(&roots, "start", &context.env).map_err(|error| {
            CommandFailure::new("policy_invalid", exit::USAGE, format!("can't borrow folders: {error}"))
                .hint(format!("Fix `mount_roots` in {}, or turn off borrowing folders.", file.path().display()))
        })?);
    }
    let policy = CollaboratorPolicyFile::new(file, home.clone());
    let policy = if wish == CollaboratorOptIn::Take { policy.enabled() } else { policy };
    let program = std::env::current_exe().map_err(|error| {
        CommandFailure::failed(format!("can't determine the path of this program: {error}"))
            .hint("Start it with its full path.")
    })?;
    Ok(Collaborator::new(Options {
        policy: Arc::new(policy),
        audit: Arc::new(CollaboratorAuditFile::at(&home)),
        scheduler: Arc::new(SlotScheduler::new(MAX_FOLDERS)),
        tunnels: Arc::new(HubTunnelDialer::of(api_base, &rules.tunnel_hosts, pin)),
        direct: DirectDialGuard::of(api_base, &rules.dial_hosts),
        guard: GuardCommand { program, args: vec!["mount-guard".into()] },
        env: context.env.clone(),
    }))
}

/// The readiness for `doctor`.
pub(crate) fn readiness(context: &CommandContext) -> Result<CollaboratorReadiness, CommandFailure> {
    let (home, file) = (context.config.awcp_home()?, daemon_access::policy(context)?);
    let rules = file.read().map_err(|error| CommandFailure::usage(error.to_string()))?.collaborator;
    if !rules.enabled {
        return Ok(CollaboratorReadiness::Off);
    }
    let mut wrong: Vec<(String, String)> =
        missing().iter().map(|missing| (missing.to_string(), missing.fix())).collect();
    if rules.transports() == [TransportChoice::Sync] {
        wrong.clear();
    }
    let roots = rules.roots(&home, context.config.user_home.as_deref());
    match MountPoint::reserve(&roots, "doctor", &context.env) {
        Ok(place) => {
            let place = place.mount_point().parent().unwrap_or(&home).display().to_string();
            if wrong.is_empty() && rules.transports() != [TransportChoice::Sync] {
                return Ok(CollaboratorReadiness::Ready(place));
            }
            if rules.transports().contains(&TransportChoice::Sync) {
                return Ok(CollaboratorReadiness::Copies { place, wrong });
            }
        }
        Err(error) => wrong.push((error.to_string(), format!("Fix `mount_roots` in {}.", file.path().display()))),
    }
    Ok(CollaboratorReadiness::Unready(wrong))
}

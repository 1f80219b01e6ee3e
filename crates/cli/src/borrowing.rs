//! The role that takes lent folders, as the CLI sets it up: policy and audit below `$AWCP_HOME`, this binary as the guard.

use std::sync::Arc;

use attache_protocol::{Pin, error::exit};
use attache_runtime::{
    awcp_policy::Collaborator as Rules,
    collaborator::{Collaborator, FileAudit, FilePolicy, GuardCommand, HubTunnels, Options, Place, Slots, missing},
};

use crate::{Context, Failure, home, lending, output::Style};

/// Whether a person said on the command line that folders are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Take,
    /// As policy.toml says, which is nothing unless a person wrote it.
    AsPolicySays,
}

/// How it stands with taking folders on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Readiness {
    Off,
    /// With where folders are mounted.
    Ready(String),
    /// What is wrong, and the fix, for each.
    Unready(Vec<(String, String)>),
}

/// How many folders are worked in at a time.
const AT_A_TIME: usize = 8;

/// For a runtime whose hub is at `api_base`.
pub(crate) fn collaborator(
    context: &Context,
    api_base: &str,
    pin: Option<Pin>,
    wish: Wish,
) -> Result<Collaborator, Failure> {
    let (home, file) = (context.config.awcp_home()?, lending::policy(context)?);
    let rules = match (file.read(), wish) {
        (Ok(policy), _) => policy.collaborator,
        // Whoever wants to lend something is declined until it is mended.
        (Err(error), Wish::AsPolicySays) => {
            context.output.say_styled(Style::Busy, format_args!("{error} Until then no folders are taken."));
            Rules::default()
        }
        (Err(error), Wish::Take) => return Err(Failure::usage(error.to_string())),
    };
    if rules.enabled || wish == Wish::Take {
        home::private_folder(&home).map_err(|error| Failure::file("use the folder", &home, &error))?;
        let roots = rules.roots(&home, context.config.person.as_deref());
        // Said now, to the person who can mend it, and not to whoever lends a folder.
        drop(Place::reserve(&roots, "start", &context.env).map_err(|error| {
            Failure::new("policy_invalid", exit::USAGE, format!("folders cannot be taken: {error}"))
                .hint(format!("Correct `mount_roots` in {}, or take no folders.", file.path().display()))
        })?);
    }
    let policy = FilePolicy::new(file, home.clone());
    let policy = if wish == Wish::Take { policy.enabled() } else { policy };
    let program = std::env::current_exe().map_err(|error| {
        Failure::failed(format!("cannot find the program that is running: {error}")).hint("Start it by its full path.")
    })?;
    Ok(Collaborator::new(Options {
        policy: Arc::new(policy),
        audit: Arc::new(FileAudit::at(&home)),
        scheduler: Arc::new(Slots::new(AT_A_TIME)),
        tunnels: Arc::new(HubTunnels::of(api_base, &rules.tunnel_hosts, pin)),
        guard: GuardCommand { program, args: vec!["mount-guard".into()] },
        env: context.env.clone(),
    }))
}

/// For `doctor`.
pub(crate) fn readiness(context: &Context) -> Result<Readiness, Failure> {
    let (home, file) = (context.config.awcp_home()?, lending::policy(context)?);
    let rules = file.read().map_err(|error| Failure::usage(error.to_string()))?.collaborator;
    if !rules.enabled {
        return Ok(Readiness::Off);
    }
    let mut wrong: Vec<(String, String)> =
        missing().iter().map(|missing| (missing.to_string(), missing.fix())).collect();
    let roots = rules.roots(&home, context.config.person.as_deref());
    match Place::reserve(&roots, "doctor", &context.env) {
        Ok(place) if wrong.is_empty() => {
            return Ok(Readiness::Ready(place.mount_point().parent().unwrap_or(&home).display().to_string()));
        }
        Ok(_) => {}
        Err(error) => wrong.push((error.to_string(), format!("Correct `mount_roots` in {}.", file.path().display()))),
    }
    Ok(Readiness::Unready(wrong))
}

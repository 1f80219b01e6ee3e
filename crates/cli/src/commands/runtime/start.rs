//! `attache runtime start`: stays connected to the hub and runs tasks.

use std::{num::NonZeroUsize, path::PathBuf, sync::Arc};

use attache_client::HubAddress;
use attache_protocol::{KeyPin, error::exit};
use attache_runtime::{
    Options, RuntimeNotice, RuntimeService, Shutdown, ShutdownOutcome,
    profile::{Profile, Profiles},
};
use serde::Serialize;
use tokio::sync::Notify;

use crate::{
    env::{config, context::CommandContext, home},
    server::{
        collaborator_setup::{self, CollaboratorOptIn},
        process, supervised_adapter,
    },
    ui::{failure::CommandFailure, runtime_notices, signals::ShutdownSignals},
};

/// Stay connected and run the agent's tasks in the foreground
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache runtime start
  attache runtime start --profile agt_…/rtm_…
  attache runtime start --api-base http://10.0.0.5:7800     the same hub at another address
  attache runtime start --collaborator                      also work in folders borrowed from other machines

The first Ctrl-C waits for the running task to finish, the second stops it. If the device was replaced or disconnected, the
command exits with 4 and explains how to pair again.")]
pub(super) struct Args {
    /// Hub URL, if it differs from the profile's
    #[arg(long, value_name = "URL")]
    api_base: Option<String>,
    /// Certificate pin of the hub [default: the profile's pin]
    #[arg(long, value_name = "sha256:…")]
    pin: Option<KeyPin>,
    /// Pairing to use [default: the active one]
    #[arg(long, value_name = "AGENT/RUNTIME")]
    profile: Option<String>,
    /// Maximum number of concurrent tasks; a custom adapter must support as many
    #[arg(long, value_name = "N", default_value = "1", value_parser = at_a_time)]
    concurrency: NonZeroUsize,
    /// Accept delegated folders from other machines, like `enabled = true` under [collaborator] in policy.toml
    #[arg(long)]
    collaborator: bool,
    /// Write {"profile":…,"pid":…} to this file after the hub accepts the first heartbeat
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
}

#[derive(Serialize)]
struct RuntimeReadyFile<'a> {
    profile: &'a str,
    pid: u32,
}

/// More claims wouldn't fit into one response of the hub.
const MAX_CONCURRENCY: usize = 200;

// === impl Args ===

impl Args {
    /// The arguments for `pair --start`.
    pub(super) fn of(profile: &Profile) -> Self {
        Self {
            api_base: None,
            pin: None,
            profile: Some(profile.key()),
            concurrency: NonZeroUsize::MIN,
            collaborator: false,
            ready_file: None,
        }
    }
}

fn at_a_time(text: &str) -> Result<NonZeroUsize, String> {
    let given = text.parse().ok().filter(|count: &NonZeroUsize| count.get() <= MAX_CONCURRENCY);
    given.ok_or_else(|| format!("must be a number from 1 to {MAX_CONCURRENCY}"))
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let home = context.home()?;
    let set = Profiles::at(home.path(), context.env.clone()).load()?;
    let profile = set.select(args.profile.as_deref())?;
    let key = profile.key();
    let mut options = Options::new(home.path());
    options.scratch = config::temporary_folder();
    options.withheld = home::own_folders(&context.config);
    options.adapter = supervised_adapter::source(&context, profile, None, args.concurrency)?;
    options.profile = Some(key.clone());
    let address = HubAddress::parse(args.api_base.as_deref().unwrap_or(&profile.api_base))?;
    options.pin = context.pin(args.pin, profile.pin, &address)?;
    options.api_base = args.api_base;
    let wish = if args.collaborator { CollaboratorOptIn::Take } else { CollaboratorOptIn::AsPolicySays };
    // Without a home folder there is no policy, and without a policy no folder is accepted.
    if args.collaborator || context.config.awcp_home.is_some() {
        let pin = options.pin.or(profile.pin);
        options.collaborator = Some(collaborator_setup::collaborator(&context, &address.api_base(), pin, wish)?);
    }
    options.concurrency = args.concurrency;
    options.env = context.env.clone();
    let (output, online) = (context.output, Arc::new(Notify::new()));
    let heard = online.clone();
    options.observer = Some(Arc::new(move |notice: &RuntimeNotice| {
        runtime_notices::print(&output, notice);
        if matches!(notice, RuntimeNotice::Online) {
            heard.notify_one();
        }
    }));
    let ending = ShutdownSignals::of_signals()?;
    let shutdown = Shutdown { finish: ending.finish, abort: ending.abort.clone() };
    let work = RuntimeService::new(options)?.run(shutdown);
    tokio::pin!(work);
    let stopped = tokio::select! {
        stopped = &mut work => stopped,
        () = online.notified() => {
            process::write_ready(args.ready_file.as_deref(), &RuntimeReadyFile { profile: &key, pid: std::process::id() })?;
            work.await
        }
    };
    match stopped? {
        ShutdownOutcome::Finished => Ok(()),
        ShutdownOutcome::Aborted => Err(CommandFailure::quiet(exit::FAILED)),
    }
}

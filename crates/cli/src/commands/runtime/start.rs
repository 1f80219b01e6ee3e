//! `attache runtime start`: stay connected, pull tasks, have them executed.

use std::{num::NonZeroUsize, path::PathBuf, sync::Arc};

use attache_client::HubAddress;
use attache_protocol::{KeyPin, error::exit};
use attache_runtime::{
    Notice, Options, RuntimeService, Shutdown, ShutdownOutcome,
    profile::{Profile, Profiles},
};
use serde::Serialize;
use tokio::sync::Notify;

use crate::{
    CommandContext, CommandFailure,
    collaborator_setup::{self, CollaboratorOptIn},
    config, process, runtime_notices, supervised_adapter,
};

/// Stay connected and run the agent's tasks, in the foreground
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache runtime start
  attache runtime start --profile agt_…/rtm_…
  attache runtime start --api-base http://10.0.0.5:7800     the same hub at another address
  attache runtime start --collaborator                      also work in folders that others lend

The first Ctrl-C finishes the task that runs, the second stops it. When the device was replaced or disconnected, it
exits with 4 and says how to pair the same agent again.")]
pub(super) struct Args {
    /// Another address of the profile's hub
    #[arg(long, value_name = "URL")]
    api_base: Option<String>,
    /// The pin of the hub's certificate [default: the profile's]
    #[arg(long, value_name = "sha256:…")]
    pin: Option<KeyPin>,
    /// Which pairing to use [default: the active one]
    #[arg(long, value_name = "AGENT/RUNTIME")]
    profile: Option<String>,
    /// How many tasks to execute at a time; an adapter of your own must be made for as many
    #[arg(long, value_name = "N", default_value = "1", value_parser = at_a_time)]
    concurrency: NonZeroUsize,
    /// Take folders that others lend, as if policy.toml said `enabled = true` below [collaborator]
    #[arg(long)]
    collaborator: bool,
    /// Write {"profile":…,"pid":…} to this file once the hub has accepted the first heartbeat
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
}

#[derive(Serialize)]
struct RuntimeReadyFile<'a> {
    profile: &'a str,
    pid: u32,
}

/// More than this many would not fit into one answer of the hub.
const MAX_CONCURRENCY: usize = 200;

// === impl Args ===

impl Args {
    /// What somebody means who has just paired.
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
    options.adapter = supervised_adapter::source(&context, profile, None, args.concurrency)?;
    options.profile = Some(key.clone());
    let address = HubAddress::parse(args.api_base.as_deref().unwrap_or(&profile.api_base))?;
    options.pin = context.pin(args.pin, profile.pin, &address)?;
    options.api_base = args.api_base;
    let wish = if args.collaborator { CollaboratorOptIn::Take } else { CollaboratorOptIn::AsPolicySays };
    // Without a home folder there is no policy, and without a policy nothing is taken.
    if args.collaborator || context.config.awcp_home.is_some() {
        let pin = options.pin.or(profile.pin);
        options.collaborator = Some(collaborator_setup::collaborator(&context, &address.api_base(), pin, wish)?);
    }
    options.concurrency = args.concurrency;
    options.env = context.env.clone();
    let (output, online) = (context.output, Arc::new(Notify::new()));
    let heard = online.clone();
    options.observer = Some(Arc::new(move |notice: &Notice| {
        runtime_notices::print(&output, notice);
        if matches!(notice, Notice::Online) {
            heard.notify_one();
        }
    }));
    let ending = process::ShutdownSignals::of_signals()?;
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

//! `attache daemon`: lends folders of this machine, under leases.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use attache_client::{HubAddress, daemon};
use attache_protocol::Secret;
use attache_runtime::delegator::{DelegationDaemon, HubKeys, Options};
use serde::Serialize;

use crate::{
    CommandContext, CommandFailure, Config, daemon_access,
    home::{self, Home},
    process,
};

/// Run the delegation daemon (starts by itself when needed)
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache daemon                                   in the foreground, until Ctrl-C
  attache daemon --ssh-listen 0.0.0.0:2222         remotes on the network dial this machine
  attache daemon --stop                            end the one that runs, and take back what it lends

`attache delegate` and `attache mcp` start one by themselves; it logs to $AWCP_HOME/logs/daemon.log. There is one per
$AWCP_HOME (default ~/.AWCP). What may be lent, and to whom, is in $AWCP_HOME/policy.toml: `attache delegations allow`.
When it ends, whatever is lent is taken back, and the remotes are told.")]
pub(crate) struct Args {
    /// Where folders are lent over SSH; loopback means: through the hub, or to agents on this machine
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    ssh_listen: SocketAddr,
    /// Write {"socket":…,"ssh":"127.0.0.1:PORT"} to this file once it listens
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// End the daemon that runs
    #[arg(long, conflicts_with_all = ["ssh_listen", "ready_file"])]
    stop: bool,
    /// Leave the terminal of whoever started it
    #[arg(long, hide = true)]
    detached: bool,
}

#[derive(Serialize)]
struct DaemonReadyFile<'a> {
    socket: &'a std::path::Path,
    ssh: String,
    pid: u32,
}

/// A little longer than the daemon itself waits for remotes.
const STOP_TIMEOUT: Duration = Duration::from_secs(25);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The keys that the commands on this machine would use for a hub.
#[derive(Debug)]
struct MachineHubKeys(Config);

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    if args.stop {
        return stop(&context).await;
    }
    if args.detached {
        // Fails only where it leads a session already, and then it has no terminal to lose.
        let _ = rustix::process::setsid();
    }
    let mut options = Options::new(context.config.awcp_home()?, context.config.user_home.clone());
    options.ssh_listen = args.ssh_listen;
    options.device_name = gethostname::gethostname().to_string_lossy().into_owned();
    options.desktop = context.config.desktop.clone();
    options.keys = Arc::new(MachineHubKeys(context.config.clone()));
    options.env = context.env.clone();
    let ending = process::ShutdownSignals::of_signals()?;
    let daemon = DelegationDaemon::start(options).await?;
    let ready = DaemonReadyFile { socket: daemon.socket(), ssh: daemon.ssh().to_string(), pid: std::process::id() };
    process::write_ready(args.ready_file.as_deref(), &ready)?;
    if !args.detached {
        context.output.say(format_args!("Listening on {}, lending over SSH at {}.", ready.socket.display(), ready.ssh));
    }
    tracing::info!(ssh = ready.ssh, "the daemon is ready");
    Ok(daemon.run(ending.finish).await?)
}

async fn stop(context: &CommandContext) -> Result<(), CommandFailure> {
    let client = daemon_access::client(context)?;
    let health = match client.health().await {
        Ok(health) => health,
        Err(daemon::Error::NotRunning { .. }) => {
            context.output.say("No daemon runs.");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let pid = i32::try_from(health.pid).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or_else(|| CommandFailure::failed("the daemon does not say which process it is"))?;
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)
        .map_err(|error| CommandFailure::failed(format!("the daemon cannot be told to end: {error}")))?;
    let mut waited = Duration::ZERO;
    while rustix::process::test_kill_process(pid).is_ok() {
        if waited > STOP_TIMEOUT {
            return Err(
                CommandFailure::failed("the daemon takes long to end").hint("Look at $AWCP_HOME/logs/daemon.log.")
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        waited += POLL_INTERVAL;
    }
    context.output.say("The daemon has ended; nothing is lent.");
    Ok(())
}

// === impl MachineHubKeys ===

impl HubKeys for MachineHubKeys {
    fn private_folders(&self) -> Vec<PathBuf> {
        let Self(config) = self;
        let hub = config.home.clone().map(|home| Home::at(home).local_hub().key_file);
        let data = hub.and_then(|key| key.parent().map(std::path::Path::to_owned));
        [config.home.clone(), config.awcp_home.clone(), data].into_iter().flatten().collect()
    }

    /// As every other command chooses: the key of the environment for its hub, else the owner's for the hub of this machine
    /// while that runs.
    fn key_for(&self, origin: &str) -> Option<Secret<String>> {
        let Self(config) = self;
        let home = config.home.clone().map(Home::at)?;
        let same = |address: &str| HubAddress::parse(address).is_ok_and(|address| address.origin() == origin);
        let mine = match &config.url {
            Some(url) => same(url),
            None => home.local_hub().is_at(origin),
        };
        if let Some(key) = config.key.clone().filter(|_| mine) {
            return Some(key);
        }
        let hub = home.recorded_hub().filter(|hub| hub.is_at(origin) && hub.is_running())?;
        home::read_secret(&hub.key_file).ok()
    }
}

//! `attache daemon`: runs the delegation daemon, which shares folders of this machine under leases.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use attache_client::HubAddress;
use attache_delegation::delegator::{DelegationDaemon, HubKeys, Options};
use attache_protocol::Secret;
use serde::Serialize;

use crate::{
    env::{
        config::Config,
        context::CommandContext,
        home::{self, Home},
    },
    server::{daemon_access, process},
    ui::{failure::CommandFailure, signals::ShutdownSignals},
};

/// Run the delegation daemon (starts automatically when needed)
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache daemon                                   in the foreground, until Ctrl-C
  attache daemon --ssh-listen 0.0.0.0:2222         let remote agents on the network connect directly
  attache daemon --stop                            stop the running daemon and end its delegations

`attache delegate` and `attache mcp` start the daemon automatically; it logs to $AWCP_HOME/logs/daemon.log. Each $AWCP_HOME
(default ~/.AWCP) has one daemon. $AWCP_HOME/policy.toml lists the allowed folders and trusted peers; edit it with
`attache delegations allow`. When the daemon stops, it revokes access to all delegated folders and notifies the remote agents.")]
pub(crate) struct Args {
    /// SSH listen address; with a loopback address, folders are reachable only through the hub or from this machine
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    ssh_listen: SocketAddr,
    /// Write {"socket":…,"ssh":"127.0.0.1:PORT"} to this file when ready
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Stop the running daemon
    #[arg(long, conflicts_with_all = ["ssh_listen", "ready_file"])]
    stop: bool,
    /// Detach from the terminal
    #[arg(long, hide = true)]
    detached: bool,
}

#[derive(Serialize)]
struct DaemonReadyFile<'a> {
    socket: &'a std::path::Path,
    ssh: String,
    pid: u32,
}

/// The hub keys that commands on this machine would use.
#[derive(Debug)]
struct MachineHubKeys(Config);

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    if args.stop {
        return stop(&context).await;
    }
    if args.detached {
        // Fails only if this process already leads a session, in which case it has no terminal to detach from.
        let _ = rustix::process::setsid();
    }
    let mut options = Options::new(context.config.awcp_home()?, context.config.user_home.clone());
    options.ssh_listen = args.ssh_listen;
    options.device_name = gethostname::gethostname().to_string_lossy().into_owned();
    options.desktop = context.config.desktop.clone();
    options.keys = Arc::new(MachineHubKeys(context.config.clone()));
    options.env = context.env.clone();
    let ending = ShutdownSignals::of_signals()?;
    let daemon = DelegationDaemon::start(options).await?;
    let ready = DaemonReadyFile { socket: daemon.socket(), ssh: daemon.ssh().to_string(), pid: std::process::id() };
    process::write_ready(args.ready_file.as_deref(), &ready)?;
    if !args.detached {
        context.output.say(format_args!("Listening on {}; SSH on {}.", ready.socket.display(), ready.ssh));
    }
    tracing::info!(ssh = ready.ssh, "the daemon is ready");
    Ok(daemon.run(ending.finish).await?)
}

async fn stop(context: &CommandContext) -> Result<(), CommandFailure> {
    let client = daemon_access::client(context)?;
    let Some(health) = daemon_access::health(&client).await? else {
        context.output.say("No daemon is running.");
        return Ok(());
    };
    daemon_access::stop(&health).await?;
    context.output.say("Stopped the daemon. All delegations have ended.");
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

    /// Chooses like every other command: the key from the environment for its hub, otherwise the owner key for this
    /// machine's hub while it is running.
    fn key_for(&self, origin: &str) -> Option<Secret<String>> {
        let Self(config) = self;
        let home = config.home.clone().map(Home::at)?;
        let same = |address: &str| HubAddress::parse(address).is_ok_and(|address| address.origin() == origin);
        let mine = match &config.url {
            Some(url) => same(url),
            None => home.local_hub().origin == origin,
        };
        if let Some(key) = config.key.clone().filter(|_| mine) {
            return Some(key);
        }
        let hub = home.recorded_hub().filter(|hub| hub.origin == origin && hub.is_running())?;
        home::read_secret(&hub.key_file).ok()
    }
}

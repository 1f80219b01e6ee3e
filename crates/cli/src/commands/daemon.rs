//! `attache daemon`: runs the delegation daemon, which shares folders of this machine under leases.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use attache_client::HubAddress;
use attache_delegation::{
    CompatEndpoint, CompatOptions,
    awcp_policy::{TrustedPeer, normal_url},
    collaborator::GuardCommand,
    delegator::{DelegationDaemon, HubKeys, Options},
};
use attache_protocol::Secret;
use serde::Serialize;
use tokio::{net::TcpListener, task::JoinHandle};

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
  attache daemon --awcp-compat 127.0.0.1:4001 --to http://127.0.0.1:7800/a2a/builder
                                                   also take folders from delegators of the AWCP reference implementation
  attache daemon --stop                            stop the running daemon and end its delegations

`attache delegate` and `attache mcp` start the daemon automatically; it logs to $AWCP_HOME/logs/daemon.log. Each $AWCP_HOME
(default ~/.AWCP) has one daemon. $AWCP_HOME/policy.toml lists the allowed folders and trusted peers; edit it with
`attache delegations allow`. When the daemon stops, it revokes access to all delegated folders and notifies the remote agents.")]
pub(crate) struct Args {
    /// SSH listen address; with a loopback address, folders are reachable only through the hub or from this machine
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    ssh_listen: SocketAddr,
    /// Address for delegators of the AWCP reference implementation, on this machine only; their URL is http://ADDR/awcp
    #[arg(long, value_name = "ADDR", requires = "to")]
    awcp_compat: Option<SocketAddr>,
    /// The agent that works on what they delegate
    #[arg(long, value_name = "URL", requires = "awcp_compat")]
    to: Option<String>,
    /// Write {"socket":…,"ssh":"127.0.0.1:PORT"} to this file when ready
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Stop the running daemon
    #[arg(long, conflicts_with_all = ["ssh_listen", "awcp_compat", "ready_file"])]
    stop: bool,
    /// Detach from the terminal
    #[arg(long, hide = true)]
    detached: bool,
}

#[derive(Serialize)]
struct DaemonReadyFile<'a> {
    socket: &'a std::path::Path,
    ssh: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    awcp_compat: Option<String>,
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
    options.copies =
        std::env::current_exe().ok().map(|program| GuardCommand { program, args: vec!["mount-guard".into()] });
    // Bound first: an address in use is no reason to end what another daemon left behind.
    let compat = match args.awcp_compat.zip(args.to.as_deref()) {
        Some((address, agent)) => Some((listen(address).await?, agent_of(&context, agent)?)),
        None => None,
    };
    let ending = ShutdownSignals::of_signals()?;
    let daemon = DelegationDaemon::start(options).await?;
    let compat = match compat {
        Some((listener, agent)) => Some(serve(&context, &daemon, listener, agent)?),
        None => None,
    };
    let awcp_compat = compat.as_ref().map(|(address, _)| format!("http://{address}/awcp"));
    let ready = DaemonReadyFile {
        socket: daemon.socket(),
        ssh: daemon.ssh().to_string(),
        awcp_compat,
        pid: std::process::id(),
    };
    process::write_ready(args.ready_file.as_deref(), &ready)?;
    if !args.detached {
        context.output.say(format_args!("Listening on {}; SSH on {}.", ready.socket.display(), ready.ssh));
        if let Some(url) = &ready.awcp_compat {
            context.output.say(format_args!("Delegators of the AWCP reference implementation: {url}"));
        }
    }
    tracing::info!(ssh = ready.ssh, "the daemon is ready");
    let ran = daemon.run(ending.finish).await;
    // Open event streams would keep it from ending.
    if let Some((_, serving)) = compat {
        serving.abort();
    }
    Ok(ran?)
}

async fn listen(address: SocketAddr) -> Result<TcpListener, CommandFailure> {
    if !address.ip().is_loopback() {
        return Err(CommandFailure::usage(format!("--awcp-compat {address}: only loopback addresses are allowed"))
            .hint("Its messages contain keys and aren't encrypted. For other machines, put a proxy with TLS in front of it."));
    }
    let failed = |error| CommandFailure::failed(format!("can't listen on {address}: {error}"));
    TcpListener::bind(address).await.map_err(|error| failed(error).hint("Choose another address with --awcp-compat."))
}

/// The agent as policy.toml lists it. One that isn't listed there needs no trust to work for others.
fn agent_of(context: &CommandContext, url: &str) -> Result<TrustedPeer, CommandFailure> {
    let normal = normal_url(url).ok_or_else(|| {
        CommandFailure::usage(format!("--to {url}: this is not the URL of an agent"))
            .hint("Write it like http://127.0.0.1:7800/a2a/builder.")
    })?;
    let policy = daemon_access::policy(context)?.read().map_err(|error| CommandFailure::usage(error.to_string()))?;
    let listed = policy.delegator.peer(&normal).cloned().unwrap_or_default();
    Ok(TrustedPeer { url: normal, ..listed })
}

/// Serves the other dialect. Returns where, and the task that does it.
fn serve(
    context: &CommandContext,
    daemon: &DelegationDaemon,
    listener: TcpListener,
    agent: TrustedPeer,
) -> Result<(SocketAddr, JoinHandle<()>), CommandFailure> {
    let folder = exchange_folder(&context.config.awcp_home()?);
    let endpoint = CompatEndpoint::new(daemon.delegator().clone(), CompatOptions { agent, folder: folder.clone() });
    let endpoint = endpoint.map_err(|error| CommandFailure::file("use the folder", &folder, &error))?;
    let address = listener.local_addr().map_err(|error| CommandFailure::failed(error.to_string()))?;
    Ok((address, tokio::spawn(endpoint.serve(listener))))
}

/// Beside `$AWCP_HOME`, because nothing in there can be delegated.
fn exchange_folder(home: &Path) -> PathBuf {
    let name = home.file_name().unwrap_or_default().to_string_lossy();
    home.with_file_name(format!("{name}-exchange"))
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

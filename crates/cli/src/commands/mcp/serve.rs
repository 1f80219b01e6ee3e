//! Serves MCP over standard input and output, or over HTTP on a loopback port.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use attache_mcp::{
    DaemonBackend, HubLookup, McpService, Options, PeerAgentBackend, PeerAgentOptions, RefusedForms, StartDaemon,
    ToolError,
};
use attache_protocol::{Secret, secret::Kind};
use serde::Serialize;
use tokio::net::TcpListener;

use crate::{
    env::{
        context::{CommandContext, HubArgs},
        home,
    },
    server::{daemon_access, port_conflict, process},
    ui::{failure::CommandFailure, output::TextStyle, signals::ShutdownSignals},
};

#[derive(Debug, clap::Args)]
pub(super) struct McpServeArgs {
    /// Serve over HTTP on this address instead of standard input and output; port 0 picks a free port
    #[arg(long, value_name = "ADDR")]
    pub(super) http: Option<SocketAddr>,
    /// How long a tool call waits before it returns `running`; must be shorter than the client's tool timeout
    #[arg(long, value_name = "SECONDS", default_value = "50", value_parser = clap::value_parser!(u64).range(1..=3600))]
    wait: u64,
    /// Key for agents at an origin, as https://agents.example.org=FILE; sent only there; repeatable
    #[arg(long, value_name = "ORIGIN=FILE")]
    peer_key: Vec<String>,
    /// Write {"url":…,"secret_file":…} to this file when ready
    #[arg(long, value_name = "FILE", requires = "http")]
    ready_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) hub: HubArgs,
}

/// A peer's address and its key, if it needs one.
type PeerKey = (String, Option<Secret<String>>);

/// Starts the daemon like the other commands.
struct DaemonStarter(CommandContext);

#[derive(Serialize)]
struct McpReadyFile<'a> {
    url: &'a str,
    secret_file: &'a Path,
}

pub(super) async fn run(context: CommandContext, args: McpServeArgs) -> Result<(), CommandFailure> {
    let service = service(&context, &args)?;
    let ending = ShutdownSignals::of_signals()?;
    match args.http {
        Some(address) => over_http(&context, service, address, args.ready_file.as_deref(), ending).await,
        None => {
            let served = Box::pin(service.serve(tokio::io::stdin(), tokio::io::stdout(), ending.finish)).await;
            served.map_err(|error| {
                CommandFailure::failed(error.to_string())
                    .hint("MCP clients start this command. To set one up: attache mcp install --for …")
            })
        }
    }
}

fn service(context: &CommandContext, args: &McpServeArgs) -> Result<McpService, CommandFailure> {
    let awcp = context.config.awcp_home()?;
    let daemon =
        DaemonBackend::new(daemon_access::client(context)?, DaemonStarter(context.clone()), awcp.join("delegations"));
    let peers = PeerAgentOptions {
        hub: hub(context, args.hub.clone())?,
        known: peer_keys(context, &args.peer_key)?,
        allow: Vec::new(),
        env: context.env.clone(),
    };
    let peers =
        PeerAgentBackend::new(peers).map_err(|trouble| CommandFailure::usage(trouble.message).hint(trouble.hint))?;
    let options =
        Options { answer_timeout: Duration::from_secs(args.wait), env: context.env.clone(), ..Options::default() };
    Ok(McpService {
        agents: Arc::new(peers),
        delegations: Some(Arc::new(daemon)),
        options,
        refused: RefusedForms::default(),
    })
}

/// A hub given by the arguments must be usable. Without one, the local hub is looked up on each call and may start
/// later.
fn hub(context: &CommandContext, args: HubArgs) -> Result<HubLookup, CommandFailure> {
    if args.hub.is_some() || context.config.url.is_some() {
        let hub = context.hub(&args)?;
        return Ok(Box::new(move || Some(hub.clone())));
    }
    let context = context.clone();
    Ok(Box::new(move || context.hub(&args).ok()))
}

/// Keys from the command line, then keys of the peers in policy.toml.
fn peer_keys(context: &CommandContext, given: &[String]) -> Result<Vec<PeerKey>, CommandFailure> {
    let mut known = Vec::new();
    for text in given {
        let (url, file) = text.split_once('=').ok_or_else(|| {
            CommandFailure::usage(format!("`{text}` has no key file"))
                .hint("Use the form https://agents.example.org=FILE.")
        })?;
        known.push((url.to_owned(), Some(home::read_secret(Path::new(file))?)));
    }
    let policy = daemon_access::policy(context)?;
    // Ignore an invalid policy here; the daemon reports it.
    if let Ok(policy_now) = policy.read() {
        for peer in policy_now.delegator.peers {
            let file = peer.key_file.map(|file| attache_delegation::awcp_policy::expand(&file, policy.home_folder()));
            let key = file.and_then(|file| {
                let key = home::read_secret(&file);
                key.inspect_err(|failure| tracing::warn!(peer = peer.url, %failure, "can't read the peer's key; calling it without one"))
                    .ok()
            });
            known.push((peer.url, key));
        }
    }
    Ok(known)
}

async fn over_http(
    context: &CommandContext,
    service: McpService,
    address: SocketAddr,
    ready_file: Option<&Path>,
    ending: ShutdownSignals,
) -> Result<(), CommandFailure> {
    if !address.ip().is_loopback() {
        return Err(CommandFailure::usage(format!("{address} is reachable from other machines"))
            .hint("Listen on 127.0.0.1. For other machines, use the hub's /mcp endpoint."));
    }
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => return Err(port_conflict::explain("--http", address, &error).await),
    };
    let address = listener.local_addr()?;
    let home = context.home()?;
    let folder = home.path().join("mcp");
    home::private_folder(&folder).map_err(|error| CommandFailure::file("use the folder", &folder, &error))?;
    let file = folder.join(format!("{}_{}", address.ip(), address.port()));
    // Client configurations store the secret, so the next server on this port reuses it.
    let secret = match home::read_secret(&file) {
        Ok(secret) => secret,
        Err(_) => Kind::AdapterSecret.generate(&context.env),
    };
    let line = format!("{}\n", secret.expose());
    home::write_private(&file, line.as_bytes()).map_err(|error| CommandFailure::file("write", &file, &error))?;
    let url = format!("http://{address}{}", attache_mcp::http::PATH);
    process::write_ready(ready_file, &McpReadyFile { url: &url, secret_file: &file })?;
    context.output.line(&url)?;
    context.output.say_styled(TextStyle::Dim, format_args!("Secret file: {}", file.display()));
    let served = attache_mcp::http::serve(service, listener, &secret, ending.finish);
    let done: io::Result<()> = tokio::select! {
        served = served => served,
        () = ending.abort.cancelled() => Ok(()),
    };
    if let Some(ready) = ready_file {
        let _ = fs::remove_file(ready);
    }
    done.map_err(|error| CommandFailure::failed(format!("the server stopped: {error}")).hint("Restart it."))
}

// === impl DaemonStarter ===

#[async_trait]
impl StartDaemon for DaemonStarter {
    async fn start_daemon(&self) -> Result<(), ToolError> {
        let started = daemon_access::daemon(&self.0).await;
        started.map(drop).map_err(|failure| ToolError::new(failure.code, failure.message, failure.hint))
    }
}

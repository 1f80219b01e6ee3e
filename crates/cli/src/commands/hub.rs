//! `attache hub`: runs a hub without a local agent.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use attache_client::egress::{EgressGuard, EgressPolicy, EgressRule, IpNetwork};
use attache_hub::{OnTokenReuse, Options, OwnerKey, OwnerKeyState};
use attache_protocol::wire::system::ReadyFile;
use attache_store::sql::DatabaseSharing;

use crate::{
    env::{amount, context::CommandContext, home::DEFAULT_LISTEN},
    server::{
        artifact_bucket::ArtifactArgs,
        keep::RetentionSetting,
        local_server::{LocalServer, LocalServerOptions},
        process,
        shared_database::{ClusterArgs, DatabaseArgs, SharedDatabase, WhenBusy, needs_server},
        tls::TlsArgs,
    },
    ui::{failure::CommandFailure, output::TextStyle, signals::ShutdownSignals},
};

/// Run a hub: the API and the console on one port
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache hub                                        listen on this machine only
  attache hub --listen 127.0.0.1:8080 --public-url https://hub.example.org    behind a proxy with TLS
  attache hub --listen 0.0.0.0:7800 --tls-self-signed    create a self-signed certificate and print its pin
  attache hub --listen 0.0.0.0:7800 --tls-cert chain.pem --tls-key key.pem --public-url https://hub.example.org:7800
  attache hub --listen 0.0.0.0:7800 --insecure-lan   no TLS, on a trusted network

The first start writes the owner key to <data>/admin.key. SIGTERM or Ctrl-C finishes in-flight requests and exits; a second
one exits immediately. The short help (-h) omits tuning options.")]
pub(crate) struct Args {
    /// Address to listen on; port 0 picks a free port
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_LISTEN)]
    listen: SocketAddr,
    /// Data folder for the database, artifacts and keys [default: $A2A_HOME/hub]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Public URL of this hub, if it differs from the listen address
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Access rules file, reloaded when it changes [default: rules are kept in the store]
    #[arg(long, value_name = "FILE")]
    permissions: Option<PathBuf>,
    /// Allow listening on a network without TLS: anyone on the network can read every key
    #[arg(long)]
    insecure_lan: bool,
    /// Default agent for calls that name none (name or id) [default: the only agent]
    #[arg(long, value_name = "AGENT")]
    default_agent: Option<String>,
    /// Default time limit for runs (90s, 30m, 8h, 7d); callers and agents can override it [default: 60m]
    #[arg(long, value_name = "TIME", value_parser = amount::duration)]
    run_timeout: Option<Duration>,
    /// Retention of finished records as CLASS=TIME or CLASS=forever; repeatable [defaults: runs=90d,
    /// conversations=365d, artifacts=365d, credentials=90d, events=30d, log=400d, channels=30d, streams=1h]
    #[arg(long, value_name = "CLASS=TIME", value_parser = RetentionSetting::from_text)]
    keep: Vec<RetentionSetting>,
    /// Allow webhooks and outside agents (--peer) on this private network or host (10.0.0.0/8, an address, a name,
    /// *.example.org); repeatable
    #[arg(long, value_name = "CIDR|HOST")]
    egress_allow: Vec<EgressRule>,
    /// Maximum requests per minute for each person, program or agent [default: unlimited]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate_limit: Option<u32>,
    /// Maximum number of open connections; one in eight is reserved for devices [default: 16384]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    max_connections: Option<u32>,
    /// Keep serving for this long after SIGTERM while /readyz already fails, so that a proxy sends new requests to another
    /// hub (5s) [default: stop at once]
    #[arg(long, value_name = "TIME", value_parser = amount::duration)]
    shutdown_delay: Option<Duration>,
    /// Trust the X-Forwarded-For header of proxies at this address or network; repeatable
    #[arg(long, value_name = "ADDR|CIDR")]
    trusted_proxy: Vec<IpNetwork>,
    /// Replace a lost owner key: write a new one to <data>/admin.key and revoke the old one
    #[arg(long)]
    recover_owner_key: bool,
    /// Write {"url":…,"pin":…} to this file when ready
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    /// Wait while another hub serves the database or its server is unavailable, then take over
    #[arg(long, help_heading = "Database")]
    standby: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    artifacts: ArtifactArgs,
    #[command(flatten)]
    tuning: HubTuningArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tuning")]
struct HubTuningArgs {
    /// A runtime without a heartbeat for this long is offline and loses its claims [default: 120000]
    #[arg(long, value_name = "MS", hide_short_help = true, value_parser = clap::value_parser!(u64).range(100..))]
    heartbeat_timeout_ms: Option<u64>,
    /// Claims younger than this may be missing from a heartbeat [default: 10000]
    #[arg(long, value_name = "MS", hide_short_help = true)]
    claim_grace_ms: Option<u64>,
    /// Maximum age of a runtime token; older ones are rotated with the next heartbeat [default: 86400000, one day]
    #[arg(long, value_name = "MS", hide_short_help = true, value_parser = clap::value_parser!(u64).range(100..))]
    token_rotation_ms: Option<u64>,
    /// How long a replaced runtime token stays valid [default: 120000]
    #[arg(long, value_name = "MS", hide_short_help = true)]
    token_overlap_ms: Option<u64>,
    /// When a replaced runtime token is used after that: refuse and log it, or also revoke the device
    #[arg(long, value_name = "ACTION", hide_short_help = true, default_value = "refuse")]
    on_token_reuse: TokenReuseArg,
    /// Interval between checks for expired deadlines [default: 1000]
    #[arg(long, value_name = "MS", hide_short_help = true, value_parser = clap::value_parser!(u64).range(10..))]
    sweep_ms: Option<u64>,
    /// Maximum open streams, waiting requests and WebSockets for each person, program or agent [default: 256]
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..))]
    max_streams: Option<u32>,
    /// Maximum artifact size [default: 1073741824]
    #[arg(long, value_name = "BYTES", hide_short_help = true)]
    max_artifact_bytes: Option<u64>,
    /// Maximum size of all artifacts that workers upload for one run [default: 4294967296]
    #[arg(long, value_name = "BYTES", hide_short_help = true)]
    max_run_artifact_bytes: Option<u64>,
    /// Refuse uploads while less than this is free on the disk [default: 2% of it, between 256 MiB and 1 GiB]
    #[arg(long, value_name = "BYTES", hide_short_help = true)]
    disk_reserve: Option<u64>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum TokenReuseArg {
    Refuse,
    Revoke,
}

/// The database on a server, if there is one.
fn shared_database(
    database: DatabaseArgs,
    standby: bool,
    sharing: DatabaseSharing,
    context: &CommandContext,
) -> Result<Option<SharedDatabase>, CommandFailure> {
    match database.server(context)? {
        Some(server) => {
            let when_busy = if standby { WhenBusy::StandBy } else { WhenBusy::Refuse };
            Ok(Some(SharedDatabase { server, when_busy, sharing }))
        }
        None if standby => Err(needs_server("--standby")),
        None if sharing == DatabaseSharing::WithOthers => Err(needs_server("--cluster-key-file")),
        None => Ok(None),
    }
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    if !args.listen.ip().is_loopback() && !args.insecure_lan && !args.tls.is_set() {
        return Err(CommandFailure::usage(format!("{} is reachable from other machines, but TLS isn't configured", args.listen))
            .hint("Add a certificate (--tls-self-signed, or --tls-cert with --tls-key), listen on 127.0.0.1 behind a TLS proxy (--public-url), or accept the risk with --insecure-lan."));
    }
    if !args.insecure_lan {
        args.cluster.refuse_plain_http()?;
    }
    let permissions = args.permissions;
    let artifacts = args.artifacts.folder()?;
    let bucket = args.artifacts.open(&context).await?;
    let ending = ShutdownSignals::of_signals()?;
    let place = LocalServerOptions {
        listen: args.listen,
        data: args.data,
        tls: args.tls,
        database: match shared_database(args.database, args.standby, args.cluster.sharing(), &context)? {
            // A standby listens only once it serves, so that nobody is sent to it before.
            Some(database) => Some(database.open(&context.output, &ending.finish).await?),
            None => None,
        },
        cluster: Some(args.cluster),
    };
    let (public_url, default_agent, tuning) = (args.public_url, args.default_agent, args.tuning);
    let (rate_limit, run_timeout, recover) = (args.rate_limit, args.run_timeout, args.recover_owner_key);
    let shutdown_delay = args.shutdown_delay.unwrap_or_default();
    let (max_connections, proxies, keep) = (args.max_connections, args.trusted_proxy, args.keep);
    let egress = EgressGuard::new(EgressPolicy { allow: args.egress_allow });
    let site = LocalServer::open(&context, place, |options| {
        options.permissions = permissions;
        options.public_url = public_url;
        options.default_agent = default_agent;
        options.egress = egress;
        options.requests_per_minute = rate_limit;
        options.run_timeout = run_timeout.unwrap_or(options.run_timeout);
        options.max_connections = max_connections.map_or(options.max_connections, |limit| limit as usize);
        options.shutdown_delay = shutdown_delay;
        options.trusted_proxies = proxies;
        options.artifacts = artifacts;
        options.bucket = bucket;
        keep.into_iter().for_each(|keep| keep.apply(options));
        if recover {
            options.owner_key = OwnerKey::Recover;
        }
        tuning.apply(options);
    })
    .await?;
    let (url, pin) = (site.local.origin.clone(), site.needed_pin());
    process::write_ready(args.ready_file.as_deref(), &ReadyFile { url: url.clone(), pin })?;
    process::notify_ready();
    let output = &context.output;
    output.line(&url)?;
    if site.hub.origin() != url {
        output.say_styled(TextStyle::Dim, format_args!("Public URL: {}", site.hub.origin()));
    }
    if let Some(pin) = pin {
        output.say(format_args!("Certificate pin: {pin}"));
        output.say_styled(
            TextStyle::Dim,
            "On other machines, pass it with --pin or ATTACHE_PIN. Commands on this machine already know it.",
        );
    }
    site.print_owner_key(output);
    if site.hub.owner_key() != OwnerKeyState::Elsewhere {
        output.say_styled(TextStyle::Dim, format_args!("Sign in to the console: attache login{}", site.selection));
    }
    site.serve(ending).await
}

// === impl HubTuningArgs ===

impl HubTuningArgs {
    fn apply(self, options: &mut Options) {
        let set = |target: &mut Duration, given: Option<u64>| {
            if let Some(millis) = given {
                *target = Duration::from_millis(millis);
            }
        };
        set(&mut options.heartbeat_timeout, self.heartbeat_timeout_ms);
        set(&mut options.claim_grace, self.claim_grace_ms);
        set(&mut options.sweep_every, self.sweep_ms);
        set(&mut options.token_rotation, self.token_rotation_ms);
        set(&mut options.token_overlap, self.token_overlap_ms);
        options.on_token_reuse = match self.on_token_reuse {
            TokenReuseArg::Refuse => OnTokenReuse::Refuse,
            TokenReuseArg::Revoke => OnTokenReuse::Revoke,
        };
        if let Some(most) = self.max_streams {
            options.max_streams = usize::try_from(most).unwrap_or(usize::MAX);
        }
        options.max_artifact = self.max_artifact_bytes.unwrap_or(options.max_artifact);
        options.max_run_artifacts = self.max_run_artifact_bytes.unwrap_or(options.max_run_artifacts);
        options.disk_reserve = self.disk_reserve;
    }
}

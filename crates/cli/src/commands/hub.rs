//! `attache hub`: the platform alone, for devices elsewhere.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use attache_client::egress::{EgressGuard, EgressPolicy, EgressRule, IpNetwork};
use attache_hub::{OnTokenReuse, Options, OwnerKey, OwnerKeyState};
use attache_protocol::wire::system::ReadyFile;

use crate::{
    CommandContext, CommandFailure, amount,
    home::DEFAULT_LISTEN,
    keep::Keep,
    local_server::{LocalServer, LocalServerOptions},
    output::TextStyle,
    process::{self, ShutdownSignals},
    tls::TlsArgs,
};

/// Run a hub: the API and the console on one port
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache hub                                        on this machine
  attache hub --listen 127.0.0.1:8080 --public-url https://hub.example.org    behind a proxy with TLS
  attache hub --listen 0.0.0.0:7800 --tls-self-signed    with a certificate of its own; it prints the pin for clients
  attache hub --listen 0.0.0.0:7800 --tls-cert chain.pem --tls-key key.pem --public-url https://hub.example.org:7800
  attache hub --listen 0.0.0.0:7800 --insecure-lan   on a network that you trust

The owner key is written to <data>/admin.key at the first start. SIGTERM or Ctrl-C finishes what is in flight; a second
one ends at once. Short help (-h) leaves the tuning out.")]
pub(crate) struct Args {
    /// Where to listen; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_LISTEN)]
    listen: SocketAddr,
    /// The folder for database, artifacts and keys [default: $A2A_HOME/hub]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where people and devices reach this hub, when it is not where it listens
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// The access rules of agents, taken over when the file changes [default: in the store]
    #[arg(long, value_name = "FILE")]
    permissions: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Listen off this machine without TLS: whoever sees the network sees every key
    #[arg(long)]
    insecure_lan: bool,
    /// The agent that is meant when a call names none, by name or id [default: the only one]
    #[arg(long, value_name = "AGENT")]
    default_agent: Option<String>,
    /// How long a run may take when neither its caller nor its agent says (90s, 30m, 8h, 7d) [default: 60m]
    #[arg(long, value_name = "TIME", value_parser = amount::duration)]
    run_timeout: Option<Duration>,
    /// For how long to keep what has ended, as CLASS=TIME (runs=90d, conversations=365d, artifacts=365d, credentials=90d, events=30d, log=400d, channels=30d, streams=1h); `forever` is a time too; repeatable
    #[arg(long, value_name = "CLASS=TIME", value_parser = Keep::from_text)]
    keep: Vec<Keep>,
    /// Let webhooks and outside agents (--peer) be on this private network or host (10.0.0.0/8, an address, a name, *.example.org); repeatable
    #[arg(long, value_name = "CIDR|HOST")]
    egress_allow: Vec<EgressRule>,
    /// How many requests one person, program or agent may make in a minute [default: as many as they like]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate_limit: Option<u32>,
    /// How many connections may be open at a time; one in eight is kept for devices [default: 16384]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    max_connections: Option<u32>,
    /// Believe the X-Forwarded-For of a proxy at this address or in this network; repeatable
    #[arg(long, value_name = "ADDR|CIDR")]
    trusted_proxy: Vec<IpNetwork>,
    /// When the key in <data>/admin.key is lost: make a new one there, and revoke the lost one
    #[arg(long)]
    recover_owner_key: bool,
    /// Write {"url":…,"pin":…} to this file once it listens
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    #[command(flatten)]
    tuning: HubTuningArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tuning")]
struct HubTuningArgs {
    /// A runtime that is silent for longer is offline, and its claims are lost [default: 120000]
    #[arg(long, value_name = "MS", hide_short_help = true, value_parser = clap::value_parser!(u64).range(100..))]
    heartbeat_timeout_ms: Option<u64>,
    /// A claim younger than this need not be named in a heartbeat [default: 10000]
    #[arg(long, value_name = "MS", hide_short_help = true)]
    claim_grace_ms: Option<u64>,
    /// A runtime token that is older is rotated with the next heartbeat [default: 86400000, a day]
    #[arg(long, value_name = "MS", hide_short_help = true, value_parser = clap::value_parser!(u64).range(100..))]
    token_rotation_ms: Option<u64>,
    /// How long a runtime token that was replaced is still taken [default: 120000]
    #[arg(long, value_name = "MS", hide_short_help = true)]
    token_overlap_ms: Option<u64>,
    /// When somebody uses a replaced runtime token: refuse it and log it, or revoke the device as well
    #[arg(long, value_name = "ACTION", hide_short_help = true, default_value = "refuse")]
    on_token_reuse: TokenReuseArg,
    /// How often deadlines are looked at [default: 1000]
    #[arg(long, value_name = "MS", hide_short_help = true, value_parser = clap::value_parser!(u64).range(10..))]
    sweep_ms: Option<u64>,
    /// How many streams one person, program or agent may have open [default: 256]
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..))]
    max_streams: Option<u32>,
    /// The largest artifact [default: 1073741824]
    #[arg(long, value_name = "BYTES", hide_short_help = true)]
    max_artifact_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum TokenReuseArg {
    Refuse,
    Revoke,
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    if !args.listen.ip().is_loopback() && !args.insecure_lan && !args.tls.is_set() {
        return Err(CommandFailure::usage(format!("{} can be reached from other machines, and there is no TLS", args.listen))
            .hint("Give it a certificate (--tls-self-signed, or --tls-cert with --tls-key), listen on 127.0.0.1 behind a proxy that has TLS (--public-url), or accept the risk with --insecure-lan."));
    }
    let permissions = args.permissions;
    let ending = ShutdownSignals::of_signals()?;
    let place = LocalServerOptions { listen: args.listen, data: args.data, tls: args.tls };
    let (public_url, default_agent, tuning) = (args.public_url, args.default_agent, args.tuning);
    let (rate_limit, run_timeout, recover) = (args.rate_limit, args.run_timeout, args.recover_owner_key);
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
        options.trusted_proxies = proxies;
        keep.into_iter().for_each(|keep| keep.apply(options));
        if recover {
            options.owner_key = OwnerKey::Recover;
        }
        tuning.apply(options);
    })
    .await?;
    let (url, pin) = (site.local.origin.clone(), site.needed_pin());
    process::write_ready(args.ready_file.as_deref(), &ReadyFile { url: url.clone(), pin })?;
    let output = &context.output;
    output.line(&url)?;
    if site.hub.origin() != url {
        output.say_styled(TextStyle::Dim, format_args!("People reach it at {}.", site.hub.origin()));
    }
    if let Some(pin) = pin {
        output.say(format_args!("Its pin: {pin}"));
        output.say_styled(
            TextStyle::Dim,
            "Elsewhere, pass it with --pin or ATTACHE_PIN; commands on this machine know it.",
        );
    }
    site.print_owner_key(output);
    if site.hub.owner_key() != OwnerKeyState::Elsewhere {
        output.say_styled(TextStyle::Dim, "Sign in to the console with: attache login");
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
    }
}

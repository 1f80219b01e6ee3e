//! The hub's options. Every duration is here, so that tests can shorten it.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use attache_client::egress::{EgressGuard, EgressPolicy, IpNetwork};
use attache_os::own_address;
use attache_protocol::{KeyPin, rules::permission::OnTimeout};

use crate::{ArtifactBucket, NodeOptions, Tls, deliveries};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Session lifetime over plain HTTP.
const PLAIN_SESSION: Duration = Duration::from_secs(12 * 60 * 60);

#[derive(Debug, Clone)]
pub struct Options {
    /// The hub's data folder: blobs, `admin.key`, `pairing.key`, `seal.key`, `vapid.key`, `webhook.key`. Created with mode 0700.
    pub data: PathBuf,
    /// The listener's address, with its actual port.
    pub listen: SocketAddr,
    /// The hub's public URL, if it is not `http://<listen>`, for example behind a proxy.
    pub public_url: Option<String>,
    /// If set, the port serves TLS only.
    pub tls: Option<Tls>,
    /// How often to check for a replaced certificate.
    pub certificate_every: Duration,
    pub owner_key: OwnerKey,
    /// The default agent for calls that name none, by name or id.
    pub default_agent: Option<String>,
    /// The path of the MCP tools for runs, such as `/mcp`. `None`: runs get no tools.
    pub tools: Option<String>,
    /// The egress guard for third-party URLs.
    pub egress: EgressGuard,
    /// Other hubs serve the same database. `None`: this one is alone.
    pub nodes: Option<NodeOptions>,
    /// How webhooks are sent.
    pub outbox: deliveries::Options,
    /// The access rules file, checked with every sweep. Without one, rules live in the store.
    pub permissions: Option<PathBuf>,
    /// A runtime that is silent for longer is offline. Also the lease of a claim.
    pub heartbeat_timeout: Duration,
    /// Claims younger than this don't have to be listed in a heartbeat.
    pub claim_grace: Duration,
    pub sweep_every: Duration,
    /// How far a sweep may advance the retention clock, so that a wrong time of day does little harm.
    pub clock_step: Duration,
    pub retain_every: Duration,
    /// How long the chunks of an ended run are kept.
    pub keep_chunks: Duration,
    /// How long log rows are kept.
    pub keep_log: Duration,
    /// How long an ended HTTP stream can be read again.
    pub keep_streams: Duration,
    /// How long a disconnected channel can be resumed.
    pub keep_channels: Duration,
    /// How long an ended run is kept, with its result and everything that belongs to it.
    pub keep_runs: Duration,
    /// How long messages and inactive conversations are kept.
    pub keep_conversations: Duration,
    /// How long artifacts without a run are kept. Others are removed with their run.
    pub keep_artifacts: Duration,
    /// How long ended keys, sessions and grants are kept.
    pub keep_credentials: Duration,
    /// The default run timeout.
    pub run_timeout: Duration,
    pub queue_ttl: Duration,
    /// How long a permission request waits for a decision, unless the agent's policy differs.
    pub permission_timeout: Duration,
    /// What happens to unanswered permission requests, unless the agent's policy differs.
    pub on_permission_timeout: OnTimeout,
    /// How long a run of the agent's owner waits for its caller's answers, all its questions together. After that, it fails
    /// with `timed_out`. While it waits, it holds a slot of the agent's device.
    pub input_timeout: Duration,
    /// The same for runs of other people.
    pub others_input_timeout: Duration,
    /// The same for runs of callers without a credential.
    pub anonymous_input_timeout: Duration,
    /// How long a worker waits for a tool call by its caller's engine.
    pub tool_timeout: Duration,
    /// A run that is silent for longer on a connected device is idle.
    pub idle_after: Duration,
    /// How often the cards of outside agents are read again.
    pub cards_every: Duration,
    /// How long an outside agent's card is considered fresh before its next task.
    pub card_fresh: Duration,
    /// How many times a task may be passed between agents.
    pub hops: i64,
    pub pairing_ttl: Duration,
    pub login_ttl: Duration,
    pub session_ttl: Duration,
    /// How long a credential is cached.
    pub credential_ttl: Duration,
    /// Older runtime tokens are rotated with the next heartbeat.
    pub token_rotation: Duration,
    /// How long a replaced runtime token is still accepted, for requests in flight.
    pub token_overlap: Duration,
    /// What happens when a replaced runtime token is used.
    pub on_token_reuse: OnTokenReuse,
    /// How often a waiter polls, in case a hint was lost.
    pub poll_every: Duration,
    /// How often an open stream sends a keep-alive.
    pub keep_alive: Duration,
    /// How long a JSON body, or the next piece of an upload, may take to arrive.
    pub body_timeout: Duration,
    /// How long a client may take nothing of a response that is ready. Streams are exempt.
    pub response_timeout: Duration,
    /// How long a connection may take to send a request head. Also the idle timeout of HTTP/1.
    pub header_timeout: Duration,
    /// How long requests in flight may take during a drain.
    pub drain_limit: Duration,
    /// How long the hub serves on after it was told to stop, while `/readyz` already reports not ready.
    pub shutdown_delay: Duration,
    /// In total. One in eight is reserved for devices, and a caller may use one in four.
    pub max_connections: usize,
    /// Open streams, waiting requests and WebSockets per caller.
    pub max_streams: usize,
    /// Requests in progress per caller, until their responses are taken. Streams and waiting requests don't count.
    pub max_requests: usize,
    /// Per address, before authentication.
    pub max_unauthenticated_per_address: usize,
    /// The memory, in bytes, that all unauthenticated requests may use together.
    pub max_unauthenticated_bytes: usize,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNetwork>,
    /// Where artifacts are, if not in the folder `blobs` of the data folder. Nodes of a hub need one that all of them see.
    pub artifacts: Option<PathBuf>,
    /// Where artifacts are, if not in a folder, which then keeps those that were used last.
    pub bucket: Option<ArtifactBucket>,
    /// The largest artifact, in bytes.
    pub max_artifact: u64,
    /// How much the artifacts that workers add for one run may take, in bytes.
    pub max_run_artifacts: u64,
    /// Uploads are refused while less than this many bytes are free on the disk. `None`: depends on its size.
    pub disk_reserve: Option<u64>,
    /// Failed pairing attempts allowed per minute, per address and per agent.
    pub pairing_failures_per_minute: u32,
    /// Wrong passwords allowed per minute, per address and per name.
    pub sign_in_failures_per_minute: u32,
    /// Wrong credentials allowed per minute and address.
    pub failures_per_minute: u32,
    /// Requests without a credential allowed per minute and address.
    pub anonymous_per_minute: u32,
    /// How many tokens, login links and sessions one person may create, and how often they may change their account.
    pub credentials_per_minute: u32,
    /// The queue limit of an agent for new runs of anonymous callers.
    pub anonymous_queue: usize,
    /// What anonymous callers may send to one agent per hour, in bytes. It is stored on the hub's disk.
    pub anonymous_bytes_per_hour: u64,
    /// Requests per principal and minute. `None`: unlimited.
    pub requests_per_minute: Option<u32>,
}

/// Using a replaced runtime token means that two devices have a copy. Either may be the thief: the one that rotated
/// first still gets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTokenReuse {
    /// Reject it, log it, and show it on the device.
    Refuse,
    /// Also revoke the runtime, so that neither works until a person pairs the device again.
    Revoke,
}

/// What to do about `admin.key` if the store already has an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerKey {
    /// Write the file only at the first start.
    FirstStart,
    /// Create a new owner key if the one in the file is missing or invalid, and revoke the previous ones.
    Recover,
}

// === impl Options ===

impl Options {
    pub fn new(data: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self {
            data: data.into(),
            listen,
            public_url: None,
            tls: None,
            certificate_every: MINUTE,
            owner_key: OwnerKey::FirstStart,
            default_agent: None,
            tools: None,
            egress: EgressGuard::new(EgressPolicy::default()),
            nodes: None,
            outbox: deliveries::Options::default(),
            permissions: None,
            heartbeat_timeout: Duration::from_secs(120),
            claim_grace: Duration::from_secs(10),
            sweep_every: Duration::from_secs(1),
            clock_step: MINUTE,
            retain_every: 60 * MINUTE,
            keep_chunks: 30 * DAY,
            keep_log: 400 * DAY,
            keep_streams: 60 * MINUTE,
            keep_channels: 30 * DAY,
            keep_runs: 90 * DAY,
            keep_conversations: 365 * DAY,
            keep_artifacts: 365 * DAY,
            keep_credentials: 90 * DAY,
            run_timeout: 60 * MINUTE,
            queue_ttl: DAY,
            permission_timeout: DAY,
            on_permission_timeout: OnTimeout::DenyAndHalt,
            input_timeout: 7 * DAY,
            others_input_timeout: DAY,
            anonymous_input_timeout: 5 * MINUTE,
            tool_timeout: 10 * MINUTE,
            idle_after: MINUTE,
            cards_every: 5 * MINUTE,
            card_fresh: Duration::from_secs(15),
            hops: attache_store::record::USUAL_TTL,
            pairing_ttl: 10 * MINUTE,
            login_ttl: 10 * MINUTE,
            session_ttl: 30 * DAY,
            credential_ttl: Duration::from_secs(1),
            token_rotation: DAY,
            token_overlap: 2 * MINUTE,
            on_token_reuse: OnTokenReuse::Refuse,
            poll_every: Duration::from_secs(2),
            keep_alive: Duration::from_secs(15),
            body_timeout: Duration::from_secs(30),
            response_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(10),
            drain_limit: Duration::from_secs(10),
            shutdown_delay: Duration::ZERO,
            max_connections: 16_384,
            max_streams: 256,
            max_requests: 64,
            max_unauthenticated_per_address: 1024,
            max_unauthenticated_bytes: 32 << 20,
            trusted_proxies: Vec::new(),
            artifacts: None,
            bucket: None,
            max_artifact: 1 << 30,
            max_run_artifacts: 4 << 30,
            disk_reserve: None,
            pairing_failures_per_minute: 5,
            sign_in_failures_per_minute: 10,
            failures_per_minute: 60,
            anonymous_per_minute: 1200,
            credentials_per_minute: 120,
            anonymous_queue: 100,
            anonymous_bytes_per_hour: 64 << 20,
            requests_per_minute: None,
        }
    }

    pub(crate) fn artifact_folder(&self) -> PathBuf {
        self.artifacts.clone().unwrap_or_else(|| self.data.join("blobs"))
    }

    /// The hub's address, without a trailing slash: in cards, links and the addresses of tunnels. If it listens on every
    /// address, it is one that other machines reach.
    pub fn origin(&self) -> String {
        match &self.public_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => {
                self.node_origin().unwrap_or_else(|| format!("{}://127.0.0.1:{}", self.scheme(), self.listen.port()))
            }
        }
    }

    /// The hub's address for other machines, if there is one: its public URL, or an address of this machine when it
    /// listens on one.
    pub fn reachable_origin(&self) -> Option<String> {
        match self.listen.ip() {
            _ if self.public_url.is_some() => Some(self.origin()),
            ip if ip.is_loopback() => None,
            _ => self.node_origin(),
        }
    }

    /// The address of the listener itself, whatever is in front of it. The other nodes of a hub use it.
    pub fn node_origin(&self) -> Option<String> {
        let ip = Some(self.listen.ip()).filter(|ip| !ip.is_unspecified()).or_else(own_address::outward)?;
        Some(format!("{}://{}", self.scheme(), SocketAddr::new(ip, self.listen.port())))
    }

    /// How long a browser stays signed in. Over plain HTTP it is a working day: cookies ignore ports, so any other
    /// server on the same host, such as one that an agent started on loopback, receives the session cookie too.
    pub(crate) fn session_lifetime(&self) -> Duration {
        let is_plain = self.origin().starts_with("http://");
        if is_plain { self.session_ttl.min(PLAIN_SESSION) } else { self.session_ttl }
    }

    /// Whether this address is a trusted proxy.
    pub(crate) fn trusts_proxy(&self, address: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|proxy| proxy.contains(address.to_canonical()))
    }

    /// The scheme of the port itself, whatever is in front of it.
    pub const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// The pin, if clients need it because the certificate is self-signed.
    pub fn needed_pin(&self) -> Option<KeyPin> {
        self.tls.as_ref().filter(|tls| tls.is_self_signed()).map(Tls::pin)
    }

    /// Whether to send HSTS. Browsers apply it to every port of the host, so the name must belong to the hub alone.
    /// With a self-signed certificate, people could no longer click through the warning.
    pub(crate) fn is_https_for_good(&self) -> bool {
        let host = self.public_url.as_deref().and_then(|url| url.strip_prefix("https://"));
        let self_signed = self.tls.as_ref().is_some_and(Tls::is_self_signed);
        host.map(|host| host.trim_end_matches('/')).is_some_and(|host| {
            !self_signed && !host.contains(':') && host != "localhost" && host.parse::<std::net::Ipv4Addr>().is_err()
        })
    }
}

//! What a hub is told when it starts. Every duration is here, so that a test can shorten it.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::PathBuf,
    time::Duration,
};

use attache_client::egress::{EgressGuard, EgressPolicy, IpNetwork};
use attache_protocol::{KeyPin, rules::permission::OnTimeout};

use crate::{Tls, deliveries};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Of a browser over plain HTTP.
const PLAIN_SESSION: Duration = Duration::from_secs(12 * 60 * 60);

#[derive(Debug, Clone)]
pub struct Options {
    /// The hub's own folder: blobs, `admin.key`, `pairing.key`, `seal.key`, `webhook.key`. Made with mode 0700.
    pub data: PathBuf,
    /// The address that the listener is bound to (with its real port).
    pub listen: SocketAddr,
    /// Where people reach the hub when it is not `http://<listen>`, for example behind a proxy.
    pub public_url: Option<String>,
    /// With it the port speaks TLS and nothing else.
    pub tls: Option<Tls>,
    /// How often a certificate that was replaced is looked for.
    pub certificate_every: Duration,
    pub owner_key: OwnerKey,
    /// The agent that is meant when a call names none, by name or id.
    pub default_agent: Option<String>,
    /// The path of the MCP tools that runs are given, such as `/mcp`; `None`: they are given none.
    pub tools: Option<String>,
    /// The way out to URLs that others chose.
    pub egress: EgressGuard,
    /// How webhooks are told.
    pub outbox: deliveries::Options,
    /// The file with the access rules of agents, looked at with every sweep. Without one they live in the store.
    pub permissions: Option<PathBuf>,
    /// A runtime that is silent for longer is offline; also how long a claim lives without being renewed.
    pub heartbeat_timeout: Duration,
    /// A claim younger than this need not be named in a heartbeat.
    pub claim_grace: Duration,
    pub sweep_every: Duration,
    /// How far a sweep may move the clock by which things are forgotten: a wrong time of day then costs little.
    pub clock_step: Duration,
    pub retain_every: Duration,
    /// How long the chunks of an ended run are kept.
    pub keep_chunks: Duration,
    /// How long rows of the log are kept.
    pub keep_log: Duration,
    /// How long a stream over HTTP that has ended can be read again.
    pub keep_streams: Duration,
    /// How long a channel that is disconnected can be resumed.
    pub keep_channels: Duration,
    /// How long a run that has ended is kept, with its result and everything that belongs to it.
    pub keep_runs: Duration,
    /// How long messages are kept, and conversations that nothing happens in.
    pub keep_conversations: Duration,
    /// How long artifacts are kept that no run produced; those that one did go with the run.
    pub keep_artifacts: Duration,
    /// How long keys, sessions and grants are kept after their end.
    pub keep_credentials: Duration,
    /// What a run gets when its creator does not say.
    pub run_timeout: Duration,
    pub queue_ttl: Duration,
    /// How long a permission request waits for a person, unless the agent's own policy says otherwise.
    pub permission_timeout: Duration,
    /// What happens when nobody answers in time, unless the agent's own policy says otherwise.
    pub on_permission_timeout: OnTimeout,
    /// How long a request for input waits for the caller; then the run fails with `timed_out`.
    pub input_timeout: Duration,
    /// How long a worker waits for a tool call that its caller's engine makes.
    pub tool_timeout: Duration,
    /// A run that has been silent for longer on a connected device is idle.
    pub idle_after: Duration,
    /// How often the cards of outside agents are read again.
    pub cards_every: Duration,
    /// How long the card of an outside agent is believed before its next task.
    pub card_fresh: Duration,
    /// How many times work may be passed on from agent to agent.
    pub hops: i64,
    pub pairing_ttl: Duration,
    pub login_ttl: Duration,
    pub session_ttl: Duration,
    /// How long a credential is believed without asking the store.
    pub credential_ttl: Duration,
    /// A runtime token that is older is rotated with the next heartbeat.
    pub token_rotation: Duration,
    /// How long a runtime token that was replaced is still taken, for requests that were under way.
    pub token_overlap: Duration,
    /// What happens when somebody uses a runtime token that was already replaced.
    pub on_token_reuse: OnTokenReuse,
    /// How often a waiter looks by itself, in case a hint was lost.
    pub poll_every: Duration,
    /// How often an open stream says that it is alive.
    pub keep_alive: Duration,
    /// How long a JSON body, or the next piece of an upload, may take to arrive.
    pub body_timeout: Duration,
    /// How long a connection may take to send the head of a request, which is also how long one of HTTP/1 may be idle.
    pub header_timeout: Duration,
    /// How long requests in flight may take once the hub drains.
    pub drain_limit: Duration,
    /// At a time; one in eight is for devices.
    pub max_connections: usize,
    /// How many streams one caller may have open.
    pub max_streams: usize,
    /// Of one address at a time, before they have shown a good credential.
    pub max_unauthenticated_per_address: usize,
    /// The memory, in bytes, that the bodies of requests without a good credential may take at a time, all together.
    pub max_unauthenticated_bytes: usize,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNetwork>,
    /// The largest artifact, in bytes.
    pub max_artifact: u64,
    /// Failed redemptions of pairing codes, per address and per agent, that are taken in a minute.
    pub pairing_failures_per_minute: u32,
    /// Wrong passwords, per address and per name, that are taken in a minute.
    pub sign_in_failures_per_minute: u32,
    /// Wrong credentials of an address that are answered in a minute.
    pub failures_per_minute: u32,
    /// Requests of an address without any credential that are answered in a minute.
    pub anonymous_per_minute: u32,
    /// How many runs may wait for an agent when a caller without a credential adds one.
    pub anonymous_queue: usize,
    /// What callers without a credential may send to one agent in an hour, in bytes: it is kept on the hub's disk.
    pub anonymous_bytes_per_hour: u64,
    /// How many requests one principal may make in a minute; `None`: as many as it likes.
    pub requests_per_minute: Option<u32>,
}

/// A replaced runtime token that is used again means that two devices hold copies of it. Either may be the thief: whoever
/// rotated first is the one that still gets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTokenReuse {
    /// Refuse it, log it, and show it at the device.
    Refuse,
    /// Revoke the runtime as well, so that neither works until a person pairs the device again.
    Revoke,
}

/// What to do about `admin.key` when the store already has an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerKey {
    /// Write the file at the first start only.
    FirstStart,
    /// Make a new owner key if the one in the file is missing or not good, and revoke the ones that were in it.
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
            tool_timeout: 10 * MINUTE,
            idle_after: MINUTE,
            cards_every: 5 * MINUTE,
            card_fresh: Duration::from_secs(15),
            hops: 8,
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
            header_timeout: Duration::from_secs(10),
            drain_limit: Duration::from_secs(10),
            max_connections: 16_384,
            max_streams: 256,
            max_unauthenticated_per_address: 1024,
            max_unauthenticated_bytes: 32 << 20,
            trusted_proxies: Vec::new(),
            max_artifact: 1 << 30,
            pairing_failures_per_minute: 5,
            sign_in_failures_per_minute: 10,
            failures_per_minute: 60,
            anonymous_per_minute: 1200,
            anonymous_queue: 100,
            anonymous_bytes_per_hour: 64 << 20,
            requests_per_minute: None,
        }
    }

    /// Where people and devices reach the hub, without a slash at the end.
    pub fn origin(&self) -> String {
        let scheme = self.scheme();
        match &self.public_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None if self.listen.ip().is_unspecified() => format!("{scheme}://127.0.0.1:{}", self.listen.port()),
            None => format!("{scheme}://{}", self.listen),
        }
    }

    /// Where a device on another machine reaches the hub, if one can: under its public URL, or at an address of this machine
    /// when it listens on one.
    pub fn reachable_origin(&self) -> Option<String> {
        let (scheme, port) = (self.scheme(), self.listen.port());
        match self.listen.ip() {
            _ if self.public_url.is_some() => Some(self.origin()),
            ip if ip.is_loopback() => None,
            ip if ip.is_unspecified() => own_address().map(|ip| format!("{scheme}://{}", SocketAddr::new(ip, port))),
            _ => Some(self.origin()),
        }
    }

    /// How long a browser stays signed in. Over plain HTTP that is a working day: cookies do not know ports, so whatever else
    /// a person opens on the same host, such as a server that an agent started on loopback, is sent the session's cookie too.
    pub(crate) fn session_lifetime(&self) -> Duration {
        let is_plain = self.origin().starts_with("http://");
        if is_plain { self.session_ttl.min(PLAIN_SESSION) } else { self.session_ttl }
    }

    /// Whether what comes from there speaks for others.
    pub(crate) fn trusts_proxy(&self, address: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|proxy| proxy.contains(address.to_canonical()))
    }

    /// What the port itself speaks, whatever stands in front of it.
    pub const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// The pin, where clients need it: no authority vouches for this hub.
    pub fn needed_pin(&self) -> Option<KeyPin> {
        self.tls.as_ref().filter(|tls| tls.is_self_signed()).map(Tls::pin)
    }

    /// Whether browsers may be told never to use plain HTTP for this host again. They remember it for every port of the
    /// host, so it has to be a name that belongs to the hub as a whole; and under a certificate that the hub made for
    /// itself, nobody could click a warning away any more.
    pub(crate) fn is_https_for_good(&self) -> bool {
        let host = self.public_url.as_deref().and_then(|url| url.strip_prefix("https://"));
        let self_signed = self.tls.as_ref().is_some_and(Tls::is_self_signed);
        host.map(|host| host.trim_end_matches('/')).is_some_and(|host| {
            !self_signed && !host.contains(':') && host != "localhost" && host.parse::<std::net::Ipv4Addr>().is_err()
        })
    }
}

/// The address of this machine that packets for the world outside leave from. Nothing is sent to find it.
fn own_address() -> Option<IpAddr> {
    // Addresses of RFC 5737 and RFC 3849, which are routed like all others and belong to nobody.
    let outside: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
    ];
    let leaves_from = |(own, target): (IpAddr, IpAddr)| {
        let socket = UdpSocket::bind((own, 0)).ok()?;
        socket.connect((target, 9)).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    };
    outside.into_iter().filter_map(leaves_from).find(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

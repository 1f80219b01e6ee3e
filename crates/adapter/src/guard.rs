//! Request guard of the adapter: checks for a loopback host name, no browser origin, and the bearer secret. Loopback
//! alone isn't trusted, because any web page in a browser on this device can reach it.

use std::net::{IpAddr, SocketAddr};

use attache_protocol::{Code, secret::SecretHash};
use axum::http::{HeaderMap, Uri, header, uri::Authority};

use crate::error::AdapterRefusal;

#[derive(Debug)]
pub(crate) struct RequestGuard {
    secret: SecretHash,
    address: SocketAddr,
}

/// The credential of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BearerCheck {
    Absent,
    Right,
}

// === impl RequestGuard ===

impl RequestGuard {
    pub(crate) const fn new(secret: SecretHash, address: SocketAddr) -> Self {
        Self { secret, address }
    }

    /// The Host header must name this adapter. A web page that resolves its own domain to 127.0.0.1 fails this check.
    pub(crate) fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), AdapterRefusal> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = hosts.next().map(|host| host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()));
        // HTTP/2 and proxies put the host into the target as well. Then both must match.
        let named = match (uri.authority(), host) {
            (Some(target), None) => self.is_own(target),
            (Some(target), Some(Some(host))) => self.is_own(target) && self.is_own(&host),
            (None, Some(Some(host))) => self.is_own(&host),
            (_, Some(None)) | (None, None) => false,
        };
        if named && hosts.next().is_none() {
            return Ok(());
        }
        Err(AdapterRefusal::new(
            Code::WrongHost,
            format!("this adapter only accepts requests for the host {}", self.address),
            "Use the loopback address and port it listens on.",
        ))
    }

    pub(crate) fn check_origin(&self, headers: &HeaderMap) -> Result<(), AdapterRefusal> {
        let own = |origin: &str| {
            let authority = origin.strip_prefix("http://").and_then(|rest| rest.parse::<Authority>().ok());
            authority.is_some_and(|authority| self.is_own(&authority))
        };
        if headers.get_all(header::ORIGIN).iter().all(|origin| origin.to_str().is_ok_and(own)) {
            return Ok(());
        }
        Err(AdapterRefusal::new(
            Code::ForeignOrigin,
            "web pages can't call this adapter",
            "Call it from a program, without an Origin header.",
        ))
    }

    /// A wrong secret is always an error. Whether a missing one is acceptable is up to the caller.
    pub(crate) fn bearer(&self, headers: &HeaderMap) -> Result<BearerCheck, AdapterRefusal> {
        let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(BearerCheck::Absent) };
        let token = value
            .to_str()
            .ok()
            .and_then(|value| value.split_once(' '))
            .and_then(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()));
        match token {
            Some(token) if self.secret.matches(token) => Ok(BearerCheck::Right),
            _ => Err(unauthenticated("the adapter's secret is wrong")),
        }
    }

    fn is_own(&self, authority: &Authority) -> bool {
        let port_is_own = authority.port_u16().unwrap_or(80) == self.address.port();
        let host = authority.host();
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let loopback =
            address.parse::<IpAddr>().map_or(host.eq_ignore_ascii_case("localhost"), |address| address.is_loopback());
        port_is_own && loopback && !authority.as_str().contains('@')
    }
}

pub(crate) fn unauthenticated(message: &str) -> AdapterRefusal {
    AdapterRefusal::new(
        Code::Unauthenticated,
        message,
        "Send `Authorization: Bearer <secret>`; our adapters write it to $A2A_HOME/adapters/<host>_<port>.",
    )
}

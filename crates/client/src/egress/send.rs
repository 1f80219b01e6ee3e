//! Calls a checked URL: one connection to a checked address, no redirects, no proxy, limited size and time.

use std::{error::Error as _, sync::OnceLock};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use reqwest::{Body, Client, Method, Response, header::HeaderMap};

use super::{
    CheckedUrl, EgressFailure, EgressGuard, EgressGuardShared, EgressLimits, EgressRefusal, UrlHost,
    resolver::GuardedResolver,
};
use crate::tls;

#[derive(Debug, Clone)]
pub struct EgressRequest {
    pub method: Method,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The response, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressReply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A response whose body is streamed.
#[derive(Debug)]
pub struct StreamedReply {
    pub status: u16,
    pub headers: HeaderMap,
    target: CheckedUrl,
    limits: EgressLimits,
    response: Response,
    /// Bytes received so far.
    length: u64,
}

/// An HTTP/2 response whose body is streamed and ends with trailers.
#[derive(Debug)]
pub struct FramedReply {
    pub status: u16,
    pub headers: HeaderMap,
    target: CheckedUrl,
    limits: EgressLimits,
    body: Body,
    length: u64,
    trailers: Option<HeaderMap>,
}

/// One client per combination of (encrypted or not), (rule required or not) and (HTTP/2 only or not), created on
/// demand: plain http needs no certificates, which may be missing.
#[derive(Debug, Default)]
pub(super) struct EgressClients([OnceLock<Result<Client, EgressFailure>>; 8]);

/// The HTTP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HttpMode {
    /// Negotiated with the server.
    Any,
    Two,
}

// === impl EgressGuard ===

impl EgressGuard {
    /// Posts a body and reads the response.
    pub async fn post(
        &self,
        target: &CheckedUrl,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<EgressReply, EgressFailure> {
        self.send(target, EgressRequest { method: Method::POST, headers, body }).await
    }

    /// Sends one request and reads the response. No retries, no redirects.
    pub async fn send(&self, target: &CheckedUrl, request: EgressRequest) -> Result<EgressReply, EgressFailure> {
        let answered = async { self.open(target, request).await?.read().await };
        let timed_out = || EgressFailure::TimedOut { origin: target.origin() };
        tokio::time::timeout(self.0.limits.total, answered).await.unwrap_or_else(|_| Err(timed_out()))
    }

    /// Sends one request and returns when the response starts. No retries, no redirects.
    pub async fn open(&self, target: &CheckedUrl, request: EgressRequest) -> Result<StreamedReply, EgressFailure> {
        let (status, headers, response) = self.begin(target, HttpMode::Any, request).await?;
        Ok(StreamedReply { status, headers, target: target.clone(), limits: self.0.limits, response, length: 0 })
    }

    /// The same over HTTP/2 and with trailers, for gRPC.
    pub async fn open_framed(
        &self,
        target: &CheckedUrl,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<FramedReply, EgressFailure> {
        let request = EgressRequest { method: Method::POST, headers, body };
        let (status, headers, response) = self.begin(target, HttpMode::Two, request).await?;
        let (target, limits, body) = (target.clone(), self.0.limits, Body::from(response));
        Ok(FramedReply { status, headers, target, limits, body, length: 0, trailers: None })
    }

    async fn begin(
        &self,
        target: &CheckedUrl,
        mode: HttpMode,
        request: EgressRequest,
    ) -> Result<(u16, HeaderMap, Response), EgressFailure> {
        self.admit(target)?;
        let EgressRequest { method, headers, body } = request;
        let client = self.0.clients.get(&self.0, target, mode)?;
        let sent = client.request(method, target.url().clone()).headers(headers).body(body).send();
        let mut response = tokio::time::timeout(self.0.limits.total, sent)
            .await
            .map_err(|_| EgressFailure::TimedOut { origin: target.origin() })?
            .map_err(|error| failure(target, error))?;
        let headers = std::mem::take(response.headers_mut());
        Ok((response.status().as_u16(), headers, response))
    }
}

// === impl FramedReply ===

impl FramedReply {
    /// The next piece of the body. `None` at its end, when the trailers are known.
    pub async fn next(&mut self) -> Result<Option<Bytes>, EgressFailure> {
        loop {
            let origin = || self.target.origin();
            let frame = tokio::time::timeout(self.limits.silence, self.body.frame())
                .await
                .map_err(|_| EgressFailure::TimedOut { origin: origin() })?
                .transpose()
                .map_err(|error| failure(&self.target, error))?;
            let Some(frame) = frame else { return Ok(None) };
            match frame.into_data() {
                Ok(bytes) => {
                    self.length += bytes.len() as u64;
                    if self.length > self.limits.stream {
                        let limit = usize::try_from(self.limits.stream).unwrap_or(usize::MAX);
                        return Err(EgressFailure::TooLarge { origin: origin(), status: self.status, limit });
                    }
                    return Ok(Some(bytes));
                }
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
    }

    pub const fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }
}

// === impl StreamedReply ===

impl StreamedReply {
    /// The next piece of the body. `None` at its end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, EgressFailure> {
        let origin = || self.target.origin();
        let chunk = tokio::time::timeout(self.limits.silence, self.response.chunk())
            .await
            .map_err(|_| EgressFailure::TimedOut { origin: origin() })?
            .map_err(|error| failure(&self.target, error))?;
        self.length += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        if self.length > self.limits.stream {
            let limit = usize::try_from(self.limits.stream).unwrap_or(usize::MAX);
            return Err(EgressFailure::TooLarge { origin: origin(), status: self.status, limit });
        }
        Ok(chunk)
    }

    /// The rest of the body, within the size limit of a complete response.
    pub async fn read(mut self) -> Result<EgressReply, EgressFailure> {
        let EgressLimits { total, reply: limit, .. } = self.limits;
        let (status, origin) = (self.status, self.target.origin());
        self.limits.silence = total;
        let all = async {
            let mut body = BytesMut::new();
            while let Some(chunk) = self.next().await? {
                if body.len() + chunk.len() > limit {
                    return Err(EgressFailure::TooLarge { origin: origin.clone(), status, limit });
                }
                body.extend_from_slice(&chunk);
            }
            Ok(body.freeze())
        };
        let body = tokio::time::timeout(total, all)
            .await
            .map_err(|_| EgressFailure::TimedOut { origin: origin.clone() })??;
        Ok(EgressReply { status, headers: self.headers, body })
    }
}

/// Finds the guard's own refusal inside the HTTP client's error.
fn failure(target: &CheckedUrl, error: reqwest::Error) -> EgressFailure {
    // The URL may contain a secret.
    let error = error.without_url();
    let mut reason = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        match inner.downcast_ref::<EgressFailure>() {
            // The resolver can't see whether the port or the scheme needs a rule.
            Some(EgressFailure::Refused(unruled @ EgressRefusal::PlainHttp { .. })) => {
                return EgressFailure::Refused(target.needs_rule().unwrap_or_else(|| unruled.clone()));
            }
            Some(failure) => return failure.clone(),
            None => reason = inner.to_string(),
        }
        source = inner.source();
    }
    if error.is_connect() {
        EgressFailure::Unreachable { origin: target.origin(), reason }
    } else if error.is_timeout() {
        EgressFailure::TimedOut { origin: target.origin() }
    } else {
        EgressFailure::Broken { origin: target.origin(), reason }
    }
}

// === impl EgressClients ===

impl EgressClients {
    fn get(&self, guard: &EgressGuardShared, target: &CheckedUrl, http: HttpMode) -> Result<&Client, EgressFailure> {
        let unruled = match target.host() {
            UrlHost::Name(_) => target.needs_rule(),
            // A literal address was checked before, and is never resolved.
            UrlHost::Address(_) => None,
        };
        let index = usize::from(http == HttpMode::Two) * 4
            + usize::from(target.is_plain()) * 2
            + usize::from(unruled.is_some());
        let make = || {
            let unruled = unruled.map(|_| EgressRefusal::PlainHttp { origin: String::new() });
            build(guard, target.is_plain(), unruled, http)
        };
        self.0[index].get_or_init(make).as_ref().map_err(Clone::clone)
    }
}

fn build(
    guard: &EgressGuardShared,
    is_plain: bool,
    unruled: Option<EgressRefusal>,
    http: HttpMode,
) -> Result<Client, EgressFailure> {
    let judging = GuardedResolver {
        policy: guard.policy.clone(),
        resolver: guard.resolver.clone(),
        patience: guard.limits.connect,
        unruled,
    };
    let mut builder = Client::builder()
        .user_agent(concat!("attache/", env!("CARGO_PKG_VERSION")))
        .dns_resolver(judging)
        // A proxy would resolve the name itself, and a redirect would lead to an unchecked target.
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        // Every call is checked again, which a reused connection would bypass.
        .pool_max_idle_per_host(0)
        .connect_timeout(guard.limits.connect)
        .tcp_nodelay(true);
    if http == HttpMode::Two {
        builder = builder.http2_prior_knowledge();
    }
    if is_plain {
        builder = builder.tls_certs_only([]);
    } else if let Some(pin) = guard.pin {
        let offered: &[&str] = if http == HttpMode::Two { &["h2"] } else { &["h2", "http/1.1"] };
        let config = tls::pinned(pin, offered);
        builder = builder
            .tls_backend_preconfigured(config.map_err(|error| EgressFailure::NoTls { reason: error.to_string() })?);
    }
    builder.build().map_err(|error| {
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        EgressFailure::NoTls { reason }
    })
}

// === impl EgressReply ===

impl EgressReply {
    pub const fn is_success(&self) -> bool {
        matches!(self.status, 200..=299)
    }
}

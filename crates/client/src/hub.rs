//! The HTTP client of one hub: builds and sends requests, retries them where that is safe, and reads the responses.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use attache_protocol::{Code, env::Env};
use bytes::Bytes;
use reqwest::{
    Client, Method, Response, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Backoff, Error, HubAddress, HubClientOptions, HubCredential, Result, Timeouts, tls};

/// A client of one hub with one credential. Clones share connections.
#[derive(Clone)]
pub struct HubClient(Arc<HubClientShared>);

struct HubClientShared {
    client: Client,
    /// Sent with every request. Replaced when a token is rotated.
    credential: RwLock<HeaderMap>,
    address: HubAddress,
    timeouts: Timeouts,
    env: Env,
}

/// Which part of a list to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageQuery {
    pub limit: Option<u32>,
    /// `next_cursor` of the previous page.
    pub cursor: Option<String>,
}

/// One request, before it is sent.
#[derive(Debug, Clone)]
pub(crate) struct HubRequest {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) body: Option<Bytes>,
    pub(crate) repeat: RetrySafety,
    /// Added to the usual time limit, for intentionally slow responses.
    pub(crate) patience: Duration,
    /// `Idempotency-Key`.
    pub(crate) key: Option<String>,
}

/// Whether it is safe to send the same request twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetrySafety {
    Safe,
    Never,
}

/// No response of the platform API is larger. Artifacts and streams aren't read at once.
const MAX_REPLY: usize = 64 << 20;
const MAX_ATTEMPTS: u32 = 4;

// === impl HubClient ===

impl HubClient {
    pub fn new(options: HubClientOptions) -> Result<Self> {
        let address = HubAddress::of(&options)?;
        let builder = Client::builder()
            .user_agent(concat!("attache/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(options.timeouts.connect)
            // A redirect or a proxy could carry the credential to an unintended server.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .tcp_nodelay(true);
        let builder = if address.is_encrypted() {
            builder.tls_backend_preconfigured(tls::config(&options, &["h2", "http/1.1"])?)
        } else {
            // Without TLS the machine's certificates aren't needed. They may be missing and are slow to load.
            builder.tls_certs_only([])
        };
        let client = builder.build().map_err(|error| Error::Invalid {
            what: format!("can't set up TLS: {}", chain(&error)),
            hint: "Install the package ca-certificates.".to_owned(),
        })?;
        let credential = RwLock::new(headers(&options.credential)?);
        let HubClientOptions { timeouts, env, .. } = options;
        Ok(Self(Arc::new(HubClientShared { client, credential, address, timeouts, env })))
    }

    /// Switches to another credential, for all clones.
    pub fn renew(&self, credential: &HubCredential) -> Result<()> {
        *self.0.credential.write().unwrap_or_else(PoisonError::into_inner) = headers(credential)?;
        Ok(())
    }

    pub fn address(&self) -> &HubAddress {
        &self.0.address
    }

    pub(crate) fn env(&self) -> &Env {
        &self.0.env
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.0.timeouts
    }

    /// `/api/v1/…`
    pub(crate) fn api(&self, segments: &[&str]) -> Url {
        let mut all = vec!["api", "v1"];
        all.extend_from_slice(segments);
        self.0.address.url(&all)
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, url: Url) -> Result<T> {
        self.ask(&HubRequest::new(Method::GET, url).retry_safety(RetrySafety::Safe)).await
    }

    pub(crate) async fn post<B: Serialize + Sync, T: DeserializeOwned>(&self, url: Url, body: &B) -> Result<T> {
        self.ask(&HubRequest::new(Method::POST, url).json(body)).await
    }

    pub(crate) async fn delete(&self, url: Url) -> Result<()> {
        self.send(&HubRequest::new(Method::DELETE, url)).await.map(drop)
    }

    /// Sends a request and reads the response as JSON.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, ask: &HubRequest) -> Result<T> {
        let (_, body) = self.send(ask).await?;
        self.decode(&body)
    }

    pub(crate) fn decode<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T> {
        // serde_json's message contains a position and a type, never the content.
        serde_json::from_slice(body)
            .map_err(|error| self.bad_reply(&format!("its JSON doesn't have the expected form ({error})")))
    }

    /// Sends a request until it is answered, or the retries are used up.
    pub(crate) async fn send(&self, ask: &HubRequest) -> Result<(u16, Bytes)> {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
        loop {
            let used = self.credential();
            let error = match self.send_once(ask).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // The token was rotated during the request. The old one had no effect.
            if error.code() == Some(Code::TokenReplaced) && self.credential() != used {
                continue;
            }
            let hopeless = !error.is_passing() || matches!(error, Error::Untrusted { .. });
            if ask.repeat == RetrySafety::Never || hopeless || backoff.tries() + 1 >= MAX_ATTEMPTS {
                return Err(error);
            }
            tracing::debug!(%error, "retrying the request");
            tokio::time::sleep(backoff.next(&self.0.env)).await;
        }
    }

    async fn send_once(&self, ask: &HubRequest) -> Result<(u16, Bytes)> {
        let limit = self.0.timeouts.request.saturating_add(ask.patience);
        let mut request = self.request(ask.method.clone(), ask.url.clone()).timeout(limit);
        request = request.header(ACCEPT, "application/json");
        if let Some(body) = &ask.body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        if let Some(key) = &ask.key {
            let key = HeaderValue::from_str(key).map_err(|_| Error::Invalid {
                what: "the idempotency key contains characters that aren't allowed in a header".to_owned(),
                hint: "Use printable ASCII without spaces.".to_owned(),
            })?;
            request = request.header("idempotency-key", key);
        }
        let response = self.execute(request).await?;
        let status = response.status().as_u16();
        let body = self.read(response).await?;
        if (200..300).contains(&status) { Ok((status, body)) } else { Err(self.refused(status, &body)) }
    }

    pub(crate) fn request(&self, method: Method, url: Url) -> reqwest::RequestBuilder {
        self.0.client.request(method, url).headers(self.credential())
    }

    fn credential(&self) -> HeaderMap {
        self.0.credential.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a request and returns the response with its body unread.
    pub(crate) async fn execute(&self, request: reqwest::RequestBuilder) -> Result<Response> {
        request.send().await.map_err(|error| self.unreachable(&error))
    }

    pub(crate) async fn read(&self, mut response: Response) -> Result<Bytes> {
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| self.unreachable(&error))? {
            if body.len() + part.len() > MAX_REPLY {
                return Err(self.bad_reply("the response is too large"));
            }
            body.extend_from_slice(&part);
        }
        Ok(body.into())
    }

    pub(crate) fn refused(&self, status: u16, body: &[u8]) -> Error {
        Error::from_reply(&self.0.address.origin(), status, body)
    }

    pub(crate) fn bad_reply(&self, reason: &str) -> Error {
        Error::BadReply { address: self.0.address.origin(), reason: reason.to_owned() }
    }

    pub(crate) fn unreachable(&self, error: &reqwest::Error) -> Error {
        if let Some(untrusted) = tls::distrusted(&self.0.address.origin(), error) {
            return untrusted;
        }
        let reason = if error.is_timeout() { "no answer in time".to_owned() } else { chain(error) };
        Error::Unreachable { address: self.0.address.origin(), reason }
    }
}

impl fmt::Debug for HubClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hub({})", self.0.address)
    }
}

pub(crate) fn headers(credential: &HubCredential) -> Result<HeaderMap> {
    let (name, text) = match credential {
        HubCredential::Key(key) => (AUTHORIZATION, format!("Bearer {}", key.expose().trim())),
        HubCredential::RuntimeToken(token) => {
            (reqwest::header::HeaderName::from_static("x-runtime-token"), token.expose().trim().to_owned())
        }
        HubCredential::None => return Ok(HeaderMap::new()),
    };
    let mut value = HeaderValue::from_str(&text).map_err(|_| Error::Invalid {
        what: "the key or token contains characters that aren't allowed in a header".to_owned(),
        hint: "Check the file it was read from. It must contain only the key and a newline.".to_owned(),
    })?;
    value.set_sensitive(true);
    Ok(HeaderMap::from_iter([(name, value)]))
}

/// The innermost cause, which people can act on. URLs are left out, because they may contain a pairing code.
pub(crate) fn chain(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    if cause.is::<reqwest::Error>() { "the request failed".to_owned() } else { cause.to_string() }
}

// === impl HubRequest ===

impl HubRequest {
    pub(crate) const fn new(method: Method, url: Url) -> Self {
        Self { method, url, body: None, repeat: RetrySafety::Never, patience: Duration::ZERO, key: None }
    }

    pub(crate) fn json<B: Serialize>(self, body: &B) -> Self {
        let body = serde_json::to_vec(body).expect("our own types serialise to JSON");
        Self { body: Some(body.into()), ..self }
    }

    pub(crate) fn retry_safety(self, repeat: RetrySafety) -> Self {
        Self { repeat, ..self }
    }

    pub(crate) fn key(self, key: String) -> Self {
        Self { key: Some(key), ..self }
    }

    pub(crate) fn timeout(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }
}

// === impl PageQuery ===

impl PageQuery {
    pub(crate) fn write(&self, url: &mut Url) {
        if let Some(limit) = self.limit {
            url.query_pairs_mut().append_pair("limit", &limit.to_string());
        }
        if let Some(cursor) = &self.cursor {
            url.query_pairs_mut().append_pair("cursor", cursor);
        }
    }
}

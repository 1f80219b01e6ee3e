//! One operation as it goes out: over JSON-RPC by its name, over HTTP+JSON by its path.

use std::fmt::Write as _;

use attache_protocol::{
    Json,
    wire::a2a::{Method, RpcRequest},
};
use bytes::Bytes;
use reqwest::{
    Method as Verb, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};

use super::{
    Error, PeerCredentials, PeerInterface, Result,
    credentials::KeyPlacement,
    dialect::{PeerBinding, PeerVersion},
};
use crate::egress::{CheckedUrl, EgressGuard, EgressRequest};

/// What is asked, in the words of both bindings.
#[derive(Debug)]
pub(super) struct PeerOperation {
    pub(super) method: Method,
    /// Of JSON-RPC, in the peer's version.
    pub(super) params: Json,
    pub(super) verb: Verb,
    /// Below the interface's URL, each already fit for a URL.
    pub(super) path: String,
    pub(super) query: Vec<(&'static str, String)>,
    /// Of HTTP+JSON.
    pub(super) body: Option<Json>,
}

/// What every request of a caller carries besides what it asks.
#[derive(Debug)]
pub(super) struct PeerRequestContext<'a> {
    pub(super) interface: &'a PeerInterface,
    pub(super) credentials: &'a PeerCredentials,
    pub(super) place: &'a KeyPlacement,
    pub(super) traceparent: Option<&'a str>,
    pub(super) extensions: &'a [String],
}

/// Whether the answer is one text or a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerForm {
    Whole,
    Stream,
}

const VERSION: HeaderName = HeaderName::from_static("a2a-version");
const EXTENSIONS: HeaderName = HeaderName::from_static("a2a-extensions");
const OLD_EXTENSIONS: HeaderName = HeaderName::from_static("x-a2a-extensions");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

// === impl PeerRequestContext ===

impl PeerRequestContext<'_> {
    pub(super) fn build(
        &self,
        guard: &EgressGuard,
        ask: PeerOperation,
        id: u64,
        answer: AnswerForm,
    ) -> Result<(CheckedUrl, EgressRequest)> {
        let PeerInterface { url, version, binding, tenant } = self.interface;
        // The text as the card has it is judged first: what comes after is read from it.
        guard.check(url)?;
        let origin = crate::egress::origin(url);
        let mut url = Url::parse(url).map_err(|error| Error::not_understood(origin, error))?;
        let (verb, body) = match binding {
            PeerBinding::JsonRpc => {
                let method = match version {
                    PeerVersion::V10 => Some(ask.method.name()),
                    PeerVersion::V03 => ask.method.old_name(),
                };
                let method = method.ok_or(Error::Unsupported { version: version.as_str(), what: ask.method.name() })?;
                let (method, params, id) = (method.to_owned(), Some(ask.params), Some(Json::of(&id)));
                (Verb::POST, Some(Json::of(&RpcRequest { jsonrpc: "2.0".to_owned(), id, method, params })))
            }
            PeerBinding::HttpJson | PeerBinding::Grpc => {
                let mut path = url.path().trim_end_matches('/').to_owned();
                if let Some(tenant) = tenant {
                    path.push('/');
                    path.push_str(&segment(tenant)?);
                }
                // 0.3 has its own number in every path.
                if *version == PeerVersion::V03 {
                    path.push_str("/v1");
                }
                path.push_str(&ask.path);
                url.set_path(&path);
                for (name, value) in &ask.query {
                    url.query_pairs_mut().append_pair(name, value);
                }
                (ask.verb, ask.body)
            }
        };
        let mut headers = HeaderMap::new();
        let accept = match answer {
            AnswerForm::Whole => "application/json, application/a2a+json",
            AnswerForm::Stream => "text/event-stream, application/json",
        };
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        self.service_parameters(&mut headers);
        self.credentials.apply(self.place, &mut url, &mut headers)?;
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.get().to_owned()));
        Ok((guard.check(url.as_str())?, EgressRequest { method: verb, headers, body }))
    }

    pub(super) fn service_parameters(&self, headers: &mut HeaderMap) {
        if let Ok(extensions) = HeaderValue::from_str(&self.extensions.join(", "))
            && !self.extensions.is_empty()
        {
            if self.interface.version == PeerVersion::V03 {
                headers.insert(OLD_EXTENSIONS, extensions.clone());
            }
            headers.insert(EXTENSIONS, extensions);
        }
        if self.interface.version == PeerVersion::V10 {
            headers.insert(VERSION, HeaderValue::from_static("1.0"));
        }
        if let Some(traceparent) = self.traceparent.and_then(|text| HeaderValue::from_str(text).ok()) {
            headers.insert(TRACEPARENT, traceparent);
        }
    }
}

/// A text of the peer's as one part of a path. Dots alone would be read as a way up, also when they are escaped.
pub(super) fn segment(text: &str) -> Result<String> {
    if matches!(text, "" | "." | "..") {
        return Err(Error::not_understood(String::from("the peer"), format_args!("an id that is `{text}`")));
    }
    let mut segment = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            segment.push(char::from(byte));
        } else {
            let _ = write!(segment, "%{byte:02X}");
        }
    }
    Ok(segment)
}

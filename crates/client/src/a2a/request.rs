//! Builds the HTTP request of an operation: by method name for JSON-RPC, by path for HTTP+JSON.

use std::fmt::Write as _;

use attache_a2a_wire::{Method, RpcRequest};
use attache_protocol::Json;
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

/// An operation in the terms of both bindings.
#[derive(Debug)]
pub(super) struct PeerOperation {
    pub(super) method: Method,
    /// JSON-RPC parameters, in the version of the remote agent.
    pub(super) params: Json,
    pub(super) verb: Verb,
    /// Relative to the interface's URL, with escaped segments.
    pub(super) path: String,
    pub(super) query: Vec<(&'static str, String)>,
    /// The HTTP+JSON body.
    pub(super) body: Option<Json>,
}

/// Everything a request carries besides the operation itself.
#[derive(Debug)]
pub(super) struct PeerRequestContext<'a> {
    pub(super) interface: &'a PeerInterface,
    pub(super) credentials: &'a PeerCredentials,
    pub(super) place: &'a KeyPlacement,
    pub(super) traceparent: Option<&'a str>,
    pub(super) extensions: &'a [String],
}

/// Whether the answer is one document or a stream.
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
        // The URL is checked exactly as the card has it, because everything else is derived from it.
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
                // 0.3 has the version number in every path.
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

/// A remote text as one path segment. `.` and `..` would change the path even when escaped.
pub(super) fn segment(text: &str) -> Result<String> {
    if matches!(text, "" | "." | "..") {
        return Err(Error::not_understood(String::from("the peer"), format_args!("the id `{text}`")));
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

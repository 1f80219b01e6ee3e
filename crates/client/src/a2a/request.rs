//! One operation as it goes out: over JSON-RPC by its name, over HTTP+JSON by its path.

use std::fmt::Write as _;

use attache_protocol::{
    Json,
    wire::a2a::{Method, Request as RpcRequest},
};
use bytes::Bytes;
use reqwest::{
    Method as Verb, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};

use super::{
    Credentials, Error, Interface, Result,
    credentials::Place,
    dialect::{Binding, Version},
};
use crate::egress::{Checked, Guard, Request};

/// What is asked, in the words of both bindings.
#[derive(Debug)]
pub(super) struct Ask {
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
pub(super) struct Around<'a> {
    pub(super) interface: &'a Interface,
    pub(super) credentials: &'a Credentials,
    pub(super) place: &'a Place,
    pub(super) traceparent: Option<&'a str>,
    pub(super) extensions: &'a [String],
}

/// Whether the answer is one text or a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Whole,
    Stream,
}

const VERSION: HeaderName = HeaderName::from_static("a2a-version");
const EXTENSIONS: HeaderName = HeaderName::from_static("a2a-extensions");
const OLD_EXTENSIONS: HeaderName = HeaderName::from_static("x-a2a-extensions");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

// === impl Around ===

impl Around<'_> {
    pub(super) fn build(&self, guard: &Guard, ask: Ask, id: u64, answer: Answer) -> Result<(Checked, Request)> {
        let Interface { url, version, binding, tenant } = self.interface;
        // The text as the card has it is judged first: what comes after is read from it.
        guard.check(url)?;
        let origin = crate::egress::origin(url);
        let mut url = Url::parse(url).map_err(|error| Error::not_understood(origin, error))?;
        let (verb, body) = match binding {
            Binding::JsonRpc => {
                let method = match version {
                    Version::V10 => Some(ask.method.name()),
                    Version::V03 => ask.method.old_name(),
                };
                let method = method.ok_or(Error::Unsupported { version: version.as_str(), what: ask.method.name() })?;
                let (method, params, id) = (method.to_owned(), Some(ask.params), Some(Json::of(&id)));
                (Verb::POST, Some(Json::of(&RpcRequest { jsonrpc: "2.0".to_owned(), id, method, params })))
            }
            Binding::HttpJson | Binding::Grpc => {
                let mut path = url.path().trim_end_matches('/').to_owned();
                if let Some(tenant) = tenant {
                    path.push('/');
                    path.push_str(&segment(tenant)?);
                }
                // 0.3 has its own number in every path.
                if *version == Version::V03 {
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
            Answer::Whole => "application/json, application/a2a+json",
            Answer::Stream => "text/event-stream, application/json",
        };
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        self.service_parameters(&mut headers);
        self.credentials.apply(self.place, &mut url, &mut headers)?;
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.get().to_owned()));
        Ok((guard.check(url.as_str())?, Request { method: verb, headers, body }))
    }

    pub(super) fn service_parameters(&self, headers: &mut HeaderMap) {
        if let Ok(extensions) = HeaderValue::from_str(&self.extensions.join(", "))
            && !self.extensions.is_empty()
        {
            if self.interface.version == Version::V03 {
                headers.insert(OLD_EXTENSIONS, extensions.clone());
            }
            headers.insert(EXTENSIONS, extensions);
        }
        if self.interface.version == Version::V10 {
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

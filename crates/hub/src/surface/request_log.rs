//! One log line per request: method, route, status, duration and principal. Logs the route pattern, never the path or
//! query, which may contain secrets.

use std::sync::{Arc, OnceLock};

use axum::{
    body::Body,
    extract::MatchedPath,
    http::{Extensions, Method, Request, Response},
};
use tokio::time::Instant;

use crate::Principal;

/// What is learned about a request while it is handled.
#[derive(Debug, Clone, Default)]
struct RequestNotes(Arc<RequestNotesInner>);

#[derive(Debug, Default)]
struct RequestNotesInner {
    route: OnceLock<String>,
    principal: OnceLock<String>,
}

/// A request being served.
#[derive(Debug)]
pub(crate) struct LoggedRequest {
    method: Method,
    at: Instant,
    notes: RequestNotes,
}

/// `RUST_LOG=attache::requests=off` disables them.
pub const LOG_TARGET: &str = "attache::requests";

/// Records the principal. Surfaces with their own authentication call it.
pub fn note_principal(extensions: &Extensions, by: &Principal) {
    if let Some(notes) = extensions.get::<RequestNotes>() {
        let _ = notes.0.principal.set(by.actor().to_string());
    }
}

/// A router layer that records the route once it is known.
pub(crate) async fn note_route(request: Request<Body>) -> Request<Body> {
    let (notes, route) = (request.extensions().get::<RequestNotes>(), request.extensions().get::<MatchedPath>());
    if let (Some(notes), Some(route)) = (notes, route) {
        let _ = notes.0.route.set(route.as_str().to_owned());
    }
    request
}

// === impl LoggedRequest ===

impl LoggedRequest {
    /// `None` if this log is disabled.
    pub(crate) fn begin(request: &mut Request<Body>) -> Option<Self> {
        if !tracing::enabled!(target: LOG_TARGET, tracing::Level::INFO) {
            return None;
        }
        let notes = RequestNotes::default();
        request.extensions_mut().insert(notes.clone());
        Some(Self { method: request.method().clone(), at: Instant::now(), notes })
    }

    pub(crate) fn end(self, response: &Response<Body>) {
        let Self { method, at, notes } = self;
        let (status, millis) = (response.status().as_u16(), at.elapsed().as_secs_f64() * 1000.0);
        let route = notes.0.route.get().map_or("-", String::as_str);
        let principal = notes.0.principal.get().map_or("-", String::as_str);
        tracing::info!(target: LOG_TARGET, %method, route, status, ms = format_args!("{millis:.1}"), principal, "request");
    }
}

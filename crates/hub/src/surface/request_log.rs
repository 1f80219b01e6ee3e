//! One line of the log per request: method, route, status, time, and who asked. Never a path or a query, which may hold
//! secrets, but the pattern that the path fits.

use std::sync::{Arc, OnceLock};

use axum::{
    body::Body,
    extract::MatchedPath,
    http::{Extensions, Method, Request, Response},
};
use tokio::time::Instant;

use crate::Principal;

/// What is found out about a request on its way in.
#[derive(Debug, Clone, Default)]
struct RequestNotes(Arc<RequestNotesInner>);

#[derive(Debug, Default)]
struct RequestNotesInner {
    route: OnceLock<String>,
    principal: OnceLock<String>,
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct RequestLog {
    method: Method,
    at: Instant,
    notes: RequestNotes,
}

/// `RUST_LOG=attache::requests=off` leaves them out.
pub const LOG_TARGET: &str = "attache::requests";

/// Writes down who asks. A surface that authenticates in its own way calls it.
pub fn note_principal(extensions: &Extensions, by: &Principal) {
    if let Some(notes) = extensions.get::<RequestNotes>() {
        let _ = notes.0.principal.set(by.actor());
    }
}

/// A layer of the router: writes down the route, once it is known.
pub(crate) async fn note_route(request: Request<Body>) -> Request<Body> {
    let (notes, route) = (request.extensions().get::<RequestNotes>(), request.extensions().get::<MatchedPath>());
    if let (Some(notes), Some(route)) = (notes, route) {
        let _ = notes.0.route.set(route.as_str().to_owned());
    }
    request
}

// === impl RequestLog ===

impl RequestLog {
    /// None where nobody reads such a log.
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

//! The bindings: each translates a request into an operation, and the operation's result into a response.

mod grpc;
mod read;
mod reply;
mod rest;
mod rest_v03;
mod rpc;
mod rpc_v03;
mod sse;

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::Request,
    routing::{any, get, post},
};

use crate::{ServerContext, agent_request::A2aVersion};
use rest::RestSegments;

/// Maximum size of a request: a message may contain files.
const BODY_LIMIT: usize = 4 << 20;
/// Maximum size of an anonymous request.
const STRANGER_LIMIT: usize = 1 << 20;

/// JSON-RPC and HTTP+JSON of both versions below `/a2a/{agent}`, and below `/a2a` for the default agent. `tenant`, in a
/// path or a request, names an agent.
pub(crate) fn routes(site: &ServerContext) -> Router<ServerContext> {
    Router::new()
        .route("/a2a", post(rpc::default_agent))
        .route("/a2a/", post(rpc::default_agent))
        .route("/a2a/{agent}", post(rpc::agent))
        .route("/a2a/{agent}/", post(rpc::agent))
        .merge(grpc::routes(site))
        .merge(bound("/a2a"))
        .merge(bound("/a2a/{agent}"))
        .merge(bound("/a2a/{agent}/{tenant}"))
        .route("/a2a/{agent}/{tenant}", any(rest::nothing))
        .route("/a2a/{agent}/{tenant}/{*rest}", any(rest::nothing))
        .method_not_allowed_fallback(rest::nothing)
}

/// An HTTP+JSON operation with the shared request handling.
macro_rules! at {
    ($version:ident $operation:path) => {
        |State(site): State<ServerContext>, path: Path<RestSegments>, request: Request<Body>| {
            rest::serve(site, path, request, A2aVersion::$version, $operation)
        }
    };
}

fn bound(base: &str) -> Router<ServerContext> {
    let path = |rest: &str| format!("{base}{rest}");
    Router::new()
        .route(&path("/message:send"), post(at!(V10 rest::send)))
        .route(&path("/message:stream"), post(at!(V10 rest::stream)))
        .route(&path("/tasks"), get(at!(V10 rest::list)))
        .route(&path("/tasks/{id}"), any(at!(V10 rest::task)))
        .route(
            &path("/tasks/{id}/pushNotificationConfigs"),
            get(at!(V10 rest::push_list)).post(at!(V10 rest::push_create)),
        )
        .route(
            &path("/tasks/{id}/pushNotificationConfigs/{config}"),
            get(at!(V10 rest::push_get)).delete(at!(V10 rest::push_delete)),
        )
        .route(&path("/extendedAgentCard"), get(at!(V10 rest::extended_card)))
        .route(&path("/v1/message:send"), post(at!(V03 rest_v03::send)))
        .route(&path("/v1/message:stream"), post(at!(V03 rest_v03::stream)))
        .route(&path("/v1/tasks/{id}"), any(at!(V03 rest_v03::task)))
        .route(
            &path("/v1/tasks/{id}/pushNotificationConfigs"),
            get(at!(V03 rest_v03::push_list)).post(at!(V03 rest_v03::push_create)),
        )
        .route(
            &path("/v1/tasks/{id}/pushNotificationConfigs/{config}"),
            get(at!(V03 rest_v03::push_get)).delete(at!(V03 rest_v03::push_delete)),
        )
        .route(&path("/v1/card"), get(at!(V03 rest_v03::card)))
}

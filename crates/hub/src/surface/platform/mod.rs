//! The platform's REST API: one file per resource.
//!
//! To add a route: write the handler with its `#[utoipa::path]`, name it in the `operations!` of its file, and regenerate the
//! document with `cargo run -p attache-hub --example openapi > openapi/openapi.json`. A test compares router and document.

mod account;
mod artifact;
mod audit;
mod channel;
mod conversation;
mod delegation;
mod deliveries;
mod document;
mod event;
mod host_session;
mod input;
mod key;
mod login;
mod message;
mod names;
mod notification;
mod pairing;
mod permission;
mod pull_body;
mod quotas;
mod range;
mod register;
mod rules;
mod run;
mod run_view;
mod runtime;
mod session;
mod token;
mod tunnel;
mod usage;
mod user;
mod work;
mod worktree;

use attache_protocol::Code;
use axum::{
    Router, body::Body, http::Response, middleware::from_fn_with_state, response::IntoResponse as _, routing::any,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{call, connect, envelope, health, operations::Operations};
use crate::{Error, Handle, Result, control::PageRequest};

pub(in crate::surface) use event::last_event_id;

type HandlerResult = Result<Response<Body>>;

/// Every operation of the hub.
fn operations() -> Operations {
    let parts = [
        account::routes(),
        artifact::routes(),
        audit::routes(),
        channel::routes(),
        conversation::routes(),
        delegation::routes(),
        deliveries::routes(),
        document::routes(),
        event::routes(),
        host_session::routes(),
        input::routes(),
        key::routes(),
        login::routes(),
        message::routes(),
        names::routes(),
        notification::routes(),
        pairing::routes(),
        permission::routes(),
        quotas::routes(),
        register::routes(),
        rules::routes(),
        run::routes(),
        run_view::routes(),
        runtime::routes(),
        session::routes(),
        token::routes(),
        tunnel::routes(),
        usage::routes(),
        user::routes(),
        work::routes(),
        worktree::routes(),
        health::routes(),
        call::routes(),
        connect::routes(),
        envelope::routes(),
    ];
    parts.into_iter().fold(Operations::default(), Operations::merge)
}

/// The complete REST API. It has no fallback, so that other surfaces can be merged with it. Unknown paths under `/api/`
/// get a 404 with an error body.
pub fn router(hub: Handle) -> Router {
    let (router, _) = operations().split_for_parts();
    let router = router.route_layer(from_fn_with_state(hub.clone(), tunnel::pass_on));
    router.method_not_allowed_fallback(wrong_method).route("/api/{*rest}", any(no_such_path)).with_state(hub)
}

/// The OpenAPI document of [`router`], as pretty JSON.
pub fn openapi() -> String {
    let mut document = operations().into_openapi();
    document::complete(&mut document);
    let mut text = document.to_pretty_json().expect("the document serialises to JSON");
    text.push('\n');
    text
}

/// The response for a path that no surface serves.
pub async fn no_such_path() -> Response<Body> {
    Error::new(Code::NoSuchPath, "This path does not exist.").into_response()
}

async fn wrong_method() -> Response<Body> {
    Error::new(Code::MethodNotAllowed, "This path does not support this method.").into_response()
}

/// `?limit=&cursor=` of every list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct PageParams {
    /// Page size, 1 to 200. Default: 50.
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl PageParams {
    fn page(self) -> PageRequest {
        PageRequest { limit: self.limit, cursor: self.cursor }
    }
}

//! `/api/v1/login-links`.

use attache_protocol::wire::system::LoginLink;
use axum::{extract::State, http::StatusCode};

use super::Answer;
use crate::{
    Handle,
    surface::{extract::Caller, reply},
};

/// Make a link that signs one browser in, once
#[utoipa::path(post, path = "/api/v1/login-links", tag = "keys", responses((status = 201, body = LoginLink)))]
pub(super) async fn create(State(hub): State<Handle>, Caller(by): Caller) -> Answer {
    Ok(reply::json(StatusCode::CREATED, &hub.login_link(&by)?))
}

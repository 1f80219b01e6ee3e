//! `/api/a2a/register`: an agent gets a key of its own.

use attache_protocol::wire::channel::{RegisterAgent, RegisteredAgent};
use axum::{extract::State, http::StatusCode};

use super::HandlerResult;
use crate::{
    Handle,
    surface::{
        extract::{CallerAddress, JsonBody, MaybeCaller},
        reply,
    },
};

/// Register an agent by name and get a key of its own
///
/// It wants a person's key, or `pairing_token`, which binds it to that code's agent. The same name again gets a new key and
/// the key before is void.
#[utoipa::path(post, path = "/api/a2a/register", tag = "channels", request_body = RegisterAgent,
    responses((status = 200, body = RegisteredAgent)), security((), ("api_key" = [])))]
pub(super) async fn create(
    State(hub): State<Handle>,
    MaybeCaller(by): MaybeCaller,
    CallerAddress(from): CallerAddress,
    JsonBody(request): JsonBody<RegisterAgent>,
) -> HandlerResult {
    let registered = hub.register_agent(by.as_ref(), request, from).await?;
    let shown = RegisteredAgent {
        api_key: registered.api_key.expose().clone(),
        agent_id: registered.agent_id,
        account_id: registered.account_id,
    };
    Ok(reply::json(StatusCode::OK, &shown))
}

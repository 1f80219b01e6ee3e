//! `/api/a2a/register`: registers an agent and issues its key.

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

operations!(create);

/// Register an agent by name and get its API key
///
/// Requires a person's key, or a `pairing_token`, which registers the code's agent. Registering the same name again
/// issues a new key and revokes the previous one.
#[utoipa::path(post, path = "/api/a2a/register", tag = "channels", request_body = RegisterAgent,
    responses((status = 200, body = RegisteredAgent)), security((), ("api_key" = [])))]
async fn create(
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

//! `/api/v1/conversations/{id}/messages`.

use attache_protocol::wire::conversation::{AddMessageRequest, ConversationMessage, MessageList};
use axum::{extract::State, http::StatusCode};

use super::{HandlerResult, PageParams};
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, JsonBody, PathSegment, QueryParams, id},
        reply,
    },
};

operations!(list, add);

/// List messages, oldest first, including the inputs and results of runs
#[utoipa::path(get, path = "/api/v1/conversations/{conversation}/messages", tag = "conversations",
    params(("conversation" = String, Path), PageParams), responses((status = 200, body = MessageList)))]
async fn list(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(conversation): PathSegment,
    QueryParams(page): QueryParams<PageParams>,
) -> HandlerResult {
    let conversation = id(&conversation, "conversation")?;
    Ok(reply::json(StatusCode::OK, &hub.messages(&by, conversation, page.page()).await?))
}

/// Add a message; it does not start a run
#[utoipa::path(post, path = "/api/v1/conversations/{conversation}/messages", tag = "conversations",
    params(("conversation" = String, Path)), request_body = AddMessageRequest,
    responses((status = 201, body = ConversationMessage)))]
async fn add(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(conversation): PathSegment,
    JsonBody(request): JsonBody<AddMessageRequest>,
) -> HandlerResult {
    let conversation = id(&conversation, "conversation")?;
    Ok(reply::json(StatusCode::CREATED, &hub.add_message(&by, conversation, request).await?))
}

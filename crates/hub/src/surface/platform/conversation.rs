//! `/api/v1/conversations`.

use attache_protocol::wire::conversation::{Conversation, ConversationList, CreateConversationRequest};
use axum::{extract::State, http::StatusCode, response::IntoResponse as _};

use super::{HandlerResult, PageParams};
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, JsonBody, PathSegment, QueryParams, id},
        reply,
    },
};

operations!(create, list, read, delete);

/// Create a conversation
#[utoipa::path(post, path = "/api/v1/conversations", tag = "conversations", request_body = CreateConversationRequest,
    responses((status = 201, body = Conversation)))]
async fn create(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    JsonBody(request): JsonBody<CreateConversationRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::CREATED, &hub.create_conversation(&by, request).await?))
}

/// List conversations, newest first
#[utoipa::path(get, path = "/api/v1/conversations", tag = "conversations", params(PageParams),
    responses((status = 200, body = ConversationList)))]
async fn list(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(page): QueryParams<PageParams>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.conversations(&by, page.page()).await?))
}

/// Read a conversation
#[utoipa::path(get, path = "/api/v1/conversations/{conversation}", tag = "conversations",
    params(("conversation" = String, Path)), responses((status = 200, body = Conversation)))]
async fn read(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(conversation): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.conversation(&by, id(&conversation, "conversation")?).await?))
}

/// Delete a conversation
///
/// Also deletes its runs, which must have ended, its messages and its artifacts.
#[utoipa::path(delete, path = "/api/v1/conversations/{conversation}", tag = "conversations",
    params(("conversation" = String, Path)), responses((status = 204)))]
async fn delete(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(conversation): PathSegment,
) -> HandlerResult {
    hub.delete_conversation(&by, id(&conversation, "conversation")?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

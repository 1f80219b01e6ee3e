//! `/api/v1/conversations/{id}/messages`.

use attache_protocol::wire::conversation::{AddMessageRequest, Message, MessageList};
use axum::{extract::State, http::StatusCode};

use super::{Answer, PageParams};
use crate::{
    Handle,
    surface::{
        extract::{Caller, Input, Params, Segment, id},
        reply,
    },
};

/// List what was said, oldest first: messages, and the inputs and results of runs
#[utoipa::path(get, path = "/api/v1/conversations/{conversation}/messages", tag = "conversations",
    params(("conversation" = String, Path), PageParams), responses((status = 200, body = MessageList)))]
pub(super) async fn list(
    State(hub): State<Handle>,
    Caller(by): Caller,
    Segment(conversation): Segment,
    Params(page): Params<PageParams>,
) -> Answer {
    let conversation = id(&conversation, "conversation")?;
    Ok(reply::json(StatusCode::OK, &hub.messages(&by, conversation, page.page()).await?))
}

/// Add a message; it never starts work
#[utoipa::path(post, path = "/api/v1/conversations/{conversation}/messages", tag = "conversations",
    params(("conversation" = String, Path)), request_body = AddMessageRequest,
    responses((status = 201, body = Message)))]
pub(super) async fn add(
    State(hub): State<Handle>,
    Caller(by): Caller,
    Segment(conversation): Segment,
    Input(request): Input<AddMessageRequest>,
) -> Answer {
    let conversation = id(&conversation, "conversation")?;
    Ok(reply::json(StatusCode::CREATED, &hub.add_message(&by, conversation, request).await?))
}

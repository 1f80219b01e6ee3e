//! `/api/v1/notification-targets`: where the caller gets notifications.

use attache_protocol::wire::notification::{
    CreateNotificationTarget, NotificationTarget, NotificationTargetList, NotificationTest, UpdateNotificationTarget,
};
use axum::{
    body::Body,
    extract::State,
    http::{Response, StatusCode},
};

use super::HandlerResult;
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, JsonBody, PathSegment, id},
        reply,
    },
};

const WHAT: &str = "notification target";

operations!(list, create, update, remove, test);

/// List the caller's notification targets, in order of creation
#[utoipa::path(get, path = "/api/v1/notification-targets", tag = "notifications",
    responses((status = 200, body = NotificationTargetList)))]
async fn list(State(hub): State<Handle>, AuthenticatedCaller(by): AuthenticatedCaller) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.notification_targets(&by).await?))
}

/// Add a notification target
///
/// It is notified of what the caller's key or session may act on, and ends with it. Chats require an admin. A target with the
/// same address is replaced. docs/notifications.md describes the services.
#[utoipa::path(post, path = "/api/v1/notification-targets", tag = "notifications",
    request_body = CreateNotificationTarget, responses((status = 201, body = NotificationTarget)))]
async fn create(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    JsonBody(request): JsonBody<CreateNotificationTarget>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::CREATED, &hub.create_notification_target(&by, request).await?))
}

/// Change what a target is notified of
#[utoipa::path(patch, path = "/api/v1/notification-targets/{target}", tag = "notifications",
    params(("target" = String, Path)), request_body = UpdateNotificationTarget,
    responses((status = 200, body = NotificationTarget)))]
async fn update(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(target): PathSegment,
    JsonBody(request): JsonBody<UpdateNotificationTarget>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.update_notification_target(&by, id(&target, WHAT)?, request).await?))
}

/// Remove a notification target
#[utoipa::path(delete, path = "/api/v1/notification-targets/{target}", tag = "notifications",
    params(("target" = String, Path)), responses((status = 204, description = "Removed")))]
async fn remove(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(target): PathSegment,
) -> HandlerResult {
    hub.remove_notification_target(&by, id(&target, WHAT)?).await?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// Send a test to a target, and return what its service said
#[utoipa::path(post, path = "/api/v1/notification-targets/{target}/test", tag = "notifications",
    params(("target" = String, Path)), responses((status = 200, body = NotificationTest)))]
async fn test(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(target): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.test_notification_target(&by, id(&target, WHAT)?).await?))
}

//! Pairing: codes created by people, codes shown by devices.

use attache_protocol::wire::pairing::{
    AttachRequest, AttachResponse, PairingCodeResponse, PairingDecision, PairingPollRequest, PairingRequest,
    PairingRequestResponse, PairingRequestView,
};
use axum::{extract::State, http::StatusCode};
use serde::Serialize;

use super::HandlerResult;
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, CallerAddress, JsonBody, PathSegment},
        reply,
    },
};

#[derive(Serialize)]
struct EmptyBody {}

operations!(create_code, attach, request, poll, read, decide);

/// Create a pairing code for an agent; only this response contains it
#[utoipa::path(post, path = "/api/v1/agent-accounts/{agent}/pairing-codes", tag = "pairing",
    params(("agent" = String, Path)), responses((status = 201, body = PairingCodeResponse)))]
async fn create_code(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(agent): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::CREATED, &hub.create_pairing_code(&by, &agent).await?))
}

/// Redeem a pairing code; the device becomes the agent's runtime
#[utoipa::path(post, path = "/api/v1/agent-runtimes/runtime/attach-via-pairing", tag = "pairing",
    request_body = AttachRequest, responses((status = 200, body = AttachResponse)), security(()))]
async fn attach(
    State(hub): State<Handle>,
    CallerAddress(from): CallerAddress,
    JsonBody(request): JsonBody<AttachRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.attach(from, request).await?))
}

/// Request a code to show on a device, for a person to confirm
#[utoipa::path(post, path = "/api/v1/agent-runtimes/runtime/pairing-requests", tag = "pairing",
    request_body = PairingRequest, responses((status = 201, body = PairingRequestResponse)), security(()))]
async fn request(
    State(hub): State<Handle>,
    CallerAddress(from): CallerAddress,
    JsonBody(request): JsonBody<PairingRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::CREATED, &hub.request_pairing(from, request).await?))
}

/// Poll whether a person has confirmed the device; 202 until then
#[utoipa::path(post, path = "/api/v1/agent-runtimes/runtime/pairing-requests/poll", tag = "pairing",
    request_body = PairingPollRequest,
    responses((status = 200, body = AttachResponse), (status = 202, body = attache_protocol::error::ErrorBody)), security(()))]
async fn poll(
    State(hub): State<Handle>,
    CallerAddress(from): CallerAddress,
    JsonBody(request): JsonBody<PairingPollRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.poll_pairing(from, request).await?))
}

/// Show the device behind a code
#[utoipa::path(get, path = "/api/v1/pairing-requests/{code}", tag = "pairing", params(("code" = String, Path)),
    responses((status = 200, body = PairingRequestView)))]
async fn read(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    CallerAddress(from): CallerAddress,
    PathSegment(code): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.pairing_request(&by, from, &code).await?))
}

/// Confirm a device for an agent, or reject it
#[utoipa::path(post, path = "/api/v1/pairing-requests/{code}/decision", tag = "pairing",
    params(("code" = String, Path)), request_body = PairingDecision, responses((status = 200)))]
async fn decide(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    CallerAddress(from): CallerAddress,
    PathSegment(code): PathSegment,
    JsonBody(decision): JsonBody<PairingDecision>,
) -> HandlerResult {
    hub.decide_pairing(&by, from, &code, decision).await?;
    Ok(reply::json(StatusCode::OK, &EmptyBody {}))
}

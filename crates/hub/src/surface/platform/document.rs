//! The OpenAPI document, and what all of its operations share.

use std::sync::OnceLock;

use axum::{
    body::Body,
    http::{HeaderValue, Response, header},
};
use bytes::Bytes;
use utoipa::openapi::{
    InfoBuilder, OpenApi,
    security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
};

operations!(read);

/// Read this document
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "system", security(()),
    responses((status = 200, body = attache_protocol::Json)))]
async fn read() -> Response<Body> {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let bytes = DOCUMENT.get_or_init(|| super::openapi().into()).clone();
    let mut response = Response::new(Body::from(bytes));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Adds title and security schemes.
pub(super) fn complete(document: &mut OpenApi) {
    document.info = InfoBuilder::new()
        .title("Attaché")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("The hub's platform API. docs/api.md explains credentials, errors, paging and streams."))
        .build();
    let components = document.components.get_or_insert_default();
    let key = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("ak_…").build();
    components.add_security_scheme("api_key", SecurityScheme::Http(key));
    let token = ApiKey::Header(ApiKeyValue::new("X-Runtime-Token"));
    components.add_security_scheme("runtime_token", SecurityScheme::ApiKey(token));
    let none: [&str; 0] = [];
    document.security =
        Some(vec![SecurityRequirement::new("api_key", none), SecurityRequirement::new("runtime_token", none)]);
}

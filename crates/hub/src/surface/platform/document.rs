//! The OpenAPI document, and what all of its operations share.

use std::sync::OnceLock;

use axum::{
    body::Body,
    http::{HeaderValue, Response, header},
};
use bytes::Bytes;
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, OpenApi, PathItem, Ref, RefOr, ResponseBuilder,
    path::Operation,
    security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
};

/// Read this document
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "system", security(()),
    responses((status = 200, body = attache_protocol::Json)))]
pub(super) async fn read() -> Response<Body> {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let bytes = DOCUMENT.get_or_init(|| super::openapi().into()).clone();
    let mut response = Response::new(Body::from(bytes));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Adds what all operations share: title, security schemes, error body and operation names.
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
    for (method, path, name) in super::ROUTES {
        let item = document.paths.paths.get_mut(*path);
        if let Some(operation) = item.and_then(|item| operation(item, method)) {
            operation.operation_id = Some((*name).to_owned());
            let body = ContentBuilder::new().schema(Some(Ref::from_schema_name("ErrorBody"))).build();
            let error = ResponseBuilder::new()
                .description("Error: a code from docs/errors.md, a message and a hint")
                .content("application/json", body)
                .build();
            for response in operation.responses.responses.values_mut() {
                if let RefOr::T(response) = response
                    && response.description.is_empty()
                {
                    "Done".clone_into(&mut response.description);
                }
            }
            operation.responses.responses.insert("default".to_owned(), error.into());
        }
    }
}

fn operation<'a>(item: &'a mut PathItem, method: &str) -> Option<&'a mut Operation> {
    match method {
        "get" => item.get.as_mut(),
        "put" => item.put.as_mut(),
        "post" => item.post.as_mut(),
        "patch" => item.patch.as_mut(),
        "delete" => item.delete.as_mut(),
        _ => None,
    }
}

//! The checked-in OpenAPI document is current, and is about every route that the hub serves.

use std::{collections::BTreeSet, sync::LazyLock};

use axum::{
    body::Body,
    http::{Method, Request, StatusCode},
};
use serde_json::Value;
use tower::ServiceExt as _;

use crate::world::World;

/// Routes that are not in the document, and why.
const EXEMPT: &[(&str, &str)] = &[("/api/{*rest}", "the error for a path that doesn't exist")];

/// Method and path of every operation in the document.
pub static ROUTES: LazyLock<Vec<(&'static str, &'static str)>> = LazyLock::new(|| {
    let document: Value = serde_json::from_str(&attache_hub::openapi()).unwrap();
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let path: &str = path.clone().leak();
        routes.extend(item.as_object().unwrap().keys().map(|method| (&*method.clone().leak(), path)));
    }
    routes
});

#[test]
fn the_checked_in_document_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/openapi.json");
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == attache_hub::openapi(),
        "openapi/openapi.json is out of date; run: cargo run -p attache-hub --example openapi > openapi/openapi.json"
    );
}

#[tokio::test]
async fn every_route_is_in_the_document_and_nothing_else() {
    let router = attache_hub::router(World::start().await.hub);
    // The only place where a router says what its paths are.
    let shown = format!("{router:?}");
    let (shown, _) = shown.split_once("fallback_router").unwrap();
    let paths: BTreeSet<&str> = shown
        .split("RouteId(")
        .filter_map(|part| part.split_once("): \"")?.1.split_once('"'))
        .map(|(path, _)| path)
        .collect();
    for (exempt, why) in EXEMPT {
        assert!(paths.contains(exempt), "{exempt} ({why}) is not a route");
    }
    let mut routed = Vec::new();
    for path in paths.into_iter().filter(|path| EXEMPT.iter().all(|(exempt, _)| exempt != path)) {
        for method in [Method::GET, Method::PUT, Method::POST, Method::PATCH, Method::DELETE] {
            let request = Request::builder().method(&method).uri(path.replace(['{', '}'], "")).body(Body::empty());
            let response = router.clone().oneshot(request.unwrap()).await.unwrap();
            if response.status() != StatusCode::METHOD_NOT_ALLOWED {
                routed.push(format!("{} {path}", method.as_str().to_lowercase()));
            }
        }
    }
    let mut documented: Vec<String> = ROUTES.iter().map(|(method, path)| format!("{method} {path}")).collect();
    documented.sort();
    routed.sort();
    assert_eq!(documented, routed);
    assert!(documented.len() >= 97, "{}", documented.len());
}

/// A value that is spelled like a Rust variant is not what goes over the wire.
#[test]
fn values_in_the_document_are_spelled_as_on_the_wire() {
    let document: Value = serde_json::from_str(&attache_hub::openapi()).unwrap();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        for value in schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let is_wire = value == value.to_lowercase() || value == value.to_uppercase();
            assert!(is_wire, "{name} has the value {value}");
        }
    }
    let status = &document["components"]["schemas"]["RunStatus"]["enum"];
    assert_eq!(status, &serde_json::json!(["pending", "running", "completed", "failed", "cancelled"]));
}

#[test]
fn references_in_the_document_resolve_and_names_are_unique() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    match member.as_str() {
                        Some(target) if name == "$ref" => found.push(target.to_owned()),
                        _ => references(member, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let document: Value = serde_json::from_str(&attache_hub::openapi()).unwrap();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(!found.is_empty());
    for target in found {
        assert!(document.pointer(target.trim_start_matches('#')).is_some(), "{target} is missing");
    }
    let operations =
        document["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap().values());
    let names: Vec<&str> = operations.map(|operation| operation["operationId"].as_str().unwrap()).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    assert_eq!(names.len(), ROUTES.len());
}

//! The checked-in OpenAPI document is current and has every route.

use attache_hub::surface::platform::ROUTES;
use serde_json::Value;

#[test]
fn the_checked_in_document_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/openapi.json");
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == attache_hub::openapi(),
        "openapi/openapi.json is out of date; run: cargo run -p attache-hub --example openapi > openapi/openapi.json"
    );
}

#[test]
fn every_route_is_in_the_document_and_nothing_else() {
    let document: Value = serde_json::from_str(&attache_hub::openapi()).unwrap();
    let mut documented: Vec<String> = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            documented.push(format!("{method} {path}"));
        }
    }
    let mut routed: Vec<String> = ROUTES.iter().map(|(method, path, _)| format!("{method} {path}")).collect();
    documented.sort();
    routed.sort();
    assert_eq!(documented, routed);
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
    let mut names: Vec<&str> = ROUTES.iter().map(|(_, _, name)| *name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ROUTES.len());
}

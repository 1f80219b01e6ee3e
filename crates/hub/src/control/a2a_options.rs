//! Validates an agent's A2A options when they are set, so that a typo is reported.

use std::collections::BTreeMap;

use attache_protocol::{Json, json, secret::mask, wire::a2a_options::A2aOptions};

use crate::{Error, Result, check};

const MAX_SIZE: usize = 64 * 1024;
const MAX_EXTENSIONS: usize = 32;
const MAX_MODES: usize = 100;
const BINDINGS: [&str; 3] = ["JSONRPC", "HTTP+JSON", "GRPC"];
/// The members of an extension.
const EXTENSION: [&str; 4] = ["uri", "description", "required", "params"];

pub(super) fn check_a2a_options(a2a: &Json) -> Result<()> {
    check::object("a2a", a2a, MAX_SIZE)?;
    // Invalid options would be read as defaults, which could expose an agent that should be hidden.
    let parsed = a2a.parse::<A2aOptions>();
    let switches =
        parsed.map_err(|error| Error::invalid("a2a", &format!("is invalid: {}", mask(&json::explain(&error)))))?;
    let known = names(&Json::of(&A2aOptions::default()));
    if let Some(name) = names(a2a).iter().find(|name| !known.contains(name)) {
        return Err(unknown("a2a", name, &known));
    }
    let extensions: Vec<Json> = members(a2a).get("extensions").and_then(|list| list.parse().ok()).unwrap_or_default();
    let known = EXTENSION.map(str::to_owned);
    if let Some(name) = extensions.iter().flat_map(names).find(|name| !known.contains(name)) {
        return Err(unknown("a2a.extensions", &name, &known));
    }
    check::count("a2a.extensions", switches.extensions.len(), MAX_EXTENSIONS)?;
    for extension in &switches.extensions {
        check::uri("a2a.extensions.uri", &extension.uri)?;
    }
    for (field, modes) in [("a2a.input_modes", &switches.input_modes), ("a2a.output_modes", &switches.output_modes)] {
        check::count(field, modes.len(), MAX_MODES)?;
        for mode in modes {
            check::line(field, mode, 1..=200)?;
            if !is_media_range(mode) {
                return Err(Error::invalid(
                    field,
                    &format!("contains `{mode}`, which is not a media type such as image/png or image/*"),
                ));
            }
        }
    }
    for (at, binding) in switches.bindings.iter().enumerate() {
        if !BINDINGS.contains(&binding.as_str()) {
            let known = BINDINGS.join(", ");
            return Err(Error::invalid(
                "a2a.bindings",
                &format!("contains an unsupported binding; supported: {known}"),
            ));
        }
        if switches.bindings[..at].contains(binding) {
            return Err(Error::invalid("a2a.bindings", "contains a duplicate binding"));
        }
    }
    Ok(())
}

/// `image/png`, `image/*`, `*/*`.
fn is_media_range(text: &str) -> bool {
    let is_token = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-*".contains(&byte))
    };
    let essence = text.split(';').next().unwrap_or_default().trim();
    essence.split_once('/').is_some_and(|(kind, rest)| is_token(kind) && is_token(rest))
}

fn unknown(within: &str, name: &str, known: &[String]) -> Error {
    let field = format!("{within}.{}", name.chars().take(64).collect::<String>());
    Error::invalid(&field, &format!("is not a known member; known members: {}", known.join(", ")))
}

fn names(object: &Json) -> Vec<String> {
    members(object).into_keys().collect()
}

fn members(object: &Json) -> BTreeMap<String, Json> {
    object.parse().unwrap_or_default()
}

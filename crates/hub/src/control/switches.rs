//! The switches of an agent's A2A face, checked when they are set: a typo must not be silent.

use std::collections::BTreeMap;

use attache_protocol::{Json, json, secret::mask, wire::a2a::Switches};

use crate::{Error, Result, control::check};

const MAX_SIZE: usize = 64 * 1024;
const MAX_EXTENSIONS: usize = 32;
const MAX_MODES: usize = 100;
/// The members of an extension.
const EXTENSION: [&str; 4] = ["uri", "description", "required", "params"];

pub(super) fn check_switches(a2a: &Json) -> Result<()> {
    check::object("a2a", a2a, MAX_SIZE)?;
    // What cannot be read would count as nothing said, and show an agent that is meant to be hidden.
    let read = a2a.parse::<Switches>();
    let switches =
        read.map_err(|error| Error::invalid("a2a", &format!("cannot be read: {}", mask(&json::explain(&error)))))?;
    let known = names(&Json::of(&Switches::default()));
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
        }
    }
    Ok(())
}

fn unknown(within: &str, name: &str, known: &[String]) -> Error {
    let field = format!("{within}.{}", name.chars().take(64).collect::<String>());
    Error::invalid(&field, &format!("is not known here; there are {}", known.join(", ")))
}

fn names(object: &Json) -> Vec<String> {
    members(object).into_keys().collect()
}

fn members(object: &Json) -> BTreeMap<String, Json> {
    object.parse().unwrap_or_default()
}

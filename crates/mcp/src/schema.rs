//! JSON Schemas of the tools, derived from their types and simplified for strict clients.

use std::sync::Arc;

use rmcp::model::JsonObject;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

/// The schema of a tool's arguments.
pub(crate) fn input<T: JsonSchema>() -> Arc<JsonObject> {
    of::<T>(SchemaSettings::draft2020_12().for_deserialize())
}

/// The schema of a tool's result.
pub(crate) fn output<T: JsonSchema>() -> Arc<JsonObject> {
    of::<T>(SchemaSettings::draft2020_12().for_serialize())
}

fn of<T: JsonSchema>(settings: SchemaSettings) -> Arc<JsonObject> {
    let settings = settings.with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    let Value::Object(mut object) = schema else { return Arc::default() };
    object.remove("description");
    Arc::new(object)
}

/// Removes `format` (strict clients warn about `uint64`), the names of Rust types, and `null` alternatives: optional
/// members are omitted instead.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            for member in ["$schema", "title", "format", "default"] {
                // If a property has this name, its value is a schema (an object) and must stay.
                if object.get(member).is_some_and(|value| !value.is_object()) {
                    object.remove(member);
                }
            }
            if let Some(Value::String(words)) = object.get_mut("description") {
                // Undo the line wrapping of doc comments.
                *words = words.replace('\n', " ");
            }
            if let Some(Value::Array(values)) = object.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|one| one != "null");
                if let [only] = &types[..] {
                    let only = only.clone();
                    object.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(cases)) = object.get_mut("anyOf") {
                cases.retain(|case| case.get("type").is_none_or(|kind| kind != "null"));
                if let [Value::Object(only)] = &cases[..] {
                    let only = only.clone();
                    object.remove("anyOf");
                    only.into_iter().for_each(|(name, value)| {
                        object.entry(name).or_insert(value);
                    });
                }
            }
            object.values_mut().for_each(tidy);
        }
        Value::Array(values) => values.iter_mut().for_each(tidy),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

//! Preserves user JSON that gRPC would change: the exact text is sent in the metadata, under our own extension. On the
//! way back, it restores the JSON byte for byte and is removed.

use std::collections::BTreeMap;

use attache_protocol::{
    Json,
    json::{MAX_DEPTH, depth},
};
use prost_types::{Struct, Value, value::Kind};

use super::value;
use crate::invalid_field::InvalidField;

/// The extension's URI, also its key in the metadata. Its members `data` and `metadata` contain the exact JSON of those
/// fields.
pub const EXACT: &str = "https://attache.dev/ext/exact/v1";

const DATA: &str = "data";
const METADATA: &str = "metadata";

/// The user-provided JSON of one A2A object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OriginalJson {
    pub(super) metadata: Option<Json>,
    pub(super) data: Option<Json>,
}

/// The same JSON as carried by gRPC.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct GrpcJson {
    pub(super) metadata: Option<Struct>,
    pub(super) data: Option<Value>,
}

pub(super) fn write_metadata(metadata: Option<Json>) -> Option<Struct> {
    OriginalJson { metadata, data: None }.write().metadata
}

pub(super) fn read_metadata(metadata: Option<Struct>) -> Result<Option<Json>, InvalidField> {
    GrpcJson { metadata, data: None }.read().map(|theirs| theirs.metadata)
}

// === impl OriginalJson ===

impl OriginalJson {
    /// JSON that a Value can't represent is sent as text only, with a placeholder in its place, so that one value
    /// doesn't make the rest unreadable.
    pub(super) fn write(self) -> GrpcJson {
        let mut exact = BTreeMap::new();
        let mut note = |name: &str, json: &Json| exact.insert(name.to_owned(), string(json.get()));
        let data = self.data.map(|json| {
            let value::GrpcValue { value, exact } = read(&json);
            if !exact {
                note(DATA, &json);
            }
            value
        });
        let metadata = self.metadata.map(|json| {
            let (fields, exact) = members(&json);
            // A member with the same name would be mistaken for ours, and an empty object for none.
            if !exact || fields.contains_key(EXACT) || fields.is_empty() {
                note(METADATA, &json);
            }
            (fields, exact)
        });
        let only_empty = exact.len() == 1 && matches!(&metadata, Some((fields, true)) if fields.is_empty());
        let mut metadata = metadata.map(|(fields, _)| fields);
        if !exact.is_empty() && !only_empty {
            let member = Value { kind: Some(Kind::StructValue(Struct { fields: exact })) };
            metadata.get_or_insert_default().insert(EXACT.to_owned(), member);
        }
        GrpcJson { metadata: metadata.map(|fields| Struct { fields }), data }
    }
}

// === impl GrpcJson ===

impl GrpcJson {
    pub(super) fn read(self) -> Result<OriginalJson, InvalidField> {
        if let Some(theirs) = self.restored() {
            return Ok(theirs);
        }
        let metadata = self.metadata.map(|metadata| value::write_object(&metadata.fields)).transpose();
        let data = self.data.map(|data| value::write(&data)).transpose();
        Ok(OriginalJson {
            metadata: metadata.map_err(|problem| InvalidField::new(METADATA, problem))?,
            data: data.map_err(|problem| InvalidField::new(DATA, problem))?,
        })
    }

    /// The exact JSON, if our member is present and each of its texts matches the value beside it.
    fn restored(&self) -> Option<OriginalJson> {
        let carried = &self.metadata.as_ref()?.fields;
        let mut texts = object(carried.get(EXACT)?.clone())?;
        let mut fields = carried.clone();
        fields.remove(EXACT);
        let data = match (texts.remove(DATA), &self.data) {
            (Some(text), Some(data)) => Some(json(&text).filter(|json| means(json, data))?),
            (None, Some(data)) => Some(value::write(data).ok()?),
            (None, None) => None,
            (Some(_), None) => return None,
        };
        let metadata = match texts.remove(METADATA) {
            Some(text) => {
                let json = json(&text)?;
                let (mut exact, _) = members(&json);
                exact.remove(EXACT);
                (exact == fields).then_some(Some(json))?
            }
            None if fields.is_empty() => None,
            None => Some(value::write_object(&fields).ok()?),
        };
        texts.is_empty().then_some(OriginalJson { metadata, data })
    }
}

/// The JSON as a Value, or a placeholder object that says why it is missing.
fn read(json: &Json) -> value::GrpcValue {
    value::read(json).unwrap_or_else(|problem| {
        let fields = BTreeMap::from([(EXACT.to_owned(), string(problem))]);
        value::GrpcValue { value: Value { kind: Some(Kind::StructValue(Struct { fields })) }, exact: false }
    })
}

/// The members of metadata, and whether they represent it completely. A value that is not an object has none.
fn members(json: &Json) -> (BTreeMap<String, Value>, bool) {
    match value::read(json) {
        Ok(read) => object(read.value).map_or_else(Default::default, |fields| (fields, read.exact)),
        Err(_) => Default::default(),
    }
}

fn means(json: &Json, value: &Value) -> bool {
    read(json).value == *value
}

fn string(text: &str) -> Value {
    Value { kind: Some(Kind::StringValue(text.to_owned())) }
}

fn object(value: Value) -> Option<BTreeMap<String, Value>> {
    match value.kind {
        Some(Kind::StructValue(Struct { fields })) => Some(fields),
        _ => None,
    }
}

fn json(text: &Value) -> Option<Json> {
    match &text.kind {
        Some(Kind::StringValue(text)) if depth(text.as_bytes()) <= MAX_DEPTH => Json::from_text(text.clone()).ok(),
        _ => None,
    }
}

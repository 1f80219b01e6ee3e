//! What gRPC would change in a user's JSON travels beside it, as text in the metadata under an extension of our own. Coming
//! back, it restores the JSON to the byte and is taken out again.

use std::collections::BTreeMap;

use prost_types::{Struct, Value, value::Kind};

use super::{
    super::invalid::{Below as _, Invalid},
    value,
};
use crate::Json;

/// The extension's name, and that of its member in the metadata. The member's own members, `data` and `metadata`, hold the
/// exact JSON of what they are named after.
pub const EXACT: &str = "https://attache.dev/ext/exact/v1";

const DATA: &str = "data";
const METADATA: &str = "metadata";

/// The JSON of one object of A2A that belongs to its users.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Theirs {
    pub(super) metadata: Option<Json>,
    pub(super) data: Option<Json>,
}

/// The same as gRPC carries it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Carried {
    pub(super) metadata: Option<Struct>,
    pub(super) data: Option<Value>,
}

pub(super) fn write_metadata(metadata: Option<Json>) -> Result<Option<Struct>, Invalid> {
    Theirs { metadata, data: None }.write().map(|carried| carried.metadata)
}

pub(super) fn read_metadata(metadata: Option<Struct>) -> Result<Option<Json>, Invalid> {
    Carried { metadata, data: None }.read().map(|theirs| theirs.metadata)
}

// === impl Theirs ===

impl Theirs {
    pub(super) fn write(self) -> Result<Carried, Invalid> {
        let mut exact = BTreeMap::new();
        let mut note = |name: &str, json: &Json| {
            exact.insert(name.to_owned(), Value { kind: Some(Kind::StringValue(json.get().to_owned())) });
        };
        let data = match &self.data {
            Some(json) => {
                let read = read(DATA, json)?;
                if !read.exact {
                    note(DATA, json);
                }
                Some(read.value)
            }
            None => None,
        };
        let mut metadata = match &self.metadata {
            Some(json) => {
                let read = read(METADATA, json)?;
                let fields = object(read.value).ok_or_else(|| Invalid::new(METADATA, "must be an object"))?;
                // A member of the same name would be taken for ours, and an empty object for none.
                let is_mistaken = fields.contains_key(EXACT) || fields.is_empty();
                if !read.exact || is_mistaken {
                    note(METADATA, json);
                }
                Some(fields)
            }
            None => None,
        };
        let only_empty = exact.len() == 1 && metadata.as_ref().is_some_and(BTreeMap::is_empty);
        if !exact.is_empty() && !only_empty {
            let member = Value { kind: Some(Kind::StructValue(Struct { fields: exact })) };
            metadata.get_or_insert_default().insert(EXACT.to_owned(), member);
        }
        Ok(Carried { metadata: metadata.map(|fields| Struct { fields }), data })
    }
}

// === impl Carried ===

impl Carried {
    pub(super) fn read(self) -> Result<Theirs, Invalid> {
        if let Some(theirs) = self.restored() {
            return Ok(theirs);
        }
        let metadata = self.metadata.map(|metadata| value::write_object(&metadata.fields)).transpose();
        let data = self.data.map(|data| value::write(&data)).transpose();
        Ok(Theirs {
            metadata: metadata.map_err(|problem| Invalid::new(METADATA, problem))?,
            data: data.map_err(|problem| Invalid::new(DATA, problem))?,
        })
    }

    /// The exact JSON, where our member is there and every text in it means what it stands beside.
    fn restored(&self) -> Option<Theirs> {
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
                let mut exact = object(value::read(&json).ok()?.value)?;
                exact.remove(EXACT);
                (exact == fields).then_some(Some(json))?
            }
            None if fields.is_empty() => None,
            None => Some(value::write_object(&fields).ok()?),
        };
        texts.is_empty().then_some(Theirs { metadata, data })
    }
}

fn read(name: &str, json: &Json) -> Result<value::Read, Invalid> {
    value::read(json).map_err(Invalid::itself).below(name)
}

fn means(json: &Json, value: &Value) -> bool {
    value::read(json).is_ok_and(|read| read.value == *value)
}

fn object(value: Value) -> Option<BTreeMap<String, Value>> {
    match value.kind {
        Some(Kind::StructValue(Struct { fields })) => Some(fields),
        _ => None,
    }
}

fn json(text: &Value) -> Option<Json> {
    match &text.kind {
        Some(Kind::StringValue(text)) => Json::from_text(text.clone()).ok(),
        _ => None,
    }
}

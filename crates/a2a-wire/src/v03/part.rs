//! Parts of 0.3: text, a file or data, distinguished by `kind` or, if a sender omits it, by their members.

use std::fmt;

use attache_protocol::{Json, json::Members};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap as _};

use crate::{Part as New, PartContent};

/// A part in 0.3 format. Parsed and written by hand, because data must be kept as sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartV03(pub New);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileV03 {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}

/// The content of a file, once checked to be exactly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileContentV03 {
    Bytes(String),
    Uri(String),
}

/// The member that wraps data that is not an object.
const VALUE: &str = "value";

// === impl PartV03 ===

impl<'de> Deserialize<'de> for PartV03 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V03PartVisitor;
        impl<'de> de::Visitor<'de> for V03PartVisitor {
            type Value = PartV03;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a part, which is an object")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<PartV03, A::Error> {
                let (mut kind, mut text, mut file, mut data, mut metadata) =
                    (None::<String>, None::<String>, None::<FileV03>, None::<Json>, None::<Json>);
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "kind" => kind = map.next_value()?,
                        "text" => text = map.next_value()?,
                        "file" => file = map.next_value()?,
                        "data" => data = Some(map.next_value()?),
                        "metadata" => metadata = map.next_value()?,
                        _ => drop(map.next_value::<de::IgnoredAny>()?),
                    }
                }
                let kind = match (kind.as_deref(), &text, &file, &data) {
                    (Some(kind), ..) => kind,
                    (None, Some(_), None, None) => "text",
                    (None, None, Some(_), None) => "file",
                    (None, None, None, Some(_)) => "data",
                    (None, ..) => return Err(de::Error::missing_field("kind")),
                };
                let part = match kind {
                    "text" => New::new(PartContent::Text(text.ok_or_else(|| de::Error::missing_field("text"))?)),
                    "file" => {
                        of_file(file.ok_or_else(|| de::Error::missing_field("file"))?).map_err(de::Error::custom)?
                    }
                    "data" => {
                        let data = data.ok_or_else(|| de::Error::missing_field("data"))?;
                        if !data.is_object() {
                            return Err(de::Error::custom("`data` must be an object"));
                        }
                        New::new(PartContent::Data(unwrapped(data)))
                    }
                    other => return Err(de::Error::unknown_variant(other, &["text", "file", "data"])),
                };
                Ok(PartV03(New { metadata, ..part }))
            }
        }
        deserializer.deserialize_map(V03PartVisitor)
    }
}

impl Serialize for PartV03 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let New { content, filename, media_type, metadata } = &self.0;
        let file = |bytes, uri| FileV03 { bytes, uri, name: filename.clone(), mime_type: media_type.clone() };
        let mut map = serializer.serialize_map(None)?;
        match content {
            PartContent::Text(text) => {
                map.serialize_entry("kind", "text")?;
                map.serialize_entry("text", text)?;
            }
            PartContent::Raw(bytes) => {
                map.serialize_entry("kind", "file")?;
                map.serialize_entry("file", &file(Some(bytes.clone()), None))?;
            }
            PartContent::Url(uri) => {
                map.serialize_entry("kind", "file")?;
                map.serialize_entry("file", &file(None, Some(uri.clone())))?;
            }
            PartContent::Data(data) => {
                map.serialize_entry("kind", "data")?;
                map.serialize_entry("data", &wrapped(data))?;
            }
        }
        if let Some(metadata) = metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

fn of_file(file: FileV03) -> Result<New, &'static str> {
    let content = match FileContentV03::of(file.bytes, file.uri)? {
        FileContentV03::Bytes(bytes) => PartContent::Raw(bytes),
        FileContentV03::Uri(uri) => PartContent::Url(uri),
    };
    Ok(New { filename: file.name, media_type: file.mime_type, ..New::new(content) })
}

/// Data as 0.3 can carry it: values other than objects are wrapped.
pub(crate) fn wrapped(data: &Json) -> Json {
    if data.is_object() && unwrapped(data.clone()) == *data {
        return data.clone();
    }
    Json::from_text(format!(r#"{{"{VALUE}":{}}}"#, data.get())).expect("an object with one JSON member is JSON")
}

/// Unwraps `{"value": …}`.
pub(crate) fn unwrapped(data: Json) -> Json {
    match data.parse::<Members>() {
        Ok(Members(mut members)) if members.len() == 1 && members[0].0 == VALUE => members.remove(0).1,
        _ => data,
    }
}

// === impl FileContentV03 ===

impl FileContentV03 {
    fn of(bytes: Option<String>, uri: Option<String>) -> Result<Self, &'static str> {
        match (bytes, uri) {
            (Some(bytes), None) => Ok(Self::Bytes(bytes)),
            (None, Some(uri)) => Ok(Self::Uri(uri)),
            _ => Err("a file must have one of `bytes` and `uri`"),
        }
    }
}

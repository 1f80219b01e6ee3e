//! Parts: exactly one of text, a file and data.

use std::fmt;

use attache_protocol::{Json, json::Members, wire::base64};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap as _};

use super::super::{
    file_bytes,
    part::{unwrapped, wrapped},
};
use crate::{Part as New, PartContent};

/// A part in 0.3 HTTP+JSON format. Parsed and written by hand, because data must be kept as sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestPartV03(pub New);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestFileV03 {
    #[serde(default, alias = "file_with_uri", skip_serializing_if = "Option::is_none")]
    pub file_with_uri: Option<String>,
    /// Base64 of the value that 0.3 puts into its bytes field.
    #[serde(default, alias = "file_with_bytes", skip_serializing_if = "Option::is_none")]
    pub file_with_bytes: Option<String>,
    #[serde(default, alias = "mime_type", skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Unknown to the SDKs 0.3.0 to 0.3.2, known to all later ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The JSON-RPC form, which the 0.3 specification also shows for this binding. Read only.
    #[serde(default, skip_serializing)]
    bytes: Option<String>,
    #[serde(default, skip_serializing)]
    uri: Option<String>,
}

#[derive(Serialize)]
struct RestDataV03 {
    data: Json,
}

// === impl RestPartV03 ===

impl<'de> Deserialize<'de> for RestPartV03 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V03RestPartVisitor;
        impl<'de> de::Visitor<'de> for V03RestPartVisitor {
            type Value = RestPartV03;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a part, which is an object")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<RestPartV03, A::Error> {
                let (mut kind, mut text, mut file, mut data, mut metadata) =
                    (None::<String>, None::<String>, None::<RestFileV03>, None::<Json>, None::<Json>);
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "kind" => kind = map.next_value()?,
                        "text" => text = map.next_value()?,
                        "file" => file = map.next_value()?,
                        "data" => data = map.next_value()?,
                        "metadata" => metadata = map.next_value()?,
                        _ => drop(map.next_value::<de::IgnoredAny>()?),
                    }
                }
                let part = match (text, file, data) {
                    (Some(text), None, None) => New::new(PartContent::Text(text)),
                    (None, Some(file), None) => file.part().map_err(de::Error::custom)?,
                    (None, None, Some(data)) => {
                        let data = if kind.is_some() { Some(data) } else { inner(&data) };
                        match data.filter(Json::is_object) {
                            Some(data) => New::new(PartContent::Data(unwrapped(data))),
                            None => return Err(de::Error::custom("`data.data` must be an object")),
                        }
                    }
                    _ => return Err(de::Error::custom("a part must have one of `text`, `file` and `data`")),
                };
                Ok(RestPartV03(New { metadata, ..part }))
            }
        }
        deserializer.deserialize_map(V03RestPartVisitor)
    }
}

impl Serialize for RestPartV03 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let New { content, filename, media_type, metadata } = &self.0;
        let file = |file_with_uri, file_with_bytes| RestFileV03 {
            file_with_uri,
            file_with_bytes,
            mime_type: media_type.clone(),
            name: filename.clone(),
            ..RestFileV03::default()
        };
        let mut map = serializer.serialize_map(None)?;
        match content {
            PartContent::Text(text) => map.serialize_entry("text", text)?,
            PartContent::Raw(text) => {
                // Invalid base64 is passed through. The reader will report it.
                let text = file_bytes::to_old_file(text).unwrap_or_else(|| text.clone());
                map.serialize_entry("file", &file(None, Some(base64::encode(text.as_bytes()))))?;
            }
            PartContent::Url(uri) => map.serialize_entry("file", &file(Some(uri.clone()), None))?,
            PartContent::Data(data) => map.serialize_entry("data", &RestDataV03 { data: wrapped(data) })?,
        }
        if let Some(metadata) = metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

/// The content of the `.proto`'s `data`. Absent means an empty object.
fn inner(data: &Json) -> Option<Json> {
    let members: Members = data.parse().ok()?;
    Some(members.find("data").cloned().unwrap_or_else(Json::empty_object))
}

// === impl RestFileV03 ===

impl RestFileV03 {
    fn part(self) -> Result<New, &'static str> {
        let content = match (self.file_with_uri.or(self.uri), self.file_with_bytes) {
            (None, None) if let Some(bytes) = self.bytes => PartContent::Raw(bytes),
            (Some(uri), None) if self.bytes.is_none() => PartContent::Url(uri),
            (None, Some(text)) => {
                let bytes = base64::decode(&text).ok_or("`fileWithBytes` is not base64")?;
                PartContent::Raw(file_bytes::from_old_file(bytes))
            }
            _ => return Err("a file must have one of `fileWithUri` and `fileWithBytes`"),
        };
        Ok(New { filename: self.name, media_type: self.mime_type, ..New::new(content) })
    }
}

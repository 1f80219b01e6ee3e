//! One piece of content: exactly one of text, bytes, a URL or data.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap as _};

use super::base64;
use crate::{ArtifactId, Json};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub content: PartContent,
    pub filename: Option<String>,
    pub media_type: Option<String>,
    pub metadata: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartContent {
    Text(String),
    /// Bytes as base64, as received.
    Raw(String),
    Url(String),
    /// Any JSON, including `null`.
    Data(Json),
}

/// The URL scheme of a part that is an artifact in the run's own workspace.
const ARTIFACT_SCHEME: &str = "artifact:";

const MEMBERS: &str = "one of `text`, `raw`, `url` and `data`";

// === impl Part ===

impl Part {
    pub const fn new(content: PartContent) -> Self {
        Self { content, filename: None, media_type: None, metadata: None }
    }

    pub fn text(text: impl Into<String>) -> Self {
        Self::new(PartContent::Text(text.into()))
    }

    /// Whether its bytes, if any, can be decoded.
    pub fn is_whole(&self) -> bool {
        match &self.content {
            PartContent::Raw(text) => base64::decode(text).is_some(),
            PartContent::Text(_) | PartContent::Url(_) | PartContent::Data(_) => true,
        }
    }

    /// An inline file.
    pub fn file(bytes: &[u8], filename: impl Into<String>, media_type: impl Into<String>) -> Self {
        let content = PartContent::Raw(base64::encode(bytes));
        Self { content, filename: Some(filename.into()), media_type: Some(media_type.into()), metadata: None }
    }

    /// A file that is an artifact in the run's workspace. The device downloads it.
    pub fn artifact(id: ArtifactId, filename: impl Into<String>, media_type: impl Into<String>) -> Self {
        let content = PartContent::Url(format!("{ARTIFACT_SCHEME}{id}"));
        Self { content, filename: Some(filename.into()), media_type: Some(media_type.into()), metadata: None }
    }

    /// The artifact this part refers to, if any.
    pub fn as_artifact(&self) -> Option<ArtifactId> {
        match &self.content {
            PartContent::Url(url) => url.strip_prefix(ARTIFACT_SCHEME)?.parse().ok(),
            PartContent::Text(_) | PartContent::Raw(_) | PartContent::Data(_) => None,
        }
    }

    pub fn data(data: Json) -> Self {
        Self { media_type: Some("application/json".to_owned()), ..Self::new(PartContent::Data(data)) }
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PartVisitor;
        impl<'de> de::Visitor<'de> for PartVisitor {
            type Value = Part;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a part, which is an object")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Part, A::Error> {
                let (mut content, mut filename, mut media_type, mut metadata) = (None, None, None, None);
                while let Some(name) = map.next_key::<String>()? {
                    let given = match name.as_str() {
                        "text" => map.next_value::<Option<String>>()?.map(PartContent::Text),
                        "raw" => map.next_value::<Option<String>>()?.map(PartContent::Raw),
                        "url" => map.next_value::<Option<String>>()?.map(PartContent::Url),
                        "data" => Some(PartContent::Data(map.next_value()?)),
                        "filename" => {
                            filename = map.next_value()?;
                            None
                        }
                        "mediaType" | "media_type" => {
                            media_type = map.next_value()?;
                            None
                        }
                        "metadata" => {
                            metadata = map.next_value()?;
                            None
                        }
                        _ => {
                            map.next_value::<de::IgnoredAny>()?;
                            None
                        }
                    };
                    if given.is_some() && content.is_some() {
                        return Err(de::Error::custom(format_args!("a part can have only {MEMBERS}")));
                    }
                    content = given.or(content);
                }
                let content = content.ok_or_else(|| de::Error::custom(format_args!("a part must have {MEMBERS}")))?;
                Ok(Part { content, filename, media_type, metadata })
            }
        }
        deserializer.deserialize_map(PartVisitor)
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.content {
            PartContent::Text(text) => map.serialize_entry("text", text)?,
            PartContent::Raw(base64) => map.serialize_entry("raw", base64)?,
            PartContent::Url(url) => map.serialize_entry("url", url)?,
            PartContent::Data(data) => map.serialize_entry("data", data)?,
        }
        if let Some(filename) = &self.filename {
            map.serialize_entry("filename", filename)?;
        }
        if let Some(media_type) = &self.media_type {
            map.serialize_entry("mediaType", media_type)?;
        }
        if let Some(metadata) = &self.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

//! Relayed JSON: kept as the original text, never parsed into a value tree.

mod explain;
mod members;

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::value::RawValue;

pub use self::{explain::explain, members::Members};

/// Byte-exact JSON text. Never use it below `flatten`, `untagged` or `tag`: they buffer and fail.
#[derive(Clone)]
pub struct Json(Box<RawValue>);

/// How deep JSON in a request may be nested. Far more than real data needs, and safe for a parser's stack.
pub const MAX_DEPTH: usize = 64;

/// The maximum nesting depth of a JSON text. Counts brackets outside strings and doesn't validate.
pub fn depth(text: &[u8]) -> usize {
    let (mut now, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                now += 1;
                deepest = deepest.max(now);
            }
            b'}' | b']' if !in_string => now = now.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The text with every lone surrogate escape (`\ud800` without its other half) replaced by `\ufffd`. JSON allows them,
/// but no Unicode text can hold one, so strict readers reject the whole document.
pub fn replace_lone_surrogates(json: &[u8]) -> Cow<'_, [u8]> {
    let unit = |at: usize| {
        let digits = json.get(at..at + 6).filter(|escape| escape.starts_with(b"\\u"))?;
        u16::from_str_radix(std::str::from_utf8(&digits[2..]).ok()?, 16).ok()
    };
    let (mut replaced, mut at) = (Cow::Borrowed(json), 0);
    while let Some(found) = json[at..].iter().position(|byte| *byte == b'\\') {
        at += found;
        at += match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                replaced.to_mut()[at..at + 6].copy_from_slice(br"\ufffd");
                6
            }
            (Some(_), _) => 6,
            (None, _) => 2,
        };
        if at >= json.len() {
            break;
        }
    }
    replaced
}

/// The same tokens, indented. Numbers, escapes and duplicate names are unchanged.
pub fn pretty(json: &str) -> String {
    let mut text = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut characters = json.chars().peekable();
    let line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.extend(std::iter::repeat_n("  ", depth));
    };
    while let Some(character) = characters.next() {
        if in_string {
            text.push(character);
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match character {
            '"' => {
                in_string = true;
                text.push('"');
            }
            '{' | '[' => {
                text.push(character);
                while characters.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                if characters.peek().is_some_and(|next| matches!(next, '}' | ']')) {
                    text.extend(characters.next());
                } else {
                    depth += 1;
                    line(&mut text, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut text, depth);
                text.push(character);
            }
            ',' => {
                text.push(',');
                line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            other if other.is_ascii_whitespace() => {}
            other => text.push(other),
        }
    }
    text
}

// === impl Json ===

impl Json {
    /// Text that is known to be valid JSON, for example because we wrote it.
    pub fn from_text(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.into()).map(Self)
    }

    /// Serializes one of our own values.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Self {
        Self(serde_json::value::to_raw_value(value).expect("our own types serialise to JSON"))
    }

    pub fn empty_object() -> Self {
        Self::from_text("{}").expect("{} is JSON")
    }

    pub fn get(&self) -> &str {
        self.0.get()
    }

    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0.get())
    }

    pub fn is_object(&self) -> bool {
        self.0.get().starts_with('{')
    }

    /// A string member of the top-level object, for display.
    pub fn text_member(&self, name: &str) -> Option<String> {
        let value: serde_json::Value = self.parse().ok()?;
        value.get(name)?.as_str().map(str::to_owned)
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self)
    }
}

impl utoipa::PartialSchema for Json {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::SchemaType::AnyValue)
            .description(Some("Any JSON, kept byte for byte."))
            .into()
    }
}

impl utoipa::ToSchema for Json {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings() {
        assert_eq!(depth(b"1"), 0);
        assert_eq!(depth(br#"{"a":[1,{"b":[]}],"c":{}}"#), 4);
        assert_eq!(depth(br#"["[[[\"[[","\\",["]"]]"#), 2);
        assert_eq!(depth("[".repeat(10_000).as_bytes()), 10_000);
    }

    #[test]
    fn only_lone_surrogates_are_replaced() {
        for (text, expected) in [
            (r#""\ud83d\ude00 \u00e9 \\ud800 \n""#, r#""\ud83d\ude00 \u00e9 \\ud800 \n""#),
            (r#""\ud800""#, r#""\ufffd""#),
            (r#"{"\uDC00":"a\uD83Db"}"#, r#"{"\ufffd":"a\ufffdb"}"#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\\ud800\""#, r#""\\\ufffd\""#),
            (r#""\ud8"#, r#""\ud8"#),
        ] {
            assert_eq!(std::str::from_utf8(&replace_lone_surrogates(text.as_bytes())).unwrap(), expected);
        }
    }

    #[test]
    fn numbers_and_order_survive() {
        #[derive(Serialize, Deserialize)]
        struct Holder {
            data: Json,
        }
        let text = r#"{"data":{"z":9007199254740993,"b":42.0,"d":1e400,"f":-0,"g":0.10,"z2":{"a":1,"a":2}}}"#;
        let holder: Holder = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&holder).unwrap(), text);
    }

    #[test]
    fn pretty_json_keeps_its_tokens() {
        assert_eq!(
            pretty(r#"{"a":[1e400, {"b":"x,{\"y"}],"c":{ },"d":[]}"#),
            "{\n  \"a\": [\n    1e400,\n    {\n      \"b\": \"x,{\\\"y\"\n    }\n  ],\n  \"c\": {},\n  \"d\": []\n}"
        );
    }
}

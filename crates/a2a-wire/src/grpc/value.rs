//! Converts JSON to `google.protobuf.Value` and back. A Value holds doubles and keeps no order, so reading reports
//! whether the value changed. Another spelling of the same number (`42.0` for `42`) doesn't count as a change.

use std::collections::BTreeMap;

use attache_protocol::Json;
use prost_types::{ListValue, Struct, Value, value::Kind};

use super::number;

/// JSON as far as a Value can represent it.
#[derive(Debug)]
pub(super) struct GrpcValue {
    pub(super) value: Value,
    /// Whether its text has the same meaning as the original JSON.
    pub(super) exact: bool,
}

/// The maximum nesting. Protobuf readers stop at 100, and the value itself is nested in other messages.
const MAX_LEVELS: usize = 90;
const LEVELS_OF_OBJECT: usize = 3;
const LEVELS_OF_LIST: usize = 2;

/// Parses text that is known to be valid JSON.
struct JsonTextReader<'a> {
    rest: &'a str,
    levels: usize,
    exact: bool,
}

/// The JSON as a Value, or why gRPC can't carry it.
pub(super) fn read(json: &Json) -> Result<GrpcValue, &'static str> {
    let mut reader = JsonTextReader { rest: json.get(), levels: 0, exact: true };
    let value = reader.value()?;
    Ok(GrpcValue { value, exact: reader.exact })
}

/// The Value as JSON. Whole numbers are written without a fraction.
pub(super) fn write(value: &Value) -> Result<Json, &'static str> {
    let mut text = String::new();
    write_value(value, &mut text)?;
    Ok(Json::from_text(text).expect("values are written as JSON"))
}

pub(super) fn write_object(fields: &BTreeMap<String, Value>) -> Result<Json, &'static str> {
    let mut text = String::new();
    write_fields(fields, &mut text)?;
    Ok(Json::from_text(text).expect("values are written as JSON"))
}

fn write_value(value: &Value, text: &mut String) -> Result<(), &'static str> {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => text.push_str("null"),
        Some(Kind::BoolValue(truth)) => text.push_str(if *truth { "true" } else { "false" }),
        Some(Kind::NumberValue(number)) => {
            text.push_str(&number::text(*number).ok_or("contains a number that JSON can't represent")?);
        }
        Some(Kind::StringValue(string)) => quote(string, text),
        Some(Kind::StructValue(Struct { fields })) => write_fields(fields, text)?,
        Some(Kind::ListValue(ListValue { values })) => {
            text.push('[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_value(value, text)?;
            }
            text.push(']');
        }
    }
    Ok(())
}

fn write_fields(fields: &BTreeMap<String, Value>, text: &mut String) -> Result<(), &'static str> {
    text.push('{');
    for (index, (name, value)) in fields.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        quote(name, text);
        text.push(':');
        write_value(value, text)?;
    }
    text.push('}');
    Ok(())
}

fn quote(string: &str, text: &mut String) {
    text.push_str(Json::of(string).get());
}

// === impl JsonTextReader ===

impl JsonTextReader<'_> {
    fn value(&mut self) -> Result<Value, &'static str> {
        self.skip_space();
        let kind = match self.rest.as_bytes().first() {
            Some(b'{') => self.object()?,
            Some(b'[') => self.list()?,
            Some(b'"') => Kind::StringValue(self.string()?),
            Some(b't') => self.word(4, Kind::BoolValue(true)),
            Some(b'f') => self.word(5, Kind::BoolValue(false)),
            Some(b'n') => self.word(4, Kind::NullValue(0)),
            _ => self.number(),
        };
        self.skip_space();
        Ok(Value { kind: Some(kind) })
    }

    fn object(&mut self) -> Result<Kind, &'static str> {
        let mut fields = BTreeMap::new();
        self.inside(LEVELS_OF_OBJECT, b'}', |reader| {
            reader.skip_space();
            let name = reader.string()?;
            reader.skip_space();
            reader.skip(1);
            let value = reader.value()?;
            // Only the last of duplicate names is kept.
            reader.exact &= fields.insert(name, value).is_none();
            Ok(())
        })?;
        Ok(Kind::StructValue(Struct { fields }))
    }

    fn list(&mut self) -> Result<Kind, &'static str> {
        let mut values = Vec::new();
        self.inside(LEVELS_OF_LIST, b']', |reader| {
            values.push(reader.value()?);
            Ok(())
        })?;
        Ok(Kind::ListValue(ListValue { values }))
    }

    /// Reads comma-separated items up to the closing bracket.
    fn inside(
        &mut self,
        levels: usize,
        end: u8,
        mut item: impl FnMut(&mut Self) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        self.levels += levels;
        if self.levels > MAX_LEVELS {
            return Err("is nested too deeply for gRPC");
        }
        self.skip(1);
        self.skip_space();
        while self.rest.as_bytes().first().is_some_and(|byte| *byte != end) {
            item(self)?;
            if self.rest.starts_with(',') {
                self.skip(1);
            }
        }
        self.skip(1);
        self.levels -= levels;
        Ok(())
    }

    fn string(&mut self) -> Result<String, &'static str> {
        let mut escaped = false;
        let end = self.rest.bytes().skip(1).position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let (quoted, rest) = self.rest.split_at(end.map_or(self.rest.len(), |end| end + 2));
        self.rest = rest;
        serde_json::from_str(quoted).map_err(|_| "contains text with an unpaired surrogate, which gRPC can't carry")
    }

    fn number(&mut self) -> Kind {
        let end = self.rest.find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'));
        let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        let (number, exact) = number::read(digits);
        self.exact &= exact;
        Kind::NumberValue(number)
    }

    fn word(&mut self, length: usize, kind: Kind) -> Kind {
        self.skip(length);
        kind
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or("");
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }
}

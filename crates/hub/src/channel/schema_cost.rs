//! Estimates the cost of a peer's JSON Schema: compiling it, and checking a value against it. A schema of a few hundred
//! bytes can take days, so its cost is estimated before it is used.

use std::collections::HashMap;

use serde_json::Value;

/// All nodes of a schema, with references expanded.
const MAX_KEYWORDS: u64 = 20_000;
/// Per registration.
const MAX_PATTERNS: usize = 64;
/// The drafts whose keywords are measured.
const KNOWN_DRAFTS: [&str; 3] = ["2020-12", "2019-09", "draft-07"];
/// In characters of source.
const MAX_PATTERN: usize = 1024;
/// The work limit of one check: keywords evaluated and bytes matched against patterns.
const MAX_WORK: u64 = 50_000_000;

/// The cost of an acceptable schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SchemaCost {
    keywords: u64,
    patterns: u64,
    /// How often parts of the schema refer to themselves: the work multiplies with each level of the value.
    recursions: u64,
}

/// Accumulates the limits over all schemas of one registration.
#[derive(Debug, Default)]
pub(super) struct SchemaMeter {
    patterns: usize,
}

/// How much a value is.
#[derive(Debug, Clone, Copy)]
struct ValueSize {
    values: u64,
    /// All strings together.
    bytes: u64,
    depth: u32,
}

/// A schema being measured.
struct SchemaWalk<'a> {
    root: &'a Value,
    meter: &'a mut SchemaMeter,
    /// The cost and self-references of each reference. `None` while being computed.
    references: HashMap<&'a str, Option<(u64, u64)>>,
    recursions: u64,
}

// === impl SchemaMeter ===

impl SchemaMeter {
    pub(super) const fn patterns(&self) -> usize {
        self.patterns
    }

    /// Measures a schema. The error names the exceeded limit.
    pub(super) fn measure(&mut self, schema: &Value) -> Result<SchemaCost, String> {
        let before = self.patterns;
        let mut walk = SchemaWalk { root: schema, meter: self, references: HashMap::new(), recursions: 0 };
        let keywords = walk.value(schema)?;
        let recursions = walk.recursions;
        if keywords > MAX_KEYWORDS {
            return Err(format!("has more than {MAX_KEYWORDS} parts after its references are expanded"));
        }
        let patterns = u64::try_from(self.patterns - before).unwrap_or(u64::MAX);
        Ok(SchemaCost { keywords, patterns, recursions })
    }
}

// === impl SchemaWalk ===

impl<'a> SchemaWalk<'a> {
    fn value(&mut self, value: &'a Value) -> Result<u64, String> {
        let mut cost = 1_u64;
        match value {
            Value::Array(items) => {
                for item in items {
                    cost = cost.saturating_add(self.value(item)?);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    cost = cost.saturating_add(self.member(value, name, member)?);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(cost)
    }

    fn member(&mut self, schema: &'a Value, name: &str, member: &'a Value) -> Result<u64, String> {
        match (name, member) {
            ("pattern", Value::String(pattern)) => self.pattern(pattern),
            ("patternProperties", Value::Object(patterns)) => {
                let mut cost = self.value(member)?;
                for pattern in patterns.keys() {
                    cost = cost.saturating_add(self.pattern(pattern)?);
                }
                Ok(cost)
            }
            ("$ref", Value::String(target)) => self.reference(target),
            // Their target depends on where they are used from, so it can't be measured here.
            ("$dynamicRef" | "$recursiveRef", Value::String(_)) => {
                Err(format!("uses `{name}`; use `$ref` with a JSON pointer instead"))
            }
            // Older drafts have other keywords for the base of references. What is measured must be what is validated.
            ("$schema", Value::String(draft)) if !KNOWN_DRAFTS.iter().any(|known| draft.contains(known)) => {
                Err("has a `$schema` of another draft; leave it out or use 2020-12, 2019-09 or draft-07".to_owned())
            }
            ("$schema", Value::String(_)) if !std::ptr::eq(schema, self.root) => {
                Err("has a nested `$schema`; use one draft for the whole schema".to_owned())
            }
            ("$id", Value::String(_)) if !std::ptr::eq(schema, self.root) => {
                Err("has a nested `$id`; refer to parts with JSON pointers such as `#/$defs/name`".to_owned())
            }
            _ => self.value(member),
        }
    }

    fn pattern(&mut self, pattern: &str) -> Result<u64, String> {
        self.meter.patterns += 1;
        if self.meter.patterns > MAX_PATTERNS {
            return Err(format!("has too many patterns: a channel's tools can have at most {MAX_PATTERNS} in total"));
        }
        if pattern.len() > MAX_PATTERN {
            return Err(format!("has a pattern of more than {MAX_PATTERN} characters"));
        }
        Ok(1)
    }

    fn reference(&mut self, target: &'a str) -> Result<u64, String> {
        match self.references.get(target) {
            Some(Some((cost, recursions))) => {
                self.recursions = self.recursions.saturating_add(*recursions);
                return Ok(*cost);
            }
            Some(None) => {
                self.recursions = self.recursions.saturating_add(1);
                return Ok(1);
            }
            None => {}
        }
        let pointer = target.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let Some(pointer) = pointer else {
            return Err("refers to something outside the schema; use a JSON pointer such as `#/$defs/name`".to_owned());
        };
        let pointer = percent_encoding::percent_decode_str(pointer).decode_utf8_lossy();
        let Some(found) = self.root.pointer(&pointer) else {
            return Err("refers to a part that does not exist".to_owned());
        };
        self.references.insert(target, None);
        let before = self.recursions;
        let cost = self.value(found)?.saturating_add(1);
        self.references.insert(target, Some((cost, self.recursions - before)));
        Ok(cost)
    }
}

// === impl SchemaCost ===

impl SchemaCost {
    /// Whether a value can be checked against the schema in reasonable time.
    pub(super) fn affords(self, value: &Value) -> bool {
        let ValueSize { values, bytes, depth } = ValueSize::of(value);
        let repetitions = self.recursions.max(1).saturating_pow(depth);
        let keywords = self.keywords.saturating_mul(values.max(repetitions));
        keywords.saturating_add(self.patterns.saturating_mul(bytes)) <= MAX_WORK
    }
}

// === impl ValueSize ===

impl ValueSize {
    /// Values from the wire have limited depth.
    fn of(value: &Value) -> Self {
        let mut size = Self { values: 1, bytes: 0, depth: 0 };
        match value {
            Value::Array(items) => items.iter().for_each(|item| size.add(item)),
            Value::Object(members) => members.iter().for_each(|(name, member)| {
                size.bytes += name.len() as u64;
                size.add(member);
            }),
            Value::String(text) => size.bytes = text.len() as u64,
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        size
    }

    fn add(&mut self, inner: &Value) {
        let inner = Self::of(inner);
        self.values += inner.values;
        self.bytes += inner.bytes;
        self.depth = self.depth.max(inner.depth + 1);
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests build JSON as values")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_ordinary_schema_is_accepted_and_a_bomb_is_not() {
        let tree = json!({"$defs": {"node": {"type": "object", "properties": {
            "name": {"type": "string", "pattern": "^[a-z]{1,64}$"},
            "left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"});
        let cost = SchemaMeter::default().measure(&tree).unwrap();
        assert!(cost.recursions > 0);
        assert!(cost.affords(&json!({"name": "a", "left": {"name": "b", "right": {"name": "c"}}})));
        let deep = (0..40).fold(json!({}), |inner, _| json!({"left": inner}));
        assert!(!cost.affords(&deep));

        // Each definition refers to the next one twice: a thousand bytes expand to a billion keywords.
        let mut bomb = json!({"$ref": "#/$defs/d0", "$defs": {"d30": true}});
        for number in 0..30 {
            let next = format!("#/$defs/d{}", number + 1);
            bomb["$defs"][format!("d{number}")] = json!({"allOf": [{"$ref": next}, {"$ref": next}]});
        }
        assert!(SchemaMeter::default().measure(&bomb).unwrap_err().contains("expanded"));

        // The first draft called the base of references `id`.
        let old = json!({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": {"id": "b/"}}});
        assert!(SchemaMeter::default().measure(&old).unwrap_err().contains("another draft"));
        let nested = json!({"$defs": {"a": {"$schema": "https://json-schema.org/draft/2020-12/schema"}}});
        assert!(SchemaMeter::default().measure(&nested).unwrap_err().contains("nested"));

        // Refers to itself twice through another definition.
        let both = json!({"$ref": "#/$defs/a", "$defs": {
            "a": {"allOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}]}, "b": {"items": {"$ref": "#/$defs/a"}}}});
        let cost = SchemaMeter::default().measure(&both).unwrap();
        assert!(!cost.affords(&(0..40).fold(json!([]), |inner, _| json!([inner]))));
    }

    #[test]
    fn patterns_are_counted_over_all_tools() {
        let mut meter = SchemaMeter::default();
        let one = json!({"patternProperties": {"^a$": {"pattern": "^b$"}}});
        for _ in 0..MAX_PATTERNS / 2 {
            meter.measure(&one).unwrap();
        }
        assert!(meter.measure(&one).unwrap_err().contains("too many patterns"));
        let long = json!({"pattern": "a".repeat(MAX_PATTERN + 1)});
        assert!(SchemaMeter::default().measure(&long).is_err());
    }

    #[test]
    fn a_value_is_checked_only_within_the_work_limit() {
        let wide = json!({"items": {"allOf": vec![json!({"type": "string"}); 5000]}});
        let cost = SchemaMeter::default().measure(&wide).unwrap();
        assert!(cost.affords(&json!(["a", "b"])));
        assert!(!cost.affords(&Value::Array(vec![json!("a"); 100_000])));
    }
}

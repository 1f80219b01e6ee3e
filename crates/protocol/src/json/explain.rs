//! Translates JSON parser errors into terms that authors of JSON understand.

/// Rust type names in parser errors, and their JSON equivalents.
const WORDS: [(&str, &str); 14] = [
    ("expected i64", "expected a whole number"),
    ("expected u64", "expected a non-negative whole number"),
    ("expected i32", "expected a whole number"),
    ("expected u32", "expected a non-negative whole number"),
    ("expected u16", "expected a non-negative whole number"),
    ("expected f64", "expected a number"),
    ("a boolean", "true or false"),
    ("a sequence", "a list"),
    ("sequence", "a list"),
    ("a map", "an object"),
    ("map, expected", "an object, expected"),
    ("unit value", "null"),
    ("unknown variant", "unknown word"),
    ("floating point", "number"),
];

/// The error without the parser's position, which is meaningless inside a member.
pub fn explain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let mut what = text.strip_suffix(&place).unwrap_or(&text).to_owned();
    for (theirs, ours) in WORDS {
        if let Some(start) = what.find(theirs) {
            what.replace_range(start..start + theirs.len(), ours);
        }
    }
    match what.find("struct ") {
        Some(start) => {
            let name = what[start + "struct ".len()..].split(|character: char| !character.is_alphanumeric()).next();
            let end = start + "struct ".len() + name.map_or(0, str::len);
            what.replace_range(start..end, "an object");
            what
        }
        None => what,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Sample {
        #[allow(dead_code, reason = "only read")]
        count: Option<i64>,
        #[allow(dead_code, reason = "only read")]
        inner: Option<Box<Self>>,
    }

    #[test]
    fn errors_do_not_mention_rust_types() {
        let said = |text: &str| explain(&serde_json::from_str::<Sample>(text).unwrap_err());
        assert_eq!(said(r#"{"count":"x"}"#), r#"invalid type: string "x", expected a whole number"#);
        assert_eq!(said(r#"{"count":1.5}"#), "invalid type: number `1.5`, expected a whole number");
        assert_eq!(said(r#"{"count":[]}"#), "invalid type: a list, expected a whole number");
        assert_eq!(said(r#"{"inner":7}"#), "invalid type: integer `7`, expected an object");
    }
}

//! Excerpts of runs for lists, so that a page has the requested number of rows however large a task or result is.

use attache_protocol::{Json, json::Members, wire::usage::ReportedUsage};

use crate::record::{RunDetail, RunRecord, RunSpec};

/// Larger JSON is cut.
const MAX_LISTED: usize = 2 << 10;
/// A cut text keeps this many bytes.
const MAX_TEXT: usize = 1 << 10;
/// Other members are dropped if they are longer than this.
const MAX_MEMBER: usize = 200;

// === impl RunRecord ===

impl RunRecord {
    /// The run for a list: a long input or result becomes an excerpt with `"truncated": true`.
    #[must_use]
    pub fn excerpt(self) -> Self {
        let result = self.result.map(excerpt);
        let spec =
            RunSpec { input: excerpt(self.spec.input), context_fragments: None, allowed_tools: None, ..self.spec };
        Self { spec, result, ..self }
    }

    /// What the run cost so far, in millionths of a dollar. `None` if its usage doesn't say.
    pub fn cost(&self) -> Option<u64> {
        ReportedUsage::of(self.usage.as_ref()).micro_usd
    }
}

// === impl RunDetail ===

impl RunDetail {
    pub(crate) fn of(self, run: RunRecord) -> RunRecord {
        match self {
            Self::Whole => run,
            Self::Excerpt => run.excerpt(),
        }
    }
}

fn excerpt(json: Json) -> Json {
    if json.get().len() <= MAX_LISTED {
        return json;
    }
    let members = json.parse::<Members>().unwrap_or(Members(Vec::new())).0;
    let (mut shown, mut left) = (Vec::new(), MAX_LISTED);
    for (name, value) in members {
        let value = match value.get().len() {
            0..=MAX_MEMBER => value,
            _ => match value.parse::<String>() {
                Ok(text) => Json::of(&text[..text.floor_char_boundary(MAX_TEXT)]),
                Err(_) => continue,
            },
        };
        let length = name.len() + value.get().len();
        if length <= left && name != TRUNCATED {
            left -= length;
            shown.push((name, value));
        }
    }
    shown.push((TRUNCATED.to_owned(), Json::of(&true)));
    Json::of(&Members(shown))
}

const TRUNCATED: &str = "truncated";

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::from_text(text).expect("this is JSON")
    }

    #[test]
    fn a_short_value_is_unchanged() {
        let short = json(r#"{"z": 1.0, "text":"x"}"#);
        assert_eq!(excerpt(short.clone()), short);
    }

    #[test]
    fn a_long_value_is_cut_and_marked() {
        let long = json(&format!(
            r#"{{"text":"{}","artifact_refs":["art_1"],"details":{{"x":"{}"}},"truncated":false}}"#,
            "é".repeat(9000),
            "y".repeat(300)
        ));
        let wanted = format!(r#"{{"text":"{}","artifact_refs":["art_1"],"truncated":true}}"#, "é".repeat(512));
        assert_eq!(excerpt(long).get(), wanted);
        assert_eq!(excerpt(json(&format!("[{}1]", "1,".repeat(2000)))).get(), r#"{"truncated":true}"#);
        // Escapes count as written, so that pages keep their size.
        let escapes = json(&format!(r#"{{"text":"{}"}}"#, "\\u0001".repeat(5000)));
        assert_eq!(excerpt(escapes).get(), r#"{"truncated":true}"#);
    }
}

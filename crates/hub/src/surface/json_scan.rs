//! Scans raw JSON before it is parsed: nesting depth, and the member an error is in.

/// Deeper nesting is rejected.
pub(crate) const MAX_DEPTH: usize = 64;

/// Whether the text is nested too deeply. It doesn't have to be valid JSON.
pub(crate) fn too_deep(json: &[u8]) -> bool {
    let mut depth = 0_usize;
    let mut index = 0;
    while index < json.len() {
        match json[index] {
            b'"' => index = string_end(json, index),
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        index += 1;
    }
    false
}

/// The index of the quote that closes the string that opens at `start`.
fn string_end(json: &[u8], start: usize) -> usize {
    let mut index = start + 1;
    while index < json.len() {
        match json[index] {
            b'\\' => index += 1,
            b'"' => return index,
            _ => {}
        }
        index += 1;
    }
    json.len()
}

/// One step down into JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
enum JsonStep {
    /// The member being read, once its name is known.
    Member(Option<String>),
    /// The item being read, counted from zero.
    Item(usize),
}

/// The path that leads to a position, for example `skills[0].tags`.
pub(crate) fn member_at(json: &[u8], line: usize, column: usize) -> Option<String> {
    path_text(&path_to(json, line, column)?)
}

/// The path of a missing member in the object that ends at a position.
pub(crate) fn missing_at(json: &[u8], line: usize, column: usize, name: &str) -> Option<String> {
    let mut path = path_to(json, line, column)?;
    path.pop();
    path.push(JsonStep::Member(Some(name.to_owned())));
    path_text(&path)
}

fn path_text(path: &[JsonStep]) -> Option<String> {
    let mut text = String::new();
    for step in path {
        match step {
            JsonStep::Member(Some(name)) if text.is_empty() => text.push_str(name),
            JsonStep::Member(Some(name)) => text.extend([".", name]),
            // Nothing is named yet: an index alone is not a path.
            JsonStep::Item(_) if text.is_empty() => return None,
            JsonStep::Item(index) => text.push_str(&format!("[{index}]")),
            JsonStep::Member(None) => {}
        }
    }
    (!text.is_empty()).then_some(text)
}

fn path_to(json: &[u8], line: usize, column: usize) -> Option<Vec<JsonStep>> {
    let end = offset(json, line, column)?;
    // One step per open object or array.
    let mut path: Vec<JsonStep> = Vec::new();
    let mut last_string = None;
    let mut index = 0;
    while index < end {
        match json[index] {
            b'"' => {
                let close = string_end(json, index);
                last_string = json.get(index + 1..close).and_then(|text| std::str::from_utf8(text).ok());
                index = close;
            }
            b':' => {
                if let Some(JsonStep::Member(name)) = path.last_mut() {
                    *name = last_string.map(|name| name.chars().take(80).collect());
                }
            }
            b',' => {
                if let Some(JsonStep::Item(index)) = path.last_mut() {
                    *index += 1;
                }
            }
            b'{' => path.push(JsonStep::Member(None)),
            b'[' => path.push(JsonStep::Item(0)),
            // At the very end, the closing bracket belongs to the invalid value.
            b'}' | b']' if index + 1 < end => {
                path.pop();
            }
            _ => {}
        }
        index += 1;
    }
    Some(path)
}

fn offset(json: &[u8], line: usize, column: usize) -> Option<usize> {
    let mut start = 0;
    for _ in 1..line {
        start += json.get(start..)?.iter().position(|byte| *byte == b'\n')? + 1;
    }
    Some((start + column).min(json.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings() {
        assert!(!too_deep(format!("{}{}", "[".repeat(64), "]".repeat(64)).as_bytes()));
        assert!(too_deep("[".repeat(65).as_bytes()));
        assert!(too_deep("{\"a\":".repeat(10_000).as_bytes()));
        assert!(!too_deep(format!("[\"{}\\\"{}\"]", "[".repeat(100), "{".repeat(100)).as_bytes()));
        assert!(!too_deep(b"\"\\"));
    }

    #[test]
    fn errors_name_the_member() {
        let json = b"{\"name\":\"x\",\n \"skills\":[{\"id\":\"a\",\"tags\":7}]}";
        let error = serde_json::from_slice::<attache_protocol::wire::account::AccountRequest>(json).unwrap_err();
        assert_eq!(member_at(json, error.line(), error.column()).as_deref(), Some("skills[0].tags"));
        assert_eq!(member_at(b"{\"a\":[1,{\"b\":[[],7", 1, 19).as_deref(), Some("a[1].b[1]"));
        assert_eq!(missing_at(b"{\"a\":[1,{\"b\":7}]}", 1, 15, "c").as_deref(), Some("a[1].c"));
        assert_eq!(missing_at(b"{}", 1, 2, "c").as_deref(), Some("c"));
        assert_eq!(member_at(b"[", 1, 1), None);
        assert_eq!(member_at(b"{}", 9, 9), None);
    }
}

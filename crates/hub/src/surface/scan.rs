//! A look at raw JSON before it is parsed: how deep it nests, and which member a mistake is in.

/// Nesting deeper than this is refused.
pub(crate) const MAX_DEPTH: usize = 64;

/// Whether the text nests deeper than allowed. It need not be valid JSON.
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

/// The path of member names that leads to a position, for example `skills.tags`.
pub(crate) fn member_at(json: &[u8], line: usize, column: usize) -> Option<String> {
    let end = offset(json, line, column)?;
    // One entry per open object or array; an object's entry is the name of the member being read.
    let mut path: Vec<Option<String>> = Vec::new();
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
                if let Some(open) = path.last_mut() {
                    *open = last_string.map(|name| name.chars().take(80).collect());
                }
            }
            b'{' | b'[' => path.push(None),
            // At the very end the closing bracket belongs to the value that is wrong.
            b'}' | b']' if index + 1 < end => {
                path.pop();
            }
            _ => {}
        }
        index += 1;
    }
    let names: Vec<&str> = path.iter().filter_map(|name| name.as_deref()).collect();
    (!names.is_empty()).then(|| names.join("."))
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
    fn a_mistake_is_named_by_its_member() {
        let json = b"{\"name\":\"x\",\n \"skills\":[{\"id\":\"a\",\"tags\":7}]}";
        let error = serde_json::from_slice::<attache_protocol::wire::account::AccountRequest>(json).unwrap_err();
        assert_eq!(member_at(json, error.line(), error.column()).as_deref(), Some("skills.tags"));
        assert_eq!(member_at(b"[", 1, 1), None);
        assert_eq!(member_at(b"{}", 9, 9), None);
    }
}

//! Edits JSON files with comments as text: adds, replaces or removes one member of one object and keeps everything else
//! byte for byte.

use std::ops::Range;

use serde_json::Value;

/// An object in the text and the positions of its members.
struct ObjectSpan {
    /// From `{` to after `}`.
    range: Range<usize>,
    members: Vec<MemberSpan>,
}

struct MemberSpan {
    name: String,
    /// From the quote of the name to the end of the value.
    range: Range<usize>,
    value: Range<usize>,
}

struct JsoncScanner<'a> {
    text: &'a [u8],
    at: usize,
}

/// An object with one member.
fn member(name: &str, value: Value) -> Value {
    Value::Object([(name.to_owned(), value)].into_iter().collect())
}

/// Sets `path` to `value`, or removes it.
pub(super) fn edit(text: &str, path: [&str; 2], value: Option<&Value>) -> Result<String, String> {
    let [section, name] = path;
    if text.trim().is_empty() {
        let Some(value) = value else { return Ok(text.to_owned()) };
        let whole = member(section, member(name, value.clone()));
        return Ok(format!("{}\n", pretty(&whole, "")));
    }
    let root = object(text, 0)?;
    let inner = root.members.iter().find(|member| member.name == section);
    let edited = match (inner, value) {
        (None, None) => return Ok(text.to_owned()),
        (None, Some(value)) => put(text, &root, section, &member(name, value.clone())),
        (Some(inner), value) => {
            let servers = object(text, inner.value.start)?;
            match (servers.members.iter().position(|member| member.name == name), value) {
                (None, None) => return Ok(text.to_owned()),
                (None, Some(value)) => put(text, &servers, name, value),
                (Some(at), Some(value)) => {
                    let place = &servers.members[at];
                    let value = pretty(value, indent(text, place.range.start));
                    splice(text, place.value.clone(), &value)
                }
                (Some(at), None) => take(text, &servers, at),
            }
        }
    };
    // Safety check: nothing but our member may have changed.
    let (before, after) = (plain(text)?, plain(&edited)?);
    if others(before, path) != others(after.clone(), path) || after.get(section).and_then(|all| all.get(name)) != value
    {
        return Err("its structure can't be edited automatically; edit it by hand".to_owned());
    }
    Ok(edited)
}

/// Adds a member at the end of an object.
fn put(text: &str, object: &ObjectSpan, name: &str, value: &Value) -> String {
    let outer = indent(text, object.range.start);
    let (inner, last) = match object.members.last() {
        Some(last) => (indent(text, last.range.start).to_owned(), Some(last)),
        None => (format!("{outer}  "), None),
    };
    let member = format!("{}: {}", Value::from(name), pretty(value, &inner));
    match last {
        Some(last) => {
            let on_one_line = !text[object.range.start..last.range.start].contains('\n');
            let separator = if on_one_line { ", ".to_owned() } else { format!(",\n{inner}") };
            let comma_follows = comma_after(text, last.range.end);
            // Reuse a trailing comma if there is one.
            let (at, separator) = match comma_follows {
                Some(comma) => (comma + 1, separator[1..].to_owned()),
                None => (last.range.end, separator),
            };
            splice(text, at..at, &format!("{separator}{member}"))
        }
        None => splice(text, object.range.clone(), &format!("{{\n{inner}{member}\n{outer}}}")),
    }
}

/// Removes a member and its comma.
fn take(text: &str, object: &ObjectSpan, at: usize) -> String {
    let range = match (at.checked_sub(1).map(|before| &object.members[before]), object.members.get(at + 1)) {
        (Some(before), _) => before.range.end..object.members[at].range.end,
        (None, Some(next)) => object.members[at].range.start..next.range.start,
        (None, None) => {
            return splice(text, object.range.clone(), "{}");
        }
    };
    splice(text, range, "")
}

fn splice(text: &str, range: Range<usize>, with: &str) -> String {
    format!("{}{with}{}", &text[..range.start], &text[range.end..])
}

/// The indentation of the line at a position.
fn indent(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let line = &text[start..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

fn pretty(value: &Value, indent: &str) -> String {
    let text = serde_json::to_string_pretty(value).expect("values serialise to JSON");
    text.replace('\n', &format!("\n{indent}"))
}

fn comma_after(text: &str, at: usize) -> Option<usize> {
    let mut scanner = JsoncScanner { text: text.as_bytes(), at };
    scanner.skip().ok()?;
    (scanner.peek() == Some(b',')).then_some(scanner.at)
}

/// Parses the text without comments and trailing commas, for comparison.
fn plain(text: &str) -> Result<Value, String> {
    let mut scanner = JsoncScanner { text: text.as_bytes(), at: 0 };
    let mut plain = Vec::new();
    while scanner.at < scanner.text.len() {
        let before = scanner.at;
        scanner.skip()?;
        if scanner.at > before {
            plain.push(b' ');
            continue;
        }
        match scanner.peek() {
            Some(b'"') => {
                scanner.string()?;
                plain.extend_from_slice(&scanner.text[before..scanner.at]);
            }
            Some(byte) => {
                if matches!(byte, b'}' | b']') {
                    let end = plain.iter().rposition(|byte| !byte.is_ascii_whitespace());
                    if let Some(end) = end.filter(|end| plain[*end] == b',') {
                        plain.remove(end);
                    }
                }
                plain.push(byte);
                scanner.at += 1;
            }
            None => break,
        }
    }
    serde_json::from_slice(&plain).map_err(|error| format!("it isn't valid JSON: {error}"))
}

/// The value without our member.
fn others(mut value: Value, [section, name]: [&str; 2]) -> Value {
    if let Some(servers) = value.get_mut(section).and_then(Value::as_object_mut) {
        servers.shift_remove(name);
        if servers.is_empty()
            && let Some(root) = value.as_object_mut()
        {
            root.shift_remove(section);
        }
    }
    value
}

fn object(text: &str, from: usize) -> Result<ObjectSpan, String> {
    let mut scanner = JsoncScanner { text: text.as_bytes(), at: from };
    scanner.skip()?;
    let start = scanner.at;
    scanner.expect(b'{')?;
    let mut members = Vec::new();
    loop {
        scanner.skip()?;
        if scanner.peek() == Some(b'}') {
            scanner.at += 1;
            return Ok(ObjectSpan { range: start..scanner.at, members });
        }
        let begin = scanner.at;
        scanner.string()?;
        let name = serde_json::from_str(&text[begin..scanner.at]).map_err(|error| error.to_string())?;
        scanner.skip()?;
        scanner.expect(b':')?;
        scanner.skip()?;
        let value = scanner.at;
        scanner.value()?;
        members.push(MemberSpan { name, range: begin..scanner.at, value: value..scanner.at });
        scanner.skip()?;
        if scanner.peek() == Some(b',') {
            scanner.at += 1;
        }
    }
}

// === impl JsoncScanner ===

impl JsoncScanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Result<(), String> {
        if self.peek() != Some(byte) {
            return Err(format!("it isn't valid JSON: missing `{}` at byte {}", char::from(byte), self.at));
        }
        self.at += 1;
        Ok(())
    }

    /// Skips whitespace and comments.
    fn skip(&mut self) -> Result<(), String> {
        loop {
            let rest = &self.text[self.at..];
            if rest.starts_with(b"//") {
                self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            } else if rest.starts_with(b"/*") {
                let end =
                    rest.windows(2).position(|two| two == b"*/").ok_or("it isn't valid JSON: unterminated comment")?;
                self.at += end + 2;
            } else if rest.first().is_some_and(u8::is_ascii_whitespace) || rest.starts_with("\u{feff}".as_bytes()) {
                self.at += if rest[0].is_ascii_whitespace() { 1 } else { 3 };
            } else {
                return Ok(());
            }
        }
    }

    fn string(&mut self) -> Result<(), String> {
        self.expect(b'"')?;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                return Ok(());
            }
        }
        Err("it isn't valid JSON: unterminated string".to_owned())
    }

    /// Skips any value. Its content is validated later, when the parsed values are compared.
    fn value(&mut self) -> Result<(), String> {
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                Some(b'"') => self.string()?,
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.at += 1;
                    self.skip()?;
                    continue;
                }
                Some(b'}' | b']') if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                Some(b',' | b':') if depth > 0 => self.at += 1,
                Some(b',' | b':' | b'}' | b']') | None => {
                    return Err(format!("it isn't valid JSON at byte {}", self.at));
                }
                Some(_) => {
                    let end = self.text[self.at..].iter().position(|byte| b",:{}[]\"/ \t\r\n".contains(byte));
                    self.at = end.map_or(self.text.len(), |end| self.at + end.max(1));
                }
            }
            if depth == 0 {
                return Ok(());
            }
            self.skip()?;
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "nothing is relayed")]
mod tests {
    use serde_json::json;

    use super::*;

    const PATH: [&str; 2] = ["mcpServers", "attache"];

    fn put_in(text: &str) -> String {
        edit(text, PATH, Some(&json!({ "command": "x" }))).unwrap()
    }

    #[test]
    fn adding_and_removing_our_member_keeps_every_other_byte() {
        for (before, with) in [
            (
                "{\n  \"a\": 1.50, // kept\n  \"b\": [1,2]\n}\n",
                "{\n  \"a\": 1.50, // kept\n  \"b\": [1,2],\n  \"mcpServers\": {\n    \"attache\": {\n      \"command\": \"x\"\n    }\n  }\n}\n",
            ),
            (
                "{\"mcpServers\":{\"o\":{\"command\":\"y\"}}}",
                "{\"mcpServers\":{\"o\":{\"command\":\"y\"}, \"attache\": {\n  \"command\": \"x\"\n}}}",
            ),
            (
                "{\n\t\"mcpServers\": {\n\t\t\"o\": {}, /* last */\n\t}\n}",
                "{\n\t\"mcpServers\": {\n\t\t\"o\": {},\n\t\t\"attache\": {\n\t\t  \"command\": \"x\"\n\t\t} /* last */\n\t}\n}",
            ),
        ] {
            let edited = put_in(before);
            assert_eq!(edited, with);
            assert_eq!(put_in(&edited), edited);
        }
        let others = "{\n  \"mcpServers\": {\n    \"o\": { \"command\": \"}{,\\\"\" }\n  },\n  \"z\": null\n}\n";
        let with = put_in(others);
        assert_eq!(edit(&with, PATH, None).unwrap(), others);
        assert_eq!(edit(others, PATH, None).unwrap(), others);
        assert_eq!(edit("", PATH, None).unwrap(), "");
    }

    #[test]
    fn the_first_and_the_only_member_are_removed_cleanly() {
        let first = "{\"mcpServers\": {\"attache\": 1, \"o\": 2}}";
        assert_eq!(edit(first, PATH, None).unwrap(), "{\"mcpServers\": {\"o\": 2}}");
        let only = put_in("");
        assert_eq!(only, "{\n  \"mcpServers\": {\n    \"attache\": {\n      \"command\": \"x\"\n    }\n  }\n}\n");
        assert_eq!(edit(&only, PATH, None).unwrap(), "{\n  \"mcpServers\": {}\n}\n");
    }

    #[test]
    fn an_older_entry_is_replaced_in_place() {
        let before = "{\"mcpServers\": {\"attache\": {\"command\": \"old\"}, \"o\": 2}, \"n\": 12345678901234567890}";
        let after = put_in(before);
        assert_eq!(
            after,
            "{\"mcpServers\": {\"attache\": {\n  \"command\": \"x\"\n}, \"o\": 2}, \"n\": 12345678901234567890}"
        );
    }

    #[test]
    fn text_that_is_not_a_json_object_is_rejected() {
        for odd in [
            "[]",
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "nonsense",
            "{\"mcpServers\": []}",
            "{\"mcpServers\": {\"attache\": tru}}",
        ] {
            assert!(edit(odd, PATH, Some(&json!({}))).is_err(), "{odd}");
        }
    }
}

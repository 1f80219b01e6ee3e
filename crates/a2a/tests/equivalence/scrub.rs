//! Takes out of a text what differs between two tellings of the same story: ids, times, and the version.

use std::collections::BTreeMap;

use attache_protocol::{Json, Timestamp};

/// Ids by the order in which they were first seen.
#[derive(Debug, Default)]
pub struct ScrubbedIds(BTreeMap<String, String>);

// === impl ScrubbedIds ===

impl ScrubbedIds {
    pub fn scrub(&mut self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let taken = match id(rest) {
                Some(length) => {
                    clean.push_str(&self.name(&rest[..length]));
                    length
                }
                None => match time(rest) {
                    Some(length) => {
                        clean.push_str("TIME");
                        length
                    }
                    None => {
                        let length = rest.chars().next().map_or(0, char::len_utf8);
                        clean.push_str(&rest[..length]);
                        length
                    }
                },
            };
            rest = &rest[taken..];
        }
        clean.replace(r#""a2a_version":"0.3""#, r#""a2a_version":"1.0""#)
    }

    fn name(&mut self, id: &str) -> String {
        let kind = id.split_once('_').map_or("uuid", |(kind, _)| kind);
        let next = self.0.len() + 1;
        self.0.entry(id.to_owned()).or_insert_with(|| format!("<{kind} {next}>")).clone()
    }
}

/// The same JSON with the members of every object in order, and nothing else changed: gRPC keeps none.
pub fn sorted(json: &Json) -> String {
    if let Ok(members) = json.parse::<BTreeMap<String, Json>>() {
        let members = members.iter().map(|(name, value)| format!("{}:{}", Json::of(name).get(), sorted(value)));
        return format!("{{{}}}", members.collect::<Vec<_>>().join(","));
    }
    match json.parse::<Vec<Json>>() {
        Ok(items) => format!("[{}]", items.iter().map(sorted).collect::<Vec<_>>().join(",")),
        Err(_) => json.get().to_owned(),
    }
}

/// `run_` and 32 hexadecimal digits, or a uuid with its hyphens.
fn id(text: &str) -> Option<usize> {
    let is_hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let bytes = text.as_bytes();
    let prefix = bytes.iter().take_while(|byte| byte.is_ascii_lowercase()).count();
    if (2..=6).contains(&prefix) && bytes.get(prefix) == Some(&b'_') {
        let digits = bytes[prefix + 1..].iter().take_while(|byte| is_hex(byte)).count();
        if digits == 32 {
            return Some(prefix + 33);
        }
    }
    let shape = bytes.get(..36)?;
    let fits = shape.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => is_hex(byte),
    });
    fits.then_some(36)
}

fn time(text: &str) -> Option<usize> {
    let end = text.as_bytes().iter().take(32).position(|byte| *byte == b'Z')?;
    let found = text.get(..=end)?;
    let begins = found.as_bytes().first().is_some_and(u8::is_ascii_digit) && found.as_bytes().get(10) == Some(&b'T');
    (begins && found.parse::<Timestamp>().is_ok()).then_some(end + 1)
}

#[test]
fn only_ids_and_times_are_taken_out() {
    let mut names = ScrubbedIds::default();
    let run = "run_0193f6a1b2c37d4e8f90a1b2c3d4e5f6";
    let text = format!(r#"{{"id":"{run}","at":"2026-11-15T12:00:00.123Z","to":"{run}-3","n":1.50}}"#);
    assert_eq!(names.scrub(&text), r#"{"id":"<run 1>","at":"TIME","to":"<run 1>-3","n":1.50}"#);
    assert_eq!(
        sorted(&Json::from_text(r#"{"b":[{"d":1e400,"c":""}],"a":1.50}"#).unwrap()),
        r#"{"a":1.50,"b":[{"c":"","d":1e400}]}"#
    );
    assert_eq!(names.scrub("a0a1a2a3-b0b1-c0c1-d0d1-e0e1e2e3e4e5 run_1"), "<uuid 2> run_1");
}

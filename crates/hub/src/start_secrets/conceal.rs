//! Replaces the secrets of a START in an input's text with `***`. Every other byte is unchanged.

use std::{collections::BTreeSet, ops::Range};

use attache_protocol::{Json, json::Members, wire::awcp::REDACTED};
use serde_json::value::RawValue;

/// Where the credential is in a data part, of whatever kind it is: a text, or an object of which only the type is known to all.
const CREDENTIAL: &[&str] = &["data", "awcp", "mount", "credential"];
const CREDENTIAL_TYPE: &str = "type";
const TUNNEL_TOKEN: &[&str] = &["data", "awcp", "mount", "endpoint", "tunnel", "token"];

/// A duplicate member on the path to a secret: parsers would disagree about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DuplicateMember;

/// The parts with secrets hidden. `None` if they have none.
pub(super) fn parts(json: &Json) -> Result<Option<Json>, DuplicateMember> {
    let mut found = Vec::new();
    if may_have(json.get()) {
        in_parts(json.get(), json.get(), &mut found)?;
    }
    Ok(hidden(json.get(), found))
}

/// The same for a complete message.
pub(super) fn message(json: &Json) -> Result<Option<Json>, DuplicateMember> {
    let mut found = Vec::new();
    if may_have(json.get())
        && let Some(parts) = member(json.get(), "parts")?
    {
        in_parts(json.get(), parts, &mut found)?;
    }
    Ok(hidden(json.get(), found))
}

/// A quick check, since most inputs have no secrets. Names may be written with escapes.
fn may_have(text: &str) -> bool {
    text.contains("awcp") || text.contains("\\u")
}

fn in_parts(whole: &str, parts: &str, found: &mut Vec<Range<usize>>) -> Result<(), DuplicateMember> {
    let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(parts) else { return Ok(()) };
    for part in parts {
        let credential = at(part.get(), CREDENTIAL)?;
        let token = at(part.get(), TUNNEL_TOKEN)?;
        let secrets = credential.map(secrets_of).transpose()?.into_iter().flatten().chain(token);
        for secret in secrets.filter(|secret| *secret != "null" && secret.trim_matches('"') != REDACTED) {
            let start = secret.as_ptr().addr() - whole.as_ptr().addr();
            found.push(start..start + secret.len());
        }
    }
    Ok(())
}

fn at<'a>(part: &'a str, path: &[&str]) -> Result<Option<&'a str>, DuplicateMember> {
    path.iter().try_fold(Some(part), |at, name| at.map_or(Ok(None), |object| member(object, name)))
}

fn secrets_of(credential: &str) -> Result<Vec<&str>, DuplicateMember> {
    let Ok(Members(entries)) = serde_json::from_str::<Members<String, &RawValue>>(credential) else {
        return Ok(vec![credential]);
    };
    let names: BTreeSet<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
    if names.len() < entries.len() {
        return Err(DuplicateMember);
    }
    Ok(entries.into_iter().filter(|(name, _)| name != CREDENTIAL_TYPE).map(|(_, value)| value.get()).collect())
}

/// The member of an object as a slice of the same text.
fn member<'a>(object: &'a str, name: &str) -> Result<Option<&'a str>, DuplicateMember> {
    let Ok(Members(entries)) = serde_json::from_str::<Members<String, &'a RawValue>>(object) else { return Ok(None) };
    let mut named = entries.into_iter().filter(|(key, _)| key == name).map(|(_, value)| value.get());
    match (named.next(), named.next()) {
        (found, None) => Ok(found),
        (_, Some(_)) => Err(DuplicateMember),
    }
}

fn hidden(text: &str, mut found: Vec<Range<usize>>) -> Option<Json> {
    if found.is_empty() {
        return None;
    }
    found.sort_by_key(|range| range.start);
    let (mut hidden, mut done) = (String::with_capacity(text.len()), 0);
    for range in found {
        hidden.push_str(&text[done..range.start]);
        hidden.push_str(Json::of(REDACTED).get());
        done = range.end;
    }
    hidden.push_str(&text[done..]);
    Some(Json::from_text(hidden).expect("a string in the place of a value is JSON as well"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::from_text(text).unwrap()
    }

    fn start(credential: &str, token: &str) -> String {
        format!(
            r#"[{{"text" : "go"}}, {{ "data":{{"awcp":{{"n":9007199254740993,"type":"START","mount":{{"credential":{{"type":"private_key","private_key": {credential} }},"endpoint":{{"port":22,"tunnel":{{"url":"wss://h/t","token":{token}}}}}}}}}}}}}]"#
        )
    }

    #[test]
    fn only_the_secrets_change() {
        let (given, kept) = (start(r#""KEY\nline""#, r#""TOKEN""#), start(r#""***""#, r#""***""#));
        assert_eq!(parts(&json(&given)), Ok(Some(json(&kept))));
        assert_eq!(parts(&json(&kept)), Ok(None));
        let message_of = |parts: &str| json(&format!(r#"{{"messageId":"m","parts":{parts}}}"#));
        assert_eq!(message(&message_of(&given)), Ok(Some(message_of(&kept))));
        // Escaped names are the same names, and a secret of another type is still one.
        let escaped = start(r#"{"pem":"KEY"}"#, "7").replace("private_key\":", "private\\u005fkey\":");
        let hidden = start(r#""***""#, r#""***""#).replace("private_key\":", "private\\u005fkey\":");
        assert_eq!(parts(&json(&escaped)), Ok(Some(json(&hidden))));
    }

    /// Another implementation has other credentials.
    #[test]
    fn every_kind_of_credential_is_hidden() {
        let mount = |credential: &str| format!(r#"[{{"data":{{"awcp":{{"mount":{{"credential":{credential}}}}}}}}}]"#);
        for (given, kept) in [
            (r#""SECRET""#, r#""***""#),
            (r#"{"type":"token","token":"T","ttl":[1]}"#, r#"{"type":"token","token":"***","ttl":"***"}"#),
        ] {
            assert_eq!(parts(&json(&mount(given))), Ok(Some(json(&mount(kept)))), "{given}");
        }
        assert_eq!(parts(&json(&mount(r#"{"type":"client_key"}"#))), Ok(None));
        assert_eq!(parts(&json(&mount(r#"{"token":"A","token":"B"}"#))), Err(DuplicateMember));
    }

    #[test]
    fn ambiguous_json_is_refused() {
        let twice = start(r#""KEY","private_key":"OTHER""#, r#""TOKEN""#);
        assert_eq!(parts(&json(&twice)), Err(DuplicateMember));
        let twice = r#"[{"data":{"awcp":{},"awcp":{"mount":{"credential":{"private_key":"KEY"}}}}}]"#;
        assert_eq!(parts(&json(twice)), Err(DuplicateMember));
    }

    #[test]
    fn input_without_secrets_is_unchanged() {
        for text in
            ["[]", "7", r#"[7,{"text":"awcp"}]"#, r#"[{"data":{"awcp":{"mount":null}}}]"#, r#"[{"data":"awcp"}]"#]
        {
            assert_eq!(parts(&json(text)), Ok(None), "{text}");
        }
    }
}

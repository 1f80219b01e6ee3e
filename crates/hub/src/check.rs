//! Validation of lengths, characters and ranges. Every error names the member.

use std::{ops::RangeInclusive, time::Duration};

use attache_client::AllPages;
use attache_protocol::{
    Code, Json,
    id::{AgentId, UserId},
    rules::access::OTHERS,
    wire::runtime::DeclaredExtension,
};
use attache_store::record::{AgentRef, ListPage, Pagination, user::UserRef};

use crate::{Error, Result, error::about};

pub(crate) const MAX_PAGE: usize = 200;
const DEFAULT_PAGE: usize = 50;
/// In place of a user's name: the caller.
pub(crate) const ME: &str = "me";
pub(crate) const MAX_EVENT: usize = 64 * 1024;
const MAX_URI: usize = 300;
const MAX_EXTENSIONS: usize = 16;
const MAX_PARAMS: usize = 16 * 1024;

/// Which page of a list to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageRequest {
    /// 1 to 200. Default: 50.
    pub limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    pub cursor: Option<String>,
}

// === impl PageRequest ===

impl PageRequest {
    pub(crate) fn page(self) -> Result<Pagination> {
        if let Some(cursor) = &self.cursor {
            line("cursor", cursor, 1..=512)?;
        }
        Ok(Pagination { limit: limit(self.limit)?, cursor: self.cursor })
    }
}

/// Every item of a list of the store.
pub(crate) fn all_pages<'a, T: 'a, F>(
    what: &'static str,
    mut read: impl FnMut(Pagination) -> F + Send + 'a,
) -> AllPages<'a, T, Error>
where
    F: Future<Output = attache_store::Result<ListPage<T>>> + Send + 'a,
{
    attache_client::all_pages(usize::MAX, move |cursor| {
        let page = read(Pagination { limit: MAX_PAGE, cursor });
        async move { page.await.map(|page| (page.items, page.next)).map_err(about(what)) }
    })
}

pub(crate) fn limit(given: Option<usize>) -> Result<usize> {
    match given {
        None => Ok(DEFAULT_PAGE),
        Some(limit @ 1..=MAX_PAGE) => Ok(limit),
        Some(_) => Err(Error::invalid("limit", "must be between 1 and 200")),
    }
}

pub(crate) fn after(given: Option<i64>) -> Result<i64> {
    match given.unwrap_or(0) {
        seq @ 0.. => Ok(seq),
        _ => Err(Error::invalid("after", "must not be negative")),
    }
}

/// An id or a name, wherever a request names an agent.
pub(crate) fn agent_ref(field: &str, given: &str) -> Result<AgentRef> {
    if let Ok(id) = given.parse::<AgentId>() {
        return Ok(AgentRef::Id(id));
    }
    if is_name(given) {
        return Ok(AgentRef::Name(given.to_owned()));
    }
    Err(Error::invalid(field, "must be an agent's id (`agt_…`) or name"))
}

/// In a path, text that can't be an agent's id or name names an agent that does not exist.
pub(crate) fn agent_in_path(given: &str) -> Result<AgentRef> {
    agent_ref("agent", given).map_err(|_| Error::not_found("agent"))
}

pub(crate) fn agent_name(given: &str) -> Result<()> {
    if !is_name(given) {
        let why = "must be 1 to 64 characters of a-z, 0-9, `.`, `-` and `_`, and start with a letter or digit";
        return Err(Error::invalid("name", why));
    }
    // `agt_…` would be read as an id wherever an agent is named.
    if given.starts_with(AgentId::PREFIX) {
        return Err(Error::invalid("name", "must not start with `agt_`, which is reserved for ids"));
    }
    Ok(())
}

/// An id or a name, wherever a request names a user.
pub(crate) fn user_ref(field: &str, given: &str) -> Result<UserRef> {
    match given.parse::<UserId>() {
        Ok(id) => Ok(UserRef::Id(id)),
        Err(_) if is_name(given) => Ok(UserRef::Name(given.to_owned())),
        Err(_) => Err(Error::invalid(field, "must be a user's id (`usr_…`) or name")),
    }
}

/// User names follow the rules for agent names, so that access rules can use both.
pub(crate) fn user_name(given: &str) -> Result<()> {
    if !is_name(given) {
        let why = "must be 1 to 64 characters of a-z, 0-9, `.`, `-` and `_`, and start with a letter or digit";
        return Err(Error::invalid("name", why));
    }
    if given.starts_with(UserId::PREFIX) || given == ME {
        return Err(Error::invalid("name", "must not be `me` or start with `usr_`, which is reserved for ids"));
    }
    if given == OTHERS {
        return Err(Error::invalid("name", "must not be `other_users`, which access rules use for all other users"));
    }
    Ok(())
}

pub(crate) fn is_name(given: &str) -> bool {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = given.as_bytes();
    (1..=64).contains(&bytes.len())
        && bytes.first().is_some_and(plain)
        && bytes.iter().all(|byte| plain(byte) || b"._-".contains(byte))
}

/// A single line for people: no control characters.
pub(crate) fn line(field: &str, given: &str, length: RangeInclusive<usize>) -> Result<()> {
    if given.chars().any(char::is_control) {
        return Err(Error::invalid(field, "must not contain control characters"));
    }
    text(field, given, length)
}

/// Any text, measured in bytes.
pub(crate) fn text(field: &str, given: &str, length: RangeInclusive<usize>) -> Result<()> {
    if length.contains(&given.len()) {
        return Ok(());
    }
    Err(Error::invalid(field, &format!("must be {} to {} bytes long", length.start(), length.end())))
}

/// Printable ASCII, for keys that are sent in headers.
pub(crate) fn token(field: &str, given: &str, length: RangeInclusive<usize>) -> Result<()> {
    if !given.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::invalid(field, "must be printable ASCII without spaces"));
    }
    text(field, given, length)
}

pub(crate) fn object(field: &str, given: &Json, size: usize) -> Result<()> {
    if !given.is_object() {
        return Err(Error::invalid(field, "must be a JSON object"));
    }
    sized(field, given, size)
}

pub(crate) fn array(field: &str, given: &Json, size: usize) -> Result<()> {
    if !given.get().starts_with('[') {
        return Err(Error::invalid(field, "must be a JSON array"));
    }
    sized(field, given, size)
}

pub(crate) fn sized(field: &str, given: &Json, size: usize) -> Result<()> {
    if given.get().len() <= size {
        return Ok(());
    }
    Err(Error::in_field(Code::TooLarge, field, &format!("is larger than {size} bytes")))
}

/// An absolute URI used as an identifier. The hub never calls it.
pub(crate) fn uri(field: &str, given: &str) -> Result<()> {
    line(field, given, 1..=MAX_URI)?;
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
    };
    let is_uri = given.split_once(':').is_some_and(|(scheme, rest)| is_scheme(scheme) && !rest.is_empty());
    match is_uri && !given.contains(|letter: char| letter.is_whitespace() || "<>\"{}|\\^`".contains(letter)) {
        true => Ok(()),
        false => Err(Error::invalid(field, "must be a URI, for example https://example.org/ext/v1")),
    }
}

pub(crate) fn count(field: &str, given: usize, most: usize) -> Result<()> {
    if given <= most { Ok(()) } else { Err(Error::invalid(field, &format!("must have at most {most} entries"))) }
}

/// The extensions a runtime declares.
pub(crate) fn extensions(field: &str, given: &[DeclaredExtension]) -> Result<()> {
    count(field, given.len(), MAX_EXTENSIONS)?;
    for (index, extension) in given.iter().enumerate() {
        uri(&format!("{field}.uri"), &extension.uri)?;
        if given[..index].iter().any(|before| before.uri == extension.uri) {
            return Err(Error::invalid(field, "contains a duplicate extension"));
        }
        if let Some(params) = &extension.params {
            object(&format!("{field}.params"), params, MAX_PARAMS)?;
        }
    }
    Ok(())
}

pub(crate) fn range(field: &str, given: i64, allowed: RangeInclusive<i64>) -> Result<i64> {
    if allowed.contains(&given) {
        return Ok(given);
    }
    Err(Error::invalid(field, &format!("must be between {} and {}", allowed.start(), allowed.end())))
}

pub(crate) fn millis(field: &str, given: u64, allowed: RangeInclusive<Duration>) -> Result<Duration> {
    let duration = Duration::from_millis(given);
    if allowed.contains(&duration) {
        return Ok(duration);
    }
    let (start, end) = (allowed.start().as_millis(), allowed.end().as_millis());
    Err(Error::invalid(field, &format!("must be between {start} and {end} milliseconds")))
}

/// A device's description of itself.
pub(crate) fn device(name: Option<&str>, labels: Option<&Json>) -> Result<()> {
    if let Some(name) = name {
        line("device_name", name, 1..=200)?;
    }
    labels.map_or(Ok(()), |labels| object("labels", labels, 16 * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_are_unambiguous_in_rules() {
        assert_eq!(user_name("other_user"), Ok(()));
        for bad in ["other_users", "_", "me", "usr_x"] {
            assert!(user_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn agent_names_are_plain_and_never_look_like_ids() {
        for good in ["a", "builder", "9lives", "a.b-c_d", &"x".repeat(64)] {
            assert_eq!(agent_name(good), Ok(()), "{good}");
        }
        for bad in ["", "-a", ".a", "A", "a b", "a/b", "é", "agt_x", &"x".repeat(65)] {
            assert!(agent_name(bad).is_err(), "{bad}");
        }
    }
}

//! A JSON object parsed member by member: each stays raw until it is read, and errors name its path.

use std::borrow::Cow;

use serde::{Deserialize, de};
use serde_json::value::RawValue;

use crate::{Code, json::Members, secret::mask, wire::envelope::FrameError};

/// The members of an object in their order.
#[derive(Debug)]
pub struct FrameObject<'a> {
    path: String,
    members: Members<MemberName<'a>, &'a RawValue>,
}

/// Borrowed unless it has escapes.
#[derive(Debug, Deserialize)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

/// Longer texts are cut in error messages.
const MAX_SHOWN: usize = 200;

// === impl FrameObject ===

impl<'a> FrameObject<'a> {
    /// Parses the object at a path of the frame. The frame itself has the empty path.
    pub fn read(path: &str, text: &'a str) -> Result<Self, FrameError> {
        match serde_json::from_str(text) {
            Ok(members) => Ok(Self { path: path.to_owned(), members }),
            Err(error) if !path.is_empty() => Err(FrameError::wrong(path, explain(&error))),
            Err(_) if serde_json::from_str::<de::IgnoredAny>(text).is_ok() => {
                Err(FrameError::new(Code::InvalidFrame, None, "A frame must be a JSON object."))
            }
            Err(error) => {
                let message = format!("The frame is not valid JSON: {}.", mask(&error.to_string()));
                Err(FrameError::new(Code::InvalidJson, None, message))
            }
        }
    }

    /// The member's raw text. The last one wins among duplicates, and `null` counts as absent.
    pub fn raw(&self, name: &str) -> Option<&'a str> {
        let found = self.members.0.iter().rev().find(|(key, _)| key.0 == name)?;
        Some(found.1.get()).filter(|text| *text != "null")
    }

    pub fn optional<T: Deserialize<'a>>(&self, name: &str) -> Result<Option<T>, FrameError> {
        let Some(text) = self.raw(name) else { return Ok(None) };
        serde_json::from_str(text).map(Some).map_err(|error| FrameError::wrong(&self.at(name), explain(&error)))
    }

    pub fn required<T: Deserialize<'a>>(&self, name: &str) -> Result<T, FrameError> {
        self.optional(name)?.ok_or_else(|| FrameError::missing(&self.at(name)))
    }

    /// A member that is an object.
    pub fn object(&self, name: &str) -> Result<Option<Self>, FrameError> {
        match self.raw(name) {
            None => Ok(None),
            Some(text) if text.starts_with('{') => Self::read(&self.at(name), text).map(Some),
            Some(_) => Err(FrameError::wrong(&self.at(name), "must be a JSON object")),
        }
    }

    /// A short line of text.
    pub fn name(&self, name: &str, longest: usize) -> Result<Option<String>, FrameError> {
        let Some(text) = self.optional::<String>(name)? else { return Ok(None) };
        if text.is_empty() || text.len() > longest || text.chars().any(char::is_control) {
            let why = format!("must be 1 to {longest} bytes without control characters");
            return Err(FrameError::wrong(&self.at(name), why));
        }
        Ok(Some(text))
    }

    /// Unix seconds. A fraction is cut off.
    pub(super) fn seconds(&self, name: &str) -> Result<i64, FrameError> {
        let text = self.raw(name).ok_or_else(|| FrameError::missing(&self.at(name)))?;
        let whole = text.split('.').next().unwrap_or(text);
        match (serde_json::from_str::<f64>(text), whole.parse::<i64>()) {
            (Ok(_), Ok(seconds)) => Ok(seconds),
            _ => Err(FrameError::wrong(&self.at(name), "must be a number of seconds since 1970")),
        }
    }

    /// The full path of a member.
    pub fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

fn explain(error: &serde_json::Error) -> String {
    let what: String = crate::json::explain(error).chars().take(MAX_SHOWN).collect();
    format!("is not valid: {what}")
}

//! Parses requests, with errors that name the member.

use attache_hub::surface::{JsonBodyError, body, read_json};
use axum::{
    body::Body,
    http::{HeaderMap, header},
};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::BODY_LIMIT;
use crate::error::{Error, Kind, Result};

pub(super) async fn whole(headers: &HeaderMap, given: Body) -> Result<Bytes> {
    let bytes = body(given, BODY_LIMIT).await?;
    let said = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match bytes.is_empty() || essence == "application/json" || essence.ends_with("+json") {
        true => Ok(bytes),
        false => Err(Error::new(Kind::MediaType, "The body must be JSON. Send `Content-Type: application/json`.")),
    }
}

/// Parses JSON that must be the parameters of an operation.
pub(super) fn params<T: DeserializeOwned>(text: &[u8]) -> Result<T> {
    let is_object = text.trim_ascii_start().starts_with(b"{");
    match read_json(text) {
        // An array would be parsed as positional members, which is never intended.
        Ok(_) | Err(JsonBodyError::Wrong { .. }) if !is_object => {
            Err(Error::new(Kind::Invalid(Vec::new()), "The parameters must be a JSON object."))
        }
        Ok(value) => Ok(value),
        Err(JsonBodyError::NotJson(problem)) => {
            Err(Error::new(Kind::Parse, format!("The body isn't JSON: {problem}.")))
        }
        Err(JsonBodyError::TooDeep(problem)) => Err(Error::new(Kind::Invalid(Vec::new()), format!("{problem}."))),
        Err(JsonBodyError::Wrong { member, problem }) => {
            let field = member.unwrap_or_default();
            if problem.starts_with("missing field") {
                return Err(Error::invalid(field, "is missing"));
            }
            let message = match field.is_empty() {
                true => format!("Invalid parameters: {problem}."),
                false => format!("`{field}` is invalid: {problem}."),
            };
            Err(Error::new(Kind::Invalid(vec![(field, problem)]), message))
        }
    }
}

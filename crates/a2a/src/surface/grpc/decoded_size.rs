//! Limits what the message of a request takes once it is decoded, before it is: two bytes can be a part or a value, which takes a
//! hundred times as much in memory. For callers without a credential it counts like the bytes of a body.

use attache_a2a_wire::grpc::{MalformedMessage, decoded_weight};
use attache_hub::surface::{body, take_memory};
use attache_protocol::Code;
use axum::{
    body::{Body, Bytes},
    extract::Request,
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use tonic::Status;

use super::{LIMIT, status};
use crate::error::{Error, Kind, Result};

/// How much a message may take, and that of an anonymous caller.
const MAX_DECODED: usize = 16 * LIMIT;
const MAX_ANONYMOUS: usize = 8 * super::super::STRANGER_LIMIT;
/// Before each message: whether it is compressed, and its length.
const FRAME_HEAD: usize = 5;
/// The message as it is decoded, and as JSON.
const COPIES: usize = 2;

/// Every method takes one message, so all of it is read before any of it is decoded.
pub(super) async fn check(request: Request, next: Next) -> Response {
    let (parts, given) = request.into_parts();
    let counted = async {
        let bytes = body(given, FRAME_HEAD + LIMIT).await?;
        let decoded = decoded_size(parts.uri.path(), &bytes)?;
        if decoded > MAX_DECODED {
            return Err(too_large(MAX_DECODED));
        }
        if !take_memory(&parts.extensions, decoded, MAX_ANONYMOUS)? {
            return Err(too_large(MAX_ANONYMOUS));
        }
        Ok::<Bytes, Error>(bytes)
    };
    match counted.await {
        Ok(bytes) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Err(error) => Status::from(error).into_http::<Body>().into_response(),
    }
}

/// Of all messages in the body: those after the first are decoded, too.
fn decoded_size(path: &str, mut body: &[u8]) -> Result<usize> {
    let mut decoded = 0_usize;
    while let Some((head, rest)) = body.split_first_chunk::<FRAME_HEAD>() {
        let [is_compressed, length @ ..] = *head;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        // What is compressed, cut off or too long isn't decoded, either.
        let Some((message, rest)) = rest.split_at_checked(length).filter(|_| is_compressed == 0) else { break };
        let weight = decoded_weight(path, message).map_err(|MalformedMessage| status::malformed())?;
        decoded = decoded.saturating_add(weight).saturating_add(COPIES * message.len());
        body = rest;
    }
    Ok(decoded)
}

fn too_large(most: usize) -> Error {
    let text = format!(
        "The message takes more than {} MiB when it is read. Send fewer parts or values, or a file as a `url`.",
        most >> 20
    );
    Error::new(Kind::Hub(Code::TooLarge), text)
}

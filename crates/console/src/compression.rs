//! Compresses pages and assets for browsers that take gzip (RFC 1952). Streams and downloads go as they are.
//!
//! The length of a compressed answer tells a little of its content to whoever can also put text into it. That takes many
//! answers with a chosen text each, and no other site can have a person's browser ask for one: the session's cookie is
//! `SameSite=Strict`.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
};

use attache_protocol::crc32::crc32;
use axum::{
    body::{Body, HttpBody as _},
    extract::Request,
    http::{HeaderMap, HeaderValue, Response, header},
    middleware::Next,
};
use bytes::Bytes;
use miniz_oxide::deflate::compress_to_vec;

use crate::headers::quality;

/// Smaller answers fit into a packet or two anyway.
const MIN_BYTES: u64 = 1024;
/// Larger ones would keep a thread busy for too long.
const MAX_BYTES: u64 = 4 << 20;
/// Fast, and most of what there is to gain.
const LEVEL: u8 = 4;
/// There are far fewer contents that are the same for everybody.
const MAX_PACKED: usize = 1024;
/// Those that were asked for, by tag.
static PACKED: LazyLock<Mutex<HashMap<String, Bytes>>> = LazyLock::new(Mutex::default);
/// Deflate, no name, no time, an unknown system.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

pub(crate) async fn compress(request: Request, next: Next) -> Response<Body> {
    let takes_gzip = takes_gzip(request.headers());
    let response = next.run(request).await;
    if !is_text(response.headers()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    let length = body.size_hint().exact().filter(|length| (MIN_BYTES..=MAX_BYTES).contains(length));
    let Some(length) = length.and_then(|length| usize::try_from(length).ok()).filter(|_| takes_gzip) else {
        return Response::from_parts(parts, body);
    };
    let plain = match axum::body::to_bytes(body, length).await {
        Ok(plain) => plain,
        Err(error) => {
            tracing::warn!(%error, "a page can't be read");
            return Response::from_parts(parts, Body::empty());
        }
    };
    let packed = match public_tag(&parts.headers) {
        Some(tag) => packed_once(tag, &plain),
        None => Bytes::from(gzip(&plain)),
    };
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(packed.len()));
    // The same content, in another form.
    if let Some(tag) = parts.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok())
        && !tag.starts_with("W/")
        && let Ok(weak) = HeaderValue::try_from(format!("W/{tag}"))
    {
        parts.headers.insert(header::ETAG, weak);
    }
    Response::from_parts(parts, Body::from(packed))
}

/// The tag of what is the same for everybody, and so may be kept: the program's own files and documents.
fn public_tag(headers: &HeaderMap) -> Option<&str> {
    let caching = headers.get(header::CACHE_CONTROL)?.to_str().ok()?;
    headers.get(header::ETAG)?.to_str().ok().filter(|_| caching.starts_with("public"))
}

/// Compresses each content once: without a credential, anybody may ask for it as often as they like.
fn packed_once(tag: &str, plain: &[u8]) -> Bytes {
    let mut packed = PACKED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = packed.get(tag) {
        return known.clone();
    }
    let fresh = Bytes::from(gzip(plain));
    if packed.len() < MAX_PACKED {
        packed.insert(tag.to_owned(), fresh.clone());
    }
    fresh
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';');
        let name = parts.next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("gzip") && quality(parts) > 0
    })
}

/// Whether it is one of our texts. A stream of events never ends, and a download is what it is.
fn is_text(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_text = matches!(
        kind,
        "text/html"
            | "text/css"
            | "text/javascript"
            | "text/plain"
            | "text/markdown"
            | "image/svg+xml"
            | "application/manifest+json"
    );
    is_text && !headers.contains_key(header::CONTENT_DISPOSITION) && !headers.contains_key(header::CONTENT_ENCODING)
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut packed = GZIP_HEADER.to_vec();
    packed.extend(compress_to_vec(plain, LEVEL));
    packed.extend(crc32(plain).to_le_bytes());
    #[allow(clippy::cast_possible_truncation, reason = "the length modulo 2^32, as the format wants it")]
    packed.extend((plain.len() as u32).to_le_bytes());
    packed
}

#[cfg(test)]
mod tests {
    use axum::{Router, http::Request, middleware::from_fn, routing::get};
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_the_same_for_everybody_is_compressed_once() {
        let content = "the same text ".repeat(1000);
        let answer = |caching: &'static str| {
            let headers = [("content-type", "text/css"), ("cache-control", caching), ("etag", "\"once\"")];
            let content = content.clone();
            move || async move { (headers, content) }
        };
        let routes = Router::new().route("/public", get(answer("public"))).route("/private", get(answer("no-cache")));
        let router = routes.layer(from_fn(compress));
        let packed = async |path: &str| {
            let request = Request::get(path).header("accept-encoding", "gzip").body(Body::empty()).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            assert_eq!(response.headers()["content-encoding"], "gzip");
            axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap()
        };
        let (first, second) = (packed("/public").await, packed("/public").await);
        assert_eq!(first.as_ptr(), second.as_ptr(), "the same bytes");
        let (first, second) = (packed("/private").await, packed("/private").await);
        assert!(first == second && first.as_ptr() != second.as_ptr());
    }
}

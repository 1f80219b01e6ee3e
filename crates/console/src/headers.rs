//! HTTP headers of every console response.

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, Response, header},
    middleware::Next,
};

/// Only our own script and style files: nothing inline, nothing third-party, no framing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; manifest-src 'self'; worker-src 'self'; frame-ancestors 'none'; base-uri 'none'";

const ALWAYS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // Not `no-referrer`: with it, browsers send `Origin: null` with our own forms, which would look cross-site.
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

pub(crate) async fn secure(request: Request, next: Next) -> Response<Body> {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in ALWAYS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // Pages are personal and must not be stored. Assets set their own caching.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// The quality value among the parameters of a part of an `Accept` header, in thousandths, such as 850 for `q=0.85`. An
/// invalid value counts as 1, as if it were missing.
pub(crate) fn quality<'a>(mut parameters: impl Iterator<Item = &'a str>) -> u32 {
    let quality = parameters.find_map(|parameter| parameter.trim().strip_prefix("q=")).unwrap_or("1");
    let (whole, rest) = quality.split_once('.').unwrap_or((quality, ""));
    let thousandths = || format!("{rest:0<3}").get(..3).and_then(|digits| digits.parse().ok());
    if whole == "0" { thousandths().unwrap_or(1000) } else { 1000 }
}

/// Whether the browser already has the content with this tag.
pub(crate) fn has_cached(asked: &HeaderMap, tag: &str) -> bool {
    asked
        .get(header::IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|tags| tags.split(',').any(|given| given.trim().trim_start_matches("W/") == tag))
}

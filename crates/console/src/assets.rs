//! Style sheets, modules and icons: compiled into the binary, served as immutable under a hash of all of them.

use std::sync::LazyLock;

use axum::{
    body::Body,
    extract::Path,
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
    response::IntoResponse as _,
};

use crate::{headers, problem::PageError};

#[derive(Debug, Clone, Copy)]
struct Asset {
    name: &'static str,
    kind: &'static str,
    content: &'static str,
}

const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

const STYLE: &str = concat!(
    include_str!("../assets/base.css"),
    include_str!("../assets/parts.css"),
    include_str!("../assets/pages.css"),
    include_str!("../assets/approval_card.css"),
    include_str!("../assets/conversation.css"),
    include_str!("../assets/admin.css"),
    include_str!("../assets/docs.css"),
    include_str!("../assets/narrow.css"),
);

const ALL: &[Asset] = &[
    Asset { name: "style.css", kind: CSS, content: STYLE },
    Asset { name: "inbox.js", kind: JS, content: include_str!("../assets/inbox.js") },
    Asset { name: "app.js", kind: JS, content: include_str!("../assets/app.js") },
    Asset { name: "conversation.js", kind: JS, content: include_str!("../assets/conversation.js") },
    Asset { name: "copy.js", kind: JS, content: include_str!("../assets/copy.js") },
    Asset { name: "drafts.js", kind: JS, content: include_str!("../assets/drafts.js") },
    Asset { name: "keys.js", kind: JS, content: include_str!("../assets/keys.js") },
    Asset { name: "live.js", kind: JS, content: include_str!("../assets/live.js") },
    Asset { name: "log.js", kind: JS, content: include_str!("../assets/log.js") },
    Asset { name: "pair.js", kind: JS, content: include_str!("../assets/pair.js") },
    Asset { name: "run.js", kind: JS, content: include_str!("../assets/run.js") },
    Asset { name: "runs.js", kind: JS, content: include_str!("../assets/runs.js") },
    Asset { name: "theme.js", kind: JS, content: include_str!("../assets/theme.js") },
    Asset { name: "time.js", kind: JS, content: include_str!("../assets/time.js") },
    Asset {
        name: "manifest.webmanifest",
        kind: "application/manifest+json",
        content: include_str!("../assets/manifest.webmanifest"),
    },
    Asset {
        name: "manifest.zh-CN.webmanifest",
        kind: "application/manifest+json",
        content: include_str!("../assets/manifest.zh-CN.webmanifest"),
    },
    Asset { name: "icon.svg", kind: "image/svg+xml", content: include_str!("../assets/icon.svg") },
];

/// One hash for all assets, because modules import each other by relative names.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = blake3::Hasher::new();
    for asset in ALL {
        hasher.update(asset.name.as_bytes());
        hasher.update(&[0]);
        hasher.update(asset.content.as_bytes());
        hasher.update(&[0]);
    }
    hasher.finalize().to_hex()[..16].to_owned()
});

static BASE: LazyLock<String> = LazyLock::new(|| format!("/assets/{}", *VERSION));

/// The URL prefix of all assets.
pub(crate) fn base() -> &'static str {
    &BASE
}

pub(crate) async fn serve(
    Path((version, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response<Body>, PageError> {
    // A page of another version needs modules of that version. Mixing versions would break the page.
    let asset =
        ALL.iter().find(|asset| asset.name == name).filter(|_| version == *VERSION).ok_or(PageError::NoSuchPath)?;
    let tag = format!("\"{}-{}\"", *VERSION, asset.name);
    let mut response = if headers::has_cached(&headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, HeaderValue::from_static(asset.kind))], asset.content).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    Ok(response)
}

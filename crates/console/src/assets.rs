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
    content: &'static [u8],
}

const CSS: &str = "text/css; charset=utf-8";
const PNG: &str = "image/png";
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
    Asset { name: "style.css", kind: CSS, content: STYLE.as_bytes() },
    Asset { name: "inbox.js", kind: JS, content: include_bytes!("../assets/inbox.js") },
    Asset { name: "app.js", kind: JS, content: include_bytes!("../assets/app.js") },
    Asset { name: "conversation.js", kind: JS, content: include_bytes!("../assets/conversation.js") },
    Asset { name: "copy.js", kind: JS, content: include_bytes!("../assets/copy.js") },
    Asset { name: "drafts.js", kind: JS, content: include_bytes!("../assets/drafts.js") },
    Asset { name: "keys.js", kind: JS, content: include_bytes!("../assets/keys.js") },
    Asset { name: "live.js", kind: JS, content: include_bytes!("../assets/live.js") },
    Asset { name: "log.js", kind: JS, content: include_bytes!("../assets/log.js") },
    Asset { name: "log_window.js", kind: JS, content: include_bytes!("../assets/log_window.js") },
    Asset { name: "palette.js", kind: JS, content: include_bytes!("../assets/palette.js") },
    Asset { name: "notifications.js", kind: JS, content: include_bytes!("../assets/notifications.js") },
    Asset { name: "offline.js", kind: JS, content: include_bytes!("../assets/offline.js") },
    Asset { name: "passkeys.js", kind: JS, content: include_bytes!("../assets/passkeys.js") },
    Asset { name: "pair.js", kind: JS, content: include_bytes!("../assets/pair.js") },
    Asset { name: "run.js", kind: JS, content: include_bytes!("../assets/run.js") },
    Asset { name: "runs.js", kind: JS, content: include_bytes!("../assets/runs.js") },
    Asset { name: "theme.js", kind: JS, content: include_bytes!("../assets/theme.js") },
    Asset { name: "time.js", kind: JS, content: include_bytes!("../assets/time.js") },
    Asset {
        name: "manifest.webmanifest",
        kind: "application/manifest+json",
        content: include_bytes!("../assets/manifest.webmanifest"),
    },
    Asset {
        name: "manifest.zh-CN.webmanifest",
        kind: "application/manifest+json",
        content: include_bytes!("../assets/manifest.zh-CN.webmanifest"),
    },
    Asset { name: "icon.svg", kind: "image/svg+xml", content: include_bytes!("../assets/icon.svg") },
    // Drawn by `assets/icons.py`.
    Asset { name: "icon-192.png", kind: PNG, content: include_bytes!("../assets/icon-192.png") },
    Asset { name: "icon-512.png", kind: PNG, content: include_bytes!("../assets/icon-512.png") },
    Asset { name: "icon-maskable-192.png", kind: PNG, content: include_bytes!("../assets/icon-maskable-192.png") },
    Asset { name: "icon-maskable-512.png", kind: PNG, content: include_bytes!("../assets/icon-maskable-512.png") },
];

/// One hash for all assets, because modules import each other by relative names.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = blake3::Hasher::new();
    for asset in ALL {
        hasher.update(asset.name.as_bytes());
        hasher.update(&[0]);
        hasher.update(asset.content);
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

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Manifest {
        icons: Vec<ManifestIcon>,
    }

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    struct ManifestIcon {
        src: String,
        #[serde(rename = "type")]
        kind: String,
        sizes: String,
        purpose: String,
    }

    fn manifest(name: &str) -> Vec<ManifestIcon> {
        let asset = ALL.iter().find(|asset| asset.name == name).unwrap();
        serde_json::from_slice::<Manifest>(asset.content).unwrap().icons
    }

    #[test]
    fn the_icons_of_the_manifest_are_what_it_says() {
        let icons = manifest("manifest.webmanifest");
        assert_eq!(icons, manifest("manifest.zh-CN.webmanifest"));
        let wanted = [("192x192", "any"), ("512x512", "any"), ("192x192", "maskable"), ("512x512", "maskable")];
        for (sizes, purpose) in wanted {
            let icon = icons.iter().find(|icon| icon.sizes == sizes && icon.purpose == purpose).unwrap();
            let asset = ALL.iter().find(|asset| asset.name == icon.src).unwrap();
            assert_eq!((asset.kind, icon.kind.as_str()), (PNG, PNG));
            let number = |at: usize| u32::from_be_bytes(asset.content[at..at + 4].try_into().unwrap());
            assert_eq!(asset.content[..8], *b"\x89PNG\r\n\x1a\n");
            assert_eq!(format!("{}x{}", number(16), number(20)), sizes, "{}", icon.src);
        }
    }
}

//! Assets are immutable and served only under their own version.

use attache_protocol::wire::key::Role;
use axum::{
    body::Body,
    http::{Request, StatusCode},
};

use crate::world::{ConsoleWorld, PageAnswer, between};

#[tokio::test]
async fn assets_are_immutable_and_pages_are_not_stored() {
    let world = ConsoleWorld::new().await;
    let visitor = world.signed_in(Role::Owner).await;
    let page = visitor.get("/runs").await;
    assert_eq!(page.header("cache-control"), "no-store");
    let base = format!("/assets/{}", between(&page.body, "/assets/", "/"));

    for (name, kind) in [
        ("style.css", "text/css; charset=utf-8"),
        ("app.js", "text/javascript; charset=utf-8"),
        ("run.js", "text/javascript; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ] {
        let asset = world.visitor().get(&format!("{base}/{name}")).await;
        assert_eq!((asset.status, asset.header("content-type")), (StatusCode::OK, kind));
        assert_eq!(asset.header("cache-control"), "public, max-age=31536000, immutable");
        let request = Request::get(format!("{base}/{name}")).header("if-none-match", asset.header("etag"));
        let again = world.visitor().send(request, Body::empty()).await;
        assert_eq!((again.status, again.body.as_str()), (StatusCode::NOT_MODIFIED, ""));
    }
    for missing in ["/assets/0000000000000000/app.js", &format!("{base}/none.js"), &format!("{base}/..%2fapp.js")] {
        assert_eq!(world.visitor().get(missing).await.status, StatusCode::NOT_FOUND, "{missing}");
    }
}

#[tokio::test]
async fn pages_and_assets_are_compressed_for_whoever_takes_it() {
    let world = ConsoleWorld::new().await;
    let visitor = world.signed_in(Role::Owner).await;
    let page = visitor.get("/runs").await.body;
    let style = format!("/assets/{}/style.css", between(&page, "/assets/", "/"));
    let icon = style.replace("style.css", "icon-192.png");
    for (path, accepted, is_packed) in [
        ("/runs", "gzip, deflate, br", true),
        ("/runs", "br;q=1, GZIP;q=0.5", true),
        (&style, "gzip", true),
        ("/runs", "gzip;q=0", false),
        ("/runs", "br", false),
        ("/runs", "", false),
        (&icon, "gzip", false),
    ] {
        let answer = visitor.send(Request::get(path).header("accept-encoding", accepted), Body::empty()).await;
        let expected = if is_packed { "gzip" } else { "" };
        assert_eq!((answer.status, answer.header("content-encoding")), (StatusCode::OK, expected), "{path} {accepted}");
        assert_eq!(answer.header("vary").contains("accept-encoding"), path != icon, "{path}");
        let plain = visitor.get(path).await;
        let length =
            |answer: &PageAnswer| answer.header("content-length").parse::<usize>().unwrap_or(answer.bytes.len());
        if is_packed {
            // The checksum and the length are at the end, the deflated content is between.
            let (packed, end) = answer.bytes[10..].split_last_chunk::<8>().unwrap();
            let inflated = miniz_oxide::inflate::decompress_to_vec(packed).unwrap();
            assert_eq!(inflated.len(), plain.bytes.len(), "{path}");
            assert_eq!(end[..4], attache_protocol::crc32::crc32(&inflated).to_le_bytes());
            assert!(length(&answer) * 3 < plain.bytes.len() && length(&answer) == answer.bytes.len(), "{path}");
        }
    }
    // A browser that has it needs nothing, in whichever form it has it.
    let packed = visitor.send(Request::get(&style).header("accept-encoding", "gzip"), Body::empty()).await;
    let again = Request::get(&style).header("accept-encoding", "gzip").header("if-none-match", packed.header("etag"));
    assert_eq!(visitor.send(again, Body::empty()).await.status, StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn every_module_that_a_module_imports_is_served() {
    let world = ConsoleWorld::new().await;
    let page = world.signed_in(Role::Owner).await.get("/runs").await;
    let base = format!("/assets/{}", between(&page.body, "/assets/", "/"));
    let pages = ["app.js", "conversation.js", "inbox.js", "run.js", "runs.js", "pair.js"];
    let mut waiting: Vec<_> = pages.map(str::to_owned).to_vec();
    let mut seen = Vec::new();
    while let Some(name) = waiting.pop() {
        let asset = world.visitor().get(&format!("{base}/{name}")).await;
        assert_eq!(asset.status, StatusCode::OK, "{name}");
        assert!(asset.body.starts_with("// "), "{name} says what it does in its first line");
        for import in asset.body.lines().filter(|line| line.starts_with("import ")) {
            let module = between(import, "\"./", "\"").to_owned();
            if !seen.contains(&module) {
                waiting.push(module);
            }
        }
        seen.push(name);
    }
}

//! Assets are immutable and served only under their own version.

use attache_protocol::wire::key::Role;
use axum::{
    body::Body,
    http::{Request, StatusCode},
};

use crate::world::{ConsoleWorld, between};

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

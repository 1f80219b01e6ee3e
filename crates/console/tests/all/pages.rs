//! Every page for every role: content, actions and paging.

use attache_hub::control::DecisionOrigin;
use attache_protocol::{
    rules::permission::DecisionScope,
    wire::{key::Role, permission::DecisionRequest, run::CreateRunRequest},
};
use axum::{
    body::Body,
    http::{Request, StatusCode},
};

use crate::world::{ConsoleWorld, PageAnswer, TestVisitor, asking, between};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; manifest-src 'self'; worker-src 'self'; frame-ancestors 'none'; base-uri 'none'";

#[tokio::test]
async fn every_page_renders_for_every_role_with_its_headers() {
    let world = ConsoleWorld::new().await;
    let agent = world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let channel = device.open_channel(&world).await;
    let run = world.ask("builder", "Upgrade the parser").await;
    device.claim().await;
    let asked = device.ask(run, asking("Run", r#"{"command":"cargo test"}"#)).await;
    for role in Role::ALL {
        let visitor = world.signed_in(role).await;
        let manages = role >= Role::Operator;
        let reads = role >= Role::Admin;
        for (path, status) in [
            ("/runs".to_owned(), 200),
            ("/runs?status=running&agent=builder".to_owned(), 200),
            (format!("/runs/{run}"), 200),
            (format!("/runs/{run}/part"), 200),
            (format!("/runs/rows?ids={run}"), 200),
            (format!("/runs/{run}/log.jsonl"), 200),
            ("/runs/new".to_owned(), 200),
            ("/agents".to_owned(), 200),
            (format!("/agents/{}", agent.agent_id), 200),
            ("/agents/builder".to_owned(), 200),
            ("/pair".to_owned(), 200),
            ("/nav?at=agents".to_owned(), 200),
            ("/inbox".to_owned(), 200),
            ("/conversations".to_owned(), 200),
            (format!("/conversations/{}", run.own_conversation()), 200),
            (format!("/approvals/{}", asked.permission_request_id), 200),
            ("/channels".to_owned(), 200),
            (format!("/channels/{}", channel.id), 200),
            ("/approvals/prm_00000000000000000000000000000000".to_owned(), 404),
            ("/channels/chn_x".to_owned(), 404),
            ("/channels/chn_00000000000000000000000000000000".to_owned(), 404),
            ("/audit".to_owned(), if reads { 200 } else { 403 }),
            ("/settings".to_owned(), 200),
            ("/people".to_owned(), 200),
            ("/people/owner".to_owned(), if reads { 200 } else { 404 }),
            ("/people/usr_00000000000000000000000000000000".to_owned(), 404),
            ("/rules".to_owned(), if reads { 200 } else { 403 }),
            ("/usage".to_owned(), 200),
            ("/usage?show=cost&days=90&by=user".to_owned(), 200),
            ("/deliveries".to_owned(), 200),
            ("/deliveries?state=failed".to_owned(), 200),
            ("/deliveries/dlv_00000000000000000000000000000000".to_owned(), 404),
            // Whoever is signed in is led to the console.
            ("/login".to_owned(), 303),
            ("/runs/run_x".to_owned(), 404),
            ("/runs/run_00000000000000000000000000000000".to_owned(), 404),
            ("/agents/nobody".to_owned(), 404),
            ("/artifacts/art_00000000000000000000000000000000".to_owned(), 404),
        ] {
            let page = visitor.get(&path).await;
            assert_eq!(page.status.as_u16(), status, "{path} for {role:?}");
            assert_eq!(page.header("content-security-policy"), POLICY, "{path}");
            assert_eq!(page.header("x-content-type-options"), "nosniff", "{path}");
            assert_eq!(page.header("referrer-policy"), "same-origin", "{path}");
            assert_eq!(page.header("cache-control"), "no-store", "{path}");
            // A duplicate id would make live updates replace the wrong part.
            let mut names: Vec<_> =
                page.body.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
            names.sort_unstable();
            let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
            assert_eq!(twice, Vec::<&[&str]>::new(), "{path}");
        }
        let page = visitor.get(&format!("/runs/{run}")).await;
        assert_eq!(page.body.contains("/cancel\""), manages, "{role:?}");
        assert_eq!(page.body.contains("value=\"allow_once\""), manages, "{role:?}");
        let page = visitor.get("/inbox").await;
        assert!(page.body.contains("<b class=\"n you\" id=\"asked\">1<"), "{role:?}");
        assert_eq!(page.body.contains("value=\"allow_once\""), manages, "{role:?}");
        let page = visitor.get("/agents").await;
        assert_eq!(page.body.contains("action=\"/agents\""), manages, "{role:?}");
        assert_eq!(page.body.contains("href=\"/audit\""), reads, "{role:?}");
        assert!(page.body.contains("href=\"/usage\""), "{role:?}");
        let page = visitor.get("/settings").await;
        assert_eq!(page.body.contains("href=\"/rules\""), reads, "{role:?}");
        let page = visitor.get("/people").await;
        assert_eq!(page.body.contains("action=\"/settings/keys\""), manages, "{role:?}");
        assert_eq!(page.body.contains("action=\"/people\""), reads, "{role:?}");
        assert!(!page.body.contains("action=\"/people/password\""), "a session without a user has no password");
        let page = visitor.get("/usage").await;
        assert_eq!(page.body.contains("action=\"/usage/quotas\""), reads, "{role:?}");
        assert_eq!(visitor.get("/runs/new").await.body.contains("<textarea"), manages, "{role:?}");
        if !manages {
            let refused = visitor.post(&format!("/runs/{run}/cancel"), &[]).await;
            assert_eq!(refused.status, StatusCode::FORBIDDEN);
        }
    }
}

#[tokio::test]
async fn an_unknown_path_has_an_error_page() {
    let router = attache_console::not_found();
    let request = axum::http::Request::get("/nowhere").body(axum::body::Body::empty()).unwrap();
    let answer = tower::ServiceExt::oneshot(router, request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    assert_eq!(answer.headers()["content-security-policy"], POLICY);
}

#[tokio::test]
async fn the_run_list_pages_by_cursor_and_keeps_its_filters_in_the_url() {
    let world = ConsoleWorld::new().await;
    world.agent("builder").await;
    world.agent("scribe").await;
    for number in 0..120 {
        world.ask("builder", &format!("task number {number:03}")).await;
    }
    world.ask("scribe", "write a poem").await;
    let visitor = world.signed_in(Role::Viewer).await;

    let first = visitor.get("/runs?agent=builder&status=pending").await;
    assert_eq!(first.body.matches("<tr id=\"run_").count(), 50);
    assert!(first.body.contains("task number 119") && !first.body.contains("poem"));
    let older = between(&first.body, "class=\"btn\" href=\"", "\"").replace("&#38;", "&").replace("&amp;", "&");
    assert!(older.starts_with("/runs?status=pending&agent=builder&cursor="), "{older}");
    let second = visitor.get(&older).await;
    assert_eq!(second.body.matches("<tr id=\"run_").count(), 50);
    assert!(second.body.contains("task number 069") && !second.body.contains("task number 070"));
    // Removing a filter keeps the other one and returns to the newest runs.
    assert!(second.body.contains("href=\"/runs?status=pending\""));

    let found = visitor.get("/runs?q=NUMBER%20007").await;
    assert_eq!(found.body.matches("<tr id=\"run_").count(), 1);
    assert!(found.body.contains("task number 007") && !found.body.contains("task number 008"));
    let none = visitor.get("/runs?agent=nobody").await;
    assert!(none.body.contains("No matching runs"));
    let bad = visitor.get("/runs?cursor=%00").await;
    assert!(bad.status.is_client_error(), "{}", bad.status);
}

#[tokio::test]
async fn the_run_page_shows_why_a_run_waits_and_how_it_ended() {
    let world = ConsoleWorld::new().await;
    world.agent("builder").await;
    let visitor = world.signed_in(Role::Operator).await;
    let first = world.ask("builder", "first\nwith a second line").await;
    let page = visitor.get(&format!("/runs/{first}")).await.body;
    assert!(page.contains("no device is paired with <bdi>builder</bdi> yet"), "{page}");

    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let page = visitor.get(&format!("/runs/{first}")).await.body;
    assert!(page.contains("Queued: next up for <bdi>builder</bdi>."));
    assert_eq!(device.claim().await, first);
    let second = world.ask("builder", "second").await;
    let page = visitor.get(&format!("/runs/{second}")).await.body;
    assert!(page.contains(&format!("is busy with <a href=\"/runs/{first}\">another run</a>.")));
    let page = visitor.get(&format!("/runs/{first}")).await.body;
    assert!(
        page.contains("Running on <bdi>workstation-2</bdi>, started <time")
            && page.contains("Claude Code CLI on workstation-2")
    );

    device.say(first, "one ").await;
    device.say(first, "two").await;
    device.fail(first, "it broke", "host_crashed").await;
    let page = visitor.get(&format!("/runs/{first}")).await.body;
    assert!(page.contains("one two"), "pieces of one text stand together");
    for words in ["The agent’s program crashed", "it broke", "host_crashed", "Fix the program on the device", "/again"]
    {
        assert!(page.contains(words), "{words}");
    }

    let cancelled = visitor.post(&format!("/runs/{second}/cancel"), &[("reason", "not needed")]).await;
    assert_eq!(cancelled.header("location"), format!("/runs/{second}"));
    let page = visitor.get(&format!("/runs/{second}")).await.body;
    assert!(page.contains("The run was cancelled") && page.contains("not needed"));

    let fields = [("key", "console-1")];
    let again = visitor.post(&format!("/runs/{second}/again"), &fields).await;
    let third = again.header("location").to_owned();
    assert!(third.starts_with("/runs/run_") && third != format!("/runs/{second}"));
    let twice = visitor.post(&format!("/runs/{second}/again"), &fields).await;
    assert_eq!(twice.header("location"), third, "a form that is sent twice makes one run");
    assert!(visitor.get(&third).await.body.contains("second"));

    let log = visitor.get(&format!("/runs/{first}/log.jsonl")).await;
    assert_eq!(log.header("content-disposition"), format!("attachment; filename*=UTF-8''{first}.jsonl"));
    let kinds: Vec<_> = log.body.lines().map(|line| between(line, "\"type\":\"", "\"")).collect();
    assert_eq!(kinds, ["task.created", "task.claimed", "task.chunk", "task.chunk", "task.failed"]);
}

#[tokio::test]
async fn a_key_is_shown_once_and_the_log_shows_who_made_it() {
    let world = ConsoleWorld::new().await;
    let visitor = world.signed_in(Role::Owner).await;
    let page = visitor.post("/settings/keys", &[("name", "ci"), ("role", "viewer")]).await;
    let secret = between(&page.body, "id=\"secret\">", "<").to_owned();
    assert!(secret.starts_with("ak_"));
    assert_eq!(world.hub.authenticate_key(&secret).await.unwrap().role(), Some(Role::Viewer));
    for path in ["/people", "/audit"] {
        assert!(!visitor.get(path).await.body.contains(&secret), "{path}");
    }
    let audit = visitor.get("/audit?type=key").await;
    assert!(audit.body.contains("key.created") && audit.body.contains("Hash chain intact"), "{}", audit.body);
    let page = visitor.get("/people").await;
    let revoke = format!("/settings/keys/{}", between(&page.body, "action=\"/settings/keys/", "\""));
    assert_eq!(visitor.post(&revoke, &[]).await.header("location"), "/people?said=revoked");
    assert!(world.hub.authenticate_key(&secret).await.is_err());
}

#[tokio::test]
async fn the_audit_log_pages_backwards_without_gaps() {
    let world = ConsoleWorld::new().await;
    world.agent("builder").await;
    for number in 0..130 {
        world.ask("builder", &format!("task {number}")).await;
    }
    let visitor = world.signed_in(Role::Admin).await;
    let mut path = "/audit".to_owned();
    let mut seen = Vec::new();
    loop {
        let page = visitor.get(&path).await;
        assert!(page.body.contains("Hash chain intact"), "{path}");
        seen.extend(
            page.body
                .match_indices("<td class=\"mono dim\">")
                .map(|(at, mark)| between(&page.body[at..], mark, "<").parse::<i64>().unwrap()),
        );
        if !page.body.contains("rel=\"next\"") {
            break;
        }
        let link = page.body.split("<a class=\"btn\" href=\"").last().unwrap();
        path = link.split('"').next().unwrap().replace("&#38;", "&").replace("&amp;", "&");
    }
    let head = *seen.first().unwrap();
    assert_eq!(seen, (1..=head).rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn the_theme_is_kept_without_scripts() {
    let world = ConsoleWorld::new().await;
    let mut visitor = world.signed_in(Role::Viewer).await;
    assert!(!visitor.get("/runs").await.body.contains("data-theme"));
    let saved = visitor.post("/settings/theme", &[("theme", "dark")]).await;
    visitor.keep(&saved);
    assert!(visitor.get("/runs").await.body.contains("<html lang=\"en\" data-theme=\"dark\""));
}

#[tokio::test]
async fn artifacts_are_downloads_and_long_output_is_folded() {
    let world = ConsoleWorld::new().await;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let run = world.ask("builder", "make a page").await;
    device.claim().await;
    device.say(run, &"x".repeat(20 * 1024)).await;
    let upload = attache_hub::control::ArtifactUpload {
        name: "evil \"page\".html".to_owned(),
        media_type: Some("text/html".to_owned()),
    };
    let bytes = axum::body::Body::from("<script>alert(1)</script>").into_data_stream();
    let workspace = run.own_conversation().workspace();
    let artifact = world.hub.upload_artifact(&device.principal, workspace, upload, bytes).await.unwrap();
    let output = format!("{{\"text\":\"made\",\"artifact_refs\":[\"{}\"]}}", artifact.artifact_id);
    let output = attache_protocol::Json::from_text(output).unwrap();
    let request = attache_protocol::wire::run::CompleteRequest { epoch: None, output, usage: None, inputs_taken: None };
    world.hub.complete(&device.principal, run, request).await.unwrap();

    let visitor = world.signed_in(Role::Viewer).await;
    let page = visitor.get(&format!("/runs/{run}")).await.body;
    assert!(page.contains("Show 4.0 KiB more"));
    assert!(page.contains(&format!("href=\"/artifacts/{}\"", artifact.artifact_id)));
    let file = visitor.get(&format!("/artifacts/{}", artifact.artifact_id)).await;
    assert_eq!(file.body, "<script>alert(1)</script>");
    assert_eq!(file.header("content-type"), "application/octet-stream");
    assert_eq!(file.header("content-disposition"), "attachment; filename*=UTF-8''evil%20%22page%22.html");
    assert_eq!(file.header("content-security-policy"), POLICY);
}

#[tokio::test]
async fn people_and_devices_are_shown_by_name() {
    let world = ConsoleWorld::new().await;
    world.agent("builder").await;
    let device = world.pair("builder", "workbench", "claude_cli").await;
    let (_, ada) = world.person("ada", Role::Operator).await;
    let ada = ada.principal(&world).await;
    let run = world.ask_with(&ada, "builder", "Publish it", CreateRunRequest::default()).await;
    assert_eq!(device.claim().await, run);
    let request = device.ask(run, asking("Run", r#"{"command":"cargo publish"}"#)).await;
    let place = DecisionOrigin { via: "api", from: None };
    let yes = DecisionRequest {
        approved: true,
        scope: DecisionScope::Once,
        tool_pattern: None,
        until: None,
        this_channel_only: false,
        comment: None,
    };
    world.hub.decide(&ada, request.permission_request_id, yes, place).await.unwrap();

    let visitor = world.signed_in(Role::Admin).await;
    let rows = visitor.get("/runs").await.body;
    assert!(rows.contains("<bdi>ada</bdi></span><span class=\"sub clip\">API key</span>"), "{rows}");
    let page = visitor.get(&format!("/runs/{run}")).await.body;
    assert!(page.contains("<bdi>ada</bdi> <span class=\"dim\">API key</span>"), "{page}");
    assert!(page.contains("by <bdi>ada</bdi>"), "who decided is named in the log: {page}");
    assert!(!page.contains("key_…"), "{page}");
    let log = visitor.get("/audit").await.body;
    assert!(log.contains("<bdi>ada</bdi></span><span class=\"sub clip\">API key</span>"), "{log}");
    assert!(log.contains("&#34;runtime_id&#34;:&#34;workbench&#34;"), "{log}");
    assert!(log.contains(">builder · run_"), "{log}");
    assert!(!log.contains("key_…"), "{log}");
    let decided = visitor.get("/inbox").await.body;
    assert!(decided.contains("by <bdi>ada</bdi>"), "{decided}");
}

/// Submits a form with files, like a browser.
async fn send_files(visitor: &TestVisitor, fields: &[(&str, &str)], files: &[(&str, &[u8])]) -> PageAnswer {
    let page = visitor.get("/settings").await;
    let token = between(&page.body, "name=\"csrf\" value=\"", "\"").to_owned();
    let mut body = Vec::new();
    for (name, value) in [&("csrf", token.as_str())].into_iter().chain(fields) {
        body.extend(format!("--XyZ\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n").bytes());
    }
    for (name, bytes) in files {
        let head = format!("--XyZ\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n");
        body.extend(format!("{head}Content-Type: image/png\r\n\r\n").bytes());
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--XyZ--\r\n");
    let request = Request::post("/runs").header("content-type", "multipart/form-data; boundary=XyZ");
    visitor.send(request, Body::from(body)).await
}

#[tokio::test]
async fn small_files_are_sent_inline_and_large_ones_as_artifacts() {
    let world = ConsoleWorld::new().await;
    let agent = world.agent("builder").await.agent_id.to_string();
    let visitor = world.signed_in(Role::Operator).await;
    let fields = [("agent", agent.as_str()), ("text", "Look at this\r\nand that"), ("key", "k1")];
    let large: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let answer = send_files(&visitor, &fields, &[("dot.png", b"\x89PNG\r\n--Xy"), ("large.png", &large)]).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
    let run = answer.header("location").strip_prefix("/runs/").unwrap().parse().unwrap();
    let run = world.hub.run(&world.owner, run).await.unwrap();
    let input: serde_json::Value = run.input.parse().unwrap();
    assert_eq!(input["text"], "Look at this\nand that");
    let parts = input["message"]["parts"].as_array().unwrap();
    let small = ["raw", "filename", "mediaType"].map(|name| parts[1][name].as_str().unwrap());
    assert_eq!(small, ["iVBORw0KLS1YeQ==", "dot.png", "image/png"]);
    let artifact = parts[2]["url"].as_str().unwrap().strip_prefix("artifact:").unwrap().parse().unwrap();
    let (stored, mut file) = world.hub.open_artifact(&world.owner, artifact).await.unwrap();
    let mut bytes = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut file, &mut bytes).await.unwrap();
    assert!(bytes == large && stored.name == "large.png", "{} bytes", bytes.len());
    // The same form again is the same run, an empty field is no file, and a cross-site form is rejected.
    let none = send_files(&visitor, &[("agent", &agent), ("text", "No file")], &[("", b"")]).await;
    assert_eq!(none.status, StatusCode::SEE_OTHER, "{}", none.body);
    let body = "--XyZ\r\nContent-Disposition: form-data; name=\"csrf\"\r\n\r\nwrong\r\n--XyZ--\r\n";
    let request = Request::post("/runs").header("content-type", "multipart/form-data; boundary=XyZ");
    assert_eq!(visitor.send(request, Body::from(body)).await.status, StatusCode::FORBIDDEN);
}

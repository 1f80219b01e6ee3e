//! Untrusted text is never rendered as markup.

use attache_protocol::{
    Json,
    wire::{account::AccountRequest, key::Role, run::ProgressRequest},
};

use crate::world::ConsoleWorld;

const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>";

fn assert_inert(body: &str, path: &str) {
    for mark in ["<script>alert", "<img src=x", "\"'><img", "\u{1b}", "\u{202e}", "onerror=alert(1)>\"", "style=\""] {
        assert!(!body.contains(mark), "{mark:?} is on {path}");
    }
    for script in body.match_indices("<script") {
        assert!(body[script.0..].starts_with("<script type=\"module\" src=\"/assets/"), "inline script on {path}");
    }
    for handler in [" onclick", " onload", " onsubmit", "javascript:"] {
        assert!(!body.contains(handler), "{handler} on {path}");
    }
}

#[tokio::test]
async fn hostile_names_tasks_and_output_are_inert_everywhere() {
    let world = ConsoleWorld::new().await;
    let agent = world.agent("builder").await;
    let id = agent.agent_id.to_string();
    let update = AccountRequest {
        description: Some(HOSTILE.to_owned()),
        instructions: Some(format!("{HOSTILE}</textarea>{HOSTILE}")),
        ..AccountRequest::default()
    };
    world.hub.update_account(&world.owner, "builder", update).await.unwrap();
    let device = world.pair("builder", HOSTILE, HOSTILE).await;
    let run = world.ask("builder", &format!("{HOSTILE}\u{1b}[31m\u{202e}")).await;
    assert_eq!(device.claim().await, run);
    device.say(run, &format!("\u{1b}]0;{HOSTILE}\u{7}{HOSTILE}\u{1b}[2J")).await;
    let rest = ProgressRequest {
        message: Some(HOSTILE.to_owned()),
        thought: Some(Json::of(HOSTILE)),
        log: Some(Json::from_text(format!("{{\"level\":{0},\"message\":{0}}}", Json::of(HOSTILE).get())).unwrap()),
        tool_call: Some(Json::from_text(format!("{{\"tool_name\":{0},\"x\":{0}}}", Json::of(HOSTILE).get())).unwrap()),
        ..ProgressRequest::default()
    };
    device.report(run, rest).await;
    let running = world.ask("builder", HOSTILE).await;
    device.fail(run, HOSTILE, HOSTILE).await;
    let other = device.claim().await;
    assert_eq!(other, running);
    device.complete(running, HOSTILE).await;

    let visitor = world.signed_in(Role::Owner).await;
    let made = visitor.post("/settings/keys", &[("name", HOSTILE), ("role", "viewer")]).await;
    assert_inert(&made.body, "a new key");
    for (path, fields) in [
        ("/people", [("name", HOSTILE), ("role", HOSTILE)]),
        ("/rules", [("text", HOSTILE), ("version", HOSTILE)]),
        ("/rules", [("do", "check"), ("object", HOSTILE)]),
        ("/usage/quotas", [("calls", HOSTILE), ("cost", HOSTILE)]),
    ] {
        assert_inert(&visitor.post(path, &fields).await.body, path);
    }
    for path in [
        "/people".to_owned(),
        "/rules".to_owned(),
        "/usage".to_owned(),
        format!("/usage?user={0}&agent={0}&show={0}", crate::world::encode(HOSTILE)),
        format!("/deliveries?state={}", crate::world::encode(HOSTILE)),
        "/runs".to_owned(),
        format!("/runs?q={}", crate::world::encode(HOSTILE)),
        format!("/runs?agent={}", crate::world::encode(HOSTILE)),
        format!("/runs?caller={}", crate::world::encode(HOSTILE)),
        format!("/runs?q=agent:x+{}", crate::world::encode(HOSTILE)),
        format!("/runs/{run}"),
        format!("/runs/{running}"),
        format!("/runs/{run}/part"),
        format!("/runs/rows?ids={run},{running}"),
        "/runs/new".to_owned(),
        "/agents".to_owned(),
        format!("/agents/{id}"),
        format!("/agents/{id}/paired?since=0"),
        "/audit".to_owned(),
        format!("/audit?type={}", crate::world::encode(HOSTILE)),
        "/pair".to_owned(),
        format!("/pair?code={}", crate::world::encode(HOSTILE)),
        format!("/login?token={}", crate::world::encode(HOSTILE)),
    ] {
        let page = visitor.get(&path).await;
        assert!(page.status.is_success() || page.status == 404, "{path}: {}", page.status);
        assert_inert(&page.body, &path);
    }
    let page = visitor.get(&format!("/runs/{run}")).await;
    assert!(page.body.contains("&#60;script&#62;alert(1)") || page.body.contains("&lt;script&gt;alert(1)"));
    // The live stream sends the same items.
    let stream = visitor.get(&format!("/runs/{run}/live")).await;
    assert!(
        stream.body.contains("event: item") && stream.body.ends_with("event: end\ndata: end\n\n"),
        "{}",
        stream.body
    );
    assert_inert(&stream.body, "live");
}

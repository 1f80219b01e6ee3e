//! Extensions declared by runtimes, and an agent's A2A options.

use hyper::Method;
use serde_json::{Value, json};

use crate::{
    escalation::person,
    work::ClaimedRunFixture,
    world::{Engine, World, on_all},
};

on_all! {
    declared_extensions_are_kept_and_shown
    declared_extensions_have_limits
    only_a_delegator_talks_to_an_agent_that_accepts_folders
    a2a_options_are_kept_as_sent
}

const BEAT: &str = "/api/v1/agent-runtimes/runtime/heartbeat";
const AWCP: &str = "https://awcp-protocol.org/v1";

async fn shown(world: &World, runtime: &str) -> Value {
    world.owner.get(&format!("/api/v1/agent-runtimes/{runtime}")).await.expect(200)["extensions"].clone()
}

async fn declared_extensions_are_kept_and_shown(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    assert_eq!(shown(&world, &device.runtime).await, json!([]));
    // Numbers are kept exactly.
    let declared = format!(
        r#"{{"agent_id":"{}","extensions":[{{"uri":"{AWCP}","params":{{"transports":["sshfs"],"max_ttl_seconds":9007199254740993,"x":42.0}}}},{{"uri":"urn:example:2"}}]}}"#,
        device.agent
    );
    device.client.call(Method::POST, BEAT, declared).await.expect(200);
    let reply = world.owner.get("/api/v1/agent-accounts/builder").await;
    let text = String::from_utf8(reply.body.to_vec()).unwrap();
    let kept = format!(
        r#""extensions":[{{"uri":"{AWCP}","params":{{"transports":["sshfs"],"max_ttl_seconds":9007199254740993,"x":42.0}}}},{{"uri":"urn:example:2"}}]"#
    );
    assert!(text.contains(&kept), "{text}");

    // A heartbeat without the list changes nothing. An empty list removes them.
    device.client.post(BEAT, json!({"agent_id": device.agent, "running": []})).await.expect(200);
    assert_eq!(shown(&world, &device.runtime).await.as_array().unwrap().len(), 2);
    device.client.post(BEAT, json!({"extensions": [{"uri": AWCP}]})).await.expect(200);
    assert_eq!(shown(&world, &device.runtime).await, json!([{"uri": AWCP}]));
    device.client.post(BEAT, json!({"extensions": []})).await.expect(200);
    assert_eq!(shown(&world, &device.runtime).await, json!([]));
    // The next device declares its own.
    device.client.post(BEAT, json!({"extensions": [{"uri": AWCP}]})).await.expect(200);
    let next = world.device("builder").await;
    assert_eq!(shown(&world, &next.runtime).await, json!([]));
}

async fn declared_extensions_have_limits(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let many = |count: usize| (0..count).map(|n| json!({"uri": format!("urn:x:{n}")})).collect::<Vec<_>>();
    for (extensions, status, message) in [
        (json!(many(17)), 400, "`extensions` must have at most 16 entries."),
        (json!([{"uri": AWCP}, {"uri": AWCP}]), 400, "`extensions` contains a duplicate extension."),
        (json!([{"uri": "no uri"}]), 400, "`extensions.uri` must be a URI, for example https://example.org/ext/v1."),
        (
            json!([{"uri": "relative/one"}]),
            400,
            "`extensions.uri` must be a URI, for example https://example.org/ext/v1.",
        ),
        (json!([{"uri": AWCP, "params": [1]}]), 400, "`extensions.params` must be a JSON object."),
        (
            json!([{"uri": AWCP, "params": {"x": "y".repeat(16 * 1024)}}]),
            413,
            "`extensions.params` is larger than 16384 bytes.",
        ),
    ] {
        let refused = device.client.post(BEAT, json!({"extensions": extensions})).await;
        assert_eq!((refused.refusal().0, &refused.json()["error"]["message"]), (status, &json!(message)));
    }
    assert_eq!(shown(&world, &device.runtime).await, json!([]), "what was refused is not kept");
    device.client.post(BEAT, json!({"extensions": many(16)})).await.expect(200);
    assert_eq!(shown(&world, &device.runtime).await, json!(many(16)));
}

async fn a2a_options_are_kept_as_sent(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let accounts = "/api/v1/agent-accounts";
    let a2a = json!({"anonymous": true, "union_card": false, "streaming": false, "push": false, "extended_card": true,
        "hidden": false, "input_modes": ["text/plain"], "output_modes": ["image/*"],
        "extensions": [{"uri": AWCP, "required": true, "description": "folders", "params": {"n": 1}}]});
    let made = world.owner.post(accounts, json!({"name": "builder", "a2a": a2a})).await.expect(201);
    assert_eq!(made["a2a"], a2a);
    let path = format!("{accounts}/builder");
    for (wrong, field) in [
        (json!({"anonymus": true}), "`a2a.anonymus` is not a known member; known members: anonymous, "),
        (
            json!({"extensions": [{"uri": AWCP, "require": true}]}),
            "`a2a.extensions.require` is not a known member; known members: uri, ",
        ),
        (json!({"extensions": [{"uri": "x"}]}), "`a2a.extensions.uri` must be a URI"),
        (json!({"extensions": [{"required": true}]}), "`a2a` is invalid: "),
        (json!({"anonymous": "yes"}), "`a2a` is invalid: "),
        (json!({"input_modes": [""]}), "`a2a.input_modes` "),
        (
            json!({"extensions": (0..33).map(|n| json!({"uri": format!("urn:x:{n}")})).collect::<Vec<_>>()}),
            "`a2a.extensions` must have at most 32 entries.",
        ),
    ] {
        let refused = world.owner.patch(&path, json!({"a2a": wrong})).await;
        assert_eq!(refused.refusal(), (400, "invalid_request".to_owned()), "{wrong}");
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(field), "{message}");
    }
    assert_eq!(world.owner.get(&path).await.expect(200)["a2a"], a2a, "a refusal changes nothing");
    let changed = world.owner.patch(&path, json!({"a2a": {"hidden": true}})).await.expect(200);
    assert_eq!(changed["a2a"], json!({"hidden": true}), "they are replaced, not mixed");
}

/// Otherwise someone else could send the START that says where the folder is.
async fn only_a_delegator_talks_to_an_agent_that_accepts_folders(engine: Engine) {
    let mut work = ClaimedRunFixture::begin(engine).await;
    work.complete().await.expect(200);
    let delegation = json!({"agent_id": "builder", "task_type": "awcp.delegation"});
    let refused = work.world.owner.post("/api/v1/task-runs", delegation.clone()).await;
    assert_eq!(refused.refusal(), (400, "invalid_request".to_owned()));
    work.device.client.post(BEAT, json!({"extensions": [{"uri": AWCP}]})).await.expect(200);
    work.next_run(delegation).await;
    let bob = person(&work.world, "bob", "operator").await;
    let start = json!({"parts": [{"data": {"awcp": {"type": "START"}}}]});
    assert_eq!(bob.post(&work.path("/input"), start.clone()).await.refusal(), (403, "forbidden".to_owned()));
    work.world.owner.post(&work.path("/input"), start).await.expect(200);
}

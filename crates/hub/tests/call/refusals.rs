//! Who may call and read, and the errors for everyone else and for invalid requests.

use hyper::Method;
use serde_json::json;

use super::watcher::{Socket, call, result};
use crate::world::World;

const MISSING: &str = "a2a-00000000000000000000000000000001";

#[tokio::test]
async fn an_agent_sees_only_its_own_calls() {
    let world = World::start().await;
    world.agent("knowledge").await;
    let mut keys = Vec::new();
    // A shared agent, and agents of two people.
    world.owner.patch("/api/v1/agent-accounts/knowledge", json!({"owner": ""})).await.expect(200);
    for name in ["one", "two"] {
        world.owner.post("/api/v1/users", json!({"name": name})).await.expect(201);
        world.agent(name).await;
        world.owner.patch(&format!("/api/v1/agent-accounts/{name}"), json!({"owner": name})).await.expect(200);
        let body = json!({"pairing_token": world.code(name).await});
        let registered = world.anonymous().post("/api/a2a/register", body).await.expect(200);
        keys.push(world.anonymous().key(registered["api_key"].as_str().unwrap()));
    }
    let [one, two] = <[_; 2]>::try_from(keys).unwrap_or_else(|_| panic!("two were made"));
    let own = call(&one, json!({"task": "?", "agent_type": "knowledge"})).await;
    let owners = call(&world.owner, json!({"task": "?", "agent_type": "knowledge"})).await;
    assert_eq!(result(&one, &own).await["status"], "started");
    assert_eq!(result(&world.owner, &own).await["status"], "started");
    let missing = two.get(&format!("/api/a2a/result/{MISSING}")).await;
    assert_eq!(missing.refusal(), (404, "not_found".to_owned()));
    for (client, foreign) in [(&two, own.as_str()), (&one, &owners), (&two, "x"), (&two, "a2a-"), (&two, "%2e%2e")] {
        for place in ["result", "v1/tasks", "watch", "stream"] {
            let path = format!("/api/a2a/{place}/{foreign}");
            for client in [client.clone(), client.with("accept", "text/event-stream")] {
                let reply = client.get(&path).await;
                assert_eq!((reply.status, &reply.body), (404, &missing.body), "{path}");
            }
            if matches!(place, "watch" | "stream") {
                let refused = Socket::try_open(&world, &path, client).await.err().unwrap();
                let tokio_tungstenite::tungstenite::Error::Http(response) = refused else { panic!("{refused}") };
                assert_eq!(response.status().as_u16(), 404, "{path}");
            }
        }
    }
}

#[tokio::test]
async fn calls_follow_the_access_table() {
    let world = World::start().await;
    world.agent("laptop").await;
    let device = world.device("laptop").await;
    let viewer = world.key("viewer").await;
    let id = call(&world.owner, json!({"task": "?"})).await;
    let task = json!({"task": {"description": "?"}});
    for (client, status, code) in
        [(&viewer, 403, "forbidden"), (&device.client, 403, "forbidden"), (&world.anonymous(), 401, "unauthenticated")]
    {
        let refused = client.post("/api/a2a/call", json!({"task": "?", "agent_type": "nobody"})).await;
        assert_eq!(refused.refusal(), (status, code.to_owned()), "before anything is said about agents");
        assert_eq!(client.post("/api/a2a/v1/tasks", task.clone()).await.refusal(), (status, code.to_owned()));
    }
    assert_eq!(result(&viewer, &id).await["status"], "started");
    assert_eq!(device.client.get(&format!("/api/a2a/result/{id}")).await.status, 404, "it has not claimed it");
    device.claim().await;
    assert_eq!(result(&device.client, &id).await["status"], "running");
    for path in [format!("/api/a2a/result/{id}"), format!("/api/a2a/watch/{id}"), format!("/api/a2a/v1/tasks/{id}")] {
        assert_eq!(world.anonymous().get(&path).await.refusal(), (401, "unauthenticated".to_owned()), "{path}");
    }
    call(&world.key("operator").await, json!({"task": "?"})).await;
}

#[tokio::test]
async fn invalid_requests_are_refused_with_a_message() {
    let world = World::start().await;
    world.agent("laptop").await;
    let client = world.owner.with("content-type", "application/json");
    let deep = format!(r#"{{"task":"x","context":{}1{}}}"#, "[".repeat(100), "]".repeat(100));
    let long = format!(r#"{{"task":"x","context":"{}"}}"#, "y".repeat(2 << 20));
    for (body, status, code) in [
        ("", 400, "invalid_request"),
        ("{}", 400, "invalid_request"),
        ("[]", 400, "invalid_request"),
        ("7", 400, "invalid_request"),
        ("{", 400, "invalid_json"),
        ("\u{0}", 400, "invalid_json"),
        (r#"{"task":7}"#, 400, "invalid_request"),
        (r#"{"task":""}"#, 400, "invalid_request"),
        (r#"{"task":" \n"}"#, 400, "invalid_request"),
        (r#"{"task":"x","task":"y"}"#, 400, "invalid_request"),
        (r#"{"task":"x","agent_type":{}}"#, 400, "invalid_request"),
        (r#"{"task":"x","agent_type":""}"#, 400, "invalid_request"),
        (r#"{"task":"x","agent_type":"a\u0000b"}"#, 400, "invalid_request"),
        (r#"{"task":"x","callback_url":7}"#, 400, "invalid_request"),
        (deep.as_str(), 400, "json_too_deep"),
        (long.as_str(), 413, "too_large"),
    ] {
        let shown: String = body.chars().take(60).collect();
        let reply = client.call(Method::POST, "/api/a2a/call", body.to_owned()).await;
        assert!(matches!(reply.status, 400 | 413), "{shown}: {}", reply.status);
        let refusal = reply.refusal();
        let json_first = refusal == (400, "invalid_json".to_owned());
        assert!(refusal == (status, code.to_owned()) || json_first, "{shown}: {refusal:?}");
    }
    for body in [
        r#"{"task":{}}"#,
        r#"{"task":"x"}"#,
        r#"{"task":{"description":" "}}"#,
        r#"{"header":7,"task":{"description":"x"}}"#,
        r#"{"task":{"description":"x","capabilities_required":"files"}}"#,
        r#"{"task":{"description":"x","capabilities_required":[7]}}"#,
        r#"{"task":{"description":"x","capabilities_required":[""]}}"#,
    ] {
        let reply = client.call(Method::POST, "/api/a2a/v1/tasks", body).await;
        assert_eq!(reply.refusal(), (400, "invalid_request".to_owned()), "{body}");
    }
    let runs = world.owner.get("/api/v1/task-runs").await.expect(200);
    assert_eq!(runs["task_runs"], json!([]), "nothing of this became a run");
    let id = call(&world.owner, json!({"task": "x"})).await;
    let neither = world.owner.get(&format!("/api/a2a/watch/{id}")).await;
    assert_eq!(neither.refusal(), (400, "invalid_request".to_owned()));
    let bad = world.owner.with("accept", "text/event-stream").with("last-event-id", "x");
    assert_eq!(bad.get(&format!("/api/a2a/watch/{id}")).await.refusal(), (400, "invalid_request".to_owned()));
    for (method, path) in [(Method::GET, "/api/a2a/call"), (Method::PUT, "/api/a2a/v1/tasks")] {
        assert_eq!(world.owner.call(method, path, "").await.status, 405, "{path}");
    }
}

//! Conversations are isolated: a runtime sees its own claims and what belongs to them.

use hyper::Method;
use serde_json::{Value, json};

use crate::world::World;

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap()
}

#[tokio::test]
async fn a_runtime_sees_only_the_conversations_of_its_own_claims() {
    let world = World::start().await;
    world.agent("mine").await;
    world.agent("other").await;
    let mine = world.device("mine").await;
    let other = world.device("other").await;
    let (own, foreign, queued) = (world.run("mine").await, world.run("other").await, world.run("mine").await);
    assert_eq!(mine.claim().await["task_run_id"], own["task_run_id"]);
    other.claim().await;
    let put = |run: &Value| format!("/api/v1/workspaces/{}/artifacts/secret", text(run, "workspace_id"));
    let secret = other.client.call(Method::PUT, &put(&foreign), "secret").await.expect(201);
    let visible = mine.client.call(Method::PUT, &put(&own), "own").await.expect(201);

    let asks = format!("/api/v1/task-runs/{}", text(&foreign, "task_run_id"));
    let asked = json!({"tool": "shell", "input": {}, "prompt": "?"});
    let permission = other.client.post(&format!("{asks}/permission-requests"), asked.clone()).await.expect(201);
    let ask = other.client.post(&format!("{asks}/input-requests"), asked).await.expect(201);
    let (permission, ask) = (text(&permission, "permission_request_id"), text(&ask, "input_request_id"));

    for (run, artifact) in [(&foreign, text(&secret, "artifact_id")), (&queued, text(&secret, "artifact_id"))] {
        let (id, conversation, workspace) =
            (text(run, "task_run_id"), text(run, "conversation_id"), text(run, "workspace_id"));
        let work = json!({"epoch": 1, "message": "x", "output": {"text": "x", "error": "x"},
            "tool": "shell", "input": {}, "prompt": "?"});
        for path in [
            format!("/api/v1/task-runs/{id}"),
            format!("/api/v1/task-runs/{id}/events"),
            format!("/api/v1/task-runs/{id}/permission-requests/{permission}"),
            format!("/api/v1/task-runs/{}/permission-requests/{permission}", text(&own, "task_run_id")),
            format!("/api/v1/task-runs/{id}/input-requests/{ask}"),
            format!("/api/v1/task-runs/{}/input-requests/{ask}", text(&own, "task_run_id")),
            format!("/api/v1/conversations/{conversation}"),
            format!("/api/v1/conversations/{conversation}/messages"),
            format!("/api/v1/workspaces/{workspace}/artifacts"),
            format!("/api/v1/artifacts/{artifact}"),
            format!("/api/v1/artifacts/{artifact}?meta=1"),
        ] {
            assert_eq!(mine.client.get(&path).await.refusal(), (404, "not_found".to_owned()), "{path}");
        }
        for call in ["progress", "complete", "fail", "release", "permission-requests", "input-requests"] {
            let reply = mine.client.post(&format!("/api/v1/task-runs/{id}/{call}"), work.clone()).await;
            assert_eq!(reply.refusal(), (404, "not_found".to_owned()), "{call}");
            assert_eq!(reply.json()["task_run"], Value::Null);
        }
        let reply = mine.client.call(Method::PUT, &put(run), "x").await;
        assert_eq!(reply.refusal(), (404, "not_found".to_owned()));
        let stream = mine.client.with("accept", "text/event-stream");
        let reply = stream.get(&format!("/api/v1/task-runs/{id}/events")).await;
        assert_eq!(reply.refusal(), (404, "not_found".to_owned()));
    }
    let pull = mine.client.post("/api/v1/agent-accounts/other/task-runs/pull", json!({})).await;
    assert_eq!(pull.refusal(), (404, "not_found".to_owned()));
    let beat = json!({"agent_id": other.agent});
    let beat = mine.client.post("/api/v1/agent-runtimes/runtime/heartbeat", beat).await;
    assert_eq!(beat.refusal(), (404, "not_found".to_owned()));

    let listed = mine.client.get("/api/v1/task-runs").await.expect(200);
    let listed: Vec<&Value> = listed["task_runs"].as_array().unwrap().iter().map(|run| &run["task_run_id"]).collect();
    assert_eq!(listed, [&own["task_run_id"]]);
    for path in [
        format!("/api/v1/task-runs/{}", text(&own, "task_run_id")),
        format!("/api/v1/conversations/{}/messages", text(&own, "conversation_id")),
        format!("/api/v1/workspaces/{}/artifacts", text(&own, "workspace_id")),
        format!("/api/v1/artifacts/{}?meta=1", text(&visible, "artifact_id")),
    ] {
        assert_eq!(mine.client.get(&path).await.status, 200, "{path}");
    }

    // After the end, its run stays readable, but the workspace accepts nothing more from the device.
    let done = json!({"output": {"text": "done"}});
    mine.client.post(&format!("/api/v1/task-runs/{}/complete", text(&own, "task_run_id")), done).await.expect(200);
    mine.client.get(&format!("/api/v1/task-runs/{}", text(&own, "task_run_id"))).await.expect(200);
    let reply = mine.client.call(Method::PUT, &put(&own), "x").await;
    assert_eq!(reply.refusal(), (404, "not_found".to_owned()));
}

#[tokio::test]
async fn a_conversations_contents_are_listed_only_there() {
    let world = World::start().await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let mut pages = Vec::new();
    for word in ["apple", "pear"] {
        let conversation = world.owner.post("/api/v1/conversations", json!({"title": word})).await.expect(201);
        let id = text(&conversation, "conversation_id");
        let body = json!({"agent_id": "builder", "conversation_id": id, "input": {"text": format!("say {word}")}});
        let run = world.owner.post("/api/v1/task-runs", body).await.expect(201);
        device.claim().await;
        let put = format!("/api/v1/workspaces/{}/artifacts/{word}", text(&conversation, "workspace_id"));
        device.client.call(Method::PUT, &put, word).await.expect(201);
        let path = format!("/api/v1/task-runs/{}", text(&run, "task_run_id"));
        device.client.post(&format!("{path}/complete"), json!({"output": {"text": word}})).await.expect(200);
        world.owner.post(&format!("/api/v1/conversations/{id}/messages"), json!({"text": word})).await.expect(201);
        for path in [
            format!("/api/v1/conversations/{id}"),
            format!("/api/v1/conversations/{id}/messages"),
            format!("/api/v1/workspaces/{}/artifacts", text(&conversation, "workspace_id")),
            format!("/api/v1/task-runs?conversation_id={id}"),
            path.clone(),
            format!("{path}/events"),
        ] {
            let page = world.owner.get(&path).await.expect(200).to_string();
            pages.push((word, path, page));
        }
    }
    for (word, path, page) in &pages {
        let other = if *word == "apple" { "pear" } else { "apple" };
        assert!(!page.contains(other), "{path} of {word} shows {other}: {page}");
    }
    assert!(pages.iter().filter(|(word, _, page)| page.contains(word)).count() >= 8);
}

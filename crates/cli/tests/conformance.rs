//! `attache adapter conformance` behind a runtime that runs many tasks at a time, as an A2A caller sees it.

use serde_json::{Value, json};

use crate::harness::{TestHome, TestHub, until};

/// A run as the hub creates it from an A2A message.
fn send(hub: &TestHub, id: &str, version: &str) -> String {
    let message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": "TCK"}]});
    let input = json!({"text": "TCK", "message": message, "a2a_version": version});
    let reply = hub.post("/api/v1/task-runs", &json!({"agent_id": "tck", "input": input})).expect(201);
    reply.json()["task_run_id"].as_str().unwrap().to_owned()
}

fn waiting(hub: &TestHub, run: &str) {
    until(&format!("{run} to wait for input"), || (hub.run(run)["waiting"] == "input").then_some(()));
}

/// The artifacts of a run's stream.
fn made(hub: &TestHub, run: &str) -> Vec<Value> {
    let page = hub.get(&format!("/api/v1/task-runs/{run}/events"));
    let events = page["events"].as_array().unwrap().iter();
    events.filter(|event| event["type"] == "artifact.changed").map(|event| event["data"].clone()).collect()
}

#[test]
fn the_conformance_agent_runs_many_tasks_at_a_time() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("tck");
    let (_adapter, url) = home.adapter(&["conformance", "--streaming-timeout", "0.2"]);
    let code = hub.pairing_code("tck");
    home.attache(&["runtime", "pair", &code, "--api-base", &hub.url, "--local-agent-endpoint", &url]).succeeds();
    let _runtime = home.runtime(&["--concurrency", "8"]);

    // More waiting tasks than a device usually has; they don't block other tasks.
    let asking = [send(&hub, "tck-input-required-1", "1.0"), send(&hub, "msg-1", "0.3"), send(&hub, "msg-2", "0.3")];
    asking.iter().for_each(|run| waiting(&hub, run));

    let text = hub.ended(&send(&hub, "tck-complete-task-1", "1.0"));
    assert_eq!(
        text["task_result"],
        json!({"text": "Hello from TCK", "artifact_refs": [], "message": {"parts": [{"text": "Hello from TCK"}]}})
    );
    let data = hub.ended(&send(&hub, "tck-artifact-data-1", "1.0"));
    assert_eq!(
        data["task_result"]["artifacts"],
        json!([{"artifact_id": "output", "name": "output",
            "parts": [{"data": {"key": "value", "count": 42}, "mediaType": "application/json"}]}])
    );
    let direct = hub.ended(&send(&hub, "tck-message-response-1", "1.0"));
    assert_eq!(direct["task_result"]["reply"], "message");
    let rejected = hub.ended(&send(&hub, "tck-reject-task-1", "1.0"));
    assert_eq!((&rejected["status"], &rejected["task_result"]["code"]), (&json!("failed"), &json!("rejected")));

    let chunked = send(&hub, "tck-stream-artifact-chunked-1", "1.0");
    assert_eq!(hub.ended(&chunked)["status"], "completed");
    let piece = |text: &str| json!({"artifact_id": "pieces", "name": "pieces", "parts": [{"text": text}]});
    let mut last = piece("chunk-2");
    (last["append"], last["last_chunk"]) = (json!(true), json!(true));
    assert_eq!(made(&hub, &chunked), [piece("chunk-1 "), last]);

    // People see names and text, not JSON.
    let watched = home.attache(&["watch", &chunked]).succeeds();
    assert!(watched.stderr.contains("artifact pieces: chunk-1") && !watched.stderr.contains('{'), "{}", watched.stderr);

    for run in &asking {
        hub.post(&format!("/api/v1/task-runs/{run}/input"), &json!({"text": "go on"})).expect(200);
    }
    assert_eq!(hub.ended(&asking[0])["status"], "completed");
    // A task of an old client asks again and stays open until it is cancelled.
    until("the question after the answer", || {
        let page = hub.get(&format!("/api/v1/task-runs/{}/events", asking[1]));
        let events = page["events"].as_array().unwrap().iter();
        (events.filter(|event| event["type"] == "task.input_required").count() == 2).then_some(())
    });
    let held = send(&hub, "tck-cancel-1", "1.0");
    hub.run_in(&held, &["running"]);
    for run in [&held, &asking[1], &asking[2]] {
        assert_eq!(
            hub.post(&format!("/api/v1/task-runs/{run}/cancel"), &json!({})).expect(200).json()["status"],
            "cancelled"
        );
    }
    assert_eq!(hub.ended(&send(&hub, "tck-stream-002-1", "1.0"))["task_result"]["text"], "");
}

#[test]
fn invalid_numbers_are_rejected() {
    let home = TestHome::new();
    let bad = home.attache(&["adapter", "conformance", "--streaming-timeout", "601"]).exits(2);
    assert!(bad.stderr.contains("must be a number from 0 to 600"), "{}", bad.stderr);
    let bad = home.attache(&["runtime", "start", "--concurrency", "0"]).exits(2);
    assert!(bad.stderr.contains("must be a number from 1 to 200"), "{}", bad.stderr);
}

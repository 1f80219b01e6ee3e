//! The call API from outside: the scenarios of `docs/calls.md` against the real programs.

use attache_client::{CallUpdate, Client};
use attache_protocol::wire::call::{CallId, CallStatus};
use serde_json::{Value, json};

use crate::harness::{TestHome, http, until};

/// Sends a request with the owner's key or another one.
fn ask(key: &str, method: &str, url: &str, body: Option<&Value>) -> (u16, Value) {
    let bearer = format!("Bearer {key}");
    let reply = http::json(method, url, &[("authorization", &bearer)], body).unwrap();
    (reply.status, serde_json::from_slice(&reply.body).unwrap())
}

/// Polls the result until the call finishes.
fn ended(key: &str, hub: &str, call: &str) -> Value {
    until("the call to end", || {
        let (status, result) = ask(key, "GET", &format!("{hub}/api/a2a/result/{call}"), None);
        assert_eq!(status, 200, "{result}");
        (!matches!(result["status"].as_str(), Some("started" | "running"))).then_some(result)
    })
}

/// First scenario: a cloud assistant calls the agent on a laptop, whose runtime holds the connection.
#[test]
fn a_cloud_assistant_calls_the_agent_on_a_laptop() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let key = home.owner_key();
    let body = json!({"task": "echo nine modules", "context": {"files": ["a.py"]}});
    let (status, started) = ask(&key, "POST", &format!("{}/api/a2a/call", up.url), Some(&body));
    let call = started["call_id"].as_str().unwrap();
    let watch_url = format!("{}/api/a2a/watch/{call}", up.url.replace("http://", "ws://"));
    assert_eq!((status, &started), (200, &json!({"call_id": call, "status": "started", "watch_url": watch_url})));
    let result = ended(&key, &up.url, call);
    assert_eq!((&result["status"], &result["code"]), (&json!("completed"), &Value::Null), "{result}");
    assert_eq!(result["result"]["summary"].as_str().unwrap().trim(), "nine modules");
}

/// Second scenario: an agent on a laptop calls the organisation's knowledge agent, with the SDK and its own key.
#[test]
fn an_agent_on_a_laptop_calls_a_remote_knowledge_agent() {
    let home = TestHome::new();
    // No agent's own key reaches a private agent.
    let up = home.up(&["--share-local"]);
    let owner = home.owner_key();
    let body = json!({"agent_id": "user123-laptop", "capabilities": ["file_read"]});
    let (status, registered) = ask(&owner, "POST", &format!("{}/api/a2a/register", up.url), Some(&body));
    assert_eq!(status, 200, "{registered}");
    let key = registered["api_key"].as_str().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(&up.url, key).unwrap();
        let reply = client.call("echo rate-limit yourself").agent_type("local").wait().await.unwrap();
        assert_eq!(reply.summary.trim(), "rate-limit yourself");
        let failed = client.call("exit 3").wait().await.unwrap_err();
        assert!(failed.failed().is_some() && !failed.is_cancelled(), "{failed}");
        let endless = client.call("sleep 60").start().await.unwrap().call_id;
        assert_eq!(client.cancel(endless).await.unwrap(), CallStatus::Cancelled);
        assert_eq!(client.cancel(endless).await.unwrap(), CallStatus::Cancelled, "cancelling again changes nothing");
        assert!(client.watch(endless).reply().await.unwrap_err().is_cancelled());
        let done: CallId = reply.call_id;
        assert_eq!(client.cancel(done).await.unwrap(), CallStatus::Completed, "what has ended stays as it is");
    });
}

/// The hub is killed while the agent works: the SDK's stream resumes without loss or repetition.
#[test]
fn a_watch_survives_a_killed_hub() {
    let home = TestHome::new();
    let (hub, _runtime) = home.hub_with_builder();
    let address = hub.address().to_owned();
    let gate = home.path().join("gate");
    let task = format!("echo one; while [ ! -e {} ]; do sleep 0.05; done; echo two", gate.display());
    let client = Client::connect(&hub.url, home.owner_key()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut updates = runtime.block_on(client.call(task).agent_type("builder").stream()).unwrap();
    let mut output = String::new();
    let mut hub = Some(hub);
    let reply = loop {
        match runtime.block_on(updates.next()).unwrap().unwrap() {
            CallUpdate::Message { kind, text, .. } if kind == "chunk" => output += &text.unwrap(),
            CallUpdate::Message { .. } | CallUpdate::Progress { .. } => {}
            CallUpdate::Completed(reply) => break reply,
        }
        if output.contains("one") && !gate.exists() {
            hub.take().unwrap().process.kill();
            hub = Some(home.hub(&["--listen", &address]));
            std::fs::write(&gate, "").unwrap();
        }
    };
    assert_eq!((output.as_str(), reply.summary.trim()), ("one\ntwo\n", "one\ntwo"));
}

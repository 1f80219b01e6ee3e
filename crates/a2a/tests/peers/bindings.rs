//! Every binding of both versions: an agent whose card offers one alone is put to work over it.

use attache_client::{
    a2a::{PeerCredentials, discover},
    egress::{EgressGuard, EgressPolicy},
};
use attache_protocol::{
    rules::{recovery::Recovery, run::RunStatus},
    wire::input_request::GiveInputRequest,
};
use serde_json::{Value, json};

use super::{
    ours::{OwnHubPeer, result},
    script::ScriptedPeer,
};
use crate::{obedient::ScriptedA2aAgent, scene::AGENT};

/// The interface of the published card with this binding and version, as its card has it.
async fn card(theirs: &OwnHubPeer, version: &str, binding: &str) -> Value {
    let path = format!("/a2a/{AGENT}/.well-known/agent-card.json");
    let about = json!({"name": "one", "description": "d", "version": "1", "capabilities": {"streaming": true}});
    let mut card = about;
    if version == "1.0" {
        let published: Value = serde_json::from_str(&theirs.get(&format!("{path}?A2A-Version=1.0")).await).unwrap();
        let fits = |one: &&Value| one["protocolBinding"] == binding && one["protocolVersion"] == version;
        let found = published["supportedInterfaces"].as_array().unwrap().iter().find(fits);
        card["supportedInterfaces"] = json!([found.unwrap_or_else(|| panic!("{published}"))]);
        return card;
    }
    let published: Value = serde_json::from_str(&theirs.get(&path).await).unwrap();
    let main = json!({"transport": published["preferredTransport"], "url": published["url"]});
    let more = published["additionalInterfaces"].as_array().cloned().unwrap_or_default();
    let found = std::iter::once(main).chain(more).find(|one| one["transport"] == binding);
    let found = found.unwrap_or_else(|| panic!("{published}"));
    card["protocolVersion"] = json!("0.3.0");
    card["url"] = found["url"].clone();
    card["preferredTransport"] = json!(binding);
    card
}

async fn works(version: &'static str, binding: &str) {
    let theirs = OwnHubPeer::tuned(|options| options.default_agent = Some(AGENT.to_owned())).await;
    let agent = ScriptedA2aAgent::default();
    let _hosted = theirs.hub.host(&theirs.owner, AGENT, agent).await.unwrap();
    let script = ScriptedPeer::start(version).await;
    script.card(&card(&theirs, version, binding).await.to_string());
    let ours = OwnHubPeer::start().await;
    let guard = EgressGuard::new(EgressPolicy { allow: vec!["127.0.0.0/8".parse().unwrap()] });
    let found = discover(&guard, &script.url, &PeerCredentials::none(), &[]).await.unwrap();
    let pin = Some(found.fingerprint.to_string());
    let added = ours.try_add("outside", &script.url, Some(&theirs.key), pin).await.unwrap().peer.unwrap();
    assert_eq!((added.binding.as_deref(), added.protocol_version.as_deref()), (Some(binding), Some(version)));
    let steps = |steps: Value| json!({"text": "work", "context": {"steps": steps}});

    let made = json!([
        {"artifact": {"artifact_id": "a1", "parts": [{"text": "one "}]}},
        {"artifact": {"artifact_id": "a1", "parts": [{"text": "two"}], "append": true, "last_chunk": true}},
        {"ask": "which colour?"},
    ]);
    let run = ours.run("outside", steps(made)).await;
    let waiting = ours.when(run, |run| run.waiting.is_some()).await;
    let asked = waiting.waits_for.unwrap();
    assert_eq!((waiting.recovery, asked.what.as_str()), (Some(Recovery::RemoteWaiting), "which colour?"));
    let answer = GiveInputRequest {
        text: Some("blue".to_owned()),
        input_request_id: asked.id.parse().ok(),
        ..GiveInputRequest::default()
    };
    ours.hub.give_input(&ours.owner, run, answer).await.unwrap();
    let ended = ours.ended(run).await;
    assert_eq!(ended.status, RunStatus::Completed, "{ended:?}");
    assert!(result(&ended)["text"].as_str().unwrap().ends_with("answered blue"), "{ended:?}");
    let texts: Vec<_> = result(&ended)["artifacts"][0]["parts"].as_array().unwrap().clone();
    assert_eq!(texts.iter().filter_map(|part| part["text"].as_str()).collect::<String>(), "one two", "{ended:?}");

    let failed = ours.run("outside", steps(json!([{"fail": "the disk is full"}]))).await;
    assert_eq!(result(&ours.ended(failed).await)["error"], json!("the disk is full"));

    let held = ours.run("outside", steps(json!([{"hold": true}]))).await;
    ours.in_state(held, Recovery::RemoteRunning).await;
    ours.hub.cancel_run(&ours.owner, held, Default::default()).await.unwrap();
    let is_cancelled = async {
        loop {
            let theirs = theirs.hub.runs(&theirs.owner, Default::default()).await.unwrap().task_runs;
            if theirs.iter().any(|run| run.status == RunStatus::Cancelled) {
                return theirs.len();
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    assert_eq!(tokio::time::timeout(super::ours::PATIENCE, is_cancelled).await.unwrap(), 3, "each was sent once");

    // A key that is wrong is told as such.
    let wrong = ours.try_add("stranger", &script.url, Some("ak_wrong"), Some(found.fingerprint.to_string())).await;
    wrong.unwrap();
    let run = ours.run("stranger", steps(json!([]))).await;
    let refused = result(&ours.ended(run).await);
    assert_eq!(refused["code"], json!("refused"), "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("doesn't accept the credential"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_rpc_of_1_0() {
    works("1.0", "JSONRPC").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_json_of_1_0() {
    works("1.0", "HTTP+JSON").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_of_1_0() {
    works("1.0", "GRPC").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_rpc_of_0_3() {
    works("0.3", "JSONRPC").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_json_of_0_3() {
    works("0.3", "HTTP+JSON").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_of_0_3() {
    works("0.3", "GRPC").await;
}

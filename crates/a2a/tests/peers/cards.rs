//! Cards of agents outside: looked at before something is sent, and not believed because they are there.

use std::time::Duration;

use attache_a2a_wire::TaskState;
use attache_hub::Options;
use attache_protocol::{
    rules::{recovery::Recovery, run::RunStatus},
    wire::account::TrustRequest,
};
use serde_json::json;

use super::{ours::OwnHubPeer, script::ScriptedPeer};

/// Signed, without a word of where the key is.
const SIGNED: &str = r#"{"name":"signed","supportedInterfaces":[{"url":"{url}/rpc","protocolBinding":"JSONRPC",
    "protocolVersion":"1.0"}],"signatures":[{"protected":"eyJhbGciOiJFZERTQSIsImtpZCI6IngifQ","signature":"AAAA"}]}"#;

/// Cards are looked at when they are needed, and never otherwise.
fn when_needed(options: &mut Options) {
    options.cards_every = Duration::from_secs(3600);
    options.card_fresh = Duration::ZERO;
}

fn at(interface: &str) -> String {
    format!(
        r#"{{"name":"x","supportedInterfaces":[{{"url":"{interface}","protocolBinding":"JSONRPC","protocolVersion":"1.0"}}]}}"#
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_that_has_changed_is_noticed_before_anything_is_sent() {
    let (script, ours) = (ScriptedPeer::start("1.0").await, OwnHubPeer::tuned(when_needed).await);
    ours.add("outside", &script.url, None).await;
    let first = ours.run("outside", json!({"text": "hello"})).await;
    ours.in_state(first, Recovery::RemoteRunning).await;
    let (reads, unchanged) = script.reads();
    assert!(reads >= 1 && unchanged >= 1, "it is asked whether it changed, and not for the whole: {reads} {unchanged}");
    script.describe("somebody else");
    let second = ours.run("outside", json!({"text": "the secret plan"})).await;
    let held = async |ours: &OwnHubPeer| ours.events(second).await.iter().any(|(kind, _)| kind == "task.requeued");
    while !held(&ours).await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let run = ours.when(second, |run| run.status == RunStatus::Pending).await;
    let peer = ours.peer("outside").await;
    assert!(peer.problem.as_ref().is_some_and(|why| why.contains("attache agents trust")), "{peer:?}");
    assert_eq!((run.attempt, script.sent().len()), (0, 1), "what was sent before is followed, and nothing new is sent");
    script.tell(TaskState::TaskStateCompleted, "the first");
    assert_eq!(ours.ended(first).await.status, RunStatus::Completed);
    ours.hub.trust_peer(&ours.owner, "outside", TrustRequest { card_pin: peer.offered_pin }).await.unwrap();
    ours.in_state(second, Recovery::RemoteRunning).await;
    script.tell(TaskState::TaskStateCompleted, "the second");
    assert_eq!(ours.ended(second).await.status, RunStatus::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signature_that_cannot_be_verified_is_not_believed() {
    let (script, ours) = (ScriptedPeer::start("1.0").await, OwnHubPeer::tuned(when_needed).await);
    script.card(SIGNED);
    let refused = ours.try_add("outside", &script.url, None, None).await.unwrap_err();
    let (why, pin) = refused.message.split_once("--card-pin ").expect(&refused.message);
    assert!(why.contains("its card's signature can't be verified: the key it names is unknown"), "{why}");
    // Somebody who has looked at this very card may say so.
    ours.try_add("outside", &script.url, None, Some(pin.to_owned())).await.unwrap();
    let run = ours.run("outside", json!({"text": "hello"})).await;
    ours.in_state(run, Recovery::RemoteRunning).await;
    script.card(&SIGNED.replace("signed", "signed by somebody"));
    let held = ours.run("outside", json!({"text": "hello"})).await;
    let peer = async {
        loop {
            let peer = ours.peer("outside").await;
            if peer.offered_pin.is_some() {
                return peer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let peer = peer.await;
    assert!(peer.problem.as_ref().is_some_and(|why| why.contains("its signature can't be verified")), "{peer:?}");
    ours.when(held, |run| run.status == RunStatus::Pending).await;
    assert_eq!(script.sent().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_does_not_go_where_a_card_leads_it() {
    let (script, thief) = (ScriptedPeer::start("1.0").await, ScriptedPeer::start("1.0").await);
    let ours = OwnHubPeer::tuned(when_needed).await;
    let elsewhere = at(&format!("{}/rpc", thief.url));
    script.card(&elsewhere);
    let refused = ours.try_add("outside", &script.url, Some("hunter2"), None).await.unwrap_err();
    let (why, pin) = refused.message.split_once("--card-pin ").expect(&refused.message);
    assert!(
        why.contains(&format!("your key would be sent to {}, which is not the host of its card", thief.url)),
        "{why}"
    );
    // Without a key there is nothing to lose; and who knows the card may say so.
    ours.try_add("keyless", &script.url, None, None).await.unwrap();
    ours.try_add("intended", &script.url, Some("hunter2"), Some(pin.to_owned())).await.unwrap();
    let run = ours.run("intended", json!({"text": "hello"})).await;
    ours.in_state(run, Recovery::RemoteRunning).await;
    assert_eq!((thief.keys()[0].as_deref(), script.keys().len()), (Some("Bearer hunter2"), 0));

    // A card that leads it away later is not trusted by the way.
    script.card(&at(&format!("{}/rpc", script.url)));
    ours.add("outside", &script.url, Some("hunter3")).await;
    script.card(&elsewhere);
    let run = ours.run("outside", json!({"text": "hello"})).await;
    while ours.peer("outside").await.offered_pin.is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let trust = async |card_pin| ours.hub.trust_peer(&ours.owner, "outside", TrustRequest { card_pin }).await;
    let refused = trust(None).await.unwrap_err();
    let (why, pin) = refused.message.split_once("--card-pin ").expect(&refused.message);
    assert!(why.contains(&format!("your key would be sent to {}", thief.url)), "{why}");
    assert!(thief.keys().iter().all(|key| key.as_deref() != Some("Bearer hunter3")));
    trust(Some(pin.to_owned())).await.unwrap();
    ours.in_state(run, Recovery::RemoteRunning).await;
    assert!(thief.keys().iter().any(|key| key.as_deref() == Some("Bearer hunter3")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_spoken_here_is_said_at_once() {
    let (script, ours) = (ScriptedPeer::start("1.0").await, OwnHubPeer::start().await);
    let spoken = "none of which is supported. Supported: JSON-RPC, HTTP+JSON or gRPC of A2A 1.0 or 0.3.";
    let grpc =
        r#"{"name":"x","supportedInterfaces":[{"url":"{url}","protocolBinding":"GRPC","protocolVersion":"2.0"}]}"#;
    let old = r#"{"name":"x","url":"{url}","preferredTransport":"SOAP","protocolVersion":"0.3.0"}"#;
    for (card, offered) in [(grpc, "GRPC 2.0"), (old, "SOAP 0.3.0")] {
        script.card(card);
        let refused = ours.try_add("outside", &script.url, None, None).await.unwrap_err();
        assert!(refused.message.contains(&format!("its card offers {offered}, {spoken}")), "{refused:?}");
    }
}

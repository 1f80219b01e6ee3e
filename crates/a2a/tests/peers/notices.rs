//! News that an agent outside sends by itself: taken from whom it was asked of, and only a hint.

use std::time::{Duration, Instant};

use attache_a2a_wire::{Message, Part, TaskState};
use attache_client::egress::{EgressGuard, EgressPolicy};
use attache_hub::{Options, control::DeliveryQuery};
use attache_protocol::{
    rules::{recovery::Recovery, run::RunStatus},
    wire::{delivery::DeliveryState, run::WaitReason},
};
use serde_json::json;

use super::{
    ours::{OwnHubPeer, result},
    script::ScriptedPeer,
};
use crate::{
    obedient::{message, request},
    scene::{A2aFixture, AGENT, world},
};

/// Less than an agent that waits for an answer is looked at by itself.
const SOON: Duration = Duration::from_secs(14);

fn reachable(options: &mut Options) {
    options.public_url = Some(format!("http://{}", options.listen));
}

async fn post(url: &str) -> (u16, String) {
    let answer = reqwest::Client::new().post(url).body("{}").send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_hub_tells_ours_and_ours_looks() {
    let theirs = A2aFixture::start(world().tuned(|options| {
        options.egress = EgressGuard::new(EgressPolicy { allow: vec!["127.0.0.0/8".parse().unwrap()] });
    }));
    let theirs = theirs.await;
    theirs.switch(json!({"streaming": false})).await;
    let ours = OwnHubPeer::tuned(reachable).await;
    let url = format!("{}/a2a/{AGENT}", theirs.world.url);
    ours.add("outside", &url, Some(theirs.world.owner_key.expose())).await;
    let run = ours.run("outside", json!({"text": "work", "context": {"steps": [{"ask": "which one?"}]}})).await;
    ours.when(run, |run| run.waiting == Some(WaitReason::Input)).await;
    // Somebody answers there.
    let there = theirs.world.hub.runs(&theirs.world.owner, Default::default()).await.unwrap().task_runs;
    let task_id = Some(there[0].task_run_id.to_string());
    let since = Instant::now();
    theirs.owner().send(request(Message { task_id, ..message("m-2", vec![Part::text("the left one")]) })).await;
    let ended = ours.ended(run).await;
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    assert_eq!(
        (ended.status, result(&ended)["text"].clone()),
        (RunStatus::Completed, json!("answered the left one")),
        "{ended:?}"
    );
    let told = theirs.world.hub.deliveries(&theirs.world.owner, DeliveryQuery::default()).await.unwrap().deliveries;
    let to = format!("{}/a2a/-/push-notices/", ours.url);
    assert!(told.iter().any(|told| told.state == DeliveryState::Delivered && told.url.starts_with(&to)), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_repeated_and_late_news_change_nothing() {
    let (script, ours) = (ScriptedPeer::start("1.0").await, OwnHubPeer::tuned(reachable).await);
    script.card(
        r#"{"name":"x","capabilities":{"pushNotifications":true},"supportedInterfaces":[{"url":"{url}/rpc",
        "protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}"#,
    );
    ours.add("outside", &script.url, None).await;
    let run = ours.run("outside", json!({"text": "hello"})).await;
    ours.in_state(run, Recovery::RemoteRunning).await;
    let [push] = &script.pushes()[..] else { panic!("it is told where: {:?}", script.pushes()) };
    let token = push.token.clone().unwrap();
    assert_eq!(push.url, format!("{}/a2a/-/push-notices/{token}", ours.url));
    assert_eq!(token.len(), 48, "nobody guesses it");
    script.tell(TaskState::TaskStateInputRequired, "which one?");
    assert_eq!(post(&push.url).await, (200, String::new()));
    ours.when(run, |run| run.waiting == Some(WaitReason::Input)).await;
    script.tell(TaskState::TaskStateWorking, "never mind");
    let wrong = format!("{}/a2a/-/push-notices/{}", ours.url, "0".repeat(48));
    assert_eq!(post(&wrong).await, (200, String::new()), "who guesses learns nothing");
    let since = Instant::now();
    for _ in 0..3 {
        assert_eq!(post(&push.url).await, (200, String::new()), "the same again is the same");
    }
    ours.when(run, |run| run.waiting.is_none()).await;
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    script.tell(TaskState::TaskStateCompleted, "done");
    post(&push.url).await;
    let ended = ours.ended(run).await;
    assert_eq!((ended.status, script.sent().len()), (RunStatus::Completed, 1));
    // Of a task that has ended.
    let before = ours.events(run).await;
    assert_eq!(post(&push.url).await, (200, String::new()));
    assert_eq!(ours.events(run).await, before);
}

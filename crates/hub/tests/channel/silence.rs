//! A peer that falls silent is disconnected; its runs stay as they are until their leases end.

use std::time::Duration;

use serde_json::json;

use super::peer::{Peer, WS, read_run, register_agent, run};
use crate::world::{PATIENCE, World};

#[tokio::test]
async fn silence_disconnects_the_channel_and_changes_no_run() {
    let world = World::tuned(|options| {
        options.heartbeat_timeout = Duration::from_millis(400);
        // Nothing is swept: only the channel's own clock runs.
        options.sweep_every = Duration::from_secs(3600);
    })
    .await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut peer = Peer::connect(&world, WS, Some(&key)).await;
    let registered = peer.register(json!({})).await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    // The socket stays open, but nobody reads it, so nobody answers a ping.
    let path = format!("/api/v1/channels/{}", registered["channel_id"].as_str().unwrap());
    let silent = tokio::time::timeout(PATIENCE, async {
        loop {
            let channel = world.owner.get(&path).await.expect(200);
            if channel["status"] == "disconnected" {
                return channel;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(silent["reason"], "heartbeat_timeout");
    let read = read_run(&world, &id).await;
    assert_eq!((&read["status"], &read["epoch"]), (&json!("running"), &json!(1)));
    let events = world.owner.get(&format!("{path}/events")).await.expect(200);
    let last = events["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["type"], &last["data"]["reason"]), (&json!("channel.disconnected"), &json!("heartbeat_timeout")));
    // It comes back and ends what it began.
    let mut peer = Peer::connect(&world, WS, Some(&key)).await;
    let resume = json!({"action": "resume", "channel_id": registered["channel_id"], "resume_token": registered["resume_token"], "last_seq": 1});
    assert_eq!(peer.request(resume).await["ok"], true);
    let done = json!({"action": "done", "task_run_id": id, "epoch": 1, "result_summary": "x"});
    assert_eq!(peer.request(done).await["status"], "completed");
}

#[tokio::test]
async fn a_peer_that_only_answers_pings_keeps_its_channel_and_its_claims() {
    let world = World::tuned(|options| {
        options.heartbeat_timeout = Duration::from_millis(400);
        options.sweep_every = Duration::from_millis(20);
    })
    .await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut peer = Peer::connect(&world, WS, Some(&key)).await;
    let registered = peer.register(json!({})).await;
    assert_eq!(registered["heartbeat_ms"], 100);
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    let quiet = tokio::spawn(async move {
        let cancelled = peer.find_action("cancel").await;
        (cancelled, peer)
    });
    // Several leases long, nobody says a word.
    tokio::time::sleep(Duration::from_millis(1600)).await;
    assert_eq!(read_run(&world, &id).await["status"], "running");
    world.owner.post(&format!("/api/v1/task-runs/{id}/cancel"), json!({})).await.expect(200);
    let (cancelled, _peer) = quiet.await.unwrap();
    assert_eq!(cancelled["payload"]["task_run_id"], json!(id));
}

#[tokio::test]
async fn channels_of_the_last_start_are_not_connected_after_a_restart() {
    let world = World::start().await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut peer = Peer::connect(&world, WS, Some(&key)).await;
    let registered = peer.register(json!({})).await;
    let store = world.store.clone();
    let options = attache_hub::Options::new(world.data.path().join("again"), world.address);
    let again = attache_hub::Hub::start(options, store, attache_protocol::env::Env::system()).await.unwrap();
    let path = format!("/api/v1/channels/{}", registered["channel_id"].as_str().unwrap());
    let channel = world.owner.get(&path).await.expect(200);
    assert_eq!((&channel["status"], &channel["reason"]), (&json!("disconnected"), &json!("hub_restarted")));
    drop(again);
}

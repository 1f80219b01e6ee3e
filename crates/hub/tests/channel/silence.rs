//! A silent peer is disconnected. Its runs stay unchanged until their leases expire.

use std::time::Duration;

use attache_protocol::Timestamp;
use serde_json::{Value, json};

use super::peer::{TestPeer, WS, at_work, read_run, register_agent, run};
use crate::world::{Engine, World};

#[tokio::test]
async fn silence_disconnects_the_channel_and_changes_no_run() {
    let world = World::tuned(|options| {
        options.heartbeat_timeout = Duration::from_secs(2);
        // No sweep: only the channel's own clock runs.
        options.sweep_every = Duration::from_secs(3600);
    })
    .await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
    let registered = peer.register(json!({})).await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    // The socket stays open, but no one reads it, so pings stay unanswered.
    let path = format!("/api/v1/channels/{}", registered["channel_id"].as_str().unwrap());
    let silent = world.until(&path, |channel| channel["status"] == "disconnected").await;
    assert_eq!(silent["reason"], "heartbeat_timeout");
    let read = read_run(&world, &id).await;
    assert_eq!((&read["status"], &read["epoch"]), (&json!("running"), &json!(1)));
    let events = world.owner.get(&format!("{path}/events")).await.expect(200);
    let last = events["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["type"], &last["data"]["reason"]), (&json!("channel.disconnected"), &json!("heartbeat_timeout")));
    // It comes back and finishes its work.
    let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
    let resume = json!({"action": "resume", "channel_id": registered["channel_id"], "resume_token": registered["resume_token"], "last_seq": 1});
    assert_eq!(peer.request(resume).await["ok"], true);
    let done = json!({"action": "done", "task_run_id": id, "epoch": 1, "result_summary": "x"});
    assert_eq!(peer.request(done).await["status"], "completed");
}

#[tokio::test]
async fn a_peer_that_only_answers_pings_keeps_its_channel_and_its_claims() {
    let lease = Duration::from_secs(2);
    let world = World::timed(Engine::Model, |options| options.heartbeat_timeout = lease).await;
    let (mut peer, registered, id) = at_work(&world).await;
    assert_eq!(registered["heartbeat_ms"], 500);
    let quiet = tokio::spawn(async move {
        let cancelled = peer.find_action("cancel").await;
        (cancelled, peer)
    });
    // Several silent leases, each renewed in time.
    for _ in 0..4 {
        world.advance(lease * 3 / 4);
        let until = json!(world.env.now().plus(lease));
        world.until(&format!("/api/v1/task-runs/{id}"), |run| run["lease_expires_at"] == until).await;
    }
    assert_eq!(read_run(&world, &id).await["status"], "running");
    world.owner.post(&format!("/api/v1/task-runs/{id}/cancel"), json!({})).await.expect(200);
    let (cancelled, _peer) = quiet.await.unwrap();
    assert_eq!(cancelled["payload"]["task_run_id"], json!(id));
}

#[tokio::test]
async fn a_stalled_hub_disconnects_no_one() {
    let silence = Duration::from_secs(1);
    let world = World::tuned(|options| {
        options.heartbeat_timeout = silence;
        options.sweep_every = Duration::from_secs(3600);
    })
    .await;
    let (mut peer, registered, id) = at_work(&world).await;
    let quiet = tokio::spawn(async move { peer.find_action("cancel").await });
    let path = format!("/api/v1/channels/{}", registered["channel_id"].as_str().unwrap());
    for _ in 0..3 {
        // The process stands still, longer than anyone may be silent.
        std::thread::sleep(2 * silence);
        // The peer was pinged and has answered, and the store was updated.
        let since = world.env.now();
        let seen = |channel: &Value| channel["last_seen_at"].as_str().unwrap().parse::<Timestamp>().unwrap() > since;
        let channel = world.until(&path, |channel| channel["status"] != "connected" || seen(channel)).await;
        assert_eq!(channel["status"], "connected", "{channel}");
    }
    world.owner.post(&format!("/api/v1/task-runs/{id}/cancel"), json!({})).await.expect(200);
    assert_eq!(quiet.await.unwrap()["payload"]["task_run_id"], json!(id), "over the same connection");
}

#[tokio::test]
async fn channels_are_disconnected_after_a_restart() {
    let world = World::start().await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
    let registered = peer.register(json!({})).await;
    let store = world.store.clone();
    let options = attache_hub::Options::new(world.data.path().join("again"), world.address);
    let again = attache_hub::Hub::start(options, store, attache_protocol::env::Env::system()).await.unwrap();
    let path = format!("/api/v1/channels/{}", registered["channel_id"].as_str().unwrap());
    let channel = world.owner.get(&path).await.expect(200);
    assert_eq!((&channel["status"], &channel["reason"]), (&json!("disconnected"), &json!("hub_restarted")));
    drop(again);
}

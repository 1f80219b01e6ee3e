//! An open stream ends when its reader could no longer open it.

use serde_json::json;
use tokio::time::timeout;

use crate::{
    channel::peer::worker,
    escalation::{ACCOUNTS, RUNS, forbidden, not_found, person},
    work::ClaimedRunFixture,
    world::{Engine, PATIENCE, SseEvent, SseEvents, World, on_all},
};

on_all! {
    a_channels_stream_ends_when_the_agent_becomes_private
    the_caller_keeps_their_stream_when_the_agent_becomes_private
    ; // These expect that a change is known at once, as it is to the node that made it.
    alone:
    a_demoted_admins_log_ends
    streams_of_others_end_when_the_agent_becomes_private
}

/// Reads up to an event that contains the text.
async fn read_to(stream: &mut SseEvents, text: &str) {
    while !stream.next().await.expect("the stream goes on").data.to_string().contains(text) {}
}

/// Everything up to the end of the stream, which must come.
async fn rest(stream: SseEvents) -> Vec<SseEvent> {
    timeout(PATIENCE, stream.rest()).await.expect("the stream ends")
}

async fn make_private(world: &World, agent: &str) {
    world.owner.patch(&format!("{ACCOUNTS}/{agent}"), json!({"callers": "owner"})).await.expect(200);
}

async fn a_demoted_admins_log_ends(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let eve = person(&world, "eve", "admin").await;
    let mut log = eve.follow("/api/v1/audit").await;
    let mut owners = world.owner.follow("/api/v1/audit").await;
    world.agent("before").await;
    read_to(&mut log, "before").await;
    world.owner.patch("/api/v1/users/eve", json!({"role": "viewer"})).await.expect(200);
    world.agent("after").await;
    // The demotion itself may still be shown, but nothing after it.
    let shown: Vec<_> = rest(log).await.into_iter().filter(|row| row.event == "agent.created").collect();
    assert_eq!(shown, []);
    assert_eq!(eve.get("/api/v1/audit").await.refusal(), forbidden());
    read_to(&mut owners, "after").await;
}

async fn streams_of_others_end_when_the_agent_becomes_private(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let bob = person(&work.world, "bob", "operator").await;
    let say = async |text: &str| {
        work.device.client.post(&work.path("/progress"), json!({"chunk": text})).await.expect(200);
    };
    let mut streams = Vec::new();
    for path in [work.path("/events"), format!("/api/a2a/watch/{}", work.run)] {
        streams.push((bob.follow(&path).await, path));
    }
    let mut owners = work.world.owner.follow(&work.path("/events")).await;
    say("shared words").await;
    for (stream, _) in &mut streams {
        read_to(stream, "shared words").await;
    }
    make_private(&work.world, "builder").await;
    say("private words").await;
    work.complete().await.expect(200);
    for (stream, path) in streams {
        assert_eq!(rest(stream).await, [], "{path}");
        assert_eq!(bob.with("accept", "text/event-stream").get(&path).await.refusal(), not_found(), "{path}");
    }
    read_to(&mut owners, "private words").await;
    assert_eq!(rest(owners).await.last().unwrap().event, "task.completed");
}

async fn a_channels_stream_ends_when_the_agent_becomes_private(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let (mut peer, registered) = worker(&world, "builder").await;
    let bob = person(&world, "bob", "viewer").await;
    let path = format!("/api/v1/channels/{}/events", registered["channel_id"].as_str().unwrap());
    let mut stream = bob.follow(&path).await;
    let mut owners = world.owner.follow(&path).await;
    peer.request(json!({"action": "message", "message": "shared words"})).await;
    read_to(&mut stream, "shared words").await;
    make_private(&world, "builder").await;
    peer.request(json!({"action": "message", "message": "private words"})).await;
    assert_eq!(rest(stream).await, []);
    assert_eq!(bob.get(&path).await.refusal(), not_found());
    read_to(&mut owners, "private words").await;
}

async fn the_caller_keeps_their_stream_when_the_agent_becomes_private(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let ada = person(&world, "ada", "operator").await;
    let run = ada.post(RUNS, json!({"agent_id": "builder", "input": {"text": "build"}})).await.expect(201);
    let path = format!("{RUNS}/{}", run["task_run_id"].as_str().unwrap());
    device.claim().await;
    let mut stream = ada.follow(&format!("{path}/events")).await;
    assert_eq!(stream.next().await.unwrap().event, "task.created");
    make_private(&world, "builder").await;
    device.client.post(&format!("{path}/complete"), json!({"output": {"text": "done"}})).await.expect(200);
    let shown: Vec<_> = rest(stream).await.into_iter().map(|event| event.event).collect();
    assert_eq!(shown, ["task.claimed", "task.completed"]);
}

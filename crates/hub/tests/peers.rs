//! Channels for people: lists, details, and their events as pages and as a stream.

use attache_protocol::{
    ChannelId, Json, TenantId,
    secret::SecretHash,
    wire::channel::{PeerRole, Transport},
};
use attache_store::{WriteContext, record::channel::NewChannel};
use serde_json::{Value, json};

use crate::world::{Engine, World, on_all};

on_all! {
    channels_are_listed_and_read
    an_agent_sees_its_own_channels
    a_channels_events_are_a_stream
}

async fn tenant(world: &World) -> TenantId {
    let key = world.owner.header("authorization").trim_start_matches("Bearer ").to_owned();
    world.hub.authenticate_key(&key).await.unwrap().tenant
}

async fn open(world: &World, runtime: Option<&str>) -> ChannelId {
    open_as(world, runtime, "key:key_00000000000000000000000000000001").await
}

async fn open_as(world: &World, runtime: Option<&str>, actor: &str) -> ChannelId {
    let runtime = runtime.map(|runtime| runtime.parse().unwrap());
    let channel = NewChannel {
        id: world.env.channel_id(),
        node: None,
        transport: Transport::Websocket,
        peer_role: if runtime.is_some() { PeerRole::Worker } else { PeerRole::Client },
        account_ref: "key:key_00000000000000000000000000000001".to_owned(),
        runtime,
        capabilities: Json::from_text(r#"["streaming","resume"]"#).unwrap(),
        native_protocol: Some("attache.envelope.v1".to_owned()),
        tools: Json::from_text("[]").unwrap(),
        device_info: Some(Json::from_text(r#"{"os":"linux"}"#).unwrap()),
        address: Some("127.0.0.1".to_owned()),
        resume: SecretHash::of(&world.env.uuid().to_string()),
        running: None,
    };
    let context = WriteContext::new(tenant(world).await, actor, world.env.now());
    world.store.open_channel(context, channel).await.unwrap().id
}

async fn channels_are_listed_and_read(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let (worker, client) = (open(&world, Some(&device.runtime)).await, open(&world, None).await);
    let context = WriteContext::new(tenant(&world).await, WriteContext::SYSTEM, world.env.now());
    world.store.close_channel(context, client, "silent").await.unwrap();
    let read = world.owner.get(&format!("/api/v1/channels/{worker}")).await.expect(200);
    let expected = json!({
        "channel_id": worker.to_string(), "transport": "websocket", "peer_role": "worker",
        "account_ref": "key:key_00000000000000000000000000000001", "capabilities": ["streaming", "resume"],
        "last_seen_at": "2023-11-14T22:13:20.000Z", "resume_token_ref": read["resume_token_ref"],
        "native_protocol": "attache.envelope.v1", "agent_card_ref": null, "status": "connected",
        "agent_id": device.agent, "runtime_id": device.runtime, "address": "127.0.0.1",
        "device_info": {"os": "linux"}, "tools": [], "created_at": "2023-11-14T22:13:20.000Z",
        "connected_at": "2023-11-14T22:13:20.000Z", "disconnected_at": null, "reason": null, "unacknowledged": 0,
    });
    assert_eq!(read, expected);
    assert_eq!(read["resume_token_ref"].as_str().unwrap().len(), 12, "a name of the token, and no more of it");
    let gone = world.owner.get(&format!("/api/v1/channels/{client}")).await.expect(200);
    assert_eq!((&gone["status"], &gone["reason"]), (&json!("disconnected"), &json!("silent")));
    let list = async |query: &str| {
        let page = world.owner.get(&format!("/api/v1/channels{query}")).await.expect(200);
        let ids = page["channels"].as_array().unwrap().iter().map(|channel| channel["channel_id"].clone());
        ids.collect::<Vec<Value>>()
    };
    let (worker, client) = (json!(worker.to_string()), json!(client.to_string()));
    assert_eq!(list("").await, [client.clone(), worker.clone()]);
    assert_eq!(list("?status=disconnected").await, [client]);
    for query in ["?status=connected", "?agent_id=builder", "?agent_id=builder&status=connected"] {
        assert_eq!(list(query).await, std::slice::from_ref(&worker), "{query}");
    }
    world.key("viewer").await.get("/api/v1/channels").await.expect(200);
    assert_eq!(device.client.get("/api/v1/channels").await.refusal().0, 403);
}

async fn an_agent_sees_its_own_channels(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let registered = world.owner.post("/api/a2a/register", json!({"agent_id": "helper"})).await.expect(200);
    let agent = world.anonymous().key(registered["api_key"].as_str().unwrap());
    let account = world.owner.get("/api/v1/agent-accounts/helper").await.expect(200);
    let runtime = account["runtime"]["runtime_id"].as_str().unwrap();
    let actor = format!("agent:{}", registered["account_id"].as_str().unwrap());
    let foreign = open(&world, None).await;
    let works = open_as(&world, Some(runtime), &actor).await;
    let calls = open_as(&world, None, &actor).await;
    let list = agent.get("/api/v1/channels").await.expect(200);
    let ids: Vec<&str> =
        list["channels"].as_array().unwrap().iter().map(|one| one["channel_id"].as_str().unwrap()).collect();
    assert_eq!(ids, [calls.to_string(), works.to_string()]);
    for own in [works, calls] {
        agent.get(&format!("/api/v1/channels/{own}/events")).await.expect(200);
    }
    for path in [format!("/api/v1/channels/{foreign}"), format!("/api/v1/channels/{foreign}/events")] {
        assert_eq!(agent.get(&path).await.refusal(), (404, "not_found".to_owned()));
    }
}

async fn a_channels_events_are_a_stream(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let channel = open(&world, None).await;
    let path = format!("/api/v1/channels/{channel}/events");
    let mut live = world.owner.follow(&path).await;
    let first = live.next().await.unwrap();
    assert_eq!((first.id, first.event.as_str()), (1, "channel.connected"));
    let context = WriteContext::new(tenant(&world).await, WriteContext::SYSTEM, world.env.now());
    world.store.close_channel(context, channel, "silent").await.unwrap();
    let second = live.next().await.unwrap();
    assert_eq!((second.id, second.event.as_str()), (2, "channel.disconnected"));
    assert_eq!(second.data["data"], json!({"channel_id": channel.to_string(), "reason": "silent"}));
    let page = world.owner.get(&path).await.expect(200);
    assert_eq!(page, json!({"events": [first.data, second.data], "next": 2}));
    let rest = world.owner.get(&format!("{path}?after=2")).await.expect(200);
    assert_eq!(rest, json!({"events": [], "next": 2}));
    let mut resumed = world.owner.with("last-event-id", "1").follow(&path).await;
    assert_eq!(resumed.next().await.unwrap().id, 2);
}

#[tokio::test]
async fn a_starting_hub_marks_all_channels_disconnected() {
    let world = World::timed(Engine::Sqlite, |_| {}).await;
    let channel = open(&world, None).await;
    let world = world.restart().await;
    let read = world.owner.get(&format!("/api/v1/channels/{channel}")).await.expect(200);
    assert_eq!((&read["status"], &read["reason"]), (&json!("disconnected"), &json!("hub_restarted")));
}

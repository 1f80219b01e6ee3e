//! Pairing: once, in both directions, and rate-limited against guessing.

use serde_json::json;

use crate::world::World;

const ATTACH: &str = "/api/v1/agent-runtimes/runtime/attach-via-pairing";
const REQUEST: &str = "/api/v1/agent-runtimes/runtime/pairing-requests";
const POLL: &str = "/api/v1/agent-runtimes/runtime/pairing-requests/poll";

#[tokio::test]
async fn only_one_of_a_hundred_clients_can_use_a_code() {
    for world in [World::start().await, World::on_sqlite().await] {
        world.agent("builder").await;
        let code = world.code("builder").await;
        let tries = (0..100).map(|_| {
            let (client, body) = (world.anonymous(), json!({"pairing_token": code}));
            tokio::spawn(async move { client.post(ATTACH, body).await })
        });
        let mut won = Vec::new();
        for attempt in tries.collect::<Vec<_>>() {
            let reply = attempt.await.unwrap();
            match reply.status {
                200 => won.push(reply.json()["runtime_id"].clone()),
                _ => assert_eq!(reply.refusal(), (404, "pairing_failed".to_owned())),
            }
        }
        assert_eq!(won.len(), 1);
        let runtimes = world.owner.get("/api/v1/agent-runtimes").await.expect(200);
        assert_eq!(runtimes["agent_runtimes"].as_array().unwrap().len(), 1);
        assert_eq!(runtimes["agent_runtimes"][0]["runtime_id"], won[0]);
    }
}

#[tokio::test]
async fn a_code_works_once_however_it_is_typed() {
    let world = World::start().await;
    let agent = world.agent("builder").await;
    let code = world.code("builder").await;
    assert_eq!((code.len(), code.as_bytes()[4]), (9, b'-'));
    let typed = code.to_lowercase().replace('-', " ");
    let body =
        json!({"pairing_token": typed, "device_name": "MacBook", "labels": {"host_type": "claude_cli"}, "extra": 1});
    let attached = world.anonymous().post(ATTACH, body.clone()).await.expect(200);
    assert_eq!((&attached["agent_id"], &attached["heartbeat_timeout_ms"]), (&json!(agent), &json!(120_000)));
    assert!(attached["runtime_token"].as_str().unwrap().starts_with("rt_"));
    assert_eq!(world.anonymous().post(ATTACH, body).await.refusal(), (404, "pairing_failed".to_owned()));
    let account = world.owner.get("/api/v1/agent-accounts/builder").await.expect(200);
    assert_eq!(account["runtime"]["device_name"], "MacBook");
    assert_eq!(account["runtime"]["labels"], json!({"host_type": "claude_cli"}));
}

#[tokio::test]
async fn guessing_is_limited_but_success_never_counts() {
    let world = World::tuned(|options| options.pairing_failures_per_minute = 10).await;
    world.agent("builder").await;
    for _ in 0..20 {
        world.device("builder").await;
    }
    for _ in 0..10 {
        let guess = world.anonymous().post(ATTACH, json!({"pairing_token": "0000-0000"})).await;
        assert_eq!(guess.refusal(), (404, "pairing_failed".to_owned()));
    }
    let blocked = world.anonymous().post(ATTACH, json!({"pairing_token": "0000-0000"})).await;
    assert_eq!(blocked.refusal(), (429, "too_many_requests".to_owned()));
    let wait: u64 = blocked.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    for _ in 0..10 {
        world.anonymous().post(REQUEST, json!({})).await.expect(201);
    }
    let blocked = world.anonymous().post(REQUEST, json!({})).await;
    assert_eq!(blocked.refusal(), (429, "too_many_requests".to_owned()));
}

#[tokio::test]
async fn a_device_shows_a_code_and_a_person_confirms_it() {
    let world = World::start().await;
    let agent = world.agent("builder").await;
    let asked = world.anonymous().post(REQUEST, json!({"device_name": "pi", "labels": {"host_type": "shell"}})).await;
    let asked = asked.expect(201);
    let (code, poll) = (asked["pairing_code"].as_str().unwrap(), json!({"poll_token": asked["poll_token"]}));
    assert_eq!(asked["confirm_url"], format!("http://{}/pair?code={code}", world.address));
    assert_eq!(world.anonymous().post(POLL, poll.clone()).await.refusal(), (202, "pairing_pending".to_owned()));
    let path = format!("/api/v1/pairing-requests/{code}");
    let seen = world.owner.get(&path).await.expect(200);
    assert_eq!((&seen["device_name"], &seen["address"]), (&json!("pi"), &json!("127.0.0.1")));
    world.owner.post(&format!("{path}/decision"), json!({"agent_id": "builder"})).await.expect(200);
    let attached = world.anonymous().post(POLL, poll.clone()).await.expect(200);
    assert_eq!(attached["agent_id"], agent.as_str());
    assert_eq!(world.anonymous().post(POLL, poll).await.refusal(), (404, "pairing_failed".to_owned()));
    let account = world.owner.get("/api/v1/agent-accounts/builder").await.expect(200);
    assert_eq!(account["runtime"]["device_name"], "pi");
}

#[tokio::test]
async fn a_person_rejects_a_device() {
    let world = World::start().await;
    let asked = world.anonymous().post(REQUEST, json!({})).await.expect(201);
    let path = format!("/api/v1/pairing-requests/{}/decision", asked["pairing_code"].as_str().unwrap());
    world.owner.post(&path, json!({"agent_id": null})).await.expect(200);
    let poll = world.anonymous().post(POLL, json!({"poll_token": asked["poll_token"]})).await;
    assert_eq!(poll.refusal(), (403, "pairing_rejected".to_owned()));
}

#[tokio::test]
async fn an_expired_code_is_refused() {
    let world = World::tuned(|options| options.pairing_ttl = std::time::Duration::ZERO).await;
    world.agent("builder").await;
    let code = world.code("builder").await;
    let reply = world.anonymous().post(ATTACH, json!({"pairing_token": code})).await;
    assert_eq!(reply.refusal(), (404, "pairing_failed".to_owned()));
}

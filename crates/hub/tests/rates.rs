//! How often somebody may try, and what they are told.

use serde_json::json;

use crate::world::{Reply, World};

fn told(reply: &Reply) -> (u16, &str, bool, bool) {
    let within = |text: &str| (1..=60).contains(&text.parse::<u64>().unwrap_or(0));
    let limit = reply.header("ratelimit");
    let reset = limit.rsplit_once("t=").map_or("", |(_, reset)| reset);
    (reply.status, reply.header("ratelimit-policy"), within(reply.header("retry-after")), within(reset))
}

#[tokio::test]
async fn wrong_credentials_are_answered_so_often_and_right_ones_always() {
    let world = World::tuned(|options| options.failures_per_minute = 3).await;
    for wrong in ["ak_wrong", "a.b.c", "rt_x"] {
        let reply = world.anonymous().key(wrong).get("/api/v1/task-runs").await;
        assert_eq!(reply.refusal(), (401, "unauthenticated".to_owned()), "{wrong}");
        assert_eq!(reply.header("ratelimit"), "");
    }
    let reply = world.anonymous().with("x-runtime-token", "rt_x").get("/api/v1/task-runs").await;
    assert_eq!(reply.refusal(), (429, "too_many_requests".to_owned()));
    assert_eq!(told(&reply), (429, "\"failed\";q=3;w=60", true, true));
    assert!(reply.header("ratelimit").starts_with("\"failed\";r=0;t="), "{}", reply.header("ratelimit"));
    assert_eq!(world.owner.get("/api/v1/task-runs").await.status, 200, "whoever shares the address is not to blame");
}

#[tokio::test]
async fn requests_without_a_credential_are_answered_so_often() {
    let world = World::tuned(|options| options.anonymous_per_minute = 3).await;
    for _ in 0..3 {
        assert_eq!(world.anonymous().get("/healthz").await.status, 200);
    }
    let reply = world.anonymous().get("/healthz").await;
    assert_eq!(told(&reply), (429, "\"anonymous\";q=3;w=60", true, true));
    assert_eq!(world.owner.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_principal_has_a_limit_only_if_the_hub_was_told_one() {
    let world = World::start().await;
    assert_eq!(world.owner.get("/api/v1/task-runs").await.header("ratelimit-policy"), "");

    let world = World::tuned(|options| options.requests_per_minute = Some(5)).await;
    world.owner.post("/api/v1/users", json!({"name": "ada"})).await.expect(201);
    let made = world.owner.post("/api/v1/api-keys", json!({"name": "k", "user": "ada"})).await.expect(201);
    let reply = world.owner.get("/api/v1/task-runs").await;
    assert_eq!(told(&reply), (200, "\"principal\";q=5;w=60", false, true));
    assert!(reply.header("ratelimit").starts_with("\"principal\";r=2;t="), "{}", reply.header("ratelimit"));
    world.agent("builder").await;
    // A second key of the same person has what is left, which is one.
    let second = world.owner.post("/api/v1/api-keys", json!({"name": "k"})).await.expect(201);
    let second = world.anonymous().key(second["api_key"].as_str().unwrap());
    let refused = second.get("/api/v1/task-runs").await;
    assert_eq!(refused.refusal(), (429, "too_many_requests".to_owned()));
    assert_eq!(told(&refused), (429, "\"principal\";q=5;w=60", true, true));
    let ada = world.anonymous().key(made["api_key"].as_str().unwrap());
    assert_eq!(ada.get("/api/v1/task-runs").await.status, 200, "another person has their own");
}

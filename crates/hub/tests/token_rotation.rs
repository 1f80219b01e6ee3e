//! A runtime's token is rotated while it works. A stolen old copy is rejected and detected.

use std::time::Duration;

use attache_hub::OnTokenReuse;
use serde_json::{Value, json};

use crate::world::{Engine, TestCaller, TestDevice, World, on_all};

const BEAT: &str = "/api/v1/agent-runtimes/runtime/heartbeat";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Longer than a replaced token is accepted.
const OVERLAP: Duration = Duration::from_secs(121);

on_all! {
    a_token_is_replaced_by_the_first_use_of_the_next_one
    a_replaced_token_is_refused_and_its_use_is_detected
    a_thief_who_rotates_first_is_detected_and_locked_out_by_pairing
    by_policy_using_a_replaced_token_revokes_the_runtime
    streams_opened_with_a_replaced_token_are_closed
    a_runtime_without_rotation_or_with_a_new_token_keeps_its_token
}

struct PairedDevice {
    world: World,
    device: TestDevice,
}

impl PairedDevice {
    async fn begin(engine: Engine, on_reuse: OnTokenReuse) -> Self {
        let world = World::timed(engine, |options| options.on_token_reuse = on_reuse).await;
        world.agent("builder").await;
        let device = world.device("builder").await;
        Self { world, device }
    }

    fn with(&self, token: &str) -> TestCaller {
        self.world.anonymous().with("x-runtime-token", token)
    }

    /// A day later: the token offered by the next heartbeat.
    async fn offered(&self) -> String {
        self.world.advance(DAY);
        let beat = self.device.client.post(BEAT, json!({"token_rotation": true})).await.expect(200);
        beat["runtime_token"].as_str().expect("a token is offered").to_owned()
    }

    async fn runtime(&self) -> Value {
        self.world.owner.get(&format!("/api/v1/agent-runtimes/{}", self.device.runtime)).await.expect(200)
    }

    /// How often tokens were rotated and old ones used, according to the log.
    async fn logged(&self) -> [usize; 2] {
        let about = json!({"agent_id": self.device.agent, "runtime_id": self.device.runtime});
        let (rotated, reused) =
            (self.world.audit("runtime.token_rotated").await, self.world.audit("runtime.token_reused").await);
        assert!(rotated.iter().chain(&reused).all(|(_, data)| *data == about), "{rotated:?} {reused:?}");
        [rotated.len(), reused.len()]
    }
}

fn replaced() -> (u16, String) {
    (401, "token_replaced".to_owned())
}

async fn a_token_is_replaced_by_the_first_use_of_the_next_one(engine: Engine) {
    let paired = PairedDevice::begin(engine, OnTokenReuse::Refuse).await;
    let lost = paired.offered().await;
    // The response was lost: the current token stays valid, and the unused offer is void.
    let next = paired.offered().await;
    assert!(next.starts_with("rt_") && next.len() == 3 + 64 && next != lost);
    assert_eq!(paired.with(&lost).post(BEAT, json!({})).await.refusal(), (401, "unauthenticated".to_owned()));
    paired.device.client.post(BEAT, json!({})).await.expect(200);
    assert_eq!(paired.logged().await, [0, 0]);

    let renewed = paired.with(&next);
    renewed.post(BEAT, json!({})).await.expect(200);
    assert_eq!(paired.logged().await, [1, 0]);
    assert!(paired.runtime().await["token_rotated_at"].is_string());
    // Requests in flight with the old token may still arrive.
    paired.device.client.post(BEAT, json!({})).await.expect(200);
    paired.world.advance(OVERLAP);
    assert_eq!(paired.device.client.post(BEAT, json!({})).await.refusal(), replaced());
    renewed.post(BEAT, json!({})).await.expect(200);
}

async fn a_replaced_token_is_refused_and_its_use_is_detected(engine: Engine) {
    let paired = PairedDevice::begin(engine, OnTokenReuse::Refuse).await;
    let thief = paired.device.client.clone();
    let renewed = paired.with(&paired.offered().await);
    renewed.post(BEAT, json!({})).await.expect(200);
    paired.world.advance(OVERLAP);
    assert_eq!(paired.runtime().await["token_reused_at"], Value::Null);

    assert_eq!(thief.post(BEAT, json!({"token_rotation": true})).await.refusal(), replaced());
    assert_eq!(thief.get("/api/v1/task-runs").await.refusal(), replaced());
    assert!(paired.runtime().await["token_reused_at"].is_string());
    // Repeated use doesn't fill the log. A minute later it is logged again.
    assert_eq!(paired.logged().await, [1, 1]);
    paired.world.advance(OVERLAP);
    assert_eq!(thief.get("/api/v1/task-runs").await.refusal(), replaced());
    assert_eq!(paired.logged().await, [1, 2]);
    assert_eq!(paired.runtime().await["state"], "active");
    renewed.post(BEAT, json!({})).await.expect(200);
}

async fn a_thief_who_rotates_first_is_detected_and_locked_out_by_pairing(engine: Engine) {
    let paired = PairedDevice::begin(engine, OnTokenReuse::Refuse).await;
    let thief = paired.with(&paired.offered().await);
    thief.post(BEAT, json!({})).await.expect(200);
    paired.world.advance(OVERLAP);

    assert_eq!(paired.device.client.post(BEAT, json!({})).await.refusal(), replaced());
    assert_eq!(paired.logged().await, [1, 1]);
    let again = paired.world.device("builder").await;
    assert_eq!(thief.post(BEAT, json!({})).await.refusal(), (401, "runtime_superseded".to_owned()));
    again.client.post(BEAT, json!({})).await.expect(200);
}

async fn by_policy_using_a_replaced_token_revokes_the_runtime(engine: Engine) {
    let paired = PairedDevice::begin(engine, OnTokenReuse::Revoke).await;
    let renewed = paired.with(&paired.offered().await);
    renewed.post(BEAT, json!({})).await.expect(200);
    paired.world.advance(OVERLAP);
    assert_eq!(paired.device.client.post(BEAT, json!({})).await.refusal(), replaced());
    assert_eq!(renewed.post(BEAT, json!({})).await.refusal(), (401, "runtime_revoked".to_owned()));
    assert_eq!(paired.runtime().await["state"], "revoked");
    assert_eq!(paired.logged().await, [1, 1]);
}

async fn streams_opened_with_a_replaced_token_are_closed(engine: Engine) {
    let paired = PairedDevice::begin(engine, OnTokenReuse::Refuse).await;
    let next = paired.offered().await;
    let created = paired.world.run("builder").await;
    paired.device.claim().await;
    let path = format!("/api/v1/task-runs/{}/events?after=2", created["task_run_id"].as_str().unwrap());
    let mut stream = paired.device.client.follow(&path).await;
    let renewed = paired.with(&next);
    for _ in 0..3 {
        renewed.post(BEAT, json!({"running": [created["task_run_id"]]})).await.expect(200);
        paired.world.advance(OVERLAP / 2);
    }
    while stream.next().await.is_some() {}
    // It ended because of the token, not the run. No one signed in with it, so no reuse is recorded.
    let run = paired.world.owner.get(&path.replace("/events?after=2", "")).await.expect(200);
    assert_eq!(run["status"], "running");
    assert_eq!(paired.logged().await, [1, 0]);
}

async fn a_runtime_without_rotation_or_with_a_new_token_keeps_its_token(engine: Engine) {
    let paired = PairedDevice::begin(engine, OnTokenReuse::Refuse).await;
    let young = paired.device.client.post(BEAT, json!({"token_rotation": true})).await.expect(200);
    assert_eq!(young.get("runtime_token"), None);
    paired.world.advance(DAY);
    let silent = paired.device.client.post(BEAT, json!({})).await.expect(200);
    assert_eq!(silent.get("runtime_token"), None);
}

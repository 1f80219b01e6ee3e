//! A device's token is rotated while it works, and the device continues.

use std::{os::unix::fs::PermissionsExt as _, time::Duration};

use attache_client::{HubClient as Client, HubClientOptions, HubCredential};
use attache_protocol::{Secret, rules::run::RunStatus, wire::runtime::HeartbeatRequest};
use serde_json::json;

use crate::{
    adapter::AdapterReply,
    live_hub::{LiveHub, eventually},
};

const OVERLAP: Duration = Duration::from_millis(300);

/// A hub that offers a new token with every heartbeat.
async fn restless() -> LiveHub {
    LiveHub::tuned(|options| {
        options.token_rotation = Duration::ZERO;
        options.token_overlap = OVERLAP;
    })
    .await
}

fn token(live: &LiveHub) -> Secret<String> {
    live.world.profiles().load().unwrap().select(None).unwrap().runtime_token.clone()
}

async fn another_token(live: &LiveHub, than: &Secret<String>) -> Secret<String> {
    eventually("another token", async || Some(token(live)).filter(|now| now.expose() != than.expose())).await
}

fn answer(text: &str) -> serde_json::Value {
    json!({"success": true, "output": {"text": text, "artifact_refs": []}})
}

#[tokio::test]
async fn a_device_keeps_working_while_its_token_is_rotated_repeatedly() {
    let live = restless().await;
    let first = token(&live);
    let running = live.connected().await;
    let mut last = first.clone();
    for round in 0..5 {
        last = another_token(&live, &last).await;
        live.world.adapter.play(AdapterReply::Json(answer("done")));
        let run = live.create(&format!("round {round}")).await;
        live.run_with(run, RunStatus::Completed).await;
    }
    let file = live.world.home.path().join("runtime.json");
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!live.world.written().contains(last.expose()), "the token is in another file than the profile");
    running.stop().await.unwrap();

    // The token in the profile is valid after a restart. The first one isn't.
    let again = live.connected().await;
    live.world.adapter.play(AdapterReply::Json(answer("again")));
    let run = live.create("after a restart").await;
    live.run_with(run, RunStatus::Completed).await;
    let options = HubClientOptions::new(format!("http://{}", live.address), HubCredential::RuntimeToken(first));
    let thief = Client::new(options).unwrap();
    let code = eventually("a refusal", async || thief.heartbeat(&HeartbeatRequest::default()).await.err()).await.code();
    assert_eq!(code.map(attache_protocol::Code::as_str), Some("token_replaced"));
    assert!(
        live.owner.runtimes(&attache_client::PageQuery::default()).await.unwrap().agent_runtimes[0]
            .token_reused_at
            .is_some()
    );
    again.stop().await.unwrap();
}

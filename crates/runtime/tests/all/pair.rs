//! Pairing in both directions, and what a new pairing keeps of an earlier one.

use std::sync::{Arc, Mutex};

use attache_protocol::{Secret, env::Env};
use attache_runtime::{
    pair::{self, PairOptions},
    profile::{LocalExecutor, Profiles},
};
use serde_json::json;

use crate::hub::{FakeHub, error};

fn options(hub: &FakeHub) -> PairOptions {
    PairOptions {
        api_base: hub.url.clone(),
        device_name: Some("laptop".into()),
        local_executor: LocalExecutor { kind: Some("claude_cli".into()), ..LocalExecutor::default() },
        asks: None,
        local_agent_endpoint: Some("http://127.0.0.1:9".into()),
        adapter_secret: Some(Secret::new("as_hidden".into())),
        trusted_certificate: None,
        pin: None,
        env: Env::system(),
    }
}

fn attached(runtime: u8) -> serde_json::Value {
    json!({"agent_id": "agt_00000000000000000000000000000001", "runtime_id": format!("rtm_{runtime:032x}"),
        "runtime_token": format!("rt_token{runtime}"), "heartbeat_timeout_ms": 60000})
}

#[tokio::test]
async fn a_code_is_redeemed_and_a_second_pairing_keeps_the_settings() {
    let hub = FakeHub::start().await;
    let home = tempfile::tempdir().unwrap();
    hub.refuse("attach-via-pairing", 200, attached(2));
    let code = Secret::new("K7QM-2XHD".to_owned());
    let profile = pair::redeem(home.path(), options(&hub), &code).await.unwrap();
    assert_eq!(profile.api_base, format!("{}/api/v1", hub.url));
    assert_eq!(
        hub.calls("refused attach-via-pairing")[0].body,
        json!({"pairing_token": "K7QM-2XHD", "device_name": "laptop", "labels": {"host_type": "claude_cli"}})
    );

    hub.refuse("attach-via-pairing", 200, attached(3));
    let bare = PairOptions {
        device_name: None,
        local_executor: LocalExecutor::default(),
        asks: None,
        local_agent_endpoint: None,
        adapter_secret: None,
        ..options(&hub)
    };
    pair::redeem(home.path(), bare, &code).await.unwrap();
    let set = Profiles::at(home.path(), Env::system()).load().unwrap();
    assert_eq!(set.profiles.len(), 1);
    let profile = set.select(None).unwrap();
    assert_eq!(profile.runtime_token.expose(), "rt_token3");
    assert_eq!(profile.heartbeat_timeout_ms, 60_000);
    assert_eq!(profile.device_name.as_deref(), Some("laptop"));
    assert_eq!(profile.local_agent_endpoint.as_deref(), Some("http://127.0.0.1:9"));
    assert_eq!(profile.adapter_secret.as_ref().unwrap().expose(), "as_hidden");
    assert_eq!(profile.local_executor.kind.as_deref(), Some("claude_cli"));
}

#[tokio::test]
async fn a_device_shows_a_code_and_waits_for_a_person() {
    let hub = FakeHub::start().await;
    let home = tempfile::tempdir().unwrap();
    let ticket = json!({"pairing_code": "K7QM-2XHD", "confirm_url": "http://h/pair/K7QM-2XHD", "poll_token": "pp_hidden",
        "poll_interval_ms": 200, "expires_at": "2100-01-01T00:00:00.000Z"});
    hub.refuse("pairing-requests", 201, ticket.clone());
    hub.refuse("poll", 202, error("pairing_pending", "Not yet."));
    hub.refuse("poll", 503, error("draining", "Going down."));
    hub.refuse("poll", 200, attached(2));
    let shown = Arc::new(Mutex::new(None));
    let screen = shown.clone();
    let profile = pair::request(home.path(), options(&hub), move |ticket| {
        *screen.lock().unwrap() = Some(ticket.pairing_code.expose().clone());
    })
    .await
    .unwrap();
    assert_eq!(shown.lock().unwrap().as_deref(), Some("K7QM-2XHD"));
    assert_eq!(profile.runtime_token.expose(), "rt_token2");
    assert_eq!(hub.calls("refused poll").len(), 3);
    assert_eq!(hub.calls("refused poll")[0].body, json!({"poll_token": "pp_hidden"}));

    hub.refuse("pairing-requests", 201, ticket);
    hub.refuse("poll", 403, error("pairing_rejected", "A person said no."));
    let error = pair::request(home.path(), options(&hub), |_| {}).await.unwrap_err();
    assert_eq!(error.to_string(), "A person said no. hint of pairing_rejected");
}

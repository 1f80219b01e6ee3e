//! The pairing dialog, and pairing with a code from a device.

use attache_protocol::{
    Json,
    wire::{key::Role, pairing::PairingRequest, runtime::RuntimeState},
};
use axum::http::StatusCode;

use crate::world::{ConsoleWorld, LOCAL, between};

#[tokio::test]
async fn the_dialog_shows_the_code_once_and_advances_when_the_device_connects() {
    let world = ConsoleWorld::new().await;
    let agent = world.agent("builder").await.agent_id;
    let visitor = world.signed_in(Role::Owner).await;
    let page = visitor.post(&format!("/agents/{agent}/pairing-codes"), &[]).await;
    assert_eq!(page.status, StatusCode::OK);
    let command = between(&page.body, "id=\"pair-command\">", "<").to_owned();
    let code = between(&command, "pair ", " --api-base").to_owned();
    assert_eq!(command, format!("attache runtime pair {code} --api-base http://127.0.0.1:7800"));
    assert_eq!(code.len(), 9);
    let flips = between(&page.body, "data-paired=\"", "\"").replace("&#38;", "&");
    assert_eq!(visitor.get(&flips).await.status, StatusCode::NO_CONTENT);

    let device = world.join(&code, "rack node", "shell").await;
    let flipped = visitor.get(&flips).await;
    assert_eq!(flipped.status, StatusCode::OK);
    for words in [
        "Paired. builder is online",
        "<bdi>rack node</bdi>",
        "Built-in shell",
        "value=\"uname -a\"",
        "action=\"/runs\"",
    ] {
        assert!(flipped.body.contains(words), "{words}: {}", flipped.body);
    }

    // The code never appears again.
    let owner = world.signed_in(Role::Owner).await;
    let bare = code.replace('-', "");
    for path in ["/agents", &format!("/agents/{agent}"), "/audit", "/runs", "/settings", "/pair", &flips] {
        let page = owner.get(path).await;
        assert!(!page.body.contains(&code) && !page.body.contains(&bare), "{path}");
    }

    let start = visitor.post("/runs", &[("agent", &agent.to_string()), ("text", "uname -a"), ("key", "k")]).await;
    assert!(start.header("location").starts_with("/runs/run_"));
    assert_eq!(format!("/runs/{}", device.claim().await), start.header("location"));

    let page = visitor.get(&format!("/agents/{agent}")).await;
    let revoke = format!("/runtimes/{}/revoke", between(&page.body, "action=\"/runtimes/", "/"));
    let revoked = visitor.post(&revoke, &[]).await;
    assert_eq!(revoked.header("location"), format!("/agents/{agent}?said=revoked"));
    let page = attache_hub::control::PageRequest::default();
    let runtimes = world.hub.runtimes(&world.owner, Some("builder"), page).await.unwrap().agent_runtimes;
    assert_eq!(runtimes.iter().map(|runtime| runtime.state).collect::<Vec<_>>(), [RuntimeState::Revoked]);
}

async fn wanting(world: &ConsoleWorld) -> String {
    let labels = Some(Json::from_text(r#"{"host_type":"hermes"}"#).unwrap());
    let request = PairingRequest { device_name: Some("rack node".to_owned()), labels };
    world.hub.request_pairing(LOCAL, request).await.unwrap().pairing_code
}

#[tokio::test]
async fn a_device_code_is_confirmed_for_an_existing_or_new_agent_or_rejected() {
    let world = ConsoleWorld::new().await;
    let agent = world.agent("builder").await.agent_id.to_string();
    let visitor = world.signed_in(Role::Owner).await;

    let code = wanting(&world).await;
    for page in [
        visitor.get(&format!("/pair?code={}", code.to_lowercase())).await,
        visitor.post("/pair", &[("code", &code.replace('-', " "))]).await,
    ] {
        assert_eq!(page.status, StatusCode::OK);
        for words in ["“rack node” wants to pair", "127.0.0.1", "Hermes Agent", &code] {
            assert!(page.body.contains(words), "{words}: {}", page.body);
        }
    }
    let undecided = visitor.post("/pair/decision", &[("code", &code), ("decision", "confirm")]).await;
    assert!(undecided.body.contains("Choose an agent, or name a new one."));
    let fields = [("code", &*code), ("agent", &*agent), ("decision", "confirm")];
    let confirmed = visitor.post("/pair/decision", &fields).await;
    assert_eq!(confirmed.header("location"), format!("/agents/{agent}?said=confirmed"));
    let again = visitor.post("/pair/decision", &fields).await;
    assert!(again.status.is_client_error() && again.body.contains("role=\"alert\""));

    let code = wanting(&world).await;
    let fields = [("code", &*code), ("new_name", "crawler"), ("decision", "confirm")];
    let confirmed = visitor.post("/pair/decision", &fields).await;
    let crawler = world.hub.account(&world.owner, "crawler").await.unwrap().agent_id;
    assert_eq!(confirmed.header("location"), format!("/agents/{crawler}?said=confirmed"));

    let code = wanting(&world).await;
    let rejected = visitor.post("/pair/decision", &[("code", &code), ("decision", "reject")]).await;
    assert_eq!(rejected.header("location"), "/agents?said=rejected");

    let unknown = visitor.get("/pair?code=0000-0000").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert!(unknown.body.contains("Unknown code."));
    // A wrong code creates no agent.
    let fields = [("code", "0000-0000"), ("new_name", "planted"), ("decision", "confirm")];
    assert!(visitor.post("/pair/decision", &fields).await.status.is_client_error());
    assert!(world.hub.account(&world.owner, "planted").await.is_err());
    // A viewer who may not pair learns nothing about the device.
    let code = wanting(&world).await;
    let viewer = world.signed_in(Role::Viewer).await;
    let page = viewer.get(&format!("/pair?code={code}")).await;
    assert!(!page.body.contains("rack node") && page.body.contains("Your role doesn’t allow this"));
}

//! Signatures of cards, verified with the keys that the hub publishes.

use attache_a2a_wire::AgentCardSignature;
use attache_client::a2a::verify::{CardVerifyingKey, SignatureError, SignatureHeader, verify};
use attache_protocol::Json;
use serde_json::{Value, json};

use super::{agent, get, world};

const CARD: &str = "/a2a/echo/.well-known/agent-card.json";

fn signatures(card: &Value) -> Vec<AgentCardSignature> {
    serde_json::from_value(card["signatures"].clone()).unwrap()
}

fn text(card: &Value) -> Json {
    Json::from_text(card.to_string()).unwrap()
}

#[tokio::test]
async fn the_signature_holds_and_breaks_with_the_card() {
    let world = world().on_sqlite().agent("echo").start().await;
    let keys = get(&world, "/.well-known/jwks.json", &[]).await;
    let keys = CardVerifyingKey::read_all(&Json::from_text(keys.body).unwrap()).unwrap();
    for version in ["1.0", ""] {
        let card = get(&world, CARD, &[("a2a-version", version)]).await;
        let (card, raw) = (card.expect(200), Json::from_text(card.body).unwrap());
        let found = signatures(&card);
        assert_eq!(found.len(), 1, "nothing in it is empty, so one form is all there is");
        let header = SignatureHeader::read(&found[0]).unwrap();
        assert_eq!((header.alg.as_str(), header.jku), ("ES256", Some(format!("{}/.well-known/jwks.json", world.url))));
        if version == "1.0" {
            assert_eq!(verify(&raw, &found[0], &keys), Ok(()));
            let mut changed = card.clone();
            changed["description"] = json!("Another.");
            assert_eq!(verify(&text(&changed), &found[0], &keys), Err(SignatureError::Signature));
        }
    }
    let file = world.data.path().join("hub/card.key");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    world.stop().await;
}

#[tokio::test]
async fn parameters_with_empty_members_are_signed_for_both_kinds_of_verifiers() {
    let world = world().start().await;
    let extension = json!({"uri": "https://example.org/ext/v1", "params": {"none": "", "list": [], "n": 1.50}});
    agent(&world, "echo", json!({"extensions": [extension]})).await;
    let keys = get(&world, "/.well-known/jwks.json", &[]).await;
    let keys = CardVerifyingKey::read_all(&Json::from_text(keys.body).unwrap()).unwrap();
    let card = get(&world, CARD, &[("a2a-version", "1.0")]).await;
    let found = signatures(&card.expect(200));
    assert_eq!(found.len(), 2);
    let raw = Json::from_text(card.body).unwrap();
    for signature in &found {
        assert_eq!(verify(&raw, signature, &keys), Ok(()));
    }
    world.stop().await;
}

#[tokio::test]
async fn parameters_that_no_number_holds_leave_the_card_unsigned() {
    let world = world().start().await;
    let a2a = Json::from_text(r#"{"extensions":[{"uri":"https://example.org/ext/v1","params":{"n":1e999}}]}"#).unwrap();
    let request = attache_protocol::wire::account::AccountRequest {
        name: Some("echo".to_owned()),
        a2a: Some(a2a),
        ..Default::default()
    };
    world.hub.create_account(&world.owner, request).await.unwrap();
    let card = get(&world, CARD, &[("a2a-version", "1.0")]).await;
    assert_eq!(card.status, 200);
    assert!(card.body.contains("1e999") && !card.body.contains("signatures"), "{}", card.body);
    world.stop().await;
}

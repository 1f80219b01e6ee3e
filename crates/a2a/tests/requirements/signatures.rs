//! CARD-SIGN: what a card's signature covers, and with which keys it is believed.

use attache_a2a_wire::AgentCardSignature;
use attache_client::a2a::{
    jcs::canonical,
    verify::{CardVerifyingKey, SignatureError, SignatureHeader, verify},
};
use attache_protocol::Json;
use serde_json::{Value, json};

use crate::scene::{A2aFixture, AGENT, world};

struct SignedCard {
    card: Value,
    signature: AgentCardSignature,
    keys: Value,
}

async fn read(url: String) -> Value {
    serde_json::from_str(&reqwest::get(url).await.unwrap().text().await.unwrap()).unwrap()
}

async fn signed() -> SignedCard {
    let scene = A2aFixture::start(world()).await;
    let card = read(format!("{}/a2a/{AGENT}/.well-known/agent-card.json?A2A-Version=1.0", scene.world.url)).await;
    let keys = read(format!("{}/.well-known/jwks.json", scene.world.url)).await;
    let signature = serde_json::from_value(card["signatures"][0].clone()).unwrap();
    scene.world.stop().await;
    SignedCard { card, signature, keys }
}

impl SignedCard {
    fn verify(&self, card: &Value) -> Result<(), SignatureError> {
        self.verify_with(card, &self.keys)
    }

    fn verify_with(&self, card: &Value, keys: &Value) -> Result<(), SignatureError> {
        let keys = CardVerifyingKey::read_all(&Json::of(keys)).unwrap();
        verify(&Json::of(card), &self.signature, &keys)
    }
}

#[tokio::test]
async fn card_sign_001_the_form_of_the_text_does_not_matter() {
    let signed = signed().await;
    assert_eq!(signed.verify(&signed.card), Ok(()));
    // Members in another order and spaces between them are the same card.
    let mut backwards = serde_json::Map::new();
    for (name, value) in signed.card.as_object().unwrap().iter().rev() {
        backwards.insert(name.clone(), value.clone());
    }
    let backwards = Value::Object(backwards);
    assert_ne!(backwards.to_string(), signed.card.to_string());
    assert_eq!(canonical(&Json::of(&backwards)), canonical(&Json::of(&signed.card)));
    assert_eq!(signed.verify(&backwards), Ok(()));
    let spaced = Json::from_text(serde_json::to_string_pretty(&signed.card).unwrap()).unwrap();
    let keys = CardVerifyingKey::read_all(&Json::of(&signed.keys)).unwrap();
    assert_eq!(verify(&spaced, &signed.signature, &keys), Ok(()));
}

#[tokio::test]
async fn card_sign_002_the_signatures_themselves_are_not_signed() {
    let signed = signed().await;
    let mut card = signed.card.clone();
    card.as_object_mut().unwrap().remove("signatures");
    assert_eq!(signed.verify(&card), Ok(()));
    card["signatures"] = json!([{"protected": "e30", "signature": "AA"}]);
    assert_eq!(signed.verify(&card), Ok(()));
    for (name, value) in [("name", json!("other")), ("url", json!("https://elsewhere.example")), ("skills", json!([]))]
    {
        let mut changed = signed.card.clone();
        changed[name] = value;
        if changed != signed.card {
            assert_eq!(signed.verify(&changed), Err(SignatureError::Signature), "{name} is signed");
        }
    }
}

#[tokio::test]
async fn card_sign_003_the_header_names_algorithm_and_key() {
    let signed = signed().await;
    let header = SignatureHeader::read(&signed.signature).unwrap();
    assert_eq!(header.alg, "ES256");
    let known = signed.keys["keys"].as_array().unwrap();
    assert!(known.iter().any(|key| key["kid"] == json!(header.kid)), "{header:?} is published: {known:?}");
}

#[tokio::test]
async fn card_sign_004_a_key_that_is_not_published_any_more_verifies_nothing() {
    let signed = signed().await;
    let header = SignatureHeader::read(&signed.signature).unwrap();
    let mut keys = signed.keys.clone();
    keys["keys"].as_array_mut().unwrap().retain(|key| key["kid"] != json!(header.kid));
    let refused = signed.verify_with(&signed.card, &keys).unwrap_err();
    assert_ne!(refused, SignatureError::Signature, "the key is unknown, which is said");
    // Another key under the same name is not the key.
    let mut swapped = self::signed().await.keys;
    for key in swapped["keys"].as_array_mut().unwrap() {
        if key["alg"] == "ES256" {
            key["kid"] = json!(header.kid);
        }
    }
    assert_eq!(signed.verify_with(&signed.card, &swapped), Err(SignatureError::Signature));
}

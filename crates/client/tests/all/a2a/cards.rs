//! Where cards are found, and how far they are believed.

use attache_a2a_wire::GetTask;
use attache_client::a2a::{
    CardSignatureTrust, Error, PeerClient, PeerCredentials, discover,
    jcs::canonical,
    verify::{CardVerifyingKey, SignatureError},
};
use attache_protocol::{Json, Secret};
use aws_lc_rs::signature::Ed25519KeyPair;
use base64ct::{Base64UrlUnpadded, Encoding as _};

use super::server::PeerServer;

const NEW: &str = r#"{ "name":"new", "supportedInterfaces":[{"url":"{origin}/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}] }"#;
const OLD: &str = r#"{"name":"old","url":"{origin}/old","protocolVersion":"0.3.0","securitySchemes":{"k":{"type":"apiKey","in":"header","name":"X-Key"}}}"#;

/// Made with Python's `cryptography` over the canonical form of [`SIGNED`] without its signatures; the key's seed is 32
/// bytes of 7.
const SIGNED: &str = r#"{"name":"signed","description":"é","supportedInterfaces":[{"url":"https://p.example","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"signatures":[{"protected":"eyJhbGciOiJFZERTQSIsImtpZCI6InNldmVuIiwidHlwIjoiSk9TRSJ9","signature":"O1RCKkZQ2XP1TNFBfqhY_cchBzVpfhZiHKRrYAMf4IT2W7DA7NyqiDpZEBYlMNhTTeMvl2bv6L-SHFgNLigBBA"}]}"#;

const JWK: &str = r#"{"kty":"OKP","crv":"Ed25519","kid":"seven","x":"6kpsY-KcUgq-9VB7Ey7F-ZVHdq6-vnuSQh7qaRRG0iw"}"#;

fn key() -> PeerCredentials {
    PeerCredentials::key(Secret::new("hunter2".to_owned()))
}

#[tokio::test]
async fn a_card_is_found_from_the_origin_the_base_and_its_own_url() {
    let server = PeerServer::start().await;
    let origin = &server.origin;
    server.serve("/.well-known/agent-card.json", NEW);
    server.serve("/a2a/old/.well-known/agent.json", OLD);
    server.serve("/elsewhere/card.json", OLD);
    for (url, found_at, name) in [
        (origin.clone(), "/.well-known/agent-card.json", "new"),
        (format!("{origin}/"), "/.well-known/agent-card.json", "new"),
        (format!("{origin}/a2a/old"), "/a2a/old/.well-known/agent.json", "old"),
        (format!("{origin}/a2a/old/"), "/a2a/old/.well-known/agent.json", "old"),
        (format!("{origin}/elsewhere/card.json"), "/elsewhere/card.json", "old"),
    ] {
        let found = discover(&server.guard(), &url, &key(), &[]).await.unwrap();
        assert_eq!((found.url, &*found.card.name), (format!("{origin}{found_at}"), name), "{url}");
        let text = if name == "new" { NEW } else { OLD };
        assert_eq!(found.card_text.get(), text.replace("{origin}", origin), "to the byte");
    }
    let seen = server.seen();
    assert_eq!(seen[0], "GET /.well-known/agent-card.json a2a-version=1.0 authorization=Bearer hunter2");
    let missing = discover(&server.guard(), &format!("{origin}/nobody?key=s"), &key(), &[]).await.unwrap_err();
    assert_eq!(missing, Error::NoCard { url: format!("{origin}/nobody?key=***") });
    let denied = discover(&server.guard(), &format!("{origin}/denied/x.json"), &key(), &[]).await.unwrap_err();
    assert_eq!(denied, Error::NoCard { url: format!("{origin}/denied/x.json") });
    server.serve("/spa/.well-known/agent-card.json", "<html>");
    let odd = discover(&server.guard(), &format!("{origin}/spa"), &key(), &[]).await.unwrap_err();
    assert!(matches!(odd, Error::NotUnderstood { .. }), "{odd}");
    server.serve("/spa/.well-known/agent.json", OLD);
    assert_eq!(discover(&server.guard(), &format!("{origin}/spa"), &key(), &[]).await.unwrap().card.name, "old");
}

#[tokio::test]
async fn a_key_goes_where_the_card_wants_it() {
    let server = PeerServer::start().await;
    server.serve("/.well-known/agent-card.json", OLD);
    let found = discover(&server.guard(), &server.origin, &key(), &[]).await.unwrap();
    let peer = PeerClient::new(&server.guard(), &found.card, key()).unwrap();
    let _ = peer.get(GetTask { id: "x".to_owned(), ..GetTask::default() }).await;
    assert_eq!(server.seen()[1], "POST /old x-key=hunter2");
    let query = NEW.replace(
        r#""name":"new""#,
        r#""name":"new","securitySchemes":{"q":{"apiKeySecurityScheme":{"location":"query","name":"api_key"}},
           "b":{"httpAuthSecurityScheme":{"scheme":"Bearer"}}},"securityRequirements":[{"schemes":{"b":{},"q":{}}},{"schemes":{"q":{}}}]"#,
    );
    server.serve("/.well-known/agent-card.json", &query);
    let found = discover(&server.guard(), &server.origin, &key(), &[]).await.unwrap();
    let peer = PeerClient::new(&server.guard(), &found.card, key()).unwrap();
    let _ = peer.get(GetTask { id: "x".to_owned(), ..GetTask::default() }).await;
    assert_eq!(server.seen()[1], "POST /rpc?api_key=hunter2 a2a-version=1.0");
}

#[tokio::test]
async fn signatures_are_verified_with_the_owners_key_or_one_from_the_same_place() {
    let server = PeerServer::start().await;
    let genuine = Json::from_text(JWK).unwrap();
    let keys = CardVerifyingKey::read_all(&genuine).unwrap();
    server.serve("/.well-known/agent-card.json", SIGNED);
    let look = async |keys: &[CardVerifyingKey]| {
        discover(&server.guard(), &server.origin, &PeerCredentials::none(), keys).await.unwrap()
    };
    assert_eq!(look(&keys).await.trust(), CardSignatureTrust::Verified);
    assert_eq!(
        look(&[]).await.trust(),
        CardSignatureTrust::Unknown(SignatureError::NoKey),
        "no key, and no word of where it is"
    );
    server.serve("/.well-known/agent-card.json", &SIGNED.replace("é", "e"));
    let forged = look(&keys).await;
    assert_eq!(forged.trust(), CardSignatureTrust::Forged(SignatureError::Signature));
    server.serve("/.well-known/agent-card.json", &NEW.replace(r#""name""#, r#""x":"","name""#));
    assert_eq!(look(&keys).await.trust(), CardSignatureTrust::Unsigned);
}

#[tokio::test]
async fn a_signers_own_keys_are_fetched_from_where_the_card_is_and_nowhere_else() {
    let server = PeerServer::start().await;
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let base64 = |text: &str| Base64UrlUnpadded::encode_string(text.as_bytes());
    let publish = |jku: &str| {
        let protected = base64(&format!(r#"{{"alg":"EdDSA","kid":"seven","jku":"{jku}"}}"#));
        let card = canonical(&Json::from_text(NEW.replace("{origin}", &server.origin)).unwrap()).unwrap();
        let signed = pair.sign(format!("{protected}.{}", base64(&card)).as_bytes());
        let signature = Base64UrlUnpadded::encode_string(signed.as_ref());
        let signatures = format!(r#"{{"signatures":[{{"protected":"{protected}","signature":"{signature}"}}],"#);
        server.serve("/.well-known/agent-card.json", &card.replacen('{', &signatures, 1));
    };
    let look = async || {
        let found = discover(&server.guard(), &server.origin, &key(), &[]).await.unwrap();
        (found.trust(), server.seen().split_off(1))
    };
    publish(&format!("{}/keys", server.origin));
    server.serve("/keys", &format!(r#"{{"keys":[{JWK}]}}"#));
    assert_eq!(
        look().await,
        (CardSignatureTrust::Verified, vec!["GET /keys".to_owned()]),
        "and without our key to the peer"
    );
    server.serve("/keys", r#"{"keys":[]}"#);
    assert!(matches!(look().await.0, CardSignatureTrust::Unknown(SignatureError::Unfetched { .. })));
    server.serve("/keys", &format!(r#"{{"keys":[{}]}}"#, JWK.replace("seven", "eight")));
    assert_eq!(look().await.0, CardSignatureTrust::Unknown(SignatureError::NoKey));
    for elsewhere in ["https://keys.example/jwks", "http://127.0.0.1:1/keys", "keys", "file:///etc/passwd"] {
        publish(elsewhere);
        assert_eq!(look().await, (CardSignatureTrust::Unknown(SignatureError::Foreign), vec![]), "{elsewhere}");
    }
}

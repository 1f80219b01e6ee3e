//! Genuine cards, and forgeries.

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
};

use super::*;

const CARD: &str = r#"{ "name":"builder", "version":"1", "skills":[], "n":1.50, "iconUrl":"" }"#;
const CANONICAL: &str = r#"{"iconUrl":"","n":1.5,"name":"builder","skills":[],"version":"1"}"#;
const DROPPED: &str = r#"{"n":1.5,"name":"builder","version":"1"}"#;

enum TestKeyPair {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
}

impl TestKeyPair {
    fn ed25519(seed: u8) -> Self {
        Self::Ed25519(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    fn p256() -> Self {
        Self::P256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    fn jwk(&self, kid: &str) -> String {
        let base64 = Base64UrlUnpadded::encode_string;
        match self {
            Self::Ed25519(pair) => {
                let x = base64(pair.public_key().as_ref());
                format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"{kid}","x":"{x}","use":"sig"}}"#)
            }
            Self::P256(pair) => {
                let point = pair.public_key().as_ref();
                let (x, y) = (base64(&point[1..33]), base64(&point[33..]));
                format!(r#"{{"kty":"EC","crv":"P-256","kid":"{kid}","x":"{x}","y":"{y}"}}"#)
            }
        }
    }

    fn sign(&self, header: &str, payload: &str) -> AgentCardSignature {
        let base64 = |text: &str| Base64UrlUnpadded::encode_string(text.as_bytes());
        let protected = base64(header);
        let signed = format!("{protected}.{}", base64(payload));
        let signature = match self {
            Self::Ed25519(pair) => pair.sign(signed.as_bytes()).as_ref().to_vec(),
            Self::P256(pair) => pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap().as_ref().to_vec(),
        };
        AgentCardSignature { protected, signature: Base64UrlUnpadded::encode_string(&signature), header: None }
    }
}

fn json(text: &str) -> Json {
    Json::from_text(text).unwrap()
}

fn keys(jwks: &[String]) -> Vec<CardVerifyingKey> {
    CardVerifyingKey::read_all(&json(&format!(r#"{{"keys":[{}]}}"#, jwks.join(",")))).unwrap()
}

#[test]
fn both_algorithms_and_both_forms_are_verified() {
    let (ed, ec) = (TestKeyPair::ed25519(1), TestKeyPair::p256());
    let keys = keys(&[ed.jwk("e"), ec.jwk("c"), r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#.to_owned()]);
    assert_eq!(keys.len(), 2, "a key of a kind that nobody verifies with is passed over");
    for form in [CANONICAL, DROPPED] {
        for signature in [
            ed.sign(r#"{"alg":"EdDSA","kid":"e","typ":"JOSE"}"#, form),
            ed.sign(r#"{"alg":"EdDSA"}"#, form),
            ec.sign(r#"{"alg":"ES256","kid":"c","jku":"https://x/jwks.json"}"#, form),
        ] {
            assert_eq!(verify(&json(CARD), &signature, &keys), Ok(()));
            let with = CARD.replacen('{', r#"{"signatures":[{"protected":"a","signature":"b"}],"#, 1);
            assert_eq!(verify(&json(&with), &signature, &keys), Ok(()), "signatures do not cover themselves");
        }
    }
}

#[test]
fn everything_else_is_rejected() {
    let (ed, ec, other) = (TestKeyPair::ed25519(1), TestKeyPair::p256(), TestKeyPair::ed25519(2));
    let keys = keys(&[ed.jwk("e"), ec.jwk("c")]);
    let judge = |card: &str, signature: &AgentCardSignature| verify(&json(card), signature, &keys).unwrap_err();
    let good = ed.sign(r#"{"alg":"EdDSA","kid":"e"}"#, CANONICAL);
    assert_eq!(judge(&CARD.replace("builder", "Builder"), &good), SignatureError::Signature);
    assert_eq!(judge(&CARD.replace(r#""iconUrl":"""#, r#""iconUrl":"x""#), &good), SignatureError::Signature);
    assert_eq!(
        judge(&CARD.replacen('{', r#"{"name":"x","#, 1), &good),
        SignatureError::Card(CanonicalFormError::Twice)
    );
    let with = |header: &str| ed.sign(header, CANONICAL);
    assert_eq!(judge(CARD, &with(r#"{"alg":"none"}"#)), SignatureError::Algorithm("none".to_owned()));
    assert_eq!(judge(CARD, &with(r#"{"alg":"HS256","kid":"e"}"#)), SignatureError::Algorithm("HS256".to_owned()));
    assert_eq!(judge(CARD, &with(r#"{"alg":"ES256","kid":"e"}"#)), SignatureError::NoKey, "the key decides how");
    assert_eq!(judge(CARD, &with(r#"{"alg":"EdDSA","kid":"x"}"#)), SignatureError::NoKey);
    assert_eq!(judge(CARD, &with(r#"{"alg":"EdDSA","alg":"EdDSA"}"#)), SignatureError::Header);
    assert_eq!(
        judge(CARD, &with(r#"{"alg":"EdDSA","crit":["b64"],"b64":false}"#)),
        SignatureError::Critical("b64".into())
    );
    assert_eq!(judge(CARD, &with(r#"{"alg":"EdDSA","crit":[]}"#)), SignatureError::Header);
    assert_eq!(judge(CARD, &other.sign(r#"{"alg":"EdDSA","kid":"e"}"#, CANONICAL)), SignatureError::Signature);
    for broken in [String::new(), "A".repeat(86), format!("{}=", good.signature), good.signature[1..].to_owned()] {
        let signature = AgentCardSignature { signature: broken, ..good.clone() };
        assert_eq!(judge(CARD, &signature), SignatureError::Signature);
    }
    assert_eq!(verify(&json(CARD), &good, &[]), Err(SignatureError::NoKey));
}

#[test]
fn unusable_keys_are_rejected() {
    for text in ["[]", "{}", r#"{"keys":[]}"#, r#"{"keys":{}}"#, r#"{"kty":"OKP","crv":"Ed25519","x":"AA"}"#] {
        assert_eq!(CardVerifyingKey::read_all(&json(text)), Err(KeySetError), "{text}");
    }
    let encryption = TestKeyPair::ed25519(1).jwk("e").replace(r#""use":"sig""#, r#""use":"enc""#);
    assert_eq!(CardVerifyingKey::read_all(&json(&encryption)), Err(KeySetError));
    assert_eq!(
        CardVerifyingKey::read_all(&json(&TestKeyPair::p256().jwk("c"))).map(|keys| keys.len()),
        Ok(1),
        "one key alone"
    );
}

#[test]
fn a_fingerprint_depends_only_on_the_content() {
    let print = |text: &str| fingerprint(&json(text)).unwrap();
    let signed = CARD.replacen('{', r#"{"signatures":[{}],"#, 1);
    let reordered = r#"{"iconUrl":"","version":"1","skills":[],"n":15e-1,"name":"builder"}"#;
    assert_eq!((print(&signed), print(reordered)), (print(CARD), print(CARD)));
    assert_ne!(print(&CARD.replace("builder", "other")), print(CARD));
    assert_eq!(print("{}").to_string(), "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    assert_eq!(fingerprint(&json(r#"{"a":1,"a":2}"#)), Err(CanonicalFormError::Twice));
}

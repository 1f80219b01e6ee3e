//! Every check of passkeys, and every malformed input.

#![allow(clippy::disallowed_methods, reason = "tests build and compare JSON as values")]

use serde_json::Value;

use super::{
    fake::{FakeAuthenticator, FakeKey},
    *,
};

const ORIGIN: &str = "https://hub.example:8443";
const CHALLENGE: &[u8] = &[7; 32];

fn party() -> RelyingParty {
    RelyingParty::of(ORIGIN).unwrap()
}

fn fake() -> FakeAuthenticator {
    FakeAuthenticator::new(ORIGIN, FakeKey::es256())
}

fn new(made: Value) -> NewCredential {
    serde_json::from_value(made).unwrap()
}

fn assertion(made: Value) -> PasskeyAssertion {
    serde_json::from_value(made).unwrap()
}

#[test]
fn passkeys_of_every_kind_are_registered_and_verified() {
    for key in [FakeKey::es256(), FakeKey::ed25519(), FakeKey::rs256()] {
        let mut fake = FakeAuthenticator::new(ORIGIN, key);
        fake.counter = Some(3);
        let made = register(&new(fake.create(&text(CHALLENGE))), &party(), CHALLENGE);
        assert_eq!(made, Ok(RegisteredCredential { public_key: fake.cose(), counter: 3 }));
        let signed = assertion(fake.get(&text(CHALLENGE)));
        assert_eq!(verify(&signed, &party(), CHALLENGE, &fake.cose()), Ok(4));
        let others = FakeKey::es256().cose();
        assert_eq!(verify(&signed, &party(), CHALLENGE, &others), Err(PasskeyFlaw::Signature));
        assert_eq!(verify(&signed, &party(), CHALLENGE, &[0xa0]), Err(PasskeyFlaw::Algorithm));
        assert_eq!(claimed_challenge(&signed.client_data), Some(CHALLENGE.to_vec()));
    }
}

#[test]
fn nothing_made_elsewhere_otherwise_or_unverified_counts() {
    let judge = |change: &dyn Fn(&mut FakeAuthenticator)| {
        let mut fake = fake();
        change(&mut fake);
        let made = register(&new(fake.create(&text(CHALLENGE))), &party(), CHALLENGE).map(drop);
        let signed = assertion(fake.get(&text(CHALLENGE)));
        let verified = verify(&signed, &party(), CHALLENGE, &fake.cose()).map(drop);
        assert_eq!(made, verified);
        verified
    };
    assert_eq!(judge(&|_| {}), Ok(()));
    assert_eq!(judge(&|fake| fake.origin = "https://hub.example".to_owned()), Err(PasskeyFlaw::Origin));
    assert_eq!(judge(&|fake| fake.origin = "https://evil.hub.example:8443".to_owned()), Err(PasskeyFlaw::Origin));
    assert_eq!(judge(&|fake| fake.host = "example".to_owned()), Err(PasskeyFlaw::Host));
    assert_eq!(judge(&|fake| fake.flags = 0x01), Err(PasskeyFlaw::Unverified));
    assert_eq!(judge(&|fake| fake.flags = 0x04), Err(PasskeyFlaw::Unverified));

    let mut fake = fake();
    let made = new(fake.create(&text(CHALLENGE)));
    let signed = assertion(fake.get(&text(CHALLENGE)));
    let other = [8; 32];
    assert_eq!(register(&made, &party(), &other), Err(PasskeyFlaw::Challenge));
    assert_eq!(verify(&signed, &party(), &other, &fake.cose()), Err(PasskeyFlaw::Challenge));
    let swapped = NewCredential { client_data: signed.client_data.clone(), ..made.clone() };
    assert_eq!(register(&swapped, &party(), CHALLENGE), Err(PasskeyFlaw::Ceremony));
    let swapped = PasskeyAssertion { client_data: made.client_data, ..signed.clone() };
    assert_eq!(verify(&swapped, &party(), CHALLENGE, &fake.cose()), Err(PasskeyFlaw::Ceremony));
    let framed = br#"{"type":"webauthn.get","challenge":"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc","origin":"https://hub.example:8443","crossOrigin":true}"#;
    let framed = PasskeyAssertion { client_data: framed.to_vec(), ..signed };
    assert_eq!(verify(&framed, &party(), CHALLENGE, &fake.cose()), Err(PasskeyFlaw::Origin));
}

#[test]
fn whatever_is_changed_proves_nothing() {
    let mut fake = fake();
    let made = new(fake.create(&text(CHALLENGE)));
    let signed = assertion(fake.get(&text(CHALLENGE)));
    for place in 0..signed.authenticator_data.len() {
        let mut changed = signed.clone();
        changed.authenticator_data[place] ^= 0x02;
        assert!(verify(&changed, &party(), CHALLENGE, &fake.cose()).is_err(), "{place}");
        changed.authenticator_data.truncate(place);
        assert!(verify(&changed, &party(), CHALLENGE, &fake.cose()).is_err(), "{place}");
    }
    for place in 0..signed.signature.len() {
        let mut changed = signed.clone();
        changed.signature[place] ^= 1;
        assert_eq!(verify(&changed, &party(), CHALLENGE, &fake.cose()), Err(PasskeyFlaw::Signature), "{place}");
    }
    for end in 0..made.authenticator_data.len() {
        let changed = NewCredential { authenticator_data: made.authenticator_data[..end].to_vec(), ..made.clone() };
        assert_eq!(register(&changed, &party(), CHALLENGE), Err(PasskeyFlaw::Malformed), "{end}");
    }
    let longer = [&made.authenticator_data[..], &[0]].concat();
    let longer = NewCredential { authenticator_data: longer, ..made.clone() };
    assert_eq!(register(&longer, &party(), CHALLENGE), Err(PasskeyFlaw::Malformed));
    let other = NewCredential { id: vec![1; 16], ..made.clone() };
    assert_eq!(register(&other, &party(), CHALLENGE), Err(PasskeyFlaw::Malformed));
    for client_data in [&b""[..], b"null", b"{}", b"\xff", &[b' '; MAX_CLIENT_DATA + 1]] {
        let changed = NewCredential { client_data: client_data.to_vec(), ..made.clone() };
        assert_eq!(register(&changed, &party(), CHALLENGE), Err(PasskeyFlaw::Malformed));
        assert_eq!(claimed_challenge(client_data), None);
    }
    assert!(serde_json::from_str::<NewCredential>(r#"{"id":"!","clientDataJSON":"","authenticatorData":""}"#).is_err());
}

#[test]
fn passkeys_need_a_host_name_and_a_secure_page() {
    let id = |origin| RelyingParty::of(origin).map(|party| party.id().to_owned());
    for (origin, expected) in [
        ("https://hub.example", "hub.example"),
        ("https://hub.example:8443", "hub.example"),
        ("http://localhost:7800", "localhost"),
        ("http://a.localhost", "a.localhost"),
        ("https://localhost", "localhost"),
    ] {
        assert_eq!(id(origin).as_deref(), Some(expected), "{origin}");
    }
    for origin in [
        "http://127.0.0.1:7800",
        "https://127.0.0.1",
        "https://[::1]:7800",
        "http://hub.example",
        "http://evillocalhost",
        "https://",
        "https://hub.example:99999",
        "https://hub.example/x",
        "https://me@hub.example",
        "HTTPS://HUB.EXAMPLE",
        "null",
        "",
    ] {
        assert_eq!(id(origin), None, "{origin}");
    }
}

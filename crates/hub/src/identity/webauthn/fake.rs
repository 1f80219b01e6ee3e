//! An authenticator and the browser before it, for tests. It uses nothing of what it tests.

#![allow(clippy::disallowed_methods, reason = "tests build and compare JSON as values")]

use aws_lc_rs::{
    digest::{SHA256, digest},
    rand::SystemRandom,
    rsa,
    signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
    },
};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde_json::{Value, json};

/// A passkey at one host.
pub(crate) struct FakeAuthenticator {
    pub(crate) id: Vec<u8>,
    /// `None`: it doesn't count.
    pub(crate) counter: Option<u32>,
    /// Present, verified.
    pub(crate) flags: u8,
    pub(crate) origin: String,
    pub(crate) host: String,
    key: FakeKey,
}

pub(crate) enum FakeKey {
    Es256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rs256(RsaKeyPair),
}

pub(crate) fn text(bytes: &[u8]) -> String {
    Base64UrlUnpadded::encode_string(bytes)
}

/// A CBOR head with this argument.
fn head(kind: u8, argument: usize) -> Vec<u8> {
    match argument {
        0..24 => vec![kind << 5 | u8::try_from(argument).unwrap()],
        24..256 => vec![kind << 5 | 24, u8::try_from(argument).unwrap()],
        _ => [&[kind << 5 | 25][..], &u16::try_from(argument).unwrap().to_be_bytes()].concat(),
    }
}

fn number(number: i64) -> Vec<u8> {
    match usize::try_from(number) {
        Ok(number) => head(0, number),
        Err(_) => head(1, usize::try_from(-1 - number).unwrap()),
    }
}

fn bytes(bytes: &[u8]) -> Vec<u8> {
    [head(2, bytes.len()), bytes.to_vec()].concat()
}

// === impl FakeKey ===

impl FakeKey {
    pub(crate) fn es256() -> Self {
        Self::Es256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap())
    }

    pub(crate) fn ed25519() -> Self {
        Self::Ed25519(Ed25519KeyPair::generate().unwrap())
    }

    pub(crate) fn rs256() -> Self {
        Self::Rs256(RsaKeyPair::generate(rsa::KeySize::Rsa2048).unwrap())
    }

    pub(crate) fn cose(&self) -> Vec<u8> {
        let members: Vec<(i64, Vec<u8>)> = match self {
            Self::Es256(pair) => {
                let point = pair.public_key().as_ref();
                let (x, y) = (bytes(&point[1..33]), bytes(&point[33..65]));
                vec![(1, number(2)), (3, number(-7)), (-1, number(1)), (-2, x), (-3, y)]
            }
            Self::Ed25519(pair) => {
                let x = bytes(pair.public_key().as_ref());
                vec![(1, number(1)), (3, number(-8)), (-1, number(6)), (-2, x)]
            }
            Self::Rs256(pair) => {
                // The DER of two numbers: their lengths are those of every key of 2048 bits with the usual exponent.
                let der = pair.public_key().as_ref();
                let (modulus, exponent) = (bytes(&der[9..265]), bytes(&der[267..270]));
                vec![(1, number(3)), (3, number(-257)), (-1, modulus), (-2, exponent)]
            }
        };
        let written = members.iter().flat_map(|(name, value)| [number(*name), value.clone()].concat());
        head(5, members.len()).into_iter().chain(written).collect()
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Es256(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
            Self::Rs256(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
                signature
            }
        }
    }
}

// === impl FakeAuthenticator ===

impl FakeAuthenticator {
    pub(crate) fn new(origin: &str, key: FakeKey) -> Self {
        let mut id = vec![0; 16];
        aws_lc_rs::rand::fill(&mut id).unwrap();
        let host = origin.split("://").nth(1).unwrap().split(':').next().unwrap().to_owned();
        Self { id, counter: None, flags: 0x05, origin: origin.to_owned(), host, key }
    }

    pub(crate) fn cose(&self) -> Vec<u8> {
        self.key.cose()
    }

    fn client_data(&self, ceremony: &str, challenge: &str) -> Vec<u8> {
        let said =
            json!({"type": ceremony, "challenge": challenge, "origin": self.origin, "crossOrigin": false, "x": [1]});
        said.to_string().into_bytes()
    }

    fn authenticator_data(&self, flags: u8) -> Vec<u8> {
        let host = digest(&SHA256, self.host.as_bytes());
        [host.as_ref(), &[flags], &self.counter.unwrap_or_default().to_be_bytes()[..]].concat()
    }

    /// What the browser hands over for a new passkey.
    pub(crate) fn create(&self, challenge: &str) -> Value {
        let length = u16::try_from(self.id.len()).unwrap().to_be_bytes();
        let made = [&self.authenticator_data(self.flags | 0x40)[..], &[7; 16], &length, &self.id, &self.key.cose()];
        json!({
            "id": text(&self.id),
            "clientDataJSON": text(&self.client_data("webauthn.create", challenge)),
            "authenticatorData": text(&made.concat()),
        })
    }

    /// What it hands over when the passkey has signed.
    pub(crate) fn get(&mut self, challenge: &str) -> Value {
        self.counter = self.counter.map(|counter| counter + 1);
        let client_data = self.client_data("webauthn.get", challenge);
        let data = self.authenticator_data(self.flags);
        let signature = self.key.sign(&[&data, digest(&SHA256, &client_data).as_ref()].concat());
        json!({
            "id": text(&self.id),
            "clientDataJSON": text(&client_data),
            "authenticatorData": text(&data),
            "signature": text(&signature),
        })
    }
}

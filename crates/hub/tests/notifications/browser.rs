//! A browser that is subscribed to a push service: it makes the keys, and decrypts what it gets. The console's tests use it too.

use aws_lc_rs::{
    aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    agreement::{self, ECDH_P256, PrivateKey, UnparsedPublicKey},
    hkdf::{HKDF_SHA256, KeyType, Salt},
};
use base64ct::{Base64UrlUnpadded as Base64, Encoding as _};
use serde_json::{Value, json};

pub struct TestBrowser {
    key: PrivateKey,
    auth: [u8; 16],
    pub endpoint: String,
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl TestBrowser {
    pub fn at(origin: &str, name: &str) -> Self {
        let key = PrivateKey::generate(&ECDH_P256).unwrap();
        Self { key, auth: [9; 16], endpoint: format!("{origin}/push/{name}") }
    }

    fn public(&self) -> Vec<u8> {
        self.key.compute_public_key().unwrap().as_ref().to_vec()
    }

    /// The request for a target with these choices.
    pub fn request(&self, choices: Value) -> Value {
        let keys = json!({"p256dh": Base64::encode_string(&self.public()), "auth": Base64::encode_string(&self.auth)});
        json!({"name": "phone", "address": {"service": "web_push", "endpoint": self.endpoint, "keys": keys},
            "choices": choices})
    }

    /// RFC 8291, from the receiver's side.
    pub fn decrypt(&self, message: &[u8]) -> Value {
        let (salt, rest) = message.split_at(16);
        assert_eq!(rest[..5], [0, 0, 16, 0, 65], "one record of 4096 bytes, and a key of 65");
        let (sender, sealed) = rest[5..].split_at(65);
        let expand = |salt: &[u8], secret: &[u8], info: &[&[u8]], length: usize| {
            let mut out = vec![0; length];
            let key = Salt::new(HKDF_SHA256, salt).extract(secret);
            key.expand(info, Length(length)).unwrap().fill(&mut out).unwrap();
            out
        };
        let own = self.public();
        let peer = UnparsedPublicKey::new(&ECDH_P256, sender);
        let material = agreement::agree(&self.key, peer, (), |shared| {
            Ok(expand(&self.auth, shared, &[b"WebPush: info\0", &own, sender], 32))
        })
        .unwrap();
        let key = expand(salt, &material, &[b"Content-Encoding: aes128gcm\0"], 16);
        let nonce = expand(salt, &material, &[b"Content-Encoding: nonce\0"], 12);
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
        let mut opened = sealed.to_vec();
        let nonce = Nonce::try_assume_unique_for_key(&nonce).unwrap();
        let plain = key.open_in_place(nonce, Aad::empty(), &mut opened).unwrap();
        let end = plain.iter().rposition(|byte| *byte != 0).unwrap();
        assert_eq!(plain[end], 2, "the last record");
        serde_json::from_slice(&plain[..end]).unwrap()
    }
}

//! Web Push: messages encrypted for one browser (RFC 8291 in the `aes128gcm` coding of RFC 8188), and the hub's proof of
//! who sends them (VAPID, RFC 8292).

#![allow(clippy::disallowed_methods, reason = "this is JSON that we write, not JSON that we relay")]

use std::{fmt, time::Duration};

use attache_protocol::{Timestamp, env::Env};
use aws_lc_rs::{
    aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    agreement::{self, ECDH_P256, PrivateKey, UnparsedPublicKey},
    hkdf::{HKDF_SHA256, KeyType, Salt},
    rand::SystemRandom,
    signature::{EcdsaKeyPair, KeyPair as _},
};
use base64ct::{Base64UrlUnpadded, Encoding as _};

use crate::{Error, Result};

/// An uncompressed point of P-256.
const POINT: usize = 65;
const AUTH: usize = 16;
/// The size of the one record of a message, which bounds it: push services take at most 4096 bytes.
const RECORD: u32 = 4096;
/// The last byte of the last record's plaintext, before its padding.
const LAST: u8 = 2;
const TAG: usize = 16;
/// The salt, the size of records, and the sender's public key with its length.
const HEADER: usize = 16 + 4 + 1 + POINT;
/// What fits into a message.
pub(super) const MAX_PLAIN: usize = RECORD as usize - HEADER - TAG - 1;
/// Messages are padded to multiples of this, so that their length says little.
const STEP: usize = 512;
/// How long a token is valid. Push services accept up to a day.
const TOKEN_LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// The key with which the hub signs what it sends to push services. Browsers bind their subscriptions to it.
pub(crate) struct VapidKey {
    key: EcdsaKeyPair,
}

/// A browser's keys.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ReceiverKeys {
    public: [u8; POINT],
    auth: [u8; AUTH],
}

/// A length that HKDF expands to.
#[derive(Debug, Clone, Copy)]
struct HkdfOutputLength(usize);

impl KeyType for HkdfOutputLength {
    fn len(&self) -> usize {
        self.0
    }
}

// === impl VapidKey ===

impl VapidKey {
    pub(crate) const fn new(key: EcdsaKeyPair) -> Self {
        Self { key }
    }

    /// The public key as browsers want it.
    pub(crate) fn public(&self) -> String {
        Base64UrlUnpadded::encode_string(self.key.public_key().as_ref())
    }

    /// The `Authorization` of a request to the push service at this origin. `subject` is whom its operator may contact.
    pub(super) fn authorization(&self, origin: &str, subject: &str, now: Timestamp) -> Result<String> {
        let expires = now.plus(TOKEN_LIFETIME).millis() / 1000;
        let claims = serde_json::json!({"aud": origin, "exp": expires, "sub": subject}).to_string();
        let [header, claims] = [r#"{"typ":"JWT","alg":"ES256"}"#, &claims].map(|part| encode(part.as_bytes()));
        let message = format!("{header}.{claims}");
        let signature =
            self.key.sign(&SystemRandom::new(), message.as_bytes()).map_err(|error| Error::internal(&error))?;
        Ok(format!("vapid t={message}.{}, k={}", encode(signature.as_ref()), self.public()))
    }
}

impl fmt::Debug for VapidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VapidKey").field(&self.public()).finish()
    }
}

// === impl ReceiverKeys ===

impl ReceiverKeys {
    /// The keys of a subscription, base64url. `None` if they aren't a point of the curve and sixteen bytes.
    pub(super) fn read(p256dh: &str, auth: &str) -> Option<Self> {
        let public: [u8; POINT] = decode(p256dh)?.try_into().ok()?;
        let auth = decode(auth)?.try_into().ok()?;
        // Agreeing with any key tells whether it is a point.
        let probe = PrivateKey::generate(&ECDH_P256).ok()?;
        agreement::agree(&probe, UnparsedPublicKey::new(&ECDH_P256, &public), (), |_| Ok(())).ok()?;
        Some(Self { public, auth })
    }

    /// The body of the request that carries this text.
    pub(super) fn encrypt(&self, env: &Env, plain: &[u8]) -> Result<Vec<u8>> {
        let mut salt = [0; 16];
        env.fill(&mut salt);
        let length = plain.len().div_ceil(STEP).max(1) * STEP;
        self.seal(&sender_key(env)?, salt, plain, length.clamp(plain.len(), MAX_PLAIN.max(plain.len())))
    }

    fn seal(&self, sender: &PrivateKey, salt: [u8; 16], plain: &[u8], length: usize) -> Result<Vec<u8>> {
        let broken = |_| Error::internal(&"a push message could not be encrypted");
        if length > MAX_PLAIN {
            return Err(Error::internal(&"a push message is too long"));
        }
        let own = sender.compute_public_key().map_err(broken)?;
        let peer = UnparsedPublicKey::new(&ECDH_P256, &self.public);
        let mut key_material = [0; 32];
        agreement::agree(sender, peer, aws_lc_rs::error::Unspecified, |shared| {
            let info = [b"WebPush: info\0".as_slice(), &self.public, own.as_ref()];
            expand(&self.auth, shared, &info, &mut key_material)
        })
        .map_err(broken)?;
        let (mut key, mut nonce) = ([0; 16], [0; NONCE_LEN]);
        expand(&salt, &key_material, &[b"Content-Encoding: aes128gcm\0"], &mut key).map_err(broken)?;
        expand(&salt, &key_material, &[b"Content-Encoding: nonce\0"], &mut nonce).map_err(broken)?;
        let mut record = Vec::with_capacity(length + 1 + TAG);
        record.extend_from_slice(plain);
        record.push(LAST);
        record.resize(length + 1, 0);
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).map_err(broken)?);
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut record).map_err(broken)?;
        let id_length = u8::try_from(POINT).expect("a point is 65 bytes long");
        Ok([&salt[..], &RECORD.to_be_bytes(), &[id_length], own.as_ref(), &record].concat())
    }
}

impl fmt::Debug for ReceiverKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReceiverKeys(***)")
    }
}

/// Extracts with this salt, and expands to the length of `into`.
fn expand(
    salt: &[u8],
    secret: &[u8],
    info: &[&[u8]],
    into: &mut [u8],
) -> std::result::Result<(), aws_lc_rs::error::Unspecified> {
    let length = HkdfOutputLength(into.len());
    Salt::new(HKDF_SHA256, salt).extract(secret).expand(info, length)?.fill(into)
}

/// A key for one message. Almost any 32 bytes are a key; one in four billion is not.
fn sender_key(env: &Env) -> Result<PrivateKey> {
    let mut secret = [0; 32];
    for _ in 0..4 {
        env.fill(&mut secret);
        if let Ok(key) = PrivateKey::from_private_key(&ECDH_P256, &secret) {
            return Ok(key);
        }
    }
    Err(Error::internal(&"no key for a push message"))
}

fn encode(bytes: &[u8]) -> String {
    Base64UrlUnpadded::encode_string(bytes)
}

fn decode(text: &str) -> Option<Vec<u8>> {
    Base64UrlUnpadded::decode_vec(text.trim_end_matches('=')).ok()
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, UnparsedPublicKey};

    use super::*;

    fn bytes<const N: usize>(text: &str) -> [u8; N] {
        decode(text).unwrap().try_into().unwrap()
    }

    /// RFC 8291, section 5 and appendix A.
    #[test]
    fn the_example_of_the_rfc_is_encrypted_to_its_bytes() {
        let receiver = ReceiverKeys::read(
            "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
            "BTBZMqHH6r4Tts7J_aSIgg",
        )
        .unwrap();
        let sender = bytes::<32>("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw");
        let sender = PrivateKey::from_private_key(&ECDH_P256, &sender).unwrap();
        let plain = b"When I grow up, I want to be a watermelon";
        let message = receiver.seal(&sender, bytes("DGv6ra1nlYgDCS1FRnbzlw"), plain, plain.len()).unwrap();
        assert_eq!(
            encode(&message),
            "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_\
             yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
        );
    }

    #[test]
    fn messages_are_padded_and_never_larger_than_a_push_service_takes() {
        let env = Env::seeded(3);
        let own = PrivateKey::generate(&ECDH_P256).unwrap();
        let public = own.compute_public_key().unwrap();
        let receiver = ReceiverKeys::read(&encode(public.as_ref()), &encode(&[7; 16])).unwrap();
        let length = |plain: usize| receiver.encrypt(&env, &vec![b'a'; plain]).map(|message| message.len());
        assert_eq!(length(0).unwrap(), HEADER + STEP + 1 + TAG);
        assert_eq!(length(0).unwrap(), length(STEP).unwrap());
        assert_eq!(length(STEP + 1).unwrap(), HEADER + 2 * STEP + 1 + TAG);
        assert_eq!(length(MAX_PLAIN).unwrap(), RECORD as usize);
        assert!(length(MAX_PLAIN + 1).is_err());
        assert_ne!(receiver.encrypt(&env, b"a").unwrap(), receiver.encrypt(&env, b"a").unwrap());
    }

    #[test]
    fn keys_that_no_browser_makes_are_refused() {
        let point = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
        let auth = "BTBZMqHH6r4Tts7J_aSIgg";
        assert!(ReceiverKeys::read(point, auth).is_some() && ReceiverKeys::read(&format!("{point}="), auth).is_some());
        let off_curve = encode(&[&[4][..], &[1; 64]].concat());
        for (point, auth) in [(point, "BTBZ"), (&point[..40], auth), (off_curve.as_str(), auth), ("", ""), ("?", auth)]
        {
            assert!(ReceiverKeys::read(point, auth).is_none(), "{point} {auth}");
        }
    }

    #[test]
    fn the_token_names_the_push_service_and_verifies_with_the_public_key() {
        let private = sender_bytes();
        let key = PrivateKey::from_private_key(&ECDH_P256, &private).unwrap();
        let public = key.compute_public_key().unwrap();
        let pair =
            EcdsaKeyPair::from_private_key_and_public_key(&ECDSA_P256_SHA256_FIXED_SIGNING, &private, public.as_ref())
                .unwrap();
        let now = Timestamp::from_millis(1_700_000_000_000);
        let header =
            VapidKey::new(pair).authorization("https://push.example.net", "https://hub.example.org", now).unwrap();
        let (token, key) = header.strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
        assert_eq!(key, encode(public.as_ref()));
        let (message, signature) = token.rsplit_once('.').unwrap();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public.as_ref())
            .verify(message.as_bytes(), &decode(signature).unwrap())
            .unwrap();
        let claims: serde_json::Value =
            serde_json::from_slice(&decode(message.split_once('.').unwrap().1).unwrap()).unwrap();
        assert_eq!(
            claims,
            serde_json::json!({"aud": "https://push.example.net", "exp": 1_700_043_200, "sub": "https://hub.example.org"})
        );
    }

    fn sender_bytes() -> [u8; 32] {
        bytes("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw")
    }
}

//! Encrypts secrets that the hub must later send in clear and so can't store as a hash: a subscriber's token, a peer's
//! key. The database holds only the ciphertext. The key is in a separate file.

use std::fmt;

use attache_protocol::{Secret, env::Env};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// The format version, so that it can change later.
const VERSION: u8 = 1;

/// AES-256-GCM with the hub's own key and a random nonce per value.
pub(crate) struct SealingKey {
    key: LessSafeKey,
    /// Keys of tags are derived from it.
    secret: Secret<[u8; 32]>,
}

/// Not encrypted by this hub for this use, or modified since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("can't decrypt the value: the hub's seal.key was replaced, or the value was modified")]
pub struct UnsealError;

// === impl SealingKey ===

impl SealingKey {
    pub(crate) fn new(key: &Secret<[u8; 32]>) -> Self {
        let secret = key.clone();
        let key = UnboundKey::new(&AES_256_GCM, key.expose()).expect("a key of AES-256 is 32 bytes long");
        Self { key: LessSafeKey::new(key), secret }
    }

    /// Authenticates a message. Its key is made for this use alone, which `context` names.
    pub(crate) fn tag(&self, context: &str, message: &[u8]) -> [u8; 32] {
        let key = blake3::derive_key(context, self.secret.expose());
        *blake3::keyed_hash(&key, message).as_bytes()
    }

    /// `context` names the use. A value encrypted for one use can't be decrypted for another.
    pub(crate) fn seal(&self, env: &Env, context: &str, plain: &[u8]) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        env.fill(&mut nonce);
        let mut sealed = plain.to_vec();
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(context.as_bytes()), &mut sealed)
            .expect("a value is far shorter than what one nonce can seal");
        [&[VERSION], &nonce[..], &sealed].concat()
    }

    pub(crate) fn unseal(&self, context: &str, sealed: &[u8]) -> Result<Secret<Vec<u8>>, UnsealError> {
        let (version, rest) = sealed.split_first().ok_or(UnsealError)?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_LEN>().ok_or(UnsealError)?;
        if *version != VERSION {
            return Err(UnsealError);
        }
        let mut opened = rest.to_vec();
        let plain = self
            .key
            .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(context.as_bytes()), &mut opened)
            .map_err(|_| UnsealError)?
            .len();
        opened.truncate(plain);
        Ok(Secret::new(opened))
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_depends_on_the_key_the_context_and_the_message() {
        let seal = SealingKey::new(&Secret::new([1; 32]));
        let tag = seal.tag("button", b"approve");
        assert_eq!(seal.tag("button", b"approve"), tag);
        assert_ne!(seal.tag("other", b"approve"), tag);
        assert_ne!(seal.tag("button", b"deny"), tag);
        assert_ne!(SealingKey::new(&Secret::new([2; 32])).tag("button", b"approve"), tag);
    }

    #[test]
    fn a_value_decrypts_only_with_the_same_key_and_context() {
        let env = Env::seeded(7);
        let seal = SealingKey::new(&Secret::new([1; 32]));
        let sealed = seal.seal(&env, "push", b"token-of-a-subscriber");
        assert_eq!(seal.unseal("push", &sealed).unwrap().expose(), b"token-of-a-subscriber");
        assert_eq!(seal.unseal("peer", &sealed), Err(UnsealError));
        assert_eq!(SealingKey::new(&Secret::new([2; 32])).unseal("push", &sealed), Err(UnsealError));
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert_eq!(seal.unseal("push", &changed), Err(UnsealError), "{place}");
            assert_eq!(seal.unseal("push", &sealed[..place]), Err(UnsealError), "{place}");
        }
    }

    #[test]
    fn encrypting_a_value_twice_gives_different_bytes() {
        let env = Env::seeded(7);
        let seal = SealingKey::new(&Secret::new([1; 32]));
        let first = seal.seal(&env, "push", b"");
        let second = seal.seal(&env, "push", b"");
        assert_ne!(first, second);
        assert_eq!(first.len(), 1 + NONCE_LEN + 16);
        assert_eq!(seal.unseal("push", &second).unwrap().expose(), b"");
    }

    #[test]
    fn debug_output_hides_the_key() {
        assert_eq!(format!("{:?}", SealingKey::new(&Secret::new([1; 32]))), "Seal(***)");
    }
}

//! The key that signs agent cards (JWS with ES256, which every card verifier supports), and its key id.

use std::fmt;

use attache_protocol::wire::token::PublicKey;
use aws_lc_rs::{
    digest,
    rand::SystemRandom,
    signature::{EcdsaKeyPair, KeyPair as _},
};
use base64ct::{Base64UrlUnpadded, Encoding as _};

use crate::{Error, Result};

/// Signs, and never exposes the private key.
pub struct CardKey {
    key: EcdsaKeyPair,
    public: PublicKey,
}

// === impl CardKey ===

impl CardKey {
    pub const ALGORITHM: &str = "ES256";

    pub(crate) fn new(key: EcdsaKeyPair) -> Self {
        // The uncompressed point: `0x04`, then both coordinates.
        let (x, y) = key.public_key().as_ref()[1..].split_at(32);
        let [x, y] = [x, y].map(Base64UrlUnpadded::encode_string);
        // RFC 7638, as for the token key.
        let thumbprint = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        let thumbprint = digest::digest(&digest::SHA256, thumbprint.as_bytes());
        let public = PublicKey {
            kty: "EC".to_owned(),
            crv: "P-256".to_owned(),
            alg: Self::ALGORITHM.to_owned(),
            usage: "sig".to_owned(),
            kid: Base64UrlUnpadded::encode_string(thumbprint.as_ref()),
            x,
            y: Some(y),
        };
        Self { key, public }
    }

    /// The id under which verifiers find the key in `/.well-known/jwks.json`.
    pub fn kid(&self) -> &str {
        &self.public.kid
    }

    /// The two numbers of the signature, 32 bytes each, as JWS requires.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>> {
        let signature = self.key.sign(&SystemRandom::new(), message).map_err(|error| Error::internal(&error))?;
        Ok(signature.as_ref().to_vec())
    }

    pub(crate) fn public(&self) -> PublicKey {
        self.public.clone()
    }
}

impl fmt::Debug for CardKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CardKey").field(&self.public.kid).finish()
    }
}

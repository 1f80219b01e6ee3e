//! Fingerprints of cards, and verification of their signatures. Pure: the caller supplies the keys.

use std::fmt;

use attache_a2a_wire::AgentCardSignature;
use attache_protocol::{Json, KeyPin, json::Members};
use aws_lc_rs::{
    digest,
    signature::{ECDSA_P256_SHA256_FIXED, ED25519, UnparsedPublicKey},
};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde::Deserialize;

use super::jcs::{CanonicalFormError, EmptyMembers, canonical_without};

/// The member of a card that its own signatures can't cover.
pub const SIGNATURES: &str = "signatures";

/// The protected header of a signature.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SignatureHeader {
    pub alg: String,
    #[serde(default)]
    pub kid: Option<String>,
    /// Where the signer publishes its keys.
    #[serde(default)]
    pub jku: Option<String>,
    #[serde(default)]
    crit: Option<Vec<String>>,
}

/// A public key for verifying card signatures.
#[derive(Clone, PartialEq, Eq)]
pub struct CardVerifyingKey {
    kid: Option<String>,
    point: KeyPoint,
}

#[derive(Clone, PartialEq, Eq)]
enum KeyPoint {
    /// `0x04`, then both coordinates.
    P256([u8; 65]),
    Ed25519([u8; 32]),
}

/// Why a signature isn't accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("the card has no canonical form: {0}")]
    Card(#[from] CanonicalFormError),
    #[error("its header is invalid")]
    Header,
    #[error("its header requires `{0}`, which isn't supported")]
    Critical(String),
    #[error("it uses `{0}`; only ES256 and EdDSA are supported")]
    Algorithm(String),
    #[error("the key it names is unknown")]
    NoKey,
    #[error("its keys are at a different origin than the card")]
    Foreign,
    #[error("can't fetch its keys: {reason}")]
    Unfetched { reason: String },
    #[error("it doesn't match the card: the card was changed after signing, or signed with another key")]
    Signature,
}

/// A key or key set that can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a public key for card signatures; use a JWK or a JWKS with P-256 or Ed25519 keys")]
pub struct KeySetError;

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(default)]
    crv: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
    #[serde(default, rename = "use")]
    usage: Option<String>,
}

/// A card's fingerprint: the SHA-256 of its canonical form without its signatures, so signing it again or changing
/// whitespace doesn't matter.
pub fn fingerprint(card: &Json) -> Result<KeyPin, CanonicalFormError> {
    let form = canonical_without(card, SIGNATURES, EmptyMembers::Kept)?;
    let digest = digest::digest(&digest::SHA256, form.as_bytes());
    Ok(KeyPin::from_digest(digest.as_ref().try_into().expect("SHA-256 gives 32 bytes")))
}

/// Whether one of the keys made this signature of this card.
pub fn verify(card: &Json, signature: &AgentCardSignature, keys: &[CardVerifyingKey]) -> Result<(), SignatureError> {
    let header = SignatureHeader::read(signature)?;
    if !matches!(header.alg.as_str(), "ES256" | "EdDSA" | "Ed25519") {
        return Err(SignatureError::Algorithm(header.alg));
    }
    let mut fitting = keys.iter().filter(|key| key.fits(&header)).peekable();
    if fitting.peek().is_none() {
        return Err(SignatureError::NoKey);
    }
    let bytes = Base64UrlUnpadded::decode_vec(&signature.signature).map_err(|_| SignatureError::Signature)?;
    // The standard says to drop empty members first. Not every signer does, and a card may contain some.
    let forms = [EmptyMembers::Kept, EmptyMembers::Dropped].map(|empties| canonical_without(card, SIGNATURES, empties));
    let mut signed = Vec::new();
    for form in forms {
        signed.push(format!("{}.{}", signature.protected, Base64UrlUnpadded::encode_string(form?.as_bytes())));
    }
    if fitting.any(|key| signed.iter().any(|signed| key.made(signed.as_bytes(), &bytes))) {
        Ok(())
    } else {
        Err(SignatureError::Signature)
    }
}

/// Whether this key, a JWK, made this signature of this text.
pub fn verify_text(text: &str, signature: &str, key: &Json) -> Result<(), SignatureError> {
    let keys = CardVerifyingKey::read_all(key).map_err(|_| SignatureError::NoKey)?;
    let bytes = Base64UrlUnpadded::decode_vec(signature).map_err(|_| SignatureError::Signature)?;
    if keys.iter().any(|key| key.made(text.as_bytes(), &bytes)) { Ok(()) } else { Err(SignatureError::Signature) }
}

// === impl SignatureHeader ===

impl SignatureHeader {
    pub fn read(signature: &AgentCardSignature) -> Result<Self, SignatureError> {
        let bytes = Base64UrlUnpadded::decode_vec(&signature.protected).map_err(|_| SignatureError::Header)?;
        let header: Self = serde_json::from_slice(&bytes).map_err(|_| SignatureError::Header)?;
        match header.crit.as_deref() {
            None => Ok(header),
            Some([]) => Err(SignatureError::Header),
            Some([first, ..]) => Err(SignatureError::Critical(first.clone())),
        }
    }
}

// === impl CardVerifyingKey ===

impl CardVerifyingKey {
    /// The keys of a JWKS, or a single JWK. Unsupported key types are skipped.
    pub fn read_all(text: &Json) -> Result<Vec<Self>, KeySetError> {
        let members: Members = text.parse().map_err(|_| KeySetError)?;
        let entries = match members.find("keys") {
            Some(keys) => keys.parse::<Vec<Json>>().map_err(|_| KeySetError)?,
            None => vec![text.clone()],
        };
        let keys: Vec<_> = entries.iter().filter_map(Self::read).collect();
        if keys.is_empty() { Err(KeySetError) } else { Ok(keys) }
    }

    fn read(text: &Json) -> Option<Self> {
        let jwk: Jwk = text.parse().ok()?;
        if jwk.usage.is_some_and(|usage| usage != "sig") {
            return None;
        }
        let bytes = |text: &str| -> Option<[u8; 32]> { Base64UrlUnpadded::decode_vec(text).ok()?.try_into().ok() };
        let point = match (jwk.kty.as_str(), jwk.crv.as_str()) {
            ("OKP", "Ed25519") => KeyPoint::Ed25519(bytes(&jwk.x)?),
            ("EC", "P-256") => {
                let mut point = [4; 65];
                point[1..33].copy_from_slice(&bytes(&jwk.x)?);
                point[33..].copy_from_slice(&bytes(&jwk.y)?);
                KeyPoint::P256(point)
            }
            _ => return None,
        };
        Some(Self { kid: jwk.kid, point })
    }

    /// The header selects among the keys, and the key determines the algorithm.
    fn fits(&self, header: &SignatureHeader) -> bool {
        let is_kind = match self.point {
            KeyPoint::P256(_) => header.alg == "ES256",
            KeyPoint::Ed25519(_) => header.alg != "ES256",
        };
        let is_named = match (&header.kid, &self.kid) {
            (Some(wanted), Some(kid)) => wanted == kid,
            (Some(_) | None, _) => true,
        };
        is_kind && is_named
    }

    fn made(&self, signed: &[u8], signature: &[u8]) -> bool {
        match &self.point {
            KeyPoint::P256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature),
            KeyPoint::Ed25519(point) => UnparsedPublicKey::new(&ED25519, point).verify(signed, signature),
        }
        .is_ok()
    }
}

impl fmt::Debug for CardVerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.point {
            KeyPoint::P256(_) => "P-256",
            KeyPoint::Ed25519(_) => "Ed25519",
        };
        f.debug_struct("Key").field("kid", &self.kid).field("kind", &kind).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

//! Public keys of passkeys, as authenticators write them (COSE), and their signatures. Pure.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};

use super::cbor::CborMap;

const ES256: i64 = -7;
const ED_DSA: i64 = -8;
const RS256: i64 = -257;

/// What can be verified, best first.
pub(crate) const ALGORITHMS: [i64; 3] = [ES256, ED_DSA, RS256];

/// A key of 8192 bits.
const MAX_MODULUS: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CoseKey<'a> {
    /// ECDSA on P-256 with SHA-256.
    Es256 {
        x: &'a [u8; 32],
        y: &'a [u8; 32],
    },
    Ed25519(&'a [u8; 32]),
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256 {
        modulus: &'a [u8],
        exponent: &'a [u8],
    },
}

// === impl CoseKey ===

impl<'a> CoseKey<'a> {
    /// The key at the beginning of these bytes, and what follows it. `None` if it is of a kind that isn't known.
    pub(super) fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (map, rest) = CborMap::read(bytes)?;
        let coordinate = |name| map.bytes(name)?.try_into().ok();
        let key = match (map.number(1)?, map.number(3)?) {
            (2, ES256) if map.number(-1) == Some(1) => Self::Es256 { x: coordinate(-2)?, y: coordinate(-3)? },
            (1, ED_DSA) if map.number(-1) == Some(6) => Self::Ed25519(coordinate(-2)?),
            (3, RS256) => {
                let (modulus, exponent) = (map.bytes(-1)?, map.bytes(-2)?);
                (modulus.len() <= MAX_MODULUS && exponent.len() <= 8).then_some(Self::Rs256 { modulus, exponent })?
            }
            _ => return None,
        };
        Some((key, rest))
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match *self {
            Self::Es256 { x, y } => {
                let point = [&[4], &x[..], &y[..]].concat();
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(message, signature)
            }
            Self::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
            Self::Rs256 { modulus, exponent } => RsaPublicKeyComponents { n: modulus, e: exponent }.verify(
                &RSA_PKCS1_2048_8192_SHA256,
                message,
                signature,
            ),
        };
        verified.is_ok()
    }
}

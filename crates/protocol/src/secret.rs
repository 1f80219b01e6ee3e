//! Secrets that neither print nor serialise, and the hashes under which they are stored.

use std::fmt;

use serde::{Deserialize, Deserializer};

use crate::env::Env;

/// A value that must never reach a log, an event, a page or an error.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(T);

/// What the store keeps of a secret. Looking a credential up by its hash leaks nothing about the secret itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretHash(pub [u8; 32]);

/// The kinds of bearer secrets; the prefix makes a leaked one findable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    RuntimeToken,
    ApiKey,
    /// A console session or a one-time login link.
    Session,
    /// What a device polls with while a person confirms its pairing code.
    PairingPoll,
    AdapterSecret,
}

// === impl Kind ===

impl Kind {
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::RuntimeToken => "rt_",
            Self::ApiKey => "ak_",
            Self::Session => "cs_",
            Self::PairingPoll => "pp_",
            Self::AdapterSecret => "as_",
        }
    }

    /// A new 256-bit secret of this kind.
    pub fn generate(self, env: &Env) -> Secret<String> {
        let mut bytes = [0; 32];
        env.fill(&mut bytes);
        let mut text = String::from(self.prefix());
        for byte in bytes {
            use fmt::Write as _;
            let _ = write!(text, "{byte:02x}");
        }
        Secret(text)
    }
}

// === impl Secret ===

impl<T> Secret<T> {
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself. Every call is a place to look at when something leaked.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl Secret<String> {
    pub fn hash(&self) -> SecretHash {
        SecretHash::of(&self.0)
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<T> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Secret<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self)
    }
}

// === impl SecretHash ===

impl SecretHash {
    pub fn of(secret: &str) -> Self {
        Self(*blake3::hash(secret.as_bytes()).as_bytes())
    }

    /// For short secrets: without the key, the hash of forty bits could be searched.
    pub fn keyed(key: &[u8; 32], secret: &str) -> Self {
        Self(*blake3::keyed_hash(key, secret.as_bytes()).as_bytes())
    }

    /// Compares two secrets in constant time, whatever their lengths.
    pub fn matches(self, secret: &str) -> bool {
        blake3::Hash::from_bytes(self.0) == blake3::hash(secret.as_bytes())
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_print() {
        let env = Env::seeded(1);
        let secret = Kind::RuntimeToken.generate(&env);
        assert_eq!(format!("{secret} {secret:?}"), "*** ***");
        assert_eq!(secret.expose().len(), 3 + 64);
        assert!(secret.hash().matches(secret.expose()));
        assert!(!secret.hash().matches("rt_"));
    }
}

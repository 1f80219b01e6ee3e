//! Secrets that are never printed or serialized, and the hashes they are stored as.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer};

use crate::{digest::hex, env::Env, pairing::PairingCode};

/// A value that must never appear in a log, event, page or error.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(T);

/// The stored form of a secret. Looking up a credential by its hash leaks nothing about the secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretHash(pub [u8; 32]);

/// The kinds of bearer secrets. The prefix makes a leaked one easy to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    RuntimeToken,
    ApiKey,
    /// A console session or a one-time login link.
    Session,
    /// The token a device polls with while a person confirms its pairing code.
    PairingPoll,
    AdapterSecret,
    /// Resumes a channel after its connection broke. Works once.
    Resume,
    /// Signs the webhooks of one person or agent.
    Webhook,
}

/// Replaces everything that looks like one of our secrets with `***`, for external text in errors and logs: people
/// paste keys into the wrong field.
pub fn mask(text: &str) -> Cow<'_, str> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    let mut masked = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_part) {
        let word = &rest[start..];
        let word = word.split(|character| !is_part(character)).next().unwrap_or(word);
        masked.push_str(&rest[..start]);
        masked.push_str(if looks_secret(word) { "***" } else { word });
        rest = &rest[start + word.len()..];
    }
    masked.push_str(rest);
    if masked == text { Cow::Borrowed(text) } else { Cow::Owned(masked) }
}

fn looks_secret(word: &str) -> bool {
    let is_bearer = Kind::ALL.iter().any(|kind| word.strip_prefix(kind.prefix()).is_some_and(|body| body.len() >= 16));
    let is_body = word.len() >= 48 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    // The first two parts of a JWT are base64url objects. Without them, the signature is useless.
    let is_token = word.len() >= 32 && word.starts_with("eyJ");
    // Eight letters may be ordinary words, with a dash (`Read-only`) or without.
    let is_no_word =
        word.bytes().any(|byte| byte.is_ascii_digit()) || !word.bytes().any(|byte| byte.is_ascii_lowercase());
    is_bearer || is_body || is_token || is_no_word && PairingCode::parse(word).is_some()
}

// === impl Kind ===

impl Kind {
    pub const ALL: [Self; 7] = [
        Self::RuntimeToken,
        Self::ApiKey,
        Self::Session,
        Self::PairingPoll,
        Self::AdapterSecret,
        Self::Resume,
        Self::Webhook,
    ];

    pub const fn prefix(self) -> &'static str {
        match self {
            Self::RuntimeToken => "rt_",
            Self::ApiKey => "ak_",
            Self::Session => "cs_",
            Self::PairingPoll => "pp_",
            Self::AdapterSecret => "as_",
            Self::Resume => "rs_",
            Self::Webhook => "wh_",
        }
    }

    /// A new 256-bit secret of this kind.
    pub fn generate(self, env: &Env) -> Secret<String> {
        let mut bytes = [0; 32];
        env.fill(&mut bytes);
        self.write(bytes)
    }

    /// Derives the secret of this kind for `subject`: always the same, and useless for guessing another.
    pub fn derive(self, key: &Secret<[u8; 32]>, subject: &str) -> Secret<String> {
        self.write(*blake3::keyed_hash(&key.0, format!("{} {subject}", self.prefix()).as_bytes()).as_bytes())
    }

    fn write(self, bytes: [u8; 32]) -> Secret<String> {
        Secret(format!("{}{}", self.prefix(), hex(&bytes)))
    }
}

// === impl Secret ===

impl<T> Secret<T> {
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself. Every call is a place to check after a leak.
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

    /// For short secrets: without the key, a hash of forty bits could be brute-forced.
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

    #[test]
    fn a_derived_secret_is_stable_and_unique() {
        let (one, two) = (Secret::new([1; 32]), Secret::new([2; 32]));
        let ann = Kind::Webhook.derive(&one, "user:ann");
        assert_eq!(ann, Kind::Webhook.derive(&one, "user:ann"));
        assert!(ann.expose().starts_with("wh_") && ann.expose().len() == 3 + 64);
        let others = [
            Kind::Webhook.derive(&one, "user:bob"),
            Kind::Webhook.derive(&two, "user:ann"),
            Kind::Resume.derive(&one, "user:ann"),
        ];
        assert!(others.iter().all(|other| other.expose()[3..] != ann.expose()[3..]));
    }

    #[test]
    fn what_looks_like_a_secret_is_masked() {
        for kind in Kind::ALL {
            let secret = kind.generate(&Env::seeded(1));
            let secret = secret.expose();
            let given = format!("unknown variant `{secret}`, \"{}\" {}", &secret[..30], &secret[3..]);
            assert_eq!(mask(&given), "unknown variant `***`, \"***\" ***");
        }
        let token = format!("{0}.{0}.c2ln", "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9");
        assert_eq!(mask(&token), "***.***.c2ln");
        assert_eq!(mask("/pair/K7QM-2XHD/k7qm-2xhd/k7qm2xhd/ABCDEFGH"), "/pair/***/***/***/***");
        for harmless in [
            "",
            "missing field `agent_id`",
            "expected one of `priority`, `agent-id`, u64 at line 1 column 71",
            "run_019a8e6bd0c57c3f9a55b7a1c2d3e4f5 rt_… é",
            "/api/v1/agent-accounts/builder",
            "touch: cannot touch 'z': Read-only file system",
        ] {
            assert!(matches!(mask(harmless), Cow::Borrowed(_)), "{harmless}");
        }
    }
}

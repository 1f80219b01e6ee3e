//! The two kinds of ed25519 keys: the host's own, and the one that opens a lease.

use std::fmt;

use attache_protocol::{Secret, env::Env, secret::SecretHash};
use russh::keys::{
    Algorithm, PrivateKey, PublicKey,
    ssh_key::{
        LineEnding,
        private::{Ed25519Keypair, KeypairData},
    },
};

/// The server's identity. Its public key is pinned in START.
#[derive(Clone)]
pub struct HostKey(PrivateKey);

/// A new key for one lease.
#[derive(Debug)]
pub struct LeaseKeyPair {
    /// In OpenSSH's file format.
    pub private: Secret<String>,
    /// One line, without a comment.
    pub public: String,
}

/// Why a key can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLeaseKey {
    #[error("not a key in OpenSSH format; create one with `ssh-keygen -t ed25519`")]
    Unreadable,
    #[error("this key is of type {0}, but only ssh-ed25519 is accepted; create one with `ssh-keygen -t ed25519`")]
    Kind(String),
    #[error("this key already opens another lease; create a new key for each lease")]
    Taken,
    #[error("a locator is one path component: not empty, without `/`, not `.` or `..`")]
    Locator,
}

/// Generates a key pair for one lease. The mounting side generates it and shares only the public key.
pub fn make_key(env: &Env) -> LeaseKeyPair {
    let key = generate(env);
    LeaseKeyPair { private: write_private(&key), public: write_public(key.public_key()) }
}

/// The hash that represents a public key in the table of leases, regardless of its comment.
pub(super) fn hash_of(key: &PublicKey) -> SecretHash {
    SecretHash::of(&write_public(key))
}

/// Whether `key` has this hash, in constant time.
pub(super) fn matches(hash: SecretHash, key: &PublicKey) -> bool {
    hash.matches(&write_public(key))
}

pub(super) fn read_public(text: &str) -> Result<PublicKey, InvalidLeaseKey> {
    let key = PublicKey::from_openssh(text.trim()).map_err(|_| InvalidLeaseKey::Unreadable)?;
    match key.algorithm() {
        Algorithm::Ed25519 => Ok(key),
        other => Err(InvalidLeaseKey::Kind(other.to_string())),
    }
}

fn generate(env: &Env) -> PrivateKey {
    let mut seed = [0; 32];
    env.fill(&mut seed);
    PrivateKey::new(KeypairData::Ed25519(Ed25519Keypair::from_seed(&seed)), "")
        .expect("an ed25519 key without a comment is always valid")
}

fn write_private(key: &PrivateKey) -> Secret<String> {
    let text = key.to_openssh(LineEnding::LF).expect("a key in memory without a passphrase can be serialised");
    Secret::new(text.as_str().to_owned())
}

fn write_public(key: &PublicKey) -> String {
    PublicKey::new(key.key_data().clone(), "").to_openssh().expect("a key in memory can be serialised")
}

// === impl HostKey ===

impl HostKey {
    pub fn generate(env: &Env) -> Self {
        Self(generate(env))
    }

    /// Reads what [`to_openssh`](Self::to_openssh) wrote.
    pub fn from_openssh(text: &str) -> Result<Self, InvalidLeaseKey> {
        let key = PrivateKey::from_openssh(text).map_err(|_| InvalidLeaseKey::Unreadable)?;
        if key.is_encrypted() {
            return Err(InvalidLeaseKey::Unreadable);
        }
        match key.algorithm() {
            Algorithm::Ed25519 => Ok(Self(key)),
            other => Err(InvalidLeaseKey::Kind(other.to_string())),
        }
    }

    pub fn to_openssh(&self) -> Secret<String> {
        write_private(&self.0)
    }

    /// `ssh-ed25519 AAAA…`, as in START, and in `known_hosts` after the host name.
    pub fn public_openssh(&self) -> String {
        write_public(self.0.public_key())
    }

    pub(super) fn private(&self) -> PrivateKey {
        self.0.clone()
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostKey").field(&self.public_openssh()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_key_can_be_written_and_read_back() {
        let key = HostKey::generate(&Env::seeded(1));
        let again = HostKey::from_openssh(key.to_openssh().expose()).unwrap();
        assert_eq!(again.public_openssh(), key.public_openssh());
        assert!(key.public_openssh().starts_with("ssh-ed25519 AAAA"), "{key:?}");
        assert!(!format!("{key:?}").contains("PRIVATE"));
        assert_ne!(HostKey::generate(&Env::seeded(2)).public_openssh(), key.public_openssh());
    }

    #[test]
    fn a_comment_does_not_make_another_key() {
        let pair = make_key(&Env::seeded(1));
        let plain = read_public(&pair.public).unwrap();
        let commented = read_public(&format!("  {} ann@laptop\n", pair.public)).unwrap();
        assert!(matches(hash_of(&plain), &commented));
        let other = read_public(&make_key(&Env::seeded(2)).public).unwrap();
        assert!(!matches(hash_of(&plain), &other));
    }

    #[test]
    fn other_key_types_are_refused_with_a_hint() {
        let p256 = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBHwf2HMM5TRXvo2SQJjsNkiDD5KqiiNjrGVv3UUh+mMT5RHxiRtOnlqvjhQtBq0VpmpCV/PwUdhOig4vkbqAcEc=";
        assert_eq!(read_public(p256).unwrap_err(), InvalidLeaseKey::Kind("ecdsa-sha2-nistp256".to_owned()));
        for garbage in ["", "ssh-ed25519", "ssh-ed25519 AAAA", "\0", "-----BEGIN OPENSSH PRIVATE KEY-----"] {
            assert_eq!(read_public(garbage).unwrap_err(), InvalidLeaseKey::Unreadable, "{garbage:?}");
            assert_eq!(HostKey::from_openssh(garbage).unwrap_err(), InvalidLeaseKey::Unreadable, "{garbage:?}");
        }
    }
}

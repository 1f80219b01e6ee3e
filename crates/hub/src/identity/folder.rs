//! The hub's private data folder, with the keys that must not be in the database.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use attache_os::private_file;
use attache_protocol::{Secret, env::Env};
use aws_lc_rs::{
    agreement::{ECDH_P256, PrivateKey},
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair},
};

#[derive(Debug, Clone)]
pub(crate) struct IdentityFolder(PathBuf);

const PAIRING: &str = "pairing.key";
const WEBHOOK: &str = "webhook.key";
const SEAL: &str = "seal.key";
const TOKEN: &str = "token.key";
const CARD: &str = "card.key";
const VAPID: &str = "vapid.key";

// === impl IdentityFolder ===

impl IdentityFolder {
    /// The keys that all nodes of a hub have in common.
    pub(crate) const SHARED_KEYS: [&str; 6] = [PAIRING, WEBHOOK, SEAL, TOKEN, CARD, VAPID];

    /// Creates the folder with mode 0700, or tightens its mode.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        private_file::folder(path)?;
        Ok(Self(path.to_owned()))
    }

    /// Whether a hub has its keys there. A start would create what is missing, and what the database has would be lost.
    pub(crate) fn has_keys(path: &Path) -> bool {
        [SEAL, TOKEN].iter().all(|name| path.join(name).is_file())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates those of the shared keys that don't exist.
    pub(crate) fn create_missing(&self, env: &Env) -> io::Result<()> {
        self.pairing_key(env)?;
        self.webhook_key(env)?;
        self.seal_key(env)?;
        self.token_key(env)?;
        self.card_key(env)?;
        self.vapid_key(env)?;
        Ok(())
    }

    pub(crate) fn admin_key(&self) -> PathBuf {
        self.0.join("admin.key")
    }

    /// The key that hashes pairing codes, created at the first start.
    pub(crate) fn pairing_key(&self, env: &Env) -> io::Result<Secret<[u8; 32]>> {
        self.key(PAIRING, env)
    }

    /// The key that webhook secrets are derived from, created at the first start.
    pub(crate) fn webhook_key(&self, env: &Env) -> io::Result<Secret<[u8; 32]>> {
        self.key(WEBHOOK, env)
    }

    /// The key that encrypts third-party secrets, created at the first start.
    pub(crate) fn seal_key(&self, env: &Env) -> io::Result<Secret<[u8; 32]>> {
        self.key(SEAL, env)
    }

    fn key(&self, name: &str, env: &Env) -> io::Result<Secret<[u8; 32]>> {
        let path = self.0.join(name);
        match fs::read(&path) {
            Ok(bytes) => bytes.try_into().map(Secret::new).map_err(|_| {
                let what = format!("{name} is not 32 bytes long; remove it and start again");
                io::Error::new(io::ErrorKind::InvalidData, what)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut key = [0; 32];
                env.fill(&mut key);
                private_file::write(&path, &key)?;
                Ok(Secret::new(key))
            }
            Err(error) => Err(error),
        }
    }

    /// The key that signs tokens, as PKCS#8, created at the first start.
    pub(crate) fn token_key(&self, env: &Env) -> io::Result<Ed25519KeyPair> {
        let path = self.0.join(TOKEN);
        let invalid = |what: &str| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{TOKEN} {what}; remove it and start again"))
        };
        match fs::read(&path) {
            Ok(bytes) => Ed25519KeyPair::from_pkcs8(&bytes).map_err(|_| invalid("is not an Ed25519 key in PKCS#8")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut seed = [0; 32];
                env.fill(&mut seed);
                let key = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| invalid("can't be created"))?;
                let document = key.to_pkcs8().map_err(|_| invalid("can't be created"))?;
                private_file::write(&path, document.as_ref())?;
                Ok(key)
            }
            Err(error) => Err(error),
        }
    }

    /// The key that signs cards, as PKCS#8, created at the first start.
    pub(crate) fn card_key(&self, env: &Env) -> io::Result<EcdsaKeyPair> {
        self.signing_key(CARD, env)
    }

    /// The key that signs requests to push services, as PKCS#8, created at the first start. Browsers bind their
    /// subscriptions to it.
    pub(crate) fn vapid_key(&self, env: &Env) -> io::Result<EcdsaKeyPair> {
        self.signing_key(VAPID, env)
    }

    fn signing_key(&self, name: &str, env: &Env) -> io::Result<EcdsaKeyPair> {
        let path = self.0.join(name);
        let invalid = |what: &str| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{name} {what}; remove it and start again"))
        };
        match fs::read(&path) {
            Ok(bytes) => EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &bytes)
                .map_err(|_| invalid("is not a P-256 key in PKCS#8")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = new_signing_key(env).ok_or_else(|| invalid("can't be created"))?;
                let document = key.to_pkcs8v1().map_err(|_| invalid("can't be created"))?;
                private_file::write(&path, document.as_ref())?;
                Ok(key)
            }
            Err(error) => Err(error),
        }
    }

    /// The bare key and a newline, readable only by its owner.
    pub(crate) fn write_admin_key(&self, key: &Secret<String>) -> io::Result<()> {
        private_file::write(&self.admin_key(), format!("{}\n", key.expose()).as_bytes())
    }
}

/// Almost any 32 bytes are a valid P-256 key. One in four billion is not, and then the next bytes are tried.
fn new_signing_key(env: &Env) -> Option<EcdsaKeyPair> {
    let mut secret = [0; 32];
    for _ in 0..4 {
        env.fill(&mut secret);
        if let Ok(key) = PrivateKey::from_private_key(&ECDH_P256, &secret) {
            let public = key.compute_public_key().ok()?;
            let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
            return EcdsaKeyPair::from_private_key_and_public_key(algorithm, &secret, public.as_ref()).ok();
        }
    }
    None
}

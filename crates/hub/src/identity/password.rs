//! Passwords: argon2id with limited concurrency, and equal work for unknown names.

use argon2::{
    Algorithm, Argon2, Params, Version,
    password_hash::{PasswordHasher as _, PasswordVerifier as _, phc::PasswordHash},
};
use attache_protocol::{Code, Secret, env::Env};
use tokio::sync::Semaphore;

use crate::{Error, Result, check};

/// 19 MiB and two passes, as OWASP recommends.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
/// How many are computed concurrently. Others wait.
const MAX_CONCURRENT: usize = 2;
/// How many may wait. More are rejected as overloaded.
const MAX_WAITING: usize = 64;
/// Shorter ones can be guessed. Longer ones waste work.
const MIN: usize = 12;
const MAX: usize = 1024;

/// Hashes and verifies passwords.
#[derive(Debug)]
pub(crate) struct Passwords {
    running: Semaphore,
    admitted: Semaphore,
}

/// Checks the length. The error never contains the password.
pub(crate) fn check_new(field: &str, password: &Secret<String>) -> Result<()> {
    let characters = password.expose().chars().count();
    if characters < MIN {
        return Err(Error::invalid(field, "must have at least 12 characters"));
    }
    check::text(field, password.expose(), 1..=MAX)
}

// === impl Passwords ===

impl Passwords {
    pub(crate) fn new() -> Self {
        Self { running: Semaphore::new(MAX_CONCURRENT), admitted: Semaphore::new(MAX_CONCURRENT + MAX_WAITING) }
    }

    /// The hash of a new password, in the PHC format.
    pub(crate) async fn hash(&self, env: &Env, password: &Secret<String>) -> Result<Secret<String>> {
        let mut salt = [0; 16];
        env.fill(&mut salt);
        let password = password.clone();
        let hashed = self.compute(move || {
            let hash = argon2().hash_password_with_salt(password.expose().as_bytes(), &salt);
            hash.map(|hash: PasswordHash| Secret::new(hash.to_string())).map_err(|error| error.to_string())
        });
        hashed.await?.map_err(|error| Error::internal(&error))
    }

    /// Whether the password matches the hash. Without a hash it doesn't, after the same work.
    pub(crate) async fn verify(&self, password: &Secret<String>, hash: Option<&Secret<String>>) -> Result<bool> {
        if password.expose().len() > MAX {
            return Ok(false);
        }
        let (password, hash) = (password.clone(), hash.cloned());
        self.compute(move || {
            let password = password.expose().as_bytes();
            let Some(hash) = hash else {
                let mut out = [0; 32];
                let _ = argon2().hash_password_into(password, &[0; 16], &mut out);
                return false;
            };
            argon2().verify_password(password, hash.expose().as_str()).is_ok()
        })
        .await
    }

    async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let overloaded = || Error::new(Code::Overloaded, "Too many people are signing in right now.");
        let _admitted = self.admitted.try_acquire().map_err(|_| overloaded())?;
        let _running = self.running.acquire().await.map_err(|_| overloaded())?;
        tokio::task::spawn_blocking(work).await.map_err(|error| Error::internal(&error))
    }
}

fn argon2() -> Argon2<'static> {
    let params = Params::new(MEMORY_KIB, PASSES, 1, None).expect("19 MiB, two passes and one lane are valid");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret<String> {
        Secret::new(text.to_owned())
    }

    #[tokio::test]
    async fn a_password_is_verified_by_its_hash() {
        let passwords = Passwords::new();
        let hash = passwords.hash(&Env::seeded(1), &secret("correct horse battery")).await.unwrap();
        assert!(hash.expose().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", hash.expose());
        assert_eq!(passwords.verify(&secret("correct horse battery"), Some(&hash)).await, Ok(true));
        for wrong in ["", "correct horse batterz", "correct horse battery "] {
            assert_eq!(passwords.verify(&secret(wrong), Some(&hash)).await, Ok(false), "{wrong}");
        }
        assert_eq!(passwords.verify(&secret("correct horse battery"), None).await, Ok(false));
        assert_eq!(passwords.verify(&secret(&"x".repeat(2000)), Some(&hash)).await, Ok(false));
        assert_eq!(passwords.verify(&secret("x"), Some(&secret("no hash"))).await, Ok(false));
    }

    #[test]
    fn a_new_password_has_length_limits() {
        assert_eq!(check_new("password", &secret("twelve chars")), Ok(()));
        for bad in ["", "eleven char", &"x".repeat(1025)] {
            let refused = check_new("password", &secret(bad)).unwrap_err();
            assert_eq!(refused.code, Code::InvalidRequest);
            assert!(bad.is_empty() || !refused.message.contains(bad));
        }
    }
}

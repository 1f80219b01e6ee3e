//! Passkeys of people: WebAuthn credentials.

use attache_protocol::{PasskeyId, TenantId, Timestamp, UserId};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPasskey {
    pub id: PasskeyId,
    pub user: UserId,
    pub name: String,
    /// The authenticator's id of the credential.
    pub credential: Vec<u8>,
    /// A COSE key. The store doesn't read it.
    pub public_key: Vec<u8>,
    pub counter: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasskeyRecord {
    pub id: PasskeyId,
    pub tenant: TenantId,
    pub user: UserId,
    pub name: String,
    pub credential: Vec<u8>,
    pub public_key: Vec<u8>,
    /// How often the authenticator said that it has signed. Always 0 if it doesn't count.
    pub counter: u32,
    pub created_at: Timestamp,
    pub last_used_at: Option<Timestamp>,
}

// === impl NewPasskey ===

impl NewPasskey {
    pub(crate) fn into_record(self, tenant: TenantId, created_at: Timestamp) -> PasskeyRecord {
        let Self { id, user, name, credential, public_key, counter } = self;
        PasskeyRecord { id, tenant, user, name, credential, public_key, counter, created_at, last_used_at: None }
    }
}

// === impl PasskeyRecord ===

impl PasskeyRecord {
    /// Whether the counter of a signature follows the last one. If it doesn't, there are two copies of the passkey.
    pub const fn accepts(&self, counter: u32) -> bool {
        counter > self.counter || (counter == 0 && self.counter == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_advances_or_stays_unused() {
        let user = UserId::from_uuid(uuid::Uuid::nil());
        let id = PasskeyId::from_uuid(uuid::Uuid::nil());
        let new = |counter| {
            let (credential, public_key) = (Vec::new(), Vec::new());
            let new = NewPasskey { id, user, name: String::new(), credential, public_key, counter };
            new.into_record(TenantId::from_uuid(uuid::Uuid::nil()), Timestamp::default())
        };
        let accepted = |before, now| new(before).accepts(now);
        assert!(accepted(0, 0) && accepted(0, 1) && accepted(7, 8) && accepted(7, u32::MAX));
        assert!(!accepted(7, 7) && !accepted(7, 6) && !accepted(7, 0) && !accepted(u32::MAX, 0));
    }
}

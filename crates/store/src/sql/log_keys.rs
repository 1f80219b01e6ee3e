//! The keys of the table `log`: a tenant's number and a row's seq in one integer, so that appending needs no index.

use crate::{Error, Result};

/// Bits of a seq: enough for ten years of 50,000 rows per second. The rest is enough for half a million tenants.
const SEQ_BITS: u32 = 44;
const LAST_SEQ: i64 = (1 << SEQ_BITS) - 1;
const LAST_TENANT: i64 = i64::MAX >> SEQ_BITS;

/// The key range of one tenant's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogKeys {
    /// The key of seq 0, which no row has.
    zero: i64,
}

// === impl LogKeys ===

impl LogKeys {
    /// For the tenant with this `tenants.no`. 0 is unused.
    pub(super) const fn of(tenant: i64) -> Self {
        Self { zero: tenant << SEQ_BITS }
    }

    /// For a tenant that is being created.
    pub(super) fn of_new(tenant: i64) -> Result<Self> {
        if tenant > LAST_TENANT {
            return Err(Error::Internal("the database has no room for another tenant; make a new one".to_owned()));
        }
        Ok(Self::of(tenant))
    }

    /// The key of the row with this seq. Seqs beyond the maximum all get the last key.
    pub(super) fn at(self, seq: i64) -> i64 {
        self.zero + seq.clamp(0, LAST_SEQ)
    }

    /// Whose row this is the key of, and its seq.
    pub(super) const fn split(key: i64) -> (Self, i64) {
        (Self::of(key >> SEQ_BITS), key & LAST_SEQ)
    }

    /// The first and the last key that a row of this tenant may have.
    pub(super) fn all(self) -> [i64; 2] {
        [self.at(1), self.at(LAST_SEQ)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_do_not_share_keys() {
        let [_, last] = LogKeys::of(1).all();
        let [first, _] = LogKeys::of(2).all();
        assert_eq!((last + 2, LogKeys::of(2).at(1)), (first, first));
        assert_eq!(LogKeys::of(1).at(i64::MAX), last);
        assert_eq!(LogKeys::split(first), (LogKeys::of(2), 1));
        assert_eq!(LogKeys::split(last), (LogKeys::of(1), LAST_SEQ));
    }

    #[test]
    fn the_last_tenant_has_a_complete_key_range() {
        assert_eq!(LogKeys::of_new(LAST_TENANT).unwrap().all()[1], i64::MAX);
        assert!(LogKeys::of_new(LAST_TENANT + 1).is_err());
    }
}

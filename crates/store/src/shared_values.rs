//! Short-lived values that the nodes of a hub share: what one of them keeps, each of them can use.

use attache_protocol::{TenantId, Timestamp};

use crate::{
    Result,
    record::shared_value::{SharedValue, SharedValueKind, SharedValueLimit},
    store_part::store_part,
};

store_part! {
    /// Nothing here is logged, tenants aren't validated, and nobody is woken. A value that has expired is unknown to every
    /// method, and is removed when another one is kept and by [`crate::Store::sweep`].
    pub trait SharedValueStore, layer SharedValueStoreLayer, call SharedValueCall {
        /// Keeps a value until it expires. One of the same kind and name is replaced, and its successor has its age. Returns
        /// whether there was room: a value that is replaced doesn't count.
        async fn keep_value(&self, value: SharedValue, limit: SharedValueLimit, at: Timestamp) -> Result<bool>;

        async fn shared_value(&self, kind: SharedValueKind, name: &str, at: Timestamp) -> Result<Option<SharedValue>>;

        /// All values of a kind, oldest first.
        async fn shared_values(&self, kind: SharedValueKind, at: Timestamp) -> Result<Vec<SharedValue>>;

        /// Who has values of a kind, each once, in order of tenants and holders.
        async fn value_holders(&self, kind: SharedValueKind, at: Timestamp) -> Result<Vec<(TenantId, String)>>;

        /// The value, which from now on lasts no longer than until then. With `until` at or before the call's time, only one of
        /// several callers gets it.
        async fn take_value(
            &self,
            kind: SharedValueKind,
            name: &str,
            until: Timestamp,
            at: Timestamp,
        ) -> Result<Option<SharedValue>>;

        /// Removes the holder's values of a kind.
        async fn drop_values(&self, kind: SharedValueKind, tenant: TenantId, holder: &str) -> Result<()>;
    }
}

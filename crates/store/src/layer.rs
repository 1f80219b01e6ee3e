//! Layers over a store: each method that a layer doesn't define is the inner store's. The hub keeps space on its disk with one;
//! tests count calls with one, and make an engine that has one mistake.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::{Error, Result, Store};
pub use crate::{
    channels::{ChannelCall, ChannelStoreLayer},
    delegations::{DelegationCall, DelegationStoreLayer},
    deliveries::{DeliveryCall, DeliveryStoreLayer},
    nodes::{NodeCall, NodeStoreLayer},
    notifications::{NotificationCall, NotificationStoreLayer},
    peers::{PeerCall, PeerStoreLayer},
    pushes::{PushCall, PushStoreLayer},
    quotas::{QuotaCall, QuotaStoreLayer},
    shared_values::{SharedValueCall, SharedValueStoreLayer},
    store::{StoreCall, StoreLayer},
    users::{UserCall, UserStoreLayer},
    worker_requests::{WorkerRequestCall, WorkerRequestStoreLayer},
    worktrees::{WorktreeCall, WorktreeStoreLayer},
};

/// What every layer has. Its methods are those of the store's parts: [`crate::Store`] has `StoreLayer`, and so on.
#[async_trait]
pub trait Layer: Send + Sync {
    fn inner(&self) -> &dyn Store;

    /// A method is about to be called.
    fn before(&self, _method: &'static str) {}

    /// A method has done its work. Its answer waits until this returns.
    async fn after(&self, _method: &'static str) {}
}

/// A layer over every part, which is a store.
pub trait WholeLayer:
    StoreLayer
    + ChannelStoreLayer
    + DelegationStoreLayer
    + DeliveryStoreLayer
    + NodeStoreLayer
    + NotificationStoreLayer
    + PeerStoreLayer
    + PushStoreLayer
    + QuotaStoreLayer
    + SharedValueStoreLayer
    + UserStoreLayer
    + WorkerRequestStoreLayer
    + WorktreeStoreLayer
    + Debug
{
}

/// What a method answers that a layer doesn't admit.
pub trait Refusable {
    fn refused(refusal: Error) -> Self;
}

// === impl Refusable ===

impl<T> Refusable for Result<T> {
    fn refused(refusal: Error) -> Self {
        Err(refusal)
    }
}

/// Closing can't fail.
impl Refusable for () {
    fn refused(_: Error) -> Self {}
}

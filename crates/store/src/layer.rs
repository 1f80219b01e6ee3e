//! Layers over a store: each method that a layer doesn't define is the inner store's. Tests count calls with one, and make
//! an engine that has one mistake.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::Store;
pub use crate::{
    channels::ChannelStoreLayer, delegations::DelegationStoreLayer, deliveries::DeliveryStoreLayer,
    nodes::NodeStoreLayer, notifications::NotificationStoreLayer, peers::PeerStoreLayer, pushes::PushStoreLayer,
    quotas::QuotaStoreLayer, shared_values::SharedValueStoreLayer, store::StoreLayer, users::UserStoreLayer,
    worker_requests::WorkerRequestStoreLayer, worktrees::WorktreeStoreLayer,
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

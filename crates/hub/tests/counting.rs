//! A store that counts calls and can hold back answers.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use attache_store::{
    Store,
    layer::{
        ChannelStoreLayer, DelegationStoreLayer, DeliveryStoreLayer, Layer, NodeStoreLayer, NotificationStoreLayer,
        PeerStoreLayer, PushStoreLayer, QuotaStoreLayer, SharedValueStoreLayer, StoreLayer, UserStoreLayer, WholeLayer,
        WorkerRequestStoreLayer, WorktreeStoreLayer,
    },
};
use tokio::sync::watch;

#[derive(Debug)]
pub struct Counting {
    inner: Arc<dyn Store>,
    calls: Mutex<HashMap<&'static str, usize>>,
    held: Mutex<HashMap<&'static str, watch::Receiver<()>>>,
}

// === impl Counting ===

impl Counting {
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, calls: Mutex::default(), held: Mutex::default() }
    }

    /// How often a method was called so far.
    pub fn calls(&self, method: &str) -> usize {
        self.calls.lock().unwrap().get(method).copied().unwrap_or(0)
    }

    /// From now on, a method's answers are held back until the returned guard is dropped. Its work is still done.
    pub fn hold(&self, method: &'static str) -> watch::Sender<()> {
        let (release, held) = watch::channel(());
        self.held.lock().unwrap().insert(method, held);
        release
    }
}

#[async_trait]
impl Layer for Counting {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn before(&self, method: &'static str) {
        *self.calls.lock().unwrap().entry(method).or_default() += 1;
    }

    async fn after(&self, method: &'static str) {
        let held = self.held.lock().unwrap().get(method).cloned();
        if let Some(mut held) = held {
            while held.changed().await.is_ok() {}
        }
    }
}

impl StoreLayer for Counting {}
impl ChannelStoreLayer for Counting {}
impl NodeStoreLayer for Counting {}
impl SharedValueStoreLayer for Counting {}
impl WorkerRequestStoreLayer for Counting {}
impl UserStoreLayer for Counting {}
impl QuotaStoreLayer for Counting {}
impl DeliveryStoreLayer for Counting {}
impl WorktreeStoreLayer for Counting {}
impl PeerStoreLayer for Counting {}
impl PushStoreLayer for Counting {}
impl DelegationStoreLayer for Counting {}
impl NotificationStoreLayer for Counting {}
impl WholeLayer for Counting {}

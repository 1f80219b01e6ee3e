//! Push notifications of outside agents. They are only a hint to check now: whoever sends one, only the agent's answer
//! to our request counts.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use attache_a2a_wire::PushConfig;
use attache_hub::Handle;
use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    routing::post,
};
use tokio::sync::Notify;

/// The waiters, by the token in their URL.
#[derive(Debug, Clone, Default)]
pub(super) struct NoticeWaiters(Arc<Mutex<HashMap<String, Arc<Notify>>>>);

/// One waiter. Dropping it closes its URL.
#[derive(Debug)]
pub(super) struct NoticeWaiter {
    notices: NoticeWaiters,
    token: String,
    notify: Arc<Notify>,
    /// `None` if this hub can't be reached from outside.
    url: Option<String>,
}

pub(super) fn routes(notices: NoticeWaiters) -> Router {
    Router::new().route("/a2a/{agent}/push-notices/{token}", post(take)).with_state(notices)
}

/// The same answer whether or not anything waits.
async fn take(State(notices): State<NoticeWaiters>, Path((_, token)): Path<(String, String)>) -> StatusCode {
    let bell = notices.0.lock().unwrap_or_else(PoisonError::into_inner).get(&token).cloned();
    if let Some(bell) = bell {
        bell.notify_one();
    }
    StatusCode::OK
}

// === impl NoticeWaiters ===

impl NoticeWaiters {
    pub(super) fn open(&self, hub: &Handle) -> NoticeWaiter {
        let token = hub.env().random_hex::<24>();
        let bell = Arc::new(Notify::new());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), bell.clone());
        let url = hub.options().public_url.is_some().then(|| format!("{}/a2a/-/push-notices/{token}", hub.origin()));
        NoticeWaiter { notices: self.clone(), token, notify: bell, url }
    }
}

// === impl NoticeWaiter ===

impl NoticeWaiter {
    /// Resolves when the agent reports that something happened.
    pub(super) async fn notified(&self) {
        self.notify.notified().await;
    }

    /// The push config for the agent.
    pub(super) fn config(&self) -> Option<PushConfig> {
        let url = self.url.clone()?;
        Some(PushConfig { url, token: Some(self.token.clone()), ..PushConfig::default() })
    }
}

impl Drop for NoticeWaiter {
    fn drop(&mut self) {
        self.notices.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.token);
    }
}

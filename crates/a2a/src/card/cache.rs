//! Cache of rendered and signed cards, so that requests don't need a new signature.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use attache_hub::Result;
use attache_protocol::{AgentId, Timestamp};
use axum::http::HeaderValue;
use bytes::Bytes;

/// Maximum number of cached cards. When it is exceeded, the cache is cleared.
const MAX_CARDS: usize = 4096;
const SECOND: i64 = 1000;

/// A form of an agent's card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CardShape {
    /// 1.0 only.
    Pure,
    /// 1.0 with the 0.3 members added.
    Union,
    /// 0.3 only.
    Old,
    /// The extended card, for authenticated callers.
    Extended,
}

/// One rendered card.
#[derive(Debug)]
pub(crate) struct CardDocument {
    /// Hash of the inputs it was rendered from.
    inputs: blake3::Hash,
    pub(crate) bytes: Bytes,
    pub(crate) etag: HeaderValue,
    /// In whole seconds, like HTTP dates.
    pub(crate) modified: Timestamp,
}

#[derive(Debug, Default)]
pub(crate) struct CachedCard(Mutex<HashMap<(AgentId, CardShape), Arc<CardDocument>>>);

// === impl CardDocument ===

impl CardDocument {
    pub(crate) fn new(bytes: Bytes, modified: Timestamp) -> Self {
        let inputs = blake3::hash(&bytes);
        Self::of(inputs, bytes, modified)
    }

    fn of(inputs: blake3::Hash, bytes: Bytes, modified: Timestamp) -> Self {
        let tag = format!("\"{}\"", &blake3::hash(&bytes).to_hex()[..32]);
        let etag = HeaderValue::from_str(&tag).expect("hexadecimal digits and quotes are a header value");
        let modified = Timestamp::from_millis(modified.millis().div_euclid(SECOND) * SECOND);
        Self { inputs, bytes, etag, modified }
    }
}

// === impl CachedCard ===

impl CachedCard {
    /// The cached document for these inputs, or a new one from `render`.
    pub(crate) fn get(
        &self,
        agent: AgentId,
        shape: CardShape,
        inputs: blake3::Hash,
        now: Timestamp,
        render: impl FnOnce() -> Result<Bytes>,
    ) -> Result<Arc<CardDocument>> {
        let slot = (agent, shape);
        let before = self.lock().get(&slot).cloned();
        // Two versions within one second still get different modification times.
        let at = match before {
            Some(document) if document.inputs == inputs => return Ok(document),
            Some(document) => now.max(Timestamp::from_millis(document.modified.millis() + SECOND)),
            None => now,
        };
        let document = Arc::new(CardDocument::of(inputs, render()?, at));
        let mut kept = self.lock();
        if kept.len() >= MAX_CARDS && !kept.contains_key(&slot) {
            kept.clear();
        }
        kept.insert(slot, document.clone());
        Ok(document)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(AgentId, CardShape), Arc<CardDocument>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

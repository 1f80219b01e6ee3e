//! Cards that were rendered and signed, so that a request for one costs no signature.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use attache_hub::Result;
use attache_protocol::{AgentId, Timestamp};
use axum::http::HeaderValue;
use bytes::Bytes;

/// So many are kept; a hub with more agents than this starts anew when it is full.
const MAX_CARDS: usize = 4096;
const SECOND: i64 = 1000;

/// Which card of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CardShape {
    /// That of 1.0 alone.
    Pure,
    /// That of 1.0 with the members of 0.3 beside its own.
    Union,
    /// That of 0.3 alone.
    Old,
    /// What only callers with a credential learn.
    Extended,
}

/// One rendered card.
#[derive(Debug)]
pub(crate) struct CardDocument {
    /// Of what it was made.
    inputs: blake3::Hash,
    pub(crate) bytes: Bytes,
    pub(crate) etag: HeaderValue,
    /// A whole second: HTTP knows nothing finer.
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
    /// The document that was made of these inputs, or the one that `render` makes of them now.
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
        // Two versions within a second still differ in when they changed.
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

//! The standard A2A protocol, versions 1.0 and 0.3, in front of every agent of a hub; and the bridge to agents of others.
//!
//! An A2A task is a view of a run, an A2A context is a conversation: `view` folds a run's events into tasks and updates,
//! `operation` is what can be asked, `surface` is how each binding and version asks it. Nothing here holds a rule of its
//! own: what a caller may do is asked of the hub.

use attache_hub::Handle;
use axum::Router;

/// The A2A surface: `/a2a/{agent}`, the cards, and gRPC on the same port.
pub fn router(_hub: Handle) -> Router {
    Router::new()
}

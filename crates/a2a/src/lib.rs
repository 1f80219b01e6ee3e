//! The standard A2A protocol, versions 1.0 and 0.3, in front of every agent of a hub, and the bridge to remote A2A
//! agents.
//!
//! An A2A task is a view of a run, an A2A context is a conversation. `view` folds a run's events into tasks and
//! updates, `operation` has the operations, `surface` the bindings and versions, `card` the agent cards,
//! `push_renderer` the push notifications, and `peer` runs tasks at outside agents. There are no rules here: the hub
//! decides what a caller may do.

mod agent_request;
mod card;
mod error;
mod operation;
mod peer;
mod push_renderer;
mod surface;
mod view;

use std::sync::Arc;

use attache_hub::Handle;
use axum::Router;

use card::AgentCards;

/// Shared by all handlers.
#[derive(Debug, Clone)]
pub(crate) struct ServerContext {
    pub(crate) hub: Handle,
    pub(crate) cards: AgentCards,
}

/// The A2A surface: `/a2a/{agent}`, the cards, and gRPC on the same port.
pub fn router(hub: Handle) -> Router {
    hub.set_push_renderer(Arc::new(push_renderer::A2aPushRenderer));
    let notices = peer::start(&hub);
    let site = ServerContext { cards: AgentCards::new(hub.clone()), hub };
    card::routes(site.cards.clone()).merge(surface::routes(&site).with_state(site)).merge(notices)
}

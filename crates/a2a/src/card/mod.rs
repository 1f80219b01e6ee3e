//! Agent cards: built from the account, signed by the hub, and cached until something changes.

mod build;
mod cache;
mod catalog;
mod extended;
mod serve;
mod sign;

use std::sync::Arc;

use attache_a2a_wire::{AgentCard, v03};
use attache_hub::{Handle, Result, Tls};
use attache_protocol::{
    Json,
    wire::{a2a_options::A2aOptions, account::Account},
};
use bytes::Bytes;

pub(crate) use serve::routes;

use build::{CardFacts, CardHubInfo, DefaultAgent};
use cache::{CachedCard, CardDocument, CardShape};

/// The cards of a hub. Clones share the cache.
#[derive(Debug, Clone)]
pub(crate) struct AgentCards {
    hub: Handle,
    place: Arc<CardHubInfo>,
    kept: Arc<CachedCard>,
}

// === impl AgentCards ===

impl AgentCards {
    pub(crate) fn new(hub: Handle) -> Self {
        let place = CardHubInfo {
            origin: hub.origin(),
            version: hub.health().version,
            client_certificates: hub.options().tls.as_ref().map(Tls::client_certificates).unwrap_or_default(),
        };
        Self { hub, place: Arc::new(place), kept: Arc::default() }
    }

    /// The public card, unsigned.
    fn build(&self, account: &Account, switches: &A2aOptions) -> AgentCard {
        let standing = if self.hub.is_default_agent(account) { DefaultAgent::Default } else { DefaultAgent::Named };
        let declared = account.runtime.as_ref().map(|runtime| runtime.extensions.as_slice()).unwrap_or_default();
        build::card(&CardFacts { account, switches, declared, place: &self.place, standing })
    }

    /// The card in one of its forms, signed when first rendered.
    fn document(&self, account: &Account, shape: CardShape, card: AgentCard) -> Result<Arc<CardDocument>> {
        let inputs = blake3::hash(Json::of(&card).get().as_bytes());
        self.kept.get(account.agent_id, shape, inputs, self.hub.now(), || {
            let signed = sign::sign(card, self.hub.card_key(), &self.place.origin)?;
            Ok(Bytes::from(shaped(&signed, shape).get().to_owned()))
        })
    }
}

fn shaped(card: &AgentCard, shape: CardShape) -> Json {
    match shape {
        CardShape::Pure | CardShape::Extended => Json::of(card),
        CardShape::Union => v03::union(card),
        CardShape::Old => v03::AgentCardV03::of_card(card).map_or_else(|| Json::of(card), |old| Json::of(&old)),
    }
}

//! Cards: what an agent says about itself, made from its account, signed by the hub, and kept until something changes.

mod build;
mod catalog;
mod extended;
mod keep;
mod serve;
mod sign;

use std::sync::Arc;

use attache_hub::{Handle, Result, Tls};
use attache_protocol::{
    Json,
    wire::{
        a2a::{AgentCard, Switches, v03},
        account::Account,
    },
};
use bytes::Bytes;

pub(crate) use serve::routes;

use build::{Facts, Place, Standing};
use keep::{Document, Kept, Shape};

/// The cards of a hub. Clones share what was rendered.
#[derive(Debug, Clone)]
pub(crate) struct Cards {
    hub: Handle,
    place: Arc<Place>,
    kept: Arc<Kept>,
}

// === impl Cards ===

impl Cards {
    pub(crate) fn new(hub: Handle) -> Self {
        let place = Place {
            origin: hub.origin(),
            version: hub.health().version,
            client_certificates: hub.options().tls.as_ref().map(Tls::client_certificates).unwrap_or_default(),
        };
        Self { hub, place: Arc::new(place), kept: Arc::default() }
    }

    /// The card as everybody may see it, without signatures.
    fn build(&self, account: &Account, switches: &Switches) -> AgentCard {
        let standing = if self.hub.is_default_agent(account) { Standing::Default } else { Standing::Named };
        let declared = account.runtime.as_ref().map(|runtime| runtime.extensions.as_slice()).unwrap_or_default();
        build::card(&Facts { account, switches, declared, place: &self.place, standing })
    }

    /// The card in one of its shapes, signed when it is rendered for the first time.
    fn document(&self, account: &Account, shape: Shape, card: AgentCard) -> Result<Arc<Document>> {
        let inputs = blake3::hash(Json::of(&card).get().as_bytes());
        self.kept.get(account.agent_id, shape, inputs, self.hub.now(), || {
            let signed = sign::sign(card, self.hub.card_key(), &self.place.origin)?;
            Ok(Bytes::from(shaped(&signed, shape).get().to_owned()))
        })
    }
}

fn shaped(card: &AgentCard, shape: Shape) -> Json {
    match shape {
        Shape::Pure | Shape::Extended => Json::of(card),
        Shape::Union => v03::union(card),
        Shape::Old => v03::AgentCard::of_card(card).map_or_else(|| Json::of(card), |old| Json::of(&old)),
    }
}

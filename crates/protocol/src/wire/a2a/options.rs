//! What an agent's owner decided about its A2A face: the member `a2a` of the account.

use serde::{Deserialize, Serialize};

use crate::Json;

/// Every switch has a default, so that an account without any is a good A2A agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct A2aOptions {
    /// Whether callers without a credential are served.
    pub anonymous: bool,
    /// Whether its card is shown only to callers who may see the agent.
    pub hidden: bool,
    /// Whether the card also carries the members of 0.3 for clients that ask without saying their version.
    pub union_card: Option<bool>,
    pub streaming: Option<bool>,
    pub push: Option<bool>,
    pub extended_card: Option<bool>,
    pub extensions: Vec<ExtensionOption>,
    /// Media types that it takes and gives; wildcards as in `image/*`. Empty: anything.
    pub input_modes: Vec<String>,
    pub output_modes: Vec<String>,
    /// The bindings that its card names: `JSONRPC`, `HTTP+JSON`, `GRPC`. Empty: all. Clients that stumble over one they do
    /// not know are spared it; the others stay reachable.
    pub bindings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtensionOption {
    pub uri: String,
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    pub required: bool,
    #[serde(default)]
    pub params: Option<Json>,
}

// === impl A2aOptions ===

impl A2aOptions {
    /// What the account says. Something that cannot be read counts as nothing said: the hub refuses it when it is set.
    pub fn of(a2a: Option<&Json>) -> Self {
        a2a.and_then(|json| json.parse().ok()).unwrap_or_default()
    }

    pub fn streams(&self) -> bool {
        self.streaming.unwrap_or(true)
    }

    pub fn pushes(&self) -> bool {
        self.push.unwrap_or(true)
    }

    /// What is open to everybody holds nothing back, unless its owner says so.
    pub fn has_extended_card(&self) -> bool {
        self.extended_card.unwrap_or(!self.anonymous)
    }

    /// Whether its card names this binding.
    pub fn offers(&self, binding: &str) -> bool {
        self.bindings.is_empty() || self.bindings.iter().any(|offered| offered == binding)
    }

    pub fn has_union_card(&self) -> bool {
        self.union_card.unwrap_or(true)
    }
}

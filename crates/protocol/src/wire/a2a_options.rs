//! A2A options of an agent: the member `a2a` of its account.

use serde::{Deserialize, Serialize};

use crate::Json;

/// Every option has a default, so that an account without options is a good A2A agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct A2aOptions {
    /// Whether callers without a credential are allowed.
    pub anonymous: bool,
    /// Whether its card is shown only to callers who may see the agent.
    pub hidden: bool,
    /// Whether the card includes the members of 0.3 for clients that don't state their version.
    pub union_card: Option<bool>,
    pub streaming: Option<bool>,
    pub push: Option<bool>,
    pub extended_card: Option<bool>,
    pub extensions: Vec<ExtensionOption>,
    /// Accepted input and output media types, with wildcards such as `image/*`. Empty means any.
    pub input_modes: Vec<String>,
    pub output_modes: Vec<String>,
    /// The bindings in its card: `JSONRPC`, `HTTP+JSON`, `GRPC`. Empty means all. Use it for clients that fail on
    /// bindings they don't know. Other bindings stay reachable.
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
    /// The account's options. Invalid options count as none, because the hub rejects them when they are set.
    pub fn of(a2a: Option<&Json>) -> Self {
        a2a.and_then(|json| json.parse().ok()).unwrap_or_default()
    }

    pub fn streams(&self) -> bool {
        self.streaming.unwrap_or(true)
    }

    pub fn pushes(&self) -> bool {
        self.push.unwrap_or(true)
    }

    /// An agent open to anonymous callers has no extended card, unless its owner says so.
    pub fn has_extended_card(&self) -> bool {
        self.extended_card.unwrap_or(!self.anonymous)
    }

    /// Whether its card lists this binding.
    pub fn offers(&self, binding: &str) -> bool {
        self.bindings.is_empty() || self.bindings.iter().any(|offered| offered == binding)
    }

    pub fn has_union_card(&self) -> bool {
        self.union_card.unwrap_or(true)
    }
}

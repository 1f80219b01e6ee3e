//! The extended card: details about an agent for authenticated callers.

use attache_a2a_wire::{AgentCard, AgentExtension};
use attache_hub::{Error, Principal, Result};
use attache_protocol::{
    Json,
    wire::{
        a2a_options::A2aOptions,
        account::{Account, Presence},
    },
};
use serde::Serialize;

use super::{AgentCards, build, cache::CardShape};

/// The extension that describes where an agent runs and whether it is online.
const RUNTIME: &str = "https://attache.dev/ext/runtime/v1";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RuntimeExtensionParams {
    online: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_type: Option<String>,
}

// === impl AgentCards ===

impl AgentCards {
    /// The public card, plus the runtime's capabilities as skills, the host type, and whether it is online. Also
    /// signed.
    pub(crate) async fn extended(&self, by: &Principal, agent: &str) -> Result<AgentCard> {
        let account = self.hub.card_account(Some(by), agent).await?;
        let switches = A2aOptions::of(account.a2a.as_ref());
        let mut card = self.build(&account, &switches);
        for word in self.hub.card_words(by, &account).await? {
            if card.skills.iter().all(|skill| skill.id != word) {
                let about = "Declared by the agent's runtime.";
                card.skills.push(build::skill(&word, &word, about, &["declared".to_owned()]));
            }
        }
        card.capabilities.extensions.push(runtime(&account));
        let document = self.document(&account, CardShape::Extended, card)?;
        serde_json::from_slice(&document.bytes).map_err(|error| Error::internal(&error))
    }
}

fn runtime(account: &Account) -> AgentExtension {
    let host_type = account.runtime.as_ref().and_then(|runtime| runtime.labels.text_member("host_type"));
    let host_type = host_type.filter(|text| !text.is_empty());
    let params = RuntimeExtensionParams { online: account.status == Presence::Online, host_type };
    AgentExtension {
        uri: RUNTIME.to_owned(),
        description: Some(
            "Where the agent runs and whether it is online. Tasks for an offline agent are queued.".to_owned(),
        ),
        required: None,
        params: Some(Json::of(&params)),
    }
}

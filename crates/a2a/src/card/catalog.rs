//! `/.well-known/ai-catalog.json`: every agent the caller can see, and the URL of its card.

use attache_protocol::wire::account::Account;
use serde::Serialize;

const VERSION: &str = "1.0";
const CARD: &str = "application/a2a-agent-card+json";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentCatalog {
    spec_version: &'static str,
    host: CatalogHost,
    entries: Vec<CatalogEntry>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CatalogHost {
    display_name: String,
    identifier: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CatalogEntry {
    /// `urn:air:hub.example:builder`.
    identifier: String,
    display_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(rename = "type")]
    media_type: &'static str,
    url: String,
}

// === impl AgentCatalog ===

impl AgentCatalog {
    pub(super) fn new(origin: &str, accounts: &[Account]) -> Self {
        let host = origin.split_once("://").map_or(origin, |(_, host)| host);
        let entry = |account: &Account| CatalogEntry {
            identifier: format!("urn:air:{host}:{}", account.name),
            display_name: account.name.clone(),
            description: account.description.clone().filter(|text| !text.trim().is_empty()),
            media_type: CARD,
            url: format!("{origin}/a2a/{}/.well-known/agent-card.json", account.name),
        };
        let entries = accounts.iter().map(entry).collect();
        Self {
            spec_version: VERSION,
            host: CatalogHost { display_name: format!("Attaché at {host}"), identifier: origin.to_owned() },
            entries,
        }
    }
}

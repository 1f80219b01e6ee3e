//! Display names of callers, deciders and devices from the hub, with the id as fallback.

use std::collections::BTreeMap;

use attache_client::HubClient;

use super::output::clean;

/// Display names by id.
#[derive(Debug, Default)]
pub(crate) struct DisplayNames(BTreeMap<String, String>);

// === impl DisplayNames ===

impl DisplayNames {
    /// Looks up all names in one request. If the hub refuses, the ids are used.
    pub(crate) async fn of<T: ToString>(hub: &HubClient, ids: impl IntoIterator<Item = T>) -> Self {
        let mut ids: Vec<String> = ids.into_iter().map(|id| id.to_string()).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Self::default();
        }
        Self(hub.names(&ids).await.unwrap_or_default())
    }

    /// The name, or the id if there is none.
    pub(crate) fn get(&self, id: impl ToString) -> String {
        let id = id.to_string();
        match self.0.get(&id) {
            Some(name) => clean::line(name).into_owned(),
            None => clean::line(&id).into_owned(),
        }
    }

    /// The name, or a dash if there is no id.
    pub(crate) fn or_dash(&self, id: Option<impl ToString>) -> String {
        id.map_or_else(|| "–".to_owned(), |id| self.get(id))
    }

    /// The name followed by the id, for detail views.
    pub(crate) fn with_id(&self, id: impl ToString) -> String {
        let id = id.to_string();
        match self.0.get(&id) {
            Some(name) => format!("{} ({})", clean::line(name), clean::line(&id)),
            None => clean::line(&id).into_owned(),
        }
    }
}

//! Names before ids: who called, who decided and which device, as the hub knows them, else the id.

use std::collections::BTreeMap;

use attache_client::HubClient;

use crate::output::clean;

/// What the hub calls those whom a list or a page mentions.
#[derive(Debug, Default)]
pub(crate) struct DisplayNames(BTreeMap<String, String>);

// === impl DisplayNames ===

impl DisplayNames {
    /// Looks them up in one go. A hub that does not tell leaves us with the ids.
    pub(crate) async fn of<T: ToString>(hub: &HubClient, ids: impl IntoIterator<Item = T>) -> Self {
        let mut ids: Vec<String> = ids.into_iter().map(|id| id.to_string()).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Self::default();
        }
        Self(hub.names(&ids).await.unwrap_or_default())
    }

    /// The name, or the id where there is none.
    pub(crate) fn get(&self, id: impl ToString) -> String {
        let id = id.to_string();
        match self.0.get(&id) {
            Some(name) => clean::line(name).into_owned(),
            None => clean::line(&id).into_owned(),
        }
    }

    /// The name of one who may be nobody.
    pub(crate) fn or_dash(&self, id: Option<impl ToString>) -> String {
        id.map_or_else(|| "–".to_owned(), |id| self.get(id))
    }

    /// The name with the id behind it, for a page that has room for both.
    pub(crate) fn with_id(&self, id: impl ToString) -> String {
        let id = id.to_string();
        match self.0.get(&id) {
            Some(name) => format!("{} ({})", clean::line(name), clean::line(&id)),
            None => clean::line(&id).into_owned(),
        }
    }
}

//! What people call those whom ids stand for.

use std::collections::BTreeMap;

use attache_protocol::wire::names::NameList;

use crate::{HubClient, Result};

/// As many as the hub answers at once.
const MAX_IDS: usize = 200;

// === impl HubClient ===

impl HubClient {
    /// The names behind ids and actors; what the hub does not know is left out.
    pub async fn names(&self, ids: &[String]) -> Result<BTreeMap<String, String>> {
        let mut names = BTreeMap::new();
        for some in ids.chunks(MAX_IDS) {
            let mut url = self.api(&["names"]);
            url.query_pairs_mut().append_pair("ids", &some.join(","));
            names.extend(self.get::<NameList>(url).await?.names);
        }
        Ok(names)
    }
}

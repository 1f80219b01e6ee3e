//! Display names for ids.

use std::collections::BTreeMap;

use attache_protocol::wire::names::NameList;

use crate::{HubClient, Result};

/// Maximum number of ids per request.
const MAX_IDS: usize = 200;

// === impl HubClient ===

impl HubClient {
    /// The names of ids and actors. Unknown ones are omitted.
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

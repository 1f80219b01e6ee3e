//! Quotas and usage.

use attache_protocol::wire::usage::{Quota, QuotaList, SetQuotaRequest, UsageRecordList, UsageReport};
use reqwest::Method;

use crate::{HubClient, PageQuery, Result, hub::HubRequest};

// === impl HubClient ===

impl HubClient {
    pub async fn quotas(&self) -> Result<QuotaList> {
        self.get(self.api(&["quotas"])).await
    }

    /// Sets the limits of a target. Without any limits its quota is removed, and the result is `None`.
    pub async fn set_quota(&self, request: &SetQuotaRequest) -> Result<Option<Quota>> {
        let ask = HubRequest::new(Method::PUT, self.api(&["quotas"])).json(request);
        match self.send(&ask).await? {
            (204, _) => Ok(None),
            (200, body) => self.decode(&body).map(Some),
            (status, body) => Err(self.refused(status, &body)),
        }
    }

    /// From one day to another, such as `2026-11-15`, inclusive.
    pub async fn usage(&self, from: Option<&str>, to: Option<&str>) -> Result<UsageReport> {
        let mut url = self.api(&["usage"]);
        for (name, value) in [("from", from), ("to", to)] {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        self.get(url).await
    }

    /// The usage of each call, newest first.
    pub async fn usage_records(&self, agent: Option<&str>, page: &PageQuery) -> Result<UsageRecordList> {
        let mut url = self.api(&["usage", "records"]);
        if let Some(agent) = agent {
            url.query_pairs_mut().append_pair("agent", agent);
        }
        page.write(&mut url);
        self.get(url).await
    }
}

//! The views of the list of runs that a person keeps.

use attache_protocol::wire::run_view::{RunView, RunViewFilter, RunViewList};
use reqwest::Method;

use crate::{
    HubClient, Result,
    hub::{HubRequest, RetrySafety},
};

// === impl HubClient ===

impl HubClient {
    /// In the order in which they were made.
    pub async fn run_views(&self) -> Result<RunViewList> {
        self.get(self.api(&["run-views"])).await
    }

    /// Replaces the view that has the name.
    pub async fn set_run_view(&self, name: &str, filter: &RunViewFilter) -> Result<RunView> {
        let url = self.api(&["run-views", name]);
        self.ask(&HubRequest::new(Method::PUT, url).json(filter).retry_safety(RetrySafety::Safe)).await
    }

    pub async fn remove_run_view(&self, name: &str) -> Result<()> {
        self.send(&HubRequest::new(Method::DELETE, self.api(&["run-views", name]))).await.map(drop)
    }
}

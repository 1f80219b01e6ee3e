//! The stub model of a test, which can be switched off.

use attache_testkit::stub_model::{RecordedRequest, StubModel};
use tokio::runtime::Runtime;

/// A model on loopback until it is switched off.
pub struct TestModel {
    stub: Option<StubModel>,
    url: String,
    // Serves in the background; dropped last.
    runtime: Runtime,
}

// === impl TestModel ===

impl TestModel {
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let stub = runtime.block_on(StubModel::start());
        Self { url: stub.url(), stub: Some(stub), runtime }
    }

    /// Without `/v1`.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.stub.as_ref().map(StubModel::requests).unwrap_or_default()
    }

    /// Nothing listens at its address any more.
    pub fn switch_off(&mut self) {
        let _within = self.runtime.enter();
        self.stub = None;
    }
}

//! A model on loopback that does as its prompt says, in the dialects of Anthropic, OpenAI and Google, so that real agent
//! programs run without an account and without a network.
//!
//! `StubModel::start()` in a test, or the program `stub-model` beside a shell. The words are those of [`crate::script`].
//! What is offered at each request is kept: `GET /__requests`, or [`StubModel::requests`].

mod answer;
mod conversation;
mod dialect;
mod main;
mod record;
mod serve;
mod toolbox;

use std::{net::SocketAddr, sync::Arc};

use tokio::{net::TcpListener, task::JoinHandle};

pub use self::{main::main, record::RecordedRequest};
use self::{record::RequestRecord, serve::router};

/// A model that serves until it is dropped.
#[derive(Debug)]
pub struct StubModel {
    address: SocketAddr,
    record: Arc<RequestRecord>,
    serving: JoinHandle<()>,
}

// === impl StubModel ===

impl StubModel {
    /// On a free port of loopback.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound listener has an address");
        let record = Arc::new(RequestRecord::default());
        let router = router(Arc::clone(&record));
        let serving = tokio::spawn(async move {
            // Serving ends with the runtime, or when the owner drops it.
            let _ = axum::serve(listener, router).await;
        });
        Self { address, record, serving }
    }

    /// `http://127.0.0.1:PORT`, without `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far, oldest first.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.record.requests()
    }
}

impl Drop for StubModel {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

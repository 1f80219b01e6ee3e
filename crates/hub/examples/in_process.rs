//! A program that embeds a hub and hosts an agent in its own process.
//!
//! Run it with `cargo run -p attache-hub --example in_process`. It starts a hub in its own folder, hosts an agent named
//! `greeter`, calls it in memory, and prints every frame that a watcher of the call sees:
//!
//! ```text
//! {"type":"progress","data":{"goal":"finding words","progress":0.5}}
//! {"type":"message","data":{"kind":"chunk","text":"Hello, "}}
//! {"type":"completed","data":{"result":{"summary":"Hello, world!",…
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;

use attache_hub::{
    Hub, Options,
    control::CallHeaders,
    in_process::{AgentFailure, AgentOutput, InProcessAgent, InProcessRun},
    stream::CallDetail,
};
use attache_protocol::{env::Env, wire::call::CallRequest};
use attache_store::memory::MemoryStore;

struct Greeter;

impl InProcessAgent for Greeter {
    async fn work(&self, work: InProcessRun) -> Result<AgentOutput, AgentFailure> {
        work.progress("finding words", 0.5).await?;
        work.send_chunk("Hello, ").await?;
        Ok(AgentOutput::text(format!("Hello, {}!", work.text())))
    }

    fn capabilities(&self) -> Vec<String> {
        vec!["greet".to_owned()]
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = tempfile::tempdir()?;
    let options = Options::new(data.path(), "127.0.0.1:0".parse()?);
    let hub = Hub::start(options, Arc::new(MemoryStore::new()), Env::system()).await?;
    // The hub writes the owner's key at its first start.
    let key = std::fs::read_to_string(data.path().join("admin.key"))?;
    let owner = hub.authenticate_key(key.trim()).await?;

    let greeter = hub.host(&owner, "greeter", Greeter).await?;
    let request =
        CallRequest { task: "world".to_owned(), agent_type: Some("greet".to_owned()), ..CallRequest::default() };
    let call = hub.call(&owner, request, CallHeaders::default()).await?;
    let mut frames = hub.watch_call(&owner, call, CallDetail::Everything, None).await?;
    while let Some(frame) = frames.next().await {
        println!("{}", frame.text());
    }

    greeter.stop().await;
    hub.stop().await;
    Ok(())
}

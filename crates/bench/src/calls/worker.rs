//! An agent on a channel that answers every task immediately.

use std::sync::Arc;

use attache_client::{
    HubClientOptions, HubCredential,
    channel::{ChannelEvent, ChannelHandle, ChannelPeer, Options},
};
use attache_protocol::{Json, RunId, Secret};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::{BenchResult, load::OUTPUT_BYTES};

/// How many tasks it executes at the same time.
const CREDITS: usize = 16;

/// Works until it is dropped.
pub(super) struct EchoWorker {
    channel: ChannelHandle,
    _task: AbortOnDropHandle<()>,
}

/// Forwards claims to the task that answers them.
struct ClaimForwarder(mpsc::UnboundedSender<(RunId, i64)>);

#[derive(Serialize)]
struct ReadyFrame {
    action: &'static str,
    credits: usize,
}

#[derive(Serialize)]
struct DoneFrame<'a> {
    action: &'static str,
    task_run_id: RunId,
    epoch: i64,
    result_summary: &'a str,
}

// === impl EchoWorker ===

impl EchoWorker {
    pub(super) async fn connect(url: &str, key: Secret<String>) -> BenchResult<Self> {
        // Never holds more tasks than the worker granted credits for.
        let (sender, mut claims) = mpsc::unbounded_channel();
        let options = Options::worker(HubClientOptions::new(url, HubCredential::Key(key)));
        let channel = ChannelHandle::connect(options, Arc::new(ClaimForwarder(sender)))?;
        channel.connected().await;
        ready(&channel, CREDITS).await?;
        let replies = channel.clone();
        let task = tokio::spawn(async move {
            let answer: Arc<str> = "x".repeat(OUTPUT_BYTES).into();
            while let Some((task_run_id, epoch)) = claims.recv().await {
                let (replies, answer) = (replies.clone(), Arc::clone(&answer));
                tokio::spawn(async move {
                    let done = DoneFrame { action: "done", task_run_id, epoch, result_summary: &answer };
                    let answered = replies.request(None, Json::of(&done)).await;
                    if let Err(error) = answered.and(ready(&replies, 1).await) {
                        eprintln!("a worker failed to answer: {error}");
                    }
                });
            }
        });
        Ok(Self { channel, _task: AbortOnDropHandle::new(task) })
    }

    pub(super) async fn close(self) {
        self.channel.close().await;
    }
}

async fn ready(channel: &ChannelHandle, credits: usize) -> attache_client::Result<()> {
    channel.notify(Json::of(&ReadyFrame { action: "ready", credits })).await
}

// === impl ClaimForwarder ===

impl ChannelPeer for ClaimForwarder {
    fn running(&self) -> Option<Vec<RunId>> {
        None
    }

    fn receive(&self, event: ChannelEvent) {
        if let ChannelEvent::Execute(claimed) = event {
            let _ = self.0.send((claimed.task_run_id, claimed.epoch));
        }
    }
}

//! How many events per second reach the watchers of one run.

use std::time::{Duration, Instant};

use attache_client::{HubClient, HubClientOptions, HubCredential};
use attache_protocol::{
    Json, RunId, Secret,
    wire::{
        account::AccountRequest,
        run::{CompleteRequest, CreateRunRequest, ProgressRequest},
    },
};
use serde::Serialize;

use super::{BenchResult, ServerProcess};

const AGENT: &str = "speaker";
/// Reports of the worker while the run is watched.
const REPORTS: i64 = 200;
/// How many watchers share one client: it has one pool of connections.
const PER_CLIENT: usize = 100;
const SETTLE_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, Serialize)]
pub(super) struct FanoutFigures {
    pub(super) watchers: usize,
    pub(super) events: i64,
    pub(super) deliveries_per_second: f64,
    pub(super) one_watcher_per_second: f64,
}

pub(super) async fn measure(server: &ServerProcess, watchers: usize) -> BenchResult<FanoutFigures> {
    let owner = super::owner(server)?;
    owner.create_account(&AccountRequest { name: Some(AGENT.to_owned()), ..AccountRequest::default() }).await?;
    let code = Secret::new(owner.create_pairing_code(AGENT).await?.pairing_code);
    let attached = owner.attach(&code, None, None).await?;
    let worker = HubClient::new(HubClientOptions::new(
        server.url.as_str(),
        HubCredential::RuntimeToken(attached.runtime_token),
    ))?;
    let (_, alone) = measure_deliveries(server, &owner, &worker, 1).await?;
    let (events, together) = measure_deliveries(server, &owner, &worker, watchers).await?;
    Ok(FanoutFigures { watchers, events, deliveries_per_second: together, one_watcher_per_second: alone })
}

/// One run with this many watchers: how many events each one saw, and how many deliveries per second that is.
async fn measure_deliveries(
    server: &ServerProcess,
    owner: &HubClient,
    worker: &HubClient,
    watchers: usize,
) -> BenchResult<(i64, f64)> {
    let input = Json::from_text(r#"{"text":"speak"}"#)?;
    let request = CreateRunRequest { agent_id: AGENT.to_owned(), input: Some(input), ..CreateRunRequest::default() };
    let run = owner.create_run(&request).await?;
    let claimed = worker.pull(run.agent_id, Duration::ZERO).await?.ok_or("nothing to pull")?;
    let mut clients = Vec::new();
    for _ in 0..watchers.div_ceil(PER_CLIENT) {
        clients.push(super::owner(server)?);
    }
    let watching: Vec<_> = (0..watchers)
        .map(|number| tokio::spawn(watch(clients[number / PER_CLIENT].clone(), claimed.task_run_id)))
        .collect();
    tokio::time::sleep(SETTLE_INTERVAL).await;
    let begin = Instant::now();
    for number in 1..=REPORTS {
        let chunk = Json::of(&format!("piece {number} of a long answer that somebody waits for\n"));
        let report = ProgressRequest {
            epoch: Some(claimed.epoch),
            report: Some(number),
            chunk: Some(chunk),
            ..ProgressRequest::default()
        };
        worker.progress(claimed.task_run_id, &report).await?;
    }
    let output = Json::from_text(r#"{"text":"done"}"#)?;
    let done = CompleteRequest { epoch: Some(claimed.epoch), output, usage: None, inputs_taken: None };
    worker.complete(claimed.task_run_id, &done).await?;
    let mut events = 0;
    for watcher in watching {
        events = watcher.await??;
    }
    let deliveries = f64::from(u32::try_from(events)?) * f64::from(u32::try_from(watchers)?);
    Ok((events, deliveries / begin.elapsed().as_secs_f64()))
}

/// Follows the run to its end. Every event must arrive once and in order.
async fn watch(hub: HubClient, run: RunId) -> BenchResult<i64> {
    let mut stream = hub.follow(run, 0);
    let mut last = 0;
    while let Some(event) = stream.next().await {
        let event = event?;
        if event.seq != last + 1 {
            return Err(format!("event {} arrived after {last}", event.seq).into());
        }
        last = event.seq;
    }
    Ok(last)
}

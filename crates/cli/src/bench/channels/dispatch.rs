//! How soon work reaches the adapter of a connected device, and how soon a decision reaches the process that waits for it.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use attache_client::{Credential, Hub, HubOptions, PermissionFilter};
use attache_protocol::{
    Json, RunId, Secret,
    rules::permission::{Scope, State},
    wire::{
        account::AccountRequest,
        permission::DecisionRequest,
        run::{CompleteRequest, CreateRunRequest},
    },
};
use serde::Serialize;
use tokio_util::task::AbortOnDropHandle;

use super::{
    Result, Server,
    device::{AGENT, ASK, Device, Noticed},
};
use crate::bench::{load::quantile, report::millis};

const PATIENCE: Duration = Duration::from_secs(20);
/// Runs that bring connections and caches up before anything is measured.
const WARM_UP: usize = 10;

#[derive(Debug, Serialize)]
pub(super) struct Latencies {
    pub(super) rest: Latency,
    pub(super) load: Latency,
    pub(super) busy_runs_per_second: f64,
    pub(super) decision: Latency,
}

#[derive(Debug, Serialize)]
pub(super) struct Latency {
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

pub(super) async fn measure(server: &Server, home: &Path, runs: usize, callers: usize) -> Result<Latencies> {
    let owner = super::owner(server)?;
    let mut device = Device::start(server, &owner, home).await?;
    for _ in 0..WARM_UP {
        arrival(&owner, &mut device, "warm up").await?;
    }
    let mut rest = Vec::with_capacity(runs);
    for _ in 0..runs {
        rest.push(arrival(&owner, &mut device, "go").await?);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut decisions = Vec::with_capacity(runs / 4);
    for _ in 0..(runs / 4).max(1) {
        decisions.push(decision(&owner, &mut device).await?);
    }
    let finished = std::sync::Arc::new(AtomicU64::new(0));
    let mut busy = Vec::with_capacity(callers);
    for number in 0..callers {
        busy.push(AbortOnDropHandle::new(tokio::spawn(keep_busy(
            owner.clone(),
            worker(server, &owner, number).await?,
            format!("busy-{number}"),
            finished.clone(),
        ))));
    }
    let (begin, before) = (Instant::now(), finished.load(Ordering::Relaxed));
    let mut load = Vec::with_capacity(runs);
    for _ in 0..runs {
        load.push(arrival(&owner, &mut device, "go").await?);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let done = u32::try_from(finished.load(Ordering::Relaxed) - before)?;
    let busy_runs_per_second = f64::from(done) / begin.elapsed().as_secs_f64();
    Ok(Latencies {
        rest: Latency::of(rest),
        load: Latency::of(load),
        busy_runs_per_second,
        decision: Latency::of(decisions),
    })
}

fn request(agent: &str, text: &str) -> CreateRunRequest {
    #[derive(Serialize)]
    struct Input<'a> {
        text: &'a str,
    }
    CreateRunRequest {
        agent_id: agent.to_owned(),
        input: Some(Json::of(&Input { text })),
        ..CreateRunRequest::default()
    }
}

/// From the call that creates a run until the adapter has it; then waits until the device is idle again.
async fn arrival(owner: &Hub, device: &mut Device, text: &str) -> Result<Duration> {
    let begin = Instant::now();
    let run = owner.create_run(&request(AGENT, text)).await?.task_run_id;
    let arrived = noticed(device, run).await?;
    ended(owner, run).await?;
    Ok(arrived.saturating_duration_since(begin))
}

/// From the call that decides until the process that asked goes on.
async fn decision(owner: &Hub, device: &mut Device) -> Result<Duration> {
    let run = owner.create_run(&request(AGENT, ASK)).await?.task_run_id;
    noticed(device, run).await?;
    let filter = PermissionFilter { state: Some(State::Pending), run: Some(run), ..PermissionFilter::default() };
    let deadline = Instant::now() + PATIENCE;
    let permission = loop {
        if let Some(asked) = owner.permissions(&filter).await?.permission_requests.first() {
            break asked.permission_request_id;
        }
        if Instant::now() > deadline {
            return Err("the permission request did not arrive".into());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    let answer = DecisionRequest {
        approved: true,
        scope: Scope::Once,
        tool_pattern: None,
        until: None,
        this_channel_only: false,
        comment: None,
    };
    let begin = Instant::now();
    owner.decide(permission, &answer).await?;
    let answered = noticed(device, run).await?;
    ended(owner, run).await?;
    Ok(answered.saturating_duration_since(begin))
}

async fn noticed(device: &mut Device, wanted: RunId) -> Result<Instant> {
    loop {
        let (Noticed::Arrived(run, at) | Noticed::Answered(run, at)) =
            tokio::time::timeout(PATIENCE, device.noticed.recv()).await?.ok_or("the device stopped")?;
        if run == wanted {
            return Ok(at);
        }
    }
}

async fn ended(owner: &Hub, run: RunId) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !owner.run(run).await?.status.is_terminal() {
        if Instant::now() > deadline {
            return Err("a run did not end".into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// A paired device that only speaks HTTP.
async fn worker(server: &Server, owner: &Hub, number: usize) -> Result<Hub> {
    let name = format!("busy-{number}");
    owner.create_account(&AccountRequest { name: Some(name.clone()), ..AccountRequest::default() }).await?;
    let code = Secret::new(owner.create_pairing_code(&name).await?.pairing_code);
    let attached = owner.attach(&code, None, None).await?;
    Ok(Hub::new(HubOptions::new(server.url.as_str(), Credential::RuntimeToken(attached.runtime_token)))?)
}

/// Whole runs, one after the other, for as long as it is left alone.
async fn keep_busy(owner: Hub, worker: Hub, name: String, finished: std::sync::Arc<AtomicU64>) -> Result<()> {
    loop {
        let run = owner.create_run(&request(&name, "busy")).await?;
        if let Some(claimed) = worker.pull(run.agent_id, Duration::ZERO).await? {
            let output = Json::from_text(r#"{"text":"done"}"#)?;
            let done = CompleteRequest { epoch: Some(claimed.epoch), output, usage: None };
            worker.complete(claimed.task_run_id, &done).await?;
            finished.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// === impl Latency ===

impl Latency {
    fn of(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        Self { p50_ms: millis(quantile(&took, 50)), p99_ms: millis(quantile(&took, 99)) }
    }
}

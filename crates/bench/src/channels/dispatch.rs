//! How quickly runs reach the adapter of a connected device, and decisions reach the waiting process.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use attache_client::{HubClient, HubClientOptions, HubCredential, PermissionFilter};
use attache_protocol::{
    Json, RunId, Secret,
    rules::permission::{DecisionScope, PermissionState},
    wire::{
        account::AccountRequest,
        permission::DecisionRequest,
        run::{CompleteRequest, CreateRunRequest},
    },
};
use serde::Serialize;
use tokio_util::task::AbortOnDropHandle;

use super::{
    BenchResult, ServerProcess,
    device::{AGENT, ASK, AgentObservation, BenchDevice},
};
use crate::{load::quantile, report::millis};

const DISPATCH_TIMEOUT: Duration = Duration::from_secs(20);
/// Runs that warm up connections and caches before anything is measured.
const WARM_UP: usize = 10;

#[derive(Debug, Serialize)]
pub(super) struct DispatchLatencies {
    pub(super) rest: LatencyFigures,
    pub(super) load: LatencyFigures,
    pub(super) busy_runs_per_second: f64,
    pub(super) decision: LatencyFigures,
}

#[derive(Debug, Serialize)]
pub(super) struct LatencyFigures {
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

pub(super) async fn measure(
    server: &ServerProcess,
    home: &Path,
    runs: usize,
    callers: usize,
) -> BenchResult<DispatchLatencies> {
    let owner = super::owner(server)?;
    let mut device = BenchDevice::start(server, &owner, home).await?;
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
    Ok(DispatchLatencies {
        rest: LatencyFigures::of(rest),
        load: LatencyFigures::of(load),
        busy_runs_per_second,
        decision: LatencyFigures::of(decisions),
    })
}

fn request(agent: &str, text: &str) -> CreateRunRequest {
    #[derive(Serialize)]
    struct BenchInput<'a> {
        text: &'a str,
    }
    CreateRunRequest {
        agent_id: agent.to_owned(),
        input: Some(Json::of(&BenchInput { text })),
        ..CreateRunRequest::default()
    }
}

/// From the call that creates a run until the adapter has it. Then waits until the device is idle again.
async fn arrival(owner: &HubClient, device: &mut BenchDevice, text: &str) -> BenchResult<Duration> {
    let begin = Instant::now();
    let run = owner.create_run(&request(AGENT, text)).await?.task_run_id;
    let arrived = noticed(device, run).await?;
    ended(owner, run).await?;
    Ok(arrived.saturating_duration_since(begin))
}

/// From the call that decides until the process that asked continues.
async fn decision(owner: &HubClient, device: &mut BenchDevice) -> BenchResult<Duration> {
    let run = owner.create_run(&request(AGENT, ASK)).await?.task_run_id;
    noticed(device, run).await?;
    let filter =
        PermissionFilter { state: Some(PermissionState::Pending), run: Some(run), ..PermissionFilter::default() };
    let deadline = Instant::now() + DISPATCH_TIMEOUT;
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
        scope: DecisionScope::Once,
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

async fn noticed(device: &mut BenchDevice, wanted: RunId) -> BenchResult<Instant> {
    loop {
        let (AgentObservation::Arrived(run, at) | AgentObservation::Answered(run, at)) =
            tokio::time::timeout(DISPATCH_TIMEOUT, device.noticed.recv()).await?.ok_or("the device stopped")?;
        if run == wanted {
            return Ok(at);
        }
    }
}

async fn ended(owner: &HubClient, run: RunId) -> BenchResult<()> {
    let deadline = Instant::now() + DISPATCH_TIMEOUT;
    while !owner.run(run).await?.status.is_terminal() {
        if Instant::now() > deadline {
            return Err("a run did not end".into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// A paired device that uses only HTTP.
async fn worker(server: &ServerProcess, owner: &HubClient, number: usize) -> BenchResult<HubClient> {
    let name = format!("busy-{number}");
    owner.create_account(&AccountRequest { name: Some(name.clone()), ..AccountRequest::default() }).await?;
    let code = Secret::new(owner.create_pairing_code(&name).await?.pairing_code);
    let attached = owner.attach(&code, None, None).await?;
    Ok(HubClient::new(HubClientOptions::new(server.url.as_str(), HubCredential::RuntimeToken(attached.runtime_token)))?)
}

/// Complete runs, one after another, until it is stopped.
async fn keep_busy(
    owner: HubClient,
    worker: HubClient,
    name: String,
    finished: std::sync::Arc<AtomicU64>,
) -> BenchResult<()> {
    loop {
        let run = owner.create_run(&request(&name, "busy")).await?;
        if let Some(claimed) = worker.pull(run.agent_id, Duration::ZERO).await? {
            let output = Json::from_text(r#"{"text":"done"}"#)?;
            let done = CompleteRequest { epoch: Some(claimed.epoch), output, usage: None, inputs_taken: None };
            worker.complete(claimed.task_run_id, &done).await?;
            finished.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// === impl LatencyFigures ===

impl LatencyFigures {
    fn of(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        Self { p50_ms: millis(quantile(&took, 50)), p99_ms: millis(quantile(&took, 99)) }
    }
}

//! Takes runs and has them executed, one after the other unless configured otherwise: over the channel while it is
//! open, otherwise by pulling.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use attache_client::{Backoff, channel::ChannelState};
use attache_protocol::{
    Json, Timestamp,
    wire::{
        adapter::{RunTask, RunTools},
        run::ClaimedRun,
    },
};
use tokio::task::{JoinError, JoinSet};

use crate::{
    RuntimeNotice,
    claim_watch::{self, ClaimSource},
    delegation_run,
    device::DeviceRuntime,
    dispatch::{self, DispatchMode, RunDispatch},
    ledger::{LedgerEntry, LedgerStep},
    recover,
    shutdown::Shutdown,
};

/// The main loop of a runtime.
pub(crate) struct WorkLoop {
    pub(crate) device: Arc<DeviceRuntime>,
    /// How long a pull waits for a run.
    pub(crate) wait: Duration,
    /// How many runs are executed at a time.
    pub(crate) concurrency: NonZeroUsize,
    pub(crate) shutdown: Shutdown,
}

/// A claim, and how it arrived.
struct IncomingClaim {
    run: ClaimedRun,
    source: ClaimSource,
}

/// How long a channel that is about to open can delay pulling.
const CHANNEL_OPEN_TIMEOUT: Duration = Duration::from_millis(300);
const SHUTDOWN_REPORT_TIMEOUT: Duration = Duration::from_secs(5);

// === impl WorkLoop ===

impl WorkLoop {
    /// Works until there is a reason to stop, starting with the recovered runs.
    pub(crate) async fn run(self, rejoined: Vec<RunDispatch>) {
        let Self { device, wait, concurrency, shutdown } = self;
        // Each run has its own task, which ends with this one.
        let mut running = JoinSet::new();
        for job in rejoined {
            let (device, abort) = (device.clone(), shutdown.abort.clone());
            running.spawn(async move { dispatch::execute(&device, job, &abort).await });
        }
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(15));
        loop {
            while let Some(ended) = running.try_join_next() {
                propagate_panic(ended);
            }
            // A claim is requested only when it can be executed immediately.
            while running.len() >= concurrency.get() {
                if let Some(ended) = running.join_next().await {
                    propagate_panic(ended);
                }
            }
            remember(&device, &shutdown).await;
            let Some(claimed) = next(&device, wait, &mut backoff, &shutdown).await else { break };
            let (device, shutdown) = (device.clone(), shutdown.clone());
            running.spawn(async move { take(&device, claimed, &shutdown).await });
        }
        drain(&device, running).await;
    }
}

/// A run that panics takes the runtime down: otherwise, nothing would be working on its claim.
fn propagate_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// Takes no more work, lets current runs finish, and hands back what was not started.
async fn drain(device: &DeviceRuntime, mut running: JoinSet<()>) {
    if let Some(channel) = device.channel() {
        device.inbox.revoke(channel).await;
        // After this, everything that was claimed before the hub noticed has arrived.
        let _ = tokio::time::timeout(SHUTDOWN_REPORT_TIMEOUT, channel.confirm()).await;
    }
    while let Some(ended) = running.join_next().await {
        propagate_panic(ended);
    }
    if device.link.is_denied() {
        return;
    }
    device.link.notify(&RuntimeNotice::Stopping { running: None });
    let hand_back = async {
        while let Some(claimed) = device.inbox.pop() {
            recover::release(device, claimed.task_run_id, claimed.epoch).await;
        }
        // The answer to the dropped pull may have been a claim.
        let history = device.ledger.history().await;
        recover::hand_back(device, &history).await;
    };
    let _ = tokio::time::timeout(SHUTDOWN_REPORT_TIMEOUT, hand_back).await;
}

/// Waits until the ledger can be written, or there is a reason to stop: nothing is started without a ledger entry.
async fn remember(device: &DeviceRuntime, shutdown: &Shutdown) {
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(5));
    while !device.remembers().await {
        tokio::select! {
            () = tokio::time::sleep(backoff.next(&device.env)) => {}
            () = shutdown.finish.cancelled() => return,
            () = device.link.denied() => return,
        }
    }
}

/// The next claim, over either transport. `None` if there is a reason to stop.
async fn next(
    device: &DeviceRuntime,
    wait: Duration,
    backoff: &mut Backoff,
    shutdown: &Shutdown,
) -> Option<IncomingClaim> {
    loop {
        let mut moved = device.inbox.watch();
        if shutdown.finish.is_cancelled() || device.link.is_denied() {
            return None;
        }
        if let Some(run) = device.inbox.pop() {
            return Some(IncomingClaim { run, source: ClaimSource::Channel });
        }
        // Don't wait for a channel that can't be opened.
        let patience = match device.channel().map(|channel| (channel, channel.state())) {
            Some((channel, ChannelState::Connected(_))) => {
                if device.inbox.may_grant() {
                    device.inbox.grant(channel, device.adapter.enforces().await).await;
                }
                None
            }
            Some((
                _,
                ChannelState::Broken(attache_client::Error::BadReply { .. } | attache_client::Error::Refused(_)),
            ))
            | None => Some(Duration::ZERO),
            Some((_, ChannelState::Connecting | ChannelState::Broken(_))) => Some(CHANNEL_OPEN_TIMEOUT),
        };
        let stop = async {
            tokio::select! {
                () = shutdown.finish.cancelled() => {}
                () = device.link.denied() => {}
            }
        };
        let waited = async {
            match patience {
                None => std::future::pending().await,
                Some(patience) => tokio::time::sleep(patience).await,
            }
        };
        tokio::select! {
            _ = moved.changed() => continue,
            () = stop => continue,
            () = waited => {}
        }
        if let Some(run) = pull(device, wait, backoff, shutdown).await {
            return Some(IncomingClaim { run, source: ClaimSource::Pull });
        }
    }
}

/// One pull. Its answer is awaited even if the channel opens meanwhile, because it may be a claim.
async fn pull(
    device: &DeviceRuntime,
    wait: Duration,
    backoff: &mut Backoff,
    shutdown: &Shutdown,
) -> Option<ClaimedRun> {
    let mut moved = device.inbox.watch();
    let enforces = device.adapter.enforces().await;
    let sent_at = device.env.now();
    let answer = tokio::select! {
        answer = device.hub().pull_enforcing(device.profile.agent_id, wait, &enforces) => answer,
        () = shutdown.finish.cancelled() => return None,
        () = device.link.denied() => return None,
    };
    let pause = match answer {
        Ok(Some(claimed)) => {
            device.link.hub_answered();
            backoff.reset();
            return Some(claimed);
        }
        Ok(None) => {
            device.link.hub_answered();
            backoff.reset();
            // A hub that answers immediately despite being asked to wait must not be polled in a tight loop.
            if device.env.now().since(sent_at) * 2 < wait {
                Duration::from_millis(500).min(wait)
            } else {
                return None;
            }
        }
        Err(error) => {
            if !matches!(error, attache_client::Error::Refused(_)) {
                device.inbox.mark_pull_answer_lost();
            }
            device.link.failed(&error);
            backoff.next(&device.env)
        }
    };
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        _ = moved.changed() => {}
        () = shutdown.finish.cancelled() => {}
        () = device.link.denied() => {}
    }
    None
}

/// Executes a claim, or hands it back if the runtime is stopping.
async fn take(device: &Arc<DeviceRuntime>, claimed: IncomingClaim, shutdown: &Shutdown) {
    let IncomingClaim { run: claimed, source } = claimed;
    let (run, epoch) = (claimed.task_run_id, claimed.epoch);
    if device.claims.take(run, epoch).is_none() {
        return tracing::debug!(run.id = %run, epoch, "ignored a claim that was handed back before");
    }
    if device.inbox.is_doubted(run)
        && let Some(reason) = claim_watch::lost(device.hub(), run, epoch, &device.env).await
    {
        device.claims.give_up(run, epoch);
        return device.link.notify(&RuntimeNotice::TaskStopped { run, reason: reason.to_owned() });
    }
    let pulled = LedgerEntry {
        conversation_id: Some(claimed.conversation_id),
        workspace_id: Some(claimed.workspace_id),
        task_type: Some(claimed.task_type.clone()),
        deadline: Some(claimed.deadline),
        delegation_id: delegation_run::delegation_of(&claimed),
        ..device.run_entry(LedgerStep::TaskPulled, run, epoch)
    };
    device.link.notify(&RuntimeNotice::Pulled { run, task_type: claimed.task_type.clone() });
    if shutdown.finish.is_cancelled() {
        device.note(pulled).await;
        return recover::release(device, run, epoch).await;
    }
    if !device.begin(&[pulled, device.run_entry(LedgerStep::TaskStarted, run, epoch)]).await {
        // Without a ledger entry, a crash would hide that it had started, so it isn't started.
        return recover::release(device, run, epoch).await;
    }
    let caller = claimed.caller.clone();
    let deadline = device.clock.to_local(claimed.deadline).await;
    let job = RunDispatch {
        task: task(device, claimed, deadline),
        caller,
        epoch,
        mode: DispatchMode::Start,
        source,
        reports: 0,
    };
    let execution = dispatch::execute(device, job, &shutdown.abort);
    tokio::pin!(execution);
    tokio::select! {
        () = &mut execution => return,
        () = shutdown.finish.cancelled() => device.link.notify(&RuntimeNotice::Stopping { running: Some(run) }),
    }
    execution.await;
}

/// The adapter only knows this device's clock, so the deadline is converted to it.
fn task(device: &DeviceRuntime, claimed: ClaimedRun, deadline: Timestamp) -> RunTask {
    RunTask {
        task_run_id: claimed.task_run_id,
        conversation_id: claimed.conversation_id,
        workspace_id: claimed.workspace_id,
        task_type: claimed.task_type,
        input: claimed.input,
        instructions: claimed.instructions,
        context_fragments: claimed.context_fragments,
        allowed_tools: claimed.allowed_tools,
        workspace_root: claimed.workspace_root,
        budget: claimed.budget.as_ref().map(Json::of),
        cwd: device.cwd.as_ref().map(|cwd| cwd.display().to_string()),
        sandbox: claimed.sandbox.as_ref().map(Json::of),
        permission_mode: claimed.permission_mode,
        worktrees: claimed.worktree.then(|| device.worktrees.display().to_string()),
        default_sandbox: device.default_sandbox(claimed.for_owner).as_ref().map(Json::of),
        for_owner: claimed.for_owner,
        host_session: claimed.host_session,
        parent_task_run_id: claimed.parent_task_run_id,
        mcp: claimed.mcp.map(|tools| tools_from_device(device, tools)),
        deadline: Some(deadline),
        files: Vec::new(),
    }
}

/// The run's tools at the address by which this device reaches the hub, which can differ from the hub's own.
fn tools_from_device(device: &DeviceRuntime, tools: RunTools) -> RunTools {
    // The path after the scheme and host.
    let path = |url: &str| {
        let host = url.find("://").map_or(0, |at| at + 3);
        url[host..].find('/').map_or(url.len(), |at| host + at)
    };
    let base = &device.profile.api_base;
    let url = format!("{}{}", &base[..path(base)], &tools.url[path(&tools.url)..]);
    RunTools { url, ..tools }
}

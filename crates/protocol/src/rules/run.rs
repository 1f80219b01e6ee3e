//! The life of a run: `pending → running → completed | failed | cancelled`, fenced by epochs and bounded by deadlines.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{EventKind, id::RuntimeId, time::Timestamp};

/// What the world sees of a run's progress through its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    Pending,
    Running,
    Completed,
    Failed,
    Cancelled,
}

/// The closed list of reasons for which a run fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    TaskFailed,
    RuntimeLost,
    TimedOut,
    Expired,
    Rejected,
    Refused,
    QuotaExceeded,
    PermissionDenied,
    AdapterUnreachable,
    AdapterInvalidReply,
    HostCrashed,
    ModelUnreachable,
    /// The account of the agent's model has used up what its plan or its provider allows for now.
    UsageLimit,
    /// The agent is not signed in to its model on the device.
    SignInRequired,
    LoopRefused,
}

/// Everything the rules need to know about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLifecycle {
    pub phase: RunPhase,
    /// Grows by one at every claim; a worker that holds an older one changes nothing.
    pub epoch: i64,
    /// How many claims were spent.
    pub attempt: i64,
    pub limits: RunLimits,
}

/// What the creator of a run asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    pub max_attempts: i64,
    /// How long one claim may execute.
    pub timeout: Duration,
    /// How long the run may wait to be claimed.
    pub queue_ttl: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunPhase {
    Pending { expires_at: Timestamp },
    Running(Claim),
    Ended { ending: RunEnd, outcome: OutcomeDigest },
}

/// A runtime's right to work on a run, for as long as it renews it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub runtime: RuntimeId,
    pub claimed_at: Timestamp,
    pub lease_until: Timestamp,
    pub waits: RunWaits,
    /// Something of the work was reported: it has begun, and can only end or be lost.
    pub begun: bool,
}

/// What a claimed run waits for, and how long it has waited. While it waits neither its time-out nor its lease runs: the
/// question has a deadline of its own, and a device that is away may come back for the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunWaits {
    /// Questions that a person has not answered yet.
    pub approvals: u32,
    pub inputs: u32,
    /// Since when it waits for this, or for nothing any more; `None`: it never waited.
    pub since: Option<Timestamp>,
    /// The time spent waiting before that.
    pub waited: Duration,
    /// How long the claim lives once the last question has its answer.
    pub lease: Duration,
}

/// Why a running run stands still. An approval hides a wait for input: it is the more urgent of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    Input,
    Approval,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    Completed,
    Failed,
    Cancelled,
}

/// Tells one outcome from another, so that a repeated report is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutcomeDigest(pub [u8; 16]);

/// Who reports. A runtime that only knows 002 sends no epoch and is fenced by its identity alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerRef {
    pub runtime: RuntimeId,
    pub epoch: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunCommand {
    Claim {
        runtime: RuntimeId,
        lease: Duration,
    },
    /// The worker reports progress, which also renews its lease.
    Progress {
        by: WorkerRef,
        lease: Duration,
    },
    /// The runtime's heartbeat names the run, or the runtime sends no list at all.
    Renew {
        runtime: RuntimeId,
        lease: Duration,
    },
    Complete {
        by: WorkerRef,
        outcome: OutcomeDigest,
    },
    Fail {
        by: WorkerRef,
        code: FailureCode,
        outcome: OutcomeDigest,
    },
    /// The worker hands the run back before it began; the attempt is not spent.
    Release {
        by: WorkerRef,
    },
    Cancel {
        outcome: OutcomeDigest,
    },
    /// The worker asks a person something, and the run waits for the answer.
    Ask {
        by: WorkerRef,
        what: WaitReason,
        lease: Duration,
    },
    /// One question has its answer, or nobody needs one any more.
    Answer {
        what: WaitReason,
    },
    /// A question found no answer in time, or a quota leaves no room, and that ends the run.
    Halt {
        code: FailureCode,
    },
    /// The worker does not know of its claim. If nothing was reported it cannot have heard of it and the attempt is not
    /// spent; otherwise the work is lost.
    Undelivered,
    /// The claim is gone: its runtime was superseded or revoked, or does not know of it any more.
    Lose,
    /// Time has passed.
    Tick,
}

/// What happened, as it appears in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifecycleEvent {
    Claimed,
    Requeued {
        reason: &'static str,
    },
    /// What the run waits for changed; `None`: it goes on.
    Waiting {
        waiting: Option<WaitReason>,
    },
    Completed,
    Failed {
        code: FailureCode,
    },
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunTransition {
    pub state: RunLifecycle,
    /// None when nothing happened that anybody needs to hear of.
    pub event: Option<LifecycleEvent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RunRefusal {
    #[error("the epoch is not the run's current one")]
    StaleEpoch,
    #[error("the run has ended")]
    Ended,
    #[error("the run is not claimed")]
    NotRunning,
    #[error("the run is not waiting to be claimed")]
    NotPending,
    #[error("the work on the run has begun")]
    Begun,
}

/// Applies one command. The caller commits the new state and the event together, or neither.
pub fn apply(state: &RunLifecycle, command: &RunCommand, now: Timestamp) -> Result<RunTransition, RunRefusal> {
    match command {
        RunCommand::Claim { runtime, lease } => claim(state, *runtime, *lease, now),
        RunCommand::Progress { by, lease } => {
            let claim = Claim { begun: true, ..held(state, *by)?.clone() };
            Ok(renewed(state, &claim, *lease, now))
        }
        RunCommand::Renew { runtime, lease } => {
            let claim = held(state, WorkerRef { runtime: *runtime, epoch: None })?;
            Ok(renewed(state, claim, *lease, now))
        }
        RunCommand::Complete { by, outcome } => {
            finish(state, *by, RunEnd::Completed, *outcome, LifecycleEvent::Completed)
        }
        RunCommand::Fail { by, code, outcome } => {
            finish(state, *by, RunEnd::Failed, *outcome, LifecycleEvent::Failed { code: *code })
        }
        RunCommand::Release { by } if held(state, *by)?.begun => Err(RunRefusal::Begun),
        RunCommand::Release { .. } => Ok(requeued(state, state.attempt - 1, "released", now)),
        RunCommand::Undelivered => match &state.phase {
            RunPhase::Running(claim) if claim.begun => Ok(lost(state, now)),
            RunPhase::Running(_) => Ok(requeued(state, state.attempt - 1, "undelivered", now)),
            RunPhase::Pending { .. } => Err(RunRefusal::NotRunning),
            RunPhase::Ended { .. } => Err(RunRefusal::Ended),
        },
        RunCommand::Cancel { outcome } => cancel(state, *outcome),
        RunCommand::Ask { by, what, lease } => {
            let claim = held(state, *by)?;
            let lease_until = claim.lease_until.max(now.plus(*lease));
            let renewed = Claim { lease_until, begun: true, ..claim.clone() };
            Ok(waiting(state, renewed, claim.waits.plus(*what, *lease, now), now))
        }
        RunCommand::Answer { what } => match &state.phase {
            RunPhase::Running(claim) => Ok(waiting(state, claim.clone(), claim.waits.minus(*what, now), now)),
            RunPhase::Pending { .. } => Err(RunRefusal::NotRunning),
            RunPhase::Ended { .. } => Err(RunRefusal::Ended),
        },
        RunCommand::Halt { code } => match &state.phase {
            RunPhase::Pending { .. } | RunPhase::Running(_) => Ok(failed(state, *code)),
            RunPhase::Ended { .. } => Err(RunRefusal::Ended),
        },
        RunCommand::Lose => match &state.phase {
            RunPhase::Running(_) => Ok(lost(state, now)),
            RunPhase::Pending { .. } => Err(RunRefusal::NotRunning),
            RunPhase::Ended { .. } => Err(RunRefusal::Ended),
        },
        RunCommand::Tick => Ok(tick(state, now)),
    }
}

/// When the run wants to be looked at again, if nothing else happens before.
pub fn next_deadline(state: &RunLifecycle) -> Option<Timestamp> {
    match &state.phase {
        RunPhase::Pending { expires_at } => Some(*expires_at),
        RunPhase::Running(claim) => times_out_at(state, claim).map(|at| at.min(claim.lease_until)),
        RunPhase::Ended { .. } => None,
    }
}

fn claim(
    state: &RunLifecycle,
    runtime: RuntimeId,
    lease: Duration,
    now: Timestamp,
) -> Result<RunTransition, RunRefusal> {
    match &state.phase {
        RunPhase::Pending { expires_at } if *expires_at > now => {
            let lease_until = now.plus(lease);
            let claim = Claim { runtime, claimed_at: now, lease_until, waits: RunWaits::default(), begun: false };
            let state = RunLifecycle {
                phase: RunPhase::Running(claim),
                epoch: state.epoch + 1,
                attempt: state.attempt + 1,
                limits: state.limits,
            };
            Ok(RunTransition { state, event: Some(LifecycleEvent::Claimed) })
        }
        RunPhase::Pending { .. } | RunPhase::Running(_) => Err(RunRefusal::NotPending),
        RunPhase::Ended { .. } => Err(RunRefusal::Ended),
    }
}

/// The claim that `by` holds.
fn held(state: &RunLifecycle, by: WorkerRef) -> Result<&Claim, RunRefusal> {
    if by.epoch.is_some_and(|epoch| epoch != state.epoch) {
        return Err(RunRefusal::StaleEpoch);
    }
    match (&state.phase, by.epoch) {
        (RunPhase::Running(claim), _) if claim.runtime == by.runtime => Ok(claim),
        (RunPhase::Running(_), _) | (RunPhase::Pending { .. }, Some(_)) => Err(RunRefusal::StaleEpoch),
        (RunPhase::Pending { .. }, None) => Err(RunRefusal::NotRunning),
        (RunPhase::Ended { .. }, _) => Err(RunRefusal::Ended),
    }
}

fn renewed(state: &RunLifecycle, claim: &Claim, lease: Duration, now: Timestamp) -> RunTransition {
    let lease_until = claim.lease_until.max(now.plus(lease));
    let claim = Claim { lease_until, ..claim.clone() };
    RunTransition { state: RunLifecycle { phase: RunPhase::Running(claim), ..state.clone() }, event: None }
}

fn waiting(state: &RunLifecycle, claim: Claim, waits: RunWaits, now: Timestamp) -> RunTransition {
    let (before, after) = (claim.waits.waiting(), waits.waiting());
    let event = (before != after).then_some(LifecycleEvent::Waiting { waiting: after });
    let lease_until = match (before, after) {
        (Some(_), None) => claim.lease_until.max(now.plus(waits.lease)),
        _ => claim.lease_until,
    };
    let phase = RunPhase::Running(Claim { waits, lease_until, ..claim });
    RunTransition { state: RunLifecycle { phase, ..state.clone() }, event }
}

fn finish(
    state: &RunLifecycle,
    by: WorkerRef,
    ending: RunEnd,
    outcome: OutcomeDigest,
    event: LifecycleEvent,
) -> Result<RunTransition, RunRefusal> {
    match held(state, by) {
        Ok(_) => Ok(ended(state, ending, outcome, event)),
        // The same report again: the first answer was lost on the way.
        Err(RunRefusal::Ended) if state.phase == (RunPhase::Ended { ending, outcome }) => {
            Ok(RunTransition { state: state.clone(), event: None })
        }
        Err(refusal) => Err(refusal),
    }
}

fn cancel(state: &RunLifecycle, outcome: OutcomeDigest) -> Result<RunTransition, RunRefusal> {
    match &state.phase {
        RunPhase::Pending { .. } | RunPhase::Running(_) => {
            Ok(ended(state, RunEnd::Cancelled, outcome, LifecycleEvent::Cancelled))
        }
        RunPhase::Ended { ending: RunEnd::Cancelled, .. } => Ok(RunTransition { state: state.clone(), event: None }),
        RunPhase::Ended { ending: RunEnd::Completed | RunEnd::Failed, .. } => Err(RunRefusal::Ended),
    }
}

fn lost(state: &RunLifecycle, now: Timestamp) -> RunTransition {
    if state.attempt < state.limits.max_attempts {
        requeued(state, state.attempt, "runtime_lost", now)
    } else {
        failed(state, FailureCode::RuntimeLost)
    }
}

fn tick(state: &RunLifecycle, now: Timestamp) -> RunTransition {
    match &state.phase {
        RunPhase::Pending { expires_at } if *expires_at <= now => failed(state, FailureCode::Expired),
        RunPhase::Running(claim) if times_out_at(state, claim).is_some_and(|at| at <= now) => {
            failed(state, FailureCode::TimedOut)
        }
        RunPhase::Running(claim) if claim.waits.waiting().is_none() && claim.lease_until <= now => lost(state, now),
        RunPhase::Pending { .. } | RunPhase::Running(_) | RunPhase::Ended { .. } => {
            RunTransition { state: state.clone(), event: None }
        }
    }
}

/// `None` while the run waits: the time-out counts only time that is not spent waiting.
fn times_out_at(state: &RunLifecycle, claim: &Claim) -> Option<Timestamp> {
    let waits = claim.waits;
    waits.waiting().is_none().then(|| claim.claimed_at.plus(state.limits.timeout).plus(waits.waited))
}

fn requeued(state: &RunLifecycle, attempt: i64, reason: &'static str, now: Timestamp) -> RunTransition {
    let phase = RunPhase::Pending { expires_at: now.plus(state.limits.queue_ttl) };
    RunTransition {
        state: RunLifecycle { phase, attempt, ..state.clone() },
        event: Some(LifecycleEvent::Requeued { reason }),
    }
}

/// A failure that the rules themselves decide; no worker can have reported its digest.
fn failed(state: &RunLifecycle, code: FailureCode) -> RunTransition {
    ended(state, RunEnd::Failed, OutcomeDigest([0; 16]), LifecycleEvent::Failed { code })
}

fn ended(state: &RunLifecycle, ending: RunEnd, outcome: OutcomeDigest, event: LifecycleEvent) -> RunTransition {
    RunTransition {
        state: RunLifecycle { phase: RunPhase::Ended { ending, outcome }, ..state.clone() },
        event: Some(event),
    }
}

// === impl RunLifecycle ===

impl RunLifecycle {
    pub fn created(limits: RunLimits, now: Timestamp) -> Self {
        Self { phase: RunPhase::Pending { expires_at: now.plus(limits.queue_ttl) }, epoch: 0, attempt: 0, limits }
    }

    pub fn status(&self) -> RunStatus {
        match self.phase {
            RunPhase::Pending { .. } => RunStatus::Pending,
            RunPhase::Running(_) => RunStatus::Running,
            RunPhase::Ended { ending: RunEnd::Completed, .. } => RunStatus::Completed,
            RunPhase::Ended { ending: RunEnd::Failed, .. } => RunStatus::Failed,
            RunPhase::Ended { ending: RunEnd::Cancelled, .. } => RunStatus::Cancelled,
        }
    }

    pub fn claim(&self) -> Option<&Claim> {
        match &self.phase {
            RunPhase::Running(claim) => Some(claim),
            RunPhase::Pending { .. } | RunPhase::Ended { .. } => None,
        }
    }

    pub fn waiting(&self) -> Option<WaitReason> {
        self.claim().and_then(|claim| claim.waits.waiting())
    }
}

// === impl RunWaits ===

impl RunWaits {
    pub const fn waiting(self) -> Option<WaitReason> {
        match self {
            Self { approvals: 1.., .. } => Some(WaitReason::Approval),
            Self { inputs: 1.., .. } => Some(WaitReason::Input),
            Self { .. } => None,
        }
    }

    fn plus(mut self, what: WaitReason, lease: Duration, now: Timestamp) -> Self {
        let before = self.waiting();
        let count = self.count(what);
        *count = count.saturating_add(1);
        self.lease = lease;
        self.turned(before, now)
    }

    fn minus(mut self, what: WaitReason, now: Timestamp) -> Self {
        let before = self.waiting();
        let count = self.count(what);
        *count = count.saturating_sub(1);
        self.turned(before, now)
    }

    fn turned(mut self, before: Option<WaitReason>, now: Timestamp) -> Self {
        if self.waiting() != before {
            if let (Some(_), Some(since)) = (before, self.since) {
                self.waited += now.since(since);
            }
            self.since = Some(now);
        }
        self
    }

    const fn count(&mut self, what: WaitReason) -> &mut u32 {
        match what {
            WaitReason::Approval => &mut self.approvals,
            WaitReason::Input => &mut self.inputs,
        }
    }
}

// === impl WaitReason ===

impl WaitReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Approval => "approval",
        }
    }
}

// === impl RunStatus ===

impl RunStatus {
    pub const ALL: [Self; 5] = [Self::Pending, Self::Running, Self::Completed, Self::Failed, Self::Cancelled];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

// === impl FailureCode ===

impl FailureCode {
    pub const ALL: [Self; 15] = [
        Self::TaskFailed,
        Self::RuntimeLost,
        Self::TimedOut,
        Self::Expired,
        Self::Rejected,
        Self::Refused,
        Self::QuotaExceeded,
        Self::PermissionDenied,
        Self::AdapterUnreachable,
        Self::AdapterInvalidReply,
        Self::HostCrashed,
        Self::ModelUnreachable,
        Self::UsageLimit,
        Self::SignInRequired,
        Self::LoopRefused,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TaskFailed => "task_failed",
            Self::RuntimeLost => "runtime_lost",
            Self::TimedOut => "timed_out",
            Self::Expired => "expired",
            Self::Rejected => "rejected",
            Self::Refused => "refused",
            Self::QuotaExceeded => "quota_exceeded",
            Self::PermissionDenied => "permission_denied",
            Self::AdapterUnreachable => "adapter_unreachable",
            Self::AdapterInvalidReply => "adapter_invalid_reply",
            Self::HostCrashed => "host_crashed",
            Self::ModelUnreachable => "model_unreachable",
            Self::UsageLimit => "usage_limit",
            Self::SignInRequired => "sign_in_required",
            Self::LoopRefused => "loop_refused",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == text)
    }

    /// What a person reads when the rules, and not a worker, end the run.
    pub const fn message(self) -> &'static str {
        match self {
            Self::RuntimeLost => "The device that worked on this run went away before it reported a result.",
            Self::TimedOut => "The run took longer than its time-out.",
            Self::Expired => "No device claimed the run before it expired.",
            Self::TaskFailed
            | Self::Rejected
            | Self::Refused
            | Self::QuotaExceeded
            | Self::PermissionDenied
            | Self::AdapterUnreachable
            | Self::AdapterInvalidReply
            | Self::HostCrashed
            | Self::ModelUnreachable
            | Self::UsageLimit
            | Self::SignInRequired
            | Self::LoopRefused => "The run failed.",
        }
    }
}

// === impl LifecycleEvent ===

impl LifecycleEvent {
    pub const fn kind(self) -> EventKind {
        match self {
            Self::Claimed => EventKind::TaskClaimed,
            Self::Requeued { .. } => EventKind::TaskRequeued,
            Self::Waiting { .. } => EventKind::TaskWaiting,
            Self::Completed => EventKind::TaskCompleted,
            Self::Failed { .. } => EventKind::TaskFailed,
            Self::Cancelled => EventKind::TaskCancelled,
        }
    }
}

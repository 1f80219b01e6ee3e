//! The lifecycle of a run: `pending → running → completed | failed | cancelled`, fenced by epochs and bounded by
//! deadlines. A running run that reaches a usage limit may be deferred: it is pending, but nobody can claim it yet.

use crate::text_enum;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{EventKind, id::RuntimeId, time::Timestamp};

text_enum! {
    /// A run's public status.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum RunStatus {
        Pending = "pending",
        Running = "running",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

text_enum! {
    /// The closed list of failure codes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum FailureCode {
        TaskFailed = "task_failed",
        RuntimeLost = "runtime_lost",
        TimedOut = "timed_out",
        Expired = "expired",
        Rejected = "rejected",
        Refused = "refused",
        QuotaExceeded = "quota_exceeded",
        PermissionDenied = "permission_denied",
        AdapterUnreachable = "adapter_unreachable",
        AdapterInvalidReply = "adapter_invalid_reply",
        HostCrashed = "host_crashed",
        ModelUnreachable = "model_unreachable",
        /// The agent's model account has reached a limit of its plan or provider.
        UsageLimit = "usage_limit",
        /// The agent isn't signed in to its model on the device.
        SignInRequired = "sign_in_required",
        LoopRefused = "loop_refused",
    }
}

/// Everything the rules need to know about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLifecycle {
    pub phase: RunPhase,
    /// Increases with every claim. A worker with an older epoch can't change anything.
    pub epoch: i64,
    /// How many attempts were used.
    pub attempt: i64,
    pub limits: RunLimits,
}

/// Limits set by the run's creator.
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
    Pending {
        expires_at: Timestamp,
    },
    /// Its agent's account has reached a usage limit. The run returns to the queue when the limit resets.
    Deferred {
        since: Timestamp,
        until: Timestamp,
    },
    Running(Claim),
    Ended {
        ending: RunEnd,
        outcome: OutcomeDigest,
    },
}

/// A runtime's right to work on a run, for as long as it renews it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub runtime: RuntimeId,
    pub claimed_at: Timestamp,
    pub lease_until: Timestamp,
    pub waits: RunWaits,
    /// Some work was reported: the run can only end or be lost.
    pub begun: bool,
}

/// What a claimed run waits for, and how long it has waited. Waiting pauses its timeout and its lease: the question has
/// its own deadline, and an offline device may come back for the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunWaits {
    /// Pending approval requests.
    pub approvals: u32,
    pub inputs: u32,
    /// Since when it waits for this, or has stopped waiting. `None`: it never waited.
    pub since: Option<Timestamp>,
    /// The time spent waiting before that.
    pub waited: Duration,
    /// How long the claim lives once the last question is answered.
    pub lease: Duration,
}

text_enum! {
    /// Why a running run is paused. An approval takes precedence over input, because it is more urgent.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum WaitReason {
        Input = "input",
        Approval = "approval",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    Completed,
    Failed,
    Cancelled,
}

/// Distinguishes outcomes, so that a repeated report is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutcomeDigest(pub [u8; 16]);

/// The reporting worker. A runtime that only supports 002 sends no epoch and is fenced by its identity alone.
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
    /// The runtime's heartbeat lists the run, or the runtime sends no list at all.
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
    /// The worker's account has reached a usage limit, and the run waits until it resets. No attempt is used.
    Defer {
        by: WorkerRef,
        until: Timestamp,
    },
    /// The worker releases the run before it started work. No attempt is used.
    Release {
        by: WorkerRef,
    },
    Cancel {
        outcome: OutcomeDigest,
    },
    /// The worker asks a person, and the run waits for the answer.
    Ask {
        by: WorkerRef,
        what: WaitReason,
        lease: Duration,
    },
    /// A question was answered, or no longer needs an answer.
    Answer {
        what: WaitReason,
    },
    /// A question expired or a quota is used up, which ends the run.
    Halt {
        code: FailureCode,
    },
    /// The worker does not know its claim. If nothing was reported, it never received it and no attempt is used.
    /// Otherwise the work is lost.
    Undelivered,
    /// The claim is gone: its runtime was superseded or revoked, or no longer knows it.
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
    Deferred {
        until: Timestamp,
    },
    /// What the run waits for changed. `None`: it continues.
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
    /// `None` if nothing notable happened.
    pub event: Option<LifecycleEvent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RunRefusal {
    #[error("the epoch is not current")]
    StaleEpoch,
    #[error("the run has ended")]
    Ended,
    #[error("the run is not claimed")]
    NotRunning,
    #[error("the run is not waiting to be claimed")]
    NotPending,
    #[error("work on the run has already started")]
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
        RunCommand::Defer { by, until } => {
            held(state, *by)?;
            let phase = RunPhase::Deferred { since: now, until: *until };
            let state = RunLifecycle { phase, attempt: state.attempt - 1, ..state.clone() };
            Ok(RunTransition { state, event: Some(LifecycleEvent::Deferred { until: *until }) })
        }
        RunCommand::Release { by } if held(state, *by)?.begun => Err(RunRefusal::Begun),
        RunCommand::Release { .. } => Ok(requeued(state, state.attempt - 1, "released", now)),
        RunCommand::Undelivered => match &state.phase {
            RunPhase::Running(claim) if claim.begun => Ok(lost(state, now)),
            RunPhase::Running(_) => Ok(requeued(state, state.attempt - 1, "undelivered", now)),
            RunPhase::Pending { .. } | RunPhase::Deferred { .. } => Err(RunRefusal::NotRunning),
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
            RunPhase::Pending { .. } | RunPhase::Deferred { .. } => Err(RunRefusal::NotRunning),
            RunPhase::Ended { .. } => Err(RunRefusal::Ended),
        },
        RunCommand::Halt { code } => match &state.phase {
            RunPhase::Pending { .. } | RunPhase::Deferred { .. } | RunPhase::Running(_) => Ok(failed(state, *code)),
            RunPhase::Ended { .. } => Err(RunRefusal::Ended),
        },
        RunCommand::Lose => match &state.phase {
            RunPhase::Running(_) => Ok(lost(state, now)),
            RunPhase::Pending { .. } | RunPhase::Deferred { .. } => Err(RunRefusal::NotRunning),
            RunPhase::Ended { .. } => Err(RunRefusal::Ended),
        },
        RunCommand::Tick => Ok(tick(state, now)),
    }
}

/// When the run must be checked again if nothing else happens first.
pub fn next_deadline(state: &RunLifecycle) -> Option<Timestamp> {
    match &state.phase {
        RunPhase::Pending { expires_at } => Some(*expires_at),
        RunPhase::Deferred { until, .. } => Some(*until),
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
        RunPhase::Pending { .. } | RunPhase::Deferred { .. } | RunPhase::Running(_) => Err(RunRefusal::NotPending),
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
        (RunPhase::Running(_), _) | (RunPhase::Pending { .. } | RunPhase::Deferred { .. }, Some(_)) => {
            Err(RunRefusal::StaleEpoch)
        }
        (RunPhase::Pending { .. } | RunPhase::Deferred { .. }, None) => Err(RunRefusal::NotRunning),
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
        // A repeated report: the first response was lost.
        Err(RunRefusal::Ended) if state.phase == (RunPhase::Ended { ending, outcome }) => {
            Ok(RunTransition { state: state.clone(), event: None })
        }
        Err(refusal) => Err(refusal),
    }
}

fn cancel(state: &RunLifecycle, outcome: OutcomeDigest) -> Result<RunTransition, RunRefusal> {
    match &state.phase {
        RunPhase::Pending { .. } | RunPhase::Deferred { .. } | RunPhase::Running(_) => {
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
        RunPhase::Deferred { until, .. } if *until <= now => requeued(state, state.attempt, "usage_limit_reset", now),
        RunPhase::Running(claim) if times_out_at(state, claim).is_some_and(|at| at <= now) => {
            failed(state, FailureCode::TimedOut)
        }
        RunPhase::Running(claim) if claim.waits.waiting().is_none() && claim.lease_until <= now => lost(state, now),
        RunPhase::Pending { .. } | RunPhase::Deferred { .. } | RunPhase::Running(_) | RunPhase::Ended { .. } => {
            RunTransition { state: state.clone(), event: None }
        }
    }
}

/// `None` while the run waits: waiting time doesn't count towards the timeout.
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

/// A failure decided by the rules themselves. No worker can have reported its digest.
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
            RunPhase::Pending { .. } | RunPhase::Deferred { .. } => RunStatus::Pending,
            RunPhase::Running(_) => RunStatus::Running,
            RunPhase::Ended { ending: RunEnd::Completed, .. } => RunStatus::Completed,
            RunPhase::Ended { ending: RunEnd::Failed, .. } => RunStatus::Failed,
            RunPhase::Ended { ending: RunEnd::Cancelled, .. } => RunStatus::Cancelled,
        }
    }

    pub fn claim(&self) -> Option<&Claim> {
        match &self.phase {
            RunPhase::Running(claim) => Some(claim),
            RunPhase::Pending { .. } | RunPhase::Deferred { .. } | RunPhase::Ended { .. } => None,
        }
    }

    /// Until when it waits for a usage limit to reset.
    pub const fn deferred_until(&self) -> Option<Timestamp> {
        match self.phase {
            RunPhase::Deferred { until, .. } => Some(until),
            RunPhase::Pending { .. } | RunPhase::Running(_) | RunPhase::Ended { .. } => None,
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

    /// How long it has waited for anything so far.
    pub fn total(self, now: Timestamp) -> Duration {
        let current = self.waiting().and(self.since).map_or(Duration::ZERO, |since| now.since(since));
        self.waited + current
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

// === impl RunStatus ===

impl RunStatus {
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

// === impl FailureCode ===

impl FailureCode {
    /// The message when the rules, not a worker, end the run.
    pub const fn message(self) -> &'static str {
        match self {
            Self::RuntimeLost => "The device working on this run disconnected before it reported a result.",
            Self::TimedOut => "The run exceeded its timeout.",
            Self::Expired => "No device claimed the run before it expired.",
            Self::PermissionDenied => "An approval request was not answered in time.",
            Self::TaskFailed
            | Self::Rejected
            | Self::Refused
            | Self::QuotaExceeded
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
            Self::Deferred { .. } => EventKind::TaskDeferred,
            Self::Waiting { .. } => EventKind::TaskWaiting,
            Self::Completed => EventKind::TaskCompleted,
            Self::Failed { .. } => EventKind::TaskFailed,
            Self::Cancelled => EventKind::TaskCancelled,
        }
    }
}

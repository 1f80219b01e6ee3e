//! The life of a run: `pending → running → completed | failed | cancelled`, fenced by epochs and bounded by deadlines.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{EventKind, id::RuntimeId, time::Timestamp};

/// What the world sees of a run's progress through its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
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
pub struct State {
    pub phase: Phase,
    /// Grows by one at every claim; a worker that holds an older one changes nothing.
    pub epoch: i64,
    /// How many claims were spent.
    pub attempt: i64,
    pub limits: Limits,
}

/// What the creator of a run asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub max_attempts: i64,
    /// How long one claim may execute.
    pub timeout: Duration,
    /// How long the run may wait to be claimed.
    pub queue_ttl: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    Pending { expires_at: Timestamp },
    Running(Claim),
    Ended { ending: Ending, outcome: Digest },
}

/// A runtime's right to work on a run, for as long as it renews it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub runtime: RuntimeId,
    pub claimed_at: Timestamp,
    pub lease_until: Timestamp,
    pub waits: Waits,
    /// Something of the work was reported: it has begun, and can only end or be lost.
    pub begun: bool,
}

/// What a claimed run waits for, and how long it has waited. While it waits neither its time-out nor its lease runs: the
/// question has a deadline of its own, and a device that is away may come back for the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
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
pub enum Waiting {
    Input,
    Approval,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Completed,
    Failed,
    Cancelled,
}

/// Tells one outcome from another, so that a repeated report is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest(pub [u8; 16]);

/// Who reports. A runtime that only knows 002 sends no epoch and is fenced by its identity alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker {
    pub runtime: RuntimeId,
    pub epoch: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Claim {
        runtime: RuntimeId,
        lease: Duration,
    },
    /// The worker reports progress, which also renews its lease.
    Progress {
        by: Worker,
        lease: Duration,
    },
    /// The runtime's heartbeat names the run, or the runtime sends no list at all.
    Renew {
        runtime: RuntimeId,
        lease: Duration,
    },
    Complete {
        by: Worker,
        outcome: Digest,
    },
    Fail {
        by: Worker,
        code: FailureCode,
        outcome: Digest,
    },
    /// The worker hands the run back before it began; the attempt is not spent.
    Release {
        by: Worker,
    },
    Cancel {
        outcome: Digest,
    },
    /// The worker asks a person something, and the run waits for the answer.
    Ask {
        by: Worker,
        what: Waiting,
        lease: Duration,
    },
    /// One question has its answer, or nobody needs one any more.
    Answer {
        what: Waiting,
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
pub enum Event {
    Claimed,
    Requeued {
        reason: &'static str,
    },
    /// What the run waits for changed; `None`: it goes on.
    Waiting {
        waiting: Option<Waiting>,
    },
    Completed,
    Failed {
        code: FailureCode,
    },
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    pub state: State,
    /// None when nothing happened that anybody needs to hear of.
    pub event: Option<Event>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
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
pub fn apply(state: &State, command: &Command, now: Timestamp) -> Result<Transition, Refusal> {
    match command {
        Command::Claim { runtime, lease } => claim(state, *runtime, *lease, now),
        Command::Progress { by, lease } => {
            let claim = Claim { begun: true, ..held(state, *by)?.clone() };
            Ok(renewed(state, &claim, *lease, now))
        }
        Command::Renew { runtime, lease } => {
            let claim = held(state, Worker { runtime: *runtime, epoch: None })?;
            Ok(renewed(state, claim, *lease, now))
        }
        Command::Complete { by, outcome } => finish(state, *by, Ending::Completed, *outcome, Event::Completed),
        Command::Fail { by, code, outcome } => {
            finish(state, *by, Ending::Failed, *outcome, Event::Failed { code: *code })
        }
        Command::Release { by } if held(state, *by)?.begun => Err(Refusal::Begun),
        Command::Release { .. } => Ok(requeued(state, state.attempt - 1, "released", now)),
        Command::Undelivered => match &state.phase {
            Phase::Running(claim) if claim.begun => Ok(lost(state, now)),
            Phase::Running(_) => Ok(requeued(state, state.attempt - 1, "undelivered", now)),
            Phase::Pending { .. } => Err(Refusal::NotRunning),
            Phase::Ended { .. } => Err(Refusal::Ended),
        },
        Command::Cancel { outcome } => cancel(state, *outcome),
        Command::Ask { by, what, lease } => {
            let claim = held(state, *by)?;
            let lease_until = claim.lease_until.max(now.plus(*lease));
            let renewed = Claim { lease_until, begun: true, ..claim.clone() };
            Ok(waiting(state, renewed, claim.waits.plus(*what, *lease, now), now))
        }
        Command::Answer { what } => match &state.phase {
            Phase::Running(claim) => Ok(waiting(state, claim.clone(), claim.waits.minus(*what, now), now)),
            Phase::Pending { .. } => Err(Refusal::NotRunning),
            Phase::Ended { .. } => Err(Refusal::Ended),
        },
        Command::Halt { code } => match &state.phase {
            Phase::Pending { .. } | Phase::Running(_) => Ok(failed(state, *code)),
            Phase::Ended { .. } => Err(Refusal::Ended),
        },
        Command::Lose => match &state.phase {
            Phase::Running(_) => Ok(lost(state, now)),
            Phase::Pending { .. } => Err(Refusal::NotRunning),
            Phase::Ended { .. } => Err(Refusal::Ended),
        },
        Command::Tick => Ok(tick(state, now)),
    }
}

/// When the run wants to be looked at again, if nothing else happens before.
pub fn next_deadline(state: &State) -> Option<Timestamp> {
    match &state.phase {
        Phase::Pending { expires_at } => Some(*expires_at),
        Phase::Running(claim) => times_out_at(state, claim).map(|at| at.min(claim.lease_until)),
        Phase::Ended { .. } => None,
    }
}

fn claim(state: &State, runtime: RuntimeId, lease: Duration, now: Timestamp) -> Result<Transition, Refusal> {
    match &state.phase {
        Phase::Pending { expires_at } if *expires_at > now => {
            let lease_until = now.plus(lease);
            let claim = Claim { runtime, claimed_at: now, lease_until, waits: Waits::default(), begun: false };
            let state = State {
                phase: Phase::Running(claim),
                epoch: state.epoch + 1,
                attempt: state.attempt + 1,
                limits: state.limits,
            };
            Ok(Transition { state, event: Some(Event::Claimed) })
        }
        Phase::Pending { .. } | Phase::Running(_) => Err(Refusal::NotPending),
        Phase::Ended { .. } => Err(Refusal::Ended),
    }
}

/// The claim that `by` holds.
fn held(state: &State, by: Worker) -> Result<&Claim, Refusal> {
    if by.epoch.is_some_and(|epoch| epoch != state.epoch) {
        return Err(Refusal::StaleEpoch);
    }
    match (&state.phase, by.epoch) {
        (Phase::Running(claim), _) if claim.runtime == by.runtime => Ok(claim),
        (Phase::Running(_), _) | (Phase::Pending { .. }, Some(_)) => Err(Refusal::StaleEpoch),
        (Phase::Pending { .. }, None) => Err(Refusal::NotRunning),
        (Phase::Ended { .. }, _) => Err(Refusal::Ended),
    }
}

fn renewed(state: &State, claim: &Claim, lease: Duration, now: Timestamp) -> Transition {
    let lease_until = claim.lease_until.max(now.plus(lease));
    let claim = Claim { lease_until, ..claim.clone() };
    Transition { state: State { phase: Phase::Running(claim), ..state.clone() }, event: None }
}

fn waiting(state: &State, claim: Claim, waits: Waits, now: Timestamp) -> Transition {
    let (before, after) = (claim.waits.waiting(), waits.waiting());
    let event = (before != after).then_some(Event::Waiting { waiting: after });
    let lease_until = match (before, after) {
        (Some(_), None) => claim.lease_until.max(now.plus(waits.lease)),
        _ => claim.lease_until,
    };
    let phase = Phase::Running(Claim { waits, lease_until, ..claim });
    Transition { state: State { phase, ..state.clone() }, event }
}

fn finish(state: &State, by: Worker, ending: Ending, outcome: Digest, event: Event) -> Result<Transition, Refusal> {
    match held(state, by) {
        Ok(_) => Ok(ended(state, ending, outcome, event)),
        // The same report again: the first answer was lost on the way.
        Err(Refusal::Ended) if state.phase == (Phase::Ended { ending, outcome }) => {
            Ok(Transition { state: state.clone(), event: None })
        }
        Err(refusal) => Err(refusal),
    }
}

fn cancel(state: &State, outcome: Digest) -> Result<Transition, Refusal> {
    match &state.phase {
        Phase::Pending { .. } | Phase::Running(_) => Ok(ended(state, Ending::Cancelled, outcome, Event::Cancelled)),
        Phase::Ended { ending: Ending::Cancelled, .. } => Ok(Transition { state: state.clone(), event: None }),
        Phase::Ended { ending: Ending::Completed | Ending::Failed, .. } => Err(Refusal::Ended),
    }
}

fn lost(state: &State, now: Timestamp) -> Transition {
    if state.attempt < state.limits.max_attempts {
        requeued(state, state.attempt, "runtime_lost", now)
    } else {
        failed(state, FailureCode::RuntimeLost)
    }
}

fn tick(state: &State, now: Timestamp) -> Transition {
    match &state.phase {
        Phase::Pending { expires_at } if *expires_at <= now => failed(state, FailureCode::Expired),
        Phase::Running(claim) if times_out_at(state, claim).is_some_and(|at| at <= now) => {
            failed(state, FailureCode::TimedOut)
        }
        Phase::Running(claim) if claim.waits.waiting().is_none() && claim.lease_until <= now => lost(state, now),
        Phase::Pending { .. } | Phase::Running(_) | Phase::Ended { .. } => {
            Transition { state: state.clone(), event: None }
        }
    }
}

/// `None` while the run waits: the time-out counts only time that is not spent waiting.
fn times_out_at(state: &State, claim: &Claim) -> Option<Timestamp> {
    let waits = claim.waits;
    waits.waiting().is_none().then(|| claim.claimed_at.plus(state.limits.timeout).plus(waits.waited))
}

fn requeued(state: &State, attempt: i64, reason: &'static str, now: Timestamp) -> Transition {
    let phase = Phase::Pending { expires_at: now.plus(state.limits.queue_ttl) };
    Transition { state: State { phase, attempt, ..state.clone() }, event: Some(Event::Requeued { reason }) }
}

/// A failure that the rules themselves decide; no worker can have reported its digest.
fn failed(state: &State, code: FailureCode) -> Transition {
    ended(state, Ending::Failed, Digest([0; 16]), Event::Failed { code })
}

fn ended(state: &State, ending: Ending, outcome: Digest, event: Event) -> Transition {
    Transition { state: State { phase: Phase::Ended { ending, outcome }, ..state.clone() }, event: Some(event) }
}

// === impl State ===

impl State {
    pub fn created(limits: Limits, now: Timestamp) -> Self {
        Self { phase: Phase::Pending { expires_at: now.plus(limits.queue_ttl) }, epoch: 0, attempt: 0, limits }
    }

    pub fn status(&self) -> Status {
        match self.phase {
            Phase::Pending { .. } => Status::Pending,
            Phase::Running(_) => Status::Running,
            Phase::Ended { ending: Ending::Completed, .. } => Status::Completed,
            Phase::Ended { ending: Ending::Failed, .. } => Status::Failed,
            Phase::Ended { ending: Ending::Cancelled, .. } => Status::Cancelled,
        }
    }

    pub fn claim(&self) -> Option<&Claim> {
        match &self.phase {
            Phase::Running(claim) => Some(claim),
            Phase::Pending { .. } | Phase::Ended { .. } => None,
        }
    }

    pub fn waiting(&self) -> Option<Waiting> {
        self.claim().and_then(|claim| claim.waits.waiting())
    }
}

// === impl Waits ===

impl Waits {
    pub const fn waiting(self) -> Option<Waiting> {
        match self {
            Self { approvals: 1.., .. } => Some(Waiting::Approval),
            Self { inputs: 1.., .. } => Some(Waiting::Input),
            Self { .. } => None,
        }
    }

    fn plus(mut self, what: Waiting, lease: Duration, now: Timestamp) -> Self {
        let before = self.waiting();
        let count = self.count(what);
        *count = count.saturating_add(1);
        self.lease = lease;
        self.turned(before, now)
    }

    fn minus(mut self, what: Waiting, now: Timestamp) -> Self {
        let before = self.waiting();
        let count = self.count(what);
        *count = count.saturating_sub(1);
        self.turned(before, now)
    }

    fn turned(mut self, before: Option<Waiting>, now: Timestamp) -> Self {
        if self.waiting() != before {
            if let (Some(_), Some(since)) = (before, self.since) {
                self.waited += now.since(since);
            }
            self.since = Some(now);
        }
        self
    }

    const fn count(&mut self, what: Waiting) -> &mut u32 {
        match what {
            Waiting::Approval => &mut self.approvals,
            Waiting::Input => &mut self.inputs,
        }
    }
}

// === impl Waiting ===

impl Waiting {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Approval => "approval",
        }
    }
}

// === impl Status ===

impl Status {
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

// === impl Event ===

impl Event {
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

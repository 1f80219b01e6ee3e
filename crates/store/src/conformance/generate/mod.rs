//! Generates steps from a seed. It knows what exists, so most steps are meaningful, and some are wrong on purpose.

mod accounts;
mod channels;
#[cfg(test)]
mod coverage;
mod delegations;
mod kinds;
mod nodes;
mod notifications;
mod outside_agents;
mod pushes;
mod quotas;
mod reads;
mod runs;
mod shared_values;
mod users;
mod worker_requests;
mod worktrees;

use std::time::Duration;

use attache_protocol::{
    AgentId, RuntimeId, TenantId, Timestamp,
    rules::run::{RunStatus, next_deadline},
    wire::runtime::RuntimeState,
};

use self::kinds::{CHANNELS, FOUNDATION, Kind, OUTSIDE, PEOPLE, SUBSCRIBERS};
use super::{
    generator_state::{GeneratorState, SILENCE_TIMEOUT, TimeBoundary},
    random::RandomSource,
    step::StoreStep,
    step_result::StepResult,
};
use crate::{
    MAX_NOTIFICATION_TARGETS, MAX_PUSH_CONFIGS, Store, WriteContext,
    memory::MemoryStore,
    record::{Pagination, RunFilter, RunRecord},
};

const HOUR: u64 = 60 * 60 * 1000;
const DAY: u64 = 24 * HOUR;
/// Long enough for a lease or a short queue to expire, short enough for the rest to survive.
const SOON: Duration = Duration::from_secs(5 * 60);

/// Makes the steps of one sequence.
#[derive(Debug)]
pub(super) struct StepGenerator {
    draw: RandomSource,
    /// The tenant of the sequence.
    tenant: TenantId,
    /// Another tenant. In half of the sequences it doesn't exist.
    foreign: TenantId,
    /// Frequencies of the kinds of steps: some sequences are about channels and questions, others about people.
    weights: &'static [(u64, Kind)],
    /// The next kinds, last one first; drawn when empty. Most sequences start by creating something to work with.
    planned: Vec<Kind>,
    known: GeneratorState,
}

/// Known ones, and texts of which this build knows nothing.
const ACTORS: [&str; 4] = ["key:owner", "key:key_00000000000000000000000000000001", "system", "user:日本"];

// === impl StepGenerator ===

impl StepGenerator {
    pub(super) fn new(seed: u64) -> Self {
        let draw = RandomSource::new(seed);
        let (tenant, foreign) = (draw.env.tenant_id(), draw.env.tenant_id());
        let mut planned = Vec::new();
        if draw.percent(97) {
            planned.push(Kind::EnsureTenant);
        }
        if draw.percent(50) {
            planned.push(Kind::CreateTenant);
        }
        if draw.percent(90) {
            planned.extend([Kind::CreateAccount, Kind::Pair, Kind::CreateRun]);
        }
        let weights = match draw.below(100) {
            0..36 => CHANNELS.as_slice(),
            36..60 => PEOPLE.as_slice(),
            60..74 => SUBSCRIBERS.as_slice(),
            74..86 => OUTSIDE.as_slice(),
            _ => FOUNDATION.as_slice(),
        };
        if weights.len() == SUBSCRIBERS.len() && draw.percent(15) {
            planned.extend([Kind::FillPushes; MAX_PUSH_CONFIGS + 1]);
        }
        if weights.len() == SUBSCRIBERS.len() && draw.percent(15) {
            planned.extend([Kind::FillTargets; MAX_NOTIFICATION_TARGETS + 1]);
        }
        if weights.len() == CHANNELS.len() && draw.percent(20) {
            planned.extend([Kind::Node; 8]);
        }
        if weights.len() == PEOPLE.len() && draw.percent(20) {
            planned.extend([Kind::SharedValue; 8]);
        }
        planned.reverse();
        Self { draw, tenant, foreign, weights, planned, known: GeneratorState::default() }
    }

    /// Whether the sequence lists runs as A2A does.
    fn lists_tasks(&self) -> bool {
        self.weights.len() == SUBSCRIBERS.len()
    }

    /// The current time of the sequence.
    fn now(&self) -> Timestamp {
        self.draw.env.now()
    }

    /// The last step of a sequence: nothing may be overdue afterwards.
    pub(super) fn last(&self) -> StoreStep {
        StoreStep::Sweep { silence: SILENCE_TIMEOUT, at: self.now() }
    }

    /// The next step. Consults the model for sensible arguments, such as the current epoch of a run.
    pub(super) async fn next(&mut self, model: &MemoryStore) -> StoreStep {
        self.pass_time(model).await;
        let kind = self.planned.pop().unwrap_or_else(|| self.kind());
        match self.sensible(kind, model).await {
            Kind::Crash => StoreStep::Crash,
            Kind::EnsureTenant => self.ensure_tenant(),
            Kind::CreateTenant => self.create_tenant(),
            Kind::CreateAccount => self.create_account(),
            Kind::UpdateAccount => self.update_account(),
            Kind::ArchiveAccount => self.archive_account(),
            Kind::CreatePairingCode => self.create_pairing_code(),
            Kind::RequestPairing => self.request_pairing(),
            Kind::ReadPairing => self.read_pairing(),
            Kind::DecidePairing => self.decide_pairing(),
            Kind::AttachRuntime => self.attach_runtime(),
            Kind::Pair => self.pair(),
            Kind::RevokeRuntime => self.revoke_runtime(model).await,
            Kind::Heartbeat => self.heartbeat(model).await,
            Kind::ChangeToken => self.change_token(model).await,
            Kind::Leave => StoreStep::Leave(self.some_runtime(model).await, self.at()),
            Kind::CreateKey => self.create_key(),
            Kind::RevokeKey => self.revoke_key(),
            Kind::RecordEvent => self.record_event(),
            Kind::CreateRun => self.create_run(model).await,
            Kind::Claim => self.claim(model).await,
            Kind::Progress => self.progress(model).await,
            Kind::Finish => self.finish(model).await,
            Kind::Cancel => self.cancel(model).await,
            Kind::Release => self.release(model).await,
            Kind::Sweep => self.sweep(),
            Kind::Retain => self.retain(),
            Kind::DeleteRun => self.delete_run(model).await,
            Kind::DeleteConversation => self.delete_conversation(),
            Kind::AdvanceClock => self.advance_clock(),
            Kind::CreateConversation => self.create_conversation(),
            Kind::AddMessage => self.add_message(),
            Kind::AddArtifact => self.add_artifact(model).await,
            Kind::ReadOne => self.read_one(),
            Kind::ReadEvents => self.read_events(),
            Kind::ReadLog => self.read_log(),
            Kind::List => self.list(),
            Kind::WrongCursor => self.wrong_cursor(),
            Kind::OpenChannel => self.open_channel(model).await,
            Kind::ResumeChannel => self.resume_channel(model).await,
            Kind::CloseChannel => self.close_channel(model).await,
            Kind::CloseChannels => self.close_channels(),
            Kind::SeenChannels => self.seen_channels(),
            Kind::ChannelMessage => self.channel_message(),
            Kind::ReadFrames => self.read_frames(),
            Kind::Acknowledge => self.acknowledge(model).await,
            Kind::PushEvents => self.push_events(),
            Kind::ReadChannel => self.read_channel(),
            Kind::RequestPermission => self.request_permission(model).await,
            Kind::DecidePermission => self.decide_permission(model).await,
            Kind::RevokeGrant => self.revoke_grant(),
            Kind::Ask => self.ask(model).await,
            Kind::WithdrawAsk => self.withdraw_ask(model).await,
            Kind::AnswerTool => self.answer_tool(model).await,
            Kind::AddInput => self.add_input(model).await,
            Kind::ReadQuestion => self.read_question(),
            Kind::CreateUser => self.create_user(),
            Kind::UpdateUser => self.update_user(),
            Kind::RemoveUser => self.remove_user(),
            Kind::SetRules => self.set_rules(),
            Kind::ReadPeople => self.read_people(),
            Kind::SetQuota => self.set_quota(),
            Kind::RemoveQuota => self.remove_quota(),
            Kind::ReadSpending => self.read_spending(),
            Kind::RecordAttempt => self.record_attempt(model).await,
            Kind::Resend => self.resend(model).await,
            Kind::Node => self.node(model).await,
            Kind::SharedValue => self.shared_value(),
            Kind::Passkey => self.passkey(),
            Kind::ReadDeliveries => self.read_deliveries(model).await,
            Kind::SetPush => self.set_push(model).await,
            Kind::FillPushes => self.fill_pushes(),
            Kind::RemovePush => self.remove_push(),
            Kind::ReadPush => self.read_push(),
            Kind::ListTasks => self.list_tasks(),
            Kind::SetTarget => self.set_target(),
            Kind::FillTargets => self.fill_targets(),
            Kind::UpdateTarget => self.update_target(),
            Kind::RemoveTarget => self.remove_target(),
            Kind::ReadTargets => self.read_targets(),
            Kind::AddNotifications => self.add_notifications(),
            Kind::Worktree => self.worktree(model).await,
            Kind::AttachHub => self.attach_hub(),
            Kind::SetPeer => self.set_peer(),
            Kind::PeerCard => self.peer_card(model).await,
            Kind::BeginPeerTask => self.begin_peer_task(model).await,
            Kind::LinkPeerTask => self.link_peer_task(model).await,
            Kind::ReadPeers => self.read_peers(),
            Kind::DeclareExtensions => self.declare_extensions(model).await,
            Kind::PublishDelegation => self.publish_delegation(),
            Kind::CancelDelegation => self.cancel_delegation(),
            Kind::ReadDelegations => self.read_delegations(),
        }
    }

    pub(super) fn learn(&mut self, step: &StoreStep, answer: &StepResult) {
        self.known.learn(step, answer);
    }

    /// Usually replaces a step that has nothing to act on.
    async fn sensible(&self, kind: Kind, model: &MemoryStore) -> Kind {
        if self.draw.percent(10) {
            return kind;
        }
        if self.known.tenant.is_none() {
            return Kind::EnsureTenant;
        }
        if matches!(kind, Kind::CreateTenant) {
            return kind;
        }
        if self.known.agents.is_empty() {
            return Kind::CreateAccount;
        }
        let instead = match kind {
            Kind::DecidePermission if self.known.permissions.is_empty() => Kind::RequestPermission,
            Kind::RevokeGrant if self.known.grants.is_empty() => Kind::RequestPermission,
            Kind::AnswerTool | Kind::WithdrawAsk if self.known.asks.is_empty() => Kind::Ask,
            Kind::PushEvents if self.known.follows.is_empty() => Kind::CreateRun,
            Kind::UpdateUser | Kind::RemoveUser | Kind::ReadPeople | Kind::Passkey if self.known.users.is_empty() => {
                Kind::CreateUser
            }
            Kind::PeerCard | Kind::ReadPeers if self.known.outsiders.is_empty() => Kind::SetPeer,
            Kind::CancelDelegation | Kind::ReadDelegations if self.known.delegations.is_empty() => {
                Kind::PublishDelegation
            }
            Kind::RemoveQuota if self.known.targets.is_empty() => Kind::SetQuota,
            Kind::SetPush | Kind::ListTasks | Kind::Worktree if self.known.runs.is_empty() => Kind::CreateRun,
            Kind::RemovePush | Kind::ReadPush if self.known.pushes.is_empty() => Kind::SetPush,
            Kind::UpdateTarget | Kind::RemoveTarget | Kind::ReadTargets | Kind::AddNotifications
                if self.known.notification_targets.is_empty() =>
            {
                Kind::SetTarget
            }
            Kind::RecordAttempt | Kind::Resend | Kind::ReadDeliveries if self.known.deliveries.is_empty() => {
                Kind::CreateRun
            }
            kind => kind,
        };
        let instead = match instead {
            Kind::BeginPeerTask | Kind::LinkPeerTask if self.running(model).await.is_empty() => Kind::Claim,
            Kind::Progress | Kind::Finish | Kind::Release | Kind::RequestPermission | Kind::Ask | Kind::AddInput
                if self.running(model).await.is_empty() =>
            {
                Kind::Claim
            }
            Kind::ResumeChannel
            | Kind::CloseChannel
            | Kind::SeenChannels
            | Kind::ChannelMessage
            | Kind::ReadFrames
            | Kind::Acknowledge
            | Kind::ReadChannel
                if self.known.channels.is_empty() =>
            {
                Kind::OpenChannel
            }
            kind => kind,
        };
        match instead {
            Kind::Claim if model.live(self.tenant).await.is_ok_and(|live| live.pending == 0) => Kind::CreateRun,
            Kind::Claim if !self.known.outsiders.is_empty() && self.active(model).await.is_empty() => Kind::AttachHub,
            Kind::Claim | Kind::Heartbeat | Kind::OpenChannel if self.active(model).await.is_empty() => Kind::Pair,
            Kind::AttachRuntime if self.known.newest_proof.is_none() => Kind::Pair,
            Kind::RevokeKey if self.known.keys.is_empty() => Kind::CreateKey,
            Kind::DecidePairing | Kind::ReadPairing if self.known.requests.is_empty() => Kind::RequestPairing,
            Kind::AddMessage if self.known.conversations.is_empty() => Kind::CreateConversation,
            instead => instead,
        }
    }

    fn kind(&self) -> Kind {
        let mut left = self.draw.below(self.weights.iter().map(|(weight, _)| weight).sum());
        for (weight, kind) in self.weights {
            if left < *weight {
                return *kind;
            }
            left -= weight;
        }
        Kind::Sweep
    }

    /// Advances the clock, usually by milliseconds, sometimes by days, and now and then exactly to a boundary.
    async fn pass_time(&mut self, model: &MemoryStore) {
        // Questions wait for answers, so sequences about them advance the clock less often.
        let calm = self.weights.len() == CHANNELS.len() && self.draw.percent(60);
        let millis = match self.draw.below(100) {
            _ if calm || !self.planned.is_empty() => self.draw.below(20),
            0..20 => 0,
            20..50 => self.draw.below(20),
            50..78 => self.draw.below(3_000),
            78..88 => self.draw.below(40_000),
            88..91 => self.draw.below(20 * 60_000),
            91..92 => self.draw.below(2 * DAY),
            92..93 => DAY,
            _ => return self.cross_time_boundary(model).await,
        };
        self.draw.env.advance(Duration::from_millis(millis));
    }

    /// Advances the clock exactly to where something changes by time, and adds a step that notices it.
    async fn cross_time_boundary(&mut self, model: &MemoryStore) {
        let now = self.now();
        let border = if self.draw.percent(50) {
            let deadline = self.some_run(model).await.and_then(|run| next_deadline(&run.state));
            let near = deadline.filter(|deadline| self.draw.percent(15) || deadline.since(now) < SOON);
            near.map(|deadline| (deadline, if self.draw.percent(70) { Kind::Sweep } else { Kind::Claim }))
        } else {
            let mut ahead: Vec<(Timestamp, TimeBoundary)> =
                self.known.borders.iter().copied().filter(|(at, _)| *at > now).collect();
            ahead.sort_unstable();
            self.draw.one_of(&ahead[..ahead.len().min(3)]).map(|(at, border)| {
                let kind = match border {
                    TimeBoundary::Pairing if self.draw.percent(30) => Kind::DecidePairing,
                    TimeBoundary::Pairing => Kind::AttachRuntime,
                    TimeBoundary::Grace => Kind::Heartbeat,
                    TimeBoundary::Silence | TimeBoundary::Deferral => Kind::Sweep,
                    TimeBoundary::Key => Kind::CreateRun,
                    TimeBoundary::Question if self.draw.percent(20) => Kind::DecidePermission,
                    TimeBoundary::Question => Kind::Sweep,
                    TimeBoundary::Grant => Kind::RequestPermission,
                    TimeBoundary::Midnight => self.at_midnight(),
                    TimeBoundary::Delivery => Kind::ReadDeliveries,
                    TimeBoundary::SharedValue => Kind::SharedValue,
                    TimeBoundary::WorktreeDecision => Kind::Worktree,
                };
                (at, kind)
            })
        };
        if let Some((at, kind)) = border {
            self.draw.env.advance(at.since(now));
            self.planned.push(kind);
        }
    }

    /// The time of a step. A clock may also go back a little.
    fn at(&self) -> Timestamp {
        let back = if self.draw.percent(3) { self.draw.below(2_000) } else { 0 };
        self.now().minus(Duration::from_millis(back))
    }

    fn tenant(&self) -> TenantId {
        let foreign = if self.known.neighbour.is_some() { 8 } else { 3 };
        if self.draw.percent(foreign) { self.foreign } else { self.tenant }
    }

    fn context(&self) -> WriteContext {
        let actor = self.draw.one_of(&ACTORS).unwrap_or_default();
        let user = if self.draw.percent(60) { self.draw.recent(&self.known.users) } else { None };
        WriteContext::new(self.tenant(), actor, self.at()).for_user(user)
    }

    /// A run of the model: usually a running one.
    async fn some_run(&self, model: &MemoryStore) -> Option<RunRecord> {
        if self.draw.percent(75) {
            let mut running = self.running(model).await;
            if !running.is_empty() {
                let bound = u64::try_from(running.len()).unwrap_or(1);
                return Some(running.swap_remove(usize::try_from(self.draw.below(bound)).unwrap_or(0)));
            }
        }
        let run = self.draw.recent(&self.known.runs)?;
        model.run(self.tenant, run).await.ok()
    }

    /// The newest few running runs.
    async fn running(&self, model: &MemoryStore) -> Vec<RunRecord> {
        let filter = RunFilter { status: Some(RunStatus::Running), ..RunFilter::default() };
        let page = Pagination { limit: 3, cursor: None };
        model.runs(self.tenant, filter, page).await.map(|listed| listed.items).unwrap_or_default()
    }

    /// Active runtimes with their agents.
    async fn active(&self, model: &MemoryStore) -> Vec<(RuntimeId, AgentId)> {
        let page = Pagination { limit: 20, cursor: None };
        let runtimes = model.runtimes(self.tenant, None, page).await.map(|listed| listed.items).unwrap_or_default();
        let active = runtimes.iter().filter(|runtime| runtime.state == RuntimeState::Active);
        active.map(|runtime| (runtime.id, runtime.agent)).collect()
    }

    /// Usually an active runtime, sometimes another or a nonexistent one.
    async fn some_runtime(&self, model: &MemoryStore) -> RuntimeId {
        let active = if self.draw.percent(90) { self.draw.one_of(&self.active(model).await) } else { None };
        active.map_or_else(|| self.runtime(), |(runtime, _)| runtime)
    }
}

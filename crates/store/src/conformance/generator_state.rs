//! Everything a sequence has created so far, recorded from the steps that succeeded.

use std::{collections::BTreeSet, time::Duration};

use attache_protocol::{
    AgentId, ArtifactId, ChannelId, ConversationId, DelegationId, DeliveryId, GrantId, InputId, Json, KeyId,
    NotificationTargetId, PasskeyId, PermissionId, RunId, RuntimeId, TenantId, Timestamp, UserId, WorkerRequestId,
    rules::quota::UtcDay, secret::SecretHash,
};

use super::{
    step::StoreStep,
    step_result::{StepResult, StepValue},
};
use crate::{
    WriteContext,
    record::{
        PairingProof, RunCreation, RunResult, TokenChange, delivery::AttemptDecision, node::NodeRecord,
        quota::QuotaTarget, worker_request::NewDecision,
    },
};

/// The durations that sequences use.
pub(super) const LEASE: Duration = Duration::from_secs(30);
pub(super) const GRACE: Duration = Duration::from_secs(10);
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);
const KEY_TTL: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Default)]
pub(super) struct GeneratorState {
    /// The oldest one.
    pub(super) tenant: Option<TenantId>,
    /// Another one.
    pub(super) neighbour: Option<TenantId>,
    pub(super) agents: Vec<AgentId>,
    /// Names of agents when they were created or renamed.
    pub(super) names: Vec<String>,
    pub(super) runtimes: Vec<RuntimeId>,
    /// Codes created by people.
    pub(super) codes: Vec<SecretHash>,
    /// Codes shown by devices, with their poll tokens.
    pub(super) requests: Vec<(SecretHash, SecretHash)>,
    /// The proof for the newest code of either kind.
    pub(super) newest_proof: Option<PairingProof>,
    pub(super) keys: Vec<KeyId>,
    /// Tokens of runtimes and secrets of keys.
    pub(super) secrets: Vec<SecretHash>,
    pub(super) runs: Vec<RunId>,
    /// Idempotency keys with the digest of the request that used them.
    pub(super) idempotency: Vec<([u8; 16], [u8; 16])>,
    /// Explicit ones and runs' own.
    pub(super) conversations: Vec<ConversationId>,
    /// Those that contain messages or artifacts.
    pub(super) filled: BTreeSet<ConversationId>,
    pub(super) artifacts: Vec<ArtifactId>,
    /// The content of artifacts.
    pub(super) blobs: Vec<[u8; 32]>,
    /// With its resume token, unless it was superseded since.
    pub(super) channels: Vec<(ChannelId, SecretHash)>,
    /// Channels with the runs they were created to follow.
    pub(super) follows: Vec<(ChannelId, RunId)>,
    pub(super) permissions: Vec<PermissionId>,
    pub(super) decisions: Vec<(WriteContext, PermissionId, NewDecision)>,
    pub(super) grants: Vec<GrantId>,
    pub(super) asks: Vec<WorkerRequestId>,
    pub(super) inputs: Vec<(RunId, InputId)>,
    pub(super) input_keys: Vec<(RunId, [u8; 16], Json)>,
    /// Tokens offered to runtimes.
    pub(super) offered_tokens: Vec<(RuntimeId, SecretHash)>,
    /// Agents that are outside agents.
    pub(super) outsiders: Vec<AgentId>,
    pub(super) users: Vec<UserId>,
    pub(super) passkeys: Vec<(PasskeyId, UserId)>,
    /// The version of the access rules.
    pub(super) rules: i64,
    /// Targets that quotas were set for.
    pub(super) targets: Vec<QuotaTarget>,
    /// Possible deliveries: of runs with callbacks or push configs, and of permission requests with a webhook.
    pub(super) deliveries: Vec<DeliveryId>,
    /// With as many beats as were seen.
    pub(super) nodes: Vec<NodeRecord>,
    pub(super) delegations: Vec<DelegationId>,
    pub(super) notification_targets: Vec<NotificationTargetId>,
    /// Runs with push configs.
    pub(super) pushes: Vec<RunId>,
    /// When something changes by time, and which step notices it: engines make mistakes at boundaries.
    pub(super) borders: Vec<(Timestamp, TimeBoundary)>,
}

/// Which step distinguishes the two sides of a boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimeBoundary {
    /// A code expires.
    Pairing,
    /// A claim must be named from then on.
    Grace,
    /// A runtime goes offline.
    Silence,
    /// An idempotency key is free again.
    Key,
    /// A question expires.
    Question,
    /// A grant ends.
    Grant,
    /// The accounts of a new day are empty.
    Midnight,
    /// A delivery is tried again.
    Delivery,
    /// A deferred run goes back to the queue.
    Deferral,
    /// A shared value expires.
    SharedValue,
    /// A device no longer carries out a decision.
    WorktreeDecision,
}

// === impl GeneratorState ===

impl GeneratorState {
    /// Records what the step created, if anything.
    pub(super) fn learn(&mut self, step: &StoreStep, answer: &StepResult) {
        let Ok(value) = answer else { return };
        match (step, value) {
            (StoreStep::EnsureTenant { .. }, StepValue::Tenant(tenant)) => self.tenant = Some(*tenant),
            (StoreStep::CreateTenant { id, .. }, _) => self.neighbour = Some(*id),
            (StoreStep::CreateAccount(_, new), _) => {
                self.agents.push(new.id);
                self.names.push(new.name.clone());
            }
            (StoreStep::UpdateAccount(..), StepValue::Account(account)) => self.names.push(account.name.clone()),
            (StoreStep::CreatePairingCode(_, new), _) => {
                self.codes.push(new.code);
                self.newest_proof = Some(PairingProof::Code(new.code));
                self.borders.push((new.expires_at, TimeBoundary::Pairing));
            }
            (StoreStep::RequestPairing(new, _), _) => {
                self.requests.push((new.code, new.poll));
                self.newest_proof = Some(PairingProof::Poll(new.poll));
                self.borders.push((new.expires_at, TimeBoundary::Pairing));
            }
            (StoreStep::AttachRuntime(new, _), _) => {
                self.runtimes.push(new.id);
                self.secrets.push(new.token);
                self.newest_proof = self.newest_proof.filter(|proof| *proof != new.proof);
            }
            (StoreStep::ChangeToken(runtime, TokenChange::Offer(token), _), _) => {
                self.offered_tokens.push((*runtime, *token));
                self.secrets.push(*token);
            }
            (StoreStep::CreateKey(_, new), _) => {
                self.keys.push(new.id);
                self.secrets.push(new.secret);
            }
            (StoreStep::Heartbeat { at, .. }, _) => {
                self.borders.push((at.plus(SILENCE_TIMEOUT), TimeBoundary::Silence));
            }
            (StoreStep::Claim { at, .. }, StepValue::Claimed(Some(_))) => {
                self.borders.push((at.plus(GRACE), TimeBoundary::Grace));
            }
            (StoreStep::CreateRun(context, new), StepValue::Created(created)) => {
                if let Some(key) = new.idempotency_key {
                    self.idempotency.push((key, new.request_digest));
                    self.borders.push((context.at.plus(KEY_TTL), TimeBoundary::Key));
                }
                let run = match &**created {
                    RunCreation::New(run) | RunCreation::Existing(run) => run.id,
                };
                self.follows.extend(new.follow.as_ref().map(|follow| (follow.channel, run)));
                if let RunCreation::New(run) = &**created {
                    self.runs.push(run.id);
                    self.deliveries.extend(run.spec.callback.as_ref().map(|_| DeliveryId::of_run(run.id)));
                    // Usually claimed at once.
                    self.deliveries.extend(new.push.as_ref().map(|push| DeliveryId::of_push(run.id, &push.id, 2)));
                    self.pushes.extend(new.push.as_ref().map(|_| run.id));
                    if run.conversation == run.id.own_conversation() {
                        self.conversations.push(run.conversation);
                    }
                }
            }
            (StoreStep::Finish { outcome: RunResult::Deferred { until }, .. }, _) => {
                self.borders.push((*until, TimeBoundary::Deferral));
            }
            (StoreStep::CreateConversation(_, new), _) => self.conversations.push(new.id),
            (StoreStep::AddMessage(_, new), _) => {
                self.filled.insert(new.conversation);
            }
            (StoreStep::AddArtifact(_, new), _) => {
                self.artifacts.push(new.id);
                self.blobs.push(new.blake3);
                self.filled.insert(new.workspace.conversation());
            }
            (StoreStep::OpenChannel(_, new), _) => self.channels.push((new.id, new.resume)),
            (StoreStep::ResumeChannel(_, resume), _) => {
                self.channels.retain(|(channel, _)| *channel != resume.channel);
                self.channels.push((resume.channel, resume.fresh));
            }
            (StoreStep::RequestPermission { permission, .. }, StepValue::Permission(answered))
                if answered.id == permission.id =>
            {
                self.permissions.push(answered.id);
                let told = permission.notify.as_ref().map(|_| DeliveryId::of_permission(answered.id));
                self.deliveries.extend(told);
                self.borders.extend(answered.expires_at.map(|at| (at, TimeBoundary::Question)));
            }
            (StoreStep::DecidePermission(context, id, new), StepValue::Permission(decided)) => {
                self.decisions.push((context.clone(), *id, new.clone()));
                let grant = decided.settled.as_ref().and_then(|settled| settled.grant);
                self.grants.extend(grant.filter(|grant| *grant == new.grant));
                self.borders.extend(new.decision.until.map(|until| (until, TimeBoundary::Grant)));
            }
            (StoreStep::Ask { ask, .. }, StepValue::Ask(answered)) if answered.id == ask.id => {
                self.asks.push(ask.id);
                self.borders.extend(ask.expires_at.map(|at| (at, TimeBoundary::Question)));
            }
            (StoreStep::AddInput(_, new), StepValue::Input(input)) => {
                self.inputs.push((input.run, input.id));
                self.input_keys.extend(new.key.map(|key| (new.run, key, new.parts.clone())));
            }
            (StoreStep::PublishDelegation(_, new), _) if !self.delegations.contains(&new.id) => {
                self.delegations.push(new.id);
            }
            (StoreStep::AddPasskey(_, new), _) => self.passkeys.push((new.id, new.user)),
            (StoreStep::CreateNotificationTarget(_, new), _) => self.notification_targets.push(new.id),
            (StoreStep::AddNotifications(_, _, seq, targets), StepValue::Count(made)) if *made > 0 => {
                let told = targets.iter().map(|target| DeliveryId::of_notification(*target, *seq));
                self.deliveries.extend(told);
            }
            (StoreStep::StartNode(id), _) => self.nodes.push(NodeRecord { id: *id, beats: 0 }),
            (StoreStep::BeatNode(_), StepValue::Nodes(nodes)) => self.nodes.clone_from(nodes),
            (StoreStep::EndNode { node, .. }, StepValue::Held(true)) => self.nodes.retain(|known| known != node),
            (StoreStep::KeepValue(new, ..), StepValue::Held(true)) => {
                self.borders.push((new.expires_at, TimeBoundary::SharedValue));
            }
            (StoreStep::DecideWorktree(_, new), _) => {
                self.borders.push((new.expires_at, TimeBoundary::WorktreeDecision));
            }
            (StoreStep::SetPushConfig(_, run, _), _) => self.pushes.push(*run),
            (StoreStep::SetPeer(..), StepValue::Peer(Some(peer))) => self.outsiders.push(peer.agent),
            (StoreStep::CreateUser(_, new), _) => self.users.push(new.id),
            (StoreStep::SetAccessRules(..), StepValue::AccessRules(Some(rules))) => self.rules = rules.version,
            (StoreStep::SetQuota(context, target, _), _) => {
                self.targets.push(*target);
                let midnight = (UtcDay::of(context.at).ends_at(), TimeBoundary::Midnight);
                if !self.borders.contains(&midnight) {
                    self.borders.push(midnight);
                }
            }
            (StoreStep::RecordAttempt { next: AttemptDecision::RetryAt(at), .. }, _) => {
                self.borders.push((*at, TimeBoundary::Delivery));
            }
            _ => {}
        }
    }
}

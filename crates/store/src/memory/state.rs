//! The complete state of the model, and appending rows to a tenant's log.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Index, IndexMut},
};

use attache_protocol::{
    Actor, AgentId, ArtifactId, ChannelId, ConversationId, DeliveryId, GrantId, InputId, KeyId, MessageId, NodeId,
    PermissionId, RunId, RuntimeId, TenantId, Timestamp, UserId, WorkerRequestId,
    digest::hex,
    log::{GENESIS, LogRow},
    rules::quota::{QuotaLimits, QuotaReservation},
    secret::SecretHash,
    wire::event,
};

use super::table::ModelTable;
use crate::{
    Error, Result, WakeHint,
    entry::LogEntry,
    record::{
        AccountRecord, AgentRef, ArtifactRecord, ConversationRecord, KeyRecord, MessageRecord, NewPairingRequest,
        RunRecord, RuntimeRecord,
        channel::{ChannelRecord, FollowRecord, OutboxFrame, ReportKey},
        delegation::DelegationRecord,
        delivery::DeliveryRecord,
        node::NodeRecord,
        notification::NotificationTargetRecord,
        passkey::PasskeyRecord,
        peer,
        push::PushConfigRecord,
        quota::QuotaTarget,
        shared_value::SharedValue,
        user::{AccessRulesRecord, SavedView, UserRecord},
        worker_request::{GrantRecord, InputRecord, PermissionRecord, WorkerRequestRecord},
        worktree::WorktreeDecisionRecord,
    },
};

#[derive(Debug, Default)]
pub(super) struct ModelState {
    /// Oldest first.
    pub(super) tenants: Vec<ModelTenant>,
    /// Without their runtime, which is looked up on read.
    pub(super) accounts: BTreeMap<AgentId, AccountRecord>,
    pub(super) runtimes: ModelTable<RuntimeId, RuntimeRecord>,
    pub(super) tokens: BTreeMap<SecretHash, RuntimeId>,
    /// Tokens that were offered but never used.
    pub(super) offered_tokens: BTreeMap<RuntimeId, SecretHash>,
    /// Tokens that were replaced, and when.
    pub(super) replaced_tokens: BTreeMap<SecretHash, (RuntimeId, Timestamp)>,
    pub(super) codes: BTreeMap<SecretHash, ModelPairingCode>,
    pub(super) requests: BTreeMap<SecretHash, ModelPairingRequest>,
    pub(super) keys: ModelTable<KeyId, ModelKey>,
    /// The clock for expiry.
    pub(super) clock: Option<Timestamp>,
    pub(super) runs: Runs,
    /// Removed runs, whose usage still counts.
    pub(super) removed_runs: Vec<ModelRun>,
    pub(super) places: BTreeMap<RunId, usize>,
    /// The newest run created with each idempotency key.
    pub(super) idempotency: BTreeMap<(TenantId, [u8; 16]), usize>,
    /// Keys of deleted runs, with the creation times of those runs.
    pub(super) deleted_keys: BTreeMap<(TenantId, [u8; 16]), Timestamp>,
    pub(super) conversations: ModelTable<ConversationId, (TenantId, ConversationRecord)>,
    /// Every agent that ever had a run in a conversation, explicit or a run's own.
    pub(super) conversation_agents: BTreeMap<ConversationId, BTreeMap<AgentId, Timestamp>>,
    /// Those in which others than their user have spoken, also deleted ones that may get their ids again.
    pub(super) conversations_of_others: BTreeSet<ConversationId>,
    /// The owner of the account that last gave up a name, by being archived or renamed.
    pub(super) former_names: BTreeMap<(TenantId, String), Option<UserId>>,
    pub(super) messages: ModelTable<MessageId, (ConversationId, MessageRecord)>,
    pub(super) artifacts: ModelTable<ArtifactId, (TenantId, ArtifactRecord)>,
    pub(super) channels: ModelTable<ChannelId, ModelChannel>,
    /// By the run that is followed.
    pub(super) follows: BTreeMap<RunId, FollowRecord>,
    /// Without their agent's name, which is looked up on read.
    pub(super) permissions: ModelTable<PermissionId, (TenantId, PermissionRecord)>,
    pub(super) grants: ModelTable<GrantId, (TenantId, GrantRecord)>,
    pub(super) asks: ModelTable<WorkerRequestId, (TenantId, WorkerRequestRecord)>,
    pub(super) inputs: ModelTable<InputId, ModelInput>,
    /// Including removed ones.
    pub(super) users: BTreeMap<UserId, UserRecord>,
    pub(super) saved_views: BTreeMap<UserId, Vec<SavedView>>,
    /// In order of creation.
    pub(super) passkeys: Vec<PasskeyRecord>,
    pub(super) rules: BTreeMap<TenantId, AccessRulesRecord>,
    pub(super) quotas: BTreeMap<(TenantId, QuotaTarget), QuotaLimits>,
    pub(super) peers: ModelTable<AgentId, peer::PeerRecord>,
    pub(super) peer_tasks: ModelTable<RunId, peer::PeerTask>,
    /// In order of creation.
    pub(super) pushes: BTreeMap<RunId, Vec<PushConfigRecord>>,
    /// By order of creation, counted from 1.
    pub(super) delegations: BTreeMap<usize, DelegationRecord>,
    pub(super) delegations_made: usize,
    /// In order of creation.
    pub(super) worktree_decisions: Vec<WorktreeDecisionRecord>,
    /// In order of creation.
    pub(super) notification_targets: Vec<NotificationTargetRecord>,
    pub(super) deliveries: BTreeMap<usize, DeliveryRecord>,
    pub(super) deliveries_made: usize,
    /// Chunks of runs that ended before this are removed.
    pub(super) chunks_before: Timestamp,
    /// In the order in which they started.
    pub(super) nodes: Vec<NodeRecord>,
    /// The node that makes the next attempt.
    pub(super) delivery_leases: BTreeMap<DeliveryId, NodeId>,
    pub(super) leases: BTreeMap<String, NodeId>,
    /// In order of creation.
    pub(super) shared_values: Vec<SharedValue>,
    /// Hints the listener hasn't received yet.
    pub(super) woken: Vec<WakeHint>,
}

#[derive(Debug)]
pub(super) struct ModelTenant {
    pub(super) id: TenantId,
    /// The rows that retention left.
    pub(super) log: Vec<LogRow>,
    pub(super) head: i64,
    pub(super) head_hash: [u8; 32],
    pub(super) floor: i64,
    pub(super) floor_hash: [u8; 32],
}

/// A pairing code created by a person.
#[derive(Debug)]
pub(super) struct ModelPairingCode {
    pub(super) agent: AgentId,
    pub(super) maker: Option<KeyId>,
    pub(super) expires_at: Timestamp,
    pub(super) used: bool,
}

/// A pairing code shown by a device.
#[derive(Debug)]
pub(super) struct ModelPairingRequest {
    pub(super) asked: NewPairingRequest,
    pub(super) decision: ModelPairingDecision,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelPairingDecision {
    Pending,
    Rejected,
    Confirmed(AgentId, Option<KeyId>),
    Used(AgentId),
}

#[derive(Debug)]
pub(super) struct ModelKey {
    pub(super) tenant: TenantId,
    pub(super) secret: SecretHash,
    pub(super) key: KeyRecord,
}

/// Runs in order of creation. The position of the newest is reused once it was removed, as in an SQLite table.
#[derive(Debug, Default)]
pub(super) struct Runs(BTreeMap<usize, ModelRun>);

#[derive(Debug)]
pub(super) struct ModelRun {
    /// The agent's name is looked up on read.
    pub(super) record: RunRecord,
    pub(super) request_digest: [u8; 16],
    /// Events that only the run's own stream has.
    pub(super) chunks: Vec<event::Event>,
    /// The highest run seq among its rows that were removed from the log.
    pub(super) log_floor: i64,
    /// The run seq of the newest claim.
    pub(super) claimed_seq: i64,
    /// The newest identifiable report of the newest claim.
    pub(super) report: Option<ReportKey>,
    /// Its reservation until it ends, and its day.
    pub(super) reservation: QuotaReservation,
    /// A quota refused it before any claim, so it isn't counted.
    pub(super) refused: bool,
    /// The total size of its events. Above the limit once one was refused.
    pub(super) log_bytes: usize,
}

/// A channel with its waiting frames and its events.
#[derive(Debug)]
pub(super) struct ModelChannel {
    pub(super) channel: ChannelRecord,
    /// Unacknowledged frames.
    pub(super) outbox: Vec<(i64, OutboxFrame)>,
    /// Its rows that retention left, each with its seq in the log.
    pub(super) events: Vec<(i64, event::Event)>,
    pub(super) last_seq: i64,
    /// The highest channel seq among its rows that were removed from the log.
    pub(super) log_floor: i64,
}

/// Input with the hash of its caller's key.
#[derive(Debug)]
pub(super) struct ModelInput {
    pub(super) input: InputRecord,
    pub(super) key: Option<[u8; 16]>,
}

// === impl Runs ===

impl Runs {
    pub(super) fn push(&mut self, run: ModelRun) {
        self.0.insert(self.next_place(), run);
    }

    pub(super) fn next_place(&self) -> usize {
        self.0.last_key_value().map_or(0, |(place, _)| place + 1)
    }

    pub(super) fn remove(&mut self, place: usize) -> Option<ModelRun> {
        self.0.remove(&place)
    }

    /// Oldest first.
    pub(super) fn places(&self) -> Vec<usize> {
        self.0.keys().copied().collect()
    }

    /// Oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ModelRun> {
        self.0.values()
    }
}

impl Index<usize> for Runs {
    type Output = ModelRun;

    fn index(&self, place: usize) -> &ModelRun {
        &self.0[&place]
    }
}

impl IndexMut<usize> for Runs {
    fn index_mut(&mut self, place: usize) -> &mut ModelRun {
        self.0.get_mut(&place).expect("a run that was removed has no place")
    }
}

// === impl ModelState ===

impl ModelState {
    pub(super) fn ensure_tenant(&mut self, id: TenantId, name: &str, at: Timestamp) -> TenantId {
        if let Some(oldest) = self.tenants.first() {
            return oldest.id;
        }
        self.create_tenant(id, name, at);
        id
    }

    pub(super) fn create_tenant(&mut self, id: TenantId, name: &str, at: Timestamp) {
        self.tenants.push(ModelTenant {
            id,
            log: Vec::new(),
            head: 0,
            head_hash: GENESIS,
            floor: 0,
            floor_hash: GENESIS,
        });
        self.append(id, at, crate::WriteContext::SYSTEM, crate::entry::tenant_created(name));
    }

    pub(super) fn tenant(&self, id: TenantId) -> Option<&ModelTenant> {
        self.tenants.iter().find(|tenant| tenant.id == id)
    }

    /// Nothing is created in a nonexistent tenant.
    pub(super) fn known_tenant(&self, id: TenantId) -> Result<()> {
        self.tenant(id).map(|_| ()).ok_or(Error::NotFound)
    }

    /// By name, only accounts that aren't archived are found.
    pub(super) fn agent(&self, tenant: TenantId, agent: &AgentRef) -> Result<&AccountRecord> {
        let mut accounts = self.accounts.values().filter(|account| account.tenant == tenant);
        match agent {
            AgentRef::Id(id) => accounts.find(|account| account.id == *id),
            AgentRef::Name(name) => accounts.find(|account| account.name == *name && account.archived_at.is_none()),
        }
        .ok_or(Error::NotFound)
    }

    /// An agent that accepts new work.
    pub(super) fn living_agent(&self, tenant: TenantId, agent: &AgentRef) -> Result<&AccountRecord> {
        let account = self.agent(tenant, agent)?;
        if account.archived_at.is_some() { Err(Error::AgentArchived) } else { Ok(account) }
    }

    /// Appends a row that belongs to no run.
    pub(super) fn append(&mut self, tenant: TenantId, at: Timestamp, actor: &Actor, entry: LogEntry) {
        self.append_row(tenant, at, actor, entry, None);
    }

    /// Appends a row of a run, which is also the next event of the run's stream.
    pub(super) fn append_for(&mut self, place: usize, at: Timestamp, actor: &Actor, entry: LogEntry) {
        let ModelRun { record, log_bytes, .. } = &mut self.runs[place];
        record.last_seq += 1;
        *log_bytes += entry.1.get().len();
        let (tenant, run, run_seq) = (record.tenant, record.id, record.last_seq);
        let (kind, _) = entry;
        self.append_row(tenant, at, actor, entry, Some((run, run_seq)));
        self.push(place, at, kind);
        self.woken.push(WakeHint::Run(run));
    }

    /// Appends a row of a channel, which is also the next event of the channel's stream.
    pub(super) fn append_to(&mut self, channel: ChannelId, at: Timestamp, actor: &Actor, entry: LogEntry) {
        let (kind, data) = entry.clone();
        let tenant = self.channels[&channel].channel.tenant;
        let log_seq = self.append_row(tenant, at, actor, entry, None);
        let peer = self.channels.get_mut(&channel).expect("it was just found");
        peer.last_seq += 1;
        peer.events.push((log_seq, event::Event { seq: peer.last_seq, kind: kind.to_string(), at, data }));
        self.woken.push(WakeHint::Channel(channel));
    }

    /// Returns the row's seq.
    fn append_row(
        &mut self,
        tenant: TenantId,
        at: Timestamp,
        actor: &Actor,
        entry: LogEntry,
        run: Option<(RunId, i64)>,
    ) -> i64 {
        let (kind, data) = entry;
        let known = self.tenants.iter_mut().find(|known| known.id == tenant);
        let tenant = known.expect("every caller has found something of this tenant");
        let mut row = LogRow {
            seq: tenant.head + 1,
            at,
            actor: actor.to_string(),
            kind: kind.to_string(),
            run: run.map(|(run, _)| run),
            run_seq: run.map(|(_, run_seq)| run_seq),
            data,
            withheld: false,
            data_digest: None,
            hash: String::new(),
        };
        tenant.head_hash = row.entry().chain(&tenant.head_hash);
        tenant.head = row.seq;
        row.hash = hex(&tenant.head_hash);
        tenant.log.push(row);
        self.woken.push(WakeHint::Tenant(tenant.id));
        tenant.head
    }
}

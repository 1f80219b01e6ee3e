//! Converts between table rows and Rust types: how ids, times, states and JSON are stored.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use attache_protocol::{
    Actor, AgentId, ArtifactId, ChannelId, ConversationId, DelegationId, DeliveryId, GrantId, InputId, Json, KeyId,
    MessageId, NodeId, NotificationTargetId, PasskeyId, PermissionId, RunId, RuntimeId, TenantId, Timestamp, UserId,
    WorkerRequestId, WorkspaceId,
    rules::{
        quota::{QuotaReservation, UtcDay},
        run::{Claim, RunEnd, RunLifecycle, RunPhase, RunStatus, RunWaits},
    },
    wire::{
        account::{ApprovalConfirmation, Callers, OnLimit},
        conversation,
        key::{KeyScope, Role},
        runtime::RuntimeState,
    },
};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use uuid::Uuid;

use super::{
    connection::Row,
    packed_state::{PackedState, StoredRunSpec},
};
use crate::{
    outcome,
    record::{
        AccountAuthors, AccountRecord, ArtifactRecord, ConversationRecord, KeyKind, KeyRecord, MessageRecord,
        RunRecord, RunSpec, RuntimeKind, RuntimeRecord, SessionOpening, SpokenBy, channel::ReportKey,
    },
};

/// What the rules need of a run, without its texts: the columns that [`run_state`] reads.
pub(super) const RUN_STATE: &str = "id, uid, tenant, agent, status, until, state, created, \
     coalesce(payer, user), usage is not null";

/// The columns that [`run`] reads, of `task_runs r join agent_accounts a`; first those of [`RUN_STATE`].
pub(super) const RUN: &str = "r.id, r.uid, r.tenant, r.agent, r.status, r.until, r.state, r.created, \
     coalesce(r.payer, r.user), r.usage is not null, a.name, r.conversation, r.parent, r.request, r.priority, r.result, r.usage, r.ended, \
     r.user";

pub(super) const ACCOUNT: &str = "a.id, a.tenant, a.name, a.description, a.instructions, a.skills, a.a2a, a.created, \
     a.archived, t.id, t.tenant, t.agent, t.state, t.online, t.device_name, t.labels, t.attached, t.heartbeat, t.ended, \
     t.kind, t.extensions, t.token_rotated, t.token_reused, t.paired_by, a.approvals, a.owner, a.callers, \
     a.run_timeout, a.private_until, a.on_limit, a.confirm_approvals, a.instructed_by, a.approved_by \
     from agent_accounts a left join agent_runtimes t on t.agent = a.id and t.state = 0";

pub(super) const RUNTIME: &str = "id, tenant, agent, state, online, device_name, labels, attached, heartbeat, ended, \
     kind, extensions, token_rotated, token_reused, paired_by from agent_runtimes";

/// A run as the rules see it, with its position in the tables.
#[derive(Debug, Clone)]
pub(super) struct RunState {
    pub(super) row: i64,
    pub(super) id: RunId,
    pub(super) tenant: TenantId,
    pub(super) agent: AgentId,
    pub(super) state: RunLifecycle,
    pub(super) runtime: Option<RuntimeId>,
    pub(super) claimed: Option<Timestamp>,
    pub(super) last_seq: i64,
    pub(super) life: LogPositions,
    /// The run seq of the newest claim.
    pub(super) claimed_seq: i64,
    /// How many tool calls it waits for.
    pub(super) calls: i64,
    /// The channel over which it was claimed last.
    pub(super) channel: Option<ChannelId>,
    /// The newest report of the newest claim that can be told from another.
    pub(super) report: Option<ReportKey>,
    pub(super) created: Timestamp,
    /// Whose quotas it counts towards.
    pub(super) payer: Option<UserId>,
    /// What it holds of its quotas until it ends.
    pub(super) reservation: QuotaReservation,
    /// Whether it has said what it used.
    pub(super) reported: bool,
    /// Whether anyone is notified when it ends.
    pub(super) calls_back: bool,
    /// A quota ended it before it counted.
    pub(super) refused: bool,
    /// What its events weigh together; more than the limit once one was refused.
    pub(super) log_bytes: usize,
}

/// A run as the rules see it and as everybody else does, from one reading.
#[derive(Debug, Clone)]
pub(super) struct LoadedRun {
    pub(super) hot: RunState,
    pub(super) record: RunRecord,
}

/// Where a run's life-cycle events stand in the log: pairs of (run seq, log seq).
/// Shared, because the writer's memory keeps copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogPositions(pub(super) Arc<[(i64, i64)]>);

/// An id as sixteen bytes.
pub(super) struct IdBytes(pub(super) Uuid);

macro_rules! id_reader {
    ($($function:ident $id:ident;)*) => {$(
        pub(super) fn $function(bytes: [u8; 16]) -> $id {
            $id::from_uuid(Uuid::from_bytes(bytes))
        }
    )*};
}

id_reader! {
    tenant_id TenantId;
    agent_id AgentId;
    runtime_id RuntimeId;
    run_id RunId;
    conversation_id ConversationId;
    workspace_id WorkspaceId;
    artifact_id ArtifactId;
    message_id MessageId;
    key_id KeyId;
    passkey_id PasskeyId;
    channel_id ChannelId;
    node_id NodeId;
    permission_id PermissionId;
    grant_id GrantId;
    ask_id WorkerRequestId;
    input_id InputId;
    user_id UserId;
    delegation_id DelegationId;
    delivery_id DeliveryId;
    notification_target_id NotificationTargetId;
}

impl ToSql for IdBytes {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(self.0.as_bytes())))
    }
}

// === impl LoadedRun ===

impl LoadedRun {
    /// The record after a step that left the run as `hot`, without reading it again.
    pub(super) fn after(self, hot: RunState, at: Timestamp, result: Option<&Json>, usage: Option<&Json>) -> RunRecord {
        let ended_at = matches!(hot.state.phase, RunPhase::Ended { .. }).then_some(at);
        RunRecord {
            state: hot.state,
            runtime: hot.runtime,
            channel: hot.channel,
            claimed_at: hot.claimed,
            result: result.cloned(),
            usage: usage.cloned().or(self.record.usage),
            ended_at,
            last_seq: hot.last_seq,
            ..self.record
        }
    }
}

// === impl LogPositions ===

impl LogPositions {
    pub(super) fn begun(seq: i64) -> Self {
        Self(Arc::new([(1, seq)]))
    }

    pub(super) fn with(&self, run_seq: i64, seq: i64) -> Self {
        Self(self.0.iter().copied().chain([(run_seq, seq)]).collect())
    }
}

pub(super) const fn status_number(status: RunStatus) -> i64 {
    match status {
        RunStatus::Pending => 0,
        RunStatus::Running => 1,
        RunStatus::Completed => 2,
        RunStatus::Failed => 3,
        RunStatus::Cancelled => 4,
    }
}

pub(super) const fn runtime_state_number(state: RuntimeState) -> i64 {
    match state {
        RuntimeState::Active => 0,
        RuntimeState::Superseded => 1,
        RuntimeState::Revoked => 2,
    }
}

pub(super) const fn message_role_number(role: conversation::MessageRole) -> i64 {
    match role {
        conversation::MessageRole::User => 0,
        conversation::MessageRole::Agent => 1,
    }
}

/// A value in the database that no version of ours ever wrote.
pub(super) fn corrupt(column: usize, what: &'static str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Null, what.into())
}

/// A row of a list. `None` if it can't be read: that is logged, and the others are still shown.
pub(super) fn readable<T>(table: &str, number: i64, row: rusqlite::Result<T>) -> rusqlite::Result<Option<T>> {
    use rusqlite::Error as E;
    match row {
        Ok(row) => Ok(Some(row)),
        Err(
            error @ (E::FromSqlConversionFailure(..)
            | E::IntegralValueOutOfRange(..)
            | E::InvalidColumnType(..)
            | E::Utf8Error(..)),
        ) => {
            tracing::error!(table, row = number, %error, "a row of the database is damaged and is left out");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp::from_millis)
}

pub(super) fn maybe_time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<Option<i64>>(column)?.map(Timestamp::from_millis))
}

pub(super) fn maybe_user(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<UserId>> {
    Ok(row.get::<Option<_>>(column)?.map(user_id))
}

/// Scopes as stored in their column.
pub(super) fn scopes_text(scopes: &[KeyScope]) -> String {
    scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(" ")
}

pub(super) fn maybe_scopes(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Vec<KeyScope>>> {
    let scope = |text: &str| KeyScope::from_text(text).ok_or_else(|| corrupt(column, "an unknown scope"));
    let text: Option<String> = row.get(column)?;
    text.map(|text| text.split_whitespace().map(scope).collect()).transpose()
}

pub(super) fn json(row: &Row<'_>, column: usize) -> rusqlite::Result<Json> {
    maybe_json(row, column)?.ok_or_else(|| corrupt(column, "JSON is missing"))
}

pub(super) fn maybe_json(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Json>> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| Json::from_text(text).map_err(|_| corrupt(column, "not JSON"))).transpose()
}

/// Reads [`RUN_STATE`].
pub(super) fn run_state(row: &Row<'_>) -> rusqlite::Result<RunState> {
    let until = maybe_time(row, 5)?;
    let packed: PackedState = row.get(6)?;
    let PackedState { epoch, attempt, limits, last_seq, claim, waits, outcome, life, .. } = packed;
    let ended = |ending| RunPhase::Ended { ending, outcome: outcome.unwrap_or(outcome::NO_DIGEST) };
    let phase = match row.get::<i64>(4)? {
        0 => match (until, waits) {
            (Some(expires_at), _) => RunPhase::Pending { expires_at },
            (None, RunWaits { since: Some(since), waited, .. }) => {
                RunPhase::Deferred { since, until: since.plus(waited) }
            }
            (None, _) => return Err(corrupt(5, "a pending run without an expiry")),
        },
        1 => match (claim, until) {
            (Some((runtime, claimed_at)), Some(lease_until)) => {
                RunPhase::Running(Claim { runtime, claimed_at, lease_until, waits, begun: packed.terms.begun })
            }
            _ => return Err(corrupt(6, "a running run without a claim")),
        },
        2 => ended(RunEnd::Completed),
        3 => ended(RunEnd::Failed),
        4 => ended(RunEnd::Cancelled),
        _ => return Err(corrupt(4, "an unknown status")),
    };
    let (runtime, claimed) = claim.unzip();
    let created = time(row, 7)?;
    Ok(RunState {
        row: row.get(0)?,
        id: run_id(row.get(1)?),
        tenant: tenant_id(row.get(2)?),
        agent: agent_id(row.get(3)?),
        state: RunLifecycle { phase, epoch, attempt, limits },
        runtime,
        claimed,
        last_seq,
        life,
        claimed_seq: packed.claimed_seq,
        calls: packed.calls,
        channel: packed.channel,
        report: packed.report,
        created,
        payer: maybe_user(row, 8)?,
        reservation: packed.terms.reservation(UtcDay::of(created)),
        reported: row.get(9)?,
        calls_back: packed.terms.calls_back,
        refused: packed.terms.refused,
        log_bytes: packed.log_bytes,
    })
}

/// Reads [`RUN`].
pub(super) fn run(row: &Row<'_>) -> rusqlite::Result<RunRecord> {
    loaded_run(row).map(|whole| whole.record)
}

/// Reads [`RUN`], and keeps what the rules need besides the record.
pub(super) fn loaded_run(row: &Row<'_>) -> rusqlite::Result<LoadedRun> {
    let hot = run_state(row)?;
    let request: StoredRunSpec<'_> = row.get(13)?;
    let record = RunRecord {
        id: hot.id,
        tenant: hot.tenant,
        agent: hot.agent,
        agent_name: row.get(10)?,
        conversation: row.get::<Option<_>>(11)?.map_or_else(|| hot.id.own_conversation(), conversation_id),
        caller: request.caller.into_owned(),
        spec: RunSpec {
            parent: row.get::<Option<_>>(12)?.map(run_id),
            task_type: request.task_type.into_owned(),
            input: request.input.into_owned(),
            context_fragments: request.context_fragments.map(Cow::into_owned),
            allowed_tools: request.allowed_tools.map(Cow::into_owned),
            workspace_root: request.workspace_root.map(Cow::into_owned),
            priority: row.get(14)?,
            in_person: request.in_person,
            trace_id: request.trace.map(Cow::into_owned),
            ttl: request.ttl,
            callback: request.callback.map(Cow::into_owned),
            budget: request.budget.into(),
            sandbox: request.sandbox,
            fallback: request.fallback,
            continues: request.continues,
            permission_mode: request.permission_mode,
            worktree: request.worktree,
        },
        user: maybe_user(row, 18)?,
        payer: hot.payer,
        channel: hot.channel,
        state: hot.state.clone(),
        runtime: hot.runtime,
        claimed_at: hot.claimed,
        result: maybe_json(row, 15)?,
        usage: maybe_json(row, 16)?,
        created_at: hot.created,
        ended_at: maybe_time(row, 17)?,
        last_seq: hot.last_seq,
    };
    Ok(LoadedRun { hot, record })
}

pub(super) const fn callers_number(callers: Callers) -> i64 {
    match callers {
        Callers::Everyone => 0,
        Callers::Owner => 1,
    }
}

fn callers(row: &Row<'_>, column: usize) -> rusqlite::Result<Callers> {
    match row.get(column)? {
        0_i64 => Ok(Callers::Everyone),
        1 => Ok(Callers::Owner),
        _ => Err(corrupt(column, "not who may call an agent")),
    }
}

/// Reads [`ACCOUNT`].
pub(super) fn account(row: &Row<'_>) -> rusqlite::Result<AccountRecord> {
    let runtime = match row.get::<Option<[u8; 16]>>(9)? {
        Some(_) => Some(runtime_at(row, 9)?),
        None => None,
    };
    Ok(AccountRecord {
        owner: maybe_user(row, 25)?,
        id: agent_id(row.get(0)?),
        tenant: tenant_id(row.get(1)?),
        name: row.get(2)?,
        description: row.get(3)?,
        instructions: row.get(4)?,
        skills: json(row, 5)?,
        a2a: maybe_json(row, 6)?,
        approvals: maybe_json(row, 24)?,
        callers: callers(row, 26)?,
        private_until: maybe_time(row, 28)?,
        run_timeout: row
            .get::<Option<i64>>(27)?
            .and_then(|millis| u64::try_from(millis).ok())
            .map(Duration::from_millis),
        on_limit: on_limit(row, 29)?,
        confirm_approvals: confirm_approvals(row, 30)?,
        authors: AccountAuthors { instructions: maybe_user(row, 31)?, approvals: maybe_user(row, 32)? },
        created_at: time(row, 7)?,
        archived_at: maybe_time(row, 8)?,
        runtime,
        ended: Vec::new(),
    })
}

fn on_limit(row: &Row<'_>, column: usize) -> rusqlite::Result<OnLimit> {
    match row.get::<Option<String>>(column)? {
        Some(text) => OnLimit::from_text(&text).ok_or_else(|| corrupt(column, "an unknown reaction to usage limits")),
        None => Ok(OnLimit::default()),
    }
}

pub(super) fn confirm_approvals(row: &Row<'_>, column: usize) -> rusqlite::Result<ApprovalConfirmation> {
    match row.get::<Option<String>>(column)? {
        Some(text) => ApprovalConfirmation::from_text(&text)
            .ok_or_else(|| corrupt(column, "not what an approval of an agent's requests needs")),
        None => Ok(ApprovalConfirmation::default()),
    }
}

/// Reads [`RUNTIME`].
pub(super) fn runtime(row: &Row<'_>) -> rusqlite::Result<RuntimeRecord> {
    runtime_at(row, 0)
}

fn runtime_at(row: &Row<'_>, first: usize) -> rusqlite::Result<RuntimeRecord> {
    Ok(RuntimeRecord {
        id: runtime_id(row.get(first)?),
        kind: runtime_kind(row, first + 10)?,
        tenant: tenant_id(row.get(first + 1)?),
        agent: agent_id(row.get(first + 2)?),
        state: runtime_state(row, first + 3)?,
        online: row.get(first + 4)?,
        device_name: row.get(first + 5)?,
        labels: json(row, first + 6)?,
        attached_at: time(row, first + 7)?,
        last_heartbeat_at: maybe_time(row, first + 8)?,
        ended_at: maybe_time(row, first + 9)?,
        extensions: maybe_json(row, first + 11)?,
        token_rotated_at: maybe_time(row, first + 12)?,
        token_reused_at: maybe_time(row, first + 13)?,
        paired_by: maybe_user(row, first + 14)?,
    })
}

pub(super) const fn runtime_kind_number(kind: RuntimeKind) -> i64 {
    match kind {
        RuntimeKind::Device => 0,
        RuntimeKind::AgentKey => 1,
        RuntimeKind::Hub => 2,
    }
}

pub(super) fn runtime_kind(row: &Row<'_>, column: usize) -> rusqlite::Result<RuntimeKind> {
    match row.get::<i64>(column)? {
        0 => Ok(RuntimeKind::Device),
        1 => Ok(RuntimeKind::AgentKey),
        2 => Ok(RuntimeKind::Hub),
        _ => Err(corrupt(column, "an unknown kind of runtime")),
    }
}

pub(super) fn runtime_state(row: &Row<'_>, column: usize) -> rusqlite::Result<RuntimeState> {
    match row.get::<i64>(column)? {
        0 => Ok(RuntimeState::Active),
        1 => Ok(RuntimeState::Superseded),
        2 => Ok(RuntimeState::Revoked),
        _ => Err(corrupt(column, "an unknown runtime state")),
    }
}

pub(super) fn role(row: &Row<'_>, column: usize) -> rusqlite::Result<Role> {
    Role::from_text(&row.get::<String>(column)?).ok_or_else(|| corrupt(column, "an unknown role"))
}

pub(super) fn key_kind(row: &Row<'_>, column: usize) -> rusqlite::Result<KeyKind> {
    match row.get::<i64>(column)? {
        0 => Ok(KeyKind::Api),
        1 => Ok(KeyKind::Session),
        _ => Err(corrupt(column, "an unknown kind of key")),
    }
}

pub(super) fn maybe_key(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<KeyId>> {
    Ok(row.get::<Option<[u8; 16]>>(column)?.map(key_id))
}

fn opening(row: &Row<'_>) -> rusqlite::Result<SessionOpening> {
    let passkey = row.get::<Option<_>>(12)?.map(passkey_id);
    Ok(SessionOpening { opener: maybe_key(row, 9)?, address: row.get(10)?, passkey })
}

/// Reads [`super::keys::KEY`].
pub(super) fn key(row: &Row<'_>) -> rusqlite::Result<KeyRecord> {
    let (opening, issuer) = match key_kind(row, 8)? {
        KeyKind::Api => (None, maybe_key(row, 9)?),
        KeyKind::Session => (Some(opening(row)?), None),
    };
    Ok(KeyRecord {
        user: maybe_user(row, 6)?,
        scopes: maybe_scopes(row, 7)?,
        id: key_id(row.get(0)?),
        opening,
        issuer,
        agent: row.get::<Option<_>>(11)?.map(agent_id),
        name: row.get(1)?,
        role: role(row, 2)?,
        created_at: time(row, 3)?,
        expires_at: maybe_time(row, 4)?,
        revoked_at: maybe_time(row, 5)?,
    })
}

/// Agents as [`super::conversations::CONVERSATION`] lists them.
pub(super) fn agents(row: &Row<'_>, column: usize) -> rusqlite::Result<BTreeMap<AgentId, Timestamp>> {
    let text: String = row.get::<Option<_>>(column)?.unwrap_or_default();
    let agent = |text: &str| {
        let (digits, joined) = text.split_at_checked(32)?;
        Some((AgentId::from_uuid(Uuid::try_parse(digits).ok()?), Timestamp::from_millis(joined.parse().ok()?)))
    };
    let agents = text.split_terminator(' ').map(|text| agent(text).ok_or_else(|| corrupt(column, "not an agent's id")));
    agents.collect()
}

pub(super) fn spoken_by(row: &Row<'_>, column: usize) -> rusqlite::Result<SpokenBy> {
    Ok(if row.get(column)? { SpokenBy::Others } else { SpokenBy::User })
}

/// Reads [`super::conversations::CONVERSATION`].
pub(super) fn conversation(row: &Row<'_>) -> rusqlite::Result<ConversationRecord> {
    Ok(ConversationRecord {
        user: maybe_user(row, 4)?,
        agents: agents(row, 5)?,
        spoken_by: spoken_by(row, 6)?,
        id: conversation_id(row.get(0)?),
        title: row.get(1)?,
        metadata: maybe_json(row, 2)?,
        created_at: time(row, 3)?,
    })
}

pub(super) fn actor(row: &Row<'_>, column: usize) -> rusqlite::Result<Actor> {
    row.get::<String>(column).map(Actor::from).map_err(|_| corrupt(column, "not an actor"))
}

/// Reads `uid, role, author, text, metadata, created`.
pub(super) fn message(row: &Row<'_>) -> rusqlite::Result<MessageRecord> {
    let role = match row.get::<i64>(1)? {
        0 => conversation::MessageRole::User,
        _ => conversation::MessageRole::Agent,
    };
    Ok(MessageRecord {
        id: message_id(row.get(0)?),
        role,
        author: actor(row, 2)?,
        text: row.get(3)?,
        metadata: maybe_json(row, 4)?,
        created_at: time(row, 5)?,
    })
}

/// Reads `uid, workspace, name, media_type, size, blake3, created, produced_by`.
pub(super) fn artifact(row: &Row<'_>) -> rusqlite::Result<ArtifactRecord> {
    Ok(ArtifactRecord {
        id: artifact_id(row.get(0)?),
        workspace: workspace_id(row.get(1)?),
        name: row.get(2)?,
        media_type: row.get(3)?,
        size: u64::try_from(row.get::<i64>(4)?).unwrap_or(0),
        blake3: row.get(5)?,
        created_at: time(row, 6)?,
        produced_by: row.get::<Option<_>>(7)?.map(run_id),
    })
}

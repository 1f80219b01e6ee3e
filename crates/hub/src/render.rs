//! Converts store records to wire types.

use std::time::Duration;

use attache_client::{a2a, egress};
use attache_protocol::{
    Json, KeyId, digest,
    rules::{
        permission::{self as permission_rules, DecisionScope, GrantPattern, GrantReach},
        permission_mode::PermissionMode,
        quota,
        run::RunPhase,
    },
    wire::{
        account::{self, Presence},
        artifact, channel, conversation, delivery,
        host_session::ContinuedSession,
        input_request, key, notification,
        permission::{self, ApprovalPolicy},
        run::{self, ClaimedRun},
        runtime, session,
        system::Storage,
        usage::{Budget, CostSource},
        user,
    },
};
use attache_store::{StorageFault, record};
use serde::Deserialize;

pub(crate) const fn storage(fault: StorageFault) -> Storage {
    match fault {
        StorageFault::DiskFull => Storage::DiskFull,
        StorageFault::ReadOnly => Storage::ReadOnly,
        StorageFault::Io | StorageFault::Damaged => Storage::Failed,
        StorageFault::Unreachable => Storage::Unreachable,
        StorageFault::ServedElsewhere => Storage::ServedElsewhere,
    }
}

pub(crate) fn account(record: record::AccountRecord) -> account::Account {
    let online = record.runtime.as_ref().is_some_and(|runtime| runtime.online);
    let settings_by_owner = record.instructing_owner().is_some();
    account::Account {
        agent_id: record.id,
        name: record.name,
        status: presence(online),
        description: record.description,
        instructions: record.instructions,
        skills: record.skills.parse().unwrap_or_default(),
        a2a: record.a2a,
        approvals: record.approvals.and_then(|approvals| approvals.parse().ok()).map(shown),
        owner_id: record.owner,
        settings_by_owner,
        callers: record.callers,
        run_timeout_ms: record.run_timeout.map(millis),
        on_limit: record.on_limit,
        confirm_approvals: record.confirm_approvals,
        runtime: record.runtime.map(runtime),
        peer: None,
        created_at: record.created_at,
        archived_at: record.archived_at,
        ended: record.ended,
    }
}

pub(crate) fn peer(record: &record::peer::PeerRecord) -> account::PeerInfo {
    let pin = |pin: &record::peer::PinnedCard| attache_protocol::KeyPin::from_digest(pin.digest).to_string();
    let card = record.pin.as_ref().and_then(|pin| a2a::read_card(&pin.card));
    let interface = card.and_then(|card| a2a::PeerInterface::choose(&card).ok());
    account::PeerInfo {
        binding: interface.as_ref().map(|interface| interface.binding.as_str().to_owned()),
        protocol_version: interface.as_ref().map(|interface| interface.version.as_str().to_owned()),
        url: egress::masked(&record.url),
        has_key: record.sealed.is_some(),
        card_pin: record.pin.as_ref().map(pin),
        pinned_at: record.pin.as_ref().map(|pin| pin.pinned_at),
        offered_pin: record.offered.as_ref().map(pin),
        problem: record.problem.clone(),
    }
}

/// A webhook's URL may contain a secret in its query.
fn shown(policy: ApprovalPolicy) -> ApprovalPolicy {
    ApprovalPolicy { webhook_url: policy.webhook_url.as_deref().map(egress::masked), ..policy }
}

/// For viewers: the target without the path, which often contains the webhook's secret.
pub(crate) fn delivery_origin(record: record::delivery::DeliveryRecord) -> delivery::Delivery {
    let shown = delivery(record);
    let path = shown.url.find("://").and_then(|at| shown.url[at + 3..].find(['/', '?', '#']).map(|path| at + 3 + path));
    let url = path.map_or_else(|| shown.url.clone(), |path| format!("{}/***", &shown.url[..path]));
    delivery::Delivery { url, ..shown }
}

pub(crate) fn delivery(record: record::delivery::DeliveryRecord) -> delivery::Delivery {
    let (at, status, error) = match record.last {
        Some(last) => (Some(last.at), last.status, last.error),
        None => (None, None, None),
    };
    delivery::Delivery {
        delivery_id: record.id,
        kind: record.kind,
        task_run_id: record.run,
        permission_request_id: record.permission,
        url: egress::masked(&record.url),
        state: record.state,
        attempts: record.attempts,
        next_attempt_at: record.next_at,
        last_attempt_at: at,
        last_status: status,
        last_error: error,
        created_at: record.created_at,
        delivered_at: record.delivered_at,
    }
}

/// `own` is the caller's key or session.
pub(crate) fn notification_target(
    record: record::notification::NotificationTargetRecord,
    own: Option<KeyId>,
) -> notification::NotificationTarget {
    notification::NotificationTarget {
        notification_target_id: record.id,
        service: record.service,
        name: record.name,
        user_id: record.user,
        key_id: record.key,
        origin: record.origin,
        choices: record.choices,
        created_at: record.created_at,
        current: own == Some(record.key),
    }
}

pub(crate) fn runtime(record: record::RuntimeRecord) -> runtime::Runtime {
    runtime::Runtime {
        runtime_id: record.id,
        agent_id: record.agent,
        state: record.state,
        status: presence(record.online),
        device_name: record.device_name,
        labels: record.labels,
        attached_at: record.attached_at,
        last_heartbeat_at: record.last_heartbeat_at,
        ended_at: record.ended_at,
        token_rotated_at: record.token_rotated_at,
        token_reused_at: record.token_reused_at,
        extensions: record.extensions.and_then(|extensions| extensions.parse().ok()).unwrap_or_default(),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

const fn presence(online: bool) -> Presence {
    if online { Presence::Online } else { Presence::Offline }
}

pub(crate) fn run(record: record::RunRecord) -> run::Run {
    let expires_at = match &record.state.phase {
        RunPhase::Pending { expires_at } => Some(*expires_at),
        RunPhase::Deferred { .. } | RunPhase::Running(_) | RunPhase::Ended { .. } => None,
    };
    run::Run {
        task_run_id: record.id,
        agent_id: record.agent,
        agent_name: record.agent_name,
        conversation_id: record.conversation,
        workspace_id: record.conversation.workspace(),
        parent_task_run_id: record.spec.parent,
        status: record.state.status(),
        waits_for: None,
        waiting: record.state.waiting(),
        recovery: None,
        task_type: record.spec.task_type,
        attempt: record.state.attempt,
        max_attempts: record.state.limits.max_attempts,
        epoch: record.state.epoch,
        priority: record.spec.priority,
        timeout_ms: millis(record.state.limits.timeout),
        input: record.spec.input,
        task_result: record.result,
        usage_source: CostSource::of(record.usage.as_ref()),
        usage: record.usage,
        sandbox: record.spec.sandbox,
        permission_mode: record.spec.permission_mode,
        worktree: record.spec.worktree,
        caller: record.caller.to_string(),
        user_id: record.user,
        trace_id: record.spec.trace_id,
        runtime_id: record.runtime,
        created_at: record.created_at,
        claimed_at: record.claimed_at,
        lease_expires_at: record.state.claim().map(|claim| claim.lease_until),
        expires_at,
        deferred_until: record.state.deferred_until(),
        continues: record.spec.continues,
        ended_at: record.ended_at,
        last_seq: record.last_seq,
    }
}

/// The claim for a runtime. `None` if the record is not a claim, which the store prevents.
pub(crate) fn claimed(claimed: record::ClaimedRunRecord) -> Option<ClaimedRun> {
    let run = claimed.run;
    let claim = run.state.claim()?;
    let (lease_expires_at, deadline) = (claim.lease_until, claim.claimed_at.plus(run.state.limits.timeout));
    let instructions = instructions(claimed.agent_instructions, claimed.conversation_metadata.as_ref());
    let continued = ContinuedSession::of(claimed.conversation_metadata.as_ref());
    let continued = continued.filter(|session| session.agent_id == run.agent);
    Some(ClaimedRun {
        task_run_id: run.id,
        agent_id: run.agent,
        conversation_id: run.conversation,
        workspace_id: run.conversation.workspace(),
        task_type: run.spec.task_type,
        input: run.spec.input,
        instructions,
        context_fragments: run.spec.context_fragments,
        allowed_tools: run.spec.allowed_tools,
        workspace_root: run.spec.workspace_root,
        parent_task_run_id: run.spec.parent,
        caller: run.caller.to_string(),
        trace_id: run.spec.trace_id,
        epoch: run.state.epoch,
        attempt: run.state.attempt,
        lease_expires_at,
        deadline,
        budget: budget(claimed.left),
        sandbox: run.spec.sandbox,
        permission_mode: run.spec.permission_mode.filter(|mode| *mode == PermissionMode::PlanFirst),
        worktree: run.spec.worktree,
        for_owner: false,
        host_session: continued.map(|session| session.session_id),
        mcp: None,
    })
}

/// `None` if unlimited.
fn budget(left: quota::QuotaBudget) -> Option<Budget> {
    let dollars = |micro_usd| Json::from_text(quota::usd(micro_usd)).expect("a number is JSON");
    let budget = Budget { tokens: left.tokens, cost_usd: left.micro_usd.map(dollars) };
    (budget != Budget::default()).then_some(budget)
}

/// The agent's own instructions, then the conversation's.
fn instructions(agent: Option<String>, metadata: Option<&attache_protocol::Json>) -> Option<String> {
    #[derive(Deserialize)]
    struct InstructionsMetadata {
        instructions: Option<String>,
    }
    let conversation =
        metadata.and_then(|json| json.parse::<InstructionsMetadata>().ok()).and_then(|known| known.instructions);
    match (agent, conversation) {
        (Some(agent), Some(conversation)) => Some(format!("{agent}\n\n{conversation}")),
        (agent, conversation) => agent.or(conversation),
    }
}

pub(crate) fn conversation(record: record::ConversationRecord) -> conversation::Conversation {
    conversation::Conversation {
        conversation_id: record.id,
        workspace_id: record.id.workspace(),
        title: record.title,
        metadata: record.metadata,
        created_at: record.created_at,
    }
}

pub(crate) fn message(record: record::MessageRecord) -> conversation::ConversationMessage {
    conversation::ConversationMessage {
        message_id: record.id.to_string(),
        role: record.role,
        author: record.author.to_string(),
        text: record.text,
        metadata: record.metadata,
        task_run_id: None,
        created_at: record.created_at,
    }
}

pub(crate) fn artifact(record: record::ArtifactRecord) -> artifact::WorkspaceArtifact {
    artifact::WorkspaceArtifact {
        artifact_id: record.id,
        workspace_id: record.workspace,
        name: record.name,
        media_type: record.media_type,
        size: record.size,
        blake3: digest::hex(&record.blake3),
        produced_by: record.produced_by,
        created_at: record.created_at,
    }
}

pub(crate) fn user(record: record::user::UserRecord) -> user::User {
    user::User {
        user_id: record.id,
        name: record.name,
        role: record.role,
        has_password: record.password.is_some(),
        created_at: record.created_at,
        removed_at: record.removed_at,
    }
}

pub(crate) fn key(record: record::KeyRecord) -> key::Key {
    key::Key {
        key_id: record.id,
        name: record.name,
        role: record.role,
        user_id: record.user,
        scopes: record.scopes,
        created_at: record.created_at,
        expires_at: record.expires_at,
        revoked_at: record.revoked_at,
    }
}

/// `own` is the caller's credential.
pub(crate) fn session(record: record::KeyRecord, own: Option<KeyId>) -> session::ConsoleSession {
    let opening = record.opening.unwrap_or_default();
    session::ConsoleSession {
        session_id: record.id,
        user_id: record.user,
        role: record.role,
        scopes: record.scopes,
        opened_by: opening.opener,
        passkey_id: opening.passkey,
        address: opening.address,
        created_at: record.created_at,
        expires_at: record.expires_at,
        ended_at: record.revoked_at,
        current: own == Some(record.id),
    }
}

pub(crate) fn permission(record: record::worker_request::PermissionRecord) -> permission::PermissionRequest {
    let settled = record.settled;
    let decision = settled.as_ref().and_then(|settled| settled.decision.clone());
    permission::PermissionRequest {
        permission_request_id: record.id,
        task_run_id: record.run,
        agent_id: record.agent,
        agent_name: record.agent_name,
        conversation_id: record.conversation,
        runtime_id: record.runtime,
        channel_id: record.channel,
        epoch: record.epoch,
        once: permission_rules::once(&record.tool, record.private_agent, &record.undisclosed),
        tool: record.tool,
        input: record.input,
        cwd: record.cwd,
        paths: record.paths,
        reason: record.reason,
        risk: record.risk,
        diff: record.diff,
        undisclosed: record.undisclosed,
        subject: digest::hex(&record.subject.0),
        confirm_approvals: record.confirm_approvals,
        state: record.state,
        requested_at: record.requested_at,
        expires_at: record.expires_at,
        on_timeout: record.on_timeout,
        approved: record.state.approved(),
        decided_by: settled.as_ref().map(|settled| settled.by.to_string()),
        decided_at: settled.as_ref().map(|settled| settled.at),
        source: settled.as_ref().and_then(|settled| settled.source),
        decided_via: settled.as_ref().and_then(|settled| settled.via.clone()),
        decided_from: settled.as_ref().and_then(|settled| settled.from.clone()),
        grant_id: settled.as_ref().and_then(|settled| settled.grant),
        scope: decision.as_ref().map(|decision| decision.scope),
        until: decision.as_ref().and_then(|decision| decision.until),
        this_channel_only: decision.as_ref().is_some_and(|decision| decision.this_channel_only),
        tool_pattern: decision.as_ref().and_then(|decision| decision.tool_pattern.clone()),
        comment: decision.and_then(|decision| decision.comment),
    }
}

/// The answer for the worker.
pub(crate) fn answer(record: record::worker_request::PermissionRecord) -> permission::PermissionAnswer {
    let decision = record.settled.and_then(|settled| settled.decision);
    permission::PermissionAnswer {
        permission_request_id: record.id,
        state: record.state,
        approved: record.state.approved(),
        scope: decision.as_ref().map(|decision| decision.scope),
        comment: decision.and_then(|decision| decision.comment),
    }
}

pub(crate) fn grant(record: record::worker_request::GrantRecord) -> permission::PermissionGrant {
    let grant = record.grant;
    let (scope, task_run_id, conversation_id) = match grant.reach {
        GrantReach::Run(run) => (DecisionScope::Run, Some(run), None),
        GrantReach::Conversation { conversation, agent: _ } => (DecisionScope::Conversation, None, Some(conversation)),
        GrantReach::Agent(_) => (DecisionScope::Agent, None, None),
    };
    let (subject, tool_pattern) = match grant.what {
        GrantPattern::Subject(subject) => (Some(digest::hex(&subject.0)), None),
        GrantPattern::Tools(pattern) => (None, Some(pattern)),
    };
    permission::PermissionGrant {
        grant_id: grant.id,
        approved: grant.approved,
        scope,
        agent_id: record.agent,
        task_run_id,
        conversation_id,
        channel_id: grant.channel,
        tool_pattern,
        subject,
        until: grant.until,
        permission_request_id: record.permission,
        created_by: record.created_by.to_string(),
        created_at: record.created_at,
        ended_at: record.ended_at,
        revoked_at: record.revoked_at,
    }
}

pub(crate) fn worker_request(record: record::worker_request::WorkerRequestRecord) -> input_request::InputAnswer {
    input_request::InputAnswer {
        input_request_id: record.id,
        state: record.state,
        parts: record.answer,
        message: record.message,
    }
}

pub(crate) fn channel(record: record::channel::ChannelRecord) -> channel::Channel {
    let status =
        if record.connected { channel::ConnectionState::Connected } else { channel::ConnectionState::Disconnected };
    channel::Channel {
        channel_id: record.id,
        transport: record.transport,
        peer_role: record.peer_role,
        account_ref: record.account_ref,
        capabilities: record.capabilities.parse().unwrap_or_default(),
        last_seen_at: record.last_seen_at,
        // Enough of the hash to tell tokens apart, but not to find one.
        resume_token_ref: record.resume.map(|hash| digest::hex(&hash.0[..6])),
        native_protocol: record.native_protocol,
        agent_card_ref: None,
        status,
        agent_id: record.agent,
        runtime_id: record.runtime,
        address: record.address,
        device_info: record.device_info,
        tools: record.tools,
        created_at: record.created_at,
        connected_at: record.connected_at,
        disconnected_at: record.disconnected_at,
        reason: record.reason,
        unacknowledged: record.head - record.floor,
    }
}

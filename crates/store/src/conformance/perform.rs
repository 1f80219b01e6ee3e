//! Performs a step on a store.

use attache_protocol::TenantId;

use super::{
    generator_state::LEASE,
    step::{ListToRead, StoreStep},
    step_result::{StepResult, StepValue},
};
use crate::{
    Result, Store,
    record::{
        ListPage, NewProgress, Pagination,
        peer::{PeerRecord, PeerTask},
        task::TaskPage,
    },
};

const WRONG_CURSOR: &str = "no store gives out this cursor";

/// Collects the pages of a list; `$read` reads one page from a [`Page`].
macro_rules! walk {
    ($limit:expr, $page:ident => $read:expr) => {{
        let mut pages = Vec::new();
        let mut $page = Pagination { limit: $limit, cursor: None };
        loop {
            let ListPage { items, next } = $read?;
            pages.push(items);
            match next {
                Some(cursor) => $page.cursor = Some(cursor),
                None => break pages,
            }
        }
    }};
}

/// Performs every step but [`Step::Crash`] and [`Step::CreateTenant`], which concern an engine and not a store.
pub async fn perform(store: &dyn Store, step: StoreStep) -> StepResult {
    Ok(match step {
        StoreStep::Crash | StoreStep::CreateTenant { .. } => StepValue::Nothing,
        StoreStep::EnsureTenant { id, name, at } => StepValue::Tenant(store.ensure_tenant(id, &name, at).await?),

        StoreStep::CreateAccount(context, new) => {
            StepValue::Account(Box::new(store.create_account(context, new).await?))
        }
        StoreStep::UpdateAccount(context, agent, patch) => {
            StepValue::Account(Box::new(store.update_account(context, agent, patch).await?))
        }
        StoreStep::ArchiveAccount(context, agent) => {
            StepValue::Account(Box::new(store.archive_account(context, agent).await?))
        }
        StoreStep::Account(tenant, agent) => StepValue::Account(Box::new(store.account(tenant, agent).await?)),

        StoreStep::CreatePairingCode(context, new) => nothing(store.create_pairing_code(context, new).await)?,
        StoreStep::RequestPairing(new, at) => nothing(store.request_pairing(new, at).await)?,
        StoreStep::PairingRequest(code, at) => StepValue::PairingRequest(store.pairing_request(code, at).await?),
        StoreStep::PairingCode(proof, at) => StepValue::PairingCode(store.pairing(proof, at).await?),
        StoreStep::DecidePairing(context, code, decision) => {
            nothing(store.decide_pairing(context, code, decision).await)?
        }
        StoreStep::AttachRuntime(new, at) => StepValue::Runtime(Box::new(store.attach_runtime(new, at).await?)),

        StoreStep::Runtime(tenant, runtime) => StepValue::Runtime(Box::new(store.runtime(tenant, runtime).await?)),
        StoreStep::RevokeRuntime(context, runtime) => {
            StepValue::Runtime(Box::new(store.revoke_runtime(context, runtime).await?))
        }
        StoreStep::ChangeToken(runtime, change, at) => {
            StepValue::Runtime(Box::new(store.change_token(runtime, change, at).await?))
        }
        StoreStep::Leave(runtime, at) => nothing(store.disconnect_runtime(runtime, at).await)?,
        StoreStep::Heartbeat { runtime, running, leases, at } => {
            StepValue::Beat(store.heartbeat(runtime, running, leases, at).await?)
        }

        StoreStep::Credential(secret) => StepValue::Credential(store.credential(secret).await?),
        StoreStep::CreateKey(context, new) => StepValue::Key(store.create_key(context, new).await?),
        StoreStep::RevokeKey(context, key) => StepValue::Key(store.revoke_key(context, key).await?),

        StoreStep::CreateRun(context, new) => StepValue::Created(Box::new(store.create_run(context, *new).await?)),
        StoreStep::Claim { runtime, via, enforces, lease, at } => {
            StepValue::Claimed(store.claim(runtime, via, enforces, lease, at).await?.map(Box::new))
        }
        StoreStep::Progress { by, run, events, usage, report, lease, at } => {
            let progress = NewProgress { events, usage, report };
            StepValue::Status(store.progress(by, run, progress, lease, at).await?)
        }
        StoreStep::Finish { by, run, outcome, usage, inputs_taken, at } => {
            StepValue::Status(store.finish(by, run, outcome, usage, inputs_taken, at).await?)
        }
        StoreStep::CancelRun(context, run, reason) => {
            StepValue::Run(Box::new(store.cancel_run(context, run, reason).await?))
        }
        StoreStep::Release { by, run, at } => StepValue::Run(Box::new(store.release(by, run, at).await?)),
        StoreStep::Run(tenant, run) => StepValue::Run(Box::new(store.run(tenant, run).await?)),
        StoreStep::Live(tenant) => StepValue::Live(store.live(tenant).await?),
        StoreStep::Sweep { silence, at } => StepValue::Swept(store.sweep(silence, at).await?),
        StoreStep::AdvanceClock { step, at } => StepValue::Clock(Some(store.advance_clock(step, at).await?)),
        StoreStep::Clock => StepValue::Clock(store.clock().await?),
        StoreStep::Retain(retention) => StepValue::RetentionResult(store.retain(retention).await?),
        StoreStep::DeleteRun(context, run) => StepValue::RetentionResult(store.delete_run(context, run).await?),
        StoreStep::DeleteConversation(context, conversation) => {
            StepValue::RetentionResult(store.delete_conversation(context, conversation).await?)
        }
        StoreStep::UnusedBlobs(blobs) => StepValue::Blobs(store.unused_blobs(blobs).await?),

        StoreStep::RunEvents { tenant, run, after, limit } => {
            StepValue::RunEvents(store.run_events(tenant, run, after, limit).await?)
        }
        StoreStep::RunOutline { tenant, run, upto, shown } => {
            StepValue::RunOutline(store.run_outline(tenant, run, upto, shown).await?)
        }
        StoreStep::Log { tenant, after, limit } => StepValue::Log(store.log(tenant, after, limit).await?),

        StoreStep::CreateConversation(context, new) => {
            StepValue::Conversation(store.create_conversation(context, new).await?)
        }
        StoreStep::Conversation(tenant, conversation) => {
            StepValue::Conversation(store.conversation(tenant, conversation).await?)
        }
        StoreStep::AddMessage(context, new) => StepValue::Message(store.add_message(context, new).await?),
        StoreStep::AddArtifact(context, new) => StepValue::Artifact(Box::new(store.add_artifact(context, new).await?)),
        StoreStep::Artifact(tenant, artifact) => StepValue::Artifact(Box::new(store.artifact(tenant, artifact).await?)),

        StoreStep::OpenChannel(context, new) => StepValue::Channel(Box::new(store.open_channel(context, *new).await?)),
        StoreStep::ResumeChannel(context, resume) => {
            StepValue::Resumed(Box::new(store.resume_channel(context, resume).await?))
        }
        StoreStep::CloseChannel(context, channel, reason) => {
            StepValue::Channel(Box::new(store.close_channel(context, channel, &reason).await?))
        }
        StoreStep::CloseConnection(context, connection, reason) => {
            StepValue::Held(store.close_connection(context, connection, &reason).await?)
        }
        // What a hub does when it starts.
        StoreStep::CloseChannels { reason, at } => {
            store.close_channels(&reason, at).await?;
            nothing(store.renew_claims(LEASE, at).await)?
        }
        StoreStep::SeenChannels { connections, lease, at } => {
            nothing(store.mark_channels_seen(connections, lease, at).await)?
        }
        StoreStep::ChannelMessage(context, channel, message) => {
            nothing(store.channel_message(context, channel, message).await)?
        }
        StoreStep::Channel(tenant, channel) => StepValue::Channel(Box::new(store.channel(tenant, channel).await?)),
        StoreStep::ChannelEvents { tenant, channel, after, limit } => {
            StepValue::ChannelEvents(store.channel_events(tenant, channel, after, limit).await?)
        }
        StoreStep::Frames { channel, after, limit } => StepValue::Frames(store.frames(channel, after, limit).await?),
        StoreStep::Acknowledge { connection, seq } => nothing(store.acknowledge(connection, seq).await)?,
        StoreStep::Follows(channel) => StepValue::Follows(store.follows(channel).await?),
        StoreStep::Follower(run) => StepValue::Follower(store.follower(run).await?),
        StoreStep::PushEvents { connection, run, upto, limit } => {
            StepValue::Follower(Some(store.push_events(connection, run, upto, limit).await?))
        }

        StoreStep::RequestPermission { by, permission, lease, at } => {
            StepValue::Permission(Box::new(store.request_permission(by, *permission, lease, at).await?))
        }
        StoreStep::DecidePermission(context, permission, decision) => {
            StepValue::Permission(Box::new(store.decide_permission(context, permission, decision).await?))
        }
        StoreStep::Permission(tenant, permission) => {
            StepValue::Permission(Box::new(store.permission(tenant, permission).await?))
        }
        StoreStep::PendingPermissions(tenant) => StepValue::Count(store.pending_permissions(tenant).await?),
        StoreStep::RevokeGrant(context, grant) => StepValue::Grant(Box::new(store.revoke_grant(context, grant).await?)),
        StoreStep::Ask { by, ask, lease, at } => {
            StepValue::Ask(Box::new(store.create_worker_request(by, ask, lease, at).await?))
        }
        StoreStep::WithdrawAsk { by, run, ask, lease, at } => {
            StepValue::Ask(Box::new(store.withdraw_worker_request(by, run, ask, lease, at).await?))
        }
        StoreStep::Asked(tenant, ask) => StepValue::Ask(Box::new(store.worker_request(tenant, ask).await?)),
        StoreStep::OpenAsk(tenant, run) => {
            StepValue::OpenAsk(store.open_worker_request(tenant, run).await?.map(Box::new))
        }
        StoreStep::AnswerTool(context, ask, reply) => {
            StepValue::Ask(Box::new(store.answer_tool_call(context, ask, reply).await?))
        }
        StoreStep::AddInput(context, input) => StepValue::Input(store.add_input(context, input).await?),
        StoreStep::Input(run, input) => StepValue::Input(store.input(run, input).await?),

        StoreStep::CreateUser(context, new) => StepValue::User(store.create_user(context, new).await?),
        StoreStep::UpdateUser(context, user, patch, keep) => {
            StepValue::User(store.update_user(context, user, patch, keep).await?)
        }
        StoreStep::RemoveUser(context, user) => StepValue::User(store.remove_user(context, user).await?),
        StoreStep::User(tenant, user) => StepValue::User(store.user(tenant, user).await?),
        StoreStep::KeyCredential(key) => StepValue::Credential(store.key_credential(key).await?),
        StoreStep::AccessRules(tenant) => StepValue::AccessRules(store.access_rules(tenant).await?),
        StoreStep::RecordEvent(context, event) => nothing(store.record_event(context, event).await)?,
        StoreStep::SetAccessRules(context, text, expected) => {
            StepValue::AccessRules(Some(store.set_access_rules(context, text, expected).await?))
        }

        StoreStep::SetQuota(context, target, limits) => {
            StepValue::Quotas(vec![store.set_quota(context, target, limits).await?])
        }
        StoreStep::RemoveQuota(context, target) => nothing(store.remove_quota(context, target).await)?,
        StoreStep::Quotas(tenant, at) => StepValue::Quotas(store.quotas(tenant, at).await?),
        StoreStep::Usage { tenant, first, last } => StepValue::Usage(store.usage(tenant, first, last).await?),

        StoreStep::StartNode(node) => nothing(store.start_node(node).await)?,
        StoreStep::BeatNode(node) => StepValue::Nodes(store.beat_node(node).await?),
        StoreStep::EndNode { node, reason, at } => StepValue::Held(store.end_node(node, &reason, at).await?),
        StoreStep::LeaseDeliveries(node, attempts) => StepValue::Leased(store.lease_deliveries(node, attempts).await?),
        StoreStep::Lease(node, name) => StepValue::Held(store.lease(node, &name).await?),
        StoreStep::ReleaseLease(node, name) => nothing(store.release_lease(node, &name).await)?,

        StoreStep::KeepValue(value, limit, at) => StepValue::Held(store.keep_value(value, limit, at).await?),
        StoreStep::SharedValue(kind, name, at) => {
            StepValue::SharedValues(store.shared_value(kind, &name, at).await?.into_iter().collect())
        }
        StoreStep::SharedValues(kind, at) => StepValue::SharedValues(store.shared_values(kind, at).await?),
        StoreStep::ValueHolders(kind, at) => StepValue::ValueHolders(store.value_holders(kind, at).await?),
        StoreStep::TakeValue { kind, name, until, at } => {
            StepValue::SharedValues(store.take_value(kind, &name, until, at).await?.into_iter().collect())
        }
        StoreStep::DropValues(kind, tenant, holder) => nothing(store.drop_values(kind, tenant, &holder).await)?,

        StoreStep::DueDeliveries { node, at, limit } => {
            StepValue::DueDeliveries(store.due_deliveries(node, at, limit).await?)
        }
        StoreStep::RecordAttempt { delivery, number, attempt, next } => {
            StepValue::Delivery(Box::new(store.record_attempt(delivery, number, attempt, next).await?))
        }
        StoreStep::ResendDelivery(context, delivery) => {
            StepValue::Delivery(Box::new(store.resend_delivery(context, delivery).await?))
        }
        StoreStep::Delivery(tenant, delivery) => StepValue::Delivery(Box::new(store.delivery(tenant, delivery).await?)),

        StoreStep::SetPushConfig(context, run, new) => {
            StepValue::PushConfigs(vec![store.set_push_config(context, run, new).await?])
        }
        StoreStep::RemovePushConfig(context, run, id) => nothing(store.remove_push_config(context, run, &id).await)?,
        StoreStep::PushConfig(tenant, run, id) => {
            StepValue::PushConfigs(vec![store.push_config(tenant, run, &id).await?])
        }
        StoreStep::PushConfigs(tenant, run) => StepValue::PushConfigs(store.push_configs(tenant, run).await?),

        StoreStep::AddPasskey(context, new) => StepValue::Passkeys(vec![store.add_passkey(context, new).await?]),
        StoreStep::Passkey(tenant, credential) => StepValue::Passkeys(vec![store.passkey(tenant, &credential).await?]),
        StoreStep::Passkeys(tenant, user) => StepValue::Passkeys(store.passkeys(tenant, user).await?),
        StoreStep::UsePasskey { tenant, passkey, counter, at } => {
            StepValue::Held(store.use_passkey(tenant, passkey, counter, at).await?)
        }
        StoreStep::RemovePasskey(context, user, passkey) => {
            StepValue::Passkeys(vec![store.remove_passkey(context, user, passkey).await?])
        }
        StoreStep::CreateNotificationTarget(context, new) => {
            StepValue::NotificationTargets(vec![store.create_notification_target(context, new).await?])
        }
        StoreStep::UpdateNotificationTarget(context, target, choices) => {
            StepValue::NotificationTargets(vec![store.update_notification_target(context, target, choices).await?])
        }
        StoreStep::RemoveNotificationTarget(context, target) => {
            nothing(store.remove_notification_target(context, target).await)?
        }
        StoreStep::NotificationTarget(tenant, target) => {
            StepValue::NotificationTargets(vec![store.notification_target(tenant, target).await?])
        }
        StoreStep::NotificationTargets(tenant) => {
            StepValue::NotificationTargets(store.notification_targets(tenant).await?)
        }
        StoreStep::AddNotifications(context, run, seq, targets) => {
            let made = store.add_notifications(context, run, seq, targets).await?;
            StepValue::Count(u64::try_from(made).unwrap_or(u64::MAX))
        }
        StoreStep::LastNotified(tenant) => StepValue::Seq(store.last_notified(tenant).await?),

        StoreStep::DecideWorktree(context, new) => {
            StepValue::Worktrees(vec![store.decide_worktree(context, new).await?])
        }
        StoreStep::SettleWorktree(runtime, run, number, outcome, at) => {
            StepValue::Worktrees(vec![store.settle_worktree(runtime, run, number, outcome, at).await?])
        }
        StoreStep::WorktreeDecision(tenant, run) => {
            StepValue::Worktrees(store.worktree_decision(tenant, run).await?.into_iter().collect())
        }
        StoreStep::PendingWorktrees(agent, at) => StepValue::Worktrees(store.pending_worktrees(agent, at).await?),

        StoreStep::SetPeer(context, agent, new) => peer(Some(store.set_peer(context, agent, new).await?)),
        StoreStep::Peer(tenant, agent) => peer(store.peer(tenant, agent).await?),
        StoreStep::Peers => StepValue::Peers(store.peers().await?),
        StoreStep::PinCard(context, agent, url, card) => peer(Some(store.pin_card(context, agent, &url, card).await?)),
        StoreStep::OfferCard(context, agent, url, card, problem) => {
            peer(Some(store.offer_card(context, agent, &url, card, &problem).await?))
        }
        StoreStep::TrustCard(context, agent, seen) => peer(Some(store.trust_card(context, agent, seen).await?)),
        StoreStep::NotePeer(agent, problem) => nothing(store.note_peer(agent, problem).await)?,
        StoreStep::BeginPeerTask { by, run, task, lease, at } => {
            peer_task(Some(store.begin_peer_task(by, run, task, lease, at).await?))
        }
        StoreStep::LinkPeerTask { by, run, change, lease, at } => {
            peer_task(Some(store.link_peer_task(by, run, change, lease, at).await?))
        }
        StoreStep::PeerTask(tenant, run) => peer_task(store.peer_task(tenant, run).await?),
        StoreStep::PeerTaskById(agent, id) => peer_task(store.peer_task_by_id(agent, &id).await?),
        StoreStep::OpenPeerTasks(agent) => StepValue::PeerTasks(store.open_peer_tasks(agent).await?),
        StoreStep::DeclareExtensions(runtime, extensions) => {
            StepValue::Runtime(Box::new(store.declare_extensions(runtime, extensions).await?))
        }

        StoreStep::PublishDelegation(context, new) => {
            StepValue::Delegation(Box::new(store.publish_delegation(context, new).await?))
        }
        StoreStep::CancelDelegation(context, id) => {
            StepValue::Delegation(Box::new(store.cancel_delegation(context, id).await?))
        }
        StoreStep::Delegation(tenant, id) => StepValue::Delegation(Box::new(store.delegation(tenant, id).await?)),
        StoreStep::List { tenant, list, limit } => walked(store, tenant, list, limit).await?,
        StoreStep::WrongCursor { tenant, list } => wrong_cursor(store, tenant, list).await?,
    })
}

fn nothing(done: Result<()>) -> StepResult {
    done.map(|()| StepValue::Nothing)
}

fn peer(peer: Option<PeerRecord>) -> StepValue {
    StepValue::Peer(peer.map(Box::new))
}

fn peer_task(task: Option<PeerTask>) -> StepValue {
    StepValue::PeerTask(task.map(Box::new))
}

async fn walked(store: &dyn Store, tenant: TenantId, list: ListToRead, limit: usize) -> StepResult {
    Ok(match list {
        ListToRead::Accounts => StepValue::Accounts(walk!(limit, page => store.accounts(tenant, page.clone()).await)),
        ListToRead::Runtimes(agent) => {
            StepValue::Runtimes(walk!(limit, page => store.runtimes(tenant, agent, page.clone()).await))
        }
        ListToRead::Keys(kind, user) => {
            StepValue::Keys(walk!(limit, page => store.keys(tenant, kind, user, page.clone()).await))
        }
        ListToRead::Runs(filter) => {
            StepValue::Runs(walk!(limit, page => store.runs(tenant, filter.clone(), page.clone()).await))
        }
        ListToRead::Conversations => {
            StepValue::Conversations(walk!(limit, page => store.conversations(tenant, page.clone()).await))
        }
        ListToRead::Messages(conversation) => {
            StepValue::Messages(walk!(limit, page => store.messages(tenant, conversation, page.clone()).await))
        }
        ListToRead::Artifacts(workspace) => {
            StepValue::Artifacts(walk!(limit, page => store.artifacts(tenant, workspace, page.clone()).await))
        }
        ListToRead::Channels(filter) => {
            StepValue::Channels(walk!(limit, page => store.channels(tenant, filter.clone(), page.clone()).await))
        }
        ListToRead::Permissions(filter) => {
            StepValue::Permissions(walk!(limit, page => store.permissions(tenant, filter.clone(), page.clone()).await))
        }
        ListToRead::Grants => StepValue::Grants(walk!(limit, page => store.grants(tenant, page.clone()).await)),
        ListToRead::Users => StepValue::Users(walk!(limit, page => store.users(tenant, page.clone()).await)),
        ListToRead::Deliveries(filter) => {
            StepValue::Deliveries(walk!(limit, page => store.deliveries(tenant, filter.clone(), page.clone()).await))
        }
        ListToRead::Delegations(filter) => {
            StepValue::Delegations(walk!(limit, page => store.delegations(tenant, filter.clone(), page.clone()).await))
        }
        ListToRead::Tasks(filter) => {
            let mut pages = Vec::new();
            let mut page = Pagination { limit, cursor: None };
            loop {
                let TaskPage { items, next, total } = store.tasks(tenant, filter.clone(), page.clone()).await?;
                pages.push((items.into_iter().map(|item| item.run).collect(), total));
                match next {
                    Some(cursor) => page.cursor = Some(cursor),
                    None => break StepValue::Tasks(pages),
                }
            }
        }
    })
}

async fn wrong_cursor(store: &dyn Store, tenant: TenantId, list: ListToRead) -> StepResult {
    let page = Pagination { limit: 5, cursor: Some(WRONG_CURSOR.to_owned()) };
    Ok(match list {
        ListToRead::Accounts => StepValue::Accounts(vec![store.accounts(tenant, page).await?.items]),
        ListToRead::Runtimes(agent) => StepValue::Runtimes(vec![store.runtimes(tenant, agent, page).await?.items]),
        ListToRead::Keys(kind, user) => StepValue::Keys(vec![store.keys(tenant, kind, user, page).await?.items]),
        ListToRead::Runs(filter) => StepValue::Runs(vec![store.runs(tenant, filter, page).await?.items]),
        ListToRead::Conversations => StepValue::Conversations(vec![store.conversations(tenant, page).await?.items]),
        ListToRead::Messages(conversation) => {
            StepValue::Messages(vec![store.messages(tenant, conversation, page).await?.items])
        }
        ListToRead::Artifacts(workspace) => {
            StepValue::Artifacts(vec![store.artifacts(tenant, workspace, page).await?.items])
        }
        ListToRead::Channels(filter) => StepValue::Channels(vec![store.channels(tenant, filter, page).await?.items]),
        ListToRead::Permissions(filter) => {
            StepValue::Permissions(vec![store.permissions(tenant, filter, page).await?.items])
        }
        ListToRead::Grants => StepValue::Grants(vec![store.grants(tenant, page).await?.items]),
        ListToRead::Users => StepValue::Users(vec![store.users(tenant, page).await?.items]),
        ListToRead::Delegations(filter) => {
            StepValue::Delegations(vec![store.delegations(tenant, filter, page).await?.items])
        }
        ListToRead::Deliveries(filter) => {
            StepValue::Deliveries(vec![store.deliveries(tenant, filter, page).await?.items])
        }
        ListToRead::Tasks(filter) => {
            let TaskPage { items, total, .. } = store.tasks(tenant, filter, page).await?;
            StepValue::Tasks(vec![(items.into_iter().map(|item| item.run).collect(), total)])
        }
    })
}

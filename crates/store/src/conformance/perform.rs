//! Performs a step on a store.

use attache_protocol::TenantId;

use super::{
    answer::{Answer, Value},
    known::LEASE,
    step::{List, Step},
};
use crate::{
    Result, Store,
    record::{
        Listed, NewProgress, Page,
        peer::{Peer, PeerTask},
        task::TaskListed,
    },
};

const WRONG_CURSOR: &str = "no store gives out this cursor";

/// Collects the pages of a list; `$read` reads one page from a [`Page`].
macro_rules! walk {
    ($limit:expr, $page:ident => $read:expr) => {{
        let mut pages = Vec::new();
        let mut $page = Page { limit: $limit, cursor: None };
        loop {
            let Listed { items, next } = $read?;
            pages.push(items);
            match next {
                Some(cursor) => $page.cursor = Some(cursor),
                None => break pages,
            }
        }
    }};
}

/// Performs every step but [`Step::Crash`] and [`Step::CreateTenant`], which concern an engine and not a store.
pub async fn perform(store: &dyn Store, step: Step) -> Answer {
    Ok(match step {
        Step::Crash | Step::CreateTenant { .. } => Value::Nothing,
        Step::EnsureTenant { id, name, at } => Value::Tenant(store.ensure_tenant(id, &name, at).await?),

        Step::CreateAccount(context, new) => Value::Account(Box::new(store.create_account(context, new).await?)),
        Step::UpdateAccount(context, agent, patch) => {
            Value::Account(Box::new(store.update_account(context, agent, patch).await?))
        }
        Step::ArchiveAccount(context, agent) => Value::Account(Box::new(store.archive_account(context, agent).await?)),
        Step::Account(tenant, agent) => Value::Account(Box::new(store.account(tenant, agent).await?)),

        Step::CreatePairingCode(context, new) => nothing(store.create_pairing_code(context, new).await)?,
        Step::RequestPairing(new, at) => nothing(store.request_pairing(new, at).await)?,
        Step::PairingRequest(code, at) => Value::PairingRequest(store.pairing_request(code, at).await?),
        Step::PairingCode(proof, at) => Value::PairingCode(store.pairing(proof, at).await?),
        Step::DecidePairing(context, code, decision) => nothing(store.decide_pairing(context, code, decision).await)?,
        Step::AttachRuntime(new, at) => Value::Runtime(Box::new(store.attach_runtime(new, at).await?)),

        Step::Runtime(tenant, runtime) => Value::Runtime(Box::new(store.runtime(tenant, runtime).await?)),
        Step::RevokeRuntime(context, runtime) => {
            Value::Runtime(Box::new(store.revoke_runtime(context, runtime).await?))
        }
        Step::ChangeToken(runtime, change, at) => {
            Value::Runtime(Box::new(store.change_token(runtime, change, at).await?))
        }
        Step::Leave(runtime, at) => nothing(store.leave(runtime, at).await)?,
        Step::Heartbeat { runtime, running, leases, at } => {
            Value::Beat(store.heartbeat(runtime, running, leases, at).await?)
        }

        Step::Credential(secret) => Value::Credential(store.credential(secret).await?),
        Step::CreateKey(context, new) => Value::Key(store.create_key(context, new).await?),
        Step::RevokeKey(context, key) => Value::Key(store.revoke_key(context, key).await?),

        Step::CreateRun(context, new) => Value::Created(Box::new(store.create_run(context, *new).await?)),
        Step::Claim { runtime, via, enforces, lease, at } => {
            Value::Claimed(store.claim(runtime, via, enforces, lease, at).await?.map(Box::new))
        }
        Step::Progress { by, run, events, usage, report, lease, at } => {
            let progress = NewProgress { events, usage, report };
            Value::Status(store.progress(by, run, progress, lease, at).await?)
        }
        Step::Finish { by, run, outcome, usage, at } => Value::Status(store.finish(by, run, outcome, usage, at).await?),
        Step::CancelRun(context, run, reason) => Value::Run(Box::new(store.cancel_run(context, run, reason).await?)),
        Step::Release { by, run, at } => Value::Run(Box::new(store.release(by, run, at).await?)),
        Step::Run(tenant, run) => Value::Run(Box::new(store.run(tenant, run).await?)),
        Step::Live(tenant) => Value::Live(store.live(tenant).await?),
        Step::Sweep { silence, at } => Value::Swept(store.sweep(silence, at).await?),
        Step::AdvanceClock { step, at } => Value::Clock(Some(store.advance_clock(step, at).await?)),
        Step::Clock => Value::Clock(store.clock().await?),
        Step::Retain(retention) => Value::Retained(store.retain(retention).await?),
        Step::DeleteRun(context, run) => Value::Retained(store.delete_run(context, run).await?),
        Step::DeleteConversation(context, conversation) => {
            Value::Retained(store.delete_conversation(context, conversation).await?)
        }
        Step::UnusedBlobs(blobs) => Value::Blobs(store.unused_blobs(blobs).await?),

        Step::RunEvents { tenant, run, after, limit } => {
            Value::RunEvents(store.run_events(tenant, run, after, limit).await?)
        }
        Step::RunOutline { tenant, run, upto, shown } => {
            Value::RunOutline(store.run_outline(tenant, run, upto, shown).await?)
        }
        Step::Log { tenant, after, limit } => Value::Log(store.log(tenant, after, limit).await?),

        Step::CreateConversation(context, new) => Value::Conversation(store.create_conversation(context, new).await?),
        Step::Conversation(tenant, conversation) => {
            Value::Conversation(store.conversation(tenant, conversation).await?)
        }
        Step::AddMessage(context, new) => Value::Message(store.add_message(context, new).await?),
        Step::AddArtifact(context, new) => Value::Artifact(Box::new(store.add_artifact(context, new).await?)),
        Step::Artifact(tenant, artifact) => Value::Artifact(Box::new(store.artifact(tenant, artifact).await?)),

        Step::OpenChannel(context, new) => Value::Channel(Box::new(store.open_channel(context, *new).await?)),
        Step::ResumeChannel(context, resume) => Value::Resumed(Box::new(store.resume_channel(context, resume).await?)),
        Step::CloseChannel(context, channel, reason) => {
            Value::Channel(Box::new(store.close_channel(context, channel, &reason).await?))
        }
        // What a hub does when it starts.
        Step::CloseChannels { reason, at } => {
            store.close_channels(&reason, at).await?;
            nothing(store.renew_claims(LEASE, at).await)?
        }
        Step::SeenChannels { channels, lease, at } => nothing(store.seen_channels(channels, lease, at).await)?,
        Step::ChannelMessage(context, channel, message) => {
            nothing(store.channel_message(context, channel, message).await)?
        }
        Step::Channel(tenant, channel) => Value::Channel(Box::new(store.channel(tenant, channel).await?)),
        Step::ChannelEvents { tenant, channel, after, limit } => {
            Value::ChannelEvents(store.channel_events(tenant, channel, after, limit).await?)
        }
        Step::Frames { channel, after, limit } => Value::Frames(store.frames(channel, after, limit).await?),
        Step::Acknowledge { channel, seq } => nothing(store.acknowledge(channel, seq).await)?,
        Step::Follows(channel) => Value::Follows(store.follows(channel).await?),
        Step::Follower(run) => Value::Follower(store.follower(run).await?),
        Step::PushEvents { channel, run, upto, limit } => {
            Value::Follower(Some(store.push_events(channel, run, upto, limit).await?))
        }

        Step::RequestPermission { by, permission, lease, at } => {
            Value::Permission(Box::new(store.request_permission(by, *permission, lease, at).await?))
        }
        Step::DecidePermission(context, permission, decision) => {
            Value::Permission(Box::new(store.decide_permission(context, permission, decision).await?))
        }
        Step::Permission(tenant, permission) => {
            Value::Permission(Box::new(store.permission(tenant, permission).await?))
        }
        Step::PendingPermissions(tenant) => Value::Count(store.pending_permissions(tenant).await?),
        Step::RevokeGrant(context, grant) => Value::Grant(Box::new(store.revoke_grant(context, grant).await?)),
        Step::Ask { by, ask, lease, at } => Value::Ask(Box::new(store.ask(by, ask, lease, at).await?)),
        Step::WithdrawAsk { by, run, ask, lease, at } => {
            Value::Ask(Box::new(store.withdraw_ask(by, run, ask, lease, at).await?))
        }
        Step::Asked(tenant, ask) => Value::Ask(Box::new(store.asked(tenant, ask).await?)),
        Step::OpenAsk(tenant, run) => Value::OpenAsk(store.open_ask(tenant, run).await?.map(Box::new)),
        Step::AnswerTool(context, ask, reply) => Value::Ask(Box::new(store.answer_tool(context, ask, reply).await?)),
        Step::AddInput(context, input) => Value::Input(store.add_input(context, input).await?),
        Step::Input(run, input) => Value::Input(store.input(run, input).await?),

        Step::CreateUser(context, new) => Value::User(store.create_user(context, new).await?),
        Step::UpdateUser(context, user, patch, keep) => {
            Value::User(store.update_user(context, user, patch, keep).await?)
        }
        Step::RemoveUser(context, user) => Value::User(store.remove_user(context, user).await?),
        Step::User(tenant, user) => Value::User(store.user(tenant, user).await?),
        Step::KeyCredential(key) => Value::Credential(store.key_credential(key).await?),
        Step::AccessRules(tenant) => Value::AccessRules(store.access_rules(tenant).await?),
        Step::RecordEvent(context, event) => nothing(store.record_event(context, event).await)?,
        Step::SetAccessRules(context, text, expected) => {
            Value::AccessRules(Some(store.set_access_rules(context, text, expected).await?))
        }

        Step::SetQuota(context, target, limits) => Value::Quotas(vec![store.set_quota(context, target, limits).await?]),
        Step::RemoveQuota(context, target) => nothing(store.remove_quota(context, target).await)?,
        Step::Quotas(tenant, at) => Value::Quotas(store.quotas(tenant, at).await?),
        Step::Usage { tenant, first, last } => Value::Usage(store.usage(tenant, first, last).await?),

        Step::DueDeliveries { at, limit } => Value::DueDeliveries(store.due_deliveries(at, limit).await?),
        Step::RecordAttempt { delivery, number, attempt, next } => {
            Value::Delivery(Box::new(store.record_attempt(delivery, number, attempt, next).await?))
        }
        Step::ResendDelivery(context, delivery) => {
            Value::Delivery(Box::new(store.resend_delivery(context, delivery).await?))
        }
        Step::Delivery(tenant, delivery) => Value::Delivery(Box::new(store.delivery(tenant, delivery).await?)),

        Step::SetPushConfig(context, run, new) => {
            Value::PushConfigs(vec![store.set_push_config(context, run, new).await?])
        }
        Step::RemovePushConfig(context, run, id) => nothing(store.remove_push_config(context, run, &id).await)?,
        Step::PushConfig(tenant, run, id) => Value::PushConfigs(vec![store.push_config(tenant, run, &id).await?]),
        Step::PushConfigs(tenant, run) => Value::PushConfigs(store.push_configs(tenant, run).await?),

        Step::SetPeer(context, agent, new) => peer(Some(store.set_peer(context, agent, new).await?)),
        Step::Peer(tenant, agent) => peer(store.peer(tenant, agent).await?),
        Step::Peers => Value::Peers(store.peers().await?),
        Step::PinCard(context, agent, url, card) => peer(Some(store.pin_card(context, agent, &url, card).await?)),
        Step::OfferCard(context, agent, url, card, problem) => {
            peer(Some(store.offer_card(context, agent, &url, card, &problem).await?))
        }
        Step::TrustCard(context, agent, seen) => peer(Some(store.trust_card(context, agent, seen).await?)),
        Step::NotePeer(agent, problem) => nothing(store.note_peer(agent, problem).await)?,
        Step::BeginPeerTask { by, run, task, lease, at } => {
            peer_task(Some(store.begin_peer_task(by, run, task, lease, at).await?))
        }
        Step::LinkPeerTask { by, run, change, lease, at } => {
            peer_task(Some(store.link_peer_task(by, run, change, lease, at).await?))
        }
        Step::PeerTask(tenant, run) => peer_task(store.peer_task(tenant, run).await?),
        Step::PeerTaskById(agent, id) => peer_task(store.peer_task_by_id(agent, &id).await?),
        Step::OpenPeerTasks(agent) => Value::PeerTasks(store.open_peer_tasks(agent).await?),
        Step::DeclareExtensions(runtime, extensions) => {
            Value::Runtime(Box::new(store.declare_extensions(runtime, extensions).await?))
        }

        Step::PublishDelegation(context, new) => {
            Value::Delegation(Box::new(store.publish_delegation(context, new).await?))
        }
        Step::CancelDelegation(context, id) => Value::Delegation(Box::new(store.cancel_delegation(context, id).await?)),
        Step::Delegation(tenant, id) => Value::Delegation(Box::new(store.delegation(tenant, id).await?)),
        Step::List { tenant, list, limit } => walked(store, tenant, list, limit).await?,
        Step::WrongCursor { tenant, list } => wrong_cursor(store, tenant, list).await?,
    })
}

fn nothing(done: Result<()>) -> Answer {
    done.map(|()| Value::Nothing)
}

fn peer(peer: Option<Peer>) -> Value {
    Value::Peer(peer.map(Box::new))
}

fn peer_task(task: Option<PeerTask>) -> Value {
    Value::PeerTask(task.map(Box::new))
}

async fn walked(store: &dyn Store, tenant: TenantId, list: List, limit: usize) -> Answer {
    Ok(match list {
        List::Accounts => Value::Accounts(walk!(limit, page => store.accounts(tenant, page.clone()).await)),
        List::Runtimes(agent) => {
            Value::Runtimes(walk!(limit, page => store.runtimes(tenant, agent, page.clone()).await))
        }
        List::Keys(kind, user) => Value::Keys(walk!(limit, page => store.keys(tenant, kind, user, page.clone()).await)),
        List::Runs(filter) => Value::Runs(walk!(limit, page => store.runs(tenant, filter.clone(), page.clone()).await)),
        List::Conversations => {
            Value::Conversations(walk!(limit, page => store.conversations(tenant, page.clone()).await))
        }
        List::Messages(conversation) => {
            Value::Messages(walk!(limit, page => store.messages(tenant, conversation, page.clone()).await))
        }
        List::Artifacts(workspace) => {
            Value::Artifacts(walk!(limit, page => store.artifacts(tenant, workspace, page.clone()).await))
        }
        List::Channels(filter) => {
            Value::Channels(walk!(limit, page => store.channels(tenant, filter.clone(), page.clone()).await))
        }
        List::Permissions(filter) => {
            Value::Permissions(walk!(limit, page => store.permissions(tenant, filter.clone(), page.clone()).await))
        }
        List::Grants => Value::Grants(walk!(limit, page => store.grants(tenant, page.clone()).await)),
        List::Users => Value::Users(walk!(limit, page => store.users(tenant, page.clone()).await)),
        List::Deliveries(filter) => {
            Value::Deliveries(walk!(limit, page => store.deliveries(tenant, filter.clone(), page.clone()).await))
        }
        List::Delegations(filter) => {
            Value::Delegations(walk!(limit, page => store.delegations(tenant, filter.clone(), page.clone()).await))
        }
        List::Tasks(filter) => {
            let mut pages = Vec::new();
            let mut page = Page { limit, cursor: None };
            loop {
                let TaskListed { items, next, total } = store.tasks(tenant, filter.clone(), page.clone()).await?;
                pages.push((items.into_iter().map(|item| item.run).collect(), total));
                match next {
                    Some(cursor) => page.cursor = Some(cursor),
                    None => break Value::Tasks(pages),
                }
            }
        }
    })
}

async fn wrong_cursor(store: &dyn Store, tenant: TenantId, list: List) -> Answer {
    let page = Page { limit: 5, cursor: Some(WRONG_CURSOR.to_owned()) };
    Ok(match list {
        List::Accounts => Value::Accounts(vec![store.accounts(tenant, page).await?.items]),
        List::Runtimes(agent) => Value::Runtimes(vec![store.runtimes(tenant, agent, page).await?.items]),
        List::Keys(kind, user) => Value::Keys(vec![store.keys(tenant, kind, user, page).await?.items]),
        List::Runs(filter) => Value::Runs(vec![store.runs(tenant, filter, page).await?.items]),
        List::Conversations => Value::Conversations(vec![store.conversations(tenant, page).await?.items]),
        List::Messages(conversation) => Value::Messages(vec![store.messages(tenant, conversation, page).await?.items]),
        List::Artifacts(workspace) => Value::Artifacts(vec![store.artifacts(tenant, workspace, page).await?.items]),
        List::Channels(filter) => Value::Channels(vec![store.channels(tenant, filter, page).await?.items]),
        List::Permissions(filter) => Value::Permissions(vec![store.permissions(tenant, filter, page).await?.items]),
        List::Grants => Value::Grants(vec![store.grants(tenant, page).await?.items]),
        List::Users => Value::Users(vec![store.users(tenant, page).await?.items]),
        List::Delegations(filter) => Value::Delegations(vec![store.delegations(tenant, filter, page).await?.items]),
        List::Deliveries(filter) => Value::Deliveries(vec![store.deliveries(tenant, filter, page).await?.items]),
        List::Tasks(filter) => {
            let TaskListed { items, total, .. } = store.tasks(tenant, filter, page).await?;
            Value::Tasks(vec![(items.into_iter().map(|item| item.run).collect(), total)])
        }
    })
}

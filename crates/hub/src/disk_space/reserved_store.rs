//! Decides which operations of the store may use the reserve: those that let people sign in, revoke, delete and decide, and
//! those that finish what has begun. Everything else adds something, and is refused while the disk is almost full.

use std::sync::Arc;

use async_trait::async_trait;
use attache_store::{
    Error, Result, Store, WriteContext,
    layer::{
        ChannelCall, ChannelStoreLayer, DelegationCall, DelegationStoreLayer, DeliveryStoreLayer, Layer,
        NodeStoreLayer, NotificationCall, NotificationStoreLayer, PeerCall, PeerStoreLayer, PushCall, PushStoreLayer,
        QuotaCall, QuotaStoreLayer, SharedValueStoreLayer, StoreCall, StoreLayer, UserCall, UserStoreLayer, WholeLayer,
        WorkerRequestCall, WorkerRequestStoreLayer, WorktreeStoreLayer,
    },
    record::{
        AccountPatch, AccountRecord, AgentRef, KeyRecord, NewKey,
        channel::{ChannelRecord, NewChannel},
        worker_request::{InputRecord, InputTarget, NewInput},
    },
};

use super::{DiskReserve, DiskUse};

/// A store that leaves the reserve to what needs it.
#[derive(Debug)]
pub(crate) struct ReservedStore {
    inner: Arc<dyn Store>,
    reserve: DiskReserve,
}

// === impl ReservedStore ===

impl ReservedStore {
    pub(crate) fn new(inner: Arc<dyn Store>, reserve: DiskReserve) -> Self {
        Self { inner, reserve }
    }

    /// Refuses to add something while the disk is almost full. A store that can't write at all says so itself.
    fn check(&self) -> Result<()> {
        match self.reserve.shortage(DiskUse::Record) {
            Some(free) if self.inner.fault().is_none() => Err(Error::DiskLow { free }),
            _ => Ok(()),
        }
    }
}

impl Layer for ReservedStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }
}

impl WholeLayer for ReservedStore {}

// Matches without a wildcard, so that a new operation has to choose.

#[async_trait]
impl StoreLayer for ReservedStore {
    fn admit(&self, call: StoreCall) -> Result<()> {
        use StoreCall as C;
        match call {
            C::create_account
            | C::create_pairing_code
            | C::request_pairing
            | C::create_run
            | C::create_conversation
            | C::add_message
            | C::add_artifact => self.check(),
            // Decided below, by what they add.
            C::create_key | C::update_account => Ok(()),
            // Small, and only with a code that was made before.
            C::decide_pairing | C::attach_runtime => Ok(()),
            // The hub leaves out the events of a report, which renews the claim.
            C::progress | C::heartbeat | C::renew_claims | C::disconnect_runtime | C::change_token => Ok(()),
            C::claim | C::finish | C::release | C::cancel_run | C::sweep | C::advance_clock => Ok(()),
            C::archive_account | C::revoke_runtime | C::revoke_key => Ok(()),
            C::retain | C::delete_run | C::delete_conversation => Ok(()),
            C::ping | C::close | C::ensure_tenant => Ok(()),
            C::account
            | C::last_owner_of
            | C::accounts
            | C::pairing_request
            | C::pairing
            | C::runtime
            | C::runtimes
            | C::credential
            | C::keys
            | C::run
            | C::runs
            | C::tasks
            | C::live
            | C::clock
            | C::unused_blobs
            | C::run_events
            | C::run_outline
            | C::output_matches
            | C::log
            | C::conversation
            | C::conversations
            | C::messages
            | C::artifact
            | C::artifacts => Ok(()),
        }
    }

    /// Sessions are how people sign in.
    async fn create_key(&self, context: WriteContext, key: NewKey) -> Result<KeyRecord> {
        if key.opening.is_none() {
            self.check()?;
        }
        self.inner.create_key(context, key).await
    }

    /// Who may call an agent and whose it is can change; what it is told can't become longer.
    async fn update_account(
        &self,
        context: WriteContext,
        agent: AgentRef,
        patch: AccountPatch,
    ) -> Result<AccountRecord> {
        let texts = [&patch.description, &patch.instructions].map(|text| text.as_ref().map_or(0, String::len));
        let objects =
            [&patch.skills, &patch.a2a, &patch.approvals].map(|json| json.as_ref().map_or(0, |json| json.get().len()));
        if texts.iter().chain(&objects).sum::<usize>() > 0 {
            self.check()?;
        }
        self.inner.update_account(context, agent, patch).await
    }
}

#[async_trait]
impl ChannelStoreLayer for ReservedStore {
    fn admit(&self, call: ChannelCall) -> Result<()> {
        use ChannelCall as C;
        match call {
            C::channel_message => self.check(),
            // Decided below, by who opens it.
            C::open_channel => Ok(()),
            C::resume_channel | C::close_channel | C::close_connection | C::close_channels => Ok(()),
            C::mark_channels_seen | C::acknowledge | C::push_events => Ok(()),
            C::channel | C::channels | C::channel_events | C::frames | C::follows | C::follower => Ok(()),
        }
    }

    /// A device finishes its runs over one.
    async fn open_channel(&self, context: WriteContext, channel: NewChannel) -> Result<ChannelRecord> {
        if channel.runtime.is_none() {
            self.check()?;
        }
        self.inner.open_channel(context, channel).await
    }
}

#[async_trait]
impl WorkerRequestStoreLayer for ReservedStore {
    fn admit(&self, call: WorkerRequestCall) -> Result<()> {
        use WorkerRequestCall as C;
        match call {
            C::request_permission | C::create_worker_request => self.check(),
            // Decided below: the answer to a question lets the run go on.
            C::add_input => Ok(()),
            C::decide_permission | C::revoke_grant | C::withdraw_worker_request | C::answer_tool_call => Ok(()),
            C::permission
            | C::permissions
            | C::pending_permissions
            | C::grants
            | C::worker_request
            | C::open_worker_request
            | C::input => Ok(()),
        }
    }

    async fn add_input(&self, context: WriteContext, input: NewInput) -> Result<InputRecord> {
        if !matches!(input.target, InputTarget::Question(_)) {
            self.check()?;
        }
        self.inner.add_input(context, input).await
    }
}

impl UserStoreLayer for ReservedStore {
    fn admit(&self, call: UserCall) -> Result<()> {
        use UserCall as C;
        match call {
            C::create_user | C::save_view | C::add_passkey => self.check(),
            // A new password, another role, a removal, and what the log says of them.
            C::update_user | C::remove_user | C::remove_view | C::record_event | C::set_access_rules => Ok(()),
            C::use_passkey | C::remove_passkey | C::passkey | C::passkeys => Ok(()),
            C::user | C::users | C::saved_views | C::key_credential | C::access_rules => Ok(()),
        }
    }
}

impl PeerStoreLayer for ReservedStore {
    fn admit(&self, call: PeerCall) -> Result<()> {
        use PeerCall as C;
        match call {
            C::set_peer => self.check(),
            C::pin_card | C::offer_card | C::trust_card | C::note_peer | C::declare_extensions => Ok(()),
            C::begin_peer_task | C::link_peer_task => Ok(()),
            C::peer | C::peers | C::peer_task | C::peer_task_by_id | C::open_peer_tasks => Ok(()),
        }
    }
}

impl PushStoreLayer for ReservedStore {
    fn admit(&self, call: PushCall) -> Result<()> {
        match call {
            PushCall::set_push_config => self.check(),
            PushCall::remove_push_config | PushCall::push_config | PushCall::push_configs => Ok(()),
        }
    }
}

impl DelegationStoreLayer for ReservedStore {
    fn admit(&self, call: DelegationCall) -> Result<()> {
        match call {
            DelegationCall::publish_delegation => self.check(),
            DelegationCall::cancel_delegation | DelegationCall::delegation | DelegationCall::delegations => Ok(()),
        }
    }
}

impl NotificationStoreLayer for ReservedStore {
    fn admit(&self, call: NotificationCall) -> Result<()> {
        use NotificationCall as C;
        match call {
            C::create_notification_target => self.check(),
            C::update_notification_target | C::remove_notification_target | C::add_notifications => Ok(()),
            C::notification_target | C::notification_targets | C::last_notified => Ok(()),
        }
    }
}

impl QuotaStoreLayer for ReservedStore {
    fn admit(&self, call: QuotaCall) -> Result<()> {
        match call {
            // People set them when somebody uses too much.
            QuotaCall::set_quota | QuotaCall::remove_quota => Ok(()),
            QuotaCall::quotas | QuotaCall::left | QuotaCall::usage => Ok(()),
        }
    }
}

// The hub's own work: callbacks of what has happened, its nodes, and what they share for a while.

impl DeliveryStoreLayer for ReservedStore {}

impl NodeStoreLayer for ReservedStore {}

impl SharedValueStoreLayer for ReservedStore {}

/// A decision ends what a run left behind.
impl WorktreeStoreLayer for ReservedStore {}

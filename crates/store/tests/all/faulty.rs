//! Proves that the conformance suite can fail: engines with one mistake each, every one of which must be caught.

use std::{sync::OnceLock, time::Duration};

use async_trait::async_trait;
use attache_protocol::{
    AgentId, ChannelId, DeliveryId, InputId, Json, KeyId, NodeId, PermissionId, RunId, RuntimeId, TenantId, Timestamp,
    WorkerRequestId,
    rules::{
        quota::Spend,
        run::{FailureCode, RunStatus, WorkerRef},
    },
    secret::SecretHash,
};
use attache_store::{
    ChannelStore as _, DeliveryStore as _, Error, NotificationStore as _, PeerStore as _, PushStore as _,
    QuotaStore as _, Result, SharedValueStore as _, Store, UserStore as _, WorkerRequestStore as _, WriteContext,
    conformance::{EngineUnderTest, run_sequences},
    layer::{
        ChannelStoreLayer, DelegationStoreLayer, DeliveryStoreLayer, Layer, NodeStoreLayer, NotificationStoreLayer,
        PeerStoreLayer, PushStoreLayer, QuotaStoreLayer, SharedValueStoreLayer, StoreLayer, UserStoreLayer, WholeLayer,
        WorkerRequestStoreLayer, WorktreeStoreLayer,
    },
    memory::MemoryStore,
    record::{
        channel::*, delivery::*, notification::*, peer::*, push::*, quota::*, shared_value::*, task::*, user::*,
        worker_request::*, *,
    },
};

use crate::conformance::STEPS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Leaves every fifth row out of the log.
    LosesLogRows,
    /// Shows a row with another time than the one its hash covers.
    ChangesLogRows,
    /// Lets the runtime that holds a run go on with an old epoch.
    IgnoresStaleEpochs,
    /// Everything is gone after a crash.
    ForgetsInACrash,
    /// Makes a run again for a key that it has seen.
    ForgetsKeys,
    /// Sweeps as if it were a millisecond earlier.
    SweepsLate,
    /// Loses unnamed claims a millisecond after the grace.
    GrantsTooMuchGrace,
    /// Takes a JSON null for nothing.
    DropsNulls,
    /// Shows a run to every tenant.
    IgnoresTenants,
    /// Skips a row at the border of two pages.
    SkipsBetweenPages,
    /// Does not say what retention removed of a run's stream.
    ForgetsTheFloor,
    /// Says that a second decision counts.
    DecidesTwice,
    /// Leaves out the newest frame that waits for a peer.
    ForgetsAFrame,
    /// Takes a report that it has heard for a new one.
    HearsReportsTwice,
    /// Lets a resume token be used again.
    KeepsResumeTokens,
    /// Lets a run's approvals wait a millisecond longer than they may.
    ExpiresLate,
    /// Lets anybody answer for the engine that was asked.
    LetsAnybodyAnswer,
    /// After a crash, runs hold nothing of their quotas.
    ForgetsWhatRunsHold,
    /// Counts a call twice once it has ended.
    CountsCallsTwice,
    /// Lets the day go on a millisecond longer.
    EndsTheDayLate,
    /// Lets the keys of a removed user live.
    KeepsKeysOfRemovedUsers,
    /// Takes a key's own role for what it is worth.
    IgnoresTheUsersRole,
    /// Lets the last owner go.
    LetsTheLastOwnerGo,
    /// Replaces rules that somebody changed in the meantime.
    IgnoresTheRulesVersion,
    /// Keeps an attempt that was kept before as the next one.
    DeliversTwice,
    /// Hands a value out again that one caller has taken.
    HandsOutTwice,
    /// Forgets after a crash what is due.
    ForgetsDueDeliveries,
    /// Goes on telling the URL that a replaced push config had.
    KeepsTheFirstUrl,
    /// Leaves out where somebody gets notifications.
    ForgetsTheNewestTarget,
    /// Forgets after a crash who subscribed.
    ForgetsSubscribers,
    /// Lists tasks by creation.
    ListsTasksByCreation,
    /// Counts the tasks of one page.
    CountsOnePage,
    /// Takes a failure for a rejection.
    TakesFailuresForRejections,
    /// Forgets the message that brought an input.
    ForgetsMessages,
    /// Lets a trusted card go along to another url.
    TakesPinsAlong,
    /// Takes another card for the trusted one.
    TrustsAnyCard,
    /// Forgets what was sent to a peer before.
    SendsTwice,
    /// Lets a peer name another task than before.
    FollowsAnotherTask,
    /// Forgets after a crash what peers still do.
    ForgetsOpenPeerTasks,
    /// Fails a run that waits for a usage limit.
    FailsAtUsageLimits,
    ForgetsUndeliveredInputs,
}

const FAULTS: [Fault; 41] = [
    Fault::FailsAtUsageLimits,
    Fault::ForgetsUndeliveredInputs,
    Fault::LosesLogRows,
    Fault::ChangesLogRows,
    Fault::IgnoresStaleEpochs,
    Fault::ForgetsInACrash,
    Fault::ForgetsKeys,
    Fault::SweepsLate,
    Fault::GrantsTooMuchGrace,
    Fault::DropsNulls,
    Fault::IgnoresTenants,
    Fault::SkipsBetweenPages,
    Fault::ForgetsTheFloor,
    Fault::DecidesTwice,
    Fault::ForgetsAFrame,
    Fault::HearsReportsTwice,
    Fault::KeepsResumeTokens,
    Fault::ExpiresLate,
    Fault::LetsAnybodyAnswer,
    Fault::ForgetsWhatRunsHold,
    Fault::CountsCallsTwice,
    Fault::EndsTheDayLate,
    Fault::KeepsKeysOfRemovedUsers,
    Fault::IgnoresTheUsersRole,
    Fault::LetsTheLastOwnerGo,
    Fault::IgnoresTheRulesVersion,
    Fault::DeliversTwice,
    Fault::HandsOutTwice,
    Fault::ForgetsDueDeliveries,
    Fault::KeepsTheFirstUrl,
    Fault::ForgetsTheNewestTarget,
    Fault::ForgetsSubscribers,
    Fault::ListsTasksByCreation,
    Fault::CountsOnePage,
    Fault::TakesFailuresForRejections,
    Fault::ForgetsMessages,
    Fault::TakesPinsAlong,
    Fault::TrustsAnyCard,
    Fault::SendsTwice,
    Fault::FollowsAnotherTask,
    Fault::ForgetsOpenPeerTasks,
];

/// The model with a mistake.
#[derive(Debug)]
struct Faulty {
    inner: MemoryStore,
    fault: Fault,
    tenant: OnceLock<TenantId>,
    crashed: bool,
}

// === impl Faulty ===

impl Faulty {
    fn new(fault: Fault) -> Self {
        Self { inner: MemoryStore::new(), fault, tenant: OnceLock::new(), crashed: false }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn by(&self, by: WorkerRef) -> WorkerRef {
        if self.has(Fault::IgnoresStaleEpochs) { WorkerRef { epoch: None, ..by } } else { by }
    }

    fn tenant_for(&self, tenant: TenantId) -> TenantId {
        self.tenant.get().copied().filter(|_| self.has(Fault::IgnoresTenants)).unwrap_or(tenant)
    }

    fn usage(&self, usage: Option<Json>) -> Option<Json> {
        usage.filter(|usage| !self.has(Fault::DropsNulls) || usage.get() != "null")
    }

    /// What a key stands for, as this engine sees it.
    async fn seen(&self, credential: Option<StoredCredential>) -> Option<StoredCredential> {
        let (tenant, key, user, role, revoked, kind) = match &credential {
            Some(StoredCredential::Key { tenant, key, user: Some(user), role, revoked, kind, .. }) => {
                (*tenant, *key, *user, *role, *revoked, *kind)
            }
            Some(StoredCredential::Key { .. } | StoredCredential::Runtime { .. }) | None => return credential,
        };
        let owner = self.inner.user(tenant, UserRef::Id(user)).await.ok();
        let removed = owner.is_some_and(|owner| owner.removed_at.is_some());
        let revoked = revoked && !(removed && self.has(Fault::KeepsKeysOfRemovedUsers));
        let keys = self.inner.keys(tenant, kind, Some(user), Pagination { limit: 1_000, cursor: None }).await;
        let own = keys.ok().and_then(|keys| keys.items.into_iter().find(|known| known.id == key));
        let role = own.filter(|_| self.has(Fault::IgnoresTheUsersRole)).map_or(role, |key| key.role);
        let Some(StoredCredential::Key { user_role, scopes, expires_at, agent, opener, .. }) = credential else {
            return credential;
        };
        let user = Some(user);
        Some(StoredCredential::Key {
            tenant,
            key,
            user,
            role,
            user_role,
            scopes,
            expires_at,
            revoked,
            kind,
            agent,
            opener,
        })
    }
}

#[async_trait]
impl EngineUnderTest for Faulty {
    fn store(&self) -> &dyn Store {
        self
    }

    async fn create_tenant(&self, id: TenantId, name: &str, at: Timestamp) -> Result<()> {
        self.inner.create_tenant(id, name, at).await
    }

    async fn crash_and_reopen(&mut self) {
        self.crashed = true;
        if self.has(Fault::ForgetsInACrash) {
            self.reset().await;
        }
    }

    async fn reset(&mut self) {
        *self = Self::new(self.fault);
    }
}

#[async_trait]
impl Layer for Faulty {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }
}

#[async_trait]
impl StoreLayer for Faulty {
    fn engine(&self) -> String {
        format!("{:?}", self.fault)
    }

    async fn ensure_tenant(&self, id: TenantId, name: &str, at: Timestamp) -> Result<TenantId> {
        let tenant = self.inner.ensure_tenant(id, name, at).await?;
        Ok(*self.tenant.get_or_init(|| tenant))
    }

    async fn credential(&self, secret: SecretHash) -> Result<Option<StoredCredential>> {
        Ok(self.seen(self.inner.credential(secret).await?).await)
    }

    async fn heartbeat(
        &self,
        runtime: RuntimeId,
        running: Option<Vec<RunId>>,
        leases: LeaseTimes,
        at: Timestamp,
    ) -> Result<HeartbeatResult> {
        let more = if self.has(Fault::GrantsTooMuchGrace) { 1 } else { 0 };
        let leases = LeaseTimes { grace: leases.grace + Duration::from_millis(more), ..leases };
        self.inner.heartbeat(runtime, running, leases, at).await
    }

    async fn create_run(&self, context: WriteContext, run: NewRun) -> Result<RunCreation> {
        let key = run.idempotency_key.filter(|_| !self.has(Fault::ForgetsKeys));
        self.inner.create_run(context, NewRun { idempotency_key: key, ..run }).await
    }

    async fn progress(
        &self,
        by: WorkerRef,
        run: RunId,
        progress: NewProgress,
        lease: Duration,
        at: Timestamp,
    ) -> Result<RunStatus> {
        let report = progress.report.filter(|_| !self.has(Fault::HearsReportsTwice));
        let progress = NewProgress { usage: self.usage(progress.usage), report, ..progress };
        self.inner.progress(self.by(by), run, progress, lease, at).await
    }

    async fn finish(
        &self,
        by: WorkerRef,
        run: RunId,
        outcome: RunResult,
        usage: Option<Json>,
        inputs_taken: Option<Vec<InputId>>,
        at: Timestamp,
    ) -> Result<RunStatus> {
        let outcome = match outcome {
            RunResult::Deferred { .. } if self.has(Fault::FailsAtUsageLimits) => {
                RunResult::Failed { code: FailureCode::UsageLimit, result: Json::empty_object() }
            }
            other => other,
        };
        let inputs_taken = inputs_taken.filter(|_| !self.has(Fault::ForgetsUndeliveredInputs));
        self.inner.finish(self.by(by), run, outcome, self.usage(usage), inputs_taken, at).await
    }

    async fn release(&self, by: WorkerRef, run: RunId, at: Timestamp) -> Result<RunRecord> {
        self.inner.release(self.by(by), run, at).await
    }

    async fn run(&self, tenant: TenantId, run: RunId) -> Result<RunRecord> {
        self.inner.run(self.tenant_for(tenant), run).await
    }

    async fn runs(&self, tenant: TenantId, filter: RunFilter, page: Pagination) -> Result<ListPage<RunRecord>> {
        let later = page.cursor.is_some();
        let mut listed = self.inner.runs(tenant, filter, page).await?;
        if later && self.has(Fault::SkipsBetweenPages) {
            listed.items.remove(0);
        }
        Ok(listed)
    }

    async fn tasks(&self, tenant: TenantId, filter: TaskFilter, page: Pagination) -> Result<TaskPage> {
        let state = match filter.state {
            Some(RunTaskState::Failed) if self.has(Fault::TakesFailuresForRejections) => Some(RunTaskState::Rejected),
            state => state,
        };
        let mut listed = self.inner.tasks(tenant, TaskFilter { state, ..filter }, page).await?;
        if self.has(Fault::ListsTasksByCreation) {
            listed.items.sort_by_key(|item| std::cmp::Reverse(item.run.id));
        }
        if self.has(Fault::CountsOnePage) {
            listed.total = listed.items.len().try_into().unwrap();
        }
        Ok(listed)
    }

    async fn sweep(&self, silence: Duration, at: Timestamp) -> Result<SweepResult> {
        let late = if self.has(Fault::SweepsLate) { 1 } else { 0 };
        self.inner.sweep(silence, at.minus(Duration::from_millis(late))).await
    }

    async fn run_events(&self, tenant: TenantId, run: RunId, after: i64, limit: usize) -> Result<RunEvents> {
        let events = self.inner.run_events(tenant, run, after, limit).await?;
        Ok(if self.has(Fault::ForgetsTheFloor) { RunEvents { floor: 0, ..events } } else { events })
    }

    async fn log(&self, tenant: TenantId, after: i64, limit: usize) -> Result<LogPage> {
        let mut page = self.inner.log(tenant, after, limit).await?;
        if self.has(Fault::LosesLogRows) {
            page.rows.retain(|row| row.seq % 5 != 0);
        }
        if let Some(row) = page.rows.first_mut().filter(|_| self.has(Fault::ChangesLogRows)) {
            row.at = row.at.plus(Duration::from_millis(1));
        }
        Ok(page)
    }
}

#[async_trait]
impl ChannelStoreLayer for Faulty {
    async fn resume_channel(&self, context: WriteContext, resume: ChannelResume) -> Result<ChannelResumption> {
        let current = self.inner.channel(context.tenant, resume.channel).await.ok().and_then(|channel| channel.resume);
        let token = current.filter(|_| self.has(Fault::KeepsResumeTokens)).unwrap_or(resume.token);
        self.inner.resume_channel(context, ChannelResume { token, ..resume }).await
    }

    async fn frames(&self, channel: ChannelId, after: i64, limit: usize) -> Result<OutboxFrames> {
        let mut frames = self.inner.frames(channel, after, limit).await?;
        if self.has(Fault::ForgetsAFrame) {
            frames.frames.pop();
        }
        Ok(frames)
    }
}

impl NodeStoreLayer for Faulty {}

#[async_trait]
impl SharedValueStoreLayer for Faulty {
    async fn take_value(
        &self,
        kind: SharedValueKind,
        name: &str,
        until: Timestamp,
        at: Timestamp,
    ) -> Result<Option<SharedValue>> {
        if self.has(Fault::HandsOutTwice) {
            return self.inner.shared_value(kind, name, at).await;
        }
        self.inner.take_value(kind, name, until, at).await
    }
}

#[async_trait]
impl WorkerRequestStoreLayer for Faulty {
    async fn request_permission(
        &self,
        by: WorkerRef,
        permission: NewPermission,
        lease: Duration,
        at: Timestamp,
    ) -> Result<PermissionRecord> {
        let late = Duration::from_millis(if self.has(Fault::ExpiresLate) { 1 } else { 0 });
        let expires_at = permission.expires_at.map(|expires_at| expires_at.plus(late));
        self.inner.request_permission(by, NewPermission { expires_at, ..permission }, lease, at).await
    }

    async fn decide_permission(
        &self,
        context: WriteContext,
        permission: PermissionId,
        decision: NewDecision,
    ) -> Result<PermissionRecord> {
        match self.inner.decide_permission(context, permission, decision).await {
            Err(Error::AlreadyDecided(decided)) if self.has(Fault::DecidesTwice) => Ok(*decided),
            answer => answer,
        }
    }

    async fn add_input(&self, context: WriteContext, input: NewInput) -> Result<InputRecord> {
        let message = input.message.filter(|_| !self.has(Fault::ForgetsMessages));
        self.inner.add_input(context, NewInput { message, ..input }).await
    }

    async fn answer_tool_call(
        &self,
        context: WriteContext,
        ask: WorkerRequestId,
        reply: Json,
    ) -> Result<WorkerRequestRecord> {
        let mut context = context;
        if self.has(Fault::LetsAnybodyAnswer)
            && let Ok(asked) = self.inner.worker_request(context.tenant, ask).await
            && let Ok(Some(follow)) = self.inner.follower(asked.run).await
            && let Ok(channel) = self.inner.channel(context.tenant, follow.channel).await
        {
            context.actor = channel.principal;
        }
        self.inner.answer_tool_call(context, ask, reply).await
    }
}

#[async_trait]
impl UserStoreLayer for Faulty {
    async fn remove_user(&self, context: WriteContext, user: UserRef) -> Result<UserRecord> {
        match self.inner.remove_user(context.clone(), user.clone()).await {
            Err(Error::LastOwner) if self.has(Fault::LetsTheLastOwnerGo) => self.inner.user(context.tenant, user).await,
            answer => answer,
        }
    }

    async fn key_credential(&self, key: KeyId) -> Result<Option<StoredCredential>> {
        Ok(self.seen(self.inner.key_credential(key).await?).await)
    }

    async fn set_access_rules(
        &self,
        context: WriteContext,
        text: String,
        expected: Option<i64>,
    ) -> Result<AccessRulesRecord> {
        let expected = expected.filter(|_| !self.has(Fault::IgnoresTheRulesVersion));
        self.inner.set_access_rules(context, text, expected).await
    }
}

#[async_trait]
impl QuotaStoreLayer for Faulty {
    async fn quotas(&self, tenant: TenantId, at: Timestamp) -> Result<Vec<QuotaRecord>> {
        let late = if self.has(Fault::EndsTheDayLate) { 1 } else { 0 };
        let mut quotas = self.inner.quotas(tenant, at.minus(Duration::from_millis(late))).await?;
        for QuotaRecord { account, .. } in &mut quotas {
            if self.has(Fault::CountsCallsTwice) {
                account.spent.calls *= 2;
            }
            if self.crashed && self.has(Fault::ForgetsWhatRunsHold) {
                account.held = Spend::default();
            }
        }
        Ok(quotas)
    }
}

#[async_trait]
impl DeliveryStoreLayer for Faulty {
    async fn due_deliveries(&self, node: Option<NodeId>, at: Timestamp, limit: usize) -> Result<Vec<DeliveryRecord>> {
        let limit = if self.crashed && self.has(Fault::ForgetsDueDeliveries) { 0 } else { limit };
        let mut due = self.inner.due_deliveries(node, at, limit).await?;
        due.retain(|due| due.config.is_none() || !self.crashed || !self.has(Fault::ForgetsSubscribers));
        Ok(due)
    }

    async fn record_attempt(
        &self,
        delivery: DeliveryId,
        number: i64,
        attempt: DeliveryAttempt,
        next: AttemptDecision,
    ) -> Result<DeliveryRecord> {
        let known = self.tenant.get().filter(|_| self.has(Fault::DeliversTwice));
        let number = match known {
            Some(tenant) => self.inner.delivery(*tenant, delivery).await.map_or(number, |known| known.attempts + 1),
            None => number,
        };
        self.inner.record_attempt(delivery, number, attempt, next).await
    }
}

impl DelegationStoreLayer for Faulty {}

impl WorktreeStoreLayer for Faulty {}

#[async_trait]
impl NotificationStoreLayer for Faulty {
    async fn notification_targets(&self, tenant: TenantId) -> Result<Vec<NotificationTargetRecord>> {
        let mut targets = self.inner.notification_targets(tenant).await?;
        if self.has(Fault::ForgetsTheNewestTarget) {
            targets.pop();
        }
        Ok(targets)
    }
}

#[async_trait]
impl PushStoreLayer for Faulty {
    async fn set_push_config(
        &self,
        context: WriteContext,
        run: RunId,
        config: NewPushConfig,
    ) -> Result<PushConfigRecord> {
        let known = self.inner.push_config(context.tenant, run, &config.id).await;
        let url = known.ok().filter(|_| self.has(Fault::KeepsTheFirstUrl)).map(|known| known.url);
        let url = url.unwrap_or_else(|| config.url.clone());
        self.inner.set_push_config(context, run, NewPushConfig { url, ..config }).await
    }
}

#[async_trait]
impl PeerStoreLayer for Faulty {
    async fn set_peer(&self, context: WriteContext, agent: AgentRef, peer: NewPeer) -> Result<PeerRecord> {
        let account = self.inner.account(context.tenant, agent.clone()).await?.id;
        let before = self.inner.peer(context.tenant, account).await?.filter(|_| self.has(Fault::TakesPinsAlong));
        let after = self.inner.set_peer(context, agent, peer).await?;
        Ok(PeerRecord { pin: before.and_then(|before| before.pin).or(after.pin), ..after })
    }

    async fn peer(&self, tenant: TenantId, agent: AgentId) -> Result<Option<PeerRecord>> {
        self.inner.peer(self.tenant_for(tenant), agent).await
    }

    async fn pin_card(&self, context: WriteContext, agent: AgentId, url: &str, card: PinnedCard) -> Result<PeerRecord> {
        let tenant = context.tenant;
        match self.inner.pin_card(context, agent, url, card).await {
            Err(Error::CardPinned) if self.has(Fault::TrustsAnyCard) => {
                self.inner.peer(tenant, agent).await?.ok_or(Error::NotFound)
            }
            answer => answer,
        }
    }

    async fn begin_peer_task(
        &self,
        by: WorkerRef,
        run: RunId,
        task: NewPeerTask,
        lease: Duration,
        at: Timestamp,
    ) -> Result<PeerTask> {
        let NewPeerTask { url, message_id } = task.clone();
        let begun = self.inner.begin_peer_task(self.by(by), run, task, lease, at).await?;
        Ok(if self.has(Fault::SendsTwice) { PeerTask { url, message_id, ..begun } } else { begun })
    }

    async fn link_peer_task(
        &self,
        by: WorkerRef,
        run: RunId,
        change: PeerTaskChange,
        lease: Duration,
        at: Timestamp,
    ) -> Result<PeerTask> {
        let by = self.by(by);
        match self.inner.link_peer_task(by, run, change, lease, at).await {
            Err(Error::PeerTaskDiffers) if self.has(Fault::FollowsAnotherTask) => {
                self.inner.link_peer_task(by, run, PeerTaskChange::default(), lease, at).await
            }
            answer => answer,
        }
    }

    async fn open_peer_tasks(&self, agent: AgentId) -> Result<Vec<PeerTask>> {
        let open = self.inner.open_peer_tasks(agent).await?;
        Ok(if self.crashed && self.has(Fault::ForgetsOpenPeerTasks) { Vec::new() } else { open })
    }
}

impl WholeLayer for Faulty {}

#[tokio::test]
async fn every_mistake_is_caught() {
    for fault in FAULTS {
        let failure = run_sequences(0..1000, STEPS, &mut Faulty::new(fault)).await;
        let failure = failure.expect_err(&format!("{fault:?} was not caught"));
        println!("{fault:?}: {failure}");
        assert!(failure.steps.len() < failure.of.max(20), "{fault:?} was not made small: {failure}");
    }
}

#[tokio::test]
async fn a_failure_shows_its_seed_and_the_steps_that_matter() {
    let failure = run_sequences(7..8, STEPS, &mut Faulty::new(Fault::LosesLogRows)).await.unwrap_err();
    let shown = failure.to_string();
    assert!(shown.starts_with("seed 7: Log {"), "{shown}");
    assert!(shown.contains("the model says:") && shown.contains("the engine says:"), "{shown}");
    assert!(shown.contains("   1 EnsureTenant {"), "{shown}");
}

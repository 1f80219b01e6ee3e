//! Users, quotas and deliveries by example, on both engines: the corners, spelled out.

use std::time::Duration;

use attache_protocol::{
    DeliveryId, EventKind, KeyId, RunId, Timestamp, UserId,
    rules::{
        quota::{ExceededLimit, QuotaAccount, QuotaLimits, QuotaMeasure, Spend, UtcDay},
        run::RunStatus,
    },
    secret::SecretHash,
    wire::{delivery::DeliveryState, key::Role},
};
use attache_store::{
    Error, MAX_REFUSED, WakeHint, WriteContext,
    record::{
        KeyKind, NewEvent, NewKey, NewProgress, NewRun, OutputMatches, RetentionLimits, RunCreation, RunResult,
        SessionOpening, StoredCredential,
        channel::OutboxFrame,
        delivery::{AttemptDecision, DeliveryAttempt, DeliveryFilter, DeliveryRecord, RunCallback},
        passkey::{NewPasskey, PasskeyRecord},
        quota::{DailyUsage, QuotaRecord, QuotaTarget},
        user::{NewUser, SavedView, UserPatch, UserRecord, UserRef},
    },
};

use crate::peers::{LEASE, World, json};

const URL: &str = "http://127.0.0.1:9/hook";
const TENANT: QuotaTarget = QuotaTarget { user: None, agent: None };

// === impl World ===

impl World {
    async fn user(&self, name: &str, role: Role) -> UserRecord {
        let new = NewUser { id: self.env.user_id(), name: name.to_owned(), role, password: None };
        self.store.create_user(self.context("key:owner"), new).await.unwrap()
    }

    async fn key(&self, user: UserId, kind: KeyKind, secret: u8) -> KeyId {
        let new = NewKey {
            id: self.env.key_id(),
            opening: (kind == KeyKind::Session).then(SessionOpening::default),
            issuer: None,
            agent: None,
            name: format!("key {secret}"),
            role: Role::Admin,
            user: Some(user),
            scopes: None,
            secret: SecretHash([secret; 32]),
            expires_at: None,
        };
        self.store.create_key(self.context("key:owner"), new).await.unwrap().id
    }

    pub(crate) async fn queue(&self, new: NewRun) -> Result<RunId, Error> {
        let created = self.store.create_run(self.context("key:owner"), new).await?;
        let (RunCreation::New(run) | RunCreation::Existing(run)) = created;
        Ok(run.id)
    }

    /// Queues one more run, if there is room.
    async fn one_more(&self) -> Result<RunId, Error> {
        self.queue(self.new_run()).await
    }

    pub(crate) async fn claim(&self) -> Option<RunId> {
        let claimed =
            self.store.claim(self.runtime, Some(self.worker()), Vec::new(), LEASE, self.env.now()).await.unwrap();
        claimed.map(|claimed| claimed.run.id)
    }

    async fn used(&self, run: RunId, usage: &str) -> RunStatus {
        let progress = NewProgress { usage: Some(json(usage)), ..NewProgress::default() };
        self.store.progress(self.by(), run, progress, LEASE, self.env.now()).await.unwrap()
    }

    async fn complete(&self, run: RunId, usage: Option<&str>) -> RunStatus {
        let outcome = RunResult::Completed { output: json("{}"), artifacts: Vec::new() };
        self.store.finish(self.by(), run, outcome, usage.map(json), None, self.env.now()).await.unwrap()
    }

    async fn limit(&self, limits: QuotaLimits) {
        self.store.set_quota(self.context("key:owner"), TENANT, limits).await.unwrap();
    }

    /// The account of the whole tenant on the day of now.
    async fn account(&self) -> QuotaAccount {
        let quotas = self.store.quotas(self.tenant, self.env.now()).await.unwrap();
        let [QuotaRecord { target: TENANT, account, .. }] = quotas.as_slice() else { panic!("{quotas:?}") };
        *account
    }

    async fn tried(&self, delivery: DeliveryId, number: i64, next: AttemptDecision) -> DeliveryRecord {
        let error = (next != AttemptDecision::Delivered).then(|| "refused".to_owned());
        let attempt = DeliveryAttempt { at: self.env.now(), status: None, error };
        self.store.record_attempt(delivery, number, attempt, next).await.unwrap()
    }

    async fn due(&self) -> Vec<DeliveryId> {
        let due = self.store.due_deliveries(None, self.env.now(), 10).await.unwrap();
        due.iter().map(|delivery| delivery.id).collect()
    }
}

fn calls(calls: u64) -> QuotaLimits {
    QuotaLimits { calls: Some(calls), ..QuotaLimits::default() }
}

fn spend(calls: u64, tokens: u64) -> Spend {
    Spend { calls, tokens, micro_usd: 0 }
}

#[tokio::test]
async fn a_quota_that_became_smaller_refuses_the_oldest_run_at_its_claim() {
    for world in World::all().await {
        world.limit(calls(2)).await;
        let callback = Some(RunCallback { url: URL.to_owned(), approvals: false });
        let first = world.queue(world.new_run_calling(callback)).await.unwrap();
        let second = world.one_more().await.unwrap();
        let today = UtcDay::of(world.env.now());
        let exceeded = ExceededLimit {
            measure: QuotaMeasure::Calls,
            line: Some(0),
            limit: 2,
            spent: 0,
            held: 2,
            resets_at: today.ends_at(),
        };
        assert_eq!(world.one_more().await, Err(Error::QuotaExceeded { target: TENANT, exceeded }));

        world.limit(calls(1)).await;
        let head = world.head().await;
        assert_eq!(world.claim().await, Some(second));
        let refused = world.store.run(world.tenant, first).await.unwrap();
        assert_eq!((refused.state.status(), refused.state.epoch), (RunStatus::Failed, 0));
        assert_eq!(
            refused.result.unwrap().get(),
            format!(r#"{{"error":"{}","code":"quota_exceeded"}}"#, ExceededLimit { limit: 1, ..exceeded })
        );
        assert_eq!(world.log(head).await[0], r#"system task.failed {"code":"quota_exceeded"}"#);
        // It counts nowhere, but whoever waits for it is told.
        assert_eq!(world.account().await, QuotaAccount { day: today, spent: spend(0, 0), held: spend(1, 0) });
        assert_eq!(world.store.usage(world.tenant, today, today).await, Ok(Vec::new()));
        assert_eq!(world.due().await, [DeliveryId::of_run(first)]);
        world.complete(second, None).await;
        assert_eq!(world.account().await, QuotaAccount { day: today, spent: spend(1, 0), held: spend(0, 0) });
    }
}

#[tokio::test]
async fn a_claim_ends_only_so_many_runs_without_room() {
    for world in World::all().await {
        let mut runs = Vec::new();
        for _ in 0..MAX_REFUSED + 6 {
            runs.push(world.one_more().await.unwrap());
        }
        world.limit(calls(1)).await;
        assert_eq!(world.claim().await, None, "the rest of the queue is for the next claim");
        let live = world.store.live(world.tenant).await.unwrap();
        assert_eq!(live.pending, 6);
        assert_eq!(world.claim().await, runs.pop());
    }
}

#[tokio::test]
async fn a_report_over_the_limit_stops_the_run_and_tells_the_worker() {
    for world in World::all().await {
        world.limit(QuotaLimits { tokens: Some(15_000), ..QuotaLimits::default() }).await;
        let run = world.one_more().await.unwrap();
        assert_eq!(world.account().await.held, spend(1, 10_000));
        assert_eq!(world.claim().await, Some(run));
        // One step ahead of what is used, as far as there is room.
        assert_eq!(world.used(run, r#"{"tokens":8000}"#).await, RunStatus::Running);
        assert_eq!(world.account().await.held, spend(1, 15_000));
        assert_eq!(world.used(run, r#"{"tokens":15000}"#).await, RunStatus::Running);
        let head = world.head().await;
        assert_eq!(world.used(run, r#"{"tokens":15001,"cost_usd":0.25}"#).await, RunStatus::Failed);
        assert_eq!(world.log(head).await, [r#"system task.failed {"code":"quota_exceeded"}"#]);
        let frames = world.frames(world.worker).await;
        assert_eq!(frames, [OutboxFrame::Execute { run, epoch: 1 }, OutboxFrame::Cancel { run }]);
        let today = UtcDay::of(world.env.now());
        let spent = Spend { micro_usd: 250_000, ..spend(1, 15_001) };
        assert_eq!(world.account().await, QuotaAccount { day: today, spent, held: Spend::default() });
        let used = DailyUsage {
            day: today,
            user: None,
            agent: world.agent,
            calls: 1,
            failed: 1,
            tokens: 15_001,
            micro_usd: 250_000,
            reported: 1,
            estimated: 0,
            unknown: 0,
            duration_ms: 0,
        };
        assert_eq!(world.store.usage(world.tenant, today, today).await, Ok(vec![used]));
        assert!(matches!(world.one_more().await, Err(Error::QuotaExceeded { .. })));
    }
}

#[tokio::test]
async fn a_run_belongs_to_the_day_on_which_it_was_queued() {
    for world in World::all().await {
        world.limit(calls(1)).await;
        let today = UtcDay::of(world.env.now());
        let tomorrow = UtcDay(today.0 + 1);
        let run = world.one_more().await.unwrap();
        assert_eq!(world.claim().await, Some(run));
        world.env.advance(tomorrow.begins_at().since(world.env.now()) - Duration::from_millis(1));
        assert!(matches!(world.one_more().await, Err(Error::QuotaExceeded { .. })));
        world.env.advance(Duration::from_millis(1));
        // A new day is empty; the run still holds its part of the old one, and settles there.
        assert_eq!(world.account().await, QuotaAccount::new(tomorrow));
        world.one_more().await.unwrap();
        world.complete(run, Some(r#"{"tokens":7}"#)).await;
        assert_eq!(world.account().await, QuotaAccount { held: spend(1, 0), ..QuotaAccount::new(tomorrow) });
        let quotas = world.store.quotas(world.tenant, today.begins_at()).await.unwrap();
        assert_eq!(quotas[0].account, QuotaAccount { spent: spend(1, 7), ..QuotaAccount::new(today) });
        let used = world.store.usage(world.tenant, today, tomorrow).await.unwrap();
        assert_eq!(used.iter().map(|usage| (usage.day, usage.tokens)).collect::<Vec<_>>(), [(today, 7)]);
    }
}

#[tokio::test]
async fn a_run_falls_under_the_quotas_of_its_tenant_its_user_its_agent_and_both() {
    for world in World::all().await {
        let (ada, bob) = (world.user("ada", Role::Owner).await.id, world.user("bob", Role::Viewer).await.id);
        let agent = Some(world.agent);
        for (target, limit) in [
            (TENANT, 9),
            (QuotaTarget { user: Some(ada), agent: None }, 8),
            (QuotaTarget { user: None, agent }, 7),
            (QuotaTarget { user: Some(ada), agent }, 0),
        ] {
            world.store.set_quota(world.context("key:owner"), target, calls(limit)).await.unwrap();
        }
        let with = |user| world.context("key:owner").for_user(user);
        let refused = world.store.create_run(with(Some(ada)), world.new_run()).await;
        let Err(Error::QuotaExceeded { target, exceeded }) = refused else { panic!("{refused:?}") };
        assert_eq!((target, exceeded.line), (QuotaTarget { user: Some(ada), agent }, Some(3)));
        world.store.create_run(with(Some(bob)), world.new_run()).await.unwrap();
        world.store.create_run(with(None), world.new_run()).await.unwrap();
        let quotas = world.store.quotas(world.tenant, world.env.now()).await.unwrap();
        let held: Vec<(QuotaTarget, u64)> =
            quotas.iter().map(|quota| (quota.target, quota.account.held.calls)).collect();
        assert_eq!(
            held,
            [
                (TENANT, 2),
                (QuotaTarget { user: None, agent }, 2),
                (QuotaTarget { user: Some(ada), agent: None }, 0),
                (QuotaTarget { user: Some(ada), agent }, 0),
            ]
        );
    }
}

#[tokio::test]
async fn what_was_delivered_can_be_sent_again_and_attempts_go_on_counting() {
    for world in World::all().await {
        let callback = Some(RunCallback { url: URL.to_owned(), approvals: true });
        let run = world.queue(world.new_run_calling(callback)).await.unwrap();
        world.store.cancel_run(world.context("key:owner"), run, None).await.unwrap();
        let (id, at) = (DeliveryId::of_run(run), world.env.now());
        let made = DeliveryRecord::due(world.tenant, run, None, URL.to_owned(), at);
        assert_eq!(world.store.delivery(world.tenant, id).await, Ok(made));
        let head = world.head().await;

        let later = at.plus(Duration::from_secs(5));
        let first = world.tried(id, 1, AttemptDecision::RetryAt(later)).await;
        assert_eq!((first.state, first.attempts, first.next_at), (DeliveryState::Pending, 1, Some(later)));
        assert_eq!(world.tried(id, 1, AttemptDecision::GiveUp).await, first);
        assert_eq!(world.tried(id, 3, AttemptDecision::GiveUp).await, first);
        assert_eq!(world.due().await, []);
        world.env.advance(Duration::from_secs(5));
        assert_eq!(world.due().await, [id]);
        let second = world.tried(id, 2, AttemptDecision::Delivered).await;
        assert_eq!((second.state, second.next_at), (DeliveryState::Delivered, None));
        assert_eq!(second.delivered_at, Some(world.env.now()));
        // None follows an acknowledgement that was kept.
        assert_eq!(world.tried(id, 3, AttemptDecision::Delivered).await, second);

        world.env.advance(Duration::from_secs(1));
        let resent = world.store.resend_delivery(world.context("key:owner"), id).await.unwrap();
        let due = DeliveryRecord { state: DeliveryState::Pending, next_at: Some(world.env.now()), ..second.clone() };
        assert_eq!(resent, due);
        assert_eq!(world.due().await, [id]);
        let third = world.tried(id, 3, AttemptDecision::GiveUp).await;
        assert_eq!((third.state, third.delivered_at), (DeliveryState::Failed, second.delivered_at));
        let ids = format!(r#""delivery_id":"{id}","task_run_id":"{run}""#);
        assert_eq!(
            world.log(head).await,
            [
                format!(r#"system delivery.delivered {{{ids},"attempt":2,"status":null}}"#),
                format!(r#"key:owner delivery.resent {{{ids}}}"#),
                format!(r#"system delivery.failed {{{ids},"attempt":3,"status":null,"error":"refused"}}"#),
            ]
        );
    }
}

#[tokio::test]
async fn a_hint_follows_when_a_delivery_is_due() {
    for world in World::all().await {
        let (told, heard) = std::sync::mpsc::channel();
        world.store.on_wake(Box::new(move |woken| told.send(woken.contains(&WakeHint::Deliveries)).unwrap()));
        // Hints follow the answer, and everything of one write comes before the next one.
        let last = async || {
            world.store.ping().await.unwrap();
            heard.try_iter().last()
        };
        let callback = Some(RunCallback { url: URL.to_owned(), approvals: false });
        let run = world.queue(world.new_run_calling(callback)).await.unwrap();
        assert_eq!(last().await, Some(false));
        world.store.cancel_run(world.context("key:owner"), run, None).await.unwrap();
        assert_eq!(last().await, Some(true));
        world.tried(DeliveryId::of_run(run), 1, AttemptDecision::Delivered).await;
        world.store.resend_delivery(world.context("key:owner"), DeliveryId::of_run(run)).await.unwrap();
        assert_eq!(last().await, Some(true));
    }
}

#[tokio::test]
async fn retention_takes_old_deliveries_that_nobody_waits_for() {
    for world in World::all().await {
        let callback = Some(RunCallback { url: URL.to_owned(), approvals: false });
        let mut made = Vec::new();
        for _ in 0..3 {
            let run = world.queue(world.new_run_calling(callback.clone())).await.unwrap();
            world.store.cancel_run(world.context("key:owner"), run, None).await.unwrap();
            made.push(DeliveryId::of_run(run));
            world.env.advance(Duration::from_secs(1));
        }
        let [delivered, waiting, newest] = made[..] else { panic!("{made:?}") };
        world.tried(delivered, 1, AttemptDecision::Delivered).await;
        world.tried(newest, 1, AttemptDecision::GiveUp).await;
        let log_before = world.env.now().minus(Duration::from_secs(1));
        world
            .store
            .retain(RetentionLimits {
                at: log_before,
                max_rows: 1000,
                chunks_before: log_before,
                log_before,
                streams_before: Timestamp::default(),
                channels_before: Timestamp::default(),
                runs_before: Timestamp::default(),
                conversations_before: Timestamp::default(),
                artifacts_before: Timestamp::default(),
                credentials_before: Timestamp::default(),
            })
            .await
            .unwrap();
        let page = attache_store::record::Pagination { limit: 10, cursor: None };
        let left = world.store.deliveries(world.tenant, DeliveryFilter::default(), page).await.unwrap().items;
        assert_eq!(left.iter().map(|delivery| delivery.id).collect::<Vec<_>>(), [newest, waiting]);
        assert_eq!(world.store.delivery(world.tenant, delivered).await, Err(Error::NotFound));
    }
}

#[tokio::test]
async fn a_permission_that_waits_for_a_person_tells_a_webhook() {
    for world in World::all().await {
        let run = world.one_more().await.unwrap();
        world.claim().await;
        let mut new = world.permission(run, "bash");
        new.notify = Some(URL.to_owned());
        let permission = world.store.request_permission(world.by(), new, LEASE, world.env.now()).await.unwrap().id;
        let told = DeliveryRecord::due(world.tenant, run, Some(permission), URL.to_owned(), world.env.now());
        assert_eq!(world.store.due_deliveries(None, world.env.now(), 10).await, Ok(vec![told]));
    }
}

#[tokio::test]
async fn removing_a_user_revokes_their_keys_in_order_of_creation() {
    for world in World::all().await {
        let owner = world.user("ada", Role::Owner).await;
        let user = world.user("bob", Role::Operator).await;
        let first = world.key(user.id, KeyKind::Api, 11).await;
        let session = world.key(user.id, KeyKind::Session, 12).await;
        let revoked = world.key(user.id, KeyKind::Api, 13).await;
        let last = world.key(user.id, KeyKind::Api, 14).await;
        world.store.revoke_key(world.context("key:owner"), revoked).await.unwrap();
        // A key is worth no more than its user.
        let credential = |key, role, revoked| StoredCredential::Key {
            tenant: world.tenant,
            key,
            user: Some(user.id),
            role,
            user_role: Some(Role::Operator),
            scopes: None,
            expires_at: None,
            revoked,
            kind: KeyKind::Api,
            agent: None,
            opener: None,
        };
        let worth = credential(first, Role::Operator, false);
        assert_eq!(world.store.key_credential(first).await, Ok(Some(worth)));
        let head = world.head().await;
        let removed = world.store.remove_user(world.context("key:owner"), UserRef::Name("bob".to_owned())).await;
        let gone = UserRecord { removed_at: Some(world.env.now()), ..user.clone() };
        assert_eq!(removed, Ok(gone.clone()));
        assert_eq!(world.store.remove_user(world.context("key:owner"), UserRef::Id(user.id)).await, Ok(gone));
        assert_eq!(
            world.log(head).await,
            [
                format!(r#"key:owner key.revoked {{"key_id":"{first}"}}"#),
                format!(r#"key:owner session.ended {{"session_id":"{session}"}}"#),
                format!(r#"key:owner key.revoked {{"key_id":"{last}"}}"#),
                format!(r#"key:owner user.removed {{"user_id":"{}","name":"bob"}}"#, user.id),
            ]
        );
        for secret in 11..=14 {
            let seen = world.store.credential(SecretHash([secret; 32])).await.unwrap();
            assert!(matches!(seen, Some(StoredCredential::Key { revoked: true, .. })), "{seen:?}");
        }
        // The name is free again, and the last owner stays.
        world.user("bob", Role::Viewer).await;
        let last_owner = world.store.remove_user(world.context("key:owner"), UserRef::Id(owner.id)).await;
        assert_eq!(last_owner, Err(Error::LastOwner));
    }
}

#[tokio::test]
async fn a_session_ends_with_its_opener_and_never_outlives_it() {
    for world in World::all().await {
        let user = world.user("ada", Role::Owner).await.id;
        let end = world.env.now().plus(Duration::from_secs(20));
        let new = |opener: Option<KeyId>, secret: u8, expires_at| NewKey {
            id: world.env.key_id(),
            opening: opener.map(|opener| SessionOpening {
                opener: Some(opener),
                address: Some("192.0.2.1".to_owned()),
                passkey: None,
            }),
            issuer: None,
            agent: None,
            name: "console".to_owned(),
            role: Role::Admin,
            user: Some(user),
            scopes: None,
            secret: SecretHash([secret; 32]),
            expires_at,
        };
        let create = async |new: NewKey| world.store.create_key(world.context("key:owner"), new).await;
        let key = create(new(None, 31, Some(end))).await.unwrap();
        let month = Some(world.env.now().plus(Duration::from_secs(30 * 86_400)));
        let head = world.head().await;
        let first = create(new(Some(key.id), 32, month)).await.unwrap();
        let second = create(new(Some(first.id), 33, None)).await.unwrap();
        assert_eq!((first.expires_at, second.expires_at), (Some(end), Some(end)));
        world.store.revoke_key(world.context("key:owner"), key.id).await.unwrap();
        assert_eq!(create(new(Some(key.id), 34, month)).await, Err(Error::NotFound));
        let opened = |session: KeyId, opener: KeyId| {
            format!(
                r#"key:owner session.opened {{"session_id":"{session}","user_id":"{user}","role":"admin","opener":"{opener}","address":"192.0.2.1"}}"#
            )
        };
        assert_eq!(
            world.log(head).await,
            [
                opened(first.id, key.id),
                opened(second.id, first.id),
                format!(r#"key:owner key.revoked {{"key_id":"{}"}}"#, key.id),
                format!(r#"key:owner session.ended {{"session_id":"{}"}}"#, first.id),
                format!(r#"key:owner session.ended {{"session_id":"{}"}}"#, second.id),
            ]
        );
        for session in [first.id, second.id] {
            let seen = world.store.key_credential(session).await.unwrap();
            assert!(matches!(seen, Some(StoredCredential::Key { revoked: true, .. })), "{seen:?}");
        }
        // An opener whose time is over opens nothing either.
        let short = create(new(None, 35, Some(end))).await.unwrap();
        world.env.advance(Duration::from_secs(20));
        assert_eq!(create(new(Some(short.id), 36, month)).await, Err(Error::NotFound));
    }
}

#[tokio::test]
async fn a_new_password_ends_the_other_sessions_of_its_user() {
    for world in World::all().await {
        let user = world.user("ada", Role::Owner).await.id;
        let (api, kept) = (world.key(user, KeyKind::Api, 21).await, world.key(user, KeyKind::Session, 22).await);
        let ended = world.key(user, KeyKind::Session, 23).await;
        let head = world.head().await;
        let password = Some(attache_protocol::Secret::new("$argon2id$new".to_owned()));
        let patch = UserPatch { password, ..UserPatch::default() };
        let context: WriteContext = world.context("key:owner");
        world.store.update_user(context, UserRef::Id(user), patch, Some(kept)).await.unwrap();
        let rows = [
            format!(r#"key:owner session.ended {{"session_id":"{ended}"}}"#),
            format!(r#"key:owner user.updated {{"user_id":"{user}","name":null,"role":null,"password":true}}"#),
        ];
        assert_eq!(world.log(head).await, rows);
        for (key, is_revoked) in [(api, false), (kept, false), (ended, true)] {
            let seen = world.store.key_credential(key).await.unwrap();
            assert!(matches!(seen, Some(StoredCredential::Key { revoked, .. }) if revoked == is_revoked), "{seen:?}");
        }
    }
}

#[tokio::test]
async fn rules_that_somebody_else_changed_are_not_overwritten() {
    for world in World::all().await {
        let set =
            |text: &str, expected| world.store.set_access_rules(world.context("key:owner"), text.to_owned(), expected);
        assert_eq!(world.store.access_rules(world.tenant).await, Ok(None));
        assert_eq!(set("a", Some(1)).await, Err(Error::VersionChanged));
        let first = set("a", Some(0)).await.unwrap();
        assert_eq!((first.version, first.changed_at), (1, world.env.now()));
        world.env.advance(Duration::from_secs(1));
        assert_eq!(set("a", Some(1)).await, Ok(first.clone()));
        assert_eq!(set("b", Some(0)).await, Err(Error::VersionChanged));
        assert_eq!(set("a", Some(0)).await, Err(Error::VersionChanged));
        assert_eq!(world.store.access_rules(world.tenant).await, Ok(Some(first)));
        assert_eq!(set("b", None).await.unwrap().version, 2);
    }
}

#[tokio::test]
async fn a_view_is_its_owners_until_it_is_removed() {
    for world in World::all().await {
        let (ada, bob) = (world.user("ada", Role::Viewer).await.id, world.user("bob", Role::Owner).await.id);
        let store = &world.store;
        let view = |name: &str, query: &str| SavedView { name: name.to_owned(), query: query.to_owned() };
        let save = async |user, name: &str, query: &str| store.save_view(world.tenant, user, view(name, query)).await;
        save(ada, "mine", "status=failed").await.unwrap();
        save(ada, "修复", "q=a%27b").await.unwrap();
        save(ada, "mine", "status=running").await.unwrap();
        let saved = async |user| store.saved_views(world.tenant, user).await;
        assert_eq!(saved(ada).await.unwrap(), [view("mine", "status=running"), view("修复", "q=a%27b")]);
        assert_eq!(saved(bob).await.unwrap(), []);
        let remove = async |user, name: &str| store.remove_view(world.tenant, user, name).await;
        assert_eq!(remove(bob, "mine").await, Err(Error::NotFound));
        remove(ada, "mine").await.unwrap();
        assert_eq!(remove(ada, "mine").await, Err(Error::NotFound));
        assert_eq!(saved(ada).await.unwrap(), [view("修复", "q=a%27b")]);
        let unknown = world.env.user_id();
        assert_eq!(save(unknown, "x", "y").await, Err(Error::NotFound));
        assert_eq!(saved(unknown).await, Err(Error::NotFound));
        store.remove_user(world.context("key:owner"), UserRef::Id(ada)).await.unwrap();
        assert_eq!(saved(ada).await.unwrap(), []);
        assert_eq!(save(ada, "x", "y").await, Err(Error::NotFound));
    }
}

#[tokio::test]
async fn words_are_found_in_the_output_of_a_run() {
    for world in World::all().await {
        let run = world.one_more().await.unwrap();
        world.claim().await.unwrap();
        let event = |kind, data: &str| NewEvent { kind, data: json(data) };
        let events = vec![
            event(EventKind::TaskChunk, r#"{"text":"Line one\nLi"}"#),
            event(EventKind::TaskChunk, r#"{"text":"NE two"}"#),
            event(EventKind::TaskLog, r#"{"message":"a line"}"#),
        ];
        let progress = NewProgress { events, ..NewProgress::default() };
        world.store.progress(world.by(), run, progress, LEASE, world.env.now()).await.unwrap();
        let found = async |words: &str, limit| world.store.output_matches(world.tenant, run, words, limit).await;
        let first = world.store.run_events(world.tenant, run, 0, 10).await.unwrap();
        let at = first.events.iter().find(|event| event.kind == "task.chunk").unwrap().seq;
        let all = OutputMatches { seqs: vec![at, at + 1, at + 2], more: false };
        assert_eq!(found("line", 9).await.unwrap(), all);
        assert_eq!(found("line", 2).await.unwrap(), OutputMatches { seqs: vec![at, at + 1], more: true });
        assert_eq!(found("nothing", 2).await.unwrap(), OutputMatches::default());
        let unknown = world.store.output_matches(world.tenant, world.env.run_id(), "line", 2).await;
        assert_eq!(unknown, Err(Error::NotFound));
    }
}

#[tokio::test]
async fn a_passkey_is_one_persons_and_ends_with_its_sessions() {
    for world in World::all().await {
        let (ada, bob) = (world.user("ada", Role::Owner).await.id, world.user("bob", Role::Owner).await.id);
        let context = || world.context("key:owner");
        let new = |user| NewPasskey {
            id: world.env.passkey_id(),
            user,
            name: "phone".to_owned(),
            credential: vec![1, 0, 255],
            public_key: vec![2],
            counter: 5,
        };
        let unknown = world.env.user_id();
        assert_eq!(world.store.add_passkey(context(), new(unknown)).await, Err(Error::NotFound));
        let passkey = world.store.add_passkey(context(), new(ada)).await.unwrap();
        assert_eq!(world.store.add_passkey(context(), new(bob)).await, Err(Error::NameTaken));
        assert_eq!(world.store.passkeys(world.tenant, ada).await, Ok(vec![passkey.clone()]));
        assert_eq!(world.store.passkeys(world.tenant, bob).await, Ok(Vec::new()));
        assert_eq!(world.store.passkey(world.tenant, &[1, 0, 255]).await, Ok(passkey.clone()));
        assert_eq!(world.store.passkey(world.tenant, &[1, 0]).await, Err(Error::NotFound));

        // A counter that goes back, or stays, is that of a copy.
        let at = world.env.now();
        let used = async |counter| world.store.use_passkey(world.tenant, passkey.id, counter, at).await;
        assert_eq!(
            (used(5).await, used(0).await, used(u32::MAX).await, used(6).await),
            (Ok(false), Ok(false), Ok(true), Ok(false))
        );
        let expected = PasskeyRecord { counter: u32::MAX, last_used_at: Some(at), ..passkey.clone() };
        assert_eq!(world.store.passkeys(world.tenant, ada).await, Ok(vec![expected.clone()]));

        let session = async |user, secret| {
            let opening = SessionOpening { passkey: Some(passkey.id), ..SessionOpening::default() };
            let new = NewKey {
                id: world.env.key_id(),
                opening: Some(opening),
                issuer: None,
                agent: None,
                name: "console".to_owned(),
                role: Role::Owner,
                user: Some(user),
                scopes: None,
                secret: SecretHash([secret; 32]),
                expires_at: None,
            };
            world.store.create_key(context(), new).await
        };
        assert_eq!(session(bob, 1).await, Err(Error::NotFound), "it isn't his");
        let opened = session(ada, 2).await.unwrap();
        assert_eq!(opened.passkey(), Some(passkey.id));
        let other = world.key(ada, KeyKind::Session, 3).await;
        assert_eq!(world.store.remove_passkey(context(), bob, passkey.id).await, Err(Error::NotFound));
        assert_eq!(world.store.remove_passkey(context(), ada, passkey.id).await, Ok(expected));
        let revoked = async |key| match world.store.key_credential(key).await {
            Ok(Some(StoredCredential::Key { revoked, .. })) => revoked,
            other => panic!("{other:?}"),
        };
        assert_eq!((revoked(opened.id).await, revoked(other).await), (true, false));
        assert_eq!(session(ada, 4).await, Err(Error::NotFound), "it is gone");

        // Who is removed has none, and their passkey can be anybody's again.
        world.store.add_passkey(context(), new(ada)).await.unwrap();
        world.store.remove_user(context(), UserRef::Id(ada)).await.unwrap();
        assert_eq!(world.store.passkeys(world.tenant, ada).await, Ok(Vec::new()));
        world.store.add_passkey(context(), new(bob)).await.unwrap();
    }
}

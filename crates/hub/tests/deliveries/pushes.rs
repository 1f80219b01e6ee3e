//! A2A push notifications in the hub: who may subscribe, how a subscriber's secrets are stored, and that notifications
//! from an external renderer are sent like any other.

use std::{sync::Arc, time::Duration};

use attache_hub::{
    Handle, Principal, Result,
    control::{CallHeaders, CreatedRun, PageRequest, PushSubscription, PushVersion, RunTaskState, TaskQuery},
    deliveries::{PushNotification, PushRenderer, PushUpdate},
};
use attache_protocol::{Code, DeliveryId, RunId, Secret, wire::run::CreateRunRequest};
use axum::http::{HeaderMap, HeaderValue, header};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::receiver::{ReceiverAnswer, WebhookReceiver, tried, world};
use crate::world::{Engine, TestCaller, TestDevice, World, on_all};

on_all! {
    a_subscriber_is_notified_of_every_change_and_its_secrets_stay_encrypted
    notifications_wait_for_a_renderer_and_are_retried
    only_a_runs_creator_can_subscribe_to_it
    a_deleted_config_gets_no_notifications
    callers_list_their_own_tasks
}

const TOKEN: &str = "token-that-nobody-else-may-see";
const CREDENTIALS: &str = "credentials-that-nobody-else-may-see";

/// Renders the update unchanged.
struct PlainRenderer;

// === impl PlainRenderer ===

impl PushRenderer for PlainRenderer {
    fn write<'a>(&'a self, update: &'a PushUpdate<'a>) -> BoxFuture<'a, Result<PushNotification>> {
        Box::pin(async move {
            let outline = update.outline().await?;
            let kinds: Vec<&str> = outline.events.iter().map(|event| event.kind.as_str()).collect();
            let run = update.run().await?;
            let body = json!({"run": run.task_run_id, "seq": update.seq, "events": kinds});
            let mut headers = HeaderMap::new();
            let mut put = |name, value: String| headers.insert(name, HeaderValue::from_str(&value).unwrap());
            if let Some((scheme, Some(credentials))) = &update.push.authentication {
                put(header::AUTHORIZATION, format!("{scheme} {}", credentials.expose()));
            }
            if let Some(token) = &update.push.token {
                put(header::HeaderName::from_static("x-a2a-notification-token"), token.expose().clone());
            }
            Ok(PushNotification { headers, bodies: vec![body.to_string().into_bytes()] })
        })
    }
}

async fn principal(hub: &Handle, client: &TestCaller) -> Principal {
    let key = client.header("authorization").strip_prefix("Bearer ").unwrap().to_owned();
    hub.authenticate_key(&key).await.unwrap()
}

/// Another person with this role.
async fn person(world: &World, name: &str, role: &str) -> Principal {
    world.owner.post("/api/v1/users", json!({"name": name, "role": role})).await.expect(201);
    let key = json!({"name": name, "user": name, "role": role});
    let made = world.owner.post("/api/v1/api-keys", key).await.expect(201);
    world.hub.authenticate_key(made["api_key"].as_str().unwrap()).await.unwrap()
}

fn push(id: &str, url: &str) -> PushSubscription {
    PushSubscription {
        id: Some(id.to_owned()),
        url: url.to_owned(),
        token: Some(Secret::new(TOKEN.to_owned())),
        authentication: Some(("Bearer".to_owned(), Some(Secret::new(CREDENTIALS.to_owned())))),
        version: PushVersion::V10,
    }
}

async fn start(world: &World, by: &Principal, push: Option<PushSubscription>) -> RunId {
    let request = CreateRunRequest { agent_id: "builder".to_owned(), ..CreateRunRequest::default() };
    let headers = CallHeaders { push, ..CallHeaders::default() };
    match world.hub.create_run(by, request, headers).await.unwrap() {
        CreatedRun::New(run) | CreatedRun::Existing(run) => run.task_run_id,
    }
}

async fn complete(device: &TestDevice, run: RunId) {
    let path = format!("/api/v1/task-runs/{run}/complete");
    device.client.post(&path, json!({"output": {"text": "nine"}})).await.expect(200);
}

async fn a_subscriber_is_notified_of_every_change_and_its_secrets_stay_encrypted(engine: Engine) {
    let receiver = WebhookReceiver::start(&[]).await;
    let (world, device) = world(engine, |_| {}).await;
    world.hub.set_push_renderer(Arc::new(PlainRenderer));
    let by = principal(&world.hub, &world.owner).await;
    let run = start(&world, &by, Some(push("a", &receiver.url()))).await;
    device.claim().await;
    let told = receiver.next().await;
    assert_eq!(told.json(), json!({"run": run, "seq": 2, "events": ["task.created", "task.claimed"]}));
    assert_eq!(told.headers["authorization"], format!("Bearer {CREDENTIALS}"));
    assert_eq!(told.headers["x-a2a-notification-token"], TOKEN);
    let ours = |name: &header::HeaderName| name.as_str().starts_with("x-attache");
    assert!(!told.headers.keys().any(ours), "the receiver knows nothing of our signatures: {:?}", told.headers);
    complete(&device, run).await;
    let events = ["task.created", "task.claimed", "task.completed"];
    assert_eq!(receiver.next().await.json(), json!({"run": run, "seq": 3, "events": events}));

    let delivery = DeliveryId::of_push(run, "a", 3).to_string();
    let shown = tried(&world, &delivery, 1, "delivered").await;
    assert_eq!((&shown["kind"], &shown["task_run_id"]), (&json!("task_updated"), &json!(run)));
    world.owner.post(&format!("/api/v1/deliveries/{delivery}/resend"), json!({})).await.expect(200);
    assert_eq!(receiver.next().await.json()["seq"], 3);

    assert_eq!(world.hub.push(&by, run, "a").await.unwrap(), push("a", &receiver.url()));
    let kept = world.store.push_config(by.tenant, run, "a").await.unwrap();
    let log = world.owner.get("/api/v1/audit?limit=200").await.expect(200).to_string();
    for secret in [TOKEN, CREDENTIALS] {
        let sealed = kept.sealed.as_ref().unwrap();
        assert!(!sealed.windows(secret.len()).any(|part| part == secret.as_bytes()));
        assert!(!log.contains(secret) && !format!("{kept:?}").contains(secret));
    }
    assert!(log.contains("push.configured"));
    let file = std::fs::metadata(world.data.path().join("hub/seal.key")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.permissions());
    assert_eq!((file.len(), mode & 0o777), (32, 0o600));
}

async fn notifications_wait_for_a_renderer_and_are_retried(engine: Engine) {
    let receiver = WebhookReceiver::start(&[ReceiverAnswer::Status(503)]).await;
    let (world, device) = world(engine, |_| {}).await;
    let by = principal(&world.hub, &world.owner).await;
    let run = start(&world, &by, Some(push("a", &receiver.url()))).await;
    device.claim().await;
    let delivery = DeliveryId::of_push(run, "a", 2).to_string();
    // Another delivery proceeds meanwhile.
    let callback = super::receiver::completed(&world.owner, &device, &receiver.url()).await;
    assert_eq!(receiver.next().await.id(), callback);
    tried(&world, &delivery, 0, "pending").await;
    world.hub.set_push_renderer(Arc::new(PlainRenderer));
    assert_eq!(receiver.next().await.json()["seq"], 2);
    tried(&world, &delivery, 1, "delivered").await;
}

async fn only_a_runs_creator_can_subscribe_to_it(engine: Engine) {
    let (world, _device) = world(engine, |_| {}).await;
    let url = "http://127.0.0.1:9/push";
    let owner = principal(&world.hub, &world.owner).await;
    let other = person(&world, "ann", "operator").await;
    let viewer = person(&world, "bob", "viewer").await;
    let run = start(&world, &owner, None).await;
    let mut unnamed = push("", url);
    unnamed.id = None;
    let named = world.hub.set_push(&owner, run, unnamed).await.unwrap().id.unwrap();
    assert!(!named.is_empty());
    world.hub.set_push(&owner, run, push("mine", url)).await.unwrap();
    let ids = |pushes: Vec<PushSubscription>| pushes.into_iter().filter_map(|push| push.id).collect::<Vec<_>>();
    assert_eq!(ids(world.hub.pushes(&owner, run).await.unwrap()), [named, "mine".to_owned()]);

    let same = principal(&world.hub, &world.key("viewer").await).await;
    assert_eq!(world.hub.push(&same, run, "mine").await.unwrap().url, url, "all keys of a person are that person");
    let missing = world.hub.push(&owner, world.env.run_id(), "mine").await.unwrap_err();
    assert_eq!(missing.code, Code::NotFound);
    for stranger in [&other, &viewer] {
        assert_eq!(world.hub.push(stranger, run, "mine").await.unwrap_err(), missing, "like one that is not there");
        assert_eq!(world.hub.pushes(stranger, run).await.unwrap_err(), missing);
    }
    assert_eq!(world.hub.set_push(&other, run, push("mine", url)).await.unwrap_err(), missing);
    assert_eq!(world.hub.remove_push(&other, run, "mine").await.unwrap_err(), missing);
    assert_eq!(world.hub.set_push(&viewer, run, push("mine", url)).await.unwrap_err().code, Code::Forbidden);

    let refused = world.hub.set_push(&owner, run, push("mine", "http://10.0.0.1/")).await.unwrap_err();
    assert_eq!(refused.code, Code::EgressRefused);
    assert!(refused.message.starts_with("`url` is not allowed: "), "{refused}");
    for (field, bad) in [
        ("url", PushSubscription { url: "ftp://x".to_owned(), ..push("a", url) }),
        ("id", push(&"x".repeat(201), url)),
        ("token", PushSubscription { token: Some(Secret::new("a\nb".to_owned())), ..push("a", url) }),
        (
            "authentication.scheme",
            PushSubscription { authentication: Some(("a b".to_owned(), None)), ..push("a", url) },
        ),
    ] {
        let refused = world.hub.set_push(&owner, run, bad).await.unwrap_err();
        assert_eq!(refused.code, Code::InvalidRequest, "{field}");
        assert!(refused.message.contains(&format!("`{field}`")), "{refused}");
    }
    world.hub.remove_push(&owner, run, "mine").await.unwrap();
    assert_eq!(world.hub.push(&owner, run, "mine").await.unwrap_err().code, Code::NotFound);
    for number in 1..16 {
        world.hub.set_push(&owner, run, push(&number.to_string(), url)).await.unwrap();
    }
    let full = world.hub.set_push(&owner, run, push("one too many", url)).await.unwrap_err();
    assert_eq!(
        (full.code, full.message.as_ref()),
        (Code::InvalidRequest, "A run can have at most 16 push notification configs.")
    );
}

async fn a_deleted_config_gets_no_notifications(engine: Engine) {
    let receiver = WebhookReceiver::start(&[]).await;
    let (world, device) = world(engine, |_| {}).await;
    let by = principal(&world.hub, &world.owner).await;
    let run = start(&world, &by, Some(push("a", &receiver.url()))).await;
    device.claim().await;
    world.hub.remove_push(&by, run, "a").await.unwrap();
    world.hub.set_push_renderer(Arc::new(PlainRenderer));
    let given_up = tried(&world, &DeliveryId::of_push(run, "a", 2).to_string(), 1, "failed").await;
    assert_eq!(given_up["last_error"], "The run or request it reports no longer exists.");
    complete(&device, run).await;
    assert_eq!(receiver.count(), 0);
}

async fn callers_list_their_own_tasks(engine: Engine) {
    let (world, device) = world(engine, |_| {}).await;
    let owner = principal(&world.hub, &world.owner).await;
    let other = person(&world, "ann", "operator").await;
    let registered = world.owner.post("/api/a2a/register", json!({"agent_id": "helper"})).await.expect(200);
    let helper = principal(&world.hub, &world.anonymous().key(registered["api_key"].as_str().unwrap())).await;
    let first = start(&world, &owner, None).await;
    world.advance(Duration::from_secs(1));
    let second = start(&world, &owner, None).await;
    let others = start(&world, &other, None).await;
    let account: Value = world.owner.get("/api/v1/agent-accounts/builder").await.expect(200);
    let query = |state, limit: usize, cursor: Option<String>| TaskQuery {
        agent: account["agent_id"].as_str().unwrap().parse().unwrap(),
        conversation: None,
        state,
        after: None,
        page: PageRequest { limit: Some(limit), cursor },
    };
    let page = world.hub.own_tasks(&owner, query(None, 1, None)).await.unwrap();
    assert_eq!((page.tasks[0].run.task_run_id, page.tasks.len(), page.total), (second, 1, 2));
    assert_eq!(page.tasks[0].since, world.env.now());
    let page = world.hub.own_tasks(&owner, query(None, 1, page.next_cursor)).await.unwrap();
    assert_eq!((page.tasks[0].run.task_run_id, page.total, page.next_cursor), (first, 2, None));
    assert_eq!(world.hub.own_tasks(&other, query(None, 50, None)).await.unwrap().tasks[0].run.task_run_id, others);
    assert_eq!(world.hub.own_tasks(&helper, query(None, 50, None)).await.unwrap().total, 0);
    device.claim().await;
    let working = world.hub.own_tasks(&owner, query(Some(RunTaskState::Working), 50, None)).await.unwrap();
    assert_eq!((working.tasks[0].run.task_run_id, working.total), (first, 1));
    let wrong = world.hub.own_tasks(&owner, query(None, 50, Some("7".to_owned()))).await.unwrap_err();
    assert_eq!(wrong.message, "`cursor` was not issued for this list.");
}

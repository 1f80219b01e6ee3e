//! A webhook URL is checked when it is set, and again when it is called.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use attache_client::egress::{EgressGuard, EgressLimits, EgressPolicy, Resolver, ResolverLookup};
use serde_json::{Value, json};

use super::receiver::{WebhookReceiver, completed, tried, world};
use crate::world::{Engine, on_all};

on_all! {
    hostile_urls_are_refused_everywhere
    a_host_that_rebinds_after_registration_is_not_called
}

const HOSTILE: &[&str] = &[
    "http://hooks.example.org/plain",
    "https://10.0.0.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://2130706433/",
    "https://0x7f.1/",
    "https://0177.0.0.1/",
    "https://localhost/",
    "https://metadata.google.internal/",
    "https://hooks.example.org:22/",
];

/// No rule could allow these.
const MALFORMED: &[&str] = &[
    "file:///etc/passwd",
    "gopher://hooks.example.org/",
    "hooks.example.org/done",
    "https://ann:hunter2@hooks.example.org/",
    "https://hooks.example.org@127.0.0.1/",
    "https://hooks.example.org/#x",
    "https://hooks.example.org\\@127.0.0.1/",
    "",
];

/// Resolves to a public address once, and to this machine from then on.
#[derive(Debug, Default)]
struct Rebinding(AtomicUsize);

impl Resolver for Rebinding {
    fn resolve(&self, _: &str) -> ResolverLookup {
        let address = if self.0.fetch_add(1, Ordering::SeqCst) == 0 { "93.184.216.34" } else { "127.0.0.1" };
        let address: IpAddr = address.parse().unwrap();
        Box::pin(std::future::ready(Ok(vec![address])))
    }
}

/// A name server that knows nothing.
#[derive(Debug)]
struct Ignorant;

impl Resolver for Ignorant {
    fn resolve(&self, _: &str) -> ResolverLookup {
        Box::pin(std::future::ready(Err(std::io::Error::other("no such name"))))
    }
}

/// Nobody has forbidden it.
#[tokio::test]
async fn a_name_without_an_address_is_not_called_forbidden() {
    let (world, _device) = world(Engine::Sqlite, |options| {
        options.egress = EgressGuard::with(EgressPolicy::default(), EgressLimits::default(), Arc::new(Ignorant));
    })
    .await;
    let call = json!({"task": "x", "callback_url": "https://hooks.example.org/"});
    let refused = world.owner.post("/api/a2a/call", call).await;
    let why = "`callback_url` can't be looked up: `hooks.example.org` has no address: no such name. Check the name.";
    assert_eq!(refused.json()["error"]["message"], why);
}

async fn hostile_urls_are_refused_everywhere(engine: Engine) {
    let (world, _device) = world(engine, |options| options.egress = EgressGuard::new(EgressPolicy::default())).await;
    let hostile = HOSTILE.iter().map(|url| (url, (403, "egress_refused")));
    let malformed = MALFORMED.iter().map(|url| (url, (400, "invalid_request")));
    for (url, (status, code)) in hostile.chain(malformed) {
        let call = world.owner.post("/api/a2a/call", json!({"task": "x", "callback_url": url})).await;
        let create = json!({"agent_id": "builder", "callback_url": url});
        let run = world.owner.post("/api/v1/task-runs", create).await;
        let policy = json!({"approvals": {"webhook_url": url}});
        let account = world.owner.patch("/api/v1/agent-accounts/builder", policy).await;
        for reply in [call, run, account] {
            assert_eq!(reply.refusal(), (status, code.to_owned()), "{url}");
            assert!(!String::from_utf8_lossy(&reply.body).contains("hunter2"));
        }
    }
    let refused = world.owner.post("/api/a2a/call", json!({"task": "x", "callback_url": "https://10.0.0.1/"})).await;
    let why = "`callback_url` is not allowed: `10.0.0.1` points to a private network. Use a public address, or ask the \
               owner to allow this one (--egress-allow).";
    assert_eq!(refused.json()["error"]["message"], why);
    for (member, value) in [("callback_url", json!(7)), ("callback_events", json!(["sneeze"]))] {
        let mut body = json!({"task": "x"});
        body[member] = value;
        assert_eq!(world.owner.post("/api/a2a/call", body).await.status, 400, "{member}");
    }
    let runs = world.owner.get("/api/v1/task-runs").await.expect(200);
    assert_eq!(runs["task_runs"], json!([]), "nothing of this became a run");
    let account = world.owner.get("/api/v1/agent-accounts/builder").await.expect(200);
    assert_eq!(account["approvals"], Value::Null);
}

async fn a_host_that_rebinds_after_registration_is_not_called(engine: Engine) {
    let receiver = WebhookReceiver::start(&[]).await;
    let resolver = Arc::new(Rebinding::default());
    let (world, device) = world(engine, |options| {
        options.egress = EgressGuard::with(EgressPolicy::default(), EgressLimits::default(), resolver.clone());
    })
    .await;
    let port = receiver.origin.rsplit(':').next().unwrap();
    let delivery = completed(&world.owner, &device, &format!("https://hooks.example.org:{port}/done")).await;
    // A missing rule may still be added, so it is retried like any other.
    let shown = tried(&world, &delivery, 1, "pending").await;
    let why = "`hooks.example.org` points to this machine itself (loopback). Use a public address, or ask the owner to \
               allow this one (--egress-allow).";
    assert_eq!((&shown["last_status"], &shown["last_error"]), (&json!(null), &json!(why)));
    assert_eq!((receiver.count(), resolver.0.load(Ordering::SeqCst)), (0, 2), "resolved once each time");
    world.advance(Duration::from_secs(2));
    tried(&world, &delivery, 2, "pending").await;
}

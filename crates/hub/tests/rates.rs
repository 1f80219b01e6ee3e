//! Rate limits and their errors.

use attache_protocol::{Code, Secret};
use serde_json::json;

use crate::world::{HttpReply, TestCaller, World};

const PASSWORD: &str = "correct horse battery";

fn told(reply: &HttpReply) -> (u16, &str, bool, bool) {
    let within = |text: &str| (1..=60).contains(&text.parse::<u64>().unwrap_or(0));
    let limit = reply.header("ratelimit");
    let reset = limit.rsplit_once("t=").map_or("", |(_, reset)| reset);
    (reply.status, reply.header("ratelimit-policy"), within(reply.header("retry-after")), within(reset))
}

#[tokio::test]
async fn wrong_credentials_are_limited_and_valid_ones_are_not() {
    let world = World::tuned(|options| options.failures_per_minute = 3).await;
    for wrong in ["ak_wrong", "a.b.c", "rt_x"] {
        let reply = world.anonymous().key(wrong).get("/api/v1/task-runs").await;
        assert_eq!(reply.refusal(), (401, "unauthenticated".to_owned()), "{wrong}");
        assert_eq!(reply.header("ratelimit"), "");
    }
    let reply = world.anonymous().with("x-runtime-token", "rt_x").get("/api/v1/task-runs").await;
    assert_eq!(reply.refusal(), (429, "too_many_requests".to_owned()));
    assert_eq!(told(&reply), (429, "\"failed\";q=3;w=60", true, true));
    assert!(reply.header("ratelimit").starts_with("\"failed\";r=0;t="), "{}", reply.header("ratelimit"));
    assert_eq!(world.owner.get("/api/v1/task-runs").await.status, 200, "whoever shares the address is not to blame");
}

#[tokio::test]
async fn requests_without_a_credential_are_limited() {
    let world = World::tuned(|options| options.anonymous_per_minute = 3).await;
    for _ in 0..3 {
        assert_eq!(world.anonymous().get("/api/v1/task-runs").await.status, 401);
    }
    let reply = world.anonymous().get("/api/v1/task-runs").await;
    assert_eq!(told(&reply), (429, "\"anonymous\";q=3;w=60", true, true));
    assert_eq!(world.owner.get("/api/v1/task-runs").await.status, 200);
}

/// Somebody else at the same address may have used up what strangers have.
#[tokio::test]
async fn nobody_is_kept_from_signing_in_or_pairing() {
    let world = World::tuned(|options| options.anonymous_per_minute = 3).await;
    let anybody = world.anonymous();
    for _ in 0..4 {
        let _ = anybody.get("/api/v1/task-runs").await;
    }
    assert_eq!(anybody.get("/api/v1/task-runs").await.status, 429);
    for path in ["/healthz", "/readyz"].repeat(4) {
        assert_eq!(anybody.get(path).await.status, 200, "{path}");
    }
    let wrong = json!({"pairing_code": "WRONG-CODE"});
    let paired = anybody.post("/api/v1/agent-runtimes/runtime/attach-via-pairing", wrong).await;
    assert_ne!(paired.status, 429, "{:?}", paired.refusal());
}

#[tokio::test]
async fn only_a_valid_credential_lifts_the_limit() {
    let world = World::tuned(|options| options.anonymous_per_minute = 8).await;
    let anybody = world.anonymous();
    let dressed = [
        anybody.with("cookie", "a=b"),
        anybody.with("cookie", "attache_session=cs_wrong"),
        anybody.with("cookie", "theme=dark; attache_session=cs_wrong; x=cs_y"),
        anybody.key("ak_wrong"),
        anybody.key("a.b.c"),
        anybody.with("authorization", "Basic x"),
        anybody.with("x-runtime-token", "rt_wrong"),
        anybody.with("host", "evil.example"),
    ];
    for stranger in &dressed {
        assert_ne!(stranger.get("/api/v1/task-runs").await.status, 429);
    }
    for stranger in &dressed {
        assert_eq!(told(&stranger.get("/api/v1/task-runs").await), (429, "\"anonymous\";q=8;w=60", true, true));
    }
    assert_eq!(world.owner.get("/api/v1/task-runs").await.status, 200);
    // A signed-in browser counts as authenticated.
    let link = world.owner.post("/api/v1/login-links", json!({})).await.expect(201);
    let token = link["url"].as_str().unwrap().split_once("token=").unwrap().1;
    let session = world.hub.redeem_login(token, [127, 0, 0, 1].into()).await.unwrap();
    let browser = anybody.with("cookie", &format!("attache_session={}", session.secret.expose()));
    assert_eq!(browser.get("/api/v1/task-runs").await.status, 401, "and no caller of the API");
}

#[tokio::test]
async fn forwarded_addresses_count_only_from_a_trusted_proxy() {
    let limit = |trusted: &'static [&'static str]| {
        World::tuned(move |options| {
            options.anonymous_per_minute = 2;
            options.trusted_proxies = trusted.iter().map(|proxy| proxy.parse().unwrap()).collect();
        })
    };
    let world = limit(&[]).await;
    for last in 1..=2 {
        let client = world.anonymous().with("x-forwarded-for", &format!("192.0.2.{last}"));
        assert_eq!(client.get("/api/v1/task-runs").await.status, 401);
    }
    let forged = world.anonymous().with("x-forwarded-for", "192.0.2.3");
    assert_eq!(forged.get("/api/v1/task-runs").await.status, 429, "anybody can write a header");

    let world = limit(&["127.0.0.0/8", "10.0.0.1"]).await;
    let from = |list: &str| world.anonymous().with("x-forwarded-for", list);
    for _ in 0..2 {
        assert_eq!(from("192.0.2.1").get("/api/v1/task-runs").await.status, 401);
    }
    assert_eq!(from("192.0.2.1").get("/api/v1/task-runs").await.status, 429);
    assert_eq!(
        from("192.0.2.2, 10.0.0.1").get("/api/v1/task-runs").await.status,
        401,
        "our own proxies are passed over"
    );
    assert_eq!(
        from("192.0.2.9, 192.0.2.1").get("/api/v1/task-runs").await.status,
        429,
        "what a client wrote is not believed"
    );
    assert_eq!(from("ÿ, 192.0.2.1").get("/api/v1/task-runs").await.status, 429, "whatever bytes it wrote");
    assert_eq!(from("192.0.2.9, nonsense").get("/api/v1/task-runs").await.status, 401, "the proxy itself");
}

#[tokio::test]
async fn a_principal_is_limited_only_if_configured() {
    let world = World::start().await;
    assert_eq!(world.owner.get("/api/v1/task-runs").await.header("ratelimit-policy"), "");

    let world = World::tuned(|options| options.requests_per_minute = Some(5)).await;
    world.owner.post("/api/v1/users", json!({"name": "ada"})).await.expect(201);
    let made = world.owner.post("/api/v1/api-keys", json!({"name": "k", "user": "ada"})).await.expect(201);
    let reply = world.owner.get("/api/v1/task-runs").await;
    assert_eq!(told(&reply), (200, "\"principal\";q=5;w=60", false, true));
    assert!(reply.header("ratelimit").starts_with("\"principal\";r=2;t="), "{}", reply.header("ratelimit"));
    world.agent("builder").await;
    // A second key of the same person shares the remaining one.
    let second = world.owner.post("/api/v1/api-keys", json!({"name": "k"})).await.expect(201);
    let second = world.anonymous().key(second["api_key"].as_str().unwrap());
    let refused = second.get("/api/v1/task-runs").await;
    assert_eq!(refused.refusal(), (429, "too_many_requests".to_owned()));
    assert_eq!(told(&refused), (429, "\"principal\";q=5;w=60", true, true));
    let ada = world.anonymous().key(made["api_key"].as_str().unwrap());
    assert_eq!(ada.get("/api/v1/task-runs").await.status, 200, "another person has their own");
}

/// Everyone may do these, and each is a row of the log that is kept for a year.
#[tokio::test]
async fn rows_that_everyone_may_write_are_limited() {
    let world = World::tuned(|options| options.credentials_per_minute = 4).await;
    let viewer =
        world.owner.post("/api/v1/users", json!({"name": "vic", "role": "viewer", "password": PASSWORD})).await;
    viewer.expect(201);
    let issued = world.owner.post("/api/v1/api-keys", json!({"name": "v", "user": "vic", "role": "viewer"})).await;
    let vic = world.anonymous().key(issued.expect(201)["api_key"].as_str().unwrap());
    vic.post("/api/v1/tokens", json!({})).await.expect(201);
    vic.post("/api/v1/login-links", json!({})).await.expect(201);
    vic.patch("/api/v1/users/me", json!({})).await.expect(200);
    let sign_in = async || world.hub.sign_in("vic", &Secret::new(PASSWORD.to_owned()), [127, 0, 0, 1].into()).await;
    assert!(sign_in().await.is_ok());
    let refused = [
        vic.post("/api/v1/tokens", json!({})).await,
        vic.post("/api/v1/login-links", json!({})).await,
        vic.patch("/api/v1/users/me", json!({})).await,
    ];
    for reply in refused {
        assert_eq!(told(&reply), (429, "\"credentials\";q=4;w=60", true, true));
    }
    assert_eq!(sign_in().await.unwrap_err().code, Code::TooManyRequests);
    assert_eq!((world.audit("token.created").await.len(), world.audit("user.updated").await.len()), (1, 1));
    world.owner.post("/api/v1/tokens", json!({})).await.expect(201);
}

/// A list reads its rows whole, also what it leaves out: one caller's take turns, and leave the store's threads to others.
#[tokio::test]
async fn one_caller_reads_one_list_of_runs_at_a_time() {
    let (world, store) = World::counted(|_| {}).await;
    world.agent("builder").await;
    world.run("builder").await;
    let device = world.device("builder").await;
    let before = store.calls("runs");
    let held = store.hold("runs");
    let list = |client: &TestCaller| {
        let client = client.clone();
        tokio::spawn(async move { client.get("/api/v1/task-runs?limit=200").await.status })
    };
    let asked: Vec<_> = (0..6).map(|_| list(&world.owner)).collect();
    let reads = |count: usize| {
        let store = store.clone();
        async move {
            while store.calls("runs") < before + count {
                tokio::task::yield_now().await;
            }
        }
    };
    reads(1).await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_eq!(store.calls("runs"), before + 1);
    // Somebody else isn't kept waiting by that.
    let other = list(&device.client);
    reads(2).await;
    drop(held);
    for answer in asked.into_iter().chain([other]) {
        assert_eq!(answer.await.unwrap(), 200);
    }
}

/// Each connection begins anew, so the network has a limit, too: a generous one, because others may share it.
#[tokio::test]
async fn the_way_in_has_a_limit_per_network() {
    let world = World::tuned(|options| options.anonymous_per_minute = 3).await;
    for number in 0..30 {
        assert_eq!(world.anonymous().get("/healthz").await.status, 200, "{number}");
    }
    assert_eq!(world.anonymous().get("/healthz").await.refusal(), (429, "too_many_requests".to_owned()));
    assert_eq!(world.owner.get("/api/v1/task-runs").await.status, 200);
}

//! Notifications: who gets which, what they say, and what can be decided from them. A push service on loopback gets the real
//! encrypted messages, and the test decrypts them with the browser's private key.

mod browser;
mod telegram;

use std::time::Duration;

use attache_hub::{SignedInSession, control::DecisionOrigin};
use attache_protocol::wire::notification::CreateNotificationTarget;
use aws_lc_rs::signature::{self, ECDSA_P256_SHA256_FIXED};
use base64ct::{Base64UrlUnpadded as Base64, Encoding as _};
use serde_json::{Value, json};

use self::browser::TestBrowser;
use crate::{
    deliveries::receiver::{ReceivedDelivery, ReceiverAnswer, WebhookReceiver, world},
    people::person,
    world::{Engine, PATIENCE, TestCaller, TestDevice, World, on_all},
};

on_all! {
    people_have_their_own_targets_and_not_too_many
    a_target_inside_the_network_is_refused
    chats_get_plain_text_and_a_link
    ; // People sign in with a link, which one node knows.
    alone:
    an_approval_request_reaches_the_browser_encrypted_and_is_decided_from_there
    a_ticket_decides_only_for_its_session_and_its_request
    what_is_not_shown_is_not_approved_from_a_notification
    a_question_and_the_end_of_ones_own_run_are_told_if_chosen
    nobody_hears_of_what_they_may_not_decide
    a_target_ends_with_its_session
    a_browser_that_is_gone_is_forgotten_and_a_failing_one_is_tried_again
    a_notification_is_not_lost_in_a_restart
}

const HERE: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// Signs the owner in and subscribes their browser.
async fn signed_in(world: &World, caller: &TestCaller, browser: &TestBrowser, choices: Value) -> SignedInSession {
    let link = caller.post("/api/v1/login-links", json!({})).await.expect(201);
    let token = link["url"].as_str().unwrap().split_once("token=").unwrap().1.to_owned();
    let session = world.hub.redeem_login(&token, HERE).await.unwrap();
    let request: CreateNotificationTarget = serde_json::from_value(browser.request(choices)).unwrap();
    world.hub.create_notification_target(&session.principal, request).await.unwrap();
    session
}

/// The device works on a run of the caller and asks for permission.
async fn asks(caller: &TestCaller, device: &TestDevice, asked: Value) -> (String, String) {
    let run = working(caller, device).await;
    let path = format!("/api/v1/task-runs/{run}/permission-requests");
    let asked = device.client.post(&path, asked).await.expect(201);
    (run, asked["permission_request_id"].as_str().unwrap().to_owned())
}

async fn working(caller: &TestCaller, device: &TestDevice) -> String {
    let body = json!({"agent_id": "builder", "input": {"text": "make it so"}});
    caller.post("/api/v1/task-runs", body).await.expect(201);
    device.claim().await["task_run_id"].as_str().unwrap().to_owned()
}

fn command() -> Value {
    json!({"epoch": 1, "tool": "Bash", "input": {"command": "make deploy"}, "cwd": "/src"})
}

fn ticket(payload: &Value, action: &str) -> String {
    let actions = payload["actions"].as_array().unwrap();
    let button = actions.iter().find(|button| button["action"] == action).expect(action);
    button["ticket"].as_str().unwrap().to_owned()
}

fn actions(payload: &Value) -> Vec<&str> {
    payload["actions"].as_array().unwrap().iter().map(|button| button["action"].as_str().unwrap()).collect()
}

const fn place() -> DecisionOrigin {
    DecisionOrigin { via: "notification", from: None }
}

async fn request(world: &World, permission: &str) -> Value {
    world.owner.get(&format!("/api/v1/permission-requests/{permission}")).await.expect(200)
}

/// Waits until nothing more is due, and returns how many requests the service got.
async fn settled(world: &World, service: &WebhookReceiver) -> usize {
    // One more run goes through the log, after everything that was there before.
    let begun = std::time::Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(120)).await;
        let pending = world.owner.get("/api/v1/deliveries?state=pending").await.expect(200);
        if pending["deliveries"] == json!([]) {
            return service.count();
        }
        assert!(begun.elapsed() < PATIENCE, "{pending}");
    }
}

async fn an_approval_request_reaches_the_browser_encrypted_and_is_decided_from_there(engine: Engine) {
    let service = WebhookReceiver::start(&[ReceiverAnswer::Status(201)]).await;
    let (world, device) = world(engine, |_| {}).await;
    let browser = TestBrowser::at(&service.origin, "a");
    let session = signed_in(&world, &world.owner, &browser, json!({"approvals": true, "detail": "full"})).await;
    let (_, permission) = asks(&world.owner, &device, command()).await;

    let told = service.next().await;
    let header = |name: &str| told.headers[name].to_str().unwrap().to_owned();
    assert_eq!((told.place.as_str(), header("content-encoding").as_str()), ("/push/a", "aes128gcm"));
    assert_eq!((header("urgency").as_str(), header("topic").len()), ("high", 32));
    assert!(header("ttl").parse::<u64>().unwrap() > 60);
    assert!(!String::from_utf8_lossy(&told.body).contains("deploy"));
    let payload = browser.decrypt(&told.body);
    assert_eq!(payload["title"], "builder wants to run a command");
    assert_eq!(payload["body"], "make deploy\nin /src");
    assert_eq!((&payload["tag"], &payload["path"]), (&json!(permission), &json!(format!("/approvals/{permission}"))));
    assert_eq!(actions(&payload), ["approve", "deny"]);
    check_vapid(&world, &header("authorization"), &service.origin).await;

    let decided = world.hub.decide_from_notification(&session.principal, &ticket(&payload, "approve"), place()).await;
    decided.unwrap();
    let request = request(&world, &permission).await;
    assert_eq!(
        (&request["state"], &request["scope"], &request["decided_via"]),
        (&json!("approved"), &json!("once"), &json!("notification"))
    );
    // The other button comes too late.
    let late = world.hub.decide_from_notification(&session.principal, &ticket(&payload, "deny"), place()).await;
    assert_eq!(late.unwrap_err().code.as_str(), "already_decided");
    let deliveries = world.owner.get("/api/v1/deliveries").await.expect(200);
    assert_eq!(deliveries["deliveries"][0]["kind"], "notification");
    assert_eq!(deliveries["deliveries"][0]["url"], json!(service.origin), "the rest is a secret");
}

/// RFC 8292: a token for this push service, signed with the key that the browser was given.
async fn check_vapid(world: &World, authorization: &str, origin: &str) {
    let (token, key) = authorization.strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
    let list = world.owner.get("/api/v1/notification-targets").await.expect(200);
    assert_eq!(list["web_push_key"], key);
    let (message, signature) = token.rsplit_once('.').unwrap();
    signature::UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, Base64::decode_vec(key).unwrap())
        .verify(message.as_bytes(), &Base64::decode_vec(signature).unwrap())
        .unwrap();
    let (header, claims) = message.split_once('.').unwrap();
    let read = |part: &str| -> Value { serde_json::from_slice(&Base64::decode_vec(part).unwrap()).unwrap() };
    assert_eq!(read(header), json!({"typ": "JWT", "alg": "ES256"}));
    let claims = read(claims);
    assert_eq!((&claims["aud"], &claims["sub"]), (&json!(origin), &json!(world.hub.origin())));
    assert!(claims["exp"].as_i64().unwrap() <= world.env.wall().millis() / 1000 + 24 * 3600);
}

async fn a_ticket_decides_only_for_its_session_and_its_request(engine: Engine) {
    let service = WebhookReceiver::start(&[]).await;
    let (world, device) = world(engine, |_| {}).await;
    let (one, two) = (TestBrowser::at(&service.origin, "1"), TestBrowser::at(&service.origin, "2"));
    let choices = json!({"approvals": true, "detail": "full"});
    let session = signed_in(&world, &world.owner, &one, choices).await;
    let other = signed_in(&world, &world.owner, &two, json!({"approvals": false})).await;
    let (_, permission) = asks(&world.owner, &device, command()).await;
    let payload = one.decrypt(&service.next().await.body);
    let ticket = ticket(&payload, "approve");
    let mut changed = ticket.clone().into_bytes();
    changed[40] = if changed[40] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();
    for (by, ticket) in [
        (&other.principal, ticket.as_str()),
        (&session.principal, changed.as_str()),
        (&session.principal, ""),
        (&session.principal, "AAAA"),
        (&session.principal, permission.as_str()),
    ] {
        let refused = world.hub.decide_from_notification(by, ticket, place()).await.unwrap_err();
        assert_eq!(refused.code.as_str(), "forbidden");
    }
    assert_eq!(request(&world, &permission).await["state"], "pending");
    world.hub.decide_from_notification(&session.principal, &ticket, place()).await.unwrap();
}

async fn what_is_not_shown_is_not_approved_from_a_notification(engine: Engine) {
    let service = WebhookReceiver::start(&[]).await;
    let (world, device) = world(engine, |_| {}).await;
    let browser = TestBrowser::at(&service.origin, "a");
    let session = signed_in(&world, &world.owner, &browser, json!({"approvals": true, "detail": "full"})).await;
    for asked in [
        json!({"epoch": 1, "tool": "Bash", "input": {}, "undisclosed": ["input"]}),
        json!({"epoch": 1, "tool": "Bash", "input": {"command": "x".repeat(4000)}}),
        json!({"epoch": 1, "tool": "Bash", "input": {"command": "ls \u{202e}x"}}),
        json!({"epoch": 1, "tool": "Edit", "input": {"file_path": "a"}, "diff": "+a"}),
    ] {
        let (run, permission) = asks(&world.owner, &device, asked.clone()).await;
        let payload = browser.decrypt(&service.next().await.body);
        assert_eq!(actions(&payload), ["open", "deny"], "{asked}");
        world.hub.decide_from_notification(&session.principal, &ticket(&payload, "deny"), place()).await.unwrap();
        assert_eq!(request(&world, &permission).await["state"], "denied");
        world.owner.post(&format!("/api/v1/task-runs/{run}/cancel"), json!({})).await.expect(200);
    }
    // Only the title: nothing of the command leaves the hub.
    let list = world.owner.get("/api/v1/notification-targets").await.expect(200);
    let path = format!(
        "/api/v1/notification-targets/{}",
        list["notification_targets"][0]["notification_target_id"].as_str().unwrap()
    );
    let title = json!({"choices": {"approvals": true, "detail": "title", "language": "zh"}});
    world.owner.patch(&path, title).await.expect(200);
    asks(&world.owner, &device, command()).await;
    let payload = browser.decrypt(&service.next().await.body);
    assert_eq!((&payload["title"], &payload["body"]), (&json!("builder 请求运行命令"), &json!("")));
    assert!(!payload.to_string().contains("deploy"));
    assert_eq!(actions(&payload), ["open", "deny"]);
}

async fn a_question_and_the_end_of_ones_own_run_are_told_if_chosen(engine: Engine) {
    let service = WebhookReceiver::start(&[]).await;
    let (world, device) = world(engine, |_| {}).await;
    let ada = person(&world, "ada", "operator").await;
    let (mine, adas) = (TestBrowser::at(&service.origin, "mine"), TestBrowser::at(&service.origin, "adas"));
    signed_in(&world, &world.owner, &mine, json!({"approvals": true, "runs": false, "detail": "full"})).await;
    signed_in(&world, &ada, &adas, json!({"approvals": false, "runs": true, "detail": "full"})).await;
    let run = working(&ada, &device).await;
    let asked = json!({"epoch": 1, "prompt": "Which one?"});
    device.client.post(&format!("/api/v1/task-runs/{run}/input-requests"), asked).await.expect(201);
    let told = service.next().await;
    assert_eq!(told.place, "/push/mine");
    let payload = mine.decrypt(&told.body);
    assert_eq!((&payload["title"], &payload["body"]), (&json!("builder has a question"), &json!("Which one?")));
    assert_eq!((&payload["path"], &payload["actions"]), (&json!(format!("/runs/{run}")), &json!([])));
    let done = json!({"epoch": 1, "output": {"text": "a secret result"}});
    device.client.post(&format!("/api/v1/task-runs/{run}/complete"), done).await.expect(200);
    let told = service.next().await;
    assert_eq!((told.place.as_str(), &told.headers["urgency"]), ("/push/adas", &"normal".parse().unwrap()));
    let payload = adas.decrypt(&told.body);
    assert_eq!((&payload["title"], &payload["body"]), (&json!("builder finished"), &json!("make it so")));
    // Somebody else's run.
    let run = working(&world.owner, &device).await;
    let done = json!({"epoch": 1, "output": {"error": "no"}});
    device.client.post(&format!("/api/v1/task-runs/{run}/fail"), done).await.expect(200);
    assert_eq!(settled(&world, &service).await, 2);
}

async fn nobody_hears_of_what_they_may_not_decide(engine: Engine) {
    let service = WebhookReceiver::start(&[]).await;
    let (world, device) = world(engine, |_| {}).await;
    let viewer = person(&world, "vi", "viewer").await;
    let owners = person(&world, "op", "operator").await;
    let all = json!({"approvals": true, "runs": true, "detail": "full"});
    signed_in(&world, &viewer, &TestBrowser::at(&service.origin, "viewer"), all.clone()).await;
    signed_in(&world, &owners, &TestBrowser::at(&service.origin, "op"), all).await;
    let (run, permission) = asks(&world.owner, &device, command()).await;
    let told = service.next().await;
    assert_eq!(told.place, "/push/op");
    // Decided before it could be delivered: nothing is sent.
    let path = format!("/api/v1/permission-requests/{permission}/decision");
    world.owner.post(&path, json!({"approved": true})).await.expect(200);
    device.client.post(&format!("/api/v1/task-runs/{run}/complete"), json!({"epoch": 1, "output": {}})).await;
    // The agent becomes private to its owner: nobody else hears of it.
    world.owner.patch("/api/v1/agent-accounts/builder", json!({"callers": "owner"})).await.expect(200);
    let device = world.device("builder").await;
    asks(&world.owner, &device, command()).await;
    assert_eq!(settled(&world, &service).await, 1);
}

async fn a_target_ends_with_its_session(engine: Engine) {
    let service = WebhookReceiver::start(&[]).await;
    let (world, device) = world(engine, |_| {}).await;
    let browser = TestBrowser::at(&service.origin, "a");
    let session = signed_in(&world, &world.owner, &browser, json!({"approvals": true})).await;
    let targets =
        async || world.owner.get("/api/v1/notification-targets").await.expect(200)["notification_targets"].clone();
    assert_eq!(targets().await.as_array().unwrap().len(), 1);
    world.hub.logout(&session.principal).await.unwrap();
    asks(&world.owner, &device, command()).await;
    assert_eq!(settled(&world, &service).await, 0);
    assert_eq!(targets().await, json!([]));
    assert_eq!(world.audit("notification_target.removed").await.len(), 1);
}

async fn a_browser_that_is_gone_is_forgotten_and_a_failing_one_is_tried_again(engine: Engine) {
    let service = WebhookReceiver::start(&[
        ReceiverAnswer::Status(503),
        ReceiverAnswer::Status(201),
        ReceiverAnswer::Status(410),
    ])
    .await;
    let (world, device) = world(engine, |_| {}).await;
    let browser = TestBrowser::at(&service.origin, "a");
    signed_in(&world, &world.owner, &browser, json!({"approvals": true})).await;
    let (run, _) = asks(&world.owner, &device, command()).await;
    service.next().await;
    world.until("/api/v1/deliveries", |read| read["deliveries"][0]["attempts"] == 1).await;
    world.advance(Duration::from_secs(2));
    let told = service.next().await;
    assert_eq!(browser.decrypt(&told.body)["title"], "builder wants to run a command");
    world.until("/api/v1/deliveries", |read| read["deliveries"][0]["state"] == "delivered").await;
    world.owner.post(&format!("/api/v1/task-runs/{run}/cancel"), json!({})).await.expect(200);
    asks(&world.owner, &device, command()).await;
    service.next().await;
    let failed = world.until("/api/v1/deliveries", |read| read["deliveries"][0]["state"] == "failed").await;
    assert_eq!(failed["deliveries"][0]["last_status"], 410);
    world.until("/api/v1/notification-targets", |read| read["notification_targets"] == json!([])).await;
}

async fn people_have_their_own_targets_and_not_too_many(engine: Engine) {
    let service = WebhookReceiver::start(&[]).await;
    let (world, _) = world(engine, |_| {}).await;
    let path = "/api/v1/notification-targets";
    let (ada, bob) = (person(&world, "ada", "operator").await, person(&world, "bob", "viewer").await);
    let made = ada.post(path, TestBrowser::at(&service.origin, "x").request(json!({}))).await.expect(201);
    let own = format!("{path}/{}", made["notification_target_id"].as_str().unwrap());
    assert_eq!(made["origin"], json!(service.origin));
    assert!(!made.to_string().contains("/push/x"), "the address is a secret: {made}");
    assert_eq!(bob.get(path).await.expect(200)["notification_targets"], json!([]));
    assert_eq!(bob.delete(&own).await.refusal(), (404, "not_found".to_owned()));
    assert_eq!(world.owner.post(&format!("{own}/test"), json!({})).await.refusal(), (404, "not_found".to_owned()));
    assert_eq!(bob.patch(&own, json!({"choices": {}})).await.refusal(), (404, "not_found".to_owned()));
    let tested = ada.post(&format!("{own}/test"), json!({})).await.expect(200);
    assert_eq!(tested, json!({"delivered": true, "status": 200, "error": null}));
    // The same browser again replaces the first.
    ada.post(path, TestBrowser::at(&service.origin, "x").request(json!({}))).await.expect(201);
    assert_eq!(ada.get(&own.clone()).await.status, 405);
    assert_eq!(ada.delete(&own).await.refusal(), (404, "not_found".to_owned()));
    for number in 0..15 {
        ada.post(path, TestBrowser::at(&service.origin, &number.to_string()).request(json!({}))).await.expect(201);
    }
    let more = ada.post(path, TestBrowser::at(&service.origin, "more").request(json!({}))).await;
    assert_eq!(more.refusal(), (400, "invalid_request".to_owned()));
    // A chat is an admin's to connect.
    let chat =
        json!({"name": "ops", "address": {"service": "slack", "webhook_url": format!("{}/hook", service.origin)}});
    assert_eq!(bob.post(path, chat).await.refusal().0, 403);
    // A key of theirs that may do less doesn't silence its person.
    let own = world.owner.post(path, TestBrowser::at(&service.origin, "own").request(json!({}))).await.expect(201);
    let own = format!("{path}/{}", own["notification_target_id"].as_str().unwrap());
    let lesser = world.key("operator").await;
    assert_eq!(lesser.patch(&own, json!({"choices": {}})).await.refusal(), (403, "forbidden".to_owned()));
    assert_eq!(lesser.delete(&own).await.refusal(), (403, "forbidden".to_owned()));
    assert_eq!(world.owner.delete(&own).await.status, 204);
    // A token would outlive itself.
    let token = world.owner.post("/api/v1/tokens", json!({"ttl_seconds": 60})).await.expect(201);
    let token = world.anonymous().key(token["token"].as_str().unwrap());
    assert_eq!(token.post(path, TestBrowser::at(&service.origin, "t").request(json!({}))).await.refusal().0, 403);
}

async fn a_target_inside_the_network_is_refused(engine: Engine) {
    let service = WebhookReceiver::start(&[]).await;
    let (world, _) = world(engine, |_| {}).await;
    for endpoint in ["https://10.0.0.1/x", "https://169.254.169.254/x", "http://push.example.org/x", "https://[::1]/x"]
    {
        let mut browser = TestBrowser::at(&service.origin, "");
        browser.endpoint = endpoint.to_owned();
        let refused = world.owner.post("/api/v1/notification-targets", browser.request(json!({}))).await;
        assert_eq!(refused.refusal(), (403, "egress_refused".to_owned()), "{endpoint}");
    }
}

async fn chats_get_plain_text_and_a_link(engine: Engine) {
    // What the services answer.
    let service = WebhookReceiver::start(&[]).await;
    let (world, device) = world(engine, |options| {
        options.public_url = Some("https://hub.example.org".to_owned());
    })
    .await;
    let hook = |name: &str| format!("{}/{name}", service.origin);
    for address in [
        json!({"service": "slack", "webhook_url": hook("services/T0/B0/secret")}),
        json!({"service": "telegram", "bot_token": "123:AA-secret", "chat_id": -100, "api_url": service.origin}),
        json!({"service": "feishu", "webhook_url": hook("open-apis/bot/v2/hook/secret"), "secret": "hush"}),
    ] {
        let body = json!({"name": "ops", "address": address, "choices": {"approvals": true, "detail": "full"}});
        let made = world.owner.post("/api/v1/notification-targets", body).await.expect(201);
        assert!(!made.to_string().contains("secret") && !made.to_string().contains("hush"), "{made}");
    }
    let asked = json!({"epoch": 1, "tool": "Bash", "input": {"command": "echo <!channel> & *x*"}});
    let (_, permission) = asks(&world.owner, &device, asked).await;
    let mut told: Vec<ReceivedDelivery> = Vec::new();
    for _ in 0..3 {
        told.push(service.next().await);
    }
    told.sort_by(|one, other| one.place.cmp(&other.place));
    let [telegram, feishu, slack] = &told[..] else { panic!() };
    let (title, body) = ("builder wants to run a command", "echo <!channel> & *x*");
    let page = format!("https://hub.example.org/approvals/{permission}");
    assert_eq!(slack.place, "/services/T0/B0/secret");
    let plain = |text: &str| json!({"type": "plain_text", "text": text, "emoji": false});
    assert_eq!(
        slack.json(),
        json!({"text": title, "unfurl_links": false, "blocks": [
            {"type": "section", "text": plain(&format!("{title}\n{body}"))},
            {"type": "actions", "elements": [{"type": "button", "text": plain("Open"), "url": page}]},
        ]})
    );
    assert_eq!(telegram.place, "/bot123:AA-secret/sendMessage");
    assert_eq!(
        telegram.json(),
        json!({"chat_id": -100, "text": format!("{title}\n{body}"), "link_preview_options": {"is_disabled": true},
            "reply_markup": {"inline_keyboard": [[{"text": "Open", "url": page}]]}})
    );
    assert_eq!(feishu.place, "/open-apis/bot/v2/hook/secret");
    let card = feishu.json();
    let plain = |text: &str| json!({"tag": "plain_text", "content": text});
    assert_eq!(card["card"]["header"]["title"], plain(title));
    assert_eq!(card["card"]["elements"][0]["text"], plain(body));
    assert_eq!(card["card"]["elements"][1]["actions"][0]["url"], page);
    assert_eq!((card["msg_type"].as_str(), card["sign"].as_str().unwrap().len()), (Some("interactive"), 44));
    assert_eq!(card["timestamp"], json!((world.env.wall().millis() / 1000).to_string()));
    assert_eq!(settled(&world, &service).await, 3);
    let deliveries = world.owner.get("/api/v1/deliveries").await.expect(200).to_string();
    assert!(!deliveries.contains("secret"), "{deliveries}");
}

async fn a_notification_is_not_lost_in_a_restart(engine: Engine) {
    if engine == Engine::Model {
        // The model forgets everything.
        return;
    }
    let service = WebhookReceiver::start(&[ReceiverAnswer::Status(503)]).await;
    let (world, device) = world(engine, |_| {}).await;
    let browser = TestBrowser::at(&service.origin, "a");
    signed_in(&world, &world.owner, &browser, json!({"approvals": true})).await;
    asks(&world.owner, &device, command()).await;
    service.next().await;
    world.until("/api/v1/deliveries", |read| read["deliveries"][0]["attempts"] == 1).await;
    let world = world.restart().await;
    world.advance(Duration::from_secs(2));
    let told = service.next().await;
    assert_eq!(browser.decrypt(&told.body)["title"], "builder wants to run a command");
    // And it is told once.
    assert_eq!(settled(&world, &service).await, 2);
}

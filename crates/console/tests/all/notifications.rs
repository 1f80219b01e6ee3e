//! Notifications: their settings, the service worker, and decisions that come from a notification.

#![allow(clippy::disallowed_methods, reason = "tests build and compare JSON as values")]

#[path = "../../../hub/tests/notifications/browser.rs"]
#[allow(unreachable_pub, missing_debug_implementations, reason = "shared with the tests of the hub")]
mod push_browser;

use std::{sync::Arc, time::Duration};

use attache_client::egress::{EgressGuard, EgressPolicy};
use attache_hub::Principal;
use attache_protocol::{
    Json, RunId,
    rules::permission::PermissionState,
    wire::{account::AccountRequest, key::Role, permission::PermissionRequest},
};
use axum::{
    body::{Body, Bytes},
    http::{Request, StatusCode},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Mutex, sync::mpsc};

use self::push_browser::TestBrowser;
use crate::{
    browser::ListeningConsole,
    webdriver::WebdriverBrowser,
    world::{ConsoleDevice, ConsoleWorld, asking},
};

/// A push service on loopback, which hands on what it gets.
struct PushService {
    origin: String,
    messages: Mutex<mpsc::Receiver<Bytes>>,
}

impl PushService {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let (sender, messages) = mpsc::channel(16);
        let sender = Arc::new(sender);
        let app = axum::Router::new().fallback(move |body: Bytes| {
            let sender = sender.clone();
            async move {
                sender.send(body).await.unwrap();
                StatusCode::CREATED
            }
        });
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { origin, messages: Mutex::new(messages) }
    }

    async fn next(&self) -> Bytes {
        let mut messages = self.messages.lock().await;
        tokio::time::timeout(Duration::from_secs(30), messages.recv()).await.expect("a message in time").unwrap()
    }
}

fn callable(options: &mut attache_hub::Options) {
    options.egress = EgressGuard::new(EgressPolicy { allow: vec!["127.0.0.1".parse().unwrap()] });
    options.outbox.look_every = Duration::from_millis(20);
}

/// Subscribes as this person, has a device ask, and returns what the push service got.
async fn notified(
    world: &ConsoleWorld,
    by: &Principal,
    service: &PushService,
) -> (Value, ConsoleDevice, RunId, PermissionRequest) {
    let browser = TestBrowser::at(&service.origin, "a");
    let request = browser.request(json!({"approvals": true, "detail": "full"}));
    world.hub.create_notification_target(by, serde_json::from_value(request).unwrap()).await.unwrap();
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let run = world.ask("builder", "Upgrade the parser").await;
    device.claim().await;
    let asked = device.ask(run, asking("Bash", r#"{"command":"echo <b>&\"'"}"#)).await;
    (browser.decrypt(&service.next().await), device, run, asked)
}

fn ticket(payload: &Value, action: &str) -> Value {
    let buttons = payload["actions"].as_array().unwrap();
    let button = buttons.iter().find(|button| button["action"] == action).unwrap_or_else(|| panic!("{payload}"));
    json!({"ticket": button["ticket"]})
}

#[tokio::test]
async fn another_site_cannot_decide() {
    let service = PushService::start().await;
    let world = ConsoleWorld::with("127.0.0.1:7800".parse().unwrap(), callable).await;
    world.agent("builder").await;
    let owner = world.owner_signed_in().await;
    let (payload, device, run, asked) = notified(&world, &owner.principal(&world).await, &service).await;
    let decide = || Request::post("/notifications/decide");
    let body = || Body::from(ticket(&payload, "approve").to_string());
    let json = ("content-type", "application/json");
    for (why, request, body, status) in [
        ("another site", decide().header(json.0, json.1).header("origin", "https://evil.example"), body(), 403),
        ("another site", decide().header(json.0, json.1).header("sec-fetch-site", "cross-site"), body(), 403),
        ("another port", decide().header(json.0, json.1).header("origin", "http://127.0.0.1:9"), body(), 403),
        ("a form", decide().header(json.0, "text/plain"), body(), 403),
        ("a form", decide().header(json.0, "application/x-www-form-urlencoded"), body(), 403),
        ("no ticket", decide().header(json.0, json.1), Body::from("{}"), 400),
        ("more", decide().header(json.0, json.1), Body::from(r#"{"ticket":"a","scope":"agent"}"#), 400),
        ("forged", decide().header(json.0, json.1), Body::from(r#"{"ticket":"AAAA"}"#), 403),
    ] {
        assert_eq!(owner.send(request, body).await.status.as_u16(), status, "{why}");
    }
    // Somebody else's session, and none.
    let other = world.signed_in(Role::Owner).await;
    let request = || decide().header(json.0, json.1).header("sec-fetch-mode", "cors");
    assert_eq!(other.send(request(), body()).await.status, StatusCode::FORBIDDEN);
    assert_eq!(world.visitor().send(request(), body()).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(device.answer(run, &asked).await.state, PermissionState::Pending);
    let right = request().header("origin", "http://127.0.0.1:7800").header("sec-fetch-site", "same-origin");
    assert_eq!(owner.send(right, body()).await.status, StatusCode::NO_CONTENT);
    assert_eq!(device.answer(run, &asked).await.state, PermissionState::Approved);
}

#[tokio::test]
async fn a_device_is_listed_changed_tested_and_removed_by_its_own_person() {
    let service = PushService::start().await;
    let world = ConsoleWorld::with("127.0.0.1:7800".parse().unwrap(), callable).await;
    let (_, ada) = world.person("ada", Role::Viewer).await;
    let (_, bob) = world.person("bob", Role::Operator).await;
    let browser = TestBrowser::at(&service.origin, "a");
    let request = browser.request(json!({}));
    let keys = &request["address"]["keys"];
    let fields = [
        ("name", "<i>phone</i>"),
        ("endpoint", browser.endpoint.as_str()),
        ("p256dh", keys["p256dh"].as_str().unwrap()),
        ("auth", keys["auth"].as_str().unwrap()),
        ("approvals", "true"),
        ("detail", "full"),
    ];
    assert_eq!(ada.post("/notifications", &fields).await.header("location"), "/notifications?said=notify_on");
    let page = ada.get("/notifications").await.body;
    assert!(page.contains("&#60;i&#62;phone") || page.contains("&lt;i&gt;phone"), "{page}");
    assert!(page.contains("Also the command or question") && !page.contains("/push/a"), "{page}");
    let listed = world.hub.notification_targets(&ada.principal(&world).await).await.unwrap().notification_targets;
    let path = format!("/notifications/{}", listed[0].notification_target_id);
    // Nobody else's.
    assert!(!bob.get("/notifications").await.body.contains("phone"));
    for rest in ["", "/remove", "/test"] {
        assert_eq!(bob.post(&format!("{path}{rest}"), &[]).await.status, StatusCode::NOT_FOUND, "{rest}");
    }
    assert_eq!(ada.post(&path, &[("runs", "true")]).await.header("location"), "/notifications?said=saved");
    let listed = world.hub.notification_targets(&ada.principal(&world).await).await.unwrap().notification_targets;
    let choices = Json::of(&listed[0].choices);
    assert_eq!(choices.get(), r#"{"approvals":false,"runs":true,"detail":"title","language":"en"}"#);
    let tested = ada.post(&format!("{path}/test"), &[]).await;
    assert_eq!(tested.header("location"), "/notifications?said=notify_tested");
    assert_eq!(browser.decrypt(&service.next().await)["title"], "Notifications work");
    assert_eq!(ada.post(&format!("{path}/remove"), &[]).await.header("location"), "/notifications?said=notify_off");
    assert!(ada.get("/notifications").await.body.contains("Notifications are off."));
    // Keys that no browser makes, and an address inside the network, are shown with the form.
    let mut wrong = fields;
    wrong[2].1 = "AAAA";
    assert_eq!(ada.post("/notifications", &wrong).await.status, StatusCode::BAD_REQUEST);
    wrong = fields;
    wrong[1].1 = "https://10.0.0.1/";
    assert_eq!(ada.post("/notifications", &wrong).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn the_service_worker_and_the_offline_page_are_the_same_for_everybody() {
    let world = ConsoleWorld::new().await;
    let owner = world.owner_signed_in().await;
    let script = world.visitor().get("/service-worker.js").await;
    assert_eq!((script.status, script.header("content-type")), (StatusCode::OK, "text/javascript; charset=utf-8"));
    assert_eq!(script.header("cache-control"), "no-cache");
    assert!(script.body.starts_with("const BASE = \"/assets/"), "{}", script.body);
    assert_eq!(owner.get("/service-worker.js").await.body, script.body);
    let page = world.visitor().get("/offline").await;
    assert_eq!(page.status, StatusCode::OK);
    assert_eq!(owner.get("/offline").await.body, page.body);
    assert!(page.body.contains("Can’t reach the hub"), "{}", page.body);
    // Signing out takes all of it along.
    let out = owner.post("/logout", &[]).await;
    assert_eq!(out.header("clear-site-data"), "\"cache\", \"storage\"");
}

/// The real message, through the real service worker of a real browser.
#[tokio::test(flavor = "multi_thread")]
async fn browser_shows_a_notification_and_decides_from_it() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let service = PushService::start().await;
    let site = ListeningConsole::with(callable).await;
    let world = &site.world;
    world.agent("builder").await;
    site.sign_in(&browser).await;
    let origin = site.at("");
    let permissions = json!({"origin": origin, "permissions": ["notifications"]});
    browser.devtools("Browser.grantPermissions", permissions).await;
    browser.wait("navigator.serviceWorker.controller !== null").await;
    let cookies = browser.devtools("Network.getCookies", json!({"urls": [origin]})).await;
    let cookies = cookies["cookies"].as_array().unwrap();
    let session = cookies.iter().find(|cookie| cookie["name"] == "attache_session").unwrap();
    let by = world.hub.authenticate_session(session["value"].as_str().unwrap()).await.unwrap();
    let (payload, device, run, asked) = notified(world, &by, &service).await;

    let permission = asked.permission_request_id.to_string();
    let seen = browser.push(&origin, &payload.to_string(), |shown| shown["tag"] == *permission).await;
    assert_eq!(seen["title"], "builder wants to run a command", "{seen}");
    assert_eq!(seen["body"], "echo <b>&\"'\nin /home/dev/parser\n/home/dev/parser/src");
    assert_eq!(seen["actions"], json!([["approve", "Approve"], ["deny", "Deny"]]));
    assert_eq!(seen["data"]["path"], json!(format!("/approvals/{permission}")));
    // What isn't ours to read is shown as a notification without content, and nothing breaks.
    for message in ["<script>no JSON", r#"{"title":7,"actions":"x","data":null}"#] {
        browser.push(&origin, message, |shown| shown["tag"] == "attache" && shown["title"] == "Attaché").await;
    }

    browser.press(&permission, "approve").await;
    assert_eq!(device.answer(run, &asked).await.state, PermissionState::Approved);
    let shown = browser.notifications().await;
    let said = shown.as_array().unwrap().iter().find(|shown| shown["tag"] == *permission).unwrap();
    assert_eq!((&said["title"], &said["actions"]), (&json!("Approved"), &json!([])), "{shown}");
    // The request that the button makes: the same person, the same decision.
    let decide = format!(
        "return fetch('/notifications/decide', {{method: 'POST', headers: {{'content-type': 'application/json'}},
            body: JSON.stringify({{ticket: {}}})}}).then((answer) => answer.status)",
        seen["data"]["tickets"]["approve"]
    );
    assert_eq!(browser.run(&decide).await, 204);

    // The settings page in this browser.
    browser.size(390, 844).await;
    browser.go(&site.at("/notifications")).await;
    browser.wait("!document.getElementById('subscribe').hidden").await;
    browser.screenshot(&site.shots, "notifications-phone").await;
    let low = "[...document.querySelectorAll('main .btn, main summary.btn, main label')].filter((one) => one.offsetHeight > 0 && one.offsetHeight < 40).map((one) => one.outerHTML)";
    assert_eq!(browser.run(&format!("return {low}")).await, json!([]), "40 px");
    drop(browser);
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn browser_says_that_the_hub_is_gone() {
    let Some(browser) = WebdriverBrowser::open().await else { return };
    let site = ListeningConsole::new().await;
    site.world.agent("builder").await;
    let renamed = AccountRequest { description: Some("A secret plan".to_owned()), ..AccountRequest::default() };
    site.world.hub.update_account(&site.world.owner, "builder", renamed).await.unwrap();
    site.sign_in(&browser).await;
    browser.size(390, 844).await;
    browser.wait("navigator.serviceWorker.controller !== null").await;
    browser.go(&site.at("/agents")).await;
    browser.wait("document.getElementById('pulse').dataset.state === 'on'").await;
    let (runs, agents) = (site.at("/runs"), site.at("/agents"));
    // Nothing of a page is kept, only what is the same for everybody.
    let kept = "caches.keys().then((names) => Promise.all(names.map((name) => caches.open(name).then((cache) => cache.keys()))))
        .then((all) => all.flat().map(({url}) => new URL(url).pathname.replace(/^\\/assets\\/[^/]+/, '')).sort())";
    let kept = browser.run(&format!("return {kept}")).await;
    assert_eq!(kept, json!(["/icon.svg", "/offline", "/offline.js", "/style.css"]));
    // A form and a sign-in link of another site arrive as such, although there is a service worker.
    let form =
        format!("data:text/html,<form method=post action={}><input name=name value=a></form>", site.at("/login"));
    browser.go(&form).await;
    browser.run("document.forms[0].submit()").await;
    browser.wait("document.body.innerText.includes('foreign_origin')").await;
    browser.go(&site.at("/agents")).await;
    browser.wait("document.getElementById('pulse').dataset.state === 'on'").await;
    site.close().await;
    // The open page says so, on a phone too, and keeps a form that can't be sent.
    browser.wait("document.getElementById('pulse').dataset.state === 'off'").await;
    browser.run("document.querySelector('#new input[name=name]').value = 'typed'").await;
    browser.click("#new button[type=submit]").await;
    browser.wait("document.getElementById('announce').textContent.startsWith('Connection lost')").await;
    assert_eq!(browser.run("return document.querySelector('#new input[name=name]').value").await, "typed");
    browser.wait("getComputedStyle(document.getElementById('pulse')).display !== 'none'").await;
    assert_eq!(browser.text("#pulse").await, "Connection lost. Reconnecting…");
    for page in [runs, agents] {
        browser.go(&page).await;
        browser.wait("document.querySelector('h1')?.textContent === 'Can’t reach the hub'").await;
        assert!(!browser.text("body").await.contains("secret plan"));
    }
    browser.wait("getComputedStyle(document.querySelector('.enter')).borderStyle !== ''").await;
}

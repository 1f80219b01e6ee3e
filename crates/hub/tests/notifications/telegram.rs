//! Buttons in private chats of Telegram, with a local server in the place of the Bot API. It answers as documented and lets
//! nobody else receive the updates of a bot.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::post,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle, time::timeout};

use super::{asks, command, request};
use crate::{
    deliveries::receiver::world,
    people::person,
    world::{Engine, PATIENCE, TestCaller, TestDevice, World, on_all},
};

on_all! {
    a_command_is_approved_once_with_a_button
    only_the_person_of_the_chat_decides
    what_is_pressed_while_no_hub_listens_counts_later
    ; alone:
    what_is_not_shown_can_only_be_denied_in_a_chat
    what_was_decided_elsewhere_stays
    a_bot_that_others_use_says_so
    a_chat_that_was_disconnected_decides_nothing
}

const ANN: i64 = 42;
const TOKEN: &str = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw";

/// The Bot API, for one bot.
struct FakeBotApi {
    origin: String,
    shared: Arc<FakeBotState>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct FakeBotState {
    calls: Mutex<Vec<(String, Value)>>,
    /// Not confirmed.
    updates: Mutex<Vec<Value>>,
    next: AtomicUsize,
    /// How many ask for updates at once, and how many did at most.
    asking: AtomicUsize,
    most: AtomicUsize,
    /// What `getUpdates` answers instead.
    failure: Mutex<Option<(u16, &'static str)>>,
    moved: watch::Sender<u64>,
}

// === impl FakeBotApi ===

impl FakeBotApi {
    async fn start() -> Self {
        let shared = Arc::new(FakeBotState::default());
        let app = Router::new().route("/{bot}/{method}", post(serve)).with_state(shared.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { origin, shared, task }
    }

    fn calls(&self, method: &str) -> Vec<Value> {
        let calls = self.shared.calls.lock().unwrap();
        calls.iter().filter(|(called, _)| called == method).map(|(_, request)| request.clone()).collect()
    }

    /// The calls of a method once there are so many.
    async fn called(&self, method: &str, count: usize) -> Vec<Value> {
        let mut moved = self.shared.moved.subscribe();
        let all = timeout(PATIENCE, moved.wait_for(|_| self.calls(method).len() >= count)).await;
        all.unwrap_or_else(|_| panic!("{method}: {:?}", self.calls(method))).unwrap();
        self.calls(method)
    }

    /// Connects a private chat with the bot.
    async fn connect(&self, caller: &TestCaller, chat: i64, choices: Value) -> String {
        let address = json!({"service": "telegram", "bot_token": TOKEN, "chat_id": chat, "api_url": self.origin});
        let body = json!({"name": "me", "address": address, "choices": choices});
        let made = caller.post("/api/v1/notification-targets", body).await.expect(201);
        made["notification_target_id"].as_str().unwrap().to_owned()
    }

    /// What Telegram sends when a person presses a button of the message.
    fn press(&self, message: &Value, data: &str, change: impl FnOnce(&mut Value)) {
        let chat = message["chat_id"].clone();
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let mut update = json!({
            "update_id": 874_561_000 + number,
            "callback_query": {
                "id": format!("4382bfdwdsb323b2d{number}"),
                "from": {"id": chat, "is_bot": false, "first_name": "Ann", "username": "ann", "language_code": "en"},
                "message": {
                    "message_id": 7,
                    "from": {"id": 110_201_543, "is_bot": true, "first_name": "Hub", "username": "our_hub_bot"},
                    "chat": {"id": chat, "first_name": "Ann", "username": "ann", "type": "private"},
                    "date": 1_795_000_000,
                    "text": message["text"],
                    "reply_markup": message["reply_markup"],
                },
                "chat_instance": "-3871934718923471",
                "data": data,
            },
        });
        change(&mut update["callback_query"]);
        self.shared.updates.lock().unwrap().push(update);
        self.shared.moved.send_modify(|moved| *moved += 1);
    }

    /// Waits until the hub has received everything.
    async fn settled(&self) {
        let mut moved = self.shared.moved.subscribe();
        let empty = moved.wait_for(|_| self.shared.updates.lock().unwrap().is_empty());
        timeout(PATIENCE, empty).await.expect("the hub to confirm").unwrap();
    }

    fn fail(&self, failure: Option<(u16, &'static str)>) {
        *self.shared.failure.lock().unwrap() = failure;
    }
}

impl Drop for FakeBotApi {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    State(shared): State<Arc<FakeBotState>>,
    Path((bot, method)): Path<(String, String)>,
    Json(request): Json<Value>,
) -> (StatusCode, Json<Value>) {
    assert_eq!(bot, format!("bot{TOKEN}"));
    shared.calls.lock().unwrap().push((method.clone(), request.clone()));
    shared.moved.send_modify(|moved| *moved += 1);
    let result = match method.as_str() {
        "sendMessage" => {
            json!({"message_id": 7, "date": 1_795_000_000, "chat": {"id": request["chat_id"], "type": "private"}})
        }
        "getUpdates" => match get_updates(&shared, &request).await {
            Ok(updates) => updates,
            Err((status, description)) => {
                let error = json!({"ok": false, "error_code": status, "description": description});
                return (StatusCode::from_u16(status).unwrap(), Json(error));
            }
        },
        _ => json!(true),
    };
    (StatusCode::OK, Json(json!({"ok": true, "result": result})))
}

/// Asks on behalf of whoever is dropped, too.
struct Asking(Arc<FakeBotState>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.asking.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn get_updates(shared: &Arc<FakeBotState>, request: &Value) -> Result<Value, (u16, &'static str)> {
    let asking = shared.asking.fetch_add(1, Ordering::SeqCst) + 1;
    let _asking = Asking(shared.clone());
    shared.most.fetch_max(asking, Ordering::SeqCst);
    if let Some(failure) = *shared.failure.lock().unwrap() {
        return Err(failure);
    }
    if let Some(offset) = request["offset"].as_i64() {
        shared.updates.lock().unwrap().retain(|update| update["update_id"].as_i64() >= Some(offset));
        shared.moved.send_modify(|moved| *moved += 1);
    }
    let mut moved = shared.moved.subscribe();
    let some = moved.wait_for(|_| !shared.updates.lock().unwrap().is_empty());
    let _ = timeout(Duration::from_millis(200), some).await;
    // Whoever is waiting when it begins to fail gets nothing either.
    if let Some(failure) = *shared.failure.lock().unwrap() {
        return Err(failure);
    }
    Ok(json!(*shared.updates.lock().unwrap()))
}

fn full() -> Value {
    json!({"approvals": true, "detail": "full"})
}

/// The texts and data of the message's buttons, row by row.
fn keyboard(message: &Value) -> Vec<Vec<(String, Option<String>)>> {
    let rows = message["reply_markup"]["inline_keyboard"].as_array().cloned().unwrap_or_default();
    let button = |button: &Value| {
        let text = button["text"].as_str().unwrap().to_owned();
        (text, button["callback_data"].as_str().map(str::to_owned))
    };
    rows.iter().map(|row| row.as_array().unwrap().iter().map(button).collect()).collect()
}

fn names(message: &Value) -> Vec<Vec<String>> {
    keyboard(message).into_iter().map(|row| row.into_iter().map(|(text, _)| text).collect()).collect()
}

fn data(message: &Value, name: &str) -> String {
    let button = keyboard(message).into_iter().flatten().find(|(text, _)| text == name);
    button.and_then(|(_, data)| data).unwrap_or_else(|| panic!("{name}: {message}"))
}

/// A hub with an address that Telegram accepts in buttons.
async fn https_world(engine: Engine) -> (World, TestDevice) {
    world(engine, |options| options.public_url = Some("https://hub.example.org".to_owned())).await
}

async fn a_command_is_approved_once_with_a_button(engine: Engine) {
    let api = FakeBotApi::start().await;
    let (world, device) = https_world(engine).await;
    api.connect(&world.owner, ANN, full()).await;
    let (_, permission) = asks(&world.owner, &device, command()).await;
    let sent = api.called("sendMessage", 1).await.remove(0);
    let text = "builder wants to run a command\nmake deploy\nin /src";
    assert_eq!((&sent["chat_id"], &sent["text"]), (&json!(ANN), &json!(text)));
    assert_eq!(names(&sent), [vec!["Approve", "Deny"], vec!["Open"]]);
    let (approve, deny) = (data(&sent, "Approve"), data(&sent, "Deny"));
    assert!(approve.len() <= 64 && deny.len() <= 64 && approve != deny, "{sent}");

    api.press(&sent, &approve, |_| {});
    let answered = api.called("answerCallbackQuery", 1).await.remove(0);
    assert_eq!(answered, json!({"callback_query_id": "4382bfdwdsb323b2d0", "text": "Approved"}));
    let decided = request(&world, &permission).await;
    assert_eq!(
        (&decided["state"], &decided["scope"], &decided["decided_via"]),
        (&json!("approved"), &json!("once"), &json!("notification"))
    );
    let edited = api.called("editMessageText", 1).await.remove(0);
    let page = format!("https://hub.example.org/approvals/{permission}");
    let expected = json!({
        "chat_id": ANN,
        "message_id": 7,
        "text": format!("{text}\n\nApproved"),
        "link_preview_options": {"is_disabled": true},
        "reply_markup": {"inline_keyboard": [[{"text": "Open", "url": page}]]},
    });
    assert_eq!(edited, expected);

    // The other button comes too late, and says what was decided.
    api.press(&sent, &deny, |_| {});
    assert_eq!(api.called("answerCallbackQuery", 2).await[1]["text"], "Approved");
    assert_eq!(request(&world, &permission).await["state"], "approved");
    api.settled().await;
    let polls = api.calls("getUpdates");
    assert_eq!(polls[0], json!({"timeout": 25, "limit": 50, "allowed_updates": ["callback_query"]}));
    assert!(polls.iter().any(|poll| poll["offset"] == 874_561_001_i64), "{polls:?}");
    assert_eq!(api.shared.most.load(Ordering::SeqCst), 1, "Telegram lets one program ask");
}

async fn only_the_person_of_the_chat_decides(engine: Engine) {
    let api = FakeBotApi::start().await;
    let (world, device) = https_world(engine).await;
    api.connect(&world.owner, ANN, full()).await;
    let bob = person(&world, "bob", "admin").await;
    api.connect(&bob, 43, full()).await;
    let (_, permission) = asks(&world.owner, &device, command()).await;
    let sent = api.called("sendMessage", 2).await;
    let of = |chat: i64| sent.iter().find(|sent| sent["chat_id"] == chat).unwrap();
    let (anns, bobs) = (of(ANN), of(43));
    let approve = data(anns, "Approve");
    let mut changed = approve.clone().into_bytes();
    changed[40] = if changed[40] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();
    // Denying, turned into approving.
    let turned = format!("AQ{}", &data(anns, "Deny")[2..]);

    // Another person than that of the chat, a group, a bot, and a message that isn't there.
    api.press(anns, &approve, |query| query["from"]["id"] = json!(99));
    api.press(anns, &approve, |query| query["message"]["chat"] = json!({"id": -100, "title": "ops", "type": "group"}));
    api.press(anns, &approve, |query| query["message"]["chat"]["type"] = json!("channel"));
    api.press(anns, &approve, |query| query["from"]["is_bot"] = json!(true));
    api.press(anns, &approve, |query| drop(query.as_object_mut().unwrap().remove("message")));
    // A chat that nobody connected.
    api.press(anns, &approve, |query| {
        query["from"]["id"] = json!(77);
        query["message"]["chat"]["id"] = json!(77);
    });
    // Data that wasn't offered in this chat.
    for data in [changed.as_str(), turned.as_str(), &data(bobs, "Approve"), "", "approve", &permission] {
        api.press(anns, data, |_| {});
    }
    api.settled().await;
    assert_eq!(request(&world, &permission).await["state"], "pending");
    let answers = api.called("answerCallbackQuery", 6).await;
    assert!(answers.iter().all(|answer| answer["text"] == "Not decided. Open the request to see why."), "{answers:?}");
    assert_eq!((answers.len(), api.calls("editMessageText").len()), (6, 0));

    api.press(bobs, &data(bobs, "Approve"), |_| {});
    api.called("editMessageText", 1).await;
    let decided = request(&world, &permission).await;
    assert_eq!((&decided["state"], decided["decided_by"].is_null()), (&json!("approved"), false), "{decided}");
}

async fn what_is_pressed_while_no_hub_listens_counts_later(engine: Engine) {
    let api = FakeBotApi::start().await;
    let (world, device) = https_world(engine).await;
    api.connect(&world.owner, ANN, full()).await;
    let (_, permission) = asks(&world.owner, &device, command()).await;
    let sent = api.called("sendMessage", 1).await.remove(0);
    // Telegram fails for a while.
    api.fail(Some((502, "Bad Gateway")));
    api.press(&sent, &data(&sent, "Deny"), |_| {});
    let asked = api.calls("getUpdates").len();
    api.called("getUpdates", asked + 2).await;
    assert_eq!(request(&world, &permission).await["state"], "pending");
    api.fail(None);
    assert_eq!(api.called("answerCallbackQuery", 1).await[0]["text"], "Denied");
    assert_eq!(request(&world, &permission).await["state"], "denied");
}

async fn what_is_not_shown_can_only_be_denied_in_a_chat(engine: Engine) {
    let api = FakeBotApi::start().await;
    let (world, device) = world(engine, |_| {}).await;
    let target = api.connect(&world.owner, ANN, full()).await;
    for asked in [
        json!({"epoch": 1, "tool": "Bash", "input": {}, "undisclosed": ["input"]}),
        json!({"epoch": 1, "tool": "Bash", "input": {"command": "x".repeat(4000)}}),
        json!({"epoch": 1, "tool": "Edit", "input": {"file_path": "a"}, "diff": "+a"}),
    ] {
        let before = api.calls("sendMessage").len();
        let (run, permission) = asks(&world.owner, &device, asked.clone()).await;
        let sent = api.called("sendMessage", before + 1).await.remove(before);
        // Telegram takes no button that leads to plain HTTP: the link is in the text.
        assert_eq!(names(&sent), [vec!["Deny"]], "{asked}");
        assert!(sent["text"].as_str().unwrap().ends_with(&format!("/approvals/{permission}")), "{sent}");
        api.press(&sent, &data(&sent, "Deny"), |_| {});
        let edited = api.called("editMessageText", before + 1).await.remove(before);
        assert_eq!(edited["reply_markup"], json!({"inline_keyboard": []}));
        assert_eq!(request(&world, &permission).await["state"], "denied");
        world.owner.post(&format!("/api/v1/task-runs/{run}/cancel"), json!({})).await.expect(200);
    }
    let title = json!({"choices": {"approvals": true, "detail": "title", "language": "zh"}});
    world.owner.patch(&format!("/api/v1/notification-targets/{target}"), title).await.expect(200);
    asks(&world.owner, &device, command()).await;
    let sent = api.called("sendMessage", 4).await.remove(3);
    assert_eq!(names(&sent), [vec!["拒绝"]]);
    assert!(!sent.to_string().contains("deploy"), "{sent}");
}

async fn what_was_decided_elsewhere_stays(engine: Engine) {
    let api = FakeBotApi::start().await;
    let (world, device) = https_world(engine).await;
    api.connect(&world.owner, ANN, full()).await;
    let (run, permission) = asks(&world.owner, &device, command()).await;
    let sent = api.called("sendMessage", 1).await.remove(0);
    let path = format!("/api/v1/permission-requests/{permission}/decision");
    world.owner.post(&path, json!({"approved": false})).await.expect(200);
    api.press(&sent, &data(&sent, "Approve"), |_| {});
    assert_eq!(api.called("answerCallbackQuery", 1).await[0]["text"], "Denied");
    assert_eq!(request(&world, &permission).await["state"], "denied");

    // Nobody can decide it any more.
    world.owner.post(&format!("/api/v1/task-runs/{run}/cancel"), json!({})).await.expect(200);
    let (run, permission) = asks(&world.owner, &device, command()).await;
    let sent = api.called("sendMessage", 2).await.remove(1);
    world.owner.post(&format!("/api/v1/task-runs/{run}/cancel"), json!({})).await.expect(200);
    api.press(&sent, &data(&sent, "Approve"), |_| {});
    let said = api.called("answerCallbackQuery", 2).await.remove(1);
    assert_eq!(said["text"], "Not decided. Open the request to see why.");
    assert_eq!(api.called("editMessageText", 2).await[1]["reply_markup"]["inline_keyboard"][0][0]["text"], "Open");
    assert_eq!(request(&world, &permission).await["state"], "cancelled");
}

async fn a_bot_that_others_use_says_so(engine: Engine) {
    let api = FakeBotApi::start().await;
    let (world, _) = https_world(engine).await;
    let conflict = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running";
    api.fail(Some((409, conflict)));
    let target = api.connect(&world.owner, ANN, full()).await;
    let test = format!("/api/v1/notification-targets/{target}/test");
    api.called("getUpdates", 2).await;
    let mut said = json!({});
    for _ in 0..100 {
        said = world.owner.post(&test, json!({})).await.expect(200);
        if said["error"].is_string() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Messages arrive all the same.
    let problem = format!(
        "The buttons don't work: another program receives this bot's updates ({conflict}). Connect a bot that nothing \
         else uses."
    );
    assert_eq!(said, json!({"delivered": true, "status": 200, "error": problem}));
}

async fn a_chat_that_was_disconnected_decides_nothing(engine: Engine) {
    let api = FakeBotApi::start().await;
    let (world, device) = https_world(engine).await;
    let bob = person(&world, "bob", "admin").await;
    let target = api.connect(&bob, ANN, full()).await;
    let (_, permission) = asks(&world.owner, &device, command()).await;
    let sent = api.called("sendMessage", 1).await.remove(0);
    assert_eq!(bob.delete(&format!("/api/v1/notification-targets/{target}")).await.status, 204);
    // Connected again, perhaps by somebody else: what the former target offered is worth nothing.
    api.connect(&world.owner, ANN, full()).await;
    api.press(&sent, &data(&sent, "Approve"), |_| {});
    let said = api.called("answerCallbackQuery", 1).await.remove(0);
    assert_eq!(said["text"], "Not decided. Open the request to see why.");
    assert_eq!(request(&world, &permission).await["state"], "pending");
    // Without a chat, the bot is left alone.
    let list = world.owner.get("/api/v1/notification-targets").await.expect(200);
    let own = list["notification_targets"][0]["notification_target_id"].as_str().unwrap();
    assert_eq!(world.owner.delete(&format!("/api/v1/notification-targets/{own}")).await.status, 204);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let asked = api.calls("getUpdates").len();
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(api.calls("getUpdates").len(), asked);
}

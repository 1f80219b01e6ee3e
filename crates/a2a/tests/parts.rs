//! What a message brings: every part reaches the run, or the message is refused by what the agent takes.

use attache_a2a_wire::{Message, Part, PartContent};
use attache_protocol::{Json, wire::account::AccountRequest};
use serde_json::{Value, json};

use crate::{
    obedient::{immediate, message, request},
    scene::{A2aFixture, world},
    speak::{TestClient, TestOperation, every_way, http},
};

fn raw(media_type: &str) -> Part {
    let content = PartContent::Raw("aGk=".to_owned());
    Part { media_type: Some(media_type.to_owned()), filename: Some("a.bin".to_owned()), ..Part::new(content) }
}

#[derive(serde::Deserialize)]
struct PartsInput {
    message: Message,
}

#[tokio::test]
async fn every_part_reaches_the_run_in_the_form_of_1_0() {
    let scene = A2aFixture::start(world()).await;
    let url = Part {
        media_type: Some("text/html".to_owned()),
        ..Part::new(PartContent::Url("https://example.org/x".to_owned()))
    };
    let data = Part::new(PartContent::Data(Json::from_text(r#"{"n":[1,null]}"#).unwrap()));
    let sent = [Part::text("look"), raw("image/png"), url, data];
    for (binding, version) in every_way() {
        let id = format!("{binding:?} {version:?}");
        let task = scene.client(binding, version).send(request(message(&id, sent.to_vec()))).await;
        let run = scene.world.hub.run(&scene.world.owner, task.id.parse().unwrap()).await.unwrap();
        let input: PartsInput = run.input.parse().unwrap();
        assert_eq!(input.message.parts, sent, "{id}");
    }
    scene.world.stop().await;
}

/// The card says what its owner lists, and what is not listed is refused before anything is begun. Without a list every host
/// takes everything: as content of its own, or as a file of its folder.
#[tokio::test]
async fn what_the_owner_does_not_list_is_refused_by_its_media_type() {
    let scene = A2aFixture::start(world().agent("seer")).await;
    let modes = async || {
        let url = format!("{}/a2a/seer/.well-known/agent-card.json", scene.world.url);
        let card: Value = serde_json::from_str(&http().get(url).send().await.unwrap().text().await.unwrap()).unwrap();
        card["defaultInputModes"].clone()
    };
    assert_eq!(modes().await, json!(["text/plain", "application/json", "*/*"]));
    let change = AccountRequest {
        a2a: Some(Json::from_text(r#"{"input_modes":["text/plain","image/*"]}"#).unwrap()),
        ..AccountRequest::default()
    };
    scene.world.hub.update_account(&scene.world.owner, "seer", change).await.unwrap();
    assert_eq!(modes().await, json!(["text/plain", "image/*"]));
    for (binding, version) in every_way() {
        let client = TestClient { agent: "seer".to_owned(), ..scene.client(binding, version) };
        let who = format!("{binding:?} {version:?}");
        let send = |part: Part| TestOperation::Send(immediate(message(&who, vec![Part::text("look"), part])));
        client.once(send(raw("image/png"))).await.unwrap();
        let refusal = client.refused(send(raw("application/pdf"))).await;
        assert_eq!(refusal.reason, "CONTENT_TYPE_NOT_SUPPORTED", "{who}: {refusal:?}");
        let refusal = client.refused(send(raw("nonsense"))).await;
        assert_eq!(refusal.reason, "INVALID_PARAMS", "{who}: {refusal:?}");
    }
    scene.world.stop().await;
}

/// Senders of 0.3 forget `kind`, and write the form of JSON-RPC over HTTP+JSON, as its text shows it.
#[tokio::test]
async fn parts_of_0_3_are_told_apart_by_what_they_have() {
    let scene = A2aFixture::start(world()).await;
    let bare = json!([{"text": "look"}, {"file": {"bytes": "aGk=", "name": "a.bin", "mimeType": "image/png"}}, {"data": {"n": 1}}]);
    let with_kinds = json!([{"kind": "text", "text": "look"},
        {"kind": "file", "file": {"bytes": "aGk=", "name": "a.bin", "mimeType": "image/png"}}, {"kind": "data", "data": {"n": 1}}]);
    let post = async |path: &str, body: Value| {
        let url = format!("{}/a2a/obedient{path}", scene.world.url);
        let sent =
            http().post(url).bearer_auth(scene.world.owner_key.expose()).header("content-type", "application/json");
        let answer: Value =
            serde_json::from_str(&sent.body(body.to_string()).send().await.unwrap().text().await.unwrap()).unwrap();
        let task = if answer["result"].is_null() { &answer["task"] } else { &answer["result"] };
        let id = task["id"].as_str().unwrap_or_else(|| panic!("{answer}")).parse().unwrap();
        scene.world.hub.run(&scene.world.owner, id).await.unwrap().input.parse::<PartsInput>().unwrap().message.parts
    };
    let wanted =
        [Part::text("look"), raw("image/png"), Part::new(PartContent::Data(Json::from_text(r#"{"n":1}"#).unwrap()))];
    let rpc = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send",
        "params": {"message": {"messageId": "m1", "role": "user", "parts": bare}}});
    assert_eq!(post("", rpc).await, wanted);
    let rest = json!({"message": {"messageId": "m2", "role": "ROLE_USER", "content": with_kinds}});
    assert_eq!(post("/v1/message:send", rest).await, wanted);
    scene.world.stop().await;
}

//! 0.3 over HTTP+JSON as the Python SDK 0.3.26 writes it: conversion to the model and back.

use super::*;
use crate as new;

const SEND: &str = concat!(
    r#"{"message":{"messageId":"m1","contextId":"c1","taskId":"t1","role":"ROLE_USER","#,
    r#""content":[{"text":"hi","metadata":{"n":42.0}},"#,
    r#"{"file":{"fileWithBytes":"YUdrPQ==","mimeType":"text/plain","name":"x.txt"}},"#,
    r#"{"file":{"fileWithUri":"https://x/y"}},{"data":{"data":{"a":[1.0,2.5,null, 9007199254740993,1e400]}}}],"#,
    r#""metadata":{"k":"v"},"extensions":["https://e/1"]},"#,
    r#""configuration":{"acceptedOutputModes":["text/plain"],"pushNotification":{"id":"p1","url":"https://h/k","#,
    r#""token":"tok","authentication":{"schemes":["Bearer"],"credentials":"cr"}},"historyLength":3,"blocking":true},"#,
    r#""metadata":{"trace":"t"}}"#
);

const TASK: &str = concat!(
    r#"{"task":{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_CANCELLED","#,
    r#""message":{"messageId":"m2","role":"ROLE_AGENT","content":[{"text":"yo"}]}},"#,
    r#""artifacts":[{"artifactId":"a1","name":"n","description":"d","parts":[{"text":"x"}],"metadata":{"z":0.50},"#,
    r#""extensions":["https://e/2"]}],"history":[{"messageId":"m2","role":"ROLE_AGENT","content":[{"text":"yo"}]}],"#,
    r#""metadata":{"g":7.0}}}"#
);

const CONFIG: &str = concat!(
    r#"{"name":"tasks/t1/pushNotificationConfigs/p1","pushNotificationConfig":{"id":"p1","url":"https://h/k","#,
    r#""token":"tok","authentication":{"schemes":["Bearer"],"credentials":"cr"}}}"#
);

#[test]
fn a_request_converts_to_1_0_and_back_byte_for_byte() {
    let request = new::SendMessage::from(serde_json::from_str::<RestSendMessageV03>(SEND).unwrap());
    assert_eq!(
        serde_json::to_string(&request).unwrap(),
        concat!(
            r#"{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hi","metadata":{"n":42.0}},"#,
            r#"{"raw":"aGk=","filename":"x.txt","mediaType":"text/plain"},{"url":"https://x/y"},"#,
            r#"{"data":{"a":[1.0,2.5,null, 9007199254740993,1e400]}}],"contextId":"c1","taskId":"t1","#,
            r#""metadata":{"k":"v"},"extensions":["https://e/1"]},"#,
            r#""configuration":{"acceptedOutputModes":["text/plain"],"taskPushNotificationConfig":{"id":"p1","#,
            r#""url":"https://h/k","token":"tok","authentication":{"scheme":"Bearer","credentials":"cr"}},"#,
            r#""historyLength":3,"returnImmediately":false},"metadata":{"trace":"t"}}"#
        )
    );
    assert_eq!(serde_json::to_string(&RestSendMessageV03::from(request)).unwrap(), SEND);
}

#[test]
fn a_caller_that_does_not_ask_to_wait_does_not_wait() {
    let sent = |configuration: &str| {
        let text = format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER"}}{configuration}}}"#);
        new::SendMessage::from(serde_json::from_str::<RestSendMessageV03>(&text).unwrap()).configuration
    };
    let at_once = new::SendConfiguration { return_immediately: Some(true), ..Default::default() };
    assert_eq!(sent(""), None);
    assert_eq!(sent(r#","configuration":{}"#), Some(at_once));
    let message: new::Message =
        serde_json::from_str(r#"{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}"#).unwrap();
    let waits = new::SendMessage { tenant: None, message, configuration: None, metadata: None };
    assert_eq!(
        serde_json::to_string(&RestSendMessageV03::from(waits)).unwrap(),
        concat!(
            r#"{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"x"}]},"#,
            r#""configuration":{"blocking":true}}"#
        )
    );
}

#[test]
fn responses_and_events_round_trip_byte_for_byte() {
    let answer = new::SendMessageResponse::from(serde_json::from_str::<RestSendMessageResponseV03>(TASK).unwrap());
    assert_eq!(serde_json::to_string(&RestSendMessageResponseV03::from(answer)).unwrap(), TASK);
    for text in [
        TASK,
        r#"{"message":{"messageId":"m2","role":"ROLE_AGENT","content":[{"text":"yo"}]}}"#,
        r#"{"statusUpdate":{"taskId":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"},"final":true,"metadata":{"g":8.0}}}"#,
        r#"{"statusUpdate":{"taskId":"t1","contextId":"c1","status":{"state":"TASK_STATE_WORKING"}}}"#,
        r#"{"artifactUpdate":{"taskId":"t1","contextId":"c1","artifact":{"artifactId":"a1","parts":[{"text":"x"}]},"append":true,"lastChunk":true}}"#,
    ] {
        let event = new::StreamResponse::from(serde_json::from_str::<RestStreamResponseV03>(text).unwrap());
        assert_eq!(serde_json::to_string(&RestStreamResponseV03::from(event)).unwrap(), text);
    }
    let old: RestStreamResponseV03 =
        serde_json::from_str(r#"{"msg":{"message_id":"m","role":"ROLE_AGENT","content":null}}"#).unwrap();
    let new::StreamResponse::Message(message) = old.into() else { panic!("it is a message") };
    assert_eq!((message.message_id.as_str(), message.parts), ("m", Vec::new()));
}

#[test]
fn every_state_has_its_name_in_both() {
    for state in new::TaskState::ALL {
        let status = new::TaskStatus { state, message: None, timestamp: None };
        let old = serde_json::to_string(&RestTaskStatusV03::from(status.clone())).unwrap();
        let name = serde_json::to_string(&state).unwrap().replace("CANCELED", "CANCELLED");
        assert_eq!(old, format!(r#"{{"state":{name}}}"#));
        assert_eq!(new::TaskStatus::from(serde_json::from_str::<RestTaskStatusV03>(&old).unwrap()), status);
    }
}

#[test]
fn push_configs_have_their_ids_in_their_names() {
    let config: new::PushConfig = serde_json::from_str::<RestTaskPushConfigV03>(CONFIG).unwrap().try_into().unwrap();
    assert_eq!((config.task_id.as_deref(), config.id.as_deref()), (Some("t1"), Some("p1")));
    assert_eq!(serde_json::to_string(&RestTaskPushConfigV03::from(config.clone())).unwrap(), CONFIG);
    let create = format!(r#"{{"parent":"tasks/t1","configId":"p1","config":{CONFIG}}}"#);
    assert_eq!(serde_json::to_string(&RestCreatePushConfigBodyV03::from(config.clone())).unwrap(), create);
    for body in [create.as_str(), CONFIG] {
        let read = serde_json::from_str::<RestCreatePushConfigBodyV03>(body).unwrap().of_task("t1");
        assert_eq!(read.as_ref(), Ok(&config), "{body}");
    }
    assert!(serde_json::from_str::<RestCreatePushConfigBodyV03>("{}").unwrap().of_task("t1").is_err());
    let list = format!(r#"{{"configs":[{CONFIG}]}}"#);
    let read: new::PushConfigList = serde_json::from_str::<RestPushConfigListV03>(&list).unwrap().try_into().unwrap();
    assert_eq!(read.configs, [config]);
    assert_eq!(serde_json::to_string(&RestPushConfigListV03::from(read)).unwrap(), list);
}

#[test]
fn an_empty_or_ambiguous_part_is_refused() {
    for text in [
        "{}",
        r#"{"text":"x","file":{"fileWithUri":"u"}}"#,
        r#"{"file":{}}"#,
        r#"{"file":{"fileWithUri":"u","fileWithBytes":"YUdrPQ=="}}"#,
        r#"{"file":{"fileWithBytes":"no base64"}}"#,
        r#"{"data":{"data":7}}"#,
    ] {
        assert!(serde_json::from_str::<RestPartV03>(text).is_err(), "{text}");
    }
}

#[test]
fn data_that_is_not_an_object_is_wrapped_and_restored() {
    for data in ["7", "null", r#"[1, 2.0]"#, r#"{"value":1}"#, r#"{"a":1}"#, "{}"] {
        let part =
            RestPartV03(new::Part::new(new::PartContent::Data(attache_protocol::Json::from_text(data).unwrap())));
        let text = serde_json::to_string(&part).unwrap();
        assert_eq!(serde_json::from_str::<RestPartV03>(&text).unwrap(), part, "{text}");
    }
}

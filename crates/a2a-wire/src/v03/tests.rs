//! 0.3 messages: conversion to the 1.0 model and back.

use super::*;
use crate as new;
use attache_protocol::{Json, json::Members};

const MESSAGE_TEXT: &str = concat!(
    r#"{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"hi","metadata":{"n":42.0}},"#,
    r#"{"kind":"data","data":{"a":9007199254740993,"b": 1e400}},"#,
    r#"{"kind":"file","file":{"bytes":"aGk=","name":"x.txt","mimeType":"text/plain"}},"#,
    r#"{"kind":"file","file":{"uri":"https://x/y"}}],"contextId":"c1","taskId":"t1"}"#
);

fn json(text: &str) -> Json {
    Json::from_text(text).unwrap()
}

#[test]
fn a_0_3_message_converts_to_1_0_and_back_byte_for_byte() {
    let old: MessageV03 = serde_json::from_str(MESSAGE_TEXT).unwrap();
    let message = new::Message::from(old);
    assert_eq!(
        serde_json::to_string(&message).unwrap(),
        concat!(
            r#"{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hi","metadata":{"n":42.0}},"#,
            r#"{"data":{"a":9007199254740993,"b": 1e400}},"#,
            r#"{"raw":"aGk=","filename":"x.txt","mediaType":"text/plain"},{"url":"https://x/y"}],"#,
            r#""contextId":"c1","taskId":"t1"}"#
        )
    );
    assert_eq!(serde_json::to_string(&MessageV03::from(message)).unwrap(), MESSAGE_TEXT);
}

#[test]
fn data_that_is_not_an_object_is_wrapped_and_restored() {
    for data in ["7", "null", r#"[1, 2.0]"#, r#""x""#, r#"{"value":1}"#, r#"{"value":{"value":2}}"#, r#"{"a":1}"#, "{}"]
    {
        let part = PartV03(new::Part::new(new::PartContent::Data(json(data))));
        let text = serde_json::to_string(&part).unwrap();
        let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(shown["data"].is_object(), "0.3 knows objects only: {text}");
        let back: PartV03 = serde_json::from_str(&text).unwrap();
        assert_eq!(back, part, "{text}");
    }
}

#[test]
fn a_part_is_what_its_kind_says_or_what_it_has() {
    for (text, with_kind) in [
        (r#"{"text":"x"}"#, r#"{"kind":"text","text":"x"}"#),
        (r#"{"file":{"uri":"u"}}"#, r#"{"kind":"file","file":{"uri":"u"}}"#),
        (r#"{"data":{"n":1.0}}"#, r#"{"kind":"data","data":{"n":1.0}}"#),
    ] {
        let part: PartV03 = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&part).unwrap(), with_kind);
    }
    for text in [
        "{}",
        r#"{"text":"x","data":{}}"#,
        r#"{"kind":"text"}"#,
        r#"{"kind":"image","text":"x"}"#,
        r#"{"kind":"data","data":7}"#,
        r#"{"kind":"file","file":{}}"#,
        r#"{"kind":"file","file":{"bytes":"x","uri":"y"}}"#,
    ] {
        assert!(serde_json::from_str::<PartV03>(text).is_err(), "{text}");
    }
}

#[test]
fn events_are_distinguished_by_kind_and_mark_the_last() {
    for (state, last) in [("working", false), ("input-required", true), ("completed", true), ("auth-required", true)] {
        let text = format!(
            r#"{{"kind":"status-update","taskId":"t","contextId":"c","status":{{"state":"{state}"}},"final":{last}}}"#
        );
        let event = new::StreamResponse::from(StreamResponseV03::read(&json(&text)).unwrap());
        assert_eq!(serde_json::to_string(&StreamResponseV03::from(event)).unwrap(), text);
    }
    for text in [
        r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"canceled"},"artifacts":[{"artifactId":"a","parts":[{"kind":"text","text":"x"}]}]}"#,
        r#"{"kind":"artifact-update","taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"kind":"text","text":"x"}]},"append":true,"lastChunk":true}"#,
        MESSAGE_TEXT,
    ] {
        let event = new::StreamResponse::from(StreamResponseV03::read(&json(text)).unwrap());
        assert_eq!(serde_json::to_string(&StreamResponseV03::from(event)).unwrap(), text);
    }
    assert!(StreamResponseV03::read(&json(r#"{"kind":"other"}"#)).is_err());
    let unknown = r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"unknown"}}"#;
    let StreamResponseV03::Task(task) = StreamResponseV03::read(&json(unknown)).unwrap() else {
        panic!("it is a task")
    };
    assert_eq!(new::Task::from(task).status.state, new::TaskState::TaskStateWorking);
}

#[test]
fn blocking_is_the_opposite_of_returning_immediately() {
    let read = |configuration: &str| {
        let text = format!(r#"{{"message":{MESSAGE_TEXT},"configuration":{configuration}}}"#);
        new::SendMessage::from(serde_json::from_str::<SendParamsV03>(&text).unwrap()).configuration.unwrap()
    };
    assert_eq!(read("{}").return_immediately, None);
    assert_eq!(read(r#"{"blocking":true}"#).return_immediately, Some(false));
    let full = read(
        r#"{"blocking":false,"historyLength":3,"pushNotificationConfig":
            {"url":"https://x","token":"t","authentication":{"schemes":["Bearer","Basic"],"credentials":"c"}}}"#,
    );
    let push = new::PushConfig {
        url: "https://x".to_owned(),
        token: Some("t".to_owned()),
        authentication: Some(new::PushAuthenticationInfo {
            scheme: "Bearer".to_owned(),
            credentials: Some("c".to_owned()),
        }),
        ..new::PushConfig::default()
    };
    let wanted = new::SendConfiguration {
        accepted_output_modes: Vec::new(),
        task_push_notification_config: Some(push),
        history_length: Some(3),
        return_immediately: Some(true),
    };
    assert_eq!(full, wanted);
}

const CARD: &str = concat!(
    r#"{"protocolVersion":"0.3.0","name":"N","description":"D","url":"https://x","preferredTransport":"JSONRPC","#,
    r#""additionalInterfaces":[{"url":"https://x","transport":"JSONRPC"},{"url":"x:1","transport":"GRPC"}],"#,
    r#""provider":{"url":"https://o","organization":"O"},"version":"1","capabilities":{"streaming":true,"#,
    r#""pushNotifications":false,"extensions":[{"uri":"https://e","required":true,"params":{"n":42.0}}]},"#,
    r#""securitySchemes":{"a":{"type":"apiKey","in":"header","name":"X"},"#,
    r#""h":{"type":"http","scheme":"bearer","bearerFormat":"JWT"},"m":{"type":"mutualTLS"},"#,
    r#""o":{"type":"oauth2","flows":{"authorizationCode":{"authorizationUrl":"https://au","tokenUrl":"https://t","#,
    r#""scopes":{"s":"d"}}}}},"security":[{"h":[]},{"o":["s"]}],"defaultInputModes":["text/plain"],"#,
    r#""defaultOutputModes":["text/plain"],"skills":[{"id":"s","name":"S","description":"sd","tags":["t"],"#,
    r#""security":[{"a":[]}]}],"supportsAuthenticatedExtendedCard":true}"#
);

#[test]
fn a_0_3_card_converts_to_1_0_and_back_byte_for_byte() {
    let card = new::AgentCard::from(serde_json::from_str::<AgentCardV03>(CARD).unwrap());
    assert_eq!(
        serde_json::to_string(&card).unwrap(),
        concat!(
            r#"{"name":"N","description":"D","supportedInterfaces":["#,
            r#"{"url":"https://x","protocolBinding":"JSONRPC","protocolVersion":"0.3"},"#,
            r#"{"url":"x:1","protocolBinding":"GRPC","protocolVersion":"0.3"}],"#,
            r#""provider":{"url":"https://o","organization":"O"},"version":"1","capabilities":{"streaming":true,"#,
            r#""pushNotifications":false,"extensions":[{"uri":"https://e","required":true,"params":{"n":42.0}}],"#,
            r#""extendedAgentCard":true},"securitySchemes":{"#,
            r#""a":{"apiKeySecurityScheme":{"location":"header","name":"X"}},"#,
            r#""h":{"httpAuthSecurityScheme":{"scheme":"bearer","bearerFormat":"JWT"}},"m":{"mtlsSecurityScheme":{}},"#,
            r#""o":{"oauth2SecurityScheme":{"flows":{"authorizationCode":{"authorizationUrl":"https://au","#,
            r#""tokenUrl":"https://t","scopes":{"s":"d"}}}}}},"securityRequirements":[{"schemes":{"h":{}}},"#,
            r#"{"schemes":{"o":{"list":["s"]}}}],"defaultInputModes":["text/plain"],"#,
            r#""defaultOutputModes":["text/plain"],"skills":[{"id":"s","name":"S","description":"sd","tags":["t"],"#,
            r#""securityRequirements":[{"schemes":{"a":{}}}]}]}"#
        )
    );
    let again = AgentCardV03::of(&card, &card.supported_interfaces).unwrap();
    assert_eq!(serde_json::to_string(&again).unwrap(), CARD);
}

#[test]
fn a_card_with_missing_members_is_accepted() {
    let card: AgentCardV03 = serde_json::from_str(
        r#"{"name":"N","url":"https://x","securitySchemes":{"z":{"type":"later","a":1}},"skills":null}"#,
    )
    .unwrap();
    let card = new::AgentCard::from(card);
    assert_eq!(card.supported_interfaces[0].protocol_binding, "JSONRPC");
    assert!(card.security_schemes.is_empty());
    assert!(serde_json::from_str::<AgentCardV03>(r#"{"name":"N"}"#).is_err());
}

#[test]
fn one_card_serves_both_versions() {
    let mut card = new::AgentCard::from(serde_json::from_str::<AgentCardV03>(CARD).unwrap());
    let newer = new::AgentInterface { protocol_version: "1.0".to_owned(), ..card.supported_interfaces[0].clone() };
    card.supported_interfaces.insert(0, newer);
    let both = union(&card);
    let mut read: new::AgentCard = both.parse().unwrap();
    for (name, scheme) in std::mem::take(&mut read.security_schemes) {
        read.security_schemes.insert(name, new::KnownScheme::of(&scheme).unwrap().into());
    }
    assert_eq!(read, card);
    assert_eq!(serde_json::to_string(&both.parse::<AgentCardV03>().unwrap()).unwrap(), CARD);
    let schemes: Members = both.parse::<Members>().unwrap().find("securitySchemes").unwrap().parse().unwrap();
    assert_eq!(
        schemes.find("h").unwrap().get(),
        concat!(
            r#"{"httpAuthSecurityScheme":{"scheme":"bearer","bearerFormat":"JWT"},"#,
            r#""type":"http","scheme":"bearer","bearerFormat":"JWT"}"#
        )
    );
    card.supported_interfaces.truncate(1);
    assert_eq!(union(&card), Json::of(&card), "nothing to add for a card of 1.0 alone");
}

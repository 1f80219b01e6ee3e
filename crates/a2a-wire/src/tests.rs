//! JSON as the standard writes it, and payloads that must not change.

use super::*;
use attache_protocol::Json;

/// Parses the text and writes it again.
fn again<T: serde::de::DeserializeOwned + serde::Serialize>(text: &str) -> String {
    let read: T = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    serde_json::to_string(&read).unwrap()
}

#[test]
fn a_message_keeps_user_json_byte_for_byte() {
    let text = concat!(
        r#"{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hi","metadata":{"n":42.0}},"#,
        r#"{"data":{"a":9007199254740993,"b": 1e400,"timestamp":"2026-01-01T00:00:00+00:00","z":1,"z":2},"#,
        r#""filename":"x.json","mediaType":"application/json"},{"raw":"aGk="},{"url":"https://x/y"},{"data":null}],"#,
        r#""contextId":"c1","metadata":{ "k":-0 },"extensions":["https://x/v1"]}"#
    );
    assert_eq!(again::<Message>(text), text);
}

#[test]
fn proto_names_are_accepted_null_is_absent_and_unknown_members_are_ignored() {
    let text = r#"{"message_id":"m","role":"ROLE_AGENT","parts":[{"text":"x","url":null,"media_type":"text/plain"}],
        "task_id":null,"extensions":null,"reference_task_ids":["t"],"later":{"x":1}}"#;
    assert_eq!(
        again::<Message>(text),
        r#"{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x","mediaType":"text/plain"}],"referenceTaskIds":["t"]}"#
    );
}

#[test]
fn a_part_is_exactly_one_thing() {
    for (text, wanted) in [
        ("{}", "a part must have one of"),
        (r#"{"text":"a","url":"b"}"#, "a part can have only one of"),
        (r#"{"text":"a","data":null}"#, "a part can have only one of"),
        (r#"{"text":7}"#, "expected a string"),
        ("7", "expected a part"),
    ] {
        let error = serde_json::from_str::<Part>(text).unwrap_err().to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
}

#[test]
fn events_are_wrapped_in_their_name() {
    let status = r#"{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED","timestamp":"2026-11-15T09:30:00.000Z"}}}"#;
    assert_eq!(again::<StreamResponse>(status), status);
    let artifact = r#"{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"x"}]},"append":true,"lastChunk":false}}"#;
    assert_eq!(again::<StreamResponse>(artifact), artifact);
    let task =
        r#"{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_SUBMITTED"},"artifacts":[],"history":[]}}"#;
    assert_eq!(again::<SendMessageResponse>(task), task);
    assert!(serde_json::from_str::<StreamResponse>(r#"{"other":{}}"#).is_err());
}

#[test]
fn a_card_has_no_empty_member() {
    let card = AgentCard {
        name: "builder".to_owned(),
        description: "Builds".to_owned(),
        supported_interfaces: vec![AgentInterface {
            url: "https://hub/a2a/builder".to_owned(),
            protocol_binding: "JSONRPC".to_owned(),
            tenant: None,
            protocol_version: "1.0".to_owned(),
        }],
        provider: None,
        version: "1".to_owned(),
        documentation_url: None,
        capabilities: CardCapabilities { streaming: Some(true), ..CardCapabilities::default() },
        security_schemes: [(
            "bearer".to_owned(),
            SecurityScheme::new("httpAuthSecurityScheme", Json::from_text(r#"{"scheme":"Bearer"}"#).unwrap()),
        )]
        .into(),
        security_requirements: vec![SecurityRequirement {
            schemes: [("bearer".to_owned(), StringList::default())].into(),
        }],
        default_input_modes: vec!["text/plain".to_owned()],
        default_output_modes: vec!["text/plain".to_owned()],
        skills: vec![],
        signatures: vec![],
        icon_url: None,
    };
    let text = serde_json::to_string(&card).unwrap();
    assert_eq!(
        text,
        concat!(
            r#"{"name":"builder","description":"Builds","supportedInterfaces":[{"url":"https://hub/a2a/builder","#,
            r#""protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"version":"1","capabilities":{"streaming":true},"#,
            r#""securitySchemes":{"bearer":{"httpAuthSecurityScheme":{"scheme":"Bearer"}}},"#,
            r#""securityRequirements":[{"schemes":{"bearer":{}}}],"defaultInputModes":["text/plain"],"#,
            r#""defaultOutputModes":["text/plain"],"skills":[]}"#
        )
    );
    assert_eq!(again::<AgentCard>(&text), text);
}

#[test]
fn every_operation_has_one_name_per_version_and_every_fault_its_own_code() {
    for method in Method::ALL {
        assert_eq!(Method::from_name(method.name()), Some(*method));
        if let Some(old) = method.old_name() {
            assert_eq!(Method::from_old_name(old), Some(*method));
        }
    }
    let codes: std::collections::BTreeSet<i32> = Fault::ALL.iter().map(|fault| fault.rpc_code()).collect();
    assert_eq!(codes, (-32009..=-32001).collect());
    for state in TaskState::ALL {
        assert!(!(state.is_terminal() && state.is_interrupted()), "{state:?}");
    }
}

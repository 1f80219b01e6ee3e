//! User JSON through gRPC and back.

use proptest::prelude::*;
use prost::Message as _;

use super::{
    super::{EXACT, number, v1, v03, value},
    json,
};
use crate as model;
use attache_protocol::Json;
use model::{Part, PartContent};

/// A round trip through the bytes of 1.0.
fn through_new(part: Part) -> Part {
    let bytes = v1::Part::from(part).encode_to_vec();
    v1::Part::decode(bytes.as_slice()).unwrap().try_into().unwrap()
}

/// A round trip through the bytes of 0.3.
fn through_old(part: Part) -> Part {
    let bytes = v03::Part::from(part).encode_to_vec();
    v03::Part::decode(bytes.as_slice()).unwrap().try_into().unwrap()
}

fn part(data: &str, metadata: Option<&str>) -> Part {
    Part { metadata: metadata.map(json), ..Part::new(PartContent::Data(json(data))) }
}

/// What gRPC clients without our extension see.
fn shown(part: Part) -> String {
    let carried = v1::Part::from(part);
    value::write_object(&carried.metadata.unwrap_or_default().fields).unwrap().get().to_owned()
}

#[test]
fn only_changed_numbers_are_sent_as_exact_text() {
    assert_eq!(shown(part(r#"{"a":42.0,"b":1E2,"c":0.10}"#, None)), "{}");
    assert_eq!(
        shown(part(r#"{"a":9007199254740993}"#, None)),
        r#"{"https://attache.dev/ext/exact/v1":{"data":"{\"a\":9007199254740993}"}}"#
    );
    assert_eq!(
        shown(part("1", Some(r#"{"n":-1e400}"#))),
        r#"{"https://attache.dev/ext/exact/v1":{"metadata":"{\"n\":-1e400}"},"n":-1.7976931348623157e308}"#
    );
    assert_eq!(
        shown(part("9007199254740993", Some("{}"))),
        r#"{"https://attache.dev/ext/exact/v1":{"data":"9007199254740993","metadata":"{}"}}"#
    );
}

#[test]
fn mismatched_exact_text_is_ignored() {
    let lie = format!(r#"{{"{EXACT}":{{"data":"2"}}}}"#);
    let mut carried = v1::Part::from(part("1", None));
    let value = value::read(&json(&lie)).unwrap().value;
    let Some(prost_types::value::Kind::StructValue(object)) = value.kind else { panic!("it is an object") };
    carried.metadata = Some(object);
    assert_eq!(Part::try_from(carried).unwrap(), part("1", Some(&lie)));
}

#[test]
fn unrepresentable_json_is_sent_as_exact_text_and_restored() {
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let deep_object = format!("{}1{}", r#"{"a":"#.repeat(40), "}".repeat(40));
    for data in [deep(46), deep(63), deep_object.clone(), r#""\ud800""#.to_owned()] {
        for metadata in [None, Some("{}"), Some(r#"{"a":1}"#), Some(&deep_object), Some("[1]"), Some("7")] {
            let before = part(&data, metadata);
            assert_eq!(through_new(before.clone()), before);
            assert_eq!(through_old(before.clone()), before);
        }
    }
    let carried = v1::Part::from(part(&deep(60), None));
    let Some(v1::part::Content::Data(shown)) = &carried.content else { panic!("{carried:?}") };
    let wanted = r#"{"https://attache.dev/ext/exact/v1":"is nested too deeply for gRPC"}"#;
    assert_eq!(value::write(shown).unwrap().get(), wanted);
    let own = v1::Part::from(part("1", Some(&deep_object))).metadata.unwrap();
    assert_eq!(own.fields.keys().collect::<Vec<_>>(), [EXACT]);
}

#[test]
fn exact_text_nested_too_deeply_is_ignored() {
    let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
    let after = through_new(part(&deep, None));
    assert_ne!(after.content, PartContent::Data(json(&deep)));
    assert!(after.metadata.unwrap().get().contains(&deep), "what it said is there to be seen");
}

#[test]
fn invalid_base64_is_reported_and_not_sent() {
    let raw = Part { filename: Some("f".to_owned()), ..Part::new(PartContent::Raw("not base64!".to_owned())) };
    let text = PartContent::Text("The bytes of this part are not base64, so gRPC can't carry them.".to_owned());
    assert_eq!(through_new(raw.clone()), Part { content: text.clone(), ..raw.clone() });
    assert_eq!(through_old(raw), Part::new(text));
}

#[test]
fn every_kind_of_metadata_is_exact() {
    const NUMBER: &str = r#"{"n": 9007199254740993}"#;
    let message = model::Message {
        message_id: "m".to_owned(),
        role: model::A2aRole::User,
        parts: vec![part("12345678901234567890", Some(NUMBER))],
        context_id: None,
        task_id: None,
        metadata: Some(json(NUMBER)),
        extensions: Vec::new(),
        reference_task_ids: Vec::new(),
    };
    let artifact = model::Artifact {
        artifact_id: "a".to_owned(),
        name: None,
        description: None,
        parts: message.parts.clone(),
        metadata: Some(json(NUMBER)),
        extensions: Vec::new(),
    };
    let state = model::TaskState::TaskStateWorking;
    let status = model::TaskStatus { state, message: Some(message.clone()), timestamp: None };
    let events = [
        model::StreamResponse::Message(message.clone()),
        model::StreamResponse::Task(model::Task {
            id: "t".to_owned(),
            context_id: "c".to_owned(),
            status: status.clone(),
            artifacts: Some(vec![artifact.clone()]),
            history: Some(vec![message.clone()]),
            metadata: Some(json(NUMBER)),
        }),
        model::StreamResponse::StatusUpdate(model::StatusUpdate {
            task_id: "t".to_owned(),
            context_id: "c".to_owned(),
            status,
            metadata: Some(json(NUMBER)),
        }),
        model::StreamResponse::ArtifactUpdate(model::ArtifactUpdate {
            task_id: "t".to_owned(),
            context_id: "c".to_owned(),
            artifact,
            append: None,
            last_chunk: Some(true),
            metadata: Some(json(NUMBER)),
        }),
    ];
    for event in events {
        let new = v1::StreamResponse::from(event.clone());
        assert_eq!(model::StreamResponse::try_from(new).as_ref(), Ok(&event));
        let old = v03::StreamResponse::from(event.clone());
        assert_eq!(model::StreamResponse::try_from(old), Ok(event));
    }
    let send = model::SendMessage { tenant: None, message, configuration: None, metadata: Some(json(NUMBER)) };
    let new = v1::SendMessageRequest::from(send.clone());
    assert_eq!(model::SendMessage::try_from(new), Ok(send));
}

fn any_number() -> impl Strategy<Value = String> {
    "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?"
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![Just(EXACT.to_owned()), Just("data".to_owned()), Just("value".to_owned()), "\\PC{0,3}"]
}

fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        any_number(),
        Just("null".to_owned()),
        Just("true".to_owned()),
        "\\PC{0,5}".prop_map(|text| Json::of(&text).get().to_owned()),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[ {}]", items.join(", "))),
            any_object(inner),
        ]
    })
}

fn any_object(inner: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop::collection::vec((any_name(), inner), 0..4).prop_map(|members| {
        let members: Vec<_> =
            members.into_iter().map(|(name, value)| format!("{} :{value}", Json::of(&name).get())).collect();
        format!("{{{}}}", members.join(","))
    })
}

/// The same value, and the same text if gRPC alone would have changed the value.
fn assert_kept(before: &Json, after: &Json) {
    let (old, new) = (value::read(before).unwrap(), value::read(after).unwrap());
    assert_eq!(old.value, new.value);
    if !old.exact {
        assert_eq!(before, after);
    }
}

proptest! {
    #[test]
    fn a_double_round_trips(bits in any::<u64>()) {
        let number = f64::from_bits(bits);
        if let Some(text) = number::text(number) {
            prop_assert_eq!(number::read(&text), (number, true), "{}", text);
            prop_assert!(Json::from_text(text).is_ok());
        }
    }

    #[test]
    fn user_json_survives_both_versions(data in any_json(), metadata in prop::option::of(any_object(any_json()))) {
        let before = part(&data, metadata.as_deref());
        for through in [through_new, through_old] {
            let after = through(before.clone());
            let (PartContent::Data(old), PartContent::Data(new)) = (&before.content, &after.content) else { panic!("data") };
            assert_kept(old, new);
            match (&before.metadata, &after.metadata) {
                (Some(old), Some(new)) => assert_kept(old, new),
                (old, new) => prop_assert_eq!(old, new),
            }
            prop_assert_eq!(&through(after.clone()), &after, "nothing changes any more");
        }
    }
}

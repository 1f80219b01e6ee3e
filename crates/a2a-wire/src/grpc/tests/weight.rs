//! What a request takes in memory is known from its bytes: of every field, and of what an attacker would send.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    collections::BTreeMap,
};

use prost::Message as _;
use prost_types::{ListValue, Struct, Value, value::Kind};

use super::super::{
    v1, v03,
    weight::{FieldWeight, MalformedMessage, MessageType, STRUCT_TYPE, VALUE_TYPE, decoded_weight, request_type},
};
use crate as model;

/// Counts what the thread has allocated, and the most it had at a time.
struct CountingAllocator;

thread_local! {
    static ALLOCATED: Cell<[usize; 2]> = const { Cell::new([0, 0]) };
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[allow(unsafe_code, reason = "hands everything to the allocator of the system")]
// SAFETY: as the allocator of the system.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATED.try_with(|counts| {
            let [now, most] = counts.get();
            let now = now.wrapping_add(layout.size());
            counts.set([now, most.max(now)]);
        });
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        let _ = ALLOCATED.try_with(|counts| {
            let [now, most] = counts.get();
            counts.set([now.wrapping_sub(layout.size()), most]);
        });
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.dealloc(place, layout) }
    }
}

/// The most that is allocated at a time.
fn allocated<T>(work: impl FnOnce() -> T) -> usize {
    // Never below zero, whatever else this thread gives back.
    let before = usize::MAX / 2;
    ALLOCATED.set([before, before]);
    drop(work());
    ALLOCATED.get()[1] - before
}

const SEND: &str = "/lf.a2a.v1.A2AService/SendMessage";
const OLD_SEND: &str = "/a2a.v1.A2AService/SendStreamingMessage";
const OLD_CREATE_PUSH: &str = "/a2a.v1.A2AService/CreateTaskPushNotificationConfig";

fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

fn list(values: Vec<Value>) -> Value {
    value(Kind::ListValue(ListValue { values }))
}

fn object(entries: usize) -> Struct {
    Struct { fields: (0..entries).map(|number| (format!("{number:x}"), Value::default())).collect() }
}

/// Many of the smallest of everything that there can be many of.
fn floods() -> Vec<v1::Message> {
    let data = |value| v1::Part { content: Some(v1::part::Content::Data(value)), ..v1::Part::default() };
    let entry = Struct { fields: BTreeMap::from([(String::new(), Value::default())]) };
    let deep = (0..40).fold(list(Vec::new()), |inner, _| list(vec![inner]));
    let parts = |parts| v1::Message { parts, ..v1::Message::default() };
    let texts = || vec![String::new(); 10_000];
    let described = v1::Part { metadata: Some(entry.clone()), ..v1::Part::default() };
    let text = v1::Part { content: Some(v1::part::Content::Text("x".to_owned())), ..v1::Part::default() };
    vec![
        parts(vec![v1::Part::default(); 10_000]),
        parts(vec![text; 10_000]),
        parts(vec![described; 10_000]),
        parts(vec![data(list(vec![Value::default(); 10_000]))]),
        parts(vec![data(list(vec![value(Kind::StructValue(entry)); 10_000]))]),
        parts(vec![data(list(vec![list(vec![Value::default()]); 10_000]))]),
        parts(vec![data(list(vec![deep; 500]))]),
        parts(vec![data(value(Kind::StructValue(object(10_000))))]),
        v1::Message { metadata: Some(object(10_000)), ..v1::Message::default() },
        v1::Message { extensions: texts(), reference_task_ids: texts(), ..v1::Message::default() },
    ]
}

fn check<R: prost::Message + Default, T>(path: &str, request: &R, convert: impl FnOnce(R) -> T) {
    let bytes = request.encode_to_vec();
    let estimate = decoded_weight(path, &bytes).unwrap() + 2 * bytes.len();
    let used = allocated(|| convert(R::decode(&*bytes).unwrap()));
    assert!(used <= estimate, "{} bytes took {used}, but {estimate} was expected", bytes.len());
    // An honest message isn't counted many times over.
    assert!(estimate < 8 * used + 4096, "{} bytes took {used}, and {estimate} was expected", bytes.len());
}

#[test]
fn a_request_takes_no_more_than_its_bytes_say() {
    for mut message in floods() {
        (message.message_id, message.role) = ("m".to_owned(), v1::Role::User.into());
        let request = v1::SendMessageRequest { message: Some(message.clone()), ..v1::SendMessageRequest::default() };
        check(SEND, &request, model::SendMessage::try_from);
        let Ok(message) = model::Message::try_from(message) else { continue };
        let request = v03::SendMessageRequest { request: Some(message.into()), ..v03::SendMessageRequest::default() };
        check(OLD_SEND, &request, model::SendMessage::try_from);
    }
    let old_parts = v03::Message { content: vec![v03::Part::default(); 10_000], ..v03::Message::default() };
    let request = v03::SendMessageRequest { request: Some(old_parts), ..v03::SendMessageRequest::default() };
    check(OLD_SEND, &request, model::SendMessage::try_from);
    let modes = v1::SendMessageConfiguration {
        accepted_output_modes: vec![String::new(); 10_000],
        ..v1::SendMessageConfiguration::default()
    };
    check(
        SEND,
        &v1::SendMessageRequest { configuration: Some(modes), ..Default::default() },
        model::SendMessage::try_from,
    );
    let text = v1::Part { content: Some(v1::part::Content::Text("x".repeat(500_000))), ..v1::Part::default() };
    let text = v1::Message { parts: vec![text], ..v1::Message::default() };
    let bytes = v1::SendMessageRequest { message: Some(text), ..Default::default() }.encode_to_vec();
    assert!(decoded_weight(SEND, &bytes).unwrap() < 2000, "what isn't many weighs nothing");
}

/// The decoder would go on beyond the end of a message, and notice afterwards.
#[test]
fn what_isnt_a_message_is_not_decoded() {
    let malformed = [
        &[0x12, 0x02, 0x2a, 0x05, 0, 0, 0, 0, 0][..],
        &[0x12, 0x7f],
        &[0x12],
        &[0x80],
        &[0x0f],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    ];
    for bytes in malformed {
        assert_eq!(decoded_weight(SEND, bytes), Err(MalformedMessage), "{bytes:?}");
    }
    let deep = (0..60).fold(list(Vec::new()), |inner, _| list(vec![inner]));
    let part = v1::Part { content: Some(v1::part::Content::Data(deep)), ..v1::Part::default() };
    let message = v1::Message { parts: vec![part], ..v1::Message::default() };
    let bytes = v1::SendMessageRequest { message: Some(message), ..Default::default() }.encode_to_vec();
    assert_eq!(decoded_weight(SEND, &bytes), Err(MalformedMessage));
}

/// The messages of a `.proto` file: each field's number, its type, and whether it is repeated.
fn messages(proto: &str) -> BTreeMap<&str, Vec<(u32, &str, bool)>> {
    let mut found: BTreeMap<&str, Vec<(u32, &str, bool)>> = BTreeMap::new();
    let mut name = None;
    for line in proto.lines().map(str::trim) {
        let words: Vec<&str> = line.trim_end_matches(';').split_whitespace().collect();
        match *words {
            ["message", message, ..] => {
                found.entry(message).or_default();
                name = Some(message);
            }
            ["enum" | "service", ..] => name = None,
            ["repeated", kind, _, "=", number, ..] => {
                found.entry(name.unwrap()).or_default().push((number.parse().unwrap(), kind, true));
            }
            ["optional", kind, _, "=", number, ..] | [kind, _, "=", number, ..] => {
                if let (Some(name), Ok(number)) = (name, number.parse()) {
                    found.entry(name).or_default().push((number, kind, false));
                }
            }
            _ => {}
        }
    }
    found
}

/// Compares what is followed of a message with what can be many in it. Whether anything can.
fn compare(proto: &BTreeMap<&str, Vec<(u32, &str, bool)>>, name: &str, kind: Option<&MessageType>) -> bool {
    let mut has_many = false;
    for (number, of, repeated) in &proto[name] {
        let field = kind.and_then(|kind| kind.0.iter().find(|(own, _)| own == number)).map(|(_, field)| field);
        let inner = match field {
            Some(FieldWeight::Message(inner, own)) => Some((*inner, *own)),
            Some(FieldWeight::Strings) | None => None,
        };
        let is_many = match *of {
            "google.protobuf.Struct" => {
                assert!(inner.is_none_or(|(inner, _)| std::ptr::eq(inner, &raw const STRUCT_TYPE)), "{name}.{number}");
                true
            }
            "google.protobuf.Value" => {
                assert!(inner.is_none_or(|(inner, _)| std::ptr::eq(inner, &raw const VALUE_TYPE)), "{name}.{number}");
                true
            }
            "string" | "bytes" => *repeated,
            of if proto.contains_key(of) => {
                assert!(!repeated || inner.is_none_or(|(_, own)| own > 0), "{name}.{number} weighs nothing");
                compare(proto, of, inner.map(|(inner, _)| inner)) || *repeated
            }
            _ => {
                assert!(!repeated, "{name}.{number} isn't counted");
                false
            }
        };
        assert!(kind.is_none() || field.is_some() == is_many, "{name}.{number}");
        has_many |= is_many;
    }
    has_many
}

#[test]
fn everything_that_can_be_many_is_counted() {
    for (service, proto) in [
        ("lf.a2a.v1.A2AService", include_str!("../../../proto/lf_a2a_v1.proto")),
        ("a2a.v1.A2AService", include_str!("../../../proto/a2a_v1.proto")),
    ] {
        let types = messages(proto);
        let methods: Vec<(&str, &str)> = proto
            .lines()
            .filter_map(|line| line.trim().strip_prefix("rpc ")?.split_once(')')?.0.split_once('('))
            .collect();
        assert!(methods.len() >= 10, "{methods:?}");
        for (method, request) in methods {
            compare(&types, request, Some(request_type(&format!("/{service}/{method}"))));
        }
    }
    let push = v03::AuthenticationInfo { schemes: vec![String::new(); 1000], ..v03::AuthenticationInfo::default() };
    let push = v03::PushNotificationConfig { authentication: Some(push), ..Default::default() };
    let push = v03::TaskPushNotificationConfig { push_notification_config: Some(push), ..Default::default() };
    let push = v03::CreateTaskPushNotificationConfigRequest { config: Some(push), ..Default::default() };
    check(OLD_CREATE_PUSH, &push, |request| request);
}

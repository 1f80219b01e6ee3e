//! The parser with valid frames, frames with one invalid member, and nonsense.

use super::*;
use crate::wire::channel::PeerRole;

const HEADER: &str =
    r#"{"msg_id":"m1","parent_id":null,"type":"request","from":"a","to":"hub","timestamp":1674480000}"#;
const RUN: &str = "run_00000000000000000000000000000007";

fn frame(payload: &str) -> String {
    format!(r#"{{"header":{HEADER},"payload":{payload}}}"#)
}

fn refused(text: &str) -> (Code, Option<String>, Option<String>) {
    let error = Envelope::parse(text).and_then(|envelope| Action::read(&envelope).map(drop)).unwrap_err();
    assert!(!error.message.is_empty());
    (error.code, error.field, error.msg_id)
}

#[test]
fn the_seeds_frame_round_trips() {
    let text = concat!(
        r#"{"header":{"msg_id":"7f9c","parent_id":"6a","type":"chunk","from":"agent_id_1","to":"agent_id_2","timestamp":1674480000,"seq":4},"#,
        r#""metadata":{"trace_id":"global_trace_id","ttl":3,"auth_token":"bearer ak_x"},"payload":{"z":1.0, "action":"x","big":9007199254740993}}"#
    );
    let envelope = Envelope::parse(text).unwrap();
    assert_eq!(envelope.to_text(), text);
    assert_eq!((envelope.trace_id(), envelope.ttl()), (Some("global_trace_id"), Some(3)));
    assert_eq!(envelope.auth_token().unwrap().expose(), "ak_x");
    assert_eq!(envelope.action().as_deref(), Some("x"));
    assert!(!format!("{envelope:?}").contains("ak_x"), "a token does not print");
}

#[test]
fn unknown_members_are_ignored_and_null_means_absent() {
    let text = r#"{"header":{"msg_id":"m","type":"notification","timestamp":1.9,"to":"","from":null,"x":{}},"metadata":null,"payload":{"action":"ready","credits":2,"y":[]},"z":0}"#;
    let envelope = Envelope::parse(text).unwrap();
    assert_eq!(envelope.header.timestamp, 1);
    assert_eq!(Action::read(&envelope).unwrap(), Action::Ready(Ready { credits: 2, enforces: None }));
}

#[test]
fn each_error_names_its_member() {
    let whole = |header: &str| format!(r#"{{"header":{header},"payload":{{"action":"drain"}}}}"#);
    let field = |text: &str| refused(text).1;
    for (header, wrong) in [
        ("7", "header"),
        ("[]", "header"),
        ("{}", "header.msg_id"),
        (r#"{"msg_id":7}"#, "header.msg_id"),
        (r#"{"msg_id":""}"#, "header.msg_id"),
        (r#"{"msg_id":"a\nb"}"#, "header.msg_id"),
        (r#"{"msg_id":"m"}"#, "header.type"),
        (r#"{"msg_id":"m","type":"shout","timestamp":1}"#, "header.type"),
        (r#"{"msg_id":"m","type":"request"}"#, "header.timestamp"),
        (r#"{"msg_id":"m","type":"request","timestamp":"1"}"#, "header.timestamp"),
        (r#"{"msg_id":"m","type":"request","timestamp":1e99}"#, "header.timestamp"),
        (r#"{"msg_id":"m","type":"request","timestamp":1,"seq":0}"#, "header.seq"),
        (r#"{"msg_id":"m","type":"request","timestamp":1,"seq":"1"}"#, "header.seq"),
        (r#"{"msg_id":"m","type":"request","timestamp":1,"from":{}}"#, "header.from"),
        (r#"{"msg_id":"m","type":"request","timestamp":1,"parent_id":1}"#, "header.parent_id"),
    ] {
        assert_eq!(field(&whole(header)).as_deref(), Some(wrong), "{header}");
    }
    for (payload, wrong) in [
        ("7", "payload"),
        ("null", "payload"),
        ("{}", "payload.action"),
        (r#"{"action":1}"#, "payload.action"),
        (r#"{"action":"dance"}"#, "payload.action"),
        (r#"{"action":"ready"}"#, "payload.credits"),
        (r#"{"action":"ready","credits":1.5}"#, "payload.credits"),
        (r#"{"action":"register","peer_role":"boss"}"#, "payload.peer_role"),
        (r#"{"action":"resume","channel_id":"run_1","resume_token":"x","last_seq":1}"#, "payload.channel_id"),
        (r#"{"action":"chunk","task_run_id":"x","epoch":1,"text":""}"#, "payload.task_run_id"),
        (&format!(r#"{{"action":"chunk","task_run_id":"{RUN}","text":""}}"#), "payload.epoch"),
        (&format!(r#"{{"action":"progress","task_run_id":"{RUN}","epoch":1,"percent":"x"}}"#), "payload.percent"),
    ] {
        let (code, named, msg_id) = refused(&frame(payload));
        assert_eq!(
            (code, named.as_deref(), msg_id.as_deref()),
            (Code::InvalidFrame, Some(wrong), Some("m1")),
            "{payload}"
        );
    }
    let metadata = |metadata: &str| format!(r#"{{"header":{HEADER},"metadata":{metadata},"payload":{{}}}}"#);
    assert_eq!(field(&metadata("[]")).as_deref(), Some("metadata"));
    assert_eq!(field(&metadata(r#"{"ttl":"x"}"#)).as_deref(), Some("metadata.ttl"));
    assert_eq!(field(&metadata(r#"{"auth_token":1}"#)).as_deref(), Some("metadata.auth_token"));
}

#[test]
fn text_that_is_not_a_frame_is_refused() {
    assert_eq!(refused(""), (Code::InvalidJson, None, None));
    assert_eq!(refused("{"), (Code::InvalidJson, None, None));
    assert_eq!(refused("7"), (Code::InvalidFrame, None, None));
    assert_eq!(refused("[]"), (Code::InvalidFrame, None, None));
    assert_eq!(refused(&"[".repeat(100_000)), (Code::TooDeep, None, None));
    assert_eq!(refused(&" ".repeat(MAX_FRAME + 1)), (Code::TooLarge, None, None));
    let secret = crate::secret::Kind::ApiKey.generate(&crate::env::Env::seeded(1));
    let error = Envelope::parse(&frame(&format!(r#"{{"action":"{}"}}"#, secret.expose())));
    let error = error.and_then(|envelope| Action::read(&envelope).map(drop)).unwrap_err();
    assert!(!error.message.contains(secret.expose()), "{}", error.message);
}

#[test]
fn payloads_round_trip() {
    let register = Register {
        peer_role: Some(PeerRole::Worker),
        capabilities: None,
        tools: Some(Json::from_text(r#"[ {"name":"x"} ]"#).unwrap()),
        device_info: None,
        running: Some(Vec::new()),
        extensions: None,
    };
    let payload = register.payload();
    assert_eq!(payload.get(), r#"{"action":"register","peer_role":"worker","tools":[ {"name":"x"} ],"running":[]}"#);
    assert_eq!(Action::read(&Envelope::parse(&frame(payload.get())).unwrap()).unwrap(), Action::Register(register));
    assert_eq!(Drain {}.payload().get(), r#"{"action":"drain"}"#);
    let resume = Resume {
        channel_id: crate::ChannelId::from_uuid(uuid::Uuid::from_u128(1)),
        resume_token: FrameToken(Secret::new("rs_1".to_owned())),
        last_seq: 4,
    };
    assert!(resume.payload().get().contains("rs_1") && !format!("{resume:?}").contains("rs_1"));
}

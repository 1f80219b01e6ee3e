//! AWCP messages as written by others, and by us.

use super::*;

fn json(text: &str) -> Json {
    Json::from_text(text).expect("JSON")
}

#[test]
fn a_start_round_trips_byte_for_byte() {
    let text = r#"{"awcp":{"version":"1","type":"START","delegation_id":"d-1","lease":{"expires_at":"2026-01-01T00:00:00.000Z","access_mode":"rw"},"mount":{"transport":"sshfs","endpoint":{"host":"10.0.0.1","port":2022,"user":"lease","tunnel":{"url":"wss://hub/api/v1/tunnels/t","token":"secret"}},"export_locator":"x1","credential":{"type":"client_key"},"host_key":"ssh-ed25519 AAAA","mount_options":{"ro":1.0}}}}"#;
    let message = AwcpMessage::read(&json(text)).expect("a START");
    assert_eq!((message.kind(), message.delegation()), ("START", "d-1"));
    assert_eq!(message.data().get(), text);
    assert!(!format!("{message:?}").contains("secret"), "a token does not print");
}

#[test]
fn a_minimal_invite_has_defaults() {
    let text = r#"{"awcp":{"version":1,"type":"INVITE","delegation_id":"abc","x":[],"task":{"description":"d","prompt":"p"},
        "lease":{"ttl_seconds":60,"access_mode":"ro"},"workspace":{"export_name":"awcp/abc"}}}"#;
    let Ok(AwcpMessage::Invite(invite)) = AwcpMessage::read(&json(text)) else { panic!("an INVITE") };
    assert_eq!(invite.requirements, LeaseRequirements::default());
    assert_eq!(invite.lease, LeaseOffer { ttl_seconds: 60, access_mode: AccessMode::Ro });
}

#[test]
fn an_invalid_message_has_a_reason() {
    let table = [
        (r#"{"other":1}"#, AwcpParseError::NoAwcp),
        (r#"[1]"#, AwcpParseError::NoAwcp),
        (r#"{"awcp":{"version":"2","type":"DONE"}}"#, AwcpParseError::Version("2".to_owned())),
        (r#"{"awcp":{"version":"1","type":"done"}}"#, AwcpParseError::Type("done".to_owned())),
        (
            r#"{"awcp":{"version":"1","type":"DONE","delegation_id":"d"}}"#,
            AwcpParseError::Invalid("missing field `final_summary` at line 1 column 49".to_owned()),
        ),
    ];
    for (text, why) in table {
        assert_eq!(AwcpMessage::read(&json(text)), Err(why), "{text}");
    }
}

#[test]
fn one_message_is_found_among_the_parts() {
    let error = AwcpMessage::Error(AwcpError {
        delegation_id: "d".to_owned(),
        code: AwcpErrorCode::DepMissing,
        message: "no sshfs".to_owned(),
        hint: "install it".to_owned(),
    });
    let parts = [Part::text("hello"), error.part(), Part::data(json("{}"))];
    assert_eq!(AwcpMessage::among(&parts), Ok(error.clone()));
    assert_eq!(AwcpMessage::among(&parts[..1]), Err(AwcpParseError::NoAwcp));
    assert_eq!(AwcpMessage::among(&[error.part(), error.part()]), Err(AwcpParseError::SeveralAwcp));
}

#[test]
fn every_code_round_trips_and_an_unknown_one_is_task_failed() {
    for code in AwcpErrorCode::ALL {
        assert_eq!(Json::of(&code).parse::<AwcpErrorCode>().expect("a code"), code);
        assert!(!code.hint().is_empty());
    }
    assert_eq!(json("\"NEWER\"").parse::<AwcpErrorCode>().expect("a code"), AwcpErrorCode::TaskFailed);
}

#[test]
fn the_best_transport_that_both_sides_know_is_agreed() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    let (ours, sshfs) = (Some(TransportChoice::AttacheFs), Some(TransportChoice::Sshfs));
    for (wanted, usable, agreed) in [
        (None, &[ATTACHE_FS, SSHFS][..], Some(ATTACHE_FS)),
        (None, &[SSHFS, ATTACHE_FS], Some(ATTACHE_FS)),
        (None, &["newer/2", SSHFS], Some(SSHFS)),
        // A remote that names none is older than the choice.
        (None, &[], Some(SSHFS)),
        (sshfs, &[ATTACHE_FS, SSHFS], Some(SSHFS)),
        (ours, &[], None),
        (ours, &[SSHFS], None),
        (None, &["newer/2"], None),
        // A copy only if nothing can be mounted.
        (None, &[SYNC, SSHFS], Some(SSHFS)),
        (None, &[SYNC], Some(SYNC)),
        (Some(TransportChoice::Sync), &[ATTACHE_FS, SYNC], Some(SYNC)),
    ] {
        assert_eq!(TransportChoice::agree(wanted, &names(usable)), agreed, "{wanted:?} {usable:?}");
    }
    assert_eq!(TransportChoice::offered(None), [ATTACHE_FS, SSHFS, SYNC]);
    assert_eq!(TransportChoice::offered(sshfs), [SSHFS]);
    let offer =
        |offered: &[&str]| LeaseRequirements { mount_transports: names(offered), ..LeaseRequirements::default() };
    assert!(offer(&[]).offers(SSHFS) && !offer(&[]).offers(ATTACHE_FS));
    assert!(offer(&[ATTACHE_FS]).offers(ATTACHE_FS) && !offer(&[ATTACHE_FS]).offers(SSHFS));
}

//! The collaborator's side under every order of messages.

use proptest::prelude::*;

use super::*;
use crate::wire::awcp::{
    AwcpDone, AwcpLease, AwcpMount, AwcpTask, LeaseOffer, LeaseRequirements, OfferedWorkspace, RemoteMount,
    SshCredential, SshEndpoint,
};

fn start_of_time() -> Timestamp {
    "2026-01-01T00:00:00.000Z".parse().expect("a time")
}

fn after(seconds: u64) -> Timestamp {
    start_of_time().plus(Duration::from_secs(seconds))
}

fn key(caller: &str, delegation: &str) -> AssignmentKey {
    AssignmentKey { caller: caller.to_owned(), delegation: delegation.to_owned() }
}

fn invite(id: &str, ttl_seconds: u64, access_mode: AccessMode) -> AwcpInvite {
    AwcpInvite {
        delegation_id: id.to_owned(),
        task: AwcpTask { description: "d".to_owned(), prompt: "p".to_owned() },
        lease: LeaseOffer { ttl_seconds, access_mode },
        workspace: OfferedWorkspace { export_name: "x".to_owned() },
        requirements: LeaseRequirements::default(),
    }
}

fn accept(id: &str) -> AwcpAccept {
    let remote_mount = RemoteMount {
        mount_point: "/m".to_owned(),
        requires_empty_dir: true,
        client_key: None,
        transports: Vec::new(),
    };
    AwcpAccept { delegation_id: id.to_owned(), remote_mount, remote_constraints: None }
}

fn start(id: &str, expires_at: Timestamp, access_mode: AccessMode) -> AwcpMessage {
    let endpoint = SshEndpoint { host: "h".to_owned(), port: 22, user: "u".to_owned(), tunnel: None };
    let mount = AwcpMount {
        transport: SSHFS.to_owned(),
        endpoint,
        export_locator: "x".to_owned(),
        credential: SshCredential::ClientKey,
        host_key: None,
        mount_options: None,
    };
    AwcpMessage::Start(AwcpStart {
        delegation_id: id.to_owned(),
        lease: AwcpLease { expires_at, ttl_seconds: None, access_mode },
        mount,
    })
}

fn error(id: &str, code: AwcpErrorCode) -> AwcpMessage {
    AwcpMessage::Error(AwcpError::new(id, code, "x"))
}

fn done(id: &str) -> AwcpMessage {
    AwcpMessage::Done(AwcpDone {
        delegation_id: id.to_owned(),
        final_summary: "s".to_owned(),
        highlights: vec![],
        notes: None,
        full_output: None,
    })
}

fn code_of(heard: &AssignmentEffect) -> Option<AwcpErrorCode> {
    match heard {
        AssignmentEffect::Reply(AwcpMessage::Error(error)) | AssignmentEffect::Ended(AwcpMessage::Error(error)) => {
            Some(error.code)
        }
        _ => None,
    }
}

fn limits() -> CollaboratorLimits {
    CollaboratorLimits {
        access_modes: vec![AccessMode::Ro, AccessMode::Rw],
        max_ttl: Duration::from_secs(100),
        wanted: SandboxProfile::NOTHING,
        available: SandboxProfile::NOTHING,
    }
}

#[test]
fn an_offer_is_limited_by_local_policy() {
    use AccessMode::{Ro, Rw};
    type TestRow = (&'static [AccessMode], AccessMode, u64, Option<(AccessMode, u64)>);
    let table: [TestRow; 7] = [
        (&[Ro, Rw], Rw, 60, Some((Rw, 60))),
        (&[Ro, Rw], Ro, 60, Some((Ro, 60))),
        (&[Ro], Rw, 60, Some((Ro, 60))),
        (&[Ro, Rw], Rw, 5_000, Some((Rw, 100))),
        (&[Rw], Ro, 60, None),
        (&[], Rw, 60, None),
        (&[Ro, Rw], Rw, 0, None),
    ];
    for (allowed, offered, ttl, expected) in table {
        let limits = CollaboratorLimits { access_modes: allowed.to_vec(), ..limits() };
        let agreed = limits.agree(&invite("d", ttl, offered));
        let expected = expected.map(|(access_mode, ttl)| LeaseTerms { access_mode, ttl: Duration::from_secs(ttl) });
        assert_eq!(agreed.as_ref().ok(), expected.as_ref(), "{allowed:?} {offered} {ttl}");
        assert!(agreed.is_ok() || agreed.is_err_and(|error| error.code == AwcpErrorCode::Declined));
    }
}

#[test]
fn an_unenforced_requirement_declines_and_is_named() {
    let wanted = SandboxProfile { cwd_only: true, allow_network: false, allow_exec: true };
    let limits = CollaboratorLimits { wanted, ..limits() };
    let declined = limits.agree(&invite("d", 60, AccessMode::Rw)).expect_err("declined");
    assert_eq!(declined.code, AwcpErrorCode::Declined);
    assert!(declined.message.contains("cwd_only = true, allow_network = false"), "{}", declined.message);
    let available = SandboxProfile { cwd_only: true, allow_network: false, allow_exec: false };
    assert!(
        CollaboratorLimits { available, ..limits }.agree(&invite("d", 60, AccessMode::Rw)).is_ok(),
        "more than is wanted"
    );
}

#[test]
fn the_normal_sequence_and_every_repetition() {
    let (mut book, key) = (AssignmentBook::default(), key("a", "d"));
    let invitation = invite("d", 60, AccessMode::Rw);
    let invited = AwcpMessage::Invite(invitation.clone());
    assert_eq!(book.receive(&key, &invited, after(0)), AssignmentEffect::Invited);
    let terms = LeaseTerms { access_mode: AccessMode::Ro, ttl: Duration::from_secs(50) };
    let accepted = book.accept(&key, &invitation, accept("d"), terms, after(0));
    assert_eq!(accepted, AwcpMessage::Accept(accept("d")));
    assert_eq!(book.receive(&key, &invited, after(1)), AssignmentEffect::Reply(accepted));
    let begin =
        AssignmentEffect::Begin { terms: LeaseTerms { ttl: Duration::from_secs(40), ..terms }, deadline: after(42) };
    assert_eq!(
        book.receive(&key, &start("d", after(42), AccessMode::Rw), after(2)),
        begin,
        "never more than was accepted"
    );
    assert_eq!(book.receive(&key, &start("d", after(42), AccessMode::Rw), after(3)), AssignmentEffect::Underway);
    assert_eq!(book.receive(&key, &invited, after(4)), AssignmentEffect::Underway);
    assert_eq!(book.end(&key, done("d")), done("d"));
    assert_eq!(book.end(&key, error("d", AwcpErrorCode::TaskFailed)), done("d"), "the first end is the one");
    assert_eq!(book.receive(&key, &invited, after(5)), AssignmentEffect::Reply(done("d")));
    assert_eq!(book.receive(&key, &error("d", AwcpErrorCode::Cancelled), after(5)), AssignmentEffect::Reply(done("d")));
    let late = book.receive(&key, &start("d", after(60), AccessMode::Rw), after(6));
    assert_eq!(code_of(&late), Some(AwcpErrorCode::StartExpired));
}

#[test]
fn messages_out_of_order_are_refused() {
    let mut book = AssignmentBook::default();
    let unknown = book.receive(&key("a", "d"), &start("d", after(60), AccessMode::Rw), after(0));
    assert_eq!(code_of(&unknown), Some(AwcpErrorCode::StartExpired));
    assert_eq!(code_of(&book.receive(&key("a", "d"), &done("d"), after(0))), Some(AwcpErrorCode::Declined));
    let invitation = invite("d", 60, AccessMode::Rw);
    let terms = LeaseTerms { access_mode: AccessMode::Rw, ttl: Duration::from_secs(60) };
    book.accept(&key("a", "d"), &invitation, accept("d"), terms, after(0));
    let other = AwcpMessage::Invite(invite("d", 61, AccessMode::Rw));
    assert_eq!(code_of(&book.receive(&key("a", "d"), &other, after(0))), Some(AwcpErrorCode::Declined));
    let stranger = book.receive(&key("b", "d"), &start("d", after(60), AccessMode::Rw), after(1));
    assert_eq!(code_of(&stranger), Some(AwcpErrorCode::StartExpired), "another caller starts nothing");
    let early = book.receive(&key("a", "d"), &start("d", after(1), AccessMode::Rw), after(1));
    assert_eq!(code_of(&early), Some(AwcpErrorCode::StartExpired), "a lease that is over");
    // The end arrived first.
    let ended = book.receive(&key("a", "e"), &error("e", AwcpErrorCode::Cancelled), after(0));
    assert_eq!(ended, AssignmentEffect::Ended(error("e", AwcpErrorCode::Cancelled)));
    let late = book.receive(&key("a", "e"), &AwcpMessage::Invite(invite("e", 60, AccessMode::Rw)), after(1));
    assert_eq!(late, AssignmentEffect::Reply(error("e", AwcpErrorCode::Cancelled)));
}

#[test]
fn old_ended_delegations_are_dropped() {
    let mut book = AssignmentBook::default();
    for number in 0..MAX_REMEMBERED + 10 {
        let id = number.to_string();
        book.receive(&key("a", &id), &error(&id, AwcpErrorCode::Cancelled), after(0));
    }
    assert_eq!((book.assignments.len(), book.ended.len()), (MAX_REMEMBERED, MAX_REMEMBERED));
    for number in 0..MAX_OPEN {
        let id = format!("open {number}");
        let invitation = invite(&id, 60, AccessMode::Rw);
        assert_eq!(
            book.receive(&key("a", &id), &AwcpMessage::Invite(invitation.clone()), after(0)),
            AssignmentEffect::Invited
        );
        let terms = LeaseTerms { access_mode: AccessMode::Rw, ttl: Duration::from_secs(60) };
        book.accept(&key("a", &id), &invitation, accept(&id), terms, after(0));
    }
    let more = book.receive(&key("a", "more"), &AwcpMessage::Invite(invite("more", 60, AccessMode::Rw)), after(0));
    assert_eq!(code_of(&more), Some(AwcpErrorCode::Declined));
}

#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "a few of them, in a test")]
enum TestStep {
    Hear(usize, AwcpMessage),
    End(usize),
}

fn steps() -> impl Strategy<Value = TestStep> {
    let id = 0..2_usize;
    let name = |id: usize| format!("d{id}");
    let mode = prop_oneof![Just(AccessMode::Ro), Just(AccessMode::Rw)];
    prop_oneof![
        4 => (id.clone(), 1..3_u64).prop_map(move |(id, ttl)| {
            TestStep::Hear(id, AwcpMessage::Invite(invite(&name(id), ttl * 40, AccessMode::Rw)))
        }),
        4 => (id.clone(), 0..200_u64, mode).prop_map(move |(id, until, mode)| {
            TestStep::Hear(id, start(&name(id), after(until), mode))
        }),
        1 => id.clone().prop_map(move |id| TestStep::Hear(id, error(&name(id), AwcpErrorCode::Cancelled))),
        1 => id.prop_map(TestStep::End),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_sequence_of_messages_keeps_the_invariants(steps in proptest::collection::vec((steps(), 0..30_u64), 0..40)) {
        let (mut book, limits, mut seconds) = (AssignmentBook::default(), limits(), 0);
        let (mut begun, mut ended) = ([0, 0], [None::<AwcpMessage>, None]);
        for (step, later) in steps {
            seconds += later;
            let now = after(seconds);
            let (id, message) = match step {
                TestStep::Hear(id, message) => (id, message),
                TestStep::End(id) => {
                    let last = book.end(&key("a", &format!("d{id}")), done(&format!("d{id}")));
                    prop_assert_eq!(ended[id].get_or_insert(last.clone()), &last, "an end never changes");
                    continue;
                }
            };
            let key = key("a", &format!("d{id}"));
            let was_open = book.deadline(&key).is_some_and(|deadline| now < deadline);
            let heard = book.receive(&key, &message, now);
            match &heard {
                AssignmentEffect::Invited => {
                    prop_assert!(ended[id].is_none() && begun[id] == 0);
                    let AwcpMessage::Invite(invitation) = &message else { panic!("only INVITE invites") };
                    let terms = limits.agree(invitation).expect("these limits take it");
                    let reply = book.accept(&key, invitation, accept(&key.delegation), terms, now);
                    prop_assert_eq!(book.receive(&key, &message, now), AssignmentEffect::Reply(reply));
                }
                AssignmentEffect::Begin { terms, deadline } => {
                    begun[id] += 1;
                    prop_assert_eq!(begun[id], 1, "nothing begins twice");
                    prop_assert!(ended[id].is_none() && was_open);
                    prop_assert!(now < *deadline && *deadline <= now.plus(limits.max_ttl));
                    prop_assert_eq!(deadline.since(now), terms.ttl);
                    prop_assert_eq!(book.receive(&key, &message, now), AssignmentEffect::Underway);
                }
                AssignmentEffect::Ended(last) => {
                    prop_assert_eq!(ended[id].replace(last.clone()), None);
                }
                // The same message at the same time gets the same answer.
                AssignmentEffect::Reply(_) | AssignmentEffect::Underway => prop_assert_eq!(&book.receive(&key, &message, now), &heard),
            }
            if let (AwcpMessage::Invite(_), AssignmentEffect::Reply(reply @ (AwcpMessage::Error(_) | AwcpMessage::Done(_)))) = (&message, &heard)
                && book.deadline(&key).is_none() && book.invite(&key).is_some_and(|known| AwcpMessage::Invite(known.clone()) == message)
            {
                prop_assert_eq!(ended[id].get_or_insert(reply.clone()), reply, "the stored reply is the last word");
            }
        }
    }
}

#[test]
fn a_wrong_remote_clock_does_not_end_a_lease() {
    // By the remote's clock, the lease ended a day before START arrived.
    let (mut book, key, now) = (AssignmentBook::default(), key("a", "d"), after(86_400));
    let invitation = invite("d", 60, AccessMode::Rw);
    assert_eq!(book.receive(&key, &AwcpMessage::Invite(invitation.clone()), now), AssignmentEffect::Invited);
    let terms = LeaseTerms { access_mode: AccessMode::Rw, ttl: Duration::from_secs(60) };
    book.accept(&key, &invitation, accept("d"), terms, now);
    let AwcpMessage::Start(mut started) = start("d", after(60), AccessMode::Rw) else { return };
    started.lease.ttl_seconds = Some(40);
    let deadline = now.plus(Duration::from_secs(40));
    let begin = AssignmentEffect::Begin { terms: LeaseTerms { ttl: Duration::from_secs(40), ..terms }, deadline };
    assert_eq!(book.receive(&key, &AwcpMessage::Start(started), now), begin);
}

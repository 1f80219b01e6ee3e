//! The delegation lifecycle under every order of commands.

use proptest::prelude::*;

use super::*;

fn start() -> Timestamp {
    "2026-01-01T00:00:00.000Z".parse().expect("a time")
}

fn terms(access_mode: AccessMode, seconds: u64) -> LeaseTerms {
    LeaseTerms { access_mode, ttl: Duration::from_secs(seconds) }
}

fn codes() -> impl Strategy<Value = AwcpErrorCode> {
    proptest::sample::select(AwcpErrorCode::ALL.to_vec())
}

fn modes() -> impl Strategy<Value = AccessMode> {
    prop_oneof![Just(AccessMode::Ro), Just(AccessMode::Rw)]
}

fn commands() -> impl Strategy<Value = DelegationCommand> {
    let constraints = (proptest::option::of(modes()), proptest::option::of(0..200_u64)).prop_map(|(mode, most)| {
        DelegationCommand::Accept(RemoteConstraints {
            accepted_access_mode: mode,
            max_ttl_seconds: most,
            sandbox_profile: None,
            sandbox_proof: None,
        })
    });
    prop_oneof![
        3 => Just(DelegationCommand::Invite),
        3 => constraints,
        3 => Just(DelegationCommand::Start),
        3 => Just(DelegationCommand::Work),
        1 => Just(DelegationCommand::Complete),
        1 => codes().prop_map(DelegationCommand::Fail),
        1 => Just(DelegationCommand::Cancel),
        2 => Just(DelegationCommand::Tick),
    ]
}

/// How far a status has progressed.
fn rank(status: DelegationStatus) -> usize {
    DelegationStatus::ALL.iter().position(|&each| each == status).expect("every status is listed").min(5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_sequence_of_commands_keeps_the_invariants(
        offered in (modes(), 1..100_u64),
        steps in proptest::collection::vec((commands(), 0..40_u64), 0..40),
    ) {
        let offered = terms(offered.0, offered.1);
        let mut now = start();
        let mut state = DelegationState::new(offered, now);
        for (command, later) in steps {
            now = now.plus(Duration::from_secs(later));
            let before = state;
            let Ok(DelegationTransition { state: after, effects }) = state.step(&command, now) else { continue };
            // Nothing comes after the end, and nothing goes backwards.
            prop_assert!(!before.status.has_ended());
            prop_assert!(rank(after.status) >= rank(before.status));
            // Never more than was offered.
            prop_assert!(after.terms.ttl <= offered.ttl);
            prop_assert!(offered.access_mode == AccessMode::Rw || after.terms.access_mode == AccessMode::Ro);
            // An end is reported once. A lease is revoked exactly when it ends, before anything else.
            prop_assert_eq!(effects.contains(&DelegationEffect::Report), after.status.has_ended());
            prop_assert_eq!(effects.first() == Some(&DelegationEffect::Revoke), after.status.has_ended() && before.is_exported());
            // Nothing starts or continues after the deadline.
            if now >= before.deadline && !after.status.has_ended() {
                prop_assert!(false, "{command:?} at {now} went on to {after:?}");
            }
            state = after;
        }
        // In any state, one tick after the deadline ends it.
        let late = state.deadline;
        if !state.status.has_ended() {
            let ended = state.step(&DelegationCommand::Tick, late).expect("a tick is always taken").state;
            prop_assert_eq!(ended.status, DelegationStatus::Expired);
        }
    }
}

#[test]
fn the_normal_sequence() {
    let now = start();
    let mut state = DelegationState::new(terms(AccessMode::Rw, 60), now);
    let downgrade = RemoteConstraints {
        accepted_access_mode: Some(AccessMode::Ro),
        max_ttl_seconds: Some(30),
        sandbox_profile: None,
        sandbox_proof: None,
    };
    let way = [
        (DelegationCommand::Invite, DelegationStatus::Invited, vec![]),
        (DelegationCommand::Accept(downgrade), DelegationStatus::Accepted, vec![]),
        (DelegationCommand::Start, DelegationStatus::Started, vec![]),
        (DelegationCommand::Work, DelegationStatus::Running, vec![]),
        (DelegationCommand::Work, DelegationStatus::Running, vec![]),
        (
            DelegationCommand::Complete,
            DelegationStatus::Completed,
            vec![DelegationEffect::Revoke, DelegationEffect::Report],
        ),
    ];
    for (command, status, effects) in way {
        let transition = state.step(&command, now).expect("in turn");
        assert_eq!((transition.state.status, transition.effects), (status, effects), "{command:?}");
        state = transition.state;
    }
    assert_eq!(state.terms, terms(AccessMode::Ro, 30));
    assert_eq!(state.deadline, now.plus(Duration::from_secs(30)));
    assert_eq!(state.step(&DelegationCommand::Cancel, now), Err(DelegationRefusal::Ended(DelegationStatus::Completed)));
}

#[test]
fn each_end_has_its_effects() {
    let now = start();
    let running =
        DelegationState { status: DelegationStatus::Running, ..DelegationState::new(terms(AccessMode::Rw, 60), now) };
    let invited = DelegationState { status: DelegationStatus::Invited, ..running };
    let created = DelegationState { status: DelegationStatus::Created, ..running };
    let late = now.plus(Duration::from_secs(60));
    let told = |code| vec![DelegationEffect::Revoke, DelegationEffect::Tell(code), DelegationEffect::Report];
    let table = [
        (running, DelegationCommand::Cancel, now, DelegationStatus::Cancelled, told(AwcpErrorCode::Cancelled)),
        (running, DelegationCommand::Tick, late, DelegationStatus::Expired, told(AwcpErrorCode::Expired)),
        (running, DelegationCommand::Work, late, DelegationStatus::Expired, told(AwcpErrorCode::Expired)),
        (
            running,
            DelegationCommand::Fail(AwcpErrorCode::MountFailed),
            now,
            DelegationStatus::Error,
            vec![DelegationEffect::Revoke, DelegationEffect::Report],
        ),
        (
            running,
            DelegationCommand::Fail(AwcpErrorCode::Expired),
            now,
            DelegationStatus::Expired,
            vec![DelegationEffect::Revoke, DelegationEffect::Report],
        ),
        (
            running,
            DelegationCommand::Complete,
            late,
            DelegationStatus::Completed,
            vec![DelegationEffect::Revoke, DelegationEffect::Report],
        ),
        (
            invited,
            DelegationCommand::Fail(AwcpErrorCode::Declined),
            now,
            DelegationStatus::Error,
            vec![DelegationEffect::Report],
        ),
        (
            invited,
            DelegationCommand::Cancel,
            now,
            DelegationStatus::Cancelled,
            vec![DelegationEffect::Tell(AwcpErrorCode::Cancelled), DelegationEffect::Report],
        ),
        (created, DelegationCommand::Cancel, now, DelegationStatus::Cancelled, vec![DelegationEffect::Report]),
    ];
    for (state, command, at, status, effects) in table {
        let transition = state.step(&command, at).expect("taken");
        assert_eq!((transition.state.status, transition.effects), (status, effects), "{command:?}");
    }
    let more = RemoteConstraints { accepted_access_mode: Some(AccessMode::Rw), ..RemoteConstraints::default() };
    let ro = DelegationState { terms: terms(AccessMode::Ro, 60), ..invited };
    assert_eq!(
        ro.step(&DelegationCommand::Accept(more), now),
        Err(DelegationRefusal::BadTerms(LeaseTermsError::MoreAccess))
    );
}

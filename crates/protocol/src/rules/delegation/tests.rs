//! The delegation's life under every order of commands.

use proptest::prelude::*;

use super::*;

fn start() -> Timestamp {
    "2026-01-01T00:00:00.000Z".parse().expect("a time")
}

fn terms(access_mode: AccessMode, seconds: u64) -> Terms {
    Terms { access_mode, ttl: Duration::from_secs(seconds) }
}

fn codes() -> impl Strategy<Value = ErrorCode> {
    proptest::sample::select(ErrorCode::ALL.to_vec())
}

fn modes() -> impl Strategy<Value = AccessMode> {
    prop_oneof![Just(AccessMode::Ro), Just(AccessMode::Rw)]
}

fn commands() -> impl Strategy<Value = Command> {
    let constraints = (proptest::option::of(modes()), proptest::option::of(0..200_u64)).prop_map(|(mode, most)| {
        Command::Accept(RemoteConstraints { accepted_access_mode: mode, max_ttl_seconds: most, sandbox_profile: None })
    });
    prop_oneof![
        3 => Just(Command::Invite),
        3 => constraints,
        3 => Just(Command::Start),
        3 => Just(Command::Work),
        1 => Just(Command::Complete),
        1 => codes().prop_map(Command::Fail),
        1 => Just(Command::Cancel),
        2 => Just(Command::Tick),
    ]
}

/// How far a status is on the way.
fn rank(status: Status) -> usize {
    Status::ALL.iter().position(|&each| each == status).expect("every status is listed").min(5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn whatever_happens(
        offered in (modes(), 1..100_u64),
        steps in proptest::collection::vec((commands(), 0..40_u64), 0..40),
    ) {
        let offered = terms(offered.0, offered.1);
        let mut now = start();
        let mut state = State::new(offered, now);
        for (command, later) in steps {
            now = now.plus(Duration::from_secs(later));
            let before = state;
            let Ok(Transition { state: after, effects }) = state.step(&command, now) else { continue };
            // Nothing comes after the end, and nothing goes backwards.
            prop_assert!(!before.status.has_ended());
            prop_assert!(rank(after.status) >= rank(before.status));
            // Never more than was offered.
            prop_assert!(after.terms.ttl <= offered.ttl);
            prop_assert!(offered.access_mode == AccessMode::Rw || after.terms.access_mode == AccessMode::Ro);
            // An end is reported once; a lease is taken back exactly when it ends, first of all.
            prop_assert_eq!(effects.contains(&Effect::Report), after.status.has_ended());
            prop_assert_eq!(effects.first() == Some(&Effect::Revoke), after.status.has_ended() && before.is_lent());
            // Nothing begins or goes on after the deadline.
            if now >= before.deadline && !after.status.has_ended() {
                prop_assert!(false, "{command:?} at {now} went on to {after:?}");
            }
            state = after;
        }
        // However it stands, one tick after the deadline it is over.
        let late = state.deadline;
        if !state.status.has_ended() {
            let ended = state.step(&Command::Tick, late).expect("a tick is always taken").state;
            prop_assert_eq!(ended.status, Status::Expired);
        }
    }
}

#[test]
fn the_plain_way_to_the_end() {
    let now = start();
    let mut state = State::new(terms(AccessMode::Rw, 60), now);
    let downgrade = RemoteConstraints {
        accepted_access_mode: Some(AccessMode::Ro),
        max_ttl_seconds: Some(30),
        sandbox_profile: None,
    };
    let way = [
        (Command::Invite, Status::Invited, vec![]),
        (Command::Accept(downgrade), Status::Accepted, vec![]),
        (Command::Start, Status::Started, vec![]),
        (Command::Work, Status::Running, vec![]),
        (Command::Work, Status::Running, vec![]),
        (Command::Complete, Status::Completed, vec![Effect::Revoke, Effect::Report]),
    ];
    for (command, status, effects) in way {
        let transition = state.step(&command, now).expect("in turn");
        assert_eq!((transition.state.status, transition.effects), (status, effects), "{command:?}");
        state = transition.state;
    }
    assert_eq!(state.terms, terms(AccessMode::Ro, 30));
    assert_eq!(state.deadline, now.plus(Duration::from_secs(30)));
    assert_eq!(state.step(&Command::Cancel, now), Err(Refusal::Ended(Status::Completed)));
}

#[test]
fn the_ends_and_what_they_do() {
    let now = start();
    let running = State { status: Status::Running, ..State::new(terms(AccessMode::Rw, 60), now) };
    let invited = State { status: Status::Invited, ..running };
    let created = State { status: Status::Created, ..running };
    let late = now.plus(Duration::from_secs(60));
    let told = |code| vec![Effect::Revoke, Effect::Tell(code), Effect::Report];
    let table = [
        (running, Command::Cancel, now, Status::Cancelled, told(ErrorCode::Cancelled)),
        (running, Command::Tick, late, Status::Expired, told(ErrorCode::Expired)),
        (running, Command::Work, late, Status::Expired, told(ErrorCode::Expired)),
        (running, Command::Fail(ErrorCode::MountFailed), now, Status::Error, vec![Effect::Revoke, Effect::Report]),
        (running, Command::Fail(ErrorCode::Expired), now, Status::Expired, vec![Effect::Revoke, Effect::Report]),
        (running, Command::Complete, late, Status::Completed, vec![Effect::Revoke, Effect::Report]),
        (invited, Command::Fail(ErrorCode::Declined), now, Status::Error, vec![Effect::Report]),
        (invited, Command::Cancel, now, Status::Cancelled, vec![Effect::Tell(ErrorCode::Cancelled), Effect::Report]),
        (created, Command::Cancel, now, Status::Cancelled, vec![Effect::Report]),
    ];
    for (state, command, at, status, effects) in table {
        let transition = state.step(&command, at).expect("taken");
        assert_eq!((transition.state.status, transition.effects), (status, effects), "{command:?}");
    }
    let more = RemoteConstraints { accepted_access_mode: Some(AccessMode::Rw), ..RemoteConstraints::default() };
    let ro = State { terms: terms(AccessMode::Ro, 60), ..invited };
    assert_eq!(ro.step(&Command::Accept(more), now), Err(Refusal::BadTerms(BadTerms::MoreAccess)));
}

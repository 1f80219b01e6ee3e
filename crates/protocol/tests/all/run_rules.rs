//! Properties of a run's lifecycle for every sequence of commands.

use std::time::Duration;

use attache_protocol::{
    RuntimeId, Timestamp,
    rules::run::{
        FailureCode, LifecycleEvent, OutcomeDigest, RunCommand, RunLifecycle, RunLimits, RunPhase, RunRefusal,
        RunStatus, RunTransition, RunWaits, WaitReason, WorkerRef, apply, next_deadline,
    },
};
use proptest::prelude::*;
use uuid::Uuid;

const START: Timestamp = Timestamp::from_millis(1_000_000);

fn runtime() -> impl Strategy<Value = RuntimeId> {
    (0..3_u128).prop_map(|n| RuntimeId::from_uuid(Uuid::from_u128(n)))
}

fn worker() -> impl Strategy<Value = WorkerRef> {
    (runtime(), proptest::option::of(0..4_i64)).prop_map(|(runtime, epoch)| WorkerRef { runtime, epoch })
}

fn lease() -> impl Strategy<Value = Duration> {
    (1..5_000_u64).prop_map(Duration::from_millis)
}

fn digest() -> impl Strategy<Value = OutcomeDigest> {
    (0..3_u8).prop_map(|byte| OutcomeDigest([byte; 16]))
}

fn waiting() -> impl Strategy<Value = WaitReason> {
    prop_oneof![Just(WaitReason::Approval), Just(WaitReason::Input)]
}

fn command() -> impl Strategy<Value = RunCommand> {
    prop_oneof![
        3 => (runtime(), lease()).prop_map(|(runtime, lease)| RunCommand::Claim { runtime, lease }),
        2 => (worker(), lease()).prop_map(|(by, lease)| RunCommand::Progress { by, lease }),
        2 => (runtime(), lease()).prop_map(|(runtime, lease)| RunCommand::Renew { runtime, lease }),
        1 => (worker(), digest()).prop_map(|(by, outcome)| RunCommand::Complete { by, outcome }),
        1 => (worker(), digest()).prop_map(|(by, outcome)| RunCommand::Fail { by, code: FailureCode::TaskFailed, outcome }),
        1 => (worker(), 0..5_000_i64).prop_map(|(by, after)| RunCommand::Defer { by, until: START.plus(Duration::from_millis(after.cast_unsigned())) }),
        1 => worker().prop_map(|by| RunCommand::Release { by }),
        1 => digest().prop_map(|outcome| RunCommand::Cancel { outcome }),
        3 => (worker(), waiting(), lease()).prop_map(|(by, what, lease)| RunCommand::Ask { by, what, lease }),
        3 => waiting().prop_map(|what| RunCommand::Answer { what }),
        1 => Just(RunCommand::Halt { code: FailureCode::PermissionDenied }),
        1 => Just(RunCommand::Undelivered),
        1 => Just(RunCommand::Lose),
        2 => Just(RunCommand::Tick),
    ]
}

fn limits() -> impl Strategy<Value = RunLimits> {
    (1..4_i64, 1..20_000_u64, 1..20_000_u64).prop_map(|(max_attempts, timeout, queue_ttl)| RunLimits {
        max_attempts,
        timeout: Duration::from_millis(timeout),
        queue_ttl: Duration::from_millis(queue_ttl),
    })
}

fn steps() -> impl Strategy<Value = Vec<(RunCommand, u64)>> {
    proptest::collection::vec((command(), 0..3_000_u64), 0..60)
}

/// Runs the commands and passes every step to `check(before, command, result, now)`.
fn walk(
    limits: RunLimits,
    steps: &[(RunCommand, u64)],
    mut check: impl FnMut(&RunLifecycle, &RunCommand, &Result<RunTransition, RunRefusal>, Timestamp),
) -> (RunLifecycle, Timestamp) {
    let (mut state, mut now) = (RunLifecycle::created(limits, START), START);
    for (command, pause) in steps {
        now = now.plus(Duration::from_millis(*pause));
        let result = apply(&state, command, now);
        check(&state, command, &result, now);
        if let Ok(transition) = result {
            state = transition.state;
        }
    }
    (state, now)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn no_run_lasts_forever(limits in limits(), steps in steps()) {
        let (mut state, mut now) = walk(limits, &steps, |_, _, _, _| {});
        // Questions have their own deadlines, which settle them.
        while let Some(what) = state.waiting() {
            prop_assert_eq!(next_deadline(&state), None);
            prop_assert_eq!(&apply(&state, &RunCommand::Tick, Timestamp::from_millis(i64::MAX / 2)).unwrap().state, &state);
            state = apply(&state, &RunCommand::Answer { what }, now).unwrap().state;
            if state.waiting().is_none() {
                prop_assert!(state.claim().is_some_and(|claim| claim.lease_until > now), "{:?}", state);
            }
        }
        // Left alone, a run ends by its own deadlines: one for the claim or the usage limit, one for the queue.
        for _ in 0..3 {
            let Some(deadline) = next_deadline(&state) else { break };
            now = now.max(deadline);
            state = apply(&state, &RunCommand::Tick, now).unwrap().state;
        }
        prop_assert!(state.status().is_terminal(), "{state:?}");
    }

    #[test]
    fn a_terminal_state_never_changes(limits in limits(), steps in steps()) {
        walk(limits, &steps, |before, _, result, _| {
            if before.status().is_terminal() && let Ok(after) = result {
                assert_eq!((&after.state, after.event), (before, None));
            }
        });
    }

    #[test]
    fn a_stale_epoch_changes_nothing(limits in limits(), steps in steps()) {
        walk(limits, &steps, |before, command, result, _| {
            let epoch = match command {
                RunCommand::Progress { by, .. } | RunCommand::Complete { by, .. } | RunCommand::Fail { by, .. }
                | RunCommand::Release { by } | RunCommand::Defer { by, .. } | RunCommand::Ask { by, .. } => by.epoch,
                RunCommand::Claim { .. } | RunCommand::Renew { .. } | RunCommand::Cancel { .. } | RunCommand::Answer { .. }
                | RunCommand::Halt { .. } | RunCommand::Undelivered | RunCommand::Lose | RunCommand::Tick => None,
            };
            if epoch.is_some_and(|epoch| epoch != before.epoch) {
                assert_eq!(*result, Err(RunRefusal::StaleEpoch));
            }
        });
    }

    #[test]
    fn attempts_and_epochs_are_bounded_and_grow(limits in limits(), steps in steps()) {
        walk(limits, &steps, |before, command, result, _| {
            let Ok(after) = result else { return };
            assert!(after.state.attempt <= limits.max_attempts && after.state.attempt >= 0, "{after:?}");
            let claimed = matches!(command, RunCommand::Claim { .. });
            assert_eq!(after.state.epoch, before.epoch + i64::from(claimed));
        });
    }

    #[test]
    fn a_run_is_running_no_longer_than_its_lease_and_time_out(limits in limits(), steps in steps()) {
        walk(limits, &steps, |_, command, result, now| {
            if let (RunCommand::Tick, Ok(after)) = (command, result)
                && let RunPhase::Running(claim) = &after.state.phase
            {
                let waits = claim.waits;
                let works_in_time = claim.claimed_at.plus(limits.timeout).plus(waits.waited) > now;
                assert!(waits.waiting().is_some() || claim.lease_until > now && works_in_time);
            }
        });
    }

    #[test]
    fn only_the_holder_reports(limits in limits(), steps in steps()) {
        walk(limits, &steps, |before, command, result, _| {
            if let (
                RunCommand::Complete { by, .. } | RunCommand::Fail { by, .. } | RunCommand::Progress { by, .. }
                | RunCommand::Ask { by, .. } | RunCommand::Defer { by, .. } | RunCommand::Release { by },
                Ok(after),
            ) = (command, result)
                && after.state != *before
            {
                assert_eq!(before.claim().map(|claim| claim.runtime), Some(by.runtime));
                assert_eq!(before.status(), RunStatus::Running);
            }
        });
    }

    /// The working time of a claim is counted here by hand, step by step.
    #[test]
    fn waiting_never_counts_toward_the_time_out(limits in limits(), steps in steps()) {
        let (mut worked, mut last) = (Duration::ZERO, START);
        walk(limits, &steps, |before, command, result, now| {
            if before.claim().is_some() && before.waiting().is_none() {
                worked += now.since(last);
            }
            last = now;
            let Ok(after) = result else { return };
            match (command, after.event) {
                (RunCommand::Claim { .. }, Some(LifecycleEvent::Claimed)) => worked = Duration::ZERO,
                (RunCommand::Tick, Some(LifecycleEvent::Failed { code: FailureCode::TimedOut })) => {
                    assert!(before.waiting().is_none() && worked >= limits.timeout, "{before:?} worked {worked:?}");
                }
                (RunCommand::Tick, None) if after.state.claim().is_some() => {
                    assert!(before.waiting().is_some() || worked < limits.timeout, "{before:?} worked {worked:?}");
                }
                _ => {}
            }
        });
    }

    /// Open questions are counted here by hand.
    #[test]
    fn questions_and_answers_balance(limits in limits(), steps in steps()) {
        let mut open = [0_u32; 2];
        walk(limits, &steps, |before, command, result, now| {
            let Ok(after) = result else { return };
            let place = |what: &WaitReason| usize::from(*what == WaitReason::Input);
            match command {
                RunCommand::Ask { what, .. } => open[place(what)] += 1,
                RunCommand::Answer { what } => open[place(what)] = open[place(what)].saturating_sub(1),
                _ => {}
            }
            let Some(claim) = after.state.claim() else {
                open = [0; 2];
                return;
            };
            let RunWaits { approvals, inputs, since, .. } = claim.waits;
            assert_eq!([approvals, inputs], open);
            assert!(since.is_some() || open == [0; 2]);
            assert!(since.is_none_or(|since| since <= now));
            let waits_for = match open {
                [0, 0] => None,
                [0, _] => Some(WaitReason::Input),
                _ => Some(WaitReason::Approval),
            };
            assert_eq!(after.state.waiting(), waits_for);
            // An event is emitted exactly when it changes.
            if let RunCommand::Ask { .. } | RunCommand::Answer { .. } = command {
                let told = (before.waiting() != waits_for).then_some(LifecycleEvent::Waiting { waiting: waits_for });
                assert_eq!(after.event, told);
            }
        });
    }

    #[test]
    fn only_a_claim_without_reports_can_be_released(limits in limits(), steps in steps()) {
        walk(limits, &steps, |before, command, result, _| {
            let begun = before.claim().is_some_and(|claim| claim.begun);
            match (command, result) {
                (RunCommand::Release { .. }, Ok(_)) => assert!(!begun),
                (RunCommand::Release { .. }, Err(RunRefusal::Begun)) => assert!(begun),
                (RunCommand::Progress { .. } | RunCommand::Ask { .. }, Ok(after)) => {
                    assert!(after.state.claim().is_some_and(|claim| claim.begun));
                }
                (RunCommand::Claim { .. }, Ok(after)) => assert!(after.state.claim().is_some_and(|claim| !claim.begun)),
                _ => {}
            }
        });
    }

    #[test]
    fn a_deferred_run_spends_no_attempt_and_is_claimed_only_after_its_time(limits in limits(), steps in steps()) {
        walk(limits, &steps, |before, command, result, now| {
            if let (RunCommand::Defer { until, .. }, Ok(after)) = (command, result) {
                assert_eq!((after.state.attempt, after.state.epoch), (before.attempt - 1, before.epoch));
                assert_eq!((after.state.status(), after.state.deferred_until()), (RunStatus::Pending, Some(*until)));
            }
            let Some(until) = before.deferred_until() else { return };
            assert_eq!(next_deadline(before), Some(until));
            match (command, result) {
                (RunCommand::Tick, Ok(after)) => assert_eq!(after.state.deferred_until().is_none(), until <= now),
                (RunCommand::Cancel { .. } | RunCommand::Halt { .. }, Ok(after)) => {
                    assert!(after.state.status().is_terminal());
                }
                (_, result) => assert!(result.is_err(), "{command:?} of a deferred run: {result:?}"),
            }
        });
    }

    #[test]
    fn an_undelivered_claim_spends_no_attempt(limits in limits(), steps in steps()) {
        walk(limits, &steps, |before, command, result, _| {
            let begun = before.claim().is_some_and(|claim| claim.begun);
            if let (RunCommand::Undelivered, Ok(after)) = (command, result) {
                if begun {
                    // Something was reported: the work is lost, which costs an attempt.
                    assert_eq!((after.state.attempt, after.state.epoch), (before.attempt, before.epoch));
                    return;
                }
                assert_eq!((after.state.attempt, after.state.epoch), (before.attempt - 1, before.epoch));
                assert_eq!(after.state.status(), RunStatus::Pending);
            }
        });
    }
}

#[test]
fn a_repeated_report_is_accepted_and_another_is_refused() {
    let limits = RunLimits { max_attempts: 1, timeout: Duration::from_secs(60), queue_ttl: Duration::from_secs(60) };
    let me = RuntimeId::from_uuid(Uuid::from_u128(1));
    let by = WorkerRef { runtime: me, epoch: Some(1) };
    let step =
        |state: &RunLifecycle, command: &RunCommand| apply(state, command, START).map(|transition| transition.state);

    let claimed =
        step(&RunLifecycle::created(limits, START), &RunCommand::Claim { runtime: me, lease: Duration::from_secs(9) });
    let done = step(&claimed.unwrap(), &RunCommand::Complete { by, outcome: OutcomeDigest([1; 16]) }).unwrap();
    assert_eq!(step(&done, &RunCommand::Complete { by, outcome: OutcomeDigest([1; 16]) }), Ok(done.clone()));
    assert_eq!(step(&done, &RunCommand::Complete { by, outcome: OutcomeDigest([2; 16]) }), Err(RunRefusal::Ended));
    assert_eq!(
        step(&done, &RunCommand::Fail { by, code: FailureCode::TaskFailed, outcome: OutcomeDigest([1; 16]) }),
        Err(RunRefusal::Ended)
    );
    assert_eq!(step(&done, &RunCommand::Cancel { outcome: OutcomeDigest([0; 16]) }), Err(RunRefusal::Ended));
}

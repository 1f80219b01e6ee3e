//! What quotas allow, and properties of every order of reservations, reports and ends.

use std::sync::{Mutex, atomic::AtomicUsize, atomic::Ordering};

use proptest::prelude::*;

use super::*;

const NOON: Timestamp = Timestamp::from_millis(100 * MILLIS_PER_DAY + MILLIS_PER_DAY / 2);
const DAY: UtcDay = UtcDay(100);

fn line(limits: QuotaLimits) -> QuotaLine {
    QuotaLine { limits, account: QuotaAccount::new(DAY) }
}

fn spend(calls: u64, tokens: u64, micro_usd: u64) -> Spend {
    Spend { calls, tokens, micro_usd }
}

fn tokens(limit: u64) -> QuotaLimits {
    QuotaLimits { tokens: Some(limit), ..QuotaLimits::default() }
}

fn budget(tokens: u64) -> ReservationRequest {
    ReservationRequest {
        budget: QuotaBudget { tokens: Some(tokens), micro_usd: None },
        ..ReservationRequest::default()
    }
}

/// The accounts after a change, in the order of the lines, and the run's reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReservationResult {
    accounts: Vec<QuotaAccount>,
    reservation: QuotaReservation,
}

fn reserve(
    lines: &[QuotaLine],
    request: ReservationRequest,
    now: Timestamp,
) -> Result<ReservationResult, ExceededLimit> {
    let reservation = super::reserve(lines, request, now)?;
    let holding = |account: QuotaAccount| QuotaAccount { held: account.held.plus(reservation.held), ..account };
    let accounts = lines.iter().map(|line| holding(line.account.on(reservation.day))).collect();
    Ok(ReservationResult { accounts, reservation })
}

fn report(lines: &[QuotaLine], before: QuotaReservation, used: Spend) -> (ReservationResult, QuotaVerdict) {
    let (reservation, verdict) = super::report(lines, before, used);
    let more = minus(reservation.held, before.held);
    let accounts = of_day(lines, before.day, |account| QuotaAccount { held: account.held.plus(more), ..account });
    (ReservationResult { accounts, reservation }, verdict)
}

/// The accounts after a run has ended and used `actual`: `calls` is 1 for a run that was queued.
fn settle(lines: &[QuotaLine], reservation: QuotaReservation, actual: Spend) -> Vec<QuotaAccount> {
    of_day(lines, reservation.day, |account| QuotaAccount {
        spent: account.spent.plus(actual),
        held: minus(account.held, reservation.held),
        ..account
    })
}

/// Changes only the accounts of that day.
fn of_day(lines: &[QuotaLine], day: UtcDay, change: impl Fn(QuotaAccount) -> QuotaAccount) -> Vec<QuotaAccount> {
    lines.iter().map(|line| if line.account.day == day { change(line.account) } else { line.account }).collect()
}

fn minus(one: Spend, other: Spend) -> Spend {
    Spend {
        calls: one.calls.saturating_sub(other.calls),
        tokens: one.tokens.saturating_sub(other.tokens),
        micro_usd: one.micro_usd.saturating_sub(other.micro_usd),
    }
}

fn with(mut lines: Vec<QuotaLine>, accounts: &[QuotaAccount]) -> Vec<QuotaLine> {
    for (line, account) in lines.iter_mut().zip(accounts) {
        line.account = *account;
    }
    lines
}

#[test]
fn a_call_is_reserved_and_settled_in_every_quota() {
    let limits = QuotaLimits { calls: Some(2), tokens: Some(15_000), micro_usd: Some(1_000_000) };
    let lines = vec![line(limits), line(QuotaLimits::default())];
    let ReservationResult { accounts, reservation } = reserve(&lines, ReservationRequest::default(), NOON).unwrap();
    let held = spend(1, 10_000, 100_000);
    assert_eq!(reservation, QuotaReservation { day: DAY, held, request: ReservationRequest::default() });
    let expected = QuotaAccount { day: DAY, spent: Spend::default(), held };
    assert_eq!(accounts, [expected, expected]);

    let lines = with(lines, &accounts);
    let (after, verdict) = report(&lines, reservation, spend(0, 9_000, 20_000));
    assert_eq!(verdict, QuotaVerdict::Continue);
    assert_eq!(after.reservation.held, spend(1, 15_000, 120_000), "a step ahead, but no further than the limit");

    let lines = with(lines, &after.accounts);
    let accounts = settle(&lines, after.reservation, spend(1, 9_500, 50_000));
    let expected = QuotaAccount { day: DAY, spent: spend(1, 9_500, 50_000), held: Spend::default() };
    assert_eq!(accounts, [expected, expected]);
}

#[test]
fn the_first_excess_call_learns_when_to_retry() {
    let lines = vec![line(QuotaLimits::default()), line(QuotaLimits { calls: Some(1), ..QuotaLimits::default() })];
    let first = reserve(&lines, ReservationRequest::default(), NOON).unwrap();
    let lines = with(lines, &first.accounts);
    let exceeded = ExceededLimit {
        measure: QuotaMeasure::Calls,
        line: Some(1),
        limit: 1,
        spent: 0,
        held: 1,
        resets_at: Timestamp::from_millis(101 * MILLIS_PER_DAY),
    };
    assert_eq!(reserve(&lines, ReservationRequest::default(), NOON), Err(exceeded));
    let lines = with(lines.clone(), &settle(&lines, first.reservation, spend(1, 0, 0)));
    let exceeded = ExceededLimit { spent: 1, held: 0, ..exceeded };
    assert_eq!(reserve(&lines, ReservationRequest::default(), NOON), Err(exceeded));
    assert_eq!(
        exceeded.to_string(),
        "The quota is 1 call per day: 1 call used. Wait until 1970-04-12T00:00:00.000Z, or ask an owner to raise it."
    );
    let tomorrow = reserve(&lines, ReservationRequest::default(), UtcDay(101).begins_at()).unwrap();
    let held = spend(1, 0, 0);
    assert_eq!(tomorrow.accounts, [QuotaAccount { held, ..QuotaAccount::new(UtcDay(101)) }; 2]);
    let yesterday = reserve(&lines, ReservationRequest::default(), Timestamp::from_millis(0));
    assert_eq!(yesterday, Err(exceeded), "a clock that was set back opens no day that is over");
}

#[test]
fn a_refusal_changes_nothing_and_a_release_returns_everything() {
    let lines = vec![line(tokens(100)), line(tokens(50))];
    let exceeded = reserve(&lines, budget(60), NOON).unwrap_err();
    assert_eq!((exceeded.line, exceeded.limit, exceeded.spent), (Some(1), 50, 0));
    let reserved = reserve(&lines, budget(50), NOON).unwrap();
    let held = with(lines, &reserved.accounts);
    assert!(reserve(&held, budget(1), NOON).is_err());
    assert_eq!(settle(&held, reserved.reservation, Spend::default()), [QuotaAccount::new(DAY); 2]);
}

#[test]
fn a_run_stops_at_its_own_budget_or_when_nothing_is_left() {
    let lines = vec![line(tokens(1_000))];
    let mine = reserve(&lines, budget(100), NOON).unwrap();
    let lines = with(lines, &mine.accounts);
    assert_eq!(report(&lines, mine.reservation, spend(0, 100, 0)), (mine.clone(), QuotaVerdict::Continue));
    let over = ExceededLimit {
        measure: QuotaMeasure::Tokens,
        line: None,
        limit: 100,
        spent: 101,
        held: 0,
        resets_at: UtcDay(101).begins_at(),
    };
    assert_eq!(report(&lines, mine.reservation, spend(0, 101, 0)), (mine, QuotaVerdict::Stop(over)));
    assert_eq!(
        over.to_string(),
        "The run's budget is 100 tokens, and it has used 101 tokens. Give it a larger budget."
    );

    let open = reserve(&lines, ReservationRequest::default(), NOON).unwrap();
    assert_eq!(open.reservation.held.tokens, 900, "what is left");
    let lines = with(lines, &open.accounts);
    let (after, verdict) = report(&lines, open.reservation, spend(0, 900, 5));
    assert_eq!((after.reservation, verdict), (open.reservation, QuotaVerdict::Continue));
    let (_, verdict) = report(&lines, open.reservation, spend(0, 901, 5));
    let left = ExceededLimit { line: Some(0), limit: 1_000, spent: 0, held: 1_000, ..over };
    assert_eq!(verdict, QuotaVerdict::Stop(left));
}

#[test]
fn a_late_report_shows_actual_usage_and_blocks_new_runs() {
    let lines = vec![line(tokens(100))];
    let run = reserve(&lines, budget(80), NOON).unwrap();
    let lines = with(lines, &run.accounts);
    let accounts = settle(&lines, run.reservation, spend(1, 500, 0));
    assert_eq!(accounts, [QuotaAccount { spent: spend(1, 500, 0), ..QuotaAccount::new(DAY) }]);
    assert!(reserve(&with(lines, &accounts), ReservationRequest::default(), NOON).is_err());
}

#[test]
fn a_run_that_ends_after_midnight_does_not_change_the_new_day() {
    let lines = vec![line(tokens(100))];
    let run = reserve(&lines, ReservationRequest::default(), NOON).unwrap();
    let rolled = vec![QuotaLine { limits: tokens(100), account: QuotaAccount::new(UtcDay(101)) }];
    assert_eq!(settle(&rolled, run.reservation, spend(1, 90, 0)), [QuotaAccount::new(UtcDay(101))]);
    let (after, verdict) = report(&rolled, run.reservation, spend(0, 100, 0));
    assert_eq!((after.accounts, verdict), (vec![QuotaAccount::new(UtcDay(101))], QuotaVerdict::Continue));
    assert!(matches!(report(&rolled, run.reservation, spend(0, 101, 0)).1, QuotaVerdict::Stop(_)));
}

#[test]
fn ten_thousand_calls_of_64_callers_against_a_thousand() {
    let account = Mutex::new(QuotaAccount::new(DAY));
    let (passed, left) = (AtomicUsize::new(0), AtomicUsize::new(10_000));
    let limits = QuotaLimits { calls: Some(1_000), tokens: Some(1_000_000), micro_usd: None };
    let call = || {
        let reservation = {
            let mut account = account.lock().unwrap();
            let Ok(reserved) = reserve(&[QuotaLine { limits, account: *account }], budget(1_000), NOON) else { return };
            *account = reserved.accounts[0];
            reserved.reservation
        };
        passed.fetch_add(1, Ordering::Relaxed);
        let mut account = account.lock().unwrap();
        *account = settle(&[QuotaLine { limits, account: *account }], reservation, spend(1, 7, 3))[0];
    };
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                    call();
                }
            });
        }
    });
    // A caller may find all tokens reserved for a moment, but there is room for a thousand budgets at once.
    assert_eq!(passed.into_inner(), 1_000);
    let spent = spend(1_000, 7_000, 3_000);
    assert_eq!(account.into_inner().unwrap(), QuotaAccount { spent, ..QuotaAccount::new(DAY) });
}

#[test]
fn costs_are_parsed_to_the_millionth_and_rounded_up() {
    for (text, expected) in [
        ("0", Some(0)),
        ("0.05", Some(50_000)),
        ("1", Some(1_000_000)),
        ("1.5e1", Some(15_000_000)),
        ("5E-2", Some(50_000)),
        ("0.0000001", Some(1)),
        ("1e-30", Some(1)),
        ("0.000001", Some(1)),
        ("0.0000010000000000000000000000000000000000001", Some(1)),
        ("0.1000000000000000055511151231257827021181583404541015625", Some(100_000)),
        ("0.30000000000000004", Some(300_000)),
        ("0.7999999999999999", Some(800_000)),
        ("0.0000014999", Some(1)),
        ("0.0000015", Some(2)),
        ("15e-7", Some(2)),
        ("9e-8", Some(1)),
        ("18446744073709.551615", Some(u64::MAX)),
        ("18446744073709.551616", None),
        ("1e300", None),
        ("0e300", Some(0)),
        ("0e-2147483648", Some(0)),
        ("-1", None),
        ("", None),
        (".5", None),
        ("1e", None),
        ("NaN", None),
        ("１", None),
    ] {
        assert_eq!(micro_usd(text), expected, "{text}");
    }
    for (micro, text) in [(0, "0"), (50_000, "0.05"), (1, "0.000001"), (20_000_000, "20"), (1_500_000, "1.5")] {
        assert_eq!(usd(micro), text);
        assert_eq!(micro_usd(text), Some(micro));
    }
}

/// A random next step of a run.
#[derive(Debug, Clone)]
enum QuotaAct {
    Reserve {
        quotas: Vec<bool>,
        budget: Option<u64>,
        step: u64,
    },
    /// The run uses this many hundredths of its unused reservation, and reports it.
    Report {
        run: usize,
        share: u64,
    },
    Settle {
        run: usize,
    },
    Midnight,
}

#[derive(Debug, Clone)]
struct RunningReservation {
    quotas: Vec<usize>,
    reservation: QuotaReservation,
    used: Spend,
}

fn act() -> impl Strategy<Value = QuotaAct> {
    let quotas = proptest::collection::vec(any::<bool>(), 3);
    prop_oneof![
        6 => (quotas, proptest::option::of(0..400_u64), 1..200_u64)
            .prop_map(|(quotas, budget, step)| QuotaAct::Reserve { quotas, budget, step }),
        6 => (0..8_usize, 0..=100_u64).prop_map(|(run, share)| QuotaAct::Report { run, share }),
        4 => (0..8_usize).prop_map(|run| QuotaAct::Settle { run }),
        1 => Just(QuotaAct::Midnight),
    ]
}

fn limits() -> impl Strategy<Value = QuotaLimits> {
    let some = |most: u64| proptest::option::of(0..most);
    (some(12), some(1_000), some(1_000)).prop_map(|(calls, tokens, micro_usd)| QuotaLimits { calls, tokens, micro_usd })
}

/// The books of three quotas: an account for each and every day.
struct QuotaBooks {
    limits: Vec<QuotaLimits>,
    accounts: Vec<std::collections::BTreeMap<UtcDay, QuotaAccount>>,
}

impl QuotaBooks {
    fn lines(&self, quotas: &[usize], day: UtcDay) -> Vec<QuotaLine> {
        let account = |quota: usize| self.accounts[quota].get(&day).copied().unwrap_or_else(|| QuotaAccount::new(day));
        quotas.iter().map(|quota| QuotaLine { limits: self.limits[*quota], account: account(*quota) }).collect()
    }

    fn put(&mut self, quotas: &[usize], accounts: &[QuotaAccount]) {
        for (quota, account) in quotas.iter().zip(accounts) {
            self.accounts[*quota].insert(account.day, *account);
        }
    }
}

proptest! {
    #[test]
    fn no_sequence_exceeds_the_limit(
        limits in proptest::collection::vec(limits(), 3),
        acts in proptest::collection::vec(act(), 1..120),
    ) {
        let mut books = QuotaBooks { limits, accounts: vec![Default::default(); 3] };
        let mut running: Vec<RunningReservation> = Vec::new();
        let mut today = DAY;
        for act in acts {
            match act {
                QuotaAct::Midnight => today = UtcDay(today.0 + 1),
                QuotaAct::Reserve { quotas, budget, step } => {
                    let quotas: Vec<usize> = (0..3).filter(|quota| quotas[*quota]).collect();
                    let of = |amount| QuotaBudget { tokens: amount, micro_usd: amount };
                    let request = ReservationRequest { budget: of(budget), step: of(Some(step)) };
                    let lines = books.lines(&quotas, today);
                    if let Ok(reserved) = reserve(&lines, request, today.begins_at()) {
                        books.put(&quotas, &reserved.accounts);
                        running.push(RunningReservation { quotas, reservation: reserved.reservation, used: spend(1, 0, 0) });
                    } else {
                        prop_assert!(!quotas.is_empty(), "without a quota everything passes");
                    }
                }
                QuotaAct::Report { run, share } => {
                    let count = running.len().max(1);
                    let Some(run) = running.get_mut(run % count) else { continue };
                    for measure in METERED {
                        let left = run.reservation.held.of(measure).saturating_sub(run.used.of(measure));
                        *run.used.of_mut(measure) += left * share / 100;
                    }
                    let lines = books.lines(&run.quotas, run.reservation.day);
                    let (reserved, verdict) = report(&lines, run.reservation, run.used);
                    prop_assert_eq!(verdict, QuotaVerdict::Continue, "it used no more than it holds");
                    run.reservation = reserved.reservation;
                    let quotas = run.quotas.clone();
                    books.put(&quotas, &reserved.accounts);
                }
                QuotaAct::Settle { run } if !running.is_empty() => {
                    let run = running.remove(run % running.len());
                    let lines = books.lines(&run.quotas, run.reservation.day);
                    books.put(&run.quotas, &settle(&lines, run.reservation, run.used));
                }
                QuotaAct::Settle { .. } => {}
            }
            for (quota, accounts) in books.accounts.iter().enumerate() {
                for (day, account) in accounts {
                    let mut held = Spend::default();
                    for run in running.iter().filter(|run| run.reservation.day == *day && run.quotas.contains(&quota)) {
                        held = held.plus(run.reservation.held);
                    }
                    prop_assert_eq!(account.held, held, "what is held is what the runs hold");
                    for measure in QuotaMeasure::ALL {
                        let taken = account.spent.of(measure) + account.held.of(measure);
                        prop_assert!(books.limits[quota].of(measure).is_none_or(|limit| taken <= limit));
                    }
                }
            }
        }
    }

    #[test]
    fn a_run_that_exceeds_its_reservation_stops(
        limit in 1..1_000_u64, step in 1..200_u64, excess in 1..1_000_u64,
    ) {
        let request = ReservationRequest { step: QuotaBudget { tokens: Some(step), micro_usd: None }, ..ReservationRequest::default() };
        let lines = vec![line(tokens(limit))];
        let run = reserve(&lines, request, NOON).unwrap();
        let lines = with(lines, &run.accounts);
        let (after, verdict) = report(&lines, run.reservation, spend(0, limit + excess, 0));
        prop_assert!(matches!(verdict, QuotaVerdict::Stop(_)));
        prop_assert_eq!(after.reservation.held.tokens, limit);
        let lines = with(lines, &after.accounts);
        let accounts = settle(&lines, after.reservation, spend(1, limit + excess, 0));
        let spent = spend(1, limit + excess, 0);
        prop_assert_eq!(&accounts, &vec![QuotaAccount { spent, ..QuotaAccount::new(DAY) }]);
        prop_assert!(reserve(&with(lines, &accounts), request, NOON).is_err());
    }
}

#[test]
fn the_remainder_is_the_minimum_of_budget_and_quotas() {
    let open = QuotaBudget::default();
    let reserved = reserve(&[], ReservationRequest::default(), NOON).unwrap();
    assert_eq!(left(&[], reserved.reservation, spend(1, 5, 5)), open, "nothing limits it");

    let reserved = reserve(&[], budget(1_000), NOON).unwrap();
    let of = |used| left(&[], reserved.reservation, spend(1, used, 7)).tokens;
    assert_eq!((of(0), of(400), of(2_000)), (Some(1_000), Some(600), Some(0)));

    // Almost used up: another run used most of it.
    let mut lines = vec![line(tokens(100_000)), line(tokens(30_000))];
    for line in &mut lines {
        line.account.spent = spend(3, 29_500, 0);
    }
    let reserved = reserve(&lines, ReservationRequest::default(), NOON).unwrap();
    let lines = with(lines, &reserved.accounts);
    assert_eq!(
        left(&lines, reserved.reservation, Spend::default()),
        QuotaBudget { tokens: Some(500), micro_usd: None }
    );
    assert_eq!(
        left(&lines, reserved.reservation, spend(1, 200, 9)),
        QuotaBudget { tokens: Some(300), micro_usd: None }
    );

    // For a past day, only its own reservation is left.
    let tomorrow: Vec<QuotaLine> =
        lines.iter().map(|line| QuotaLine { account: QuotaAccount::new(UtcDay(101)), ..*line }).collect();
    assert_eq!(
        left(&tomorrow, reserved.reservation, spend(1, 200, 9)),
        QuotaBudget { tokens: Some(300), micro_usd: None }
    );
}

proptest! {
    /// The last available token can be used without a stop, and the next one stops the run.
    #[test]
    fn the_remainder_is_what_the_next_report_may_add(
        limit in 1_u64..100_000,
        spent in 0_u64..100_000,
        wanted in proptest::option::of(1_u64..50_000),
        used in 0_u64..50_000,
    ) {
        let mut first = line(tokens(limit));
        first.account.spent = spend(1, spent.min(limit), 0);
        let request = ReservationRequest { budget: QuotaBudget { tokens: wanted, micro_usd: None }, ..ReservationRequest::default() };
        let Ok(reserved) = reserve(&[first], request, NOON) else { return Ok(()) };
        let lines = with(vec![first], &reserved.accounts);
        let (reported, verdict) = report(&lines, reserved.reservation, spend(1, used, 0));
        if verdict != QuotaVerdict::Continue {
            return Ok(());
        }
        let lines = with(lines, &reported.accounts);
        let left = left(&lines, reported.reservation, spend(1, used, 0)).tokens.unwrap();
        let stops = |used| report(&lines, reported.reservation, spend(1, used, 0)).1 != QuotaVerdict::Continue;
        prop_assert!(!stops(used + left));
        prop_assert!(stops(used + left + 1));
    }
}

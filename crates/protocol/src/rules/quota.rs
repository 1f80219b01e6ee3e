//! Quotas: how many calls, tokens and dollars may be used in a day. Reserved first, settled at the end, integers only.
//!
//! Several quotas apply to a run (its user's, its agent's, the tenant's). Each is a [`QuotaLine`] with its own account.
//! Before a run is queued, [`reserve`] reserves one call and some tokens and cost in all of them, or in none. During
//! the run, [`report`] compares the reported usage with the reservation, and either extends it or stops the run. At the
//! end, the store replaces the reservation with the actual usage.
//!
//! Spent plus reserved never exceeds a limit, whatever the order of calls, so that runs that stay within their
//! reservations can't overspend together. An agent that reports late can use more than it reserved: then the account
//! shows the actual usage, and nothing new starts until the next day.
//!
//! A run counts towards the day (UTC) it was reserved on, even if it ends on the next.

use crate::text_enum;
use std::{fmt, time::Duration};

use crate::time::Timestamp;

/// A day in UTC, counted from 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcDay(pub i64);

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    plain pub enum QuotaMeasure {
        Calls = "calls",
        Tokens = "tokens",
        Cost = "cost",
    }
}

/// An amount of each measure. Cost is in millionths of a dollar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spend {
    pub calls: u64,
    pub tokens: u64,
    pub micro_usd: u64,
}

/// Daily limits. `None` means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    pub calls: Option<u64>,
    pub tokens: Option<u64>,
    pub micro_usd: Option<u64>,
}

/// What was used on one day, and what is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaAccount {
    pub day: UtcDay,
    pub spent: Spend,
    pub held: Spend,
}

/// A quota that applies to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaLine {
    pub limits: QuotaLimits,
    pub account: QuotaAccount,
}

/// What a run wants to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservationRequest {
    /// The caller's limit for this run, reserved in full.
    pub budget: QuotaBudget,
    /// Without a budget: how much to reserve at a time.
    pub step: QuotaBudget,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaBudget {
    pub tokens: Option<u64>,
    pub micro_usd: Option<u64>,
}

/// What one run has reserved, in every quota that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaReservation {
    pub day: UtcDay,
    pub held: Spend,
    pub request: ReservationRequest,
}

/// A limit that is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExceededLimit {
    pub measure: QuotaMeasure,
    /// The index of the line. `None`: the run's own budget.
    pub line: Option<usize>,
    pub limit: u64,
    pub spent: u64,
    /// What other runs have reserved. It may be released before the day ends.
    pub held: u64,
    pub resets_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaVerdict {
    Continue,
    /// The run fails with `quota_exceeded`.
    Stop(ExceededLimit),
}

/// The measures a run uses while it works.
const METERED: [QuotaMeasure; 2] = [QuotaMeasure::Tokens, QuotaMeasure::Cost];

/// Reserves what the run needs in all of its quotas, or reports the one without room.
pub fn reserve(
    lines: &[QuotaLine],
    request: ReservationRequest,
    now: Timestamp,
) -> Result<QuotaReservation, ExceededLimit> {
    // A clock that was set back doesn't reopen a past day.
    let day = lines.iter().map(|line| line.account.day).fold(UtcDay::of(now), UtcDay::max);
    let lines: Vec<QuotaLine> = lines.iter().map(|line| QuotaLine { account: line.account.on(day), ..*line }).collect();
    let mut held = Spend { calls: 1, ..Spend::default() };
    needs(&lines, QuotaMeasure::Calls, 1)?;
    for measure in METERED {
        *held.of_mut(measure) = match (request.budget.of(measure), room(&lines, measure)) {
            (Some(budget), _) => {
                needs(&lines, measure, budget)?;
                budget
            }
            (None, Some(room)) => {
                needs(&lines, measure, 1)?;
                request.step.of(measure).unwrap_or(u64::MAX).clamp(1, room)
            }
            (None, None) => 0,
        };
    }
    Ok(QuotaReservation { day, held, request })
}

/// Checked before a run with a reservation is claimed, because quotas may have been added or lowered since it was
/// queued.
pub fn check(lines: &[QuotaLine]) -> Result<(), ExceededLimit> {
    let over = |measure| lines.iter().position(|line| line.is_over(measure)).map(|index| (index, measure));
    match QuotaMeasure::ALL.into_iter().find_map(over) {
        Some((index, measure)) => Err(ExceededLimit::by(lines, index, measure)),
        None => Ok(()),
    }
}

/// Takes the run's total so far and extends the reservation if needed. The lines are those of the reservation's day.
pub fn report(lines: &[QuotaLine], reservation: QuotaReservation, used: Spend) -> (QuotaReservation, QuotaVerdict) {
    let open: Vec<QuotaLine> = lines.iter().copied().filter(|line| line.account.day == reservation.day).collect();
    let mut more = Spend::default();
    let mut verdict = QuotaVerdict::Continue;
    for measure in METERED {
        let (used, held) = (used.of(measure), reservation.held.of(measure));
        let budget = reservation.request.budget.of(measure);
        let limited = budget.is_some() || lines.iter().any(|line| line.limits.of(measure).is_some());
        if !limited {
            continue;
        }
        if budget.is_none() {
            // One step ahead of the usage, so that the next report is still covered.
            let step = reservation.request.step.of(measure).unwrap_or(1);
            let wanted = used.saturating_add(step).saturating_sub(held);
            // If every account of that day is closed, nothing can be added.
            let free = if open.is_empty() { 0 } else { room(&open, measure).unwrap_or(u64::MAX) };
            *more.of_mut(measure) = wanted.min(free);
        }
        if verdict == QuotaVerdict::Continue && used > held.saturating_add(more.of(measure)) {
            verdict = QuotaVerdict::Stop(match budget {
                Some(limit) => ExceededLimit { spent: used, ..ExceededLimit::own(measure, limit, reservation.day) },
                None => fullest(lines, measure, reservation),
            });
        }
    }
    (QuotaReservation { held: reservation.held.plus(more), ..reservation }, verdict)
}

/// What is left for a run that has used this much: of its own budget, and of its quotas. The lines are those of the
/// reservation's day.
pub fn left(lines: &[QuotaLine], reservation: QuotaReservation, used: Spend) -> QuotaBudget {
    let open: Vec<QuotaLine> = lines.iter().copied().filter(|line| line.account.day == reservation.day).collect();
    let of = |measure| {
        let held = reservation.held.of(measure);
        let limited = lines.iter().any(|line| line.limits.of(measure).is_some());
        let most = match (reservation.request.budget.of(measure), limited) {
            (Some(budget), _) => budget,
            (None, true) if open.is_empty() => held,
            (None, true) => held.saturating_add(room(&open, measure).unwrap_or(0)),
            (None, false) => return None,
        };
        Some(most.saturating_sub(used.of(measure)))
    };
    QuotaBudget { tokens: of(QuotaMeasure::Tokens), micro_usd: of(QuotaMeasure::Cost) }
}

/// The room in all lines. `None` if none of them has a limit.
fn room(lines: &[QuotaLine], measure: QuotaMeasure) -> Option<u64> {
    lines.iter().filter_map(|line| line.room(measure)).min()
}

fn needs(lines: &[QuotaLine], measure: QuotaMeasure, amount: u64) -> Result<(), ExceededLimit> {
    match lines.iter().position(|line| line.room(measure).is_some_and(|room| room < amount)) {
        Some(index) => Err(ExceededLimit::by(lines, index, measure)),
        None => Ok(()),
    }
}

/// The line with the least room, for a run that needs more than it reserved.
fn fullest(lines: &[QuotaLine], measure: QuotaMeasure, reservation: QuotaReservation) -> ExceededLimit {
    let limited = lines.iter().enumerate().filter_map(|(index, line)| Some((line.room(measure)?, index)));
    match limited.min() {
        Some((_, index)) => {
            let exceeded = ExceededLimit::by(lines, index, measure);
            ExceededLimit { resets_at: reservation.day.ends_at(), ..exceeded }
        }
        None => ExceededLimit::own(measure, reservation.held.of(measure), reservation.day),
    }
}

/// Parses a JSON number of dollars into the nearest number of millionths: `0.30000000000000004`, a sum of floating-point numbers,
/// is no more than 0.3. Less than one millionth counts as one, so that many small costs never count as none.
pub fn micro_usd(number: &str) -> Option<u64> {
    let (digits, exponent) = match number.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    // The value is `digits · 10^-shift` millionths.
    let shift = i64::try_from(fraction.len()).ok()? - i64::from(exponent) - 6;
    let all: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    let cut = usize::try_from(shift).unwrap_or(0).min(all.len());
    let (kept, dropped) = all.split_at(all.len() - cut);
    let mut value = 0_u64;
    for byte in kept {
        value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
    }
    if shift < 0 && value > 0 {
        value = value.checked_mul(10_u64.checked_pow(u32::try_from(-shift).ok()?)?)?;
    }
    let has_rest = dropped.iter().any(|byte| *byte != b'0');
    // The first digit that was dropped is tenths of a millionth, unless there are zeros in between.
    let is_half = usize::try_from(shift) == Ok(cut) && dropped.first().is_some_and(|byte| *byte >= b'5');
    value.checked_add(u64::from(is_half || (has_rest && value == 0)))
}

/// Dollars as written in JSON: `0.05`.
pub fn usd(micro_usd: u64) -> String {
    let text = format!("{}.{:06}", micro_usd / 1_000_000, micro_usd % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

// === impl UtcDay ===

impl UtcDay {
    pub const fn of(now: Timestamp) -> Self {
        Self(now.millis().div_euclid(MILLIS_PER_DAY))
    }

    pub const fn begins_at(self) -> Timestamp {
        Timestamp::from_millis(self.0.saturating_mul(MILLIS_PER_DAY))
    }

    pub fn ends_at(self) -> Timestamp {
        self.begins_at().plus(Duration::from_millis(MILLIS_PER_DAY.unsigned_abs()))
    }
}

const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1000;

// === impl QuotaAccount ===

impl QuotaAccount {
    pub fn new(day: UtcDay) -> Self {
        Self { day, spent: Spend::default(), held: Spend::default() }
    }

    /// The account of a later day starts empty.
    fn on(self, day: UtcDay) -> Self {
        if self.day == day { self } else { Self::new(day) }
    }
}

// === impl QuotaLine ===

impl QuotaLine {
    /// What is neither spent nor reserved. `None` without a limit.
    pub fn room(&self, measure: QuotaMeasure) -> Option<u64> {
        let taken = self.account.spent.of(measure).saturating_add(self.account.held.of(measure));
        self.limits.of(measure).map(|limit| limit.saturating_sub(taken))
    }

    /// Whether spent plus reserved exceeds the limit.
    fn is_over(&self, measure: QuotaMeasure) -> bool {
        let taken = self.account.spent.of(measure).saturating_add(self.account.held.of(measure));
        self.limits.of(measure).is_some_and(|limit| taken > limit)
    }
}

// === impl Spend ===

impl Spend {
    pub const fn of(&self, measure: QuotaMeasure) -> u64 {
        match measure {
            QuotaMeasure::Calls => self.calls,
            QuotaMeasure::Tokens => self.tokens,
            QuotaMeasure::Cost => self.micro_usd,
        }
    }

    const fn of_mut(&mut self, measure: QuotaMeasure) -> &mut u64 {
        match measure {
            QuotaMeasure::Calls => &mut self.calls,
            QuotaMeasure::Tokens => &mut self.tokens,
            QuotaMeasure::Cost => &mut self.micro_usd,
        }
    }

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            tokens: self.tokens.saturating_add(other.tokens),
            micro_usd: self.micro_usd.saturating_add(other.micro_usd),
        }
    }
}

// === impl QuotaLimits ===

impl QuotaLimits {
    pub const fn of(&self, measure: QuotaMeasure) -> Option<u64> {
        match measure {
            QuotaMeasure::Calls => self.calls,
            QuotaMeasure::Tokens => self.tokens,
            QuotaMeasure::Cost => self.micro_usd,
        }
    }
}

// === impl QuotaBudget ===

impl QuotaBudget {
    const fn of(&self, measure: QuotaMeasure) -> Option<u64> {
        match measure {
            QuotaMeasure::Calls => None,
            QuotaMeasure::Tokens => self.tokens,
            QuotaMeasure::Cost => self.micro_usd,
        }
    }
}

// === impl ReservationRequest ===

impl Default for ReservationRequest {
    /// No budget, and steps of ten thousand tokens and ten cents.
    fn default() -> Self {
        Self { budget: QuotaBudget::default(), step: QuotaBudget { tokens: Some(10_000), micro_usd: Some(100_000) } }
    }
}

// === impl QuotaMeasure ===

impl QuotaMeasure {
    fn show(self, amount: u64) -> String {
        match self {
            Self::Calls if amount == 1 => "1 call".to_owned(),
            Self::Calls | Self::Tokens => format!("{amount} {}", self.as_str()),
            Self::Cost => format!("${}", usd(amount)),
        }
    }
}

// === impl ExceededLimit ===

impl ExceededLimit {
    fn by(lines: &[QuotaLine], index: usize, measure: QuotaMeasure) -> Self {
        let QuotaLine { limits, account } = lines[index];
        Self {
            measure,
            line: Some(index),
            limit: limits.of(measure).unwrap_or(u64::MAX),
            spent: account.spent.of(measure),
            held: account.held.of(measure),
            resets_at: account.day.ends_at(),
        }
    }

    fn own(measure: QuotaMeasure, limit: u64, day: UtcDay) -> Self {
        Self { measure, line: None, limit, spent: limit, held: 0, resets_at: day.ends_at() }
    }
}

impl fmt::Display for ExceededLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, spent) = (self.measure.show(self.limit), self.measure.show(self.spent));
        match self.line {
            None => write!(f, "The run's budget is {limit}, and it has used {spent}. Give it a larger budget."),
            Some(_) if self.held > 0 => {
                let held = self.measure.show(self.held);
                write!(
                    f,
                    "The quota is {limit} per day: {spent} used, {held} reserved by runs in \
                     progress. Wait for them to end, or until {}.",
                    self.resets_at
                )
            }
            Some(_) => write!(
                f,
                "The quota is {limit} per day: {spent} used. Wait until {}, or ask an owner to raise it.",
                self.resets_at
            ),
        }
    }
}

#[cfg(test)]
mod tests;

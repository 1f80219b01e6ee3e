//! Quotas: how many calls, tokens and dollars may be used in a day. Set aside before, settled after, integers only.
//!
//! A run falls under several quotas (its user's, its agent's, the tenant's); each is a [`QuotaLine`] with its own account.
//! Before a run is queued [`reserve`] sets aside one call and some tokens and cost in all of them, or in none. While
//! the run works, [`report`] compares what it says it used with what it holds, sets more aside when there is more, and
//! otherwise says stop. At its end [`settle`] replaces what was held by what was used.
//!
//! What is spent and held together never passes a limit, whatever the order of calls; so runs that use no more than
//! they hold cannot overspend together, however many there are. An agent that reports late can use more than it holds:
//! then the account shows the truth, and nothing new begins before the day is over.
//!
//! A run belongs to the day (UTC) on which it was reserved, even if it ends on the next.

use std::{fmt, time::Duration};

use crate::time::Timestamp;

/// A day in UTC, counted from 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcDay(pub i64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuotaMeasure {
    Calls,
    Tokens,
    Cost,
}

/// An amount of everything that is counted. Cost is in millionths of a dollar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spend {
    pub calls: u64,
    pub tokens: u64,
    pub micro_usd: u64,
}

/// The most of each in a day; `None`: as much as there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    pub calls: Option<u64>,
    pub tokens: Option<u64>,
    pub micro_usd: Option<u64>,
}

/// What was used on one day, and what running work may still use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaAccount {
    pub day: UtcDay,
    pub spent: Spend,
    pub held: Spend,
}

/// One quota that a run falls under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaLine {
    pub limits: QuotaLimits,
    pub account: QuotaAccount,
}

/// What a run wants to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservationRequest {
    /// The most that the caller wants this run to use; set aside as a whole.
    pub budget: QuotaBudget,
    /// Without a budget: how much is set aside at a time.
    pub step: QuotaBudget,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaBudget {
    pub tokens: Option<u64>,
    pub micro_usd: Option<u64>,
}

/// What one run holds, in every quota that it falls under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaReservation {
    pub day: UtcDay,
    pub held: Spend,
    pub request: ReservationRequest,
}

/// A limit that leaves no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExceededLimit {
    pub measure: QuotaMeasure,
    /// Which of the lines; `None`: the run's own budget.
    pub line: Option<usize>,
    pub limit: u64,
    pub spent: u64,
    /// What other runs hold; it may come back before the day is over.
    pub held: u64,
    pub resets_at: Timestamp,
}

/// The accounts after a change, in the order of the lines, and what the run holds now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationResult {
    pub accounts: Vec<QuotaAccount>,
    pub reservation: QuotaReservation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaVerdict {
    Continue,
    /// The run ends with `quota_exceeded`.
    Stop(ExceededLimit),
}

/// The measures that a run uses up while it works.
const METERED: [QuotaMeasure; 2] = [QuotaMeasure::Tokens, QuotaMeasure::Cost];

/// Sets aside what the run needs in all of its quotas, or says which of them has no room.
pub fn reserve(
    lines: &[QuotaLine],
    request: ReservationRequest,
    now: Timestamp,
) -> Result<ReservationResult, ExceededLimit> {
    // A clock that was set back opens no day that is over.
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
    let reservation = QuotaReservation { day, held, request };
    let accounts = lines.iter().map(|line| line.account.holding(held)).collect();
    Ok(ReservationResult { accounts, reservation })
}

/// Before a run that holds its part is claimed: a quota may have become smaller, or be new, since it was queued.
pub fn check(lines: &[QuotaLine]) -> Result<(), ExceededLimit> {
    let over = |measure| lines.iter().position(|line| line.is_over(measure)).map(|index| (index, measure));
    match QuotaMeasure::ALL.into_iter().find_map(over) {
        Some((index, measure)) => Err(ExceededLimit::by(lines, index, measure)),
        None => Ok(()),
    }
}

/// Takes the run's total so far and sets more aside if it needs more. The lines are those of the reservation's day.
pub fn report(lines: &[QuotaLine], reservation: QuotaReservation, used: Spend) -> (ReservationResult, QuotaVerdict) {
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
            // One step ahead of what is used, so that the next report still finds it covered.
            let step = reservation.request.step.of(measure).unwrap_or(1);
            let wanted = used.saturating_add(step).saturating_sub(held);
            // Where every account of that day is closed, nothing can be added.
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
    let accounts = lines.iter().map(|line| line.account.of_day(reservation.day, |account| account.holding(more)));
    let reserved = ReservationResult {
        accounts: accounts.collect(),
        reservation: QuotaReservation { held: reservation.held.plus(more), ..reservation },
    };
    (reserved, verdict)
}

/// What is left for a run that has used this much: of its own budget, and of what its quotas have room for. The lines are
/// those of the reservation's day.
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

/// The run has ended and used `actual`: the accounts afterwards. The lines are those of the reservation's day.
///
/// `actual.calls` is 1 for a run that was queued. One that never was gives everything back with `Spend::default()`.
pub fn settle(lines: &[QuotaLine], reservation: QuotaReservation, actual: Spend) -> Vec<QuotaAccount> {
    let settled = |account: QuotaAccount| QuotaAccount {
        spent: account.spent.plus(actual),
        held: account.held.minus(reservation.held),
        ..account
    };
    lines.iter().map(|line| line.account.of_day(reservation.day, settled)).collect()
}

/// The room that all lines leave; `None` where none of them has a limit.
fn room(lines: &[QuotaLine], measure: QuotaMeasure) -> Option<u64> {
    lines.iter().filter_map(|line| line.room(measure)).min()
}

fn needs(lines: &[QuotaLine], measure: QuotaMeasure, amount: u64) -> Result<(), ExceededLimit> {
    match lines.iter().position(|line| line.room(measure).is_some_and(|room| room < amount)) {
        Some(index) => Err(ExceededLimit::by(lines, index, measure)),
        None => Ok(()),
    }
}

/// The line that has the least room, for a run that needs more than it holds.
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

/// Millionths of a dollar, from a number as JSON writes it. Fractions of a millionth are rounded up, so that many
/// small costs never count as none.
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
    value.checked_add(u64::from(has_rest))
}

/// Dollars as JSON writes them: `0.05`.
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

    /// The account of a later day begins empty.
    fn on(self, day: UtcDay) -> Self {
        if self.day == day { self } else { Self::new(day) }
    }

    fn holding(self, more: Spend) -> Self {
        Self { held: self.held.plus(more), ..self }
    }

    /// Changes the account if it is that day's; the account of another day has nothing to do with it.
    fn of_day(self, day: UtcDay, change: impl FnOnce(Self) -> Self) -> Self {
        if self.day == day { change(self) } else { self }
    }
}

// === impl QuotaLine ===

impl QuotaLine {
    /// What is neither spent nor held; `None` without a limit.
    pub fn room(&self, measure: QuotaMeasure) -> Option<u64> {
        let taken = self.account.spent.of(measure).saturating_add(self.account.held.of(measure));
        self.limits.of(measure).map(|limit| limit.saturating_sub(taken))
    }
}

impl QuotaLine {
    /// Whether more is spent and held than the limit allows.
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

    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(other.calls),
            tokens: self.tokens.saturating_sub(other.tokens),
            micro_usd: self.micro_usd.saturating_sub(other.micro_usd),
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
    pub const ALL: [Self; 3] = [Self::Calls, Self::Tokens, Self::Cost];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Tokens => "tokens",
            Self::Cost => "cost",
        }
    }

    fn show(self, amount: u64) -> String {
        match self {
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
            None => write!(f, "The run may use {limit} and has used {spent}. Give it a larger budget."),
            Some(_) if self.held > 0 => {
                let held = self.measure.show(self.held);
                write!(
                    f,
                    "The quota is {limit} a day: {spent} are spent and {held} are set aside for runs that have not \
                     ended. Wait for them, or until {}.",
                    self.resets_at
                )
            }
            Some(_) => write!(
                f,
                "The quota is {limit} a day, and {spent} are spent. Wait until {}, or ask an owner for more.",
                self.resets_at
            ),
        }
    }
}

#[cfg(test)]
mod tests;

//! The two packed columns of `task_runs`. SQLite takes a row apart and puts it together again at every update, column by
//! column, so what no statement looks at by itself stands together: `state`, which the rules move, and `request`, which
//! never changes.

use std::{borrow::Cow, time::Duration};

use attache_protocol::{
    Actor, AgentId, ChannelId, Json, RunId, RuntimeId, Timestamp,
    rules::{
        permission_mode::PermissionMode,
        quota::{self, QuotaReservation, Spend},
        run::{OutcomeDigest, RunLimits, RunPhase, RunWaits},
    },
    wire::run::Sandbox,
};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

use super::rows::{self, LogPositions, RunState};
use crate::record::{RunSpec, USUAL_TTL, channel::ReportKey, delivery::RunCallback};

/// The content of `state`: seven-bit varints and sixteen-byte ids.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PackedState {
    pub(super) epoch: i64,
    pub(super) attempt: i64,
    pub(super) limits: RunLimits,
    /// The newest seq of the run's stream.
    pub(super) last_seq: i64,
    /// The runtime that holds the claim or held it last, and since when.
    pub(super) claim: Option<(RuntimeId, Timestamp)>,
    pub(super) waits: RunWaits,
    pub(super) outcome: Option<OutcomeDigest>,
    pub(super) life: LogPositions,
    /// The run seq of the newest claim.
    pub(super) claimed_seq: i64,
    /// How many tool calls the run waits for.
    pub(super) calls: i64,
    /// The channel of the latest claim.
    pub(super) channel: Option<ChannelId>,
    pub(super) report: Option<ReportKey>,
    pub(super) terms: ReservationFlags,
    /// The total size of its events.
    pub(super) log_bytes: usize,
}

/// Values that only some runs have. For the others nothing is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ReservationFlags {
    /// What the run reserves besides its call.
    pub(super) tokens: u64,
    pub(super) micro_usd: u64,
    /// Whether that is its budget, which it never exceeds.
    tokens_given: bool,
    cost_given: bool,
    /// Whether a callback is sent when it has ended.
    pub(super) calls_back: bool,
    /// A quota ended it before it counted.
    pub(super) refused: bool,
    /// Something was reported since the latest claim.
    pub(super) begun: bool,
}

/// The caller's request, as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredRunSpec<'a> {
    pub(super) task_type: Cow<'a, str>,
    pub(super) caller: Cow<'a, Actor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) workspace_root: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(super) context_fragments: Option<Cow<'a, Json>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(super) allowed_tools: Option<Cow<'a, Json>>,
    #[serde(default = "usual_ttl", skip_serializing_if = "is_usual")]
    pub(super) ttl: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) callback: Option<Cow<'a, RunCallback>>,
    #[serde(default, skip_serializing_if = "StoredBudget::is_open")]
    pub(super) budget: StoredBudget,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sandbox: Option<Sandbox>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) permission_mode: Option<PermissionMode>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) worktree: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) in_person: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fallback: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) continues: Option<RunId>,
    pub(super) input: Cow<'a, Json>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct StoredBudget {
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    micro_usd: Option<u64>,
}

/// The unread rest of a packed state.
struct PackedReader<'a>(&'a [u8]);

// === impl PackedState ===

impl PackedState {
    pub(super) fn of(hot: &RunState) -> Self {
        let (waits, outcome) = match &hot.state.phase {
            RunPhase::Pending { .. } => (RunWaits::default(), None),
            // Since when, and for how long.
            RunPhase::Deferred { since, until } => {
                (RunWaits { since: Some(*since), waited: until.since(*since), ..RunWaits::default() }, None)
            }
            RunPhase::Running(claim) => (claim.waits, None),
            RunPhase::Ended { outcome, .. } => (RunWaits::default(), Some(*outcome)),
        };
        Self {
            epoch: hot.state.epoch,
            attempt: hot.state.attempt,
            limits: hot.state.limits,
            last_seq: hot.last_seq,
            claim: hot.runtime.zip(hot.claimed),
            waits,
            outcome,
            life: hot.life.clone(),
            claimed_seq: hot.claimed_seq,
            calls: hot.calls,
            channel: hot.channel,
            report: hot.report,
            terms: ReservationFlags::of(hot),
            log_bytes: hot.log_bytes,
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let Self { epoch, attempt, limits, last_seq, claim, waits, outcome, life, .. } = self;
        let Self { claimed_seq, calls, channel, report, terms, log_bytes, .. } = self;
        let mut bytes = Vec::with_capacity(128);
        for number in [
            *epoch,
            *attempt,
            limits.max_attempts,
            rows::millis(limits.timeout),
            rows::millis(limits.queue_ttl),
            *last_seq,
            i64::from(waits.approvals),
            i64::from(waits.inputs),
            rows::millis(waits.waited),
            rows::millis(waits.lease),
        ] {
            put(&mut bytes, number);
        }
        put_list(&mut bytes, waits.since.as_slice(), |bytes, since| put(bytes, since.millis()));
        put(&mut bytes, *claimed_seq);
        put(&mut bytes, *calls);
        put_list(&mut bytes, claim.as_slice(), |bytes, (runtime, since)| {
            bytes.extend_from_slice(runtime.uuid().as_bytes());
            put(bytes, since.millis());
        });
        put_list(&mut bytes, outcome.as_slice(), |bytes, outcome| bytes.extend_from_slice(&outcome.0));
        put_list(&mut bytes, &life.0, |bytes, (run_seq, seq)| {
            put(bytes, *run_seq);
            put(bytes, *seq);
        });
        put_list(&mut bytes, channel.as_slice(), |bytes, channel| bytes.extend_from_slice(channel.uuid().as_bytes()));
        put_list(&mut bytes, report.as_slice(), |bytes, report| {
            put(bytes, report.seq);
            put_list(bytes, report.source.as_slice(), |bytes, source| {
                bytes.extend_from_slice(source.uuid().as_bytes());
            });
        });
        // Trailing defaults are omitted.
        if *terms != ReservationFlags::default() || *log_bytes > 0 {
            put(&mut bytes, terms.flags());
            put(&mut bytes, terms.tokens.cast_signed());
            put(&mut bytes, terms.micro_usd.cast_signed());
        }
        if *log_bytes > 0 {
            put(&mut bytes, i64::try_from(*log_bytes).unwrap_or(i64::MAX));
        }
        bytes
    }

    /// In the order of [`Self::bytes`]: members are read in the order they are named.
    fn read(unread: &mut PackedReader<'_>) -> Option<Self> {
        Some(Self {
            epoch: unread.number()?,
            attempt: unread.number()?,
            limits: RunLimits {
                max_attempts: unread.number()?,
                timeout: unread.duration()?,
                queue_ttl: unread.duration()?,
            },
            last_seq: unread.number()?,
            waits: RunWaits {
                approvals: unread.number()?.try_into().ok()?,
                inputs: unread.number()?.try_into().ok()?,
                waited: unread.duration()?,
                lease: unread.duration()?,
                since: unread.list(|unread| unread.number().map(Timestamp::from_millis))?.pop(),
            },
            claimed_seq: unread.number()?,
            calls: unread.number()?,
            claim: unread.list(|unread| Some((unread.runtime()?, Timestamp::from_millis(unread.number()?))))?.pop(),
            outcome: unread.list(|unread| unread.sixteen().map(OutcomeDigest))?.pop(),
            life: LogPositions(unread.list(|unread| Some((unread.number()?, unread.number()?)))?.into()),
            channel: unread.list(PackedReader::channel)?.pop(),
            report: unread
                .list(|unread| {
                    Some(ReportKey { seq: unread.number()?, source: unread.list(PackedReader::channel)?.pop() })
                })?
                .pop(),
            terms: match unread.0 {
                [] => ReservationFlags::default(),
                _ => ReservationFlags::read(
                    unread.number()?,
                    unread.number()?.cast_unsigned(),
                    unread.number()?.cast_unsigned(),
                ),
            },
            log_bytes: match unread.0 {
                [] => 0,
                // Zero is never stored.
                _ => usize::try_from(unread.number()?).ok().filter(|bytes| *bytes > 0)?,
            },
        })
    }
}

impl FromSql for PackedState {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let mut unread = PackedReader(value.as_blob()?);
        Self::read(&mut unread).filter(|_| unread.0.is_empty()).ok_or(FromSqlError::InvalidType)
    }
}

fn put(bytes: &mut Vec<u8>, number: i64) {
    let mut rest = number.cast_unsigned();
    while rest > 0x7f {
        bytes.push(0x80 | rest.to_le_bytes()[0]);
        rest >>= 7;
    }
    bytes.push(rest.to_le_bytes()[0]);
}

/// The length, then each item.
fn put_list<T>(bytes: &mut Vec<u8>, items: &[T], put_item: impl Fn(&mut Vec<u8>, &T)) {
    put(bytes, i64::try_from(items.len()).unwrap_or(i64::MAX));
    for item in items {
        put_item(bytes, item);
    }
}

// === impl ReservationFlags ===

impl ReservationFlags {
    const TOKENS_GIVEN: i64 = 1;
    const COST_GIVEN: i64 = 2;
    const CALLS_BACK: i64 = 4;
    const REFUSED: i64 = 8;
    const BEGUN: i64 = 16;

    /// An ended run reserves nothing, and its callback was already recorded.
    fn of(hot: &RunState) -> Self {
        if hot.state.status().is_terminal() {
            return Self { refused: hot.refused, ..Self::default() };
        }
        let QuotaReservation { held, request, .. } = hot.reservation;
        Self {
            tokens: held.tokens,
            micro_usd: held.micro_usd,
            tokens_given: request.budget.tokens.is_some(),
            cost_given: request.budget.micro_usd.is_some(),
            calls_back: hot.calls_back,
            refused: hot.refused,
            begun: hot.state.claim().is_some_and(|claim| claim.begun),
        }
    }

    fn flags(self) -> i64 {
        let flag = |set, flag| if set { flag } else { 0 };
        flag(self.tokens_given, Self::TOKENS_GIVEN)
            | flag(self.cost_given, Self::COST_GIVEN)
            | flag(self.calls_back, Self::CALLS_BACK)
            | flag(self.refused, Self::REFUSED)
            | flag(self.begun, Self::BEGUN)
    }

    const fn read(flags: i64, tokens: u64, micro_usd: u64) -> Self {
        Self {
            tokens,
            micro_usd,
            tokens_given: flags & Self::TOKENS_GIVEN != 0,
            cost_given: flags & Self::COST_GIVEN != 0,
            calls_back: flags & Self::CALLS_BACK != 0,
            refused: flags & Self::REFUSED != 0,
            begun: flags & Self::BEGUN != 0,
        }
    }

    /// The reservation of a run created on this day.
    pub(super) fn reservation(self, day: quota::UtcDay) -> QuotaReservation {
        let budget = quota::QuotaBudget {
            tokens: self.tokens_given.then_some(self.tokens),
            micro_usd: self.cost_given.then_some(self.micro_usd),
        };
        let held = Spend { calls: 1, tokens: self.tokens, micro_usd: self.micro_usd };
        QuotaReservation {
            day,
            held,
            request: quota::ReservationRequest { budget, ..quota::ReservationRequest::default() },
        }
    }
}

// === impl PackedReader ===

impl PackedReader<'_> {
    fn number(&mut self) -> Option<i64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number.cast_signed());
            }
        }
        None
    }

    fn duration(&mut self) -> Option<Duration> {
        self.number()?.try_into().ok().map(Duration::from_millis)
    }

    fn sixteen(&mut self) -> Option<[u8; 16]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn runtime(&mut self) -> Option<RuntimeId> {
        self.sixteen().map(|bytes| RuntimeId::from_uuid(Uuid::from_bytes(bytes)))
    }

    fn channel(&mut self) -> Option<ChannelId> {
        self.sixteen().map(|bytes| ChannelId::from_uuid(Uuid::from_bytes(bytes)))
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..self.number()?).map(|_| item(self)).collect()
    }
}

// === impl StoredRunSpec ===

impl<'a> StoredRunSpec<'a> {
    pub(super) fn of(spec: &'a RunSpec, caller: &'a Actor) -> Self {
        Self {
            task_type: Cow::Borrowed(&spec.task_type),
            caller: Cow::Borrowed(caller),
            trace: spec.trace_id.as_deref().map(Cow::Borrowed),
            workspace_root: spec.workspace_root.as_deref().map(Cow::Borrowed),
            context_fragments: spec.context_fragments.as_ref().map(Cow::Borrowed),
            allowed_tools: spec.allowed_tools.as_ref().map(Cow::Borrowed),
            ttl: spec.ttl,
            callback: spec.callback.as_ref().map(Cow::Borrowed),
            budget: StoredBudget { tokens: spec.budget.tokens, micro_usd: spec.budget.micro_usd },
            sandbox: spec.sandbox,
            permission_mode: spec.permission_mode,
            worktree: spec.worktree,
            in_person: spec.in_person,
            fallback: spec.fallback,
            continues: spec.continues,
            input: Cow::Borrowed(&spec.input),
        }
    }

    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("texts and JSON can be written as JSON")
    }
}

impl FromSql for StoredRunSpec<'static> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        serde_json::from_str(value.as_str()?).map_err(|error| FromSqlError::Other(error.into()))
    }
}

// === impl StoredBudget ===

impl StoredBudget {
    const fn is_open(&self) -> bool {
        self.tokens.is_none() && self.micro_usd.is_none()
    }
}

impl From<StoredBudget> for quota::QuotaBudget {
    fn from(StoredBudget { tokens, micro_usd }: StoredBudget) -> Self {
        Self { tokens, micro_usd }
    }
}

const fn usual_ttl() -> i64 {
    USUAL_TTL
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_usual(ttl: &i64) -> bool {
    *ttl == USUAL_TTL
}

/// JSON that was given, even `null`. Only a missing member is `None`.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cow<'static, Json>>, D::Error> {
    Json::deserialize(deserializer).map(|json| Some(Cow::Owned(json)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed() -> PackedState {
        PackedState {
            epoch: 3,
            attempt: 300,
            limits: RunLimits {
                max_attempts: 5,
                timeout: Duration::from_secs(3600),
                queue_ttl: Duration::from_millis(86_400_001),
            },
            last_seq: i64::MAX,
            claim: Some((RuntimeId::from_uuid(Uuid::from_u128(7)), Timestamp::from_millis(-1))),
            waits: RunWaits {
                approvals: 1,
                inputs: u32::MAX,
                since: Some(Timestamp::from_millis(1_790_000_000_000)),
                waited: Duration::from_millis(128),
                lease: Duration::from_millis(129),
            },
            outcome: Some(OutcomeDigest([9; 16])),
            life: LogPositions([(1, 1), (2, 127), (40, 1 << 43)].into()),
            claimed_seq: 200,
            calls: 2,
            channel: Some(ChannelId::from_uuid(Uuid::from_u128(8))),
            report: Some(ReportKey { source: Some(ChannelId::from_uuid(Uuid::from_u128(9))), seq: -1 }),
            terms: ReservationFlags::default(),
            log_bytes: 0,
        }
    }

    fn with_terms() -> PackedState {
        let terms = ReservationFlags {
            tokens: u64::MAX,
            micro_usd: 1,
            cost_given: true,
            calls_back: true,
            ..ReservationFlags::default()
        };
        PackedState { terms, ..packed() }
    }

    fn with_a_log() -> PackedState {
        PackedState { log_bytes: 300, ..packed() }
    }

    #[test]
    fn a_packed_state_round_trips() {
        for packed in [packed(), with_terms(), with_a_log()] {
            assert_eq!(PackedState::column_result(ValueRef::Blob(&packed.bytes())).unwrap(), packed);
        }
    }

    #[test]
    fn default_flags_take_no_space() {
        let refused =
            PackedState { terms: ReservationFlags { refused: true, ..ReservationFlags::default() }, ..packed() };
        assert_eq!(refused.bytes(), [packed().bytes(), vec![8, 0, 0]].concat());
    }

    #[test]
    fn a_torn_or_longer_state_is_an_error() {
        let mut bytes = with_terms().bytes();
        // It is also complete without its flags.
        let whole = packed().bytes().len();
        for end in (0..bytes.len()).filter(|end| *end != whole) {
            assert!(PackedState::column_result(ValueRef::Blob(&bytes[..end])).is_err(), "{end}");
        }
        bytes.push(0);
        assert!(PackedState::column_result(ValueRef::Blob(&bytes)).is_err());
        let longer = [with_a_log().bytes(), vec![0]].concat();
        assert!(PackedState::column_result(ValueRef::Blob(&longer)).is_err());
    }

    #[test]
    fn a_request_keeps_its_exact_json() {
        let text = concat!(
            r#"{"task_type":"a\"b","caller":"system","context_fragments":null,"allowed_tools":[ 1.50 ],"#,
            r#""callback":{"url":"http://127.0.0.1/"},"budget":{"tokens":18446744073709551615},"#,
            r#""sandbox":{"cwd_only":true,"allow_network":false},"permission_mode":"plan_first","worktree":true,"#,
            r#""input":{"n": 1e400,"n":-0}}"#
        );
        assert_eq!(StoredRunSpec::column_result(ValueRef::Text(text.as_bytes())).unwrap().text(), text);
    }
}

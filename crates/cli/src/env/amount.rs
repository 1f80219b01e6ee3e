//! Parses amounts of money, durations and points in time from arguments.

use std::time::Duration;

use attache_protocol::{Json, Timestamp};

use crate::text::errors;

/// A point in the past, relative or absolute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PastTime {
    Ago(Duration),
    At(Timestamp),
}

// === impl PastTime ===

impl PastTime {
    pub(crate) fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Ago(distance) => now.minus(distance),
            Self::At(at) => at,
        }
    }
}

/// `30m`, `8h`, `7d` ago, or `2027-01-31T12:00:00Z`.
pub(crate) fn moment(text: &str) -> Result<PastTime, String> {
    let at = text.parse().ok().map(PastTime::At);
    let distance = || duration(text).ok().map(PastTime::Ago);
    at.or_else(distance).ok_or_else(|| errors::moment_expected().to_owned())
}

/// Parses a number of dollars without rounding.
pub(crate) fn dollars(text: &str) -> Result<Json, String> {
    let number = Json::from_text(text).ok().filter(|json| json.parse::<f64>().is_ok_and(|number| number >= 0.0));
    number.ok_or_else(|| errors::dollars_expected().to_owned())
}

/// The same as text, for a query.
pub(crate) fn dollars_as_typed(text: &str) -> Result<String, String> {
    dollars(text).map(|_| text.to_owned())
}

/// Parses a duration: `90s`, `30m`, `8h`, `7d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = |number: &str, unit: u64| number.parse::<u32>().ok().map(|number| u64::from(number) * unit);
    let parsed = match text.char_indices().next_back() {
        Some((at, 's')) => seconds(&text[..at], 1),
        Some((at, 'm')) => seconds(&text[..at], 60),
        Some((at, 'h')) => seconds(&text[..at], 60 * 60),
        Some((at, 'd')) => seconds(&text[..at], 24 * 60 * 60),
        _ => None,
    };
    let length = parsed.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    length.ok_or_else(|| errors::duration_expected().to_owned())
}

/// A number of seconds, also with a unit as in [`duration`].
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0 => Ok(seconds),
        _ => duration(text).map(|length| length.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_unit() {
        let seconds = |text: &str| duration(text).map(|length| length.as_secs()).ok();
        assert_eq!(["90s", "30m", "8h", "7d"].map(seconds), [Some(90), Some(1_800), Some(28_800), Some(604_800)]);
        for wrong in ["", "d", "10", "-1h", "0s", "7 d", "soon", "7é", "99999999999d"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
        assert_eq!(["90", "90s", "2m"].map(super::seconds), [Ok(90), Ok(90), Ok(120)]);
        assert!(["0", "-1", "soon", ""].into_iter().all(|wrong| super::seconds(wrong).is_err()));
    }
}

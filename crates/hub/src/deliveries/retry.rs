//! When to retry a failed delivery.

use std::time::Duration;

use attache_protocol::{Timestamp, env::Env};
use attache_store::record::delivery::AttemptDecision;

use super::Options;

/// The decision after the failure of this attempt, counted from 1. Honours a longer delay requested by the target.
pub(super) fn after(options: &Options, env: &Env, number: i64, retry_after: Option<Duration>) -> AttemptDecision {
    let index = usize::try_from(number - 1).unwrap_or_default();
    let Some(delay) = options.retries.get(index) else { return AttemptDecision::GiveUp };
    let retry_after = retry_after.unwrap_or_default().min(options.longest_retry_after);
    let delay = delay.saturating_add(jitter(env, *delay)).max(retry_after);
    AttemptDecision::RetryAt(env.now().plus(delay))
}

/// Adds up to a quarter, so that deliveries that failed together don't retry together.
fn jitter(env: &Env, delay: Duration) -> Duration {
    let mut byte = [0];
    env.fill(&mut byte);
    delay / 1024 * u32::from(byte[0])
}

/// The delay in `Retry-After`: seconds, or a date.
pub(super) fn parse_retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return value.parse().ok().map(Duration::from_secs);
    }
    // `Sun, 06 Nov 1994 08:49:37 GMT`, the only form that senders may generate.
    let mut parts = value.split_once(", ")?.1.strip_suffix(" GMT")?.split(' ');
    let (day, month, year, time) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let date: Timestamp = format!("{year}-{month:02}-{day}T{time}Z").parse().ok()?;
    Some(date.since(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_and_end() {
        let env = Env::seeded(1);
        let options = Options::default();
        let mut total = Duration::ZERO;
        for (index, least) in options.retries.iter().enumerate() {
            let AttemptDecision::RetryAt(at) = after(&options, &env, i64::try_from(index).unwrap() + 1, None) else {
                panic!("given up after {index}")
            };
            let delay = at.since(env.now());
            assert!((*least..=*least * 5 / 4).contains(&delay), "{delay:?} after {least:?}");
            total += delay;
        }
        assert!((Duration::from_secs(20 * 3600)..Duration::from_secs(30 * 3600)).contains(&total), "about a day");
        assert_eq!(after(&options, &env, 10, None), AttemptDecision::GiveUp);
        assert_eq!(after(&options, &env, 10, Some(Duration::from_secs(5))), AttemptDecision::GiveUp);
    }

    #[test]
    fn a_target_may_ask_for_more_time_within_bounds() {
        let env = Env::seeded(1);
        let options = Options { longest_retry_after: Duration::from_secs(100), ..Options::default() };
        let wait = |seconds| match after(&options, &env, 1, Some(Duration::from_secs(seconds))) {
            AttemptDecision::RetryAt(at) => at.since(env.now()),
            other => panic!("{other:?}"),
        };
        assert_eq!(wait(50), Duration::from_secs(50));
        assert_eq!(wait(1_000_000), Duration::from_secs(100));
        assert!(wait(0) >= Duration::from_secs(1));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "1994-11-06T08:49:00.000Z".parse().unwrap();
        for (value, seconds) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(37)),
            ("Sun, 06 Nov 1994 08:48:37 GMT", Some(0)),
            ("", None),
            ("-1", None),
            ("99999999999999999999", None),
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
            ("Sun, 06 Nev 1994 08:49:37 GMT", None),
            ("soon", None),
        ] {
            assert_eq!(parse_retry_after(value, now), seconds.map(Duration::from_secs), "{value}");
        }
    }
}

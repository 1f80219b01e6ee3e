//! Human-readable times, durations and sizes.

use std::time::Duration;

use attache_protocol::Timestamp;

use crate::text::terms;

/// `just now`, `5 min ago`, `in 9 min`; the date for distant times.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    let (past, distance) = if at <= now { (true, now.since(at)) } else { (false, at.since(now)) };
    if distance < Duration::from_secs(2) {
        return terms::just_now().to_owned();
    }
    if distance > Duration::from_secs(30 * 24 * 60 * 60) {
        return at.to_string().chars().take(10).collect();
    }
    if past {
        return terms::ago(duration(distance));
    }
    // What was just set to ten minutes is ten minutes away.
    let is_soon = distance < Duration::from_secs(120);
    terms::later(duration(if is_soon { distance } else { rounded_to_minutes(distance) }))
}

const fn rounded_to_minutes(distance: Duration) -> Duration {
    Duration::from_secs((distance.as_secs() + 30) / 60 * 60)
}

pub(crate) fn relative_or(at: Option<Timestamp>, now: Timestamp, never: &str) -> String {
    at.map_or_else(|| never.to_owned(), |at| relative(at, now))
}

/// `120 ms`, `3.4 s`, `5 min`, `2 h`, `4 d`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => terms::milliseconds(duration.as_millis()),
        1..10 => terms::seconds(format_args!("{:.1}", duration.as_secs_f64())),
        10..120 => terms::seconds(seconds),
        120..7200 => terms::minutes(seconds / 60),
        7200..172_800 => terms::hours(seconds / 3600),
        _ => terms::days(seconds / 86_400),
    }
}

/// `512 B`, `1.5 KiB`, `20.0 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
    let (mut value, units) = (bytes as f64, ["KiB", "MiB", "GiB", "TiB"]);
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut unit = "KiB";
    for next in units {
        value /= 1024.0;
        unit = next;
        if value < 1024.0 {
            break;
        }
    }
    format!("{value:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_human_readable() {
        let now = Timestamp::from_millis(1_763_199_000_000);
        let ago = |seconds| relative(now.minus(Duration::from_secs(seconds)), now);
        assert_eq!(
            [0, 3, 59, 119, 125, 7_100, 90_000, 9 * 86_400, 90 * 86_400].map(ago),
            [
                "just now",
                "3.0 s ago",
                "59 s ago",
                "119 s ago",
                "2 min ago",
                "118 min ago",
                "25 h ago",
                "9 d ago",
                "2025-08-17"
            ]
        );
        let later = |seconds| relative(now.plus(Duration::from_secs(seconds)), now);
        assert_eq!(
            [3, 30, 119, 130, 570, 599, 600, 7_199, 86_399].map(later),
            ["in 3.0 s", "in 30 s", "in 119 s", "in 2 min", "in 10 min", "in 10 min", "in 10 min", "in 2 h", "in 24 h"]
        );
        assert_eq!([0, 1023, 1536, 20 << 20, 3 << 40].map(size), ["0 B", "1023 B", "1.5 KiB", "20.0 MiB", "3.0 TiB"]);
    }
}

//! Times and durations: machine-readable, legible without scripts, localised by `time.js`.

use std::{fmt, time::Duration};

use askama::filters::HtmlSafe;
use attache_protocol::Timestamp;

use crate::text::Text;

/// A point in time, as a `<time>` element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeElement {
    at: Timestamp,
    form: TimeFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeFormat {
    /// Becomes "3 minutes ago" in the browser.
    Relative,
    /// The time of day, or the date if it isn't today.
    Clock,
    Full,
    /// The remaining time.
    Left,
}

/// A duration, finished or still running. A running one counts up in the browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DurationElement {
    since: Timestamp,
    text: String,
    kind: DurationKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DurationKind {
    Finished,
    /// Counts up in the browser.
    Running,
}

// === impl TimeElement ===

impl TimeElement {
    pub(crate) const fn relative(at: Timestamp) -> Self {
        Self { at, form: TimeFormat::Relative }
    }

    pub(crate) const fn clock(at: Timestamp) -> Self {
        Self { at, form: TimeFormat::Clock }
    }

    pub(crate) const fn full(at: Timestamp) -> Self {
        Self { at, form: TimeFormat::Full }
    }

    /// Counts down in the browser.
    pub(crate) const fn countdown(at: Timestamp) -> Self {
        Self { at, form: TimeFormat::Left }
    }
}

impl fmt::Display for TimeElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = self.at.to_string();
        let day = exact.get(..10).unwrap_or(&exact);
        let clock = exact.get(11..19).unwrap_or_default();
        let (form, shown) = match self.form {
            TimeFormat::Relative => ("relative", format!("{day} {clock} UTC")),
            TimeFormat::Clock => ("clock", clock.to_owned()),
            TimeFormat::Full => ("full", format!("{day} {clock} UTC")),
            TimeFormat::Left => ("left", format!("{clock} UTC")),
        };
        write!(f, "<time datetime=\"{exact}\" data-form=\"{form}\">{shown}</time>")
    }
}

impl HtmlSafe for TimeElement {}

// === impl DurationElement ===

impl DurationElement {
    pub(crate) fn between(since: Timestamp, until: Timestamp, t: &Text) -> Self {
        Self { since, text: duration(until.since(since), t), kind: DurationKind::Finished }
    }

    /// A running duration since `since`. Pages without scripts show it as of `now`.
    pub(crate) fn so_far(since: Timestamp, now: Timestamp, t: &Text) -> Self {
        Self { since, text: duration(now.since(since), t), kind: DurationKind::Running }
    }
}

impl fmt::Display for DurationElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            DurationKind::Running => {
                write!(f, "<time datetime=\"{}\" data-form=\"tick\">{}</time>", self.since, self.text)
            }
            DurationKind::Finished => write!(f, "<span class=\"nowrap\">{}</span>", self.text),
        }
    }
}

impl HtmlSafe for DurationElement {}

/// `0.4 s`, `12 s`, `9 m 44 s`, `1 h 44 m`, `3 d 4 h`, in the units of the catalogue.
pub(crate) fn duration(duration: Duration, t: &Text) -> String {
    let mut units = t.units.split(' ');
    let mut unit = || units.next().unwrap_or_default();
    let (d, h, m, s) = (unit(), unit(), unit(), unit());
    let seconds = duration.as_secs();
    match seconds {
        0..10 => {
            let tenths = duration.as_millis() / 100;
            format!("{}.{} {s}", tenths / 10, tenths % 10)
        }
        10..60 => format!("{seconds} {s}"),
        60..3_600 => format!("{} {m} {:02} {s}", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} {h} {:02} {m}", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} {d} {:02} {h}", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// `812 B`, `6.1 KiB`, `41 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut tenths = u128::from(bytes) * 10;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < units.len() {
        tenths /= 1_024;
        unit += 1;
    }
    if unit == 0 || tenths >= 100 {
        format!("{} {}", tenths / 10, units[unit])
    } else {
        format!("{}.{} {}", tenths / 10, tenths % 10, units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    #[test]
    fn durations_are_human_readable() {
        let shown: Vec<_> = [0, 440, 12_000, 584_000, 6_240_000, 273_600_000]
            .into_iter()
            .map(|millis| duration(Duration::from_millis(millis), Language::En.text()))
            .collect();
        assert_eq!(shown, ["0.0 s", "0.4 s", "12 s", "9 m 44 s", "1 h 44 m", "3 d 04 h"]);
    }

    #[test]
    fn sizes_are_short() {
        let shown: Vec<_> = [0, 812, 6_246, 217_088, 43_000_000, u64::MAX].into_iter().map(size).collect();
        assert_eq!(shown, ["0 B", "812 B", "6.0 KiB", "212 KiB", "41 MiB", "16777215 TiB"]);
    }

    #[test]
    fn a_time_element_has_an_exact_datetime() {
        assert_eq!(
            TimeElement::relative(Timestamp::from_millis(1_763_199_000_007)).to_string(),
            "<time datetime=\"2025-11-15T09:30:00.007Z\" data-form=\"relative\">2025-11-15 09:30:00 UTC</time>"
        );
    }
}

//! The time limits offered in forms.

use std::time::Duration;

use crate::{text::Text, view::time::duration};

/// One choice. The empty value uses the default of the agent or the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TimeLimitChoice {
    pub(crate) value: String,
    pub(crate) label: String,
    pub(crate) chosen: bool,
}

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const USUAL: [u64; 7] = [10 * MINUTE, HOUR, 4 * HOUR, 8 * HOUR, 24 * HOUR, 3 * 24 * HOUR, 7 * 24 * HOUR];

/// The standard choices, plus the current value if it isn't one of them.
pub(crate) fn limits(chosen: Option<u64>, t: &'static Text) -> Vec<TimeLimitChoice> {
    let mut all: Vec<u64> = USUAL.into_iter().chain(chosen).collect();
    all.sort_unstable();
    all.dedup();
    let default = TimeLimitChoice { value: String::new(), label: t.limit_default.to_owned(), chosen: chosen.is_none() };
    let others = all.into_iter().map(|millis| TimeLimitChoice {
        value: millis.to_string(),
        label: duration(Duration::from_millis(millis), t),
        chosen: chosen == Some(millis),
    });
    std::iter::once(default).chain(others).collect()
}

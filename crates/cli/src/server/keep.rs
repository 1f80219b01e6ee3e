//! `--keep CLASS=TIME`: the retention period of each class of records.

use std::time::Duration;

use attache_hub::{KeepClass, Options};

use crate::env::amount;

/// The duration of `forever`.
const FOREVER: Duration = Duration::from_secs(100_000 * 24 * 60 * 60);

/// A class of records and its retention period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetentionSetting {
    class: KeepClass,
    time: Duration,
}

// === impl RetentionSetting ===

impl RetentionSetting {
    /// Reads `runs=30d` or `log=forever`.
    pub(crate) fn from_text(text: &str) -> Result<Self, String> {
        let (name, time) = text
            .split_once('=')
            .ok_or_else(|| format!("expected CLASS=TIME such as runs=30d; classes: {}", Self::names()))?;
        let class = KeepClass::from_text(name).ok_or_else(|| format!("expected one of {}", Self::names()))?;
        let time = if time == "forever" { FOREVER } else { amount::duration(time)? };
        Ok(Self { class, time })
    }

    fn names() -> String {
        KeepClass::ALL.map(KeepClass::as_str).join(", ")
    }

    pub(crate) const fn apply(self, options: &mut Options) {
        *self.class.setting(options) = self.time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_a_duration_or_forever() {
        let day = Duration::from_secs(24 * 60 * 60);
        assert_eq!(
            RetentionSetting::from_text("runs=30d"),
            Ok(RetentionSetting { class: KeepClass::Runs, time: 30 * day })
        );
        assert_eq!(
            RetentionSetting::from_text("log=forever"),
            Ok(RetentionSetting { class: KeepClass::Log, time: FOREVER })
        );
        for wrong in ["runs", "runs=", "runs=soon", "walks=3d", "=3d", ""] {
            assert!(RetentionSetting::from_text(wrong).is_err(), "{wrong}");
        }
    }
}

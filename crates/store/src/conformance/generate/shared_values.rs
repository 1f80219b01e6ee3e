//! Steps around the values that nodes share.

use std::time::Duration;

use super::StepGenerator;
use crate::{
    conformance::step::StoreStep,
    record::shared_value::{SharedValue, SharedValueKind, SharedValueLimit},
};

/// Few, so that values meet.
const KINDS: [SharedValueKind; 2] = [SharedValueKind::LoginLink, SharedValueKind::StartSecrets];
const NAMES: [&str; 5] = ["a", "b", "c", "日本", ""];
const HOLDERS: [&str; 3] = ["user:a", "user:b", "run_日本"];

// === impl StepGenerator ===

impl StepGenerator {
    pub(super) fn shared_value(&self) -> StoreStep {
        let kind = self.draw.one_of(&KINDS).unwrap_or(SharedValueKind::LoginLink);
        let name = self.draw.one_of(&NAMES).unwrap_or_default().to_owned();
        let holder = self.draw.one_of(&HOLDERS).unwrap_or_default().to_owned();
        match self.draw.below(100) {
            0..50 => {
                let value = vec![7; usize::try_from(self.draw.below(4)).unwrap_or_default()];
                let expires_at = self.now().plus(Duration::from_millis(self.draw.below(60_000)));
                let new = SharedValue { kind, name, tenant: self.tenant(), holder, value, expires_at };
                StoreStep::KeepValue(new, self.value_limit(), self.at())
            }
            50..75 => {
                let until = self.at().plus(Duration::from_millis(self.draw.below(2) * self.draw.below(30_000)));
                StoreStep::TakeValue { kind, name, until, at: self.at() }
            }
            75..82 => StoreStep::SharedValue(kind, name, self.at()),
            82..90 => StoreStep::SharedValues(kind, self.at()),
            90..96 => StoreStep::ValueHolders(kind, self.at()),
            _ => StoreStep::DropValues(kind, self.tenant(), holder),
        }
    }

    fn value_limit(&self) -> SharedValueLimit {
        let few = |most| usize::try_from(self.draw.below(most)).unwrap_or_default();
        match self.draw.below(3) {
            0 => SharedValueLimit::None,
            1 => SharedValueLimit::PerHolder(1 + few(2)),
            _ => SharedValueLimit::Total { per_holder: 1 + few(2), values: few(5), bytes: few(10) },
        }
    }
}

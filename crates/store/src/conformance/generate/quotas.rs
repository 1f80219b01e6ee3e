//! Steps around quotas, usage and deliveries.

use std::time::Duration;

use attache_protocol::{
    DeliveryId, Json,
    rules::quota::{QuotaBudget, QuotaLimits, UtcDay},
    wire::delivery::DeliveryState,
};

use super::{DAY, HOUR, Kind, StepGenerator};
use crate::{
    DeliveryStore as _,
    conformance::step::StoreStep,
    memory::MemoryStore,
    record::{
        delivery::{AttemptDecision, DeliveryAttempt, DeliveryFilter, DeliveryRecord, RunCallback},
        quota::QuotaTarget,
    },
};

const URLS: [&str; 3] = ["http://127.0.0.1:9/hook", "https://example.com/é?a=1&b='", ""];
const STATES: [DeliveryState; 3] = [DeliveryState::Pending, DeliveryState::Delivered, DeliveryState::Failed];
/// Near the reservation steps of tokens, and one that no account can hold twice.
const TOKENS: [&str; 9] = ["0", "1", "50", "499.5", "9999", "10000", "10001", "25000", "18446744073709551615"];
const COSTS: [&str; 7] = ["0", "1e-7", "0.05", "0.1", "0.100001", "0.3", "12"];

// === impl StepGenerator ===

impl StepGenerator {
    /// Small limits that take effect, but not at once.
    pub(super) fn set_quota(&self) -> StoreStep {
        let limits = QuotaLimits {
            calls: self.maybe_one_of(&[0, 1, 2, 3, 5, 8]),
            tokens: self.maybe_one_of(&[0, 1, 600, 10_000, 10_500, 25_000, 60_000]),
            micro_usd: self.maybe_one_of(&[0, 5, 100_000, 150_000, 450_000, 20_000_000]),
        };
        StoreStep::SetQuota(self.context(), self.target(), limits)
    }

    pub(super) fn remove_quota(&self) -> StoreStep {
        let known = self.draw.recent(&self.known.targets).filter(|_| self.draw.percent(85));
        StoreStep::RemoveQuota(self.context(), known.unwrap_or_else(|| self.target()))
    }

    fn target(&self) -> QuotaTarget {
        let user = self.draw.percent(if self.known.users.is_empty() { 3 } else { 45 }).then(|| self.user());
        QuotaTarget { user, agent: self.draw.percent(40).then(|| self.agent()) }
    }

    pub(super) fn read_spending(&self) -> StoreStep {
        if self.draw.percent(60) {
            return StoreStep::Quotas(self.tenant(), self.at());
        }
        let today = UtcDay::of(self.now()).0;
        let back = i64::try_from(self.draw.below(4)).unwrap_or(0);
        StoreStep::Usage { tenant: self.tenant(), first: UtcDay(today - back), last: UtcDay(today - back / 2) }
    }

    /// A step that notices that a day is over.
    pub(super) fn at_midnight(&self) -> Kind {
        let kinds = [Kind::ReadSpending, Kind::CreateRun, Kind::Claim, Kind::Progress, Kind::Finish];
        self.draw.one_of(&kinds).unwrap_or(Kind::ReadSpending)
    }

    /// Usage reported by a worker: usually valid, sometimes anything.
    pub(super) fn usage(&self) -> Option<Json> {
        if self.draw.percent(35) {
            return None;
        }
        if self.draw.percent(20) {
            return Some(self.draw.json());
        }
        let tokens = self.draw.one_of(&TOKENS).filter(|_| self.draw.percent(75));
        let cost = self.draw.one_of(&COSTS).filter(|_| self.draw.percent(60));
        let source = ["reported", "estimated"].get(usize::from(self.draw.percent(40)));
        let members = [
            tokens.map(|tokens| format!(r#""tokens":{tokens}"#)),
            cost.map(|cost| format!(r#""cost_usd":{cost}"#)),
            source.filter(|_| self.draw.percent(50)).map(|source| format!(r#""cost_source":"{source}""#)),
        ];
        let members: Vec<String> = members.into_iter().flatten().collect();
        Some(Json::from_text(format!("{{{}}}", members.join(","))).expect("members make an object"))
    }

    pub(super) fn budget(&self) -> QuotaBudget {
        if self.draw.percent(70) {
            return QuotaBudget::default();
        }
        QuotaBudget {
            tokens: self.maybe_one_of(&[0, 1, 500, 10_000, 12_000, 1 << 53]),
            micro_usd: self.maybe_one_of(&[0, 50_000, 100_000, 300_000]),
        }
    }

    pub(super) fn callback(&self) -> Option<RunCallback> {
        self.draw.percent(35).then(|| RunCallback { url: self.url(), approvals: self.draw.percent(50) })
    }

    pub(super) fn url(&self) -> String {
        self.draw.one_of(&URLS).unwrap_or_default().to_owned()
    }

    /// Usually the next attempt of a pending delivery, sometimes a repeated or skipped one.
    pub(super) async fn record_attempt(&self, model: &MemoryStore) -> StoreStep {
        let (id, attempts) = self.waiting_delivery(model).await;
        let number = match self.draw.below(100) {
            0..80 => attempts + 1,
            80..90 => attempts,
            90..95 => attempts + 2,
            _ => 1,
        };
        let delivered = self.draw.percent(45);
        let attempt = DeliveryAttempt {
            at: self.at(),
            status: self.draw.one_of(&[None, Some(204), Some(500), Some(u16::MAX)]).flatten(),
            error: if delivered { None } else { self.draw.maybe_text() },
        };
        let next = match (delivered, self.draw.below(100)) {
            (true, _) => AttemptDecision::Delivered,
            (false, 0..60) => AttemptDecision::RetryAt(self.now().plus(self.millis(&[0, 1_000, 5_000, 30_000, HOUR]))),
            (false, _) => AttemptDecision::GiveUp,
        };
        StoreStep::RecordAttempt { delivery: id, number, attempt, next }
    }

    pub(super) async fn resend(&self, model: &MemoryStore) -> StoreStep {
        let (waiting, _) = self.waiting_delivery(model).await;
        let delivery = if self.draw.percent(25) { waiting } else { self.delivery() };
        StoreStep::ResendDelivery(self.context(), delivery)
    }

    pub(super) async fn read_deliveries(&self, model: &MemoryStore) -> StoreStep {
        match self.draw.below(3) {
            0 => {
                let (waiting, _) = self.waiting_delivery(model).await;
                StoreStep::Delivery(self.tenant(), if self.draw.percent(50) { waiting } else { self.delivery() })
            }
            _ => StoreStep::DueDeliveries { node: self.some_node(), at: self.at(), limit: self.limit() },
        }
    }

    pub(super) fn delivery_filter(&self) -> DeliveryFilter {
        DeliveryFilter {
            state: if self.draw.percent(50) { self.draw.one_of(&STATES) } else { None },
            run: self.draw.percent(30).then(|| self.run()),
        }
    }

    /// Usually a delivery that is or will be due, with the number of its attempts.
    pub(super) async fn waiting_delivery(&self, model: &MemoryStore) -> (DeliveryId, i64) {
        let later = self.now().plus(Duration::from_millis(2 * DAY));
        let due = model.due_deliveries(None, later, 5).await.unwrap_or_default();
        let shown = |delivery: &DeliveryRecord| (delivery.id, delivery.attempts);
        let due: Vec<(DeliveryId, i64)> = due.iter().map(shown).collect();
        let waiting = self.draw.one_of(&due).filter(|_| self.draw.percent(85));
        waiting.unwrap_or_else(|| (self.delivery(), 1))
    }

    fn delivery(&self) -> DeliveryId {
        let unknown = DeliveryId::of_run(self.draw.env.run_id());
        if self.draw.percent(5) { unknown } else { self.draw.recent(&self.known.deliveries).unwrap_or(unknown) }
    }

    fn maybe_one_of(&self, numbers: &[u64]) -> Option<u64> {
        self.draw.one_of(numbers).filter(|_| self.draw.percent(50))
    }
}

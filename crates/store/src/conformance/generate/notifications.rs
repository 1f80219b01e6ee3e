//! Steps around notification targets, and the deliveries to them.

use attache_protocol::{
    NotificationTargetId,
    wire::notification::{NotificationChoices, NotificationDetail, NotificationLanguage, NotificationService},
};

use super::StepGenerator;
use crate::{conformance::step::StoreStep, record::notification::NewNotificationTarget};

// === impl StepGenerator ===

impl StepGenerator {
    /// A new target, sometimes with the address of a known one.
    pub(super) fn set_target(&self) -> StoreStep {
        let mut address = [0; 32];
        address[0] = u8::try_from(self.draw.below(6)).unwrap_or_default();
        StoreStep::CreateNotificationTarget(self.context(), self.new_target(address))
    }

    /// One more, of nobody, under a new address.
    pub(super) fn fill_targets(&self) -> StoreStep {
        let mut address = [1; 32];
        address[..16].copy_from_slice(&self.draw.bytes::<16>());
        StoreStep::CreateNotificationTarget(
            self.context(),
            NewNotificationTarget { user: None, ..self.new_target(address) },
        )
    }

    pub(super) fn update_target(&self) -> StoreStep {
        StoreStep::UpdateNotificationTarget(self.context(), self.some_target(), self.choices())
    }

    pub(super) fn remove_target(&self) -> StoreStep {
        StoreStep::RemoveNotificationTarget(self.context(), self.some_target())
    }

    pub(super) fn read_targets(&self) -> StoreStep {
        match self.draw.below(3) {
            0 => StoreStep::NotificationTarget(self.tenant(), self.some_target()),
            1 => StoreStep::NotificationTargets(self.tenant()),
            _ => StoreStep::LastNotified(self.tenant()),
        }
    }

    /// For a few targets, sometimes the same again.
    pub(super) fn add_notifications(&self) -> StoreStep {
        let targets = (0..=self.draw.below(3)).map(|_| self.some_target()).collect();
        let seq = i64::try_from(self.draw.below(8)).unwrap_or_default();
        StoreStep::AddNotifications(self.context(), self.run(), seq, targets)
    }

    fn new_target(&self, address: [u8; 32]) -> NewNotificationTarget {
        NewNotificationTarget {
            id: self.draw.env.notification_target_id(),
            service: self.draw.one_of(&NotificationService::ALL).unwrap_or(NotificationService::Slack),
            name: self.draw.text(),
            user: self.draw.percent(70).then(|| self.user()),
            key: self.draw.env.key_id(),
            origin: self.url(),
            address,
            sealed: self.draw.bytes::<16>().to_vec(),
            choices: self.choices(),
        }
    }

    fn choices(&self) -> NotificationChoices {
        NotificationChoices {
            approvals: self.draw.percent(50),
            runs: self.draw.percent(50),
            detail: self.draw.one_of(&NotificationDetail::ALL).unwrap_or_default(),
            language: self.draw.one_of(&NotificationLanguage::ALL).unwrap_or_default(),
        }
    }

    fn some_target(&self) -> NotificationTargetId {
        let known = self.draw.recent(&self.known.notification_targets).filter(|_| self.draw.percent(90));
        known.unwrap_or_else(|| self.draw.env.notification_target_id())
    }
}

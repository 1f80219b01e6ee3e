//! Log rows of notification targets.

use attache_protocol::{EventKind, Json, NotificationTargetId, wire::notification::NotificationService};
use serde::Serialize;

use super::LogEntry;
use crate::record::notification::NotificationTargetRecord;

#[derive(Serialize)]
struct TargetAddedData<'a> {
    notification_target_id: NotificationTargetId,
    service: NotificationService,
    name: &'a str,
}

#[derive(Serialize)]
struct TargetData {
    notification_target_id: NotificationTargetId,
}

pub(crate) fn added(target: &NotificationTargetRecord) -> LogEntry {
    let row = TargetAddedData { notification_target_id: target.id, service: target.service, name: &target.name };
    (EventKind::NotificationTargetAdded, Json::of(&row))
}

pub(crate) fn changed(target: NotificationTargetId) -> LogEntry {
    (EventKind::NotificationTargetChanged, Json::of(&TargetData { notification_target_id: target }))
}

pub(crate) fn removed(target: NotificationTargetId) -> LogEntry {
    (EventKind::NotificationTargetRemoved, Json::of(&TargetData { notification_target_id: target }))
}

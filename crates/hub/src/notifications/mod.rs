//! Notifications to people: which row of the log concerns whom, and the request that tells them.
//!
//! A task reads the tenant's log and puts a delivery into the outbox for every target whose person may act on the row, or
//! started the run. The outbox sends it like any webhook. Whether it still concerns them is checked again on every attempt,
//! with the rights of the key or session that made the target, and the target ends with that.

mod chat;
mod message;
mod notice;
mod telegram;
mod text;
mod ticket;
mod web_push;

use std::time::Duration;

use attache_client::egress::EgressReply;
use attache_protocol::{
    Code, EventKind, PermissionId, RunId, Secret, WorkerRequestId,
    log::LogRow,
    rules::permission::PermissionState,
    wire::{awcp, notification::NotificationService},
};
use attache_store::{
    Error as StoreError, WriteContext,
    record::{
        AgentRef, delivery::DeliveryRecord, notification::NotificationTargetRecord, worker_request::WorkerRequestKind,
    },
};
use axum::http::{HeaderMap, StatusCode};
use tokio::time::sleep;

pub(crate) use self::{
    message::TargetAddress,
    notice::discloses_all,
    telegram::{BotProblems, ButtonOutcome, DecisionButton, problem},
    ticket::DecisionTicket,
    web_push::VapidKey,
};
use self::{notice::Notice, telegram::BotPollers};
use crate::{
    Error, Handle, Principal, Result,
    bus::Topic,
    check,
    error::about,
    identity::{AccessVerdict, Action},
};

/// A row of the log that people can be notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NotifiableEvent {
    Approval(PermissionId),
    Question(WorkerRequestId),
    RunEnded,
}

/// A request to a service. Its URL is a secret of its person.
#[derive(Debug)]
pub(crate) struct NotificationRequest {
    pub(crate) service: NotificationService,
    pub(crate) url: Secret<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

const TARGET: &str = "notification target";
/// Rows that come together are read together.
const PAUSE: Duration = Duration::from_millis(20);
/// How far back the log is read after a start.
const MAX_BACKLOG: i64 = 20_000;
/// An older row is no news.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// Runs until the hub drains.
pub(crate) async fn run(hub: Handle) {
    let mut changes = hub.bus().watch(Topic::Tenant(hub.tenant()));
    let (mut after, mut bots) = (None, BotPollers::default());
    loop {
        if let Err(error) = look(&hub, &mut after, &mut bots).await {
            tracing::warn!(%error, "can't make notifications");
        }
        tokio::select! {
            () = hub.drained() => break,
            () = changes.moved() => {}
            () = sleep(hub.options().outbox.look_every) => {}
        }
        tokio::select! {
            () = hub.drained() => break,
            () = sleep(PAUSE) => {}
        }
    }
    bots.finish().await;
}

async fn look(hub: &Handle, after: &mut Option<i64>, bots: &mut BotPollers) -> Result<()> {
    let targets = hub.store().notification_targets(hub.tenant()).await.map_err(about(TARGET))?;
    bots.keep(hub, &targets);
    read_log(hub, after, targets).await
}

/// Makes the deliveries for all new rows. `after` is the last row that was read; nothing is read while nobody has a target.
async fn read_log(hub: &Handle, after: &mut Option<i64>, mut targets: Vec<NotificationTargetRecord>) -> Result<()> {
    let tenant = hub.tenant();
    if targets.is_empty() {
        *after = None;
        return Ok(());
    }
    let mut read = match *after {
        Some(read) => read,
        None => {
            let head = hub.store().log(tenant, i64::MAX, 1).await.map_err(about("log"))?.head;
            let told = hub.store().last_notified(tenant).await.map_err(about("delivery"))?;
            told.unwrap_or_default().max(head - MAX_BACKLOG).max(0)
        }
    };
    loop {
        let page = hub.store().log(tenant, read, check::MAX_PAGE).await.map_err(about("log"))?;
        let Some(last) = page.rows.last().map(|row| row.seq) else { break };
        for row in &page.rows {
            if row.kind == EventKind::NotificationTargetAdded || row.kind == EventKind::NotificationTargetChanged {
                targets = hub.store().notification_targets(tenant).await.map_err(about(TARGET))?;
            }
            let Some((run, event)) = NotifiableEvent::of(row) else { continue };
            if hub.now().since(row.at) > MAX_AGE {
                continue;
            }
            let mut told = Vec::new();
            for target in targets.iter().filter(|target| target.created_at <= row.at) {
                if concerned(hub, target, run, event).await?.is_some() {
                    told.push(target.id);
                }
            }
            if !told.is_empty() {
                let context = WriteContext::new(tenant, WriteContext::SYSTEM.clone(), hub.now());
                hub.store().add_notifications(context, run, row.seq, told).await.map_err(about("delivery"))?;
            }
        }
        read = last;
        *after = Some(read);
    }
    *after = Some(read);
    Ok(())
}

/// The person of the target, if they are still signed in, chose to hear of this, and may act on it. A target whose key or
/// session has ended is removed.
async fn concerned(
    hub: &Handle,
    target: &NotificationTargetRecord,
    run: RunId,
    event: NotifiableEvent,
) -> Result<Option<(Principal, Notice)>> {
    let wanted = match event {
        NotifiableEvent::Approval(_) | NotifiableEvent::Question(_) => target.choices.approvals,
        NotifiableEvent::RunEnded => target.choices.runs,
    };
    if !wanted {
        return Ok(None);
    }
    let Some(by) = hub.target_person(target).await? else { return Ok(None) };
    let notice = match hub.notice(&by, target, run, event).await {
        Ok(notice) => notice,
        // Hidden from this person, or gone.
        Err(error) if error.code.http_status() < 500 => None,
        Err(error) => return Err(error),
    };
    Ok(notice.map(|notice| (by, notice)))
}

/// The request of a delivery. `NotFound` if nobody needs it any more.
pub(crate) async fn render(hub: &Handle, delivery: &DeliveryRecord) -> Result<NotificationRequest> {
    const WHAT: &str = "notification";
    let gone = || Error::not_found(WHAT);
    let (id, seq) = delivery.target.zip(delivery.seq).ok_or_else(gone)?;
    let target = hub.store().notification_target(delivery.tenant, id).await.map_err(about(WHAT))?;
    let page = hub.store().log(delivery.tenant, seq - 1, 1).await.map_err(about("log"))?;
    let row = page.rows.first().filter(|row| row.seq == seq).ok_or_else(gone)?;
    let (run, event) = NotifiableEvent::of(row).ok_or_else(gone)?;
    let (by, notice) = concerned(hub, &target, run, event).await?.ok_or_else(gone)?;
    if hub.now().since(delivery.created_at) >= notice.lifetime {
        return Err(gone());
    }
    message::request(hub, &by, &target, &notice)
}

/// Why the service didn't take the notification, although it responded with success.
pub(crate) fn refusal(service: NotificationService, reply: &EgressReply) -> Option<String> {
    chat::refusal(service, &reply.body)
}

/// Whether the browser will never take one again.
pub(crate) fn has_ended(service: NotificationService, status: u16) -> bool {
    let ended = [StatusCode::NOT_FOUND, StatusCode::GONE].map(|status| status.as_u16());
    service == NotificationService::WebPush && ended.contains(&status)
}

// === impl NotifiableEvent ===

impl NotifiableEvent {
    fn of(row: &LogRow) -> Option<(RunId, Self)> {
        let run = row.run?;
        let event = match row.event_kind()? {
            EventKind::ActionRequired => {
                let permission = row.data.text_member("permission_request_id").and_then(|id| id.parse().ok());
                let question = || row.data.text_member("input_request_id").and_then(|id| id.parse().ok());
                permission.map(Self::Approval).or_else(|| question().map(Self::Question))?
            }
            EventKind::TaskAuthorizationRequired => {
                Self::Question(row.data.text_member("input_request_id")?.parse().ok()?)
            }
            kind if kind.is_terminal() => Self::RunEnded,
            _ => return None,
        };
        Some((run, event))
    }
}

// === impl Handle ===

impl Handle {
    /// The person of a target, with the rights they have now. `None` if what made the target has ended; the target is
    /// removed then.
    pub(crate) async fn target_person(&self, target: &NotificationTargetRecord) -> Result<Option<Principal>> {
        match self.check_maker(target.key).await {
            Ok(by) if by.tenant == target.tenant => Ok(Some(by)),
            Ok(_) => Ok(None),
            Err(error) if error.code == Code::Unauthenticated => {
                self.forget_target(target).await;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Nobody can be notified there any more.
    pub(crate) async fn forget_target(&self, target: &NotificationTargetRecord) {
        let context = WriteContext::new(target.tenant, WriteContext::SYSTEM.clone(), self.now());
        match self.store().remove_notification_target(context, target.id).await {
            Ok(()) | Err(StoreError::NotFound) => {}
            Err(error) => tracing::warn!(%error, target.id = %target.id, "can't remove a notification target"),
        }
    }

    /// What to tell this person. `None` or an error if it doesn't concern them.
    async fn notice(
        &self,
        by: &Principal,
        target: &NotificationTargetRecord,
        run: RunId,
        event: NotifiableEvent,
    ) -> Result<Option<Notice>> {
        let choices = target.choices;
        match event {
            NotifiableEvent::Approval(id) => {
                if by.verdict(Action::DecidePermission) != AccessVerdict::Yes {
                    return Ok(None);
                }
                let asked = self.decidable(by, id).await?;
                let is_open = asked.state == PermissionState::Pending && asked.run == run;
                Ok(is_open.then(|| Notice::of_permission(&asked, choices, self.now())))
            }
            NotifiableEvent::Question(id) => {
                if by.verdict(Action::GiveInput) != AccessVerdict::Yes {
                    return Ok(None);
                }
                let record = self.visible_run(by, run).await?;
                let account = self.store().account(by.tenant, AgentRef::Id(record.agent)).await;
                self.check_caller(by, &account.map_err(about("agent"))?).await?;
                let open = self.store().open_worker_request(by.tenant, run).await.map_err(about("run"))?;
                let is_asked = |ask: &WorkerRequestKind| !matches!(ask, WorkerRequestKind::Tool { .. });
                let open = open.filter(|ask| ask.id == id && is_asked(&ask.what));
                let open = open.filter(|_| record.spec.task_type != awcp::TASK_TYPE);
                Ok(open.map(|ask| Notice::of_question(&record, &ask, choices)))
            }
            NotifiableEvent::RunEnded => {
                let record = self.visible_run(by, run).await?;
                let is_own = by.owns(record.user) && record.spec.parent.is_none();
                Ok((is_own && record.ended_at.is_some()).then(|| Notice::of_end(&record, choices)))
            }
        }
    }

    /// The request that shows a person that notifications reach the target.
    pub(crate) fn test_request(
        &self,
        by: &Principal,
        target: &NotificationTargetRecord,
    ) -> Result<NotificationRequest> {
        message::request(self, by, target, &Notice::test(target.choices))
    }
}

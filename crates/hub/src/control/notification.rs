//! Notification targets of people, and decisions made from a notification.

use attache_protocol::{
    Code, NotificationTargetId, PermissionId, digest,
    rules::permission::{DecisionScope, PermissionState},
    wire::{
        notification::{
            CreateNotificationTarget, NotificationService, NotificationTarget, NotificationTargetList,
            NotificationTest, UpdateNotificationTarget,
        },
        permission::{DecisionRequest, PermissionRequest},
    },
};
use attache_store::record::{
    notification::{NewNotificationTarget, NotificationTargetRecord},
    worker_request::PermissionRecord,
};

use crate::{
    Error, Handle, Principal, Result, check,
    control::DecisionOrigin,
    deliveries,
    error::about,
    identity::{Action, Permit},
    notifications::{self, ButtonOutcome, DecisionButton, DecisionTicket, TargetAddress, discloses_all},
    render,
};

const WHAT: &str = "notification target";
const MAX_NAME: usize = 100;
const MAX_URL: usize = 2048;

impl Handle {
    /// The caller's own, in order of creation. Those of ended sessions are gone.
    pub async fn notification_targets(&self, by: &Principal) -> Result<NotificationTargetList> {
        let permit = by.may(Action::SeeNotifications)?;
        let mut notification_targets = Vec::new();
        for target in self.store().notification_targets(by.tenant).await.map_err(about(WHAT))? {
            if permit.by().owns(target.user) && self.target_person(&target).await?.is_some() {
                notification_targets.push(render::notification_target(target, by.key()));
            }
        }
        Ok(NotificationTargetList { notification_targets, web_push_key: self.vapid_key().public() })
    }

    /// The target is notified of what the caller's credential may act on, and ends with it.
    pub async fn create_notification_target(
        &self,
        by: &Principal,
        request: CreateNotificationTarget,
    ) -> Result<NotificationTarget> {
        let permit = by.may(Action::SetNotifications)?;
        by.lasting("get notifications")?;
        let key = permit.by().key().ok_or_else(|| Error::forbidden("Only a person can get notifications."))?;
        let CreateNotificationTarget { name, address, choices } = request;
        check::line("name", &name, 1..=MAX_NAME)?;
        let service = address.service();
        if service != NotificationService::WebPush {
            by.may_all(Action::ConnectChat)?;
        }
        let address = TargetAddress::new(address).map_err(|invalid| Error::invalid(invalid.field, invalid.problem))?;
        let (field, url) = address.url();
        check::token(field, &url, 1..=MAX_URL)?;
        self.attempts().credential(by)?;
        self.check_egress(field, &url).await?;
        let digest = address.digest();
        let target = NewNotificationTarget {
            id: self.env().notification_target_id(),
            service,
            name,
            user: by.user,
            key,
            origin: address.origin(),
            address: digest,
            sealed: address.seal(self, &digest),
            choices,
        };
        let created = self.store().create_notification_target(self.context(by), target).await.map_err(about(WHAT))?;
        Ok(render::notification_target(created, by.key()))
    }

    pub async fn update_notification_target(
        &self,
        by: &Principal,
        target: NotificationTargetId,
        request: UpdateNotificationTarget,
    ) -> Result<NotificationTarget> {
        self.own_target(&by.may(Action::SetNotifications)?, target).await?;
        let changed = self.store().update_notification_target(self.context(by), target, request.choices).await;
        Ok(render::notification_target(changed.map_err(about(WHAT))?, by.key()))
    }

    pub async fn remove_notification_target(&self, by: &Principal, target: NotificationTargetId) -> Result<()> {
        self.own_target(&by.may(Action::SetNotifications)?, target).await?;
        self.store().remove_notification_target(self.context(by), target).await.map_err(about(WHAT))
    }

    /// Sends a test now, and returns what the service said.
    pub async fn test_notification_target(
        &self,
        by: &Principal,
        target: NotificationTargetId,
    ) -> Result<NotificationTest> {
        let target = self.own_target(&by.may(Action::SetNotifications)?, target).await?;
        self.attempts().credential(by)?;
        let attempt = deliveries::send_now(self, self.test_request(by, &target)?).await;
        let delivered = attempt.error.is_none();
        // It arrived, but perhaps nothing comes back.
        let error = attempt.error.or_else(|| notifications::problem(self, &target));
        Ok(NotificationTest { delivered, status: attempt.status, error })
    }

    /// Other people's targets don't exist for the caller, and a credential that may do less doesn't silence one that may do more.
    async fn own_target(&self, permit: &Permit<'_>, target: NotificationTargetId) -> Result<NotificationTargetRecord> {
        let by = permit.by();
        let found = self.store().notification_target(by.tenant, target).await.map_err(about(WHAT))?;
        if !by.owns(found.user) {
            return Err(Error::not_found(WHAT));
        }
        match self.target_person(&found).await? {
            Some(person) if by.role() < person.role() => Err(Error::forbidden(
                "This key can't change notifications that were set up with more rights than it has.",
            )
            .hint("Use a key with the same role as the one that set them up, or the console.")),
            _ => Ok(found),
        }
    }

    /// What a person decided with a button of a notification. The ticket must be one that this hub made for their session,
    /// and what was asked must still be what the notification was about.
    pub async fn decide_from_notification(
        &self,
        by: &Principal,
        ticket: &str,
        place: DecisionOrigin,
    ) -> Result<PermissionRequest> {
        let ticket = DecisionTicket::read(self, ticket).filter(|ticket| by.key() == Some(ticket.key));
        let ticket = ticket.ok_or_else(undecidable)?;
        self.decide_offered(by, ticket, place).await
    }

    /// What a person pressed in a private chat. Anything but what this hub offered in that chat is unknown.
    pub(crate) async fn decide_with_button(
        &self,
        by: &Principal,
        target: &NotificationTargetRecord,
        data: &str,
    ) -> Result<ButtonOutcome> {
        let Some(button) = DecisionButton::read(data) else { return Ok(ButtonOutcome::Unknown) };
        let asked = match self.decidable(by, button.permission).await {
            Ok(asked) => asked,
            Err(error) if error.code.http_status() < 500 => return Ok(ButtonOutcome::Unknown),
            Err(error) => return Err(error),
        };
        let subject = digest::hex(&asked.subject.0);
        if by.key() != Some(target.key) || !button.was_offered(self, target, &subject) {
            return Ok(ButtonOutcome::Unknown);
        }
        let DecisionButton { permission, approved, .. } = button;
        let ticket = DecisionTicket { permission, subject, key: target.key, approved };
        let place = DecisionOrigin { via: "notification", from: None };
        let state = match self.decide_offered(by, ticket, place).await {
            Ok(decided) => decided.state,
            // Someone else decided first, or the request is no longer needed.
            Err(error) if error.code.http_status() < 500 => self.decidable(by, permission).await?.state,
            Err(error) => return Err(error),
        };
        Ok(match state {
            PermissionState::Approved => ButtonOutcome::Decided { approved: true },
            PermissionState::Denied => ButtonOutcome::Decided { approved: false },
            PermissionState::Pending | PermissionState::Expired | PermissionState::Cancelled => ButtonOutcome::Closed,
        })
    }

    /// What a notification offered to this person, who accepted it. What was asked must still be what it was about.
    async fn decide_offered(
        &self,
        by: &Principal,
        ticket: DecisionTicket,
        place: DecisionOrigin,
    ) -> Result<PermissionRequest> {
        let asked = self.decidable(by, ticket.permission).await?;
        if digest::hex(&asked.subject.0) != ticket.subject {
            return Err(Error::new(
                Code::VersionChanged,
                "The request is no longer the one shown in the notification.",
            ));
        }
        // What the person couldn't see must not be approved with one tap.
        if ticket.approved && !discloses_all(&asked) {
            return Err(undecidable());
        }
        let decision = DecisionRequest {
            approved: ticket.approved,
            scope: DecisionScope::Once,
            tool_pattern: None,
            until: None,
            this_channel_only: false,
            comment: None,
        };
        self.decide(by, ticket.permission, decision, place).await
    }

    /// The request, if this person may decide it.
    pub(crate) async fn decidable(&self, by: &Principal, permission: PermissionId) -> Result<PermissionRecord> {
        let asked = self.find_permission(&by.may(Action::DecidePermission)?, permission).await?;
        self.check_told(by, &asked).await?;
        Ok(asked)
    }
}

fn undecidable() -> Error {
    Error::forbidden("This notification can't decide the request here. Open the request instead.")
}

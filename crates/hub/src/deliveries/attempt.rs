//! One attempt of a delivery, from its body to the recorded outcome.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use attache_client::{
    egress::{self, EgressFailure, EgressReply},
    webhook,
};
use attache_protocol::{Code, Secret, wire::notification::NotificationService};
use attache_store::record::{
    AgentRef,
    delivery::{AttemptDecision, DeliveryAttempt, DeliveryRecord},
};
use axum::http::{HeaderValue, header};

use super::{
    PushNotification, SecretSubject,
    body::{self, HiddenDetail},
    circuit_breaker::CircuitBreakers,
    push_renderer, retry, shared_circuits,
};
use crate::{
    Error, Handle,
    notifications::{self, NotificationRequest},
};

/// What an attempt says about its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TargetHealth {
    /// It responds, though perhaps not with success.
    Healthy,
    /// It can't be reached, is overloaded, or fails.
    Failing,
    /// Nothing was learned.
    Unknown,
}

/// A delivery as it is sent.
struct OutgoingDelivery {
    url: Secret<String>,
    /// `Some` for a notification.
    service: Option<NotificationService>,
    push: PushNotification,
}

impl From<NotificationRequest> for OutgoingDelivery {
    fn from(request: NotificationRequest) -> Self {
        let NotificationRequest { service, url, headers, body } = request;
        Self { url, service: Some(service), push: PushNotification { headers, bodies: vec![body] } }
    }
}

/// Why a delivery is given up whose recipient lost the right to it.
const NO_READER: &str = "The person whose address this is was removed, or may no longer see the run.";
const GONE: u16 = 410;
const TOO_MANY: u16 = 429;
/// How often to try recording the outcome in the store.
const MAX_RECORD_ATTEMPTS: usize = 5;

pub(super) async fn make(hub: &Handle, delivery: DeliveryRecord, circuits: &Mutex<CircuitBreakers>) {
    let target = egress::origin(&delivery.url);
    let circuits = || circuits.lock().unwrap_or_else(PoisonError::into_inner);
    let letter = match write(hub, &delivery).await {
        Ok(letter) => letter,
        Err(error) => {
            unwritten(hub, &delivery, &error).await;
            return circuits().unknown(&target);
        }
    };
    let service = letter.service;
    let sent = send(hub, letter).await;
    let has_ended =
        service.zip(sent.as_ref().ok()).is_some_and(|(service, reply)| notifications::has_ended(service, reply.status));
    let (attempt, next, health) = judge(hub, &delivery, service, sent);
    if has_ended {
        forget(hub, &delivery).await;
    }
    // Update the circuit before the store, so that anyone who sees the failure can rely on the pause.
    match (health, hub.node()) {
        (TargetHealth::Healthy, None) => circuits().succeeded(&target),
        (TargetHealth::Failing, None) => circuits().failed(&target, attempt.at),
        (TargetHealth::Healthy, Some(_)) => {
            let is_failing = circuits().is_failing(&target);
            if is_failing {
                shared_circuits::succeeded(hub, &target).await;
            }
            circuits().unknown(&target);
        }
        (TargetHealth::Failing, Some(_)) => {
            shared_circuits::failed(hub, &delivery, &target, attempt.at).await;
            circuits().unknown(&target);
        }
        (TargetHealth::Unknown, _) => circuits().unknown(&target),
    }
    match &attempt.error {
        None => tracing::info!(delivery.id = %delivery.id, target, attempt = delivery.attempts + 1, "delivered"),
        Some(error) => {
            tracing::info!(delivery.id = %delivery.id, target, attempt = delivery.attempts + 1, error, "not delivered");
        }
    }
    record(hub, &delivery, attempt, next).await;
}

/// What it reports may be gone. A third-party notification that can't be rendered counts as an attempt, so that it ends
/// at some point. Our own can be rendered as soon as the store responds.
async fn unwritten(hub: &Handle, delivery: &DeliveryRecord, error: &Error) {
    let (why, next) = if error.code == Code::Forbidden {
        (&*error.message, AttemptDecision::GiveUp)
    } else if error.code == Code::NotFound {
        ("The run or request it reports no longer exists.", AttemptDecision::GiveUp)
    } else if delivery.config.is_some() || delivery.target.is_some() {
        (
            "The notification could not be rendered.",
            retry::after(&hub.options().outbox, hub.env(), delivery.attempts + 1, None),
        )
    } else {
        tracing::warn!(delivery.id = %delivery.id, %error, "can't render a delivery");
        return rest(hub).await;
    };
    tracing::info!(delivery.id = %delivery.id, %error, "not delivered");
    record(hub, delivery, DeliveryAttempt { at: hub.now(), status: None, error: Some(why.to_owned()) }, next).await;
}

async fn write(hub: &Handle, delivery: &DeliveryRecord) -> Result<OutgoingDelivery, Error> {
    let url = || Secret::new(delivery.url.clone());
    let push = match (&delivery.config, delivery.seq) {
        _ if delivery.target.is_some() => {
            return notifications::render(hub, delivery).await.map(OutgoingDelivery::from);
        }
        (Some(config), Some(seq)) => {
            check_reader(hub, delivery).await?;
            push_renderer::update(hub, delivery, config, seq).await?
        }
        _ => {
            check_reader(hub, delivery).await?;
            render(hub, delivery).await?
        }
    };
    Ok(OutgoingDelivery { url: url(), service: None, push })
}

/// Whoever gave the address must still be somebody who may see the run. `Forbidden` says why not.
async fn check_reader(hub: &Handle, delivery: &DeliveryRecord) -> Result<(), Error> {
    let about = |error| Error::from_store("delivery", error);
    let run = hub.store().run(delivery.tenant, delivery.run).await.map_err(about)?;
    let lost = if delivery.config.is_some() || delivery.is_callback_of(&run) {
        hub.lost_sight(&run).await
    } else {
        let account = hub.store().account(delivery.tenant, AgentRef::Id(run.agent)).await.map_err(about)?;
        match account.owner {
            Some(owner) => hub.lost_sight_of(delivery.tenant, owner).await,
            None => Ok(None),
        }
    };
    match lost.map_err(about)? {
        Some(_) => Err(Error::forbidden(NO_READER)),
        None => Ok(()),
    }
}

async fn render(hub: &Handle, delivery: &DeliveryRecord) -> Result<PushNotification, Error> {
    let about = |error| Error::from_store("delivery", error);
    let run = hub.store().run(delivery.tenant, delivery.run).await.map_err(about)?;
    let (owner, body) = match delivery.permission {
        None => (None, body::run_ended(hub, &crate::render::run(run.clone()))),
        Some(permission) => {
            let account = hub.store().account(delivery.tenant, AgentRef::Id(run.agent)).await.map_err(about)?;
            let permission = hub.store().permission(delivery.tenant, permission).await.map_err(about)?;
            let is_hidden = delivery.is_callback_of(&run) && !hub.creator_sees(&run, &permission).await?;
            let hidden = if is_hidden { HiddenDetail::Step } else { HiddenDetail::of(&permission) };
            (account.owner, body::permission_requested(hub, permission, hidden))
        }
    };
    let secret = hub.signers().secret(delivery.tenant, &SecretSubject::of_delivery(delivery, &run, owner));
    let mut headers =
        webhook::sign(&secret, &delivery.id.to_string(), &body, hub.env().wall()).expect("an id fits into a header");
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(PushNotification { headers, bodies: vec![body] })
}

/// Sends a notification now, for a person who waits for the result.
pub(crate) async fn send_now(hub: &Handle, request: NotificationRequest) -> DeliveryAttempt {
    let service = request.service;
    let (status, error) = match send(hub, OutgoingDelivery::from(request)).await {
        Ok(reply) => (Some(reply.status), refused(service, &reply)),
        Err(failure) => (None, Some(failure.to_string())),
    };
    DeliveryAttempt { at: hub.now(), status, error }
}

/// Why a service didn't take a notification.
fn refused(service: NotificationService, reply: &EgressReply) -> Option<String> {
    match answered(reply.status, || AttemptDecision::GiveUp) {
        (_, None, ..) => notifications::refusal(service, reply),
        (_, why, ..) => why,
    }
}

async fn send(hub: &Handle, letter: OutgoingDelivery) -> Result<EgressReply, EgressFailure> {
    let guard = &hub.options().egress;
    let target = guard.check(letter.url.expose())?;
    let PushNotification { headers, bodies } = letter.push;
    let (first, rest) = bodies.split_first().expect("a delivery has a body");
    let mut reply = guard.post(&target, headers.clone(), first.clone().into()).await?;
    for body in rest {
        if !(200..=299).contains(&reply.status) {
            break;
        }
        reply = guard.post(&target, headers.clone(), body.clone().into()).await?;
    }
    Ok(reply)
}

/// The browser doesn't take notifications any more.
async fn forget(hub: &Handle, delivery: &DeliveryRecord) {
    let Some(id) = delivery.target else { return };
    if let Ok(target) = hub.store().notification_target(delivery.tenant, id).await {
        hub.forget_target(&target).await;
    }
}

fn judge(
    hub: &Handle,
    delivery: &DeliveryRecord,
    service: Option<NotificationService>,
    sent: Result<EgressReply, EgressFailure>,
) -> (DeliveryAttempt, AttemptDecision, TargetHealth) {
    let number = delivery.attempts + 1;
    let options = &hub.options().outbox;
    let retry = |retry_after: Option<Duration>| retry::after(options, hub.env(), number, retry_after);
    let (status, error, next, health) = match sent {
        Ok(reply) if service.is_some_and(|service| notifications::has_ended(service, reply.status)) => {
            let why = "The browser no longer accepts notifications.".to_owned();
            (Some(reply.status), Some(why), AttemptDecision::GiveUp, TargetHealth::Healthy)
        }
        Ok(reply) if let Some(why) = inner_refusal(service, &reply) => {
            (Some(reply.status), Some(why), retry(None), TargetHealth::Healthy)
        }
        Ok(reply) => {
            let retry_after = reply.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
            let retry_after = retry_after.and_then(|value| retry::parse_retry_after(value, hub.env().wall()));
            answered(reply.status, || retry(retry_after))
        }
        // The response arrived, but its body is longer than the limit.
        Err(EgressFailure::TooLarge { status, .. }) => answered(status, || retry(None)),
        // The owner may still allow it: a missing rule must not lose the delivery.
        Err(failure @ (EgressFailure::Refused(_) | EgressFailure::NoTls { .. })) => {
            (None, Some(failure.to_string()), retry(None), TargetHealth::Unknown)
        }
        Err(failure) => (None, Some(failure.to_string()), retry(None), TargetHealth::Failing),
    };
    (DeliveryAttempt { at: hub.now(), status, error }, next, health)
}

/// The refusal inside a success.
fn inner_refusal(service: Option<NotificationService>, reply: &EgressReply) -> Option<String> {
    service.filter(|_| reply.is_success()).and_then(|service| notifications::refusal(service, reply))
}

fn answered(
    status: u16,
    retry: impl FnOnce() -> AttemptDecision,
) -> (Option<u16>, Option<String>, AttemptDecision, TargetHealth) {
    let (why, next, health) = match status {
        200..=299 => return (Some(status), None, AttemptDecision::Delivered, TargetHealth::Healthy),
        GONE => (
            "The target returned 410: it no longer wants this delivery.",
            AttemptDecision::GiveUp,
            TargetHealth::Healthy,
        ),
        TOO_MANY => ("The target returned 429 (too many requests).", retry(), TargetHealth::Failing),
        300..=399 => (
            "The target returned a redirect, which is not followed. Use the final URL.",
            retry(),
            TargetHealth::Healthy,
        ),
        500..=599 => ("The target returned a server error.", retry(), TargetHealth::Failing),
        _ => ("The target did not return success (2xx).", retry(), TargetHealth::Healthy),
    };
    (Some(status), Some(why.to_owned()), next, health)
}

/// Retries recording the outcome. If it is never recorded, the delivery is repeated with the same id.
async fn record(hub: &Handle, delivery: &DeliveryRecord, attempt: DeliveryAttempt, next: AttemptDecision) {
    for _ in 0..MAX_RECORD_ATTEMPTS {
        match hub.store().record_attempt(delivery.id, delivery.attempts + 1, attempt.clone(), next).await {
            Ok(_) => return,
            Err(error) => tracing::warn!(delivery.id = %delivery.id, %error, "can't record the outcome of a delivery"),
        }
        rest(hub).await;
    }
}

/// Waits before asking a failing store again.
async fn rest(hub: &Handle) {
    tokio::select! {
        () = tokio::time::sleep(hub.options().outbox.look_every) => {}
        () = hub.drained() => {}
    }
}

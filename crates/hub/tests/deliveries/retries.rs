//! Failed deliveries are retried with growing delays, the same id and the same bytes, until they arrive or are given
//! up.

use std::time::Duration;

use serde_json::{Value, json};

use super::receiver::{ReceiverAnswer, WebhookReceiver, completed, tried, world};
use crate::world::{Engine, World, on_all};

on_all! {
    unacknowledged_deliveries_are_retried_with_the_same_id
    retry_after_is_honoured
    a_gone_target_is_given_up_and_can_be_resent
    a_delivery_fails_after_the_last_retry
    a_redirect_is_not_followed
    an_unreachable_target_is_reported_and_retried
    nothing_follows_an_acknowledgement
}

const SECOND: Duration = Duration::from_secs(1);

async fn resend(world: &World, delivery: &str) -> Value {
    world.owner.post(&format!("/api/v1/deliveries/{delivery}/resend"), json!({})).await.expect(200)
}

async fn unacknowledged_deliveries_are_retried_with_the_same_id(engine: Engine) {
    let receiver = WebhookReceiver::start(&[
        ReceiverAnswer::Status(500),
        ReceiverAnswer::Status(404),
        ReceiverAnswer::Status(204),
    ])
    .await;
    let (world, device) = world(engine, |options| options.outbox.retries = vec![SECOND, 60 * SECOND]).await;
    let delivery = completed(&world.owner, &device, &receiver.url()).await;
    let first = receiver.next().await;
    let shown = tried(&world, &delivery, 1, "pending").await;
    assert_eq!(
        (&shown["last_status"], &shown["last_error"]),
        (&json!(500), &json!("The target returned a server error."))
    );
    let next = shown["next_attempt_at"].as_str().unwrap().to_owned();
    assert!(("2023-11-14T22:13:21.000Z".."2023-11-14T22:13:21.300Z").contains(&next.as_str()), "{next}");
    world.advance(2 * SECOND);
    let second = receiver.next().await;
    tried(&world, &delivery, 2, "pending").await;
    world.advance(59 * SECOND);
    world.advance(20 * SECOND);
    let third = receiver.next().await;
    let shown = tried(&world, &delivery, 3, "delivered").await;
    assert_eq!((&shown["last_status"], &shown["last_error"]), (&json!(204), &json!(null)));
    for told in [&first, &second, &third] {
        assert_eq!((told.id(), &told.body), (delivery.as_str(), &first.body));
    }
    assert_ne!(first.headers["x-attache-signature"], third.headers["x-attache-signature"], "signed anew");
}

async fn retry_after_is_honoured(engine: Engine) {
    let asks = ReceiverAnswer::With(503, "retry-after", "30");
    let receiver = WebhookReceiver::start(&[asks, ReceiverAnswer::With(429, "retry-after", "86400")]).await;
    let (world, device) = world(engine, |options| {
        options.outbox.retries = vec![SECOND, SECOND];
        options.outbox.longest_retry_after = 60 * SECOND;
    })
    .await;
    let delivery = completed(&world.owner, &device, &receiver.url()).await;
    receiver.next().await;
    let shown = tried(&world, &delivery, 1, "pending").await;
    assert_eq!(shown["next_attempt_at"], "2023-11-14T22:13:50.000Z");
    world.advance(30 * SECOND);
    receiver.next().await;
    let shown = tried(&world, &delivery, 2, "pending").await;
    assert_eq!(shown["next_attempt_at"], "2023-11-14T22:14:50.000Z", "within bounds");
}

async fn a_gone_target_is_given_up_and_can_be_resent(engine: Engine) {
    let receiver = WebhookReceiver::start(&[ReceiverAnswer::Status(410)]).await;
    let (world, device) = world(engine, |_| {}).await;
    let delivery = completed(&world.owner, &device, &receiver.url()).await;
    let first = receiver.next().await;
    let shown = tried(&world, &delivery, 1, "failed").await;
    assert_eq!((&shown["next_attempt_at"], &shown["last_status"]), (&json!(null), &json!(410)));
    let run = delivery.replace("dlv_", "run_");
    let row = json!({"delivery_id": delivery, "task_run_id": run, "attempt": 1, "status": 410,
        "error": "The target returned 410: it no longer wants this delivery."});
    assert_eq!(world.audit("delivery.failed").await, [("system".to_owned(), row)]);
    let resent = resend(&world, &delivery).await;
    assert_eq!((&resent["state"], &resent["attempts"]), (&json!("pending"), &json!(1)));
    let again = receiver.next().await;
    assert_eq!((again.id(), &again.body), (delivery.as_str(), &first.body));
    tried(&world, &delivery, 2, "delivered").await;
    let row = json!({"delivery_id": delivery, "task_run_id": run});
    let rows = world.audit("delivery.resent").await;
    assert!(matches!(rows.as_slice(), [(actor, data)] if actor != "system" && *data == row), "{rows:?}");
    resend(&world, &delivery).await;
    assert_eq!(receiver.next().await.id(), delivery, "also what was delivered");
    tried(&world, &delivery, 3, "delivered").await;
}

async fn a_delivery_fails_after_the_last_retry(engine: Engine) {
    let receiver = WebhookReceiver::start(&[ReceiverAnswer::Status(500); 4]).await;
    let (world, device) = world(engine, |options| options.outbox.retries = vec![SECOND, SECOND]).await;
    let delivery = completed(&world.owner, &device, &receiver.url()).await;
    for attempt in 1..=2 {
        receiver.next().await;
        tried(&world, &delivery, attempt, "pending").await;
        world.advance(2 * SECOND);
    }
    receiver.next().await;
    tried(&world, &delivery, 3, "failed").await;
    resend(&world, &delivery).await;
    receiver.next().await;
    tried(&world, &delivery, 4, "failed").await;
    assert_eq!(receiver.count(), 4, "a person asked for one more try and got one");
}

async fn a_redirect_is_not_followed(engine: Engine) {
    let receiver =
        WebhookReceiver::start(&[ReceiverAnswer::With(307, "location", "/elsewhere"), ReceiverAnswer::Status(200)])
            .await;
    let (world, device) = world(engine, |_| {}).await;
    let delivery = completed(&world.owner, &device, &receiver.url()).await;
    receiver.next().await;
    let shown = tried(&world, &delivery, 1, "pending").await;
    let why = "The target returned a redirect, which is not followed. Use the final URL.";
    assert_eq!((&shown["last_status"], &shown["last_error"]), (&json!(307), &json!(why)));
    world.advance(2 * SECOND);
    assert_eq!(receiver.next().await.place, "/done");
    tried(&world, &delivery, 2, "delivered").await;
    assert_eq!(receiver.count(), 2);
}

async fn an_unreachable_target_is_reported_and_retried(engine: Engine) {
    // Bound, so that no one else gets the port, but not listening yet.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let origin = format!("http://{}", socket.local_addr().unwrap());
    let (world, device) = world(engine, |_| {}).await;
    let delivery = completed(&world.owner, &device, &format!("{origin}/done?key=hunter2")).await;
    let shown = tried(&world, &delivery, 1, "pending").await;
    let error = shown["last_error"].as_str().unwrap();
    assert!(error.starts_with(&format!("can't reach {origin}: ")), "{error}");
    assert_eq!(shown["last_status"], json!(null));
    assert!(!shown.to_string().contains("hunter2"));
    let listener = socket.listen(8).unwrap();
    world.advance(2 * SECOND);
    let (_stream, _) = tokio::time::timeout(crate::world::PATIENCE, listener.accept()).await.unwrap().unwrap();
}

async fn nothing_follows_an_acknowledgement(engine: Engine) {
    let receiver = WebhookReceiver::start(&[]).await;
    let (world, device) = world(engine, |_| {}).await;
    let mut told = Vec::new();
    for _ in 0..3 {
        let delivery = completed(&world.owner, &device, &receiver.url()).await;
        assert_eq!(receiver.next().await.id(), delivery);
        tried(&world, &delivery, 1, "delivered").await;
        world.advance(100_000 * SECOND);
        told.push(delivery);
    }
    // Deliveries are sent in the order they are due, so a repeat would have come before the last of these.
    let last = completed(&world.owner, &device, &receiver.url()).await;
    assert_eq!(receiver.next().await.id(), last);
    assert_eq!(receiver.count(), 4);
}

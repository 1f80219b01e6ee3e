//! One target's failures don't affect others: circuit breakers and slots per target.

use std::time::Duration;

use attache_hub::deliveries::CircuitPolicy;
use serde_json::json;

use super::receiver::{ReceiverAnswer, WebhookReceiver, completed, holding, tried, world};
use crate::world::{Engine, on_all};

on_all! {
    a_resent_delivery_does_not_wait_for_its_target
    a_failing_target_is_paused_and_probed_once
    many_deliveries_to_a_failing_target_do_not_block_the_others
    ; // Each node has its own slots.
    alone:
    a_slow_target_does_not_hold_up_the_others
    the_ports_of_a_host_share_its_slots
    requests_for_approval_have_slots_of_their_own
}

const SECOND: Duration = Duration::from_secs(1);

async fn a_failing_target_is_paused_and_probed_once(engine: Engine) {
    let (ill, well) =
        (WebhookReceiver::start(&[ReceiverAnswer::Status(500); 3]).await, WebhookReceiver::start(&[]).await);
    let (world, device) = world(engine, |options| {
        options.outbox.circuit_policy = CircuitPolicy { failures: 2, pause: 60 * SECOND };
        options.outbox.retries = vec![SECOND; 9];
    })
    .await;
    let first = completed(&world.owner, &device, &ill.url()).await;
    ill.next().await;
    tried(&world, &first, 1, "pending").await;
    world.advance(2 * SECOND);
    ill.next().await;
    tried(&world, &first, 2, "pending").await;
    // The circuit is open: due and new deliveries wait.
    world.advance(2 * SECOND);
    let second = completed(&world.owner, &device, &format!("{}/other", ill.origin)).await;
    let other = completed(&world.owner, &device, &well.url()).await;
    assert_eq!(well.next().await.id(), other);
    tried(&world, &other, 1, "delivered").await;
    tried(&world, &second, 0, "pending").await;
    assert_eq!(ill.count(), 2);
    // One probe fails. Then one succeeds, and everything is delivered.
    world.advance(60 * SECOND);
    assert_eq!(ill.next().await.id(), first);
    tried(&world, &first, 3, "pending").await;
    tried(&world, &second, 0, "pending").await;
    world.advance(61 * SECOND);
    ill.next().await;
    ill.next().await;
    tried(&world, &first, 4, "delivered").await;
    tried(&world, &second, 1, "delivered").await;
}

/// Even while the store has not yet confirmed the outcome to the outbox.
#[tokio::test]
async fn a_visible_failure_counts_against_its_target_from_its_own_time() {
    let (ill, well) = (WebhookReceiver::start(&[ReceiverAnswer::Status(500)]).await, WebhookReceiver::start(&[]).await);
    let (world, device, store) = holding(|options| {
        options.outbox.circuit_policy = CircuitPolicy { failures: 1, pause: 60 * SECOND };
    })
    .await;
    let held = store.hold("record_attempt");
    let first = completed(&world.owner, &device, &ill.url()).await;
    ill.next().await;
    tried(&world, &first, 1, "pending").await;
    let second = completed(&world.owner, &device, &ill.url()).await;
    let other = completed(&world.owner, &device, &well.url()).await;
    assert_eq!(well.next().await.id(), other, "the outbox has looked");
    tried(&world, &second, 0, "pending").await;
    assert_eq!(ill.count(), 1);
    world.advance(60 * SECOND);
    drop(held);
    ill.next().await;
    tried(&world, &second, 1, "delivered").await;
}

async fn a_slow_target_does_not_hold_up_the_others(engine: Engine) {
    let (slow, quick) = (WebhookReceiver::start(&[ReceiverAnswer::Never; 8]).await, WebhookReceiver::start(&[]).await);
    let (world, device) = world(engine, |options| {
        options.outbox.slots = 3;
        options.outbox.slots_per_target = 2;
    })
    .await;
    for _ in 0..8 {
        completed(&world.owner, &device, &slow.url()).await;
    }
    slow.next().await;
    slow.next().await;
    for _ in 0..5 {
        let delivery = completed(&world.owner, &device, &quick.url()).await;
        assert_eq!(quick.next().await.id(), delivery);
        tried(&world, &delivery, 1, "delivered").await;
    }
    assert_eq!(slow.count(), 2);
}

async fn the_ports_of_a_host_share_its_slots(engine: Engine) {
    let mut slow = Vec::new();
    for _ in 0..3 {
        slow.push(WebhookReceiver::start(&[ReceiverAnswer::Never; 4]).await);
    }
    let quick = WebhookReceiver::start_at("127.0.0.2", &[]).await;
    let (world, device) = world(engine, |options| {
        options.outbox.slots = 4;
        options.outbox.slots_per_target = 2;
        options.outbox.slots_per_host = 2;
    })
    .await;
    for slow in slow.iter().chain(&slow) {
        completed(&world.owner, &device, &slow.url()).await;
    }
    for _ in 0..3 {
        let delivery = completed(&world.owner, &device, &quick.url()).await;
        assert_eq!(quick.next().await.id(), delivery);
        tried(&world, &delivery, 1, "delivered").await;
    }
    assert!(slow.iter().map(WebhookReceiver::count).sum::<usize>() <= 2);
}

async fn requests_for_approval_have_slots_of_their_own(engine: Engine) {
    let (slow, quick) = (WebhookReceiver::start(&[ReceiverAnswer::Never; 8]).await, WebhookReceiver::start(&[]).await);
    let (world, device) = world(engine, |options| options.outbox.slots = 4).await;
    for _ in 0..8 {
        completed(&world.owner, &device, &slow.url()).await;
    }
    for _ in 0..3 {
        slow.next().await;
    }
    let create = json!({"agent_id": "builder", "callback_url": quick.url(), "callback_events": ["approval"]});
    let run = world.owner.post("/api/v1/task-runs", create).await.expect(201)["task_run_id"].clone();
    device.claim().await;
    let path = format!("/api/v1/task-runs/{}/permission-requests", run.as_str().unwrap());
    device.client.post(&path, json!({"epoch": 1, "tool": "shell", "input": {}})).await.expect(201);
    assert_eq!(quick.next().await.json()["event"], "permission_requested");
    assert_eq!(slow.count(), 3);
}

async fn many_deliveries_to_a_failing_target_do_not_block_the_others(engine: Engine) {
    let (ill, well) = (WebhookReceiver::start(&[ReceiverAnswer::Status(500)]).await, WebhookReceiver::start(&[]).await);
    let (world, device) = world(engine, |options| {
        options.outbox.circuit_policy = CircuitPolicy { failures: 1, pause: 3600 * SECOND };
        options.outbox.slots = 2;
    })
    .await;
    let first = completed(&world.owner, &device, &ill.url()).await;
    tried(&world, &first, 1, "pending").await;
    for _ in 0..20 {
        completed(&world.owner, &device, &ill.url()).await;
    }
    let delivery = completed(&world.owner, &device, &well.url()).await;
    assert_eq!(well.next().await.id(), delivery);
    assert_eq!(ill.count(), 1);
}

async fn a_resent_delivery_does_not_wait_for_its_target(engine: Engine) {
    let ill = WebhookReceiver::start(&[ReceiverAnswer::Status(500)]).await;
    let (world, device) = world(engine, |options| {
        // No polling within this test.
        options.outbox.circuit_policy = CircuitPolicy { failures: 1, pause: 3600 * SECOND };
        options.outbox.retries = vec![3600 * SECOND; 9];
    })
    .await;
    let first = completed(&world.owner, &device, &ill.url()).await;
    ill.next().await;
    tried(&world, &first, 1, "pending").await;
    let second = completed(&world.owner, &device, &ill.url()).await;
    world.owner.post(&format!("/api/v1/deliveries/{first}/resend"), serde_json::json!({})).await.expect(200);
    assert_eq!(ill.next().await.id(), first);
    tried(&world, &first, 2, "delivered").await;
    // It showed that the target works again.
    assert_eq!(ill.next().await.id(), second);
    tried(&world, &second, 1, "delivered").await;
}

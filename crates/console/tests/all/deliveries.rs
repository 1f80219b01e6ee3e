//! Deliveries: the list, the page of one delivery, resending it, and links from a run.

use attache_client::egress::{EgressGuard, EgressPolicy};
use attache_hub::control::DeliveryQuery;
use attache_protocol::wire::{key::Role, run::CreateRunRequest};
use axum::http::StatusCode;

use crate::world::ConsoleWorld;

#[tokio::test]
async fn a_delivery_is_listed_shown_and_resent() {
    let world = ConsoleWorld::with("127.0.0.1:7800".parse().unwrap(), |options| {
        options.egress = EgressGuard::new(EgressPolicy { allow: vec!["127.0.0.1".parse().unwrap()] });
    })
    .await;
    world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    // Nothing listens on this port.
    let url = "http://127.0.0.1:9/hook/'-alert(1)-'";
    let request = CreateRunRequest { callback_url: Some(url.to_owned()), ..CreateRunRequest::default() };
    let run = world.ask_with(&world.owner, "builder", "tell me", request).await;
    device.claim().await;
    device.complete(run, "done").await;
    let deliveries = world.hub.deliveries(&world.owner, DeliveryQuery::default()).await.unwrap().deliveries;
    let [delivery] = deliveries.as_slice() else { panic!("{deliveries:?}") };
    let path = format!("/deliveries/{}", delivery.delivery_id);

    for role in Role::ALL {
        let visitor = world.signed_in(role).await;
        let list = visitor.get("/deliveries").await.body;
        assert!(list.contains(&format!("href=\"{path}\"")) && list.contains("run ended"), "{list}");
        let of_run = visitor.get(&format!("/deliveries?run={run}&state=pending")).await.body;
        assert!(of_run.contains(&path) && of_run.contains("Pending"), "{of_run}");
        assert!(visitor.get("/deliveries?state=delivered").await.body.contains("No matching deliveries"));
        let page = visitor.get(&path).await.body;
        assert_eq!(page.contains("/resend\""), role >= Role::Operator, "{role:?}");
        let resent = visitor.post(&format!("{path}/resend"), &[]).await;
        if role >= Role::Operator {
            assert_eq!(resent.header("location"), format!("{path}?said=resent"), "{role:?}");
        } else {
            assert_eq!(resent.status, StatusCode::FORBIDDEN, "{role:?}");
        }
        let beside = visitor.get(&format!("/runs/{run}")).await.body;
        assert!(beside.contains(&format!("href=\"{path}\"")), "{beside}");
        for body in [list, page, beside] {
            // Who owns neither the run nor its agent sees only the origin.
            assert!(!body.contains(url) && !body.contains("alert(1)"), "{role:?}");
        }
    }
    let page = world.owner_signed_in().await.get(&path).await.body;
    assert!(!page.contains(url) && page.contains("&#39;-alert(1)-&#39;"), "{page}");
    let owner = world.signed_in(Role::Owner).await;
    assert!(owner.get("/audit?type=delivery").await.body.contains("delivery.resent"));
    assert_eq!(owner.get("/deliveries?run=nonsense").await.status, StatusCode::NOT_FOUND);
}

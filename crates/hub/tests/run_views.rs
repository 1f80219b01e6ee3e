//! Views of the list of runs over the API.

use serde_json::{Value, json};

use crate::{
    escalation::{REGISTER, key, person},
    world::{Engine, World, on_both},
};

on_both! {
    a_person_keeps_views_of_their_own
    a_view_shows_something_and_has_a_plain_name
}

const VIEWS: &str = "/api/v1/run-views";

async fn a_person_keeps_views_of_their_own(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (ada, bob) = (person(&world, "ada", "viewer").await, person(&world, "bob", "owner").await);
    let set = async |name: &str, filter: Value| {
        let kept = ada.put(&format!("{VIEWS}/{name}"), filter.clone()).await.expect(200);
        assert_eq!(kept["filter"], filter);
    };
    let whole = json!({"status": "waiting", "agent": "a b", "caller": "bob", "since": "7d", "min_cost_usd": "0.5", "text": "50% + \u{4fee}"});
    set("first", whole.clone()).await;
    set("%E4%BF%AE%20%2F%20x", json!({"status": "failed"})).await;
    set("first", json!({"text": "q"})).await;
    let kept = json!({"run_views": [
        {"name": "first", "filter": {"text": "q"}},
        {"name": "\u{4fee} / x", "filter": {"status": "failed"}},
    ]});
    assert_eq!(ada.get(VIEWS).await.expect(200), kept);
    set("first", whole.clone()).await;
    assert_eq!(ada.get(VIEWS).await.expect(200)["run_views"][0]["filter"], whole);

    // Neither an owner nor an agent of theirs has anything to do with them.
    assert_eq!(bob.get(VIEWS).await.expect(200), json!({"run_views": []}));
    assert_eq!(bob.delete(&format!("{VIEWS}/first")).await.status, 404);
    let helper = key(&world, &bob.post(REGISTER, json!({"agent_id": "helper"})).await.expect(200));
    assert_eq!(helper.get(VIEWS).await.expect(200), json!({"run_views": []}));
    assert_eq!(helper.put(&format!("{VIEWS}/x"), json!({"status": "failed"})).await.status, 403);

    assert_eq!(ada.delete(&format!("{VIEWS}/first")).await.status, 204);
    assert_eq!(ada.delete(&format!("{VIEWS}/first")).await.status, 404);
    assert_eq!(ada.get(VIEWS).await.expect(200)["run_views"].as_array().unwrap().len(), 1);
}

async fn a_view_shows_something_and_has_a_plain_name(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let ada = person(&world, "ada", "viewer").await;
    let path = |name: &str| format!("{VIEWS}/{name}");
    for (name, filter, field) in [
        ("x", json!({}), "status"),
        ("x", json!({"status": "open"}), "open"),
        ("x", json!({"since": "8h"}), "8h"),
        ("x", json!({"agent": " a"}), "agent"),
        ("x", json!({"text": ""}), "text"),
        ("x", json!({"text": "a\nb"}), "text"),
        ("x", json!({"min_cost_usd": "much"}), "min_cost_usd"),
        ("x", json!({"text": "a", "cursor": "b"}), "cursor"),
        ("a%0Ab", json!({"text": "a"}), "name"),
    ] {
        let refused = ada.put(&path(name), filter.clone()).await.expect(400);
        assert!(refused["error"]["message"].as_str().unwrap().contains(field), "{filter}: {refused}");
    }
    for number in 0..20 {
        ada.put(&path(&number.to_string()), json!({"text": "a"})).await.expect(200);
    }
    assert_eq!(ada.put(&path("more"), json!({"text": "a"})).await.status, 400);
    assert_eq!(ada.put(&path("7"), json!({"text": "b"})).await.status, 200);
}

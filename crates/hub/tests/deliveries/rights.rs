//! Who sees and resends deliveries, and whose secret is whose.

use serde_json::{Value, json};

use super::receiver::{WebhookReceiver, completed, secret, tried, world};
use crate::{
    people::person,
    world::{Engine, on_all},
};

on_all! {
    an_agent_sees_its_own_deliveries_and_has_its_own_secret
    a_secret_is_stable_and_unique_to_its_owner
    a_removed_person_is_told_nothing_more
    the_complete_url_is_for_whoever_owns_the_run_or_the_agent
    whoever_started_a_run_of_an_agent_that_became_private_is_not_told_what_it_asks
}

async fn an_agent_sees_its_own_deliveries_and_has_its_own_secret(engine: Engine) {
    let receiver = WebhookReceiver::start(&[]).await;
    let (world, device) = world(engine, |_| {}).await;
    let registered = world.owner.post("/api/a2a/register", json!({"agent_id": "helper"})).await.expect(200);
    let helper = world.anonymous().key(registered["api_key"].as_str().unwrap());
    let owners = completed(&world.owner, &device, &receiver.url()).await;
    let own = completed(&helper, &device, &receiver.url()).await;
    let (first, second) = (receiver.next().await, receiver.next().await);
    let (of_owner, of_helper) = if first.id() == owners { (first, second) } else { (second, first) };
    let now = world.env.now();
    of_owner.verify(&secret(&world.owner).await, now).unwrap();
    of_helper.verify(&secret(&helper).await, now).unwrap();
    assert!(of_helper.verify(&secret(&world.owner).await, now).is_err());
    for delivery in [&owners, &own] {
        tried(&world, delivery, 1, "delivered").await;
    }

    let ids = |list: &Value| -> Vec<String> {
        let listed = list["deliveries"].as_array().unwrap();
        listed.iter().map(|delivery| delivery["delivery_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&helper.get("/api/v1/deliveries").await.expect(200)), [own.as_str()]);
    let mut all = ids(&world.owner.get("/api/v1/deliveries").await.expect(200));
    all.sort();
    let mut both = vec![owners.clone(), own.clone()];
    both.sort();
    assert_eq!(all, both);
    let missing = "dlv_00000000000000000000000000000001";
    let unknown = helper.get(&format!("/api/v1/deliveries/{missing}")).await;
    assert_eq!(unknown.status, 404);
    for foreign in [
        helper.get(&format!("/api/v1/deliveries/{owners}")).await,
        helper.post(&format!("/api/v1/deliveries/{owners}/resend"), json!({})).await,
    ] {
        assert_eq!((foreign.status, foreign.body), (404, unknown.body.clone()), "like one that is not there");
    }
    assert_eq!(helper.get(&format!("/api/v1/deliveries/{own}")).await.status, 200);
    helper.post(&format!("/api/v1/deliveries/{own}/resend"), json!({})).await.expect(200);
    assert_eq!(receiver.next().await.id(), own);
    let agents = helper.get("/api/v1/deliveries/secret?agent_id=builder").await;
    assert_eq!(agents.refusal(), (403, "forbidden".to_owned()));
    let viewer = world.key("viewer").await;
    // The target's origin is not secret, but the path of a webhook often is.
    let origin = receiver.url().rsplit_once('/').unwrap().0.to_owned();
    let shown = viewer.get(&format!("/api/v1/deliveries/{own}")).await.expect(200);
    assert_eq!(shown["url"], format!("{origin}/***"));
    let listed = viewer.get("/api/v1/deliveries").await.expect(200);
    assert!(
        listed["deliveries"].as_array().unwrap().iter().all(|one| one["url"] == format!("{origin}/***")),
        "{listed}"
    );
    assert_eq!(helper.get(&format!("/api/v1/deliveries/{own}")).await.expect(200)["url"], receiver.url());
    let refused = viewer.post(&format!("/api/v1/deliveries/{own}/resend"), json!({})).await;
    assert_eq!(refused.refusal(), (403, "forbidden".to_owned()));
    assert_eq!(receiver.count(), 3);
}

async fn a_secret_is_stable_and_unique_to_its_owner(engine: Engine) {
    let (world, _device) = world(engine, |_| {}).await;
    let register = async |name: &str| {
        let registered = world.owner.post("/api/a2a/register", json!({"agent_id": name})).await.expect(200);
        world.anonymous().key(registered["api_key"].as_str().unwrap())
    };
    let secrets =
        [secret(&world.owner).await, secret(&register("one").await).await, secret(&register("two").await).await];
    assert_eq!(secret(&world.owner).await, secrets[0]);
    assert_eq!(secret(&register("one").await).await, secrets[1], "an agent keeps its own when it gets another key");
    for (index, secret) in secrets.iter().enumerate() {
        assert!(secret.starts_with("wh_") && secret.len() == 67, "{index}");
        assert!(!secrets[index + 1..].contains(secret), "{index}");
    }
    let file = std::fs::metadata(world.data.path().join("hub/webhook.key")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.permissions());
    assert_eq!((file.len(), mode & 0o777), (32, 0o600));
}

/// The run goes on, but nothing of it goes to an address that they left behind.
async fn a_removed_person_is_told_nothing_more(engine: Engine) {
    let receiver = WebhookReceiver::start(&[]).await;
    let (world, device) = world(engine, |_| {}).await;
    let olga = person(&world, "olga", "operator").await;
    let create = json!({"agent_id": "builder", "callback_url": receiver.url(), "callback_events": ["approval"]});
    let run = olga.post("/api/v1/task-runs", create).await.expect(201)["task_run_id"].as_str().unwrap().to_owned();
    device.claim().await;
    world.owner.delete("/api/v1/users/olga").await.expect(200);
    let asks = json!({"epoch": 1, "tool": "Bash", "input": {"command": "cat secret"}, "diff": "-secret"});
    let path = format!("/api/v1/task-runs/{run}");
    let asked = device.client.post(&format!("{path}/permission-requests"), asks).await.expect(201);
    device
        .client
        .post(&format!("{path}/complete"), json!({"epoch": 1, "output": {"text": "secret"}}))
        .await
        .expect(200);
    let about_request = asked["permission_request_id"].as_str().unwrap().replace("prm_", "dlv_");
    let why = "The person whose address this is was removed, or may no longer see the run.";
    for delivery in [about_request, run.replace("run_", "dlv_")] {
        let given_up = tried(&world, &delivery, 1, "failed").await;
        assert_eq!((&given_up["last_error"], &given_up["last_status"]), (&json!(why), &json!(null)), "{delivery}");
    }
    assert_eq!(receiver.count(), 0);
}

async fn whoever_started_a_run_of_an_agent_that_became_private_is_not_told_what_it_asks(engine: Engine) {
    let receiver = WebhookReceiver::start(&[]).await;
    let (world, device) = world(engine, |_| {}).await;
    let olga = person(&world, "olga", "operator").await;
    let create = json!({"agent_id": "builder", "callback_url": receiver.url(), "callback_events": ["approval"]});
    let run = olga.post("/api/v1/task-runs", create).await.expect(201)["task_run_id"].as_str().unwrap().to_owned();
    device.claim().await;
    world.owner.patch("/api/v1/agent-accounts/builder", json!({"callers": "owner"})).await.expect(200);
    let asks = json!({"epoch": 1, "tool": "Bash", "input": {"command": "cat PRIVATE"}, "cwd": "/PRIVATE",
        "paths": ["/PRIVATE/x"], "reason": "PRIVATE", "diff": "-PRIVATE"});
    let path = format!("/api/v1/task-runs/{run}");
    device.client.post(&format!("{path}/permission-requests"), asks).await.expect(201);
    let told = receiver.next().await.json();
    assert_eq!((&told["tool"], &told["private"], &told["input"]), (&json!("Bash"), &json!(true), &json!(null)));
    assert!(!told.to_string().contains("PRIVATE"), "{told}");
    assert_eq!(olga.get(&path).await.expect(200)["waits_for"]["what"], "Bash");
    assert_eq!(world.owner.get(&path).await.expect(200)["waits_for"]["what"], "Bash: cat PRIVATE");
}

/// A callback's URL often is the secret itself.
async fn the_complete_url_is_for_whoever_owns_the_run_or_the_agent(engine: Engine) {
    let receiver = WebhookReceiver::start(&[]).await;
    // The agent is the hub owner's.
    let (world, device) = world(engine, |_| {}).await;
    let (ada, bob, root) = (
        person(&world, "ada", "operator").await,
        person(&world, "bob", "operator").await,
        person(&world, "root", "admin").await,
    );
    let adas = completed(&ada, &device, &receiver.url()).await;
    tried(&world, &adas, 1, "delivered").await;
    let path = format!("/api/v1/deliveries/{adas}");
    let origin = format!("{}/***", receiver.url().rsplit_once('/').unwrap().0);
    for (caller, shown) in
        [(&ada, receiver.url()), (&world.owner, receiver.url()), (&bob, origin.clone()), (&root, origin)]
    {
        assert_eq!(caller.get(&path).await.expect(200)["url"], shown);
        assert_eq!(caller.get("/api/v1/deliveries").await.expect(200)["deliveries"][0]["url"], shown);
        assert_eq!(caller.post(&format!("{path}/resend"), json!({})).await.expect(200)["url"], shown);
    }
}

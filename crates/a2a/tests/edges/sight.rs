//! Who sees what: secrets of push configs, hidden agents, hints for strangers, the order of lists, one message in two
//! versions.

use attache_a2a_wire::{ListTasks, Part, PushAuthenticationInfo, PushConfig, PushConfigList, TaskList, TaskState};
use attache_protocol::wire::key::{CreateKeyRequest, KeyScope};
use serde_json::json;

use crate::{
    obedient::{immediate, message, request, steps},
    scene::{A2aFixture, AGENT, world},
    speak::{TestBinding, TestOperation, TestVersion, every_way, http},
};

#[tokio::test]
async fn a_key_that_only_reads_does_not_learn_where_else_it_could_write() {
    let scene = A2aFixture::start(world()).await;
    let done = scene.owner().send(request(message("done", vec![Part::text("hello")]))).await.id;
    let key = |name: &str, scopes: &[KeyScope]| {
        let request = CreateKeyRequest { name: name.to_owned(), scopes: Some(scopes.to_vec()), ..Default::default() };
        let hub = scene.world.hub.clone();
        let owner = scene.world.owner.clone();
        async move { hub.create_key(&owner, request).await.unwrap().api_key.unwrap() }
    };
    let reader = key("reader", &[KeyScope::Read]).await;
    let caller = key("caller", &[KeyScope::Read, KeyScope::Call]).await;
    let secret = |credentials: Option<&str>| {
        Some(PushAuthenticationInfo { scheme: "Bearer".to_owned(), credentials: credentials.map(str::to_owned) })
    };
    let config = PushConfig {
        id: Some("c".to_owned()),
        task_id: Some(done.clone()),
        url: "https://example.org/told".to_owned(),
        token: Some("my word".to_owned()),
        authentication: secret(Some("xyz")),
        ..PushConfig::default()
    };
    scene.owner().once(TestOperation::CreatePush(config.clone())).await.unwrap();
    let plain = PushConfig { token: None, authentication: secret(None), ..config.clone() };
    for (binding, version) in every_way() {
        for (key, wanted) in [(&reader, &plain), (&caller, &config)] {
            let client = scene.stranger(binding, version).key(key);
            let got: PushConfig = client.once(TestOperation::get_push(&done, "c")).await.unwrap().parse().unwrap();
            assert_eq!(&got, wanted, "{binding:?} {version:?}");
            let list: PushConfigList = client.once(TestOperation::list_pushes(&done)).await.unwrap().parse().unwrap();
            assert_eq!(list.configs, std::slice::from_ref(wanted), "{binding:?} {version:?}");
        }
    }
    scene.world.stop().await;
}

/// Hidden says who sees the card, anonymous says who is served: whoever was told the address may ask.
#[tokio::test]
async fn a_hidden_agent_that_serves_everybody_serves_those_who_know_where_it_is() {
    let scene = A2aFixture::start(world().agent("open")).await;
    scene.switch(json!({"hidden": true, "anonymous": true})).await;
    let card = http().get(format!("{}/a2a/{AGENT}/.well-known/agent-card.json", scene.world.url)).send().await.unwrap();
    assert_eq!(card.status(), 404);
    let catalog = http().get(format!("{}/.well-known/ai-catalog.json", scene.world.url)).send().await.unwrap();
    let catalog = catalog.text().await.unwrap();
    assert!(catalog.contains("/a2a/open/") && !catalog.contains(AGENT), "{catalog}");
    for (binding, version) in every_way() {
        let sent = message(&format!("{binding:?}{version:?}"), vec![Part::text("hello")]);
        let task = scene.stranger(binding, version).send(request(sent)).await;
        assert_eq!(task.status.state, TaskState::TaskStateCompleted);
    }
    // And one that serves nobody without a credential is not told from one that is not there.
    scene.switch(json!({"hidden": true})).await;
    for (binding, version) in every_way() {
        let stranger = scene.stranger(binding, version);
        let hidden = stranger.refused(TestOperation::get("x")).await;
        let missing = crate::speak::TestClient { agent: "missing".to_owned(), ..stranger };
        assert_eq!(hidden, missing.refused(TestOperation::get("x")).await, "{binding:?} {version:?}");
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn strangers_are_pointed_to_the_pages_about_a2a() {
    let scene = A2aFixture::start(world()).await;
    for (binding, version) in every_way() {
        let refusal = scene.stranger(binding, version).refused(TestOperation::get("x")).await;
        let wanted = "The request has no credential. Send an API key or token of the hub as `Authorization: Bearer …`. \
                      See /docs/a2a.";
        assert_eq!(refusal.message, wanted, "{binding:?} {version:?}");
        let wrong = scene.stranger(binding, version).key("ak_wrong").refused(TestOperation::get("x")).await;
        assert!(!wrong.message.contains("admin.key"), "{}", wrong.message);
    }
    scene.world.stop().await;
}

/// A task that goes on after a question has just changed.
#[tokio::test]
async fn the_list_begins_with_what_changed_last() {
    for world in [world(), world().on_sqlite()] {
        let scene = A2aFixture::start(world).await;
        let owner = scene.owner();
        let old = owner.send(request(steps("m1", json!([{"ask": "?"}, {"hold": true}])))).await.id;
        let new = owner.send(immediate(steps("m2", json!([{"hold": true}])))).await.id;
        owner.until(&new, TaskState::TaskStateWorking).await;
        let list = async || {
            let found = owner.once(TestOperation::List(ListTasks::default())).await.unwrap();
            found.parse::<TaskList>().unwrap().tasks.into_iter().map(|task| task.id).collect::<Vec<_>>()
        };
        assert_eq!(list().await, [new.clone(), old.clone()]);
        let waited = scene.world.hub.now();
        while scene.world.hub.now() == waited {
            tokio::task::yield_now().await;
        }
        let answer = message("yes", vec![Part::text("yes")]);
        let answer = attache_a2a_wire::Message { task_id: Some(old.clone()), ..answer };
        owner.send(immediate(answer)).await;
        owner.until(&old, TaskState::TaskStateWorking).await;
        assert_eq!(list().await, [old.clone(), new.clone()], "it works again since its answer");
        let changed = owner.get(&old).await.status.timestamp;
        let after = ListTasks { status_timestamp_after: changed, ..ListTasks::default() };
        let found: TaskList = owner.once(TestOperation::List(after)).await.unwrap().parse().unwrap();
        assert_eq!(found.tasks.iter().map(|task| &task.id).collect::<Vec<_>>(), [&old]);
        scene.gate.add_permits(2);
        scene.world.stop().await;
    }
}

#[tokio::test]
async fn one_message_is_one_task_in_both_versions() {
    let scene = A2aFixture::start(world().on_sqlite()).await;
    let sent = request(message("m1", vec![Part::text("hello")]));
    let first = scene.client(TestBinding::Rpc, TestVersion::V10).send(sent.clone()).await.id;
    for (binding, version) in every_way() {
        let client = scene.client(binding, version);
        assert_eq!(client.send(sent.clone()).await.id, first, "{binding:?} {version:?}");
        let other = message("m1", vec![Part::text("hello there")]);
        assert_ne!(client.send(request(other)).await.id, first, "another message, though it has its id");
    }
    scene.world.stop().await;
}

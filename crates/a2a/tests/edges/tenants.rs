//! Two tenants on one hub: neither finds the other's agents or tasks, and what it is told is what it would be told of nothing.

use std::sync::Arc;

use attache_a2a_wire::{ListTasks, Part, TaskList};
use attache_hub::{Hub, Options, router, serve};
use attache_protocol::{
    env::Env,
    secret::Kind,
    wire::{account::AccountRequest, key::Role},
};
use attache_store::{
    Store as _, UserStore as _, WriteContext,
    memory::MemoryStore,
    record::{NewKey, user::NewUser},
};
use tokio::{net::TcpListener, sync::oneshot};

use crate::{
    obedient::{immediate, message},
    speak::{TestClient, TestOperation, TestVersion, every_way},
};

const NOBODYS: &str = "run_0193f6a1b2c37d4e8f90a1b2c3d4e5f6";

#[tokio::test]
async fn another_tenants_agents_and_tasks_are_not_there() {
    let data = tempfile::tempdir().unwrap();
    let (store, env) = (Arc::new(MemoryStore::new()), Env::system());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut options = Options::new(data.path().join("hub"), listener.local_addr().unwrap());
    options.disk_reserve = Some(0);
    let hub = Hub::start(options, store.clone(), env.clone()).await.unwrap();
    let surface = router(hub.clone()).merge(attache_a2a::router(hub.clone()));
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(serve(listener, surface, hub.clone(), async move {
        let _ = stopped.await;
    }));
    let ours = std::fs::read_to_string(data.path().join("hub/admin.key")).unwrap().trim().to_owned();

    let other = env.tenant_id();
    store.create_tenant(other, "other", env.now()).await.unwrap();
    let context = || WriteContext::new(other, WriteContext::SYSTEM, env.now());
    let user = NewUser { id: env.user_id(), name: "owner".to_owned(), role: Role::Owner, password: None };
    let user = store.create_user(context(), user).await.unwrap();
    let secret = Kind::ApiKey.generate(&env);
    let key = NewKey {
        id: env.key_id(),
        opening: None,
        issuer: None,
        agent: None,
        name: "other".to_owned(),
        role: Role::Owner,
        user: Some(user.id),
        scopes: None,
        secret: secret.hash(),
        expires_at: None,
    };
    store.create_key(context(), key).await.unwrap();
    let theirs = secret.expose().clone();

    // An agent of each, and one that both have by the same name.
    for (key, names) in [(&ours, ["ours", "worker"]), (&theirs, ["theirs", "worker"])] {
        let owner = hub.authenticate_key(key).await.unwrap();
        for name in names {
            let request = AccountRequest { name: Some(name.to_owned()), ..AccountRequest::default() };
            hub.create_account(&owner, request).await.unwrap();
        }
    }
    for (binding, version) in every_way() {
        let who = format!("{binding:?} {version:?}");
        let client = |agent: &str, key: &str| TestClient::new(binding, version, &url, agent).key(key);
        let sent = || immediate(message(&who, vec![Part::text("hello")]));
        let (own, foreign) = (client("worker", &ours).send(sent()).await, client("worker", &theirs).send(sent()).await);
        assert_ne!(own.id, foreign.id, "{who}: the same message of two tenants is two tasks");
        let plain = |refusal: crate::speak::SpokenRefusal, id: &str| format!("{refusal:?}").replace(id, "ID");
        for ask in [TestOperation::get, TestOperation::cancel, TestOperation::subscribe, TestOperation::list_pushes] {
            let seen = client("worker", &ours).refused(ask(&foreign.id)).await;
            let wanted = client("worker", &ours).refused(ask(NOBODYS)).await;
            assert_eq!(plain(seen, &foreign.id), plain(wanted, NOBODYS), "{who}");
        }
        let seen = client("theirs", &ours).refused(TestOperation::Send(sent())).await;
        assert_eq!(seen, client("missing", &ours).refused(TestOperation::Send(sent())).await, "{who}");
        if version == TestVersion::V10 {
            let found = client("worker", &ours).once(TestOperation::List(ListTasks::default())).await.unwrap();
            let found: TaskList = found.parse().unwrap();
            assert!(found.tasks.iter().all(|task| task.id != foreign.id) && !found.tasks.is_empty(), "{who}");
        }
    }
    let _ = stop.send(());
    served.await.unwrap();
}

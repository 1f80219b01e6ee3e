//! Delegations published by daemons: everyone sees what the table allows, a person asks to end one, and the daemon is
//! notified.

use std::time::Duration;

use attache_client::{HubClient, HubClientOptions, HubCredential, PageQuery};
use attache_protocol::{
    DelegationId, Secret,
    env::Env,
    rules::delegation::DelegationStatus,
    wire::{
        awcp::AccessMode,
        delegation::{ChangedPath, DelegationProjection, DiffStat, FileChangeKind, FolderChanges, PublishedDelegation},
    },
};
use serde_json::json;

use crate::{
    channel::peer::register_agent,
    people::person,
    world::{TestCaller, World},
};

fn projection(status: DelegationStatus) -> DelegationProjection {
    DelegationProjection {
        status,
        description: "mend the build".to_owned(),
        peer_url: "https://hub.example/a2a/builder".to_owned(),
        folder: "src".to_owned(),
        device_name: "laptop".to_owned(),
        access_mode: AccessMode::Rw,
        created_at: "2026-01-01T00:00:00.000Z".parse().unwrap(),
        expires_at: Some("2026-01-01T01:00:00.000Z".parse().unwrap()),
        ended_at: None,
        waits_for: None,
        progress: Some("reads".to_owned()),
        result: None,
        changes: Some(FolderChanges {
            changed_paths: vec![ChangedPath {
                path: "a/b.rs".to_owned(),
                change: FileChangeKind::Modified,
                added: Some(2),
                removed: Some(1),
                also_changed_here: false,
                run_by: None,
            }],
            diff_stat: DiffStat { files_changed: 1, insertions: 2, deletions: 1 },
            truncated: false,
        }),
    }
}

fn id() -> DelegationId {
    DelegationId::from_uuid(Env::system().uuid())
}

fn hub(world: &World, client: &TestCaller) -> HubClient {
    let key = client.header("authorization").trim_start_matches("Bearer ").to_owned();
    HubClient::new(HubClientOptions::new(format!("http://{}", world.address), HubCredential::Key(Secret::new(key))))
        .unwrap()
}

#[tokio::test]
async fn a_person_cancels_a_published_delegation_and_its_daemon_is_notified() {
    for world in [World::start().await, World::on_sqlite().await] {
        let ann = person(&world, "ann", "operator").await;
        let (daemon, id) = (hub(&world, &ann), id());
        let published = daemon.publish_delegation(id, &projection(DelegationStatus::Invited)).await.unwrap();
        let expected = PublishedDelegation {
            delegation_id: id,
            owner: "user:ann".to_owned(),
            updated_at: published.updated_at,
            cancel_requested: false,
            delegation: projection(DelegationStatus::Invited),
        };
        assert_eq!(published, expected);
        daemon.publish_delegation(id, &projection(DelegationStatus::Running)).await.unwrap();
        let again = daemon.publish_delegation(id, &projection(DelegationStatus::Running)).await.unwrap();
        assert_eq!(daemon.delegation(id).await.unwrap(), again);
        assert_eq!(daemon.delegations(&PageQuery::default()).await.unwrap().delegations, [again]);
        let changed: Vec<_> = world.audit("delegation.changed").await.into_iter().map(|(_, data)| data).collect();
        let row = |status: &str| json!({"delegation_id": id.to_string(), "status": status});
        assert_eq!(changed, [row("invited"), row("running")], "a row for every change of its status");

        let none = daemon.delegation_cancellation(id, Duration::ZERO).await.unwrap();
        assert!(!none.cancel_requested);
        let waits = tokio::spawn({
            let daemon = daemon.clone();
            async move { daemon.delegation_cancellation(id, Duration::from_secs(30)).await }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        let cancelled = hub(&world, &world.owner).cancel_delegation(id).await.unwrap();
        assert!(cancelled.cancel_requested);
        assert!(tokio::time::timeout(Duration::from_secs(5), waits).await.unwrap().unwrap().unwrap().cancel_requested);
        let rows = world.audit("delegation.cancel_requested").await;
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].1, json!({"delegation_id": id.to_string()}));

        // An ended one stays unchanged.
        let ended = self::id();
        daemon.publish_delegation(ended, &projection(DelegationStatus::Completed)).await.unwrap();
        assert!(!daemon.cancel_delegation(ended).await.unwrap().cancel_requested);
        let _ = world.stop();
    }
}

#[tokio::test]
async fn only_its_owner_changes_a_delegation_and_agents_see_their_owners() {
    let world = World::start().await;
    let (ann, bob) = (person(&world, "ann", "operator").await, person(&world, "bob", "operator").await);
    let viewer = person(&world, "vera", "viewer").await;
    let (daemon, id) = (hub(&world, &ann), id());
    daemon.publish_delegation(id, &projection(DelegationStatus::Running)).await.unwrap();
    let path = format!("/api/v1/delegations/{id}");
    let body = serde_json::to_value(projection(DelegationStatus::Completed)).unwrap();
    assert_eq!(bob.put(&path, body.clone()).await.refusal(), (404, "not_found".to_owned()));
    assert_eq!(viewer.put(&path, body).await.status, 403);
    assert_eq!(bob.get(&format!("{path}/cancellation")).await.status, 404);
    assert_eq!(viewer.get(&path).await.expect(200)["status"], "running");
    assert_eq!(viewer.post(&format!("{path}/cancel"), json!({})).await.status, 403);

    let helper = ann.post("/api/a2a/register", json!({"agent_id": "helper"})).await.expect(200);
    let anns = world.anonymous().key(helper["api_key"].as_str().unwrap());
    let strange = world.anonymous().key(&register_agent(&world, "stranger").await);
    assert_eq!(anns.get(&path).await.expect(200)["owner"], "user:ann");
    assert_eq!(strange.get(&path).await.status, 404);
    assert_eq!(strange.get("/api/v1/delegations").await.expect(200)["delegations"], json!([]));
    assert_eq!(
        anns.post(&format!("{path}/cancel"), json!({})).await.status,
        404,
        "it is the person's, not the agent's"
    );
}

#[tokio::test]
async fn a_delegation_to_a_private_agent_stays_hidden_whoever_has_its_name_later() {
    let world = World::start().await;
    // With keys of their own: one that somebody else issued can't change a private agent.
    let (ann, bob) = (
        crate::escalation::person(&world, "ann", "operator").await,
        crate::escalation::person(&world, "bob", "operator").await,
    );
    let viewer = person(&world, "vera", "viewer").await;
    let accounts = "/api/v1/agent-accounts";
    ann.post(accounts, json!({"name": "builder", "callers": "owner"})).await.expect(201);
    let (plain, encoded) = (id(), id());
    let hidden = projection(DelegationStatus::Running);
    hub(&world, &ann).publish_delegation(plain, &hidden).await.unwrap();
    let hidden = DelegationProjection { peer_url: "https://hub.example/a2a/%62uilder".to_owned(), ..hidden };
    hub(&world, &ann).publish_delegation(encoded, &hidden).await.unwrap();
    let is_hidden = async || {
        for id in [plain, encoded] {
            for by in [&bob, &viewer] {
                assert_eq!(by.get(&format!("/api/v1/delegations/{id}")).await.status, 404);
                assert_eq!(by.get("/api/v1/delegations").await.expect(200)["delegations"], json!([]));
            }
        }
    };
    is_hidden().await;
    ann.patch(&format!("{accounts}/builder"), json!({"name": "elsewhere"})).await.expect(200);
    is_hidden().await;
    world.owner.post(accounts, json!({"name": "builder", "owner": "bob"})).await.expect(201);
    is_hidden().await;
    // Published again, it is still the first agent's.
    hub(&world, &ann).publish_delegation(plain, &projection(DelegationStatus::Completed)).await.unwrap();
    is_hidden().await;
}

#[tokio::test]
async fn paths_and_oversized_values_are_refused() {
    let world = World::start().await;
    let path = format!("/api/v1/delegations/{}", id());
    let good = serde_json::to_value(projection(DelegationStatus::Running)).unwrap();
    for (member, value) in [
        ("folder", json!("/home/ann/src")),
        ("folder", json!("a\\b")),
        ("folder", json!("")),
        ("device_name", json!("x".repeat(300))),
        ("peer_url", json!("")),
        ("workspace_dir", json!("/home/ann/src")),
        ("status", json!("done")),
        (
            "changes",
            json!({"changed_paths": [{"path": "/etc/passwd", "change": "added"}], "diff_stat": {"files_changed": 1, "insertions": 0, "deletions": 0}}),
        ),
    ] {
        let mut wrong = good.clone();
        wrong[member] = value;
        let reply = world.owner.put(&path, wrong).await;
        assert_eq!(reply.refusal(), (400, "invalid_request".to_owned()), "{member}");
    }
    let mut secret = good;
    secret["peer_url"] = json!("https://hub.example/a2a/builder?key=secret");
    let shown = world.owner.put(&path, secret).await.expect(200);
    assert_eq!(shown["peer_url"], "https://hub.example/a2a/builder?key=***");
}

//! Delegations without scripts: the list, the page of one delegation, and requesting its end.

use std::time::Duration;

use attache_protocol::{
    DelegationId,
    rules::delegation::DelegationStatus,
    wire::{
        awcp::{AccessMode, AwcpErrorCode},
        delegation::{
            ChangedPath, DelegationFailure, DelegationOutcome, DelegationProjection, DiffStat, FileChangeKind,
            FolderChanges,
        },
        key::Role,
    },
};
use axum::http::StatusCode;

use crate::world::ConsoleWorld;

pub(crate) fn projection(world: &ConsoleWorld, status: DelegationStatus) -> DelegationProjection {
    let now = world.hub.now();
    let file = |path: &str, change, also_changed_here| ChangedPath {
        path: path.to_owned(),
        change,
        added: Some(12),
        removed: Some(5),
        also_changed_here,
        run_by: None,
    };
    DelegationProjection {
        status,
        description: "review <b>\u{1b}parser".to_owned(),
        peer_url: "https://hub.example/a2a/reviewer".to_owned(),
        folder: "parser".to_owned(),
        device_name: "workstation-2".to_owned(),
        access_mode: AccessMode::Rw,
        created_at: now.minus(Duration::from_secs(600)),
        expires_at: Some(now.plus(Duration::from_secs(1800))),
        ended_at: None,
        waits_for: None,
        progress: Some("reads src/lexer.rs".to_owned()),
        result: None,
        changes: Some(FolderChanges {
            changed_paths: vec![
                file("src/lexer.rs", FileChangeKind::Modified, false),
                file("src/<i>.rs", FileChangeKind::Added, true),
                file("old.rs", FileChangeKind::Removed, false),
            ],
            diff_stat: DiffStat { files_changed: 3, insertions: 36, deletions: 15 },
            truncated: true,
        }),
    }
}

#[tokio::test]
async fn a_delegation_is_listed_shown_and_ended() {
    let world = ConsoleWorld::new().await;
    let viewer = world.signed_in(Role::Viewer).await;
    assert!(viewer.get("/delegations").await.body.contains("No delegations yet"));
    let id = DelegationId::from_uuid(world.hub.env().uuid());
    world.hub.publish_delegation(&world.owner, id, projection(&world, DelegationStatus::Running)).await.unwrap();
    let path = format!("/delegations/{id}");
    for role in Role::ALL {
        let visitor = world.signed_in(role).await;
        let list = visitor.get("/delegations").await.body;
        assert!(list.contains(&format!("href=\"{path}\"")) && list.contains("1 active on this page."), "{list}");
        assert!(list.contains("Running") && list.contains("3 files, +36 −15"), "{list}");
        assert!(list.contains("data-form=\"left\""), "the lease counts down: {list}");
        let page = visitor.get(&path).await.body;
        for shown in [
            "read and write",
            "workstation-2",
            "https://hub.example/a2a/reviewer",
            "data-form=\"left\"",
            "src/lexer.rs",
            "src/&lt;i&gt;.rs",
            "<span class=\"plus\">+12</span>",
            "also changed locally",
            "Not all changes are shown.",
            "reads src/lexer.rs",
            "data-live=\"delegation.\"",
            "width=\"25%\"",
        ] {
            assert!(page.contains(shown), "{shown} is missing in {page}");
        }
        assert!(!page.contains("<b>\u{1b}"), "{role:?}");
        assert!(!page.contains("attache delegations review"), "it still works: {page}");
        assert_eq!(page.contains(&format!("action=\"{path}/cancel\"")), role >= Role::Operator, "{role:?}");
    }
    assert_eq!(viewer.post(&format!("{path}/cancel"), &[]).await.status, StatusCode::FORBIDDEN);
    let operator = world.signed_in(Role::Operator).await;
    let cancelled = operator.post(&format!("{path}/cancel"), &[]).await;
    assert_eq!(cancelled.header("location"), format!("{path}?said=ending"));
    let page = operator.get(&format!("{path}?said=ending")).await.body;
    assert!(page.contains("Asked the delegating machine to end access.") && page.contains("Ending"), "{page}");
    assert!(!page.contains("/cancel\""), "it is asked for once: {page}");
    let owner = world.signed_in(Role::Owner).await;
    assert!(owner.get("/audit?type=delegation").await.body.contains("delegation.cancel_requested"));
    assert_eq!(owner.get("/delegations/nonsense").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_result_of_a_delegation_is_shown() {
    let world = ConsoleWorld::new().await;
    let owner = world.signed_in(Role::Owner).await;
    let result = |error| DelegationOutcome {
        final_summary: Some("the parser is safe\nand fast".to_owned()),
        highlights: vec!["no blind slices".to_owned()],
        notes: Some("tests added".to_owned()),
        full_output: None,
        error,
    };
    let failure = DelegationFailure {
        code: AwcpErrorCode::MountFailed,
        message: "sshfs said no".to_owned(),
        hint: "install sshfs".to_owned(),
    };
    for (status, error, shown) in [
        (
            DelegationStatus::Completed,
            None,
            ["Completed", "the parser is safe\nand fast", "no blind slices", "tests added"],
        ),
        (DelegationStatus::Error, Some(failure), ["Failed", "MOUNT_FAILED", "sshfs said no", "install sshfs"]),
    ] {
        let id = DelegationId::from_uuid(world.hub.env().uuid());
        let ended = DelegationProjection {
            ended_at: Some(world.hub.now()),
            result: Some(result(error)),
            ..projection(&world, status)
        };
        world.hub.publish_delegation(&world.owner, id, ended).await.unwrap();
        let page = owner.get(&format!("/delegations/{id}")).await.body;
        // Only the owner's machine has the contents.
        assert!(page.contains(&format!("<code>attache delegations review {id}</code>")), "{page}");
        for word in shown {
            assert!(page.contains(word), "{word} is missing in {page}");
        }
        assert!(
            !page.contains("data-form=\"left\"") && !page.contains("/cancel\""),
            "there is no lease any more: {page}"
        );
    }
}

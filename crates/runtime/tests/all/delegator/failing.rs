//! Changes that fail on the host, and what the remote's "done" is worth then; what the policy says of mounts and originals.

use std::{fs, time::Duration};

use attache_client::daemon;
use attache_protocol::{
    Code,
    rules::delegation::DelegationStatus,
    wire::{awcp::AwcpErrorCode, delegation::RevertRequest},
};

use super::{DaemonMachine, DelegatorFixture, RemoteScript, failure};

/// Adds to the policy: first what is of the delegator, then what is of its exports.
fn allow(scene: &DelegatorFixture, delegator: &str, export: &str) {
    let path = scene.machine.root().join("awcp/policy.toml");
    let text = fs::read_to_string(&path).unwrap().replace("[delegator]\n", &format!("[delegator]\n{delegator}"));
    fs::write(path, format!("{text}\n[delegator.export]\n{export}")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn work_of_which_a_limit_refused_a_part_is_not_done() {
    let scene = DelegatorFixture::new(RemoteScript::Run("put made.txt\n-put made.txt two.txt")).await;
    allow(&scene, "", "max_bytes = 20\n");
    let ended = scene.machine.ended(&scene.delegate().await).await;
    assert_eq!(failure(&ended), (DelegationStatus::Error, AwcpErrorCode::TaskFailed), "{ended:?}");
    let result = ended.result.clone().unwrap();
    let error = result.error.clone().unwrap();
    assert_eq!(error.message, "the remote says that it is done, but changes that failed are missing: two.txt");
    assert!(error.hint.contains(&format!("attache delegations diff {}", ended.delegation_id)), "{}", error.hint);
    assert!(result.notes.as_ref().unwrap().contains("refused by a limit of the lease (bytes written)"), "{result:?}");
    // What the remote said and did is there all the same.
    assert_eq!(result.final_summary.as_deref(), Some("did: make a file"));
    assert_eq!(fs::read_to_string(scene.machine.project().join("made.txt")).unwrap(), "made there\n");
    let changed = ended.changes.unwrap().changed_paths;
    assert!(changed.iter().any(|it| it.path == "made.txt"), "{changed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_was_overcome_is_a_note() {
    let scene = DelegatorFixture::new(RemoteScript::Run("-put large.txt two.txt\nput made.txt two.txt")).await;
    fs::write(scene.remote.folder.path().join("large.txt"), "much more than that\n".repeat(5)).unwrap();
    allow(&scene, "", "max_bytes = 20\n");
    let ended = scene.machine.ended(&scene.delegate().await).await;
    assert_eq!(ended.status, DelegationStatus::Completed, "{ended:?}");
    let notes = ended.result.unwrap().notes.unwrap();
    assert!(notes.contains("refused by a limit of the lease (bytes written)"), "{notes}");
    assert_eq!(fs::read_to_string(scene.machine.project().join("two.txt")).unwrap(), "made there\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_and_mount_options_are_told_to_the_remote() {
    let scene = DelegatorFixture::new(RemoteScript::Work).await;
    allow(&scene, "", "mount_options = [\"dcache_timeout=60\"]\n");
    fs::create_dir(scene.machine.project().join(".git")).unwrap();
    let ended = scene.machine.ended(&scene.delegate().await).await;
    assert_eq!(ended.status, DelegationStatus::Completed, "{ended:?}");
    let start = scene.remote.started().await;
    let options: Option<Vec<String>> = start.mount.mount_options.map(|options| options.parse().unwrap());
    assert_eq!(options, Some(vec!["dcache_timeout=60".to_owned()]));
    let invite = scene.remote.invite.lock().unwrap().clone().unwrap();
    assert_eq!(invite.requirements.needs_git.as_ref().map(|needs| needs.get()), Some("\"optional\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn originals_that_are_too_many_are_removed_the_oldest_first() {
    let scene = DelegatorFixture::new(RemoteScript::Run("put made.txt here.txt")).await;
    let machine = &scene.machine;
    // Room for the originals of one of them.
    allow(&scene, "keep_originals_bytes = 2000\n", "");
    let mut ended = Vec::new();
    for _ in 0..2 {
        fs::write(machine.project().join("here.txt"), "here\n".repeat(200)).unwrap();
        ended.push(machine.ended(&scene.delegate().await).await);
    }
    let before = |at: usize| {
        let folder = machine.root().join("awcp/delegations").join(ended[at].delegation_id.to_string());
        folder.join("before")
    };
    let pruned = async {
        while before(0).exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(super::TEST_TIMEOUT, pruned).await.expect("the oldest originals go");
    match machine.client.revert(ended[0].delegation_id, &RevertRequest::default()).await {
        Err(daemon::Error::Refused(refusal)) => {
            assert_eq!(refusal.code, Code::NotFound);
            assert!(refusal.message.ends_with("were removed, because they were old or too many"), "{refusal:?}");
        }
        other => panic!("{other:?}"),
    }
    // The newest are there, and can be put back.
    assert!(before(1).exists());
    let reverted = machine.client.revert(ended[1].delegation_id, &RevertRequest::default()).await.unwrap();
    assert_eq!(reverted.restored, ["here.txt"]);
    assert_eq!(fs::read_to_string(machine.project().join("here.txt")).unwrap(), "here\n".repeat(200));
}

#[tokio::test(flavor = "multi_thread")]
async fn originals_that_are_too_old_are_removed_when_the_daemon_starts() {
    let scene = DelegatorFixture::new(RemoteScript::Run("put made.txt here.txt")).await;
    let ended = scene.machine.ended(&scene.delegate().await).await;
    let root = scene.machine.root();
    let before = root.join("awcp/delegations").join(ended.delegation_id.to_string()).join("before");
    assert!(before.exists());
    allow(&scene, "keep_originals_days = 0\n", "");
    let DelegatorFixture { machine, remote: _remote, hub: _hub, .. } = scene;
    machine.stop.cancel();
    machine.running.await.unwrap();
    let (client, stop, running) = DaemonMachine::run(&root).await;
    let pruned = async {
        while before.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(super::TEST_TIMEOUT, pruned).await.expect("old originals go");
    assert!(client.revert(ended.delegation_id, &RevertRequest::default()).await.is_err());
    stop.cancel();
    running.await.unwrap();
}

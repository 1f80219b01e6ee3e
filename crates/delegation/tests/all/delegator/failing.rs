//! Changes that fail on the host although the remote reports DONE, mount options of the policy, and retention of
//! originals.

use std::{fs, time::Duration};

use attache_client::daemon;
use attache_protocol::{
    Code,
    rules::delegation::DelegationStatus,
    wire::{
        awcp::{ATTACHE_FS, AwcpErrorCode, SSHFS, SYNC, TransportChoice},
        delegation::{DelegateRequest, RevertRequest},
    },
};

use super::{DaemonMachine, DelegatorFixture, RemoteScript, failure};

/// Adds to the policy: first to `[delegator]`, then to `[delegator.export]`.
fn allow(fixture: &DelegatorFixture, delegator: &str, export: &str) {
    let path = fixture.machine.root().join("awcp/policy.toml");
    let text = fs::read_to_string(&path).unwrap().replace("[delegator]\n", &format!("[delegator]\n{delegator}"));
    fs::write(path, format!("{text}\n[delegator.export]\n{export}")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn work_partly_refused_by_a_limit_is_not_complete() {
    let fixture = DelegatorFixture::new(RemoteScript::Run("put made.txt\n-put made.txt two.txt")).await;
    allow(&fixture, "", "max_bytes = 20\n");
    let ended = fixture.machine.ended(&fixture.delegate().await).await;
    assert_eq!(failure(&ended), (DelegationStatus::Error, AwcpErrorCode::TaskFailed), "{ended:?}");
    let result = ended.result.clone().unwrap();
    let error = result.error.clone().unwrap();
    assert_eq!(error.message, "the remote reported DONE, but these changes failed: two.txt");
    assert!(error.hint.contains(&format!("attache delegations diff {}", ended.delegation_id)), "{}", error.hint);
    assert!(result.notes.as_ref().unwrap().contains("refused by a limit of the lease (bytes written)"), "{result:?}");
    // The remote's summary and its other changes are kept.
    assert_eq!(result.final_summary.as_deref(), Some("did: make a file"));
    assert_eq!(fs::read_to_string(fixture.machine.project().join("made.txt")).unwrap(), "made there\n");
    let changed = ended.changes.unwrap().changed_paths;
    assert!(changed.iter().any(|it| it.path == "made.txt"), "{changed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_was_overcome_is_only_a_note() {
    let fixture = DelegatorFixture::new(RemoteScript::Run("-put large.txt two.txt\nput made.txt two.txt")).await;
    fs::write(fixture.remote.folder.path().join("large.txt"), "much more than that\n".repeat(5)).unwrap();
    allow(&fixture, "", "max_bytes = 20\n");
    let ended = fixture.machine.ended(&fixture.delegate().await).await;
    assert_eq!(ended.status, DelegationStatus::Completed, "{ended:?}");
    let notes = ended.result.unwrap().notes.unwrap();
    assert!(notes.contains("refused by a limit of the lease (bytes written)"), "{notes}");
    assert_eq!(fs::read_to_string(fixture.machine.project().join("two.txt")).unwrap(), "made there\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_remote_learns_of_a_repository_and_mount_options() {
    let fixture = DelegatorFixture::new(RemoteScript::Work).await;
    allow(&fixture, "", "mount_options = [\"dcache_timeout=60\"]\n");
    fs::create_dir(fixture.machine.project().join(".git")).unwrap();
    let ended = fixture.machine.ended(&fixture.delegate().await).await;
    assert_eq!(ended.status, DelegationStatus::Completed, "{ended:?}");
    let start = fixture.remote.started().await;
    let options: Option<Vec<String>> = start.mount.mount_options.map(|options| options.parse().unwrap());
    assert_eq!(options, Some(vec!["dcache_timeout=60".to_owned()]));
    let invite = fixture.remote.invite.lock().unwrap().clone().unwrap();
    assert_eq!(invite.requirements.needs_git.as_ref().map(|needs| needs.get()), Some("\"optional\""));
}

/// The best one that both sides know, unless somebody asks for another. A remote that names none is older than the choice.
#[tokio::test(flavor = "multi_thread")]
async fn attache_fs_is_used_where_both_sides_know_it() {
    for (usable, wanted, expected) in [
        (&[][..], None, Ok(SSHFS)),
        (&[SSHFS], None, Ok(SSHFS)),
        (&[SSHFS, ATTACHE_FS], None, Ok(ATTACHE_FS)),
        (&[SSHFS, ATTACHE_FS], Some(TransportChoice::AttacheFs), Ok(ATTACHE_FS)),
        (&[SSHFS, ATTACHE_FS], Some(TransportChoice::Sshfs), Ok(SSHFS)),
        (&[SYNC], None, Ok(SYNC)),
        (&[SSHFS], Some(TransportChoice::AttacheFs), Err("the remote can't mount folders with attache-fs")),
    ] {
        let fixture = DelegatorFixture::new(RemoteScript::Work).await;
        *fixture.remote.transports.lock().unwrap() = usable.iter().map(|name| (*name).to_owned()).collect();
        let request = DelegateRequest { transport: wanted, ..fixture.machine.request(&fixture.url()) };
        let delegation = fixture.machine.client.delegate(&request).await.unwrap();
        let ended = fixture.machine.ended(&delegation).await;
        let invite = fixture.remote.invite.lock().unwrap().clone().unwrap();
        assert_eq!(invite.requirements.mount_transport, SSHFS, "which older remotes look at");
        let offered = TransportChoice::offered(wanted);
        assert_eq!(invite.requirements.mount_transports, offered);
        match expected {
            Ok(transport) => {
                assert_eq!(ended.status, DelegationStatus::Completed, "{ended:?}");
                assert_eq!(ended.transport.as_deref(), Some(transport));
                assert_eq!(fixture.remote.started().await.mount.transport, transport);
            }
            Err(message) => {
                assert_eq!(ended.status, DelegationStatus::Error, "{ended:?}");
                assert_eq!(ended.result.unwrap().error.unwrap().message, message);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn old_originals_are_removed_when_the_daemon_starts() {
    let fixture = DelegatorFixture::new(RemoteScript::Run("put made.txt here.txt")).await;
    let ended = fixture.machine.ended(&fixture.delegate().await).await;
    let root = fixture.machine.root();
    let before = root.join("awcp/delegations").join(ended.delegation_id.to_string()).join("before");
    assert!(before.exists());
    allow(&fixture, "keep_originals_days = 0\n", "");
    let DelegatorFixture { machine, remote: _remote, hub: _hub, .. } = fixture;
    machine.stop.cancel();
    machine.running.await.unwrap();
    let (client, stop, running) = DaemonMachine::run(&root).await;
    let pruned = async {
        while before.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(super::TEST_TIMEOUT, pruned).await.expect("old originals are removed");
    match client.revert(ended.delegation_id, &RevertRequest::default()).await {
        Err(daemon::Error::Refused(refusal)) => {
            assert_eq!(refusal.code, Code::NotFound);
            assert!(refusal.message.ends_with("were removed to save space"), "{refusal:?}");
        }
        other => panic!("{other:?}"),
    }
    stop.cancel();
    running.await.unwrap();
}

//! Staged delegations at the daemon: the copy, what is left of it, and when it is removed.

use std::{fs, path::PathBuf, time::Duration};

use attache_client::daemon;
use attache_protocol::{
    Code, Timestamp,
    rules::{delegation::DelegationStatus, staging::NOTICE},
    wire::{
        awcp::AccessMode,
        delegation::{ApplyRequest, DelegateRequest, Delegation, DiscardRequest, StagedCopyStatus},
    },
};

use super::{DaemonMachine, DelegatorFixture, RemoteScript, TEST_TIMEOUT};

/// Changes a file that was there, and makes another one.
const SCRIPT: RemoteScript = RemoteScript::Run("put made.txt\nput made.txt here.txt");

fn request(fixture: &DelegatorFixture) -> DelegateRequest {
    DelegateRequest { staged: true, ..fixture.machine.request(&fixture.url()) }
}

async fn staged(fixture: &DelegatorFixture) -> Delegation {
    let created = fixture.machine.client.delegate(&request(fixture)).await.unwrap();
    let ended = fixture.machine.ended(&created).await;
    assert_eq!(ended.status, DelegationStatus::Completed, "{ended:?}");
    ended
}

fn copy(machine: &DaemonMachine, delegation: &Delegation) -> PathBuf {
    machine.root().join("awcp/delegations").join(delegation.delegation_id.to_string()).join("staged/files")
}

/// Starts another daemon, after it was changed what the record says.
async fn restart(
    fixture: &mut DelegatorFixture,
    delegation: &Delegation,
    change: impl FnOnce(&mut Delegation),
) -> Delegation {
    fixture.machine.stop.cancel();
    tokio::time::timeout(TEST_TIMEOUT, &mut fixture.machine.running).await.unwrap().unwrap();
    let root = fixture.machine.root();
    let file = root.join("awcp/delegations").join(delegation.delegation_id.to_string()).join("status.json");
    let mut recorded: Delegation = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    change(&mut recorded);
    fs::write(&file, serde_json::to_vec(&recorded).unwrap()).unwrap();
    (fixture.machine.client, fixture.machine.stop, fixture.machine.running) = DaemonMachine::run(&root).await;
    fixture.machine.client.get(delegation.delegation_id).await.unwrap()
}

/// Nobody is woken by what happens to a delegation that has ended.
async fn shows(
    fixture: &DelegatorFixture,
    delegation: &Delegation,
    reached: impl Fn(&Delegation) -> bool,
) -> Delegation {
    let waiting = async {
        loop {
            let shown = fixture.machine.client.get(delegation.delegation_id).await.unwrap();
            if reached(&shown) {
                return shown;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, waiting).await.expect("the daemon looks at old copies")
}

fn code(refused: Result<impl std::fmt::Debug, daemon::Error>) -> Option<Code> {
    refused.unwrap_err().code()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_folder_changes_when_a_copy_is_applied() {
    let fixture = DelegatorFixture::new(SCRIPT).await;
    let (machine, client) = (&fixture.machine, &fixture.machine.client);
    let ended = staged(&fixture).await;
    let id = ended.delegation_id;
    let status = ended.staged.clone().unwrap();
    assert_eq!((status.unapplied, status.bytes, status.warned_at, status.removed_at), (2, 5, None, None));
    assert!(status.kept_until.is_some_and(|until| until > ended.ended_at.unwrap()));
    assert_eq!(fs::read_to_string(machine.project().join("here.txt")).unwrap(), "here\n");
    assert!(!machine.project().join("made.txt").exists());
    let audit = machine.record(&ended, "audit.jsonl");
    assert!(audit.contains("\"event\":\"copy\"") && audit.contains("1 files, 5 bytes"), "{audit}");

    let request = ApplyRequest { paths: vec!["never".to_owned()], ..ApplyRequest::default() };
    assert_eq!(code(client.apply(id, &request).await), Some(Code::NotFound));
    let request = ApplyRequest { paths: vec!["made.txt".to_owned()], ..ApplyRequest::default() };
    let applied = client.apply(id, &request).await.unwrap();
    assert_eq!((applied.applied, applied.unapplied), (vec!["made.txt".to_owned()], 1));
    assert_eq!(fs::read_to_string(machine.project().join("made.txt")).unwrap(), "made there\n");
    let discarded = client.discard(id, &DiscardRequest::default()).await.unwrap();
    assert_eq!(discarded.restored, ["here.txt"]);
    assert_eq!(fs::read_to_string(machine.project().join("here.txt")).unwrap(), "here\n");
    // Nothing is left to apply, but the copy stays as long as what was applied can be reverted.
    let shown = client.get(id).await.unwrap();
    let kept = StagedCopyStatus { unapplied: 0, kept_until: shown.staged.as_ref().unwrap().kept_until, ..status };
    assert!(kept.kept_until.is_some());
    assert_eq!((shown.staged, shown.accepted), (Some(kept), vec!["made.txt".to_owned()]));
    assert!(copy(machine, &ended).exists());
    assert_eq!(code(client.apply(id, &ApplyRequest::default()).await), Some(Code::NotFound));
    // A delegation that isn't staged has nothing to apply, and one that can change nothing can't be staged.
    let direct = machine.ended(&fixture.delegate().await).await;
    assert_eq!(code(client.apply(direct.delegation_id, &ApplyRequest::default()).await), Some(Code::InvalidRequest));
    let read_only = DelegateRequest { access_mode: Some(AccessMode::Ro), ..self::request(&fixture) };
    assert_eq!(code(client.delegate(&read_only).await), Some(Code::InvalidRequest));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_removed_after_a_notice() {
    let mut fixture = DelegatorFixture::new(SCRIPT).await;
    let ended = staged(&fixture).await;
    let now = ended.ended_at.unwrap();
    let before = |days: i64| Timestamp::from_millis(now.millis() - days * 86_400_000);
    let shown = restart(&mut fixture, &ended, |recorded| recorded.ended_at = Some(before(20))).await;
    assert_eq!(shown.staged.unwrap().warned_at, None);
    // However long it is over the time: first comes the notice, and the copy stays for a week.
    restart(&mut fixture, &ended, |recorded| recorded.ended_at = Some(before(400))).await;
    let warned = |shown: &Delegation| shown.staged.as_ref().is_some_and(|staged| staged.warned_at.is_some());
    let shown = shows(&fixture, &ended, warned).await;
    let status = shown.staged.clone().unwrap();
    assert_eq!(status.kept_until, status.warned_at.map(|at| at.plus(NOTICE)));
    assert!(copy(&fixture.machine, &ended).exists());
    let shown = restart(&mut fixture, &ended, |_| {}).await;
    assert_eq!((shown.staged, copy(&fixture.machine, &ended).exists()), (Some(status), true));
    restart(&mut fixture, &ended, |recorded| {
        recorded.staged.as_mut().unwrap().warned_at = Some(before(8));
    })
    .await;
    let removed = |shown: &Delegation| shown.staged.as_ref().is_some_and(|staged| staged.removed_at.is_some());
    let shown = shows(&fixture, &ended, removed).await;
    assert_eq!(shown.staged.map(|staged| (staged.unapplied, staged.bytes)), Some((2, 0)));
    assert!(!copy(&fixture.machine, &ended).exists());
    // It says so, and the diff is left.
    let client = &fixture.machine.client;
    let refused = client.apply(ended.delegation_id, &ApplyRequest::default()).await.unwrap_err();
    assert!(refused.to_string().contains("was removed with the changes that weren't applied"), "{refused}");
    assert!(client.diff(ended.delegation_id).await.unwrap().text.contains("+made there"));
}

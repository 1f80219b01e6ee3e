//! The daemon against a hub in this process, with a scripted remote: over A2A 1.0 and 0.3, over real SSH, and through
//! its socket.

mod a2a_v03;
mod failing;
mod folders;
mod planted_repository;
mod publishing;
mod remote;
mod staged;

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use attache_client::daemon::{self, DaemonClient};
use attache_delegation::delegator::{DelegationDaemon, Options, PeerTimings};
use attache_protocol::{
    Code, Json,
    rules::delegation::DelegationStatus,
    wire::{
        awcp::{AccessMode, AwcpErrorCode, EXTENSION, SshCredential},
        delegation::{DelegateRequest, Delegation, FileChangeKind, RevertRequest},
        runtime::DeclaredExtension,
    },
};
use attache_testkit::{RunningWorld, World};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use remote::{AGENT, RemoteScript, ScriptedRemote};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A hub with a remote, and a machine with a daemon and a folder.
struct DelegatorFixture {
    hub: RunningWorld,
    remote: ScriptedRemote,
    machine: DaemonMachine,
    _working: AbortOnDropHandle<()>,
}

struct DaemonMachine {
    folder: tempfile::TempDir,
    client: DaemonClient,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl DelegatorFixture {
    async fn new(script: RemoteScript) -> Self {
        Self::declaring(script, vec![awcp(None)]).await
    }

    async fn declaring(script: RemoteScript, extensions: Vec<DeclaredExtension>) -> Self {
        let hub = World::new().surface(attache_a2a::router).agent(AGENT).start().await;
        let remote = ScriptedRemote::new(script);
        let working = remote.host(&hub, extensions).await;
        let machine = DaemonMachine::start(&format!("{}/a2a/{AGENT}", hub.url), hub.owner_key.expose()).await;
        Self { hub, remote, machine, _working: working }
    }

    fn url(&self) -> String {
        format!("{}/a2a/builder", self.hub.url)
    }

    async fn delegate(&self) -> Delegation {
        self.machine.client.delegate(&self.machine.request(&self.url())).await.unwrap()
    }
}

impl DaemonMachine {
    async fn start(peer: &str, key: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("project")).unwrap();
        fs::create_dir_all(root.join("awcp")).unwrap();
        fs::write(root.join("project/here.txt"), "here\n").unwrap();
        fs::write(root.join("key"), format!("{key}\n")).unwrap();
        let policy = format!(
            "[delegator]\nroots = [{:?}]\n\n[[delegator.peers]]\nurl = {peer:?}\nkey_file = {:?}\n",
            root.join("project"),
            root.join("key")
        );
        fs::write(root.join("awcp/policy.toml"), policy).unwrap();
        let (client, stop, running) = Self::run(&root).await;
        Self { folder, client, stop, running }
    }

    async fn run(root: &Path) -> (DaemonClient, CancellationToken, JoinHandle<()>) {
        let mut options = Options::new(root.join("awcp"), None);
        options.pace = PeerTimings {
            retry: (Duration::from_millis(20), Duration::from_millis(200)),
            poll: Duration::from_millis(50),
            tell: Duration::from_secs(5),
        };
        options.desktop = Some(root.join("notice"));
        let daemon = DelegationDaemon::start(options).await.unwrap();
        let (client, stop) = (DaemonClient::at(daemon.socket()).unwrap(), CancellationToken::new());
        let stopped = stop.clone();
        let running = tokio::spawn(async move { daemon.run(stopped).await.unwrap() });
        (client, stop, running)
    }

    fn root(&self) -> PathBuf {
        fs::canonicalize(self.folder.path()).unwrap()
    }

    fn project(&self) -> PathBuf {
        self.root().join("project")
    }

    fn record(&self, delegation: &Delegation, name: &str) -> String {
        let folder = self.root().join("awcp/delegations").join(delegation.delegation_id.to_string());
        fs::read_to_string(folder.join(name)).unwrap()
    }

    fn request(&self, peer: &str) -> DelegateRequest {
        DelegateRequest {
            description: "make it".to_owned(),
            prompt: "make a file".to_owned(),
            peer_url: peer.to_owned(),
            workspace_dir: self.project().to_string_lossy().into_owned(),
            ttl_seconds: Some(60),
            access_mode: None,
            session_id: Some("s1".to_owned()),
            include: Vec::new(),
            exclude: Vec::new(),
            transport: None,
            key_file: None,
            awcp_compat: false,
            staged: false,
        }
    }

    async fn until(&self, delegation: &Delegation, reached: impl Fn(&Delegation) -> bool) -> Delegation {
        let waiting = async {
            let mut shown = delegation.clone();
            while !reached(&shown) {
                shown = self.client.wait(shown.delegation_id, shown.revision, Duration::from_secs(5)).await.unwrap();
            }
            shown
        };
        tokio::time::timeout(TEST_TIMEOUT, waiting).await.expect("the delegation reaches that state")
    }

    async fn ended(&self, delegation: &Delegation) -> Delegation {
        self.until(delegation, |shown| shown.status.has_ended()).await
    }
}

fn awcp(params: Option<Value>) -> DeclaredExtension {
    let params = params.map(|params| Json::from_text(params.to_string()).unwrap());
    DeclaredExtension { uri: EXTENSION.to_owned(), params }
}

fn failure(delegation: &Delegation) -> (DelegationStatus, AwcpErrorCode) {
    let failure = delegation.result.as_ref().and_then(|result| result.error.as_ref());
    (delegation.status, failure.unwrap_or_else(|| panic!("{delegation:?}")).code)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_delegated_worked_in_and_revoked() {
    let fixture = DelegatorFixture::new(RemoteScript::Work).await;
    let machine = &fixture.machine;
    let created = fixture.delegate().await;
    assert_eq!(created.status, DelegationStatus::Created);
    let ended = machine.ended(&created).await;
    assert_eq!(ended.status, DelegationStatus::Completed, "{ended:?}");
    let result = ended.result.clone().unwrap();
    assert_eq!(
        (result.final_summary.as_deref(), &*result.highlights),
        (Some("did: make a file"), &["made.txt".to_owned()][..])
    );
    assert_eq!(fs::read_to_string(machine.project().join("made.txt")).unwrap(), "made there\n");
    let changed = &ended.changes.as_ref().unwrap().changed_paths;
    assert_eq!(
        changed.iter().map(|it| (&*it.path, it.change)).collect::<Vec<_>>(),
        [("made.txt", FileChangeKind::Added)]
    );
    assert_eq!(ended.remote_mount_point.as_deref(), Some("/mnt/there"));
    // The key is revoked.
    let start = fixture.remote.started().await;
    assert_eq!(start.mount.credential, SshCredential::ClientKey);
    assert!(!fixture.remote.sftp(&start, "ls").await);
    assert!(!fixture.remote.sftp(&start, "put made.txt late.txt").await);
    assert!(!machine.project().join("late.txt").exists());
    // The records on disk.
    let status: Delegation = serde_json::from_str(&machine.record(&ended, "status.json")).unwrap();
    assert_eq!(status, ended);
    assert!(machine.record(&ended, "result.json").contains("did: make a file"));
    let audit = machine.record(&ended, "audit.jsonl");
    for event in ["create", "invite", "accept", "start", "work", "revoke", "done"] {
        assert!(audit.contains(&format!("\"event\":\"{event}\"")), "{event}: {audit}");
    }
    assert!(audit.contains("\"path\":\"made.txt\""), "{audit}");
    let home = machine.root().join("awcp");
    let mode = |path: PathBuf| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = home.join("delegations").join(ended.delegation_id.to_string());
    assert_eq!([mode(home.clone()), mode(folder.clone()), mode(home.join("daemon.sock"))], [0o700, 0o700, 0o600]);
    assert_eq!([mode(folder.join("status.json")), mode(folder.join("audit.jsonl"))], [0o600, 0o600]);
    let export = home.join("exports").join(ended.delegation_id.to_string());
    assert!(!export.join("workspace").is_symlink() && export.join("meta/delegation.json").is_file());
    // The revert.
    let diff = machine.client.diff(ended.delegation_id).await.unwrap().text;
    assert!(diff.contains("+made there"), "{diff}");
    let reverted = machine.client.revert(ended.delegation_id, &RevertRequest::default()).await.unwrap();
    assert_eq!(reverted.restored, ["made.txt"]);
    assert!(!machine.project().join("made.txt").exists());
    let session = machine.client.session("s1").await.unwrap();
    assert_eq!((session.all_done, session.rounds, session.ended), (true, 1, vec![ended.delegation_id]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_diff_shows_the_lease_regardless_of_later_changes() {
    let fixture = DelegatorFixture::new(RemoteScript::Work).await;
    let machine = &fixture.machine;
    let ended = machine.ended(&fixture.delegate().await).await;
    let (id, made) = (ended.delegation_id, machine.project().join("made.txt"));
    let diff = machine.client.diff(id).await.unwrap().text;
    fs::write(&made, "made there\nand edited here\n").unwrap();
    fs::write(machine.project().join("here.txt"), "edited here\n").unwrap();
    assert_eq!(machine.client.diff(id).await.unwrap().text, diff);
    for (path, code) in [("wrong.txt", Code::NotFound), ("/etc/passwd", Code::InvalidRequest)] {
        let request = RevertRequest { paths: vec!["made.txt".to_owned(), path.to_owned()], ..RevertRequest::default() };
        let refused = machine.client.revert(id, &request).await.unwrap_err();
        assert_eq!(refused.code(), Some(code), "{path}");
    }
    assert!(made.exists());
    // The diff of a delegation that an older daemon recorded says that the final state is unknown.
    let diff_file = machine.root().join("awcp/delegations").join(id.to_string()).join("changes.diff");
    fs::remove_file(diff_file).unwrap();
    let now = machine.client.diff(id).await.unwrap().text;
    assert!(now.starts_with("# The state at the end of the lease is unknown") && now.contains("+and edited here"));
}

/// A webhook on this machine, and the bodies that it receives.
async fn hook() -> (String, tokio::sync::mpsc::Receiver<Value>, AbortOnDropHandle<()>) {
    let (sender, received) = tokio::sync::mpsc::channel(8);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/told", listener.local_addr().unwrap());
    let router = axum::Router::new().route(
        "/told",
        axum::routing::post(move |axum::Json(body): axum::Json<Value>| async move { sender.send(body).await.unwrap() }),
    );
    let served = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, received, AbortOnDropHandle::new(served))
}

#[tokio::test(flavor = "multi_thread")]
async fn all_done_is_notified_once() {
    let fixture = DelegatorFixture::new(RemoteScript::Work).await;
    let machine = &fixture.machine;
    let (url, mut received, _served) = hook().await;
    let file = machine.root().join("awcp/policy.toml");
    let policy = fs::read_to_string(&file).unwrap();
    fs::write(file, policy.replacen("[delegator]\n", &format!("[delegator]\nnotify_webhook = {url:?}\n"), 1)).unwrap();
    let (notice, shown) = (machine.root().join("notice"), machine.root().join("notice.shown"));
    fs::write(&notice, format!("#!/bin/sh\nprintf '%s\\n' \"$@\" >> {}\n", shown.display())).unwrap();
    fs::set_permissions(&notice, fs::Permissions::from_mode(0o755)).unwrap();
    // The second waits for the folder, so both belong to one round.
    let (first, second) = (fixture.delegate().await, fixture.delegate().await);
    machine.ended(&first).await;
    machine.ended(&second).await;
    let body = tokio::time::timeout(TEST_TIMEOUT, received.recv()).await.unwrap().unwrap();
    let one = |delegation: &Delegation| {
        json!({"delegation_id": delegation.delegation_id, "status": "completed", "description": "make it",
               "peer_url": fixture.url()})
    };
    let all = json!([one(&first), one(&second)]);
    assert_eq!(body, json!({"type": "delegations.all_done", "session_id": "s1", "delegations": all}));
    fixture.machine.stop.cancel();
    // The daemon stops once every notification is sent.
    tokio::time::timeout(TEST_TIMEOUT, async {
        while !fixture.machine.running.is_finished() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert!(received.try_recv().is_err(), "notified only once");
    let shown_text = fs::read_to_string(shown).unwrap();
    assert_eq!(
        shown_text,
        "--app-name=attache\n--\nDelegations have ended\n2 delegations have ended, 2 of them completed\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_can_be_delegated_to_an_a2a_0_3_agent() {
    let fixture = DelegatorFixture::new(RemoteScript::Work).await;
    let (url, _server) = a2a_v03::only_0_3(fixture.url()).await;
    let machine = DaemonMachine::start(&url, fixture.hub.owner_key.expose()).await;
    let created = machine.client.delegate(&machine.request(&url)).await.unwrap();
    let ended = machine.ended(&created).await;
    assert_eq!(ended.status, DelegationStatus::Completed, "{ended:?}");
    assert_eq!(fs::read_to_string(machine.project().join("made.txt")).unwrap(), "made there\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disallowed_request_is_refused_with_the_command_that_allows_it() {
    let fixture = DelegatorFixture::new(RemoteScript::Work).await;
    let machine = &fixture.machine;
    let refusal = |answer: Result<Delegation, daemon::Error>| match answer {
        Err(daemon::Error::Refused(refusal)) => (refusal.code, refusal.hint),
        other => panic!("{other:?}"),
    };
    let other = format!("{}/a2a/other", fixture.hub.url);
    let (code, hint) = refusal(machine.client.delegate(&machine.request(&other)).await);
    assert_eq!(code, Code::PeerNotAllowed);
    assert!(hint.ends_with(&format!("attache delegations allow --peer {other}")), "{hint}");
    let root = machine.root();
    let mut request = machine.request(&fixture.url());
    let other = root.join("other");
    fs::create_dir(&other).unwrap();
    request.workspace_dir = other.to_string_lossy().into_owned();
    let (code, hint) = refusal(machine.client.delegate(&request).await);
    assert_eq!(code, Code::FolderNotAllowed);
    assert!(hint.ends_with(&format!("attache delegations allow --folder {}", other.display())), "{hint}");
    request.workspace_dir = "project".to_owned();
    assert_eq!(refusal(machine.client.delegate(&request).await).0, Code::InvalidRequest);
    fs::write(root.join("awcp/policy.toml"), "[delegator]\nrots = []\n").unwrap();
    let (code, _) = refusal(machine.client.delegate(&machine.request(&fixture.url())).await);
    assert_eq!(code, Code::PolicyInvalid);
    // A folder that can't be exported is refused before anyone is invited.
    let policy = |more: &str| {
        let text = format!("[delegator]\nroots = [{root:?}]\n\n[[delegator.peers]]\nurl = {:?}\n{more}", fixture.url());
        fs::write(root.join("awcp/policy.toml"), text).unwrap();
    };
    policy("");
    let wrong = DelegateRequest { exclude: vec!["a[b".to_owned()], ..machine.request(&fixture.url()) };
    assert_eq!(refusal(machine.client.delegate(&wrong).await).0, Code::InvalidRequest);
    let around =
        DelegateRequest { workspace_dir: root.to_string_lossy().into_owned(), ..machine.request(&fixture.url()) };
    let (code, hint) = refusal(machine.client.delegate(&around).await);
    assert_eq!((code, &*hint), (Code::InvalidRequest, "Delegate a folder below it, or move AWCP_HOME elsewhere."));
    policy("[delegator.export]\nexclude = [\"a[b\"]\n");
    assert_eq!(refusal(machine.client.delegate(&machine.request(&fixture.url())).await).0, Code::PolicyInvalid);
    assert_eq!(machine.client.list().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_accepts_no_folders_is_not_invited() {
    let fixture = DelegatorFixture::declaring(RemoteScript::Work, Vec::new()).await;
    let ended = fixture.machine.ended(&fixture.delegate().await).await;
    assert_eq!(failure(&ended), (DelegationStatus::Error, AwcpErrorCode::Declined));
    assert_eq!(ended.task_id, None);
    let fixture =
        DelegatorFixture::declaring(RemoteScript::Work, vec![awcp(Some(json!({"transports": ["webdav"]})))]).await;
    let ended = fixture.machine.ended(&fixture.delegate().await).await;
    assert_eq!((failure(&ended), ended.task_id), ((DelegationStatus::Error, AwcpErrorCode::Declined), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_gives_its_reason() {
    let fixture = DelegatorFixture::new(RemoteScript::Decline).await;
    let ended = fixture.machine.ended(&fixture.delegate().await).await;
    assert_eq!(failure(&ended), (DelegationStatus::Error, AwcpErrorCode::MountpointDenied));
    assert_eq!(ended.result.unwrap().error.unwrap().hint, "elsewhere");
    let fixture = DelegatorFixture::new(RemoteScript::Fail).await;
    let ended = fixture.machine.ended(&fixture.delegate().await).await;
    assert_eq!(failure(&ended), (DelegationStatus::Error, AwcpErrorCode::TaskFailed));
    assert!(ended.result.unwrap().error.unwrap().message.contains("the disk is on fire"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_can_accept_less_and_gets_no_more() {
    let fixture = DelegatorFixture::new(RemoteScript::ReadOnly).await;
    let ended = fixture.machine.ended(&fixture.delegate().await).await;
    assert_eq!((ended.status, ended.access_mode, ended.ttl_seconds), (DelegationStatus::Completed, AccessMode::Ro, 50));
    assert_eq!(*fixture.remote.log.lock().unwrap(), ["wrote: false"]);
    assert!(!fixture.machine.project().join("made.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_ends_when_it_is_cancelled() {
    let fixture = DelegatorFixture::new(RemoteScript::Hold).await;
    let created = fixture.delegate().await;
    let running = fixture.machine.until(&created, |shown| shown.status == DelegationStatus::Running).await;
    let start = fixture.remote.wrote().await;
    assert!(fixture.remote.sftp(&start, "ls").await);
    let live = fixture.machine.client.revert(created.delegation_id, &RevertRequest::default()).await.unwrap_err();
    assert_eq!(live.code(), Some(Code::StillLent));
    let ended = fixture.machine.client.cancel(created.delegation_id).await.unwrap();
    assert_eq!(failure(&ended), (DelegationStatus::Cancelled, AwcpErrorCode::Cancelled));
    assert!(!fixture.remote.sftp(&start, "ls").await);
    assert_eq!(
        fixture.machine.client.cancel(created.delegation_id).await.unwrap(),
        ended,
        "cancelling again changes nothing"
    );
    // The remote's task has ended as well.
    let run = fixture.hub.hub.run(&fixture.hub.owner, running.task_id.unwrap().parse().unwrap()).await.unwrap();
    assert_eq!(run.status, attache_protocol::rules::run::RunStatus::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delegation_waits_for_a_revert_in_its_folder() {
    let fixture = DelegatorFixture::new(RemoteScript::Hold).await;
    let machine = &fixture.machine;
    fs::write(machine.project().join("here.txt"), "").unwrap();
    let first = fixture.delegate().await;
    machine.until(&first, |shown| shown.status == DelegationStatus::Running).await;
    assert!(fixture.remote.sftp(&fixture.remote.wrote().await, "put made.txt here.txt").await);
    machine.client.cancel(first.delegation_id).await.unwrap();
    // An original that can be opened but never ends, so that the revert blocks in the middle.
    let id = first.delegation_id;
    let original = machine.root().join("awcp/delegations").join(id.to_string()).join("before/1");
    fs::remove_file(&original).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &original, fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let endless = async || {
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        loop {
            if let Ok(open) = rustix::fs::open(&original, flags, rustix::fs::Mode::empty()) {
                return open;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let meanwhile = async {
        let open = endless().await;
        let refused = machine.client.revert(id, &RevertRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::StillLent));
        assert!(refused.to_string().contains("are being reverted"), "{refused}");
        let second = fixture.delegate().await;
        let waiting = machine.until(&second, |shown| shown.waits_for.is_some()).await;
        assert_eq!(waiting.waits_for, Some(format!("the folder, in use by {id}")));
        drop(open);
        // The remaining changes are compared again, which reads the original once more.
        let comparing = async {
            loop {
                drop(endless().await);
            }
        };
        (second, comparing)
    };
    let all = RevertRequest::default();
    let reverting = machine.client.revert(id, &all);
    tokio::pin!(reverting);
    let (second, comparing) = tokio::select! {
        done = tokio::time::timeout(TEST_TIMEOUT, meanwhile) => done.expect("nothing else waits for the original"),
        done = &mut reverting => panic!("the revert should wait: {done:?}"),
    };
    let reverted = tokio::select! {
        () = comparing => unreachable!(),
        done = reverting => done.unwrap(),
    };
    assert_eq!((reverted.restored, reverted.kept), (vec!["here.txt".to_owned(), "made.txt".to_owned()], vec![]));
    let second = machine.until(&second, |shown| shown.status == DelegationStatus::Running).await;
    assert_eq!(machine.client.cancel(second.delegation_id).await.unwrap().status, DelegationStatus::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_ends_when_it_expires() {
    let fixture = DelegatorFixture::new(RemoteScript::Hold).await;
    let request = DelegateRequest { ttl_seconds: Some(12), ..fixture.machine.request(&fixture.url()) };
    let created = fixture.machine.client.delegate(&request).await.unwrap();
    let start = fixture.remote.started().await;
    let ended = fixture.machine.ended(&created).await;
    assert_eq!(failure(&ended), (DelegationStatus::Expired, AwcpErrorCode::Expired));
    assert!(!fixture.remote.sftp(&start, "ls").await);
    let silent = DelegatorFixture::new(RemoteScript::Silent).await;
    let request = DelegateRequest { ttl_seconds: Some(1), ..silent.machine.request(&silent.url()) };
    let ended = silent.machine.ended(&silent.machine.client.delegate(&request).await.unwrap()).await;
    assert_eq!(failure(&ended), (DelegationStatus::Expired, AwcpErrorCode::StartExpired), "nothing was exported");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delegation_waits_for_a_folder_delegated_read_write() {
    let fixture = DelegatorFixture::new(RemoteScript::Hold).await;
    let (client, machine) = (&fixture.machine.client, &fixture.machine);
    let first = fixture.delegate().await;
    machine.until(&first, |shown| shown.status == DelegationStatus::Running).await;
    let second = fixture.delegate().await;
    let waiting = machine.until(&second, |shown| shown.waits_for.is_some()).await;
    let expected = format!("the folder, in use by {}", first.delegation_id);
    assert_eq!((waiting.status, waiting.waits_for), (DelegationStatus::Created, Some(expected)));
    let both = client.cancel_session("s1").await.unwrap();
    let both: Vec<_> = both.iter().map(|ended| ended.status).collect();
    assert_eq!(both, [DelegationStatus::Cancelled, DelegationStatus::Cancelled]);
    let session = client.wait_for_session("s1", 0, TEST_TIMEOUT).await.unwrap();
    assert_eq!((session.all_done, session.pending), (true, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_stops_revokes_everything() {
    let fixture = DelegatorFixture::new(RemoteScript::Hold).await;
    let created = fixture.delegate().await;
    fixture.machine.until(&created, |shown| shown.status == DelegationStatus::Running).await;
    let start = fixture.remote.started().await;
    fixture.machine.stop.cancel();
    let DelegatorFixture { machine, remote, .. } = fixture;
    let (record, root) = (machine.record(&created, "status.json"), machine.root());
    drop(record);
    machine.running.await.unwrap();
    assert!(!remote.sftp(&start, "ls").await);
    let status = root.join("awcp/delegations").join(created.delegation_id.to_string()).join("status.json");
    let kept: Delegation = serde_json::from_str(&fs::read_to_string(status).unwrap()).unwrap();
    assert_eq!(kept.status, DelegationStatus::Cancelled);
}

/// Has its own runtime, so that everything in it can be killed at once.
#[test]
fn delegations_end_after_a_crash_and_the_remote_is_notified() {
    let outer = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (hub, remote, _working) = outer.block_on(async {
        let hub = World::new().surface(attache_a2a::router).agent(AGENT).start().await;
        let remote = ScriptedRemote::new(RemoteScript::Hold);
        let working = remote.host(&hub, vec![awcp(None)]).await;
        (hub, remote, working)
    });
    let url = format!("{}/a2a/builder", hub.url);
    let key = hub.owner_key.expose().clone();
    let doomed = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (machine, running) = doomed.block_on(async {
        let machine = DaemonMachine::start(&url, &key).await;
        let created = machine.client.delegate(&machine.request(&url)).await.unwrap();
        let running = machine.until(&created, |shown| shown.status == DelegationStatus::Running).await;
        assert!(remote.sftp(&remote.wrote().await, "rename here.txt moved.txt").await);
        (machine, running)
    });
    let (root, moved) = (machine.root(), machine.project().join("moved.txt"));
    doomed.shutdown_timeout(Duration::from_millis(100));
    // A killed daemon leaves moved files linked to their originals. This one still had time to copy, so the link is
    // restored.
    let original = root.join("awcp/delegations").join(running.delegation_id.to_string()).join("before/1");
    assert_eq!(fs::read_to_string(&original).unwrap(), "here\n");
    fs::remove_file(&original).unwrap();
    fs::hard_link(&moved, &original).unwrap();
    outer.block_on(async {
        let (client, stop, served) = DaemonMachine::run(&root).await;
        let ended = client.get(running.delegation_id).await.unwrap();
        assert_eq!(failure(&ended), (DelegationStatus::Error, AwcpErrorCode::Cancelled));
        assert!(ended.result.unwrap().error.unwrap().message.contains("the daemon on the delegating machine"));
        assert_eq!(fs::metadata(&moved).unwrap().nlink(), 1);
        assert_eq!(fs::read_to_string(&original).unwrap(), "here\n");
        let start = remote.started().await;
        assert!(!remote.sftp(&start, "ls").await);
        let run = running.task_id.unwrap().parse().unwrap();
        let cancelled = async {
            loop {
                let run = hub.hub.run(&hub.owner, run).await.unwrap();
                if run.status == attache_protocol::rules::run::RunStatus::Cancelled {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, cancelled).await.expect("the remote's task is cancelled");
        let session = client.session("s1").await.unwrap();
        assert_eq!((session.all_done, session.ended), (true, vec![running.delegation_id]));
        stop.cancel();
        served.await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_delegated_through_a_hub_tunnel() {
    let fixture = DelegatorFixture::new(RemoteScript::Hold).await;
    let policy = fixture.machine.root().join("awcp/policy.toml");
    let text = fs::read_to_string(&policy).unwrap();
    fs::write(&policy, format!("{text}reach = \"tunnel\"\n")).unwrap();
    let created = fixture.delegate().await;
    let start = fixture.remote.started().await;
    let tunnel = start.mount.endpoint.tunnel.clone().expect("START names a tunnel");
    assert!(tunnel.url.starts_with("ws://127.0.0.1:"), "{}", tunnel.url);
    let made = fixture.machine.project().join("made.txt");
    let wrote = async {
        while !made.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, wrote).await.expect("the remote writes through the tunnel");
    assert!(fixture.remote.sftp(&start, "ls").await, "every connection has its own socket");
    fixture.remote.gate.add_permits(1);
    let ended = fixture.machine.ended(&created).await;
    assert_eq!(ended.status, DelegationStatus::Completed, "{ended:?}");
    assert!(!fixture.remote.sftp(&start, "ls").await);
    // People at the hub see the delegation, but no path.
    let hub = attache_client::HubCredential::Key(fixture.hub.owner_key.clone());
    let hub =
        attache_client::HubClient::new(attache_client::HubClientOptions::new(fixture.hub.url.clone(), hub)).unwrap();
    let shown = async {
        loop {
            let shown = hub.delegation(created.delegation_id).await.unwrap();
            if shown.delegation.status.has_ended() {
                return shown;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let shown = tokio::time::timeout(TEST_TIMEOUT, shown).await.expect("the hub shows its end");
    assert_eq!((shown.delegation.status, shown.delegation.folder.as_str()), (DelegationStatus::Completed, "project"));
    let text = serde_json::to_string(&shown).unwrap();
    assert!(!text.contains(fixture.machine.root().to_str().unwrap()), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_at_the_hub_can_cancel_it() {
    let fixture = DelegatorFixture::new(RemoteScript::Hold).await;
    let created = fixture.delegate().await;
    fixture.machine.until(&created, |shown| shown.status == DelegationStatus::Running).await;
    let key = attache_client::HubCredential::Key(fixture.hub.owner_key.clone());
    let hub =
        attache_client::HubClient::new(attache_client::HubClientOptions::new(fixture.hub.url.clone(), key)).unwrap();
    hub.cancel_delegation(created.delegation_id).await.unwrap();
    let ended = fixture.machine.ended(&created).await;
    assert_eq!(failure(&ended), (DelegationStatus::Cancelled, AwcpErrorCode::Cancelled));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_home_has_one_daemon_and_invalid_ids_are_not_found() {
    let fixture = DelegatorFixture::new(RemoteScript::Work).await;
    let second = DelegationDaemon::start(Options::new(fixture.machine.root().join("awcp"), None)).await;
    assert!(matches!(second, Err(attache_delegation::Error::DaemonRunning { .. })), "{second:?}");
    let missing =
        fixture.machine.client.get("dlg_00000000000000000000000000000001".parse().unwrap()).await.unwrap_err();
    assert_eq!((missing.code(), missing.exit_code()), (Some(Code::NotFound), 3));
}

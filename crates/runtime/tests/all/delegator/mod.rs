//! The daemon against a hub in this process, with a remote that does what the test says: over A2A 1.0 and 0.3, over real
//! SSH, through its socket.

mod a2a_v03;
mod failing;
mod folders;
mod planted_repository;
mod publishing;
mod remote;

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use attache_client::daemon::{self, DaemonClient};
use attache_protocol::{
    Code, Json,
    rules::delegation::DelegationStatus,
    wire::{
        awcp::{AccessMode, AwcpErrorCode, EXTENSION, SshCredential},
        delegation::{DelegateRequest, Delegation, FileChangeKind, RevertRequest},
        runtime::DeclaredExtension,
    },
};
use attache_runtime::delegator::{DelegationDaemon, Options, PeerTimings};
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
            key_file: None,
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
        tokio::time::timeout(TEST_TIMEOUT, waiting).await.expect("it comes to that")
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
async fn a_folder_is_lent_worked_in_and_taken_back() {
    let scene = DelegatorFixture::new(RemoteScript::Work).await;
    let machine = &scene.machine;
    let created = scene.delegate().await;
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
    // The key opens nothing any more.
    let start = scene.remote.started().await;
    assert_eq!(start.mount.credential, SshCredential::ClientKey);
    assert!(!scene.remote.sftp(&start, "ls").await);
    assert!(!scene.remote.sftp(&start, "put made.txt late.txt").await);
    assert!(!machine.project().join("late.txt").exists());
    // What is written down.
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
    // And undone.
    let diff = machine.client.diff(ended.delegation_id).await.unwrap();
    assert!(diff.contains("+made there"), "{diff}");
    let reverted = machine.client.revert(ended.delegation_id, &RevertRequest::default()).await.unwrap();
    assert_eq!(reverted.restored, ["made.txt"]);
    assert!(!machine.project().join("made.txt").exists());
    let session = machine.client.session("s1").await.unwrap();
    assert_eq!((session.all_done, session.rounds, session.ended), (true, 1, vec![ended.delegation_id]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_diff_is_of_the_lease_whatever_happens_after_it() {
    let scene = DelegatorFixture::new(RemoteScript::Work).await;
    let machine = &scene.machine;
    let ended = machine.ended(&scene.delegate().await).await;
    let (id, made) = (ended.delegation_id, machine.project().join("made.txt"));
    let diff = machine.client.diff(id).await.unwrap();
    fs::write(&made, "made there\nand edited here\n").unwrap();
    fs::write(machine.project().join("here.txt"), "edited here\n").unwrap();
    assert_eq!(machine.client.diff(id).await.unwrap(), diff);
    for (path, code) in [("wrong.txt", Code::NotFound), ("/etc/passwd", Code::InvalidRequest)] {
        let asked = RevertRequest { paths: vec!["made.txt".to_owned(), path.to_owned()], ..RevertRequest::default() };
        let refused = machine.client.revert(id, &asked).await.unwrap_err();
        assert_eq!(refused.code(), Some(code), "{path}");
    }
    assert!(made.exists());
    // Of a delegation that an older daemon wrote down, it is said that this is not known.
    let kept = machine.root().join("awcp/delegations").join(id.to_string()).join("changes.diff");
    fs::remove_file(kept).unwrap();
    let now = machine.client.diff(id).await.unwrap();
    assert!(
        now.starts_with("# How the folder was when the lease ended is not known") && now.contains("+and edited here")
    );
}

/// What is posted to a URL on this machine.
async fn hook() -> (String, tokio::sync::mpsc::Receiver<Value>, AbortOnDropHandle<()>) {
    let (told, heard) = tokio::sync::mpsc::channel(8);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/told", listener.local_addr().unwrap());
    let router = axum::Router::new().route(
        "/told",
        axum::routing::post(move |axum::Json(body): axum::Json<Value>| async move { told.send(body).await.unwrap() }),
    );
    let served = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, heard, AbortOnDropHandle::new(served))
}

#[tokio::test(flavor = "multi_thread")]
async fn when_everything_is_done_that_is_told_once() {
    let scene = DelegatorFixture::new(RemoteScript::Work).await;
    let machine = &scene.machine;
    let (url, mut heard, _served) = hook().await;
    let file = machine.root().join("awcp/policy.toml");
    let policy = fs::read_to_string(&file).unwrap();
    fs::write(file, policy.replacen("[delegator]\n", &format!("[delegator]\nnotify_webhook = {url:?}\n"), 1)).unwrap();
    let (notice, shown) = (machine.root().join("notice"), machine.root().join("notice.shown"));
    fs::write(&notice, format!("#!/bin/sh\nprintf '%s\\n' \"$@\" >> {}\n", shown.display())).unwrap();
    fs::set_permissions(&notice, fs::Permissions::from_mode(0o755)).unwrap();
    // The second waits for the folder, so both belong to one round.
    let (first, second) = (scene.delegate().await, scene.delegate().await);
    machine.ended(&first).await;
    machine.ended(&second).await;
    let told = tokio::time::timeout(TEST_TIMEOUT, heard.recv()).await.unwrap().unwrap();
    let one = |delegation: &Delegation| {
        json!({"delegation_id": delegation.delegation_id, "status": "completed", "description": "make it",
               "peer_url": scene.url()})
    };
    let all = json!([one(&first), one(&second)]);
    assert_eq!(told, json!({"type": "delegations.all_done", "session_id": "s1", "delegations": all}));
    scene.machine.stop.cancel();
    // A daemon ends when whoever has to be told was told.
    tokio::time::timeout(TEST_TIMEOUT, async {
        while !scene.machine.running.is_finished() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert!(heard.try_recv().is_err(), "once is enough");
    let said = fs::read_to_string(shown).unwrap();
    assert_eq!(said, "--app-name=attache\n--\nDelegations are done\n2 delegations have ended, 2 of them completed\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_0_3_is_lent_a_folder_too() {
    let scene = DelegatorFixture::new(RemoteScript::Work).await;
    let (url, _server) = a2a_v03::only_0_3(scene.url()).await;
    let machine = DaemonMachine::start(&url, scene.hub.owner_key.expose()).await;
    let created = machine.client.delegate(&machine.request(&url)).await.unwrap();
    let ended = machine.ended(&created).await;
    assert_eq!(ended.status, DelegationStatus::Completed, "{ended:?}");
    assert_eq!(fs::read_to_string(machine.project().join("made.txt")).unwrap(), "made there\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_allowed_is_refused_with_the_command_that_allows_it() {
    let scene = DelegatorFixture::new(RemoteScript::Work).await;
    let machine = &scene.machine;
    let refusal = |answer: Result<Delegation, daemon::Error>| match answer {
        Err(daemon::Error::Refused(refusal)) => (refusal.code, refusal.hint),
        other => panic!("{other:?}"),
    };
    let other = format!("{}/a2a/other", scene.hub.url);
    let (code, hint) = refusal(machine.client.delegate(&machine.request(&other)).await);
    assert_eq!(code, Code::PeerNotAllowed);
    assert!(hint.ends_with(&format!("attache delegations allow --peer {other}")), "{hint}");
    let root = machine.root();
    let mut request = machine.request(&scene.url());
    request.workspace_dir = root.to_string_lossy().into_owned();
    let (code, hint) = refusal(machine.client.delegate(&request).await);
    assert_eq!(code, Code::FolderNotAllowed);
    assert!(hint.ends_with(&format!("attache delegations allow --folder {}", root.display())), "{hint}");
    request.workspace_dir = "project".to_owned();
    assert_eq!(refusal(machine.client.delegate(&request).await).0, Code::InvalidRequest);
    fs::write(root.join("awcp/policy.toml"), "[delegator]\nrots = []\n").unwrap();
    let (code, _) = refusal(machine.client.delegate(&machine.request(&scene.url())).await);
    assert_eq!(code, Code::PolicyInvalid);
    // What could never be lent is not offered to anybody.
    let policy = |more: &str| {
        let text = format!("[delegator]\nroots = [{root:?}]\n\n[[delegator.peers]]\nurl = {:?}\n{more}", scene.url());
        fs::write(root.join("awcp/policy.toml"), text).unwrap();
    };
    policy("");
    let wrong = DelegateRequest { exclude: vec!["a[b".to_owned()], ..machine.request(&scene.url()) };
    assert_eq!(refusal(machine.client.delegate(&wrong).await).0, Code::InvalidRequest);
    let around =
        DelegateRequest { workspace_dir: root.to_string_lossy().into_owned(), ..machine.request(&scene.url()) };
    let (code, hint) = refusal(machine.client.delegate(&around).await);
    assert_eq!(
        (code, &*hint),
        (Code::InvalidRequest, "Lend a folder below it, or set AWCP_HOME to a folder elsewhere.")
    );
    policy("[delegator.export]\nexclude = [\"a[b\"]\n");
    assert_eq!(refusal(machine.client.delegate(&machine.request(&scene.url())).await).0, Code::PolicyInvalid);
    assert_eq!(machine.client.list().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_takes_no_folders_is_not_even_invited() {
    let scene = DelegatorFixture::declaring(RemoteScript::Work, Vec::new()).await;
    let ended = scene.machine.ended(&scene.delegate().await).await;
    assert_eq!(failure(&ended), (DelegationStatus::Error, AwcpErrorCode::Declined));
    assert_eq!(ended.task_id, None);
    let scene =
        DelegatorFixture::declaring(RemoteScript::Work, vec![awcp(Some(json!({"transports": ["webdav"]})))]).await;
    let ended = scene.machine.ended(&scene.delegate().await).await;
    assert_eq!((failure(&ended), ended.task_id), ((DelegationStatus::Error, AwcpErrorCode::Declined), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_why() {
    let scene = DelegatorFixture::new(RemoteScript::Decline).await;
    let ended = scene.machine.ended(&scene.delegate().await).await;
    assert_eq!(failure(&ended), (DelegationStatus::Error, AwcpErrorCode::MountpointDenied));
    assert_eq!(ended.result.unwrap().error.unwrap().hint, "elsewhere");
    let scene = DelegatorFixture::new(RemoteScript::Fail).await;
    let ended = scene.machine.ended(&scene.delegate().await).await;
    assert_eq!(failure(&ended), (DelegationStatus::Error, AwcpErrorCode::TaskFailed));
    assert!(ended.result.unwrap().error.unwrap().message.contains("the disk is on fire"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_may_take_less_and_gets_no_more() {
    let scene = DelegatorFixture::new(RemoteScript::ReadOnly).await;
    let ended = scene.machine.ended(&scene.delegate().await).await;
    assert_eq!((ended.status, ended.access_mode, ended.ttl_seconds), (DelegationStatus::Completed, AccessMode::Ro, 50));
    assert_eq!(*scene.remote.said.lock().unwrap(), ["wrote: false"]);
    assert!(!scene.machine.project().join("made.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_ends_when_it_is_cancelled() {
    let scene = DelegatorFixture::new(RemoteScript::Hold).await;
    let created = scene.delegate().await;
    let running = scene.machine.until(&created, |shown| shown.status == DelegationStatus::Running).await;
    let start = scene.remote.wrote().await;
    assert!(scene.remote.sftp(&start, "ls").await);
    let live = scene.machine.client.revert(created.delegation_id, &RevertRequest::default()).await.unwrap_err();
    assert_eq!(live.code(), Some(Code::StillLent));
    let ended = scene.machine.client.cancel(created.delegation_id).await.unwrap();
    assert_eq!(failure(&ended), (DelegationStatus::Cancelled, AwcpErrorCode::Cancelled));
    assert!(!scene.remote.sftp(&start, "ls").await);
    assert_eq!(scene.machine.client.cancel(created.delegation_id).await.unwrap(), ended, "once is enough");
    // The remote's task is over as well.
    let run = scene.hub.hub.run(&scene.hub.owner, running.task_id.unwrap().parse().unwrap()).await.unwrap();
    assert_eq!(run.status, attache_protocol::rules::run::RunStatus::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_in_which_something_is_put_back_is_waited_for() {
    let scene = DelegatorFixture::new(RemoteScript::Hold).await;
    let machine = &scene.machine;
    fs::write(machine.project().join("here.txt"), "").unwrap();
    let first = scene.delegate().await;
    machine.until(&first, |shown| shown.status == DelegationStatus::Running).await;
    assert!(scene.remote.sftp(&scene.remote.wrote().await, "put made.txt here.txt").await);
    machine.client.cancel(first.delegation_id).await.unwrap();
    // An original that can be opened and does not end: the revert waits in the middle of it.
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
        assert!(refused.to_string().contains("is being put back"), "{refused}");
        let second = scene.delegate().await;
        let waiting = machine.until(&second, |shown| shown.waits_for.is_some()).await;
        assert_eq!(waiting.waits_for, Some(format!("the folder, which {id} has")));
        drop(open);
        // What is left is compared once more, and so is the original read.
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
        done = tokio::time::timeout(TEST_TIMEOUT, meanwhile) => done.expect("nobody else waits for the original"),
        done = &mut reverting => panic!("it waits: {done:?}"),
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
async fn a_lease_ends_when_its_time_is_up() {
    let scene = DelegatorFixture::new(RemoteScript::Hold).await;
    let request = DelegateRequest { ttl_seconds: Some(12), ..scene.machine.request(&scene.url()) };
    let created = scene.machine.client.delegate(&request).await.unwrap();
    let start = scene.remote.started().await;
    let ended = scene.machine.ended(&created).await;
    assert_eq!(failure(&ended), (DelegationStatus::Expired, AwcpErrorCode::Expired));
    assert!(!scene.remote.sftp(&start, "ls").await);
    let silent = DelegatorFixture::new(RemoteScript::Silent).await;
    let request = DelegateRequest { ttl_seconds: Some(1), ..silent.machine.request(&silent.url()) };
    let ended = silent.machine.ended(&silent.machine.client.delegate(&request).await.unwrap()).await;
    assert_eq!(failure(&ended), (DelegationStatus::Expired, AwcpErrorCode::StartExpired), "nothing was lent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_lent_for_writing_is_waited_for() {
    let scene = DelegatorFixture::new(RemoteScript::Hold).await;
    let (client, machine) = (&scene.machine.client, &scene.machine);
    let first = scene.delegate().await;
    machine.until(&first, |shown| shown.status == DelegationStatus::Running).await;
    let second = scene.delegate().await;
    let waiting = machine.until(&second, |shown| shown.waits_for.is_some()).await;
    let wanted = format!("the folder, which {} has", first.delegation_id);
    assert_eq!((waiting.status, waiting.waits_for), (DelegationStatus::Created, Some(wanted)));
    let both = client.cancel_session("s1").await.unwrap();
    let both: Vec<_> = both.iter().map(|ended| ended.status).collect();
    assert_eq!(both, [DelegationStatus::Cancelled, DelegationStatus::Cancelled]);
    let session = client.wait_for_session("s1", 0, TEST_TIMEOUT).await.unwrap();
    assert_eq!((session.all_done, session.pending), (true, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_stops_takes_everything_back() {
    let scene = DelegatorFixture::new(RemoteScript::Hold).await;
    let created = scene.delegate().await;
    scene.machine.until(&created, |shown| shown.status == DelegationStatus::Running).await;
    let start = scene.remote.started().await;
    scene.machine.stop.cancel();
    let DelegatorFixture { machine, remote, .. } = scene;
    let (record, root) = (machine.record(&created, "status.json"), machine.root());
    drop(record);
    machine.running.await.unwrap();
    assert!(!remote.sftp(&start, "ls").await);
    let status = root.join("awcp/delegations").join(created.delegation_id.to_string()).join("status.json");
    let kept: Delegation = serde_json::from_str(&fs::read_to_string(status).unwrap()).unwrap();
    assert_eq!(kept.status, DelegationStatus::Cancelled);
}

/// A runtime of its own, so that everything in it can be killed at once.
#[test]
fn what_a_crash_left_behind_is_over_and_the_remote_is_told() {
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
    // A daemon that is killed leaves what was moved linked to its original; this one had the time to copy it.
    let original = root.join("awcp/delegations").join(running.delegation_id.to_string()).join("before/1");
    assert_eq!(fs::read_to_string(&original).unwrap(), "here\n");
    fs::remove_file(&original).unwrap();
    fs::hard_link(&moved, &original).unwrap();
    outer.block_on(async {
        let (client, stop, served) = DaemonMachine::run(&root).await;
        let ended = client.get(running.delegation_id).await.unwrap();
        assert_eq!(failure(&ended), (DelegationStatus::Error, AwcpErrorCode::Cancelled));
        assert!(ended.result.unwrap().error.unwrap().message.contains("the daemon of the machine"));
        assert_eq!(fs::metadata(&moved).unwrap().nlink(), 1);
        assert_eq!(fs::read_to_string(&original).unwrap(), "here\n");
        let start = remote.started().await;
        assert!(!remote.sftp(&start, "ls").await);
        let run = running.task_id.unwrap().parse().unwrap();
        let told = async {
            loop {
                let run = hub.hub.run(&hub.owner, run).await.unwrap();
                if run.status == attache_protocol::rules::run::RunStatus::Cancelled {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, told).await.expect("the remote's task is cancelled");
        let session = client.session("s1").await.unwrap();
        assert_eq!((session.all_done, session.ended), (true, vec![running.delegation_id]));
        stop.cancel();
        served.await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_lent_through_a_tunnel_of_the_hub() {
    let scene = DelegatorFixture::new(RemoteScript::Hold).await;
    let policy = scene.machine.root().join("awcp/policy.toml");
    let text = fs::read_to_string(&policy).unwrap();
    fs::write(&policy, format!("{text}reach = \"tunnel\"\n")).unwrap();
    let created = scene.delegate().await;
    let start = scene.remote.started().await;
    let tunnel = start.mount.endpoint.tunnel.clone().expect("START names a tunnel");
    assert!(tunnel.url.starts_with("ws://127.0.0.1:"), "{}", tunnel.url);
    let made = scene.machine.project().join("made.txt");
    let wrote = async {
        while !made.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, wrote).await.expect("the remote writes through the tunnel");
    assert!(scene.remote.sftp(&start, "ls").await, "every connection has a socket of its own");
    scene.remote.gate.add_permits(1);
    let ended = scene.machine.ended(&created).await;
    assert_eq!(ended.status, DelegationStatus::Completed, "{ended:?}");
    assert!(!scene.remote.sftp(&start, "ls").await);
    // People at the hub see it, and see no path.
    let hub = attache_client::HubCredential::Key(scene.hub.owner_key.clone());
    let hub = attache_client::HubClient::new(attache_client::HubOptions::new(scene.hub.url.clone(), hub)).unwrap();
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
    assert!(!text.contains(scene.machine.root().to_str().unwrap()), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_at_the_hub_ends_it() {
    let scene = DelegatorFixture::new(RemoteScript::Hold).await;
    let created = scene.delegate().await;
    scene.machine.until(&created, |shown| shown.status == DelegationStatus::Running).await;
    let key = attache_client::HubCredential::Key(scene.hub.owner_key.clone());
    let hub = attache_client::HubClient::new(attache_client::HubOptions::new(scene.hub.url.clone(), key)).unwrap();
    hub.cancel_delegation(created.delegation_id).await.unwrap();
    let ended = scene.machine.ended(&created).await;
    assert_eq!(failure(&ended), (DelegationStatus::Cancelled, AwcpErrorCode::Cancelled));
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_one_daemon_for_a_home_and_ids_that_are_none_are_not_found() {
    let scene = DelegatorFixture::new(RemoteScript::Work).await;
    let second = DelegationDaemon::start(Options::new(scene.machine.root().join("awcp"), None)).await;
    assert!(matches!(second, Err(attache_runtime::Error::DaemonRunning { .. })), "{second:?}");
    let missing = scene.machine.client.get("dlg_00000000000000000000000000000001".parse().unwrap()).await.unwrap_err();
    assert_eq!((missing.code(), missing.exit_code()), (Some(Code::NotFound), 3));
}

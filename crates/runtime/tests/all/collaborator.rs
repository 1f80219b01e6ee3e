//! The runtime as a collaborator: a real hub, a real lease over SSH, stock sshfs and a real mount.

use std::{
    collections::BTreeSet,
    fs,
    io::BufReader,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use attache_delegation::{
    awcp_policy::PolicyFile,
    collaborator::{
        Collaborator, CollaboratorAuditFile, CollaboratorPolicyFile, DirectDialGuard, GuardCommand, HubTunnelDialer,
        Options as RoleOptions, SlotScheduler, missing, run_guard,
    },
};
use attache_protocol::{
    RunId,
    env::Env,
    rules::run::RunStatus,
    wire::{
        awcp::{
            ATTACHE_FS, AccessMode, AwcpAccept, AwcpError, AwcpErrorCode, AwcpInvite, AwcpLease, AwcpMessage,
            AwcpMount, AwcpStart, AwcpTask, LeaseOffer, LeaseRequirements, OfferedWorkspace, SSHFS, SYNC,
            SandboxProfile, SshCredential, SshEndpoint, TASK_TYPE, TransportChoice,
        },
        input_request::GiveInputRequest,
        part::Part,
        run::{CreateRunRequest, Run},
    },
};
use attache_runtime::{Options, RuntimeNotice};
use attache_workspace::{
    export::{Export, ExportTerms, NoExportAudit, OriginalsFolder},
    ssh::{HostKey, LeaseAccess, LeaseAdmission, SshServer},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    adapter::AdapterReply,
    live_hub::{LiveHub, eventually},
    world::RunningRuntime,
};

/// The delegating machine.
pub(crate) struct LendingHost {
    folder: TempDir,
    server: SshServer,
    key: HostKey,
    port: u16,
    _stop: DropGuard,
}

/// The collaborating machine: its home folder and its hub.
struct BorrowingMachine {
    live: LiveHub,
    home: TempDir,
}

#[test]
#[ignore = "not a test: the process that the other tests start as a guard"]
fn guard_process() {
    run_guard(BufReader::new(std::io::stdin()), std::io::stdout());
}

/// This program itself, as a guard.
pub(crate) fn guard() -> GuardCommand {
    let args = ["--ignored", "--exact", "collaborator::guard_process", "--nocapture"];
    GuardCommand { program: std::env::current_exe().unwrap(), args: args.map(Into::into).to_vec() }
}

pub(crate) fn can_mount() -> bool {
    let missing = missing();
    if let Some(missing) = missing.first() {
        eprintln!("skipped: {missing}");
    }
    missing.is_empty()
}

impl LendingHost {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["workspace", "before"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("workspace/given"), "from the host").unwrap();
        let key = HostKey::generate(&Env::system());
        let server = SshServer::new(&key);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = CancellationToken::new();
        let (listening, stopped) = (server.clone(), stop.clone());
        tokio::spawn(async move { listening.listen(listener, stopped).await });
        Self { folder, server, key, port, _stop: stop.drop_guard() }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("workspace").join(name)
    }

    /// Follows up on ACCEPT: the export, the key, and START.
    pub(crate) fn lend(&self, accept: &AwcpAccept, ttl: Duration) -> (LeaseAdmission, AwcpMessage) {
        let access_mode = accept.remote_constraints.as_ref().unwrap().accepted_access_mode.unwrap();
        let before = OriginalsFolder::in_folder(self.folder.path().join("before"));
        let export = Export::open(
            &self.folder.path().join("workspace"),
            ExportTerms::new(access_mode),
            before,
            Arc::new(NoExportAudit),
        );
        let key = accept.remote_mount.client_key.clone().unwrap();
        let export = Arc::new(export.unwrap());
        let admission = self.server.admit(LeaseAccess { key, locator: "token".to_owned(), export }).unwrap();
        let start = AwcpStart {
            delegation_id: accept.delegation_id.clone(),
            lease: AwcpLease { expires_at: Env::system().now().plus(ttl), ttl_seconds: None, access_mode },
            mount: AwcpMount {
                transport: SSHFS.to_owned(),
                endpoint: SshEndpoint {
                    host: "127.0.0.1".to_owned(),
                    port: self.port,
                    user: "lease".to_owned(),
                    tunnel: None,
                },
                export_locator: "token".to_owned(),
                credential: SshCredential::ClientKey,
                host_key: Some(self.key.public_openssh()),
                mount_options: None,
            },
        };
        (admission, AwcpMessage::Start(start))
    }
}

impl BorrowingMachine {
    async fn with_policy(policy: &str) -> (Self, RunningRuntime) {
        let remote = Self { live: LiveHub::start().await, home: tempfile::tempdir().unwrap() };
        fs::write(remote.home.path().join("policy.toml"), policy).unwrap();
        let running = remote.start().await;
        (remote, running)
    }

    async fn start(&self) -> RunningRuntime {
        let role = self.role();
        let running = self.live.runtime_with(|options: &mut Options| {
            options.collaborator = Some(role);
            options.concurrency = NonZeroUsize::new(3).unwrap();
        });
        self.live.noticed(|notice| matches!(notice, RuntimeNotice::ChannelOpen { .. })).await;
        running
    }

    fn role(&self) -> Collaborator {
        let home = self.home.path().to_owned();
        Collaborator::new(RoleOptions {
            policy: Arc::new(CollaboratorPolicyFile::new(PolicyFile::at(home.join("policy.toml"), None), home.clone())),
            audit: Arc::new(CollaboratorAuditFile::at(&home)),
            scheduler: Arc::new(SlotScheduler::new(8)),
            tunnels: Arc::new(HubTunnelDialer::of("http://127.0.0.1", &[], None)),
            direct: DirectDialGuard::of("http://127.0.0.1", &[]),
            guard: guard(),
            env: Env::system(),
        })
    }

    async fn invite(&self, invite: &AwcpInvite) -> RunId {
        self.begin(&AwcpMessage::Invite(invite.clone())).await
    }

    /// Starts a run with this message, as soon as the hub knows that the device accepts folders.
    async fn begin(&self, message: &AwcpMessage) -> RunId {
        eventually("the device to accept folders", async || self.try_begin(message).await.ok()).await
    }

    async fn try_begin(&self, message: &AwcpMessage) -> Result<RunId, attache_client::Error> {
        let parts = [message.part()];
        let input = attache_protocol::Json::of(&json!({"text": "", "message": {"parts": parts}}));
        let request = CreateRunRequest {
            agent_id: "builder".to_owned(),
            task_type: Some(TASK_TYPE.to_owned()),
            input: Some(input),
            ..CreateRunRequest::default()
        };
        self.live.owner.create_run(&request).await.map(|run| run.task_run_id)
    }

    async fn accept(&self, run: RunId) -> AwcpAccept {
        let parts: Vec<Part> = eventually("an ACCEPT", async || {
            let asked = self.live.events(run, &["task.input_required"]).await;
            serde_json::from_str(&asked.last()?.1["parts"].to_string()).ok()
        })
        .await;
        match AwcpMessage::among(&parts).unwrap() {
            AwcpMessage::Accept(accept) => accept,
            other => panic!("{other:?}"),
        }
    }

    async fn send(&self, run: RunId, message: &AwcpMessage) {
        let parts = attache_protocol::Json::of(&[message.part()]);
        let request = GiveInputRequest { parts: Some(parts), ..GiveInputRequest::default() };
        self.live.owner.give_input(run, &request).await.unwrap();
    }

    /// The ERROR of a failed run.
    async fn error(&self, run: RunId) -> AwcpError {
        let result: Value = self.live.run_with(run, RunStatus::Failed).await.task_result.unwrap().parse().unwrap();
        let parts: Vec<Part> = serde_json::from_str(&result["message"]["parts"].to_string()).unwrap();
        match AwcpMessage::among(&parts).unwrap() {
            AwcpMessage::Error(error) => {
                let rejected = matches!(
                    error.code,
                    AwcpErrorCode::Declined | AwcpErrorCode::DepMissing | AwcpErrorCode::MountpointDenied
                );
                assert_eq!(result["code"] == "rejected", rejected, "{result}");
                error
            }
            other => panic!("{other:?}"),
        }
    }

    /// The task that the agent received, once it works in the folder.
    async fn at_work(&self, tasks: usize) -> Value {
        eventually("the agent's task", async || self.live.world.adapter.tasks().get(tasks).cloned()).await
    }

    fn audit(&self) -> Vec<(String, Option<String>)> {
        let text = fs::read_to_string(self.home.path().join("collaborator.jsonl")).unwrap_or_default();
        let read = |line| {
            let line: Value = serde_json::from_str(line).unwrap();
            (line["event"].as_str().unwrap().to_owned(), line["code"].as_str().map(str::to_owned))
        };
        text.lines().map(read).collect()
    }

    fn is_clean(&self) -> bool {
        let mounts = self.home.path().join("mounts");
        let count = |path: PathBuf| fs::read_dir(path).map_or(0, Iterator::count);
        count(mounts.clone()) <= 1 && count(mounts.join(".leases")) <= 1
    }
}

pub(crate) fn invite(id: &str) -> AwcpInvite {
    AwcpInvite {
        delegation_id: id.to_owned(),
        task: AwcpTask { description: "edit".to_owned(), prompt: "make it so".to_owned() },
        lease: LeaseOffer { ttl_seconds: 60, access_mode: AccessMode::Rw },
        workspace: OfferedWorkspace { export_name: "awcp/x".to_owned() },
        requirements: LeaseRequirements::default(),
    }
}

fn done() -> Value {
    json!({"success": true, "output": {"text": "made", "artifact_refs": [{"path": "new"}]}})
}

fn awcp(run: &Run) -> AwcpMessage {
    let result: Value = run.task_result.as_ref().unwrap().parse().unwrap();
    let artifacts = result["artifacts"].as_array().unwrap();
    let artifact = artifacts.iter().find(|artifact| artifact["name"] == "awcp").unwrap();
    let parts: Vec<Part> = serde_json::from_str(&artifact["parts"].to_string()).unwrap();
    AwcpMessage::among(&parts).unwrap()
}

#[tokio::test]
async fn a_delegated_folder_is_mounted_worked_in_and_unmounted() {
    if !can_mount() {
        return;
    }
    let host = LendingHost::start().await;
    let (remote, running) =
        BorrowingMachine::with_policy("[collaborator]\nenabled = true\nmax_ttl_seconds = 40\n").await;
    remote.live.world.adapter.play(AdapterReply::Hang(vec![("chunk", json!({"text": "working"}))]));
    let run = remote.invite(&invite("dlg_a")).await;
    let accept = remote.accept(run).await;
    let constraints = accept.remote_constraints.clone().unwrap();
    assert_eq!(
        (constraints.accepted_access_mode, constraints.max_ttl_seconds, constraints.sandbox_profile),
        (Some(AccessMode::Rw), Some(40), Some(SandboxProfile::NOTHING))
    );
    let mount_point = PathBuf::from(&accept.remote_mount.mount_point);
    assert!(mount_point.starts_with(remote.home.path().join("mounts")) && accept.remote_mount.requires_empty_dir);
    let (_admission, start) = host.lend(&accept, Duration::from_secs(30));
    remote.send(run, &start).await;
    let task = remote.at_work(0).await;
    assert_eq!(
        (&task["input"], task["cwd"].as_str(), task["task_type"].as_str()),
        (&json!({"text": "make it so"}), mount_point.to_str(), Some(TASK_TYPE))
    );
    assert_eq!(fs::read_to_string(mount_point.join("given")).unwrap(), "from the host");
    fs::write(mount_point.join("new"), "from the agent").unwrap();
    // A repeated START, and input during the work.
    remote.send(run, &start).await;
    let input = GiveInputRequest { text: Some("hurry".to_owned()), ..GiveInputRequest::default() };
    let input_id = remote.live.owner.give_input(run, &input).await.unwrap().input_id;
    let answers = remote.live.world.adapter.answers(1).await;
    let expected = json!({"parts": [{"text": "hurry"}], "input_id": input_id});
    assert_eq!(answers, [("input".to_owned(), expected)]);
    remote.live.world.adapter.finish(done());
    let ended = remote.live.run_with(run, RunStatus::Completed).await;
    let AwcpMessage::Done(done) = awcp(&ended) else { panic!("no DONE") };
    assert_eq!((done.final_summary.as_str(), done.highlights), ("made", vec!["new".to_owned()]));
    assert_eq!(fs::read_to_string(host.file("new")).unwrap(), "from the agent");
    assert!(!mount_point.exists() && remote.is_clean());
    let progress: Vec<(String, Value)> = remote.live.events(run, &["task.progress"]).await;
    assert!(progress.iter().any(|(_, data)| data["message"] == "Mounted the folder."), "{progress:?}");
    // The machine's paths are its owner's business.
    assert!(!format!("{progress:?}").contains(mount_point.to_str().unwrap()), "{progress:?}");
    // The same invitation again, in its own run, returns the stored answer.
    let again = remote.invite(&invite("dlg_a")).await;
    assert_eq!(awcp(&remote.live.run_with(again, RunStatus::Completed).await), awcp(&ended));
    let events: Vec<String> = remote.audit().into_iter().map(|(event, _)| event).collect();
    assert_eq!(events, ["accept", "mount", "done"]);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn mount_options_and_git_requirements_are_followed_or_reported() {
    if !can_mount() {
        return;
    }
    let host = LendingHost::start().await;
    let (remote, running) = BorrowingMachine::with_policy("[collaborator]\nenabled = true\n").await;
    remote.live.world.adapter.play(AdapterReply::Hang(Vec::new()));
    // This machine has git, so a delegation that requires it is accepted.
    let required = attache_protocol::Json::of("required");
    let requirements = LeaseRequirements { needs_git: Some(required), ..LeaseRequirements::default() };
    let run = remote.invite(&AwcpInvite { requirements, ..invite("dlg_o") }).await;
    let (_admission, start) = host.lend(&remote.accept(run).await, Duration::from_secs(30));
    let AwcpMessage::Start(mut start) = start else { panic!("no START") };
    start.mount.mount_options = Some(attache_protocol::Json::of(&["ro", "allow_other", "ssh_command=/bin/false"]));
    remote.send(run, &AwcpMessage::Start(start)).await;
    let task = remote.at_work(0).await;
    let place = Path::new(task["cwd"].as_str().unwrap());
    assert_eq!(fs::read_to_string(place.join("given")).unwrap(), "from the host");
    assert_eq!(fs::write(place.join("x"), "x").unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let output = json!({"text": "made", "artifact_refs": []});
    remote.live.world.adapter.finish(json!({"success": true, "output": output}));
    let AwcpMessage::Done(done) = awcp(&remote.live.run_with(run, RunStatus::Completed).await) else {
        panic!("no DONE")
    };
    let ignored = "These mount options were ignored: allow_other, ssh_command=/bin/false.";
    assert_eq!(done.notes.as_deref(), Some(ignored));
    running.stop().await.unwrap();
}

/// Offered by the host, usable here, and named in START: then it is attache-fs. A host that offers nothing gets sshfs.
#[tokio::test]
async fn a_host_that_offers_attache_fs_gets_it() {
    if !can_mount() {
        return;
    }
    let host = LendingHost::start().await;
    let (remote, running) = BorrowingMachine::with_policy("[collaborator]\nenabled = true\n").await;
    remote.live.world.adapter.play(AdapterReply::Hang(Vec::new()));
    let run = remote.invite(&invite("dlg_s")).await;
    assert_eq!(remote.accept(run).await.remote_mount.transports, [SSHFS]);
    remote.live.owner.cancel_run(run, None).await.unwrap();
    let requirements =
        LeaseRequirements { mount_transports: TransportChoice::offered(None), ..LeaseRequirements::default() };
    let run = remote.invite(&AwcpInvite { requirements, ..invite("dlg_t") }).await;
    let accept = remote.accept(run).await;
    assert_eq!(accept.remote_mount.transports, [ATTACHE_FS, SSHFS, SYNC]);
    let (_admission, start) = host.lend(&accept, Duration::from_secs(30));
    let AwcpMessage::Start(mut start) = start else { panic!("no START") };
    start.mount.transport = ATTACHE_FS.to_owned();
    remote.send(run, &AwcpMessage::Start(start)).await;
    let task = remote.at_work(0).await;
    let place = Path::new(task["cwd"].as_str().unwrap());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.contains(&format!(" {} ", place.display()))).unwrap();
    assert!(line.contains("- fuse.attache-fs "), "{line}");
    assert_eq!(fs::read_to_string(place.join("given")).unwrap(), "from the host");
    fs::write(place.join("new"), "from the agent").unwrap();
    remote.live.world.adapter.finish(done());
    let ended = remote.live.run_with(run, RunStatus::Completed).await;
    assert!(matches!(awcp(&ended), AwcpMessage::Done(_)), "{ended:?}");
    assert_eq!(fs::read_to_string(host.file("new")).unwrap(), "from the agent");
    assert!(!place.exists());
    running.stop().await.unwrap();
}

#[tokio::test]
async fn other_runs_do_not_end_the_work() {
    if !can_mount() {
        return;
    }
    let host = LendingHost::start().await;
    let (remote, running) = BorrowingMachine::with_policy("[collaborator]\nenabled = true\n").await;
    remote.live.world.adapter.play(AdapterReply::Hang(Vec::new()));
    let run = remote.invite(&invite("dlg_a")).await;
    let (_admission, start) = host.lend(&remote.accept(run).await, Duration::from_secs(30));
    remote.send(run, &start).await;
    remote.at_work(0).await;
    // The same invitation again, in a run that is cancelled while it waits for the end.
    let again = remote.invite(&invite("dlg_a")).await;
    remote.live.run_with(again, RunStatus::Running).await;
    remote.live.owner.cancel_run(again, None).await.unwrap();
    let is_stopped = |notice: &RuntimeNotice| matches!(notice, RuntimeNotice::TaskStopped { run, .. } if *run == again);
    remote.live.noticed(is_stopped).await;
    // Messages to this run don't end another delegation.
    let other = remote.invite(&invite("dlg_b")).await;
    remote.accept(other).await;
    remote.send(run, &AwcpMessage::Error(AwcpError::new("dlg_b", AwcpErrorCode::Cancelled, "over"))).await;
    let said = GiveInputRequest { text: Some("hurry".to_owned()), ..GiveInputRequest::default() };
    remote.live.owner.give_input(run, &said).await.unwrap();
    remote.live.world.adapter.answers(1).await;
    let output = json!({"text": "made", "artifact_refs": []});
    remote.live.world.adapter.finish(json!({"success": true, "output": output}));
    remote.live.run_with(run, RunStatus::Completed).await;
    let events: Vec<String> = remote.audit().into_iter().map(|(event, _)| event).collect();
    assert_eq!(events, ["accept", "mount", "accept", "done"]);
    running.shutdown.abort();
    running.ended().await.unwrap();
}

#[tokio::test]
async fn a_delegation_that_the_owner_does_not_allow_is_declined() {
    let table = [
        ("[collaborator]\nenabled = true\ndelegators = [\"agent:nobody\"]\n", "from this caller"),
        ("[collaborator]\nenabled = true\n[collaborator.sandbox]\nallow_network = false\n", "allow_network = false"),
    ];
    for (policy, reason) in table {
        let (remote, running) = BorrowingMachine::with_policy(policy).await;
        let run = remote.invite(&invite("dlg_b")).await;
        let error = remote.error(run).await;
        assert_eq!(error.code, AwcpErrorCode::Declined);
        assert!(error.message.contains(reason) && !error.hint.is_empty(), "{error:?}");
        let again = remote.invite(&invite("dlg_b")).await;
        assert_eq!(remote.error(again).await, error, "the stored reply");
        assert_eq!(remote.audit(), [("error".to_owned(), Some("DECLINED".to_owned()))]);
        running.stop().await.unwrap();
    }
    // A device whose policy accepts none, or can't be read, and one without the role: the hub knows, and asks nobody.
    let refused = async |remote: &BorrowingMachine| {
        let refused = remote.try_begin(&AwcpMessage::Invite(invite("dlg_c"))).await.unwrap_err();
        assert!(refused.to_string().contains("accept folders"), "{refused}");
    };
    for policy in ["", "[collaborator]\nenabled = yes\n"] {
        let (remote, running) = BorrowingMachine::with_policy(policy).await;
        refused(&remote).await;
        running.stop().await.unwrap();
    }
    let live = LiveHub::start().await;
    let running = live.connected().await;
    refused(&BorrowingMachine { live, home: tempfile::tempdir().unwrap() }).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn read_write_becomes_read_only_and_so_does_the_mount() {
    if !can_mount() {
        return;
    }
    let host = LendingHost::start().await;
    let (remote, running) =
        BorrowingMachine::with_policy("[collaborator]\nenabled = true\naccess_modes = [\"ro\"]\n").await;
    remote.live.world.adapter.play(AdapterReply::Hang(vec![]));
    let run = remote.invite(&invite("dlg_d")).await;
    let accept = remote.accept(run).await;
    assert_eq!(accept.remote_constraints.as_ref().unwrap().accepted_access_mode, Some(AccessMode::Ro));
    let (admission, start) = host.lend(&accept, Duration::from_secs(30));
    remote.send(run, &start).await;
    let task = remote.at_work(0).await;
    let place = Path::new(task["cwd"].as_str().unwrap());
    assert!(fs::write(place.join("x"), "x").is_err());
    assert_eq!(fs::read_to_string(place.join("given")).unwrap(), "from the host");
    // Revoked while the agent works: whatever the agent reports, the host receives an error.
    admission.revoke();
    remote.live.world.adapter.finish(json!({"success": true, "output": {"text": "made", "artifact_refs": []}}));
    assert_eq!(remote.error(run).await.code, AwcpErrorCode::TaskFailed);
    assert!(!place.exists() && remote.is_clean());
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_run_stops_the_agent_and_unmounts() {
    if !can_mount() {
        return;
    }
    let host = LendingHost::start().await;
    let (remote, running) = BorrowingMachine::with_policy("[collaborator]\nenabled = true\n").await;
    remote.live.world.adapter.play(AdapterReply::Hang(vec![]));
    let run = remote.invite(&invite("dlg_e")).await;
    let accept = remote.accept(run).await;
    let (_admission, start) = host.lend(&accept, Duration::from_secs(30));
    remote.send(run, &start).await;
    remote.at_work(0).await;
    remote.live.owner.cancel_run(run, None).await.unwrap();
    assert_eq!(remote.live.world.adapter.cancelled().await, run.to_string());
    eventually("an unmounted folder", async || remote.is_clean().then_some(())).await;
    // A lease that expires.
    remote.live.world.adapter.play(AdapterReply::Hang(vec![]));
    let run = remote.invite(&invite("dlg_f")).await;
    let accept = remote.accept(run).await;
    drop(_admission);
    let (_admission, start) = host.lend(&accept, Duration::from_secs(6));
    remote.send(run, &start).await;
    assert_eq!(remote.error(run).await.code, AwcpErrorCode::Expired);
    assert!(remote.is_clean());
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_start_that_cannot_be_followed_gives_the_reason() {
    if !can_mount() {
        return;
    }
    let host = LendingHost::start().await;
    let (remote, running) = BorrowingMachine::with_policy("[collaborator]\nenabled = true\n").await;
    type Row = (&'static str, fn(&mut AwcpStart), AwcpErrorCode);
    let break_it: [Row; 5] = [
        (
            "expired",
            |start| start.lease.expires_at = attache_protocol::Timestamp::default(),
            AwcpErrorCode::StartExpired,
        ),
        ("unpinned", |start| start.mount.host_key = None, AwcpErrorCode::MountFailed),
        (
            "already read once",
            |start| {
                let private_key = attache_protocol::Secret::new("***".to_owned());
                start.mount.credential = SshCredential::PrivateKey { private_key };
            },
            AwcpErrorCode::AuthFailed,
        ),
        ("nobody there", |start| start.mount.endpoint.port = 1, AwcpErrorCode::MountFailed),
        ("its cloud", |start| start.mount.endpoint.host = "169.254.169.254".to_owned(), AwcpErrorCode::MountFailed),
    ];
    let mut unreachable = BTreeSet::new();
    for (name, change, code) in break_it {
        let run = remote.invite(&invite(name)).await;
        let accept = remote.accept(run).await;
        let (_admission, start) = host.lend(&accept, Duration::from_secs(30));
        let AwcpMessage::Start(mut start) = start else { panic!("a START") };
        change(&mut start);
        remote.send(run, &AwcpMessage::Start(start)).await;
        let error = remote.error(run).await;
        assert_eq!(error.code, code, "{name}");
        assert!(remote.is_clean(), "{name}");
        unreachable.extend(["nobody there", "its cloud"].contains(&name).then_some(error.message));
    }
    // Whoever delegates learns nothing about the remote's network.
    assert_eq!(unreachable.len(), 1, "{unreachable:?}");
    // A key that the host doesn't know.
    let run = remote.invite(&invite("stranger")).await;
    let accept = remote.accept(run).await;
    let (admission, start) = host.lend(&accept, Duration::from_secs(30));
    admission.revoke();
    remote.send(run, &start).await;
    assert_eq!(remote.error(run).await.code, AwcpErrorCode::AuthFailed);
    assert_eq!(remote.live.world.adapter.tasks(), Vec::<Value>::new(), "the agent never received any of them");
    running.stop().await.unwrap();
}

/// A copy of START, even at the host, starts nothing once the delegation has ended.
#[tokio::test]
async fn a_start_replayed_after_the_end_starts_nothing() {
    if !can_mount() {
        return;
    }
    let host = LendingHost::start().await;
    let (remote, running) = BorrowingMachine::with_policy("[collaborator]\nenabled = true\n").await;
    remote.live.world.adapter.play(AdapterReply::Hang(Vec::new()));
    let run = remote.invite(&invite("dlg_a")).await;
    let (_admission, start) = host.lend(&remote.accept(run).await, Duration::from_secs(60));
    remote.send(run, &start).await;
    remote.at_work(0).await;
    remote.live.world.adapter.finish(json!({"success": true, "output": {"text": "made", "artifact_refs": []}}));
    remote.live.run_with(run, RunStatus::Completed).await;

    // The lease and its key are still valid at the host, but the remote doesn't start again.
    let replayed = remote.begin(&start).await;
    assert_eq!(remote.error(replayed).await.code, AwcpErrorCode::StartExpired);
    // It isn't accepted as the START of another delegation either.
    let other = remote.invite(&invite("dlg_b")).await;
    remote.accept(other).await;
    remote.send(other, &start).await;
    let repeated = async || {
        let repeated = remote.live.events(other, &["task.input_required"]).await;
        (repeated.len() > 1).then_some(())
    };
    eventually("the same question once more", repeated).await;
    running.shutdown.abort();
    running.ended().await.unwrap();

    // It is still remembered after a restart.
    let running = remote.start().await;
    let replayed = remote.begin(&start).await;
    assert_eq!(remote.error(replayed).await.code, AwcpErrorCode::StartExpired);
    assert_eq!(remote.live.world.adapter.tasks().len(), 1, "the agent received it once");
    assert!(remote.is_clean());
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_restart_ends_a_delegation_in_progress_with_a_clear_error() {
    if !can_mount() {
        return;
    }
    let host = LendingHost::start().await;
    let (remote, running) = BorrowingMachine::with_policy("[collaborator]\nenabled = true\n").await;
    remote.live.world.adapter.play(AdapterReply::Hang(vec![]));
    let run = remote.invite(&invite("dlg_g")).await;
    let accept = remote.accept(run).await;
    let (_admission, start) = host.lend(&accept, Duration::from_secs(30));
    remote.send(run, &start).await;
    remote.at_work(0).await;
    running.kill().await;
    eventually("an unmounted folder", async || remote.is_clean().then_some(())).await;
    let running = remote.live.runtime_with(|options: &mut Options| options.collaborator = Some(remote.role()));
    let error = remote.error(run).await;
    assert_eq!((error.code, error.delegation_id.as_str()), (AwcpErrorCode::TaskFailed, "dlg_g"));
    assert!(error.message.contains("restarted during the work"), "{error:?}");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn the_device_declares_its_limits_or_nothing() {
    for (policy, expected) in [
        (
            "[collaborator]\nenabled = true\nmax_ttl_seconds = 40\naccess_modes = [\"ro\"]\n",
            json!([{"uri": "https://awcp-protocol.org/v1",
                "params": {"transports": ["sshfs"], "max_ttl_seconds": 40, "access_modes": ["ro"]}}]),
        ),
        ("", json!([])),
    ] {
        let (remote, running) = BorrowingMachine::with_policy(policy).await;
        let declared = eventually("a heartbeat", async || {
            let runtimes = remote.live.owner.runtimes(&attache_client::PageQuery::default()).await.ok()?.agent_runtimes;
            let runtime = runtimes.into_iter().find(|runtime| runtime.last_heartbeat_at.is_some())?;
            let declared: Value = serde_json::from_str(&serde_json::to_string(&runtime.extensions).unwrap()).unwrap();
            // The first heartbeat may come before the policy was read.
            (declared != json!([]) || expected == json!([])).then_some(declared)
        })
        .await;
        assert_eq!(declared, expected);
        running.stop().await.unwrap();
    }
}

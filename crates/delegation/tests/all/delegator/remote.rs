//! A scripted remote: a device of an agent on a hub in this process. It reads and writes the delegated folder with
//! OpenSSH's `sftp`.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use attache_a2a_wire::{Message, Part};
use attache_client::{
    egress::{EgressGuard, EgressPolicy},
    tunnel::{self, TunnelDialOptions},
};
use attache_hub::{Handle, Principal};
use attache_protocol::{
    Json,
    wire::{
        awcp::{self, AccessMode, AwcpAccept, AwcpDone, AwcpErrorCode, AwcpStart, RemoteConstraints, RemoteMount},
        input_request::{CreateInputRequest, WorkerRequestState},
        run::{ClaimedRun, CompleteRequest, FailRequest, ProgressRequest},
        runtime::{DeclaredExtension, HeartbeatRequest},
    },
};
use attache_testkit::RunningWorld;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
};
use tokio_util::task::AbortOnDropHandle;

/// How the remote responds.
#[derive(Debug, Clone)]
pub(crate) enum RemoteScript {
    /// Accepts, writes `made.txt`, and reports DONE.
    Work,
    /// Accepts, writes, then keeps writing until it is stopped.
    Hold,
    /// Accepts, runs these `sftp` commands, and reports DONE.
    Run(&'static str),
    /// Never answers.
    Silent,
    Decline,
    /// Accepts read-only access for less time, and tries to write anyway.
    ReadOnly,
    /// Fails with this text and no data.
    Fail,
}

#[derive(Debug, Clone)]
pub(crate) struct ScriptedRemote {
    script: RemoteScript,
    pub(crate) folder: Arc<tempfile::TempDir>,
    /// The last START, for tests that use it again.
    pub(crate) start: watch::Sender<Option<AwcpStart>>,
    pub(crate) log: Arc<Mutex<Vec<String>>>,
    pub(crate) gate: Arc<Semaphore>,
    /// The last INVITE.
    pub(crate) invite: Arc<Mutex<Option<awcp::AwcpInvite>>>,
    /// The transports in its ACCEPT.
    pub(crate) transports: Arc<Mutex<Vec<String>>>,
}

/// One run that the device has claimed.
struct ClaimedDelegationRun {
    hub: Handle,
    device: Principal,
    run: ClaimedRun,
}

#[derive(Deserialize)]
struct RunInputMessage {
    message: Message,
}

pub(crate) const AGENT: &str = "builder";
const WAIT: Duration = Duration::from_secs(20);

impl ScriptedRemote {
    pub(crate) fn new(script: RemoteScript) -> Self {
        Self {
            script,
            folder: Arc::new(tempfile::tempdir().unwrap()),
            start: watch::Sender::new(None),
            log: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
            invite: Arc::default(),
            transports: Arc::default(),
        }
    }

    pub(crate) async fn started(&self) -> AwcpStart {
        let mut start = self.start.subscribe();
        let started = tokio::time::timeout(WAIT, start.wait_for(Option::is_some)).await;
        started.expect("START arrives").unwrap().clone().unwrap()
    }

    /// Like [`Self::started`], once it has written its file and no longer uses `sftp`.
    pub(crate) async fn wrote(&self) -> AwcpStart {
        let start = self.started().await;
        let wrote = async {
            while !self.log.lock().unwrap().iter().any(|entry| entry == "wrote: true") {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(WAIT, wrote).await.expect("it writes");
        start
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    /// Pairs a device that declares these extensions, and works with it until the result is dropped.
    pub(crate) async fn host(&self, world: &RunningWorld, extensions: Vec<DeclaredExtension>) -> AbortOnDropHandle<()> {
        let attached = world.device(AGENT).await;
        let device = world.hub.authenticate_runtime(&attached.runtime_token).await.unwrap();
        let request = HeartbeatRequest { extensions: Some(extensions), ..HeartbeatRequest::default() };
        world.hub.heartbeat(&device, request).await.unwrap();
        let (remote, hub) = (self.clone(), world.hub.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut working = tokio::task::JoinSet::new();
            loop {
                let Ok(pulled) = hub.pull(&device, AGENT, WAIT).await else { return };
                if let Some(run) = pulled.delivered() {
                    let work = ClaimedDelegationRun { hub: hub.clone(), device: device.clone(), run };
                    let remote = remote.clone();
                    working.spawn(async move { remote.work(work).await });
                }
            }
        }))
    }

    async fn accept(&self, work: &ClaimedDelegationRun, delegation: &str) -> Option<AwcpStart> {
        let key = self.key();
        let _ = std::fs::remove_file(&key);
        let generated = tokio::process::Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&key)
            .stdin(Stdio::null())
            .status();
        assert!(generated.await.unwrap().success());
        let constraints = match self.script {
            RemoteScript::ReadOnly => RemoteConstraints {
                accepted_access_mode: Some(AccessMode::Ro),
                max_ttl_seconds: Some(50),
                sandbox_profile: None,
                sandbox_proof: None,
            },
            _ => RemoteConstraints::default(),
        };
        let accept = awcp::AwcpMessage::Accept(AwcpAccept {
            delegation_id: delegation.to_owned(),
            remote_mount: RemoteMount {
                mount_point: "/mnt/there".to_owned(),
                requires_empty_dir: true,
                client_key: Some(std::fs::read_to_string(key.with_extension("pub")).unwrap()),
                transports: self.transports.lock().unwrap().clone(),
            },
            remote_constraints: Some(constraints),
        });
        let (hub, device, run) = (&work.hub, &work.device, work.run.task_run_id);
        let request = CreateInputRequest {
            epoch: Some(work.run.epoch),
            prompt: "START?".to_owned(),
            parts: Some(Json::of(&[accept.part()])),
            request_id: None,
        };
        let requested = hub.request_input(device, run, request).await.ok()?;
        loop {
            let answer = hub.input_answer(device, run, requested.input_request_id, WAIT).await.ok()?;
            match answer.state {
                WorkerRequestState::Pending => {}
                WorkerRequestState::Answered => {
                    let parts: Vec<Part> = answer.parts?.parse().unwrap();
                    return match awcp::AwcpMessage::among(&parts) {
                        Ok(awcp::AwcpMessage::Start(start)) => Some(start),
                        other => {
                            self.log.lock().unwrap().push(format!("{other:?}"));
                            None
                        }
                    };
                }
                WorkerRequestState::Expired | WorkerRequestState::Cancelled => return None,
            }
        }
    }

    /// Runs `sftp` commands in the delegated folder. `false` if one fails.
    pub(crate) async fn sftp(&self, start: &AwcpStart, commands: &str) -> bool {
        let Some(tunnel) = start.mount.endpoint.tunnel.clone() else {
            return sftp(self.folder.path(), &self.key(), start, commands).await;
        };
        // A loopback port that leads to the other end of the tunnel.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut near = start.clone();
        near.mount.endpoint.host = "127.0.0.1".to_owned();
        near.mount.endpoint.port = listener.local_addr().unwrap().port();
        let forwarding = async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let policy = EgressPolicy { allow: vec!["127.0.0.1".parse().unwrap()] };
            let reach = TunnelDialOptions {
                guard: EgressGuard::new(policy),
                pin: None,
                trusted_certificate: None,
                connect: Duration::from_secs(10),
            };
            if let Ok(mut far) = tunnel::open_remote(&tunnel.url, &tunnel.token, &reach).await {
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut far).await;
            }
        };
        let _forwarding = AbortOnDropHandle::new(tokio::spawn(forwarding));
        sftp(self.folder.path(), &self.key(), &near, commands).await
    }
}

pub(crate) async fn sftp(folder: &Path, key: &Path, start: &AwcpStart, commands: &str) -> bool {
    let (endpoint, host_key) = (&start.mount.endpoint, start.mount.host_key.as_ref().unwrap());
    let known = folder.join("known_hosts");
    std::fs::write(&known, format!("[{}]:{} {host_key}\n", endpoint.host, endpoint.port)).unwrap();
    let batch = folder.join("batch");
    std::fs::write(&batch, format!("cd /{}\n{commands}\n", start.mount.export_locator)).unwrap();
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = tokio::process::Command::new("sftp");
    command.args(["-q", "-b"]).arg(&batch).args(["-P", &endpoint.port.to_string(), "-F", "none", "-i"]).arg(key);
    for option in ["BatchMode=yes", "IdentitiesOnly=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=10"] {
        command.args(["-o", option]);
    }
    command.arg("-o").arg(format!("UserKnownHostsFile={}", known.display()));
    command.arg(format!("{}@{}", endpoint.user, endpoint.host));
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command.status().await.unwrap().success()
}

impl ScriptedRemote {
    async fn work(&self, work: ClaimedDelegationRun) {
        let input: RunInputMessage = work.run.input.parse().unwrap();
        let Ok(awcp::AwcpMessage::Invite(invite)) = awcp::AwcpMessage::among(&input.message.parts) else {
            return work.fail(json!({"error": "this is no INVITE"})).await;
        };
        *self.invite.lock().unwrap() = Some(invite.clone());
        match self.script {
            RemoteScript::Silent => return std::future::pending().await,
            RemoteScript::Decline => {
                let error = awcp::AwcpMessage::Error(awcp::AwcpError {
                    delegation_id: invite.delegation_id,
                    code: AwcpErrorCode::MountpointDenied,
                    message: "not here".to_owned(),
                    hint: "elsewhere".to_owned(),
                });
                let message = json!({"parts": [error.part()]});
                return work.fail(json!({"error": "not here", "code": "rejected", "message": message})).await;
            }
            RemoteScript::Fail => return work.fail(json!({"error": "the disk is on fire"})).await,
            RemoteScript::Work | RemoteScript::Run(_) | RemoteScript::Hold | RemoteScript::ReadOnly => {}
        }
        let Some(start) = self.accept(&work, &invite.delegation_id).await else {
            return work.fail(json!({"error": "no START came"})).await;
        };
        self.start.send_replace(Some(start.clone()));
        let progress = ProgressRequest {
            epoch: Some(work.run.epoch),
            message: Some("working".to_owned()),
            ..ProgressRequest::default()
        };
        let _ = work.hub.progress(&work.device, work.run.task_run_id, progress).await;
        std::fs::write(self.folder.path().join("made.txt"), "made there\n").unwrap();
        let commands = if let RemoteScript::Run(commands) = self.script { commands } else { "put made.txt" };
        let wrote = self.sftp(&start, commands).await;
        self.log.lock().unwrap().push(format!("wrote: {wrote}"));
        if matches!(self.script, RemoteScript::Hold) {
            let _ = self.gate.acquire().await;
        }
        let done = awcp::AwcpMessage::Done(AwcpDone {
            delegation_id: invite.delegation_id,
            final_summary: format!("did: {}", invite.task.prompt),
            highlights: vec!["made.txt".to_owned()],
            notes: None,
            full_output: None,
        });
        let output = json!({"text": "it is done", "artifacts": [{"name": "awcp", "parts": [done.part()]}]});
        let request =
            CompleteRequest { epoch: Some(work.run.epoch), output: Json::of(&output), usage: None, inputs_taken: None };
        let _ = work.hub.complete(&work.device, work.run.task_run_id, request).await;
    }
}

impl ClaimedDelegationRun {
    async fn fail(&self, output: Value) {
        let request =
            FailRequest { epoch: Some(self.run.epoch), output: Json::of(&output), usage: None, inputs_taken: None };
        self.hub.fail(&self.device, self.run.task_run_id, request).await.unwrap();
    }
}

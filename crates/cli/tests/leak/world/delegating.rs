//! A folder is delegated to alpha: once by a daemon, as people do, and once by hand, so that the secrets of START
//! are known here.

use std::{fs, process::Command};

use attache_protocol::{
    DelegationId, Secret as Hidden, Timestamp, TunnelId,
    env::Env,
    wire::awcp::{self, AccessMode},
};
use serde_json::{Value, json};

use super::LeakWorld;
use crate::{
    delegated_folders::world::can_mount,
    harness::{FinishedProcess, until},
    leak::search::{PlantedSecret, SecretKind},
};

/// The shared id of the delegation that is made by hand.
const BY_HAND: &str = "dlg_by_hand";

impl LeakWorld {
    /// Alpha's owner enables borrowing folders before its runtime starts.
    pub(super) fn take_folders(&self) {
        let folder = self.alpha.path().join(".AWCP");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("policy.toml"), "[collaborator]\nenabled = true\n").unwrap();
    }

    /// Whether this machine can mount, which delegations need.
    pub fn delegate_folders(&mut self) -> bool {
        if !can_mount() {
            return false;
        }
        self.delegate_with_a_daemon();
        self.delegate_by_hand();
        true
    }

    fn delegate_with_a_daemon(&mut self) {
        let folder = self.lender.path().join("project");
        fs::create_dir(&folder).unwrap();
        let key = self.lender.keep_secret("peer.key", &self.hub.key);
        let (folder, peer) = (folder.to_str().unwrap().to_owned(), format!("{}/a2a/alpha", self.hub.url));
        let allow = ["delegations", "allow"];
        for what in [&["--peer", &peer, "--key-file", &key][..], &["--folder", &folder]] {
            FinishedProcess::of(&mut self.lender.command(&[&allow, what].concat()), &self.lender.logs()).succeeds();
        }
        self.running.push(self.lender.ready("daemon", &["daemon"]).0);
        let script = format!("echo {} > found; echo {0} >&2", self.canary.text);
        let args = ["delegate", &folder, "--to", &peer, "--json", &script];
        let lent = self.command(|world| &world.lender, &args, |_| None).succeeds().json();
        assert_eq!(lent["status"], "completed", "{lent:#}");
        let id = lent["delegation_id"].as_str().unwrap().to_owned();
        until("the delegation to be told to the hub", || {
            let known = self.hub.call("GET", &format!("/api/v1/delegations/{id}"), None);
            (known.status == 200 && known.json()["status"] == "completed").then_some(())
        });
        self.delegations.push(id);
    }

    /// INVITE, and START with a key and a tunnel that has no other end.
    fn delegate_by_hand(&mut self) {
        let key = new_key(&self.printed);
        let secret_part = key.lines().nth(4).expect("an OpenSSH key has five lines of its own");
        self.know(SecretKind::LeaseKey, secret_part);
        let token = self.know(SecretKind::TunnelToken, &format!("tt_{}", "7e1e70cafe5ea1ed".repeat(4)));
        let env = Env::system();
        let expires_at = Timestamp::from_millis(env.now().millis() + 600_000);
        let tunnel = TunnelId::from_uuid(env.uuid());
        let digest = attache_client::tunnel::token_sha256(&Hidden::new(token.text.clone()));
        let delegation = DelegationId::from_uuid(env.uuid());
        let shown = json!({ "status": "started", "description": "x", "peer_url": "https://a.example/a2a/b", "folder": "src",
            "device_name": "laptop", "access_mode": "rw", "created_at": env.now() });
        self.call("PUT", &format!("/api/v1/delegations/{delegation}"), Some(&shown));
        let open = json!({ "delegation_id": delegation, "token_sha256": digest, "expires_at": expires_at });
        let opened = self.call("PUT", &format!("/api/v1/tunnels/{tunnel}"), Some(&open));

        let invited = self.rpc("SendMessage", &message("invite", None, &invite(&self.canary)), &[]);
        let task = &invited["task"];
        assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{invited:#}");
        let start = start(&key, expires_at, opened["url"].as_str().unwrap(), &token);
        let ended = self.rpc("SendMessage", &message("start", task["id"].as_str(), &start), &[]);
        assert_eq!(ended["task"]["status"]["state"], "TASK_STATE_FAILED", "{ended:#}");
        // The mount failed, so everything in START was used.
        assert!(ended.to_string().contains("MOUNT_FAILED"), "{ended:#}");
        self.rpc("GetTask", &json!({ "id": task["id"] }), &[]);
        let runs = self.hub.get("/api/v1/task-runs?limit=1");
        self.runs.push(runs["task_runs"][0].clone());
    }
}

/// A key as a delegator creates it for a remote that has none.
fn new_key(home: &crate::harness::TestHome) -> String {
    let file = home.path().join("lease-key");
    let mut make = Command::new("ssh-keygen");
    assert!(make.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(&file).status().unwrap().success());
    fs::read_to_string(file).unwrap()
}

fn message(id: &str, task: Option<&str>, said: &awcp::AwcpMessage) -> Value {
    let data: Value = said.data().parse().unwrap();
    let mut message = json!({ "messageId": format!("{BY_HAND}-{id}"), "role": "ROLE_USER", "parts": [{ "data": data }],
        "extensions": [awcp::EXTENSION] });
    if let Some(task) = task {
        message["taskId"] = json!(task);
    }
    json!({ "message": message })
}

fn invite(canary: &PlantedSecret) -> awcp::AwcpMessage {
    awcp::AwcpMessage::Invite(awcp::AwcpInvite {
        delegation_id: BY_HAND.to_owned(),
        task: awcp::AwcpTask { description: format!("look at {}", canary.text), prompt: "true".to_owned() },
        lease: awcp::LeaseOffer { ttl_seconds: 600, access_mode: AccessMode::Rw },
        workspace: awcp::OfferedWorkspace { export_name: "src".to_owned() },
        requirements: awcp::LeaseRequirements::default(),
    })
}

fn start(key: &str, expires_at: Timestamp, tunnel: &str, token: &PlantedSecret) -> awcp::AwcpMessage {
    let tunnel = awcp::TunnelAccess { url: tunnel.to_owned(), token: Hidden::new(token.text.clone()) };
    let endpoint =
        awcp::SshEndpoint { host: "127.0.0.1".to_owned(), port: 9, user: "lease".to_owned(), tunnel: Some(tunnel) };
    awcp::AwcpMessage::Start(awcp::AwcpStart {
        delegation_id: BY_HAND.to_owned(),
        lease: awcp::AwcpLease { expires_at, ttl_seconds: None, access_mode: AccessMode::Rw },
        mount: awcp::AwcpMount {
            transport: awcp::SSHFS.to_owned(),
            endpoint,
            export_locator: "x1".to_owned(),
            credential: awcp::SshCredential::PrivateKey { private_key: Hidden::new(key.to_owned()) },
            host_key: Some(
                "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPvcMA5jrxZ0eLnEKbUMMUWJ7W8CpH7zvVjY8qNUyNlV".to_owned(),
            ),
            mount_options: None,
        },
    })
}

//! The example server, called as a host calls it: an A2A agent that isn't a hub accepts a folder.

#[path = "../../../delegation/examples/collaborator/server.rs"]
mod server;

use std::{fs, sync::Arc, time::Duration};

use attache_a2a_wire::{Part, Task, TaskState};
use attache_delegation::collaborator::{Collaborator, DirectDialGuard, HubTunnelDialer, Options, SlotScheduler};
use attache_protocol::{
    env::Env,
    wire::awcp::{AwcpMessage, EXTENSION},
};
use serde_json::{Value, json};

use crate::{
    collaborator::{LendingHost, can_mount, guard, invite},
    live_hub::eventually,
};

struct ExampleAgent {
    url: String,
    root: tempfile::TempDir,
    client: reqwest::Client,
}

impl ExampleAgent {
    async fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let role = Collaborator::new(Options {
            policy: Arc::new(server::OneFolderPolicy { root: root.path().join("mounts") }),
            audit: Arc::new(server::PrintingAudit),
            scheduler: Arc::new(SlotScheduler::new(2)),
            tunnels: Arc::new(HubTunnelDialer::of("http://127.0.0.1", &[], None)),
            direct: DirectDialGuard::of("http://127.0.0.1", &[]),
            guard: guard(),
            env: Env::system(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = server::router(role, &url, "k".to_owned(), Env::system());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, root, client: reqwest::Client::new() }
    }

    async fn call(&self, method: &str, params: Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let request = self.client.post(&self.url).bearer_auth("k").header("a2a-extensions", EXTENSION).body(body);
        let answer: Value = serde_json::from_str(&request.send().await.unwrap().text().await.unwrap()).unwrap();
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    async fn send(&self, task: Option<&str>, message: &AwcpMessage) -> Task {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [message.part()], "taskId": task,
            "extensions": [EXTENSION]});
        read(&self.call("SendMessage", json!({"message": message})).await["task"])
    }
}

fn read(task: &Value) -> Task {
    serde_json::from_str(&task.to_string()).unwrap()
}

fn said(parts: &[Part]) -> AwcpMessage {
    AwcpMessage::among(parts).unwrap()
}

#[tokio::test]
async fn an_a2a_server_that_is_not_a_hub_accepts_a_folder() {
    if !can_mount() {
        return;
    }
    let (host, agent) = (LendingHost::start().await, ExampleAgent::start().await);
    let stranger = agent.client.post(&agent.url).body("{}").send().await.unwrap();
    assert_eq!(stranger.status(), 401);
    let card = agent.client.get(format!("{}/.well-known/agent-card.json", agent.url)).send().await.unwrap();
    let card: Value = serde_json::from_str(&card.text().await.unwrap()).unwrap();
    assert_eq!(card["capabilities"]["extensions"][0]["uri"], EXTENSION);

    let invited = agent.send(None, &AwcpMessage::Invite(invite("dlg_x"))).await;
    assert_eq!(invited.status.state, TaskState::TaskStateInputRequired);
    let AwcpMessage::Accept(accept) = said(&invited.status.message.unwrap().parts) else { panic!("no ACCEPT") };
    let (_admission, start) = host.lend(&accept, Duration::from_secs(30));
    let started = agent.send(Some(&invited.id), &start).await;
    assert_eq!(started.status.state, TaskState::TaskStateWorking);
    let ended = eventually("the end of the task", async || {
        let task = read(&agent.call("GetTask", json!({"id": invited.id})).await);
        task.status.state.is_terminal().then_some(task)
    })
    .await;
    assert_eq!(ended.status.state, TaskState::TaskStateCompleted);
    let AwcpMessage::Done(done) = said(&ended.artifacts.unwrap()[0].parts) else { panic!("no DONE") };
    assert_eq!(done.final_summary, "Listed 1 entries in SUMMARY.md.");
    assert_eq!(fs::read_to_string(host.file("SUMMARY.md")).unwrap(), "# make it so\n\ngiven\n");
    assert_eq!(fs::read_dir(agent.root.path().join("mounts")).unwrap().count(), 1, "only the folder with its locks");

    let cancelled = agent.send(None, &AwcpMessage::Invite(invite("dlg_y"))).await;
    let cancelled = read(&agent.call("CancelTask", json!({"id": cancelled.id})).await);
    assert_eq!(cancelled.status.state, TaskState::TaskStateCanceled);
    let late = agent.send(Some(&invited.id), &start).await;
    assert_eq!(late.status.state, TaskState::TaskStateCompleted, "an ended task stays ended");
}

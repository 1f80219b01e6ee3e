//! The Python sub-agent, which uses none of our code, follows `docs/channels.md`.

use std::{
    net::SocketAddr,
    process::{Command, Stdio},
};

use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines, copy_bidirectional},
    net::{TcpListener, TcpStream},
    process::{Child, ChildStdout},
    sync::watch,
    time::timeout,
};

use super::peer::{read_run, register_agent, until_status};
use crate::world::{PATIENCE, World};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A Python with the `websockets` package: the one `./test` prepares, or the machine's own.
fn python() -> Option<String> {
    let prepared = format!("{ROOT}/target/python/bin/python3");
    let has_it = |python: &String| {
        let asked = Command::new(python).args(["-c", "import websockets.sync.client"]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    [std::env::var("ATTACHE_PYTHON").unwrap_or_default(), prepared, "python3".to_owned()]
        .into_iter()
        .filter(|python| !python.is_empty())
        .find(has_it)
}

struct PythonAgent {
    lines: Lines<BufReader<ChildStdout>>,
    child: Child,
}

impl PythonAgent {
    async fn start(world: &World, address: SocketAddr, python: &str) -> Self {
        let key = register_agent(world, "counter").await;
        let mut child = tokio::process::Command::new(python)
            .arg(format!("{ROOT}/examples/python-subagent/subagent.py"))
            .arg(format!("ws://{address}/api/envelope/ws"))
            .env("AGENT_KEY", key)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut agent = Self { lines, child };
        agent.says("connected as agt_").await;
        agent
    }

    async fn says(&mut self, start: &str) {
        loop {
            let line = timeout(PATIENCE, self.lines.next_line()).await.expect("a line in time").unwrap();
            if line.expect("a line before the end").starts_with(start) {
                return;
            }
        }
    }
}

/// A connection between agent and hub that can be cut.
struct CuttableWire(watch::Sender<u32>);

impl CuttableWire {
    fn new(listener: TcpListener, to: SocketAddr) -> Self {
        let (cut, cuts) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut here, _)) = listener.accept().await {
                let mut cuts = cuts.clone();
                cuts.mark_unchanged();
                tokio::spawn(async move {
                    let mut there = TcpStream::connect(to).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut here, &mut there) => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        Self(cut)
    }

    fn cut(&self) {
        self.0.send_modify(|cuts| *cuts += 1);
    }
}

async fn ask(world: &World, text: &str) -> String {
    let body = json!({"agent_id": "counter", "input": {"text": text}});
    let created = world.owner.post("/api/v1/task-runs", body).await.expect(201);
    created["task_run_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_python_sub_agent_works_asks_and_survives_a_disconnect() {
    let Some(python) = python() else {
        println!("skipped: no python3 with the package `websockets` (pip install websockets)");
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let world = World::tuned(|options| options.public_url = Some(format!("http://{address}"))).await;
    world.agent("counter").await;
    let wire = CuttableWire::new(listener, world.address);
    let mut agent = PythonAgent::start(&world, address, &python).await;

    let id = ask(&world, "one two three").await;
    let read = until_status(&world, &id, "completed").await;
    assert_eq!(read["task_result"]["text"], "3 words");
    let events = world.owner.get(&format!("/api/v1/task-runs/{id}/events?limit=200")).await.expect(200);
    let events = events["events"].as_array().unwrap().clone();
    let text: String =
        events.iter().filter(|e| e["type"] == "task.chunk").map(|e| e["data"]["text"].as_str().unwrap()).collect();
    assert_eq!(text, "one two three ");
    let kinds = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((kinds("task.thought"), kinds("task.log"), kinds("task.progress")), (1, 1, 3));

    for (approved, status) in [(true, "completed"), (false, "failed")] {
        let id = ask(&world, &format!("delete it {approved}")).await;
        let request = timeout(PATIENCE, async {
            loop {
                let pending = world.owner.get("/api/v1/permission-requests?state=pending").await.expect(200);
                if let Some(request) = pending["permission_requests"].get(0) {
                    return request.clone();
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await
        .unwrap();
        assert_eq!((&request["tool"], &request["risk"]), (&json!("delete"), &json!("high")));
        // The connection is cut while the person decides. The decision still reaches the agent.
        wire.cut();
        agent.says("disconnected").await;
        let path =
            format!("/api/v1/permission-requests/{}/decision", request["permission_request_id"].as_str().unwrap());
        world.owner.post(&path, json!({"approved": approved})).await.expect(200);
        until_status(&world, &id, status).await;
        if !approved {
            assert_eq!(read_run(&world, &id).await["task_result"]["error"], "a person denied the request");
        }
        assert_eq!(read_run(&world, &id).await["epoch"], 1, "it was one claim from beginning to end");
    }
    let asked = world.owner.get("/api/v1/permission-requests").await.expect(200);
    assert_eq!(asked["permission_requests"].as_array().unwrap().len(), 2, "and one question each");
    assert!(agent.child.try_wait().unwrap().is_none(), "it is still there");
}

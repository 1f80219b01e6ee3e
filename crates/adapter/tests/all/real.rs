//! Locates the real host programs and sets each up with a stub model that follows instructions.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use attache_adapter::{Driver, Environment};
use attache_testkit::stub_model::StubModel;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::{Mutex, MutexGuard},
};

use crate::{
    hosts::{answer, answered_within},
    world::{AdapterWorld, ReceivedEvent},
};

/// Large programs start slowly when several start at once.
pub(crate) const SLOW: Duration = Duration::from_secs(90);

/// A proxy that doesn't exist, so programs can't reach the network.
pub(crate) const NOWHERE: &str = "http://127.0.0.1:9";

/// One program at a time: they are heavy, and their timings are measured.
pub(crate) static ONE: Mutex<()> = Mutex::const_new(());

/// A program with its own home, working folder and model.
pub(crate) struct RealProgram {
    pub(crate) program: PathBuf,
    pub(crate) folder: TempDir,
    pub(crate) model: StubModel,
    _one: MutexGuard<'static, ()>,
}

/// `None` if it isn't installed.
pub(crate) fn installed(program: &str) -> Option<PathBuf> {
    let Some(hosts) = hosts() else {
        println!("skipped: ATTACHE_HOSTS does not say where {program} is; ./test does");
        return None;
    };
    let program = hosts.join("bin").join(program);
    if !program.exists() {
        println!("skipped: {} is not installed", program.display());
        return None;
    }
    Some(program)
}

/// Where the real programs are.
fn hosts() -> Option<PathBuf> {
    std::env::var_os("ATTACHE_HOSTS").map(PathBuf::from)
}

/// The build folder: this program is `<target>/<profile>/deps/all-…` in it.
pub(crate) fn target() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

/// Runs a task to its end, however slowly, and answers each question. Returns the questions and all events.
pub(crate) async fn run(
    world: &AdapterWorld,
    task: &Value,
    decide: impl Fn(&Value) -> Value,
) -> (Vec<Value>, Vec<ReceivedEvent>) {
    answered_within(world, task, SLOW, decide).await
}

/// The same for a task whose caller says something once the program has got this far.
pub(crate) async fn told(world: &AdapterWorld, task: &Value, once: (&str, &str), message: &str) -> Vec<ReceivedEvent> {
    given(world, task, once, &json!({"parts": [{"text": message}]})).await
}

/// The same with the whole input.
pub(crate) async fn given(world: &AdapterWorld, task: &Value, once: (&str, &str), input: &Value) -> Vec<ReceivedEvent> {
    let (mut events, mut all, mut is_told) = (world.stream(task).await, Vec::new(), false);
    while let Some(event) = events.next_within(SLOW).await {
        if event.1 == once.0 && event.2.to_string().contains(once.1) && !is_told {
            let path = format!("/run-task/{}/input", task["task_run_id"].as_str().unwrap());
            let reply = world.post(&path, input.to_string().as_bytes()).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            is_told = true;
        }
        if event.1 == "permission" {
            answer(world, task, &event.2, &json!({"approved": true})).await;
        }
        all.push(event);
    }
    all
}

/// The sessions that the adapter lists.
pub(crate) async fn sessions(world: &AdapterWorld) -> Value {
    serde_json::from_str(&world.get("/sessions").await.body).unwrap()
}

// === impl RealProgram ===

impl RealProgram {
    /// `None` if the program isn't installed.
    pub(crate) async fn of(program: &str, below: &Path) -> Option<Self> {
        let program = installed(program)?;
        let one = ONE.lock().await;
        let folder = tempfile::Builder::new().prefix("host-").tempdir_in(below).unwrap();
        std::fs::create_dir(folder.path().join("home")).unwrap();
        std::fs::create_dir(folder.path().join("ws")).unwrap();
        Some(Self { program, folder, model: StubModel::start().await, _one: one })
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.folder.path().join("ws").canonicalize().unwrap()
    }

    /// An adapter whose program sees these variables and little else.
    pub(crate) async fn world(&self, driver: impl Driver, variables: &[(&str, &str)]) -> AdapterWorld {
        AdapterWorld::start(driver, |options| {
            let (path, home) = (std::env::var("PATH").unwrap(), self.home().display().to_string());
            let usual = [
                ("PATH", path.as_str()),
                ("HOME", &home),
                ("TERM", "dumb"),
                ("HTTP_PROXY", NOWHERE),
                ("HTTPS_PROXY", NOWHERE),
                ("NO_PROXY", "127.0.0.1"),
            ];
            let all = usual.into_iter().chain(variables.iter().copied());
            options.environment =
                all.fold(Environment::default(), |environment, (name, value)| environment.with(name, value));
            options.cwd = self.workspace();
        })
        .await
    }

    /// What the program prints when a person starts it in a terminal, in this folder.
    pub(crate) async fn terminal(&self, folder: &Path, args: &[&str], variables: &[(&str, &str)]) -> String {
        let mut command = tokio::process::Command::new(&self.program);
        command.args(args).current_dir(folder).env_clear().kill_on_drop(true);
        command.env("PATH", std::env::var("PATH").unwrap()).env("HOME", self.home()).env("TERM", "dumb");
        command.env("HTTP_PROXY", NOWHERE).env("HTTPS_PROXY", NOWHERE).env("NO_PROXY", "127.0.0.1");
        command.envs(variables.iter().copied()).stdin(std::process::Stdio::null());
        let ran = tokio::time::timeout(SLOW, command.output()).await.unwrap().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success(), "{text}");
        text
    }

    /// All text sent to the model, in every request.
    pub(crate) fn told(&self) -> String {
        self.model.requests().iter().map(|request| request.body.to_string()).collect::<Vec<_>>().join("\n")
    }

    /// All text of the last request.
    pub(crate) fn told_last(&self) -> String {
        self.model.requests().last().map(|request| request.body.to_string()).unwrap_or_default()
    }
}

/// An MCP server with a single tool, for one test.
pub(crate) async fn tools() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = Vec::new();
                let body = loop {
                    let mut piece = [0; 4096];
                    let Ok(count @ 1..) = connection.read(&mut piece).await else { return };
                    request.extend_from_slice(&piece[..count]);
                    let text = String::from_utf8_lossy(&request).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                    let head = head.to_ascii_lowercase();
                    assert!(head.contains("authorization: bearer sesame"), "{head}");
                    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                    if body.len() >= length.unwrap_or(0) {
                        break body.to_owned();
                    }
                };
                let _ = connection.write_all(served(&body).as_bytes()).await;
            });
        }
    });
    format!("http://{address}/mcp")
}

fn served(body: &str) -> String {
    let request: Value = serde_json::from_str(body).unwrap_or_default();
    let result = match request["method"].as_str() {
        Some("initialize") => json!({"protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}}, "serverInfo": {"name": "hub", "version": "1"}}),
        Some("tools/list") => json!({"tools": [{"name": "delegate", "description": "d",
            "inputSchema": {"type": "object", "properties": {"to": {"type": "string"}}}}]}),
        Some("tools/call") => json!({"content": [{"type": "text", "text": "delegated"}]}),
        Some(_) => return "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
        None => {
            return "HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned();
        }
    };
    let body = json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

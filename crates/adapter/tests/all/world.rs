//! An adapter on a free port, and a client that writes raw HTTP, so that a test can send what no library would.

use std::{collections::VecDeque, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use attache_adapter::{Adapter, Driver, Environment, Options, driver::ShellDriver};
use attache_protocol::{RunId, Timestamp, env::Env, secret::Kind};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Upper limit for everything here, so that a hang becomes a failure.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct AdapterWorld {
    pub(crate) address: SocketAddr,
    pub(crate) secret: String,
    /// The adapter's working directory.
    pub(crate) cwd: PathBuf,
    pub(crate) scratch: PathBuf,
    shutdown: CancellationToken,
    adapter: JoinHandle<std::io::Result<()>>,
    _folder: TempDir,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RawReply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// One event as it arrived: id, name, data.
pub(crate) type ReceivedEvent = (u64, String, Value);

pub(crate) struct ReceivedEvents {
    connection: BufReader<TcpStream>,
    /// Otherwise the body extends to the end of the connection.
    chunked: bool,
    ready: VecDeque<ReceivedEvent>,
    text: String,
}

/// Sends exactly these bytes and reads the complete response.
pub(crate) async fn exchange(address: SocketAddr, request: &[u8]) -> RawReply {
    let answer = async {
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    };
    let answer = tokio::time::timeout(TEST_TIMEOUT, answer).await.expect("an answer in time");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    RawReply { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

/// Runs or joins a task as a stream, at an adapter without a secret.
pub(crate) async fn stream_from(address: SocketAddr, task: &Value) -> ReceivedEvents {
    let body = task.to_string();
    let request = format!(
        "POST /run-task HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\naccept: text/event-stream\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    open(address, &request).await
}

async fn open(address: SocketAddr, request: &str) -> ReceivedEvents {
    let mut connection = BufReader::new(TcpStream::connect(address).await.unwrap());
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut status = String::new();
    connection.read_line(&mut status).await.unwrap();
    assert_eq!(status, "HTTP/1.1 200 OK\r\n");
    let mut chunked = false;
    loop {
        let mut line = String::new();
        connection.read_line(&mut line).await.unwrap();
        chunked |= line.to_ascii_lowercase().starts_with("transfer-encoding: chunked");
        if line == "\r\n" {
            return ReceivedEvents { connection, chunked, ready: VecDeque::new(), text: String::new() };
        }
    }
}

/// A task with every required member.
pub(crate) fn task(text: &str) -> Value {
    task_of(Env::system().run_id(), json!({"text": text}))
}

pub(crate) fn task_of(id: RunId, input: Value) -> Value {
    let conversation = Env::system().conversation_id();
    json!({
        "task_run_id": id,
        "conversation_id": conversation,
        "workspace_id": conversation.workspace(),
        "task_type": "prompt",
        "input": input,
    })
}

/// The task with one more member.
pub(crate) fn with(mut task: Value, name: &str, value: impl Into<Value>) -> Value {
    task[name] = value.into();
    task
}

pub(crate) fn done(text: &str) -> Value {
    json!({"success": true, "output": {"text": text, "artifact_refs": []}})
}

pub(crate) fn failed(code: &str, message: &str) -> Value {
    json!({"success": false, "error": {"code": code, "message": message}})
}

pub(crate) fn in_millis(millis: u64) -> String {
    Env::system().now().plus(Duration::from_millis(millis)).to_string()
}

pub(crate) fn long_ago() -> String {
    Timestamp::from_millis(0).to_string()
}

/// Whether a process is still running. A zombie isn't.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with(['Z', 'X']))
}

/// Polls until a condition holds that has no notification.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, wait).await.unwrap_or_else(|_| panic!("never happened: {what}"));
}

// === impl AdapterWorld ===

impl AdapterWorld {
    pub(crate) async fn shell() -> Self {
        Self::start(ShellDriver, |_| {}).await
    }

    pub(crate) async fn start(driver: impl Driver, change: impl FnOnce(&mut Options)) -> Self {
        Self::of(Arc::new(driver), change).await
    }

    pub(crate) async fn of(driver: Arc<dyn Driver>, change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (cwd, scratch) = (folder.path().join("work"), folder.path().join("scratch"));
        std::fs::create_dir(&cwd).unwrap();
        std::fs::create_dir(&scratch).unwrap();
        let cwd = cwd.canonicalize().unwrap();
        let secret = Kind::AdapterSecret.generate(&Env::system());
        let mut options = Options::new(driver, secret.clone(), &cwd, &scratch);
        options.environment = Environment::select(std::env::vars_os(), &[]);
        change(&mut options);
        let adapter = Adapter::bind(options).await.unwrap();
        let (address, shutdown) = (adapter.local_addr(), CancellationToken::new());
        let adapter = tokio::spawn(adapter.run(shutdown.clone()));
        Self { address, secret: secret.expose().clone(), cwd, scratch, shutdown, adapter, _folder: folder }
    }

    /// Shuts the adapter down and waits for it.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(TEST_TIMEOUT, self.adapter).await.expect("an end in time").unwrap().unwrap();
    }

    pub(crate) async fn get(&self, path: &str) -> RawReply {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
            self.address, self.secret
        );
        exchange(self.address, request.as_bytes()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &[u8]) -> RawReply {
        exchange(self.address, &[self.head(path, body.len(), "").as_bytes(), body].concat()).await
    }

    pub(crate) async fn send(&self, task: &Value) -> RawReply {
        self.post("/run-task", task.to_string().as_bytes()).await
    }

    /// Runs a task without streaming.
    pub(crate) async fn run(&self, task: &Value) -> Value {
        let reply = self.send(task).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        serde_json::from_str(&reply.body).unwrap()
    }

    pub(crate) async fn cancel(&self, task: &Value) -> RawReply {
        self.post(&format!("/run-task/{}/cancel", task["task_run_id"].as_str().unwrap()), b"").await
    }

    pub(crate) async fn running(&self) -> Value {
        serde_json::from_str::<Value>(&self.get("/health").await.body).unwrap()["running"].clone()
    }

    /// Runs or joins a task as a stream.
    pub(crate) async fn stream(&self, task: &Value) -> ReceivedEvents {
        self.stream_after(task, "").await
    }

    pub(crate) async fn stream_after(&self, task: &Value, headers: &str) -> ReceivedEvents {
        let body = task.to_string();
        let head = self.head("/run-task", body.len(), &format!("accept: text/event-stream\r\n{headers}"));
        open(self.address, &format!("{head}{body}")).await
    }

    fn head(&self, path: &str, length: usize, more: &str) -> String {
        format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n{more}\r\n",
            self.address, self.secret
        )
    }
}

// === impl ReceivedEvents ===

impl ReceivedEvents {
    /// The next event. `None` once the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<ReceivedEvent> {
        self.next_within(TEST_TIMEOUT).await
    }

    /// The same, with a timeout for slow hosts.
    pub(crate) async fn next_within(&mut self, patience: Duration) -> Option<ReceivedEvent> {
        tokio::time::timeout(patience, async {
            loop {
                if let Some(event) = self.ready.pop_front() {
                    return Some(event);
                }
                let piece = self.piece().await?;
                self.text.push_str(&piece);
                while let Some(end) = self.text.find("\n\n") {
                    let block: String = self.text.drain(..end + 2).collect();
                    self.ready.extend(parse(&block));
                }
            }
        })
        .await
        .expect("an event in time")
    }

    /// All remaining events.
    pub(crate) async fn rest(mut self) -> Vec<ReceivedEvent> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }

    /// Reads chunks until their text is `wanted`.
    pub(crate) async fn chunks_until(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let mut text = String::new();
        while !wanted(&text) {
            let (_, name, data) = self.next().await.expect("more of the stream");
            assert_eq!(name, "chunk", "{data}");
            text.push_str(data["text"].as_str().unwrap());
        }
        text
    }

    /// One chunk of the body.
    async fn piece(&mut self) -> Option<String> {
        if !self.chunked {
            let mut line = String::new();
            let read = self.connection.read_line(&mut line).await.unwrap();
            return (read > 0).then_some(line);
        }
        let mut size = String::new();
        self.connection.read_line(&mut size).await.unwrap();
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        let mut piece = vec![0; size + 2];
        self.connection.read_exact(&mut piece).await.unwrap();
        piece.truncate(size);
        (size > 0).then(|| String::from_utf8(piece).unwrap())
    }
}

fn parse(block: &str) -> Option<ReceivedEvent> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    Some((
        field("id")?.parse().unwrap(),
        field("event").unwrap().to_owned(),
        serde_json::from_str(field("data").unwrap()).unwrap(),
    ))
}

//! A client that writes and reads lines of JSON, like a program over stdio.

use std::{sync::Arc, time::Duration};

use attache_mcp::{McpService, Options, RefusedForms};
use attache_protocol::env::Env;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::fakes::{FakeAgents, FakeDaemon};

pub const MODERN: &str = "2026-07-28";
/// Much longer than anything here takes: only a failing test waits this long.
const LIMIT: Duration = Duration::from_secs(20);

/// The protocol era of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpEra {
    Legacy,
    Modern,
}

pub struct McpPipe {
    pub daemon: FakeDaemon,
    era: McpEra,
    to: WriteHalf<DuplexStream>,
    from: Lines<BufReader<ReadHalf<DuplexStream>>>,
    server: JoinHandle<Result<(), String>>,
    next: u64,
    /// Notifications and requests received while waiting for a response.
    pub heard: Vec<Value>,
    capabilities: Value,
}

pub fn options() -> Options {
    Options {
        answer_timeout: Duration::from_secs(30),
        progress_interval: Duration::from_millis(20),
        env: Env::system(),
    }
}

pub fn service(daemon: &FakeDaemon, options: Options) -> McpService {
    McpService {
        agents: Arc::new(FakeAgents::default()),
        delegations: Some(Arc::new(daemon.clone())),
        options,
        refused: RefusedForms::default(),
    }
}

impl McpPipe {
    /// A client after the handshake.
    pub async fn open(era: McpEra, options: Options) -> Self {
        let daemon = FakeDaemon::default();
        let mut pipe = Self::silent(&daemon, era, options);
        if era == McpEra::Legacy {
            pipe.initialize("2025-06-18").await;
        }
        pipe
    }

    /// A client before the handshake.
    pub fn silent(daemon: &FakeDaemon, era: McpEra, options: Options) -> Self {
        Self { daemon: daemon.clone(), ..Self::of(service(daemon, options), era) }
    }

    pub fn of(service: McpService, era: McpEra) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let server = tokio::spawn(async move {
            let (input, output) = tokio::io::split(theirs);
            Box::pin(service.serve(input, output, CancellationToken::new())).await.map_err(|error| error.to_string())
        });
        let (from, to) = tokio::io::split(ours);
        let from = BufReader::new(from).lines();
        Self {
            daemon: FakeDaemon::default(),
            era,
            to,
            from,
            server,
            next: 0,
            heard: Vec::new(),
            capabilities: json!({}),
        }
    }

    /// What the client says that it can do.
    pub fn with_capabilities(self, capabilities: Value) -> Self {
        Self { capabilities, ..self }
    }

    pub async fn initialize(&mut self, version: &str) -> Value {
        let (capabilities, info) = (self.capabilities.clone(), json!({ "name": "t", "version": "1" }));
        let params = json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": info });
        let answer = self.ask("initialize", params).await;
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        answer
    }

    pub async fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string()).await;
    }

    pub async fn send_text(&mut self, line: &str) {
        self.to.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub async fn read(&mut self) -> Value {
        let line = timeout(LIMIT, self.from.next_line()).await.expect("the server says nothing").unwrap();
        serde_json::from_str(&line.expect("the server hung up")).unwrap()
    }

    /// Sends a request without waiting for the response.
    pub async fn begin(&mut self, method: &str, mut params: Value) -> u64 {
        self.next += 1;
        if self.era == McpEra::Modern && method != "initialize" {
            let meta = params.as_object_mut().unwrap().entry("_meta").or_insert(json!({}));
            meta["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
            meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "t", "version": "1" });
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
        }
        self.send(&json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params })).await;
        self.next
    }

    /// The complete response to a request.
    pub async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.read().await;
            if message["id"] == json!(id) && message.get("method").is_none() {
                return message;
            }
            self.heard.push(message);
        }
    }

    pub async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params).await;
        self.answer(id).await
    }

    /// The next notification or request with this method.
    pub async fn notification(&mut self, method: &str) -> Value {
        if let Some(at) = self.heard.iter().position(|heard| heard["method"] == method) {
            return self.heard.remove(at);
        }
        loop {
            let message = self.read().await;
            if message["method"] == method {
                return message;
            }
            self.heard.push(message);
        }
    }

    pub async fn begin_call(&mut self, tool: &str, arguments: Value) -> u64 {
        self.begin("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    pub async fn begin_call_with_progress(&mut self, tool: &str, arguments: Value) -> u64 {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "p-1" } });
        self.begin("tools/call", params).await
    }

    pub async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.begin_call(tool, arguments).await;
        self.answer(id).await["result"].take()
    }

    /// Disconnects and returns the server's result.
    pub async fn close(self) -> Result<(), String> {
        let Self { to, from, server, .. } = self;
        drop((to, from));
        timeout(LIMIT, server).await.expect("the server does not end").unwrap()
    }
}

/// The text of a result.
pub fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"))
}

/// The arguments of a delegation.
pub fn delegation() -> Value {
    json!({
        "description": "Fix the tests",
        "prompt": "MUST DO: make the tests pass.",
        "peer_url": "https://peer.example/a2a/builder",
        "workspace_dir": "/home/ann/src/app",
    })
}

//! A peer that speaks envelopes over a WebSocket, written from `docs/channels.md` alone.

use std::{collections::VecDeque, net::SocketAddr};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{self, Message, client::IntoClientRequest as _, protocol::CloseFrame},
};

use crate::world::{PATIENCE, World};

pub const WS: &str = "/api/envelope/ws";

/// One connection. Frames that were not asked for yet stay queued in order.
pub struct TestPeer {
    socket: WebSocketStream<TcpStream>,
    waiting: VecDeque<Value>,
    names: u64,
    tag: u64,
    pub last_seq: i64,
}

/// A registered agent's key.
pub async fn register_agent(world: &World, name: &str) -> String {
    let reply = world.owner.post("/api/a2a/register", json!({"agent_id": name})).await.expect(200);
    reply["api_key"].as_str().unwrap().to_owned()
}

/// A worker registered with a new key of the agent.
pub async fn worker(world: &World, agent: &str) -> (TestPeer, Value) {
    let key = register_agent(world, agent).await;
    let mut peer = TestPeer::connect(world, WS, Some(&key)).await;
    let registered = peer.register(json!({})).await;
    (peer, registered)
}

/// An engine of the owner with these tools.
pub async fn engine(world: &World, tools: Value) -> (TestPeer, Value) {
    let key = owner_key(world);
    let mut peer = TestPeer::connect(world, WS, Some(&key)).await;
    let registered = peer.register(json!({"peer_role": "host", "tools": tools})).await;
    (peer, registered)
}

pub fn owner_key(world: &World) -> String {
    std::fs::read_to_string(world.data.path().join("hub/admin.key")).unwrap().trim().to_owned()
}

/// The agent `builder` with a worker that has a run: the worker, its registration, and the run.
pub async fn at_work(world: &World) -> (TestPeer, Value, String) {
    world.agent("builder").await;
    let (mut peer, registered) = worker(world, "builder").await;
    let id = run(world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    (peer, registered, id)
}

/// A run for the agent by REST.
pub async fn run(world: &World, agent: &str) -> String {
    world.run(agent).await["task_run_id"].as_str().unwrap().to_owned()
}

pub async fn read_run(world: &World, run: &str) -> Value {
    world.owner.get(&format!("/api/v1/task-runs/{run}")).await.expect(200)
}

/// Waits until the run has this status.
pub async fn until_status(world: &World, run: &str, status: &str) -> Value {
    timeout(PATIENCE, async {
        loop {
            let read = read_run(world, run).await;
            if read["status"] == status {
                return read;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("the run never became {status}"))
}

// === impl TestPeer ===

impl TestPeer {
    pub async fn try_connect(
        world: &World,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, tungstenite::Error> {
        Self::try_connect_to(world, world.address, path, headers).await
    }

    async fn try_connect_to(
        world: &World,
        address: SocketAddr,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, tungstenite::Error> {
        let mut request = format!("ws://{}{path}", world.address).into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (socket, _) = timeout(PATIENCE, client_async(request, stream)).await.expect("an answer in time")?;
        static TAGS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let tag = TAGS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(Self { socket, waiting: VecDeque::new(), names: 0, tag, last_seq: 0 })
    }

    /// At one of the nodes.
    pub async fn connect_at(world: &World, node: usize, key: &str) -> Self {
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", bearer.as_str())];
        Self::try_connect_to(world, world.nodes[node].address, WS, &headers).await.unwrap()
    }

    pub async fn connect(world: &World, path: &str, key: Option<&str>) -> Self {
        let bearer = key.map(|key| format!("Bearer {key}"));
        let headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
        Self::try_connect(world, path, &headers).await.unwrap()
    }

    /// The status with which a key's connection is refused.
    pub async fn refused(world: &World, path: &str, key: &str) -> u16 {
        match Self::try_connect(world, path, &[("authorization", &format!("Bearer {key}"))]).await {
            Err(tungstenite::Error::Http(response)) => response.status().as_u16(),
            Err(error) => panic!("{error}"),
            Ok(_) => 101,
        }
    }

    pub fn name(&mut self) -> String {
        self.names += 1;
        format!("m-{}-{}", self.tag, self.names)
    }

    pub async fn register(&mut self, mut payload: Value) -> Value {
        payload["action"] = json!("register");
        let reply = self.request(payload).await;
        assert_eq!(reply["ok"], true, "{reply}");
        reply
    }

    /// A raw frame.
    pub async fn send_text(&mut self, text: impl Into<String>) {
        self.socket.send(Message::text(text.into())).await.unwrap();
    }

    pub async fn send(&mut self, frame: &Value) {
        self.send_text(frame.to_string()).await;
    }

    pub fn frame(&mut self, kind: &str, payload: Value) -> Value {
        let msg_id = self.name();
        json!({
            "header": {"msg_id": msg_id, "parent_id": null, "type": kind, "from": "test", "to": "hub", "timestamp": 1_700_000_000},
            "payload": payload,
        })
    }

    /// Sends a request and returns the payload of its response.
    pub async fn request(&mut self, payload: Value) -> Value {
        let frame = self.frame("request", payload);
        self.ask(&frame).await["payload"].clone()
    }

    /// Sends a frame and waits for its response.
    pub async fn ask(&mut self, frame: &Value) -> Value {
        self.send(frame).await;
        let parent = frame["header"]["msg_id"].clone();
        self.find(|told| told["header"]["type"] == "response" && told["header"]["parent_id"] == parent).await
    }

    pub async fn notify(&mut self, payload: Value) -> Value {
        let frame = self.frame("notification", payload);
        self.send(&frame).await;
        frame
    }

    /// The next frame, whatever it is.
    pub async fn next(&mut self) -> Value {
        match self.waiting.pop_front() {
            Some(frame) => frame,
            None => self.read().await.expect("a frame before the end"),
        }
    }

    /// The next matching frame. Others stay queued.
    pub async fn find(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(index) = self.waiting.iter().position(&fits) {
            return self.waiting.remove(index).unwrap();
        }
        loop {
            let frame = self.read().await.expect("a frame before the end");
            if fits(&frame) {
                return frame;
            }
            self.waiting.push_back(frame);
        }
    }

    pub async fn find_action(&mut self, action: &str) -> Value {
        self.find(|frame| frame["payload"]["action"] == action).await
    }

    /// Reads frames until none arrive for a moment after a round trip.
    pub async fn settle(&mut self) -> Vec<Value> {
        let frame = self.frame("request", json!({"action": "message", "message": "settle"}));
        self.ask(&frame).await;
        std::mem::take(&mut self.waiting).into()
    }

    async fn read(&mut self) -> Option<Value> {
        loop {
            let message = timeout(PATIENCE, self.socket.next()).await.expect("a frame in time")?;
            match message.ok()? {
                Message::Text(text) => {
                    let frame: Value = serde_json::from_str(text.as_str()).unwrap();
                    if let Some(seq) = frame["header"]["seq"].as_i64() {
                        self.last_seq = self.last_seq.max(seq);
                    }
                    return Some(frame);
                }
                Message::Close(_) => return None,
                _ => {}
            }
        }
    }

    /// Why the hub closed the connection. Earlier frames are dropped.
    pub async fn closed(&mut self) -> Option<(u16, String)> {
        loop {
            let message = timeout(PATIENCE, self.socket.next()).await.expect("an end in time")?;
            match message {
                Ok(Message::Close(Some(CloseFrame { code, reason }))) => {
                    return Some((code.into(), reason.as_str().to_owned()));
                }
                Ok(Message::Close(None)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    pub async fn close(mut self) {
        let _ = self.socket.close(None).await;
        while let Ok(Some(Ok(_))) = timeout(PATIENCE, self.socket.next()).await {}
    }

    pub async fn send_binary(&mut self, bytes: Vec<u8>) {
        self.socket.send(Message::binary(bytes)).await.unwrap();
    }
}

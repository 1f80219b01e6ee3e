//! A watcher of a call over a WebSocket, and an agent that works over plain frames, both as in 004.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{self, Message, client::IntoClientRequest as _, protocol::CloseFrame},
};

use crate::world::{PATIENCE, TestCaller, World};

pub struct Socket(WebSocketStream<TcpStream>);

/// Registers an agent and returns its key.
pub async fn register_agent(world: &World, name: &str) -> String {
    let reply = world.owner.post("/api/a2a/register", json!({"agent_id": name})).await.expect(200);
    reply["api_key"].as_str().unwrap().to_owned()
}

/// Makes a call and returns its id.
pub async fn call(client: &TestCaller, body: Value) -> String {
    client.post("/api/a2a/call", body).await.expect(200)["call_id"].as_str().unwrap().to_owned()
}

pub async fn result(client: &TestCaller, call: &str) -> Value {
    client.get(&format!("/api/a2a/result/{call}")).await.expect(200)
}

/// A result without its duration.
pub fn timeless(mut value: Value) -> Value {
    for path in ["/stats/duration_ms", "/data/stats/duration_ms"] {
        if let Some(duration) = value.pointer_mut(path) {
            assert!(duration.is_u64(), "{duration}");
            *duration = json!(0);
        }
    }
    value
}

// === impl Socket ===

impl Socket {
    pub async fn open(world: &World, path: &str, client: &TestCaller) -> Self {
        Self::try_open(world, path, client).await.unwrap()
    }

    pub async fn try_open(world: &World, path: &str, client: &TestCaller) -> Result<Self, tungstenite::Error> {
        let mut request = format!("ws://{}{path}", world.address).into_client_request().unwrap();
        for name in ["authorization", "x-runtime-token"] {
            if !client.header(name).is_empty() {
                request.headers_mut().insert(name, client.header(name).parse().unwrap());
            }
        }
        let stream = TcpStream::connect(world.address).await.unwrap();
        Ok(Self(timeout(PATIENCE, client_async(request, stream)).await.expect("an answer in time")?.0))
    }

    pub async fn send(&mut self, frame: Value) {
        self.0.send(Message::text(frame.to_string())).await.unwrap();
    }

    /// The next frame, or how the connection was closed.
    pub async fn next(&mut self) -> Result<Value, Option<CloseFrame>> {
        loop {
            let message = timeout(PATIENCE, self.0.next()).await.expect("a frame in time");
            match message {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(text.as_str()).unwrap()),
                Some(Ok(Message::Close(close))) => return Err(close),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    /// All frames until the end, which must be a normal close.
    pub async fn rest(mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            match self.next().await {
                Ok(frame) => frames.push(timeless(frame)),
                Err(close) => {
                    assert_eq!(close.map(|close| u16::from(close.code)), Some(1000));
                    return frames;
                }
            }
        }
    }
}

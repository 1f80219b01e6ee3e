//! An agent that offers only A2A 0.3: a 0.3 card in front of a hub that speaks both versions.

use attache_protocol::wire::awcp::EXTENSION;
use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Response},
    routing::get,
};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::task::AbortOnDropHandle;

#[derive(Clone)]
struct OldCardProxy {
    agent: String,
    client: reqwest::Client,
}

/// Returns its URL, and a handle that keeps the server alive.
pub(crate) async fn only_0_3(agent: String) -> (String, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/a2a/old", listener.local_addr().unwrap());
    let card = json!({"name": "old", "description": "", "url": url, "version": "1", "protocolVersion": "0.3.0",
        "preferredTransport": "JSONRPC", "capabilities": {"streaming": true, "extensions": [{"uri": EXTENSION}]},
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": []});
    let card = card.to_string();
    let router = Router::new()
        .route(
            "/a2a/old/.well-known/agent-card.json",
            get(|| async move { ([("content-type", "application/json")], card) }),
        )
        .route("/a2a/old", axum::routing::post(pass_on))
        .with_state(OldCardProxy { agent, client: reqwest::Client::builder().no_proxy().build().unwrap() });
    let served: JoinHandle<()> = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, AbortOnDropHandle::new(served))
}

async fn pass_on(State(behind): State<OldCardProxy>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let mut request = behind.client.post(&behind.agent).body(body);
    for name in ["authorization", "content-type", "accept", "a2a-version", "a2a-extensions", "x-a2a-extensions"] {
        if let Some(value) = headers.get(name) {
            request = request.header(name, value);
        }
    }
    let reply = request.send().await.unwrap();
    let mut response = Response::builder().status(reply.status().as_u16());
    if let Some(kind) = reply.headers().get("content-type") {
        response = response.header("content-type", kind);
    }
    response.body(Body::from_stream(reply.bytes_stream())).unwrap()
}

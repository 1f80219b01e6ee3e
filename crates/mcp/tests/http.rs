//! Streamable HTTP: authentication, and sessions in both eras.

use std::net::SocketAddr;

use attache_protocol::Secret;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    fakes::FakeDaemon,
    pipe::{MODERN, delegation, options, service},
};

const SECRET: &str = "sh_0123456789abcdef";

struct McpHttpFixture {
    daemon: FakeDaemon,
    address: SocketAddr,
    client: Client,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

impl McpHttpFixture {
    async fn start() -> Self {
        let daemon = FakeDaemon::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let (service, ending) = (service(&daemon, options()), stop.clone());
        let served = tokio::spawn(async move {
            attache_mcp::http::serve(service, listener, &Secret::new(SECRET.to_owned()), ending).await.unwrap();
        });
        Self { daemon, address, client: client(), stop, served }
    }

    fn bare(&self) -> RequestBuilder {
        let request = self.client.post(format!("http://{}/mcp", self.address));
        request.header("accept", "application/json, text/event-stream").header("content-type", "application/json")
    }

    fn post(&self) -> RequestBuilder {
        self.bare().bearer_auth(SECRET)
    }

    async fn initialize(&self) -> (String, Value) {
        let response = self.post().body(initialize().to_string()).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let session = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        let answer = answer(response).await;
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let sent = self.post().header("mcp-session-id", &session).body(initialized.to_string()).send().await.unwrap();
        assert_eq!(sent.status(), StatusCode::ACCEPTED);
        (session, answer)
    }

    async fn call(&self, session: &str, tool: &str, arguments: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": tool, "arguments": arguments } });
        let request = self.post().header("mcp-session-id", session).header("mcp-protocol-version", "2025-06-18");
        answer(request.body(body.to_string()).send().await.unwrap()).await["result"].take()
    }

    async fn call_modern(&self, client: &Client, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        } });
        let body = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params });
        let request = client.post(format!("http://{}/mcp", self.address)).bearer_auth(SECRET);
        let request = request.header("accept", "application/json, text/event-stream");
        let request = request.header("content-type", "application/json").header("mcp-protocol-version", MODERN);
        let request = request.header("mcp-method", "tools/call").header("mcp-name", tool);
        answer(request.body(body.to_string()).send().await.unwrap()).await["result"].take()
    }
}

fn client() -> Client {
    Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

fn initialize() -> Value {
    let params =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })
}

/// The response body, as JSON or as an event.
async fn answer(response: Response) -> Value {
    let (status, text) = (response.status(), response.text().await.unwrap());
    let message = match serde_json::from_str(&text) {
        Ok(message) => message,
        Err(_) => {
            let data = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
            let mut messages = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
            messages.find(|message| message.get("id").is_some()).unwrap_or_else(|| panic!("{status}: {text}"))
        }
    };
    assert!(message.is_object(), "{status}: {text}");
    message
}

fn background() -> Value {
    let mut arguments = delegation();
    arguments["background"] = json!(true);
    arguments
}

#[tokio::test]
async fn only_local_programs_with_the_secret_are_accepted() {
    let world = McpHttpFixture::start().await;
    let body = || initialize().to_string();
    for (request, status) in [
        (world.bare(), StatusCode::UNAUTHORIZED),
        (world.bare().bearer_auth("sh_wrong"), StatusCode::UNAUTHORIZED),
        (world.bare().header("authorization", SECRET), StatusCode::UNAUTHORIZED),
        (world.post().header("host", "evil.example"), StatusCode::FORBIDDEN),
        (world.post().header("host", "127.0.0.1:1"), StatusCode::FORBIDDEN),
        (world.post().header("origin", "http://evil.example"), StatusCode::FORBIDDEN),
        (world.post().header("origin", "http://127.0.0.1:1"), StatusCode::FORBIDDEN),
        (world.post().header("origin", format!("http://{}", world.address)), StatusCode::OK),
        (world.post().header("origin", "null"), StatusCode::FORBIDDEN),
        (world.post(), StatusCode::OK),
        (world.post().header("host", format!("localhost:{}", world.address.port())), StatusCode::OK),
    ] {
        let response = request.body(body()).send().await.unwrap();
        assert_eq!(response.status(), status, "{response:?}");
    }
    let refused = world.bare().body(body()).send().await.unwrap();
    assert_eq!(refused.headers()["www-authenticate"], "Bearer");
    assert!(refused.text().await.unwrap().contains("$A2A_HOME/mcp/"));
}

#[tokio::test]
async fn a_session_has_its_own_delegations() {
    let world = McpHttpFixture::start().await;
    let (one, hello) = world.initialize().await;
    assert_eq!(hello["result"]["serverInfo"]["name"], "attache");
    let (two, _) = world.initialize().await;
    let made = world.call(&one, "delegate", background()).await;
    assert_eq!(made["structuredContent"]["metadata"]["session_id"], json!(one));
    world.call(&two, "delegate", background()).await;
    let cancelled = world.call(&two, "delegate_cancel", json!({ "all": true })).await;
    let ids = cancelled["structuredContent"]["metadata"]["cancelled"].as_array().unwrap().len();
    assert_eq!(ids, 1, "{cancelled}");
    let open = world.daemon.all().into_iter().filter(|one| !one.status.has_ended()).collect::<Vec<_>>();
    assert_eq!(open.iter().map(|one| one.session_id.as_deref().unwrap()).collect::<Vec<_>>(), [one.as_str()]);
    let gone = world.post().header("mcp-session-id", "nonsense").header("mcp-protocol-version", "2025-06-18");
    let body = json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/list" }).to_string();
    assert_eq!(gone.body(body).send().await.unwrap().status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_session_can_be_ended_only_once() {
    let world = McpHttpFixture::start().await;
    let (session, _) = world.initialize().await;
    let end = async |session: &str| {
        let request = world.client.delete(format!("http://{}/mcp", world.address)).bearer_auth(SECRET);
        let request = request.header("mcp-session-id", session).header("mcp-protocol-version", "2025-06-18");
        request.send().await.unwrap().status()
    };
    assert_eq!(end("nonsense").await, StatusCode::NOT_FOUND);
    assert_eq!(end(&session).await, StatusCode::ACCEPTED);
    let after = world.post().header("mcp-session-id", &session).header("mcp-protocol-version", "2025-06-18");
    let body = json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/list" }).to_string();
    assert_eq!(after.body(body).send().await.unwrap().status(), StatusCode::NOT_FOUND);
    assert_eq!(end(&session).await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn in_the_new_era_the_connection_is_the_session() {
    let world = McpHttpFixture::start().await;
    let (one, two) = (client(), client());
    let session = |result: &Value| result["structuredContent"]["metadata"]["session_id"].as_str().unwrap().to_owned();
    let first = session(&world.call_modern(&one, "delegate", background()).await);
    assert!(first.starts_with("connection-"), "{first}");
    let again = session(&world.call_modern(&one, "delegate", background()).await);
    let other = session(&world.call_modern(&two, "delegate", background()).await);
    assert_eq!(first, again);
    assert_ne!(first, other);
    let cancelled = world.call_modern(&one, "delegate_cancel", json!({ "all": true })).await;
    assert_eq!(cancelled["structuredContent"]["metadata"]["cancelled"].as_array().unwrap().len(), 2, "{cancelled}");
}

#[tokio::test]
async fn the_server_stops_on_request() {
    let world = McpHttpFixture::start().await;
    world.initialize().await;
    drop(world.client);
    world.stop.cancel();
    tokio::time::timeout(std::time::Duration::from_secs(20), world.served).await.expect("it does not end").unwrap();
}

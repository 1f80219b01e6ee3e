//! MCP over streamable HTTP for clients on this machine. Requires the secret and a loopback host name, and rejects web
//! pages.

use std::{net::SocketAddr, sync::Arc};

use attache_os::local_port::{ConnectionProof, GuardedPort, GuardedStream};
use attache_protocol::{Secret, env::Env, secret::SecretHash};
use axum::{
    Router,
    body::Body,
    extract::{Request, State, connect_info::Connected},
    http::{HeaderMap, Method, StatusCode, header},
    middleware::{self, Next},
    response::Response,
    serve::{IncomingStream, Listener},
};
use rmcp::transport::streamable_http_server::{
    SessionId, SessionManager as _, StreamableHttpServerConfig, StreamableHttpService,
    session::{local::LocalSessionManager, never::NeverSessionManager},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::McpService;

/// A connection, with its unique id.
#[derive(Debug, Clone)]
pub struct McpConnection {
    id: Arc<str>,
    proof: Arc<ConnectionProof>,
}

/// Every program of this machine can connect to it.
struct McpListener(GuardedPort);

/// The path of the MCP endpoint.
pub const PATH: &str = "/mcp";

// === impl McpConnection ===

impl McpConnection {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

impl Connected<IncomingStream<'_, McpListener>> for McpConnection {
    fn connect_info(stream: IncomingStream<'_, McpListener>) -> Self {
        let id = format!("connection-{}", Env::system().uuid().simple()).into();
        Self { id, proof: stream.io().proof() }
    }
}

// === impl McpListener ===

impl Listener for McpListener {
    type Io = GuardedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (GuardedStream, SocketAddr) {
        self.0.next().await
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// Serves sessions on a local port until `stop` is cancelled. Every request must carry the secret.
pub async fn serve(
    service: McpService,
    listener: TcpListener,
    secret: &Secret<String>,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let address = listener.local_addr()?;
    let config = config(names(address), stop.clone());
    let sessions = Arc::new(LocalSessionManager::default());
    let mcp = StreamableHttpService::new(move || Ok(service.connect()), sessions.clone(), config);
    let router = Router::new()
        .route_service(PATH, mcp)
        .layer(middleware::from_fn_with_state(sessions, end_session))
        .layer(middleware::from_fn_with_state(secret.hash(), authenticate))
        .layer(middleware::map_request(name_connection));
    let made = router.into_make_service_with_connect_info::<McpConnection>();
    axum::serve(McpListener(GuardedPort::new(listener)), made).with_graceful_shutdown(stop.cancelled_owned()).await
}

/// The tools at [`PATH`] without sessions, for a server that authenticates callers and checks `Host` and `Origin`
/// itself.
pub fn router<S: Clone + Send + Sync + 'static>(service: McpService, stop: CancellationToken) -> Router<S> {
    // The outer server checks the host name.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_legacy_session_mode(false)
        .with_cancellation_token(stop);
    let sessions = Arc::new(NeverSessionManager::default());
    Router::new().route_service(PATH, StreamableHttpService::new(move || Ok(service.connect()), sessions, config))
}

fn config(hosts: Vec<String>, stop: CancellationToken) -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default()
        .with_allowed_origins(hosts.iter().map(|host| format!("http://{host}")))
        .with_allowed_hosts(hosts)
        .enforce_origin_validation()
        .with_cancellation_token(stop)
}

/// The host names that clients may use. Other names are rejected to prevent DNS rebinding.
fn names(address: SocketAddr) -> Vec<String> {
    let port = address.port();
    let mut names = vec![format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("[::1]:{port}")];
    if !address.ip().is_unspecified() {
        names.push(address.to_string());
    }
    names
}

/// Copies the connection id to where the tools look for it.
async fn name_connection(mut request: Request) -> Request {
    use axum::extract::ConnectInfo;
    if let Some(ConnectInfo(connection)) = request.extensions().get::<ConnectInfo<McpConnection>>().cloned() {
        request.extensions_mut().insert(connection);
    }
    request
}

/// Answers 404 when the session to end doesn't exist. The library would report success.
async fn end_session(State(sessions): State<Arc<LocalSessionManager>>, request: Request, next: Next) -> Response {
    let named = request.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()).map(SessionId::from);
    if request.method() == Method::DELETE
        && let Some(id) = named
        && !sessions.has_session(&id).await.unwrap_or(false)
    {
        let mut unknown = Response::new(Body::from("No such session."));
        *unknown.status_mut() = StatusCode::NOT_FOUND;
        return unknown;
    }
    next.run(request).await
}

async fn authenticate(State(secret): State<SecretHash>, request: Request, next: Next) -> Response {
    if bearer(request.headers()).is_some_and(|token| secret.matches(token)) {
        if let Some(connection) = request.extensions().get::<McpConnection>() {
            connection.proof.give();
        }
        return next.run(request).await;
    }
    let body = r#"{"error":{"code":"unauthenticated","message":"The secret of this server is missing or wrong.","hint":"Send `Authorization: Bearer <secret>`. The secret is in $A2A_HOME/mcp/<host>_<port>."}}"#;
    let mut refusal = Response::new(Body::from(body));
    *refusal.status_mut() = StatusCode::UNAUTHORIZED;
    let headers = refusal.headers_mut();
    headers.insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    refusal
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

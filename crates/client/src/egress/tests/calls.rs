//! Real calls to servers on loopback, allowed by a rule or reached through a lying name server.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse,
    routing::{any, post},
};
use reqwest::Method;

use super::*;

/// A server on loopback that counts its requests.
struct CountingServer {
    port: u16,
    hits: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl CountingServer {
    async fn start() -> Self {
        let hits = Arc::new(AtomicUsize::new(0));
        let seen = hits.clone();
        let count = move |request: axum::extract::Request| {
            seen.fetch_add(1, Ordering::SeqCst);
            request
        };
        let app = Router::new()
            .route("/echo", post(echo))
            .route("/redirect", any(|| async { (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "/echo")]) }))
            .route("/endless", any(endless))
            .route("/silent", any(std::future::pending::<()>))
            .route("/drips", any(drips))
            .layer(axum::middleware::map_request(move |request| std::future::ready(count(request))));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { port, hits, task }
    }

    fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }
}

impl Drop for CountingServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn echo(headers: HeaderMap, body: Bytes) -> impl IntoResponse {
    let header = |name: &str| headers.get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
    format!("{} {} {}", header("host"), header("x-one"), String::from_utf8_lossy(&body))
}

async fn endless() -> impl IntoResponse {
    Body::from_stream(futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[b'a'; 1024]))))
}

/// Two chunks, then silence.
async fn drips() -> impl IntoResponse {
    let pieces = futures_util::stream::iter(["one", "two"].map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece))));
    Body::from_stream(futures_util::StreamExt::chain(pieces, futures_util::stream::pending()))
}

async fn post_to(guard: &EgressGuard, url: &str) -> Result<EgressReply, EgressFailure> {
    let checked = guard.check(url).unwrap();
    let headers = HeaderMap::from_iter([(header::HeaderName::from_static("x-one"), "1".parse().unwrap())]);
    guard.post(&checked, headers, Bytes::from_static(b"{}")).await
}

#[tokio::test]
async fn a_call_uses_the_checked_address_and_the_original_name() {
    let server = CountingServer::start().await;
    let script = ScriptedResolver::new(&[&["127.0.0.1"]]);
    let guard = scripted(&["127.0.0.0/8"], &script);
    let port = server.port;
    let reply = post_to(&guard, &format!("http://hooks.example.org:{port}/echo")).await.unwrap();
    let expected = format!("hooks.example.org:{port} 1 {{}}");
    assert_eq!((reply.status, &*reply.body, reply.is_success()), (200, expected.as_bytes(), true));
    assert_eq!(script.asked(), ["hooks.example.org"], "resolved once");
    let direct = post_to(&guard, &format!("http://127.0.0.1:{port}/echo")).await.unwrap();
    assert_eq!(direct.body, format!("127.0.0.1:{port} 1 {{}}"));
    assert_eq!((script.asked().len(), server.hits()), (1, 2));
}

#[tokio::test]
async fn a_name_that_moves_after_registration_is_not_called() {
    let server = CountingServer::start().await;
    let public: &[&str] = &["93.184.216.34"];
    for inside in ["127.0.0.1", "169.254.169.254", "::ffff:127.0.0.1"] {
        let script = ScriptedResolver::new(&[public, &[inside], public]);
        let guard = scripted(&[], &script);
        let checked = guard.check(&format!("https://hooks.example.org:{}/echo", server.port)).unwrap();
        guard.resolve(&checked).await.unwrap();
        let failure = guard.post(&checked, HeaderMap::new(), Bytes::new()).await.unwrap_err();
        assert!(matches!(failure, EgressFailure::Refused(EgressRefusal::Address { .. })), "{failure}");
        assert_eq!(script.asked().len(), 2, "the answer that was judged is the one that would have been called");
    }
    assert_eq!(server.hits(), 0);
}

#[tokio::test]
async fn a_network_rule_does_not_allow_plain_http_to_public_hosts() {
    let guard = scripted(&["127.0.0.0/8"], &ScriptedResolver::new(&[&["93.184.216.34"]]));
    let failure = post_to(&guard, "http://hooks.example.org/").await.unwrap_err();
    let origin = "http://hooks.example.org".to_owned();
    assert_eq!(failure, EgressFailure::Refused(EgressRefusal::PlainHttp { origin }));
    let failure = post_to(&guard, "http://hooks.example.org:22/").await.unwrap_err();
    assert_eq!(failure, EgressFailure::Refused(EgressRefusal::Port { port: 22 }));
}

#[tokio::test]
async fn a_url_is_checked_by_the_guard_that_calls_it() {
    let server = CountingServer::start().await;
    let url = format!("http://127.0.0.1:{}/echo", server.port);
    let checked = guard(&["127.0.0.1"]).check(&url).unwrap();
    let failure = guard(&[]).post(&checked, HeaderMap::new(), Bytes::new()).await.unwrap_err();
    let host = "127.0.0.1".to_owned();
    assert_eq!(failure, EgressFailure::Refused(EgressRefusal::Address { host, range: AddressRange::Loopback }));
    assert_eq!(server.hits(), 0);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let server = CountingServer::start().await;
    let reply = post_to(&guard(&["127.0.0.1"]), &format!("http://127.0.0.1:{}/redirect", server.port)).await.unwrap();
    assert_eq!(
        (reply.status, reply.is_success(), &reply.headers[header::LOCATION]),
        (307, false, &"/echo".parse().unwrap())
    );
    assert_eq!(server.hits(), 1);
}

#[tokio::test]
async fn size_and_time_are_bounded() {
    let server = CountingServer::start().await;
    let origin = format!("http://127.0.0.1:{}", server.port);
    let within = |limits| EgressGuard::with(policy(&["127.0.0.1"]), limits, Arc::new(SystemResolver));
    let short = within(EgressLimits { reply: 10_000, ..EgressLimits::default() });
    let failure = post_to(&short, &format!("{origin}/endless")).await.unwrap_err();
    assert_eq!(failure, EgressFailure::TooLarge { origin: origin.clone(), status: 200, limit: 10_000 });
    let quick = within(EgressLimits { total: Duration::from_millis(300), ..EgressLimits::default() });
    let failure = post_to(&quick, &format!("{origin}/silent")).await.unwrap_err();
    assert_eq!(failure, EgressFailure::TimedOut { origin });
    assert!(failure.is_passing());
}

#[tokio::test]
async fn an_unreachable_target_is_reported_without_its_path() {
    // Bound, so that no other process gets the port, but not listening.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let origin = format!("http://{}", socket.local_addr().unwrap());
    let guard = guard(&["127.0.0.1"]);
    let checked = guard.check(&format!("{origin}/hunter2")).unwrap();
    let request = EgressRequest { method: Method::GET, headers: HeaderMap::new(), body: Bytes::new() };
    let failure = guard.send(&checked, request).await.unwrap_err();
    assert!(matches!(&failure, EgressFailure::Unreachable { origin: named, .. } if *named == origin), "{failure:?}");
    assert!(!format!("{failure} {failure:?}").contains("hunter2"));
    assert!(failure.is_passing() && failure.is_undelivered());
}

#[tokio::test]
async fn a_response_is_streamed_within_limits() {
    let server = CountingServer::start().await;
    let origin = format!("http://127.0.0.1:{}", server.port);
    let guard = guard(&["127.0.0.1"]);
    let open = async |limits: EgressLimits, path: &str| {
        let guard = guard.within(limits);
        let request = EgressRequest { method: Method::GET, headers: HeaderMap::new(), body: Bytes::new() };
        guard.open(&guard.check(&format!("{origin}{path}")).unwrap(), request).await
    };
    let patient = EgressLimits { silence: Duration::from_millis(300), ..EgressLimits::default() };
    let mut drips = open(patient, "/drips").await.unwrap();
    let mut seen = Vec::new();
    let end = loop {
        match drips.next().await {
            Ok(piece) => seen.extend_from_slice(&piece.unwrap()),
            Err(failure) => break failure,
        }
    };
    assert_eq!((drips.status, &*seen, end), (200, &b"onetwo"[..], EgressFailure::TimedOut { origin: origin.clone() }));
    let small = EgressLimits { stream: 5000, ..EgressLimits::default() };
    let mut endless = open(small, "/endless").await.unwrap();
    let failure = loop {
        if let Err(failure) = endless.next().await {
            break failure;
        }
    };
    assert_eq!(failure, EgressFailure::TooLarge { origin: origin.clone(), status: 200, limit: 5000 });
    let redirect = open(EgressLimits::default(), "/redirect").await.unwrap();
    assert_eq!((redirect.status, redirect.read().await.unwrap().body), (307, Bytes::new()), "not followed");
    let quick = EgressLimits { total: Duration::from_millis(300), ..EgressLimits::default() };
    assert_eq!(open(quick, "/silent").await.unwrap_err(), EgressFailure::TimedOut { origin: origin.clone() });
    let private = scripted(&[], &ScriptedResolver::new(&[&["127.0.0.1"]]));
    let checked = private.check(&format!("https://hooks.example.org:{}/drips", server.port)).unwrap();
    let request = EgressRequest { method: Method::GET, headers: HeaderMap::new(), body: Bytes::new() };
    let failure = private.open(&checked, request).await.unwrap_err();
    assert!(matches!(failure, EgressFailure::Refused(EgressRefusal::Address { .. })), "{failure}");
    assert!(failure.is_undelivered() && !failure.is_passing());
    assert_eq!(server.hits(), 4);
}

#[tokio::test]
async fn a_broken_connection_may_have_delivered_the_request() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 1024];
        tokio::io::AsyncReadExt::read(&mut socket, &mut bytes).await.unwrap();
    });
    let failure = post_to(&guard(&["127.0.0.1"]), &origin).await.unwrap_err();
    assert!(matches!(&failure, EgressFailure::Broken { origin: named, .. } if *named == origin), "{failure:?}");
    assert!(failure.is_passing() && !failure.is_undelivered());
    task.await.unwrap();
}

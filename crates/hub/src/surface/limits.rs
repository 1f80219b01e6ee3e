//! What holds for every request on the port, whichever surface answers it: own names, no panic, counters.

use std::{
    convert::Infallible,
    future::Future,
    net::{IpAddr, SocketAddr},
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version, header},
    middleware::map_request,
    response::IntoResponse as _,
};
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tokio::time::timeout;
use tower::Service as _;

use crate::{
    Error, Handle, Options,
    surface::{
        Peer,
        extract::{self, Shown, Told},
        host::OwnNames,
        reply,
        request_log::{RequestLog, note_route},
        seat::Seat,
    },
    tls::Fingerprint,
};

/// The outermost service of one connection.
#[derive(Clone)]
pub(crate) struct Edge {
    shared: Arc<Shared>,
    peer: SocketAddr,
    seat: Seat,
    /// The certificate that the connection was opened with.
    client: Option<Fingerprint>,
}

struct Shared {
    hub: Handle,
    names: OwnNames,
    router: Router,
    https_for_good: bool,
}

/// A request's body, of which one knows whether it was read to its end.
struct Watched {
    body: Incoming,
    unread: Arc<AtomicBool>,
}

/// Every request that is no upload fits into this.
const SMALL: u64 = 64 * 1024;

const A_YEAR: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// Makes the edge of each connection.
#[derive(Clone)]
pub(crate) struct Port(Arc<Shared>);

// === impl Port ===

impl Port {
    pub(crate) fn new(hub: Handle, router: Router) -> Self {
        let names = OwnNames::new(hub.options());
        let https_for_good = hub.options().is_https_for_good();
        let router = router.route_layer(map_request(note_route));
        Self(Arc::new(Shared { hub, names, router, https_for_good }))
    }

    pub(crate) fn edge(&self, peer: SocketAddr, seat: Seat) -> Edge {
        Edge { shared: self.0.clone(), peer, seat, client: None }
    }
}

// === impl Edge ===

impl Edge {
    pub(crate) const fn seat(&self) -> &Seat {
        &self.seat
    }

    pub(crate) fn of_client(self, client: Option<Fingerprint>) -> Self {
        Self { client, ..self }
    }
}

impl hyper::service::Service<Request<Incoming>> for Edge {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (shared, peer, seat, client) = (self.shared.clone(), self.peer, self.seat.clone(), self.client);
        let may_be_cut = request.version() < Version::HTTP_2 && !request.body().is_end_stream();
        let unread = Arc::new(AtomicBool::new(may_be_cut));
        let reading = unread.clone();
        let answered = async move {
            seat.begin();
            let mut request = arrived(request, shared.hub.options().body_timeout, reading).await;
            let log = RequestLog::begin(&mut request);
            let peer = forwarded(shared.hub.options(), peer, request.headers());
            let named = shared.names.check(request.uri(), request.headers());
            match shared.identify(named, request.headers(), client, peer, &seat).await {
                Ok(Some(shown)) => {
                    request.extensions_mut().insert(shown);
                }
                Ok(None) => {}
                Err(error) => {
                    shared.hub.metrics().answered(error.code.http_status());
                    return Ok(error.into_response());
                }
            }
            let told = shared.hub.options().requests_per_minute.map(|_| Told::default());
            if let Some(told) = &told {
                request.extensions_mut().insert(told.clone());
            }
            request.extensions_mut().insert(Peer(peer));
            request.extensions_mut().insert(seat);
            let answer = AssertUnwindSafe(shared.router.clone().call(request)).catch_unwind().await;
            let mut response = match answer {
                Ok(Ok(response)) => response,
                Ok(Err(never)) => match never {},
                Err(_) => {
                    // The panic hook has printed where; the caller learns only that it was us.
                    shared.hub.metrics().panics.add(1);
                    Error::internal(&"a request panicked").into_response()
                }
            };
            if let Some(left) = told.as_ref().and_then(|told| told.0.get()) {
                reply::show_limit(&mut response, *left);
            }
            if shared.https_for_good {
                response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, A_YEAR);
            }
            shared.hub.metrics().answered(response.status().as_u16());
            if let Some(log) = log {
                log.end(&response);
            }
            Ok(response)
        };
        Box::pin(async move {
            let Ok(mut response): Result<_, Infallible> = answered.await;
            // What is refused unread ends the connection; the client must not send its next request into it.
            if response.status() == StatusCode::TOO_MANY_REQUESTS && unread.load(Ordering::Relaxed) {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        })
    }
}

/// On HTTP/2 an answer that comes before the end of the request's body resets the stream, and clients then lose the answer:
/// a refusal would look like a broken line. So a small body is waited for first.
async fn arrived(request: Request<Incoming>, limit: Duration, unread: Arc<AtomicBool>) -> Request<Body> {
    let (parts, body) = request.into_parts();
    let is_small = body.size_hint().exact().is_some_and(|size| (1..=SMALL).contains(&size));
    if parts.version != Version::HTTP_2 || !is_small {
        return Request::from_parts(parts, Body::new(Watched { body, unread }));
    }
    let body = match timeout(limit, body.collect()).await {
        Ok(Ok(whole)) => Body::from(whole.to_bytes()),
        // Whoever reads it finds that it is not what was announced.
        Ok(Err(_)) | Err(_) => Body::empty(),
    };
    Request::from_parts(parts, body)
}

/// Where the request came from: what the last proxy that we do not trust says, or the connection itself.
fn forwarded(options: &Options, peer: SocketAddr, headers: &HeaderMap) -> SocketAddr {
    if !options.trusts_proxy(peer.ip()) {
        return peer;
    }
    let named = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let named: Vec<&str> = named.flat_map(|value| value.split(',')).map(str::trim).collect();
    let mut nearest = peer;
    for text in named.into_iter().rev() {
        let bare = text.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or(text, |(address, _)| address);
        // What cannot be read was not written by a proxy of ours.
        let Ok(address) = bare.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip()))
        else {
            return nearest;
        };
        nearest = SocketAddr::new(address.to_canonical(), 0);
        if !options.trusts_proxy(nearest.ip()) {
            return nearest;
        }
    }
    nearest
}

// === impl Watched ===

impl hyper::body::Body for Watched {
    type Data = <Incoming as hyper::body::Body>::Data;
    type Error = <Incoming as hyper::body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.unread.store(false, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// === impl Shared ===

impl Shared {
    /// Who asks. A request counts as anonymous until it has shown a good credential, and so does its connection.
    async fn identify(
        &self,
        named: crate::Result<()>,
        headers: &HeaderMap,
        client: Option<Fingerprint>,
        peer: SocketAddr,
        seat: &Seat,
    ) -> crate::Result<Option<Shown>> {
        if let Err(error) = named {
            self.hub.attempts().anonymous(peer.ip())?;
            return Err(error);
        }
        let shown = extract::identify(&self.hub, headers, client).await;
        let known = match &shown {
            Some(Shown(known)) => Some(known.clone()),
            None => extract::browser(&self.hub, headers).await,
        };
        match known {
            Some(Ok(by)) => seat.identify(&by)?,
            // A store that is busy says nothing about who asks.
            Some(Err(error)) if error.code.http_status() >= 500 => {}
            Some(Err(_)) | None => self.hub.attempts().anonymous(peer.ip())?,
        }
        Ok(shown)
    }
}

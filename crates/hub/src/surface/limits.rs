//! Checks for every request on the port, whichever surface serves it: host names, panics, counters, and the
//! requests in progress.

use std::{
    convert::Infallible,
    future::{Future, ready},
    net::{IpAddr, SocketAddr},
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::Arc,
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
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;
use tower::Service as _;

use crate::{
    Error, Handle, Options,
    connection_slot::ConnectionSlot,
    surface::{
        PeerAddress,
        extract::{self, RateLimitSlot, RequestIdentity},
        host::OwnNames,
        in_progress::{RequestCaller, RequestSlot, RequestsInProgress, WAIT_AFTER},
        intake::{ConnectionBudget, ExpectedFormat, Intake, MemoryBudget},
        outgoing::{ResponseBody, ResponseForm},
        reply,
        request_log::{LoggedRequest, note_route},
    },
    tls::Fingerprint,
};

/// The outermost service of one connection.
#[derive(Clone)]
pub(crate) struct EdgeService {
    shared: Arc<EdgeContext>,
    peer: SocketAddr,
    connection_slot: ConnectionSlot,
    /// The client certificate of the connection.
    client: Option<Fingerprint>,
    unauthenticated: Arc<ConnectionBudget>,
}

struct EdgeContext {
    hub: Handle,
    names: OwnNames,
    router: Router,
    https_for_good: bool,
    /// The memory budget for unauthenticated requests.
    unauthenticated: Arc<MemoryBudget>,
    in_progress: RequestsInProgress,
}

/// The caller, as far as the request head identifies it.
struct AdmittedCaller {
    shown: Option<RequestIdentity>,
    /// Has a valid credential.
    is_known: bool,
    /// Room for this request among those of its caller.
    slot: RequestSlot,
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Infallible>> + Send>>;

/// How many headers a request can have, in every version of HTTP.
pub(crate) const MAX_HEADERS: usize = 100;

/// Responses after which the rest of the body is not read.
const CUT: [StatusCode; 3] =
    [StatusCode::REQUEST_TIMEOUT, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::TOO_MANY_REQUESTS];

/// Every request other than an upload fits into this.
const MAX_SMALL_BODY: u64 = 64 * 1024;

const A_YEAR: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// Creates the edge service of each connection.
#[derive(Clone)]
pub(crate) struct EdgeServiceFactory(Arc<EdgeContext>);

// === impl EdgeServiceFactory ===

impl EdgeServiceFactory {
    pub(crate) fn new(hub: Handle, router: Router) -> Self {
        let names = OwnNames::new(hub.options());
        let https_for_good = hub.options().is_https_for_good();
        let router = router.route_layer(map_request(note_route));
        let unauthenticated = Arc::new(MemoryBudget::new(hub.options().max_unauthenticated_bytes));
        let in_progress = RequestsInProgress::new(hub.options());
        Self(Arc::new(EdgeContext { hub, names, router, https_for_good, unauthenticated, in_progress }))
    }

    pub(crate) fn edge(&self, peer: SocketAddr, connection_slot: ConnectionSlot) -> EdgeService {
        let unauthenticated = Arc::new(ConnectionBudget::new(self.0.unauthenticated.clone()));
        EdgeService { shared: self.0.clone(), peer, connection_slot, client: None, unauthenticated }
    }
}

// === impl EdgeService ===

impl EdgeService {
    pub(crate) const fn connection_slot(&self) -> &ConnectionSlot {
        &self.connection_slot
    }

    pub(crate) fn of_client(self, client: Option<Fingerprint>) -> Self {
        Self { client, ..self }
    }

    fn is_proxied(&self) -> bool {
        self.shared.hub.options().trusts_proxy(self.peer.ip())
    }

    /// Without a body: nothing of the request or its response waits for a client that doesn't read.
    fn refuse(&self, request: &Request<Incoming>, status: StatusCode) -> Answering {
        if request.version() < Version::HTTP_2 && !request.body().is_end_stream() {
            self.connection_slot.cut();
        }
        self.shared.hub.metrics().answered(status.as_u16());
        let mut response = Response::new(ResponseBody::from(Body::empty()));
        *response.status_mut() = status;
        if status != StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        Box::pin(ready(Ok(response)))
    }
}

impl hyper::service::Service<Request<Incoming>> for EdgeService {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (shared, peer, connection_slot, client) =
            (self.shared.clone(), self.peer, self.connection_slot.clone(), self.client);
        let connection = connection_slot.clone();
        let unauthenticated = self.unauthenticated.clone();
        let may_be_cut = request.version() < Version::HTTP_2;
        connection_slot.begin();
        if request.headers().len() > MAX_HEADERS {
            return self.refuse(&request, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        }
        // Before anything waits: until the caller is identified, its head counts as that of an unauthenticated caller.
        let share = (!connection_slot.is_authenticated()).then(|| unauthenticated.share());
        if share.as_ref().is_some_and(|share| !share.take_head(&request)) {
            return self.refuse(&request, StatusCode::TOO_MANY_REQUESTS);
        }
        let service = self.clone();
        Box::pin(async move {
            // Another node has checked the name already, and says where the request comes from.
            let (peer, named) = match shared.hub.forwarded_by_node(request.headers(), request.uri()) {
                Some(address) => (SocketAddr::new(address, 0), Ok(())),
                None => (
                    forwarded(shared.hub.options(), peer, request.headers()),
                    shared.names.check(request.uri(), request.headers()),
                ),
            };
            // Authenticate before reading anything.
            let caller = shared.identify(named, &request, client, peer, &connection_slot).await;
            let (share, open) = match &caller {
                Ok(AdmittedCaller { is_known: true, .. }) => (None, None),
                // A proxy brings the requests of many.
                Ok(_) | Err(_) if service.is_proxied() => (share.or_else(|| Some(unauthenticated.share())), None),
                Ok(_) | Err(_) => match unauthenticated.open() {
                    Some(open) => (share.or_else(|| Some(unauthenticated.share())), Some(open)),
                    None => return service.refuse(&request, StatusCode::SERVICE_UNAVAILABLE).await,
                },
            };
            let intake = Intake::new(shared.hub.options().body_timeout, share);
            let format = ExpectedFormat::of(request.headers());
            let mut request = arrived(request, &intake).await;
            let log = LoggedRequest::begin(&mut request);
            let (mut response, slot) = match caller {
                Ok(mut admitted) => {
                    if let Some(shown) = admitted.shown {
                        request.extensions_mut().insert(shown);
                    }
                    request.extensions_mut().insert(PeerAddress(peer));
                    request.extensions_mut().insert(connection_slot);
                    request.extensions_mut().insert(intake.clone());
                    (shared.answer_or_wait(request, &mut admitted.slot).await, Some(admitted.slot))
                }
                Err(error) => (error.into_response(), None),
            };
            if let Some(refusal) = intake.unreported(format) {
                response = refusal;
            }
            if shared.https_for_good {
                response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, A_YEAR);
            }
            shared.hub.metrics().answered(response.status().as_u16());
            if let Some(log) = log {
                log.end(&response);
            }
            // hyper closes a connection whose body was not read.
            if may_be_cut && intake.is_unread() {
                connection.cut();
                // The response says so, so that the client doesn't send its next request on it.
                if CUT.contains(&response.status()) {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
            }
            let form = ResponseForm::of(&response);
            if may_be_cut && form == ResponseForm::Stream {
                connection.allow_stalls();
            }
            Ok(response.map(|body| ResponseBody::new(body, form, slot).of_unauthenticated(open)))
        })
    }
}

/// On HTTP/2, a response before the end of the request body resets the stream, and many clients then lose the response.
/// So a small body is read first.
async fn arrived(request: Request<Incoming>, intake: &Intake) -> Request<Body> {
    let (parts, body) = request.into_parts();
    let is_small = body.size_hint().exact().is_some_and(|size| (1..=MAX_SMALL_BODY).contains(&size));
    let body = intake.body(body);
    if parts.version != Version::HTTP_2 || !is_small {
        return Request::from_parts(parts, body);
    }
    let body = match body.collect().await {
        Ok(whole) => Body::from(whole.to_bytes()),
        // The handler will notice that the body is incomplete.
        Err(_) => Body::empty(),
    };
    Request::from_parts(parts, body)
}

/// The request's source: what the last untrusted hop in `X-Forwarded-For` says, or the connection itself.
fn forwarded(options: &Options, peer: SocketAddr, headers: &HeaderMap) -> SocketAddr {
    if !options.trusts_proxy(peer.ip()) {
        return peer;
    }
    // Proxies pass on what a caller sent, whatever its bytes.
    let lines = headers.get_all("x-forwarded-for").iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    let lines: Vec<_> = lines.collect();
    let named: Vec<&str> = lines.iter().flat_map(|line| line.split(',')).map(str::trim).collect();
    let mut nearest = peer;
    for text in named.into_iter().rev() {
        let bare = text.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or(text, |(address, _)| address);
        // An unreadable entry was not written by a trusted proxy.
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

// === impl EdgeContext ===

impl EdgeContext {
    /// A request that takes long no longer counts against its caller's limit.
    async fn answer_or_wait(&self, request: Request<Body>, slot: &mut RequestSlot) -> Response<Body> {
        let mut answer = pin!(self.answer(request));
        match timeout(WAIT_AFTER, answer.as_mut()).await {
            Ok(response) => response,
            Err(_) => {
                slot.begin_wait();
                answer.await
            }
        }
    }

    async fn answer(&self, mut request: Request<Body>) -> Response<Body> {
        let told = self.hub.options().requests_per_minute.map(|_| RateLimitSlot::default());
        if let Some(told) = &told {
            request.extensions_mut().insert(told.clone());
        }
        let answer = AssertUnwindSafe(self.router.clone().call(request)).catch_unwind().await;
        let mut response = match answer {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(_) => {
                // The panic hook has already logged the location. The caller learns only that the hub failed.
                self.hub.metrics().panics.add(1);
                Error::internal(&"a request panicked").into_response()
            }
        };
        if let Some(left) = told.as_ref().and_then(|told| told.0.get()) {
            reply::show_limit(&mut response, *left);
        }
        response
    }

    /// Identifies the caller. A request, and its connection, counts as anonymous until it has shown a valid credential.
    async fn identify(
        &self,
        named: crate::Result<()>,
        request: &Request<Incoming>,
        client: Option<Fingerprint>,
        peer: SocketAddr,
        connection_slot: &ConnectionSlot,
    ) -> crate::Result<AdmittedCaller> {
        if let Err(error) = named {
            self.hub.attempts().anonymous(peer.ip())?;
            return Err(error);
        }
        let headers = request.headers();
        let shown = extract::identify(&self.hub, headers, client).await;
        let known = match &shown {
            Some(RequestIdentity(known)) => Some(known.clone()),
            None => extract::browser(&self.hub, headers).await,
        };
        let mut caller = RequestCaller::new(None, peer.ip());
        let mut is_known = false;
        match known {
            Some(Ok(by)) => {
                connection_slot.identify(&by)?;
                caller = RequestCaller::new(Some(&by), peer.ip());
                is_known = true;
            }
            // A busy store says nothing about the caller.
            Some(Err(error)) if error.code.http_status() >= 500 => {}
            Some(Err(_)) | None => {
                caller = caller.enters(request.uri().path(), connection_slot.id());
                match caller {
                    RequestCaller::Entrance(connection, network) => {
                        self.hub.attempts().entering(connection, network)?;
                    }
                    _ => self.hub.attempts().anonymous(peer.ip())?,
                }
            }
        }
        let slot = self.in_progress.begin(caller).await?;
        Ok(AdmittedCaller { shown, is_known, slot })
    }
}

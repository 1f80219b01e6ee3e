//! gRPC of both versions, on the same port, under different service names. The agent is the request's `tenant`; 0.3 has
//! none and uses the metadata `x-attache-agent`. Without either it is the hub's default agent.

mod decoded_size;
mod status;
mod v03;
mod v1;

use attache_a2a_wire::{
    StreamResponse,
    grpc::{v1::a2a_service_server::A2aServiceServer, v03::a2a_service_server::A2aServiceServer as OldServer},
};
use attache_hub::{stream::OpenStream, surface::accept_body};
use axum::{
    Router,
    body::Body,
    http::{HeaderMap, HeaderValue, Request as HttpRequest},
    middleware::{from_fn, map_request, map_response},
};
use futures_util::{StreamExt as _, stream::BoxStream};
use tonic::{Request, Response, Status, metadata::MetadataMap};

use crate::{
    ServerContext,
    agent_request::{A2aVersion, AgentRequest},
    error::Result,
    operation::TaskUpdates,
};

/// Maximum message size, as over HTTP.
const LIMIT: usize = super::BODY_LIMIT;

type GrpcResult<T> = std::result::Result<Response<T>, Status>;
type GrpcStream<T> = BoxStream<'static, std::result::Result<T, Status>>;

pub(super) fn routes(site: &ServerContext) -> Router<ServerContext> {
    let new = A2aServiceServer::new(v1::GrpcServiceV1(site.clone())).max_decoding_message_size(LIMIT);
    let old = OldServer::new(v03::GrpcServiceV03(site.clone())).max_decoding_message_size(LIMIT);
    Router::new()
        .route_service("/lf.a2a.v1.A2AService/{method}", new)
        .route_service("/a2a.v1.A2AService/{method}", old)
        .layer(from_fn(decoded_size::check))
        .layer(map_response(status::explained))
        .layer(map_request(accept_message))
}

/// The message contains which agent is meant, and so whether anonymous callers are served.
async fn accept_message(request: HttpRequest<Body>) -> HttpRequest<Body> {
    accept_body(request.extensions(), super::STRANGER_LIMIT);
    request
}

/// The caller of a request, its agent, and the message itself.
async fn asked<T>(
    site: &ServerContext,
    request: Request<T>,
    version: A2aVersion,
    tenant: &str,
) -> Result<(AgentRequest, T)> {
    let (metadata, extensions, message) = request.into_parts();
    let mut parts = HttpRequest::new(()).into_parts().0;
    (parts.headers, parts.extensions) = (metadata.into_headers(), extensions);
    // The service name determines the version. A caller that declares another one gets an error.
    if parts.headers.contains_key("a2a-version") {
        A2aVersion::of(&parts)?.must_be(version)?;
    }
    let named = parts.headers.get("x-attache-agent").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let agent = Some(tenant.to_owned()).filter(|tenant| !tenant.is_empty()).or(named);
    Ok((AgentRequest::new(site, &parts, agent.as_deref(), version).await?, message))
}

/// Adds the extensions that were used.
fn answered<T>(asked: &AgentRequest, message: T) -> Response<T> {
    let mut response = Response::new(message);
    if let Ok(activated) = HeaderValue::from_str(&asked.activated.join(", "))
        && !asked.activated.is_empty()
    {
        let mut headers = HeaderMap::new();
        headers.insert("a2a-extensions", activated);
        *response.metadata_mut() = MetadataMap::from_headers(headers);
    }
    response
}

/// Updates in the form of a version.
fn streamed<T>(asked: &AgentRequest, updates: TaskUpdates) -> Response<GrpcStream<T>>
where
    T: From<StreamResponse> + Send + 'static,
{
    let next = |mut updates: TaskUpdates| async move { Some((Ok(T::from(updates.next().await?)), updates)) };
    let mut response = answered(asked, futures_util::stream::unfold(updates, next).boxed());
    response.extensions_mut().insert(OpenStream);
    response
}

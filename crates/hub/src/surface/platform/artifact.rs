//! `/api/v1/workspaces/{id}/artifacts` and `/api/v1/artifacts/{id}`.

use attache_protocol::wire::artifact::{ArtifactList, WorkspaceArtifact};
use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header},
    response::IntoResponse as _,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::{
    fs::File,
    io::{AsyncReadExt as _, AsyncSeekExt as _, SeekFrom},
};
use tokio_util::io::ReaderStream;
use utoipa::IntoParams;

use super::{HandlerResult, PageParams, range};
use crate::{
    Error, Handle, Result,
    control::ArtifactUpload,
    surface::{
        extract::{AuthenticatedCaller, PathSegment, PathSegments, QueryParams, accepts, id},
        intake::accept_upload,
        reply,
    },
};

const BLOCK: usize = 64 * 1024;
/// The characters RFC 8187 allows unescaped in a file name.
const FILE_NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_');

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    /// `1` returns the metadata instead of the bytes.
    meta: Option<u8>,
}

operations!(list, upload, read);

/// List a workspace's artifacts, newest first
#[utoipa::path(get, path = "/api/v1/workspaces/{workspace}/artifacts", tag = "artifacts",
    params(("workspace" = String, Path), PageParams), responses((status = 200, body = ArtifactList)))]
async fn list(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(workspace): PathSegment,
    QueryParams(page): QueryParams<PageParams>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.artifacts(&by, id(&workspace, "workspace")?, page.page()).await?))
}

/// Upload an artifact
#[utoipa::path(put, path = "/api/v1/workspaces/{workspace}/artifacts/{name}", tag = "artifacts",
    params(("workspace" = String, Path), ("name" = String, Path)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 201, body = WorkspaceArtifact)))]
async fn upload(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegments(workspace, name): PathSegments,
    request: Request<Body>,
) -> HandlerResult {
    let workspace = id(&workspace, "workspace")?;
    let media_type = match request.headers().get(header::CONTENT_TYPE) {
        None => None,
        Some(value) => {
            let text = value.to_str().map_err(|_| Error::invalid("content-type", "must be ASCII"))?;
            Some(text.to_owned())
        }
    };
    accept_upload(request.extensions());
    let bytes = request.into_body().into_data_stream();
    let artifact = hub.upload_artifact(&by, workspace, ArtifactUpload { name, media_type }, bytes).await?;
    Ok(reply::json(StatusCode::CREATED, &artifact))
}

/// Download an artifact: all bytes, a byte range, or its metadata with `Accept: application/json`
#[utoipa::path(get, path = "/api/v1/artifacts/{artifact}", tag = "artifacts",
    params(("artifact" = String, Path), Query, ("Range" = Option<String>, Header)),
    responses(
        (status = 200, content((Vec<u8> = "application/octet-stream"), (WorkspaceArtifact = "application/json"))),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream"), (status = 304)))]
async fn read(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(artifact): PathSegment,
    QueryParams(query): QueryParams<Query>,
    headers: HeaderMap,
) -> HandlerResult {
    let artifact = id(&artifact, "artifact")?;
    if query.meta == Some(1) || accepts(&headers, "application/json") {
        return Ok(reply::json(StatusCode::OK, &hub.artifact(&by, artifact).await?));
    }
    let (artifact, file) = hub.open_artifact(&by, artifact).await?;
    let etag = format!("\"{}\"", artifact.blake3);
    let unchanged = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    if unchanged.is_some_and(|known| known == "*" || known.split(',').any(|tag| tag.trim() == etag)) {
        let mut response = StatusCode::NOT_MODIFIED.into_response();
        describe(&artifact, &etag, response.headers_mut())?;
        return Ok(response);
    }
    match range::part(&headers, artifact.size, &etag) {
        Ok(part) => send(&artifact, &etag, file, part).await,
        Err(error) => {
            let mut response = error.into_response();
            let size = header_value(format!("bytes */{}", artifact.size))?;
            response.headers_mut().insert(header::CONTENT_RANGE, size);
            Ok(response)
        }
    }
}

async fn send(
    artifact: &WorkspaceArtifact,
    etag: &str,
    mut file: File,
    part: Option<range::ByteRange>,
) -> HandlerResult {
    let mut response = Response::new(Body::empty());
    let length = match part {
        None => artifact.size,
        Some(part) => {
            file.seek(SeekFrom::Start(part.first)).await.map_err(|error| Error::internal(&error))?;
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let range = header_value(format!("bytes {}-{}/{}", part.first, part.last, artifact.size))?;
            response.headers_mut().insert(header::CONTENT_RANGE, range);
            part.length()
        }
    };
    let headers = response.headers_mut();
    describe(artifact, etag, headers)?;
    headers.insert(header::CONTENT_LENGTH, header_value(length.to_string())?);
    headers.insert(header::CONTENT_TYPE, header_value(artifact.media_type.clone())?);
    *response.body_mut() = Body::from_stream(ReaderStream::with_capacity(file.take(length), BLOCK));
    Ok(response)
}

/// Makes browsers save the bytes, whatever they are, and never run them under the hub's origin.
fn describe(artifact: &WorkspaceArtifact, etag: &str, headers: &mut HeaderMap) -> Result<()> {
    let name = utf8_percent_encode(&artifact.name, FILE_NAME);
    headers.insert(header::CONTENT_DISPOSITION, header_value(format!("attachment; filename*=UTF-8''{name}"))?);
    headers.insert(header::ETAG, header_value(etag.to_owned())?);
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let policy = HeaderValue::from_static("sandbox; default-src 'none'");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    Ok(())
}

fn header_value(text: String) -> Result<HeaderValue> {
    HeaderValue::try_from(text).map_err(|error| Error::internal(&error))
}

//! Downloads of a run: its raw log and its artifacts.

use attache_protocol::{ArtifactId, RunId, wire::event::Event};
use axum::{
    body::Body,
    extract::Path,
    http::{HeaderValue, header},
    response::IntoResponse as _,
};
use bytes::Bytes;
use futures_util::stream;
use tokio_util::io::ReaderStream;

use crate::{
    page::encode,
    problem::{PageError, PageResult},
    session::BrowserSession,
};

/// Every event as raw JSON, one object per line.
pub(crate) async fn raw_log(session: BrowserSession, Path(run): Path<String>) -> PageResult {
    let run: RunId = run.parse().map_err(|_| PageError::NoSuchPath)?;
    let first = session.hub.run_events(&session.principal, run, None, Some(200)).await?;
    let pages = stream::unfold(Some(first), move |page| {
        let session = session.clone();
        async move {
            let page = page?;
            let lines = lines(&page.events);
            if page.events.is_empty() {
                return None;
            }
            // If a page can't be read, or its reader may no longer read it, the file ends early. The reader can tell from the
            // missing last event.
            let next = match session.hub.recheck(&session.principal).await {
                Ok(by) => session.hub.run_events(&by, run, Some(page.next), Some(200)).await.ok(),
                Err(_) => None,
            };
            Some((Ok::<_, std::convert::Infallible>(lines), next))
        }
    });
    let mut response = Body::from_stream(pages).into_response();
    attach(&mut response, "application/jsonl; charset=utf-8", &format!("{run}.jsonl"));
    Ok(response)
}

/// Serves an artifact as a download, never as a page of our origin.
pub(crate) async fn artifact(session: BrowserSession, Path(id): Path<String>) -> PageResult {
    let id: ArtifactId = id.parse().map_err(|_| PageError::NoSuchPath)?;
    let (artifact, file) = session.hub.open_artifact(&session.principal, id).await?;
    let mut response = Body::from_stream(ReaderStream::new(file)).into_response();
    attach(&mut response, "application/octet-stream", &artifact.name);
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(artifact.size));
    Ok(response)
}

fn lines(events: &[Event]) -> Bytes {
    let mut text = String::new();
    for event in events {
        text.push_str(&serde_json::to_string(event).expect("our own types serialise to JSON"));
        text.push('\n');
    }
    Bytes::from(text)
}

fn attach(response: &mut axum::response::Response, kind: &'static str, name: &str) {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let disposition = format!("attachment; filename*=UTF-8''{}", encode(name));
    let disposition = HeaderValue::from_str(&disposition).unwrap_or(HeaderValue::from_static("attachment"));
    headers.insert(header::CONTENT_DISPOSITION, disposition);
}

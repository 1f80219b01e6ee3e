//! Who can talk to the endpoint, and how much of what they send is kept. Loopback alone isn't trusted: any web page in a browser
//! on this machine can reach it, and so can every other user.

use std::{fmt, sync::Arc, time::Duration};

use axum::{
    body::BodyDataStream,
    extract::Request,
    http::{HeaderMap, StatusCode, Uri, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures_util::StreamExt as _;
use serde::{
    Deserializer as _,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use super::{endpoint::EndpointRefusal, max_message};

/// A message without an archive.
const MAX_MESSAGE: usize = 1 << 20;
/// How long such a message may take.
const MESSAGE_TIMEOUT: Duration = if cfg!(test) { Duration::from_secs(2) } else { Duration::from_secs(30) };
/// How long the next part of a message may take.
const BODY_TIMEOUT: Duration = if cfg!(test) { Duration::from_secs(1) } else { Duration::from_secs(10) };
/// How many archives are received and unpacked at a time.
pub(super) const MAX_ARCHIVES: usize = 2;

/// A message, and its place among those with an archive.
pub(super) struct IncomingMessage {
    pub(super) bytes: Vec<u8>,
    pub(super) archive: Option<OwnedSemaphorePermit>,
}

/// What the beginning of a message says about it.
#[derive(Debug, Default)]
struct MessageStart {
    kind: Option<String>,
    delegation: Option<String>,
}

/// Refuses requests for other hosts, and those of web pages.
pub(super) async fn guard(request: Request, next: Next) -> Response {
    match check(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

fn check(uri: &Uri, headers: &HeaderMap) -> Result<(), EndpointRefusal> {
    let refuse = |status, text: &str| Err(EndpointRefusal(status, text.to_owned()));
    let hosts = headers.get_all(header::HOST).iter().map(|host| host.to_str().ok().and_then(|host| host.parse().ok()));
    // A web page that resolves its own domain to 127.0.0.1 names that domain here.
    let named: Vec<Option<Authority>> = uri.authority().cloned().map(Some).into_iter().chain(hosts).collect();
    if named.is_empty() || !named.iter().all(|host| host.as_ref().is_some_and(is_loopback)) {
        return refuse(StatusCode::MISDIRECTED_REQUEST, "only requests for a loopback address are answered");
    }
    if headers.contains_key(header::ORIGIN) {
        return refuse(StatusCode::FORBIDDEN, "web pages can't call this");
    }
    Ok(())
}

fn is_loopback(authority: &Authority) -> bool {
    let host = authority.host();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    let is_loopback = address.map_or(host.eq_ignore_ascii_case("localhost"), |address| address.is_loopback());
    is_loopback && !authority.as_str().contains('@')
}

fn check_json(headers: &HeaderMap) -> Result<(), EndpointRefusal> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(EndpointRefusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send messages as application/json".to_owned()))
}

/// Reads a message. One with an archive is read to its end only if `admits` its delegation, and `archives` has a place for it.
pub(super) async fn read_message(
    request: Request,
    archives: &Arc<Semaphore>,
    admits: impl Fn(&str) -> Result<(), EndpointRefusal>,
) -> Result<IncomingMessage, EndpointRefusal> {
    check_json(request.headers())?;
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: usize| length > max_message()) {
        return Err(too_large());
    }
    let mut body = request.into_body().into_data_stream();
    let mut bytes = Vec::new();
    let whole = timeout_at(Instant::now() + MESSAGE_TIMEOUT, read_up_to(&mut body, &mut bytes, MAX_MESSAGE));
    if whole.await.map_err(|_| late())?? {
        return Ok(IncomingMessage { bytes, archive: None });
    }
    match MessageStart::of(&bytes) {
        MessageStart { kind: Some(kind), delegation: Some(delegation) } if kind == "START" => admits(&delegation)?,
        _ => return Err(too_large()),
    }
    let busy = || EndpointRefusal(StatusCode::SERVICE_UNAVAILABLE, "too many archives are arriving".to_owned());
    let place = timeout(BODY_TIMEOUT, Arc::clone(archives).acquire_owned()).await;
    let archive = place.map_err(|_| busy())?.map_err(|_| busy())?;
    if !read_up_to(&mut body, &mut bytes, max_message()).await? {
        return Err(too_large());
    }
    Ok(IncomingMessage { bytes, archive: Some(archive) })
}

/// Returns whether that was all.
async fn read_up_to(body: &mut BodyDataStream, bytes: &mut Vec<u8>, most: usize) -> Result<bool, EndpointRefusal> {
    while bytes.len() <= most {
        match timeout(BODY_TIMEOUT, body.next()).await.map_err(|_| late())? {
            None => return Ok(true),
            Some(Ok(part)) => bytes.extend_from_slice(&part),
            Some(Err(error)) => return Err(EndpointRefusal(StatusCode::BAD_REQUEST, error.to_string())),
        }
    }
    Ok(false)
}

fn too_large() -> EndpointRefusal {
    EndpointRefusal(StatusCode::PAYLOAD_TOO_LARGE, "the message is too large".to_owned())
}

fn late() -> EndpointRefusal {
    EndpointRefusal(StatusCode::REQUEST_TIMEOUT, "the message didn't arrive in time".to_owned())
}

// === impl MessageStart ===

impl MessageStart {
    /// From the members that are there completely.
    fn of(bytes: &[u8]) -> Self {
        let mut start = Self::default();
        // It ends in the middle of something.
        let _ = serde_json::Deserializer::from_slice(bytes).deserialize_map(&mut start);
        start
    }
}

impl<'de> Visitor<'de> for &mut MessageStart {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            let known = match &*name {
                "type" => &mut self.kind,
                "delegationId" => &mut self.delegation,
                _ => {
                    members.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if known.replace(members.next_value()?).is_some() {
                self.kind = None;
                return Err(A::Error::custom("a member is in it twice"));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for IncomingMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncomingMessage").field("length", &self.bytes.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes};
    use futures_util::stream;

    use super::*;

    const JSON: &str = "application/json; charset=utf-8";

    fn request(kind: &str, parts: Vec<Bytes>, is_complete: bool) -> Request {
        let parts = stream::iter(parts.into_iter().map(Ok::<_, std::io::Error>));
        let body =
            if is_complete { Body::from_stream(parts) } else { Body::from_stream(parts.chain(stream::pending())) };
        Request::post("http://127.0.0.1/awcp").header(header::CONTENT_TYPE, kind).body(body).unwrap()
    }

    /// A message that begins so, with this much of an archive.
    fn message(begin: &str, length: usize) -> Vec<Bytes> {
        let part = Bytes::from(vec![b'A'; 64 << 10]);
        let parts = std::iter::repeat_n(part, length >> 16);
        [Bytes::from(format!("{{{begin},\"archive\":\""))].into_iter().chain(parts).chain(["\"}".into()]).collect()
    }

    async fn read(request: Request) -> Result<usize, StatusCode> {
        let archives = Arc::new(Semaphore::new(MAX_ARCHIVES));
        let admits = |id: &str| match id {
            "known" => Ok(()),
            _ => Err(EndpointRefusal(StatusCode::NOT_FOUND, String::new())),
        };
        let read = read_message(request, &archives, admits).await;
        read.map(|message| message.bytes.len()).map_err(|EndpointRefusal(status, _)| status)
    }

    #[test]
    fn other_hosts_and_web_pages_are_refused() {
        let status = |lines: &[(&str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(name.parse::<header::HeaderName>().unwrap(), value.parse().unwrap());
            }
            check(&Uri::from_static("/awcp"), &headers).map_err(|EndpointRefusal(status, _)| status.as_u16())
        };
        for host in ["127.0.0.1:4001", "localhost:4001", "LOCALHOST", "[::1]:4001", "127.0.0.1"] {
            assert_eq!(status(&[("host", host)]), Ok(()), "{host}");
        }
        for host in ["rebound.example:4001", "127.0.0.1.example", "user@localhost", "10.0.0.1:4001", "", "a b"] {
            assert_eq!(status(&[("host", host)]), Err(421), "{host}");
        }
        assert_eq!(status(&[]), Err(421));
        assert_eq!(status(&[("host", "localhost"), ("host", "evil.example")]), Err(421));
        for origin in ["https://evil.example", "http://127.0.0.1:4001", "null"] {
            assert_eq!(status(&[("host", "localhost"), ("origin", origin)]), Err(403), "{origin}");
        }
    }

    #[tokio::test]
    async fn only_an_expected_archive_is_read() {
        let start = |id: &str| format!(r#""version":"1","type":"START","lease":{{"a":[1]}},"delegationId":"{id}""#);
        let (small, large) = (64 << 10, 4 << 20);
        let of = |begin: &str, length: usize| request(JSON, message(begin, length), true);
        assert!(read(of(&start("unknown"), small)).await.is_ok());
        assert!(read(of(&start("known"), large)).await.is_ok_and(|read| read > large));
        assert_eq!(read(of(&start("unknown"), large)).await, Err(StatusCode::NOT_FOUND));
        // Refused although the rest never comes.
        let open = request(JSON, message(&start("unknown"), 2 << 20), false);
        assert_eq!(read(open).await, Err(StatusCode::NOT_FOUND));
        for begin in [
            r#""type":"INVITE","delegationId":"known""#,
            r#""type":"START""#,
            r#""delegationId":"known""#,
            r#""type":"INVITE","type":"START","delegationId":"known""#,
            r#""more":{"type":"START","delegationId":"known"}"#,
        ] {
            assert_eq!(read(of(begin, large)).await, Err(StatusCode::PAYLOAD_TOO_LARGE), "{begin}");
        }
        for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
            assert_eq!(read(request(kind, Vec::new(), true)).await, Err(StatusCode::UNSUPPORTED_MEDIA_TYPE), "{kind}");
        }
    }

    #[tokio::test]
    async fn a_message_that_does_not_end_is_given_up() {
        let begun = Instant::now();
        assert_eq!(read(request(JSON, vec!["{".into()], false)).await, Err(StatusCode::REQUEST_TIMEOUT));
        assert!(begun.elapsed() < MESSAGE_TIMEOUT);
        // A byte now and then doesn't keep it open either.
        let slow = stream::unfold((), |()| async {
            tokio::time::sleep(BODY_TIMEOUT / 2).await;
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b" ")), ()))
        });
        let request = Request::post("/").header(header::CONTENT_TYPE, JSON).body(Body::from_stream(slow)).unwrap();
        assert_eq!(read(request).await, Err(StatusCode::REQUEST_TIMEOUT));
    }
}

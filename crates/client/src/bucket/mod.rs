//! A bucket of an S3-compatible object store: files put, read, listed and removed by key.

mod listing;
mod signature;

use std::{fmt, path::Path, time::Duration};

use attache_protocol::{Secret, Timestamp, digest::hex};
use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt as _};
pub use listing::{BucketObject, BucketPage};
use reqwest::{Client, Method, Response, StatusCode, Url};
use tokio::fs::File;

use self::signature::{RequestSigner, SignedParts};
use crate::{Error, hub::chain, tls};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server may be silent while it sends or receives.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Pauses between attempts. Everything here can be repeated.
const PAUSES: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(3)];
/// No page or error is larger.
const MAX_XML: usize = 4 << 20;

/// Where the bucket is, and the keys to it.
#[derive(Debug, Clone)]
pub struct BucketAddress {
    /// `https://s3.eu-central-1.amazonaws.com`
    pub endpoint: String,
    pub region: String,
    pub bucket: String,
    /// Begins every key. Empty, or a path without slashes around it.
    pub prefix: String,
    pub access_key: String,
    pub secret_key: Secret<String>,
    /// Of temporary keys.
    pub session_token: Option<Secret<String>>,
}

/// A client of one bucket. Its objects are addressed by path (`/BUCKET/KEY`), which every server understands.
#[derive(Debug)]
pub struct Bucket {
    client: Client,
    address: BucketAddress,
    endpoint: Url,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    #[error("can't reach the object store at {endpoint}: {reason}")]
    Unreachable { endpoint: String, reason: String },
    /// No such object.
    #[error("the object store doesn't have it")]
    Missing,
    #[error("the object store at {endpoint} refused the request: {status}{}", because(.code, .message))]
    Refused { endpoint: String, status: u16, code: String, message: String },
    /// A file of this machine.
    #[error("can't read the file to upload: {0}")]
    File(String),
}

fn because(code: &str, message: &str) -> String {
    match (code, message) {
        ("", "") => String::new(),
        (code, "") => format!(" {code}"),
        (code, message) => format!(" {code} ({message})"),
    }
}

/// A file to upload, already read once.
#[derive(Debug, Clone, Copy)]
pub struct BucketUpload<'a> {
    pub file: &'a Path,
    pub size: u64,
    pub sha256: [u8; 32],
}

type Result<T, E = BucketError> = std::result::Result<T, E>;

// === impl Bucket ===

impl Bucket {
    /// The certificate is trusted as this machine trusts servers, or if one of `certificates` (PEM) vouches for it.
    pub fn new(address: BucketAddress, certificates: Option<&[u8]>) -> Result<Self, Error> {
        let invalid = |what: String| Error::Invalid { what, hint: "Use https://HOST or http://HOST:PORT.".to_owned() };
        let endpoint: Url = address
            .endpoint
            .parse()
            .map_err(|_| invalid(format!("the address of the object store isn't a URL: {}", address.endpoint)))?;
        if !matches!(endpoint.scheme(), "http" | "https") || endpoint.host_str().is_none() || endpoint.path() != "/" {
            return Err(invalid(format!("the address of the object store must have no path: {}", address.endpoint)));
        }
        let builder = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            // A redirect or a proxy could carry signed requests to an unintended server.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .tcp_nodelay(true);
        let builder = if endpoint.scheme() == "https" {
            builder.tls_backend_preconfigured(tls::verified(None, certificates, &["http/1.1"])?)
        } else {
            builder.tls_certs_only([])
        };
        let client = builder.build().map_err(|error| Error::Invalid {
            what: format!("can't set up TLS: {}", chain(&error)),
            hint: "Install the package ca-certificates.".to_owned(),
        })?;
        Ok(Self { client, address, endpoint })
    }

    /// `s3://BUCKET/PREFIX`
    pub fn name(&self) -> String {
        let BucketAddress { bucket, prefix, .. } = &self.address;
        format!("s3://{bucket}{}{prefix}", if prefix.is_empty() { "" } else { "/" })
    }

    /// Whether the bucket exists and answers with these keys.
    pub async fn check(&self, now: Timestamp) -> Result<()> {
        self.page("", 1, None, now).await.map(drop)
    }

    /// Uploads a file. An object with this key is replaced.
    pub async fn put(&self, key: &str, upload: BucketUpload<'_>, now: Timestamp) -> Result<()> {
        let request = BucketRequest { upload: Some(upload), ..BucketRequest::of(Method::PUT, self.key(key)) };
        self.answer(&request, now).await.map(drop)
    }

    /// The content of an object.
    pub async fn get(&self, key: &str, now: Timestamp) -> Result<impl Stream<Item = Result<Bytes>> + Unpin + use<>> {
        let found = self.answer(&BucketRequest::of(Method::GET, self.key(key)), now).await?;
        let endpoint = self.address.endpoint.clone();
        Ok(Box::pin(found.bytes_stream().map_err(move |error| unreachable(&endpoint, &error))))
    }

    pub async fn exists(&self, key: &str, now: Timestamp) -> Result<bool> {
        match self.answer(&BucketRequest::of(Method::HEAD, self.key(key)), now).await {
            Ok(_) => Ok(true),
            Err(BucketError::Missing) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes an object, if it exists.
    pub async fn remove(&self, key: &str, now: Timestamp) -> Result<()> {
        match self.answer(&BucketRequest::of(Method::DELETE, self.key(key)), now).await {
            Ok(_) | Err(BucketError::Missing) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Up to 1,000 objects, whose keys are without the prefix of the bucket.
    pub async fn list(&self, after: Option<&str>, now: Timestamp) -> Result<BucketPage> {
        let mut page = self.page(&self.key(""), 1000, after, now).await?;
        let prefix = self.key("");
        page.objects = page
            .objects
            .into_iter()
            .filter_map(|object| Some(BucketObject { key: object.key.strip_prefix(&prefix)?.to_owned(), ..object }))
            .collect();
        Ok(page)
    }

    async fn page(&self, prefix: &str, max: u16, after: Option<&str>, now: Timestamp) -> Result<BucketPage> {
        let mut query = Vec::new();
        query.extend(after.map(|after| ("continuation-token", after.to_owned())));
        query.extend([("list-type", "2".to_owned()), ("max-keys", max.to_string()), ("prefix", prefix.to_owned())]);
        let request = BucketRequest { query, ..BucketRequest::of(Method::GET, String::new()) };
        let text = self.text(self.answer(&request, now).await?).await?;
        Ok(BucketPage::from_xml(&text))
    }

    fn key(&self, key: &str) -> String {
        match &*self.address.prefix {
            "" => key.to_owned(),
            prefix => format!("{prefix}/{key}"),
        }
    }

    /// Sends until there is an answer that another attempt wouldn't change.
    async fn answer(&self, request: &BucketRequest<'_>, now: Timestamp) -> Result<Response> {
        let mut pauses = PAUSES.iter();
        loop {
            let failed = match self.send(request, now).await {
                Err(error) if error.is_passing() => error,
                done => return done,
            };
            let Some(pause) = pauses.next() else { return Err(failed) };
            tokio::time::sleep(*pause).await;
        }
    }

    async fn send(&self, request: &BucketRequest<'_>, now: Timestamp) -> Result<Response> {
        let path = format!(
            "/{}{}",
            encoded(&self.address.bucket, false),
            match &*request.key {
                "" => String::new(),
                key => format!("/{}", encoded(key, true)),
            }
        );
        let query: Vec<String> =
            request.query.iter().map(|(name, value)| format!("{name}={}", encoded(value, false))).collect();
        let query = query.join("&");
        let payload = match request.upload {
            Some(upload) => hex(&upload.sha256),
            None => hex(digest(&SHA256, b"").as_ref()),
        };
        let mut url = self.endpoint.clone();
        url.set_path(&path);
        url.set_query((!query.is_empty()).then_some(&query));
        let time = compact(now);
        let host = match url.port() {
            Some(port) => format!("{}:{port}", url.host_str().unwrap_or_default()),
            None => url.host_str().unwrap_or_default().to_owned(),
        };
        let mut headers = vec![("host", &*host), ("x-amz-content-sha256", &*payload), ("x-amz-date", &*time)];
        if let Some(token) = &self.address.session_token {
            headers.push(("x-amz-security-token", token.expose()));
        }
        let parts = SignedParts {
            method: request.method.as_str(),
            path: &path,
            query: &query,
            headers: &headers,
            payload: &payload,
        };
        let signer = RequestSigner {
            access_key: &self.address.access_key,
            secret_key: &self.address.secret_key,
            region: &self.address.region,
            time: &time,
        };
        let mut sent =
            self.client.request(request.method.clone(), url).header("authorization", signer.authorization(&parts));
        // The client sets `Host` itself, to the same value.
        for (name, value) in headers.iter().skip(1) {
            sent = sent.header(*name, *value);
        }
        if let Some(upload) = request.upload {
            let file = File::open(upload.file).await.map_err(|error| BucketError::File(error.to_string()))?;
            sent = sent.header("content-length", upload.size).body(file);
        }
        let answer = sent.send().await.map_err(|error| unreachable(&self.address.endpoint, &error))?;
        match answer.status() {
            status if status.is_success() => Ok(answer),
            // A bucket that doesn't exist is an error of the settings, not of the object.
            StatusCode::NOT_FOUND if request.method == Method::HEAD => Err(BucketError::Missing),
            status => {
                let (code, message) = listing::refusal(&self.text(answer).await?);
                if status == StatusCode::NOT_FOUND && code == "NoSuchKey" {
                    return Err(BucketError::Missing);
                }
                Err(BucketError::Refused {
                    endpoint: self.address.endpoint.clone(),
                    status: status.as_u16(),
                    code,
                    message,
                })
            }
        }
    }

    async fn text(&self, mut answer: Response) -> Result<String> {
        let mut text = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(|error| unreachable(&self.address.endpoint, &error))? {
            text.extend_from_slice(&part);
            if text.len() > MAX_XML {
                break;
            }
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.name(), self.address.endpoint)
    }
}

// === impl BucketError ===

impl BucketError {
    /// Another attempt may go better.
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, .. } => *status >= 500 || *status == 429,
            Self::Missing | Self::File(_) => false,
        }
    }
}

/// A request before it is signed.
struct BucketRequest<'a> {
    method: Method,
    /// With the prefix. Empty: the bucket itself.
    key: String,
    /// Sorted by name.
    query: Vec<(&'static str, String)>,
    upload: Option<BucketUpload<'a>>,
}

// === impl BucketRequest ===

impl BucketRequest<'_> {
    const fn of(method: Method, key: String) -> Self {
        Self { method, key, query: Vec::new(), upload: None }
    }
}

fn unreachable(endpoint: &str, error: &reqwest::Error) -> BucketError {
    BucketError::Unreachable { endpoint: endpoint.to_owned(), reason: chain(error) }
}

/// `20130524T000000Z`
fn compact(now: Timestamp) -> String {
    let text = now.to_string();
    let seconds = text.split('.').next().unwrap_or_default();
    seconds.chars().filter(|c| !matches!(c, '-' | ':')).chain(['Z']).collect()
}

/// Everything but what RFC 3986 leaves alone, and slashes in a path.
fn encoded(text: &str, is_path: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            b'/' if is_path => encoded.push('/'),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_names_are_written_as_they_are_signed() {
        assert_eq!(compact(Timestamp::from_millis(1_369_353_600_123)), "20130524T000000Z");
        assert_eq!(encoded("a b/ü~+", true), "a%20b/%C3%BC~%2B");
        assert_eq!(encoded("a/b", false), "a%2Fb");
    }

    #[test]
    fn no_secret_is_shown() {
        let address = BucketAddress {
            endpoint: "http://127.0.0.1:1".to_owned(),
            region: "eu".to_owned(),
            bucket: "b".to_owned(),
            prefix: "p".to_owned(),
            access_key: "AKIA".to_owned(),
            secret_key: Secret::new("very-secret".to_owned()),
            session_token: Some(Secret::new("also-secret".to_owned())),
        };
        let bucket = Bucket::new(address, None).unwrap();
        assert_eq!(bucket.to_string(), "s3://b/p at http://127.0.0.1:1");
        assert!(!format!("{bucket:?}").contains("-secret"));
    }
}

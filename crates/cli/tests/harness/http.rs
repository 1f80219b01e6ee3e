//! Minimal HTTP/1.1: one request per connection, so that a test can send what no library would.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use super::LIMIT;

#[derive(Debug, Clone)]
pub struct TestReply {
    pub status: u16,
    /// Header names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// Sends a request with a JSON body, or none.
pub fn json(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: Option<&serde_json::Value>,
) -> io::Result<TestReply> {
    match body {
        Some(body) => {
            let mut all = headers.to_vec();
            all.push(("content-type", "application/json"));
            send(method, url, &all, &serde_json::to_vec(body)?)
        }
        None => send(method, url, headers, b""),
    }
}

/// Sends a request. The caller's `host` header replaces the default.
pub fn send(method: &str, url: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<TestReply> {
    let rest = url.strip_prefix("http://").ok_or_else(|| io::Error::other("only http:// here"))?;
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let mut request = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    let has = |name: &str| headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(name));
    if !has("host") {
        request += &format!("host: {authority}\r\n");
    }
    if !has("content-length") && (!body.is_empty() || method != "GET") {
        request += &format!("content-length: {}\r\n", body.len());
    }
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += "\r\n";
    let mut bytes = request.into_bytes();
    bytes.extend_from_slice(body);
    raw(authority, &bytes)
}

/// Sends raw bytes and reads one response until the server closes the connection.
pub fn raw(authority: &str, request: &[u8]) -> io::Result<TestReply> {
    let mut stream = TcpStream::connect(authority)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.set_nodelay(true)?;
    // A server may refuse before it has read everything; its response counts, not our broken pipe.
    let sent = stream.write_all(request);
    let mut answer = Vec::new();
    let received = stream.read_to_end(&mut answer);
    match TestReply::parse(&answer) {
        Some(reply) => Ok(reply),
        None => Err(sent.and(received.map(drop)).err().unwrap_or_else(|| io::Error::other("no HTTP answer"))),
    }
}

/// Sends a request and leaves the response unread, for event streams. Read it line by line.
pub fn open(method: &str, url: &str, headers: &[(&str, &str)]) -> io::Result<io::BufReader<TcpStream>> {
    let rest = url.strip_prefix("http://").ok_or_else(|| io::Error::other("only http:// here"))?;
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let mut stream = TcpStream::connect(authority)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: {authority}\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{request}\r\n").as_bytes())?;
    Ok(io::BufReader::new(stream))
}

// === impl TestReply ===

impl TestReply {
    fn parse(answer: &[u8]) -> Option<Self> {
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&answer[..end]);
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        if status == 100 {
            return Self::parse(&answer[end + 4..]);
        }
        let headers: Vec<_> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let body = &answer[end + 4..];
        let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value.contains("chunked"));
        let body = if chunked { unchunk(body) } else { body.to_vec() };
        Some(Self { status, headers, body })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The reply, if it has this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.text()))
    }

    /// `error.code` of a refusal.
    #[track_caller]
    pub fn error_code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

fn unchunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end])
            .ok()
            .and_then(|line| usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16).ok());
        let Some(size) = size.filter(|size| *size > 0) else { break };
        let from = end + 2;
        let to = (from + size).min(rest.len());
        body.extend_from_slice(&rest[from..to]);
        rest = rest.get(to + 2..).unwrap_or_default();
    }
    body
}

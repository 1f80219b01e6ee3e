//! Calls to a hub that may be down, without panics.

use std::{
    io::{self, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::harness::{TestReply, http};

/// A caller of the hub: the owner, or a simulated runtime.
#[derive(Debug, Clone)]
pub struct StormCaller {
    url: String,
    header: &'static str,
    credential: String,
}

/// How long a hub that is constantly killed may need to answer once.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

// === impl StormCaller ===

impl StormCaller {
    pub fn owner(url: &str, key: &str) -> Self {
        Self { url: url.to_owned(), header: "authorization", credential: format!("Bearer {key}") }
    }

    pub fn runtime(url: &str, token: &str) -> Self {
        Self { url: url.to_owned(), header: "x-runtime-token", credential: token.to_owned() }
    }

    /// A single attempt.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> io::Result<TestReply> {
        http::json(method, &format!("{}{path}", self.url), &[(self.header, &self.credential)], body)
    }

    /// The response, if the hub is up and returns 200.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.call("GET", path, None).ok().filter(|reply| reply.status == 200).map(|reply| reply.json())
    }

    /// Retries until the hub answers. Only for idempotent requests.
    pub fn insist(&self, method: &str, path: &str, body: Option<&Value>) -> TestReply {
        let give_up = Instant::now() + CALL_TIMEOUT;
        loop {
            match self.call(method, path, body) {
                // A hub that is shutting down or full returns 503.
                Ok(reply) if reply.status != 503 => return reply,
                Ok(reply) => assert!(Instant::now() < give_up, "{method} {path}: {}", reply.text()),
                Err(error) => assert!(Instant::now() < give_up, "{method} {path}: {error}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends a request and returns the connection without reading the response.
    pub fn send(&self, method: &str, path: &str) -> io::Result<TcpStream> {
        let authority = self.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(authority)?;
        stream.set_nodelay(true)?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {authority}\r\n{}: {}\r\ncontent-length: 0\r\n\r\n",
            self.header, self.credential
        );
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    }
}

//! Calls to a hub that may be away: nothing here panics because of that.

use std::{
    io::{self, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::harness::{TestReply, http};

/// Somebody who calls the hub: the owner, or a runtime of the test's own.
#[derive(Debug, Clone)]
pub struct StormCaller {
    url: String,
    header: &'static str,
    credential: String,
}

/// How long a hub that is being killed all the time may need to answer once.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

// === impl StormCaller ===

impl StormCaller {
    pub fn owner(url: &str, key: &str) -> Self {
        Self { url: url.to_owned(), header: "authorization", credential: format!("Bearer {key}") }
    }

    pub fn runtime(url: &str, token: &str) -> Self {
        Self { url: url.to_owned(), header: "x-runtime-token", credential: token.to_owned() }
    }

    /// One try.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> io::Result<TestReply> {
        http::json(method, &format!("{}{path}", self.url), &[(self.header, &self.credential)], body)
    }

    /// The answer, if the hub is there and says 200.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.call("GET", path, None).ok().filter(|reply| reply.status == 200).map(|reply| reply.json())
    }

    /// Tries until the hub answers. Only for what may be repeated.
    pub fn insist(&self, method: &str, path: &str, body: Option<&Value>) -> TestReply {
        let give_up = Instant::now() + CALL_TIMEOUT;
        loop {
            match self.call(method, path, body) {
                // 503 is what a hub says that is just going away or full.
                Ok(reply) if reply.status != 503 => return reply,
                Ok(reply) => assert!(Instant::now() < give_up, "{method} {path}: {}", reply.text()),
                Err(error) => assert!(Instant::now() < give_up, "{method} {path}: {error}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends a request and gives the connection without having read a byte of the answer.
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

//! A minimal HTTP/1.1 client on one connection: callers share the machine with the measured server, so they do as
//! little as possible.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::BenchResult;

#[derive(Debug)]
pub(super) struct HttpConnection {
    stream: TcpStream,
    address: SocketAddr,
    buffer: Vec<u8>,
}

// === impl HttpConnection ===

impl HttpConnection {
    pub(super) async fn connect(address: SocketAddr) -> BenchResult<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, address, buffer: Vec::with_capacity(8192) })
    }

    /// Posts JSON. `credential` is a complete header. Returns the body of the answer.
    pub(super) async fn post(&mut self, path: &str, credential: &str, body: &str) -> BenchResult<&[u8]> {
        let head = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        self.ask("POST", path, credential, &head, body).await
    }

    pub(super) async fn get(&mut self, path: &str, credential: &str) -> BenchResult<&[u8]> {
        self.ask("GET", path, credential, "", "").await
    }

    async fn ask(&mut self, method: &str, path: &str, credential: &str, head: &str, body: &str) -> BenchResult<&[u8]> {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n{credential}\r\n{head}\r\n{body}", self.address);
        self.stream.write_all(request.as_bytes()).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the server closed the connection".into());
            }
            if let Some((head, length)) = lengths(&self.buffer)?
                && self.buffer.len() >= head + length
            {
                return Ok(&self.buffer[head..head + length]);
            }
        }
    }
}

/// The lengths of head and body, once the head is complete. Anything but success is an error.
fn lengths(answer: &[u8]) -> BenchResult<Option<(usize, usize)>> {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&answer[..end])?;
    if !head.starts_with("HTTP/1.1 20") {
        return Err(format!("the server answered: {}", String::from_utf8_lossy(answer)).into());
    }
    let length = head
        .lines()
        .find_map(|line| line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length")))
        .ok_or("an answer without a content-length")?
        .1;
    Ok(Some((end + 4, length.trim().parse()?)))
}

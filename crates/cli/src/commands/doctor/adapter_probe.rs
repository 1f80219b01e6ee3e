//! Probes an adapter with `GET /health`, which needs no secret.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_ANSWER: u64 = 64 << 10;

/// Whether an adapter answers, or why not.
pub(crate) async fn adapter(endpoint: &str) -> Result<(), String> {
    let rest = endpoint.strip_prefix("http://").ok_or("only http:// addresses are supported")?;
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let target = if authority.contains(':') { authority.to_owned() } else { format!("{authority}:80") };
    let request =
        format!("GET {}/health HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n", path.trim_end_matches('/'));
    let asked = async {
        let mut stream = TcpStream::connect(&target).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer =
        timeout(PROBE_TIMEOUT, asked).await.map_err(|_| "no answer in time")?.map_err(|error| error.to_string())?;
    let first = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
    if first.split(' ').nth(1) == Some("200") { Ok(()) } else { Err(format!("it answered `{}`", first.trim())) }
}

//! Probes an adapter with `GET /health`, as its runtime does.

use std::time::Duration;

use attache_protocol::Secret;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_ANSWER: u64 = 64 << 10;

/// Why an adapter can't be used.
#[derive(Debug)]
pub(crate) enum AdapterProblem {
    Unreachable(String),
    WrongSecret,
}

/// Whether an adapter answers a runtime with this secret.
pub(crate) async fn adapter(endpoint: &str, secret: Option<&Secret<String>>) -> Result<(), AdapterProblem> {
    let status = health(endpoint, secret).await.map_err(AdapterProblem::Unreachable)?;
    match status.split(' ').nth(1) {
        Some("200") => Ok(()),
        Some("401" | "403") => Err(AdapterProblem::WrongSecret),
        _ => Err(AdapterProblem::Unreachable(format!("it answered `{}`", status.trim()))),
    }
}

/// The first line of its answer.
async fn health(endpoint: &str, secret: Option<&Secret<String>>) -> Result<String, String> {
    let rest = endpoint.strip_prefix("http://").ok_or("only http:// addresses are supported")?;
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let target = if authority.contains(':') { authority.to_owned() } else { format!("{authority}:80") };
    let path = path.trim_end_matches('/');
    let secret = secret.map(|secret| format!("authorization: Bearer {}\r\n", secret.expose())).unwrap_or_default();
    let request = format!("GET {path}/health HTTP/1.1\r\nhost: {authority}\r\n{secret}connection: close\r\n\r\n");
    let asked = async {
        let mut stream = TcpStream::connect(&target).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer =
        timeout(PROBE_TIMEOUT, asked).await.map_err(|_| "no answer in time")?.map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned())
}

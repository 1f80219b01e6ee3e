//! The hub's memory use for an idle channel.

use std::time::Duration;

use attache_protocol::{Secret, wire::channel::RegisterAgent};
use serde::Serialize;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{BenchResult, ServerProcess};

/// How many agents register or connect at the same time.
const MAX_CONCURRENT: usize = 32;
const SETTLE_INTERVAL: Duration = Duration::from_secs(3);

#[derive(Debug, Serialize)]
pub(super) struct IdleFigures {
    pub(super) channels: usize,
    pub(super) kib_per_channel: f64,
    pub(super) hub_mib: f64,
}

/// Registers this many agents, then opens a channel for each and leaves it idle.
pub(super) async fn measure(hub: &ServerProcess, channels: usize) -> BenchResult<IdleFigures> {
    let keys = gather(channels, |number| {
        let owner = super::owner(hub);
        async move {
            let request = RegisterAgent {
                agent_id: Some(format!("idle-{number}")),
                capabilities: None,
                device_info: None,
                url: None,
                pairing_token: None,
            };
            Ok(owner?.register_agent(&request).await?.api_key)
        }
    })
    .await?;
    tokio::time::sleep(SETTLE_INTERVAL).await;
    let before = hub.resident_kib()?;
    let address = hub.url.trim_start_matches("http://").to_owned();
    let sockets = gather(channels, |number| open(address.clone(), keys[number].clone())).await?;
    tokio::time::sleep(SETTLE_INTERVAL).await;
    let after = hub.resident_kib()?;
    let open = u32::try_from(sockets.len())?;
    Ok(IdleFigures { channels, kib_per_channel: (after - before) / f64::from(open), hub_mib: after / 1024.0 })
}

async fn gather<T: Send + 'static, F>(count: usize, make: impl Fn(usize) -> F) -> BenchResult<Vec<T>>
where
    F: Future<Output = BenchResult<T>> + Send + 'static,
{
    let mut gathered = Vec::with_capacity(count);
    for first in (0..count).step_by(MAX_CONCURRENT) {
        let tasks: Vec<_> =
            (first..count.min(first + MAX_CONCURRENT)).map(|number| tokio::spawn(make(number))).collect();
        for task in tasks {
            gathered.push(task.await??);
        }
    }
    Ok(gathered)
}

/// Opens a channel by hand: the benchmark's own side of ten thousand sockets must stay small.
async fn open(address: String, key: Secret<String>) -> BenchResult<TcpStream> {
    let mut stream = TcpStream::connect(&address).await?;
    let upgrade = format!(
        "GET /api/envelope/ws HTTP/1.1\r\nhost: {address}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nauthorization: Bearer {}\r\n\r\n",
        key.expose()
    );
    stream.write_all(upgrade.as_bytes()).await?;
    read_until(&mut stream, "\r\n\r\n").await?;
    let frame = |id: &str, kind: &str, payload: &str| {
        format!(
            r#"{{"header":{{"msg_id":"{id}","parent_id":null,"type":"{kind}","from":"idle","to":"hub","timestamp":0}},"payload":{payload}}}"#
        )
    };
    send(&mut stream, &frame("1", "request", r#"{"action":"register","peer_role":"worker"}"#)).await?;
    read_until(&mut stream, "resume_token").await?;
    send(&mut stream, &frame("2", "notification", r#"{"action":"ready","credits":1}"#)).await?;
    Ok(stream)
}

/// One masked text frame. The mask is zero, which is good enough for a benchmark.
async fn send(stream: &mut TcpStream, text: &str) -> BenchResult<()> {
    let length = u16::try_from(text.len())?;
    let mut frame = vec![0x81, 0xfe];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(text.as_bytes());
    Ok(stream.write_all(&frame).await?)
}

async fn read_until(stream: &mut TcpStream, wanted: &str) -> BenchResult<()> {
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains(wanted) {
        if stream.read_buf(&mut received).await? == 0 {
            return Err(format!("the hub closed a channel: {}", String::from_utf8_lossy(&received)).into());
        }
    }
    Ok(())
}

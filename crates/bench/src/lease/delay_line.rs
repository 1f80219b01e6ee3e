//! A link of a given latency in front of a server on this machine: every byte arrives half a round trip later, in
//! order, and at any rate.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::{bytes::Bytes, sync::CancellationToken};

const CHUNK: usize = 64 << 10;
/// The most chunks in flight: enough for 1 GB/s at 100 ms.
const IN_FLIGHT: usize = 2048;

/// Listens on a port of its own and passes connections on to `port`, until `stop`.
pub(super) async fn listen(port: u16, round_trip: Duration, stop: CancellationToken) -> io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let own = listener.local_addr()?.port();
    tokio::spawn(stop.run_until_cancelled_owned(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
            let _ = (near.set_nodelay(true), far.set_nodelay(true));
            let (near, far) = (near.into_split(), far.into_split());
            tokio::spawn(carry(near.0, far.1, round_trip / 2));
            tokio::spawn(carry(far.0, near.1, round_trip / 2));
        }
    }));
    Ok(own)
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (sender, mut line) = mpsc::channel::<(Instant, Bytes)>(IN_FLIGHT);
    let reading = async move {
        let mut buffer = vec![0; CHUNK];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            let arrival = (Instant::now() + delay, Bytes::copy_from_slice(&buffer[..read]));
            if sender.send(arrival).await.is_err() {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((arrival, bytes)) = line.recv().await {
            sleep_until(arrival).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(reading, writing);
}

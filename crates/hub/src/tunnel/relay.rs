//! The sockets of a tunnel: host sockets wait, each remote is paired with the oldest one, and then bytes pass. Each end
//! is read only as fast as the other accepts data.

use std::{sync::Arc, time::Duration};

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use bytes::Bytes;
use futures_util::{
    Sink, SinkExt as _, Stream, StreamExt as _,
    future::{Either, select},
};
use tokio::{
    sync::oneshot,
    time::{interval, timeout},
};

use super::{MAX_WAITING_HOSTS, RelayedTunnel, TunnelRemote, TunnelSlot, lock};
use crate::{Handle, connection_slot::ConnectionSlot};

/// How long a remote waits for its host.
const HOST_TIMEOUT: Duration = Duration::from_secs(10);
/// How often an idle socket is pinged.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// How many pings may go unanswered.
const MAX_MISSED_PINGS: u32 = 3;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Codes of RFC 6455, section 7.4.1.
const CLOSE_NORMAL: u16 = 1000;
const CLOSE_POLICY: u16 = 1008;
const TOO_MUCH: u16 = 1009;
const NO_HOST: u16 = 1013;

/// Why relaying stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RelayEnd {
    /// One of the two has left.
    Left,
    TooMuch,
    Cut,
}

/// A host socket, from waiting to the end of its connection.
pub(crate) async fn serve_host(
    hub: Handle,
    tunnel: Arc<RelayedTunnel>,
    mut host: WebSocket,
    connection_slot: Option<ConnectionSlot>,
) {
    let (give, taken) = oneshot::channel();
    let too_many = {
        let mut waiting_hosts = lock(&tunnel.waiting_hosts);
        waiting_hosts.retain(|host| !host.is_closed());
        let too_many = waiting_hosts.len() >= MAX_WAITING_HOSTS;
        if !too_many {
            waiting_hosts.push_back(give);
        }
        too_many
    };
    if too_many {
        return close(&mut host, CLOSE_POLICY, "too many sockets are already waiting").await;
    }
    tunnel.host_arrived.notify_one();
    let remote = match wait(&tunnel, &mut host, taken).await {
        Ok(remote) => remote,
        Err(RelayEnd::Left) => return,
        Err(RelayEnd::Cut | RelayEnd::TooMuch) => return close(&mut host, CLOSE_POLICY, "the tunnel has ended").await,
    };
    if host.send(Message::text("paired")).await.is_err() {
        // The host socket left just now. Try another.
        return pair_with_host(&tunnel, remote).await;
    }
    relay(&hub, &tunnel, host, remote).await;
    drop(connection_slot);
}

/// Waits for a remote, and notices if the host leaves meanwhile.
async fn wait(
    tunnel: &RelayedTunnel,
    host: &mut WebSocket,
    mut taken: oneshot::Receiver<TunnelRemote>,
) -> Result<TunnelRemote, RelayEnd> {
    let mut beat = interval(PING_INTERVAL);
    let mut missed_pings = 0;
    loop {
        tokio::select! {
            biased;
            () = tunnel.closed.cancelled() => return Err(RelayEnd::Cut),
            remote = &mut taken => return remote.map_err(|_| RelayEnd::Cut),
            message = host.recv() => match message {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => missed_pings = 0,
                // It must not send anything before it is paired.
                Some(Ok(Message::Binary(_) | Message::Text(_) | Message::Close(_)) | Err(_)) | None => {
                    return Err(RelayEnd::Left);
                }
            },
            _ = beat.tick() => {
                missed_pings += 1;
                if missed_pings > MAX_MISSED_PINGS || host.send(Message::Ping(Bytes::new())).await.is_err() {
                    return Err(RelayEnd::Left);
                }
            }
        }
    }
}

/// A remote's socket.
pub(crate) async fn serve_remote(
    tunnel: Arc<RelayedTunnel>,
    socket: WebSocket,
    tunnel_slot: TunnelSlot,
    connection_slot: Option<ConnectionSlot>,
) {
    pair_with_host(&tunnel, TunnelRemote { socket, tunnel_slot, connection_slot }).await;
}

/// Pairs the remote with the host's oldest waiting socket, or with the next one.
async fn pair_with_host(tunnel: &RelayedTunnel, mut remote: TunnelRemote) {
    loop {
        remote = match try_pair(tunnel, remote) {
            Ok(()) => return,
            Err(remote) => remote,
        };
        let arrived = tokio::select! {
            () = tunnel.closed.cancelled() => None,
            arrived = timeout(HOST_TIMEOUT, tunnel.host_arrived.notified()) => arrived.ok(),
        };
        if arrived.is_none() {
            return close(&mut remote.socket, NO_HOST, "the host does not respond").await;
        }
    }
}

/// Returns the remote if no host socket waits.
#[allow(clippy::result_large_err, reason = "it is handed back, not an error")]
fn try_pair(tunnel: &RelayedTunnel, mut remote: TunnelRemote) -> Result<(), TunnelRemote> {
    loop {
        let Some(host) = lock(&tunnel.waiting_hosts).pop_front() else { return Err(remote) };
        match host.send(remote) {
            Ok(()) => return Ok(()),
            // It has left meanwhile.
            Err(back) => remote = back,
        }
    }
}

async fn relay(hub: &Handle, tunnel: &RelayedTunnel, host: WebSocket, remote: TunnelRemote) {
    let TunnelRemote { socket, tunnel_slot, connection_slot } = remote;
    let ((mut to_host, mut from_host), (mut to_remote, mut from_remote)) = (host.split(), socket.split());
    let end = {
        let up = std::pin::pin!(pump(hub, tunnel, &mut from_remote, &mut to_host));
        let down = std::pin::pin!(pump(hub, tunnel, &mut from_host, &mut to_remote));
        tokio::select! {
            biased;
            () = tunnel.closed.cancelled() => RelayEnd::Cut,
            end = select(up, down) => match end {
                Either::Left((end, _)) | Either::Right((end, _)) => end,
            },
        }
    };
    let (code, reason) = match end {
        RelayEnd::Left => (CLOSE_NORMAL, "the other end disconnected"),
        RelayEnd::TooMuch => (TOO_MUCH, "the tunnel has reached its byte limit"),
        RelayEnd::Cut => (CLOSE_POLICY, "the tunnel has ended"),
    };
    tracing::debug!(tunnel.id = %tunnel.id, ?end, "a connection of a tunnel ended");
    drop((tunnel_slot, connection_slot));
    // Nothing more passes, not even data in flight.
    if end == RelayEnd::Cut {
        return;
    }
    if let (Ok(mut host), Ok(mut remote)) = (to_host.reunite(from_host), to_remote.reunite(from_remote)) {
        tokio::join!(close(&mut host, code, reason), close(&mut remote, code, reason));
    }
}

/// One direction.
async fn pump<From, To>(hub: &Handle, tunnel: &RelayedTunnel, from: &mut From, to: &mut To) -> RelayEnd
where
    From: Stream<Item = Result<Message, axum::Error>> + Unpin,
    To: Sink<Message> + Unpin,
{
    let mut missed_pings = 0;
    loop {
        let passed = match timeout(PING_INTERVAL, from.next()).await {
            // This end was silent, so nothing was sent to the other one: ping it.
            Err(_) => {
                missed_pings += 1;
                if missed_pings > MAX_MISSED_PINGS {
                    return RelayEnd::Left;
                }
                to.send(Message::Ping(Bytes::new())).await
            }
            Ok(Some(Ok(Message::Binary(bytes)))) => {
                missed_pings = 0;
                if !tunnel.admit(bytes.len()) {
                    return RelayEnd::TooMuch;
                }
                hub.metrics().tunnel_bytes.add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                to.send(Message::Binary(bytes)).await
            }
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {
                missed_pings = 0;
                continue;
            }
            // Only binary messages are relayed.
            Ok(Some(Ok(Message::Text(_) | Message::Close(_)) | Err(_)) | None) => return RelayEnd::Left,
        };
        if passed.is_err() {
            return RelayEnd::Left;
        }
    }
}

async fn close(socket: &mut WebSocket, code: u16, reason: &'static str) {
    let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
    let goodbye = async {
        socket.send(close).await?;
        while let Some(message) = socket.recv().await {
            message?;
        }
        Ok::<(), axum::Error>(())
    };
    let _ = timeout(CLOSE_TIMEOUT, goodbye).await;
}

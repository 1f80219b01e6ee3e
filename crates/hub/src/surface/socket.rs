//! A channel session over a WebSocket: reads messages, writes one frame at a time, pings, and closes.

use std::time::Duration;

use attache_protocol::wire::envelope::MAX_FRAME;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::{body::Body, http::Response, response::IntoResponse as _};
use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep_until, timeout};

use crate::{
    Handle, Result,
    channel::{ChannelDialect, ChannelSession, SessionEnd, refusal_text},
    connection_slot::ConnectionSlot,
    stream::StreamSlot,
    surface::metered::{FIRST_FRAME_TOO_LONG, TOO_MUCH_UNREAD},
};

/// Messages slightly above the frame limit are read, so that they can be rejected with an error frame. Longer ones are refused by
/// what they announce.
const MAX_MESSAGE: usize = MAX_FRAME + (64 << 10);
/// What a control frame of a client takes besides its payload.
const CONTROL_FRAME: usize = 6;
/// How many messages are read before pending frames are written.
const MAX_READ_BATCH: usize = 32;
/// How long to wait for a peer's close frame when the hub stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Turns the request into a WebSocket that carries the session.
pub(super) fn upgrade(
    upgrade: WebSocketUpgrade,
    hub: Handle,
    session: ChannelSession,
    connection_slot: Option<ConnectionSlot>,
) -> Result<Response<Body>> {
    let stream_slot = session.principal().map(|by| hub.stream_slot(by)).transpose()?;
    // Ten thousand idle sockets must not hold ten thousand large buffers.
    let upgrade =
        upgrade.read_buffer_size(4096).write_buffer_size(0).max_message_size(MAX_MESSAGE).max_frame_size(MAX_MESSAGE);
    match (&connection_slot, session.principal()) {
        (Some(connection_slot), None) => connection_slot.introduce(),
        (Some(connection_slot), Some(by)) => connection_slot.count_messages(by),
        (None, _) => {}
    }
    let session = Box::new(session);
    let response = upgrade.on_upgrade(move |socket| {
        let tracker = hub.tasks().clone();
        // Boxed once: a future that owns it would hold several copies for every idle socket.
        let conversation =
            Box::new(SocketSession { hub, socket, session, leaves_at: None, connection_slot, stream_slot });
        tracker.track_future(hold(conversation))
    });
    Ok(response.into_response())
}

struct SocketSession {
    hub: Handle,
    socket: WebSocket,
    session: Box<ChannelSession>,
    /// Set once the hub stops.
    leaves_at: Option<Instant>,
    connection_slot: Option<ConnectionSlot>,
    /// Its part of the caller's limit, from the moment the caller is known.
    stream_slot: Option<StreamSlot>,
}

async fn hold(mut conversation: Box<SocketSession>) {
    conversation.hub.metrics().channels.add(1);
    let ending = match Box::pin(conversation.begin()).await {
        Some(ending) => ending,
        None => conversation.run().await,
    };
    conversation.hub.metrics().channels.take(1);
    Box::pin(conversation.leave(ending)).await;
}

/// Resolves when the connection is evicted to make room for another.
async fn evicted(connection_slot: Option<&ConnectionSlot>) {
    match connection_slot {
        Some(connection_slot) => connection_slot.evicted().await,
        None => std::future::pending().await,
    }
}

// === impl SocketSession ===

impl SocketSession {
    /// A plain client registers by connecting.
    async fn begin(&mut self) -> Option<SessionEnd> {
        if self.session.dialect() != ChannelDialect::Plain {
            return None;
        }
        let refusal = self.session.begin_plain().await.err()?;
        let text = refusal_text(&self.hub, Some("register"), None, &refusal);
        self.send(Message::text(text)).await.or(Some(SessionEnd::Closed))
    }

    async fn run(&mut self) -> SessionEnd {
        loop {
            if let Some(ending) = Box::pin(self.write()).await {
                return ending;
            }
            let due = self.leaves_at.map_or_else(|| self.session.due(), |at| at.min(self.session.due()));
            tokio::select! {
                message = self.socket.recv() => {
                    if let Some(ending) = Box::pin(self.hear(message)).await {
                        return ending;
                    }
                }
                moved = self.session.moved() => Box::pin(self.session.note(moved)).await,
                () = sleep_until(due) => {
                    // Read what arrived meanwhile before checking the clock. It becomes visible after the runtime had a
                    // turn.
                    tokio::task::yield_now().await;
                    if let Some(message) = self.socket.recv().now_or_never()
                        && let Some(ending) = Box::pin(self.hear(message)).await
                    {
                        return ending;
                    }
                    if let Some(ending) = Box::pin(self.tick()).await {
                        return ending;
                    }
                }
                () = evicted(self.connection_slot.as_ref()), if self.session.principal().is_none() => return SessionEnd::Crowded,
                () = self.hub.drained(), if self.leaves_at.is_none() => {
                    self.leaves_at = Some(Instant::now() + CLOSE_TIMEOUT);
                    if let Some(text) = self.session.drain_frame()
                        && let Some(ending) = Box::pin(self.send(Message::text(text))).await
                    {
                        return ending;
                    }
                }
            }
        }
    }

    /// Writes everything that is pending for the peer, one frame after the other.
    async fn write(&mut self) -> Option<SessionEnd> {
        while let Some(outgoing) = self.session.next_frame().await {
            if let Some(ending) = self.send(Message::text(outgoing.text)).await {
                return Some(ending);
            }
            self.session.written(outgoing.seq);
        }
        self.session.ending()
    }

    /// Handles this message and those that arrived with it.
    async fn hear(&mut self, first: Option<std::result::Result<Message, axum::Error>>) -> Option<SessionEnd> {
        let mut next = Some(first);
        for left in (0..MAX_READ_BATCH).rev() {
            if let Some(connection_slot) = &self.connection_slot {
                match &next {
                    Some(Some(Ok(Message::Text(_) | Message::Binary(_)))) => connection_slot.end_message(),
                    // It may have come between the parts of a message.
                    Some(Some(Ok(Message::Ping(bytes) | Message::Pong(bytes)))) => {
                        connection_slot.forget_unread(bytes.len() + CONTROL_FRAME);
                    }
                    _ => {}
                }
            }
            let reply = match next? {
                None | Some(Ok(Message::Close(_))) => return Some(SessionEnd::Closed),
                Some(Err(error)) => return Some(self.broken(&error).await),
                Some(Ok(Message::Text(text))) => self.session.receive(text.as_str()).await,
                Some(Ok(Message::Binary(bytes))) => {
                    self.session.receive(std::str::from_utf8(&bytes).unwrap_or_default()).await
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {
                    self.session.mark_seen();
                    None
                }
            };
            if let Some(reply) = reply
                && let Some(ending) = self.send(Message::text(reply)).await
            {
                return Some(ending);
            }
            // The first frame may have authenticated the peer.
            if let (Some(connection_slot), Some(by)) = (&self.connection_slot, self.session.principal()) {
                if connection_slot.identify(by).is_err() {
                    return Some(SessionEnd::Crowded);
                }
                connection_slot.count_messages(by);
            }
            if let (None, Some(by)) = (&self.stream_slot, self.session.principal()) {
                match self.hub.stream_slot(by) {
                    Ok(stream_slot) => self.stream_slot = Some(stream_slot),
                    Err(_) => return Some(SessionEnd::Crowded),
                }
            }
            if self.session.ending().is_some() {
                return self.session.ending();
            }
            // Stop here, so that pending frames get their turn.
            next = if left > 0 { self.socket.recv().now_or_never() } else { None };
        }
        None
    }

    async fn tick(&mut self) -> Option<SessionEnd> {
        if self.leaves_at.is_some_and(|at| Instant::now() >= at) {
            return Some(SessionEnd::Drained);
        }
        if self.session.tick().await {
            return self.send(Message::Ping(Bytes::new())).await;
        }
        None
    }

    /// A peer that doesn't accept a frame within the heartbeat timeout is gone.
    async fn send(&mut self, message: Message) -> Option<SessionEnd> {
        match timeout(self.hub.options().heartbeat_timeout, self.socket.send(message)).await {
            Ok(Ok(())) => None,
            Ok(Err(_)) => Some(SessionEnd::Lost),
            Err(_) => Some(SessionEnd::Silent),
        }
    }

    async fn broken(&mut self, error: &axum::Error) -> SessionEnd {
        tracing::debug!(%error, "a channel's connection broke");
        let text = error.to_string();
        if text.contains(FIRST_FRAME_TOO_LONG) {
            let reason = "Without a credential in the header, the first frame can have at most 64 KiB.".into();
            let _ = self.send(Message::Close(Some(CloseFrame { code: 1009, reason }))).await;
        } else if text.contains(TOO_MUCH_UNREAD) {
            let reason = "Your other connections are sending too many large frames. Try again in a moment.".into();
            let _ = self.send(Message::Close(Some(CloseFrame { code: 1013, reason }))).await;
        } else if text.contains("too long") {
            let reason = "A frame can have at most 1 MiB. Upload larger data as an artifact.".into();
            let _ = self.send(Message::Close(Some(CloseFrame { code: 1009, reason }))).await;
        }
        SessionEnd::Lost
    }

    /// Sends a close frame and waits briefly for the peer's: closing with unread data would lose our last frames.
    async fn leave(&mut self, ending: SessionEnd) {
        if ending != SessionEnd::Lost {
            let close = CloseFrame { code: ending.code(), reason: ending.reason().into() };
            let goodbye = async {
                if ending != SessionEnd::Closed {
                    self.socket.send(Message::Close(Some(close))).await?;
                }
                while let Some(message) = self.socket.recv().await {
                    message?;
                }
                Ok::<(), axum::Error>(())
            };
            let _ = timeout(CLOSE_TIMEOUT, goodbye).await;
        }
        self.session.close(ending).await;
    }
}
